//! What the cluster's plan becomes while objects and settings change: the scripts in `tests/scripts`.
//! In: commands of `testkit::script` and `testkit::objects`, and `config` with a configuration file as its body. Out: failed
//! tests that name the script. Invariant: `plan` writes what is planned and plans again until nothing is left to write, as the
//! manager does. Not here: the API server, time.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};

use api::frr_configuration::FRRConfiguration;
use api::route_advertisements::RouteAdvertisements;
use model::network::Routing;
use model::{NetworkName, ObjectKey, Problem, intent};
use plan_cluster::world::FabricSettings;
use plan_cluster::{MANAGED_BY, World, advertise, fabric, networks, transport};
use serde_json::{Value, json};
use settings::{Profile, Settings};
use testkit::objects::Objects;
use testkit::script::{Scenario, run_all};

const FRR: &str = "FRRConfiguration";
const RA: &str = "RouteAdvertisements";

#[test]
fn every_script_leads_where_it_led() {
    run_all(ClusterScenario::default);
}

#[derive(Default)]
struct ClusterScenario {
    objects: Objects,
    settings: Option<Settings>,
    /// FRRConfigurations that were deleted since the last plan.
    withdrawn: BTreeSet<String>,
}

impl ClusterScenario {
    /// As the manager's caches make it.
    fn world(&self) -> World {
        let settings = self.settings.as_ref().expect("a script begins with config");
        let mut world = World {
            frr_namespace: settings.managed.frr_namespace.clone(),
            ..World::default()
        };
        let network = settings.default_network();
        let options = network.transport.no_overlay();
        if options.is_some_and(|options| options.routing == Routing::Managed) {
            world.fabric = Some(FabricSettings {
                asn: settings.managed.asn,
                namespace: settings.managed.frr_namespace.clone(),
                resilient: settings.managed.profile == Profile::Resilient,
            });
        }
        world.networks.insert(network.name.clone(), network);
        for node in self.objects.nodes() {
            world.nodes.insert(node.name.clone(), node);
        }
        for object in self.objects.all(RA) {
            let typed = serde_json::from_value::<RouteAdvertisements>(object.clone());
            let ra = match typed {
                Ok(typed) => intent::RouteAdvertisements::try_from(&typed),
                Err(error) => Err(format!("the object cannot be read: {error}")),
            };
            world.ras.insert(name_of(object), ra);
        }
        for object in self.objects.all(FRR) {
            let key = ObjectKey::new(
                object["metadata"]["namespace"].as_str().unwrap_or_default(),
                name_of(object),
            );
            let typed = serde_json::from_value::<FRRConfiguration>(object.clone());
            let source = api::decode_source(key.clone(), typed.map_err(|e| e.to_string()));
            if source.object.is_err() {
                let object = serde_json::from_value(object.clone()).unwrap();
                world.unreadable.insert(key.clone(), api::remains(&object));
            }
            world.frr.insert(key, source.object);
        }
        world
    }

    /// Writes what is planned; false where everything stands.
    fn write(&mut self, plans: &Plans) -> bool {
        let before = self.objects.clone();
        for (name, allocation) in &plans.networks.allocations {
            let node = self.objects.of("Node", name.as_str()).unwrap();
            let annotations = &mut node["metadata"]["annotations"];
            if let Some(id) = allocation.node_id {
                annotations[model::node::annotation::NODE_ID] = id.to_string().into();
            }
            if let Some(subnets) = &allocation.subnets {
                let texts = |list: &Vec<model::Prefix>| -> Vec<String> {
                    list.iter().map(ToString::to_string).collect()
                };
                let map: BTreeMap<&str, Vec<String>> = subnets
                    .iter()
                    .map(|(network, list)| (network.as_str(), texts(list)))
                    .collect();
                annotations[model::node::annotation::NODE_SUBNETS] = json!(map).to_string().into();
            }
        }
        let of_plans = plans.advertisements.values();
        for object in plans
            .fabric
            .base
            .iter()
            .chain(of_plans.flat_map(|p| p.desired.values()))
        {
            let object = serde_json::to_value(FRRConfiguration::from(object)).unwrap();
            self.objects.put(object).unwrap();
        }
        for key in plans.advertisements.values().flat_map(|plan| &plan.surplus) {
            self.objects.remove(FRR, &key.to_string());
            self.withdrawn.insert(key.to_string());
        }
        if plans.fabric.base.is_none() {
            self.remove_ours(FRR, &fabric::base_name());
        }
        let name = fabric::advertisement_name(&NetworkName::default_network());
        match &plans.fabric.advertisement {
            // As the manager writes it.
            Some(wanted) => self
                .objects
                .put(json!({
                    "apiVersion": "k8s.ovn.org/v1", "kind": RA,
                    "metadata": {"name": wanted.name, "labels": fabric::labels()},
                    "spec": {
                        "advertisements": ["PodNetwork"],
                        "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}],
                        "nodeSelector": {},
                        "frrConfigurationSelector": api::selector::encode(&wanted.frr_selector),
                    },
                }))
                .unwrap(),
            None => self.remove_ours(RA, &name),
        }
        self.objects != before
    }
}

impl ClusterScenario {
    /// Deletes an object that bears our label.
    fn remove_ours(&mut self, kind: &str, name: &str) {
        let (label, value) = MANAGED_BY;
        let is_ours = |o: &&Value| name_of(o) == name && o["metadata"]["labels"][label] == value;
        let found = self.objects.all(kind).find(is_ours);
        let key = found.map(|o| match o["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        });
        if let Some(key) = key {
            self.objects.remove(kind, &key);
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Everything that is planned of one world.
struct Plans {
    networks: networks::Plan,
    fabric: fabric::Plan,
    advertisements: BTreeMap<String, advertise::Plan>,
    state: transport::DefaultNetwork,
}

impl Plans {
    fn of(world: &World) -> Self {
        let complete = fabric::complete(world.clone());
        let advertisements = advertise::plan_all(&complete);
        let accepted = advertisements
            .iter()
            .map(|(name, plan)| (name.clone(), plan.accepted()))
            .collect();
        Self {
            networks: networks::plan(world),
            fabric: fabric::plan(world),
            state: transport::default_network(&complete, &accepted),
            advertisements,
        }
    }
}

impl Scenario for ClusterScenario {
    fn apply(&mut self, words: &[&str], body: &str) -> Result<(), String> {
        if self.objects.apply(words, body)? {
            return Ok(());
        }
        let ["config"] = words else {
            return Err("unknown command".to_owned());
        };
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 9160));
        let settings = settings::parse("noverlay.toml", body, metrics);
        self.settings = Some(settings.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn plan(&mut self) -> String {
        self.withdrawn.clear();
        for _ in 0..10 {
            let plans = Plans::of(&self.world());
            if !self.write(&plans) {
                // What goes and comes back withdraws routes in between.
                for key in &self.withdrawn {
                    let (_, name) = key.split_once('/').unwrap();
                    assert!(
                        !self.objects.all(FRR).any(|o| name_of(o) == name),
                        "{key} went and came back"
                    );
                }
                return self.text(&plans);
            }
        }
        panic!("there is no end of writing");
    }
}

impl ClusterScenario {
    fn text(&self, plans: &Plans) -> String {
        let mut out = String::from("# Nodes\n");
        for node in self.objects.all("Node") {
            writeln!(out, "{}", name_of(node)).unwrap();
            for (key, value) in node["metadata"]["annotations"]
                .as_object()
                .into_iter()
                .flatten()
            {
                writeln!(out, "  {key} = {}", value.as_str().unwrap()).unwrap();
            }
        }
        out.push_str("# FRRConfigurations\n");
        for object in self.objects.all(FRR) {
            let metadata = &object["metadata"];
            writeln!(
                out,
                "{}/{}",
                metadata["namespace"].as_str().unwrap(),
                name_of(object)
            )
            .unwrap();
            for what in ["labels", "annotations"] {
                for (key, value) in metadata[what].as_object().into_iter().flatten() {
                    writeln!(out, "  {what} {key} = {value}").unwrap();
                }
            }
            let spec = serde_saphyr::to_string(&object["spec"]).unwrap();
            for line in spec.lines() {
                writeln!(out, "  {line}").unwrap();
            }
        }
        out.push_str("# RouteAdvertisements\n");
        for object in self.objects.all(RA) {
            writeln!(out, "spec of {}", name_of(object)).unwrap();
            for line in serde_saphyr::to_string(&object["spec"]).unwrap().lines() {
                writeln!(out, "  {line}").unwrap();
            }
        }
        for (name, plan) in &plans.advertisements {
            writeln!(out, "{name}").unwrap();
            for condition in &plan.conditions {
                let (kind, word) = (condition.kind, condition.word());
                writeln!(
                    out,
                    "  {kind} {word} {}: {}",
                    condition.reason, condition.message
                )
                .unwrap();
            }
            for key in &plan.keep {
                writeln!(out, "  {key} stays as it is").unwrap();
            }
            out.push_str(&problems(&plan.problems));
        }
        out.push_str("# Problems\nnetworks\n");
        out.push_str(&problems(&plans.networks.problems));
        out.push_str("fabric\n");
        out.push_str(&problems(&plans.fabric.problems));
        writeln!(out, "# Default network\n{:?}", plans.state).unwrap();
        out
    }
}

fn problems(list: &[Problem]) -> String {
    let line = |problem: &Problem| format!("  {} {problem}\n", problem.reason);
    list.iter().map(line).collect()
}
