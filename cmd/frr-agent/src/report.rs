//! FRRNodeState: what became of the node's objects, as frr-k8s tells it.
//! In: a report. Out: the object, written when the report changed. Invariant: a status fits into the API server's store.
//! Not here: what happened.

use api::frr_state::FRRNodeState;
use kube_edge::{WriteError, Writer};
use model::{NodeName, ObjectKey};
use serde_json::json;

/// frr-k8s's word for all is well.
pub(crate) const SUCCESS: &str = "success";
/// What a result begins with otherwise.
pub(crate) const FAILED: &str = "failed: ";

/// Marks our objects, so that the cluster-manager can remove them with their node.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "noverlay");

/// The store takes objects of 1.5 MiB; about 1,900 neighbors have a configuration of this size.
const LONGEST: usize = 1 << 20;

/// FRRNodeState's status; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) conversion: String,
    pub(crate) reload: Option<String>,
    pub(crate) running: Option<String>,
}

/// Writes FRRNodeState.
pub(crate) struct Reporter {
    client: kube::Client,
    writer: Writer,
    node: NodeName,
    /// What stands on the server, once it is known.
    standing: Option<Report>,
}

impl Reporter {
    pub(crate) fn new(client: kube::Client, writer: Writer, node: NodeName) -> Self {
        Self {
            client,
            writer,
            node,
            standing: None,
        }
    }

    /// Writes the report where it differs from what stands there.
    pub(crate) async fn write(&mut self, report: Report) -> Result<(), WriteError> {
        if self.standing.is_none() {
            self.standing = self.read().await;
        }
        let before = self.standing.clone().unwrap_or_default();
        let report = Report {
            conversion: shortened(report.conversion),
            reload: report.reload.map(shortened).or(before.reload.clone()),
            running: report.running.map(shortened).or(before.running.clone()),
        };
        if self.standing.as_ref() == Some(&report) {
            return Ok(());
        }
        let key = ObjectKey::new("", self.node.as_str());
        if self.standing.is_none() {
            let body = json!({"metadata": {"labels": {MANAGED_BY.0: MANAGED_BY.1}}, "spec": {}});
            self.writer.apply::<FRRNodeState>(&key, None, body).await?;
        }
        let status = json!({
            "lastConversionResult": report.conversion,
            "lastReloadResult": report.reload.clone().unwrap_or_default(),
            "runningConfig": report.running.clone().unwrap_or_default(),
        });
        let written = self.writer.apply_status::<FRRNodeState>(&key, status).await;
        // Somebody may have deleted it: the next write looks again.
        self.standing = written.is_ok().then_some(report);
        written
    }

    async fn read(&self) -> Option<Report> {
        let api: kube::Api<FRRNodeState> = kube::Api::all(self.client.clone());
        let status = api.get_opt(self.node.as_str()).await.ok()??.status?;
        Some(Report {
            conversion: status.last_conversion_result.unwrap_or_default(),
            reload: Some(status.last_reload_result.unwrap_or_default()),
            running: Some(status.running_config.unwrap_or_default()),
        })
    }
}

fn shortened(mut text: String) -> String {
    if text.len() <= LONGEST {
        return text;
    }
    let mut end = LONGEST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let more = text.len() - end;
    text.truncate(end);
    text.push_str(&format!("\n... {more} bytes more\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_does_not_fit_is_cut_at_a_character_with_a_word_about_it() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = "é".repeat(LONGEST);
        let cut = shortened(long);
        assert!(
            cut.ends_with(&format!("\n... {LONGEST} bytes more\n")),
            "{}",
            cut.len()
        );
        assert!(cut.len() < LONGEST + 40);
    }
}
