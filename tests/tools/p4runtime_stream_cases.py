"""Cases of P4Runtime: counters, packets and stream messages."""

import time

from google.protobuf import any_pb2
from p4.v1 import p4runtime_pb2 as p4
from p4runtime_peer import DELETE, INSERT, IPV4, MODIFY, SECOND, frame, packet_out, wait_until, update


def counter(entry, **data):
    """Returns the direct counter of an entry."""
    counted = p4.DirectCounterEntry(table_entry=entry)
    if data:
        counted.data.CopyFrom(p4.CounterData(**data))
    return p4.Entity(direct_counter_entry=counted)


def counters(nic):
    """DirectCounterEntry; TableEntry: Direct Resources"""
    primary, p, stream = nic.primary, nic.program, nic.stream
    entry, other = p.entry(0, action=p.action("forward", 2)), p.entry(5)
    primary.write([update(INSERT, entry), update(INSERT, other)])

    def counts(*questions):
        found = [entity.direct_counter_entry for entity in primary.read(*questions)]
        return sorted((count.data.packet_count, count.data.byte_count) for count in found)

    asked = p.everything(counter_data=p4.CounterData())
    yield "counters begin at zero", [(0, 0), (0, 0)], counts(counter(p.everything()))
    for _ in range(3):
        stream.send(packet=packet_out(0, 1, 1))
    wait_until(lambda: counts(counter(p.everything()))[-1][0] == 3)
    hit = (3, 3 * len(IPV4))
    yield "hits are counted in packets and bytes", [(0, 0), hit], counts(counter(p.everything()))
    yield "the counter of an entry", [hit], counts(counter(entry))
    yield "the counters of all tables", [(0, 0), hit], counts(counter(p.everything(None)))
    yield "an entry has its counter if the query asks for it", [0, 3], sorted(
        found.counter_data.packet_count for found in primary.entries(asked)
    )
    yield "an entry has no counter otherwise", [False, False], [
        found.HasField("counter_data") for found in primary.entries(p.everything())
    ]
    yield "modify", "OK", primary.one(MODIFY, counter(entry, packet_count=10, byte_count=1000))
    yield "modify sets the counter", [(10, 1000)], counts(counter(entry))
    stream.send(packet=packet_out(0, 1, 1))
    wait_until(lambda: counts(counter(entry))[0][0] == 11)
    yield "the counter continues from there", [(11, 1000 + len(IPV4))], counts(counter(entry))
    yield "insert", "INVALID_ARGUMENT", primary.one(INSERT, counter(entry, packet_count=1))
    yield "delete", "INVALID_ARGUMENT", primary.one(DELETE, counter(entry, packet_count=1))
    yield "a negative count", "INVALID_ARGUMENT", primary.one(MODIFY, counter(entry, packet_count=-1))
    yield "a counter without an entry", "INVALID_ARGUMENT", primary.one(MODIFY, counter(None, packet_count=1))
    yield "a counter of a missing entry", "NOT_FOUND", primary.one(
        MODIFY, counter(p.entry(6), packet_count=1)
    )
    yield "a counter of a table that has none", ["INVALID_ARGUMENT"], primary.read(
        counter(p.everything("start_table"))
    )
    nic.run()


def packets(nic):
    """Packet I/O"""
    stream, p = nic.stream, nic.program
    backup, beside, _ = nic.joined(0)
    strange = frame(0x88B5)
    stream.send(packet=packet_out(0, 1, 1, strange))
    packet = stream.next("packet")
    yield "a packet that misses arrives unchanged", strange, packet.payload
    expected = {1: b"\1", 2: b"\0", 3: b"\0", 4: b"\0"}
    yield "a packet-in has each metadata field once", sorted(expected.items()), sorted(
        (field.metadata_id, field.value) for field in packet.metadata
    )
    rewritten = p.action("set_ip", 0, 0, 0x0A090909, 0xFFFFFFFF, 0, 0, 0, 0, 300)
    nic.primary.one(INSERT, p.entry(0, action=rewritten))
    stream.send(packet=packet_out(0, 1, 1))
    packet = stream.next("packet")
    result = {field.metadata_id: int.from_bytes(field.value, "big") for field in packet.metadata}
    yield "a packet that misses after a rewrite arrives unchanged", IPV4, packet.payload
    yield "its metadata has the tag and the stage", (300, 1), (result[3], result[4])
    yield "metadata values are as short as possible", [], [
        field for field in packet.metadata if len(field.value) > 1 and field.value[0] == 0
    ]
    beside.arbitrate(0)
    yield "a backup receives none", "arbitration", beside.next().WhichOneof("update")
    beside.send(packet=packet_out(2, 0, 0))
    yield "a packet-out of a backup", ("PERMISSION_DENIED", "packet_out"), beside.error()
    whole = packet_out(2, 0, 0).metadata

    def bad(*fields, payload=IPV4):
        metadata = [p4.PacketMetadata(metadata_id=number, value=value) for number, value in fields]
        stream.send(packet=p4.PacketOut(payload=payload, metadata=metadata))
        return stream.error()

    one, two, three = [(field.metadata_id, field.value) for field in whole]
    wrong = ("INVALID_ARGUMENT", "packet_out")
    yield "a packet-out without metadata", wrong, bad()
    yield "a packet-out with a missing field", wrong, bad(one, two)
    yield "a packet-out with a field twice", wrong, bad(one, one, two, three)
    yield "a packet-out with an unknown field", wrong, bad(one, two, (9, b"\0"))
    yield "a packet-out with a value that is too wide", wrong, bad((1, b"\1\0\0"), two, three)
    yield "a packet-out with an empty value", wrong, bad((1, b""), two, three)
    yield "a packet-out to a missing port", wrong, bad((1, b"\x63"), two, three)
    yield "a packet-out without a payload", wrong, bad(one, two, three, payload=b"")
    stream.send(packet=packet_out(0, 1, 1, strange))
    yield "the stream stays open", strange, stream.next("packet").payload
    backup.close()
    nic.run()


def idle_notices(nic):
    """Table Idle Timeout Notification; TableEntry: Idle-timeout"""
    primary, p, stream = nic.primary, nic.program, nic.stream
    backup, beside, _ = nic.joined(0)
    entry = p.entry(5, 10, idle_timeout_ns=SECOND // 2, metadata=b"mine", controller_metadata=77)
    begun = time.monotonic()
    primary.one(INSERT, entry)
    notice = stream.next("idle_timeout_notification")
    yield "a notification arrives after the timeout", True, time.monotonic() - begun >= 0.49
    [result] = notice.table_entry
    yield "the notification names the entry", (entry.table_id, list(entry.match), 1), (
        result.table_id, list(result.match), result.priority,
    )
    yield "the notification has the controller's metadata", (b"mine", 77, SECOND // 2), (
        result.metadata, result.controller_metadata, result.idle_timeout_ns,
    )
    yield "the notification has the time since the Epoch", True, abs(notice.timestamp - time.time_ns()) < 60 * SECOND
    yield "the entry stays", [entry], primary.entries(p.everything())
    again = stream.next("idle_timeout_notification")
    yield "the notification is repeated", [b"mine"], [entry.metadata for entry in again.table_entry]
    asked = p.everything(time_since_last_hit=p4.TableEntry.IdleTimeout())
    idle = primary.entries(asked)[0].time_since_last_hit.elapsed_ns
    yield "the time since the last hit is read", True, SECOND <= idle < 60 * SECOND
    yield "it is read only if the query asks for it", False, primary.entries(p.everything())[0].HasField(
        "time_since_last_hit"
    )
    beside.arbitrate(0)
    yield "a backup receives none", "arbitration", beside.next().WhichOneof("update")
    backup.close()
    nic.run()


def streams(nic):
    """Stream Error Reporting; Digest Messages"""
    stream = nic.stream
    stream.send(digest_ack=p4.DigestListAck(digest_id=0x17000001, list_id=1))
    yield "an acknowledgement of an unknown digest", ("NOT_FOUND", "digest_list_ack"), stream.error()
    stream.send(other=any_pb2.Any(type_url="type.googleapis.com/p4.v1.Error"))
    yield "a message of another protocol", ("UNIMPLEMENTED", "other"), stream.error()
    stream.send()
    yield "an empty message", ("INVALID_ARGUMENT", "other"), stream.error()
    stream.arbitrate(1)
    yield "the stream stays open", "OK", stream.arbitration()[0]


GROUPS = [
    counters, packets, idle_notices, streams,
]
