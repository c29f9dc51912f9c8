//! One lab for what needs no lab of its own: rights of the daemons, the admin's command, FRR and API server that stand
//! still.
//!
//! At the end of each part everything is as it was before. Judged by kernel, FRR, OVN and exit statuses.

mod frozen;
mod frr;
mod rights;
mod status;

use std::time::{Duration, Instant};

use crate::harness::{Standing, able, call, wait};

#[test]
fn with_the_rights_of_the_manifests_and_through_what_stands_still_all_work_is_done() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let part = |what: &str, job: fn(&Standing)| {
        println!("--- {what}");
        let start = Instant::now();
        job(&lab);
        println!("--- {what}: {:.1} s", start.elapsed().as_secs_f64());
    };
    part("daemons as the manifests say", rights::as_the_manifests_say);
    part("what the lab adds", rights::one_group_is_added);
    part("each capability is needed", rights::no_capability_is_idle);
    part("noverlay status", status::every_exit_status);
    part("a row is deleted", frr::a_row_that_goes_is_seen);
    part("zebra hangs", frr::zebra_hangs);
    part("zebra is killed", frr::zebra_is_killed);
    part("zebra is stopped", frr::zebra_is_stopped);
    part("bgpd does not listen", frr::bgp_listen_disabled);
    part("API server frozen", frozen::api_server);
    let whole = wait(Duration::from_secs(20), || call(&["status"]).good);
    assert!(whole, "status is not good in the end, or a daemon has died");
    lab.recovers("1,5");
}
