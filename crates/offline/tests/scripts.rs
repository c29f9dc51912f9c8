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

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};

use model::{ObjectKey, Problem};
use offline::kind::{CUDN, FRR, NAD, NODE, RA};
use offline::{Objects, Plans};
use plan_cluster::fabric::roles::ROLE_LABEL;
use serde_json::Value;
use settings::Settings;
use testkit::objects;
use testkit::script::{Scenario, run_all};

#[test]
fn every_script_leads_where_it_led() {
    run_all(ClusterScenario::default);
}

#[derive(Default)]
struct ClusterScenario {
    objects: Objects,
    settings: Option<Settings>,
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn keys(objects: &Objects, kind: &str) -> BTreeSet<String> {
    objects.all(kind).map(name_of).collect()
}

impl Scenario for ClusterScenario {
    fn apply(&mut self, words: &[&str], body: &str) -> Result<(), String> {
        if objects::apply(&mut self.objects, words, body)? {
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
        let settings = self.settings.as_ref().expect("a script begins with config");
        let mut withdrawn: BTreeSet<String> = BTreeSet::new();
        for _ in 0..10 {
            let world = offline::world(settings, &self.objects);
            let plans = Plans::of(&world, settings);
            let before = self.objects.clone();
            offline::write(&plans, settings, &mut self.objects).unwrap();
            let (had, has) = (keys(&before, FRR), keys(&self.objects, FRR));
            withdrawn.extend(had.difference(&has).cloned());
            // What goes and comes back withdraws routes in between.
            let back: Vec<&String> = withdrawn.intersection(&has).collect();
            assert!(back.is_empty(), "{back:?} went and came back");
            if self.objects == before {
                return self.text(&plans);
            }
        }
        panic!("there is no end of writing");
    }
}

impl ClusterScenario {
    fn text(&self, plans: &Plans) -> String {
        let mut out = String::from("# Nodes\n");
        for node in self.objects.all(NODE) {
            writeln!(out, "{}", name_of(node)).unwrap();
            if let Some(role) = node["metadata"]["labels"][ROLE_LABEL].as_str() {
                writeln!(out, "  label {ROLE_LABEL} = {role}").unwrap();
            }
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
        Self::advertised(plans, &mut out);
        self.attached(plans, &mut out);
        let of_networks = problems(&plans.networks.problems);
        let of_fabric = problems(&plans.fabric.problems);
        write!(
            out,
            "# Problems\nnetworks\n{of_networks}fabric\n{of_fabric}"
        )
        .unwrap();
        writeln!(out, "# Default network\n{:?}", plans.state).unwrap();
        out
    }
}

impl ClusterScenario {
    /// Conditions and problems of RouteAdvertisements.
    fn advertised(plans: &Plans, out: &mut String) {
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
    }

    /// NetworkAttachmentDefinitions and ClusterUserDefinedNetworks, where there are any of users.
    fn attached(&self, plans: &Plans, out: &mut String) {
        if plans.conditions.is_empty() && plans.attachments.surplus.is_empty() {
            return;
        }
        out.push_str("# NetworkAttachmentDefinitions\n");
        for object in self.objects.all(NAD) {
            let metadata = &object["metadata"];
            let key = ObjectKey::new(metadata["namespace"].as_str().unwrap(), name_of(object));
            writeln!(out, "{key}").unwrap();
            for what in ["labels", "annotations"] {
                for (key, value) in metadata[what].as_object().into_iter().flatten() {
                    writeln!(out, "  {what} {key} = {value}").unwrap();
                }
            }
            writeln!(
                out,
                "  config {}",
                object["spec"]["config"].as_str().unwrap()
            )
            .unwrap();
        }
        out.push_str("# ClusterUserDefinedNetworks\n");
        for object in self.objects.all(CUDN) {
            let name = name_of(object);
            writeln!(out, "{name}").unwrap();
            writeln!(out, "  labels {}", object["metadata"]["labels"]).unwrap();
            writeln!(out, "  finalizers {}", object["metadata"]["finalizers"]).unwrap();
            for condition in plans.conditions.get(&name).into_iter().flatten() {
                let (kind, word) = (condition.kind, condition.word());
                writeln!(
                    out,
                    "  {kind} {word} {}: {}",
                    condition.reason, condition.message
                )
                .unwrap();
            }
        }
    }
}

fn problems(list: &[Problem]) -> String {
    let line = |problem: &Problem| format!("  {} {problem}\n", problem.reason);
    list.iter().map(line).collect()
}
