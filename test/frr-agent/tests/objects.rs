//! What the agent makes of objects: Secrets, EVPN, conflicts, lines that FRR refuses; the far session never notices.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use frr_agent_tests::{Bench, NEAR, lacks_tools};
use kube_tests::until;

fn secret(bench: &Bench, kind: &str, key: &str) {
    // The type of a Secret cannot be changed.
    let _ = bench
        .api
        .try_kubectl(&["-n", "frr-k8s-system", "delete", "secret", "peering"]);
    bench.api.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: peering, namespace: frr-k8s-system}}\ntype: {kind}\nstringData: {{{key}: s3cret}}\n"
    ));
}

#[test]
fn objects_become_what_frr_runs_or_are_refused_by_name_and_the_rest_stands() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    bench.peer_with("", "");
    let since = bench.both_up();
    bench.state_says("lastReloadResult", "success", 10);
    bench.state_says("lastConversionResult", "success", 10);
    bench.state_says("runningConfig", "neighbor 172.31.10.2 remote-as 64512", 10);
    session_states_are_told(&bench);
    objects_of_other_namespaces_and_nodes_do_not_count(&bench);
    an_object_that_uses_evpn_costs_itself_only(&bench);
    a_conflict_names_both_objects_and_leaves_the_last_good_configuration(&bench);
    metallb_on_the_same_neighbor_keeps_both_sides_prefixes(&bench);
    a_line_that_frr_does_not_know_stops_the_whole_file(&bench);
    a_line_that_frr_refuses_is_named_and_the_rest_is_applied(&bench);
    secrets_are_watched_and_their_faults_named(&bench);
    text_that_would_become_lines_of_the_file_is_refused(&bench);
    graceful_restart_is_no_failure_at_its_first_reload(&bench);
    raw_networks_in_old_spellings_are_not_announced_anew_at_each_reload(&bench);
    bench.far_is_undisturbed(since);
}

fn session_states_are_told(bench: &Bench) {
    until(
        "both sessions are told with what peers see of them",
        10,
        || {
            let states = bench.api.items("bgpsessionstates");
            let good = states.iter().filter(|s| {
                let labels = &s["metadata"]["labels"];
                labels["frrk8s.metallb.io/node"] == "fn1"
                    && labels["frrk8s.metallb.io/peer"] == s["status"]["peer"]
                    && labels["frrk8s.metallb.io/vrf"] == ""
                    && s["metadata"]["name"].as_str().unwrap().starts_with("fn1-")
                    && s["status"]["bgpStatus"] == "Established"
                    && s["status"]["bfdStatus"] == "N/A"
                    && s["status"]["node"] == "fn1"
            });
            if good.count() == 2 {
                Ok(())
            } else {
                Err(format!("{states:#?}"))
            }
        },
    );
    until("metrics of both sessions", 5, || {
        let seen = (
            bench.metric("noverlay_bgp_sessions", "Established"),
            bench.metric("noverlay_bgp_prefixes", "received"),
            bench.metric("noverlay_bgp_prefixes", "advertised"),
            bench.metric("noverlay_frr_behind_seconds", ""),
        );
        // Either peer sends its own prefix and gets ours.
        if seen == (2.0, 2.0, 2.0, 0.0) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    assert!(bench.metric("noverlay_frr_last_good_timestamp_seconds", "") > 1.7e9);
}

fn objects_of_other_namespaces_and_nodes_do_not_count(bench: &Bench) {
    let router = "{bgp: {routers: [{asn: 1, prefixes: [10.99.0.0/24]}]}";
    bench.api.apply(&format!(
        "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {{name: elsewhere, namespace: default}}\nspec: {router}}}\n"
    ));
    bench.object(
        "other-node",
        &format!(
            "  nodeSelector: {{matchLabels: {{kubernetes.io/hostname: fn2}}}}\n  bgp: {}",
            &router[6..]
        ),
    );
    // A label that is put on the node is noticed.
    bench.object(
        "by-label",
        "  nodeSelector: {matchLabels: {rack: a}}\n  bgp: {routers: [{asn: 64512, prefixes: [10.98.0.0/24]}]}",
    );
    bench.api.kubectl(&["label", "node", "fn1", "rack=a"]);
    bench.runs("network 10.98.0.0/24", 10);
    assert!(!bench.has_line("network 10.99.0.0/24"));
    bench.state_says("lastConversionResult", "success", 5);
    bench.api.kubectl(&["label", "node", "fn1", "rack-"]);
    until("the prefix is gone", 10, || {
        if bench.has_line("network 10.98.0.0/24") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
}

fn an_object_that_uses_evpn_costs_itself_only(bench: &Bench) {
    bench.object(
        "vxlan",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.97.0.0/24], evpn: {advertiseVNIs: All}}]}",
    );
    bench.state_says("lastConversionResult", "frr-k8s-system/vxlan", 10);
    bench.state_says(
        "lastConversionResult",
        "the node's other objects are applied",
        1,
    );
    bench.object(
        "plain",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.96.0.0/24]}]}",
    );
    bench.runs("network 10.96.0.0/24", 10);
    assert!(!bench.has_line("network 10.97.0.0/24"));
    bench.delete("vxlan");
    bench.state_says("lastConversionResult", "success", 10);
    bench.delete("plain");
}

fn a_conflict_names_both_objects_and_leaves_the_last_good_configuration(bench: &Bench) {
    bench.object(
        "other-asn",
        "  bgp: {routers: [{asn: 64999, prefixes: [10.95.0.0/24]}]}",
    );
    for text in [
        "frr-k8s-system/base",
        "frr-k8s-system/other-asn",
        "64512",
        "64999",
        "the last good configuration stays",
    ] {
        bench.state_says("lastConversionResult", text, 10);
    }
    until("the metric says how long FRR is behind", 5, || {
        let behind = bench.metric("noverlay_frr_behind_seconds", "");
        if behind >= 1.0 {
            Ok(())
        } else {
            Err(behind.to_string())
        }
    });
    assert!(bench.metric("noverlay_frr_conflicts", "") >= 1.0);
    assert!(bench.established(NEAR));
    bench.delete("other-asn");
    bench.state_says("lastConversionResult", "success", 10);
}

/// An object of the shape that MetalLB writes: its own prefixes for a neighbor that others name too.
fn metallb(asn: u32, more: &str) -> String {
    format!(
        "  bgp:\n    routers:\n    - asn: 64512\n      prefixes: [192.0.2.10/32]\n      neighbors:\n      - {{address: {NEAR}, asn: {asn}, connectTime: 1s{more}, toAdvertise: {{allowed: {{prefixes: [192.0.2.10/32]}}, withLocalPref: [{{localPref: 150, prefixes: [192.0.2.10/32]}}], withCommunity: [{{community: '64512:7', prefixes: [192.0.2.10/32]}}]}}}}\n"
    )
}

fn metallb_on_the_same_neighbor_keeps_both_sides_prefixes(bench: &Bench) {
    bench.object("metallb-fn1", &metallb(64512, ""));
    until("the peer has both sides' prefixes", 15, || {
        let text = bench
            .near()
            .vtysh("show bgp ipv4 unicast json")
            .map_err(|e| e.to_string())?;
        let both = ["10.128.1.0/24", "192.0.2.10/32"]
            .iter()
            .all(|p| text.contains(p));
        if both { Ok(()) } else { Err(text) }
    });
    let before = bench.api.items("frrconfigurations");
    for (asn, more, named) in [
        (64999, "", "asn"),
        (64512, ", holdTime: 90s, keepaliveTime: 30s", "holdTime"),
        (64512, ", ebgpMultiHop: true", "ebgpMultiHop"),
        (64512, ", bfdProfile: fast", "bfdProfile"),
    ] {
        bench.object("metallb-fn1", &metallb(asn, more));
        for text in ["frr-k8s-system/metallb-fn1", NEAR, named] {
            bench.state_says("lastConversionResult", text, 10);
        }
    }
    bench.object("metallb-fn1", &metallb(64512, ""));
    bench.state_says("lastConversionResult", "success", 10);
    // Nobody's object was changed by the agent.
    let manager = |o: &serde_json::Value| o["metadata"]["managedFields"].to_string();
    for object in bench.api.items("frrconfigurations") {
        assert!(
            !manager(&object).contains("noverlay-frr-agent"),
            "{object:#}"
        );
    }
    assert_eq!(before.len(), bench.api.items("frrconfigurations").len());
    bench.delete("metallb-fn1");
}

fn a_line_that_frr_does_not_know_stops_the_whole_file(bench: &Bench) {
    let file = bench.folder().join("frr.conf");
    until("the file is without metallb's prefix", 10, || {
        let text = std::fs::read_to_string(&file).unwrap();
        if text.contains("192.0.2.10") {
            Err(text)
        } else {
            Ok(())
        }
    });
    let before = std::fs::read_to_string(&file).unwrap();
    bench.object(
        "typo",
        "  raw: {priority: 5, rawConfig: \"ip prefix-lost x seq 1 permit any\\n\"}",
    );
    for text in [
        "failed: ",
        "ip prefix-lost x seq 1 permit any",
        "frr-k8s-system/typo",
        "last good configuration stays",
    ] {
        bench.state_says("lastReloadResult", text, 10);
    }
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        before,
        "frr.conf stays the last good one"
    );
    let reloads = bench.metric("noverlay_frr_reloads_total", "");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(
        (bench.metric("noverlay_frr_reloads_total", "") - reloads).abs() < 0.5,
        "no use in trying again"
    );
    bench.delete("typo");
    bench.state_says("lastReloadResult", "success", 10);
}

fn a_line_that_frr_refuses_is_named_and_the_rest_is_applied(bench: &Bench) {
    bench.object(
        "reflector",
        "  raw: {priority: 5, rawConfig: \"router bgp 64512\\n neighbor 9.9.9.9 route-reflector-client\\nip prefix-list still seq 1 permit any\\n\"}",
    );
    for text in [
        "neighbor 9.9.9.9 route-reflector-client",
        "Specify remote-as",
        "frr-k8s-system/reflector",
        "everything else is applied",
    ] {
        bench.state_says("lastReloadResult", text, 10);
    }
    assert!(bench.has_line("ip prefix-list still seq 1 permit any"));
    bench.delete("reflector");
    bench.state_says("lastReloadResult", "success", 15);
}

fn secrets_are_watched_and_their_faults_named(bench: &Bench) {
    let with_secret = ", passwordSecret: {name: peering}";
    bench.peer_with(with_secret, "");
    bench.state_says(
        "lastConversionResult",
        "there is no Secret frr-k8s-system/peering",
        10,
    );
    secret(bench, "Opaque", "password");
    bench.state_says(
        "lastConversionResult",
        "is of type Opaque; only kubernetes.io/basic-auth is allowed",
        10,
    );
    assert!(!bench.has_line("neighbor 172.31.10.2 password s3cret"));
    secret(bench, "kubernetes.io/basic-auth", "password");
    bench.runs("neighbor 172.31.10.2 password s3cret", 10);
    bench.state_says("lastConversionResult", "success", 10);
    bench.state_says("runningConfig", "password <retracted>", 10);
    assert!(!bench.state().to_string().contains("s3cret"));
    // A Secret that nobody refers to any more may go.
    bench.peer_with("", "");
    bench.state_says("runningConfig", "neighbor 172.31.10.2 remote-as", 10);
    until("no password", 10, || {
        if bench.has_line("neighbor 172.31.10.2 password s3cret") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    bench
        .api
        .kubectl(&["-n", "frr-k8s-system", "delete", "secret", "peering"]);
}

fn graceful_restart_is_no_failure_at_its_first_reload(bench: &Bench) {
    let failures = bench.metric("noverlay_frr_reloads_total", "failure");
    bench.peer_with(", enableGracefulRestart: true", "");
    bench.runs("neighbor 172.31.10.2 graceful-restart", 10);
    bench.state_says("lastReloadResult", "success", 10);
    let now = bench.metric("noverlay_frr_reloads_total", "failure");
    assert!(
        (now - failures).abs() < 0.5,
        "FRR refuses the line's repetition only"
    );
}

fn text_that_would_become_lines_of_the_file_is_refused(bench: &Bench) {
    let line = "\\n neighbor 10.0.0.66 remote-as 64512\\n neighbor 10.0.0.66";
    bench.api.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: injected, namespace: frr-k8s-system}}\ntype: kubernetes.io/basic-auth\nstringData: {{password: \"x{line} password y\"}}\n"
    ));
    bench.peer_with(", passwordSecret: {name: injected}", "");
    for text in ["Secret frr-k8s-system/injected", "control character"] {
        bench.state_says("lastConversionResult", text, 10);
    }
    assert!(!bench.state().to_string().contains("10.0.0.66"));
    bench.api.apply(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: injected, namespace: frr-k8s-system}\ntype: kubernetes.io/basic-auth\nstringData: {password: \"two words\"}\n",
    );
    bench.state_says(
        "lastConversionResult",
        "the password contains white space",
        10,
    );
    bench.peer_with("", "");
    bench.state_says("lastConversionResult", "success", 10);
    for (what, spec) in [
        (
            "bfdProfiles[0].name",
            format!("  bgp: {{routers: [{{asn: 64512}}], bfdProfiles: [{{name: \"x{line}\"}}]}}"),
        ),
        (
            "routers[0].vrf",
            format!("  bgp: {{routers: [{{asn: 64512, vrf: \"x{line}\"}}]}}"),
        ),
        (
            "sourceaddress",
            format!(
                "  bgp: {{routers: [{{asn: 64512, neighbors: [{{address: 172.31.10.9, asn: 1, sourceaddress: \"lo{line}\"}}]}}]}}"
            ),
        ),
        (
            "interface",
            format!(
                "  bgp: {{routers: [{{asn: 64512, neighbors: [{{interface: \"lo{line}\", asn: 1}}]}}]}}"
            ),
        ),
    ] {
        bench.object("injected", &spec);
        for text in ["frr-k8s-system/injected", what, "control character"] {
            bench.state_says("lastConversionResult", text, 10);
        }
    }
    // A profile that nobody names would stop the whole file, too.
    bench.object(
        "injected",
        "  bgp: {routers: [{asn: 64512}], bfdProfiles: [{name: \"two words\"}]}",
    );
    bench.state_says(
        "lastConversionResult",
        "bfdProfiles[two words] of frr-k8s-system/injected",
        10,
    );
    assert!(!bench.has_line("neighbor 10.0.0.66 remote-as 64512"));
    bench.delete("injected");
    bench.state_says("lastConversionResult", "success", 10);
    bench
        .api
        .kubectl(&["-n", "frr-k8s-system", "delete", "secret", "injected"]);
}

/// When the near peer got the prefix last, as seconds since 1970.
fn got(bench: &Bench, prefix: &str) -> Option<u64> {
    let text = bench
        .near()
        .vtysh(&format!("show bgp ipv4 unicast {prefix} json"))
        .ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    json["paths"][0]["lastUpdate"]["epoch"].as_u64()
}

fn raw_networks_in_old_spellings_are_not_announced_anew_at_each_reload(bench: &Bench) {
    let prefixes = ["10.81.0.0/24", "10.82.0.0/24"];
    bench.object(
        "old",
        "  raw: {priority: 5, rawConfig: \"router bgp 64512\\n network 10.81.0.0/24\\n address-family ipv4 unicast\\n  network 10.82.0.0/24\\n  exit\\nexit\\nroute-map 172.31.10.2-out permit 900\\nexit\\n\"}",
    );
    for prefix in prefixes {
        until(&format!("the peer has {prefix}"), 20, || {
            got(bench, prefix).ok_or("not yet".to_owned())
        });
    }
    // FRR goes through its announcements once more, 5 s after a route-map has changed.
    std::thread::sleep(std::time::Duration::from_secs(8));
    let first = prefixes.map(|prefix| got(bench, prefix).unwrap());
    for at in 0..10 {
        bench.object(
            "moving",
            &format!("  bgp: {{routers: [{{asn: 64512, prefixes: [10.84.{at}.0/24]}}]}}"),
        );
        bench.runs(&format!("network 10.84.{at}.0/24"), 20);
    }
    for (prefix, first) in prefixes.iter().zip(first) {
        let now = got(bench, prefix).unwrap();
        assert!(
            now.abs_diff(first) <= 1,
            "{prefix} was announced again {} s later",
            now.abs_diff(first)
        );
    }
    bench.delete("moving");
    bench.delete("old");
    bench.state_says("lastReloadResult", "success", 20);
}
