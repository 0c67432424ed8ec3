//! A pipeline together with the oracle that predicts its results.

mod static_macs;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_flow::{FlowKey, PortNo, text::NoPortNames};

use super::{
    BridgeModel, LearnEffect, NetworkModel, PacketEffects,
    execute::Execution,
    frame::{Frame, visible},
    generate::{BRIDGES, Op},
};
use crate::{
    bridges::{port::PortInfo, settings::BridgeSettings},
    error::RejectedMod,
    groups::group::{GroupCommand, GroupModError},
    id::BridgeId,
    learn::learning::Learning,
    pipeline::{Change, Pipeline},
    tables::{
        flow_mod::{FlowModCommand, FlowModError},
        rule_filter::RuleFilter,
    },
    text::{parse_group_mod, parse_rule},
    time::Time,
    traversals::traversal::{Traversal, TraversalError},
    update::{
        bundle::BundleStep,
        modification::{Modification, ModificationError},
    },
};

/// Returns the operations that build a bridge with these rules.
/// Ports 1 to 4 of the bridge are datapath ports.
///
/// A line that begins with `group_id` is a group, which later lines can name.
///
/// # Panics
///
/// If a line is neither a rule nor a group.
#[must_use]
pub fn bridge_with_rules(id: BridgeId, lines: &[&str]) -> Vec<Op> {
    let ports = (1..=4).map(PortInfo::datapath).collect();
    let mods = lines.iter().map(|line| addition(line)).collect();
    vec![Op::SetPorts(id, ports), Op::Modify(id, mods)]
}

/// Parses the text of a rule or group to add. Panics if the text is wrong.
#[expect(clippy::expect_used, reason = "rules and groups of tests are legal")]
fn addition(line: &str) -> Modification {
    if line.starts_with("group_id") {
        let group = parse_group_mod(GroupCommand::Add, line, &NoPortNames);
        Modification::Group(group.expect("groups of tests are legal"))
    } else {
        let rule = parse_rule(FlowModCommand::Add, line, &NoPortNames);
        Modification::Flow(rule.expect("rules of tests are legal"))
    }
}

/// A pipeline and an oracle to which the same changes are applied.
pub struct CheckedPipeline {
    /// The pipeline that is checked.
    pub pipeline: Arc<Pipeline>,
    /// The expected state at the newest version.
    pub model: NetworkModel,
}

impl CheckedPipeline {
    /// Returns the bridges of [`BRIDGES`] after these changes.
    /// A refused change is left out.
    ///
    /// If a group of requests is refused, its requests are applied one by one. If all were refused,
    /// one overlapping request would leave a bridge without rules.
    #[must_use]
    pub fn new(ops: &[Op]) -> Self {
        let mut checked = Self::empty();
        for op in ops {
            if checked.apply(op).is_none() {
                one_by_one(op).iter().for_each(|one| drop(checked.apply(one)));
            }
        }
        checked
    }

    /// Returns the bridges of [`BRIDGES`], and builds the bridge `id` from lines.
    /// For the lines, see [`bridge_with_rules`].
    ///
    /// # Panics
    ///
    /// If a line is refused.
    #[must_use]
    pub fn with_rules(id: BridgeId, lines: &[&str]) -> Self {
        Self::taking(&bridge_with_rules(id, lines))
    }

    /// Returns the bridges of [`BRIDGES`] after these changes.
    /// The changes concern rules, groups, meters and ports.
    ///
    /// # Panics
    ///
    /// If a change is refused.
    #[must_use]
    pub fn taking(ops: &[Op]) -> Self {
        let mut checked = Self::empty();
        ops.iter().for_each(|op| assert!(checked.apply(op).is_some(), "refused: {op:?}"));
        checked
    }

    /// Returns a pipeline and a model without rules.
    fn empty() -> Self {
        let mut checked =
            Self { pipeline: Arc::new(Pipeline::new(1)), model: NetworkModel::default() };
        for id in BRIDGES {
            checked.pipeline.add_bridge(id, BridgeSettings::default());
            checked.model.bridges.insert(id, BridgeModel::default());
        }
        checked
    }

    /// Applies a change to the pipeline and the oracle.
    /// Returns the change, or `None` if both refused it.
    ///
    /// # Panics
    ///
    /// If only the pipeline or only the oracle refuses the change, or if their results differ for a
    /// packet with learn actions.
    pub fn apply(&mut self, op: &Op) -> Option<Change> {
        match op {
            Op::Apply(id, mods) => {
                let applied = self.pipeline.apply(*id, mods, Time::ZERO);
                let mods: Vec<_> = mods.iter().cloned().map(Modification::Flow).collect();
                self.compare(*id, &mods, applied)
            }
            Op::Modify(id, mods) => {
                let applied = self.pipeline.modify(*id, mods.clone(), Time::ZERO);
                self.compare(*id, mods, applied)
            }
            Op::Commit(id, steps) => self.commit(*id, steps),
            Op::Expire(now) => {
                self.model.expire(*now);
                let change = self.pipeline.expire(*now);
                self.agree_on_rules();
                self.agree_on_groups();
                Some(change).filter(|change| !change.deltas.is_empty())
            }
            Op::SetPorts(id, ports) => self.set_ports(*id, ports),
            Op::SetMirrors(id, mirrors) => self.set_bridge(*id, |bridge, settings| {
                bridge.mirrors.clone_from(mirrors);
                bridge.forget_mirror_outputs();
                settings.mirrors.clone_from(mirrors);
            }),
            Op::SetFloodVlans(id, vlans) => self.set_bridge(*id, |bridge, settings| {
                bridge.flood_vlans.clone_from(vlans);
                settings.flood_vlans.clone_from(vlans);
            }),
            Op::SetSendsMisses(id, sends_misses) => self.set_bridge(*id, |bridge, settings| {
                bridge.sends_misses = *sends_misses;
                settings.sends_misses = *sends_misses;
            }),
            Op::SetFailsOpen(id, fails_open) => self.set_bridge(*id, |bridge, settings| {
                bridge.fails_open = *fails_open;
                settings.fails_open = *fails_open;
            }),
            Op::SetSnooping(id, snooping) => self.set_bridge(*id, |bridge, settings| {
                bridge.snooping = *snooping;
                settings.multicast = *snooping;
                match snooping {
                    Some(snooping) => bridge.limit_groups(snooping.groups_max.max(1), None),
                    None => bridge.keep_multicast_ports(|_| false),
                }
            }),
            Op::Snoop(observation, now) => {
                let change = self.learn(&[Learning::Multicast(*observation)], *now);
                self.agree_on_groups();
                Some(change).filter(|change| !change.deltas.is_empty())
            }
            Op::AddStaticMac(id, added) => self.add_static_mac(*id, *added),
            Op::RemoveStaticMac(id, vlan, mac) => self.remove_static_mac(*id, *vlan, *mac),
            Op::LearnFrom(key) => {
                let execution = self.execute(&self.translate(key), key);
                assert_alike(&execution.effects, &self.model.translate(key), key);
                let all = execution.traversals.into_iter();
                let learnings: Vec<_> = all.flat_map(|traversal| traversal.learnings).collect();
                Some(self.learn(&learnings, Time::ZERO)).filter(|change| !change.deltas.is_empty())
            }
            Op::Reclaim => {
                self.pipeline.reclaim(self.pipeline.version());
                None
            }
        }
    }

    /// Commits a bundle in the model and in the pipeline, and compares the results.
    fn commit(&mut self, id: BridgeId, steps: &[BundleStep]) -> Option<Change> {
        let expected = self.model.commit(id, steps, Time::ZERO);
        let applied = self.pipeline.commit(id, steps.iter().map(shown), Time::ZERO);
        let (all_effects, expected) = match expected {
            Ok(all_effects) => (all_effects, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        if let Ok((_, traversals)) = &applied {
            self.agree_on_packets(steps, traversals, &all_effects);
        }
        expect_agreement(applied.map(|(change, _)| change), expected)
    }

    /// Replaces the ports of a bridge in the model and in the pipeline.
    fn set_ports(&mut self, id: BridgeId, ports: &[PortInfo]) -> Option<Change> {
        if let Some(bridge) = self.model.bridges.get_mut(&id) {
            let old = std::mem::replace(&mut bridge.ports, ports.to_vec());
            let place = |all: &[PortInfo], number| {
                let own = all.iter().find(|port| port.number == number);
                let bond = |port: &PortInfo| Some(port.bond.as_ref()?.bond.clone());
                own.map(|port| (port.vlans.clone(), bond(port)))
            };
            bridge.macs.retain(|_, (own, _)| {
                let now = place(ports, *own);
                now.is_some() && now == place(&old, *own)
            });
            let stays = |own: PortNo| {
                let now = place(ports, own);
                now.is_some() && now == place(&old, own)
            };
            let bond = |all: &[PortInfo], number| place(all, number).and_then(|(_, bond)| bond);
            let moved = old.iter().filter_map(|port| {
                let own = bond(&old, port.number)?;
                let is_member = |number| bond(ports, number).as_ref() == Some(&own);
                let rest = ports.iter().filter(|other| {
                    is_member(other.number)
                        && stays(other.number)
                        && !bridge.is_mirror_output(other)
                });
                let first = rest.map(|other| other.number).min()?;
                (!is_member(port.number)).then_some((port.number, first))
            });
            let moved: BTreeMap<PortNo, PortNo> = moved.collect();
            bridge.move_multicast_ports(&moved);
            bridge.keep_multicast_ports(stays);
            bridge.forget_mirror_outputs();
        }
        let known = self.pipeline.ports(id).filter(|_| !ports.len().is_multiple_of(2));
        let Some(known) = known else {
            return self.pipeline.set_ports(id, ports.to_vec()).ok();
        };
        // Half of the changes replace, add and remove ports one by one.
        let is_known = |port: &&PortInfo| known.iter().any(|own| **own == **port);
        let gone = known.iter().map(|port| (port.number, None));
        let gone = gone.filter(|(own, _)| !ports.iter().any(|port| port.number == *own));
        let new = ports.iter().filter(|port| !is_known(port));
        let new = new.map(|port| (port.number, Some(port.clone())));
        self.pipeline.change_ports(id, gone.chain(new).collect()).ok()
    }

    /// Changes the settings of a bridge in the model and in the pipeline.
    fn set_bridge(
        &mut self,
        id: BridgeId,
        change: impl FnOnce(&mut BridgeModel, &mut BridgeSettings),
    ) -> Option<Change> {
        let mut settings = self.pipeline.settings(id)?;
        change(self.model.bridges.get_mut(&id)?, &mut settings);
        self.pipeline.set_settings(id, settings).ok()
    }

    /// Compares the packets of a bundle.
    /// A packet that is parsed again continues in the tables after the bundle.
    fn agree_on_packets(
        &self,
        steps: &[BundleStep],
        traversals: &[Traversal],
        all_effects: &[PacketEffects],
    ) {
        let keys = steps.iter().filter_map(|step| match step {
            BundleStep::Packet { key, .. } => Some(key),
            BundleStep::Modify(_) | BundleStep::Port(..) => None,
        });
        assert_eq!(traversals.len(), all_effects.len());
        for (key, (traversal, effects)) in keys.zip(traversals.iter().zip(all_effects)) {
            let execution = self.execute(traversal, key);
            if execution.traversals.len() == 1 {
                assert_alike(&execution.effects, effects, key);
            }
        }
    }

    /// Checks that the pipeline and the oracle have the same rules.
    fn agree_on_rules(&self) {
        for (id, bridge) in &self.model.bridges {
            let own = self.pipeline.rules(*id, &RuleFilter::all());
            let own: BTreeSet<_> = own.iter().map(|rule| rule.id).collect();
            let expected: BTreeSet<_> = bridge.rules.iter().map(|rule| rule.id).collect();
            assert_eq!(own, expected, "of bridge {id}");
        }
    }

    /// Checks that pipeline and oracle have the same multicast groups and router ports.
    fn agree_on_groups(&self) {
        for (id, bridge) in &self.model.bridges {
            let entries = self.pipeline.multicast(*id).into_iter();
            let own: BTreeSet<_> =
                entries.map(|own| (own.vlan, own.group, own.port, own.seen)).collect();
            assert_eq!(own, bridge.multicast(), "of bridge {id}");
        }
    }

    /// Compares the result of requests with the model's result.
    fn compare(
        &mut self,
        id: BridgeId,
        mods: &[Modification],
        applied: Result<Change, RejectedMod>,
    ) -> Option<Change> {
        expect_agreement(applied, self.model.modify(id, mods, Time::ZERO))
    }

    /// Applies learn requests to the pipeline and the oracle.
    pub fn learn(&mut self, learnings: &[Learning], now: Time) -> Change {
        self.model.learn(&learnings.iter().map(LearnEffect::of).collect::<Vec<_>>(), now);
        self.pipeline.learn(learnings, now)
    }

    /// Returns the translation of the pipeline at its newest version.
    #[must_use]
    pub fn translate(&self, key: &FlowKey) -> Traversal {
        self.pipeline.translate(&visible(key), self.pipeline.version())
    }

    /// Returns the traversals of a packet, one for each parse.
    #[must_use]
    pub fn traversals(&self, key: &FlowKey) -> Vec<Traversal> {
        self.execute(&self.translate(key), key).traversals
    }

    /// Returns the results of a traversal for a packet.
    /// The packet may be any packet of the traversal's region.
    ///
    /// At a partition point the packet continues in the newest version.
    #[must_use]
    pub fn effects(&self, traversal: &Traversal, key: &FlowKey) -> PacketEffects {
        self.execute(traversal, key).effects
    }

    /// Executes the actions of a traversal on a packet.
    fn execute(&self, traversal: &Traversal, key: &FlowKey) -> Execution<'_> {
        let tables = (&*self.pipeline, self.model.parsed_max);
        let mut execution = Execution::new(Some(tables), self.model.ingress(key));
        execution.run(traversal, Frame::of(key), key);
        execution
    }
}

/// Checks that the results are equal, unless a depth limit ended a translation.
///
/// At a depth limit, results may differ. The pipeline also copies packets that an earlier meter may
/// have remarked, and the oracle does not count these copies.
fn assert_alike(effects: &PacketEffects, expected: &PacketEffects, key: &FlowKey) {
    let is_depth = |error: &TraversalError| matches!(error, TraversalError::TooDeep(_));
    if !effects.error.iter().chain(&effects.later_errors).any(is_depth) {
        assert_eq!(effects, expected, "of {key:?}");
    }
}

/// Returns the request with the visible key of its packet.
fn shown(step: &BundleStep) -> BundleStep {
    match step {
        BundleStep::Packet { key, actions } => {
            BundleStep::Packet { key: Box::new(visible(key)), actions: actions.clone() }
        }
        other => other.clone(),
    }
}

/// Returns the change of the pipeline, which must agree with the oracle.
/// `None` if the pipeline refused the change with the expected error.
fn expect_agreement(
    applied: Result<Change, RejectedMod>,
    expected: Result<(), ModificationError>,
) -> Option<Change> {
    let error = applied.as_ref().err().map(|rejected| rejected.error);
    assert_eq!(error.map(kind), expected.err().map(kind));
    applied.ok()
}

/// Returns the requests of a change one by one.
fn one_by_one(op: &Op) -> Vec<Op> {
    match op {
        Op::Apply(id, mods) => {
            mods.iter().map(|request| Op::Apply(*id, vec![request.clone()])).collect()
        }
        Op::Modify(id, mods) => {
            mods.iter().map(|request| Op::Modify(*id, vec![request.clone()])).collect()
        }
        Op::Commit(..)
        | Op::SetPorts(..)
        | Op::SetMirrors(..)
        | Op::SetFloodVlans(..)
        | Op::SetSendsMisses(..)
        | Op::SetFailsOpen(..)
        | Op::SetSnooping(..)
        | Op::Snoop(..)
        | Op::AddStaticMac(..)
        | Op::RemoveStaticMac(..)
        | Op::Expire(_)
        | Op::LearnFrom(_)
        | Op::Reclaim => Vec::new(),
    }
}

/// Returns the text of an error without the object that it names.
fn kind(error: ModificationError) -> String {
    match error {
        ModificationError::Flow(FlowModError::NoSuchGroup(_) | FlowModError::NoSuchMeter(_)) => {
            "a missing object in a rule".to_owned()
        }
        ModificationError::Group(GroupModError::NoSuchGroup(_)) => {
            "a missing group in a bucket".to_owned()
        }
        ModificationError::Group(GroupModError::Invalid(..) | GroupModError::Unwatchable(_)) => {
            "an invalid group".to_owned()
        }
        other => format!("{other:?}"),
    }
}
