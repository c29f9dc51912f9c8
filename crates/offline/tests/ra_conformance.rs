//! The planners against what OVN-Kubernetes' own cluster manager made of the same worlds (`tests/ra-conformance`, recorded).
//! In: the worlds, one object after the other, and their changes. Out: equality of generated FRRConfigurations (labels,
//! annotations, node selectors, routers in order with every field, BFD profiles, raw text), of NetworkAttachmentDefinitions,
//! conditions, the last event on the default network, and the nodes' subnets. Where a case differs on purpose, its
//! `difference.diff` is that difference, every line of it, and `note.md` says why.
//! Not here: names of objects, which are derived; the managed-by label; annotations of our own (`noverlay.io/`); `NetworkAllocationSucceeded`, OVN-Kubernetes' own;
//! what an API server refuses (the kube tests have case 33).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use model::NetworkName;
use model::network::IN_FORCE;
use model::user_network::attachment::ROUTING;
use offline::{Objects, Plans, settle};
use plan_cluster::attachments::REFUSED;
use plan_cluster::transport::{self, DefaultNetwork};
use plan_cluster::{MANAGED_BY, RA_KEY, fabric};
use serde_json::{Map, Value, json};
use settings::Settings;
use similar::TextDiff;
use testkit::labels::selects;

/// Refused by the API server, so that there is nothing to plan.
const OF_THE_SCHEMA: &str = "33-rejected-by-schema";

#[test]
fn every_recorded_world_leads_to_what_was_recorded() {
    let mut cases: Vec<PathBuf> = std::fs::read_dir("tests/ra-conformance")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert_eq!(cases.len(), 56);
    let mut failed = Vec::new();
    for case in cases.iter().filter(|path| !path.ends_with(OF_THE_SCHEMA)) {
        if let Some(text) = differs(case) {
            failed.push(text);
        }
    }
    assert!(
        failed.is_empty(),
        "{} cases:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// What differs in a case beyond its stored difference.
fn differs(case: &Path) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(case.join(name)).ok();
    let mut run = Run::of(&read("world.yaml").unwrap());
    let mut diff = compared("expected.yaml", &read("expected.yaml").unwrap(), &run);
    if let Some(change) = read("change.yaml") {
        run.change(&change);
        let expected = read("expected-after.yaml").unwrap();
        diff.push_str(&compared("expected-after.yaml", &expected, &run));
    }
    let path = case.join("difference.diff");
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1") {
        let written = if diff.is_empty() {
            std::fs::remove_file(&path).or(Ok(()))
        } else {
            std::fs::write(&path, &diff)
        };
        written.unwrap();
    }
    let stored = read("difference.diff").unwrap_or_default();
    if stored == diff {
        return None;
    }
    let of_both = TextDiff::from_lines(&stored, &diff);
    let of_both = of_both.unified_diff().header("stored", "now").to_string();
    Some(format!("{}\n{of_both}", case.display()))
}

fn compared(name: &str, expected: &str, run: &Run) -> String {
    let expected: Value = serde_saphyr::from_str(expected).unwrap();
    let labels = run.node_labels();
    let theirs = normal_state(&expected, &labels);
    let ours = normal_state(&run.state(), &labels);
    // Names of the managed fabric's objects are ours.
    let default = fabric::advertisement_name(&NetworkName::default_network());
    let ours = yaml(&ours).replace(&default, "ovnk-managed-bgp-default");
    let ours = ours.replace(&fabric::base_name(), "ovnk-managed-bgp");
    let theirs = yaml(&theirs);
    let diff = TextDiff::from_lines(&theirs, &ours);
    diff.unified_diff()
        .context_radius(3)
        .header(name, "noverlay")
        .to_string()
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap()
}

/// One world.
struct Run {
    settings: Settings,
    objects: Objects,
    plans: Option<Plans>,
    /// What was reported of the default network's transport, and the last event of it.
    reported: Option<DefaultNetwork>,
    event: Option<Value>,
    clock: u32,
}

impl Run {
    fn of(world: &str) -> Self {
        let words = world
            .lines()
            .next()
            .unwrap()
            .strip_prefix("# settings:")
            .unwrap();
        let mut run = Self {
            settings: settings_of(words),
            objects: Objects::default(),
            plans: None,
            reported: None,
            event: None,
            clock: 0,
        };
        run.settle();
        for mut object in serde_saphyr::from_multiple::<Value>(world).unwrap() {
            // What an earlier run of ours has left bears our label; without it nothing is ours to delete.
            if object["metadata"]["labels"][RA_KEY].is_string() {
                object["metadata"]["labels"][MANAGED_BY.0] = MANAGED_BY.1.into();
            }
            run.put(object);
        }
        run
    }

    /// As an API server takes an object, with a pass of the manager after it.
    fn put(&mut self, mut object: Value) {
        self.clock += 1;
        let kind = object["kind"].as_str().unwrap().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.clone(),
        };
        let created = format!(
            "2026-01-01T00:{:02}:{:02}Z",
            self.clock / 60,
            self.clock % 60
        );
        match self.objects.get(&kind, &key).cloned() {
            None => {
                object["metadata"]["creationTimestamp"] = created.into();
                object["metadata"]["uid"] = format!("{kind}-{key}").into();
            }
            Some(before) => {
                let mut metadata = before["metadata"].clone();
                for field in ["labels", "annotations"] {
                    let now = object["metadata"][field]
                        .as_object()
                        .cloned()
                        .unwrap_or_default();
                    for (key, value) in now {
                        metadata[field][key.as_str()] = value;
                    }
                }
                object["metadata"] = metadata;
            }
        }
        self.objects.put(object).unwrap();
        self.settle();
    }

    fn settle(&mut self) {
        let plans = settle(&self.settings, &mut self.objects).unwrap();
        // A new RouteAdvertisements is seen unaccepted for a moment there; here it is not, and the last event is the same.
        if let Some(event) = transport::event(self.reported.as_ref(), &plans.state) {
            self.event = Some(json!({
                "type": if event.warning { "Warning" } else { "Normal" },
                "reason": event.reason, "message": event.message,
            }));
        }
        self.reported = Some(plans.state.clone());
        self.plans = Some(plans);
    }

    fn change(&mut self, steps: &str) {
        let steps: Vec<Value> = serde_saphyr::from_str(steps).unwrap();
        for step in steps {
            match step["op"].as_str().unwrap() {
                "apply" => self.put(step["object"].clone()),
                "delete" => self.delete(&step["object"]),
                "restart" => self.settle(),
                "delete-generated" => {
                    let key = self.generated(&step);
                    assert!(self.objects.remove("FRRConfiguration", &key));
                    self.settle();
                }
                "patch-generated" => {
                    let key = self.generated(&step);
                    let object = self.objects.get_mut("FRRConfiguration", &key).unwrap();
                    merge(object, &step["patch"]);
                    self.settle();
                }
                other => panic!("{other}"),
            }
        }
    }

    fn delete(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        if kind == "ClusterUserDefinedNetwork" {
            let cudn = self.objects.get_mut(kind, name).unwrap();
            cudn["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        } else {
            let key = match object["metadata"]["namespace"].as_str() {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name.to_owned(),
            };
            assert!(self.objects.remove(kind, &key), "{kind} {key}");
        }
        self.settle();
    }

    /// The generated object whose annotation is a step's key.
    fn generated(&self, step: &Value) -> String {
        let mut all = self.objects.all("FRRConfiguration");
        let found = all
            .find(|o| o["metadata"]["annotations"][RA_KEY] == step["key"])
            .unwrap();
        format!(
            "frr-k8s-system/{}",
            found["metadata"]["name"].as_str().unwrap()
        )
    }

    fn node_labels(&self) -> NodeLabels {
        let nodes = self.objects.nodes().into_iter();
        nodes
            .map(|node| (node.name.to_string(), json!(node.labels)))
            .collect()
    }

    /// The state in the form of the recordings.
    fn state(&self) -> Value {
        let plans = self.plans.as_ref().unwrap();
        let mut state = offline::state(plans, &self.objects);
        state["events"] = self.event.iter().cloned().collect();
        state
    }
}

/// A state without what is the default of a server or of Go, in one order, without what is not compared.
///
/// What is generated for managed networks is in other objects than there. Compared is what each node makes of them.
fn normal_state(state: &Value, labels: &NodeLabels) -> Value {
    let list = |key: &str| state[key].as_array().cloned().unwrap_or_default();
    let mut frr: BTreeMap<String, Value> = BTreeMap::new();
    let is_managed = |o: &Value| {
        let identity = o["annotations"][RA_KEY].as_str().unwrap();
        identity.starts_with("ovnk-managed-")
    };
    let (managed, others): (Vec<Value>, Vec<Value>) =
        list("frrconfigurations").into_iter().partition(is_managed);
    for mut object in others {
        if let Some(labels) = object["labels"].as_object_mut() {
            labels.remove(MANAGED_BY.0);
        }
        let identity = object["annotations"][RA_KEY].as_str().unwrap();
        let key = format!("{identity} in {}", object["namespace"].as_str().unwrap());
        // A duplicate is a difference of its own.
        let again = if frr.contains_key(&key) {
            ", again"
        } else {
            ""
        };
        frr.insert(format!("{key}{again}"), normal(&object));
    }
    let nads = list("nads").into_iter().map(normal_attachment);
    let conditions = list("conditions");
    let events = list("events").into_iter().filter(|e| {
        let object = e["object"].as_str();
        object.is_none_or(|object| object.starts_with("NetworkAttachmentDefinition/"))
    });
    let words =
        |e: Value| json!({"type": e["type"], "reason": e["reason"], "message": e["message"]});
    let mut state = json!({
        "FRRConfigurations": frr,
        "NetworkAttachmentDefinitions": nads.collect::<BTreeMap<String, Value>>(),
        "conditions": conditions.iter().flat_map(normal_conditions).collect::<BTreeMap<_, _>>(),
        "last event on the default network": events.map(words).next_back(),
        "nodes": state["nodes"],
    });
    let managed = fabric_of(&managed, labels);
    if !managed.is_empty() {
        state["managed networks"] = json!(managed);
    }
    state
}

/// A NetworkAttachmentDefinition, by namespace and name.
fn normal_attachment(mut object: Value) -> (String, Value) {
    if let Some(labels) = object["labels"].as_object_mut() {
        labels.remove(MANAGED_BY.0);
    }
    if object["config"]["transport"] == "no-overlay" {
        object["config"]["transport"] = "noOverlay".into();
    }
    // Of ours alone.
    if let Some(annotations) = object["annotations"].as_object_mut() {
        annotations.retain(|key, _| ![IN_FORCE, REFUSED, ROUTING].contains(&key.as_str()));
    }
    for (_, value) in object["annotations"].as_object_mut().into_iter().flatten() {
        // JSON inside of annotations is compared as values.
        if let Ok(json) = serde_json::from_str::<Value>(value.as_str().unwrap_or_default()) {
            *value = json;
        }
    }
    let text = |key: &str| object[key].as_str().unwrap().to_owned();
    let key = format!("{}/{}", text("namespace"), text("name"));
    let annotated = object["annotations"].get(RA_KEY).cloned();
    let mut out = normal(&object);
    // Absent and empty are two things here.
    if let Some(list) = annotated {
        out["annotations"][RA_KEY] = list;
    }
    (key, out)
}

/// Conditions of an object by kind, name and type, without those that one side alone has, and its `status.status`.
fn normal_conditions(object: &Value) -> Vec<(String, String)> {
    let list = object["conditions"].as_array().unwrap();
    let is_refused = list
        .iter()
        .any(|c| c["type"] == "Accepted" && c["status"] == "False");
    let compared = |c: &&Value| {
        let kind = c["type"].as_str().unwrap();
        let is_same = kind == "Complete" && (c["status"] == "True" || is_refused);
        !is_same && kind != "NetworkAllocationSucceeded" && c["reason"] != "GeneveTransportAccepted"
    };
    let of = |c: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let key = [&object["kind"], &object["name"], &c["type"]]
            .map(text)
            .join(" ");
        let words = [&c["status"], &c["reason"], &c["message"]]
            .map(text)
            .join(" | ");
        (key, words)
    };
    // The message itself is compared as the condition's.
    let line = object["status"].as_str().map(|line| {
        let key = [&object["kind"], &object["name"]].map(|text| text.as_str().unwrap());
        let message = list.iter().find(|c| c["type"] == "Accepted");
        let message = message.and_then(|c| c["message"].as_str());
        let words = message.map_or(line.to_owned(), |text| line.replace(text, "(message)"));
        (key.join(" "), words)
    });
    list.iter().filter(compared).map(of).chain(line).collect()
}

/// Without defaults, as the recordings' own description lists them.
fn normal(value: &Value) -> Value {
    let default = |key: &str, value: &Value| match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty() || (key == "addressFamilies" && list == &["unicast"]),
        Value::String(text) => text == "filtered" && key == "mode",
        Value::Number(_) => false,
    };
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), normal(value)))
            .filter(|(key, value)| !default(key, value))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) => list.iter().map(normal).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    for (key, value) in fields {
        merge(&mut object[key.as_str()], value);
    }
}

/// The settings of a case: the recordings' own defaults, and what its first line says.
fn settings_of(words: &str) -> Settings {
    let mut values: BTreeMap<&str, &str> = [
        ("gateway-mode", "shared"),
        ("transport", "overlay"),
        ("cluster-subnets", "10.240.0.0/16/24"),
    ]
    .into();
    values.extend(
        words
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap()),
    );
    let get = |key: &str| values.get(key).copied();
    let mut text = format!(
        "[default]\ncluster-subnets = {}\n",
        get("cluster-subnets").unwrap()
    );
    let overlay = get("transport") == Some("overlay");
    text.push_str(if overlay {
        "transport = geneve\n"
    } else {
        "transport = no-overlay\n[no-overlay]\n"
    });
    for key in ["routing", "outbound-snat"] {
        if let Some(value) = get(key) {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    text.push_str(&format!(
        "[ovn]\ntopology = build\n[gateway]\nmode = {}\n[bgp-managed]\nprofile = compat\n",
        get("gateway-mode").unwrap()
    ));
    for key in ["topology", "as-number", "frr-namespace"] {
        if let Some(value) = get(key) {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    let on = get("route-advertisements").unwrap_or("true");
    let egress = get("egress-ip").unwrap_or("false");
    text.push_str(&format!(
        "[ovnkubernetesfeature]\nenable-route-advertisements = {on}\nenable-egress-ip = {egress}\n"
    ));
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 9160));
    settings::parse("case.conf", &text, metrics).expect(words)
}

/// Labels by node.
type NodeLabels = BTreeMap<String, Value>;

/// What each node makes of all that is generated for managed networks: its AS numbers, what it originates, which VRFs leak
/// into which, and by neighbor its AS number, what is announced to it, what is taken from it.
fn fabric_of(objects: &[Value], labels: &NodeLabels) -> BTreeMap<String, BTreeSet<String>> {
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |what: String, value: String| out.entry(what).or_default().insert(value);
    for (node, labels) in labels {
        let loaded: Vec<&Value> = objects
            .iter()
            .filter(|o| selects(&o["nodeSelector"], labels))
            .collect();
        let texts = loaded
            .iter()
            .filter_map(|o| o["spec"]["raw"]["rawConfig"].as_str());
        let text = texts.collect::<Vec<_>>().join("\n");
        for router in loaded
            .iter()
            .flat_map(|o| items(&o["spec"]["bgp"]["routers"]))
        {
            let vrf = router["vrf"].as_str().unwrap_or("default");
            add(format!("{node} {vrf} asn"), router["asn"].to_string());
            for prefix in items(&router["prefixes"]) {
                add(format!("{node} {vrf} originates"), prefix.to_string());
            }
            for import in items(&router["imports"]) {
                add(format!("{node} {vrf} imports"), import["vrf"].to_string());
            }
            for neighbor in items(&router["neighbors"]) {
                let address = neighbor["address"].as_str().unwrap();
                let who = format!("{node} {vrf} {address}");
                add(format!("{who} asn"), neighbor["asn"].to_string());
                let typed = items(&neighbor["toAdvertise"]["allowed"]["prefixes"]);
                let typed = typed.map(|prefix| prefix.as_str().unwrap().to_owned());
                for prefix in typed.chain(permitted(&text, address)) {
                    add(format!("{who} toAdvertise"), prefix);
                }
                for range in items(&neighbor["toReceive"]["allowed"]["prefixes"]) {
                    add(format!("{who} toReceive"), range.to_string());
                }
            }
        }
    }
    out
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Prefixes that the raw text lets through to a neighbor: the lists that its outgoing route-map refers to.
fn permitted(text: &str, neighbor: &str) -> Vec<String> {
    let map = format!("route-map {neighbor}-out permit ");
    let mut lists = BTreeSet::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(list) = line
            .strip_prefix(" match ip address prefix-list ")
            .filter(|_| inside)
        {
            lists.insert(list);
        }
        inside = line.starts_with(&map) || (inside && line.starts_with(' '));
    }
    let mut out = Vec::new();
    for list in lists {
        let head = format!("ip prefix-list {list} seq ");
        let entries = text.lines().filter_map(|line| line.strip_prefix(&head));
        out.extend(entries.map(|entry| entry.split_once(" permit ").unwrap().1.to_owned()));
    }
    out
}

#[test]
fn managed_networks_together_announce_take_in_and_leak_what_one_advertisement_of_all_does() {
    let case = Path::new("tests/ra-conformance/23-managed-cudn");
    let run = Run::of(&std::fs::read_to_string(case.join("world.yaml")).unwrap());
    let expected: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(case.join("expected.yaml")).unwrap())
            .unwrap();
    let labels = run.node_labels();
    let of = |state: &Value| fabric_of(state["frrconfigurations"].as_array().unwrap(), &labels);
    let (ours, theirs) = (of(&run.state()), of(&expected));
    assert!(theirs.len() >= 8, "{theirs:?}");
    assert_eq!(ours, theirs);
}

/// A managed network where the fabric is configured, in the world of the case that has none.
#[test]
fn a_managed_network_is_served_once_the_topology_is_configured() {
    let case = Path::new("tests/ra-conformance/53-managed-cudn-without-fabric");
    let world = std::fs::read_to_string(case.join("world.yaml")).unwrap();
    let (first, rest) = world.split_once('\n').unwrap();
    let run = Run::of(&format!("{first} topology=full-mesh\n{rest}"));
    let state = run.state().to_string();
    assert!(
        state.contains("Transport has been configured as 'no-overlay'."),
        "{state}"
    );
    assert!(state.contains("10.61."), "{state}");
}
