#!/usr/bin/env python3
"""Draws docs/images/speed.svg from the committed results: `python3 docs/images/speed.py`.

With `--check` it only compares the file with the results, and fails if they differ.

A bar is the value of Open vSwitch divided by the value of Shunt; less is better in every row. The rows
are named here, their values are read from docs/results/*.json. Where Open vSwitch was measured with
several cache configurations, its value is that of the fastest one.
"""

import json
import math
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CYCLES = "CPU cycles per packet"
SET_UP = "CPU of the switch to set up a flow, by number of tables"
REPLY = "time from the flow-mod to the barrier reply"
OLD_RULE = "time from the flow-mod until no packet follows the old rule"
TEN_TABLES = "gigaflow-forwarding", "ofd:high:100k"
ONE_RULE = "one rule that matches 8 flows, 100K entries, p50"
WIDE_RULE = "one rule that matches 2,048 flows, 100K entries, p50"

# (title of the group, [(label, experiment, row of Shunt, first words of the rows of Open vSwitch, metric)])
GROUPS = [
    ("Forward a packet, cycles", [
        ("1 rule, 1,000 flows", "spine", "1K flows, against EMC", "1K flows, against", CYCLES),
        ("1 rule, 100,000 flows", "spine", "100K flows, against EMC", "100K flows, against", CYCLES),
        ("10 tables (OF-DPA), 100,000 flows", TEN_TABLES[0],
         "ofd:high:100k, exact match and megaflows, against EMC", TEN_TABLES[1], CYCLES),
        ("the same, Shunt without exact-match cache", TEN_TABLES[0],
         "ofd:high:100k, megaflows, against no cache", TEN_TABLES[1], CYCLES),
    ]),
    ("Set up a flow, CPU time", [
        ("1 table", "pipeline", "1 table", "1 table", SET_UP),
        ("16 tables", "pipeline", "16 tables", "16 tables", SET_UP),
        ("22 tables (Antrea), 32,000 flows", "slow-path", "ant: 32K flows", "ant: 32K flows", "CPU to set up a flow"),
    ]),
    ("Memory", [
        ("a rule, of 100,000", "pipeline", "100K rules", "100K rules", "memory of a rule"),
        ("a cached flow, 30 tables (OVN)", "slow-path", "ols: 8K flows", "ols: 8K flows",
         "memory of a cached flow"),
    ]),
    ("Change a rule, 100,000 cache entries", [
        ("to the barrier reply, 8 stale flows", "kairo-barrier", ONE_RULE, ONE_RULE, REPLY),
        ("to the barrier reply, 2,048 stale flows", "kairo-barrier", WIDE_RULE, WIDE_RULE, REPLY),
        ("until the old rule is unused, 8 stale flows", "kairo-barrier", ONE_RULE, ONE_RULE, OLD_RULE),
        ("until the old rule is unused, 2,048 stale flows", "kairo-barrier", WIDE_RULE, WIDE_RULE, OLD_RULE),
    ]),
]

WIDTH, LEFT, RIGHT = 1000, 372, 790
LEAST, MOST = 0.08, 400.0
TICKS = [0.1, 0.3, 1, 3, 10, 30, 100, 300]
ROW, HEAD, TOP = 27, 36, 100

STYLE = """
    .page { fill: #ffffff; stroke: #d0d7de; }
    text { fill: #1f2328; font-size: 14px; }
    .title { font-size: 17px; font-weight: bold; }
    .group { font-weight: bold; }
    .small { fill: #57606a; font-size: 12.5px; }
    .grid { stroke: #d8dee4; stroke-width: 1; }
    .one { stroke: #57606a; stroke-width: 1.5; }
    .faster { fill: #1a7f37; } .slower { fill: #bc4c00; }
    .factor { stroke: #ffffff; stroke-width: 5px; paint-order: stroke; }
    .end { text-anchor: end; } .mid { text-anchor: middle; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #30363d; }
      text { fill: #e6edf3; }
      .small { fill: #adb6c0; }
      .grid { stroke: #30363d; } .one { stroke: #8b949e; } .factor { stroke: #0d1117; }
      .faster { fill: #3fb950; } .slower { fill: #f0883e; }
    }"""


def rows_of(experiment):
    return json.loads((FOLDER.parent / "results" / f"{experiment}.json").read_text())["rows"]


def values(experiment, row, rivals, metric):
    """The value of Shunt in a row, the least value of Open vSwitch in the rows of the rival, and the unit."""
    rows = [one for one in rows_of(experiment) if one["metric"] == metric]
    own = next(one for one in rows if one["name"] == row)
    rival = min(
        one["rival_value"] for one in rows
        if one["name"].startswith(rivals) and one["rival"] and "OVS" in one["rival"].replace("Open vSwitch", "OVS")
    )
    return own["value"], rival, own["unit"]


def x(ratio):
    share = math.log(ratio / LEAST) / math.log(MOST / LEAST)
    return LEFT + share * (RIGHT - LEFT)


def shown(value, unit):
    if unit == "us" and value >= 1000:
        value, unit = value / 1000, "ms"
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {unit}"


def text(at_x, at_y, content, kind=""):
    return f'  <text x="{at_x:.0f}" y="{at_y:.0f}" class="{kind}">{content}</text>'


def draw():
    body, y = [], TOP
    for title, rows in GROUPS:
        y += HEAD
        body.append(text(28, y - 8, title, "group"))
        for label, experiment, row, rivals, metric in rows:
            own, rival, unit = values(experiment, row, rivals, metric)
            ratio = rival / own
            kind = "faster" if ratio >= 1 else "slower"
            start, end = sorted((x(1), x(ratio)))
            body.append(text(44, y + 14, label))
            body.append(
                f'  <rect class="{kind}" x="{start:.1f}" y="{y + 1}" width="{max(end - start, 1):.1f}" height="17" rx="2"/>')
            factor = f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.2f}×"
            side = (end + 6, "factor") if ratio >= 1 else (start - 6, "factor end")
            body.append(text(side[0], y + 14, factor, side[1]))
            own_text, rival_text = shown(own, unit), shown(rival, unit)
            body.append(text(876, y + 14, own_text, "small end"))
            body.append(text(976, y + 14, rival_text, "small end"))
            y += ROW
    bottom = y + 6
    grid = []
    for tick in TICKS:
        kind = "one" if tick == 1 else "grid"
        grid.append(f'  <path class="{kind}" d="M{x(tick):.1f} {TOP + 4}V{bottom}"/>')
        grid.append(text(x(tick), TOP - 4, f"{tick:g}×", "small mid"))
    head = [
        text(28, 34, "Shunt beside Open vSwitch 3.1.0: the value of Open vSwitch divided by that of Shunt", "title"),
        text(x(1) - 14, TOP - 28, "◀ Open vSwitch is better", "small end"),
        text(x(1) + 14, TOP - 28, "Shunt is better ▶", "small"),
        text(876, TOP - 28, "Shunt", "small end"),
        text(976, TOP - 28, "Open vSwitch", "small end"),
    ]
    foot = [
        text(28, bottom + 24, "Ratios of medians, one run for each experiment, two AMD EPYC cores, less is better in every "
             "row. Forwarding: OVS-DPDK with its", "small"),
        text(28, bottom + 41, "fastest cache configuration. Source: docs/results/{spine, gigaflow-forwarding, pipeline, slow-path, "
             "kairo-barrier}.json.", "small"),
    ]
    height = bottom + 58
    page = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        "font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" role=\"img\" aria-labelledby=\"title\">",
        "  <title id=\"title\">Shunt beside Open vSwitch: ratios of the committed results</title>",
        f"  <style>{STYLE}\n  </style>",
        f'  <rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="12"/>',
        *grid, *head, *body, *foot, "</svg>", "",
    ]
    return "\n".join(page)


if __name__ == "__main__":
    figure = FOLDER / "speed.svg"
    if sys.argv[1:] == ["--check"]:
        if figure.read_text() != draw():
            sys.exit("docs/images/speed.svg differs from docs/results: run python3 docs/images/speed.py")
    else:
        figure.write_text(draw())
