#!/usr/bin/env python3
"""Adds and deletes everything that a daemon keeps, and checks that its memory stays flat.

Usage: churn.py SHUNTD SHUNTCTL [--minutes N] [--seed N] [--csv FILE] [--keep]

Needs root to create namespaces: the tool starts itself again in new namespaces with `unshare`. Two daemons
run at the same time, because a state file and a database exclude each other:

- `state` keeps its bridges in a state file, which `shuntctl` changes;
- `database` has the embedded OVSDB server with its log, which `ovs-vsctl` changes.

Each daemon forwards frames of new flows between two veth ports, in both directions, all the time of a round.
Meanwhile the round adds, uses and deletes:

- TAP ports and veth ports, a bond, a mirror, and a bridge with ports;
- rules by bundles and by single flow-mods, rules that packets learn, groups and meters;
- OpenFlow, OVSDB and HTTP connections: whole ones, half of a message, clients that do not read, and resets.

At the end of a round, the round has deleted all of this, the learned addresses, and the cache entries. This
is a quiescent point. The tool checks:

- The parts of `memory/show` differ from VmRSS by at most 10 %, every two seconds and at each quiescent point.
- The median VmRSS at quiescent points grows from the second quarter of the rounds to the last quarter by at
  most 5 %, or by 1 MiB if that is more. The first quarter is the warm-up. A run of less than 200 rounds and
  less than 30 minutes is too short for this check.
- Descriptors and threads at quiescent points are equal. Threads of the pool of the runtime end when they are
  idle for ten seconds, so the tool compares these only at the end.
- Frames are counted: each sent frame was received by its port, and was sent by the other port or counted as
  dropped. The device behind the other port has received as many frames as that port has sent.
- The log has no error and no panic, and the daemon ends by SIGTERM with the code 0.

The tool prints a line for each round, and at the end the memory by quarter and use. `--csv` writes the samples.
"""

import argparse
import csv
import os
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from churn_switch import ANSWER_MAX, BASE_RULES, ECHO_TYPE, Broken, Switch, received, run, veth

SAMPLE_INTERVAL = 2.0  # Seconds between two samples.
GROWTH_MAX, GROWTH_KB = 0.05, 1024  # The largest growth between the second and the last quarter.
ROUNDS_MIN, MINUTES_MIN = 200, 30  # Runs with less of both are all warm-up: caches and allocator still grow.
BURST, PAUSE = 8, 0.004  # Frames of a direction, and the seconds after them.
BACKLOG = 2048  # Frames that may be under way. More only fill the queues of a daemon that gets little CPU time.


class Traffic(threading.Thread):
    """Sends frames of new flows between the ports of a switch, in both directions, until it is stopped."""

    def __init__(self, switch, seed):
        super().__init__(daemon=True)
        self.switch, self.choose = switch, random.Random(seed)
        self.ending = threading.Event()
        self.arrived = self.since = 0
        self.dropped = sum(switch.sent) - sum(received(switch.hosts))
        self.error = None

    def frame(self, side):
        """Returns a frame of a random flow. Each side has its own MAC addresses, so no address moves.

        One frame of 32 has a random address: more would be beyond the rate at which the switch learns.
        """
        number = self.choose.getrandbits(4 if self.choose.getrandbits(5) else 14)
        ethernet = struct.pack("!BBIBBIH", 2, 2 - side, self.choose.getrandbits(4), 2, 1 + side, number, 0x0800)
        addresses = struct.pack("!II", *(0x0A000000 | self.choose.getrandbits(20) for _ in range(2)))
        protocol = self.choose.choice((6, 17))
        header = struct.pack("!BBHHHBBH", 0x45, 0, 46, number, 0, 64, protocol, 0) + addresses
        ports = struct.pack("!HH", self.choose.getrandbits(16), self.choose.getrandbits(10))
        return ethernet + header + ports + bytes([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2]) + bytes(12)

    def run(self):
        try:
            with host_socket(self.switch.hosts[0]) as first, host_socket(self.switch.hosts[1]) as second:
                while not self.ending.wait(PAUSE):
                    if self.is_behind():
                        continue
                    for side, host in enumerate((first, second)):
                        for _ in range(BURST):
                            host.send(self.frame(side))
                            self.switch.sent[side] += 1
        except OSError as error:
            self.error = error

    def is_behind(self):
        """Returns whether too many frames are under way. Those that do not arrive for a second were dropped."""
        arrived, now = sum(received(self.switch.hosts)), time.monotonic()
        if arrived != self.arrived:
            self.arrived, self.since = arrived, now
        under_way = sum(self.switch.sent) - arrived - self.dropped
        if under_way > BACKLOG and now - self.since > 1:
            self.dropped += under_way
        return under_way > BACKLOG

    def stop(self):
        self.ending.set()
        self.join()
        if self.error:
            raise Broken(f"frames cannot be sent: {self.error}")


def host_socket(device):
    """Returns a socket that only sends: protocol 0 receives nothing."""
    host = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    host.bind((device, 0))
    return host


def random_rules(choose):
    """Returns rules with several masks. Each rule passes its packets on to table 1 once."""
    rules = [
        "priority=900,udp,tp_dst=0/0xfff0,actions=learn(table=2,priority=10,hard_timeout=3,limit=500,"
        "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:1->NXM_NX_REG1[]),resubmit(,2),resubmit(,1)",
        "priority=890,udp,tp_dst=0x40/0xffe0,actions=controller(max_len=64),resubmit(,1)",
        "priority=880,udp,tp_dst=0x80/0xff80,actions=group:1",
        "priority=870,tcp,tp_dst=0x80/0xff80,actions=group:2",
        "priority=860,tcp,tp_dst=0x100/0xff00,actions=meter:1,resubmit(,1)",
    ]
    for number in range(200):
        address = f"10.{choose.randrange(16)}.{choose.randrange(256)}.{choose.randrange(256)}"
        field = choose.choice(("nw_src", "nw_dst"))
        match = f"{choose.choice(('tcp', 'udp'))},{field}={address}/{choose.choice((12, 16, 20, 24, 28))}"
        actions = f"load:{number}->NXM_NX_REG0[],resubmit(,1)"
        rules.append(f"cookie={number:#x},priority={100 + number},{match},actions={actions}")
    return rules


def connections(switch, choose):
    """Opens connections of all kinds. Some never end their first message, and some do not read."""
    hello, features = bytes.fromhex("0400000800000001"), bytes.fromhex("0405000800000002")
    monitor = '{"method":"monitor","id":1,"params":["Open_vSwitch",1,{"Interface":{},"Port":{},"Bridge":{}}]}'
    request = b"GET /metrics HTTP/1.1\r\nHost: switch\r\n\r\n"
    openflow, http = ("127.0.0.1", switch.openflow), ("127.0.0.1", switch.http)
    kinds = [(openflow, hello + features), (openflow, hello[:3]), (openflow, hello + features[:5])]
    kinds += [(http, request), (http, request[:9]), (http, request * 20)]
    if switch.has_database:
        for address in (switch.database, ("127.0.0.1", switch.manager)):
            kinds += [(address, monitor.encode()), (address, monitor[:30].encode())]
    opened = []
    for address, message in kinds * 2 + [choose.choice(kinds) for _ in range(8)]:
        client = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        opened.append(client)
        client.settimeout(ANSWER_MAX)
        client.connect(address)
        client.sendall(message)
        if len(message) > 50 and choose.random() < 0.5:
            client.recv(4096)
    return opened


def disconnect(clients, choose):
    """Closes connections in a random order. Half of the connections are reset."""
    choose.shuffle(clients)
    for client in clients:
        if choose.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


def echo_frames(device):
    with host_socket(device) as host:
        for number in range(200):
            host.send(struct.pack("!HIHIH", 0x0203, number, 0x0203, number, ECHO_TYPE) + bytes(46))


def objects_of_state(switch):
    """Adds and deletes ports, a bond, a mirror and a bridge with shuntctl."""
    control, bridge = switch.control, switch.bridge
    control("add-bond", bridge, "bond0", "members=t1,t2")
    for name in ("t1", "t2", "t3"):
        control("add-port", bridge, name, "type=tap")
    control("add-mirror", bridge, "m1", f"select_src_port={switch.ports[0]}", "output_port=t3")
    control("add-br", "br8")
    control("add-port", "br8", "n1", "type=patch", "peer=n2")
    control("add-port", "br8", "t4", "type=tap", "tag=10")
    veth("v1", "w1")
    control("add-port", bridge, "v1")
    echo_frames("w1")
    yield
    control("del-mirror", bridge, "m1")
    control("del-port", "v1")
    run("ip", "link", "del", "v1")
    for name in ("t1", "t2", "t3"):
        control("del-port", name)
    control("del-bond", bridge, "bond0")
    control("del-br", "br8")


def objects_of_database(switch):
    """Adds and deletes ports, a bond, a mirror and bridges with ovs-vsctl, and a port with shuntctl."""
    veth("v2", "w2")
    switch.control("add-port", switch.bridge, "v2")
    veth("v3", "w3")
    words = "add-br br9 -- add-bond br9 bond9 u1 u2 -- add-port br9 u3 -- add-port br9 v3".split()
    for name in ("u1", "u2", "u3"):
        words += f"-- set interface {name} type=internal".split()
    words += "-- --id=@u get port u3 -- --id=@m create mirror name=m9 select_all=true output_port=@u".split()
    words += "-- add bridge br9 mirrors @m -- set port v3 tag=7".split()
    switch.vsctl(*words)
    echo_frames("w2")
    yield
    switch.control("del-port", "v2")
    run("ip", "link", "del", "v2")
    switch.vsctl("del-port", "br9", "u3", "--", "clear", "bridge", "br9", "mirrors")
    run("ip", "link", "del", "v3")
    switch.vsctl("del-br", "br9")


def churn(switch, choose):
    """Adds, uses and deletes all kinds of objects of a switch."""
    objects = (objects_of_database if switch.has_database else objects_of_state)(switch)
    for number, kind in ((1, "select"), (2, "all"), (3, "indirect")):
        bucket = ",bucket=actions=resubmit(,1)"
        switch.ofctl("add-group", f"group_id={number},type={kind}{bucket * (4 if kind == 'select' else 1)}")
    switch.ofctl("add-meter", "meter=1,kbps,band=type=drop,rate=1000000")
    switch.bundle(BASE_RULES + random_rules(choose))
    clients = connections(switch, choose)
    next(objects)
    for number in range(3):
        match = f"priority={950 + number},udp,tp_src={choose.randrange(65536)}"
        switch.ofctl("add-flow", f"{match},actions=resubmit(,1)")
        switch.ofctl("mod-flows", f"udp,tp_src={number},actions=resubmit(,1)")
        switch.ofctl("del-flows", match.split(",", 1)[1])
    switch.bundle(BASE_RULES + random_rules(choose))
    switch.ofctl("mod-group", "group_id=1,type=select,bucket=actions=resubmit(,1)")
    for command in ("dump-flows", "dump-ports", "dump-groups", "dump-group-stats"):
        switch.ofctl(command)
    for words in (["entries"], ["caches"], ["drops"], ["trace", switch.bridge, "udp,tp_dst=9"]):
        switch.control(*words)
    disconnect(clients, choose)
    next(objects, None)


class Sampler(threading.Thread):
    """Samples all switches until it is stopped, or until a check fails."""

    def __init__(self, switches, start):
        super().__init__(daemon=True)
        self.switches, self.begin = switches, start
        self.ending = threading.Event()
        self.round, self.error = 0, None

    def run(self):
        try:
            while not self.ending.wait(SAMPLE_INTERVAL):
                for switch in self.switches:
                    switch.sample(self.begin, self.round, "churn")
        except Exception as error:
            self.error = error

    def check(self):
        if self.error:
            raise Broken(f"sample: {self.error}")


def round_of(switches, choose, sampler):
    senders = [Traffic(switch, choose.random()) for switch in switches]
    for sender in senders:
        sender.start()
    try:
        for switch in switches:
            churn(switch, choose)
    finally:
        for sender in senders:
            sender.stop()
    for switch in switches:
        switch.quiesce()
        switch.check_log()
        sampler.check()
        switch.sample(sampler.begin, sampler.round, "quiescent")


def quarters(switch):
    """Returns the samples at quiescent points in four parts."""
    points = [sample for sample in switch.samples if sample["point"] == "quiescent"]
    return [points[len(points) * part // 4 : len(points) * (part + 1) // 4] for part in range(4)]


def median(samples, value):
    return round(statistics.median(map(value, samples))) if samples else 0


def report(switch):
    """Prints the memory of a switch by quarter and use, and the largest samples."""
    parts = quarters(switch)
    uses = sorted({use for sample in switch.samples for use in sample["uses"]})
    rows = [("VmRSS", lambda sample: sample["vm_rss_kb"])]
    rows += [(use, lambda sample, use=use: sample["uses"].get(use, 0)) for use in uses]
    print(f"\n{switch.name}: medians at quiescent points in kB, and the most of all samples")
    print(f"  {'':<24}" + "".join(f"{f'quarter {part}':>12}" for part in range(1, 5)) + f"{'most':>12}")
    for name, value in rows:
        medians = "".join(f"{median(part, value):>12}" for part in parts)
        print(f"  {name:<24}{medians}{max(map(value, switch.samples)):>12}")
    share = max(abs(sample["shown_kb"] / sample["vm_rss_kb"] - 1) for sample in switch.samples)
    print(f"  memory/show differs from VmRSS by at most {share:.1%} in {len(switch.samples)} samples")
    print(f"  frames: {sum(switch.sent)} sent, {switch.lost()} counted as dropped", flush=True)


def check_growth(switch, minutes):
    parts = quarters(switch)
    rounds = sum(map(len, parts))
    if rounds < 4 or rounds < ROUNDS_MIN and minutes < MINUTES_MIN:
        needs = f"{ROUNDS_MIN} rounds or {MINUTES_MIN} minutes are necessary"
        print(f"{switch.name}: {rounds} rounds in {minutes:g} min are too few to check the growth: {needs}")
        return
    second, last = (median(parts[part], lambda sample: sample["vm_rss_kb"]) for part in (1, 3))
    most = max(second * GROWTH_MAX, GROWTH_KB)
    print(f"{switch.name}: growth from quarter 2 to quarter 4: {last - second} kB of at most {most:.0f} kB", flush=True)
    if last - second > most:
        raise Broken(f"{switch.name}: the memory grows from {second} kB to {last} kB in {rounds // 2} rounds")


def write_csv(path, switches):
    samples = sorted((sample for switch in switches for sample in switch.samples), key=lambda sample: sample["seconds"])
    uses = sorted({use for sample in samples for use in sample["uses"]})
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        columns = [name for name in samples[0] if name != "uses"] if samples else []
        rows.writerow(columns + [f"{use}_kb" for use in uses])
        for sample in samples:
            rows.writerow([sample[name] for name in columns] + [sample["uses"].get(use, 0) for use in uses])


def soak(switches, options, folder):
    """Runs rounds for the requested time, and then checks the trend."""
    choose = random.Random(options.seed)
    for switch in switches:
        switch.start()
    start = time.monotonic()
    sampler = Sampler(switches, start)
    sampler.start()
    length = options.minutes * 60
    try:
        while (passed := time.monotonic() - start) < length or sampler.round == 0:
            sampler.round += 1
            round_of(switches, choose, sampler)
            sizes = ", ".join(f"{switch.name} {switch.samples[-1]['vm_rss_kb']} kB" for switch in switches)
            took, left = time.monotonic() - start - passed, max(0, length - (time.monotonic() - start))
            print(f"{sampler.round:>4} {sizes}, {took:.1f} s, {left / 60:.1f} min left", flush=True)
    finally:
        sampler.ending.set()
        sampler.join()
        for switch in switches:
            if switch.samples:
                report(switch)
        if options.csv:
            write_csv(options.csv, switches)
    for switch in switches:
        check_growth(switch, options.minutes)
        switch.check_pool()
        switch.end()
        switch.check_log()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shuntd")
    parser.add_argument("shuntctl")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", help="write all samples to this file")
    parser.add_argument("--keep", action="store_true", help="keep the files of a failed run")
    options = parser.parse_args()
    if os.environ.get("SHUNT_CHURN") != "inside":
        os.environ["SHUNT_CHURN"] = "inside"
        os.execvp("unshare", ["unshare", "--mount", "--net", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for scope in ("all", "default"):
        # Kernels send frames of IPv6 by themselves, and these are not counted here.
        path = f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"
        if os.path.exists(path):
            with open(path, "w") as file:
                file.write("1")
    run("ip", "link", "set", "lo", "up")
    folder = tempfile.mkdtemp(prefix="shunt-churn-")
    run("mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "churn", folder)
    switches, failed = [], True
    try:
        for number in range(2):
            switches.append(Switch((options.shuntd, options.shuntctl), folder, number))
        soak(switches, options, folder)
        failed = False
    except (Broken, OSError, subprocess.TimeoutExpired) as error:
        print(f"FAILED: {error}", flush=True)
        for switch in switches:
            print(f"log of {switch.name}:\n{switch.log_text()[-3000:]}", flush=True)
    finally:
        for switch in switches:
            if getattr(switch, "process", None) and switch.process.poll() is None:
                switch.process.kill()
                switch.process.wait()
        if failed and options.keep:
            shutil.copytree(folder, f"{folder}-kept", dirs_exist_ok=True)
        run("umount", folder)
        os.rmdir(folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
