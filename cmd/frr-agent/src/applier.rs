//! Brings a text into FRR, and knows whether FRR holds it.
//! In: the text of frr.conf and what it was made from. Out: FRR runs it, or why not and when to try again.
//! Invariant: what FRR holds already is not loaded again, also after a restart of the agent; a text that failed is tried again
//! after a growing time, a changed one at once; the last good text stays on any failure, and FRR runs it meanwhile, also one
//! that has started again; what others write into frr.conf is never loaded.
//! Not here: what the text says (`frr`), the tool (`frr-edge`).
//!
//! The note beside frr.conf says what was loaded: digest of the text, of what FRR ran afterwards, identity of its daemons.
//! A daemon that starts again, or is reconfigured by hand, no longer matches its note.
//! A copy beside it holds the text that FRR took last, whole or but for lines that it refused.

mod failure;
mod note;

use std::time::Duration;

use frr::config::NodeConfig;
use frr_edge::{CheckError, Frr, Refusal, ReloadError, refusal};
use model::{NodeName, hash};
use telemetry::Chain;

use crate::PROBE;
use crate::metrics::Metrics;
use failure::{Failure, remember};
use note::{Note, fresh};

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// FRR runs the text.
    Holds,
    /// It does not, for this reason. `None`: only another text or another FRR can help.
    Failed {
        why: String,
        again: Option<Duration>,
    },
}

/// Whether FRR holds a text.
enum Held {
    Yes,
    No,
    /// A daemon cannot be asked; what is to be said of it.
    Unclear(Outcome),
}

/// Applies texts to one FRR.
pub(crate) struct Applier {
    frr: Frr,
    metrics: Metrics,
    node: NodeName,
    /// A text that did not take frr.conf's place.
    unplaced: Option<Failure>,
    /// A text in frr.conf that did not load whole.
    unloaded: Option<Failure>,
    /// Why it was not clear last whether FRR holds a text.
    unclear: Option<String>,
}

impl Applier {
    pub(crate) fn new(frr: Frr, metrics: Metrics, node: NodeName) -> Self {
        Self {
            frr,
            metrics,
            node,
            unplaced: None,
            unloaded: None,
            unclear: None,
        }
    }

    /// Brings FRR to run the text; where it cannot be, to run the last good one.
    pub(crate) async fn apply(&mut self, text: &str, config: &NodeConfig) -> Outcome {
        let digest = hash::short(text);
        let daemons = self.frr.daemons();
        if let Some(outcome) = self.away().await {
            return outcome;
        }
        let known = self.unplaced.as_ref().filter(|f| f.is(&digest, &daemons));
        if let Some(outcome) = known.and_then(Failure::stands) {
            return self.and_restore(outcome).await;
        }
        let failed = self.unloaded.as_ref().filter(|f| f.is(&digest, &daemons));
        if let Some(failed) = failed {
            if let Some(outcome) = failed.stands() {
                return outcome;
            }
        } else {
            match self.holds(&digest, &daemons).await {
                Held::Yes => {
                    (self.unplaced, self.unloaded) = (None, None);
                    self.keep(text).await;
                    return Outcome::Holds;
                }
                Held::Unclear(outcome) => return outcome,
                Held::No => {}
            }
        }
        if let Err(error) = self.frr.prepare(text).await {
            let (why, hopeless) = match error {
                CheckError::Unknown(lines) => (
                    format!(
                        "FRR does not know {}; the last good configuration stays",
                        attributed(config, &lines)
                    ),
                    true,
                ),
                CheckError::File(_) | CheckError::Program(_) => (Chain(&error).to_string(), false),
            };
            let outcome = remember(&mut self.unplaced, digest, daemons, why, hopeless);
            return self.and_restore(outcome).await;
        }
        self.unplaced = None;
        self.load(text, digest, daemons, config).await
    }

    /// Without a text to go by: FRR gets, and keeps, the last good one. `None` where nothing was ever loaded.
    pub(crate) async fn restore(&mut self) -> Option<Outcome> {
        let Some(text) = self.last_good() else {
            self.note()?;
            return Some(Outcome::Failed {
                why: "frr.conf is not what was loaded last, and no copy of it is left: nothing is loaded until the objects can be".to_owned(),
                again: None,
            });
        };
        if let Some(outcome) = self.away().await {
            return Some(outcome);
        }
        let digest = hash::short(&text);
        let daemons = self.frr.daemons();
        let failed = self.unloaded.as_ref().filter(|f| f.is(&digest, &daemons));
        if let Some(failed) = failed {
            if let Some(outcome) = failed.stands() {
                return Some(outcome);
            }
        } else {
            match self.holds(&digest, &daemons).await {
                Held::Yes => {
                    self.unloaded = None;
                    self.keep(&text).await;
                    return Some(Outcome::Holds);
                }
                Held::Unclear(outcome) => return Some(outcome),
                Held::No => {}
            }
        }
        tracing::warn!("FRR does not run the last good configuration: loading it");
        if let Err(error) = self.frr.prepare(&text).await {
            let why = Chain(&error).to_string();
            return Some(remember(&mut self.unloaded, digest, daemons, why, false));
        }
        let nothing = NodeConfig::empty(self.node.clone(), String::new());
        Some(self.load(&text, digest, daemons, &nothing).await)
    }

    /// frr.conf where it is what the note tells of, else our copy of the text that FRR took last.
    fn last_good(&self) -> Option<String> {
        let note = self.note();
        let loaded = |text: &String| note.is_some_and(|n| n.text == hash::short(text));
        self.frr.config().filter(loaded).or_else(|| self.frr.kept())
    }

    async fn keep(&self, text: &str) {
        if let Err(error) = self.frr.keep(text).await {
            tracing::warn!(error = %Chain(&error), "cannot keep a copy of what was loaded");
        }
    }

    /// A failure of the wanted text, while the last good one is looked after.
    async fn and_restore(&mut self, outcome: Outcome) -> Outcome {
        match (outcome, self.restore().await) {
            (
                Outcome::Failed { why, again },
                Some(Outcome::Failed {
                    why: more,
                    again: sooner,
                }),
            ) => Outcome::Failed {
                why: format!("{why}; as to the last good one: {more}"),
                again: match (again, sooner) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                },
            },
            (outcome, _) => outcome,
        }
    }

    /// What is to be said of an FRR that does not run, or of which that cannot be found out.
    async fn away(&self) -> Option<Outcome> {
        for daemon in ["bgpd", "zebra"] {
            let (why, again) = match self.frr.runs(daemon).await {
                Ok(true) => continue,
                // Whoever follows the sockets tells when it runs again.
                Ok(false) => (
                    "FRR does not run: zebra or bgpd does not listen on its vty socket".to_owned(),
                    None,
                ),
                Err(error) => (Chain(&error).to_string(), Some(PROBE)),
            };
            return Some(Outcome::Failed { why, again });
        }
        None
    }

    async fn load(
        &mut self,
        text: &str,
        digest: String,
        daemons: String,
        config: &NodeConfig,
    ) -> Outcome {
        let timer = self.metrics.reload_seconds.start_timer();
        let fresh = self.note().map(|note| fresh(&note.daemons, &daemons));
        let filled = self.frr.fill(&fresh.unwrap_or_default()).await;
        let outcome = match filled {
            Ok(()) => self.frr.reload().await,
            Err(error) => Err(ReloadError::Program(error)),
        };
        let seconds = timer.stop_and_record();
        // What FRR took may be another's text.
        let ours = self.frr.config().is_some_and(|t| t == text);
        if ours && matches!(outcome, Ok(()) | Err(ReloadError::Refused(_))) {
            self.keep(text).await;
        }
        let why = match outcome {
            Ok(()) if ours => {
                tracing::info!(seconds, "FRR loaded its configuration");
                self.metrics.reloads.with_label_values(&["success"]).inc();
                self.unloaded = None;
                self.write_note(digest, daemons).await;
                self.metrics.held_since(self.frr.loaded_at());
                return Outcome::Holds;
            }
            Ok(()) => "somebody else wrote frr.conf while it was loaded".to_owned(),
            Err(ReloadError::Refused(lines)) => format!(
                "FRR refused {}; everything else is applied",
                attributed(config, &lines)
            ),
            Err(error) => Chain(&error).to_string(),
        };
        self.metrics.reloads.with_label_values(&["failure"]).inc();
        remember(&mut self.unloaded, digest, daemons, why, false)
    }

    async fn write_note(&self, text: String, daemons: String) {
        let running = self.frr.running().await;
        let noted = if let Some(error) = running.silent.values().next() {
            Err(Chain(error).to_string())
        } else {
            let running = note::encode_running(&running.digests);
            let note = Note {
                text,
                running,
                daemons,
            };
            let noted = self.frr.note_loaded(note.encode()).await;
            noted.map_err(|e| Chain(&e).to_string())
        };
        if let Err(error) = noted {
            tracing::warn!(
                error,
                "cannot note what was loaded; it will be loaded once more"
            );
        }
    }

    fn note(&self) -> Option<Note> {
        Note::decode(&self.frr.loaded()?)
    }

    /// Whether these daemons run the text, as frr.conf and the note say.
    async fn holds(&mut self, text: &str, daemons: &str) -> Held {
        let Some(note) = self.note() else {
            return Held::No;
        };
        if note.text != text || note.daemons != daemons {
            return Held::No;
        }
        // A text that failed after it may lie there, or another's.
        if self.frr.config().is_none_or(|t| hash::short(&t) != text) {
            return Held::No;
        }
        let running = self.frr.running().await;
        let Some(others) = note.others(&running) else {
            return Held::No;
        };
        let silent = running.silent.values();
        let silent: Vec<String> = silent.map(|e| Chain(e).to_string()).collect();
        if silent.is_empty() {
            self.unclear = None;
            if others.is_empty() {
                self.metrics.held_since(self.frr.loaded_at());
                return Held::Yes;
            }
            tracing::warn!(
                daemons = others.join(", "),
                "FRR runs something else than was loaded: somebody reconfigured it, putting it back"
            );
            self.metrics.corrected.inc();
            return Held::No;
        }
        let silent = silent.join("; ");
        let why = if others.is_empty() {
            format!("{silent}; the other daemons run what was loaded")
        } else {
            // The tool would wait for it, too.
            format!(
                "{silent}; {} runs something else than was loaded, and is put back when every daemon answers",
                others.join(", ")
            )
        };
        if self.unclear.as_ref() != Some(&why) {
            tracing::warn!("cannot tell whether FRR runs what was loaded: {why}");
            self.unclear = Some(why.clone());
        }
        Held::Unclear(Outcome::Failed {
            why,
            again: Some(PROBE),
        })
    }
}

/// Refused lines with the objects that brought them.
fn attributed(config: &NodeConfig, lines: &[Refusal]) -> String {
    let mut text = refusal::list(lines);
    let objects: std::collections::BTreeSet<String> = lines
        .iter()
        .flat_map(|refusal| frr::attribute(config, &refusal.line))
        .map(|key| key.to_string())
        .collect();
    if !objects.is_empty() {
        let names: Vec<String> = objects.into_iter().collect();
        text.push_str(&format!(" (from FRRConfiguration {})", names.join(", ")));
    }
    text
}
