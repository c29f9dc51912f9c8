//! What the node-agent learns of networks from what the cluster-manager writes, with the rights that it is shipped with.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::Command;

use kube_tests::{ApiServer, tools, until};
use node_agent::networks::Networks;
use tokio::runtime::Runtime;

use crate::harness::{Manager, configuration};

const CRD: &str = "customresourcedefinition/network-attachment-definitions.k8s.cni.cncf.io";

/// The watches of one node-agent, on a runtime of their own.
struct Agent {
    networks: Networks,
    _runtime: Runtime,
}

impl Agent {
    fn start(api: &ApiServer) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let file = configuration(api);
        let settings = settings::parse("noverlay.toml", &file, "127.0.0.1:0".parse().unwrap());
        let default = settings.unwrap().network.nad;
        let kubeconfig = api.kubeconfig("node-agent");
        let networks = runtime.block_on(async {
            let client = kube_edge::connect(Some(&kubeconfig)).await.unwrap();
            Networks::start(&client, default, false, || ())
        });
        Self {
            networks,
            _runtime: runtime,
        }
    }

    /// What is declared, in a line: networks in force with id, who routes them and where they are advertised, then troubles.
    fn seen(&mut self) -> String {
        let declared = self.networks.declared();
        let default = declared.default_network.map_or_else(
            || "unknown".to_owned(),
            |a| format!("{}/{}", a.default_vrf, a.own_vrf),
        );
        let mut words = vec![format!("listed={} default={default}", declared.listed)];
        for (name, network) in &declared.networks {
            let options = network.transport.no_overlay();
            let options = options.map_or("overlay".to_owned(), |o| format!("{:?}", o.routing));
            let advertised = network.advertised;
            words.push(format!(
                "{name}={} {options} {}/{}",
                network.id, advertised.default_vrf, advertised.own_vrf
            ));
        }
        for (name, trouble) in &declared.troubles {
            words.push(format!("{name}!{}", trouble.problem().reason));
        }
        for problem in &declared.ignored {
            words.push(format!("ignored {problem}"));
        }
        words.join(", ")
    }

    fn sees(&mut self, what: &str, wanted: &str) {
        until(what, 30, || {
            let seen = self.seen();
            if seen.contains(wanted) {
                Ok(())
            } else {
                Err(format!("{seen}, wanted {wanted}"))
            }
        });
    }
}

fn object(name: &str, tenant: &str) -> String {
    let primary = "k8s.ovn.org/primary-user-defined-network: ''";
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{tenant: {tenant}, {primary}}}}}}}\n---\n"
    )
}

fn cudn(name: &str, subnet: &str, options: &str) -> String {
    format!(
        "{{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {{name: {name}}}, spec: \
         {{namespaceSelector: {{matchLabels: {{tenant: {name}}}}}, network: {{topology: Layer3, \
         layer3: {{role: Primary, subnets: [{{cidr: {subnet}, hostSubnet: 24}}]}}{options}}}}}}}\n---\n"
    )
}

fn routed(routing: &str) -> String {
    format!(
        ", transport: NoOverlay, noOverlayOptions: {{outboundSNAT: Enabled, routing: {routing}}}"
    )
}

const DECLARED: &str = "listed=true default=true/false, cluster_udn_amber=1 Managed true/false, cluster_udn_cobalt=2 overlay false/false, cluster_udn_green=3 Unmanaged false/false";

#[test]
#[expect(clippy::too_many_lines, reason = "one life from beginning to end")]
fn a_node_learns_of_the_networks_that_the_manager_writes_and_forgets_none_for_a_fault() {
    let Some(tools) = tools() else { return };
    let mut api = ApiServer::start(tools);
    for (name, ip) in [("n1", "172.30.0.1"), ("n2", "172.30.0.2")] {
        api.node(name, ip);
    }
    let mut agent = Agent::start(&api);
    agent.sees("nothing is declared", "listed=true default=false/false");
    let namespaces = [
        object("shop", "amber"),
        object("till", "amber"),
        object("mine", "cobalt"),
        object("farm", "green"),
    ];
    api.apply(&namespaces.concat());
    // One by one: each has the next id.
    let manager = Manager::start(&api, "a");
    for (name, subnet, options) in [
        ("amber", "10.61.0.0/16", routed("Managed")),
        ("cobalt", "10.62.0.0/16", String::new()),
        ("green", "10.63.0.0/16", routed("Unmanaged")),
    ] {
        api.apply(&cudn(name, subnet, &options));
        agent.sees("the network is known", &format!("cluster_udn_{name}"));
    }
    agent.sees("all is known of all", DECLARED);

    // With the manager away somebody edits an object: what is in force stays, and the object is named.
    manager.stop();
    let edit = |at: &str, id: &str| {
        let annotation = format!("k8s.ovn.org/network-id={id}");
        let words = [
            "annotate",
            "net-attach-def",
            "amber",
            "-n",
            at,
            &annotation,
            "--overwrite",
        ];
        api.kubectl(&words);
    };
    edit("shop", "7");
    let ignored = "ignored NetworkAttachmentDefinition/shop/amber: network cluster_udn_amber: annotation k8s.ovn.org/network-id is 7; in force is that of till/amber: 1";
    agent.sees("the edited object is named", ignored);
    agent.sees("what is in force stays", DECLARED);
    // The edited one first: alone it would be obeyed.
    edit("shop", "none");
    edit("till", "none");
    let broken = "cluster_udn_amber=1 Managed true/false, cluster_udn_cobalt=2 overlay false/false, cluster_udn_green=3 Unmanaged false/false, cluster_udn_amber!AttachmentMalformed";
    agent.sees("none can be read, it is still in force", broken);
    let mut fresh = Agent::start(&api);
    fresh.sees("an agent that starts waits for it alone", "default=true/false, cluster_udn_cobalt=2 overlay false/false, cluster_udn_green=3 Unmanaged false/false, cluster_udn_amber!AttachmentMalformed");
    edit("till", "1");
    edit("shop", "1");
    agent.sees("they are mended", DECLARED);
    // The two edits are seen one after the other.
    until("nothing is ignored", 30, || {
        let seen = agent.seen();
        (seen == DECLARED).then_some(()).ok_or(seen)
    });

    // Without an API server what is known stays, and who starts knows that it knows nothing.
    api.stop();
    let mut started = Agent::start(&api);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(started.seen(), "listed=false default=unknown");
    assert_eq!(agent.seen(), DECLARED);
    api.start_again();
    started.sees("the server is back", DECLARED);
    assert_eq!(agent.seen(), DECLARED);

    // The manager takes a network away.
    let _manager = Manager::start(&api, "a");
    let delete = [
        "delete",
        "clusteruserdefinednetwork",
        "amber",
        "--wait=false",
    ];
    api.kubectl(&delete);
    let without =
        "default=true/false, cluster_udn_cobalt=2 overlay false/false, cluster_udn_green=3";
    agent.sees("amber is gone", without);
}

#[test]
fn a_kind_that_is_not_installed_declares_nothing_and_is_found_when_it_comes() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let definition = api.output(&["get", CRD, "-o", "json"]);
    let mut definition: serde_json::Value = serde_json::from_str(&definition).unwrap();
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
        definition
            .pointer_mut("/metadata")
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(field);
    }
    api.kubectl(&["delete", CRD]);
    let mut agent = Agent::start(&api);
    agent.sees("there are none", "listed=true default=false/false");
    api.apply(&definition.to_string());
    api.kubectl(&["wait", "--for=condition=Established", CRD, "--timeout=30s"]);
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: ns}}");
    api.apply(
        "{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: blue, namespace: ns, \
         labels: {k8s.ovn.org/user-defined-network: ''}, finalizers: [k8s.ovn.org/user-defined-network-protection]}, spec: {config: '{}'}}",
    );
    agent.sees("one came", "cluster_udn_blue!AttachmentMalformed");
}

/// The node-agent may read what declares networks, and change none of it.
#[test]
fn the_node_agent_reads_what_declares_networks_and_writes_none_of_it() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools.clone());
    let may = |verb: &str, resource: &str| {
        let account = "system:serviceaccount:noverlay-system:node-agent";
        let said = Command::new(tools.join("kubectl"))
            .env("KUBECONFIG", api.kubeconfig("admin"))
            .args(["auth", "can-i", verb, resource, "--as", account, "-A"])
            .output()
            .unwrap();
        said.status.success()
    };
    let of_networks = "network-attachment-definitions.k8s.cni.cncf.io";
    let of_routes = "routeadvertisements.k8s.ovn.org";
    for verb in ["list", "watch"] {
        for resource in [
            of_networks,
            of_routes,
            "customresourcedefinitions.apiextensions.k8s.io",
        ] {
            assert!(may(verb, resource), "{verb} {resource}");
        }
    }
    for verb in ["create", "update", "patch", "delete"] {
        for resource in [
            of_networks,
            of_routes,
            "clusteruserdefinednetworks.k8s.ovn.org",
        ] {
            assert!(!may(verb, resource), "{verb} {resource}");
        }
    }
}
