//! What FRR shows of itself: sessions and the running configuration.
//! In: FRR's JSON and text. Out: model values. Invariant: a session that FRR shows is never left out; passwords are taken out of texts.
//! Not here: evaluating them.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Prefix;
use model::frr::SessionState;
use serde::Deserialize;
use serde_json::Value;

use crate::Frr;
use crate::file::DAEMONS;
use crate::program::{self, ProgramError};
use crate::vty::VtyError;

/// A node's configuration is shown within a second; a daemon that is frozen holds up vtysh.
const SHOW_DEADLINE: Duration = Duration::from_secs(5);

/// Why sessions are not known.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// bgpd did not answer.
    #[error(transparent)]
    Vty(#[from] VtyError),
    /// vtysh cannot run or does not end.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// vtysh says that something is wrong.
    #[error("vtysh cannot show the running configuration: {0}")]
    Vtysh(String),
    /// Its answer is not the JSON that we know.
    #[error("bgpd's list of neighbors cannot be read")]
    Json(#[source] serde_json::Error),
}

/// What the daemons run, each by its name.
#[derive(Debug, Default)]
pub struct Running {
    /// Digests: one changes when somebody reconfigures its daemon.
    pub digests: BTreeMap<String, String>,
    /// Daemons that may run, and cannot be asked; why.
    pub silent: BTreeMap<String, VtyError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Neighbor {
    bgp_state: String,
    #[serde(default)]
    peer_bfd_info: Option<BfdInfo>,
    #[serde(default)]
    address_family_info: BTreeMap<String, FamilyInfo>,
}

#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    paths: Vec<Path>,
}

#[derive(Deserialize)]
struct Path {
    #[serde(default)]
    sourced: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FamilyInfo {
    #[serde(default)]
    accepted_prefix_counter: u64,
    #[serde(default)]
    sent_prefix_counter: u64,
}

#[derive(Deserialize)]
struct BfdInfo {
    #[serde(default)]
    status: Option<String>,
}

impl Frr {
    /// Whether this bgpd originates a prefix in a VRF, as by `network`; `None`: in the default one.
    ///
    /// # Errors
    /// When bgpd does not answer, or not in the form that we know; or has no such VRF.
    pub async fn originates(&self, vrf: Option<&str>, prefix: &Prefix) -> Result<bool, ShowError> {
        let version = prefix.family().version();
        let vrf = vrf.map(|vrf| format!("vrf {vrf} ")).unwrap_or_default();
        let command = format!("show bgp {vrf}ip{version} unicast {prefix} json");
        let text = self.ask("bgpd", &command).await?;
        read_originates(&text).map_err(ShowError::Json)
    }

    /// Every BGP session, sorted.
    ///
    /// # Errors
    /// When bgpd does not answer, or not in the form that we know.
    pub async fn sessions(&self) -> Result<Vec<SessionState>, ShowError> {
        let text = self.ask("bgpd", "show bgp vrf all neighbors json").await?;
        read_sessions(&text).map_err(ShowError::Json)
    }

    /// FRR's running configuration as vtysh shows it, with passwords taken out.
    ///
    /// # Errors
    /// When vtysh or a daemon does not answer.
    pub async fn running_config(&self) -> Result<String, ShowError> {
        let mut vtysh = self.vtysh();
        vtysh.args(["-c", "show running-config"]);
        let output = program::run("vtysh", &mut vtysh, "", SHOW_DEADLINE).await?;
        if output.status.success() {
            Ok(model::frr::without_passwords(&output.text))
        } else {
            Err(ShowError::Vtysh(output.text))
        }
    }

    /// What each daemon runs, passwords included. Daemons that do not run are absent.
    pub async fn running(&self) -> Running {
        let mut running = Running::default();
        for daemon in DAEMONS {
            let shown = match self.runs(daemon).await {
                Ok(false) => continue,
                Ok(true) => self.ask(daemon, "show running-config").await,
                Err(error) => Err(error),
            };
            match shown {
                Ok(text) => {
                    let digest = model::hash::short(&text);
                    running.digests.insert(daemon.to_owned(), digest);
                }
                Err(error) => {
                    running.silent.insert(daemon.to_owned(), error);
                }
            }
        }
        running
    }
}

/// Whether one of the paths of `show bgp ipv4 unicast PREFIX json` is bgpd's own; a prefix that has none is nowhere in the answer.
fn read_originates(text: &str) -> Result<bool, serde_json::Error> {
    if !text.trim_start().starts_with('{') {
        return Ok(false);
    }
    let shown: Shown = serde_json::from_str(text)?;
    Ok(shown.paths.iter().any(|path| path.sourced))
}

/// What `show bgp vrf all neighbors json` of bgpd says: every BGP session, sorted.
///
/// # Errors
/// When it is not the JSON that we know, or a neighbor in it lacks what a session needs.
pub fn read_sessions(text: &str) -> Result<Vec<SessionState>, serde_json::Error> {
    let vrfs: BTreeMap<String, BTreeMap<String, Value>> = if text.trim().is_empty() {
        BTreeMap::new()
    } else {
        // Beside VRFs stand members that are no maps of neighbors.
        let all: BTreeMap<String, Value> = serde_json::from_str(text)?;
        all.into_iter()
            .filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?)))
            .collect()
    };
    let mut out = Vec::new();
    for (vrf, members) in vrfs {
        for (peer, value) in members {
            // Members such as vrfId and vrfName stand beside the neighbors.
            if !value.is_object() {
                continue;
            }
            let neighbor: Neighbor = serde_json::from_value(value)?;
            let families = neighbor.address_family_info.values();
            out.push(SessionState {
                received: families.clone().map(|f| f.accepted_prefix_counter).sum(),
                sent: families.map(|f| f.sent_prefix_counter).sum(),
                vrf: if vrf == "default" {
                    String::new()
                } else {
                    vrf.clone()
                },
                peer,
                bgp: neighbor.bgp_state,
                bfd: neighbor
                    .peer_bfd_info
                    .and_then(|b| b.status)
                    .unwrap_or_else(|| "N/A".to_owned()),
            });
        }
    }
    out.sort();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_daemon_that_cannot_be_asked_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        let socket = |daemon: &str| folder.path().join(format!("{daemon}.vty"));
        std::os::unix::fs::symlink(socket("bgpd"), socket("bgpd")).unwrap();
        let zebra = tokio::net::UnixListener::bind(socket("zebra")).unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = zebra.accept().await.unwrap();
                let mut buffer = [0_u8; 64];
                while stream.read(&mut buffer).await.is_ok_and(|n| n > 0) {
                    if stream.write_all(b"text\0\0\0\0").await.is_err() {
                        break;
                    }
                }
            }
        });
        let running = frr.running().await;
        let reported: Vec<&String> = running.digests.keys().collect();
        assert_eq!(reported, ["zebra"]);
        let silent: Vec<&String> = running.silent.keys().collect();
        assert_eq!(silent, ["bgpd"], "bfdd does not run");
    }

    #[test]
    fn sessions_of_all_vrfs_are_decoded_and_other_members_are_passed_over() {
        let text = r#"{"default":{"vrfId":0,"vrfName":"default",
            "172.30.0.2":{"remoteAs":1,"bgpState":"Established","addressFamilyInfo":{
                "ipv4Unicast":{"acceptedPrefixCounter":3,"sentPrefixCounter":1},
                "ipv6Unicast":{"acceptedPrefixCounter":4}}},
            "172.30.0.3":{"bgpState":"Active","peerBfdInfo":{"status":"Down"}}},
            "blue":{"vrfId":5,"vrfName":"blue","10.0.0.1":{"bgpState":"Idle"}}}"#;
        let seen: Vec<String> = read_sessions(text)
            .unwrap()
            .iter()
            .map(|s| {
                let count = (s.received, s.sent);
                format!("{}/{} {} {} {count:?}", s.vrf, s.peer, s.bgp, s.bfd)
            })
            .collect();
        assert_eq!(
            seen,
            [
                "/172.30.0.2 Established N/A (7, 1)",
                "/172.30.0.3 Active Down (0, 0)",
                "blue/10.0.0.1 Idle N/A (0, 0)"
            ]
        );
        assert!(read_sessions("").unwrap().is_empty());
        assert!(read_sessions("{}").unwrap().is_empty());
        assert!(
            read_sessions("{\"default\":{\"1.1.1.1\":{}}}").is_err(),
            "a session without state is not passed over"
        );
        assert!(read_sessions("nonsense").is_err());
    }
}
