#!/usr/bin/env python3
"""Stands in for frr-k8s's controller and its status exporter: speaks their contract with the world, and knows nothing of
noverlay.

In: FRRConfigurations that select this node; FRR's sessions, by the vty sockets in FRR_VTY_SOCKET. Out: FRR_CONFIG_FILE,
SIGHUP for the process whose number stands in FRR_RELOADER_PID_FILE, FRRNodeState with what the reloader left at the fixed
place, a BGPSessionState for each session. Like the real one it keeps its status files at fixed paths: two of them in one
mount namespace would disturb each other, and this one then ends. Unlike the real ones it looks at what the reloader left
with each turn instead of every 30 s, and at the sessions every second instead of every two minutes: nobody is to wait.
"""

import argparse, ipaddress, json, os, signal, ssl, subprocess, sys, time, urllib.error, urllib.request

FIXED = "/etc/frr_reloader"
GROUP = "/apis/frrk8s.metallb.io/v1beta1"

arguments = argparse.ArgumentParser()
for flag in ("node-name", "namespace", "metrics-bind-address", "health-probe-bind-address", "bgp-debounce-timeout"):
    arguments.add_argument("--" + flag, required=True)
options = arguments.parse_args()
node = options.node_name
config_file, pid_file = os.environ["FRR_CONFIG_FILE"], os.environ["FRR_RELOADER_PID_FILE"]

kubeconfig = json.load(open(os.environ["KUBECONFIG"]))
cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
tls.load_cert_chain(user["client-certificate"], user["client-key"])


def api(path, method="GET", body=None):
    request = urllib.request.Request(cluster["server"] + path, method=method)
    request.add_header("Content-Type", "application/json")
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(request, data, timeout=5, context=tls) as answer:
        return json.load(answer)


SESSIONS = f"{GROUP}/namespaces/{options.namespace}/bgpsessionstates"


def claim(path):
    """A place that the machine has once and each instance needs for itself."""
    if os.path.exists(path) and open(path).read() != node:
        sys.exit(f"{path} belongs to the instance of node {open(path).read()}")
    open(path, "w").write(node)


def holds(expression, labels):
    value, values = labels.get(expression["key"]), expression.get("values") or []
    return {"In": value is not None and value in values, "NotIn": value is None or value not in values,
            "Exists": value is not None, "DoesNotExist": value is None}[expression["operator"]]


def selected(labels):
    for item in api(f"{GROUP}/namespaces/{options.namespace}/frrconfigurations")["items"]:
        selector = item["spec"].get("nodeSelector") or {}
        wanted = selector.get("matchLabels") or {}
        rest = selector.get("matchExpressions") or []
        if all(labels.get(k) == v for k, v in wanted.items()) and all(holds(e, labels) for e in rest):
            yield item["spec"]


def seconds(text):
    return int(text.rstrip("s"))


def render(specs):
    """One router of the default VRF, IPv4 neighbors: what the lab's fabric has; later objects only add to toAdvertise."""
    peers, prefixes, profiles, raws, asn = {}, [], {}, [], None
    for spec in specs:
        raw = spec.get("raw") or {}
        raws.append((raw.get("priority", 0), raw.get("rawConfig", "")))
        for profile in spec.get("bgp", {}).get("bfdProfiles", []):
            profiles[profile["name"]] = profile
        for router in spec.get("bgp", {}).get("routers", []):
            asn = router["asn"]
            prefixes += router.get("prefixes", [])
            for peer in router.get("neighbors", []):
                known = peers.setdefault(peer["address"], dict(peer, out=[], into=[]))
                known["out"] += peer.get("toAdvertise", {}).get("allowed", {}).get("prefixes", [])
                known["into"] += peer.get("toReceive", {}).get("allowed", {}).get("prefixes", [])
    lines = ["log stdout informational", f"hostname {node}"]
    for a, peer in sorted(peers.items()):
        outs = [f"ip prefix-list {a}-out seq {n} permit {p}" for n, p in enumerate(sorted(set(peer["out"])), 1)]
        ins = [f"ip prefix-list {a}-in seq {n} permit {p['prefix']} ge {p['ge']} le {p['le']}" for n, p in enumerate(peer["into"], 1)]
        lines += outs or [f"ip prefix-list {a}-out seq 1 deny any"]
        lines += ins or [f"ip prefix-list {a}-in seq 1 deny any"]
        for way in ("out", "in"):
            lines += [f"route-map {a}-{way} permit 1", f" match ip address prefix-list {a}-{way}", "exit"]
    if asn is not None:
        lines += [f"router bgp {asn}", " no bgp ebgp-requires-policy", " no bgp network import-check",
                  " no bgp default ipv4-unicast", " bgp graceful-restart preserve-fw-state"]
        for a, peer in sorted(peers.items()):
            lines.append(f" neighbor {a} remote-as {peer['asn']}")
            if peer.get("holdTime"):
                lines.append(f" neighbor {a} timers {seconds(peer['keepaliveTime'])} {seconds(peer['holdTime'])}")
            if peer.get("connectTime"):
                lines.append(f" neighbor {a} timers connect {seconds(peer['connectTime'])}")
            if peer.get("enableGracefulRestart"):
                lines.append(f" neighbor {a} graceful-restart")
            if peer.get("bfdProfile"):
                lines += [f" neighbor {a} bfd", f" neighbor {a} bfd profile {peer['bfdProfile']}"]
        lines.append(" address-family ipv4 unicast")
        lines += [f"  network {p}" for p in sorted(set(prefixes))]
        for a in sorted(peers):
            lines += [f"  neighbor {a} activate", f"  neighbor {a} route-map {a}-in in", f"  neighbor {a} route-map {a}-out out"]
        lines += [" exit-address-family", "exit"]
    if profiles:
        lines.append("bfd")
        for name, profile in sorted(profiles.items()):
            lines.append(f" profile {name}")
            for key, word in (("receiveInterval", "receive-interval"), ("transmitInterval", "transmit-interval"), ("detectMultiplier", "detect-multiplier")):
                if profile.get(key):
                    lines.append(f"  {word} {profile[key]}")
            lines.append(" exit")
        lines.append("exit")
    return "\n".join(lines) + "\n" + "".join(text for _, text in sorted(raws))


def read(name):
    try:
        return open(f"{FIXED}/{name}").read()
    except OSError:
        return ""


def report(result):
    path = f"{GROUP}/frrnodestates/{node}"
    try:
        state = api(path)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        state = api(f"{GROUP}/frrnodestates", "POST", {"apiVersion": GROUP[6:], "kind": "FRRNodeState", "metadata": {"name": node}, "spec": {}})
    status = {"lastConversionResult": "success", "lastReloadResult": result, "runningConfig": read("running-config")}
    if state.get("status") != status:
        state["status"] = status
        api(path + "/status", "PUT", state)


def label(peer):
    """An address as a label: IPv6 whole, with dashes."""
    address = ipaddress.ip_address(peer)
    return peer if address.version == 4 else address.exploded.replace(":", "-")


def sessions():
    """What FRR says of each of its sessions, by peer and VRF ("" is the default one)."""
    words = ["vtysh", "--vty_socket", os.environ["FRR_VTY_SOCKET"], "-c", "show bgp vrf all neighbors json"]
    shown = subprocess.run(words, capture_output=True, timeout=5, check=True).stdout
    for vrf, peers in json.loads(shown or b"{}").items():
        vrf = "" if vrf == "default" else vrf
        for peer, seen in peers.items():
            if isinstance(seen, dict) and "bgpState" in seen:
                bfd = seen.get("peerBfdInfo", {}).get("status", "N/A")
                yield (label(peer), vrf), {"node": node, "peer": label(peer), "vrf": vrf, "bgpStatus": seen["bgpState"], "bfdStatus": bfd}


def export():
    """One object for each session, under a name that the server makes."""
    stands = {}
    for item in api(f"{SESSIONS}?labelSelector=frrk8s.metallb.io/node={node}")["items"]:
        labels = item["metadata"]["labels"]
        stands[labels["frrk8s.metallb.io/peer"], labels["frrk8s.metallb.io/vrf"]] = item
    wanted = dict(sessions())
    for key in stands.keys() - wanted.keys():
        api(f"{SESSIONS}/{stands[key]['metadata']['name']}", "DELETE")
    for key, status in wanted.items():
        item = stands.get(key)
        if item is None:
            labels = {"frrk8s.metallb.io/node": node, "frrk8s.metallb.io/peer": key[0], "frrk8s.metallb.io/vrf": key[1]}
            metadata = {"generateName": f"{node}-", "labels": labels}
            item = api(SESSIONS, "POST", {"apiVersion": GROUP[6:], "kind": "BGPSessionState", "metadata": metadata, "spec": {}})
        if item.get("status") != status:
            item["status"] = status
            api(f"{SESSIONS}/{item['metadata']['name']}/status", "PUT", item)


def main():
    claim("/tmp/frr-k8s-instance")
    claim(f"{FIXED}/instance")
    loaded, judged, exported = None, "", 0.0
    while True:
        time.sleep(int(options.bgp_debounce_timeout) / 1000)
        try:
            text = render(list(selected(api(f"/api/v1/nodes/{node}")["metadata"]["labels"])))
            if text != loaded:
                open(config_file, "w").write(text)
                os.kill(int(open(pid_file).read()), signal.SIGHUP)
                loaded = text
            status = read(".status")
            if status != judged and status.split()[1:]:
                judged = status
                good = status.split()[1] == "success"
                report("success" if good else read("last-error"))
                if not good:
                    loaded = None
            if time.monotonic() - exported >= 1:
                export()
                exported = time.monotonic()
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            print(f"{error!r}, trying again", file=sys.stderr, flush=True)


main()
