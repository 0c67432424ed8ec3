#!/usr/bin/env python3
"""Configures a switch by the IDL of Open vSwitch's Python module `ovs`, and checks the rows.

Usage: ovs_idl.py SOCKET SCHEMA

SOCKET is unix:FILE or tcp:IP:PORT of an OVSDB server with a running switch and no bridges. SCHEMA is the
file that `ovsdb-client get-schema SOCKET Open_vSwitch` prints. The tool adds a bridge br0, changes it by
two clients, and removes it. It prints each failed check and the number of passed checks, and exits with 1
if a check failed.
"""

import sys
import time

import ovs.db.idl
import ovs.poller
from ovs.db.idl import Transaction

TIMEOUT = 20  # Maximum time to wait for a state, in seconds.


class Checks:
    """Counts checks, and prints those that fail."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def equal(self, name, found, expected):
        """Checks a value."""
        if found == expected:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {name}: {found!r}, expected {expected!r}")

    def soon(self, name, idls, condition):
        """Runs clients until a condition is true."""
        deadline = time.monotonic() + TIMEOUT
        is_true = False
        while not is_true and time.monotonic() < deadline:
            for idl in idls:
                idl.run()
            is_true = bool(condition())
            if not is_true:
                wait(idls)
        self.equal(name, is_true, True)


def wait(idls, transaction=None):
    """Waits for a message, for a fifth of a second at most."""
    poller = ovs.poller.Poller()
    for idl in idls:
        idl.wait(poller)
    if transaction:
        transaction.wait(poller)
    poller.timer_wait(200)
    poller.block()


def commit(idl, transaction):
    """Commits a transaction, and returns its status."""
    deadline = time.monotonic() + TIMEOUT
    status = transaction.commit()
    while status == Transaction.INCOMPLETE and time.monotonic() < deadline:
        wait([idl], transaction)
        idl.run()
        status = transaction.commit()
    return status


def client(socket, schema, columns=None):
    """Returns a client of some columns, or of all of them."""
    helper = ovs.db.idl.SchemaHelper(location=schema)
    if columns is None:
        helper.register_all()
    for table, names in (columns or {}).items():
        helper.register_columns(table, names)
    return ovs.db.idl.Idl(socket, helper)


def rows(idl, table, name=None):
    """Returns the rows of a table, or those with a name."""
    found = list(idl.tables[table].rows.values())
    return found if name is None else [row for row in found if row.name == name]


def add_port(idl, transaction, name):
    """Inserts an internal port with its interface, and returns the port."""
    interface = transaction.insert(idl.tables["Interface"])
    interface.name, interface.type = name, "internal"
    port = transaction.insert(idl.tables["Port"])
    port.name, port.interfaces = name, [interface]
    return port


def adds_a_bridge(checks, idl):
    """A bridge is inserted, and the switch sets its columns. Returns its row."""
    checks.soon("all rows are read", [idl], lambda: rows(idl, "Open_vSwitch"))
    root = rows(idl, "Open_vSwitch")[0]
    transaction = Transaction(idl)
    transaction.add_comment("ovs_idl.py")
    bridge = transaction.insert(idl.tables["Bridge"])
    bridge.name, bridge.datapath_type, bridge.fail_mode = "br0", "netdev", "secure"
    bridge.ports = [add_port(idl, transaction, "br0")]
    root.verify("bridges")
    root.bridges = root.bridges + [bridge]
    root.increment("next_cfg")
    checks.equal("a bridge is inserted", commit(idl, transaction), Transaction.SUCCESS)
    wanted = transaction.get_increment_new_value()
    checks.soon("the switch applies it", [idl], lambda: root.cur_cfg >= wanted)
    bridge = idl.tables["Bridge"].rows[transaction.get_insert_uuid(bridge.uuid)]
    local = rows(idl, "Interface", "br0")[0]
    checks.soon("a datapath id", [idl], lambda: [len(id) for id in bridge.datapath_id] == [16])
    checks.soon("the number of the local port", [idl], lambda: local.ofport == [65534])
    checks.soon("an address", [idl], lambda: len(local.mac_in_use) == 1)
    checks.soon("a link state", [idl], lambda: local.link_state in (["up"], ["down"]))
    return bridge


def changes_columns(checks, idl, bridge):
    """Maps and sets change by single elements; other transactions change nothing."""

    def changed(name, change, is_visible):
        transaction = Transaction(idl)
        change()
        checks.equal(name, commit(idl, transaction), Transaction.SUCCESS)
        checks.soon(f"{name}: visible", [idl], is_visible)

    changed(
        "keys are set",
        lambda: [bridge.setkey("external_ids", key, "1") for key in ("a", "b")],
        lambda: bridge.external_ids == {"a": "1", "b": "1"},
    )
    changed(
        "a key is deleted",
        lambda: bridge.delkey("external_ids", "a"),
        lambda: bridge.external_ids == {"b": "1"},
    )
    changed(
        "values are added",
        lambda: [bridge.addvalue("flood_vlans", vlan) for vlan in (7, 8)],
        lambda: sorted(bridge.flood_vlans) == [7, 8],
    )
    changed(
        "a value is deleted",
        lambda: bridge.delvalue("flood_vlans", 7),
        lambda: bridge.flood_vlans == [8],
    )
    transaction = Transaction(idl)
    bridge.fail_mode = "secure"
    checks.equal("an equal value", commit(idl, transaction), Transaction.UNCHANGED)
    transaction = Transaction(idl)
    transaction.dry_run = True
    bridge.mcast_snooping_enable = True
    commit(idl, transaction)
    checks.equal("a dry run changes nothing", bridge.mcast_snooping_enable, False)


def refuses(checks, idl, bridge):
    """A bridge with the name of another one is refused, with the reason."""
    root = rows(idl, "Open_vSwitch")[0]
    transaction = Transaction(idl)
    twin = transaction.insert(idl.tables["Bridge"])
    twin.name = bridge.name
    root.bridges = root.bridges + [twin]
    checks.equal("an equal name", commit(idl, transaction), Transaction.ERROR)
    reason = "constraint violation" in str(transaction.get_error())
    checks.equal("the reason", reason, True)


def clients_share_rows(checks, idl, other, bridge):
    """Two clients see the changes of each other, and only the owner of a lock writes."""
    both = [idl, other]
    checks.soon("the other client reads all rows", both, lambda: rows(other, "Bridge"))
    same = rows(other, "Bridge")[0]
    transaction = Transaction(other)
    same.external_ids = {"c": "1"}
    checks.equal("the other client writes", commit(other, transaction), Transaction.SUCCESS)
    transaction = Transaction(idl)
    bridge.verify("external_ids")
    bridge.external_ids = {"d": "1"}
    checks.equal("a stale value", commit(idl, transaction), Transaction.TRY_AGAIN)
    checks.soon("the change arrives", both, lambda: bridge.external_ids == {"c": "1"})
    idl.set_lock("test")
    checks.soon("a lock", both, lambda: idl.has_lock)
    other.set_lock("test")
    checks.soon("a contended lock", both, lambda: other.is_lock_contended)
    transaction = Transaction(other)
    same.external_ids = {"e": "1"}
    checks.equal("a write without the lock", commit(other, transaction), Transaction.NOT_LOCKED)
    idl.set_lock(None)
    checks.soon("the lock passes on", both, lambda: other.has_lock)


def removes_references(checks, idl, bridge):
    """A removed port disappears from the mirror that names it."""
    transaction = Transaction(idl)
    port = add_port(idl, transaction, "px")
    mirror = transaction.insert(idl.tables["Mirror"])
    mirror.name, mirror.select_src_port = "m", [port]
    bridge.ports, bridge.mirrors = bridge.ports + [port], [mirror]
    checks.equal("a port and a mirror", commit(idl, transaction), Transaction.SUCCESS)
    checks.soon("both are visible", [idl], lambda: rows(idl, "Mirror") and rows(idl, "Port", "px"))
    interface, mirror = rows(idl, "Interface", "px")[0], rows(idl, "Mirror")[0]
    checks.soon("the number of the port", [idl], lambda: interface.ofport == [1])
    transaction = Transaction(idl)
    bridge.ports = [port for port in bridge.ports if port.name != "px"]
    checks.equal("the port is removed", commit(idl, transaction), Transaction.SUCCESS)
    checks.soon("the mirror remains", [idl], lambda: mirror.select_src_port == [])


def filters(checks, socket, schema):
    """A client reads the rows that match its conditions, which may change."""
    idl = client(socket, schema, {"Bridge": ["name", "fail_mode"], "Port": ["name"]})
    idl.cond_change("Bridge", [["name", "==", "another"]])
    checks.soon("other tables have rows", [idl], lambda: rows(idl, "Port"))
    checks.soon("no row matches", [idl], lambda: not rows(idl, "Bridge"))
    for condition, count in [([["name", "==", "br0"]], 1), ([False], 0), ([True], 1)]:
        idl.cond_change("Bridge", condition)
        checks.soon(f"{condition}", [idl], lambda: len(rows(idl, "Bridge")) == count)
    idl.close()


def main(socket, schema):
    """Runs all checks, and returns the exit code."""
    checks = Checks()
    idl, other = client(socket, schema), client(socket, schema)
    bridge = adds_a_bridge(checks, idl)
    changes_columns(checks, idl, bridge)
    refuses(checks, idl, bridge)
    clients_share_rows(checks, idl, other, bridge)
    removes_references(checks, idl, bridge)
    filters(checks, socket, schema)
    transaction = Transaction(idl)
    rows(idl, "Open_vSwitch")[0].bridges = []
    checks.equal("the bridge is removed", commit(idl, transaction), Transaction.SUCCESS)
    checks.soon("its rows disappear", [idl], lambda: not (rows(idl, "Port") or rows(idl, "Interface")))
    # The rows are read again by a new connection.
    before = idl.change_seqno
    idl.force_reconnect()
    checks.soon("the client reconnects", [idl], lambda: idl.change_seqno != before)
    print(f"{checks.passed} checks passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
