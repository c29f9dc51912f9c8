#!/usr/bin/env python3
"""Records the seeds of the stored inputs: what a real ovsdb-server, a real kernel and a real FRR say.

Run as root from the repository's top: fuzz/record.py. Writes fuzz/corpus/TARGET/real-*.
Uuids are random and numbers of the kernel differ, so a second run writes other bytes.
"""
import ctypes, json, os, pathlib, socket, struct, subprocess, tempfile, time

CORPUS = pathlib.Path(__file__).parent / "corpus"
SCHEMA = "/usr/share/ovn/ovn-nb.ovsschema"


def store(target, name, data):
    (CORPUS / target / f"real-{name}").write_bytes(data)


class Peer:
    """A connection to ovsdb-server that keeps what was said."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.heard = b""

    def ask(self, ident, method, *params):
        self.socket.sendall(json.dumps({"method": method, "params": params, "id": ident}).encode())

    def listen(self, seconds=0.3):
        """The whole messages that come until it is quiet for so long."""
        self.socket.settimeout(seconds)
        frames, text = [], ""
        try:
            while True:
                part = self.socket.recv(1 << 20)
                if not part:
                    break
                self.heard += part
                text += part.decode()
        except TimeoutError:
            pass
        decoder, at = json.JSONDecoder(), 0
        while at < len(text):
            _, end = decoder.raw_decode(text, at)
            frames.append(text[at:end])
            at = end
        return frames


def ovsdb():
    with tempfile.TemporaryDirectory() as folder:
        db, path = f"{folder}/db", f"{folder}/sock"
        subprocess.run(["ovsdb-tool", "create", db, SCHEMA], check=True)
        server = subprocess.Popen(
            ["ovsdb-server", "-vconsole:off", "-vsyslog:off", f"--remote=punix:{path}", f"--unixctl={folder}/ctl", db])
        try:
            while not os.path.exists(path):
                time.sleep(0.05)
            conversation(Peer(path), Peer(path))
        finally:
            server.kill()
            server.wait()


def conversation(follower, writer):
    nb = "OVN_Northbound"
    tables = {
        "Logical_Router": [{"columns": ["name", "static_routes", "external_ids", "options", "enabled"]}],
        "Logical_Router_Static_Route": [{"columns": ["ip_prefix", "nexthop", "output_port", "policy", "external_ids"]}],
    }
    database = {"Database": [{"columns": ["name", "leader", "connected"]}]}
    router = lambda *mutations: {
        "op": "mutate", "table": "Logical_Router", "where": [["name", "==", "gr"]], "mutations": list(mutations)}
    update = lambda row: {"op": "update", "table": "Logical_Router", "where": [["name", "==", "gr"]], "row": row}
    route = lambda prefix, name: {
        "op": "insert", "table": "Logical_Router_Static_Route", "uuid-name": name,
        "row": {"ip_prefix": prefix, "nexthop": "192.0.2.1", "external_ids": ["map", [["owner", "test"]]]}}
    changes = [
        [route("10.0.0.0/8", "a"), route("fd00::/8", "b"),
         router(["static_routes", "insert", ["set", [["named-uuid", "a"], ["named-uuid", "b"]]]])],
        [update({"enabled": True, "external_ids": ["map", [["a", "1"], ["b", "2"]]]})],
        [update({"external_ids": ["map", [["b", "3"], ["c", "\u00e9\n\"\\"]]]})],
        [{"op": "update", "table": "Logical_Router_Static_Route", "where": [], "row": {"output_port": "rtoe-gr"}}],
        [update({"static_routes": ["set", []], "enabled": ["set", []]})],
        [{"op": "delete", "table": "Logical_Router", "where": []}],
    ]
    insert = {"op": "insert", "table": "Logical_Router", "row": {"name": "gr", "options": ["map", [["chassis", "n1"]]]}}
    writer.ask(0, "transact", nb, insert)
    replies = writer.listen()

    follower.ask(0, "set_db_change_aware", True)
    follower.ask(1, "monitor_cond", "_Server", "server", database)
    follower.ask(2, "monitor_cond", nb, "data", tables)
    follower.ask(3, "no_such_method")
    frames = follower.listen()
    for number, change in enumerate(changes):
        writer.ask(number + 1, "transact", nb, *change)
        replies += writer.listen()
        frames += follower.listen()
    refused = [
        [insert, {"op": "abort"}],
        [{"op": "insert", "table": "Logical_Router", "row": {"nought": 1}}],
        [{"op": "wait", "timeout": 0, "table": "Logical_Router", "where": [], "columns": ["name"], "until": "==",
          "rows": [{"name": "x"}]}],
        [{"op": "select", "table": "NB_Global", "where": []}],
        [insert, {"op": "select", "table": "Logical_Router", "where": [], "columns": ["_uuid", "name", "options"]}],
    ]
    for number, operations in enumerate(refused):
        writer.ask(100 + number, "transact", nb, *operations)
        replies += writer.listen()

    whole = follower.heard
    store("frames", "follower", bytes([255, 1]) + whole[:2000])
    store("frames", "spaced", bytes([255, 7]) + b"\n ".join(f.encode() for f in frames[:3]))
    store("session", "follower", bytes([1]) + whole[:3500])
    for number, frame in enumerate(frames + replies):
        store("session", f"frame-{number:02}", bytes([number]) + frame.encode())
    store("session", "probe", b'\x03{"id":"echo","method":"echo","params":[]}{"id":"probe","result":[],"error":null}')

    updates = []
    for frame in map(json.loads, frames):
        if frame.get("method") == "update2":
            updates.append(frame["params"][1])
        elif frame.get("id") in (1, 2):
            updates.append(frame["result"])
    lines = [json.dumps(u, separators=(",", ":")) for u in updates]
    store("replica", "session", "\n".join(lines).encode())
    for number, line in enumerate(lines):
        store("replica", f"update-{number:02}", line.encode())
    for number, reply in enumerate(map(json.loads, replies)):
        store("values", f"reply-{number:02}", json.dumps(reply["result"], separators=(",", ":")).encode())
    types, values = set(), set()
    for table in json.load(open(SCHEMA))["tables"].values():
        for column in table["columns"].values():
            types.add(json.dumps(column["type"], separators=(",", ":")))
    for update in updates:
        for rows in update.values():
            for row in rows.values():
                for part in filter(None, row.values()):
                    store("values", f"row-{len(values):02}", json.dumps(part, separators=(",", ":")).encode())
                    values.update(json.dumps(v, separators=(",", ":")) for v in part.values())
    sample = ['"x"', "1", "true", '["set",[]]', '["map",[["a","b"]]]', '["set",["to-lport","from-lport"]]']
    for number, kind in enumerate(sorted(types)[:24]):
        store("values", f"typed-{number:02}", f"{kind}\n{sample[number % len(sample)]}".encode())
    for number, value in enumerate(sorted(values)[:24]):
        store("values", f"value-{number:02}", value.encode())


def kernel():
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(0x40000000) == 0, "a network namespace needs root"
    commands = """link set lo up
link add va type veth peer name vb
link add vc type veth peer name vd
addr add 10.0.0.1/24 dev va
addr add 10.0.1.1/24 peer 10.0.1.2 dev vb
addr add fd00::1/64 dev va nodad
link set va up
link set vb up
link set vc up
link set vd up
route add 10.1.0.0/16 proto bgp metric 20 nexthop via 10.0.0.2 dev va weight 1 nexthop via 10.0.0.3 dev va weight 5
route add 10.2.0.0/16 proto bgp via inet6 fd00::2 dev va
route add blackhole 10.3.0.0/16 proto bgp
route add unreachable 10.4.0.0/16
route add 10.5.0.0/16 proto bgp via 10.0.0.9 table 1007 metric 4294967295
-6 route add fd01::/64 proto bgp nexthop via fd00::2 dev va nexthop via fd00::3 dev va
-6 route add default proto bgp via fd00::2 dev va metric 20
nexthop add id 1 via 10.0.0.2 dev va
nexthop add id 2 via fd00::2 dev va
nexthop add id 3 blackhole
nexthop add id 4 dev vc
nexthop add id 5 via 10.0.0.3 dev va
nexthop add id 10 group 1/5,3
nexthop add id 11 group 1/5 type resilient buckets 8
route add 10.6.0.0/16 proto bgp nhid 1
route add 10.7.0.0/16 proto bgp nhid 10
route add 10.8.0.0/16 proto bgp nhid 2
route add 10.9.0.0/16 proto bgp nhid 3
-6 route add fd02::/64 proto bgp nhid 2
rule add from 10.9.0.0/16 lookup 1007 priority 100
-6 rule add to fd02::/64 lookup 1007
""".splitlines()
    watcher = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    watcher.bind((0, 0))
    for group in (1, 5, 7, 8, 9, 11, 19, 32):
        watcher.setsockopt(270, 1, group)
    for command in commands:
        done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
        if done.returncode:
            print("not taken by this kernel:", command, done.stderr.strip())
    watcher.settimeout(0.3)
    events = []
    try:
        while True:
            events.append(watcher.recv(1 << 16))
    except TimeoutError:
        pass
    for number, event in enumerate(dict.fromkeys(events)):
        store("netlink", f"event-{number:02}", bytes([number, 0]) + event)
    joined = b""
    for event in events[-12:]:
        joined += event + bytes(-len(event) % 4)
    store("netlink", "events", b"\x21\x00" + joined)

    requests = {
        "routes": (26, bytes([2] + [0] * 11)), "routes6": (26, bytes([10] + [0] * 11)),
        "nexthops": (106, bytes(8)), "links": (18, bytes(16)), "addresses": (22, bytes(8)),
        "rules": (34, bytes([2] + [0] * 11)), "rules6": (34, bytes([10] + [0] * 11)),
        "family99": (26, bytes([99] + [0] * 11)), "no-table": (26, bytes([2, 0, 0, 0, 77] + [0] * 7)),
    }
    for name, (kind, body) in requests.items():
        asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        asking.bind((0, 0))
        asking.setsockopt(270, 12, 1)
        asking.settimeout(1)
        asking.send(struct.pack("=IHHII", 16 + len(body), kind, 0x301, 1, 0) + body)
        for number in range(10):
            try:
                answer = asking.recv(1 << 18)
            except TimeoutError:
                break
            store("netlink", f"{name}-{number}", bytes([number * 40 + 20, 0]) + answer[:8000])
            if struct.unpack_from("=H", answer, 4)[0] in (2, 3):
                break


FRR_STEPS = [
    "router bgp 64512", "neighbor 172.31.9.2 remote-as 64512", "neighbor 172.31.9.2 bfd",
    "neighbor fd09::2 remote-as external", "neighbor f1 interface remote-as 64513",
    "address-family ipv4 unicast", "network 10.1.0.0/24",
]
BAD = "router bgp 64512\n neighbour 1.2.3.4\n neighbor 10.0.0.9 activate\n"


def frr():
    """FRR's answers, in a network namespace of its own, the one that `kernel` made."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        subprocess.run(["chown", "frr:frr", folder], check=True)
        for words in ("link set lo up", "link add f1 type veth peer name f2", "addr add 172.31.9.1/24 dev f1",
                      "addr add fd09::1/64 dev f1", "link set f1 up", "link set f2 up"):
            subprocess.run(["ip", *words.split()], check=True)
        daemons = []
        for daemon, more in (("zebra", []), ("bfdd", ["--bfdctl", f"{folder}/bfdd.sock"]), ("bgpd", ["-p", "0"])):
            daemons.append(subprocess.Popen(
                [f"/usr/lib/frr/{daemon}", "-z", f"{folder}/z", "--vty_socket", folder, "-i", f"{folder}/{daemon}.pid",
                 "-A", "127.0.0.1", *more]))
            time.sleep(1)

        def shell(*words):
            done = subprocess.run(["vtysh", "--vty_socket", folder, *words], capture_output=True)
            return done.stdout + done.stderr

        def said(command):
            return shell("-c", command)

        store("answers", "no-neighbors", b"\0" + said("show bgp vrf all neighbors json"))
        shell(*[word for step in ["conf", *FRR_STEPS] for word in ("-c", step)])
        time.sleep(1)
        store("answers", "neighbors", b"\0" + said("show bgp vrf all neighbors json"))
        bad = pathlib.Path(folder) / "bad.conf"
        bad.write_text(BAD)
        store("answers", "check", b"\1" + shell("-C", "-f", str(bad)))
        (pathlib.Path(folder) / "vtysh.conf").write_text("")
        before = said("show running-config")
        reload = subprocess.run(
            ["python3", "/usr/lib/frr/frr-reload.py", "--reload", "--overwrite", "--stdout", "--vty_socket", folder,
             "--confdir", folder, "--rundir", folder, str(bad)], capture_output=True)
        store("answers", "reload", b"\1" + reload.stdout + reload.stderr)
        store("answers", "running", b"\2" + before + b"\0" + said("show running-config"))
        for daemon in daemons:
            daemon.terminate()
            daemon.wait()


for folder in ("frames", "values", "replica", "session", "netlink", "answers"):
    (CORPUS / folder).mkdir(parents=True, exist_ok=True)
ovsdb()
kernel()
frr()
