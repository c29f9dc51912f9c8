//! `noverlay status`: one line a RouteAdvertisements.
//! In: RouteAdvertisements. Out: lines.
//! Invariant: a condition of an older generation is not known, not good.
//! Not here: what makes a condition True (`plan_cluster`).

use api::route_advertisements::RouteAdvertisements;
use kube::ResourceExt;
use plan_cluster::fabric::awaited::CONDITION as TOPOLOGY;
use serde::Serialize;

/// One RouteAdvertisements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdvertisementLine {
    /// Its name.
    pub name: String,
    /// `Accepted` is True.
    pub accepted: bool,
    /// `Complete` is True.
    pub complete: bool,
    /// `SessionsUp`: True, False or Unknown; absent where the condition is, which only those of the managed fabric have.
    pub sessions_up: Option<String>,
    /// Why they are not True, each with its own words.
    pub message: String,
}

impl AdvertisementLine {
    /// Of sessions that nobody reports the nodes' lines tell.
    pub(super) fn is_well(&self) -> bool {
        self.accepted && self.complete && self.sessions_up.as_deref() != Some("False")
    }
}

/// A line for each, by name.
pub(super) fn lines(all: &[RouteAdvertisements]) -> Vec<AdvertisementLine> {
    let mut lines: Vec<AdvertisementLine> = all.iter().map(line).collect();
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    lines
}

/// Whether `Accepted` is True of what the object says now.
pub(super) fn is_accepted(ra: &RouteAdvertisements) -> bool {
    line(ra).accepted
}

fn line(ra: &RouteAdvertisements) -> AdvertisementLine {
    let status = ra.status.clone().unwrap_or_default();
    let current = ra.metadata.generation;
    let find = |kind: &str| {
        let mut all = status.conditions.iter();
        all.find(|c| c.type_ == kind && (c.observed_generation == current || current.is_none()))
    };
    let is = |kind: &str| find(kind).is_some_and(|c| c.status == "True");
    let sessions = find("SessionsUp");
    let kinds = ["Accepted", "Complete"].into_iter();
    // Absent where nothing is managed.
    let kinds = kinds.chain(sessions.map(|_| "SessionsUp"));
    // Absent where the topology never waited for anything.
    let kinds = kinds.chain(find(TOPOLOGY).map(|_| TOPOLOGY));
    let bad = kinds.filter(|kind| !is(kind)).map(|kind| {
        find(kind).map_or_else(|| format!("{kind} is not known yet"), |c| c.message.clone())
    });
    let mut messages: Vec<String> = bad.collect();
    messages.dedup();
    AdvertisementLine {
        name: ra.name_any(),
        accepted: is("Accepted"),
        complete: is("Complete"),
        sessions_up: sessions.map(|c| c.status.clone()),
        message: messages.join("; "),
    }
}
