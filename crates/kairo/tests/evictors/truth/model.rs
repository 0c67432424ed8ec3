//! A model of the tables: lists of rules, groups, ports and addresses, and the path of a packet in
//! them.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, FlowModCommand, GroupCommand, Learning, MacObservation, Modification, PortInfo, Time,
    text::{parse_group_mod, parse_rule},
};

pub(super) const BRIDGE: BridgeId = BridgeId::new(1);
const TABLES: u8 = 3;
/// Number of groups, which are numbered from 1.
const GROUPS: u8 = 2;
/// The port on which packets arrive, which never changes.
const INGRESS: u8 = 1;
/// Number of ports, which are numbered from the ingress port on.
const PORTS: u8 = 4;
/// The number after the last port, as the output of a fast failover group.
const FAILOVER: u8 = PORTS + 1;
/// The ports of a fast failover group, in order.
const WATCHED: [u8; 2] = [2, 3];
/// Seconds after which a learned address expires that was not seen again.
pub(super) const AGEING: u64 = 60;

/// A packet as ten bits.
/// From the lowest bit on: four bits of destination address, two of source address, two of
/// destination port, one for a first fragment, one of MAC address.
pub(super) type Packet = u32;
/// All packets.
pub(super) const PACKETS: std::ops::Range<Packet> = 0..1024;
const DESTINATION: Packet = 0x0f;
const SOURCE: Packet = 0x30;
const PORT: Packet = 0xc0;
const FRAGMENT: Packet = 0x100;
const HOST: Packet = 0x200;
/// The lowest bit of the source address.
const SOURCE_UNIT: Packet = 0x10;
/// The lowest bit of the destination port.
const PORT_UNIT: Packet = 0x40;

/// The action of a rule on a packet.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Output(u8),
    Group(u8),
    Normal,
    Goto(u8),
    /// Writes bits of the destination, and continues.
    Write(Packet, Packet, u8),
    /// Copies the source over the lowest bits of the destination, and continues.
    Copy(u8),
    /// Copies the destination port to the lowest bits of the address, and continues.
    CopyPort(u8),
    /// Writes the destination port, and continues.
    WritePort(Packet, u8),
    /// Writes the bit of the MAC address, and continues.
    WriteHost(Packet, u8),
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    table: u8,
    priority: u8,
    value: Packet,
    mask: Packet,
    action: Action,
    /// The hard timeout of the rule in seconds; with 0 the rule never expires.
    hard_timeout: u64,
    /// The time when the rule was added or last modified.
    since: u64,
    /// A number that no other rule has; a modified rule gets a new number.
    name: u32,
}

/// The property of a port that a change toggles.
#[derive(Clone, Copy, Debug)]
pub(super) enum PortToggle {
    Presence,
    Link,
    Flood,
    /// The port drops the packets that are sent to it, or forwards them again.
    Forward,
}

/// A change of the model.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Add(Rule),
    /// Deletes a rule, by its index among the existing rules.
    Delete(prop::sample::Index),
    Modify(prop::sample::Index, Action),
    /// Makes a group send to another port, or makes it a fast failover group.
    Lead(u8, u8),
    /// Toggles a property of a port other than the ingress port.
    PortToggle(u8, PortToggle),
    /// Learns the port of a host: the sender of packets, or one of their destinations.
    See(u8, u8),
    /// Advances the time by this number of seconds.
    Wait(u64),
}

/// The request that makes a change in the pipeline.
pub(super) enum Request {
    Modify(Modification),
    Ports(Vec<PortInfo>),
    Learn(Learning),
    Expire,
}

/// The rules and objects that a packet uses, each with its last change.
/// The number of a change identifies the change. `None` means that the object never changed.
pub(super) type Path = Vec<(ReadObject, Option<u32>)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadObject {
    Table(u8),
    Group(u8),
    Port(u8),
    Ports,
    /// The set of ports that drop the packets sent to them.
    Filters,
    Host(u8),
}

#[derive(Clone, Debug)]
struct Port {
    info: PortInfo,
    is_present: bool,
    name: u32,
}

/// A host that was seen at least once.
struct Host {
    /// The port of the host, unless it is forgotten.
    port: Option<u8>,
    /// Time at which the host was seen last.
    seen: u64,
    name: u32,
}

impl ReadObject {
    /// Returns the name under which an eviction by this object is counted.
    pub(super) const fn of_eviction(self) -> &'static str {
        match self {
            Self::Table(_) => "by a table",
            Self::Group(_) => "by a group",
            Self::Port(_) => "by a port",
            Self::Ports => "by all ports",
            Self::Filters => "by filters",
            Self::Host(_) => "by a host",
        }
    }
}

/// The rules, groups, ports and hosts that are in force.
pub(super) struct Model {
    /// The rules of the model, oldest first.
    rules: Vec<Rule>,
    /// The output of each group, with the number of its last change.
    groups: BTreeMap<u8, (u8, u32)>,
    ports: BTreeMap<u8, Port>,
    /// The number of the last change of any port.
    ports_name: u32,
    filters: (bool, u32),
    /// The sender of packets, and the hosts that they are sent to.
    hosts: BTreeMap<u8, Host>,
    now: u64,
    names: u32,
    /// Number of rules and addresses that expired.
    pub(super) expired: usize,
    pub(super) aged: usize,
}

pub(super) fn action(can_write: bool) -> impl Strategy<Value = Action> {
    let next = 1..TABLES;
    let writes = u32::from(can_write);
    prop_oneof![
        3 => (1..=PORTS).prop_map(Action::Output),
        1 => (1..=GROUPS).prop_map(Action::Group),
        1 => Just(Action::Normal),
        4 => next.clone().prop_map(Action::Goto),
        2 * writes => (0..=DESTINATION, 1..=DESTINATION, next.clone())
            .prop_map(|(value, mask, next)| Action::Write(value & mask, mask, next)),
        writes => next.clone().prop_map(Action::Copy),
        writes => next.clone().prop_map(Action::CopyPort),
        writes => (0..4 * PORT_UNIT, next.clone())
            .prop_map(|(port, next)| Action::WritePort(port & PORT, next)),
        writes => (any::<bool>(), next)
            .prop_map(|(host, next)| Action::WriteHost(if host { HOST } else { 0 }, next)),
    ]
}

pub(super) fn rule(can_write: bool) -> impl Strategy<Value = Rule> {
    let mask = (PACKETS, PACKETS).prop_map(|(one, other)| one & other & !FRAGMENT);
    let timeout = prop_oneof![4 => Just(0_u64), 1 => 20..200_u64];
    let places = (0..TABLES, 1u8..8);
    (places, PACKETS, mask, action(can_write), timeout).prop_map(
        |((table, priority), value, mask, action, hard_timeout)| Rule {
            table,
            priority,
            value: value & mask,
            mask,
            action,
            hard_timeout,
            since: 0,
            name: 0,
        },
    )
}

/// Generates changes that a bundle can contain.
pub(super) fn modification(can_write: bool) -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => rule(can_write).prop_map(Op::Add),
        3 => any::<prop::sample::Index>().prop_map(Op::Delete),
        2 => (any::<prop::sample::Index>(), action(can_write))
            .prop_map(|(index, action)| Op::Modify(index, action)),
        1 => (1..=GROUPS, 1..=FAILOVER).prop_map(|(group, to)| Op::Lead(group, to)),
    ]
}

pub(super) fn op(can_write: bool) -> impl Strategy<Value = Op> {
    use PortToggle::{Flood, Forward, Link, Presence};
    let turns = vec![Presence, Link, Link, Link, Flood, Flood, Forward];
    prop_oneof![
        20 => modification(can_write),
        2 => (INGRESS + 1..=PORTS, prop::sample::select(turns))
            .prop_map(|(port, toggle)| Op::PortToggle(port, toggle)),
        1 => Just(Op::See(SENDER, INGRESS)),
        3 => (0..=SENDER, 1..=PORTS).prop_map(|(host, port)| Op::See(host, port)),
        1 => (5..100_u64).prop_map(Op::Wait),
    ]
}

/// The number of the host that sends the packets.
/// Destination hosts have the numbers of the destination bits.
const SENDER: u8 = 2;

const fn address(host: u8) -> [u8; 6] {
    if host == SENDER { [2, 0, 0, 0, 0, 9] } else { [2, 0, 0, 0, 1, host] }
}

fn host(packet: Packet) -> u8 {
    u8::from(packet & HOST != 0)
}

fn number(address: [u8; 6]) -> u128 {
    address.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Returns the MAC address of a host as text.
fn hardware(host: u8) -> String {
    address(host).map(|byte| format!("{byte:02x}")).join(":")
}

impl Rule {
    /// Returns the rule in the syntax of `ovs-ofctl`.
    fn text(&self, has_actions: bool) -> String {
        let Self { table, priority, value, mask, .. } = self;
        let bits = |bits: Packet, of: Packet| (bits & of) >> of.trailing_zeros();
        let side = |name, of| match bits(*mask, of) {
            0 => String::new(),
            mask => format!(",{name}=0.0.0.{}/0.0.0.{mask}", bits(*value, of)),
        };
        let (destination, source) = (side("nw_dst", DESTINATION), side("nw_src", SOURCE));
        let port = match bits(*mask, PORT) {
            0 => String::new(),
            mask => format!(",tp_dst={}/{mask:#x}", bits(*value, PORT)),
        };
        let target = match mask & HOST {
            0 => String::new(),
            _ => format!(",dl_dst={}", hardware(host(*value))),
        };
        let matching =
            format!("table={table},priority={priority},tcp{destination}{source}{port}{target}");
        let actions = match self.action {
            Action::Output(port) => format!("output:{port}"),
            Action::Group(group) => format!("group:{group}"),
            Action::Normal => "NORMAL".to_owned(),
            Action::Goto(next) => goto(*table, next),
            Action::Write(value, mask, next) => {
                let set = format!("set_field:0.0.0.{value}/0.0.0.{mask}->ip_dst");
                format!("{set},{}", goto(*table, next))
            }
            Action::Copy(next) => {
                let copy = "move:NXM_OF_IP_SRC[0..1]->NXM_OF_IP_DST[0..1]";
                format!("{copy},{}", goto(*table, next))
            }
            Action::CopyPort(next) => {
                let copy = "move:NXM_OF_TCP_DST[0..1]->NXM_OF_IP_DST[0..1]";
                format!("{copy},{}", goto(*table, next))
            }
            Action::WritePort(port, next) => {
                let set = format!("set_field:{}->tcp_dst", bits(port, PORT));
                format!("{set},{}", goto(*table, next))
            }
            Action::WriteHost(target, next) => {
                let set = format!("set_field:{}->eth_dst", hardware(host(target)));
                format!("{set},{}", goto(*table, next))
            }
        };
        let timeout = match self.hard_timeout {
            0 => String::new(),
            seconds => format!(",hard_timeout={seconds}"),
        };
        if has_actions { format!("{matching}{timeout},actions={actions}") } else { matching }
    }

    /// Returns whether the action changes packets.
    /// If the action changes packets, the effect of a change on an entry is not known exactly.
    const fn writes(&self) -> bool {
        !matches!(
            self.action,
            Action::Output(_) | Action::Group(_) | Action::Normal | Action::Goto(_)
        )
    }

    const fn is_over(&self, now: u64) -> bool {
        self.hard_timeout > 0 && self.since + self.hard_timeout <= now
    }
}

/// Returns the text of an action that leads to a later table, or sends the packet.
fn goto(table: u8, next: u8) -> String {
    if next > table { format!("goto_table:{next}") } else { format!("output:{INGRESS}") }
}

impl Model {
    /// Returns a model without rules, and the requests that create it.
    /// The groups of the model send to the ingress port, and no address is learned.
    pub(super) fn new() -> (Self, Vec<Request>) {
        let port = |number: u8| {
            let info = PortInfo::datapath(number.into());
            (number, Port { info, is_present: true, name: 0 })
        };
        let mut model = Self {
            rules: Vec::new(),
            groups: BTreeMap::new(),
            ports: (INGRESS..=PORTS).map(port).collect(),
            ports_name: 0,
            filters: (false, 0),
            hosts: BTreeMap::new(),
            now: 0,
            names: 0,
            expired: 0,
            aged: 0,
        };
        let ops = (1..=GROUPS).map(|group| Op::Lead(group, INGRESS));
        let ops = ops.chain([Op::See(SENDER, INGRESS)]);
        let mut requests = vec![Request::Ports(model.infos())];
        requests.extend(ops.filter_map(|op| model.change(&op)));
        (model, requests)
    }

    pub(super) fn now(&self) -> Time {
        Time::ZERO.after(Duration::from_secs(self.now))
    }

    /// Returns whether a rule of the model changes packets.
    pub(super) fn writes(&self) -> bool {
        self.rules.iter().any(Rule::writes)
    }

    /// Returns the path of a packet from the ingress port.
    pub(super) fn path(&self, mut packet: Packet) -> Path {
        let mut path = vec![(ReadObject::Filters, Some(self.filters.1))];
        let mut table = 0;
        loop {
            let seen = if packet & FRAGMENT == 0 { packet } else { packet & !PORT };
            let own = self
                .rules
                .iter()
                .filter(|rule| rule.table == table && seen & rule.mask == rule.value);
            // Of the rules with the highest priority, the first one in the list is the oldest.
            let best =
                own.reduce(|best, rule| if rule.priority > best.priority { rule } else { best });
            path.push((ReadObject::Table(table), best.map(|rule| rule.name)));
            let Some(best) = best else { return path };
            let next = match best.action {
                Action::Output(port) => {
                    self.output(port, &mut path);
                    return path;
                }
                Action::Group(group) => {
                    self.lead_through(group, &mut path);
                    return path;
                }
                Action::Normal => {
                    self.switch(packet, &mut path);
                    return path;
                }
                Action::Goto(next) => next,
                Action::Write(value, mask, next) => {
                    packet = packet & !mask | value;
                    next
                }
                Action::Copy(next) => {
                    packet = packet & !3 | ((packet & SOURCE) / SOURCE_UNIT);
                    next
                }
                Action::CopyPort(next) => {
                    packet = packet & !3 | ((packet & PORT) / PORT_UNIT);
                    next
                }
                Action::WritePort(port, next) => {
                    packet = packet & !PORT | port;
                    next
                }
                Action::WriteHost(target, next) => {
                    packet = packet & !HOST | target;
                    next
                }
            };
            if next <= table {
                self.output(INGRESS, &mut path);
                return path;
            }
            table = next;
        }
    }

    fn output(&self, port: u8, path: &mut Path) {
        path.push((ReadObject::Port(port), self.ports.get(&port).map(|own| own.name)));
    }

    fn lead_through(&self, group: u8, path: &mut Path) {
        let known = self.groups.get(&group);
        path.push((ReadObject::Group(group), known.map(|(_, name)| *name)));
        match known {
            Some((FAILOVER, _)) => {
                for port in WATCHED {
                    self.output(port, path);
                    let own = &self.ports[&port];
                    if own.is_present && own.info.link_up {
                        return;
                    }
                }
            }
            Some((port, _)) => self.output(*port, path),
            None => {}
        }
    }

    /// Forwards a packet as `NORMAL` does.
    fn switch(&self, packet: Packet, path: &mut Path) {
        let seen = |host| self.hosts.get(&host);
        path.push((ReadObject::Host(SENDER), seen(SENDER).map(|own| own.name)));
        let target = host(packet);
        path.push((ReadObject::Host(target), seen(target).map(|own| own.name)));
        match seen(target).and_then(|own| own.port) {
            Some(INGRESS) => {}
            Some(port) => self.output(port, path),
            None => path.push((ReadObject::Ports, Some(self.ports_name))),
        }
    }

    /// Changes the model, and returns the request; `None` if the model does not change.
    pub(super) fn change(&mut self, op: &Op) -> Option<Request> {
        self.names += 1;
        match op {
            Op::Lead(group, to) => self.lead(*group, *to).map(Request::Modify),
            Op::PortToggle(port, toggle) => self.toggle(*port, *toggle),
            Op::See(host, port) => self.see(*host, *port),
            Op::Wait(seconds) => {
                self.now += seconds;
                let (now, before) = (self.now, self.rules.len());
                self.rules.retain(|rule| !rule.is_over(now));
                self.expired += before - self.rules.len();
                self.aged += self.forget(|host| host.seen + AGEING <= now);
                Some(Request::Expire)
            }
            Op::Add(_) | Op::Delete(_) | Op::Modify(..) => {
                let (command, text) = self.change_rule(op)?;
                Some(Request::Modify(parse_rule(command, &text, &NoPortNames).unwrap().into()))
            }
        }
    }

    fn lead(&mut self, group: u8, to: u8) -> Option<Modification> {
        let before = self.groups.get(&group).map(|(to, _)| *to);
        if before == Some(to) {
            return None;
        }
        self.groups.insert(group, (to, self.names));
        let command = if before.is_some() { GroupCommand::Modify } else { GroupCommand::Add };
        let buckets = if to == FAILOVER {
            let bucket = |port| format!("bucket=watch_port:{port},actions=output:{port}");
            format!("type=ff,{}", WATCHED.map(bucket).join(","))
        } else {
            format!("type=indirect,bucket=output:{to}")
        };
        let text = format!("group_id={group},{buckets}");
        Some(parse_group_mod(command, &text, &NoPortNames).unwrap().into())
    }

    fn toggle(&mut self, number: u8, toggle: PortToggle) -> Option<Request> {
        let port = self.ports.get_mut(&number)?;
        if !port.is_present && !matches!(toggle, PortToggle::Presence) {
            return None;
        }
        port.name = self.names;
        match toggle {
            PortToggle::Presence => {
                port.is_present = !port.is_present;
            }
            PortToggle::Link => port.info.link_up = !port.info.link_up,
            PortToggle::Flood => port.info.config.no_flood = !port.info.config.no_flood,
            PortToggle::Forward => port.info.config.no_fwd = !port.info.config.no_fwd,
        }
        if matches!(toggle, PortToggle::Presence) {
            self.forget(|host| host.port == Some(number));
        }
        self.ports_name = self.names;
        let infos = self.infos();
        let filters = infos.iter().any(|info| info.config.no_fwd);
        if filters != self.filters.0 {
            self.filters = (filters, self.names);
        }
        Some(Request::Ports(infos))
    }

    fn infos(&self) -> Vec<PortInfo> {
        let present = self.ports.values().filter(|port| port.is_present);
        present.map(|port| port.info.clone()).collect()
    }

    fn see(&mut self, host: u8, port: u8) -> Option<Request> {
        if !self.ports[&port].is_present {
            return None;
        }
        let before = self.hosts.get(&host).filter(|own| own.port == Some(port));
        let name = before.map_or(self.names, |own| own.name);
        self.hosts.insert(host, Host { port: Some(port), seen: self.now, name });
        let port = PortNo::new(port.into());
        let observation = MacObservation {
            bridge: BRIDGE,
            vlan: 0,
            mac: address(host),
            port,
            is_announcement: false,
            precedes_packet: false,
        };
        Some(Request::Learn(Learning::Mac(observation)))
    }

    /// Forgets the learned addresses of hosts, and returns the number of these hosts.
    fn forget(&mut self, is_over: impl Fn(&Host) -> bool) -> usize {
        let over = self.hosts.values_mut().filter(|host| host.port.is_some() && is_over(host));
        over.map(|host| (host.port, host.name) = (None, self.names)).count()
    }

    fn change_rule(&mut self, op: &Op) -> Option<(FlowModCommand, String)> {
        match op {
            Op::Add(rule) => {
                let identity = |rule: &Rule| (rule.table, rule.priority, rule.value, rule.mask);
                if self.rules.iter().any(|own| identity(own) == identity(rule)) {
                    return None;
                }
                self.rules.push(Rule { name: self.names, since: self.now, ..rule.clone() });
                Some((FlowModCommand::Add, rule.text(true)))
            }
            Op::Delete(index) if !self.rules.is_empty() => {
                let rule = self.rules.remove(index.index(self.rules.len()));
                Some((FlowModCommand::DeleteStrict, rule.text(false)))
            }
            Op::Modify(index, action) if !self.rules.is_empty() => {
                let index = index.index(self.rules.len());
                let rule = &mut self.rules[index];
                let before = rule.text(true);
                rule.action = action.clone();
                if rule.text(true) == before {
                    return None;
                }
                (rule.name, rule.since) = (self.names, self.now);
                Some((FlowModCommand::ModifyStrict, rule.text(true)))
            }
            _ => None,
        }
    }
}

/// Returns the flow key of a packet.
pub(super) fn key(packet: Packet) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(INGRESS.into()));
    key.set_field(FieldId::EthSrc, number(address(SENDER)));
    key.set_field(FieldId::EthDst, number(address(host(packet))));
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::Ipv4Dst, (packet & DESTINATION).into());
    key.set_field(FieldId::Ipv4Src, ((packet & SOURCE) / SOURCE_UNIT).into());
    key.set_field(FieldId::IpProto, 6);
    key.set_field(FieldId::TcpDst, ((packet & PORT) / PORT_UNIT).into());
    key.set_field(FieldId::NwFrag, ((packet & FRAGMENT) / FRAGMENT).into());
    key
}
