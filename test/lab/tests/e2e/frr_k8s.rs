//! A program in the place that `--frr-k8s` has for frr-k8s's controller: here a stand-in that speaks its contract with the
//! reloader and the API, for frr-k8s's own is no part of this repository.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::failover::{STEPS, under_pings};
use crate::harness::{Standing, able, call, name};

const STAND_IN: &str = include_str!("frr_k8s_stand_in.py");

/// The stand-in as a file, in /tmp on purpose: the controller gets a /tmp of its own.
struct Binary(PathBuf);

impl Binary {
    fn new(mode: u32) -> Self {
        let file = std::env::temp_dir().join(format!("noverlay-{}-frr-k8s", name()));
        std::fs::write(&file, STAND_IN).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn a_controller_that_is_missing_or_not_executable_is_refused_in_one_line() {
    if !able() {
        return;
    }
    let plain = Binary::new(0o644);
    for (path, why) in [
        ("/nowhere/frr-k8s", "there is no such file"),
        (plain.path(), "not executable"),
    ] {
        let said = call(&["up", "--no-prove", "--frr-k8s", path]);
        let last = said.text.lines().last().unwrap_or_default();
        assert!(
            !said.good && last.contains(path) && last.contains(why),
            "{last}"
        );
    }
}

#[test]
fn the_proof_holds_with_a_stand_in_for_the_controller_of_frr_k8s_in_place_of_frr_agent() {
    if !able() {
        return;
    }
    let binary = Binary::new(0o755);
    let lab = Standing::up(&["--frr-k8s", binary.path()]);
    let said = lab.prove(&["--quiet", "20"]);
    said.assert_all_hold();
    assert!(said.text.contains("in place of frr-agent"), "{}", said.text);
    for number in 0..3 {
        let node = lab.node(number);
        let folder = lab.dir(&node);
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
        let pid = read("reloader/reloader.pid");
        assert!(pid.bytes().all(|byte| byte.is_ascii_digit()), "{pid:?}");
        assert!(read("reloader/.status").trim_end().ends_with(" success"));
        assert!(read("reloader/running-config").contains("router bgp"));
        // Each instance has its own fixed places.
        assert_eq!(read("reloader/instance"), node);
        assert_eq!(read("tmp/frr-k8s-instance"), node);
        assert!(!folder.join("frr-agent.log").exists());
    }
    assert!(!std::path::Path::new("/etc/frr_reloader/instance").exists());
}

#[test]
fn with_a_stand_in_for_frr_k8s_reflectors_come_up_become_a_mesh_come_back_and_are_exchanged() {
    if !able() {
        return;
    }
    let binary = Binary::new(0o755);
    let words = ["--nodes", "5", "--topology", "route-reflector"];
    let lab = Standing::up(&[&words[..], &["--frr-k8s", binary.path()]].concat());
    under_pings("topology", [20; STEPS]);
    lab.recovers("1,5");
}
