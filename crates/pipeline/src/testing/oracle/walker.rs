//! The walk of one packet through tables, by linear scans and recursion.
//!
//! Where the switch parses the packet again, a new [`PacketPass`](super::passes::PacketPass) begins
//! with the same state. The new pass ends with the clone, bucket or bridge in which it began, and
//! the outer pass continues unchanged.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, PortNo, layout::word};

use super::{
    effects::{Outcome, PacketEffects},
    labels::looks_at_headers,
    mirror::Mirrored,
    packet::{Packet, low},
    passes::PacketPasses,
};
use crate::{
    action::{Action, PacketInReason, Subfield},
    bridges::port::{PortInfo, PortKind},
    id::{BridgeId, DatapathPort, TableId},
    tables::rule::Rule,
    testing::NetworkModel,
    traversals::traversal::TraversalError,
};

impl NetworkModel {
    /// Returns the results of a packet that arrived on a port.
    #[must_use]
    pub fn translate(&self, key: &FlowKey) -> PacketEffects {
        let mut walker = Walker::new(self, key);
        let result = walker.receive(key);
        walker.effects(result)
    }

    /// Returns the results of a packet; `None` after `lookups_max` lookups.
    ///
    /// Recirculated copies of one packet may need a million lookups.
    #[must_use]
    pub fn translate_within(&self, key: &FlowKey, lookups_max: usize) -> Option<PacketEffects> {
        let mut walker = Walker { lookups_left: lookups_max, ..Walker::new(self, key) };
        let result = walker.receive(key);
        (walker.lookups_left > 0).then(|| walker.effects(result))
    }

    /// Returns the results of a packet from a packet-out.
    #[must_use]
    pub fn packet_out(&self, key: &FlowKey, actions: &[Action]) -> PacketEffects {
        let mut walker = Walker::new(self, key);
        if walker.bridge.is_none() {
            return walker.effects(Err(no_bridge()));
        }
        walker.takes_table = true;
        if walker.is_reserved(key) {
            return walker.effects(Ok(()));
        }
        let result = walker.copy(|walker| {
            walker.mirror_received()?;
            walker.list(actions)?;
            walker.run_set()
        });
        walker.effects(result)
    }
}

/// Returns the error of a packet on a bridge that does not exist.
const fn no_bridge() -> TraversalError {
    TraversalError::NoSuchPort
}

/// The state of one packet during its walk through the tables.
pub(super) struct Walker<'w> {
    pub(super) model: &'w NetworkModel,
    pub(super) packet: Packet,
    /// The bridge that the packet is in; `None` if it does not exist.
    bridge: Option<BridgeId>,
    /// The table with the running rule.
    pub(super) table: TableId,
    /// The running rule; `None` outside of rules.
    pub(super) rule: Option<Arc<Rule>>,
    /// The action set of the packet.
    pub(super) set: Vec<Action>,
    /// The values of `push` actions.
    pub(super) stack: Vec<u128>,
    pub(super) passes: PacketPasses,
    /// Depth of nested resubmits, patch ports and buckets.
    pub(super) depth: u16,
    /// Number of lookups that count against the limit of 4096.
    pub(super) resubmits: u16,
    /// Table lookups until the oracle gives up, for all copies together.
    lookups_left: usize,
    /// True after an `exit` action.
    pub(super) has_exited: bool,
    /// True while an output to `TABLE` starts a lookup.
    takes_table: bool,
    pub(super) role: Role,
    /// True if a meter has dropped this copy of the packet; tables still count it.
    pub(super) is_muted: bool,
    /// The mirrors of the current bridge that have copied the packet.
    pub(super) mirrored: Mirrored,
    /// Value of `mirrored` where the innermost copy was first parsed again.
    pub(super) mirrored_at_cut: Option<Mirrored>,
}

/// The bridge, table and rule of an action, which a packet-in reports.
#[derive(Clone, Copy)]
pub(super) struct Role {
    /// True while the action set runs.
    pub(super) in_set: bool,
    /// True while a bucket runs.
    pub(super) in_bucket: bool,
}

impl<'w> Walker<'w> {
    /// Returns a walk that starts at table 0 of the bridge in the key.
    fn new(model: &'w NetworkModel, key: &FlowKey) -> Self {
        let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
        Self {
            model,
            packet: Packet::new(key),
            bridge: bridge.filter(|id| model.bridges.contains_key(id)),
            table: TableId::FIRST,
            rule: None,
            set: Vec::new(),
            stack: Vec::new(),
            passes: PacketPasses::new(Packet::new(key).frame().len(), model.parsed_max),
            depth: 0,
            resubmits: 0,
            lookups_left: usize::MAX,
            has_exited: false,
            takes_table: false,
            role: Role::NONE,
            is_muted: false,
            mirrored: Mirrored::new(),
            mirrored_at_cut: None,
        }
    }

    /// Returns all effects of the packet.
    fn effects(self, result: Result<(), TraversalError>) -> PacketEffects {
        self.passes.effects(result.err())
    }

    /// Returns the current bridge.
    pub(super) fn id(&self) -> BridgeId {
        self.bridge.unwrap_or_default()
    }

    /// Returns a port of the current bridge.
    pub(super) fn port(&self, number: PortNo) -> Option<&'w PortInfo> {
        self.model.port(self.id(), number)
    }

    /// Runs a packet that arrived on a port.
    fn receive(&mut self, key: &FlowKey) -> Result<(), TraversalError> {
        let bridge = self.bridge.ok_or_else(no_bridge)?;
        let port = self.model.port(bridge, key.in_port());
        if port.is_some_and(|port| port.config.no_recv || port.config.port_down) {
            return Ok(());
        }
        if self.goes_to_lacp(key) {
            self.punt_to_lacp();
            return Ok(());
        }
        if self.goes_to_bfd(key) {
            self.punt_to_bfd();
            return Ok(());
        }
        if self.is_reserved(key) {
            return Ok(());
        }
        self.copy(|walker| {
            walker.mirror_received()?;
            walker.forward()
        })
    }

    /// Walks through the tables from the first one, then runs the action set.
    pub(super) fn walk(&mut self) -> Result<(), TraversalError> {
        let first = self.look_up(TableId::FIRST, None)?;
        (self.table, self.rule) = (TableId::FIRST, first);
        if self.rule.is_none() && self.model.bridges[&self.id()].sends_misses {
            self.punt_miss();
        }
        self.run_set()
    }

    /// Runs `run` on a copy of the packet and restores the packet afterwards.
    pub(super) fn copy(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), TraversalError>,
    ) -> Result<(), TraversalError> {
        let packet = (self.packet.clone(), self.set.clone(), self.stack.clone(), self.is_muted);
        let place = (self.bridge, self.table, self.rule.clone(), self.takes_table);
        let (role, depth) = (self.role, self.depth);
        let outer = self.passes.begin();
        let outer_mirrored = self.mirrored_at_cut.take();
        let mut result = run(self);
        if let Some(at_cut) = std::mem::replace(&mut self.mirrored_at_cut, outer_mirrored) {
            self.mirrored = at_cut;
        }
        if let Some(at_cut) = self.passes.end(outer, result.err()) {
            (result, self.resubmits, self.has_exited) = (Ok(()), at_cut, false);
        }
        (self.packet, self.set, self.stack, self.is_muted) = packet;
        (self.bridge, self.table, self.rule, self.takes_table) = place;
        (self.role, self.depth) = (role, depth);
        result
    }

    /// Runs `run` on a copy inside another copy.
    ///
    /// The nesting of datapath copies is limited.
    pub(super) fn nested(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), TraversalError>,
    ) -> Result<(), TraversalError> {
        self.copy(run)?;
        self.passes.bound_copies()
    }

    /// Parses the packet again, after `change` has changed it.
    pub(super) fn cut(&mut self, change: impl FnOnce(&mut Packet)) -> Result<(), TraversalError> {
        self.mirrored_at_cut.get_or_insert_with(|| self.mirrored.clone());
        self.passes.cut(self.resubmits, self.is_muted)?;
        change(&mut self.packet);
        self.packet.parse_again();
        self.passes.set_length(self.packet.frame().len());
        Ok(())
    }

    /// Parses the headers if they are not parsed.
    pub(super) fn need_headers(&mut self) -> Result<(), TraversalError> {
        if self.packet.is_uncovered { self.cut(|_| {}) } else { Ok(()) }
    }

    /// Looks up the packet in a table and runs the matching rule.
    fn look_up(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<Arc<Rule>>, TraversalError> {
        self.need_headers()?;
        let rule = self.find_rule(table, port)?;
        self.passes.note_visit((self.id(), table), rule.as_ref().map(|rule| rule.id));
        let outer = (self.table, self.rule.clone());
        (self.table, self.rule) = (table, rule.clone());
        let takes_table = std::mem::take(&mut self.takes_table);
        let in_bucket = std::mem::take(&mut self.role.in_bucket);
        if let Some(rule) = &rule {
            self.run_rule(rule)?;
        }
        self.takes_table = takes_table;
        self.role.in_bucket = in_bucket;
        (self.table, self.rule) = outer;
        Ok(rule)
    }

    /// Returns the rule that matches, or `None`. Fails after 4096 lookups.
    #[inline(never)] // Inlined keys would fill the stack of this recursion.
    fn find_rule(
        &mut self,
        table: TableId,
        port: Option<PortNo>,
    ) -> Result<Option<Arc<Rule>>, TraversalError> {
        if self.lookups_left == 0 {
            return Err(TraversalError::TooManyResubmits(4096));
        }
        self.lookups_left -= 1;
        let mut key = self.packet.key();
        if let Some(port) = port {
            key.set_in_port(port);
        }
        if key.field(FieldId::NwFrag) & 1 != 0 {
            key.set_field(FieldId::TcpSrc, 0);
            key.set_field(FieldId::TcpDst, 0);
        }
        let (rule, conjunctions) = self.model.look_up(self.id(), table, &key);
        self.resubmits += conjunctions;
        if self.resubmits > 4096 {
            return Err(TraversalError::TooManyResubmits(4096));
        }
        Ok(rule.cloned())
    }

    /// Runs the instructions of a rule, and continues in the table of its `goto`.
    fn run_rule(&mut self, rule: &Rule) -> Result<(), TraversalError> {
        let instructions = &rule.instructions;
        if let Some(meter) = instructions.meter {
            self.meter(meter);
        }
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
                self.need_headers()?;
                self.bound()?;
                self.look_up(table, None).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Counts a table lookup, or refuses it beyond the limits.
    pub(super) fn bound(&mut self) -> Result<(), TraversalError> {
        if self.depth >= 64 {
            return Err(TraversalError::TooDeep(64));
        }
        if self.resubmits >= 4096 {
            return Err(TraversalError::TooManyResubmits(4096));
        }
        self.resubmits += 1;
        Ok(())
    }

    /// Runs the action set in the order of the standard, and empties it.
    fn run_set(&mut self) -> Result<(), TraversalError> {
        let set = std::mem::take(&mut self.set);
        let in_set = std::mem::replace(&mut self.role.in_set, true);
        self.list(&Self::ordered(&set))?;
        self.role.in_set = in_set;
        Ok(())
    }

    /// Returns actions in the order in which an action set executes them.
    pub(super) fn ordered(set: &[Action]) -> Vec<Action> {
        let last = |is: fn(&Action) -> bool| set.iter().rev().find(|action| is(action)).cloned();
        let Some(end) = last(|action| matches!(action, Action::Group(_)))
            .or_else(|| last(|action| matches!(action, Action::Output { .. })))
            .or_else(|| last(|action| matches!(action, Action::Resubmit { .. })))
        else {
            return Vec::new();
        };
        let mut list = Vec::new();
        list.extend(last(|action| matches!(action, Action::CopyTtlIn)));
        list.extend(last(|action| matches!(action, Action::PopVlan)));
        list.extend(last(|action| matches!(action, Action::PopMpls { .. })));
        list.extend(last(|action| matches!(action, Action::PushMpls { .. })));
        list.extend(last(|action| matches!(action, Action::PushVlan { .. })));
        list.extend(last(|action| matches!(action, Action::CopyTtlOut)));
        list.extend(last(|action| matches!(action, Action::DecTtl { .. })));
        list.extend(last(|action| matches!(action, Action::DecMplsTtl)));
        let writes = set.iter().filter(|action| {
            matches!(
                action,
                Action::SetField { .. }
                    | Action::Load { .. }
                    | Action::Move { .. }
                    | Action::SetNwTtl(_)
                    | Action::SetTpSrc(_)
                    | Action::SetTpDst(_)
                    | Action::SetMplsTtl(_)
            )
        });
        list.extend(writes.cloned());
        list.extend(last(|action| matches!(action, Action::SetQueue(_))));
        list.push(end);
        list
    }

    /// Runs a list; returns false if an expired TTL has ended it.
    pub(super) fn list(&mut self, actions: &[Action]) -> Result<bool, TraversalError> {
        for action in actions {
            if self.has_exited {
                return Ok(true);
            }
            if looks_at_headers(action) || self.is_snooped(action) {
                self.need_headers()?;
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
                    PortNo::IN_PORT => self.send(self.packet.key.in_port(), Some(*max_len))?,
                    port if port != self.packet.key.in_port() => {
                        self.send(port, Some(*max_len))?;
                    }
                    _ => {}
                },
                Action::Controller(asked) => self.controller(asked)?,
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
                Action::Clone(inner) => self.nested(|copy| {
                    copy.list(inner)?;
                    if copy.has_exited { Ok(()) } else { copy.run_set() }
                })?,
                Action::Group(id) => self.group(*id)?,
                Action::Meter(id) => self.meter(*id),
                Action::Multipath(action) => self.multipath(action),
                Action::Bundle(action) => self.bundle(action)?,
                Action::SetQueue(_) | Action::PopQueue { .. } => self.packet.select_queue(action),
                Action::Note(_) => {}
                Action::Exit => self.has_exited = true,
                Action::Learn(action) => self.learn(action),
                Action::FinTimeout { idle, hard } => self.fin_timeout(*idle, *hard),
                other => {
                    if !self.label(other)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Decrements the TTL; returns false if it has expired.
    #[inline(never)]
    fn dec_ttl(&mut self, controllers: &[u16]) -> bool {
        if !self.packet.has(FieldId::NwTtl) {
            return true;
        }
        let ttl = self.packet.key.field(FieldId::NwTtl);
        if ttl >= 2 {
            self.packet.set(FieldId::NwTtl, ttl - 1, 0xff);
            return true;
        }
        for id in controllers {
            self.punt(PacketInReason::InvalidTtl, *id, 0xffff, &[]);
        }
        false
    }

    /// Executes a `resubmit` action.
    fn resubmit(
        &mut self,
        port: Option<PortNo>,
        table: Option<TableId>,
    ) -> Result<(), TraversalError> {
        let table = table.unwrap_or(self.table);
        let deepens = u16::from(table <= self.table);
        self.need_headers()?;
        self.bound()?;
        self.depth += deepens;
        self.look_up(table, port.filter(|port| *port != PortNo::IN_PORT))?;
        self.depth -= deepens;
        Ok(())
    }

    /// Returns the value of a subfield.
    #[inline(never)]
    pub(super) fn read(&self, source: Subfield) -> u128 {
        let value = self.packet.key().field(source.field) >> source.offset;
        value & (u128::MAX >> (128 - source.width))
    }

    /// Writes bits of a field.
    #[inline(never)]
    pub(super) fn set(&mut self, field: FieldId, value: u128, mask: u128) {
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

    /// Executes an output to a port.
    pub(super) fn output(&mut self, port: PortNo, max_len: u16) -> Result<(), TraversalError> {
        let ingress = self.packet.key.in_port();
        match port {
            PortNo::TABLE if self.takes_table => self.resubmit(None, Some(TableId::FIRST))?,
            PortNo::FLOOD | PortNo::ALL => {
                let mut ports = self.model.bridges[&self.id()].ports.clone();
                ports.sort_by_key(|info| info.number);
                for info in ports {
                    let skips = port == PortNo::FLOOD
                        && (info.config.no_flood || !self.floods_on(&info, ingress));
                    if !skips && info.number != ingress && !self.has_exited {
                        self.send(info.number, None)?;
                    }
                }
            }
            PortNo::CONTROLLER => {
                let reason = match self.role {
                    Role { in_bucket: true, .. } => PacketInReason::Group,
                    Role { in_set: true, .. } => PacketInReason::ActionSet,
                    _ => PacketInReason::Action,
                };
                self.punt(reason, 0, max_len, &[]);
            }
            PortNo::IN_PORT => self.send(ingress, None)?,
            PortNo::NORMAL => self.normal()?,
            port if port != ingress => self.send(port, None)?,
            _ => {}
        }
        Ok(())
    }

    /// Sends the packet to a port, if the port exists and may send.
    pub(super) fn send(
        &mut self,
        number: PortNo,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        let Some(info) = self.port(number) else { return Ok(()) };
        if info.config.no_fwd || info.config.port_down {
            return Ok(());
        }
        match info.kind {
            PortKind::Datapath(port) => {
                self.emit(port, max_len);
                self.mirror_sent(info)
            }
            PortKind::Patch { bridge, port } if max_len.is_none() => {
                self.cross(bridge, port)?;
                self.mirror_sent(info)
            }
            PortKind::Patch { .. } | PortKind::Unbound => Ok(()),
        }
    }

    /// Records that the packet is sent.
    #[inline(never)]
    fn emit(&mut self, port: DatapathPort, max_len: Option<u32>) {
        if !self.is_muted {
            self.passes.emit(Outcome::sent(port, self.packet.queue, max_len, &self.packet.frame()));
        }
    }

    /// Continues in the bridge behind a patch port.
    fn cross(&mut self, bridge: BridgeId, number: PortNo) -> Result<(), TraversalError> {
        let Some(port) = self.model.port(bridge, number) else { return Ok(()) };
        if port.config.no_recv || port.config.port_down {
            return Ok(());
        }
        if self.model.bridges[&bridge].is_mirror_output(port) {
            return Ok(());
        }
        self.bound()?;
        let mirrored = std::mem::take(&mut self.mirrored);
        let result = self.nested(|copy| {
            copy.arrive(bridge, number);
            copy.mirror_received()?;
            copy.forward()?;
            copy.has_exited = false;
            Ok(())
        });
        self.mirrored = mirrored;
        result
    }

    /// Moves the packet to a peer bridge.
    #[inline(never)]
    fn arrive(&mut self, bridge: BridgeId, number: PortNo) {
        (self.set, self.stack) = (Vec::new(), Vec::new());
        (self.takes_table, self.role) = (false, Role::NONE);
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
    }
}
