//! Pods by OVN-Kubernetes' own plugin, as a kubelet would have them attached.
//!
//! In: a node on which OVN-Kubernetes runs. Out: a Pod object, its namespace, and in it the interfaces that the plugin makes: one of
//! the default network, and one of the primary network of the Pod's namespace where that has another. Addresses are
//! OVN-Kubernetes'.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{plugin, plugin_config};
use crate::apiserver::{get, kubectl};
use crate::family::Family;
use crate::netns;
use crate::node::link::{drop_ingress, no_offload};
use crate::node::ovs::vsctl;
use crate::run::until;
use crate::state::{Lab, Node, Pod, PodAddress};

/// Where the addresses of a Pod stand.
const ADDRESSES: &str = "/metadata/annotations/k8s.ovn.org~1pod-networks";
const PATIENCE: Duration = Duration::from_secs(60);

/// Attaches the pod of a node that is in this namespace of the API server. `file` remembers it.
pub(crate) fn attach(
    lab: &Lab,
    node: &Node,
    namespace: &str,
    inner: &str,
    file: &str,
) -> Result<Pod> {
    let name = format!("pod-{}", node.name);
    create(lab, node, namespace, &name)?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let object = until(PATIENCE, Duration::from_millis(100), || {
        let object = get(lab, &path).ok()?;
        object.pointer(ADDRESSES).is_some().then_some(object)
    });
    let object = object.with_context(|| format!("{path}: OVN-Kubernetes gave it no address"))?;
    netns::add(inner, lab.values.has(Family::V6))?;
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    let uid = uid.context("a Pod without uid")?;
    let sandbox = uid.replace('-', "").repeat(2);
    let entered = File::open(format!("/run/netns/{inner}"))?;
    let config = plugin_config(lab, &node.name).context("no configuration of its plugin")?;
    let way = format!("/proc/{}/fd/{}", std::process::id(), entered.as_raw_fd());
    let words = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={sandbox};K8S_POD_UID={uid}"
    );
    plugin(lab, &node.name)?
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", &sandbox)
        .env("CNI_NETNS", &way)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_ARGS", &words)
        .input(config)
        .run()
        .with_context(|| format!("attaching {namespace}/{name}"))?;
    raw(lab, node, inner, &sandbox)?;
    let pod = addresses(&object)?;
    running(lab, namespace, &name, &object)?;
    lab.save_pod(&node.name, file, &pod)?;
    Ok(pod)
}

/// Deletes the Pods of a node that leaves: nobody else collects them.
pub(crate) fn forget(lab: &Lab, node: &str) -> Result<()> {
    kubectl(lab)
        .args([
            "delete",
            "pod",
            "--all-namespaces",
            "--force",
            "--grace-period=0",
        ])
        .args([format!("--field-selector=spec.nodeName={node}")])
        .run()
        .map(drop)
}

fn create(lab: &Lab, node: &Node, namespace: &str, name: &str) -> Result<()> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": namespace, "name": "default"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "lab"}},
        "spec": {"nodeName": node.name, "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}], "containers": [{"name": "lab", "image": "none"}]}});
    for object in [account, pod] {
        kubectl(lab)
            .args(["apply", "--server-side", "-f", "-"])
            .input(object.to_string())
            .run()?;
    }
    Ok(())
}

/// Open vSwitch reads raw packets of these interfaces, and the kernel must not see them again.
fn raw(lab: &Lab, node: &Node, inner: &str, sandbox: &str) -> Result<()> {
    let outer = lab.namespace(&node.name);
    let found = vsctl(lab, &node.name)
        .args(["--bare", "--columns=name", "find", "interface"])
        .args([format!("external_ids:sandbox={sandbox}")])
        .run()?;
    let devices: Vec<&str> = found.split_whitespace().collect();
    if devices.is_empty() {
        bail!("{}: no interface of {inner} in Open vSwitch", node.name);
    }
    for device in &devices {
        no_offload(&outer, device)?;
        drop_ingress(lab, &outer, device)?;
    }
    no_offload(inner, "eth0")?;
    if devices.len() > 1 {
        no_offload(inner, "ovn-udn1")?;
    }
    Ok(())
}

/// Of its primary network.
fn addresses(object: &Value) -> Result<Pod> {
    let said = object.pointer(ADDRESSES).and_then(Value::as_str);
    let networks: Value = serde_json::from_str(said.context("no addresses")?)?;
    let networks = networks.as_object().context("networks by name")?;
    let is_primary = |network: &&Value| network.get("role").is_none_or(|role| role == "primary");
    let primary = networks.values().find(is_primary);
    let primary = primary.with_context(|| format!("no primary network: {networks:?}"))?;
    let all = primary.get("ip_addresses").and_then(Value::as_array);
    let all = all.context("no ip_addresses")?.iter();
    let address = |value: &Value| -> Result<PodAddress> {
        let own: IpNet = value.as_str().context("an address")?.parse()?;
        Ok(PodAddress {
            subnet: own.trunc(),
            address: own.addr(),
        })
    };
    let mut addresses = all.map(address).collect::<Result<Vec<_>>>()?;
    addresses.sort_by_key(|own| own.address);
    Ok(Pod { addresses })
}

/// What a kubelet reports: the address of the default network.
fn running(lab: &Lab, namespace: &str, name: &str, object: &Value) -> Result<()> {
    let said = object.pointer(ADDRESSES).and_then(Value::as_str);
    let networks: Value = serde_json::from_str(said.unwrap_or_default())?;
    let all = networks.pointer("/default/ip_addresses");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    let all = all.filter_map(|own| own.as_str()?.split('/').next());
    let all: Vec<Value> = all.map(|ip| json!({"ip": ip})).collect();
    let first = all.first().and_then(|own| own.get("ip"));
    let status = json!({"status": {"phase": "Running", "podIP": first, "podIPs": all,
        "conditions": [{"type": "Ready", "status": "True"}]}});
    kubectl(lab)
        .args([
            "patch",
            "pod",
            "-n",
            namespace,
            name,
            "--subresource=status",
        ])
        .args(["--type=merge", "-p", &status.to_string()])
        .run()
        .map(drop)
}
