//! What it costs when `topology = auto` changes the fabric's topology: a node more than the largest mesh joins, then nodes leave
//! until the reflectors are given up, one of these among them.
//!
//! In: a running lab with that topology whose nodes are as many as both numbers of its configuration. Out: after each step its
//! time, and how many pings between the pods of all nodes that stay were lost; the lab has a node less.

use anyhow::{Context, Result, bail};

use super::topology::{REFLECTORS, stands, step};
use crate::membership;
use crate::objects::reflectors;
use crate::reach::{Attached, attached};
use crate::state::Lab;
use crate::up::Steps;
use crate::values::Values;

/// All steps; `false` where one of them cost a pair of pods its way.
pub(super) fn demonstrate(lab: &Lab) -> Result<bool> {
    let nodes = Some(u32::try_from(lab.nodes.len())?);
    let both = [
        lab.auto.auto_reflectors_above,
        lab.auto.auto_full_mesh_below,
    ];
    if lab.topology != "auto" || both != [nodes, nodes] || lab.nodes.len() < REFLECTORS + 2 {
        bail!(
            "topology auto shows in a lab of N nodes, at least five, with --topology auto --auto-reflectors-above N --auto-full-mesh-below N"
        );
    }
    let (mut lab, stay) = (lab.clone(), attached(lab));
    stands(&lab, None, None)?;
    let used: Vec<u32> = lab.nodes.iter().map(|node| node.index).collect();
    let index = Values::free_index(&used).context("the underlay is full")?;
    let name = lab.values.node_name(index);
    let joins = format!("{name} joins the largest mesh, which gets route reflectors");
    let mut good = step((&lab.clone(), &stay), &joins, || {
        membership::add(&mut lab, &name, None, Steps::begin())?;
        stands(&lab, Some(REFLECTORS), None)
    })?;
    let leaves = format!("{name} leaves, the route reflectors stay");
    good &= step((&lab.clone(), &stay), &leaves, || {
        membership::remove(&mut lab, &name, Steps::begin())?;
        stands(&lab, Some(REFLECTORS), None)
    })?;
    // Still, after the manager has seen it.
    stands(&lab, Some(REFLECTORS), None)?;
    let reflector = reflectors(&lab)?.into_iter().next();
    let reflector = reflector.context("no node reflects")?;
    let others = stay.into_iter().filter(|(node, _)| node.name != reflector);
    let others: Vec<Attached> = others.collect();
    let mesh = format!("reflector {reflector} leaves, the others become a mesh");
    good &= step((&lab.clone(), &others), &mesh, || {
        membership::remove(&mut lab, &reflector, Steps::begin())?;
        stands(&lab, None, None)
    })?;
    Ok(good)
}
