// The sections of the window for objects that a switch may lack: bonds, mirrors, BFD sessions and NICs.
// The functions use those of window.js, which calls them for each event.
"use strict";

const OBJECTS_SHOWN = 200;

// Shows the section of a table, or hides it if there are no rows. The caption has the number of objects.
function showSection(body, caption, rows) {
  const section = body.closest("section");
  section.hidden = rows.length === 0;
  if (section.hidden) return;
  const title = body.closest("table").caption;
  const text = caption + (rows.length > OBJECTS_SHOWN ? "; the first " + OBJECTS_SHOWN + " rows are shown" : "");
  if (title.textContent !== text) title.textContent = text;
  fill(body, rows.slice(0, OBJECTS_SHOWN), "");
}

// Returns the objects of a kind, by bridge and name, in an event that may be absent.
function byName(frame, kind) {
  const bridges = frame ? frame.bridges : [];
  return new Map(bridges.flatMap((bridge) => bridge[kind].map((own) => [bridge.name + " " + own.name, own])));
}

function memberState(member) {
  const [state, next] = member.enabled ? [member.active ? "active" : "enabled", "disabled"] : ["disabled", "enabled"];
  const due = member.delay_ms === null ? "" : "\n" + next + " in " + short(member.delay_ms) + " ms";
  return [state + due, member.enabled ? "text good" : "text bad"];
}

// Returns the states of the LACP machines of a member, and its partner.
function memberLacp(bond, member) {
  if (!bond.lacp_status) return "off";
  if (!member.lacp) return "–";
  const { receive, mux, unselected, partner } = member.lacp;
  return receive + ", " + mux + (unselected ? "\n" + unselected : "") + (partner ? "\npartner " + partner : "");
}

function showBonds() {
  const bonds = now.bridges.flatMap((bridge) => bridge.bonds.map((bond) => ({ ...bond, bridge: bridge.name })));
  const rows = bonds.flatMap((bond) => bond.member_status.map((member) => [
    bond.name + "\n" + bond.bridge + " " + bond.mode + (bond.lacp_status ? "\nLACP " + bond.lacp_status : ""),
    [member.name, "text"], memberState(member), [memberLacp(bond, member), "text"],
  ]));
  showSection(byId("bonds"), counted(bonds.length, "bond") + ", " + counted(rows.length, "member"), rows);
}

// Returns the selection of a mirror, in the words of `shuntctl show`.
function mirrorSource(mirror) {
  const keys = ["select_src_port", "select_dst_port", "select_vlan"].filter((key) => mirror[key].length > 0);
  const lists = keys.map((key) => key + "=" + mirror[key].join(", "));
  return (mirror.select_all ? ["select_all"] : []).concat(lists).join("\n") || "–";
}

function showMirrors() {
  const before = byName(last, "mirrors");
  const rows = now.bridges.flatMap((bridge) => bridge.mirrors.map((mirror) => {
    const old = before.get(bridge.name + " " + mirror.name) || {};
    const output = mirror.output_vlan > 0 ? "VLAN " + mirror.output_vlan : mirror.output_port;
    return [
      mirror.name + "\n" + bridge.name, [mirrorSource(mirror), "text"],
      [output + (mirror.snaplen > 0 ? "\nfirst " + mirror.snaplen + " bytes" : ""), "text"],
      [mirror.problem || "copies", mirror.problem ? "text bad" : "text good"],
      short(rate(old.tx_packets, mirror.tx_packets)) + "\n" + short(mirror.tx_packets),
    ];
  }));
  showSection(byId("mirrors"), counted(rows.length, "mirror"), rows);
}

// Returns the state of one end of a BFD session, with its diagnostic if it is not up.
function bfdState(state, diagnostic) {
  return state === "up" || diagnostic === "No Diagnostic" ? state : state + "\n" + diagnostic;
}

function showBfd() {
  const isUp = (port) => port.bfd.state === "up";
  const ports = portsOf(now).filter((port) => port.bfd);
  // Sessions that are not up are first.
  ports.sort((one, other) => isUp(one) - isUp(other));
  const rows = ports.map((port) => {
    const own = port.bfd;
    return [
      port.name + "\n" + port.bridge,
      [bfdState(own.state, own.diagnostic), isUp(port) ? "text good" : "text bad"],
      [bfdState(own.remote_state, own.remote_diagnostic), "text"],
      [own.forwarding ? "yes" : "no", own.forwarding ? "good" : "bad"], short(own.flap_count),
    ];
  });
  const down = ports.filter((port) => !isUp(port)).length;
  showSection(byId("bfd"), counted(rows.length, "session") + (down > 0 ? ", " + down + " not up" : ", all up"), rows);
}

function showNics() {
  const before = new Map((last ? last.bridges : []).map((bridge) => [bridge.name, bridge.nic]));
  const rows = now.bridges.filter((bridge) => bridge.nic).map(({ name, nic }) => {
    const old = before.get(name) || {};
    // An external NIC counts the hits of its entries only.
    const hits = (own) => (own.traffic ? own.traffic.hits : own.entry_hits);
    const stale = nic.stale_s === null ? "" : " for " + nic.stale_s.toFixed(0) + " s\n" + (nic.reason || "");
    const missed = nic.traffic ? short(rate(old.traffic ? old.traffic.missed : undefined, nic.traffic.missed)) : "–";
    const isGood = nic.state === "connected" && !nic.error;
    const waiting = nic.waiting > 0 ? "\n" + short(nic.waiting) + " to insert" : "";
    return [
      nic.kind + "\n" + name + " " + nic.address,
      [nic.state + stale + (nic.error ? "\n" + nic.error : ""), isGood ? "text good" : "text bad"],
      short(sum(nic.stages.map((stage) => stage.entries))) + " of " +
        short(sum(nic.stages.map((stage) => stage.entries_max))) + waiting,
      short(rate(hits(old), hits(nic))) + "\n" + missed + "\n" + short(hits(nic)),
      [short(nic.operations.failed), nic.operations.failed > 0 ? "bad" : ""],
    ];
  });
  showSection(byId("nics"), counted(rows.length, "NIC"), rows);
}
