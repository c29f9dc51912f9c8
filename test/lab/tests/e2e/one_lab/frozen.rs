//! An API server that accepts connections and says nothing.

use std::time::Duration;

use crate::cluster::sessions;
use crate::harness::{Standing, wait};

/// How soon a bgpd that was restarted meanwhile has its configuration and its sessions.
const BACK: Duration = Duration::from_secs(40);

/// Pods go on reaching each other while it freezes and stays frozen. A bgpd that is started again meanwhile gets what it had,
/// then pods reach each other again; daemons go on being alive.
pub(super) fn api_server(lab: &Standing) {
    let (node, target) = (lab.node(0), lab.pod(1).to_string());
    let pod = format!("{node}-pod");
    let ping = |count| {
        let pace = ["-i", "0.1", "-W", "1", &target];
        [&["ping", "-n", "-q", "-c", count], &pace[..]].concat()
    };
    let all_the_time = lab.start(&pod, &ping("150"));
    std::thread::sleep(Duration::from_secs(2));
    lab.daemon("freeze", "underlay", "kube-apiserver");
    let frozen = all_the_time.wait_with_output().unwrap();
    lab.daemon("stop", &node, "bgpd");
    lab.daemon("start", &node, "bgpd");
    let up = wait(BACK, || sessions(lab, &node) == 2);
    let healthy: Vec<(u16, bool)> = [9101, 9102]
        .map(|port| {
            let ask = format!(
                "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/healthz', timeout=2)"
            );
            let words = ["python3", "-c", &ask];
            (port, lab.try_exec(&node, &words).good)
        })
        .to_vec();
    let pinged = lab.try_exec(&pod, &ping("10"));
    lab.daemon("thaw", "underlay", "kube-apiserver");
    let frozen = String::from_utf8_lossy(&frozen.stdout).into_owned();
    assert!(
        frozen.contains("150 received, 0% packet loss"),
        "while the API server froze: {frozen}"
    );
    assert!(up, "{} of 2 sessions after {BACK:?}", sessions(lab, &node));
    assert!(
        healthy.iter().all(|(_, good)| *good),
        "/healthz by port: {healthy:?}"
    );
    assert!(pinged.text.contains(" 0% packet loss"), "{}", pinged.text);
    lab.recovers("1,5");
}
