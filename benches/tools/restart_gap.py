#!/usr/bin/env python3
"""Measures lost and delayed UDP packets between two hosts while the switch restarts.

Prints a table of the packets that were lost in a restart, and of the longest wait of a packet, for Shunt
with and without a service manager that keeps descriptors, for Shunt when it is killed, and for Open
vSwitch with its userspace datapath. Open vSwitch restarts as `ovs-ctl restart` does: with
`flow-restore-wait`, and its rules are added again as a bundle.

Needs root, network namespaces, and the programs of Open vSwitch. The wait of a packet is the time from
sending to arrival; lost packets have no wait. With --shuntd, the tool measures another build.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "tools"))
from service_manager import ServiceManager  # noqa: E402

RATE = 1000  # Packets per second.
PAUSE = 2.5  # Seconds between two restarts: the state file is written within half a second.
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"

SENDER = """
import socket, struct, sys, time
rate, seconds = int(sys.argv[1]), float(sys.argv[2])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start = time.monotonic()
for number in range(int(rate * seconds)):
    time.sleep(max(0, start + number / rate - time.monotonic()))
    sender.sendto(struct.pack("!Qd", number, time.monotonic()), ("10.77.0.2", 9999))
"""

RECEIVER = """
import json, socket, struct
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
receiver.bind(("10.77.0.2", 9999))
print("ready", flush=True)
import time
packets = []
while True:
    receiver.settimeout(4 if packets else 30)
    try:
        number, sent = struct.unpack("!Qd", receiver.recv(2000))
    except TimeoutError:
        break
    packets.append((number, time.monotonic() - sent))
print(json.dumps(packets))
"""


def run(*words, check=True, **options):
    return subprocess.run(words, check=check, capture_output=True, text=True, **options)


class Hosts:
    """Two hosts, and the namespace of the switch between them."""

    def __init__(self):
        self.names = [f"gap-{os.getpid()}-{name}" for name in ("switch", "one", "two")]
        self.switch, *hosts = self.names
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for number, host in enumerate(hosts, 1):
            cable = ("type", "veth", "peer", "name", "eth0", "netns", host)
            run("ip", "-n", self.switch, "link", "add", f"p{number}", *cable)
            run("ip", "-n", self.switch, "link", "set", f"p{number}", "up")
            run("ip", "-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            run("ip", "-n", host, "link", "set", "eth0", "up")
            # The userspace datapath of Open vSwitch forwards packets with partial checksums.
            run("ip", "netns", "exec", host, "ethtool", "-K", "eth0", "tx", "off")

    def start(self, host, *words, **options):
        command = ("ip", "netns", "exec", self.names[host], *words)
        return subprocess.Popen(command, text=True, **options)

    def close(self):
        for name in self.names:
            run("ip", "netns", "del", name, check=False)


class Shunt:
    def __init__(self, arguments, hosts, folder, keeps, ending):
        self.folder, self.keeps, self.ending = folder, keeps, ending
        kind = arguments.port_type
        ports = "".join(f'[[bridge.port]]\nname = "p{n}"\nnumber = {n}\ntype = "{kind}"\n' for n in (1, 2))
        with open(f"{folder}/shunt.toml", "w") as file:
            file.write(f'[[bridge]]\nname = "br0"\n{ports}')
        command = ["ip", "netns", "exec", hosts.switch, arguments.shuntd, "--run-dir", folder]
        command += ["--config", f"{folder}/shunt.toml", "--state", f"{folder}/state.json"]
        self.manager = ServiceManager(command, report=lambda line: None, log=subprocess.DEVNULL)
        self.manager.wait_until_ready()

    def restart(self):
        self.manager.end(self.ending)
        if not self.keeps:
            for name in list(self.manager.store):
                os.close(self.manager.store.pop(name))
        self.manager.start()
        self.manager.wait_until_ready()
        self.manager.read_messages()

    def close(self):
        self.manager.end("TERM")


class OpenVSwitch:
    def __init__(self, arguments, hosts, folder):
        self.folder, self.hosts = folder, hosts
        self.environment = dict(os.environ, OVS_RUNDIR=folder, OVS_LOGDIR=folder, OVS_DBDIR=folder)
        run("ovsdb-tool", "create", f"{folder}/conf.db", SCHEMA)
        options = [f"--remote=punix:{folder}/db.sock", f"--unixctl={folder}/db.ctl", f"--log-file={folder}/db.log"]
        self.database = self.spawn("ovsdb-server", f"{folder}/conf.db", *options)
        while not os.path.exists(f"{folder}/db.sock"):
            time.sleep(0.01)
        self.vsctl("--no-wait", "init")
        bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure"]
        ports = [word for n in (1, 2) for word in ("--", "add-port", "br0", f"p{n}", "--", "set", "interface", f"p{n}", f"ofport_request={n}")]
        self.vsctl("--no-wait", *bridge, *ports)
        self.start()

    def spawn(self, *words):
        return self.hosts.start(0, *words, env=self.environment, stderr=subprocess.DEVNULL)

    def vsctl(self, *words):
        run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", *words, env=self.environment)

    def start(self):
        folder = self.folder
        options = [f"--pidfile={folder}/vs.pid", f"--unixctl={folder}/vs.ctl", f"--log-file={folder}/vs.log"]
        self.daemon = self.spawn("ovs-vswitchd", f"unix:{folder}/db.sock", *options)
        while not os.path.exists(f"{folder}/br0.mgmt"):
            time.sleep(0.002)

    def restart(self):
        # The steps of ovs-ctl: save, exit, start with flow-restore-wait, restore, forward.
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
        run("ovs-appctl", "-t", f"{self.folder}/vs.ctl", "exit", env=self.environment)
        self.daemon.wait()
        self.start()
        add_rules(self.folder, "replace-flows", "-O", "OpenFlow14", "--bundle")
        self.vsctl("--no-wait", "remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")
        time.sleep(1)

    def close(self):
        for process in (self.daemon, self.database):
            process.kill()
            process.wait()


def add_rules(folder, request, *options):
    """Adds the rules. If the switch has just started, repeats the attempt."""
    command = ["ovs-ofctl", *options, request, f"unix:{folder}/br0.mgmt", f"{folder}/rules"]
    for _ in range(500):
        if run(*command, check=False).returncode == 0:
            return
        time.sleep(0.01)
    raise SystemExit(f"{' '.join(command)}: failed")


def rules(count):
    for number in range(count):
        source = f"10.{number // 250}.{number % 250}.0/24"
        yield f"priority=100,tcp,nw_src={source},nw_dst=10.99.0.1,tp_dst={number},actions=drop"
    yield "priority=1,in_port=1,actions=output:2"
    yield "priority=1,in_port=2,actions=output:1"


def measure(arguments, make):
    """Returns the packets that were lost, and the longest wait in milliseconds."""
    hosts, folder = Hosts(), tempfile.mkdtemp()
    switch = None
    try:
        switch = make(hosts, folder)
        with open(f"{folder}/rules", "w") as file:
            file.write("\n".join(rules(arguments.rules)) + "\n")
        add_rules(folder, "add-flows", "-O", "OpenFlow13")
        receiver = hosts.start(2, "python3", "-c", RECEIVER, stdout=subprocess.PIPE)
        receiver.stdout.readline()
        seconds = PAUSE * (arguments.times + 2)
        sender = hosts.start(1, "python3", "-c", SENDER, str(RATE), str(seconds))
        for _ in range(arguments.times):
            time.sleep(PAUSE)
            switch.restart()
        sender.wait()
        packets = json.loads(receiver.communicate()[0])
        first = min(number for number, _ in packets)
        lost = int(RATE * seconds) - first - len({number for number, _ in packets})
        return lost / arguments.times, 1000 * max(wait for _, wait in packets)
    finally:
        if switch:
            switch.close()
        hosts.close()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shuntd", default=os.path.join(ROOT, "target", "release", "shuntd"))
    parser.add_argument("--times", type=int, default=5, help="restarts of each switch")
    parser.add_argument("--rules", type=int, default=1000)
    parser.add_argument("--port-type", choices=("af_packet", "af_xdp"), default="af_packet", help="type of the ports of Shunt")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    switches = [
        ("Shunt, queues kept", lambda *own: Shunt(arguments, *own, True, "TERM")),
        ("Shunt, queues kept, killed", lambda *own: Shunt(arguments, *own, True, "KILL")),
        ("Shunt, queues not kept", lambda *own: Shunt(arguments, *own, False, "TERM")),
        ("Open vSwitch 3.1, `netdev`", lambda *own: OpenVSwitch(arguments, *own)),
    ]
    print("| switch | packets lost in a restart | longest wait of a packet |\n| --- | --- | --- |")
    for name, make in switches:
        lost, wait = measure(arguments, make)
        print(f"| {name} | {lost:.0f} | {wait:.0f} ms |", flush=True)


if __name__ == "__main__":
    main()
