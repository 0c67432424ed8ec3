#!/usr/bin/env python3
"""Runs a daemon while system calls, disks, limits or clocks fail, and checks the rules afterwards.

Usage: faults.py SHUNTD SHUNTCTL [--seconds N] [--seed N] [--only WORD] [--keep]

Needs root to create namespaces: the tool starts itself again in new namespaces with `unshare`. Each round
starts a daemon, changes rules with bundles and settings with shuntctl, and causes one of these faults:

- system calls fail with an error (`strace -e inject`): files, sockets, memory, threads, waits;
- the disk of the state file is full; descriptors or memory run out (a limit of the process);
- the clock jumps (libfaketime); the process is stopped for seconds.

After each fault:

- A running daemon answers, accepts a bundle, and writes the bundle to the state file.
- A daemon that ended has logged the reason, or has aborted because memory or threads were refused.
- The next daemon has all rules of one bundle, which is not older than the bundle in the last state file.
- The log has no panic, unless the system refused a thread or memory.

The tool prints a line for each round. At the first failed check, the tool prints the log and fails.
"""

import argparse
import glob
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from faults_daemon import ANSWER_MAX, Broken, Daemon, run

FAULT_TIME = 2.0  # Duration of a fault in seconds.

# System calls that fail, with the errors of each kind. A call fails once in STEP calls of a thread.
# `read` and `write` fail only for files: tokio also writes to an event descriptor, and this write never fails.
# `brk` is no such call: the kernel reports a failure by the old end of the heap, not by an error. The C library
# takes an error number for the new end. The limit of memory lets `brk` fail as the kernel does.
FILES = "openat,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate,statx,newfstatat"
SOCKETS = "socket,bind,listen,accept4,connect,setsockopt,getsockopt,getsockname,ioctl"
PACKETS = "sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg,readv,writev"
WAITS = "epoll_wait,epoll_pwait,poll,ppoll,nanosleep,clock_nanosleep"
CALLS = [
    ("files", FILES, ["ENOSPC", "EIO", "EMFILE", "EDQUOT", "EACCES", "EINTR"]),
    ("state file", "write,openat,fsync,fdatasync,rename,renameat2", ["ENOSPC", "EIO", "EDQUOT", "EROFS"]),
    ("tap", "read,write,readv,writev,ioctl", ["EIO", "ENOMEM", "EAGAIN", "EBADFD", "EINTR"]),
    ("sockets", SOCKETS, ["EMFILE", "ENOBUFS", "EPERM", "ENODEV", "ENOMEM"]),
    ("packets", PACKETS, ["ENOBUFS", "ENETDOWN", "EAGAIN", "EINTR", "ENOMEM", "EIO"]),
    ("waits", WAITS, ["EINTR"]),
    ("epoll", "epoll_ctl,epoll_create1,eventfd2,timerfd_create,timerfd_settime", ["ENOMEM", "ENOSPC"]),
    ("memory", "mmap,mremap,madvise", ["ENOMEM"]),
    ("threads", "clone,clone3", ["EAGAIN"]),
]
STEPS = [1, 3, 10, 50]

# Rounds of failing calls after which one call at least must have failed.
CALL_ROUNDS = 5

# Rounds of one kind after which a call of this kind must have failed. In about half of the rounds of a kind no call
# fails, because the daemon makes too few of the chosen calls.
KIND_ROUNDS = 10

# Faults in a row without the word of --only after which there is none.
SKIPPED_MAX = 10000

# For some kinds, calls fail only for these files.
PATHS = {"state file": ["state.json", "state.json.new", ""], "tap": ["/dev/net/tun"]}

# The library that makes the clock jump; empty if the library is not installed.
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")

# Faults after which the process may abort: Rust aborts when an allocation or a thread is refused.
MAY_ABORT = ("memory", "threads", "limit of memory")


def work(daemon, seconds):
    """Changes rules, ports and settings for some seconds. The fault may cause failures, which are ignored."""
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end and daemon.runs():
        step += 1
        daemon.bundle()
        for words in (
            ["add-port", "br0", "n1", "type=null"],
            # The daemon starts a thread for this port, and nothing else here makes a running daemon start threads.
            ["add-port", "br0", "v1", "type=vhost_user", f"path={daemon.run_dir}/v1.sock"],
            ["set", f"caches.idle_ms={5000 + step}"],
            ["del-port", "n1"],
            ["del-port", "v1"],
            ["ports"],
        ):
            if not daemon.runs():
                break
            try:
                daemon.control(*words)
            except subprocess.TimeoutExpired:
                # Each further command would wait as long.
                break
        try:
            run(["curl", "-s", "-m", "2", "http://127.0.0.1:8080/metrics"])
        except subprocess.TimeoutExpired:
            pass


class Calls:
    """System calls that fail after the daemon has started."""

    def __init__(self, choose):
        self.kind, calls, errors = choose.choice(CALLS)
        self.counted_as = self.kind
        self.error, self.step = choose.choice(errors), choose.choice(STEPS)
        if self.kind == "waits":
            # A wait that is always interrupted never ends.
            self.step = max(self.step, 3)
        # If fewer calls fail, the daemon gets further before it fails.
        names = calls.split(",")
        self.calls = ",".join(choose.sample(names, min(len(names), choose.choice([1, 3, len(names)]))))
        self.name = f"{self.kind}: {self.calls} {self.error} 1/{self.step}"

    def tracer_command(self, daemon, first):
        """Returns a strace command that makes calls fail, beginning with call number `first` of each thread."""
        handle, self.output = tempfile.mkstemp(prefix="shunt-strace-")
        os.close(handle)
        inject = f"inject={self.calls}:error={self.error}:when={first}+{self.step}"
        command = ["strace", "-f", "-q", "-o", self.output, "-e", f"trace={self.calls}", "-e", inject]
        for path in PATHS.get(self.kind, []):
            command += ["-P", os.path.join(daemon.state_dir, path).rstrip("/")]
        return command

    def apply(self, daemon):
        command = [*self.tracer_command(daemon, 1), "-p", str(daemon.process.pid)]
        self.tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        if self.tracer.poll() is not None:
            raise Broken("strace cannot attach to the daemon")
        work(daemon, FAULT_TIME)

    def end(self, daemon):
        self.tracer.terminate()
        try:
            self.tracer.wait(10)
        except subprocess.TimeoutExpired:
            self.tracer.kill()
            self.tracer.wait()
        self.count()

    def half_failed(self, log):
        """Returns whether strace has detached between the start and the end of a call, which then fails with ENOSYS."""
        return "polling the I/O driver: Os { code: 38," in log

    def count(self):
        """Adds the number of failed calls to the name of the fault."""
        with open(self.output) as file:
            self.failed = sum("(INJECTED)" in line for line in file)
        os.remove(self.output)
        self.name += f", {self.failed} calls failed"


class CallsAtStart(Calls):
    """System calls that fail while the daemon starts."""

    def __init__(self, choose):
        super().__init__(choose)
        self.counted_as = "calls at the start"
        self.first = choose.choice([1, 2, 3, 5, 8, 13, 21, 34])
        if self.kind == "memory":
            # The dynamic loader needs the first calls, and is killed by a signal if these calls fail.
            self.first = max(self.first, 21)
        self.name = f"at the start, from call {self.first} on, {self.name}"

    def start(self, daemon):
        # With -D, the daemon is a child of this process, and strace is not.
        daemon.start(before=[*self.tracer_command(daemon, self.first), "-D"])
        end = time.monotonic() + ANSWER_MAX
        while daemon.runs() and time.monotonic() < end and not daemon.answers():
            time.sleep(0.1)

    def apply(self, daemon):
        work(daemon, FAULT_TIME)

    def end(self, daemon):
        tracer = 0
        if daemon.runs():
            with open(f"/proc/{daemon.process.pid}/status") as file:
                tracer = next(int(line.split()[1]) for line in file if line.startswith("TracerPid"))
        if tracer:
            # strace ignores other signals. After the end of strace, the daemon continues.
            os.kill(tracer, signal.SIGKILL)
        self.count()


class FullDisk:
    """The file system of the state file is full."""

    kind = name = "full disk"

    def apply(self, daemon):
        self.path = os.path.join(daemon.state_dir, "filler")
        with open(self.path, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        work(daemon, FAULT_TIME)

    def end(self, daemon):
        os.remove(self.path)


class Limit:
    """A limit of the number of descriptors or of the memory of the process."""

    def __init__(self, choose):
        kinds = [(resource.RLIMIT_NOFILE, "limit of descriptors"), (resource.RLIMIT_AS, "limit of memory")]
        self.resource, self.kind = choose.choice(kinds)
        self.slack = choose.choice([0, 1, 4])
        self.name = f"{self.kind}, {self.slack} more"

    def apply(self, daemon):
        pid = daemon.process.pid
        if self.resource == resource.RLIMIT_NOFILE:
            used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1 + self.slack
        else:
            with open(f"/proc/{pid}/statm") as file:
                used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE") + (self.slack << 20)
        hard = resource.prlimit(pid, self.resource)[1]
        resource.prlimit(pid, self.resource, (used, hard))
        work(daemon, FAULT_TIME)

    def end(self, daemon):
        if daemon.runs():
            hard = resource.prlimit(daemon.process.pid, self.resource)[1]
            resource.prlimit(daemon.process.pid, self.resource, (hard, hard))


class ClockJump:
    """The time of day jumps; the monotonic clock does not."""

    kind = name = "clock jumps"

    def __init__(self, choose):
        self.jumps = [choose.choice(["-3650d", "-1d", "-1", "+1", "+1d", "+3650d"]) for _ in range(4)]
        self.name = f"clock jumps {' '.join(self.jumps)}"

    def environment(self, daemon):
        self.file = os.path.join(daemon.folder, "clock")
        with open(self.file, "w") as file:
            file.write("+0\n")
        return {
            "LD_PRELOAD": FAKETIME[0],
            "FAKETIME_TIMESTAMP_FILE": self.file,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def apply(self, daemon):
        for jump in self.jumps:
            with open(self.file, "w") as file:
                file.write(f"{jump}\n")
            work(daemon, FAULT_TIME / len(self.jumps))
        if not daemon.runs():
            raise Broken("the daemon has ended")

    def end(self, daemon):
        pass


class Pause:
    """The process is stopped for some seconds, as in a paused virtual machine."""

    kind = name = "pause"

    def apply(self, daemon):
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(FAULT_TIME)
        daemon.process.send_signal(signal.SIGCONT)
        work(daemon, 0.2)
        if not daemon.runs():
            raise Broken("the daemon has ended")

    def end(self, daemon):
        pass


class Kill:
    """The process is killed while the process handles a bundle."""

    kind = name = "kill"

    def __init__(self, choose):
        self.pause = choose.random() / 20

    def apply(self, daemon):
        daemon.bundle()
        target = f"unix:{daemon.run_dir}/br0.mgmt"
        path = os.path.join(daemon.folder, "rules.txt")
        daemon.sent += 1
        with open(path) as file:
            rules = file.read().replace(f"cookie={daemon.sent - 1:#x}", f"cookie={daemon.sent:#x}")
        with open(path, "w") as file:
            file.write(rules)
        client = subprocess.Popen(
            ["ovs-ofctl", "-O", "OpenFlow13", "--bundle", "replace-flows", target, path],
            stderr=subprocess.DEVNULL,
        )
        time.sleep(self.pause)
        daemon.process.kill()
        daemon.process.wait(ANSWER_MAX)
        client.wait()

    def end(self, daemon):
        pass


def faults(choose):
    """Returns a random fault. Most faults are failing calls, because most variants are failing calls."""
    make = choose.choice([Calls] * 7 + [CallsAtStart] * 3 + [FullDisk, Limit, Limit, ClockJump, Pause, Kill])
    if make is ClockJump and not FAKETIME:
        make = Pause
    return make(choose) if make in (Calls, CallsAtStart, Limit, ClockJump, Kill) else make()


class FailedCalls:
    """The rounds of failing calls, and the calls that failed in them, by kind."""

    def __init__(self):
        self.rounds, self.calls = {}, {}

    def add(self, fault):
        kind = fault.counted_as
        self.rounds[kind] = self.rounds.get(kind, 0) + 1
        self.calls[kind] = self.calls.get(kind, 0) + fault.failed

    def errors(self):
        """Returns an error for each kind of calls that never failed in many rounds."""
        rounds = sum(self.rounds.values())
        if rounds >= CALL_ROUNDS and not any(self.calls.values()):
            return [f"no call failed in {rounds} rounds: strace does not change the calls of the daemon"]
        return [
            f"{kind}: no call failed in {rounds} rounds: let `work` cause such calls"
            for kind, rounds in sorted(self.rounds.items())
            if rounds >= KIND_ROUNDS and not self.calls[kind]
        ]


def round_of(daemon, fault):
    offset = os.path.getsize(daemon.log) if os.path.exists(daemon.log) else 0
    environment = fault.environment(daemon) if hasattr(fault, "environment") else None
    if hasattr(fault, "start"):
        fault.start(daemon)
    else:
        daemon.start(environment)
        daemon.check_recovery()
    try:
        fault.apply(daemon)
    finally:
        fault.end(daemon)
    time.sleep(0.1)
    outcome = "went on"
    may_abort = fault.kind in MAY_ABORT
    if daemon.runs():
        try:
            daemon.check_recovery()
        except Broken:
            # A daemon that aborts prints a backtrace first, which takes seconds on a busy machine.
            if daemon.runs() or not may_abort:
                raise
        code = daemon.end("TERM")
        if code != 0 and not (may_abort and code == -signal.SIGABRT):
            raise Broken(f"the daemon ends with {code} by SIGTERM")
    else:
        code = daemon.process.returncode
        outcome = f"ended with {code}"
        if code == -signal.SIGABRT and not may_abort:
            raise Broken("the daemon aborted")
        if code == 0:
            raise Broken("the daemon has ended without an error")
        if code > 0 and not daemon.log_from(offset).strip():
            raise Broken("the daemon has ended without a message")
        if code < 0 and code not in (-signal.SIGABRT, -signal.SIGKILL):
            raise Broken(f"the daemon ended by signal {-code}")
    log = daemon.log_from(offset)
    if "panicked" in log and not may_abort:
        raise Broken("the log has a panic")
    # During the fault, the daemon may have saved a newer bundle.
    daemon.saved = max(daemon.saved, daemon.saved_bundle())
    daemon.start()
    daemon.check_recovery()
    daemon.end("TERM")
    return outcome


def ports():
    """Creates two veth pairs with a host at the far end of each, and starts to send packets."""
    for number in (1, 2):
        run(["ip", "link", "add", f"p{number}", "type", "veth", "peer", "name", f"h{number}"], check=True)
        for name in (f"p{number}", f"h{number}"):
            run(["ip", "link", "set", name, "up"], check=True)
    run(["ip", "link", "set", "lo", "up"], check=True)


SENDER = """
import itertools, socket, time
host = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
host.bind(("h1", 0))
for number in itertools.count():
    address = bytes([10, 0, number >> 8 & 255, number & 255])
    ip = bytes.fromhex("4500001c0000400040110000") + bytes([10, 1, 0, 1]) + address
    try:
        host.send(bytes.fromhex("020000000002020000000001" + "0800") + ip + bytes([0, 9, 0, 9, 0, 8, 0, 0]) + bytes(18))
    except OSError:
        pass
    time.sleep(0.002)
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shuntd")
    parser.add_argument("shuntctl")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="faults with this word in their names")
    parser.add_argument("--keep", action="store_true", help="keep the files of a failed round")
    options = parser.parse_args()
    if os.environ.get("SHUNT_FAULTS") != "inside":
        os.environ["SHUNT_FAULTS"] = "inside"
        os.execvp("unshare", ["unshare", "--mount", "--net", sys.executable, *sys.argv])
    # An interrupted run ends its processes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ports()
    sender = subprocess.Popen([sys.executable, "-c", SENDER])
    folder = tempfile.mkdtemp(prefix="shunt-faults-")
    run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "faults", folder], check=True)
    daemon = Daemon((options.shuntd, options.shuntctl), folder)
    run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "state", daemon.state_dir], check=True)
    choose = random.Random(options.seed)
    end = time.monotonic() + options.seconds
    rounds = failures = skipped = 0
    failed_calls = FailedCalls()
    if not FAKETIME:
        print("SKIPPED: jumps of the clock need libfaketime, of the package faketime", file=sys.stderr)
    try:
        while time.monotonic() < end:
            fault = faults(choose)
            if options.only not in fault.name:
                skipped += 1
                if skipped > SKIPPED_MAX:
                    raise SystemExit(f"no fault has the word `{options.only}` in its name")
                continue
            rounds, skipped = rounds + 1, 0
            offset = os.path.getsize(daemon.log) if os.path.exists(daemon.log) else 0
            try:
                outcome = round_of(daemon, fault)
                print(f"{rounds:>4} {fault.name}: {outcome}", flush=True)
                if isinstance(fault, Calls):
                    failed_calls.add(fault)
            except Exception as error:
                log = daemon.log_from(offset)
                is_counted = not (isinstance(fault, Calls) and fault.half_failed(log))
                if is_counted:
                    failures += 1
                    print(f"{rounds:>4} {fault.name}: FAILED: {error}", flush=True)
                    if not isinstance(error, Broken):
                        traceback.print_exc()
                    print(log[-6000:], flush=True)
                    if options.keep:
                        shutil.copytree(folder, f"{folder}-kept", dirs_exist_ok=True)
                    break
                print(f"{rounds:>4} {fault.name}: not counted: strace detached within a call", flush=True)
                daemon.kill()
                daemon.saved = max(daemon.saved, daemon.saved_bundle())
            if os.path.getsize(daemon.log) > 1 << 21:
                os.truncate(daemon.log, 0)
    finally:
        daemon.kill()
        sender.kill()
        sender.wait()
        run(["umount", daemon.state_dir])
        run(["umount", folder])
        os.rmdir(folder)
    for error in failed_calls.errors():
        print(error)
        failures += 1
    print(f"{rounds} rounds, {failures} failed")
    sys.exit(1 if failures or not rounds else 0)


if __name__ == "__main__":
    main()
