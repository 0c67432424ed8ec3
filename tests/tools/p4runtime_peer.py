"""A P4Runtime controller that sends exactly the messages of a test, including invalid messages.

Results are names of canonical codes, so that tests can compare them with names in the specification.
"""

import queue
import struct
import threading
import time

import grpc
from google.protobuf import text_format
from google.rpc import code_pb2, status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as p4
from p4.v1 import p4runtime_pb2_grpc

DEVICE = 1
INSERT, MODIFY, DELETE = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE

# One header has the details of a whole batch. Controllers do not share connections.
OPTIONS = [
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]

# Maximum time of a reply in seconds. Even a thousand updates take less than a second.
REPLY_TIMEOUT = 20

SECOND = 1_000_000_000

MAC_A, MAC_B = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


def code_name(code):
    """Returns the name of a canonical code."""
    return code_pb2.Code.Name(code)


def shortest(number):
    """Returns a number as its canonical binary string."""
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")


def status_of(call):
    """Makes a gRPC call, and returns the name of the status code."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def election(number):
    """Returns an election id: of a number, of a pair of words, or None for None."""
    if number is None:
        return None
    high, low = number if isinstance(number, tuple) else (0, number)
    return p4.Uint128(high=high, low=low)


class Program:
    """A P4 program: finds its tables, fields and actions by name."""

    def __init__(self, p4info_path, config_path):
        self.info = p4info_pb2.P4Info()
        with open(p4info_path, encoding="utf-8") as file:
            text_format.Parse(file.read(), self.info)
        with open(config_path, "rb") as file:
            self.device_config = file.read()

    def config(self, cookie=1):
        """Returns the pipeline configuration that loads the program."""
        config = p4.ForwardingPipelineConfig(p4_device_config=self.device_config)
        config.p4info.CopyFrom(self.info)
        config.cookie.cookie = cookie
        return config

    def table(self, alias):
        """Returns a table by its name."""
        return next(table for table in self.info.tables if table.preamble.alias == alias)

    def action_info(self, alias):
        """Returns an action by its name."""
        return next(action for action in self.info.actions if action.preamble.alias == alias)

    def field(self, name):
        """Returns the id of a field, which is the same in all stages."""
        return next(f.id for f in self.table("ltm_1").match_fields if f.name == name)

    def exact(self, name, value):
        """Returns an exact match; numbers are encoded canonically, bytes are sent unchanged."""
        value = shortest(value) if isinstance(value, int) else value
        return p4.FieldMatch(field_id=self.field(name), exact=p4.FieldMatch.Exact(value=value))

    def ternary(self, name, value, mask):
        """Returns a ternary match."""
        value, mask = [shortest(v) if isinstance(v, int) else v for v in (value, mask)]
        ternary = p4.FieldMatch.Ternary(value=value, mask=mask)
        return p4.FieldMatch(field_id=self.field(name), ternary=ternary)

    def action(self, alias, *values):
        """Returns an action with its parameters in their order."""
        action = p4.TableAction()
        action.action.action_id = self.action_info(alias).preamble.id
        for number, value in enumerate(values, 1):
            value = shortest(value) if isinstance(value, int) else value
            action.action.params.add(param_id=number, value=value)
        return action

    def entry(self, tag, address=0, table="ltm_1", **others):
        """Returns an entry of a stage that matches a tag and, if given, a destination address."""
        match = [self.exact("tag", tag)]
        if address:
            match.append(self.ternary("ip_dst", address, 0xFFFFFFFF))
        others = {"match": match, "action": self.action("next", 2), "priority": 1, **others}
        others = {name: value for name, value in others.items() if value is not None}
        return p4.TableEntry(table_id=self.table(table).preamble.id, **others)

    def default(self, table, action=None, **others):
        """Returns the default entry of a table."""
        table = self.table(table).preamble.id
        return p4.TableEntry(table_id=table, action=action, is_default_action=True, **others)

    def everything(self, table="ltm_1", **asked):
        """Returns a query for the entries of a table, or of all tables with None."""
        number = self.table(table).preamble.id if table else 0
        return p4.TableEntry(table_id=number, **asked)


def update(kind, entity):
    """Returns an update of an entity, of a table entry, or without an entity."""
    if isinstance(entity, p4.TableEntry):
        entity = p4.Entity(table_entry=entity)
    return p4.Update(type=kind, entity=entity)


def parts(error):
    """Returns the status code of a failed request, or of each update if it has details."""
    if error.code() != grpc.StatusCode.UNKNOWN:
        return error.code().name
    trailer = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
    names = []
    for detail in status_pb2.Status.FromString(trailer).details:
        answer = p4.Error()
        assert detail.Unpack(answer), "the details are p4.v1.Error"
        names.append(code_name(answer.canonical_code))
    return names


class Stream:
    """The stream channel of a controller."""

    def __init__(self, stub):
        self.outgoing, self.incoming = queue.Queue(), queue.Queue()
        self.call = stub.StreamChannel(iter(self.outgoing.get, None))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        try:
            for message in self.call:
                self.incoming.put(message)
            self.incoming.put("OK")
        except grpc.RpcError as error:
            self.incoming.put(error.code().name)

    def send(self, **update):
        """Sends a message."""
        self.outgoing.put(p4.StreamMessageRequest(**update))

    def arbitrate(self, number, role="", device=DEVICE, config=None):
        """Sends an arbitration message."""
        message = p4.MasterArbitrationUpdate(device_id=device, election_id=election(number))
        if role or config:
            message.role.name = role
        if config:
            message.role.config.CopyFrom(config)
        self.send(arbitration=message)

    def next(self, kind=None, timeout=REPLY_TIMEOUT):
        """Returns the next message, or the next message of a kind, or the status of an ended stream."""
        while True:
            message = self.incoming.get(timeout=timeout)
            if isinstance(message, str) or kind is None:
                return message
            if message.WhichOneof("update") == kind:
                return getattr(message, kind)

    def arbitration(self):
        """Returns the next arbitration result: the code, and the highest election id."""
        message = self.next("arbitration")
        if isinstance(message, str):
            return message
        highest = message.election_id if message.HasField("election_id") else None
        return code_name(message.status.code), highest and (highest.high, highest.low)

    def error(self):
        """Returns the next stream error: the code, and the kind of the refused message."""
        error = self.next("error")
        return code_name(error.canonical_code), error.WhichOneof("details")

    def close(self):
        """Ends the stream."""
        self.outgoing.put(None)
        self.call.cancel()


class Peer:
    """A controller with its connection."""

    def __init__(self, address, number=None, role=""):
        self.channel = grpc.insecure_channel(address, OPTIONS)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        self.number, self.role = number, role

    def join(self):
        """Opens a stream and starts arbitration; returns the stream and the result."""
        stream = Stream(self.stub)
        stream.arbitrate(self.number, self.role)
        return stream, stream.arbitration()

    def set(self, action, config=None, device=DEVICE):
        """Sets a pipeline, and returns the status code."""
        request = p4.SetForwardingPipelineConfigRequest(
            device_id=device, role=self.role, election_id=election(self.number), config=config,
            action=p4.SetForwardingPipelineConfigRequest.Action.Value(action),
        )
        return status_of(lambda: self.stub.SetForwardingPipelineConfig(request, timeout=REPLY_TIMEOUT))

    def get(self, kind="ALL", device=DEVICE):
        """Returns the loaded configuration."""
        request = p4.GetForwardingPipelineConfigRequest(device_id=device)
        request.response_type = request.ResponseType.Value(kind)
        return self.stub.GetForwardingPipelineConfig(request, timeout=REPLY_TIMEOUT)

    def write(self, updates, **others):
        """Writes a batch; returns OK, the code of the request, or the codes of the updates."""
        others = {"device_id": DEVICE, "role": self.role, **others}
        request = p4.WriteRequest(
            election_id=election(self.number), updates=updates, **others
        )
        try:
            self.stub.Write(request, timeout=REPLY_TIMEOUT)
        except grpc.RpcError as error:
            return parts(error)
        return "OK"

    def one(self, kind, entity):
        """Writes one update, and returns its code."""
        answer = self.write([update(kind, entity)])
        return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer

    def read(self, *entities, device=DEVICE):
        """Returns the entities that match the queries, or the codes of refused queries."""
        wrapped = [
            p4.Entity(table_entry=asked) if isinstance(asked, p4.TableEntry) else asked
            for asked in entities
        ]
        request = p4.ReadRequest(device_id=device, role=self.role, entities=wrapped)
        try:
            replies = self.stub.Read(request, timeout=REPLY_TIMEOUT)
            return [entity for reply in replies for entity in reply.entities]
        except grpc.RpcError as error:
            return parts(error)

    def entries(self, asked):
        """Returns the table entries that match a query, in the order of their encoded form."""
        found = [entity.table_entry for entity in self.read(asked)]
        return sorted(found, key=lambda entry: entry.SerializeToString(deterministic=True))

    def close(self):
        """Closes the connection, and with it the streams."""
        self.channel.close()


class Nic:
    """The NIC under test, and its program."""

    def __init__(self, address, p4info, config):
        self.address, self.program = address, Program(p4info, config)
        self.roles = 0
        self.primary = self.stream = None

    def peer(self, number=None, role=""):
        """Returns a controller that has not sent a message yet."""
        return Peer(self.address, number, role)

    def joined(self, number, role=""):
        """Returns a controller, its stream, and its arbitration result."""
        peer = self.peer(number, role)
        return peer, *peer.join()

    def role(self):
        """Returns a role that was not used before."""
        self.roles += 1
        return f"role-{self.roles}"

    def run(self):
        """Loads the program without entries, as the primary of the default role."""
        answer = self.primary.set("VERIFY_AND_COMMIT", self.program.config())
        assert answer == "OK", answer


def frame(ether_type, payload=bytes(46)):
    """Returns an Ethernet frame."""
    return MAC_B + MAC_A + struct.pack("!H", ether_type) + payload


IPV4 = frame(0x0800, bytes.fromhex("4500002e00000000401100000a0000010a000002") + bytes(26))


def packet_out(egress, ingress, resubmit, payload=IPV4):
    """Returns a packet-out."""
    packet = p4.PacketOut(payload=payload)
    for number, value in enumerate((egress, ingress, resubmit), 1):
        packet.metadata.add(metadata_id=number, value=bytes([value]))
    return packet


def wait_until(is_true, timeout=10):
    """Waits until a condition is true, and returns whether it is."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if is_true():
            return True
        time.sleep(0.02)
    return False
