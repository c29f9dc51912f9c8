//! What a lab remembers about itself, in `/run/noverlay-lab/<name>`.
//!
//! In: what `up` was asked for. Out: [`Lab`], the names of its namespaces, files and
//! sockets, and the record that the next command reads. Invariant: whatever `up` makes
//! can be found again from the lab's name alone, so a half-made lab can be taken down.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::daemons::{AutoTopology, Outward};
use crate::example::Example;
use crate::family::Family;
use crate::networks::UserNetwork;
use crate::values::{Values, link_local, nth};

/// Parent of all labs' folders; short, because socket paths end at 108 bytes.
const BASE: &str = "/run/noverlay-lab";
const RECORD: &str = "lab.json";

/// One node of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Its name, also in the API.
    pub(crate) name: String,
    /// Last part of its underlay address; from 1.
    pub(crate) index: u32,
}

/// The pod of a node, as it was attached: an address of each family that the lab has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pod {
    /// IPv4 first.
    pub(crate) addresses: Vec<PodAddress>,
}

/// An address of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodAddress {
    /// The node's part of the cluster subnet, as the product allocated it.
    pub(crate) subnet: IpNet,
    /// The pod's address: the fifth of the subnet.
    pub(crate) address: IpAddr,
}

impl Pod {
    /// The pod that a node with these subnets gets.
    pub(crate) fn of(subnets: &[IpNet]) -> Self {
        let address = |subnet: &IpNet| PodAddress {
            subnet: *subnet,
            address: nth(*subnet, 5),
        };
        Self {
            addresses: subnets.iter().map(address).collect(),
        }
    }

    /// Its address of a family.
    pub(crate) fn in_family(&self, family: Family) -> Option<&PodAddress> {
        let mut all = self.addresses.iter();
        all.find(|address| address.family() == family)
    }

    /// All its addresses, as one text.
    pub(crate) fn shown(&self) -> String {
        let all: Vec<String> = self
            .addresses
            .iter()
            .map(|a| a.address.to_string())
            .collect();
        all.join(" ")
    }
}

impl PodAddress {
    /// Its family.
    pub(crate) fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// The router's address in the subnet.
    pub(crate) fn gateway(&self) -> IpAddr {
        nth(self.subnet, 1)
    }

    /// The management port's address: what a pod sees of a host.
    pub(crate) fn management(&self) -> IpAddr {
        nth(self.subnet, 2)
    }
}

/// Where the programs are that a lab runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    /// Folder of cluster-manager, node-agent and frr-agent.
    pub(crate) daemons: PathBuf,
    /// Folder of etcd, kube-apiserver and kubectl.
    pub(crate) tools: PathBuf,
    /// Kustomize folder with CRDs, roles and namespaces.
    pub(crate) manifests: PathBuf,
}

/// One lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Lab {
    /// Keeps two labs apart.
    pub(crate) name: String,
    /// Addresses and names.
    pub(crate) values: Values,
    /// Nodes, in the order they joined.
    pub(crate) nodes: Vec<Node>,
    /// Programs.
    pub(crate) places: Places,
    /// The daemon of ours that was left out.
    pub(crate) without: Option<String>,
    /// `[bgp-managed] profile`.
    pub(crate) profile: String,
    /// `[bgp-managed] topology`.
    pub(crate) topology: String,
    /// `[bgp-managed] auto-reflectors-above` and `auto-full-mesh-below`.
    pub(crate) auto: AutoTopology,
    /// `[gateway] mode` and `[no-overlay] outbound-snat`.
    pub(crate) outward: Outward,
    /// Networks of users.
    pub(crate) networks: Vec<UserNetwork>,
    /// frr-k8s's controller, where it runs in place of frr-agent.
    pub(crate) frr_k8s: Option<PathBuf>,
    /// Real OVN-Kubernetes, where it makes the network of tunnels.
    #[serde(default)]
    pub(crate) ovn_kubernetes: Option<PathBuf>,
    /// The physical network and what its administrator writes, where it is not the demonstration's.
    pub(crate) example: Option<Example>,
    /// Kernel settings of the machine that were changed: file and former text.
    pub(crate) settings: Vec<(String, String)>,
    /// Was the folder of namespace names there before?
    pub(crate) netns_folder: bool,
    /// The topology is OVN-Kubernetes' or an imitation's of it, and our daemons run beside it with this transport of the default
    /// network.
    #[serde(default)]
    pub(crate) adopted: Option<String>,
    /// Did `up` reach its end?
    pub(crate) complete: bool,
}

impl Lab {
    /// Pods of the default network reach each other over tunnels.
    pub(crate) fn is_tunneled(&self) -> bool {
        self.outward.is_overlay() && !self.is_steered()
    }

    /// Beside OVN-Kubernetes or an imitation of it nodes lead them past its tunnels.
    pub(crate) fn is_steered(&self) -> bool {
        self.adopted.as_deref() == Some("no-overlay")
    }

    /// A phrase that names whom our daemons run beside, or are to.
    pub(crate) fn beside_note(&self) -> &'static str {
        match self.ovn_kubernetes {
            Some(_) => ", beside OVN-Kubernetes",
            None if self.outward.adopt => ", beside an imitation of OVN-Kubernetes",
            None => "",
        }
    }

    /// Folder of a lab with this name.
    pub(crate) fn folder(name: &str) -> PathBuf {
        Path::new(BASE).join(name)
    }

    /// Folder of this lab.
    pub(crate) fn dir(&self) -> PathBuf {
        Self::folder(&self.name)
    }

    /// Folder of a node (or of `underlay`): its logs, sockets and databases.
    pub(crate) fn node_dir(&self, node: &str) -> PathBuf {
        self.dir().join(node)
    }

    /// Folder with a node's OVS and OVN sockets and databases.
    pub(crate) fn ovs_dir(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("ovs")
    }

    /// Folder with a node's FRR sockets and configuration.
    pub(crate) fn frr_dir(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("frr")
    }

    /// Beginning of all this lab's namespace names.
    pub(crate) fn prefix(name: &str) -> String {
        format!("nvl-{name}-")
    }

    /// Namespace of a node, of `underlay` or of `outside`.
    pub(crate) fn namespace(&self, node: &str) -> String {
        format!("{}{node}", Self::prefix(&self.name))
    }

    /// Namespace of a node's pod.
    pub(crate) fn pod_namespace(&self, node: &str) -> String {
        format!("{}{node}-pod", Self::prefix(&self.name))
    }

    /// What turns FRRConfigurations into frr.conf on every node: name among its daemons.
    pub(crate) fn applier(&self) -> &'static str {
        match self.frr_k8s {
            Some(_) => crate::frr_k8s::NAME,
            None => "frr-agent",
        }
    }

    /// A phrase that names the applier where it is not ours.
    pub(crate) fn applier_note(&self) -> String {
        self.frr_k8s.as_ref().map_or_else(String::new, |binary| {
            format!(", frr-k8s ({}) in place of frr-agent", binary.display())
        })
    }

    /// A phrase that names the routers beside the nodes.
    pub(crate) fn routers_note(&self) -> String {
        let routers = self.example.iter().flat_map(|example| &example.routers);
        let routers: Vec<String> = routers
            .map(|router| format!("{} at {}", router.name, self.address(router)))
            .collect();
        match routers.as_slice() {
            [] => String::new(),
            routers => format!(", and routers: {}", routers.join(", ")),
        }
    }

    /// First underlay address of a node.
    pub(crate) fn address(&self, node: &Node) -> IpAddr {
        self.values.address(node.index)
    }

    /// Underlay addresses of a node, one of each family.
    pub(crate) fn addresses(&self, node: &Node) -> Vec<IpAddr> {
        self.values.addresses(node.index)
    }

    /// The same, with its link-local address where the lab has IPv6.
    pub(crate) fn next_hops(&self, node: &Node) -> Vec<IpAddr> {
        let mut all = self.addresses(node);
        if self.values.has(Family::V6) {
            all.push(link_local(self.address(node)));
        }
        all
    }

    /// The node's address that a next hop stands for: bgpd takes a direct neighbor's link-local address where it can.
    pub(crate) fn behind(&self, hop: IpAddr) -> IpAddr {
        let mut nodes = self.nodes.iter();
        let owner = nodes.find(|node| link_local(self.address(node)) == hop);
        let address = owner.and_then(|n| self.values.address_of(n.index, Family::V6).ok());
        address.unwrap_or(hop)
    }

    /// The node with this name.
    pub(crate) fn node(&self, name: &str) -> Result<&Node> {
        let found = self.nodes.iter().find(|node| node.name == name);
        found.with_context(|| {
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            format!("no node {name}; there are {}", names.join(", "))
        })
    }

    /// The pod of a node, when it has been attached.
    pub(crate) fn pod(&self, node: &str) -> Option<Pod> {
        let text = std::fs::read_to_string(self.node_dir(node).join("pod.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Remembers that a node's pod is attached.
    pub(crate) fn save_pod(&self, node: &str, file: &str, pod: &Pod) -> Result<()> {
        write_whole(
            &self.node_dir(node).join(file),
            &serde_json::to_string(pod)?,
        )
    }

    /// Reads the record of a lab; `None` where there is none that can be read.
    pub(crate) fn load(name: &str) -> Option<Self> {
        let text = std::fs::read_to_string(Self::folder(name).join(RECORD)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Reads the record of a lab that must be up.
    pub(crate) fn running(name: &str) -> Result<Self> {
        match Self::load(name) {
            Some(lab) if lab.complete => Ok(lab),
            Some(_) => bail!("lab {name} did not come up whole; `hack/lab up` rebuilds it"),
            None => bail!("no lab {name} is running; `hack/lab up` starts it"),
        }
    }

    /// Writes the record.
    pub(crate) fn save(&self) -> Result<()> {
        write_whole(
            &self.dir().join(RECORD),
            &serde_json::to_string_pretty(self)?,
        )
    }
}

/// Folder removed when the last lab goes.
pub(crate) fn remove_empty_base() {
    drop(std::fs::remove_dir(BASE));
}

/// Refuses names that would not do as part of a path, a namespace or an interface.
pub(crate) fn check_name(what: &str, name: &str, longest: usize) -> Result<()> {
    let legal =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || (what == "node" && c == '-');
    let reserved = ["underlay", "outside", "pids", "pod"];
    if name.is_empty() || name.len() > longest || !name.chars().all(legal) || name.ends_with("-pod")
    {
        bail!("{what} name {name:?}: 1 to {longest} lower-case letters or digits are allowed");
    }
    if reserved.contains(&name) {
        bail!("{what} name {name:?} is used by the lab itself");
    }
    Ok(())
}

/// Writes a file so that a reader sees the old or the new text, never half of it.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("new");
    std::fs::write(&draft, text).with_context(|| format!("writing {}", draft.display()))?;
    std::fs::rename(&draft, path).with_context(|| format!("writing {}", path.display()))
}

/// A path as text; all of ours are.
pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
