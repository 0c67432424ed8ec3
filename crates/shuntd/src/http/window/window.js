// The window of Shunt: shows the events of /events, which are the status of the switch once a second.
"use strict";

const HISTORY = 120;
const PORTS_SHOWN = 200;
// Longest time without an event, in seconds. A daemon that hangs, or a host that is gone, ends no
// connection, and the page would show its last figures as if they were new.
const SILENCE_MAX = 10;
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
let isRunning = false;

// Returns a number with three digits and a unit: 950, 12.3 K, 4.56 M.
function short(value) {
  if (!Number.isFinite(value)) return "";
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "K"]]) {
    // Three digits round the last part below a unit up to it: 999,900 is 1.00 M.
    if (value >= Math.max(1e4, 0.9995 * unit)) return (value / unit).toPrecision(3) + " " + letter;
  }
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toString() : value.toFixed(1);
}

// Returns a number with its noun: 1 rule, 2 rules.
function counted(number, noun) {
  return short(number) + " " + noun + (number === 1 ? "" : "s");
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
// the focus and the selection of the user stay. With `data-heads`, the first cell is the head of its row.
function fill(body, rows, nothing) {
  if (rows.length === 0) rows = [[[nothing, "weak left"]]];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] || body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((cell, column) => {
      const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
      const own = row.cells[column] || (column === 0 && "heads" in body.dataset ? rowHead(row) : row.insertCell());
      if (own.textContent !== text) own.textContent = text;
      if (own.className !== className) own.className = className;
    });
  });
}

function rowHead(row) {
  const head = element("th");
  head.scope = "row";
  return row.appendChild(head);
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

// Returns the lost packets by reason, as `shuntctl drops` lists them.
function losses(frame) {
  const drops = frame.drops, packetIns = drops.packet_ins;
  const others = [
    ["device_lost", drops.device_lost], ["packet_in_listener_full", packetIns.listener_full],
    ["packet_in_no_connection", packetIns.no_connection], ["packet_in_no_bridge", packetIns.no_bridge],
    ["snooping_inbox_full", drops.snooping_inbox_full],
  ];
  return drops.dropped.concat(drops.not_received, others.filter(([, packets]) => packets > 0));
}

function showOverview() {
  const caches = now.caches, before = last ? last.caches : {};
  const lost = (frame) => sum(losses(frame).map(([, packets]) => packets));
  const received = rate(before.received, caches.received);
  const hits = sum(LEVELS.slice(0, 4).map(([, key]) => rate(before[key], caches[key])));
  const rows = [
    ["Received/s", short(received)],
    ["Sent/s", short(rate(last && last.drops.sent, now.drops.sent))],
    ["Lost/s", short(rate(last ? lost(last) : undefined, lost(now)))],
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
  // After a pause or missed events, the rates are those of several seconds.
  const seconds = last ? Math.max(1, Math.round((now.time_ms - last.time_ms) / 1000)) : 0;
  for (let second = 0; second < Math.min(seconds, HISTORY); second += 1) history.push(rates);
  while (history.length > HISTORY) history.shift();
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
  byId("chart-max").textContent = "height: " + short(highest) + " packets/s";
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
      const more = own.state === "waiting" ? own.reason : own.state === "connected" ? own.role : own.problem;
      return own.target + " " + own.state + (more ? " (" + more + ")" : "");
    });
    return [bridge.name, counted(bridge.rules, "rule"), counted(bridge.ports.length, "port")].concat(controllers).join(" · ");
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

// Returns all ports with their rates. Lost packets are those of the three columns of `shuntctl ports`.
function portRates() {
  const key = (port) => port.bridge + " " + port.name;
  const before = new Map(portsOf(last).map((port) => [key(port), port]));
  return portsOf(now).map((port) => {
    const old = before.get(key(port)) || {};
    const own = (name) => rate(old[name], port[name]);
    return {
      ...port,
      rx: { packets: own("rx_packets"), bytes: own("rx_bytes") },
      tx: { packets: own("tx_packets"), bytes: own("tx_bytes") },
      lost: own("rx_dropped") + own("forward_dropped") + own("tx_dropped"),
    };
  });
}

function showPorts() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const all = portRates();
  const matching = all.filter((port) =>
    [port.bridge, port.name, port.type, port.link].some((text) => text.toLowerCase().includes(wanted)));
  const order = byId("order").value;
  if (order === "traffic") matching.sort((one, other) => other.rx.bytes + other.tx.bytes - one.rx.bytes - one.tx.bytes);
  if (order === "lost") matching.sort((one, other) => other.lost - one.lost);
  const traffic = (own) => short(own.packets) + "\n" + short(8 * own.bytes);
  const rows = matching.slice(0, PORTS_SHOWN).map((port) => {
    const number = port.number > 65535 ? "LOCAL" : port.number;
    return [
      port.name + "\n" + port.bridge + " " + number + " " + port.type,
      [port.link.replace("down: ", "down\n"), port.link === "up" ? "good" : "bad"],
      traffic(port.rx), traffic(port.tx), [short(port.lost), port.lost > 0 ? "bad" : ""],
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
  const boxes = now.bridges.flatMap((bridge) => {
    const own = tables.filter((table) => table.bridge === bridge.name);
    return own.length ? [graphBox(bridge, graph(bridge, own, links.filter((link) => link.bridge === bridge.name)))] : [];
  });
  const list = byId("graphs");
  const isSame = boxes.length === list.children.length && boxes.every((box, at) => box === list.children[at]);
  if (!isSame) list.replaceChildren(...boxes);
}

// Puts the drawing of a bridge into its box. The box stays, with its scroll position and the focus.
function graphBox(bridge, drawing) {
  let box = [...byId("graphs").children].find((own) => own.dataset.bridge === bridge.name);
  if (!box) {
    box = element("div");
    box.dataset.bridge = bridge.name;
    const scroll = element("div", undefined, "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Graph of the tables of " + bridge.name);
    box.append(element("h3", bridge.name), scroll, element("p", undefined, "weak"));
  }
  const [, scroll, note] = box.children;
  const { scrollLeft, scrollTop } = scroll;
  scroll.replaceChildren(drawing);
  [scroll.scrollLeft, scroll.scrollTop] = [scrollLeft, scrollTop];
  note.textContent = bridge.rules > 1000 ? "The links are not shown: the bridge has more than 1000 rules." : "";
  return box;
}

// The size of a table in a drawing, and the space to the next one.
const [BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y] = [132, 46, 16, 40];

// Returns the curve of a link between two places, and the middle of its label. A link to the next row
// leads down; any other one leads around the right side of all places in the rows of the link.
function curve(from, to, places) {
  const down = to.y - from.y === BOX_HEIGHT + GAP_Y;
  const side = down ? BOX_WIDTH / 2 : BOX_WIDTH;
  const [x1, x2] = [from.x + side, to.x + side];
  const [y1, y2] = down ? [from.y + BOX_HEIGHT, to.y] : [from.y + BOX_HEIGHT * 0.6, to.y + BOX_HEIGHT * 0.4];
  // Longer links lead around shorter ones.
  const rows = Math.abs(to.y - from.y) / (BOX_HEIGHT + GAP_Y);
  const passed = places.filter(({ y }) => y >= Math.min(from.y, to.y) && y <= Math.max(from.y, to.y));
  const middle = Math.max(...passed.map(({ x }) => x + BOX_WIDTH)) + Math.min(16 + 12 * rows, SIDE_MAX);
  // The middle of the curve has three quarters of the weight of the bends.
  const bend = (8 * middle - x1 - x2) / 6;
  const [bend1, bend2, outY] = down ? [x1, x2, (y2 - y1) / 2] : [bend, bend, 0];
  const d = "M" + x1 + "," + y1 + "C" + bend1 + "," + (y1 + outY) + " " + bend2 + "," + (y2 - outY) + " " + x2 + "," + y2;
  return { d, x: (x1 + 3 * bend1 + 3 * bend2 + x2) / 8, y: (y1 + y2) / 2 };
}

// Maximum distance of a link from the side of the tables that it passes.
const SIDE_MAX = 150;

// Draws the tables of a bridge from top to bottom, each below the tables that lead to it.
function graph(bridge, tables, links) {
  const [width, height, gapX, gapY] = [BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y];
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
  const places = [...place.values()];
  const curves = links.flatMap((link) => {
    const from = place.get(link.from), to = place.get(link.to);
    return from && to ? [{ ...link, ...curve(from, to, places) }] : [];
  });
  // The label of a link at the right side needs space, too.
  const right = Math.max(wide, ...curves.map((own) => own.x + 30));
  const drawing = svg("svg", {
    class: "graph", width: right, height: high, viewBox: "0 0 " + right + " " + high, role: "img",
    "aria-label": "Tables of " + bridge.name + "; the list below has the same values",
  });
  const labels = [];
  for (const { d, x, y, perSecond } of curves) {
    const stroke = (1 + Math.log10(1 + perSecond)).toFixed(1);
    drawing.append(svg("path", { class: "link", d, "stroke-width": stroke }));
    const label = svg("text", { class: "flow", x, y: y + 4 });
    label.textContent = short(perSecond) + "/s";
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
  return drawing;
}

// Fills a table of counters. Those that grow are first; the total orders them, because rates would
// make the rows change places every second.
function showCounts(body, pairs, before, nothing, growing) {
  const old = new Map(before || []);
  const rows = pairs.map(([name, count]) => [name.replaceAll("_", " "), rate(before ? old.get(name) || 0 : undefined, count), count]);
  rows.sort((one, other) => (other[1] > 0) - (one[1] > 0) || other[2] - one[2]);
  fill(body, rows.map(([name, perSecond, count]) => [name, [short(perSecond), perSecond > 0 ? growing : ""], short(count)]), nothing);
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
  showNics();
  showBonds();
  showMirrors();
  showBfd();
  showTables();
  showCounts(byId("drops"), losses(now), last && losses(last), "No packet was lost.", "bad");
  const causes = (one) => one && one.evictions && one.evictions.by_cause;
  const noEviction = causes(now) ? "No change has evicted an entry." : "The eviction thread does not reply.";
  showCounts(byId("evictions"), causes(now) || [], causes(last), noEviction, "");
  showThreads();
}

function headers() {
  return token ? { Authorization: "Bearer " + token } : {};
}

// Returns a signal that ends a request without an event for SILENCE_MAX, and a function to call at
// each event.
function silenceLimit() {
  const controller = new AbortController();
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(new Error("no event for " + SILENCE_MAX + " s")), 1000 * SILENCE_MAX);
  };
  heard();
  return { signal: controller.signal, heard, end: () => clearTimeout(timer) };
}

async function follow() {
  const limit = silenceLimit();
  try {
    return await readEvents(limit);
  } finally {
    limit.end();
  }
}

// Reads the events with `fetch`, because `EventSource` sends no token. Returns false if a token is missing.
async function readEvents(limit) {
  const response = await fetch("events", { headers: headers(), cache: "no-store", signal: limit.signal });
  if (response.status === 401) {
    byId("login").hidden = false;
    byId("main").hidden = true;
    setState(token ? "The token was refused" : "A token is required", "bad");
    byId("token").focus();
    return false;
  }
  if (!response.ok) throw new Error((await response.text()).trim());
  byId("login").hidden = true;
  byId("main").hidden = false;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    limit.heard();
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (!isPaused && event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
    }
  }
}

// Follows the events until a token is missing; a second call while it runs does nothing.
async function run() {
  if (isRunning) return;
  isRunning = true;
  let isAllowed = true;
  while (isAllowed) {
    try {
      isAllowed = await follow();
    } catch (error) {
      setState("No connection: " + error.message, "bad");
    }
    if (isAllowed) await new Promise((resolve) => { setTimeout(resolve, 1000); });
  }
  isRunning = false;
}

async function readFlows() {
  const button = byId("read-flows");
  button.disabled = true;
  try {
    const response = await fetch("flows", { headers: headers(), cache: "no-store" });
    if (!response.ok) throw new Error((await response.text()).trim());
    const list = await response.json();
    // The packets of an entry with a next tag continue with another entry, and are not dropped.
    const actions = (entry) => entry.actions.concat(entry.next ? "next(" + entry.next + ")" : []).join(",") || "drop";
    fill(byId("flows"), list.entries.map((entry) => [
      short(entry.packets), [entry.megaflow, "wrap"], [actions(entry), "wrap"],
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
for (const id of ["filter", "order"]) byId(id).addEventListener("input", () => { if (now) showPorts(); });
byId("read-flows").addEventListener("click", readFlows);
byId("trace").addEventListener("submit", trace);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  run();
});
run();
