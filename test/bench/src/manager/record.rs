//! What the manager wrote, as the API server's audit log has it.
//! In: the log's file. Out: the writes since the last look. Invariant: a write is seen once, and only when its line is whole.
//! Not here: reads, leases, events.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// One write of the manager.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    /// When it was answered, seconds since 1970.
    pub(crate) answered: f64,
    /// `create`, `patch` or `delete`.
    pub(crate) verb: String,
    /// With `/status` where it is the status.
    pub(crate) resource: String,
    /// Path and query.
    pub(crate) uri: String,
    /// HTTP status of the answer.
    pub(crate) code: u64,
    /// Length of the body as compact JSON, which is what the manager sends.
    pub(crate) bytes: usize,
    pub(crate) body: Value,
}

impl Write {
    /// By which writes are counted: resource, and what is not an apply that was taken.
    pub(crate) fn kind(&self) -> String {
        let refused = if self.code >= 300 {
            format!(", answered {}", self.code)
        } else {
            String::new()
        };
        let deleted = if self.verb == "delete" {
            " deleted"
        } else {
            ""
        };
        format!("{}{deleted}{refused}", self.resource)
    }
}

/// The audit log.
pub(crate) struct Record {
    path: PathBuf,
    offset: u64,
    /// The beginning of a line whose end is not written yet.
    rest: Vec<u8>,
}

impl Record {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            rest: Vec::new(),
        }
    }

    /// What the manager wrote since the last call.
    pub(crate) fn news(&mut self) -> Vec<Write> {
        let mut file = File::open(&self.path).expect("the audit log");
        file.seek(SeekFrom::Start(self.offset))
            .expect("the audit log");
        let read = file.read_to_end(&mut self.rest).expect("the audit log");
        self.offset += u64::try_from(read).expect("its length");
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        whole
            .split(|byte| *byte == b'\n')
            .filter_map(write_of)
            .collect()
    }
}

/// The write of a line of the log; `None` where it is not the manager's or does not count.
fn write_of(line: &[u8]) -> Option<Write> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let text = |path: &str| {
        let value = event.pointer(path).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let mut resource = text("/objectRef/resource");
    let is_manager = text("/user/uid") == "cluster-manager";
    if !is_manager || ["leases", "events"].contains(&resource.as_str()) {
        return None;
    }
    let part = text("/objectRef/subresource");
    if !part.is_empty() {
        resource = format!("{resource}/{part}");
    }
    let body = event.get("requestObject").cloned().unwrap_or_default();
    let sent = if body.is_null() {
        0
    } else {
        body.to_string().len()
    };
    let answered: Timestamp = text("/stageTimestamp").parse().ok()?;
    Some(Write {
        answered: answered.as_duration().as_secs_f64(),
        verb: text("/verb"),
        resource,
        uri: text("/requestURI"),
        code: event.pointer("/responseStatus/code")?.as_u64()?,
        bytes: sent,
        body,
    })
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn line(user: &str, resource: &str, body: &str) -> String {
        format!(
            r#"{{"user":{{"uid":"{user}"}},"verb":"patch","requestURI":"/api/v1/{resource}/a?force=true","objectRef":{{"resource":"{resource}","subresource":"status"}},"responseStatus":{{"code":200}},"requestObject":{body},"stageTimestamp":"1970-01-01T00:00:10.250000Z"}}"#
        )
    }

    #[test]
    fn each_write_of_the_manager_is_seen_once_and_whole() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut record = Record::new(log.path().to_owned());
        assert!(record.news().is_empty());
        let first = line("cluster-manager", "nodes", r#"{"a": {"b": [1, 2]}}"#);
        let (begin, end) = first.split_at(40);
        write!(log, "{}\n{begin}", line("admin", "nodes", "{}")).unwrap();
        log.flush().unwrap();
        assert!(record.news().is_empty());
        let lease = line("cluster-manager", "leases", "{}");
        writeln!(log, "{end}\n{lease}").unwrap();
        log.flush().unwrap();
        let seen = record.news();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].kind(), "nodes/status");
        // Compact: {"a":{"b":[1,2]}}
        assert_eq!(seen[0].bytes, 17);
        assert!((seen[0].answered - 10.25).abs() < 1e-9);
        assert!(record.news().is_empty());
    }
}
