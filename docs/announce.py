#!/usr/bin/env python3
"""Announce flows that are about to arrive to a running shuntd.

usage: announce.py RUN_DIR BRIDGE SECONDS FLOW..

A flow has the syntax of `shuntctl trace`, with its ingress port:
in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=4000,tp_dst=53
"""

import json
import pathlib
import socket
import sys


def call(run_dir, method, parameters):
    """Return the result of a method of the control socket."""
    run_dir = pathlib.Path(run_dir)
    pid = (run_dir / "shuntd.pid").read_text().strip()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.connect(str(run_dir / f"shuntd.{pid}.ctl"))
        request = {"method": method, "params": parameters, "id": 0}
        control.sendall(json.dumps(request).encode())
        # Replies follow each other without framing: read until the JSON is complete.
        reply = b""
        while True:
            part = control.recv(65536)
            if not part:
                raise ConnectionError("shuntd closed the connection")
            reply += part
            try:
                value = json.loads(reply)
            except ValueError:
                continue
            if value["error"] is not None:
                raise RuntimeError(value["error"].strip())
            return json.loads(value["result"])


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    run_dir, bridge, seconds, *flows = sys.argv[1:]
    try:
        reply = call(run_dir, "shunt/announce", [bridge, seconds, *flows])
    except (OSError, RuntimeError) as error:
        sys.exit(f"announce.py: {error}")
    print(f"accepted: {reply['accepted']}, refused: {reply['refused']}")
    # Flows are refused while too many wait for the switch.
    sys.exit(1 if reply["refused"] else 0)


if __name__ == "__main__":
    main()
