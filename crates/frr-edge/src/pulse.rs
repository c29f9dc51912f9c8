//! Whether zebra and bgpd work together, asked in as few words as possible.
//! In: short answers of the two. Out: whether bgpd is zebra's client, bgpd's peers, the daemons' age.
//! Invariant: an answer that is not understood says nothing; commands that cost a daemon next to nothing.
//! Not here: what follows.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::Value;

use crate::Frr;
use crate::file::CORE;
use crate::show::ShowError;
use crate::vty::VtyError;

/// A peer of the default VRF, in short.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerSummary {
    /// Its address, or the interface that it is named by.
    pub peer: String,
    /// For how long its session has been established; `None` where it is not.
    pub up: Option<Duration>,
    /// How many established sessions to it have ended since bgpd started.
    pub dropped: u64,
}

#[derive(Deserialize)]
struct Family {
    #[serde(default)]
    peers: BTreeMap<String, Peer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Peer {
    state: String,
    #[serde(default)]
    peer_uptime_msec: u64,
    #[serde(default)]
    connections_dropped: u64,
}

impl Frr {
    /// Whether bgpd is zebra's client; `None` where zebra's answer is not understood.
    ///
    /// # Errors
    /// When zebra does not run or does not answer in five seconds.
    pub async fn bgpd_is_linked(&self) -> Result<Option<bool>, VtyError> {
        match self.ask("zebra", "show zebra client summary").await {
            Ok(text) => Ok(decode_clients(&text)),
            Err(VtyError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks bgpd for nothing: one that ends does not answer.
    ///
    /// # Errors
    /// When bgpd does not run or does not answer in five seconds.
    pub async fn greet_bgpd(&self) -> Result<(), VtyError> {
        match self.ask("bgpd", "show version").await {
            Ok(_) | Err(VtyError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// bgpd's peers of the default VRF, sorted: a third of a kilobyte for each.
    ///
    /// # Errors
    /// When bgpd does not answer, or not in the form that we know.
    pub async fn peers(&self) -> Result<Vec<PeerSummary>, ShowError> {
        let text = self.ask("bgpd", "show bgp summary json").await?;
        decode_peers(&text).map_err(ShowError::Json)
    }

    /// How long the younger of zebra and bgpd has run, by the age of its socket; `None` where one has none.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        let began = |daemon: &&str| {
            let socket = self.vty_socket.join(format!("{daemon}.vty"));
            std::fs::metadata(socket).ok()?.modified().ok()
        };
        let all: Option<Vec<SystemTime>> = CORE.iter().map(began).collect();
        let younger = all?.into_iter().max()?;
        // A clock that was set back makes it younger than it can be.
        Some(now.duration_since(younger).unwrap_or_default())
    }
}

/// zebra's table of clients: a line of titles, then one a client, by its name.
fn decode_clients(text: &str) -> Option<bool> {
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let names: Vec<String> = text.lines().filter_map(first).collect();
    (names.first()? == "Name").then(|| names.iter().any(|name| name == "bgp"))
}

fn decode_peers(text: &str) -> Result<Vec<PeerSummary>, serde_json::Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let families: BTreeMap<String, Value> = serde_json::from_str(text)?;
    let mut found: BTreeMap<String, PeerSummary> = BTreeMap::new();
    // Beside families stand members such as warnings.
    for family in families.into_values().filter(Value::is_object) {
        let family: Family = serde_json::from_value(family)?;
        for (peer, seen) in family.peers {
            let up =
                (seen.state == "Established").then(|| Duration::from_millis(seen.peer_uptime_msec));
            let dropped = seen.connections_dropped;
            found
                .entry(peer.clone())
                .or_insert(PeerSummary { peer, up, dropped });
        }
    }
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bgpd_is_among_zebras_clients_or_not_and_another_text_says_nothing() {
        let table = "Name      Connect Time    Last Read\n------\nvnc  00:00:04 00:00:04\n";
        assert_eq!(decode_clients(table), Some(false));
        let with = format!("{table}bgp           00:00:04     00:00:00\n");
        assert_eq!(decode_clients(&with), Some(true));
        let none = "Name      Connect Time    Last Read\n------\nRoutes column shows\n";
        assert_eq!(decode_clients(none), Some(false));
        for other in ["", "% Unknown command", "bgp is there"] {
            assert_eq!(decode_clients(other), None, "{other:?}");
        }
    }

    #[test]
    fn peers_of_all_families_are_reported_once_with_their_time() {
        let text = r#"{"ipv4Unicast":{"routerId":"1.1.1.1","peers":{
            "172.30.0.2":{"state":"Established","peerUptimeMsec":1500,"connectionsDropped":1},
            "172.30.0.3":{"state":"Active","connectionsDropped":2},
            "br-ex":{"state":"Idle (Admin)"}}},
            "ipv6Unicast":{"peers":{"172.30.0.2":{"state":"Established","peerUptimeMsec":1500}}},
            "l2VpnEvpn":{},"warning":"x"}"#;
        let peers = decode_peers(text).unwrap();
        let reported: Vec<_> = peers
            .iter()
            .map(|p| (p.peer.as_str(), p.up.map(|up| up.as_millis()), p.dropped))
            .collect();
        assert_eq!(
            reported,
            [
                ("172.30.0.2", Some(1500), 1),
                ("172.30.0.3", None, 2),
                ("br-ex", None, 0)
            ]
        );
        assert!(decode_peers("").unwrap().is_empty());
        assert!(decode_peers("{}").unwrap().is_empty());
        assert!(decode_peers("% no").is_err());
    }

    #[test]
    fn the_age_is_that_of_the_younger_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        let bind = |daemon: &str| {
            let socket = folder.path().join(format!("{daemon}.vty"));
            std::os::unix::net::UnixListener::bind(socket).unwrap()
        };
        let _zebra = bind("zebra");
        let now = SystemTime::now();
        assert_eq!(frr.age(now), None, "bgpd never ran");
        std::thread::sleep(Duration::from_millis(30));
        let _bgpd = bind("bgpd");
        let later = now + Duration::from_secs(100);
        let age = frr.age(later).unwrap();
        assert!(age > Duration::from_secs(98) && age < Duration::from_millis(99_990));
        assert_eq!(frr.age(now - Duration::from_secs(9)), Some(Duration::ZERO));
    }
}
