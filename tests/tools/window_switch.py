"""A daemon with a number of ports, and the counted frames that its ports receive.

`window.py` uses this module.
"""

import json
import os
import socket
import subprocess
import threading
import time

from browser import Broken
from window_figures import ROWS_MAX

ADDRESS = "127.0.0.1:9475"
TOKEN = "0123456789abcdef0123456789abcdef"
START_MAX = 120  # Seconds until a daemon with many ports must answer, also without optimisation.
ANSWER_MAX = 30  # Seconds until a state must be reached.
FLOWS = 50  # Different flows of each kind of frame.
BFD_MANY = 250  # BFD sessions of the largest switch, more than the page has rows.

# Frames of a burst by the destination port: the number and the length. A frame to port 0 is not IP.
FRAMES = {1: (400, 100), 2: (300, 1000), 3: (200, 60), 0: (100, 64)}
SENT = sum(count for count, _ in FRAMES.values())
BYTES = sum(count * length for count, length in FRAMES.values())
NIC_FRAMES = 500

RULES = """\
table=0,priority=10,ip,in_port=1,actions=goto_table:1
table=1,priority=10,udp,tp_dst=1,actions={output}
table=1,priority=10,udp,tp_dst=2,actions=goto_table:7
table=1,priority=10,udp,tp_dst=3,actions=drop
table=1,priority=5,ip,nw_dst=192.0.2.0/24,actions=drop
table=7,priority=10,ip,nw_src=10.0.0.0/8,actions={output}
"""
NIC_RULES = """\
table=0,priority=10,ip,in_port=1,actions=goto_table:1
table=1,priority=10,udp,actions=output:2
"""

# The caches of a switch by its number of ports, and the levels that its packets must hit.
CACHES = {
    1: ('kind = "flows"\n', ["decided"]),
    30: ('kind = "gigaflow"\n', ["exact_hits", "gigaflow_hits", "upcalls"]),
}
CACHES_OTHERS = ("exact_insert_one_in = 10\n", ["exact_hits", "megaflow_hits", "upcalls"])


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    if done.returncode != 0:
        raise Broken(f"{' '.join(command)}: {done.stderr.strip()}{done.stdout.strip()}")
    return done.stdout


def veth(name, peer):
    run("ip", "link", "add", name, "type", "veth", "peer", "name", peer)
    for device in (name, peer):
        run("ip", "link", "set", device, "up")


def port(name, kind="null", more=""):
    return f'[[bridge.port]]\nname = "{name}"\ntype = "{kind}"\n{more}'


def configuration(number, folder):
    """Returns the configuration of a switch with this number of ports."""
    text = '[[bridge]]\nname = "br0"\nlocal = "none"\n' + port("p1", "af_packet")
    web = f'[http]\nlisten = "{ADDRESS}"\nwindow = true\n'
    caches = f"[caches]\n{CACHES.get(number, CACHES_OTHERS)[0]}"
    if number < 30:
        text += "".join(port(f"n{at}") for at in range(1, number))
        return f'{text}{web}token_file = "{folder}/token"\n{caches}'
    text = text.replace("local", 'controllers = ["tcp:127.0.0.1:1"]\nlocal')
    text += port("p2", "af_packet")
    text += "".join(port(name, "af_packet", "bfd = { min_tx_ms = 1000 }\n") for name in ("uplink1", "uplink2"))
    text += "".join(port(name) for name in ("bond-a1", "bond-a2", "bond-b1", "bond-b2", "probe"))
    text += port("uplink3", more="bfd = { min_tx_ms = 1000 }\n")
    text += '[[bridge.bond]]\nname = "bond-a"\nmembers = ["bond-a1", "bond-a2"]\nmode = "balance-slb"\n'
    text += '[[bridge.bond]]\nname = "bond-b"\nmembers = ["bond-b1", "bond-b2"]\nmode = "balance-tcp"\nlacp = "active"\n'
    text += '[[bridge.mirror]]\nname = "to-p2"\nselect_dst_port = ["p2"]\noutput_port = "probe"\nsnaplen = 64\n'
    text += '[[bridge.mirror]]\nname = "vlans"\nselect_all = true\nselect_vlan = [10, 20]\noutput_vlan = 99\n'
    text += '[[bridge]]\nname = "br1"\nlocal = "none"\n' + port("p3", "af_packet") + port("p4", "af_packet")
    for at in range(12, number):
        has_bfd = number > ROWS_MAX and at < 12 + BFD_MANY
        text += port(f"vm{at - 11}", more="bfd = { min_tx_ms = 5000 }\n" if has_bfd else "")
    nic = '[caches.gigaflow.offload]\nkind = "embedded"\nbridge = "br1"\nports = [1, 2]\n'
    return text + web + caches + nic


def frame(target, source, length):
    """Returns a frame with this length: UDP with these ports, or not IP if the destination port is 0."""
    start = bytes.fromhex("020000000002" + "020000000001")
    if target == 0:
        return (start + bytes.fromhex("88b5")).ljust(length, b"\0")
    size = length - 14
    header = bytes.fromhex("4500") + size.to_bytes(2, "big") + bytes.fromhex("00004000401100000a0000010a000002")
    udp = source.to_bytes(2, "big") + target.to_bytes(2, "big") + (size - 20).to_bytes(2, "big") + bytes(2)
    return (start + bytes.fromhex("0800") + header + udp).ljust(length, b"\0")


class Hosts:
    """The hosts behind the veth ports, which send the counted frames."""

    def __init__(self, has_nic):
        self.has_nic, self.bursts, self.sockets = has_nic, 0, {}
        for host in ("h1", "h3") if has_nic else ("h1",):
            self.sockets[host] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self.sockets[host].bind((host, 0))
        self.thread, self.rate = None, 0

    def burst(self):
        """Returns the counted frames with their hosts. The flows of each burst are new."""
        first = 1024 + FLOWS * self.bursts
        self.bursts += 1
        one = []
        for target, (count, length) in FRAMES.items():
            one += [("h1", frame(target, first + number % FLOWS, length)) for number in range(count)]
        if self.has_nic:
            one += [("h3", frame(4, first + number % FLOWS, 200)) for number in range(NIC_FRAMES)]
        # Frames of all kinds alternate.
        return [one[at * 7919 % len(one)] for at in range(len(one))]

    def slices(self, number):
        """Sends the frames of a burst, in this number of slices."""
        frames = self.burst()
        for at in range(number):
            for sent, (host, data) in enumerate(frames[at::number]):
                self.sockets[host].send(data)
                if sent % 16 == 15:
                    time.sleep(0.005)
            yield at

    def send_always(self, rate):
        """Sends frames at a rate, in a thread, until the rate is set to 0."""
        if self.thread is None:
            self.thread = threading.Thread(target=self.send_at_rate, daemon=True)
            self.rate = rate
            self.thread.start()
        self.rate = rate
        if rate == 0:
            self.thread.join()
            self.thread = None

    def send_at_rate(self):
        frames, at = self.burst(), 0
        while self.rate > 0:
            for host, data in frames[at : at + 16]:
                self.sockets[host].send(data)
            at = (at + 16) % len(frames)
            time.sleep(16 / max(self.rate, 1))

    def close(self):
        for own in self.sockets.values():
            own.close()


class Switch:
    """A daemon with a number of ports, and the hosts behind its veth ports."""

    def __init__(self, programs, folder, number):
        self.shuntd, self.shuntctl = programs
        self.folder = os.path.join(folder, f"{number}")
        self.run_dir, self.log = (os.path.join(self.folder, name) for name in ("run", "log"))
        self.number, self.has_nic, self.hosts = number, number >= 30, None
        os.makedirs(self.run_dir)
        veth("p1", "h1")
        if self.has_nic:
            for name, peer in (("p2", "h2"), ("p3", "h3"), ("p4", "h4"), ("uplink1", "uplink2")):
                veth(name, peer)
        for name, text in (("shunt.toml", configuration(number, self.folder)), ("token", TOKEN)):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)
            os.chmod(file.name, 0o600)

    def start(self):
        command = [self.shuntd, "--config", f"{self.folder}/shunt.toml", "--run-dir", self.run_dir]
        self.hosts = Hosts(self.has_nic)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + START_MAX
        while subprocess.run([self.shuntctl, "--run-dir", self.run_dir, "show"], capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise Broken(f"the daemon does not answer: {self.text()}")
            time.sleep(0.1)
        rules = {"br0": RULES.format(output="output:2" if self.has_nic else "in_port")}
        if self.has_nic:
            rules["br1"] = NIC_RULES
        for bridge, text in rules.items():
            target = f"unix:{self.run_dir}/{bridge}.mgmt"
            run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", target, "-", input=text)

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()[-4000:]

    def control(self, *words):
        return run(self.shuntctl, "--run-dir", self.run_dir, *words)

    def status(self):
        """Returns the values that `shuntctl` shows, in the form of an event."""
        words = {"bridges": "show", "caches": "caches", "drops": "drops", "evictions": "evict", "threads": "threads"}
        status = {name: json.loads(self.control(command, "--json")) for name, command in words.items()}
        tables = {}
        for line in self.control("metrics").splitlines():
            name, _, rest = line.partition("{")
            key = {"rules": "rules", "lookups_total": "lookups", "matches_total": "matches"}.get(name.removeprefix("shunt_table_"))
            if key and name.startswith("shunt_table_"):
                labels, _, value = rest.partition("} ")
                labels = dict(label.split("=") for label in labels.replace('"', "").split(","))
                place = labels["bridge"], int(labels["table"])
                tables.setdefault(place, {"rules": 0, "lookups": 0, "matches": 0})[key] = int(value)
        status["tables"] = [{"bridge": bridge, "table": table, **own} for (bridge, table), own in tables.items()]
        return status

    def end(self):
        self.process.terminate()
        code = self.process.wait(ANSWER_MAX)
        if code != 0 or "panicked" in self.text() or " ERROR " in self.text():
            raise Broken(f"the daemon ended with {code}: {self.text()}")
        self.hosts.close()
        for name in ("p1", "p2", "p3", "p4", "uplink1"):
            # A device that this page does not have cannot be deleted.
            subprocess.run(["ip", "link", "del", name], capture_output=True)

    def growth(self):
        """Returns the growth of counters by the frames of one burst."""
        out = "p2" if self.has_nic else "p1"
        forwarded = FRAMES[1][0] + FRAMES[2][0]
        grown = {
            "port br0 p1 rx_packets": SENT,
            "port br0 p1 rx_bytes": BYTES,
            "port br0 p1 rx_dropped": 0,
            "port br0 p1 forward_dropped": FRAMES[3][0] + FRAMES[0][0],
            f"port br0 {out} tx_packets": forwarded,
            f"port br0 {out} tx_bytes": sum(FRAMES[target][0] * FRAMES[target][1] for target in (1, 2)),
            f"port br0 {out} tx_dropped": 0,
            "table br0 0 lookups": SENT,
            "table br0 0 matches": SENT - FRAMES[0][0],
            "table br0 1 lookups": SENT - FRAMES[0][0],
            "table br0 1 matches": SENT - FRAMES[0][0],
            "table br0 7 lookups": FRAMES[2][0],
            "table br0 7 matches": FRAMES[2][0],
            "drop rule_without_output": FRAMES[3][0],
            "drop no_matching_rule": FRAMES[0][0],
        }
        if self.has_nic:
            grown |= {"mirror br0 to-p2": forwarded, "table br1 1 matches": NIC_FRAMES}
        return grown
