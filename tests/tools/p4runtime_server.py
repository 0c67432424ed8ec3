"""A P4Runtime device without a data plane, behind the gRPC server of C++.

    p4runtime_server.py P4INFO [--port PORT] [--compiled] [--answer-seconds SECONDS]

The gRPC package of Python is a wrapper of the C++ library that bmv2 and drivers of hardware use. The
server ends a connection with more than two HTTP/2 pings in an hour, unless it sent data between the pings:
these are the strictest limits of the library. The tables are those of P4INFO, and each entry has a counter
of 0 packets. Each line of the output is an event:

    ready PORT      the server listens on 127.0.0.1:PORT
    primary         a controller became primary; each connection of `shuntd` has one such event
    program         a controller set the program
    probe           a Capabilities request was answered
    read            a Read request was answered
    entries COUNT   a write was applied, after which the tables have COUNT entries
    refused REASON  an update or a request was refused

With --compiled, the device runs the program from the start. It has the P4Info that a compiler generates
from the source: with the actions that the program itself calls, and a default argument of two bytes.
With --answer-seconds, each answer to a Capabilities or Read request takes this time.
"""

import argparse
import queue
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import text_format
from google.rpc import code_pb2, status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as p4
from p4.v1 import p4runtime_pb2_grpc

HOUR_MS = 3_600_000

OPTIONS = [
    ("grpc.http2.min_ping_interval_without_data_ms", HOUR_MS),
    ("grpc.http2.max_ping_strikes", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.so_reuseport", 0),
]

# The actions of p4/gigaflow.p4 that no table has.
CALLED_ACTIONS = [
    "ingress.to_controller", "ingress.commit_link", "ingress.set_tag", "ingress.push_tag",
    "ingress.pop_tag", "ingress.commit_ipv4", "ingress.commit_ipv6", "ingress.commit_arp",
    "ingress.commit_tcp", "ingress.sum_udp", "ingress.commit_icmp",
]

# Ids of actions have the first byte 1 (P4Runtime, "ID Allocation for P4Info Objects").
FIRST_CALLED_ID = 0x01F00000


def event(*words):
    """Prints an event at once."""
    print(*words, flush=True)


def compiled(info):
    """Returns the P4Info as a compiler generates it."""
    result = p4info_pb2.P4Info()
    result.CopyFrom(info)
    for number, name in enumerate(CALLED_ACTIONS):
        action = result.actions.add()
        action.preamble.id = FIRST_CALLED_ID + number
        action.preamble.name, action.preamble.alias = name, name.rpartition(".")[2]
    widths = {(a.preamble.id, p.id): p.bitwidth for a in info.actions for p in a.params}
    for table in result.tables:
        default = table.initial_default_action
        for argument in default.arguments:
            length = (widths[default.action_id, argument.param_id] + 7) // 8
            argument.value = argument.value.rjust(length, b"\0")
    return result


class Refused(Exception):
    """An update that the device refuses."""

    def __init__(self, code, reason):
        super().__init__(reason)
        self.code = code_pb2.Code.Value(code)


def check(is_valid, reason):
    """Refuses an update unless it is valid."""
    if not is_valid:
        raise Refused("INVALID_ARGUMENT", reason)


def check_value(value, width):
    """Refuses a value that is not canonical, or wider than its field."""
    number = int.from_bytes(value, "big")
    check(value and (len(value) == 1 or value[0]), f"value {value.hex()} is not canonical")
    check(number.bit_length() <= width, f"value {value.hex()} has more than {width} bits")
    return number


class Table:
    """A table with its entries by key."""

    def __init__(self, info, actions):
        self.info, self.actions = info, actions
        self.fields = {field.id: field for field in info.match_fields}
        self.scopes = {reference.id: reference.scope for reference in info.action_refs}
        self.entries, self.default = {}, None

    def key(self, entry):
        """Returns the key of an entry, after a check of its match fields."""
        found = {match.field_id: match for match in entry.match}
        check(len(found) == len(entry.match), "a field is matched twice")
        check(found.keys() <= self.fields.keys(), "a match field is not one of the table")
        check(entry.priority > 0, "an entry has no priority")
        for number, field in self.fields.items():
            match = found.get(number)
            if field.match_type == p4info_pb2.MatchField.EXACT:
                check(match and match.HasField("exact"), f"{field.name} is not matched exactly")
                check_value(match.exact.value, field.bitwidth)
            elif match:
                check(match.HasField("ternary"), f"{field.name} has no ternary match")
                value, mask = (
                    check_value(part, field.bitwidth)
                    for part in (match.ternary.value, match.ternary.mask)
                )
                check(mask and value & ~mask == 0, f"{field.name} has bits outside its mask")
        matches = sorted(match.SerializeToString(deterministic=True) for match in found.values())
        return entry.priority, *matches

    def check_action(self, entry, forbidden_scope):
        """Checks the action of an entry."""
        call = entry.action.action
        check(call.action_id in self.scopes, f"action {call.action_id:#x} is not one of the table")
        check(self.scopes[call.action_id] != forbidden_scope, "the action has another scope")
        widths = {param.id: param.bitwidth for param in self.actions[call.action_id].params}
        given = {param.param_id: param.value for param in call.params}
        check(given.keys() == widths.keys(), f"action {call.action_id:#x} has other parameters")
        for number, value in given.items():
            check_value(value, widths[number])

    def apply(self, kind, entry):
        """Applies an update of an entry, or of the default action."""
        reference = p4info_pb2.ActionRef
        if entry.is_default_action:
            check(kind == p4.Update.MODIFY, "a default action can only be modified")
            check(not self.info.const_default_action_id, "the default action is constant")
            self.check_action(entry, reference.TABLE_ONLY)
            self.default = entry
            return
        key = self.key(entry)
        if kind != p4.Update.DELETE:
            self.check_action(entry, reference.DEFAULT_ONLY)
        if kind == p4.Update.INSERT:
            if key in self.entries:
                raise Refused("ALREADY_EXISTS", "the entry exists")
            if len(self.entries) >= self.info.size:
                raise Refused("RESOURCE_EXHAUSTED", "the table is full")
        elif key not in self.entries:
            raise Refused("NOT_FOUND", "the entry does not exist")
        if kind == p4.Update.DELETE:
            del self.entries[key]
        else:
            self.entries[key] = entry


class Device(p4runtime_pb2_grpc.P4RuntimeServicer):
    """The P4Runtime service of one device."""

    def __init__(self, running, answer_seconds):
        self.lock, self.answer_seconds = threading.Lock(), answer_seconds
        self.tables, self.config, self.primary = {}, None, None
        if running:
            self.load(running)

    def load(self, info):
        """Runs a program, with empty tables."""
        actions = {action.preamble.id: action for action in info.actions}
        self.tables = {table.preamble.id: Table(table, actions) for table in info.tables}
        self.config = p4.ForwardingPipelineConfig(p4info=info)

    def Capabilities(self, request, context):
        time.sleep(self.answer_seconds)
        event("probe")
        return p4.CapabilitiesResponse(p4runtime_api_version="1.4.1")

    def StreamChannel(self, requests, context):
        answers = queue.Queue()
        threading.Thread(target=self.listen, args=(requests, answers), daemon=True).start()
        yield from iter(answers.get, None)

    def listen(self, requests, answers):
        """Answers the arbitration messages of a stream, until the stream ends."""
        own = None
        try:
            for request in requests:
                if request.HasField("arbitration"):
                    own = request.arbitration.election_id
                    answer = self.arbitrate(request.arbitration)
                    answers.put(p4.StreamMessageResponse(arbitration=answer))
        except grpc.RpcError:
            pass  # The connection has ended.
        with self.lock:
            if own is not None and self.primary == (own.high, own.low):
                self.primary = None
        answers.put(None)

    def arbitrate(self, message):
        """Makes a controller primary, unless another controller has a higher election id."""
        election = message.election_id.high, message.election_id.low
        with self.lock:
            is_primary = self.primary is None or election > self.primary
            if is_primary:
                self.primary = election
                event("primary")
            answer = p4.MasterArbitrationUpdate(device_id=message.device_id)
            answer.election_id.high, answer.election_id.low = self.primary
        answer.status.code = code_pb2.Code.Value("OK" if is_primary else "ALREADY_EXISTS")
        return answer

    def check_primary(self, request, context):
        """Refuses a request that is not from the primary."""
        if self.primary != (request.election_id.high, request.election_id.low):
            event("refused", "the controller is not primary")
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not primary")

    def SetForwardingPipelineConfig(self, request, context):
        with self.lock:
            self.check_primary(request, context)
            self.load(request.config.p4info)
            self.config = request.config
            event("program")
        return p4.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request, context):
        with self.lock:
            if self.config is None:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no program was set")
            answer = p4.GetForwardingPipelineConfigResponse()
            answer.config.p4info.CopyFrom(self.config.p4info)
            answer.config.cookie.CopyFrom(self.config.cookie)
        return answer

    def Write(self, request, context):
        with self.lock:
            self.check_primary(request, context)
            results = [self.update(update) for update in request.updates]
            event("entries", sum(len(table.entries) for table in self.tables.values()))
        if any(result.canonical_code for result in results):
            status = status_pb2.Status(code=code_pb2.Code.Value("UNKNOWN"))
            for result in results:
                status.details.add().Pack(result)
            details = ("grpc-status-details-bin", status.SerializeToString())
            context.set_trailing_metadata((details,))
            context.abort(grpc.StatusCode.UNKNOWN, "updates were refused")
        return p4.WriteResponse()

    def update(self, update):
        """Applies an update, and returns its result."""
        try:
            check(update.entity.HasField("table_entry"), "the entity is not a table entry")
            entry = update.entity.table_entry
            check(entry.table_id in self.tables, f"table {entry.table_id:#x} does not exist")
            self.tables[entry.table_id].apply(update.type, entry)
        except Refused as refused:
            event("refused", refused)
            return p4.Error(canonical_code=refused.code, message=str(refused))
        return p4.Error()

    def Read(self, request, context):
        time.sleep(self.answer_seconds)
        event("read")
        answer = p4.ReadResponse()
        with self.lock:
            for entity in request.entities:
                asked = entity.table_entry
                if asked.table_id and asked.table_id not in self.tables:
                    context.abort(grpc.StatusCode.NOT_FOUND, "the table does not exist")
                for number in [asked.table_id] if asked.table_id else self.tables:
                    read(self.tables[number], asked, answer)
        yield answer


def read(table, asked, answer):
    """Adds the entries of a table that a query selects to an answer."""
    keys = [table.key(asked)] if asked.match else list(table.entries)
    for entry in filter(None, map(table.entries.get, keys)):
        found = answer.entities.add().table_entry
        found.CopyFrom(entry)
        if asked.HasField("counter_data"):
            found.counter_data.SetInParent()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("p4info")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--answer-seconds", type=float, default=0)
    arguments = parser.parse_args()
    info = p4info_pb2.P4Info()
    with open(arguments.p4info, encoding="utf-8") as file:
        text_format.Parse(file.read(), info)
    device = Device(compiled(info) if arguments.compiled else None, arguments.answer_seconds)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=OPTIONS)
    p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(device, server)
    port = server.add_insecure_port(f"127.0.0.1:{arguments.port}")
    server.start()
    event("ready", port)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
