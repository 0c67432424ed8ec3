"""A daemon under churn: its files, commands and ports, and samples of its memory.

`churn.py` uses this module.
"""

import json
import os
import subprocess
import threading
import time

ANSWER_MAX = 60  # Seconds until a state must be reached.
SHARE_MAX = 0.10  # The largest difference between memory/show and VmRSS.
POOL = "shunt-control"  # Name of the threads of the runtime.

CONFIGURATION = """\
[[bridge]]
name = "{bridge}"
listen = ["ptcp:{openflow}:127.0.0.1"]
[[bridge.port]]
name = "{ports[0]}"
[[bridge.port]]
name = "{ports[1]}"
[http]
listen = "127.0.0.1:{http}"
[caches]
idle_ms = 1000
"""

# Frames of this type return to their port. All other frames reach table 1.
ECHO_TYPE = 0x88B5
BASE_RULES = [
    f"priority=1000,dl_type={ECHO_TYPE:#x},actions=in_port",
    "priority=0,actions=resubmit(,1)",
    "table=1,priority=0,actions=NORMAL",
]


class Broken(Exception):
    """A failed check."""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * ANSWER_MAX, **options)
    if done.returncode != 0:
        raise Broken(f"{' '.join(command)}: {done.stderr.strip()}{done.stdout.strip()}")
    return done.stdout


def wait(holds, what, seconds=ANSWER_MAX):
    """Waits until `holds` returns something true, and returns this value."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > end:
            raise Broken(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.05)
    return value


def received(hosts):
    """Returns the numbers of frames that devices have received."""
    with open("/proc/net/dev") as file:
        counts = {line.split(":")[0].strip(): int(line.split()[2]) for line in file if ":" in line}
    return [counts[host] for host in hosts]


class Switch:
    """A daemon with its files, two veth ports, and the hosts behind these ports."""

    def __init__(self, programs, folder, number):
        self.name = ("state", "database")[number]
        self.has_database = number == 1
        self.shuntd, self.shuntctl = programs
        self.folder = os.path.join(folder, self.name)
        self.run_dir, self.log = (os.path.join(self.folder, name) for name in ("run", "log"))
        self.bridge, self.openflow, self.http, self.manager = f"br{number}", 6653 + number, 8080 + number, 6640
        self.ports = [f"p{2 * number + 1}", f"p{2 * number + 2}"]
        self.hosts = [f"h{2 * number + 1}", f"h{2 * number + 2}"]
        self.target = f"unix:{self.run_dir}/{self.bridge}.mgmt"
        self.database = f"{self.run_dir}/db.sock"
        self.sent = [0, 0]
        self.lock = threading.Lock()  # One sample at a time.
        self.samples = []
        self.descriptors = self.threads = None
        os.makedirs(self.run_dir)
        for port, host in zip(self.ports, self.hosts):
            veth(port, host)
        with open(os.path.join(self.folder, "shunt.toml"), "w") as file:
            file.write(CONFIGURATION.format(**vars(self)))
            if self.has_database:
                file.write(f'[ovsdb]\nsocket = "{self.database}"\nlog = "{self.folder}/conf.db"\n')

    def start(self):
        command = [self.shuntd, "--config", f"{self.folder}/shunt.toml", "--run-dir", self.run_dir]
        if not self.has_database:
            command += ["--state", f"{self.folder}/state.json"]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        wait(lambda: "ready config" in self.log_text() or self.process.poll() is not None, "the daemon is ready")
        if self.process.poll() is not None:
            raise Broken(f"the daemon has ended: {self.log_text()}")
        if self.has_database:
            self.vsctl("set-manager", f"ptcp:{self.manager}:127.0.0.1")
        self.bundle(BASE_RULES)

    def log_text(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, errors="replace") as file:
            return file.read()

    def control(self, *words):
        return run(self.shuntctl, "--run-dir", self.run_dir, *words)

    def appctl(self, *words):
        return run("ovs-appctl", "-t", f"{self.run_dir}/shuntd.{self.process.pid}.ctl", *words)

    def vsctl(self, *words):
        return run("ovs-vsctl", f"--timeout={ANSWER_MAX}", f"--db=unix:{self.database}", *words)

    def ofctl(self, command, *words):
        return run("ovs-ofctl", "-O", "OpenFlow13", command, self.target, *words)

    def bundle(self, rules):
        """Replaces all rules at once."""
        path = os.path.join(self.folder, "rules")
        with open(path, "w") as file:
            file.write("\n".join(rules) + "\n")
        run("ovs-ofctl", "-O", "OpenFlow13", "--bundle", "replace-flows", self.target, path)

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def resident_of_maps(self):
        """Returns the exact resident set: VmRSS may differ by some pages for each CPU."""
        with open(f"/proc/{self.process.pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Rss:"))

    def open_descriptors(self):
        """Returns the kinds of open descriptors with their numbers."""
        folder, kinds = f"/proc/{self.process.pid}/fd", {}
        for name in os.listdir(folder):
            try:
                kind = os.readlink(f"{folder}/{name}").split(":[")[0]
            except FileNotFoundError:
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
        return kinds

    def running_threads(self):
        """Returns the names of threads with their numbers."""
        folder, names = f"/proc/{self.process.pid}/task", {}
        for thread in os.listdir(folder):
            try:
                with open(f"{folder}/{thread}/comm") as file:
                    name = file.read().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            names[name] = names.get(name, 0) + 1
        return names

    def sample(self, start, number, point):
        """Reads the memory and compares both sums."""
        with self.lock:
            descriptors, threads = self.open_descriptors(), self.running_threads()
            before = self.resident()
            words = self.appctl("memory/show").replace("udpif keys", "entries").split()
            shown = dict(word.split(":") for word in words)
            after, maps = self.resident(), self.resident_of_maps()
        uses = {name[:-3]: int(size) for name, size in shown.items() if name.endswith("-kB")}
        total = uses.pop("resident")
        sample = {
            "seconds": round(time.monotonic() - start, 1), "daemon": self.name, "round": number, "point": point,
            "vm_rss_kb": after, "smaps_kb": maps, "shown_kb": total, "descriptors": sum(descriptors.values()),
            "threads": sum(threads.values()), "ports": int(shown["ports"]), "rules": int(shown["rules"]),
            "entries": int(shown["entries"]), "uses": uses,
        }
        self.samples.append(sample)
        if total != sum(uses.values()):
            raise Broken(f"memory/show has {total} kB, and its parts are {sum(uses.values())} kB: {uses}")
        low, high = min(before, after) * (1 - SHARE_MAX), max(before, after) * (1 + SHARE_MAX)
        if not low <= total <= high:
            raise Broken(f"memory/show has {total} kB, and VmRSS is {before} to {after} kB, smaps {maps} kB")
        return sample

    def quiesce(self):
        """Deletes what frames have made, and waits for the descriptors and threads of the first round."""
        self.bundle(BASE_RULES)
        self.ofctl("del-groups")
        self.ofctl("del-meters")
        self.count_frames()
        self.appctl("fdb/flush")
        self.appctl("revalidator/purge")
        wait(lambda: "udpif keys:0 " in self.appctl("memory/show"), "no cache entries")

        if self.descriptors is None:
            time.sleep(2)
            self.descriptors, self.threads = self.open_descriptors(), self.running_threads()
        wait(
            lambda: self.open_descriptors() == self.descriptors,
            lambda: f"descriptors {self.descriptors}, now {self.open_descriptors()}",
        )
        wait(
            lambda: self.running_threads() | {POOL: 0} == self.threads | {POOL: 0},
            lambda: f"threads {self.threads}, now {self.running_threads()}",
        )

    def check_pool(self):
        """Waits until idle threads of the pool have ended. Each waits ten seconds for further work."""
        wait(
            lambda: self.running_threads().get(POOL, 0) <= self.threads[POOL],
            lambda: f"threads {self.threads}, now {self.running_threads()}",
        )

    def frame_counts(self):
        """Returns the counters of both ports, with the frames of their hosts."""
        shown = {port["name"]: port for port in json.loads(self.control("ports", "--json"))}
        names = ("rx_packets", "rx_dropped", "forward_dropped", "tx_packets", "tx_dropped")
        counts = [{name: shown[port][name] for name in names} for port in self.ports]
        for count, sent, host_received in zip(counts, self.sent, received(self.hosts)):
            count |= {"host_sent": sent, "host_received": host_received}
        return counts

    def count_frames(self):
        """Waits until all frames are counted, or no counter has changed for some time."""
        last, end = None, 0
        while not self.are_counted(counts := self.frame_counts()):
            now = time.monotonic()
            if counts != last:
                last, end = counts, now + ANSWER_MAX
            elif now > end:
                raise Broken(f"{self.name}: sent, received and dropped frames do not add up: {counts}")
            time.sleep(0.05)

    @staticmethod
    def are_counted(counts):
        for own, other in (counts, counts[::-1]):
            if own["rx_packets"] + own["rx_dropped"] != own["host_sent"]:
                return False
            if other["tx_packets"] + other["tx_dropped"] + own["forward_dropped"] != own["rx_packets"]:
                return False
            if other["host_received"] != other["tx_packets"]:
                return False
        return True

    def lost(self):
        dropped = ("rx_dropped", "forward_dropped", "tx_dropped")
        return sum(count[name] for count in self.frame_counts() for name in dropped)

    def check_log(self):
        text = self.log_text()
        for word in ("panicked", " ERROR "):
            if word in text:
                raise Broken(f"the log has `{word.strip()}`: {text[text.index(word):][:2000]}")
        if len(text) > 1 << 21:
            os.truncate(self.log, 0)

    def end(self):
        self.process.terminate()
        if (code := self.process.wait(ANSWER_MAX)) != 0:
            raise Broken(f"the daemon ends with {code} by SIGTERM")


def veth(name, peer):
    run("ip", "link", "add", name, "type", "veth", "peer", "name", peer)
    for device in (name, peer):
        run("ip", "link", "set", device, "up")
