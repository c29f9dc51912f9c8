//! The documents' own configurations, and every wrong value by name.

use super::*;

fn metrics() -> SocketAddr {
    "127.0.0.1:9100".parse().unwrap()
}

fn toml(text: &str) -> Result<Settings, SettingsError> {
    parse("noverlay.toml", text, metrics())
}

const DOCUMENT: &str = "[default]\ntransport = no-overlay\n\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n\n[bgp-managed]\ntopology = full-mesh\nas-number = 64514\n";

#[test]
fn the_documents_example_and_its_toml_twin_are_the_same_settings() {
    let twin = DOCUMENT
        .replace("no-overlay\n\n", "\"no-overlay\"\n\n")
        .replace("= enabled", "= \"enabled\"")
        .replace("= managed", "= \"managed\"")
        .replace("= full-mesh", "= \"full-mesh\"");
    let bare = parse("ovnkube.conf", DOCUMENT, metrics()).unwrap();
    assert_eq!(bare, toml(&twin).unwrap());
    assert_eq!(bare.managed.asn.get(), 64_514);
    assert_eq!(bare.managed.frr_namespace, "frr-k8s-system");
    let no_overlay = bare.network.transport.no_overlay().unwrap();
    assert!(no_overlay.outbound_snat);
    assert_eq!(
        no_overlay.missing_route,
        model::network::MissingRoute::Discard
    );
    assert!(bare.warnings.is_empty(), "{:?}", bare.warnings);
}

#[test]
fn bare_words_know_comments_quotes_lists_and_continuation() {
    let text = "; c\n[default] # x\ncluster-subnets = \"10.0.0.0/16/24\" ; first\ncluster-subnets = fd01::/48/64\nmtu = 14\\\n00\n[gateway]\ninterface = \"br x\"\n";
    let s = parse("f.conf", text, metrics()).unwrap();
    assert_eq!(s.network.cluster_subnets.len(), 2);
    assert_eq!(s.network.mtu, Some(1400));
    assert_eq!(s.gateway.interface, "br x");
    for (wrong, line) in [
        ("x=1", 1),
        ("[a]\n[b", 2),
        ("[a]\nx = \"1", 2),
        ("[a]\nb c = 1", 2),
        ("[a]\nx = \\q", 2),
    ] {
        let err = parse("f.conf", wrong, metrics()).unwrap_err().to_string();
        assert!(
            err.contains(&format!("line {line}")) && err.starts_with("f.conf"),
            "{err}"
        );
    }
}

#[test]
fn an_unknown_key_or_section_is_a_warning_that_names_it() {
    let s = toml("[default]\nmtuu = 1\n[defualt]\nmtu = 1400\n").unwrap();
    assert_eq!(s.warnings.len(), 2);
    assert!(s.warnings[0].contains("mtuu") && s.warnings[0].contains("[default]"));
    assert!(s.warnings[1].contains("[defualt]"));
    let s = toml("[no-overlay]\nrouting = \"managed\"\n").unwrap();
    assert!(
        s.warnings[0].contains("will be ignored"),
        "{:?}",
        s.warnings
    );
}

#[test]
fn what_only_an_overlay_uses_stops_no_cluster_without_one() {
    let head = "[default]\ntransport = \"no-overlay\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"unmanaged\"\n";
    for (text, words) in [
        (
            "[ovnsouth]\naddress = \"ssl:10.0.0.1:6642\"\n",
            "[ovnsouth] address",
        ),
        (
            "[ovnsouth]\naddress = \"tcp:10.0.0.1:6642,tcp:10.0.0.2:6642\"\n",
            "[ovnsouth] address",
        ),
        (
            "[gateway]\nv4-join-subnet = \"100.88.0.0/16\"\n",
            "v4-transit-subnet",
        ),
    ] {
        let settings = toml(&format!("{head}{text}")).unwrap();
        assert_eq!(settings.ovn_south, "unix:/var/run/ovn/ovnsb_db.sock");
        let told = settings.warnings.join("; ");
        assert!(told.contains(words), "{told}");
        assert!(toml(text).is_err(), "with an overlay: {text}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_wrong_value_names_file_section_key_value_and_what_is_allowed() {
    let no = |rest: &str| format!("[default]\ntransport = \"no-overlay\"\n{rest}");
    let managed = "[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"managed\"\n";
    for (text, needles) in [
        (
            "[default]\ntransport = \"vxlan\"\n".to_owned(),
            vec![
                "[default] transport",
                "\"vxlan\"",
                "\"geneve\" or \"no-overlay\"",
            ],
        ),
        (
            no(""),
            vec![
                "[no-overlay] outbound-snat",
                "is required when transport=no-overlay",
                "enabled",
            ],
        ),
        (
            no("[no-overlay]\noutbound-snat = \"enabled\"\n"),
            vec!["[no-overlay] routing", "is required"],
        ),
        (
            no("[no-overlay]\noutbound-snat = \"on\"\nrouting = \"managed\"\n"),
            vec!["outbound-snat", "\"on\"", "\"enabled\" or \"disabled\""],
        ),
        (
            no(managed),
            vec![
                "[bgp-managed] topology",
                "topology is required when routing=managed",
            ],
        ),
        (
            no(&format!("{managed}[bgp-managed]\ntopology = \"star\"\n")),
            vec!["topology", "\"star\"", "full-mesh"],
        ),
        (
            "[bgp-managed]\nauto-reflectors-above = 2\n".to_owned(),
            vec!["[bgp-managed] auto-reflectors-above", "\"2\"", "3 to 5000"],
        ),
        (
            "[bgp-managed]\nauto-full-mesh-below = 1\n".to_owned(),
            vec!["[bgp-managed] auto-full-mesh-below", "\"1\"", "2 to 5000"],
        ),
        (
            "[bgp-managed]\nauto-full-mesh-below = 65\n".to_owned(),
            vec!["[bgp-managed] auto-full-mesh-below", "\"65\"", "2 to 64"],
        ),
        (
            "[bgp-managed]\nauto-reflectors-above = 100\nauto-full-mesh-below = 101\n".to_owned(),
            vec!["auto-full-mesh-below", "\"101\"", "auto-reflectors-above", "2 to 100"],
        ),
        (
            "[bgp-managed]\nas-number = 23456\n".to_owned(),
            vec!["[bgp-managed] as-number", "23456", "AS_TRANS"],
        ),
        (
            "[bgp-managed]\nas-number = 0\n".to_owned(),
            vec!["0 is reserved"],
        ),
        (
            "[bgp-managed]\nas-number = 65535\n".to_owned(),
            vec!["65535 is reserved"],
        ),
        (
            "[bgp-managed]\nas-number = 4294967295\n".to_owned(),
            vec!["4294967295 is reserved"],
        ),
        (
            "[bgp-managed]\nas-number = 4294967296\n".to_owned(),
            vec!["out of range"],
        ),
        (
            "[bgp-managed]\nas-number = \"x\"\n".to_owned(),
            vec!["as-number", "\"x\"", "1 to 4294967294"],
        ),
        (
            "[bgp-managed]\nfrr-namespace = \"A_b\"\n".to_owned(),
            vec!["frr-namespace", "A_b", "DNS label"],
        ),
        (
            "[default]\ncluster-subnets = \"100.64.0.0/10/24\"\n".to_owned(),
            vec![
                "cluster-subnets",
                "100.64.0.0/10/24",
                "join subnet 100.64.0.0/16",
            ],
        ),
        (
            "[default]\ncluster-subnets = \"10.0.0.0/16/24,10.0.0.0/17/24\"\n".to_owned(),
            vec!["overlaps the cluster subnet"],
        ),
        (
            "[default]\ncluster-subnets = \"10.0.0.0/16/8\"\n".to_owned(),
            vec!["10.0.0.0/16/8", "cluster subnet such as"],
        ),
        (
            "[default]\nmtu = 70000\n".to_owned(),
            vec!["mtu", "70000", "576 to 65535"],
        ),
        (
            "[default]\nmtu-probe-interval = 9\n".to_owned(),
            vec!["[default] mtu-probe-interval", "\"9\"", "0, or a whole number from 10 to 3600"],
        ),
        (
            "[default]\nmtu-probe-interval = 3601\n".to_owned(),
            vec!["[default] mtu-probe-interval", "3601"],
        ),
        (
            "[gateway]\nmode = \"both\"\n".to_owned(),
            vec!["[gateway] mode", "both", "\"shared\" or \"local\""],
        ),
        (
            "[gateway]\nv4-join-subnet = \"fd00::/64\"\n".to_owned(),
            vec!["v4-join-subnet", "wrong family"],
        ),
        (
            "[gateway]\nnext-hop = \"router\"\n".to_owned(),
            vec!["next-hop", "router"],
        ),
        (
            "[gateway]\nephemeral-port-range = \"9-1\"\n".to_owned(),
            vec!["ephemeral-port-range", "9-1"],
        ),
        (
            "[limits]\nmass-withdraw-share = 101\n".to_owned(),
            vec!["[limits] mass-withdraw-share", "101", "0 to 100"],
        ),
        (
            "[limits]\nmax-imported-routes = 0\n".to_owned(),
            vec!["[limits] max-imported-routes", "0", "1 to 4294967295"],
        ),
        (
            "[limits]\nmass-withdraw-window = 0\n".to_owned(),
            vec!["[limits] mass-withdraw-window", "1 to 60"],
        ),
        (
            "[frr]\nreload-timeout = 2\n".to_owned(),
            vec!["[frr] reload-timeout", "2", "5 to 600"],
        ),
        (
            "[metrics]\nbind-address = \"nine\"\n".to_owned(),
            vec!["[metrics] bind-address", "nine", "address:port"],
        ),
        (
            "[ovn]\ntopology = \"build\"\nnetworks = \"observe\"\n".to_owned(),
            vec!["[ovn] networks", "own"],
        ),
        (
            no("[ovnkubernetesfeature]\nenable-route-advertisements = false\n"),
            vec!["enable-route-advertisements must be true"],
        ),
        (
            "[ovnnorth]\naddress = \"ssl:10.0.0.1:6641\"\nclient-privkey = \"/k\"\nclient-cacert = \"/ca\"\n".to_owned(),
            vec!["[ovnnorth] client-cert", "required with address ssl:10.0.0.1:6641", "PEM"],
        ),
        (
            "[ovnsouth]\naddress = \"ssl:10.0.0.1:6642\"\n".to_owned(),
            vec!["[ovnsouth] address", "ssl:10.0.0.1:6642", "unix:PATH or tcp:HOST:PORT"],
        ),
        (
            "[ovnsouth]\naddress = \"tcp:10.0.0.1:6642,tcp:10.0.0.2:6642\"\n".to_owned(),
            vec!["[ovnsouth] address", "the one database of this node"],
        ),
        (
            "[clustermanager]\nv4-transit-subnet = \"100.64.0.0/16\"\n".to_owned(),
            vec!["[clustermanager] v4-transit-subnet", "100.64.0.0/16", "overlaps 100.64.0.0/16"],
        ),
        (
            "[clustermanager]\nv6-transit-subnet = \"100.89.0.0/16\"\n".to_owned(),
            vec!["v6-transit-subnet", "wrong family"],
        ),
        (
            "[default]\ncluster-default-nad = \"x\"\n".to_owned(),
            vec!["cluster-default-nad", "namespace/name"],
        ),
        (
            "[default]\nudn-allowed-default-services = \"default/kubernetes, dns\"\n".to_owned(),
            vec!["udn-allowed-default-services", "\"dns\"", "kube-system/kube-dns"],
        ),
    ] {
        let err = toml(&text).expect_err(&text).to_string();
        assert!(
            err.starts_with("noverlay.toml: ") && !err.contains('\n'),
            "{err}"
        );
        for needle in needles {
            assert!(err.contains(needle), "{err} lacks {needle}");
        }
    }
}

#[test]
fn where_auto_changes_the_topology_is_64_and_48_or_what_is_said() {
    for (text, above, below) in [
        ("", 64, 48),
        ("auto-reflectors-above = 64\n", 64, 48),
        ("auto-reflectors-above = 100\n", 100, 48),
        ("auto-full-mesh-below = 64\n", 64, 64),
        ("auto-full-mesh-below = 2\n", 64, 2),
        // What is not said follows a number below the usual one.
        ("auto-reflectors-above = 10\n", 10, 10),
        (
            "auto-reflectors-above = 3\nauto-full-mesh-below = 2\n",
            3,
            2,
        ),
        (
            "auto-reflectors-above = 5000\nauto-full-mesh-below = 5000\n",
            5000,
            5000,
        ),
    ] {
        let settings = toml(&format!("[bgp-managed]\ntopology = \"auto\"\n{text}")).unwrap();
        let auto = settings.managed.auto;
        assert_eq!(
            (auto.reflectors_above, auto.full_mesh_below),
            (above, below),
            "{text}"
        );
        assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    }
}

#[test]
fn broken_toml_is_one_line_and_a_missing_file_is_named() {
    let err = toml("[default]\nmtu = = 1\n").unwrap_err().to_string();
    assert!(
        err.starts_with("noverlay.toml: ") && !err.contains('\n'),
        "{err}"
    );
    let err = load(
        std::path::Path::new("/nonexistent/x.toml"),
        Daemon::NodeAgent,
    )
    .unwrap_err()
    .to_string();
    assert!(err.contains("/nonexistent/x.toml"), "{err}");
}

#[test]
fn each_daemon_has_a_metrics_address_of_its_own() {
    let of = |text: &str| {
        Daemon::ALL.map(|daemon| {
            let settings = parse_for("noverlay.toml", text, daemon).unwrap();
            assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
            settings.metrics_address.to_string()
        })
    };
    assert_eq!(of(""), ["[::]:9160", "[::]:9161", "[::]:9162"]);
    let own = "[metrics]\ncluster-manager-bind-address = \"127.0.0.1:1\"\nnode-agent-bind-address = \"127.0.0.1:2\"\nfrr-agent-bind-address = \"[::1]:3\"\n";
    assert_eq!(of(own), ["127.0.0.1:1", "127.0.0.1:2", "[::1]:3"]);
    let mixed =
        "[metrics]\nbind-address = \"10.0.0.1:9\"\nnode-agent-bind-address = \"10.0.0.1:10\"\n";
    assert_eq!(of(mixed), ["10.0.0.1:9", "10.0.0.1:10", "10.0.0.1:9"]);
    let error = toml("[metrics]\nfrr-agent-bind-address = \"nine\"\n").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("[metrics] frr-agent-bind-address"),
        "{error}"
    );
}

#[test]
fn the_northbound_database_over_tls_has_ovnkubes_keys() {
    let files = "client-privkey = \"/k\"\nclient-cert = \"/c\"\nclient-cacert = \"/ca\"\n";
    let s = toml(&format!(
        "[ovnnorth]\naddress = \"ssl:[fd00::1]:6641\"\n{files}"
    ))
    .unwrap();
    assert!(s.warnings.is_empty(), "{:?}", s.warnings);
    let tls = s.ovn_north.tls.unwrap();
    let paths = [tls.private_key, tls.certificate, tls.ca_certificate];
    assert_eq!(paths.map(|p| p.display().to_string()), ["/k", "/c", "/ca"]);
    let s = toml(&format!(
        "[ovnnorth]\naddress = \"tcp:10.0.0.1:6641\"\n{files}"
    ))
    .unwrap();
    assert_eq!(s.ovn_north.tls, None);
    assert!(s.warnings[0].contains("no effect"), "{:?}", s.warnings);
}

#[test]
fn ways_are_probed_each_minute_or_as_is_said_or_never() {
    let seconds = |text: &str| toml(text).unwrap().mtu_probe_interval.as_secs();
    assert_eq!(seconds(""), 60);
    for value in [0, 10, 3600] {
        let text = format!("[default]\nmtu-probe-interval = {value}\n");
        assert_eq!(seconds(&text), value);
    }
}
