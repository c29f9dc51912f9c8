//! The report loop's subject: FRRNodeState, what became of the node's objects, as frr-k8s tells it.
//! In: what the configuration loop says, what FRR runs, the object as it stands. Out: the object, written where it differs:
//! one that somebody deletes or changes is written again.
//! Invariant: a status fits into the API server's store; without a Node there is no report of it; what frr-k8s writes is left
//! alone. Not here: what happened.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::frr_state::FRRNodeState;
use frr_edge::Frr;
use kube_edge::{Cache, Entry, WriteError, Writer};
use model::node::Node;
use model::{NodeName, ObjectKey};
use reconcile::{Action, Reconciler, WorkQueue};
use serde_json::json;
use telemetry::{Chain, Readiness};
use tokio::time::Instant;

use crate::Shared;
use crate::caches::State;
use crate::key::{Configuration, Report};

/// frr-k8s's word for all is well.
pub(crate) const SUCCESS: &str = "success";
/// What a result begins with otherwise.
pub(crate) const FAILED: &str = "failed: ";

/// Marks our objects, so that the cluster-manager can remove them with their node.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "noverlay");

/// What was written is expected to be seen after this time, and is written again otherwise.
pub(crate) const ECHO: Duration = Duration::from_secs(5);

/// The store takes objects of 1.5 MiB. Bytes of the running configuration in JSON: that of about 1,900 neighbors.
const LONGEST_RUNNING: usize = 1 << 20;
/// The same for each of the two results.
const LONGEST_RESULT: usize = 128 << 10;

/// FRRNodeState's status; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) conversion: String,
    pub(crate) reload: Option<String>,
    pub(crate) running: Option<String>,
}

/// What the configuration loop has to say; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Option<Said>>>);

impl Board {
    pub(crate) fn put(&self, said: Said) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }

    fn get(&self) -> Option<Said> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The loop's subject.
pub(crate) struct ReportReconciler {
    node: NodeName,
    writer: Writer,
    frr: Frr,
    state: Cache<State>,
    nodes: Cache<Node>,
    board: Board,
    readiness: Readiness,
    queue: WorkQueue<Report>,
    configuration: WorkQueue<Configuration>,
    /// What was written last, and when.
    written: Option<(Said, Instant)>,
    of_frr_k8s: bool,
}

impl ReportReconciler {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            node: shared.node.clone(),
            writer: shared.writer.clone(),
            frr: shared.frr.clone(),
            state: shared.state.clone(),
            nodes: shared.caches.node.clone(),
            board: shared.board.clone(),
            readiness: shared.readiness.clone(),
            queue: shared.queues.reports.clone(),
            configuration: shared.queues.configuration.clone(),
            written: None,
            of_frr_k8s: false,
        }
    }

    async fn report(&mut self) -> Action {
        let key = ObjectKey::new("", self.node.as_str());
        let existing = self.state.get(&key);
        let of_frr_k8s = existing.as_ref().is_some_and(|e| e.value.of_frr_k8s);
        if of_frr_k8s != self.of_frr_k8s {
            self.of_frr_k8s = of_frr_k8s;
            self.configuration.enqueue(Configuration);
        }
        if of_frr_k8s || !self.state.ready() || !self.nodes.ready() {
            // The watches tell when that changes.
            return Action::AwaitChange;
        }
        let done = if self.nodes.get(&key).is_none() {
            self.withdraw(&key, existing).await
        } else if let Some(said) = self.board.get() {
            self.write(&key, existing, said).await
        } else {
            return Action::AwaitChange;
        };
        match done {
            Ok(()) => Action::Done,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "cannot write FRRNodeState");
                Action::Requeue
            }
        }
    }

    /// A Node that is gone takes its report along.
    async fn withdraw(
        &mut self,
        key: &ObjectKey,
        existing: Option<Entry<State>>,
    ) -> Result<(), WriteError> {
        self.written = None;
        match existing.filter(|entry| entry.value.ours) {
            Some(entry) => self.writer.delete::<FRRNodeState>(key, &entry.uid).await,
            None => Ok(()),
        }
    }

    async fn write(
        &mut self,
        key: &ObjectKey,
        existing: Option<Entry<State>>,
        said: Said,
    ) -> Result<(), WriteError> {
        let running = match self.frr.running_config().await {
            Ok(text) => Some(text),
            // What was shown last stays: FRR that is away is reported by the reload's result.
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "cannot show what FRR runs");
                None
            }
        };
        let exists = existing.is_some();
        let before = existing.map(|e| e.value.report).unwrap_or_default();
        let wanted = Said {
            conversion: shortened(said.conversion, LONGEST_RESULT),
            reload: (said.reload.map(|text| shortened(text, LONGEST_RESULT)))
                .or(before.reload.clone()),
            running: (running.map(|text| fitting(text, LONGEST_RUNNING)))
                .or(before.running.clone()),
        };
        if exists && before == wanted {
            self.readiness.set("first pass", true);
            return Ok(());
        }
        if let Some((written, at)) = &self.written
            && *written == wanted
            && at.elapsed() < ECHO
        {
            let (queue, at) = (self.queue.clone(), *at + ECHO);
            tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                queue.enqueue(Report);
            });
            return Ok(());
        }
        if !exists {
            let body = json!({"metadata": {"labels": {MANAGED_BY.0: MANAGED_BY.1}}, "spec": {}});
            self.writer.apply::<FRRNodeState>(key, None, body).await?;
        }
        let status = json!({
            "lastConversionResult": wanted.conversion,
            "lastReloadResult": wanted.reload.clone().unwrap_or_default(),
            "runningConfig": wanted.running.clone().unwrap_or_default(),
        });
        self.writer
            .apply_status::<FRRNodeState>(key, status)
            .await?;
        self.written = Some((wanted, Instant::now()));
        self.readiness.set("first pass", true);
        Ok(())
    }
}

impl Reconciler for ReportReconciler {
    type Key = Report;

    async fn keys(&mut self) -> Option<Vec<Report>> {
        Some(vec![Report])
    }

    /// May be cancelled anywhere: the next one compares with what stands there.
    async fn reconcile(&mut self, _: &Report) -> Action {
        self.report().await
    }
}

/// A running configuration that takes no more than about so many bytes in JSON. What goes first are the prefix lists of single
/// neighbors: they are most of a large configuration, nearly the same for each, and the cluster-manager looks for another one.
fn fitting(running: String, longest: usize) -> String {
    if cut(&running, longest).is_none() {
        return running;
    }
    let of_neighbor = |line: &&str| {
        let mut words = line.split(' ');
        let is_list =
            matches!(words.next(), Some("ip" | "ipv6")) && words.next() == Some("prefix-list");
        let name = words.next().filter(|_| is_list).unwrap_or_default();
        let address = name
            .split_once('-')
            .map(|(address, _)| address.parse::<IpAddr>());
        matches!(address, Some(Ok(_)))
    };
    let left_out = running.lines().filter(of_neighbor).count();
    let mut text = String::with_capacity(running.len());
    for line in running.lines().filter(|line| !of_neighbor(line)) {
        text.push_str(line);
        text.push('\n');
    }
    if left_out > 0 {
        text.insert_str(
            0,
            &format!("! left out: {left_out} lines of prefix lists of neighbors\n"),
        );
    }
    shortened(text, longest)
}

/// The text, cut at a character so that it takes no more than about so many bytes in JSON, with a word about it.
fn shortened(mut text: String, longest: usize) -> String {
    let Some(end) = cut(&text, longest) else {
        return text;
    };
    let more = text.len() - end;
    text.truncate(end);
    text.push_str(&format!("\n... {more} bytes more\n"));
    text
}

/// Where a text has to end so that it takes no more than so many bytes in JSON; `None` where all of it does.
fn cut(text: &str, longest: usize) -> Option<usize> {
    let mut size = 0_usize;
    let mut all = text.char_indices();
    let over = all.find(|(_, c)| {
        // As serde_json writes them; two-letter escapes count as one of six.
        size += match c {
            '"' | '\\' | '\n' | '\t' | '\r' => 2,
            c if c.is_control() => 6,
            c => c.len_utf8(),
        };
        size > longest
    });
    over.map(|(end, _)| end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_is_cut_at_a_character_with_a_word_about_it() {
        assert_eq!(shortened("short".to_owned(), 5), "short");
        assert_eq!(
            shortened("shorter".to_owned(), 5),
            "short\n... 2 bytes more\n"
        );
        assert_eq!(shortened("ééé".to_owned(), 5), "éé\n... 2 bytes more\n");
        assert_eq!(
            shortened("a\nb\nc".to_owned(), 4),
            "a\nb\n... 2 bytes more\n"
        );
    }

    #[test]
    fn of_a_configuration_that_does_not_fit_lists_of_neighbors_are_left_out_first() {
        let head = "router bgp 64512\n neighbor 10.0.0.1 remote-as 64512\nexit\n!\n";
        let of_neighbors = "ip prefix-list 10.0.0.1-pl-ipv4 seq 1 deny any\n\
             ip prefix-list 10.0.0.1-inpl-ipv4 seq 5 permit 10.128.0.0/14 ge 23 le 23\n\
             ipv6 prefix-list fd00::1-pl-ipv6 seq 1 deny any\n";
        let rest = "ip prefix-list noverlay-announced seq 5 permit 10.128.2.0/23\n\
             ip prefix-list office-pl-ipv4 seq 5 permit 192.0.2.0/24\n";
        let whole = format!("{head}{of_neighbors}{rest}");
        assert_eq!(fitting(whole.clone(), 1000), whole);
        let wanted = format!("! left out: 3 lines of prefix lists of neighbors\n{head}{rest}");
        assert_eq!(fitting(whole, 300), wanted);
        // Where that is not enough, the end goes.
        let long = rest.repeat(100);
        assert!(fitting(long, 300).ends_with(" bytes more\n"));
    }

    #[test]
    fn a_reflector_of_a_thousand_nodes_and_ten_networks_reports_what_makes_it_one() {
        let mut whole = String::from("router bgp 64512\n");
        let address = |node: u32| std::net::Ipv4Addr::from(0x0a00_0000 + node);
        for node in 1..=1000 {
            let ip = address(node);
            for line in [
                "remote-as 64512",
                "bfd",
                "bfd profile noverlay",
                "timers 3 9",
                "activate",
                "route-reflector-client",
                "route-map",
                "route-map",
            ] {
                whole.push_str(&format!(" neighbor {ip} {line}{}\n", " ".repeat(20)));
            }
        }
        for node in 1..=1000 {
            for network in 0..11 {
                let seq = 5 + 5 * network;
                whole.push_str(&format!("ip prefix-list {}-inpl-ipv4 seq {seq} permit 10.{network}.0.0/14 ge 23 le 23\n", address(node)));
            }
        }
        let evidence: String = (0..11)
            .map(|network| format!("ip prefix-list noverlay-announced seq {} permit 10.{network}.0.0/14 ge 23 le 23\n", 5 + 5 * network))
            .collect();
        whole.push_str(&evidence);
        assert!(
            !shortened(whole.clone(), LONGEST_RUNNING).contains(&evidence),
            "it would fit"
        );
        assert!(fitting(whole, LONGEST_RUNNING).contains(&evidence));
    }

    #[test]
    fn the_longest_report_fits_into_the_store_whatever_its_texts_are_made_of() {
        for text in [
            "é",
            "\n",
            "\u{1}",
            "\"",
            "neighbor 10.0.0.1 remote-as 64512\n",
        ] {
            let long = text.repeat((2 << 20) / text.len());
            let status = json!({
                "lastConversionResult": shortened(long.clone(), LONGEST_RESULT),
                "lastReloadResult": shortened(long.clone(), LONGEST_RESULT),
                "runningConfig": shortened(long, LONGEST_RUNNING),
            });
            let size = status.to_string().len();
            // The rest is for the object's metadata.
            assert!(size < 1_400_000, "{text:?}: {size}");
            assert!(size > 1_200_000, "{text:?}: {size}, more would fit");
        }
    }
}
