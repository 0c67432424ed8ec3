//! The sub-traversals of a traced packet, in a Gigaflow cache or in a NIC, and their reasons.
//!
//! The policy computes the partition for empty stages. In a running cache, the entries of the
//! stages decide the stage of a sub-traversal, and sometimes the choice between partitions of equal
//! score.

use std::sync::Arc;

use serde::Serialize;
use shunt_classifier::Version;
use shunt_flow::{FlowKey, FlowMask, Match, layout::HEADER_START};
use shunt_gigaflow::{
    convert::{HeaderMasks, outline_of, rule_of},
    ltm::{Next, Tag},
    offload::{OffloadCapabilities, Refusal},
    outline::{Coupling, TraversalOutline},
    partition::{EmptyStages, PartitionPolicy as _, Placement, PolicyName},
};
use shunt_pipeline::{
    BridgeId, Continuation, DatapathAction, NotedTraversal, Pipeline, SubTraversal, Visit,
};

use crate::{
    config::{CacheKind, CacheOptions},
    nic::NicFront,
    ports::{bridges::Bridges, names::BridgeNames, registry::BridgeRegistry},
    trace::{
        error::TablesChanged,
        explain::{bridge_name, describe},
        partition::PartitionReasons,
    },
};

/// The sub-traversals of a packet.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSubTraversals {
    /// Name of the partition policy, as in the configuration.
    pub policy: String,
    /// Number of stages of the cache.
    pub stages: u8,
    /// Reason why the traversal is one megaflow, or not cached.
    pub not_partitioned: Option<String>,
    /// Reason why the NIC does not support the traversal.
    pub not_offloaded: Option<String>,
    /// Sub-traversals, from first to last.
    pub sub_traversals: Vec<TraceSubTraversal>,
}

/// A part of a traversal that becomes one LTM entry, as a trace shows it.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSubTraversal {
    /// Stage of the LTM entry, if all stages have space.
    pub stage: u8,
    /// Tag of packets before the sub-traversal:
    /// a bridge, or the number of a partition point.
    pub tag: String,
    /// Tables that the sub-traversal visits.
    pub tables: Vec<TraceStep>,
    /// Coupling fields that the sub-traversal consults.
    pub fields: Vec<&'static str>,
    /// Match of the LTM entry, on the headers at the start of the sub-traversal.
    pub mask: String,
    /// Tag of packets after the sub-traversal; `None` after the last.
    pub next: Option<String>,
    /// Reason for the partition after the sub-traversal; `None` after the last.
    pub partitioned: Option<String>,
}

/// A table visit within a sub-traversal.
#[derive(Clone, Debug, Serialize)]
pub struct TraceStep {
    /// Name of the bridge.
    pub bridge: String,
    /// Number of the table that was looked up.
    pub table: u8,
    /// Reason why the next table is in the same sub-traversal.
    ///
    /// `None` for the last table of the sub-traversal.
    pub joined: Option<String>,
}

/// A cache that holds sub-traversals: its policy and its stages.
pub(crate) struct SubTraversalCache {
    /// The policy that partitions traversals.
    policy: PolicyName,
    /// Number of Gigaflow stages.
    stages: u8,
    /// Capabilities of the NIC; `None` for packet threads, which support every entry.
    nic: Option<OffloadCapabilities>,
}

impl SubTraversalCache {
    /// Returns the cache of the packet threads, if they have Gigaflow caches.
    pub(crate) fn of_threads(caches: &CacheOptions) -> Option<Self> {
        let (policy, stages) = (caches.gigaflow.policy, caches.gigaflow.stages);
        (caches.kind == CacheKind::Gigaflow).then_some(Self { policy, stages, nic: None })
    }

    /// Returns the cache of a NIC, if the NIC has the ingress port of the packet.
    pub(crate) fn of_nic(nic: &NicFront, key: &FlowKey) -> Option<Self> {
        let bridge = BridgeId::new(u16::try_from(key.bridge()).ok()?);
        let capabilities = nic.port_capabilities(bridge, key.in_port())?;
        // The agent uses at most 255 stages of a device, so the trace does too.
        let stages = u8::try_from(capabilities.stages_count()).unwrap_or(u8::MAX);
        Some(Self { policy: nic.policy(), stages, nic: Some(capabilities) })
    }

    /// Describes the sub-traversals of a packet in the cache.
    ///
    /// After a recirculation, the first sub-traversal starts at a continuation.
    pub(crate) fn explain(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        version: Version,
        pipeline: &Pipeline,
        bridges: &Bridges,
    ) -> Result<TraceSubTraversals, TablesChanged> {
        let noted = pipeline.translate_noted(key, start, version);
        let mut outline = TraversalOutline::new();
        outline_of(&noted, 0, &mut outline);
        let (policy, parts) = self.partition(&outline);
        let reasons = PartitionReasons::new(policy, self.stages, &noted, &outline, &parts);
        let mut megaflow = reason_for_megaflow(&noted).map(str::to_owned);
        let mut refused = None;
        let visits = if megaflow.is_none() { reasons.visits() } else { Vec::new() };
        let mut own = pipeline.translate_sub_traversals(key, start, version, &visits);
        if own.len() > 1 {
            let stages_count = usize::from(self.stages);
            let near = !own.iter().all(|part| part.limit_use.fits(stages_count));
            megaflow = if near {
                Some(
                    "one megaflow: its sub-traversals would come near a limit of the translation"
                        .to_owned(),
                )
            } else {
                self.refusal(&own)
                    .map(|reason| format!("one megaflow: for a sub-traversal, {reason}"))
            };
            if megaflow.is_some() {
                own = pipeline.translate_sub_traversals(key, start, version, &[]);
            }
        }
        if !pipeline.is_retained(version) {
            return Err(TablesChanged);
        }
        if let [one] = &own[..] {
            refused = self.refusal(std::slice::from_ref(one)).map(|reason| reason.to_string());
        }
        let bridges = bridges.lock();
        let is_megaflow = megaflow.is_some();
        let mut first = 0;
        let explained = own.iter().enumerate().map(|(number, part)| {
            let stage = parts.get(number).map_or(0, |part| part.stage.number());
            let names = BridgeNames::new(pipeline, bridge_of(part));
            let explained =
                explain_sub_traversal(&bridges, &names, part, stage, &reasons, first, is_megaflow);
            let cut = if is_megaflow { None } else { reasons.reason_to_partition(number) };
            first += part.traversal.visits.len();
            TraceSubTraversal { partitioned: cut, ..explained }
        });
        Ok(TraceSubTraversals {
            policy: self.policy.to_string(),
            stages: self.stages,
            sub_traversals: explained.collect(),
            not_partitioned: megaflow,
            not_offloaded: refused,
        })
    }

    /// Partitions a traversal; returns the policy that was used, and the partition.
    fn partition(&self, outline: &TraversalOutline) -> (PolicyName, Vec<Placement>) {
        // A traversal without partition points is placed in the stage that packets reach first.
        let is_uncut = outline.segments_count() == 1 && outline.steps_count() > 1;
        let policy = if is_uncut { PolicyName::Megaflow } else { self.policy };
        (policy, policy.policy(0).partition(outline, &EmptyStages(self.stages)).to_vec())
    }

    /// Returns the reason of the first sub-traversal that the NIC does not support.
    fn refusal(&self, parts: &[SubTraversal]) -> Option<Refusal> {
        let nic = self.nic.as_ref()?;
        let (mut masks, mut behind) = (HeaderMasks::default(), parts.len());
        parts.iter().zip(0..).find_map(|(part, number)| {
            behind -= 1;
            let next = if behind == 0 { Next::End } else { Next::Tag(Tag::new(number + 1)) };
            // The entry of a whole traversal changes headers by its actions, not by the key of the
            // next entry.
            let is_megaflow = parts.len() == 1;
            let rewrite = if is_megaflow { Match::any() } else { part.rewrite.clone() };
            let rule = rule_of(&part.traversal, rewrite, Tag::new(number), next, &mut masks);
            nic.check(&rule).err()
        })
    }
}

/// Explains a sub-traversal and its LTM entry.
fn explain_sub_traversal(
    bridges: &BridgeRegistry,
    names: &BridgeNames,
    part: &SubTraversal,
    stage: u8,
    reasons: &PartitionReasons<'_>,
    first: usize,
    is_megaflow: bool,
) -> TraceSubTraversal {
    let traversal = &part.traversal;
    let tag_of = |start: &Arc<Continuation>| format!("tag={}", start.id());
    let id = bridge_of(part);
    let tag = traversal.continuation.as_ref();
    let last = traversal.visits.len().saturating_sub(1);
    let step = |(number, visit): (usize, &Visit)| TraceStep {
        bridge: bridge_name(bridges, visit.bridge),
        table: visit.table.number(),
        joined: (number < last).then(|| reasons.reason_to_join(first + number + 1, is_megaflow)),
    };
    // A traversal has at most a few thousand lookups.
    let [from, to] = [first, first + traversal.visits.len()]
        .map(|visit| u16::try_from(visit).unwrap_or(u16::MAX));
    let mut mask = FlowMask::from(&traversal.mask);
    mask.words_mut()[..HEADER_START].fill(0);
    TraceSubTraversal {
        stage,
        tag: tag.map_or_else(|| format!("bridge {}", bridge_name(bridges, id)), tag_of),
        tables: traversal.visits.iter().enumerate().map(step).collect(),
        fields: reasons.fields(&(from..to)).iter().map(Coupling::as_str).collect(),
        mask: describe(&(&traversal.key).into(), mask, names),
        next: traversal.next.as_ref().map(tag_of),
        partitioned: None,
    }
}

/// Returns the bridge that a packet is in when the sub-traversal begins.
fn bridge_of(part: &SubTraversal) -> BridgeId {
    BridgeId::new(u16::try_from(part.traversal.key.bridge()).unwrap_or_default())
}

/// Returns the reason why a traversal is cached as one megaflow, or is not cached.
fn reason_for_megaflow(noted: &NotedTraversal) -> Option<&'static str> {
    let traversal = &noted.traversal;
    if !traversal.learnings.is_empty() {
        Some("not cached: the packet makes the switch learn")
    } else if traversal.error.is_some() {
        Some("one megaflow: the translation stopped at a limit, such as its depth")
    } else if traversal.actions.iter().any(DatapathAction::recirculates) {
        Some("one megaflow: the packet is recirculated")
    } else {
        None
    }
}

impl TraceSubTraversals {
    /// Returns the lines of a text trace about sub-traversals.
    pub(crate) fn to_text(&self, title: &str) -> String {
        let megaflow =
            self.not_partitioned.as_ref().map(|reason| format!("; {reason}")).unwrap_or_default();
        let (policy, last) = (&self.policy, self.stages.saturating_sub(1));
        let mut text = format!(
            "{title}: policy {policy}, stages 0 to {last}, computed for empty stages{megaflow}\n"
        );
        if let Some(reason) = &self.not_offloaded {
            text += &format!("  not offloaded: {reason}\n");
        }
        text.extend(self.sub_traversals.iter().map(TraceSubTraversal::to_text));
        text
    }
}

impl TraceSubTraversal {
    /// Returns the lines of a sub-traversal, with the reasons for its ends.
    fn to_text(&self) -> String {
        let tables: Vec<String> = self.tables.iter().map(|own| own.table.to_string()).collect();
        let tables = if tables.is_empty() { "none".to_owned() } else { tables.join(" ") };
        let Self { stage, tag, fields, mask, .. } = self;
        let next = self.next.as_deref().unwrap_or("end");
        let mask = if mask.is_empty() { " any header".to_owned() } else { format!(" {mask}") };
        let noun = if self.tables.len() == 1 { "table" } else { "tables" };
        let mut text =
            format!("  stage {stage}: {noun} {tables}; matches {tag},{mask}; then {next}\n");
        let fields = if fields.is_empty() { "none".to_owned() } else { fields.join(", ") };
        text += &format!("     fields: {fields}\n");
        for step in &self.tables {
            if let Some(reason) = &step.joined {
                text += &format!("     >> not partitioned after table {}: {reason}\n", step.table);
            }
        }
        if let (Some(reason), Some(step)) = (&self.partitioned, self.tables.last()) {
            text += &format!("     >> partitioned after table {}: {reason}\n", step.table);
        }
        text
    }
}
