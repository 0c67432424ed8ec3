//! The oracle of translation: one concrete packet, linear scans, recursion.

use std::sync::Arc;

use shunt_flow::{
    FieldId, FlowKey, PortNo,
    field::Prerequisite,
    layout::{FLOW_WORDS, word},
};

use super::World;
use crate::{
    Action, BridgeId, Cookie, DatapathPort, PacketInReason, PortInfo, PortKind, Punt, Rule,
    Subfield, TableId, TraversalError,
};

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// What leaves, in order; nothing if there was an error.
    pub outcomes: Vec<Outcome>,
    /// Why the switch itself dropped the packet.
    pub error: Option<TraversalError>,
    /// The lookups, in order.
    pub visited: Vec<Visited>,
}

/// One lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visited {
    /// Where.
    pub place: (BridgeId, TableId),
    /// The rule that won.
    pub rule: Option<crate::RuleId>,
}

/// A copy of the packet that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To a port, cut to a length, with these header words.
    Sent(DatapathPort, Option<u32>, Vec<u64>),
    /// To controllers, with these header words.
    Punted(Punted, Vec<u64>),
}

/// What a packet-in says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Punted {
    place: (BridgeId, TableId),
    reason: PacketInReason,
    cookie: Cookie,
    controller_id: u16,
    max_len: u16,
    userdata: Vec<u8>,
    state: Vec<u128>,
}

impl Outcome {
    pub(super) fn sent(port: DatapathPort, max_len: Option<u32>, key: &FlowKey) -> Self {
        Self::Sent(port, max_len, Self::headers(key))
    }

    pub(super) fn headers(key: &FlowKey) -> Vec<u64> {
        key.words()[usize::from(word::ETH_DST)..FLOW_WORDS].to_vec()
    }
}

impl Punted {
    pub(super) fn of(punt: &Punt) -> Self {
        Self {
            place: (punt.bridge, punt.table),
            reason: punt.reason,
            cookie: punt.cookie,
            controller_id: punt.controller_id,
            max_len: punt.max_len,
            userdata: punt.userdata.to_vec(),
            state: state(&punt.metadata.key()),
        }
    }
}

impl World {
    /// What becomes of a packet that came in.
    #[must_use]
    pub fn translate(&self, key: &FlowKey) -> Fate {
        let mut walker = Walker::new(self, key);
        let Some(bridge) = walker.bridge else { return walker.fate(Err(no_bridge())) };
        let port = self.port(bridge, key.in_port());
        if port.is_some_and(|port| port.config.no_recv || port.config.port_down) {
            return walker.fate(Ok(()));
        }
        let result = walker.walk();
        walker.fate(result)
    }

    /// What becomes of a packet that a packet-out brought.
    #[must_use]
    pub fn packet_out(&self, key: &FlowKey, actions: &[Action]) -> Fate {
        let mut walker = Walker::new(self, key);
        if walker.bridge.is_none() {
            return walker.fate(Err(no_bridge()));
        }
        walker.takes_table = true;
        let result = walker.list(actions).and_then(|_| walker.run_set());
        walker.fate(result)
    }
}

const fn no_bridge() -> TraversalError {
    TraversalError::NoSuchPort
}

/// The hidden state that a packet-in shows.
fn state(key: &FlowKey) -> Vec<u128> {
    let fields = [
        FieldId::InPort,
        FieldId::Metadata,
        FieldId::TunId,
        FieldId::Xxreg0,
        FieldId::Xxreg1,
        FieldId::Xxreg2,
        FieldId::Xxreg3,
        FieldId::PktMark,
    ];
    fields.iter().map(|field| key.field(*field)).collect()
}

#[derive(Clone)]
struct Packet {
    /// All fields; those of tags are zero.
    key: FlowKey,
    /// Type and control information of each tag, the outermost first.
    tags: Vec<(u16, u16)>,
}

impl Packet {
    fn new(key: &FlowKey) -> Self {
        let mut key = key.clone();
        let vlan = std::mem::take(&mut key.words_mut()[usize::from(word::VLAN)]);
        let both = [(vlan >> 48, vlan >> 32), (vlan >> 16, vlan)];
        let tags = both.map(|(tpid, tci)| (low(tpid), low(tci)));
        Self { key, tags: tags.into_iter().take_while(|(_, tci)| tci & 0x1000 != 0).collect() }
    }

    fn key(&self) -> FlowKey {
        let mut key = self.key.clone();
        let tag = |index: usize| match self.tags.get(index) {
            Some((tpid, tci)) => u64::from(*tpid) << 16 | u64::from(*tci),
            None => 0,
        };
        key.words_mut()[usize::from(word::VLAN)] = tag(0) << 32 | tag(1);
        key
    }

    fn has(&self, field: FieldId) -> bool {
        let key = self.key();
        let eth = key.field(FieldId::EthType);
        let proto = key.field(FieldId::IpProto);
        let later = key.field(FieldId::NwFrag) & 2 != 0;
        let (v4, v6) = (eth == 0x0800, eth == 0x86dd);
        match field.info().prerequisite {
            Prerequisite::Any | Prerequisite::Ethernet => true,
            Prerequisite::VlanVid => !self.tags.is_empty(),
            Prerequisite::Ipv4 => v4,
            Prerequisite::Ipv6 => v6,
            Prerequisite::Ip => v4 || v6,
            Prerequisite::Arp => eth == 0x0806 || eth == 0x8035,
            Prerequisite::Tcp => (v4 || v6) && proto == 6 && !later,
            Prerequisite::Udp => (v4 || v6) && proto == 17 && !later,
            other => unreachable!("the generators make no field that needs {other:?}"),
        }
    }

    fn set(&mut self, field: FieldId, value: u128, mask: u128) {
        let shift = match field {
            FieldId::DlVlanPcp | FieldId::VlanPcp => 13,
            _ => 0,
        };
        let (tci, bits) = (low(value << shift), low(mask << shift));
        match field {
            FieldId::VlanVid | FieldId::VlanPcp if self.tags.is_empty() => return,
            FieldId::VlanTci if self.tags.is_empty() && tci & bits & 0x1000 == 0 => return,
            FieldId::VlanTci | FieldId::DlVlan | FieldId::DlVlanPcp if self.tags.is_empty() => {
                self.tags.push((0x8100, 0x1000));
            }
            FieldId::VlanTci
            | FieldId::VlanVid
            | FieldId::VlanPcp
            | FieldId::DlVlan
            | FieldId::DlVlanPcp => {}
            _ => return self.key.set_field_masked(field, value, mask),
        }
        self.tags[0].1 = self.tags[0].1 & !bits | tci & bits;
        if self.tags[0].1 & 0x1000 == 0 {
            self.tags.remove(0);
        }
    }
}

fn low(value: impl Into<u128>) -> u16 {
    u16::try_from(value.into() & 0xffff).unwrap_or_default()
}

struct Walker<'w> {
    world: &'w World,
    packet: Packet,
    bridge: Option<BridgeId>,
    table: TableId,
    rule: Option<Arc<Rule>>,
    set: Vec<Action>,
    outcomes: Vec<Outcome>,
    visited: Vec<Visited>,
    depth: u16,
    resubmits: u16,
    has_exited: bool,
    takes_table: bool,
}

impl<'w> Walker<'w> {
    fn new(world: &'w World, key: &FlowKey) -> Self {
        let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
        Self {
            world,
            packet: Packet::new(key),
            bridge: bridge.filter(|id| world.bridges.contains_key(id)),
            table: TableId::FIRST,
            rule: None,
            set: Vec::new(),
            outcomes: Vec::new(),
            visited: Vec::new(),
            depth: 0,
            resubmits: 0,
            has_exited: false,
            takes_table: false,
        }
    }

    fn fate(self, result: Result<(), TraversalError>) -> Fate {
        let error = result.err();
        let outcomes = if error.is_some() { Vec::new() } else { self.outcomes };
        Fate { outcomes, error, visited: self.visited }
    }

    fn id(&self) -> BridgeId {
        self.bridge.unwrap_or_default()
    }

    fn port(&self, number: PortNo) -> Option<&'w PortInfo> {
        self.world.port(self.id(), number)
    }

    fn walk(&mut self) -> Result<(), TraversalError> {
        let first = self.visited.len();
        self.look_up(TableId::FIRST, None)?;
        self.table = TableId::FIRST;
        let rules = &self.world.bridges[&self.id()].rules;
        self.rule = rules.iter().find(|rule| Some(rule.id) == self.visited[first].rule).cloned();
        self.run_set()
    }

    fn look_up(&mut self, table: TableId, port: Option<PortNo>) -> Result<(), TraversalError> {
        let mut key = self.packet.key();
        if let Some(port) = port {
            key.set_in_port(port);
        }
        if key.field(FieldId::NwFrag) & 1 != 0 {
            key.set_field(FieldId::TcpSrc, 0);
            key.set_field(FieldId::TcpDst, 0);
        }
        let rule = self.world.look_up(self.id(), table, &key).cloned();
        let id = rule.as_ref().map(|rule| rule.id);
        self.visited.push(Visited { place: (self.id(), table), rule: id });
        let outer = (self.table, self.rule.clone());
        (self.table, self.rule) = (table, rule.clone());
        let takes_table = std::mem::take(&mut self.takes_table);
        if let Some(rule) = rule {
            self.run_rule(&rule)?;
        }
        self.takes_table = takes_table;
        (self.table, self.rule) = outer;
        Ok(())
    }

    fn run_rule(&mut self, rule: &Rule) -> Result<(), TraversalError> {
        let instructions = &rule.instructions;
        if !self.list(&instructions.apply)? || self.has_exited {
            return Ok(());
        }
        if instructions.clear {
            self.set.clear();
        }
        self.set.extend(instructions.write.iter().cloned());
        if let Some((value, mask)) = instructions.metadata {
            self.packet.set(FieldId::Metadata, value.into(), mask.into());
        }
        match instructions.goto {
            Some(table) => {
                self.bound()?;
                self.look_up(table, None)
            }
            None => Ok(()),
        }
    }

    fn bound(&mut self) -> Result<(), TraversalError> {
        if self.depth >= 64 {
            return Err(TraversalError::TooDeep(64));
        }
        if self.resubmits >= 4096 {
            return Err(TraversalError::TooManyResubmits(4096));
        }
        self.resubmits += 1;
        Ok(())
    }

    fn run_set(&mut self) -> Result<(), TraversalError> {
        let set = std::mem::take(&mut self.set);
        let last = |is: fn(&Action) -> bool| set.iter().rev().find(|action| is(action)).cloned();
        let mut list = Vec::new();
        list.extend(last(|action| matches!(action, Action::PopVlan)));
        list.extend(last(|action| matches!(action, Action::PushVlan { .. })));
        list.extend(last(|action| matches!(action, Action::DecTtl { .. })));
        let writes = set.iter().filter(|action| {
            matches!(action, Action::SetField { .. } | Action::Load { .. } | Action::Move { .. })
        });
        list.extend(writes.cloned());
        list.extend(last(|action| matches!(action, Action::SetQueue(_))));
        let output = last(|action| {
            matches!(
                action,
                Action::Output { .. }
                    | Action::OutputField { .. }
                    | Action::OutputTruncated { .. }
                    | Action::Controller(_)
            )
        });
        list.extend(output.or_else(|| last(|action| matches!(action, Action::Resubmit { .. }))));
        self.list(&list).map(|_| ())
    }

    /// Runs a list; false if its rest is left because a TTL was used up.
    fn list(&mut self, actions: &[Action]) -> Result<bool, TraversalError> {
        for action in actions {
            if self.has_exited {
                return Ok(true);
            }
            match action {
                Action::Output { port, max_len } => self.output(*port, *max_len)?,
                Action::OutputField { source, max_len } => {
                    let value = self.read(*source);
                    if let Ok(port) = u32::try_from(value) {
                        self.output(PortNo::widened(port), *max_len)?;
                    }
                }
                Action::OutputTruncated { port, max_len } => match *port {
                    PortNo::IN_PORT => {
                        self.send(self.packet.key.in_port(), Some(*max_len))?;
                    }
                    port if port != self.packet.key.in_port() => {
                        self.send(port, Some(*max_len))?;
                    }
                    _ => {}
                },
                Action::Controller(asked) => {
                    self.punt(asked.reason, asked.controller_id, asked.max_len, &asked.userdata);
                }
                Action::SetField { field, value, mask } => self.set(*field, *value, *mask),
                Action::Load { target, value } => {
                    self.set(target.field, u128::from(*value) << target.offset, target.bits());
                }
                Action::Move { source, target } => {
                    if self.packet.has(source.field) {
                        let value = self.read(*source) << target.offset;
                        self.set(target.field, value, target.bits());
                    }
                }
                Action::PushVlan { ethertype } => {
                    self.packet.tags.insert(0, (*ethertype, 0x1000));
                    self.packet.tags.truncate(2);
                }
                Action::PopVlan => {
                    if !self.packet.tags.is_empty() {
                        self.packet.tags.remove(0);
                    }
                }
                Action::DecTtl { controllers } => {
                    if !self.dec_ttl(controllers) {
                        return Ok(false);
                    }
                }
                Action::Resubmit { port, table } => self.resubmit(*port, *table)?,
                Action::Clone(inner) => {
                    let (packet, set) = (self.packet.clone(), self.set.clone());
                    self.list(inner)?;
                    if !self.has_exited {
                        self.run_set()?;
                    }
                    (self.packet, self.set) = (packet, set);
                }
                Action::SetQueue(_) | Action::PopQueue | Action::Note(_) => {}
                Action::Exit => self.has_exited = true,
            }
        }
        Ok(true)
    }

    /// Counts the TTL down; false if it is used up.
    fn dec_ttl(&mut self, controllers: &[u16]) -> bool {
        if !self.packet.has(FieldId::NwTtl) {
            return true;
        }
        let ttl = self.packet.key.field(FieldId::NwTtl);
        if ttl >= 2 {
            self.packet.key.set_field(FieldId::NwTtl, ttl - 1);
            return true;
        }
        for id in controllers {
            self.punt(PacketInReason::InvalidTtl, *id, 0xffff, &[]);
        }
        false
    }

    fn resubmit(
        &mut self,
        port: Option<PortNo>,
        table: Option<TableId>,
    ) -> Result<(), TraversalError> {
        let table = table.unwrap_or(self.table);
        let deepens = u16::from(table <= self.table);
        self.bound()?;
        self.depth += deepens;
        self.look_up(table, port.filter(|port| *port != PortNo::IN_PORT))?;
        self.depth -= deepens;
        Ok(())
    }

    fn read(&self, source: Subfield) -> u128 {
        let value = self.packet.key().field(source.field) >> source.offset;
        value & (u128::MAX >> (128 - source.width))
    }

    fn set(&mut self, field: FieldId, value: u128, mask: u128) {
        if !self.packet.has(field) {
            return;
        }
        if field == FieldId::InPort && mask == 0xffff {
            let value = PortNo::widened(low(value).into()).number();
            self.packet.set(field, value.into(), 0xffff_ffff);
        } else {
            self.packet.set(field, value, mask);
        }
    }

    fn output(&mut self, port: PortNo, max_len: u16) -> Result<(), TraversalError> {
        let ingress = self.packet.key.in_port();
        match port {
            PortNo::TABLE if self.takes_table => self.resubmit(None, Some(TableId::FIRST))?,
            PortNo::FLOOD | PortNo::ALL => {
                let mut ports = self.world.bridges[&self.id()].ports.clone();
                ports.sort_by_key(|info| info.number);
                for info in ports {
                    let skips = port == PortNo::FLOOD && info.config.no_flood;
                    if !skips && info.number != ingress && !self.has_exited {
                        self.send(info.number, None)?;
                    }
                }
            }
            PortNo::CONTROLLER => self.punt(PacketInReason::Action, 0, max_len, &[]),
            PortNo::IN_PORT => self.send(ingress, None)?,
            port if port != ingress => self.send(port, None)?,
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, number: PortNo, max_len: Option<u32>) -> Result<(), TraversalError> {
        let Some(port) = self.port(number) else { return Ok(()) };
        if port.config.no_fwd || port.config.port_down {
            return Ok(());
        }
        match port.kind {
            PortKind::Datapath(port) => {
                self.outcomes.push(Outcome::sent(port, max_len, &self.packet.key()));
                Ok(())
            }
            PortKind::Patch { bridge, port } if max_len.is_none() => self.cross(bridge, port),
            PortKind::Patch { .. } | PortKind::Unbound => Ok(()),
        }
    }

    fn cross(&mut self, bridge: BridgeId, number: PortNo) -> Result<(), TraversalError> {
        let Some(port) = self.world.port(bridge, number) else { return Ok(()) };
        if port.config.no_recv || port.config.port_down {
            return Ok(());
        }
        self.bound()?;
        let outer = (self.packet.clone(), std::mem::take(&mut self.set), self.bridge);
        let scope = (self.table, self.rule.clone(), std::mem::take(&mut self.takes_table));
        let key = &mut self.packet.key;
        let kept = [FieldId::PktMark, FieldId::SkbPriority, FieldId::DpHash, FieldId::RecircId]
            .map(|field| (field, key.field(field)));
        let phy = key.field(FieldId::InPhyPort);
        key.words_mut()[..usize::from(word::BRIDGE)].fill(0);
        kept.iter().for_each(|(field, value)| key.set_field(*field, *value));
        key.set_field(FieldId::InPhyPort, phy);
        key.set_in_port(number);
        key.set_bridge(bridge.number().into());
        self.bridge = Some(bridge);
        self.depth += 1;
        self.walk()?;
        self.depth -= 1;
        self.has_exited = false;
        (self.packet, self.set, self.bridge) = outer;
        (self.table, self.rule, self.takes_table) = scope;
        Ok(())
    }

    fn punt(&mut self, reason: PacketInReason, controller_id: u16, max_len: u16, userdata: &[u8]) {
        let is_miss = self
            .rule
            .as_ref()
            .is_some_and(|rule| rule.priority.number() == 0 && rule.matching.mask().is_empty());
        let reason = match reason {
            PacketInReason::Action if is_miss => PacketInReason::NoMatch,
            reason => reason,
        };
        let key = self.packet.key();
        let is_quiet = self.port(key.in_port()).is_some_and(|port| port.config.no_packet_in);
        if reason == PacketInReason::NoMatch && is_quiet {
            return;
        }
        let cookie = self.rule.as_ref().map_or(Cookie::new(u64::MAX), |rule| rule.cookie);
        let punted = Punted {
            place: (self.id(), self.table),
            reason,
            cookie,
            controller_id,
            max_len,
            userdata: userdata.to_vec(),
            state: state(&key),
        };
        self.outcomes.push(Outcome::Punted(punted, Outcome::headers(&key)));
    }
}
