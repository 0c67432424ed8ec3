#!/usr/bin/env python3
"""Opens the window of a daemon in headless Chromium, and checks its figures, its layout and its keys.

Usage: window.py SHUNTD SHUNTCTL [--ports N,..] [--widths N,..] [--screenshots DIR] [--page DIR]

Needs root to create namespaces: the tool starts itself again in new namespaces with `unshare`. For each number of
ports, the tool starts a daemon with bridges, rules in several tables, and veth and null ports. With 30 ports or more,
the switch also has bonds, mirrors, BFD sessions and an embedded NIC. With one port, the page needs a token.

For each width of the page the tool sends counted frames of known size to the veth ports, and checks:

- Each text of the page is the one that `window_figures.py` computes from two events, while the frames arrive.
- The rates of all events add up to the counters, and the counters have grown by the frames and bytes.
- Each counter and each state is the one that `shuntctl` shows after the traffic.
- No exception and no error reaches the console.
- The page is not wider than the window, no text is cut off, and colours have a contrast of 4.5 at least.
- The Tab key reaches each control in order, with an outline, and not behind the header. Each control has a name.
- Keys alone select the order and the filter of the ports, pause the page, read the top flows and trace a packet.
- While the daemon is stopped by SIGSTOP, the page shows that it has no connection. After SIGCONT the page recovers.

`--page DIR` loads the files of the page from a folder, and so needs no build after a change of the page.
`--screenshots DIR` writes pictures of each page. The tool prints a line for each page, and fails at the first check.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from browser import SHIFT, Broken, Browser
from window_figures import LEVELS, ROWS_MAX, Expected, counted, counters, losses, parsed, ports, short, states
from window_page import BODIES, FOCUS, READABLE, RECORD, SIDEWAYS, SNAPSHOT, STOPS
from window_switch import ADDRESS, ANSWER_MAX, CACHES, CACHES_OTHERS, NIC_FRAMES, TOKEN, Switch, run

SILENCE = 10  # Seconds without an event after which the page says so.
SLICES = 5  # Parts of the frames, with an event after each.
RATE = 1000  # Frames per second while the order of ports is checked.
HEIGHT = 900  # Pixels of the window.
PICTURE_RATES = (800, 2500, 6000, 3000, 5000, 9000, 4000, 7000, 2000, 6000)  # Frames per second before a picture.
PICTURE_HEIGHT = {400: 1600, 1600: 2000}  # Pixels of the pictures, by width.


class Window:
    """The page of a switch in the browser, at one width."""

    def __init__(self, switch, browser, width):
        self.switch, self.browser, self.width = switch, browser, width
        self.checked = {"texts": 0, "counters": 0, "states": 0, "sums": 0, "stops": 0}

    def open(self):
        self.browser.resize(self.width, HEIGHT)
        self.browser.load(f"http://{ADDRESS}/")
        if not self.switch.has_nic:
            self.log_in()
        self.wait("last !== null && byId('state').textContent === 'Healthy'", "the page shows two events")
        self.wait("now.bridges.every((bridge) => !bridge.nic || bridge.nic.state === 'connected')", "the NIC is connected")
        self.no_errors()

    def wait(self, expression, what, seconds=ANSWER_MAX):
        return self.browser.wait(expression, what, seconds)

    def no_errors(self):
        if errors := self.browser.take_errors():
            raise Broken(f"the console has {errors}")

    def log_in(self):
        """Types a wrong token, and then the right one."""
        for token, words in (("", "A token is required"), ("wrong", "The token was refused")):
            if token:
                self.browser.type(token)
                self.browser.press("Enter")
            self.wait(f"byId('state').textContent === '{words}'", words)
            self.wait("document.activeElement.id === 'token' && byId('main').hidden", "the field of the token has the focus")
            self.browser.value("byId('token').select()")
        self.readable()
        self.browser.type(TOKEN)
        self.browser.press("Enter")
        self.wait("byId('login').hidden && !byId('main').hidden", "the token is accepted")
        # The browser notes each refused request.
        if others := [error for error in self.browser.take_errors() if "401" not in error]:
            raise Broken(f"the console has {others}")

    def events(self, number):
        """Waits for further events."""
        for _ in range(number):
            time_ms = self.browser.value("now.time_ms")
            self.wait(f"now.time_ms > {time_ms}", "a further event")

    def snapshot(self):
        return self.browser.value(SNAPSHOT)

    def check_texts(self, shown):
        """Compares each text of the page with the one that belongs to its events."""
        expected, pairs = Expected(shown["last"], shown["now"]), []
        for name in BODIES:
            rows = shown["bodies"][name]
            if name in shown["hidden"]:
                pairs.append((name, [], getattr(expected, name)()))
                continue
            # Counters that grow are first, and others by their totals.
            pairs.append((name, sorted(rows) if name in ("drops", "evictions") else rows, getattr(expected, name)()))
        for name in ("overview", "bridges", "graphs"):
            pairs.append((name, shown[name], getattr(expected, name)()))
        number = len(ports(shown["now"]))
        pairs.append(("number of ports", shown["portsCount"], f"{ROWS_MAX} of {number}" if number > ROWS_MAX else ""))
        pairs.append(("version", shown["version"], shown["now"]["version"]))
        pairs += self.chart(shown, expected)
        pairs += self.captions(shown)
        for name, own, wanted in pairs:
            if own != wanted:
                rows = zip(own, wanted) if isinstance(own, list) and len(own) == len(wanted) else [(own, wanted)]
                first = next((one, other) for one, other in rows if one != other)
                raise Broken(f"{name} shows {first[0]!r}, and its events have {first[1]!r}")
            self.checked["texts"] += sum(map(len, own)) if own and isinstance(own[0], list) else len(own)

    def chart(self, shown, expected):
        """Returns the values of the chart as pairs: its height, and the last column."""
        history = shown["history"]
        highest = max(1, *map(sum, history))
        pairs = [("height of the chart", shown["chartMax"], f"height: {short(highest)} packets/s")]
        rates = [row[1] for row in expected.levels()]
        pairs.append(("end of the chart", [short(rate) for rate in history[-1]], rates))
        if len(history) > 1:
            heights = []
            for path in shown["chart"]:
                points = [float(point.split(",")[1]) for point in path.strip("MZ").split("L")]
                heights.append(points[len(history)] - points[len(history) - 1])
            wanted = [rate / highest * 150 for rate in history[-1]]
            same = all(abs(one - other) < 0.21 for one, other in zip(heights, wanted, strict=True))
            pairs.append(("last column of the chart", heights, heights if same else wanted))
        return pairs

    def captions(self, shown):
        """Returns the captions of the sections as pairs."""
        bridges = shown["now"]["bridges"]
        sessions = [own["bfd"]["state"] == "up" for own in ports(shown["now"]).values() if "bfd" in own]
        members = sum(len(bond["members"]) for bridge in bridges for bond in bridge["bonds"])
        bonds = sum(len(bridge["bonds"]) for bridge in bridges)
        mirrors = sum(len(bridge["mirrors"]) for bridge in bridges)
        nics = sum(bridge["nic"] is not None for bridge in bridges)
        down = sessions.count(False)
        more = f"; the first {ROWS_MAX} rows are shown" if len(sessions) > ROWS_MAX else ""
        wanted = {
            "nics": (nics, counted(nics, "NIC")),
            "bonds": (bonds, f"{counted(bonds, 'bond')}, {counted(members, 'member')}"),
            "mirrors": (mirrors, counted(mirrors, "mirror")),
            "bfd": (len(sessions), f"{counted(len(sessions), 'session')}, {f'{down} not up' if down else 'all up'}{more}"),
        }
        pairs = [("hidden sections", shown["hidden"], [name for name, (number, _) in wanted.items() if number == 0])]
        shown_names = [name for name, (number, _) in wanted.items() if number]
        return pairs + [(f"caption of {name}", shown["captions"][name], wanted[name][1]) for name in shown_names]

    def check_traffic(self):
        """Sends counted frames, and checks the page meanwhile and afterwards."""
        self.quiet()
        self.browser.value(RECORD)
        start, busy = self.snapshot()["now"], 0
        for _ in self.switch.hosts.slices(SLICES):
            self.events(1)
            shown = self.snapshot()
            self.check_texts(shown)
            busy += shown["now"]["caches"]["received"] > shown["last"]["caches"]["received"]
        if busy < 2:
            raise Broken(f"only {busy} of {SLICES} events had frames")
        end = self.quiet()
        before, after = counters(start), counters(end)
        grown = {name: count - before.get(name, 0) for name, count in after.items()}
        wanted = self.switch.growth()
        if self.switch.has_nic:
            grown["nic packets"] = grown["nic br1 hits"] + grown["nic br1 missed"]
            wanted["nic packets"] = NIC_FRAMES
        wrong = {name: (grown.get(name, 0), count) for name, count in wanted.items() if grown.get(name, 0) != count}
        if wrong:
            raise Broken(f"the counters have grown by other numbers than the frames: {wrong}")
        for level in CACHES.get(self.switch.number, CACHES_OTHERS)[1]:
            if not after[f"caches {level}"]:
                raise Broken(f"no packet is in the counter {level}")
        self.checked["sums"] += len(wanted)
        self.check_sums(grown, start, end)

    def check_sums(self, grown, start, end):
        """Compares the sum of the rates of all events with the growth of the counters."""
        events = [event for event in self.browser.value("recorded") if start["time_ms"] < event["to"] <= end["time_ms"]]
        sums, errors = {}, {}

        def add(name, text, seconds):
            rate, error = parsed(text)
            sums[name] = sums.get(name, 0) + rate * seconds
            errors[name] = errors.get(name, 1e-6) + error * seconds

        for event in events:
            seconds = (event["to"] - event["from"]) / 1000
            add("caches received", event["overview"][0], seconds)
            add("sent", event["overview"][1], seconds)
            add("lost", event["overview"][2], seconds)
            for name, rate, *_ in event["levels"]:
                add(f"caches {LEVELS[name]}", rate, seconds)
            for name, _, received, sent, lost in event["ports"]:
                (own, bridge), texts = (name.split("\n")[0], name.split("\n")[1].split()[0]), (received, sent)
                for side, text in zip(("rx", "tx"), texts):
                    add(f"port {bridge} {own} {side}_packets", text.split("\n")[0], seconds)
                    add(f"bits {bridge} {own} {side}", text.split("\n")[1], seconds)
                add(f"lost {bridge} {own}", lost, seconds)
            for name, _, lookups, missed, _ in event["tables"]:
                add(f"table {name} lookups", lookups, seconds)
                add(f"missed {name}", missed, seconds)
            for row in event["drops"]:
                if len(row) == 3:
                    add(f"drop {row[0].replace(' ', '_')}", row[1], seconds)
            for row in event["mirrors"]:
                if len(row) == 5:
                    name, bridge = row[0].split("\n")
                    add(f"mirror {bridge} {name}", row[4].split("\n")[0], seconds)
            for row in event["nics"]:
                if len(row) == 5:
                    bridge = row[0].split("\n")[1].split()[0]
                    for key, text in zip(("hits", "missed"), row[3].split("\n")):
                        add(f"nic {bridge} {key}", text, seconds)
        grown = dict(grown)
        grown["lost"] = sum(losses(end).values()) - sum(losses(start).values())
        for bridge, name in ports(end):
            own = f"port {bridge} {name}"
            grown |= {f"bits {bridge} {name} {side}": 8 * grown[f"{own} {side}_bytes"] for side in ("rx", "tx")}
            grown[f"lost {bridge} {name}"] = sum(grown[f"{own} {side}_dropped"] for side in ("rx", "forward", "tx"))
        for own in end["tables"]:
            key = f"{own['bridge']} {own['table']}"
            grown[f"missed {key}"] = grown[f"table {key} lookups"] - grown[f"table {key} matches"]
        for name, total in sums.items():
            if abs(total - grown[name]) > errors[name]:
                raise Broken(f"{name}: the rates of {len(events)} events add up to {total:.1f}, the counter to {grown[name]}")
        self.checked["sums"] += len(sums)

    def quiet(self):
        """Waits until an event has the same counters of the frames as the event before; returns the event."""
        names = [*self.switch.growth(), "nic br1 hits", "nic br1 missed"]
        end, before = time.monotonic() + ANSWER_MAX, None
        while time.monotonic() < end:
            shown = self.snapshot()
            own = [counters(shown["now"]).get(name) for name in names]
            if own == before:
                self.check_texts(shown)
                return shown["now"]
            before = own
            self.events(1)
        raise Broken("the counters of the frames grow without frames")

    def check_control(self):
        """Compares the counters and the states of the page with those of shuntctl before and after."""
        wrong, end = {}, time.monotonic() + ANSWER_MAX
        while time.monotonic() < end:
            before = self.switch.status()
            # An event may have been on its way since before the first command.
            self.events(2)
            shown = self.snapshot()
            self.check_texts(shown)
            after = self.switch.status()
            low, own, high = map(counters, (before, shown["now"], after))
            wrong = {
                name: (low.get(name, 0), own.get(name), high.get(name))
                for name in low | own | high
                if not low.get(name, 0) <= own.get(name, 0) <= high.get(name, 0)
            }
            one, value, other = map(states, (before, shown["now"], after))
            for name in one | value | other:
                if value.get(name) not in (one.get(name), other.get(name)):
                    wrong[name] = one.get(name), value.get(name), other.get(name)
            if not wrong:
                self.checked["counters"] = sum(low.get(name) == high[name] for name in high)
                self.checked["states"] = len(value)
                return
        raise Broken(f"the page differs from shuntctl before and after: {dict(list(wrong.items())[:5])}")

    def readable(self):
        """Checks the layout, and the colours of both schemes."""
        for scheme in ("dark", "light"):
            self.browser.scheme(scheme)
            if faults := self.browser.value(READABLE):
                raise Broken(f"{self.width} pixels, {scheme}: {faults}")

    def check_layout(self):
        self.readable()
        # Long lines of a trace and large graphs scroll in their regions. Tables fit into the page.
        wide = [name for name in self.browser.value(SIDEWAYS) if name != "Trace" and "Graph" not in name]
        if wide:
            raise Broken(f"{self.width} pixels: {wide} must be scrolled sideways")

    def check_keys(self):
        """Walks through the page by the Tab key, forwards and backwards."""
        self.browser.value("document.activeElement.blur(); scrollTo(0, 0); document.querySelector('details').open = false")
        # The walk begins at the top of the document.
        self.browser.value("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
        names, at = self.browser.value(STOPS), 0
        while at < len(names):
            focus = self.step(0, at, names)
            if focus["tag"] == "SUMMARY":
                self.browser.press("Enter")
                self.wait("document.querySelector('details').open", "the Enter key opens the list of tables")
                names = self.browser.value(STOPS)
            at += 1
        for at in reversed(range(len(names) - 1)):
            self.step(SHIFT, at, names)
        self.checked["stops"] = len(names)
        unnamed = []
        for node in self.browser.nodes():
            keys = {own["name"]: own["value"].get("value") for own in node.get("properties", [])}
            role = node["role"]["value"]
            if keys.get("focusable") and role not in ("RootWebArea", "main") and not node.get("name", {}).get("value"):
                unnamed.append(role)
        if unnamed:
            raise Broken(f"controls without a name: {unnamed}")

    def step(self, modifiers, at, names):
        self.browser.press("Tab", modifiers)
        focus = self.browser.value(FOCUS)
        if focus["at"] != at or focus["faults"]:
            key = "Shift+Tab" if modifiers else "Tab"
            raise Broken(f"{key} leads to {focus['name']} {focus['faults']}, and {names[at]} is next")
        return focus

    def focus(self, name):
        self.browser.value(f"byId('{name}').focus()")

    def check_ports(self):
        """Filters and orders the ports by keys."""
        rows = "[...byId('ports').rows].map((row) => row.cells[0].textContent.split('\\n')[0])"
        everything = self.browser.value(rows)
        number = self.browser.value("portsOf(now).length")
        if len(everything) != min(number, ROWS_MAX):
            raise Broken(f"the page has {len(everything)} of {number} ports")
        self.focus("filter")
        self.browser.type("P1")
        wanted = self.browser.value("portsOf(now).filter((own) => own.name.includes('p1')).map((own) => own.name)")
        if self.browser.value(rows) != wanted or self.browser.value("byId('ports-count').textContent") != f"{len(wanted)} of {number}":
            raise Broken(f"the filter p1 leaves {self.browser.value(rows)}")
        self.browser.value("byId('filter').select()")
        self.browser.type("no such port")
        if self.browser.value("byId('ports').textContent") != "No port matches.":
            raise Broken("a filter that matches no port leaves some")
        self.browser.value("byId('filter').value = ''; byId('filter').dispatchEvent(new Event('input'))")
        self.focus("order")
        for order in ("traffic", "lost"):
            self.browser.press("ArrowDown")
            if self.browser.value("byId('order').value") != order:
                raise Broken(f"the arrow key does not select the order {order}")
            self.switch.hosts.send_always(RATE)
            self.wait(f"{rows}[0] === 'p1' && portRates().some((own) => own.lost > 0)", f"p1 is first by {order}")
            self.switch.hosts.send_always(0)
        self.browser.press("ArrowUp")
        self.browser.press("ArrowUp")
        if self.browser.value(rows) != everything:
            raise Broken("the order by bridge has not come back")

    def check_pause(self):
        self.focus("pause")
        self.browser.press("Space")
        self.wait("byId('state').textContent === 'Healthy, paused'", "the page is paused")
        time_ms = self.browser.value("now.time_ms")
        time.sleep(2.5)
        if self.browser.value("now.time_ms") != time_ms or self.browser.value("byId('pause').ariaPressed") != "true":
            raise Broken("the page shows events while it is paused")
        self.browser.press("Space")
        self.wait(f"now.time_ms > {time_ms} && byId('state').textContent === 'Healthy'", "the page goes on")
        # The rates after the pause are those of several seconds.
        self.check_texts(self.snapshot())

    def check_flows(self):
        """Reads the top flows by keys, and compares them with those of shuntctl."""
        for _ in self.switch.hosts.slices(1):
            self.events(1)
        rows = "[...byId('flows').rows].map((row) => [...row.cells].map((own) => own.textContent))"
        end, shown = time.monotonic() + ANSWER_MAX, None
        while True:
            before = self.flows()
            self.browser.value("byId('flows').replaceChildren()")
            self.focus("read-flows")
            self.browser.press("Enter")
            self.wait("byId('flows').rows.length > 0 && !byId('read-flows').disabled", "the flows are read")
            shown, after = self.browser.value(rows), self.flows()
            # Packets of BFD may arrive between the two, and an entry may expire.
            if self.are_flows(shown, before, after):
                break
            if time.monotonic() > end:
                raise Broken(f"the page shows the flows {shown}, and shuntctl {before} before and {after} after")
        if self.browser.value("document.activeElement.id") != "read-flows":
            raise Broken("the button has lost the focus")
        self.check_layout()

    def flows(self):
        """Returns the packets of the cache entries in ascending order, by megaflow and actions."""
        flows = {}
        for entry in json.loads(self.switch.control("entries", "--count", "20", "--json"))["entries"]:
            # The packets of an entry with a next tag continue with another entry.
            actions = [*entry["actions"], *([f"next({entry['next']})"] if entry.get("next") else [])]
            flows.setdefault((entry["megaflow"], ",".join(actions) or "drop"), []).append(entry["packets"])
        return {key: sorted(counts) for key, counts in flows.items()}

    def are_flows(self, shown, before, after):
        """Returns whether the page has the flows of shuntctl, with counts between those before and after."""
        if CACHES.get(self.switch.number, CACHES_OTHERS)[1] == ["decided"]:
            return shown == [["The caches have no entry."]] and not before
        found = {}
        for packets, *key in shown:
            found.setdefault(tuple(key), []).append(parsed(packets))
        if not found or not found.keys() == before.keys() == after.keys():
            return False
        for key, counts in found.items():
            if not len(counts) == len(before[key]) == len(after[key]):
                return False
            for low, (count, error), high in zip(before[key], sorted(counts), after[key]):
                if not low - error <= count <= high + error:
                    return False
        self.checked["texts"] += 3 * len(shown)
        return True

    def check_trace(self):
        """Traces packets by keys, and compares the texts with those of shuntctl."""
        for flow in ("in_port=1,udp,nw_src=10.0.0.1,tp_dst=2", "in_port=1,arp", "no such field"):
            self.focus("trace-flow")
            self.browser.value("byId('trace-flow').select(); byId('trace-text').textContent = ''")
            self.browser.type(flow)
            self.browser.press("Enter")
            text = self.wait("byId('trace-text').textContent", "the trace has a text").rstrip()
            traced = subprocess.run(
                [self.switch.shuntctl, "--run-dir", self.switch.run_dir, "trace", "br0", flow], capture_output=True, text=True
            )
            wanted = (traced.stdout or traced.stderr).rstrip()
            # Each trace through a Gigaflow cache takes the next free tag.
            text, wanted = (re.sub(r"tag=\d+", "tag=N", own) for own in (text, wanted))
            is_bad = self.browser.value("byId('trace-text').className") == "bad"
            if is_bad != (traced.returncode != 0) or (text != wanted if not is_bad else text not in wanted):
                raise Broken(f"the page traces {flow} as {text!r}, and shuntctl as {wanted!r}")
            if not is_bad:
                self.check_layout()
            if others := [error for error in self.browser.take_errors() if "400" not in error or not is_bad]:
                raise Broken(f"the console has {others}")

    def check_silence(self):
        """Stops the daemon until the page shows it, and lets the daemon continue."""
        self.switch.process.send_signal(signal.SIGSTOP)
        try:
            words = f"No connection: no event for {SILENCE} s"
            self.wait(f"byId('state').textContent === '{words}'", "the page shows that no event comes", 2 * SILENCE)
            if self.browser.value("byId('state').className") != "bad":
                raise Broken("the state without a connection is not marked")
            self.readable()
        finally:
            self.switch.process.send_signal(signal.SIGCONT)
        time_ms = self.browser.value("now.time_ms")
        self.wait(f"now.time_ms > {time_ms} && byId('state').textContent === 'Healthy'", "the page recovers", 2 * SILENCE)
        self.events(1)
        self.check_texts(self.snapshot())

    def screenshots(self, folder):
        """Writes a picture of the page while frames arrive."""
        os.makedirs(folder, exist_ok=True)
        for rate in PICTURE_RATES:
            self.switch.hosts.send_always(rate)
            self.events(3)
        # The browser paints a tall page in parts, which must show the same event.
        self.browser.value("document.activeElement.blur(); scrollTo(0, 0); isPaused = true")
        self.browser.value("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
        self.browser.picture(f"{folder}/window-{self.switch.number}-{self.width}.png", PICTURE_HEIGHT.get(self.width, 1600))
        self.browser.value("isPaused = false")
        self.switch.hosts.send_always(0)

    def check(self, screenshots):
        self.open()
        if screenshots:
            self.screenshots(screenshots)
        self.check_layout()
        self.check_traffic()
        self.check_control()
        self.check_keys()
        self.check_ports()
        self.check_pause()
        self.check_flows()
        self.check_trace()
        self.check_layout()
        self.no_errors()


def check_switch(options, folder, number):
    """Checks the page of one switch at each width."""
    switch = Switch((options.shuntd, options.shuntctl), folder, number)
    switch.start()
    browser = Browser(switch.folder)
    try:
        if options.page:
            browser.replace_files(page_files(options.page))
        for width in options.widths:
            window = Window(switch, browser, width)
            window.check(options.screenshots)
            if width == options.widths[-1]:
                window.check_silence()
            counts = ", ".join(f"{count} {name}" for name, count in window.checked.items())
            print(f"{counted(number, 'port')}, {width} pixels: {counts}", flush=True)
        browser.close()
        switch.end()
    except Broken as error:
        raise Broken(f"{counted(number, 'port')}: {error}\n{switch.text()}") from error
    finally:
        browser.process.kill()
        switch.process.kill()
        switch.process.wait()


def page_files(folder):
    """Returns the files of the page from a folder of the source code, by path."""
    with open(os.path.join(folder, "mod.rs")) as file:
        policy = file.read().split("CONTENT_SECURITY_POLICY: &str = \"")[1].split("\";")[0]
    policy = " ".join(part.strip() for part in policy.split("\\\n"))
    files = {}
    for name, kind in (("window.html", "html"), ("window.css", "css"), ("window.js", "javascript"), ("objects.js", "javascript")):
        with open(os.path.join(folder, name), "rb") as file:
            headers = {"Content-Type": f"text/{kind}; charset=utf-8", "Content-Security-Policy": policy}
            files["/" if kind == "html" else f"/{name}"] = headers, file.read()
    return files


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shuntd")
    parser.add_argument("shuntctl")
    parser.add_argument("--ports", type=numbers, default=[1, 30, 1000], help="numbers of ports: 1, or 30 and more")
    parser.add_argument("--widths", type=numbers, default=[400, 1600], help="widths of the page in pixels")
    parser.add_argument("--screenshots", metavar="DIR", help="write pictures of the pages to this folder")
    parser.add_argument("--page", metavar="DIR", help="load the files of the page from this folder of the source code")
    options = parser.parse_args()
    if os.environ.get("SHUNT_WINDOW") != "inside":
        os.environ["SHUNT_WINDOW"] = "inside"
        spaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp("unshare", ["unshare", *spaces, sys.executable, *sys.argv])
    for scope in ("all", "default"):
        # Kernels send frames of IPv6 by themselves, and these are not counted here.
        path = f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"
        if os.path.exists(path):
            with open(path, "w") as file:
                file.write("1")
    run("ip", "link", "set", "lo", "up")
    folder = tempfile.mkdtemp(prefix="shunt-window-")
    try:
        run("mount", "-t", "tmpfs", "-o", "mode=755", "window", folder)
        for number in options.ports:
            check_switch(options, folder, number)
        code = 0
    except (Broken, OSError, subprocess.TimeoutExpired) as error:
        print(f"FAILED: {error}", flush=True)
        code = 1
    finally:
        run("umount", "--lazy", folder)
        os.rmdir(folder)
    sys.exit(code)


if __name__ == "__main__":
    main()
