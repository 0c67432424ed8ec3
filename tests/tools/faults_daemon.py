"""A daemon under faults: its files, commands and rules, and the checks of its rules.

`faults.py` uses this module.
"""

import json
import os
import shutil
import signal
import subprocess
import time

RULES = 20  # Rules of a bundle. The cookie of the rules is the number of the bundle.
ANSWER_MAX = 20  # Seconds until a daemon must answer.

CONFIGURATION = """\
[[bridge]]
name = "br0"
listen = ["ptcp:6653:127.0.0.1"]
[[bridge.port]]
name = "p1"
[[bridge.port]]
name = "p2"
[[bridge.port]]
name = "t1"
type = "tap"
[http]
listen = "127.0.0.1:8080"
"""


class Broken(Exception):
    """A failed check."""


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=15, **options)


class Daemon:
    """A daemon with its files, and the last bundle that the daemon has acknowledged."""

    def __init__(self, programs, folder):
        self.shuntd, self.shuntctl = programs
        self.folder = folder
        self.run_dir = os.path.join(folder, "run")
        self.state_dir = os.path.join(folder, "state")
        self.state = os.path.join(self.state_dir, "state.json")
        self.log = os.path.join(folder, "log")
        self.process = None
        self.sent = self.acked = self.saved = 0
        self.refusal = ""
        for path in (self.run_dir, self.state_dir):
            os.makedirs(path)
        with open(os.path.join(folder, "shunt.toml"), "w") as file:
            file.write(CONFIGURATION)

    def start(self, environment=None, before=()):
        command = [*before, self.shuntd, "--config", os.path.join(self.folder, "shunt.toml"), "--run-dir", self.run_dir]
        command += ["--state", self.state]
        with open(self.log, "a") as log:
            environment = {**os.environ, **(environment or {})}
            self.process = subprocess.Popen(command, stderr=log, stdout=log, stdin=subprocess.DEVNULL, env=environment)

    def runs(self):
        return self.process.poll() is None

    def control(self, *words):
        return run([self.shuntctl, "--run-dir", self.run_dir, *words])

    def answers(self):
        """Returns whether the daemon answers. If not, `self.refusal` has the reason."""
        try:
            shown = self.control("show")
        except subprocess.TimeoutExpired as error:
            self.refusal = str(error)
            return False
        self.refusal = shown.stderr
        return shown.returncode == 0

    def wait(self, holds, what):
        end = time.monotonic() + ANSWER_MAX
        while time.monotonic() < end:
            if holds():
                return
            time.sleep(0.05)
        raise Broken(f"not within {ANSWER_MAX} s: {what}: {self.refusal}{self.stacks()}")

    def stacks(self):
        """Returns what each thread of the daemon is doing, if gdb is installed."""
        if not self.runs() or shutil.which("gdb") is None:
            return ""
        command = ["gdb", "-batch", "-p", str(self.process.pid), "-ex", "thread apply all backtrace"]
        try:
            return "\n" + subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
        except subprocess.TimeoutExpired:
            return "\ngdb cannot attach to the daemon within 120 s"

    def bundle(self):
        """Replaces all rules with the rules of the next bundle; returns whether the daemon acknowledged the bundle."""
        self.sent += 1
        path = os.path.join(self.folder, "rules.txt")
        with open(path, "w") as file:
            for number in range(RULES):
                file.write(f"cookie={self.sent:#x},priority={number + 1},ip,nw_dst=10.0.0.{number},actions=output:p2\n")
            file.write(f"cookie={self.sent:#x},priority=0,actions=NORMAL\n")
        target = f"unix:{self.run_dir}/br0.mgmt"
        try:
            done = run(["ovs-ofctl", "-O", "OpenFlow13", "--bundle", "replace-flows", target, path])
        except subprocess.TimeoutExpired:
            return False
        self.refusal = done.stderr
        if done.returncode == 0:
            self.acked = self.sent
        return done.returncode == 0

    def cookies(self):
        """Returns the cookies of all rules."""
        target = f"unix:{self.run_dir}/br0.mgmt"
        dumped = run(["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", target])
        if dumped.returncode != 0:
            raise Broken(f"no rules: {dumped.stderr}")
        return [line.split("cookie=")[1].split(",")[0] for line in dumped.stdout.splitlines() if "cookie=" in line]

    def saved_bundle(self):
        """Returns the number of the bundle in the state file; 0 without a bundle."""
        try:
            with open(self.state) as file:
                tables = json.load(file)["state"]["tables"]
        except FileNotFoundError:
            return 0
        found = {rule.split("cookie=")[1].split(",")[0] for table in tables for rule in table["rules"] if "cookie=" in rule}
        counts = sum(len(table["rules"]) for table in tables)
        if not found:
            return 0
        if len(found) != 1 or counts != RULES + 1:
            raise Broken(f"the state file has {counts} rules of the bundles {found}")
        return int(found.pop(), 0)

    def check_bundle(self):
        cookies = self.cookies()
        if cookies and (len(set(cookies)) != 1 or len(cookies) != RULES + 1):
            raise Broken(f"half a bundle: {cookies}")
        bundle = int(cookies[0], 0) if cookies else 0
        if not self.saved <= bundle <= self.sent:
            raise Broken(f"bundle {bundle}, and the state file had {self.saved}")
        return bundle

    def check_recovery(self):
        """Checks that, after a fault, the daemon accepts a bundle and saves the bundle."""
        self.wait(self.answers, "shuntctl show")
        self.check_bundle()
        self.wait(self.bundle, "a bundle is acknowledged")
        if self.check_bundle() != self.acked:
            raise Broken("the last bundle is not in force")
        self.wait(lambda: self.saved_bundle() == self.acked, "the state file has the last bundle")
        self.saved = self.acked

    def end(self, name):
        if self.runs():
            self.process.send_signal(getattr(signal, f"SIG{name}"))
        try:
            return self.process.wait(ANSWER_MAX)
        except subprocess.TimeoutExpired:
            raise Broken(f"the daemon does not end by SIG{name}") from None

    def kill(self):
        """Ends the daemon without its help."""
        if self.process is not None and self.runs():
            self.process.kill()
            self.process.wait()

    def log_from(self, offset):
        with open(self.log, errors="replace") as file:
            file.seek(offset)
            return file.read()
