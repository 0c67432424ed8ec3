#!/usr/bin/env python3
"""Connects to sockets repeatedly, and counts the attempts that fail.

Usage: connect_forever.py TARGET ..

A target is tcp:IP:PORT, unix:FILE, or control:DIR: the control socket of the daemon that the pid file in
the run directory DIR names. Each connection is closed immediately. The tool waits until each target has
answered once, and then writes `connecting`. At the end of standard input, the tool writes a line for each
target: `TARGET ATTEMPTS FAILURES`, and the last failure.
"""

import os
import socket
import sys
import threading
import time

PAUSE = 0.002  # Seconds between two attempts at a target.
LONGEST = 20  # Maximum time of an attempt in seconds.


def connect(target):
    kind, _, place = target.partition(":")
    if kind == "tcp":
        address, _, port = place.rpartition(":")
        return socket.create_connection((address, int(port)), timeout=LONGEST)
    if kind == "control":
        with open(os.path.join(place, "shuntd.pid")) as file:
            place = os.path.join(place, f"shuntd.{int(file.read())}.ctl")
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(LONGEST)
    try:
        client.connect(place)
    except OSError:
        client.close()
        raise
    return client


def wait_for(target):
    """Connects once, as soon as a program listens at the socket."""
    end = time.monotonic() + LONGEST
    while True:
        try:
            return connect(target).close()
        except (OSError, ValueError):
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE)


class Target(threading.Thread):
    def __init__(self, name, ended):
        super().__init__()
        self.target, self.ended = name, ended
        self.attempts, self.failures, self.last = 0, 0, ""

    def run(self):
        while not self.ended.is_set():
            self.attempts += 1
            try:
                connect(self.target).close()
            except (OSError, ValueError) as error:
                self.failures += 1
                self.last = f"{type(error).__name__}: {error}"
            time.sleep(PAUSE)


def main():
    ended = threading.Event()
    for name in sys.argv[1:]:
        wait_for(name)
    targets = [Target(name, ended) for name in sys.argv[1:]]
    for target in targets:
        target.start()
    print("connecting", flush=True)
    sys.stdin.read()
    ended.set()
    for target in targets:
        target.join()
        print(target.target, target.attempts, target.failures, target.last, flush=True)


if __name__ == "__main__":
    main()
