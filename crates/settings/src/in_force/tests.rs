//! What becomes of settings when the file says something else.
use super::*;

const RUNNING: &str = "[default]\ntransport = \"no-overlay\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"managed\"\n[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n";

fn read(text: &str) -> Settings {
    crate::parse("noverlay.toml", text, "127.0.0.1:0".parse().unwrap()).unwrap()
}

#[test]
fn what_may_change_at_run_time_is_taken_over_and_nothing_is_said() {
    let running = read(RUNNING);
    let file = RUNNING
        .replace("\"enabled\"", "\"disabled\"")
        .replace("full-mesh", "auto")
        .replace("64777", "64778");
    let file = file.replace("routing", "missing-route = \"forward\"\nrouting");
    let file = format!(
        "{file}profile = \"compat\"\nfrr-namespace = \"x\"\n[limits]\nstale-time = 7\n[logging]\nlevel = \"debug\"\n"
    );
    let kept = read(&file).replacing(&running, Daemon::ClusterManager);
    assert_eq!(kept.refused, Vec::<String>::new());
    // Nothing of the file is left out but what no manager reads, so it is what the file says.
    let mut expected = read(&file);
    expected.limits = running.limits;
    assert_eq!(kept.settings, expected);
    assert_ne!(kept.settings, running);

    let kept = read(&file).replacing(&running, Daemon::NodeAgent);
    assert_eq!(kept.refused, Vec::<String>::new());
    let mut expected = read(&file);
    expected.managed = running.managed.clone();
    assert_eq!(kept.settings, expected);

    let kept = read(&file).replacing(&running, Daemon::FrrAgent);
    assert_eq!(
        kept.refused,
        [
            "[bgp-managed] frr-namespace is another one in the file: taken over at the next start only"
        ]
    );
    let mut expected = running.clone();
    expected.logging.level = "debug".to_owned();
    assert_eq!(kept.settings, expected);
}

#[test]
fn where_the_routing_stays_the_rest_of_no_overlay_is_the_files() {
    let running = read(RUNNING);
    let file = RUNNING
        .replace("\"managed\"", "\"unmanaged\"")
        .replace("\"enabled\"", "\"disabled\"");
    let kept = read(&file).keeping_network(&running);
    assert_eq!(kept.refused.len(), 1, "{kept:?}");
    let options = kept.settings.network.transport.no_overlay().unwrap();
    assert_eq!(options.routing, Routing::Managed);
    assert!(!options.outbound_snat);
    // Nobody asked for the one that goes with the routing that is refused.
    assert_eq!(options.missing_route, MissingRoute::Discard);
    let unmanaged = read(&file);
    let said = file.replace("routing", "missing-route = \"discard\"\nrouting");
    let running = RUNNING.replace("routing", "missing-route = \"forward\"\nrouting");
    let kept = read(&said).keeping_network(&read(&running));
    let options = kept.settings.network.transport.no_overlay().unwrap();
    assert_eq!(options.missing_route, MissingRoute::Discard);
    let kept = unmanaged.keeping_network(&read(&running));
    let options = kept.settings.network.transport.no_overlay().unwrap();
    assert_eq!(options.missing_route, MissingRoute::Forward);
}

/// Changes of the file, what is said of each, and who reads it: manager, node-agent, frr-agent.
const NEEDS_A_START: &[(&str, &str, &str, [bool; 3])] = &[
    (
        "[no-overlay]",
        "cluster-subnets = \"10.0.0.0/8/24\"\n[no-overlay]",
        "[default] cluster-subnets",
        [true, true, false],
    ),
    (
        "[no-overlay]",
        "mtu = 1400\n[no-overlay]",
        "[default] mtu",
        [true, true, false],
    ),
    (
        "[no-overlay]",
        "mtu-probe-interval = 0\n[no-overlay]",
        "[default] mtu-probe-interval",
        [false, true, false],
    ),
    (
        "[no-overlay]",
        "cluster-default-nad = \"a/b\"\n[no-overlay]",
        "[default] cluster-default-nad",
        [true, true, false],
    ),
    (
        "[no-overlay]",
        "udn-allowed-default-services = \"a/b\"\n[no-overlay]",
        "[default] udn-allowed-default-services",
        [false, true, false],
    ),
    (
        "[bgp",
        "[ovnkubernetesfeature]\nenable-egress-ip = false\n[bgp",
        "[ovnkubernetesfeature]",
        [true, true, false],
    ),
    (
        "[bgp",
        "[gateway]\nmode = \"local\"\n[bgp",
        "[gateway]",
        [true, true, false],
    ),
    (
        "[bgp",
        "[gateway]\ninterface = \"br1\"\n[bgp",
        "[gateway]",
        [true, true, false],
    ),
    (
        "[bgp",
        "[ovn]\ntopology = \"build\"\n[bgp",
        "[ovn]",
        [true, true, false],
    ),
    (
        "[bgp",
        "[ovnnorth]\naddress = \"tcp:127.0.0.1:1\"\n[bgp",
        "[ovnnorth]",
        [false, true, false],
    ),
    (
        "[bgp",
        "[ovs]\nrundir = \"/x\"\n[bgp",
        "[ovs] rundir",
        [false, true, false],
    ),
    (
        "[bgp",
        "[frr]\nreload-timeout = 7\n[bgp",
        "[frr]",
        [false, true, true],
    ),
    (
        "[bgp",
        "[kubernetes]\nservice-cidrs = \"10.96.0.0/16\"\n[bgp",
        "[kubernetes] service-cidrs",
        [true, true, false],
    ),
    (
        "[bgp",
        "[clustermanager]\nv4-transit-subnet = \"100.99.0.0/16\"\n[bgp",
        "[clustermanager]",
        [false, true, false],
    ),
    (
        "[bgp",
        "[ovnsouth]\naddress = \"unix:/x\"\n[bgp",
        "[ovnsouth]",
        [false, true, false],
    ),
    (
        "[bgp",
        "[kubernetes]\nkubeconfig = \"/x\"\n[bgp",
        "[kubernetes] kubeconfig",
        [true, true, true],
    ),
    (
        "[bgp",
        "[metrics]\nbind-address = \"127.0.0.1:1\"\n[bgp",
        "[metrics]",
        [true, true, true],
    ),
    (
        "[bgp",
        "[logging]\nformat = \"text\"\n[bgp",
        "[logging] format",
        [true, true, true],
    ),
];

#[test]
fn what_needs_a_start_stays_and_is_named_by_who_reads_it() {
    let running = read(RUNNING);
    for (from, to, what, readers) in NEEDS_A_START {
        let file = read(&RUNNING.replacen(from, to, 1));
        assert_ne!(file, running, "{to}");
        for (daemon, reads) in Daemon::ALL.into_iter().zip(readers) {
            let kept = file.clone().replacing(&running, daemon);
            let said =
                format!("{what} is another one in the file: taken over at the next start only");
            let expected = if *reads { vec![said] } else { Vec::new() };
            assert_eq!(kept.refused, expected, "{daemon:?}: {to}");
            assert_eq!(kept.settings, running, "{daemon:?}: {to}");
        }
    }
}

#[test]
fn transport_and_routing_of_the_default_network_stay_with_what_they_need() {
    let running = read(RUNNING);
    let kept = read("").keeping_network(&running);
    assert_eq!(
        kept.refused,
        [
            "the configuration says [default] transport = geneve, the default network runs with [default] transport = no-overlay with [no-overlay] routing = managed: that stays in force; to change it, every node has to be changed at once"
        ]
    );
    assert_eq!(
        kept.settings, running,
        "the fabric's settings too, which the file does not have"
    );

    let unmanaged = RUNNING
        .replace("\"managed\"", "\"unmanaged\"")
        .replace("enabled", "disabled")
        .replace("64777", "64778");
    let kept = read(&unmanaged).keeping_network(&running);
    assert!(
        kept.refused
            .concat()
            .contains("routing = unmanaged, the default network runs with"),
        "{kept:?}"
    );
    assert_eq!(
        kept.settings
            .network
            .transport
            .no_overlay()
            .unwrap()
            .routing,
        Routing::Managed
    );
    assert!(
        !kept
            .settings
            .network
            .transport
            .no_overlay()
            .unwrap()
            .outbound_snat
    );
    assert_eq!(
        kept.settings.managed.asn.to_string(),
        "64778",
        "the file has a fabric: its settings are taken"
    );

    let geneve = read("");
    let kept = read(RUNNING).keeping_network(&geneve);
    assert_eq!(kept.settings.network, geneve.network);
    assert_eq!(kept.refused.len(), 1);
}

#[test]
fn what_is_in_force_is_read_as_it_was_written() {
    let network = |settings: &Settings| {
        let managed = settings.network.transport.no_overlay();
        let managed = managed.is_some_and(|options| options.routing == Routing::Managed);
        (
            settings.network.transport,
            managed.then(|| settings.managed.clone()),
        )
    };
    for text in [
        String::new(),
        RUNNING.to_owned(),
        format!(
            "{}profile = \"compat\"\npassword-secret = \"bgp\"\nfrr-namespace = \"x\"\n",
            RUNNING.replace("full-mesh", "route-reflector")
        ),
        RUNNING.replace("full-mesh", "auto"),
        format!(
            "{}auto-reflectors-above = 5\nauto-full-mesh-below = 4\n",
            RUNNING.replace("full-mesh", "auto")
        ),
        RUNNING
            .replace("\"managed\"", "\"unmanaged\"\nmissing-route = \"discard\"")
            .replace("enabled", "disabled"),
    ] {
        let settings = read(&text);
        let stored = settings.network_in_force();
        let again = Settings::of_network_in_force("NetworkAttachmentDefinition", &stored).unwrap();
        assert_eq!(network(&again), network(&settings), "{stored}");
        assert_eq!(again.network_in_force(), stored);
        assert_eq!(again.warnings, Vec::<String>::new(), "{stored}");
    }
    let error = Settings::of_network_in_force("NAD", "[default]\ntransport = \"x\"\n");
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("NAD.toml: [default] transport")
    );
}
