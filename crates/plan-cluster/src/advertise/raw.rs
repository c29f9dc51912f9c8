//! The raw text of generated objects.
//! In: the router's AS number and its neighbors. Out: text for FRR, byte for byte as OVN-Kubernetes writes it.
//! Invariant: it names only neighbors of the same object. Not here: its priority.

use std::collections::{BTreeMap, BTreeSet};

use model::address::Family;
use model::frr::{Neighbor, Peer};

use crate::generated::DEFAULT_VRF;

/// `allowas-in origin` for every peer, so that nodes that share an AS number across eBGP accept each other's routes.
pub(super) fn allowas_in(asn: model::Asn, vrf: &str, neighbors: &[Neighbor]) -> String {
    let mut families: BTreeMap<Family, BTreeSet<&str>> = BTreeMap::new();
    for neighbor in neighbors {
        let both = [Family::V4, Family::V6];
        let of_peer = match &neighbor.peer {
            Peer::Interface(_) => both.to_vec(),
            Peer::Address(_) => neighbor.peer.ip().map(Family::of).into_iter().collect(),
        };
        for family in of_peer {
            families
                .entry(family)
                .or_default()
                .insert(neighbor.peer.as_str());
        }
    }
    let mut out = match vrf {
        DEFAULT_VRF => format!("router bgp {asn}\n"),
        vrf => format!("router bgp {asn} vrf {vrf}\n"),
    };
    for (family, peers) in families {
        let name = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        out.push_str(&format!(" address-family {name} unicast\n"));
        for peer in peers {
            out.push_str(&format!("  neighbor {peer} allowas-in origin\n"));
        }
        out.push_str(" exit-address-family\n");
    }
    out.push_str("exit\n!\n");
    out
}
