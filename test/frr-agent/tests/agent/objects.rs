//! What the agent makes of objects: Secrets, EVPN, conflicts, lines that FRR refuses; the far session never notices.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use frr_agent_tests::{Fixture, NEAR, lacks_tools};
use kube_tests::until;

fn secret(fixture: &Fixture, kind: &str, key: &str) {
    // The type of a Secret cannot be changed.
    let _ = fixture
        .api
        .try_kubectl(&["-n", "frr-k8s-system", "delete", "secret", "peering"]);
    fixture.api.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: peering, namespace: frr-k8s-system}}\ntype: {kind}\nstringData: {{{key}: s3cret}}\n"
    ));
}

#[test]
fn objects_become_what_frr_runs_or_are_refused_by_name_and_the_rest_stands() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    fixture.peer_with("", "");
    let since = fixture.both_up();
    fixture.state_says("lastReloadResult", "success", 10);
    fixture.state_says("lastConversionResult", "success", 10);
    fixture.state_says("runningConfig", "neighbor 172.31.10.2 remote-as 64512", 10);
    session_states_are_told(&fixture);
    objects_of_other_namespaces_and_nodes_do_not_count(&fixture);
    an_object_that_uses_evpn_costs_itself_only(&fixture);
    a_conflict_names_both_objects_and_leaves_the_last_good_configuration(&fixture);
    metallb_on_the_same_neighbor_keeps_both_sides_prefixes(&fixture);
    a_line_that_frr_does_not_know_stops_the_whole_file(&fixture);
    a_line_that_frr_refuses_is_named_and_the_rest_is_applied(&fixture);
    secrets_are_watched_and_their_faults_named(&fixture);
    text_that_would_become_lines_of_the_file_is_refused(&fixture);
    graceful_restart_is_no_failure_at_its_first_reload(&fixture);
    raw_networks_in_old_spellings_are_not_announced_anew_at_each_reload(&fixture);
    fixture.far_is_undisturbed(since);
}

fn session_states_are_told(fixture: &Fixture) {
    until(
        "both sessions are reported with what peers see of them",
        10,
        || {
            let states = fixture.api.items("bgpsessionstates");
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
            fixture.metric("noverlay_bgp_sessions", "Established"),
            fixture.metric("noverlay_bgp_prefixes", "received"),
            fixture.metric("noverlay_bgp_prefixes", "advertised"),
            fixture.metric("noverlay_frr_out_of_sync_seconds", ""),
        );
        // Either peer sends its own prefix and gets ours.
        if seen == (2.0, 2.0, 2.0, 0.0) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    assert!(fixture.metric("noverlay_frr_last_applied_timestamp_seconds", "") > 1.7e9);
}

fn objects_of_other_namespaces_and_nodes_do_not_count(fixture: &Fixture) {
    let router = "{bgp: {routers: [{asn: 1, prefixes: [10.99.0.0/24]}]}";
    fixture.api.apply(&format!(
        "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {{name: elsewhere, namespace: default}}\nspec: {router}}}\n"
    ));
    fixture.object(
        "other-node",
        &format!(
            "  nodeSelector: {{matchLabels: {{kubernetes.io/hostname: fn2}}}}\n  bgp: {}",
            &router[6..]
        ),
    );
    // A label that is put on the node is noticed.
    fixture.object(
        "by-label",
        "  nodeSelector: {matchLabels: {rack: a}}\n  bgp: {routers: [{asn: 64512, prefixes: [10.98.0.0/24]}]}",
    );
    fixture.api.kubectl(&["label", "node", "fn1", "rack=a"]);
    fixture.runs("network 10.98.0.0/24", 10);
    assert!(!fixture.has_line("network 10.99.0.0/24"));
    fixture.state_says("lastConversionResult", "success", 5);
    fixture.api.kubectl(&["label", "node", "fn1", "rack-"]);
    until("the prefix is gone", 10, || {
        if fixture.has_line("network 10.98.0.0/24") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
}

fn an_object_that_uses_evpn_costs_itself_only(fixture: &Fixture) {
    fixture.object(
        "vxlan",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.97.0.0/24], evpn: {advertiseVNIs: All}}]}",
    );
    fixture.state_says("lastConversionResult", "frr-k8s-system/vxlan", 10);
    fixture.state_says(
        "lastConversionResult",
        "the node's other objects are applied",
        1,
    );
    fixture.object(
        "plain",
        "  bgp: {routers: [{asn: 64512, prefixes: [10.96.0.0/24]}]}",
    );
    fixture.runs("network 10.96.0.0/24", 10);
    assert!(!fixture.has_line("network 10.97.0.0/24"));
    fixture.delete("vxlan");
    fixture.state_says("lastConversionResult", "success", 10);
    fixture.delete("plain");
}

fn a_conflict_names_both_objects_and_leaves_the_last_good_configuration(fixture: &Fixture) {
    fixture.object(
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
        fixture.state_says("lastConversionResult", text, 10);
    }
    until("the metric says how long FRR is behind", 5, || {
        let behind = fixture.metric("noverlay_frr_out_of_sync_seconds", "");
        if behind >= 1.0 {
            Ok(())
        } else {
            Err(behind.to_string())
        }
    });
    assert!(fixture.metric("noverlay_frr_merge_conflicts", "") >= 1.0);
    assert!(fixture.established(NEAR));
    fixture.delete("other-asn");
    fixture.state_says("lastConversionResult", "success", 10);
}

/// An object of the shape that MetalLB writes: its own prefixes for a neighbor that others name too.
fn metallb(asn: u32, more: &str) -> String {
    format!(
        "  bgp:\n    routers:\n    - asn: 64512\n      prefixes: [192.0.2.10/32]\n      neighbors:\n      - {{address: {NEAR}, asn: {asn}, connectTime: 1s{more}, toAdvertise: {{allowed: {{prefixes: [192.0.2.10/32]}}, withLocalPref: [{{localPref: 150, prefixes: [192.0.2.10/32]}}], withCommunity: [{{community: '64512:7', prefixes: [192.0.2.10/32]}}]}}}}\n"
    )
}

fn metallb_on_the_same_neighbor_keeps_both_sides_prefixes(fixture: &Fixture) {
    fixture.object("metallb-fn1", &metallb(64512, ""));
    until("the peer has both sides' prefixes", 15, || {
        let text = fixture
            .near()
            .vtysh("show bgp ipv4 unicast json")
            .map_err(|e| e.to_string())?;
        let both = ["10.128.1.0/24", "192.0.2.10/32"]
            .iter()
            .all(|p| text.contains(p));
        if both { Ok(()) } else { Err(text) }
    });
    let before = fixture.api.items("frrconfigurations");
    for (asn, more, named) in [
        (64999, "", "asn"),
        (64512, ", holdTime: 90s, keepaliveTime: 30s", "holdTime"),
        (64512, ", ebgpMultiHop: true", "ebgpMultiHop"),
        (64512, ", bfdProfile: fast", "bfdProfile"),
    ] {
        fixture.object("metallb-fn1", &metallb(asn, more));
        for text in ["frr-k8s-system/metallb-fn1", NEAR, named] {
            fixture.state_says("lastConversionResult", text, 10);
        }
    }
    fixture.object("metallb-fn1", &metallb(64512, ""));
    fixture.state_says("lastConversionResult", "success", 10);
    // Nobody's object was changed by the agent.
    let manager = |o: &serde_json::Value| o["metadata"]["managedFields"].to_string();
    for object in fixture.api.items("frrconfigurations") {
        assert!(
            !manager(&object).contains("noverlay-frr-agent"),
            "{object:#}"
        );
    }
    assert_eq!(before.len(), fixture.api.items("frrconfigurations").len());
    fixture.delete("metallb-fn1");
}

fn a_line_that_frr_does_not_know_stops_the_whole_file(fixture: &Fixture) {
    let file = fixture.folder().join("frr.conf");
    until("the file is without metallb's prefix", 10, || {
        let text = std::fs::read_to_string(&file).unwrap();
        if text.contains("192.0.2.10") {
            Err(text)
        } else {
            Ok(())
        }
    });
    let before = std::fs::read_to_string(&file).unwrap();
    fixture.object(
        "typo",
        "  raw: {priority: 5, rawConfig: \"ip prefix-lost x seq 1 permit any\\n\"}",
    );
    for text in [
        "failed: ",
        "ip prefix-lost x seq 1 permit any",
        "frr-k8s-system/typo",
        "last good configuration stays",
    ] {
        fixture.state_says("lastReloadResult", text, 10);
    }
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        before,
        "frr.conf stays the last good one"
    );
    let reloads = fixture.metric("noverlay_frr_reloads_total", "");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(
        (fixture.metric("noverlay_frr_reloads_total", "") - reloads).abs() < 0.5,
        "no use in trying again"
    );
    fixture.delete("typo");
    fixture.state_says("lastReloadResult", "success", 10);
}

fn a_line_that_frr_refuses_is_named_and_the_rest_is_applied(fixture: &Fixture) {
    fixture.object(
        "reflector",
        "  raw: {priority: 5, rawConfig: \"router bgp 64512\\n neighbor 9.9.9.9 route-reflector-client\\nip prefix-list still seq 1 permit any\\n\"}",
    );
    for text in [
        "neighbor 9.9.9.9 route-reflector-client",
        "Specify remote-as",
        "frr-k8s-system/reflector",
        "everything else is applied",
    ] {
        fixture.state_says("lastReloadResult", text, 10);
    }
    assert!(fixture.has_line("ip prefix-list still seq 1 permit any"));
    fixture.delete("reflector");
    fixture.state_says("lastReloadResult", "success", 15);
}

fn secrets_are_watched_and_their_faults_named(fixture: &Fixture) {
    let with_secret = ", passwordSecret: {name: peering}";
    fixture.peer_with(with_secret, "");
    fixture.state_says(
        "lastConversionResult",
        "there is no Secret frr-k8s-system/peering",
        10,
    );
    secret(fixture, "Opaque", "password");
    fixture.state_says(
        "lastConversionResult",
        "is of type Opaque; only kubernetes.io/basic-auth is allowed",
        10,
    );
    assert!(!fixture.has_line("neighbor 172.31.10.2 password s3cret"));
    secret(fixture, "kubernetes.io/basic-auth", "password");
    fixture.runs("neighbor 172.31.10.2 password s3cret", 10);
    fixture.state_says("lastConversionResult", "success", 10);
    fixture.state_says("runningConfig", "password <retracted>", 10);
    assert!(!fixture.state().to_string().contains("s3cret"));
    // A Secret that nobody refers to any more may go.
    fixture.peer_with("", "");
    fixture.state_says("runningConfig", "neighbor 172.31.10.2 remote-as", 10);
    until("no password", 10, || {
        if fixture.has_line("neighbor 172.31.10.2 password s3cret") {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    });
    fixture
        .api
        .kubectl(&["-n", "frr-k8s-system", "delete", "secret", "peering"]);
}

fn graceful_restart_is_no_failure_at_its_first_reload(fixture: &Fixture) {
    let failures = fixture.metric("noverlay_frr_reloads_total", "failure");
    fixture.peer_with(", enableGracefulRestart: true", "");
    fixture.runs("neighbor 172.31.10.2 graceful-restart", 10);
    fixture.state_says("lastReloadResult", "success", 10);
    let now = fixture.metric("noverlay_frr_reloads_total", "failure");
    assert!(
        (now - failures).abs() < 0.5,
        "FRR refuses the line's repetition only"
    );
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn text_that_would_become_lines_of_the_file_is_refused(fixture: &Fixture) {
    let line = "\\n neighbor 10.0.0.66 remote-as 64512\\n neighbor 10.0.0.66";
    fixture.api.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: injected, namespace: frr-k8s-system}}\ntype: kubernetes.io/basic-auth\nstringData: {{password: \"x{line} password y\"}}\n"
    ));
    fixture.peer_with(", passwordSecret: {name: injected}", "");
    for text in ["Secret frr-k8s-system/injected", "control character"] {
        fixture.state_says("lastConversionResult", text, 10);
    }
    assert!(!fixture.state().to_string().contains("10.0.0.66"));
    fixture.api.apply(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: injected, namespace: frr-k8s-system}\ntype: kubernetes.io/basic-auth\nstringData: {password: \"two words\"}\n",
    );
    fixture.state_says(
        "lastConversionResult",
        "the password contains white space",
        10,
    );
    fixture.peer_with("", "");
    fixture.state_says("lastConversionResult", "success", 10);
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
        fixture.object("injected", &spec);
        for text in ["frr-k8s-system/injected", what, "control character"] {
            fixture.state_says("lastConversionResult", text, 10);
        }
    }
    // A profile that nobody names would stop the whole file, too.
    fixture.object(
        "injected",
        "  bgp: {routers: [{asn: 64512}], bfdProfiles: [{name: \"two words\"}]}",
    );
    fixture.state_says(
        "lastConversionResult",
        "bfdProfiles[two words] of frr-k8s-system/injected",
        10,
    );
    assert!(!fixture.has_line("neighbor 10.0.0.66 remote-as 64512"));
    fixture.delete("injected");
    fixture.state_says("lastConversionResult", "success", 10);
    fixture
        .api
        .kubectl(&["-n", "frr-k8s-system", "delete", "secret", "injected"]);
}

/// When the near peer got the prefix last, as seconds since 1970.
fn got(fixture: &Fixture, prefix: &str) -> Option<u64> {
    let text = fixture
        .near()
        .vtysh(&format!("show bgp ipv4 unicast {prefix} json"))
        .ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    json["paths"][0]["lastUpdate"]["epoch"].as_u64()
}

fn raw_networks_in_old_spellings_are_not_announced_anew_at_each_reload(fixture: &Fixture) {
    let prefixes = ["10.81.0.0/24", "10.82.0.0/24"];
    fixture.object(
        "old",
        "  raw: {priority: 5, rawConfig: \"router bgp 64512\\n network 10.81.0.0/24\\n address-family ipv4 unicast\\n  network 10.82.0.0/24\\n  exit\\nexit\\nroute-map 172.31.10.2-out permit 900\\nexit\\n\"}",
    );
    for prefix in prefixes {
        until(&format!("the peer has {prefix}"), 20, || {
            got(fixture, prefix).ok_or("not yet".to_owned())
        });
    }
    // FRR goes through its announcements once more, 5 s after a route-map has changed.
    std::thread::sleep(std::time::Duration::from_secs(8));
    let first = prefixes.map(|prefix| got(fixture, prefix).unwrap());
    for at in 0..10 {
        fixture.object(
            "moving",
            &format!("  bgp: {{routers: [{{asn: 64512, prefixes: [10.84.{at}.0/24]}}]}}"),
        );
        fixture.runs(&format!("network 10.84.{at}.0/24"), 20);
    }
    for (prefix, first) in prefixes.iter().zip(first) {
        let now = got(fixture, prefix).unwrap();
        assert!(
            now.abs_diff(first) <= 1,
            "{prefix} was announced again {} s later",
            now.abs_diff(first)
        );
    }
    fixture.delete("moving");
    fixture.delete("old");
    fixture.state_says("lastReloadResult", "success", 20);
}
