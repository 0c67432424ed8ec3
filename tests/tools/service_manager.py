#!/usr/bin/env python3
"""Replaces systemd for one daemon: receives messages, stores descriptors, and restarts the daemon.

Usage: service_manager.py COMMAND ..

Reads requests from standard input, one on each line:

    end SIGNAL          end the daemon with SIGNAL (TERM or KILL)
    start               start the daemon with the stored descriptors
    restart SIGNAL      end the daemon with SIGNAL, then start the daemon
    put NAME            store a descriptor under NAME that is neither a queue nor a socket
    stop                end the daemon, close all stored descriptors, and exit

Writes a line for each message of the daemon (`store NAME`, `remove NAME`, `ready`) and for each end
(`ended`). For the protocol, see sd_pid_notify_with_fds(3) and sd_listen_fds(3).
"""

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile

FIRST = 3  # Number of the first descriptor that a service gets.


def say(line):
    print(line, flush=True)


class ServiceManager:
    def __init__(self, command, report=say, log=None):
        self.command = command
        self.log = log
        self.report = report
        self.is_ready = False
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.store = {}
        self.process = None
        self.start()

    def start(self):
        self.is_ready = False
        names = list(self.store)
        # The numbers of the copies are above the numbers that the service gets.
        copies = [fcntl.fcntl(self.store[name], fcntl.F_DUPFD_CLOEXEC, 100 + len(names)) for name in names]

        def place():
            for number, copy in enumerate(copies, FIRST):
                os.dup2(copy, number, inheritable=True)

        environment = dict(os.environ, NOTIFY_SOCKET=self.path)
        if names:
            environment.update(LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=":".join(names))
        # The process id is known only after the fork.
        shell = ["sh", "-c", 'export LISTEN_PID=$$; exec "$@"', "sh", *self.command]
        self.process = subprocess.Popen(shell, env=environment, preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stderr=self.log)
        for copy in copies:
            os.close(copy)

    def read_message(self):
        data, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 64)
        lines = dict(line.split("=", 1) for line in data.decode().splitlines() if "=" in line)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        name = lines.get("FDNAME", "stored")
        if "FDSTORE" in lines:
            self.store[name] = descriptors.pop()
            self.report(f"store {name}")
        if "FDSTOREREMOVE" in lines and name in self.store:
            os.close(self.store.pop(name))
            self.report(f"remove {name}")
        for descriptor in descriptors:
            os.close(descriptor)
        if lines.get("READY") == "1":
            self.is_ready = True
            self.report("ready")

    def wait_until_ready(self):
        while not self.is_ready:
            self.read_message()

    def read_messages(self):
        while select.select([self.socket], [], [], 0)[0]:
            self.read_message()

    def end(self, name):
        self.process.send_signal(getattr(signal, f"SIG{name}"))
        while self.process.poll() is None:
            # A daemon may wait until this process has read its messages.
            if select.select([self.socket], [], [], 0.001)[0]:
                self.read_message()
        self.read_messages()
        self.report("ended")

    def serve(self):
        requests = os.fdopen(0, "rb", buffering=0)
        while True:
            ready, _, _ = select.select([self.socket, requests], [], [])
            if self.socket in ready:
                self.read_message()
            if requests in ready:
                words = requests.readline().decode().split()
                match words:
                    case ["end", name]:
                        self.end(name)
                    case ["start"]:
                        self.start()
                    case ["restart", name]:
                        self.end(name)
                        self.start()
                    case ["put", name]:
                        if name in self.store:
                            os.close(self.store[name])
                        self.store[name] = os.open("/dev/null", os.O_RDWR)
                    case _:
                        self.end("TERM")
                        return


if __name__ == "__main__":
    ServiceManager(sys.argv[1:]).serve()
