"""The texts that the window must show for two events, and the figures of an event and of `shuntctl`.

`window.py` uses this module. It shares no code with the page: a figure that the page computes in another way differs.
"""

from decimal import ROUND_HALF_UP, Decimal

ROWS_MAX = 200  # Rows that a section has at most.
LEVELS = {
    "exact": "exact_hits",
    "signature": "signature_hits",
    "megaflow": "megaflow_hits",
    "gigaflow": "gigaflow_hits",
    "no cache": "decided",
    "upcall": "upcalls",
}
PACKET_INS = ("listener_full", "no_connection", "no_bridge")
NOTHING = "–"


def rounded(value, digits):
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def short(value):
    """Returns a number with three digits and a unit from 10,000 on."""
    for size, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "K")):
        if value >= max(10_000, 0.9995 * size):
            part = value / size
            return f"{rounded(part, 2 if part < 9.995 else 1 if part < 99.95 else 0)} {letter}"
    return rounded(value, 0 if value >= 100 or value == int(value) else 1)


def parsed(text):
    """Returns the number of a text of `short`, and the largest error of its rounding."""
    number, _, letter = text.partition(" ")
    size = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}[letter]
    last = len(number.partition(".")[2])
    return float(number) * size, 0.5 * size / 10**last


def counted(number, noun):
    return f"{short(number)} {noun}{'' if number == 1 else 's'}"


def share(part, whole):
    return f"{rounded(part / whole * 100, 1)} %" if whole > 0 else NOTHING


def ports(frame):
    return {(own["bridge"], own["name"]): own for bridge in frame["bridges"] for own in bridge["ports"]}


def losses(frame):
    """Returns the lost packets by reason, as `shuntctl drops` lists them."""
    drops = frame["drops"]
    lost = dict(drops["dropped"]) | dict(drops["not_received"])
    lost |= {f"packet_in_{name}": drops["packet_ins"][name] for name in PACKET_INS}
    lost |= {name: drops[name] for name in ("device_lost", "snooping_inbox_full")}
    return {reason: packets for reason, packets in lost.items() if packets > 0}


def nic_hits(nic):
    return nic["traffic"]["hits"] if nic["traffic"] else nic["entry_hits"]


class Expected:
    """The texts of the page after event `now`, if event `last` was before it."""

    def __init__(self, last, now):
        self.last, self.now = last, now
        self.seconds = (now["time_ms"] - last["time_ms"]) / 1000

    def rate(self, before, after):
        return max(0, (after - before) / self.seconds)

    def key_rate(self, key):
        return self.rate(self.last["caches"][key], self.now["caches"][key])

    def overview(self):
        caches = self.now["caches"]
        received = self.key_rate("received")
        cached = sum(self.key_rate(key) for key in list(LEVELS.values())[:4])
        lost = [sum(losses(frame).values()) for frame in (self.last, self.now)]
        evictions = self.now["evictions"] or {}
        return [
            short(received),
            short(self.rate(self.last["drops"]["sent"], self.now["drops"]["sent"])),
            short(self.rate(*lost)),
            share(min(cached, received), received),
            short(self.key_rate("upcalls")),
            short(caches["entries"]),
            short(caches["masks"]),
            f"{short(evictions['resident_bytes'])}B" if evictions.get("resident_bytes") else NOTHING,
        ]

    def levels(self):
        rates = {name: self.key_rate(key) for name, key in LEVELS.items()}
        whole = sum(rates.values())
        total = self.now["caches"]
        return [[name, short(own), share(own, whole), short(total[LEVELS[name]])] for name, own in rates.items()]

    def bridges(self):
        lines = []
        for bridge in self.now["bridges"]:
            line = [bridge["name"], counted(bridge["rules"], "rule"), counted(len(bridge["ports"]), "port")]
            for own in bridge["controllers"]:
                more = {"waiting": own.get("reason"), "connected": own.get("role")}.get(own["state"], own.get("problem"))
                line.append(f"{own['target']} {own['state']}" + (f" ({more})" if more else ""))
            lines.append(" · ".join(line))
        return lines

    def port_rows(self):
        """Returns the rows of all ports, by name of bridge and port."""
        rows = {}
        for key, port in ports(self.now).items():
            old = ports(self.last).get(key, port)
            own = {name: self.rate(old[name], value) for name, value in port.items() if name.endswith(("ets", "ytes", "ped"))}
            lost = own["rx_dropped"] + own["forward_dropped"] + own["tx_dropped"]
            number = "LOCAL" if port["number"] > 65535 else port["number"]
            traffic = [f"{short(own[f'{side}_packets'])}\n{short(8 * own[f'{side}_bytes'])}" for side in ("rx", "tx")]
            link = port["link"].replace("down: ", "down\n")
            rows[key] = [f"{port['name']}\n{port['bridge']} {number} {port['type']}", link, *traffic, short(lost)]
        return rows

    def ports(self):
        return list(self.port_rows().values())[:ROWS_MAX]

    def links(self):
        """Returns the packets per second by bridge, table and next table."""
        key = ("bridge", "from", "to")
        before = {tuple(own[part] for part in key): own["packets"] for own in self.last["links"]}
        after = {tuple(own[part] for part in key): own["packets"] for own in self.now["links"]}
        return {own: self.rate(before.get(own, packets), packets) for own, packets in after.items()}

    def tables(self):
        before = {(own["bridge"], own["table"]): own for own in self.last["tables"]}
        rows = []
        for own in self.now["tables"]:
            key = own["bridge"], own["table"]
            old = before.get(key, own)
            lookups = self.rate(old["lookups"], own["lookups"])
            missed = max(0, lookups - self.rate(old["matches"], own["matches"]))
            following = [f"{to} ({short(rate)}/s)" for (*start, to), rate in self.links().items() if tuple(start) == key]
            name = f"{own['bridge']} {own['table']}"
            rows.append([name, short(own["rules"]), short(lookups), short(missed), ", ".join(following) or NOTHING])
        return rows

    def graphs(self):
        """Returns the texts of the graph of each bridge, in alphabetical order."""
        graphs = []
        for bridge in self.now["bridges"]:
            rows = [row for row in self.tables() if row[0].split()[0] == bridge["name"]]
            texts = [f"{short(rate)}/s" for (name, *_), rate in self.links().items() if name == bridge["name"]]
            for name, rules, lookups, *_ in rows:
                texts += [f"table {name.split()[1]} · {rules} rule{'' if rules == '1' else 's'}", f"{lookups} lookups/s"]
            if rows:
                graphs.append(sorted(texts))
        return graphs

    def counts(self, before, after):
        """Returns the rows of counters by name, in alphabetical order."""
        rows = {name: [short(self.rate(before.get(name, 0), count)), short(count)] for name, count in after.items()}
        return sorted([name.replace("_", " "), *row] for name, row in rows.items())

    def drops(self):
        return self.counts(losses(self.last), losses(self.now)) or [["No packet was lost."]]

    def evictions(self):
        if not self.now["evictions"]:
            return [["The eviction thread does not reply."]]
        causes = [dict(frame["evictions"]["by_cause"]) if frame["evictions"] else {} for frame in (self.last, self.now)]
        return self.counts(*causes) or [["No change has evicted an entry."]]

    def threads(self):
        before = {own["name"]: own.get("iterations") for own in self.last["threads"]}
        rows = []
        for own in self.now["threads"]:
            count = own.get("iterations")
            rows.append([own["name"], own["state"], "" if count is None else short(self.rate(before[own["name"]], count))])
        return rows

    def nics(self):
        before = {bridge["name"]: bridge["nic"] for bridge in self.last["bridges"]}
        rows = []
        for bridge in self.now["bridges"]:
            nic = bridge["nic"]
            if not nic:
                continue
            old = before[bridge["name"]] or nic
            entries = [short(sum(stage[key] for stage in nic["stages"])) for key in ("entries", "entries_max")]
            waiting = f"\n{short(nic['waiting'])} to insert" if nic["waiting"] else ""
            stale = "" if nic["stale_s"] is None else f" for {rounded(nic['stale_s'], 0)} s\n{nic['reason'] or ''}"
            traffic = nic["traffic"]
            missed = short(self.rate(old["traffic"]["missed"], traffic["missed"])) if traffic else NOTHING
            hits = f"{short(self.rate(nic_hits(old), nic_hits(nic)))}\n{missed}\n{short(nic_hits(nic))}"
            state = nic["state"] + stale + (f"\n{nic['error']}" if nic["error"] else "")
            row = [f"{nic['kind']}\n{bridge['name']} {nic['address']}", state, " of ".join(entries) + waiting]
            rows.append([*row, hits, short(nic["operations"]["failed"])])
        return rows

    def bonds(self):
        rows = []
        for bridge in self.now["bridges"]:
            for bond in bridge["bonds"]:
                lacp = f"\nLACP {bond.get('lacp_status')}" if bond.get("lacp_status") else ""
                name = f"{bond['name']}\n{bridge['name']} {bond['mode']}{lacp}"
                for own in bond["member_status"]:
                    state = "active" if own["active"] else "enabled" if own["enabled"] else "disabled"
                    if own["delay_ms"] is not None:
                        state += f"\n{'disabled' if own['enabled'] else 'enabled'} in {short(own['delay_ms'])} ms"
                    rows.append([name, own["name"], state, member_lacp(bond, own.get("lacp"))])
        return rows

    def mirrors(self):
        rows = []
        for bridge in self.now["bridges"]:
            before = [old["mirrors"] for old in self.last["bridges"] if old["name"] == bridge["name"]]
            copied = {own["name"]: own["tx_packets"] for own in sum(before, [])}
            for own in bridge["mirrors"]:
                lists = ("select_src_port", "select_dst_port", "select_vlan")
                source = ["select_all"] if own["select_all"] else []
                source += [f"{key}={', '.join(map(str, own[key]))}" for key in lists if own[key]]
                output = f"VLAN {own['output_vlan']}" if own["output_vlan"] else own["output_port"]
                output += f"\nfirst {own['snaplen']} bytes" if own["snaplen"] else ""
                packets = own["tx_packets"]
                rates = f"{short(self.rate(copied.get(own['name'], packets), packets))}\n{short(packets)}"
                name = f"{own['name']}\n{bridge['name']}"
                rows.append([name, "\n".join(source) or NOTHING, output, own["problem"] or "copies", rates])
        return rows

    def bfd(self):
        rows = []
        for port in ports(self.now).values():
            if own := port.get("bfd"):
                ends = []
                for side in ("", "remote_"):
                    state, reason = own[f"{side}state"], own[f"{side}diagnostic"]
                    ends.append(state if state == "up" or reason == "No Diagnostic" else f"{state}\n{reason}")
                forwards = "yes" if own["forwarding"] else "no"
                row = [f"{port['name']}\n{port['bridge']}", *ends, forwards, short(own["flap_count"])]
                rows.append((own["state"] == "up", row))
        return [row for _, row in sorted(rows, key=lambda row: row[0])][:ROWS_MAX]


def member_lacp(bond, lacp):
    if not bond.get("lacp_status"):
        return "off"
    if not lacp:
        return NOTHING
    text = f"{lacp['receive']}, {lacp['mux']}"
    text += f"\n{lacp['unselected']}" if lacp["unselected"] else ""
    return text + (f"\npartner {lacp['partner']}" if lacp["partner"] else "")


PORT_COUNTERS = ("rx_packets", "rx_bytes", "rx_dropped", "forward_dropped", "tx_packets", "tx_bytes", "tx_dropped")
CACHE_COUNTERS = ("received", *LEVELS.values())


def counters(frame):
    """Returns the counters of an event, or of the output of `shuntctl` in the same form, by name."""
    found = {f"caches {key}": frame["caches"][key] for key in CACHE_COUNTERS}
    found["sent"] = frame["drops"]["sent"]
    found |= {f"drop {reason}": packets for reason, packets in losses(frame).items()}
    for (bridge, name), port in ports(frame).items():
        found |= {f"port {bridge} {name} {key}": port[key] for key in PORT_COUNTERS}
        if "bfd" in port:
            found[f"bfd {bridge} {name}"] = port["bfd"]["flap_count"]
    for bridge in frame["bridges"]:
        for mirror in bridge["mirrors"]:
            found[f"mirror {bridge['name']} {mirror['name']}"] = mirror["tx_packets"]
        if nic := bridge["nic"]:
            found[f"nic {bridge['name']} hits"] = nic_hits(nic)
            found[f"nic {bridge['name']} missed"] = nic["traffic"]["missed"]
            found[f"nic {bridge['name']} failed"] = nic["operations"]["failed"]
    for own in frame["tables"]:
        for key in ("lookups", "matches"):
            found[f"table {own['bridge']} {own['table']} {key}"] = own[key]
    found |= {f"evicted {cause}": count for cause, count in frame["evictions"]["by_cause"]}
    return found


def states(frame):
    """Returns the values of an event that are no counters, by name."""
    found = {f"caches {key}": frame["caches"][key] for key in ("entries", "masks")}
    for (bridge, name), port in ports(frame).items():
        found[f"link {bridge} {name}"] = port["link"]
        if "bfd" in port:
            keys = ("state", "diagnostic", "remote_state", "remote_diagnostic", "forwarding")
            found[f"bfd {bridge} {name}"] = [port["bfd"][key] for key in keys]
    for bridge in frame["bridges"]:
        name = bridge["name"]
        found[f"rules {name}"] = bridge["rules"]
        found[f"controllers {name}"] = [(own["target"], own["state"]) for own in bridge["controllers"]]
        for bond in bridge["bonds"]:
            found[f"bond {name} {bond['name']}"] = bond.get("lacp_status"), bond["member_status"]
        if nic := bridge["nic"]:
            found[f"nic {name}"] = [nic[key] for key in ("kind", "address", "state", "error", "waiting", "stages")]
    for own in frame["tables"]:
        found[f"rules {own['bridge']} {own['table']}"] = own["rules"]
    found |= {f"thread {own['name']}": own["state"] for own in frame["threads"]}
    return found
