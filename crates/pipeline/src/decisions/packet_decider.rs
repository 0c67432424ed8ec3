//! Decisions of single packets by the tables, without a record of the consulted bits.
//!
//! A translation for a cache records every bit and object that it depends on. A decision for a
//! single packet needs no record, since it is executed at once and never becomes stale. Computational
//! flows work in this manner (*Scaling Open vSwitch with a Computational Cache*, section 5).
//!
//! Most rules only output to ports or lead to another table. `decide::burst` executes these rules
//! by itself. All other packets take a whole translation, with a recorder that is off.

use std::{sync::Arc, time::Duration};

use shunt_classifier::Version;
use shunt_flow::FlowKey;

use super::hit_counts::HitCounts;
use crate::{
    continuations::continuation::Continuation,
    learn::learning::Learning,
    pipeline::Pipeline,
    time::Time,
    translate::{TablesAtVersion, TranslationBuffers, decide},
    traversals::{
        datapath_action::DatapathAction,
        drop_cause::DropCause,
        traversal::{Traversal, TraversalError},
    },
};

/// The decision about one packet.
#[derive(Debug, Default)]
pub struct PacketDecision {
    /// The datapath actions. Empty: the packet is dropped.
    pub actions: Vec<DatapathAction>,
    /// The learn requests of the packet.
    pub learnings: Vec<Learning>,
    /// The error for which the switch, and not a rule, dropped the packet.
    pub error: Option<TraversalError>,
    /// The cause of the drop, if no action outputs the packet and there is no error.
    pub drop_cause: DropCause,
    /// The slots of `HitCounts` in which the packet counts.
    pub(crate) hits: Vec<u32>,
}

/// Decides packets of one thread, and counts their hits until they are credited.
///
/// ```
/// use std::time::Duration;
///
/// use shunt_flow::{FlowKey, PortNo, text::NoPortNames};
/// use shunt_pipeline::{
///     BridgeId, BridgeSettings, DatapathAction, FlowModCommand, PacketDecider, PacketDecision,
///     Pipeline, PortInfo, RuleFilter, Time, text::parse_rule,
/// };
///
/// let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
/// pipeline.add_bridge(bridge, BridgeSettings::default());
/// pipeline.set_ports(bridge, [1, 2].map(PortInfo::datapath).into())?;
/// let rule = parse_rule(FlowModCommand::Add, "in_port=1,actions=output:2", &NoPortNames);
/// pipeline.apply(bridge, &[rule.expect("a legal rule")], Time::ZERO)?;
///
/// let mut packet = FlowKey::ZERO;
/// packet.set_bridge(bridge.number().into());
/// packet.set_in_port(PortNo::new(1));
/// let (mut decider, mut decisions) = (PacketDecider::new(), [PacketDecision::default()]);
/// decider.decide_burst(&pipeline, &[packet], pipeline.version(), &mut decisions);
/// assert!(matches!(decisions[0].actions[..], [DatapathAction::Output { .. }]));
///
/// decider.count(&decisions[0], 64, Time::ZERO);
/// decider.credit(&pipeline, 10, Duration::from_millis(1));
/// let rules = pipeline.rules(bridge, &RuleFilter::all());
/// assert_eq!(rules[0].stats.totals().packets, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PacketDecider {
    /// The hits that are not credited yet.
    hits: Box<HitCounts>,
    /// The memory that one decision leaves to the next.
    buffers: TranslationBuffers,
}

impl PacketDecider {
    /// Creates a decider without counts.
    #[must_use]
    pub fn new() -> Self {
        Self { hits: Box::new(HitCounts::new()), buffers: TranslationBuffers::default() }
    }

    /// Decides the packets of a burst by the tables of `version`.
    ///
    /// The keys name bridge and ingress port. `version` is published and not reclaimed. After the
    /// call, decisions of earlier bursts cannot be counted.
    pub fn decide_burst(
        &mut self,
        pipeline: &Pipeline,
        keys: &[FlowKey],
        version: Version,
        decisions: &mut [PacketDecision],
    ) {
        let Self { hits, buffers } = self;
        let lowered = pipeline.with_tables(version, |tables| {
            let lowered = hits.begin_burst(tables.bridges);
            decide::burst(tables, keys, hits, buffers, decisions);
            lowered
        });
        pipeline.note_lowered(lowered);
    }

    /// Decides one packet, which may continue after a recirculation.
    ///
    /// The decision belongs to the current burst.
    pub fn decide(
        &mut self,
        pipeline: &Pipeline,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        version: Version,
        decision: &mut PacketDecision,
    ) {
        let Self { hits, buffers } = self;
        pipeline.with_tables(version, |tables| {
            decide::packet(tables, key, start, hits, buffers, decision);
        });
    }

    /// Counts a packet for the rules, tables and groups of its decision.
    pub fn count(&mut self, decision: &PacketDecision, bytes: u64, now: Time) {
        self.hits.count(&decision.hits, bytes, now);
    }

    /// Returns the number of counts that may not be credited yet.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.hits.dirty()
    }

    /// Credits at most `count` of the oldest counts, and all of replaced objects.
    ///
    /// Takes the lock of the tables for a few counts at a time, and waits for it at most `wait`
    /// each time. If a change of the tables holds the lock longer, the remaining counts are left for
    /// the next call. Ends the burst. Returns the number of credited counts, without those of
    /// replaced objects.
    pub fn credit(&mut self, pipeline: &Pipeline, count: usize, wait: Duration) -> usize {
        let hits = &mut self.hits;
        let mut credited = 0;
        loop {
            let some = (count - credited).min(CREDITS_PER_HOLD);
            let credit = |tables: TablesAtVersion<'_>| hits.credit(tables.bridges, some);
            let done = pipeline.try_with_tables(pipeline.version(), wait, credit);
            let Some((lowered, done)) = done else { return credited };
            pipeline.note_lowered(lowered);
            credited += done;
            if done < some || credited == count {
                return credited;
            }
        }
    }
}

/// Maximum number of counts that are credited under one lock of the tables.
const CREDITS_PER_HOLD: usize = 64;

impl Default for PacketDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PacketDecider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketDecider").field("dirty", &self.dirty()).finish_non_exhaustive()
    }
}

impl PacketDecision {
    /// Returns whether a translation decides the same for the packet.
    ///
    /// Compares the actions, learn requests and causes of drops, but not the counts.
    #[must_use]
    pub fn decides_like(&self, traversal: &Traversal) -> bool {
        self.actions[..] == traversal.actions[..]
            && self.learnings == traversal.learnings
            && self.error == traversal.error
            && self.drop_cause == traversal.drop_cause
    }

    /// Makes the decision empty, for the next packet.
    pub(crate) fn clear(&mut self) {
        self.actions.clear();
        self.learnings.clear();
        self.hits.clear();
        self.error = None;
        self.drop_cause = DropCause::default();
    }
}
