"""Cases of P4Runtime: writes and reads of entities."""

from p4.v1 import p4runtime_pb2 as p4
from p4runtime_peer import DELETE, INSERT, MODIFY, SECOND, update


def inserted(nic, entry):
    """Returns the code of an insert, and deletes the entry again."""
    answer = nic.primary.one(INSERT, entry)
    if answer == "OK":
        assert nic.primary.one(DELETE, entry) == "OK"
    return answer


def matches(nic):
    """TableEntry: Match Format"""
    p = nic.program
    tag, address = p.exact("tag", 1), p.ternary("ip_dst", 10, 255)
    unknown = p4.FieldMatch(field_id=99, exact=p4.FieldMatch.Exact(value=b"\1"))
    kindless = p4.FieldMatch(field_id=p.field("tag"))
    prefix = p4.FieldMatch(field_id=p.field("ip_dst"))
    prefix.lpm.value, prefix.lpm.prefix_len = b"\x0a\0\0\0", 8
    cases = [
        ("fields in any order", [address, tag], "OK"),
        ("a missing ternary field", [tag], "OK"),
        ("a missing exact field", [address], "INVALID_ARGUMENT"),
        ("no fields", [], "INVALID_ARGUMENT"),
        ("a field twice", [tag, address, address], "INVALID_ARGUMENT"),
        ("an unknown field", [tag, unknown], "INVALID_ARGUMENT"),
        ("a field without a kind", [kindless], "INVALID_ARGUMENT"),
        ("an exact field with a mask", [p.ternary("tag", 1, 1)], "INVALID_ARGUMENT"),
        ("a ternary field with a prefix", [tag, prefix], "INVALID_ARGUMENT"),
        ("a mask of zero", [tag, p.ternary("ip_dst", 0, 0)], "INVALID_ARGUMENT"),
        ("a value outside of its mask", [tag, p.ternary("ip_dst", 3, 1)], "INVALID_ARGUMENT"),
        ("all bits of an odd width", [tag, p.ternary("tcp_flags", 0xFFF, 0xFFF)], "OK"),
        ("every bit of the longest field", [tag, p.ternary("ipv6_dst", 2**128 - 1, 2**128 - 1)], "OK"),
    ]
    for name, match, expected in cases:
        yield name, expected, inserted(nic, p.entry(1, match=match))


def bytestrings(nic):
    """Bytestrings"""
    p = nic.program
    tag = p.exact("tag", 1)
    cases = [
        ("leading zeros", [p.exact("tag", b"\0\0\1")], "OK"),
        ("zero as one byte", [p.exact("tag", b"\0")], "OK"),
        ("an empty value", [p.exact("tag", b"")], "OUT_OF_RANGE"),
        ("an empty mask", [tag, p.ternary("ip_dst", b"\1", b"")], "OUT_OF_RANGE"),
        ("too wide by a byte", [p.exact("tag", b"\1\0\0")], "OUT_OF_RANGE"),
        ("too wide by a bit", [tag, p.ternary("ip_frag", 4, 4)], "OUT_OF_RANGE"),
    ]
    for name, match, expected in cases:
        yield name, expected, inserted(nic, p.entry(1, match=match))
    for name, value, expected in [
        ("a parameter with leading zeros", b"\0\0\2", "OK"),
        ("an empty parameter", b"", "OUT_OF_RANGE"),
        ("a parameter that is too wide", b"\1\0\0", "OUT_OF_RANGE"),
    ]:
        yield name, expected, inserted(nic, p.entry(1, action=p.action("next", value)))
    padded = [p.exact("tag", b"\0\1"), p.ternary("ip_dst", b"\0\x0a", b"\0\xff")]
    nic.primary.one(INSERT, p.entry(1, match=padded, action=p.action("next", b"\0\2")))
    shortest = p.entry(1, match=[p.exact("tag", 1), p.ternary("ip_dst", 10, 255)])
    yield "values that are read are as short as possible", [shortest], nic.primary.entries(p.everything())
    yield "a delete with leading zeros", "OK", nic.primary.one(
        DELETE, p.entry(1, match=padded)
    )


def actions(nic):
    """TableEntry: Action Specification"""
    p = nic.program
    unknown, member, group = p4.TableAction(), p4.TableAction(), p4.TableAction()
    unknown.action.action_id = 0x0100FFFF
    member.action_profile_member_id, group.action_profile_group_id = 1, 1
    one_shot = p4.TableAction()
    one_shot.action_profile_action_set.action_profile_actions.add(weight=1)
    twice, strange = p.action("next", 2, 3), p.action("next", 2)
    twice.action.params[1].param_id = 1
    strange.action.params[0].param_id = 7
    cases = [
        ("an action without parameters", p.action("drop"), "OK"),
        ("an action with one parameter", p.action("forward", 2), "OK"),
        ("no action", None, "INVALID_ARGUMENT"),
        ("an action without a kind", p4.TableAction(), "INVALID_ARGUMENT"),
        ("an unknown action", unknown, "INVALID_ARGUMENT"),
        ("an action of another table", p.action("start", 1), "INVALID_ARGUMENT"),
        ("an action for default entries only", p.action("miss"), "PERMISSION_DENIED"),
        ("a member of a profile", member, "INVALID_ARGUMENT"),
        ("a group of a profile", group, "INVALID_ARGUMENT"),
        ("a one-shot action set", one_shot, "INVALID_ARGUMENT"),
        ("a missing parameter", p.action("next"), "INVALID_ARGUMENT"),
        ("a surplus parameter", p.action("next", 2, 3), "INVALID_ARGUMENT"),
        ("a parameter twice", twice, "INVALID_ARGUMENT"),
        ("an unknown parameter", strange, "INVALID_ARGUMENT"),
    ]
    for name, action, expected in cases:
        yield name, expected, inserted(nic, p.entry(1, action=action))


def entries(nic):
    """TableEntry"""
    p = nic.program
    elapsed = p4.TableEntry.IdleTimeout(elapsed_ns=1)
    negative = p4.CounterData(packet_count=-1)
    cases = [
        ("the greatest priority", p.entry(1, priority=2**31 - 1), "OK"),
        ("no priority", p.entry(1, priority=0), "INVALID_ARGUMENT"),
        ("a negative priority", p.entry(1, priority=-1), "INVALID_ARGUMENT"),
        ("a timeout", p.entry(1, idle_timeout_ns=SECOND), "OK"),
        ("a negative timeout", p.entry(1, idle_timeout_ns=-1), "INVALID_ARGUMENT"),
        ("a time since the last hit", p.entry(1, time_since_last_hit=elapsed), "INVALID_ARGUMENT"),
        ("metadata of both kinds", p.entry(1, metadata=b"mine", controller_metadata=7), "OK"),
        ("a counter", p.entry(1, counter_data=p4.CounterData(packet_count=3)), "OK"),
        ("a negative counter", p.entry(1, counter_data=negative), "INVALID_ARGUMENT"),
        ("a meter, which the table does not have", p.entry(1, meter_config=p4.MeterConfig()), "INVALID_ARGUMENT"),
        ("a constant entry", p.entry(1, is_const=True), "INVALID_ARGUMENT"),
        ("no table", p4.TableEntry(priority=1), "INVALID_ARGUMENT"),
        ("an unknown table", p4.TableEntry(table_id=0x02FFFFFF, priority=1), "NOT_FOUND"),
        ("an action id as table id", p4.TableEntry(table_id=0x01000001), "INVALID_ARGUMENT"),
        (
            "an entry of a table without a key",
            p4.TableEntry(table_id=p.table("start_table").preamble.id, action=p.action("start", 1)),
            "INVALID_ARGUMENT",
        ),
    ]
    for name, entry, expected in cases:
        yield name, expected, inserted(nic, entry)


def updates(nic):
    """Write RPC: Update"""
    primary, p = nic.primary, nic.program
    entry, other = p.entry(1, 10), p.entry(1, 10, priority=2)
    yield "modify a missing entry", "NOT_FOUND", primary.one(MODIFY, entry)
    yield "delete a missing entry", "NOT_FOUND", primary.one(DELETE, entry)
    yield "insert", "OK", primary.one(INSERT, entry)
    yield "insert again", "ALREADY_EXISTS", primary.one(INSERT, entry)
    yield "insert with another action", "ALREADY_EXISTS", primary.one(
        INSERT, p.entry(1, 10, action=p.action("drop"))
    )
    yield "insert with another priority is another entry", "OK", primary.one(INSERT, other)
    yield "modify", "OK", primary.one(MODIFY, p.entry(1, 10, action=p.action("next", 9)))
    yield "modify changes the action", p.entry(1, 10, action=p.action("next", 9)), (
        primary.entries(p.entry(1, 10))[0]
    )
    yield "modify without an action", "OK", primary.one(
        MODIFY, p.entry(1, 10, action=None, metadata=b"new")
    )
    yield "modify without an action keeps it", p.entry(1, 10, action=p.action("next", 9), metadata=b"new"), (
        primary.entries(p.entry(1, 10))[0]
    )
    yield "delete without a priority", "INVALID_ARGUMENT", primary.one(
        DELETE, p.entry(1, 10, priority=0)
    )
    yield "delete by match and priority alone", "OK", primary.one(
        DELETE, p.entry(1, 10, action=None)
    )
    yield "delete leaves the entry of the other priority", [other], primary.entries(p.everything())
    yield "delete ignores fields that are not part of the key", "OK", primary.one(
        DELETE, p.entry(1, 10, priority=2, action=p.action("drop"), metadata=b"other")
    )
    yield "an update without a type", "INVALID_ARGUMENT", primary.one(0, entry)
    yield "an update without an entity", "INVALID_ARGUMENT", primary.one(INSERT, None)
    yield "an empty entity", "INVALID_ARGUMENT", primary.one(INSERT, p4.Entity())


def defaults(nic):
    """TableEntry: Default Entry"""
    primary, p = nic.primary, nic.program
    start, again = p.default("start_table", p.action("start", 7)), p.default("start_table")
    [read] = primary.entries(again)
    yield "the initial default entry", p.default("start_table", p.action("start", 0)), read
    yield "modify", "OK", primary.one(MODIFY, start)
    yield "the default entry after modify", [start], primary.entries(again)
    yield "insert", "INVALID_ARGUMENT", primary.one(INSERT, start)
    yield "delete", "INVALID_ARGUMENT", primary.one(DELETE, start)
    for name, others in [
        ("with a match", {"match": [p.exact("tag", 1)]}),
        ("with a priority", {"priority": 1}),
        ("with a timeout", {"idle_timeout_ns": SECOND}),
    ]:
        entry = p.default("start_table", p.action("start", 1), **others)
        yield name, "INVALID_ARGUMENT", primary.one(MODIFY, entry)
    yield "a constant default entry", "PERMISSION_DENIED", primary.one(
        MODIFY, p.default("ltm_1", p.action("miss"))
    )
    yield "modify without an action resets the default entry", "OK", primary.one(MODIFY, again)
    yield "the default entry after the reset", [read], primary.entries(again)
    yield "a default entry is not a table entry", [], primary.entries(p.everything("start_table"))


def batches(nic):
    """Write RPC: Batching and Ordering of Updates; Error Reporting"""
    primary, p = nic.primary, nic.program
    yield "an empty batch", "OK", primary.write([])
    batch = [update(INSERT, p.entry(tag)) for tag in (1, 1, 2)]
    batch += [update(DELETE, p.entry(9)), update(INSERT, p.entry(3, priority=0))]
    yield "each update has its status, in their order", [
        "OK", "ALREADY_EXISTS", "OK", "NOT_FOUND", "INVALID_ARGUMENT",
    ], primary.write(batch)
    yield "valid updates are applied", 2, len(primary.entries(p.everything()))
    batch = [update(DELETE, p.entry(tag)) for tag in (1, 2)]
    yield "a batch of valid updates", "OK", primary.write(batch)
    batch = [update(DELETE, p.entry(1)) for _ in range(1000)]
    yield "a thousand errors in one status", ["NOT_FOUND"] * 1000, primary.write(batch)
    yield "the stream stays open", "OK", primary.write([])
    everywhere = [update(INSERT, p.entry(1, table=f"ltm_{number}")) for number in range(1, 5)]
    yield "a batch for all tables", "OK", primary.write(everywhere)
    yield "all tables have the entry", 4, len(primary.entries(p.everything(None)))
    nic.run()


def atomicity(nic):
    """Write RPC: Batch Atomicity"""
    primary, p = nic.primary, nic.program
    primary.write([update(INSERT, p.entry(1)), update(INSERT, p.entry(2))])
    before = primary.entries(p.everything())
    batch = [
        update(INSERT, p.entry(3)),
        update(MODIFY, p.entry(1, action=p.action("drop"))),
        update(DELETE, p.entry(2)),
        update(INSERT, p.entry(3)),
        update(INSERT, p.entry(4)),
    ]
    request = p4.WriteRequest
    yield "a rollback: the failed update has its code, the others are aborted", [
        "ABORTED", "ABORTED", "ABORTED", "ALREADY_EXISTS", "ABORTED",
    ], primary.write(batch, atomicity=request.ROLLBACK_ON_ERROR)
    yield "the entries after the rollback", before, primary.entries(p.everything())
    yield "a batch without errors is applied as a whole", "OK", primary.write(
        batch[:3], atomicity=request.ROLLBACK_ON_ERROR
    )
    drop, third = p.entry(1, action=p.action("drop")), p.entry(3)
    key = lambda entry: entry.SerializeToString(deterministic=True)
    yield "the entries after that batch", sorted([drop, third], key=key), primary.entries(p.everything())
    yield "atomic for packets, which is optional", "UNIMPLEMENTED", primary.write(
        batch[:1], atomicity=request.DATAPLANE_ATOMIC
    )
    yield "an unknown atomicity", "INVALID_ARGUMENT", primary.write([], atomicity=9)
    nic.run()


def reads(nic):
    """Read RPC; TableEntry: Wildcard Reads"""
    primary, p = nic.primary, nic.program
    first = p.entry(1, 10, controller_metadata=11, idle_timeout_ns=12_345_678_901)
    second = p.entry(1, 20, metadata=b"second")
    third = p.entry(2, 30, priority=9, action=p.action("drop"))
    fourth = p.entry(2, 40, table="ltm_2", priority=9)
    everything = [first, second, third, fourth]
    assert primary.write([update(INSERT, entry) for entry in everything]) == "OK"
    match = [p.ternary("ip_dst", b"\0\x14", b"\xff\xff\xff\xff"), p.exact("tag", 1)]
    cases = [
        ("all tables", p.everything(None), everything),
        ("a table", p.everything(), [first, second, third]),
        ("another table", p.everything("ltm_2"), [fourth]),
        ("an empty table", p.everything("ltm_3"), []),
        ("an entry by its key", p.entry(1, 10, action=None), [first]),
        ("a match of any priority", p.entry(1, 20, action=None, priority=0), [second]),
        ("a match in another form", p.everything(match=match), [second]),
        ("a match and another priority", p.entry(1, 10, action=None, priority=4), []),
        ("a match without an entry", p.entry(5, action=None), []),
        ("a priority", p.everything(priority=9), [third]),
        ("an action", p.everything(action=p.action("drop")), [third]),
        ("controller metadata", p.everything(controller_metadata=11), [first]),
        ("metadata", p.everything(metadata=b"second"), [second]),
    ]
    for name, question, expected in cases:
        expected = sorted(expected, key=lambda e: e.SerializeToString(deterministic=True))
        yield name, expected, primary.entries(question)
    yield "several queries at once", 4, len(primary.read(p.everything(), p.everything("ltm_2")))
    yield "no query", [], primary.read()
    yield "no stream and no id are needed", 3, len(nic.peer().entries(p.everything()))
    for name, question, expected in [
        ("an unknown table", p4.TableEntry(table_id=0x02FFFFFF), "NOT_FOUND"),
        ("an action id as table id", p4.TableEntry(table_id=0x01000001), "INVALID_ARGUMENT"),
        ("a match in all tables", p4.TableEntry(match=match), "INVALID_ARGUMENT"),
        ("an action in all tables", p.everything(None, action=p.action("drop")), "INVALID_ARGUMENT"),
        ("a priority in all tables", p.everything(None, priority=9), "INVALID_ARGUMENT"),
        ("metadata in all tables", p.everything(None, metadata=b"x"), "INVALID_ARGUMENT"),
        ("a match without its exact field", p.everything(match=match[:1]), "INVALID_ARGUMENT"),
        ("a negative priority", p.everything(priority=-1), "INVALID_ARGUMENT"),
        ("an empty entity", p4.Entity(), "INVALID_ARGUMENT"),
    ]:
        yield name, [expected], primary.read(question)
    yield "a valid query and a refused one", ["OK", "NOT_FOUND"], primary.read(
        p.everything(), p4.TableEntry(table_id=0x02FFFFFF)
    )
    nic.run()


def other_entities(nic):
    """P4 Entity Messages: kinds that the program does not have"""
    entities = {
        "extern_entry": p4.ExternEntry(extern_type_id=0x81),
        "action_profile_member": p4.ActionProfileMember(action_profile_id=0x11000001),
        "action_profile_group": p4.ActionProfileGroup(action_profile_id=0x11000001),
        "meter_entry": p4.MeterEntry(meter_id=0x14000001),
        "direct_meter_entry": p4.DirectMeterEntry(),
        "counter_entry": p4.CounterEntry(counter_id=0x12000001),
        "packet_replication_engine_entry": p4.PacketReplicationEngineEntry(),
        "value_set_entry": p4.ValueSetEntry(value_set_id=0x03000001),
        "register_entry": p4.RegisterEntry(register_id=0x16000001),
        "digest_entry": p4.DigestEntry(digest_id=0x17000001),
    }
    for name, value in entities.items():
        entity = p4.Entity(**{name: value})
        result = nic.primary.one(INSERT, entity), nic.primary.read(entity)
        yield name.replace("_", " "), ("UNIMPLEMENTED", ["UNIMPLEMENTED"]), result


def full_tables(nic):
    """Write RPC: Error Reporting"""
    primary, p = nic.primary, nic.program
    size = p.table("ltm_4").size
    batch = [update(INSERT, p.entry(1, address, table="ltm_4")) for address in range(1, size + 1)]
    yield "as many entries as the program declares", "OK", primary.write(batch)
    last = p.entry(2, table="ltm_4")
    yield "one entry more", "RESOURCE_EXHAUSTED", primary.one(INSERT, last)
    yield "the refused entry does not exist", [], primary.read(last)
    found = primary.read(p.everything("ltm_4"))
    yield "all entries are read, each once", size, len({e.table_entry.match[1].ternary.value for e in found})
    primary.one(DELETE, p.entry(1, 1, table="ltm_4"))
    yield "a deleted entry makes room", "OK", primary.one(INSERT, last)
    nic.run()


GROUPS = [
    matches, bytestrings, actions, entries, updates, defaults, batches, atomicity, reads,
    other_entities, full_tables,
]
