"""Tests the embedded NIC with a third-party controller, p4runtime-shell.

    p4runtime_shell_client.py ADDRESS P4INFO PROGRAM

Prints `ok NAME` for each step, and exits with 0 if every reply was the expected one.
"""

import os
import struct
import sys
import time

import grpc
import p4runtime_sh.shell as shell
from google.rpc import status_pb2
from p4.v1 import p4runtime_pb2
from p4runtime_sh.p4runtime import P4RuntimeWriteException

MAC_A, MAC_B = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


def frame(ether_type, payload=bytes(46)):
    """Returns an Ethernet frame."""
    return MAC_B + MAC_A + struct.pack("!H", ether_type) + payload


def stage(number, action, match, priority=1):
    """Returns an entry of a stage that is not inserted yet."""
    entry = shell.TableEntry(f"ltm_{number}")(action=action)
    for field, value in match.items():
        entry.match[field] = value
    entry.priority = priority
    return entry


def resubmit(port, payload):
    """Sends a frame through the tables of the NIC as if it arrived on a port."""
    shell.PacketOut(payload, egress_port="0", ingress_port=str(port), resubmit="1").send()


def sniffed(listener, is_it, timeout=10):
    """Returns the first message of a listener that `is_it` accepts."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for message in listener.sniff(timeout=0.1):
            if is_it(message):
                return message
    raise AssertionError("no message arrived")


def metadata(packet):
    """Returns the metadata of a packet-in, as numbers by their ids."""
    return {field.metadata_id: int.from_bytes(field.value, "big") for field in packet.metadata}


def inserts_and_reads():
    """Entries can be inserted, read back, and distinguished."""
    first = stage(1, "forward", {"tag": "0", "eth_type": "0x0800&&&0xffff"})
    first.action["port"] = "2"
    first.insert()
    second = stage(1, "next", {"tag": "0", "eth_type": "0x86dd&&&0xffff"}, priority=2)
    second.action["tag"] = "7"
    second.insert()
    third = stage(3, "rewrite_forward", {"tag": "7"})
    fields = ["eth_dst", "eth_src", "vlan_tci", "ip_src", "ip_dst", "nw_tos", "nw_ttl"]
    fields += ["tp_src", "tp_dst", "ipv6_src", "ipv6_dst"]
    for field in fields:
        third.action[field] = "0"
        third.action[field + "_mask"] = "0"
    third.action["eth_dst"] = "02:00:00:00:00:09"
    third.action["eth_dst_mask"] = "ff:ff:ff:ff:ff:ff"
    third.action["port"] = "2"
    third.insert()
    assert len(list(shell.TableEntry("ltm_1").read())) == 2
    [read] = list(second.read())
    assert read.priority == 2 and read.action["tag"].value == b"\x07"
    try:
        first.insert()
    except P4RuntimeWriteException as error:
        assert "ALREADY_EXISTS" in str(error), error
    else:
        raise AssertionError("an entry was inserted twice")


def modifies_and_deletes():
    """An entry is modified and deleted."""
    entry = stage(2, "drop", {"tag": "9"})
    entry.insert()
    other = stage(2, "next", {"tag": "9"})
    other.action["tag"] = "8"
    other.modify()
    [read] = list(shell.TableEntry("ltm_2").read())
    assert read.action["tag"].value == b"\x08"
    other.delete()
    assert list(shell.TableEntry("ltm_2").read()) == []


def default_action():
    """The first tag is the default action of the table before the stages."""
    entry = shell.TableEntry("start_table")(action="start", is_default=True)
    entry.action["tag"] = "0"
    entry.modify()


def packets(listener):
    """Packet-outs are sent and looked up, and misses are packet-ins."""
    shell.PacketOut(b"direct" + bytes(60), egress_port="2", ingress_port="0", resubmit="0").send()
    resubmit(1, frame(0x88B5))
    packet = sniffed(listener, lambda m: m.packet.payload == frame(0x88B5)).packet
    assert metadata(packet) == {1: 1, 2: 0, 3: 0, 4: 0}, metadata(packet)


def counters():
    """A hit is counted for its entry."""
    ipv4 = bytes.fromhex("4500002e000000004011000000000000") + bytes(30)
    payload = frame(0x0800, ipv4)
    for _ in range(3):
        resubmit(1, payload)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        counts = [entry.packet_count for entry in shell.DirectCounterEntry("ltm_1_hits").read()]
        if sorted(counts) == [0, 3]:
            return
        time.sleep(0.05)
    raise AssertionError(f"counters are {counts}")


def idle_notices():
    """An idle entry causes a notification."""
    entry = stage(4, "drop", {"tag": "5"})
    entry.idle_timeout_ns = 200_000_000
    entry.metadata = b"mine"
    entry.insert()
    listener = shell.IdleTimeoutNotification()
    is_it = lambda m: m.idle_timeout_notification.table_entry[0].metadata == b"mine"
    notice = sniffed(listener, is_it).idle_timeout_notification
    assert abs(notice.timestamp - time.time_ns()) < 60e9, "nanoseconds since the Epoch"
    entry.delete()


def a_batch_with_errors():
    """Each update of a batch has its own status."""
    request = p4runtime_pb2.WriteRequest()
    request.device_id = 1
    request.election_id.high, request.election_id.low = 1, 0
    for tag in ("20", "21", "20"):
        entry = stage(1, "drop", {"tag": tag})
        entry._update_msg()
        update = request.updates.add()
        update.type = p4runtime_pb2.Update.INSERT
        update.entity.table_entry.CopyFrom(entry._entry)
    # The shell's reader of details stops at the first successful update, so it is not used.
    try:
        shell.client.stub.Write(request)
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        codes = []
        for any_message in status_pb2.Status.FromString(details).details:
            answer = p4runtime_pb2.Error()
            assert any_message.Unpack(answer)
            codes.append(answer.canonical_code)
        assert (error.code(), codes) == (grpc.StatusCode.UNKNOWN, [0, 0, 6]), codes
    else:
        raise AssertionError("the batch was accepted")


def main():
    """Runs every step in turn."""
    address, p4info, program = sys.argv[1:4]
    config = shell.FwdPipeConfig(p4info, program)
    shell.setup(1, address, (1, 0), config=config, verbose=False)
    assert shell.APIVersion()
    listener = shell.PacketIn()
    steps = [
        ("inserts_and_reads", inserts_and_reads),
        ("modifies_and_deletes", modifies_and_deletes),
        ("default_action", default_action),
        ("packets", lambda: packets(listener)),
        ("counters", counters),
        ("idle_notices", idle_notices),
        ("a_batch_with_errors", a_batch_with_errors),
    ]
    for name, step in steps:
        step()
        print("ok", name, flush=True)
    # Threads of the shell never end.
    os._exit(0)


if __name__ == "__main__":
    main()
