"""Expressions that read the window in the browser.

`window.py` uses this module.
"""

# Bodies of tables, of which each row has the texts of its cells.
BODIES = ["levels", "ports", "nics", "bonds", "mirrors", "bfd", "tables", "drops", "evictions", "threads"]

# The texts of the page with the two events that they belong to.
SNAPSHOT = (
    """(() => {
  const rows = (id) => [...byId(id).rows].map((row) => [...row.cells].map((cell) => cell.textContent));
  const texts = (list) => [...list].map((own) => own.textContent);
  const caption = (id) => byId(id).closest("table").caption;
  return {
    last, now, history: history.map((rates) => [...rates]), state: byId("state").textContent,
    bodies: Object.fromEntries(%s.map((id) => [id, rows(id)])),
    hidden: ["nics", "bonds", "mirrors", "bfd"].filter((id) => byId(id).closest("section").hidden),
    captions: Object.fromEntries(["nics", "bonds", "mirrors", "bfd"].map((id) => [id, caption(id).textContent])),
    overview: texts(document.querySelectorAll("#overview dd")), bridges: texts(byId("bridges").children),
    graphs: [...document.querySelectorAll("#graphs svg")].map((own) => texts(own.querySelectorAll("text")).sort()),
    version: byId("version").textContent, portsCount: byId("ports-count").textContent,
    chartMax: byId("chart-max").textContent,
    chart: [...document.querySelectorAll("#chart path")].map((own) => own.getAttribute("d")),
  };
})()"""
    % BODIES
)

# Notes the rates that the page shows, for each event from here on.
RECORD = """(() => {
  window.recorded = [];
  if (window.isRecording) return;
  window.isRecording = true;
  const base = window.show;
  window.show = (frame) => {
    base(frame);
    const rows = (id) => [...byId(id).rows].slice(0, 12).map((row) => [...row.cells].map((cell) => cell.textContent));
    recorded.push({
      from: last && last.time_ms, to: now.time_ms,
      overview: [...document.querySelectorAll("#overview dd")].map((own) => own.textContent),
      ...Object.fromEntries(["levels", "ports", "tables", "drops", "mirrors", "nics"].map((id) => [id, rows(id)])),
    });
  };
})()"""

# Faults of the layout and of the colours.
READABLE = """(() => {
  const faults = [], root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    const isOut = (own) => own.getBoundingClientRect().right > innerWidth + 1 && !own.closest(".scroll");
    const wide = [...document.body.querySelectorAll("*")].filter(isOut);
    faults.push("the page is " + root.scrollWidth + " pixels wide: " + wide.map((own) => own.id || own.tagName).slice(0, 5));
  }
  const parts = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const light = ([red, green, blue]) => [red, green, blue].map((own) => own / 255)
    .map((own) => (own <= 0.04045 ? own / 12.92 : ((own + 0.055) / 1.055) ** 2.4))
    .reduce((all, own, at) => all + own * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (own) => {
    for (; own; own = own.parentElement) {
      const color = parts(getComputedStyle(own).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const contrast = (front, back) => {
    const [low, high] = [light(front), light(back)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const note = (own, text, style) => {
    const color = parts(own.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const back = own.namespaceURI.endsWith("svg") && own.tagName === "text" && !own.classList.contains("flow")
      ? parts(getComputedStyle(own.ownerSVGElement.querySelector("rect")).fill) : behind(own);
    const ratio = contrast(color, back);
    if (ratio < 4.5) faults.push("contrast " + ratio.toFixed(2) + ": " + text);
    if (parseFloat(style.fontSize) < 12) faults.push("font of " + style.fontSize + ": " + text);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const own = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    const kind = own.tagName + own.className.baseVal + own.className + own.id;
    if (!text || seen.has(kind) || !own.checkVisibility()) continue;
    seen.add(kind);
    note(own, text.slice(0, 40), getComputedStyle(own));
  }
  for (const own of document.querySelectorAll("input")) {
    if (own.placeholder && own.checkVisibility()) note(own, "placeholder of " + own.id, getComputedStyle(own, "::placeholder"));
  }
  for (const own of document.querySelectorAll("dd, dt, p, h1, h2, h3, li, button, label, select, summary, td.wrap, header")) {
    if (own.checkVisibility() && own.scrollWidth > own.clientWidth + 1 && own.clientWidth > 0) {
      faults.push("cut off: " + own.textContent.trim().slice(0, 40));
    }
  }
  return [...new Set(faults)];
})()"""

# The names of regions that the user has to scroll sideways.
SIDEWAYS = """[...document.querySelectorAll(".scroll")]
  .filter((own) => own.checkVisibility() && own.scrollWidth > own.clientWidth + 1).map((own) => own.getAttribute("aria-label"))"""

# Notes the elements that the user can reach by the Tab key, in their order.
STOPS = """(() => {
  window.stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter((own) => !own.disabled && own.checkVisibility());
  return stops.map((own) => own.id || own.getAttribute("aria-label") || own.textContent.slice(0, 40));
})()"""

# The element with the focus: its place in `stops`, and the faults that a user would notice.
FOCUS = """(() => {
  const own = document.activeElement, at = stops.indexOf(own);
  if (own === document.body || own === document.documentElement) return { at: -1, name: "nothing", faults: [] };
  const box = own.getBoundingClientRect(), style = getComputedStyle(own), faults = [];
  const below = document.querySelector("header").getBoundingClientRect().bottom;
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) faults.push("no outline");
  const isLow = box.height < innerHeight - below;
  if (!own.closest("header, .skip")) {
    if (isLow ? box.top < below : box.bottom < below + 20) faults.push("behind the header");
    if (isLow ? box.bottom > innerHeight + 1 : box.top > innerHeight - 20) faults.push("below the window");
  }
  return { at, name: own.id || own.getAttribute("aria-label") || own.tagName, tag: own.tagName, faults };
})()"""
