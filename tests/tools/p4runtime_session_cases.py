"""Cases of P4Runtime: arbitration and pipeline configuration."""

from google.protobuf import any_pb2
from p4.v1 import p4runtime_pb2 as p4
from p4runtime_peer import DEVICE, INSERT, Stream, status_of, packet_out, wait_until, update


def capabilities(nic):
    """Capabilities RPC"""
    peer = nic.peer()
    version = peer.stub.Capabilities(p4.CapabilitiesRequest()).p4runtime_api_version
    numbers = version.split(".")
    yield "a version has three numbers", (3, True), (len(numbers), all(map(str.isdigit, numbers)))
    yield "the version is 1.4", ["1", "4"], numbers[:2]
    yield "no stream is needed", "OK", status_of(
        lambda: nic.peer().stub.Capabilities(p4.CapabilitiesRequest())
    )


def before_a_pipeline(nic):
    """GetForwardingPipelineConfig RPC; Write RPC; Read RPC; Packet I/O"""
    program, stranger = nic.program, nic.peer(1)
    yield "there is no pipeline to read", False, stranger.get().HasField("config")
    yield "setting a pipeline without a stream", "PERMISSION_DENIED", stranger.set(
        "VERIFY_AND_COMMIT", program.config()
    )
    yield "a write without a stream", "PERMISSION_DENIED", stranger.write([])
    yield "a write without an election id", "PERMISSION_DENIED", nic.peer().write([])
    nic.primary, nic.stream, _ = nic.joined(1)
    primary = nic.primary
    yield "a write before the pipeline", "FAILED_PRECONDITION", primary.one(INSERT, program.entry(1))
    yield "a read before the pipeline", "FAILED_PRECONDITION", primary.read(program.everything())
    nic.stream.send(packet=packet_out(2, 0, 0))
    yield "a packet-out before the pipeline", ("FAILED_PRECONDITION", "packet_out"), nic.stream.error()


def arbitration(nic):
    """Client Arbitration and Controller Replication"""
    nic.run()
    role = nic.role()
    first, stream = nic.peer(5, role), None
    stream = Stream(first.stub)
    stream.arbitrate(5, role)
    message = stream.next("arbitration")
    yield "the first is the primary", 0, message.status.code
    yield "the primary receives its own id", (0, 5), (message.election_id.high, message.election_id.low)
    yield "the primary receives its device id", DEVICE, message.device_id
    second, backup, result = nic.joined(3, role)
    yield "a lower id is a backup, and receives the highest id", ("ALREADY_EXISTS", (0, 5)), result
    yield "a write by a backup", "PERMISSION_DENIED", second.write(
        [update(INSERT, nic.program.entry(1))]
    )
    yield "setting a pipeline by a backup", "PERMISSION_DENIED", second.set(
        "VERIFY_AND_COMMIT", nic.program.config()
    )
    yield "a read by a backup", [], second.read(nic.program.everything())
    third, taker, result = nic.joined(9, role)
    yield "a higher id takes over", ("OK", (0, 9)), result
    yield "the former primary is notified", ("ALREADY_EXISTS", (0, 9)), stream.arbitration()
    yield "a backup is notified", ("ALREADY_EXISTS", (0, 9)), backup.arbitration()
    yield "a write by the former primary", "PERMISSION_DENIED", first.write([])
    yield "a write by the new primary", "OK", third.write([])
    stream.arbitrate(5, role)
    yield "the same message again", ("ALREADY_EXISTS", (0, 9)), stream.arbitration()
    taker.close()
    yield "a backup is notified when the primary leaves", ("NOT_FOUND", (0, 9)), (
        backup.arbitration()
    )
    stream.arbitration()
    yield "the next lower id is not promoted", "PERMISSION_DENIED", first.write([])
    stream.arbitrate(9, role)
    yield "an id equal to the highest takes over", ("OK", (0, 9)), stream.arbitration()
    first.number = 9
    yield "a write by this primary", "OK", first.write([])
    stream.arbitrate(4, role)
    yield "a primary that lowers its id is primary no longer", ("NOT_FOUND", (0, 9)), stream.arbitration()
    yield "a write after that", "PERMISSION_DENIED", first.write([])
    for peer in (first, second, third):
        peer.close()


def election_ids(nic):
    """Client Arbitration and Controller Replication: election_id"""
    role = nic.role()
    peer, _stream, result = nic.joined(None, role)
    yield "without an id no client is primary", ("NOT_FOUND", None), result
    yield "a write without a primary", "PERMISSION_DENIED", peer.write([])
    zero, _zero, result = nic.joined(0, role)
    yield "id 0 is above no id", ("OK", (0, 0)), result
    yield "a write by this primary", "OK", zero.write([])
    _, _, result = nic.joined(None, role)
    yield "no id while there is a primary", ("ALREADY_EXISTS", (0, 0)), result
    _low, _low_stream, _ = nic.joined((0, (1 << 64) - 1), role)
    high, _high_stream, result = nic.joined((1, 0), role)
    yield "the high word decides first", ("OK", (1, 0)), result
    yield "a write by this primary", "OK", high.write([])


def ends_of_streams(nic):
    """Rules for Handling MasterArbitrationUpdate Messages Received from Controllers"""
    def ended(number=1, role=None, device=DEVICE, **others):
        role = nic.role() if role is None else role
        stream = Stream(nic.peer().stub)
        stream.arbitrate(number, role, device, **others)
        return stream.next()

    def moved(*message):
        role = nic.role()
        peer, stream, _ = nic.joined(7, role)
        stream.arbitrate(*(role if part is None else part for part in message))
        answer = stream.next()
        peer.close()
        return answer

    yield "an unknown device", "NOT_FOUND", ended(device=DEVICE + 1)
    yield "an election id in use", "INVALID_ARGUMENT", ended(role="")
    yield "a later message with another device", "FAILED_PRECONDITION", moved(7, None, DEVICE + 1)
    yield "a later message with another role", "FAILED_PRECONDITION", moved(7, "another")
    yield "a role configuration", "INVALID_ARGUMENT", ended(
        config=any_pb2.Any(type_url="type.googleapis.com/p4.v1.Error")
    )
    role = nic.role()
    held = [nic.joined(2, role), nic.joined(1, role)]
    held[1][1].arbitrate(2, role)
    yield "a later message with an election id in use", "INVALID_ARGUMENT", held[1][1].next()
    held[0][0].close()
    stream = Stream(nic.peer().stub)
    stream.send(packet=p4.PacketOut(payload=b"first"))
    yield "another message before the first arbitration", "FAILED_PRECONDITION", stream.next()
    role = nic.role()
    held, result = [], None
    while len(held) < 64 and result != "RESOURCE_EXHAUSTED":
        peer, stream, result = nic.joined(len(held) + 1, role)
        held.append(peer)
    yield "more streams than allowed", "RESOURCE_EXHAUSTED", result
    for peer in held:
        peer.close()
    yield "a new stream after they are closed", "OK", until_joined(nic)[0]


def until_joined(nic):
    """Returns the arbitration result of a controller once a stream is free."""
    result = [None]

    def is_in():
        peer, _, result[0] = nic.joined(1, nic.role())
        peer.close()
        return result[0] != "RESOURCE_EXHAUSTED"

    wait_until(is_in)
    return result[0]


def roles(nic):
    """Client Arbitration and Controller Replication: role"""
    names = [nic.role(), nic.role()]
    one, _one, result = nic.joined(3, names[0])
    yield "a role has a primary", ("OK", (0, 3)), result
    two, stream, result = nic.joined(2, names[1])
    yield "another role has its own primary, with a lower id", ("OK", (0, 2)), result
    stream.arbitrate(2, names[1])
    yield "the notification has the name of the role", names[1], stream.next("arbitration").role.name
    yield "both primaries write", ("OK", "OK"), (one.write([]), two.write([]))
    yield "a write for the role of the other", "PERMISSION_DENIED", one.write([], role=names[1])
    yield "a write for an unknown role", "PERMISSION_DENIED", one.write([], role="nobody")
    yield "a write for the default role", "OK", nic.primary.write([])
    one.close()
    two.close()


def unknown_devices(nic):
    """Write RPC; Read RPC; Set- and GetForwardingPipelineConfig RPC: device_id"""
    primary, other = nic.primary, DEVICE + 1
    yield "set", "NOT_FOUND", primary.set("VERIFY_AND_COMMIT", nic.program.config(), other)
    yield "get", "NOT_FOUND", status_of(lambda: primary.get(device=other))
    yield "write", "NOT_FOUND", primary.write([], device_id=other)
    yield "read", "NOT_FOUND", primary.read(nic.program.everything(), device=other)


def pipeline(nic):
    """SetForwardingPipelineConfig RPC"""
    primary, program = nic.primary, nic.program

    def cookie():
        return primary.get("COOKIE_ONLY").config.cookie.cookie

    def changed(change):
        config = program.config(9)
        change(config)
        return primary.set("VERIFY_AND_COMMIT", config)

    yield "commit", ("OK", 1), (primary.set("VERIFY_AND_COMMIT", program.config(1)), cookie())
    primary.one(INSERT, program.entry(1))
    yield "verify changes nothing", ("OK", 1), (primary.set("VERIFY", program.config(2)), cookie())
    yield "save changes nothing", ("OK", 1), (primary.set("VERIFY_AND_SAVE", program.config(3)), cookie())
    yield "entries stay", 1, len(primary.entries(program.everything()))
    yield "commit loads the saved configuration", ("OK", 3), (primary.set("COMMIT"), cookie())
    yield "commit removes all entries", [], primary.entries(program.everything())
    yield "commit with nothing saved", "NOT_FOUND", primary.set("COMMIT")
    yield "commit with a configuration", "INVALID_ARGUMENT", primary.set("COMMIT", program.config())
    yield "no action", "INVALID_ARGUMENT", primary.set("UNSPECIFIED", program.config())
    for action in ("VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"):
        name = f"{action.lower().replace('_', ' ')} without a configuration"
        yield name, "INVALID_ARGUMENT", primary.set(action)
    yield "no P4Info", "INVALID_ARGUMENT", changed(lambda config: config.ClearField("p4info"))
    yield "a P4Info without tables", "INVALID_ARGUMENT", changed(
        lambda config: config.p4info.ClearField("tables")
    )
    yield "a P4Info with another width", "INVALID_ARGUMENT", changed(
        lambda config: setattr(config.p4info.tables[0].match_fields[0], "bitwidth", 17)
    )
    yield "an invalid program", "INVALID_ARGUMENT", changed(
        lambda config: setattr(config, "p4_device_config", b"{")
    )
    yield "a refused configuration is not loaded", 3, cookie()
    yield "a valid configuration after refused ones", "OK", primary.set("VERIFY_AND_COMMIT", program.config(4))
    yield "a write after that", "OK", primary.one(INSERT, program.entry(1))
    yield "reconcile with the same program", ("OK", 5), (
        primary.set("RECONCILE_AND_COMMIT", program.config(5)), cookie(),
    )
    yield "reconcile keeps the entries", 1, len(primary.entries(program.everything()))
    yield "verify and commit removes the entries", ("OK", 0), (
        primary.set("VERIFY_AND_COMMIT", program.config(6)),
        len(primary.entries(program.everything())),
    )


def pipeline_back(nic):
    """GetForwardingPipelineConfig RPC"""
    sent = nic.program.config(6)
    parts = {
        "ALL": ("p4info", "p4_device_config"),
        "COOKIE_ONLY": (),
        "P4INFO_AND_COOKIE": ("p4info",),
        "DEVICE_CONFIG_AND_COOKIE": ("p4_device_config",),
    }
    for kind, names in parts.items():
        config = p4.ForwardingPipelineConfig(cookie=sent.cookie)
        if "p4info" in names:
            config.p4info.CopyFrom(sent.p4info)
        if "p4_device_config" in names:
            config.p4_device_config = sent.p4_device_config
        name = kind.lower().replace("_", " ")
        yield name, True, nic.primary.get(kind).config == config
    yield "no stream is needed", True, nic.peer().get().config == sent


GROUPS = [
    capabilities, before_a_pipeline, arbitration, election_ids, ends_of_streams, roles,
    unknown_devices, pipeline, pipeline_back,
]
