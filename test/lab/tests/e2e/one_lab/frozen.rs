//! An API server that accepts connections and says nothing.

use std::time::Duration;

use super::sessions;
use crate::harness::{Standing, wait};

/// How soon a bgpd that was restarted meanwhile has its configuration and its sessions.
const BACK: Duration = Duration::from_secs(40);

/// Pods go on reaching each other, daemons go on being alive, and FRR gets what it had.
pub(super) fn api_server(lab: &Standing) {
    let (node, target) = (lab.node(0), lab.pod(1).to_string());
    lab.daemon("freeze", "underlay", "kube-apiserver");
    lab.daemon("stop", &node, "bgpd");
    lab.daemon("start", &node, "bgpd");
    let up = wait(BACK, || sessions(lab) == 2);
    let healthy: Vec<(u16, bool)> = [9101, 9102]
        .map(|port| {
            let ask = format!(
                "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/healthz', timeout=2)"
            );
            let words = ["python3", "-c", &ask];
            (port, lab.try_exec(&node, &words).good)
        })
        .to_vec();
    let ping = [
        "ping", "-n", "-q", "-c", "10", "-i", "0.1", "-W", "1", &target,
    ];
    let pinged = lab.try_exec(&format!("{node}-pod"), &ping);
    lab.daemon("thaw", "underlay", "kube-apiserver");
    assert!(up, "{} of 2 sessions after {BACK:?}", sessions(lab));
    assert!(
        healthy.iter().all(|(_, good)| *good),
        "/healthz by port: {healthy:?}"
    );
    assert!(pinged.text.contains(" 0% packet loss"), "{}", pinged.text);
    lab.recovers("1,5");
}
