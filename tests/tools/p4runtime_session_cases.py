"""Cases of P4Runtime: who may speak, and which program runs."""

from google.protobuf import any_pb2
from p4.v1 import p4runtime_pb2 as p4
from p4runtime_peer import DEVICE, INSERT, Stream, answered, packet_out, until, update


def capabilities(nic):
    """Capabilities RPC"""
    peer = nic.peer()
    version = peer.stub.Capabilities(p4.CapabilitiesRequest()).p4runtime_api_version
    numbers = version.split(".")
    yield "a version is of three numbers", (3, True), (len(numbers), all(map(str.isdigit, numbers)))
    yield "it is that of the protocol", ["1", "4"], numbers[:2]
    yield "no stream is needed", "OK", answered(
        lambda: nic.peer().stub.Capabilities(p4.CapabilitiesRequest())
    )


def before_a_pipeline(nic):
    """GetForwardingPipelineConfig RPC; Write RPC; Read RPC; Packet I/O"""
    program, stranger = nic.program, nic.peer(1)
    yield "there is none to get", False, stranger.get().HasField("config")
    yield "none is set without a stream", "PERMISSION_DENIED", stranger.set(
        "VERIFY_AND_COMMIT", program.config()
    )
    yield "nothing is written without a stream", "PERMISSION_DENIED", stranger.write([])
    yield "nothing is written without an id", "PERMISSION_DENIED", nic.peer().write([])
    nic.primary, nic.stream, _ = nic.joined(1)
    primary = nic.primary
    yield "nothing is written", "FAILED_PRECONDITION", primary.one(INSERT, program.entry(1))
    yield "nothing is read", "FAILED_PRECONDITION", primary.read(program.everything())
    nic.stream.send(packet=packet_out(2, 0, 0))
    yield "nothing is sent", ("FAILED_PRECONDITION", "packet_out"), nic.stream.error()


def arbitration(nic):
    """Client Arbitration and Controller Replication"""
    nic.run()
    role = nic.role()
    first, stream = nic.peer(5, role), None
    stream = Stream(first.stub)
    stream.arbitrate(5, role)
    message = stream.next("arbitration")
    yield "the first is the primary", 0, message.status.code
    yield "and hears its own id", (0, 5), (message.election_id.high, message.election_id.low)
    yield "and the number of its device", DEVICE, message.device_id
    second, backup, told = nic.joined(3, role)
    yield "a lower id is a backup, and hears the highest", ("ALREADY_EXISTS", (0, 5)), told
    yield "a backup does not write", "PERMISSION_DENIED", second.write(
        [update(INSERT, nic.program.entry(1))]
    )
    yield "nor does it set a pipeline", "PERMISSION_DENIED", second.set(
        "VERIFY_AND_COMMIT", nic.program.config()
    )
    yield "but it reads", [], second.read(nic.program.everything())
    third, taker, told = nic.joined(9, role)
    yield "a higher id takes over", ("OK", (0, 9)), told
    yield "the old primary hears of it", ("ALREADY_EXISTS", (0, 9)), stream.told()
    yield "and so does a backup", ("ALREADY_EXISTS", (0, 9)), backup.told()
    yield "the old primary does not write any more", "PERMISSION_DENIED", first.write([])
    yield "the new one does", "OK", third.write([])
    stream.arbitrate(5, role)
    yield "the same message again has the same answer", ("ALREADY_EXISTS", (0, 9)), stream.told()
    taker.close()
    yield "when the primary goes the others hear that there is none", ("NOT_FOUND", (0, 9)), (
        backup.told()
    )
    stream.told()
    yield "the next lower id is not promoted", "PERMISSION_DENIED", first.write([])
    stream.arbitrate(9, role)
    yield "an id as high as the highest will do", ("OK", (0, 9)), stream.told()
    first.number = 9
    yield "and writes", "OK", first.write([])
    stream.arbitrate(4, role)
    yield "a primary steps down by a lower id", ("NOT_FOUND", (0, 9)), stream.told()
    yield "and does not write any more", "PERMISSION_DENIED", first.write([])
    for peer in (first, second, third):
        peer.close()


def election_ids(nic):
    """Client Arbitration and Controller Replication: election_id"""
    role = nic.role()
    peer, _stream, told = nic.joined(None, role)
    yield "without one nobody is primary", ("NOT_FOUND", None), told
    yield "and nobody writes", "PERMISSION_DENIED", peer.write([])
    zero, _zero, told = nic.joined(0, role)
    yield "zero is one, and above none", ("OK", (0, 0)), told
    yield "and writes", "OK", zero.write([])
    _, _, told = nic.joined(None, role)
    yield "without one beside a primary", ("ALREADY_EXISTS", (0, 0)), told
    _low, _low_stream, _ = nic.joined((0, (1 << 64) - 1), role)
    high, _high_stream, told = nic.joined((1, 0), role)
    yield "the high word comes first", ("OK", (1, 0)), told
    yield "and writes", "OK", high.write([])


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
    yield "a live election id", "INVALID_ARGUMENT", ended(role="")
    yield "a later message with another device", "FAILED_PRECONDITION", moved(7, None, DEVICE + 1)
    yield "a later message with another role", "FAILED_PRECONDITION", moved(7, "another")
    yield "a role's configuration that nobody has agreed on", "INVALID_ARGUMENT", ended(
        config=any_pb2.Any(type_url="type.googleapis.com/p4.v1.Error")
    )
    role = nic.role()
    held = [nic.joined(2, role), nic.joined(1, role)]
    held[1][1].arbitrate(2, role)
    yield "a later message with a live election id", "INVALID_ARGUMENT", held[1][1].next()
    held[0][0].close()
    stream = Stream(nic.peer().stub)
    stream.send(packet=p4.PacketOut(payload=b"first"))
    yield "another message before the first arbitration", "FAILED_PRECONDITION", stream.next()
    role = nic.role()
    held, told = [], None
    while len(held) < 64 and told != "RESOURCE_EXHAUSTED":
        peer, stream, told = nic.joined(len(held) + 1, role)
        held.append(peer)
    yield "more than there may be", "RESOURCE_EXHAUSTED", told
    for peer in held:
        peer.close()
    yield "and when they are gone there is room", "OK", until_joined(nic)[0]


def until_joined(nic):
    """What a controller is told once there is room for it."""
    told = [None]

    def is_in():
        peer, _, told[0] = nic.joined(1, nic.role())
        peer.close()
        return told[0] != "RESOURCE_EXHAUSTED"

    until(is_in)
    return told[0]


def roles(nic):
    """Client Arbitration and Controller Replication: role"""
    names = [nic.role(), nic.role()]
    one, _one, told = nic.joined(3, names[0])
    yield "a role has a primary", ("OK", (0, 3)), told
    two, stream, told = nic.joined(2, names[1])
    yield "and another one its own, with a lower id", ("OK", (0, 2)), told
    stream.arbitrate(2, names[1])
    yield "a role is told with its name", names[1], stream.next("arbitration").role.name
    yield "both write", ("OK", "OK"), (one.write([]), two.write([]))
    yield "not with the id of the other", "PERMISSION_DENIED", one.write([], role=names[1])
    yield "nor for a role that nobody has", "PERMISSION_DENIED", one.write([], role="nobody")
    yield "the default role is one besides", "OK", nic.primary.write([])
    one.close()
    two.close()


def unknown_devices(nic):
    """Write RPC; Read RPC; Set- and GetForwardingPipelineConfig RPC: device_id"""
    primary, other = nic.primary, DEVICE + 1
    yield "set", "NOT_FOUND", primary.set("VERIFY_AND_COMMIT", nic.program.config(), other)
    yield "get", "NOT_FOUND", answered(lambda: primary.get(device=other))
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
    yield "to verify changes nothing", ("OK", 1), (primary.set("VERIFY", program.config(2)), cookie())
    yield "nor does to save", ("OK", 1), (primary.set("VERIFY_AND_SAVE", program.config(3)), cookie())
    yield "and entries stay", 1, len(primary.entries(program.everything()))
    yield "what is saved is committed", ("OK", 3), (primary.set("COMMIT"), cookie())
    yield "without the entries of before", [], primary.entries(program.everything())
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
    yield "a program that is none", "INVALID_ARGUMENT", changed(
        lambda config: setattr(config, "p4_device_config", b"{")
    )
    yield "what was refused does not run", 3, cookie()
    yield "a good one after bad ones", "OK", primary.set("VERIFY_AND_COMMIT", program.config(4))
    yield "and writes work", "OK", primary.one(INSERT, program.entry(1))
    yield "reconcile with the same program", ("OK", 5), (
        primary.set("RECONCILE_AND_COMMIT", program.config(5)), cookie(),
    )
    yield "keeps the entries", 1, len(primary.entries(program.everything()))
    yield "commit takes them out", ("OK", 0), (
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
