//! One node: its namespace, its link to the underlay, OVS, OVN and FRR.
//!
//! In: a [`Node`]. Out: everything a node's admin sets up before
//! the product comes: bridges without flows, databases without rows, FRR without
//! configuration. What the product makes (flows of br-ex, Northbound rows, the
//! management port, rules, routes, frr.conf) is deliberately not here.

pub(crate) mod frr;
pub(crate) mod link;
pub(crate) mod ovs;
pub(crate) mod pki;

use anyhow::{Context, Result};

use crate::state::{Lab, Node};

/// Sets up one node.
pub(crate) fn up(lab: &Lab, node: &Node) -> Result<()> {
    std::fs::create_dir_all(lab.ovs_dir(&node.name))?;
    link::up(lab, node).with_context(|| format!("namespace and link of {}", node.name))?;
    ovs::up_switch(lab, node).with_context(|| format!("Open vSwitch of {}", node.name))?;
    link::address(lab, node).with_context(|| format!("address of {}", node.name))?;
    frr::up(lab, node).with_context(|| format!("FRR of {}", node.name))?;
    ovs::up_ovn(lab, node).with_context(|| format!("OVN of {}", node.name))
}
