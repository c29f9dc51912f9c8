//! The frr-agent's two subjects: the node's configuration, and its sessions' states.
//! In: keys from the loop. Out: FRR loaded, objects written on change. Invariant: what is loaded is what was written; what failed is said and tried again.
//! Not here: the merge, the text, the tool.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use api::frr_state::{BGPSessionStateStatus, FRRNodeState};
use frr::config::{NodeConfig, NodeInput};
use frr_edge::Frr;
use k8s_openapi::api::core::v1::Secret;
use kube_edge::{WriteError, Writer};
use model::frr::FrrConfiguration;
use model::node::Node;
use model::{NodeName, ObjectKey, Problem};
use reconcile::{Subjects, Verdict};
use serde_json::json;
use telemetry::{Chain, Readiness};

use crate::caches::Caches;
use crate::key::Key;
use crate::metrics::Metrics;

mod sessions;

/// What the passes write to and report by.
pub(crate) struct Doors {
    pub(crate) writer: Writer,
    pub(crate) client: kube::Client,
    pub(crate) frr: Frr,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
}

/// FRRNodeState's status, as we last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Report {
    conversion: String,
    reload: String,
    running: String,
}

/// The loop's subjects.
pub(crate) struct FrrSubjects {
    node: NodeName,
    namespace: String,
    caches: Caches,
    doors: Doors,
    reported: Option<Report>,
    reload: String,
    failed: Option<String>,
    sessions: Option<BTreeMap<String, (String, BGPSessionStateStatus)>>,
    linted: Vec<Problem>,
}

const SUCCESS: &str = "success";

/// Marks our objects, so that the cluster-manager can remove them with their node.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "noverlay");

impl FrrSubjects {
    pub(crate) fn new(node: NodeName, namespace: String, caches: Caches, doors: Doors) -> Self {
        Self {
            node,
            namespace,
            caches,
            doors,
            reported: None,
            reload: String::new(),
            failed: None,
            sessions: None,
            linted: Vec::new(),
        }
    }

    async fn configuration(&mut self) -> Verdict {
        if !self.caches.ready() {
            return Verdict::Retry;
        }
        self.doors.readiness.set("caches", true);
        let Some(node) = self
            .caches
            .node
            .get(&ObjectKey::new("", self.node.as_str()))
            .map(|e| e.value)
        else {
            tracing::warn!(node = %self.node, "there is no Node object of this name; the last good configuration stays");
            return Verdict::Blocked;
        };
        let (config, conversion) = match self.convert(&node).await {
            Ok(Ok(config)) => (Some(config), SUCCESS.to_owned()),
            Ok(Err(problems)) => {
                let why: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
                tracing::warn!(
                    problems = why.len(),
                    "objects do not merge, the last good configuration stays: {}",
                    why.join("; ")
                );
                self.doors
                    .metrics
                    .conflicts
                    .set(i64::try_from(why.len()).unwrap_or(i64::MAX));
                (None, format!("failed: {}", why.join("; ")))
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "cannot read Secrets, the last good configuration stays");
                return Verdict::Retry;
            }
        };
        let mut verdict = if config.is_some() {
            Verdict::Settled
        } else {
            Verdict::Blocked
        };
        if let Some(config) = config {
            self.doors.metrics.conflicts.set(0);
            if !self.load(&frr::render::render(&config)).await {
                verdict = Verdict::Retry;
            }
        }
        if let Err(error) = self.report(conversion).await {
            tracing::warn!(error = %Chain(&error), "cannot write FRRNodeState");
            return Verdict::Retry;
        }
        if verdict != Verdict::Retry {
            self.doors.readiness.set("first pass", true);
        }
        verdict
    }

    async fn convert(
        &mut self,
        node: &Node,
    ) -> Result<Result<NodeConfig, Vec<Problem>>, kube::Error> {
        let selected = self
            .caches
            .sources
            .with(|map| frr::select(map.values().map(|e| &e.value), &node.labels));
        if !selected.broken.is_empty() {
            return Ok(Err(selected.broken));
        }
        let objects = selected.objects;
        let passwords = self.passwords(&objects).await?;
        let input = NodeInput {
            name: self.node.clone(),
            labels: &node.labels,
            hostname: node.hostname().to_owned(),
            objects: &objects,
            passwords: &passwords,
        };
        let config = match frr::merge::merge(&input) {
            Ok(config) => config,
            Err(problems) => return Ok(Err(problems)),
        };
        let (config, mut lints) = frr::lint::without_self(config, &node.own_addresses());
        lints.extend(frr::lint::lint(&config, &node.own_addresses()));
        if lints != self.linted {
            for lint in &lints {
                tracing::warn!(reason = lint.reason, "{lint}");
            }
            self.linted = lints;
        }
        Ok(Ok(config))
    }

    /// Passwords of the Secrets that the objects refer to; one that is missing or has no password is absent, and the merge names it.
    async fn passwords(&self, objects: &[FrrConfiguration]) -> Result<frr::Passwords, kube::Error> {
        let names: BTreeSet<&String> = objects
            .iter()
            .flat_map(|o| o.routers.iter())
            .flat_map(|r| r.neighbors.iter())
            .filter_map(|n| n.session.password_secret.as_ref())
            .collect();
        let api: kube::Api<Secret> =
            kube::Api::namespaced(self.doors.client.clone(), &self.namespace);
        let mut out = BTreeMap::new();
        for name in names {
            let Some(secret) = api.get_opt(name).await? else {
                continue;
            };
            if secret.type_.as_deref() != Some("kubernetes.io/basic-auth") {
                continue;
            }
            let password = secret
                .data
                .and_then(|mut d| d.remove("password"))
                .and_then(|bytes| String::from_utf8(bytes.0).ok())
                .filter(|p| !p.is_empty());
            if let Some(password) = password {
                out.insert(name.clone(), Ok(password));
            }
        }
        Ok(out)
    }

    /// Loads the text unless these daemons hold it already. False: to be tried again.
    async fn load(&mut self, text: &str) -> bool {
        let frr = &self.doors.frr;
        let instance = frr.instance();
        if !instance.contains("bgpd=") || !instance.contains("zebra=") {
            "FRR does not run (no vty socket of zebra and bgpd)".clone_into(&mut self.reload);
            return false;
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let note = format!("{:016x} {instance}\n", hasher.finish());
        if self.failed.is_none() && frr.loaded().as_ref() == Some(&note) {
            SUCCESS.clone_into(&mut self.reload);
            return true;
        }
        if let Err(error) = frr.write_config(text) {
            self.fail(&note, Chain(&error).to_string());
            return false;
        }
        let timer = self.doors.metrics.reload_seconds.start_timer();
        let outcome = frr.reload().await;
        let seconds = timer.stop_and_record();
        match outcome {
            Ok(()) => {
                if let Err(error) = frr.note_loaded(&note) {
                    tracing::warn!(error = %Chain(&error), "cannot note what was loaded; it will be loaded once more");
                }
                tracing::info!(seconds, bytes = text.len(), "FRR loaded its configuration");
                self.doors
                    .metrics
                    .reloads
                    .with_label_values(&[SUCCESS])
                    .inc();
                let now = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |d| d.as_secs());
                self.doors
                    .metrics
                    .last_good
                    .set(i64::try_from(now).unwrap_or(i64::MAX));
                self.failed = None;
                SUCCESS.clone_into(&mut self.reload);
                true
            }
            Err(error) => {
                self.doors
                    .metrics
                    .reloads
                    .with_label_values(&["failure"])
                    .inc();
                self.fail(&note, Chain(&error).to_string());
                false
            }
        }
    }

    /// Remembers a failure; told once for each text that fails.
    fn fail(&mut self, note: &str, why: String) {
        if self.failed.as_deref() != Some(note) || self.reload != why {
            tracing::error!("FRR did not take its configuration: {why}");
        }
        self.failed = Some(note.to_owned());
        self.reload = why;
    }

    async fn report(&mut self, conversion: String) -> Result<(), WriteError> {
        let running = self.doors.frr.running_config().await.unwrap_or_default();
        let report = Report {
            conversion,
            reload: self.reload.clone(),
            running,
        };
        if self.reported.is_none() {
            self.reported = self.standing().await;
        }
        if self.reported.as_ref() == Some(&report) {
            return Ok(());
        }
        let key = ObjectKey::new("", self.node.as_str());
        if self.reported.is_none() {
            self.doors
                .writer
                .apply::<FRRNodeState>(
                    &key,
                    None,
                    json!({"metadata": {"labels": {MANAGED_BY.0: MANAGED_BY.1}}, "spec": {}}),
                )
                .await?;
        }
        let status = json!({
            "lastConversionResult": report.conversion,
            "lastReloadResult": report.reload,
            "runningConfig": report.running,
        });
        self.doors
            .writer
            .apply_status::<FRRNodeState>(&key, status)
            .await?;
        self.reported = Some(report);
        Ok(())
    }

    async fn standing(&self) -> Option<Report> {
        let api: kube::Api<FRRNodeState> = kube::Api::all(self.doors.client.clone());
        let status = api.get_opt(self.node.as_str()).await.ok()??.status?;
        Some(Report {
            conversion: status.last_conversion_result.unwrap_or_default(),
            reload: status.last_reload_result.unwrap_or_default(),
            running: status.running_config.unwrap_or_default(),
        })
    }
}

impl Subjects for FrrSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        Some(vec![Key::Configuration, Key::Sessions])
    }

    /// Never cancelled by the loop; the process may end during a reload, which FRR then finishes or not: the note tells.
    async fn pass(&mut self, key: &Key) -> Verdict {
        match key {
            Key::Configuration => self.configuration().await,
            Key::Sessions => self.sessions().await,
        }
    }
}
