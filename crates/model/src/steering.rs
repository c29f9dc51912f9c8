//! Rules and routes by which a node beside OVN-Kubernetes leads pods' packets past the tunnels: between the management port and
//! the physical network.
//! In: a planner's wish, or what `netlink` decoded. Out: entries that are equal or not; none is changed in place.
//! Invariant: all of them bear a protocol number that nobody else uses, so that none of OVN-Kubernetes' is taken for ours.
//! Not here: which there are (`plan_node::beside`), how they are read and written (`netlink::steering`).

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use crate::address::{Family, Prefix};
use crate::route::{MAIN_TABLE, TableId};

/// `FRA_PROTOCOL` and `rtm_protocol` of ours. Numbers that others use end at 42 (babel), and begin again at 85 (OVN-Kubernetes).
pub const PROTOCOL: u8 = 78;

/// The table that leads to the network's pods through OVN. OVN-Kubernetes numbers tables of VRFs and of egress devices from 1000 on by
/// interface indexes, which end at 2,147,483,647: no interface's table is this one.
pub const TABLE: TableId = 2_900_000_000;

/// Preferences of the rules: behind those that OVN-Kubernetes has for Services (30, 31) and VRFs (1000, 2000), before those that it has
/// for egress (5000, 5999, 6000).
pub mod preference {
    /// Between pods: the routes of main that are more specific than the network.
    pub const PODS: u32 = 2898;
    /// From the host to pods: the same.
    pub const HOST: u32 = 2899;
    /// To the node's own pods: the same, whoever asks.
    pub const OWN: u32 = 2900;
    /// What else is for pods goes by way of OVN.
    pub const TUNNEL: u32 = 2901;
    /// All of them.
    pub const ALL: [u32; 4] = [PODS, HOST, OWN, TUNNEL];
}

/// A rule. Two with the same fields are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Lower is looked at first.
    pub preference: u32,
    /// `from PREFIX`.
    pub from: Option<Prefix>,
    /// `to PREFIX`.
    pub to: Prefix,
    /// `iif DEVICE`.
    pub device: Option<String>,
    /// `lookup TABLE`.
    pub table: TableId,
    /// `suppress_prefixlength BITS`: routes of the table that are no longer than so many bits are left out.
    pub suppress: Option<u8>,
}

impl Rule {
    /// The family of what it is for.
    #[must_use]
    pub fn family(&self) -> Family {
        self.to.family()
    }
}

impl fmt::Display for Rule {
    /// As `ip rule` spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.preference)?;
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        write!(f, " to {}", self.to)?;
        if let Some(device) = &self.device {
            write!(f, " iif {device}")?;
        }
        match self.table {
            MAIN_TABLE => f.write_str(" lookup main")?,
            table => write!(f, " lookup {table}")?,
        }
        let suppress = self.suppress;
        suppress.map_or(Ok(()), |bits| write!(f, " suppress_prefixlength {bits}"))
    }
}

/// A route in a table of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// The table.
    pub table: TableId,
    /// Destination.
    pub to: Prefix,
    /// Gateway.
    pub via: IpAddr,
    /// The device behind which it is.
    pub device: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            to,
            via,
            device,
        } = self;
        write!(f, "route {to} via {via} dev {device} table {table}")
    }
}

/// All entries of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Entries {
    /// Rules.
    pub rules: BTreeSet<Rule>,
    /// Routes.
    pub routes: BTreeSet<Route>,
}

impl Entries {
    /// Takes over another network's.
    pub fn extend(&mut self, other: Self) {
        self.rules.extend(other.rules);
        self.routes.extend(other.routes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_spelled_as_ip_spells_it() {
        let net: Prefix = "10.128.0.0/16".parse().unwrap();
        let mut rule = Rule {
            preference: preference::PODS,
            from: Some(net),
            to: net,
            device: None,
            table: MAIN_TABLE,
            suppress: Some(16),
        };
        assert_eq!(
            rule.to_string(),
            "rule 2898 from 10.128.0.0/16 to 10.128.0.0/16 lookup main suppress_prefixlength 16"
        );
        rule.from = None;
        rule.device = Some("ovn-k8s-mp0".to_owned());
        (rule.table, rule.suppress) = (TABLE, None);
        assert_eq!(
            rule.to_string(),
            "rule 2898 to 10.128.0.0/16 iif ovn-k8s-mp0 lookup 2900000000"
        );
    }
}
