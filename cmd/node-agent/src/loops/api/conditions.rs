//! Conditions of a network in NodeRoutes.
//! In: what was reported before, what is wrong now. Out: a condition, and an event where it changes.
//! Invariant: an event comes with another status, never with other words alone. Not here: what is wrong.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use model::NetworkName;
use model::intent::Event;

use super::ApiReconciler;

/// A condition of a network. Of reasons, the first is the condition's, the second that of the event when it begins.
pub(super) struct Words {
    pub(super) kind: &'static str,
    pub(super) bad: (&'static str, &'static str),
    pub(super) good: (&'static str, &'static str),
}

impl ApiReconciler {
    /// A condition that is False while there is trouble, by reason and message, and an event where it changes; nothing where there never was any.
    pub(super) fn condition(
        &self,
        network: &NetworkName,
        words: &Words,
        trouble: Option<(&'static str, String)>,
        fine: String,
    ) -> Option<(Condition, Option<Event>)> {
        let existing = self.existing(network, words.kind);
        let said = match trouble {
            Some((reason, text)) => ("False", (reason, words.bad.1), text),
            None => {
                existing?;
                ("True", words.good, fine)
            }
        };
        Some(stated(words.kind, existing, said))
    }

    /// The network's condition of this kind as it was reported.
    pub(super) fn existing(&self, network: &NetworkName, kind: &str) -> Option<&Condition> {
        let mut networks = self.reported.iter().flat_map(|r| &r.status.networks);
        let of_network = networks.find(|routes| routes.name == network.as_str())?;
        of_network.conditions.iter().find(|c| c.type_ == kind)
    }
}

/// A condition with this status, its reason and the event's, and message; and an event where the status is another one.
pub(super) fn stated(
    kind: &str,
    existing: Option<&Condition>,
    (status, reasons, message): (&str, (&'static str, &'static str), String),
) -> (Condition, Option<Event>) {
    let same_status = existing.filter(|c| c.status == status);
    let event = same_status.is_none().then(|| Event {
        warning: status != "True",
        reason: reasons.1,
        message: message.clone(),
    });
    let since = same_status.map_or_else(
        || Time(Timestamp::now()),
        |c| c.last_transition_time.clone(),
    );
    let condition = Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reasons.0.to_owned(),
        message,
        last_transition_time: since,
        observed_generation: None,
    };
    (condition, event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_with_another_status_and_never_with_other_words_alone() {
        let say = |existing: Option<&Condition>, status: &str, words: &str| {
            let said = (status, ("Reason", "Happened"), words.to_owned());
            stated("Kind", existing, said)
        };
        let (first, event) = say(None, "False", "a");
        assert!(event.is_some_and(|event| event.warning && event.message == "a"));
        let (second, event) = say(Some(&first), "False", "b");
        assert_eq!((event, second.message.as_str()), (None, "b"));
        assert_eq!(second.last_transition_time, first.last_transition_time);
        for (status, warning) in [("Unknown", true), ("True", false)] {
            let (third, event) = say(Some(&second), status, "c");
            let event = event.unwrap();
            assert_eq!((event.warning, event.reason), (warning, "Happened"));
            assert_eq!(
                (third.status.as_str(), third.reason.as_str()),
                (status, "Reason")
            );
        }
    }
}
