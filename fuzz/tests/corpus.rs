//! The stored inputs: recorded from real servers and kernels, and every one that once failed.
//!
//! In: `corpus/TARGET`. Out: how many inputs were checked. Invariant: a target without inputs fails.
//! Not here: new inputs; see `hack/fuzz`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::Path;

#[test]
fn every_stored_input_passes_its_check() {
    for (name, check) in fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(name);
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
