// The window of Shunt: shows the events of /events, which are the status of the switch once a second.
"use strict";

const HISTORY = 120;
const PORTS_SHOWN = 200;
const LEVELS = [
  ["exact", "exact_hits"], ["signature", "signature_hits"], ["megaflow", "megaflow_hits"],
  ["gigaflow", "gigaflow_hits"], ["no cache", "decided"], ["upcall", "upcalls"],
];

const byId = (id) => document.getElementById(id);
const history = [];
let last = null;
let now = null;
let token = "";
let isPaused = false;

// Returns a number with three digits and a unit: 950, 12.3 K, 4.56 M.
function short(value) {
  if (!Number.isFinite(value)) return "";
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"]]) {
    // Three digits round the last part below a unit up to it: 999,900 is 1.00 M.
    if (value >= Math.max(1e4, 0.9995 * unit)) return (value / unit).toPrecision(3) + " " + letter;
  }
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toString() : value.toFixed(1);
}

// Returns the growth of a counter per second, 0 after a restart of the daemon.
function rate(before, after) {
  const seconds = last ? (now.time_ms - last.time_ms) / 1000 : 0;
  if (before === undefined || before === null || !(seconds > 0)) return 0;
  return Math.max(0, (after - before) / seconds);
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Fills a table body. A row is a list of cells: a text, or a text and a class. Rows are reused, so that
// the focus and the selection of the user stay.
function fill(body, rows, nothing) {
  if (rows.length === 0) rows = [[[nothing, "weak left"]]];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] || body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((cell, column) => {
      const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
      const own = row.cells[column] || row.insertCell();
      if (own.textContent !== text) own.textContent = text;
      if (own.className !== className) own.className = className;
    });
  });
}

const sum = (list) => list.reduce((all, next) => all + next, 0);

function portsOf(frame) {
  return frame ? frame.bridges.flatMap((bridge) => bridge.ports) : [];
}

function showState() {
  const problems = now.unhealthy.concat(now.missing);
  const list = byId("problems");
  list.hidden = problems.length === 0;
  const text = problems.join("\n");
  if (list.dataset.text !== text) {
    list.dataset.text = text;
    list.replaceChildren(...problems.map((problem) => element("li", problem)));
  }
  setState(now.unhealthy.length ? "Not healthy" : now.missing.length ? "Not ready" : "Healthy",
    problems.length ? "bad" : "good");
  byId("version").textContent = now.version;
}

function setState(text, className) {
  const state = byId("state");
  if (isPaused) text += ", paused";
  // Screen readers announce each change, so the same text is not set again.
  if (state.textContent !== text) state.textContent = text;
  state.className = className;
}

function showOverview() {
  const caches = now.caches, before = last ? last.caches : {};
  const drops = (frame) => sum(frame.drops.dropped.concat(frame.drops.not_received).map(([, count]) => count));
  const received = rate(before.received, caches.received);
  const hits = sum(LEVELS.slice(0, 4).map(([, key]) => rate(before[key], caches[key])));
  const rows = [
    ["Received/s", short(received)],
    ["Sent/s", short(rate(last && last.drops.sent, now.drops.sent))],
    ["Lost/s", short(rate(last ? drops(last) : undefined, drops(now)))],
    ["Hit rate", received > 0 ? (Math.min(1, hits / received) * 100).toFixed(1) + " %" : "–"],
    ["Upcalls/s", short(rate(before.upcalls, caches.upcalls))],
    ["Entries", short(caches.entries)],
    ["Masks", short(caches.masks)],
    ["Memory", now.evictions && now.evictions.resident_bytes ? short(now.evictions.resident_bytes) + "B" : "–"],
  ];
  const list = byId("overview");
  if (list.children.length !== rows.length) {
    list.replaceChildren(...rows.map(([name]) => {
      const box = element("div");
      box.append(element("dt", name), element("dd"));
      return box;
    }));
  }
  rows.forEach(([, value], at) => { list.children[at].lastChild.textContent = value; });
}

function showLevels() {
  const rates = LEVELS.map(([, key]) => rate(last && last.caches[key], now.caches[key]));
  if (last) history.push(rates);
  if (history.length > HISTORY) history.shift();
  const all = sum(rates);
  fill(byId("levels"), LEVELS.map(([name, key], at) => [
    [name, "level-" + at], short(rates[at]), all > 0 ? (rates[at] / all * 100).toFixed(1) + " %" : "–",
    short(now.caches[key]),
  ]), "");
  drawChart();
}

function drawChart() {
  const chart = byId("chart");
  const highest = Math.max(1, ...history.map(sum));
  byId("chart-max").textContent = "top: " + short(highest) + " packets/s";
  const x = (at) => (600 - (history.length - 1 - at) * 600 / (HISTORY - 1)).toFixed(1);
  const y = (value) => (158 - value / highest * 150).toFixed(1);
  const below = history.map(() => 0);
  const areas = history.length < 2 ? [] : LEVELS.map((_, level) => {
    const bottom = below.map((value, at) => x(at) + "," + y(value)).reverse();
    history.forEach((rates, at) => { below[at] += rates[level]; });
    const top = below.map((value, at) => x(at) + "," + y(value));
    return svg("path", { d: "M" + top.concat(bottom).join("L") + "Z", class: "level-" + level });
  });
  chart.replaceChildren(...areas);
}

function showBridges() {
  const box = byId("bridges");
  const lines = now.bridges.map((bridge) => {
    const controllers = bridge.controllers.map((own) => {
      const retry = own.state === "waiting" ? " (" + own.reason + ")" : "";
      return own.target + " " + own.state + retry;
    });
    const count = (number, noun) => short(number) + " " + noun + (number === 1 ? "" : "s");
    return [bridge.name, count(bridge.rules, "rule"), count(bridge.ports.length, "port")].concat(controllers).join(" · ");
  });
  if (lines.length === 0) lines.push("No bridge exists.");
  const text = lines.join("\n");
  if (box.dataset.text === text) return;
  box.dataset.text = text;
  box.replaceChildren(...lines.map((line) => element("p", line)));
}

// Sets the bridges of the trace form; the choice of the user stays.
function showTraceBridges() {
  const choice = byId("trace-bridge");
  const names = now.bridges.map((bridge) => bridge.name);
  if (choice.dataset.names === names.join(" ")) return;
  choice.dataset.names = names.join(" ");
  const chosen = choice.value;
  choice.replaceChildren(...names.map((name) => element("option", name)));
  if (names.includes(chosen)) choice.value = chosen;
}

function showPorts() {
  const before = new Map(portsOf(last).map((port) => [port.bridge + " " + port.name, port]));
  const wanted = byId("filter").value.trim().toLowerCase();
  const all = portsOf(now);
  const matching = all.filter((port) =>
    [port.bridge, port.name, port.type, port.link].some((text) => text.toLowerCase().includes(wanted)));
  const rows = matching.slice(0, PORTS_SHOWN).map((port) => {
    const old = before.get(port.bridge + " " + port.name) || {};
    const traffic = (direction) =>
      short(rate(old[direction + "_packets"], port[direction + "_packets"])) + " packets/s\n" +
      short(8 * rate(old[direction + "_bytes"], port[direction + "_bytes"])) + " bit/s";
    const lost = rate(old.rx_dropped, port.rx_dropped) + rate(old.tx_dropped, port.tx_dropped);
    const number = port.number > 65535 ? "local" : port.number;
    const link = port.link.startsWith("down: ") ? "down" : port.link;
    return [
      port.name + "\n" + port.bridge + " " + number + " " + port.type,
      [link, port.link === "up" ? "good" : "bad"],
      traffic("rx"), traffic("tx"), [short(lost), lost > 0 ? "bad" : ""],
    ];
  });
  byId("ports-count").textContent = rows.length < all.length ? rows.length + " of " + all.length : "";
  fill(byId("ports"), rows, "No port matches.");
}

function tableRates() {
  const key = (own) => own.bridge + " " + own.table;
  const before = new Map((last ? last.tables : []).map((own) => [key(own), own]));
  return now.tables.map((own) => {
    const old = before.get(key(own)) || {};
    const lookups = rate(old.lookups, own.lookups);
    return { ...own, perSecond: lookups, missed: Math.max(0, lookups - rate(old.matches, own.matches)) };
  });
}

function linkRates() {
  const key = (own) => own.bridge + " " + own.from + " " + own.to;
  const before = new Map((last ? last.links : []).map((own) => [key(own), own]));
  return now.links.map((own) => ({ ...own, perSecond: rate((before.get(key(own)) || {}).packets, own.packets) }));
}

function showTables() {
  const tables = tableRates(), links = linkRates();
  fill(byId("tables"), tables.map((own) => {
    const next = links.filter((link) => link.bridge === own.bridge && link.from === own.table);
    return [
      own.bridge + " " + own.table, short(own.rules), short(own.perSecond), short(own.missed),
      next.map((link) => link.to + " (" + short(link.perSecond) + "/s)").join(", ") || "–",
    ];
  }), "No table has rules.");
  const graphs = now.bridges.flatMap((bridge) => {
    const own = tables.filter((table) => table.bridge === bridge.name);
    return own.length ? [graph(bridge, own, links.filter((link) => link.bridge === bridge.name))] : [];
  });
  byId("graphs").replaceChildren(...graphs);
}

// Draws the tables of a bridge from top to bottom, each below the tables that lead to it.
function graph(bridge, tables, links) {
  const width = 132, height = 46, gapX = 16, gapY = 40;
  const level = new Map(tables.map((table) => [table.table, 0]));
  const ahead = links.filter((link) => link.to > link.from && level.has(link.from));
  ahead.sort((one, other) => one.from - other.from);
  for (const link of ahead) {
    level.set(link.to, Math.max(level.get(link.to) || 0, level.get(link.from) + 1));
  }
  const levels = [];
  for (const [table, at] of [...level].sort((one, other) => one[0] - other[0])) {
    (levels[at] = levels[at] || []).push(table);
  }
  const place = new Map();
  levels.forEach((row, at) => row.forEach((table, column) => {
    place.set(table, { x: 2 + column * (width + gapX), y: 2 + at * (height + gapY) });
  }));
  const columns = Math.max(...levels.map((row) => row.length));
  const [wide, high] = [columns * (width + gapX), levels.length * (height + gapY) - gapY + 4];
  const drawing = svg("svg", {
    class: "graph", width: wide, height: high, viewBox: "0 0 " + wide + " " + high, role: "img",
    "aria-label": "Tables of " + bridge.name + "; the list below has the same values",
  });
  const labels = [];
  for (const link of links) {
    const from = place.get(link.from), to = place.get(link.to);
    if (!from || !to) continue;
    const [x1, y1, x2, y2] = [from.x + width / 2, from.y + height, to.x + width / 2, to.y];
    const bend = Math.max(20, (y2 - y1) / 2);
    const d = "M" + x1 + "," + y1 + "C" + x1 + "," + (y1 + bend) + " " + x2 + "," + (y2 - bend) + " " + x2 + "," + y2;
    const stroke = (1 + Math.log10(1 + link.perSecond)).toFixed(1);
    drawing.append(svg("path", { class: "link", d, "stroke-width": stroke }));
    const label = svg("text", { class: "flow", x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 4 });
    label.textContent = short(link.perSecond) + "/s";
    labels.push(label);
  }
  const known = new Map(tables.map((table) => [table.table, table]));
  for (const [table, { x, y }] of place) {
    const own = known.get(table) || { rules: 0, perSecond: 0 };
    drawing.append(svg("rect", { x, y, width, height, rx: 6 }));
    const texts = ["table " + table + " · " + short(own.rules) + (own.rules === 1 ? " rule" : " rules"), short(own.perSecond) + " lookups/s"];
    texts.forEach((text, at) => {
      const line = svg("text", { x: x + 8, y: y + 19 + at * 17 });
      line.textContent = text;
      drawing.append(line);
    });
  }
  drawing.append(...labels);
  const scroll = element("div", undefined, "scroll");
  scroll.append(drawing);
  const box = element("div");
  box.append(element("h3", bridge.name), scroll);
  if (bridge.rules > 1000) box.append(element("p", "The links are not shown: the bridge has more than 1000 rules.", "weak"));
  return box;
}

function showCounts(body, pairs, before, nothing) {
  const old = new Map(before || []);
  const rows = pairs.map(([name, count]) => [name.replaceAll("_", " "), rate(before ? old.get(name) || 0 : undefined, count), count]);
  rows.sort((one, other) => other[1] - one[1] || other[2] - one[2]);
  fill(body, rows.map(([name, perSecond, count]) => [name, [short(perSecond), perSecond > 0 ? "bad" : ""], short(count)]), nothing);
}

function showThreads() {
  const before = new Map((last ? last.threads : []).map((own) => [own.name, own]));
  fill(byId("threads"), now.threads.map((own) => [
    own.name, [own.state, own.state === "running" ? "good" : "bad"],
    own.iterations === undefined ? "" : short(rate((before.get(own.name) || {}).iterations, own.iterations)),
  ]), "");
}

function show(frame) {
  if (now && frame.time_ms < now.time_ms) history.length = 0;
  last = now && frame.time_ms > now.time_ms ? now : null;
  now = frame;
  showState();
  showOverview();
  showLevels();
  showBridges();
  showTraceBridges();
  showPorts();
  showTables();
  const lost = (one) => one && one.drops.dropped.concat(one.drops.not_received);
  showCounts(byId("drops"), lost(now), lost(last), "No packet was lost.");
  const causes = (one) => (one && one.evictions ? one.evictions.by_cause : null);
  showCounts(byId("evictions"), causes(now) || [], causes(last), "No change has evicted an entry.");
  showThreads();
}

function headers() {
  return token ? { Authorization: "Bearer " + token } : {};
}

// Reads the events with `fetch`, because `EventSource` sends no token.
async function follow() {
  const response = await fetch("events", { headers: headers(), cache: "no-store" });
  if (response.status === 401) {
    byId("login").hidden = false;
    setState(token ? "The token was refused" : "A token is required", "bad");
    byId("token").focus();
    return false;
  }
  if (!response.ok) throw new Error((await response.text()).trim());
  byId("login").hidden = true;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (!isPaused && event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
    }
  }
}

async function run() {
  for (;;) {
    try {
      if (!await follow()) return;
    } catch (error) {
      setState("No connection: " + error.message, "bad");
    }
    await new Promise((resolve) => { setTimeout(resolve, 1000); });
  }
}

async function readFlows() {
  const button = byId("read-flows");
  button.disabled = true;
  try {
    const response = await fetch("flows", { headers: headers(), cache: "no-store" });
    if (!response.ok) throw new Error((await response.text()).trim());
    const list = await response.json();
    fill(byId("flows"), list.entries.map((entry) => [
      short(entry.packets), [entry.megaflow, "wrap"], [entry.actions.join(",") || "drop", "wrap"],
    ]), "The caches have no entry.");
  } catch (error) {
    fill(byId("flows"), [], "Not read: " + error.message);
  }
  button.disabled = false;
  button.focus();
}

async function trace(event) {
  event.preventDefault();
  const query = "bridge=" + encodeURIComponent(byId("trace-bridge").value) +
    "&flow=" + encodeURIComponent(byId("trace-flow").value);
  const text = byId("trace-text");
  try {
    const response = await fetch("trace?" + query, { headers: headers(), cache: "no-store" });
    text.className = response.ok ? "" : "bad";
    text.textContent = await response.text();
  } catch (error) {
    text.className = "bad";
    text.textContent = error.message;
  }
}

byId("pause").addEventListener("click", (event) => {
  isPaused = !isPaused;
  event.currentTarget.setAttribute("aria-pressed", isPaused);
  if (now) showState();
});
byId("filter").addEventListener("input", () => { if (now) showPorts(); });
byId("read-flows").addEventListener("click", readFlows);
byId("trace").addEventListener("submit", trace);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  run();
});
run();
