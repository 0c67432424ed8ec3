//! Bridges as plain lists.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::{FlowKey, PortNo};

use crate::{
    BridgeId, Cookie, DatapathPort, FlowMod, FlowModCommand, FlowModError, PortInfo, PortKind,
    Rule, RuleId, RuleStats, TableId, TableSelector, Time,
};

/// All bridges.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The bridges, by number.
    pub bridges: BTreeMap<BridgeId, WorldBridge>,
    /// Number of the rule added last.
    pub last_rule: u64,
}

/// One bridge.
#[derive(Clone, Debug, Default)]
pub struct WorldBridge {
    /// Its ports.
    pub ports: Vec<PortInfo>,
    /// Its rules, in no order that matters.
    pub rules: Vec<Arc<Rule>>,
}

impl World {
    /// Applies flow-mods to a bridge that there is: all or none.
    ///
    /// # Errors
    ///
    /// Why one was refused; then nothing has changed.
    pub fn apply(&mut self, id: BridgeId, mods: &[FlowMod], now: Time) -> Result<(), FlowModError> {
        let mut rules = match self.bridges.get(&id) {
            Some(bridge) => bridge.rules.clone(),
            None => return Err(FlowModError::NoSuchBridge(id)),
        };
        for request in mods {
            match request.command {
                FlowModCommand::Add => self.add(id, &mut rules, request, now)?,
                FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                    modify(&mut rules, request, now)?;
                }
                FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                    rules.retain(|rule| !is_meant(rule, request));
                }
            }
        }
        if let Some(bridge) = self.bridges.get_mut(&id) {
            bridge.rules = rules;
        }
        Ok(())
    }

    /// The port of the datapath that a packet came in by, as its key says.
    #[must_use]
    pub fn ingress(&self, key: &FlowKey) -> Option<DatapathPort> {
        let id = BridgeId::new(u16::try_from(key.bridge()).ok()?);
        let port = self.port(id, key.in_port())?;
        match port.kind {
            PortKind::Datapath(port) => Some(port),
            PortKind::Patch { .. } | PortKind::Unbound => None,
        }
    }

    /// A port of a bridge.
    #[must_use]
    pub fn port(&self, bridge: BridgeId, number: PortNo) -> Option<&PortInfo> {
        self.bridges.get(&bridge)?.ports.iter().find(|port| port.number == number)
    }

    /// The rule of a table that wins for a packet.
    #[must_use]
    pub fn look_up(&self, bridge: BridgeId, table: TableId, key: &FlowKey) -> Option<&Arc<Rule>> {
        let rules = self.bridges.get(&bridge)?.rules.iter();
        let matching = rules.filter(|rule| rule.table == table && rule.matching.matches(key));
        matching.max_by_key(|rule| (rule.priority, std::cmp::Reverse(rule.id)))
    }

    fn add(
        &mut self,
        bridge: BridgeId,
        rules: &mut Vec<Arc<Rule>>,
        request: &FlowMod,
        now: Time,
    ) -> Result<(), FlowModError> {
        let TableSelector::One(table) = request.table else { return Err(FlowModError::TableAll) };
        leads_up(request, table)?;
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
        }));
        Ok(())
    }
}

fn modify(rules: &mut [Arc<Rule>], request: &FlowMod, now: Time) -> Result<(), FlowModError> {
    if let TableSelector::One(table) = request.table {
        leads_up(request, table)?;
    }
    rules.sort_by_key(|rule| (rule.table, rule.id));
    for rule in rules.iter().filter(|rule| is_meant(rule, request)) {
        leads_up(request, rule.table)?;
    }
    for rule in rules.iter_mut().filter(|rule| is_meant(rule, request)) {
        *rule = Arc::new(Rule {
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
            instructions: Arc::new(request.instructions.clone()),
            modified: now,
            created: rule.created,
            stats: Arc::clone(&rule.stats),
        });
    }
    Ok(())
}

fn is_meant(rule: &Rule, request: &FlowMod) -> bool {
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
    by_match && by_table && by_port && has_cookie(rule.cookie, request)
}

fn has_cookie(cookie: Cookie, request: &FlowMod) -> bool {
    cookie.number() & request.cookie_mask == request.cookie.number() & request.cookie_mask
}

fn leads_up(request: &FlowMod, table: TableId) -> Result<(), FlowModError> {
    match request.instructions.goto {
        Some(target) if target.number() <= table.number() => {
            Err(FlowModError::GotoNotUp { table, target })
        }
        _ => Ok(()),
    }
}
