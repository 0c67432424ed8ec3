#!/usr/bin/env python3
"""Gives ports of bmv2 representors: `representors.py CPU_DEVICE PORT=TAP..`.

bmv2 runs `gigaflow.json`, and a veth pair connects its port 510 with CPU_DEVICE. A packet that misses
arrives there with the header `packet_in`, and is sent to the TAP device of its ingress port. A packet
that the switch sends to this TAP device goes to bmv2 with the header `packet_out`, and leaves by the
port. Needs CAP_NET_RAW and CAP_NET_ADMIN. docs/bmv2.md shows the whole set-up.
"""

import fcntl
import os
import selectors
import socket
import struct
import sys

ETH_P_ALL = 3
PACKET_OUTGOING = 4
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_MAX = 65536

# ingress_port, reason, miss_tag, last_stage
PACKET_IN = struct.Struct("!HBHB")
# egress_port, ingress_port, resubmit
PACKET_OUT = struct.Struct("!HHB")


def open_tap(name):
    """Creates a TAP device, and returns its descriptor."""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def open_device(name):
    """Returns a packet socket of a network device."""
    device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    device.bind((name, 0))
    return device


def send(write, frame):
    """Sends a frame; a frame that does not fit, or that finds its device down, is lost."""
    try:
        write(frame)
    except OSError as error:
        print(f"{len(frame)} bytes are lost: {error}", file=sys.stderr)


def main():
    """Moves packets in both directions until it is ended."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    cpu = open_device(sys.argv[1])
    ports = dict(word.split("=", 1) for word in sys.argv[2:])
    taps = {int(port): open_tap(name) for port, name in ports.items()}
    ready = selectors.DefaultSelector()
    ready.register(cpu, selectors.EVENT_READ)
    for port, tap in taps.items():
        ready.register(tap, selectors.EVENT_READ, port)
    while True:
        for key, _ in ready.select():
            if key.fileobj is cpu:
                packet, address = cpu.recvfrom(FRAME_MAX)
                if address[2] == PACKET_OUTGOING or len(packet) < PACKET_IN.size:
                    continue
                tap = taps.get(PACKET_IN.unpack_from(packet)[0])
                if tap is not None:
                    send(lambda frame: os.write(tap, frame), packet[PACKET_IN.size :])
            else:
                frame = os.read(key.fd, FRAME_MAX)
                send(cpu.send, PACKET_OUT.pack(key.data, key.data, 0) + frame)


if __name__ == "__main__":
    main()
