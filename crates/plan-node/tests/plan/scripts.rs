//! What the node's plan becomes while facts come, change and are lost: the scripts in `tests/scripts`.
//! In: commands of `testkit::script` and `testkit::objects`, and these. Out: failed tests that name the script.
//! Invariant: facts go the way they go in the agent: through one `Memory`, `sound_plan` and `check`.
//! Not here: why a plan is as it is (comments of the scripts).
//!
//! ```text
//!  network NAME [id=N] subnets=CIDR/LEN,.. join=CIDR,.. [transport=geneve] [snat=off] [missing-route=forward] [mtu=N]
//!  link NAME [mac=MAC] [mtu=N] [vrf=TABLE] ADDRESS...
//!  port NAME NUMBER [patch]         a port of the external bridge
//!  chassis NAME    mapping BRIDGE=NAME    schema nat-match
//!  gone network|link|port|chassis|mapping [NAME]
//!  lost api|links    back api|links     while it is lost nothing of it is read
//!  restart                          a process that remembers nothing
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use model::gateway::{BgpDefault, GatewayMode};
use model::kernel::LinkFact;
use model::names::{NetworkName, NodeName};
use model::network::{MissingRoute, Network, Transport};
use model::node::annotation;
use model::ovs::{BridgeFact, PortFact};
use plan_node::{Facts, Memory, NodeConfig, ServiceAddresses, Snapshot, Undeclared, sound_plan};
use testkit::objects::{self, Objects};
use testkit::script::{Scenario, run_all};
use testkit::{mk_link, mk_port, mk_user_network};

use crate::render;

#[test]
fn every_script_leads_where_it_led() {
    run_all(NodeScenario::new);
}

/// Node n1 with bridge br-ex and the next hop 172.30.0.100; everything else is what the script says.
struct NodeScenario {
    memory: Memory,
    objects: Objects,
    networks: BTreeMap<NetworkName, Network>,
    links: BTreeMap<String, LinkFact>,
    ports: BTreeMap<String, PortFact>,
    chassis: Option<String>,
    mappings: BTreeMap<String, String>,
    nat_has_match: bool,
    api_lost: bool,
    links_lost: bool,
}

fn memory() -> Memory {
    Memory::new(NodeConfig {
        node: NodeName::from("n1"),
        bridge: "br-ex".to_owned(),
        next_hops: vec!["172.30.0.100".parse().unwrap()],
        mode: GatewayMode::Shared,
        ephemeral_port_range: (32768, 60999),
        bgp_default: BgpDefault::Ignore,
        masquerade_subnets: vec![
            "169.254.0.0/17".parse().unwrap(),
            "fd69::/112".parse().unwrap(),
        ],
        strict_isolation: true,
        service_cidrs: vec!["172.31.0.0/16".parse().unwrap()],
        beside: false,
        transit_subnets: Vec::new(),
    })
}

/// API server and DNS.
fn services() -> ServiceAddresses {
    [("default/kubernetes", 1), ("kube-system/kube-dns", 10)]
        .map(|(name, last)| (name.to_owned(), [[172, 31, 0, last].into()].into()))
        .into()
}

impl NodeScenario {
    fn new() -> Self {
        Self {
            memory: memory(),
            objects: Objects::default(),
            networks: BTreeMap::new(),
            links: BTreeMap::new(),
            ports: BTreeMap::new(),
            chassis: None,
            mappings: BTreeMap::new(),
            nat_has_match: false,
            api_lost: false,
            links_lost: false,
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let nodes = self.objects.nodes();
        let own = self.objects.get("Node", "n1");
        let release = own.and_then(|own| {
            let annotations = &own["metadata"]["annotations"];
            annotations[annotation::RELEASE_WITHDRAWALS]
                .as_str()
                .map(str::to_owned)
        });
        let links = self.links.values().cloned().collect();
        let ports = self.ports.values().cloned().collect();
        self.memory.snapshot(Facts {
            networks: self.networks.values().cloned().collect(),
            nodes: (!self.api_lost).then(|| nodes.into_iter().map(Arc::new).collect()),
            undeclared: Undeclared::default(),
            api_servers: (!self.api_lost).then(Default::default),
            services: (!self.api_lost).then(services),
            release,
            links: if self.links_lost {
                Err("no answer".to_owned())
            } else {
                Ok(links)
            },
            chassis: self.chassis.clone(),
            physical_networks: self.mappings.clone(),
            encap_ips: None,
            ports: Some(BridgeFact { ports }),
            nat_has_match: Some(self.nat_has_match),
            refused_vrfs: BTreeMap::new(),
            management_ports: None,
            row_owners: None,
        })
    }

    fn network(&mut self, name: &str, words: &[&str]) -> Result<(), String> {
        let mut network = mk_user_network(name, 0, &[], &[]);
        for word in words {
            let (key, value) = word.split_once('=').ok_or("KEY=VALUE is allowed")?;
            let bad = |error| format!("{word}: {error}");
            match (key, value) {
                ("id", id) => network.id = id.parse().map_err(|e| bad(format!("{e}")))?,
                ("subnets", list) => network.subnets = parsed(list)?,
                ("join", list) => network.join_subnets = parsed(list)?,
                ("mtu", mtu) => {
                    network.mtu = Some(mtu.parse().map_err(|e| bad(format!("{e}")))?);
                }
                ("transport", "geneve") => network.transport = Transport::Geneve,
                ("snat", "off") => {
                    if let Transport::NoOverlay(options) = &mut network.transport {
                        options.outbound_snat = false;
                    }
                }
                ("missing-route", "forward") => {
                    if let Transport::NoOverlay(options) = &mut network.transport {
                        options.missing_route = MissingRoute::Forward;
                    }
                }
                _ => return Err(format!("unknown option {word}")),
            }
        }
        self.networks.insert(network.name.clone(), network);
        Ok(())
    }

    fn link(&mut self, name: &str, words: &[&str]) -> Result<(), String> {
        // A link that was there keeps its index.
        let index = match self.links.get(name) {
            Some(link) => link.index,
            None => 2 + u32::try_from(self.links.len()).unwrap(),
        };
        let mut link = mk_link(index, name);
        for word in words {
            match word.split_once('=') {
                Some(("mac", mac)) => link.mac = Some(one(mac)?),
                Some(("mtu", mtu)) => link.mtu = one(mtu)?,
                Some(("vrf", table)) => link.vrf_table = Some(one(table)?),
                Some(_) => return Err(format!("unknown option {word}")),
                None => link.addresses.push(one(word)?),
            }
        }
        self.links.insert(name.to_owned(), link);
        Ok(())
    }

    fn gone(&mut self, what: &str, name: &str) -> Result<(), String> {
        let was_there = match what {
            "network" => self.networks.remove(&NetworkName::from(name)).is_some(),
            "link" => self.links.remove(name).is_some(),
            "port" => self.ports.remove(name).is_some(),
            "chassis" => self.chassis.take().is_some(),
            "mapping" => self.mappings.remove(name).is_some(),
            _ => return Err(format!("unknown kind {what}")),
        };
        was_there
            .then_some(())
            .ok_or_else(|| format!("there is no {what} {name}"))
    }
}

fn one<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(list: &str) -> Result<Vec<T>, String> {
    list.split(',').map(one).collect()
}

impl Scenario for NodeScenario {
    fn apply(&mut self, words: &[&str], body: &str) -> Result<(), String> {
        if objects::apply(&mut self.objects, words, body)? {
            return Ok(());
        }
        match words {
            ["network", name, options @ ..] => self.network(name, options)?,
            ["link", name, options @ ..] => self.link(name, options)?,
            ["port", name, number, kind @ ..] => {
                let port = mk_port(name, kind.first().unwrap_or(&""), one(number)?);
                self.ports.insert((*name).to_owned(), port);
            }
            ["chassis", name] => self.chassis = Some((*name).to_owned()),
            ["mapping", mapping] => {
                let (bridge, name) = mapping.split_once('=').ok_or("BRIDGE=NAME is allowed")?;
                self.mappings.insert(bridge.to_owned(), name.to_owned());
            }
            ["schema", "nat-match"] => self.nat_has_match = true,
            ["gone", "chassis"] => self.gone("chassis", "")?,
            ["gone", what, name] => self.gone(what, name)?,
            ["lost", "api"] => self.api_lost = true,
            ["back", "api"] => self.api_lost = false,
            ["lost", "links"] => self.links_lost = true,
            ["back", "links"] => self.links_lost = false,
            ["restart"] => self.memory = memory(),
            _ => return Err("unknown command".to_owned()),
        }
        Ok(())
    }

    fn plan(&mut self) -> String {
        let snapshot = self.snapshot();
        let (plan, violations) = sound_plan(snapshot.clone());
        [
            render::knowledge(&snapshot, &plan, &violations),
            render::plan(&plan),
            render::learned(&plan),
        ]
        .concat()
    }
}
