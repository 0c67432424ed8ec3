//! Bridges as plain lists: the state of the oracle.

mod registry;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use shunt_flow::{FlowKey, PortNo};

use self::registry::groups_named;
use super::{LearnEffect, PacketEffects, oracle::belongs};
use crate::{
    action::Action,
    bridges::{
        mac_table::MacObservation,
        mirror::Mirror,
        multicast::MulticastSnooping,
        port::{PortConfig, PortInfo, PortKind},
    },
    groups::group::GroupMod,
    id::{BridgeId, Cookie, DatapathPort, GroupId, MeterId, RuleId, TableId},
    meters::meter::MeterConfig,
    tables::{
        flow_mod::{FlowMod, FlowModCommand, FlowModError, TableSelector},
        rule::{Instructions, Rule, RuleStats, SharedTimers},
        rule_filter::RuleFilter,
    },
    time::Time,
    update::{
        bundle::BundleStep,
        modification::{Modification, ModificationError},
    },
};

/// The expected state of all bridges.
#[derive(Clone, Debug)]
pub struct NetworkModel {
    /// The bridges, by number.
    pub bridges: BTreeMap<BridgeId, BridgeModel>,
    /// Number of the rule added last.
    pub last_rule: u64,
    /// Number of times that a MAC address has moved to another port.
    pub mac_moves: u64,
    /// Limit of the parses of a packet and all of its copies together.
    pub parsed_max: usize,
}

impl Default for NetworkModel {
    /// Returns a network without bridges and with a low limit of parses.
    ///
    /// In some networks each parse costs thousands of lookups and leads to more parses.
    fn default() -> Self {
        Self { bridges: BTreeMap::new(), last_rule: 0, mac_moves: 0, parsed_max: 16 }
    }
}

/// The expected ports, rules, groups and meters of one bridge.
#[derive(Clone, Debug, Default)]
pub struct BridgeModel {
    /// Ports of the bridge.
    pub ports: Vec<PortInfo>,
    /// Rules of the bridge, in any order.
    pub rules: Vec<Arc<Rule>>,
    /// The groups of the bridge, as requested.
    pub groups: BTreeMap<GroupId, GroupMod>,
    /// The meters of the bridge.
    pub meters: BTreeMap<MeterId, MeterConfig>,
    /// Ports of MAC addresses by VLAN.
    /// Each address has a number that changes when the address moves.
    pub macs: BTreeMap<(u16, [u8; 6]), (PortNo, u64)>,
    /// The addresses of `macs` that a host announced, by VLAN, with the times.
    pub announced: BTreeMap<(u16, [u8; 6]), Time>,
    /// The addresses that became static. Of these, the addresses in `macs` are static.
    pub statics: BTreeSet<(u16, [u8; 6])>,
    /// The mirrors of the bridge.
    pub mirrors: Vec<Mirror>,
    /// The VLANs in which NORMAL learns nothing.
    pub flood_vlans: BTreeSet<u16>,
    /// True if a miss in the first table is sent to controllers.
    pub sends_misses: bool,
    /// True if NORMAL forwards every packet, in place of the tables.
    pub fails_open: bool,
    /// The settings of multicast snooping, if the bridge snoops.
    pub snooping: Option<MulticastSnooping>,
    /// The ports that want each group of each VLAN.
    pub members: BTreeMap<(u16, IpAddr), SeenPorts>,
    /// The router ports of each VLAN.
    pub routers: BTreeMap<u16, SeenPorts>,
}

/// Ports in the order of addition, each with the time of its last message.
pub type SeenPorts = Vec<(PortNo, Time)>;

/// The rules, groups and meters of a bridge, which requests change.
struct Tables {
    rules: Vec<Arc<Rule>>,
    groups: BTreeMap<GroupId, GroupMod>,
    meters: BTreeMap<MeterId, MeterConfig>,
}

impl NetworkModel {
    /// Applies requests to an existing bridge: all of them, or none.
    ///
    /// # Errors
    ///
    /// Returns the reason of the refusal; then nothing has changed.
    pub fn modify(
        &mut self,
        id: BridgeId,
        mods: &[Modification],
        now: Time,
    ) -> Result<(), ModificationError> {
        let Some(bridge) = self.bridges.get(&id).cloned() else {
            return Err(ModificationError::NoSuchBridge(id));
        };
        let BridgeModel { rules, groups, meters, .. } = bridge.clone();
        let mut tables = Tables { rules, groups, meters };
        for request in mods {
            let owned = owned_by_learns(&tables.rules);
            match request {
                Modification::Flow(request) => self.apply(id, &mut tables, request, now)?,
                Modification::Group(request) => tables.change_group(request)?,
                Modification::Meter(request) => tables.change_meter(request)?,
            }
            remove_orphans(&mut tables.rules, owned);
        }
        let Tables { rules, groups, meters } = tables;
        self.bridges.insert(id, BridgeModel { rules, groups, meters, ..bridge });
        Ok(())
    }

    /// Applies all requests of a bundle, or none. Returns the effects of its packets.
    ///
    /// The packets of the bundle change no table.
    ///
    /// # Errors
    ///
    /// Returns the reason of the refusal; then nothing has changed.
    pub fn commit(
        &mut self,
        id: BridgeId,
        steps: &[BundleStep],
        now: Time,
    ) -> Result<Vec<PacketEffects>, ModificationError> {
        let before = self.bridges.clone();
        let mut all_effects = Vec::new();
        let done = steps.iter().try_for_each(|step| match step {
            BundleStep::Modify(request) => self.modify(id, std::slice::from_ref(request), now),
            BundleStep::Port(port, config) => self.set_port(id, *port, *config),
            BundleStep::Packet { key, actions } => {
                self.check(id, actions)?;
                all_effects.push(self.packet_out(key, actions));
                Ok(())
            }
        });
        if done.is_err() {
            self.bridges = before;
        }
        done.map(|()| all_effects)
    }

    /// Checks that the ports and groups in the actions of a packet-out exist.
    fn check(&self, id: BridgeId, actions: &[Action]) -> Result<(), ModificationError> {
        let bridge = self.bridges.get(&id).ok_or(ModificationError::NoSuchBridge(id))?;
        let BridgeModel { groups, meters, .. } = bridge.clone();
        let tables = Tables { rules: Vec::new(), groups, meters };
        Ok(tables.check(&Instructions { apply: actions.into(), ..Instructions::default() })?)
    }

    /// Changes the settings of a port. Fails if the bridge or the port is unknown.
    fn set_port(
        &mut self,
        id: BridgeId,
        port: PortNo,
        config: PortConfig,
    ) -> Result<(), ModificationError> {
        let bridge = self.bridges.get_mut(&id).ok_or(ModificationError::NoSuchBridge(id))?;
        let own = bridge.ports.iter_mut().find(|own| own.number == port);
        own.ok_or(ModificationError::NoSuchPort(port))?.config = config;
        Ok(())
    }

    /// Removes the rules, and the ports of multicast groups, that have expired.
    ///
    /// Assumes that no rule was hit or refreshed, and that no packet lowered a timeout.
    pub fn expire(&mut self, now: Time) {
        let is_over = |rule: &Rule| {
            let timeouts = [rule.idle_timeout, rule.hard_timeout];
            let mut timeouts = timeouts.iter().filter(|timeout| !timeout.is_zero());
            timeouts.any(|timeout| rule.created.after(*timeout) <= now)
        };
        for bridge in self.bridges.values_mut() {
            let owned = owned_by_learns(&bridge.rules);
            bridge.rules.retain(|rule| !is_over(rule));
            remove_orphans(&mut bridge.rules, owned);
            bridge.announced.retain(|_, time| time.after(Duration::from_secs(5)) > now);
            bridge.expire_multicast(now);
        }
    }

    /// Applies learn requests, in order.
    pub fn learn(&mut self, learned: &[LearnEffect], now: Time) {
        for one in learned {
            let one = match one {
                LearnEffect::Rule(rule) => rule,
                LearnEffect::Multicast(seen) => {
                    if let Some(bridge) = self.bridges.get_mut(&seen.bridge) {
                        bridge.snoop(seen, now);
                    }
                    continue;
                }
                LearnEffect::Mac(seen) => {
                    self.learn_mac(seen, now);
                    continue;
                }
            };
            let Some(bridge) = self.bridges.get(&one.bridge) else { continue };
            let bridge = bridge.clone();
            let BridgeModel { rules, groups, meters, .. } = bridge.clone();
            let mut tables = Tables { rules, groups, meters };
            let rules = &mut tables.rules;
            let owned = owned_by_learns(rules);
            let is_learning_rule = |rule: &Arc<Rule>| Some((rule.id, rule.revision)) == one.learner;
            if one.learner.is_some() && !rules.iter().any(is_learning_rule) {
                continue;
            }
            let place = rules.iter().position(|rule| one.replaces(rule));
            if let Some(place) = place
                && one.changes_nothing(&rules[place])
            {
                rules[place].timers().refresh(now);
                continue;
            }
            if one.is_over(rules) {
                continue;
            }
            match place {
                Some(place) => {
                    let mut changed = revision_of(&rules[place], &one.request.instructions, now);
                    if one.request.cookie.number() != u64::MAX {
                        changed.cookie = one.request.cookie;
                    }
                    rules[place] = Arc::new(changed);
                }
                None => {
                    if self.add(one.bridge, &mut tables, &one.request, now).is_err() {
                        continue;
                    }
                }
            }
            remove_orphans(&mut tables.rules, owned);
            let Tables { rules, groups, meters } = tables;
            self.bridges.insert(one.bridge, BridgeModel { rules, groups, meters, ..bridge });
        }
    }

    /// Learns an address at a port, if the port still carries the VLAN.
    ///
    /// A frame that may have come back on a bond moves no address of another port, except as an
    /// announcement.
    fn learn_mac(&mut self, seen: &MacObservation, now: Time) {
        let Some(own) = self.bridges.get_mut(&seen.bridge) else { return };
        let is_still = |port: &&PortInfo| port.number == seen.port && belongs(port, seen.vlan);
        let port = own.ports.iter().find(is_still).filter(|port| !own.is_mirror_output(port));
        let Some(port) = port else { return };
        let place = (seen.vlan, seen.mac);
        if own.is_static(place) {
            return;
        }
        own.statics.remove(&place);
        let held = own.macs.get(&place).map(|(port, _)| *port);
        let is_announced = own.announced.contains_key(&place);
        let is_moved =
            held.is_some_and(|held| own.first_member(held) != own.first_member(seen.port));
        if is_moved && own.receives_copies(port) && (is_announced || !seen.is_announcement) {
            return;
        }
        let is_announcement = seen.is_announcement && port.bond.is_none();
        if held != Some(seen.port) || is_announcement && !is_announced {
            self.mac_moves += 1;
            own.macs.insert(place, (seen.port, self.mac_moves));
            own.announced.remove(&place);
            if is_announcement {
                own.announced.insert(place, now);
            }
        }
    }

    /// Applies a flow-mod to the model.
    fn apply(
        &mut self,
        id: BridgeId,
        tables: &mut Tables,
        request: &FlowMod,
        now: Time,
    ) -> Result<(), FlowModError> {
        match request.command {
            FlowModCommand::Add => self.add(id, tables, request, now),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => modify(tables, request, now),
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                tables.rules.retain(|rule| !is_selected(rule, request));
                Ok(())
            }
        }
    }

    /// Returns the port of the datapath on which a packet arrived, from its key.
    #[must_use]
    pub fn ingress(&self, key: &FlowKey) -> Option<DatapathPort> {
        let id = BridgeId::new(u16::try_from(key.bridge()).ok()?);
        let port = self.port(id, key.in_port())?;
        match port.kind {
            PortKind::Datapath(port) => Some(port),
            PortKind::Patch { .. } | PortKind::Unbound => None,
        }
    }

    /// Returns a port of a bridge.
    #[must_use]
    pub fn port(&self, bridge: BridgeId, number: PortNo) -> Option<&PortInfo> {
        self.bridges.get(&bridge)?.ports.iter().find(|port| port.number == number)
    }

    /// Returns the port at which a MAC address of a VLAN was learned.
    #[must_use]
    pub fn mac_port(&self, bridge: BridgeId, vlan: u16, mac: [u8; 6]) -> Option<PortNo> {
        self.bridges.get(&bridge)?.macs.get(&(vlan, mac)).map(|(port, _)| *port)
    }

    /// Returns the rules of a table that match a packet, in the order of precedence.
    pub(super) fn matching(
        &self,
        bridge: BridgeId,
        table: TableId,
        key: &FlowKey,
    ) -> Vec<&Arc<Rule>> {
        let rules = self.bridges.get(&bridge).into_iter().flat_map(|bridge| &bridge.rules);
        let matches = |rule: &&Arc<Rule>| rule.table == table && rule.matching.matches(key);
        let mut matching: Vec<_> = rules.filter(matches).collect();
        matching.sort_by_key(|rule| (std::cmp::Reverse(rule.priority), rule.id));
        matching
    }

    /// Adds a rule to the model.
    fn add(
        &mut self,
        bridge: BridgeId,
        tables: &mut Tables,
        request: &FlowMod,
        now: Time,
    ) -> Result<(), FlowModError> {
        let TableSelector::One(table) = request.table else { return Err(FlowModError::TableAll) };
        leads_up(request, table)?;
        tables.check(&request.instructions)?;
        let rules = &mut tables.rules;
        let same = |rule: &Arc<Rule>| {
            rule.table == table
                && rule.priority == request.priority
                && rule.matching == request.matching
        };
        let overlaps = |rule: &Arc<Rule>| {
            rule.table == table
                && rule.priority == request.priority
                && rule.matching.overlaps(&request.matching)
        };
        let old = rules.iter().position(same).map(|index| rules.remove(index));
        if old.is_none() && request.flags.check_overlap && rules.iter().any(overlaps) {
            return Err(FlowModError::Overlap(request.priority));
        }
        self.last_rule += 1;
        let stats = old.filter(|_| !request.flags.reset_counts).map(|old| Arc::clone(&old.stats));
        rules.push(Arc::new(Rule {
            id: RuleId::new(self.last_rule),
            revision: 0,
            bridge,
            table,
            matching: request.matching.clone(),
            priority: request.priority,
            cookie: request.cookie,
            idle_timeout: request.idle_timeout,
            hard_timeout: request.hard_timeout,
            importance: request.importance,
            flags: request.flags,
            instructions: Arc::new(request.instructions.clone()),
            modified: now,
            created: now,
            stats: stats.unwrap_or_else(|| Arc::new(RuleStats::default())),
            timers: SharedTimers::default(),
        }));
        Ok(())
    }
}

/// Modifies rules of the model.
fn modify(tables: &mut Tables, request: &FlowMod, now: Time) -> Result<(), FlowModError> {
    if let TableSelector::One(table) = request.table {
        leads_up(request, table)?;
    }
    let rules = &mut tables.rules;
    rules.sort_by_key(|rule| (rule.table, rule.id));
    for rule in rules.iter().filter(|rule| is_selected(rule, request)) {
        leads_up(request, rule.table)?;
    }
    tables.check(&request.instructions)?;
    let rules = &mut tables.rules;
    for rule in rules.iter_mut().filter(|rule| is_selected(rule, request)) {
        *rule = Arc::new(revision_of(rule, &request.instructions, now));
    }
    Ok(())
}

/// Returns the revision of a rule that a MODIFY makes.
fn revision_of(rule: &Rule, instructions: &Instructions, now: Time) -> Rule {
    Rule {
        id: rule.id,
        revision: rule.revision + 1,
        bridge: rule.bridge,
        table: rule.table,
        matching: rule.matching.clone(),
        priority: rule.priority,
        cookie: rule.cookie,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        importance: rule.importance,
        flags: rule.flags,
        instructions: Arc::new(instructions.clone()),
        modified: now,
        created: rule.created,
        stats: Arc::clone(&rule.stats),
        timers: rule.timers.share(),
    }
}

/// Returns the tables and cookies of `learn` actions with `delete_learned`.
fn owned_by_learns(rules: &[Arc<Rule>]) -> BTreeSet<(TableId, Cookie)> {
    /// Collects the tables and cookies of `learn` actions that own their rules.
    fn collect(actions: &[Action], owned: &mut BTreeSet<(TableId, Cookie)>) {
        for action in actions {
            match action {
                Action::Learn(learn) if learn.delete_learned => {
                    owned.insert((learn.table, learn.cookie));
                }
                Action::Clone(inner) => collect(inner, owned),
                _ => {}
            }
        }
    }
    let mut owned = BTreeSet::new();
    rules.iter().for_each(|rule| collect(&rule.instructions.apply, &mut owned));
    owned
}

/// Removes learned rules without an owner, repeatedly until no such rule is left.
fn remove_orphans(rules: &mut Vec<Arc<Rule>>, mut before: BTreeSet<(TableId, Cookie)>) {
    loop {
        let now = owned_by_learns(rules);
        let orphans: Vec<_> = before.difference(&now).copied().collect();
        if orphans.is_empty() {
            return;
        }
        rules.retain(|rule| !orphans.contains(&(rule.table, rule.cookie)));
        before = now;
    }
}

/// Returns whether a modify or delete command selects a rule.
fn is_selected(rule: &Rule, request: &FlowMod) -> bool {
    let by_match = match request.command {
        FlowModCommand::Modify | FlowModCommand::Delete => {
            rule.matching.is_within(&request.matching)
        }
        FlowModCommand::Add | FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict => {
            rule.matching == request.matching && rule.priority == request.priority
        }
    };
    let by_table = match request.table {
        TableSelector::One(table) => rule.table == table,
        TableSelector::All => true,
    };
    let deletes = matches!(request.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    let by_port = !deletes
        || request.out_port == PortNo::ANY
        || format!("{:?}", rule.instructions).contains(&format!("port: {:?},", request.out_port));
    let by_group = !deletes
        || request.out_group == RuleFilter::GROUP_ANY
        || groups_named(&rule.instructions).contains(&request.out_group);
    by_match && by_table && by_port && by_group && has_cookie(rule.cookie, request)
}

/// Returns whether the masked bits of a cookie are those that the request names.
fn has_cookie(cookie: Cookie, request: &FlowMod) -> bool {
    cookie.number() & request.cookie_mask == request.cookie.number() & request.cookie_mask
}

/// Fails unless the `goto` of a request leads to a later table than `table`.
fn leads_up(request: &FlowMod, table: TableId) -> Result<(), FlowModError> {
    match request.instructions.goto {
        Some(target) if target.number() <= table.number() => {
            Err(FlowModError::GotoNotUp { table, target })
        }
        _ => Ok(()),
    }
}
