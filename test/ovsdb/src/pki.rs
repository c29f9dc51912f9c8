//! Authorities and certificates like those of `ovs-pki`, made by openssl.
//!
//! In: a folder, names. Out: PEM files there. Invariant: they are valid for two days.
//! Not here: who uses them.

use std::path::Path;
use std::process::Command;

use crate::server::run;

fn openssl(folder: &Path, arguments: &str) {
    run(Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder));
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// An authority: `NAME.key` and `NAME.pem` in the folder.
pub fn mk_authority(folder: &Path, name: &str) {
    openssl(
        folder,
        &format!("req -x509 {NEW_KEY} -keyout {name}.key -out {name}.pem -subj /CN={name} -days 2"),
    );
}

/// A certificate of an authority (`NAME.key`, `NAME.pem`), with the kind of name that `ovs-pki` gives, which no host has.
pub fn mk_certificate(folder: &Path, authority: &str, name: &str) {
    let extension = format!("{name}.ext");
    let id = format!("subjectAltName=DNS:{name} id:1f0ac0c9-7e3c-4bcd-b8a1-5ee0a2f2d0a4\n");
    std::fs::write(folder.join(&extension), id).unwrap();
    openssl(
        folder,
        &format!("req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"),
    );
    openssl(
        folder,
        &format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {name}.pem \
             -days 2 -extfile {extension}"
        ),
    );
}
