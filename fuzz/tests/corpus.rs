//! The stored inputs: recorded from real servers and kernels, and every one that once failed.
//!
//! In: `corpus/TARGET`. Out: how many inputs were checked. Invariant: a target without inputs fails.
//! Not here: new inputs; see `hack/fuzz`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::path::Path;

#[test]
fn every_stored_input_passes_its_check() {
    for (name, check) in fuzz::TARGETS {
        let folder = Path::new("corpus").join(name);
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            println!("{}", path.display());
            check(&bytes);
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
        println!("{name}: {count} inputs");
    }
}

#[test]
fn what_a_kernel_and_a_server_said_is_understood() {
    let corpus = Path::new("corpus");
    let (mut routes, mut nexthops) = (0, 0);
    for entry in std::fs::read_dir(corpus.join("netlink")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("real-") {
            let bytes = std::fs::read(&path).unwrap();
            // The first two bytes say where the check cuts.
            let found = netlink::probe::read(&bytes[2..]);
            println!("{name}: {found:?}");
            assert!(
                found.messages > 0 && !found.cut_off && found.refused == 0,
                "{name}: {found:?}"
            );
            routes += found.routes;
            nexthops += found.nexthops;
        }
    }
    assert!(
        routes > 20 && nexthops > 7,
        "{routes} routes, {nexthops} nexthops"
    );

    let session = std::fs::read_to_string(corpus.join("replica/real-session")).unwrap();
    let mut replica = fuzz::replica::fresh();
    for line in session.lines() {
        assert!(replica.apply(line).unwrap(), "{line}");
    }
}
