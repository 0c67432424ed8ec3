//! The sub-traversals of a traced packet, in a Gigaflow cache or in a NIC, with the reasons.
//!
//! The policy computes the partition for empty stages. The content of real stages decides the stage
//! of a sub-traversal, and sometimes the partition between equal scores.

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
    BridgeId, Continuation, DatapathAction, NotedTraversal, SubTraversal, Traversal, Visit,
};

use crate::{
    config::CacheKind,
    control::ControlPlane,
    ports::{bridges::BridgeRegistry, names::BridgeNames},
    trace::{
        error::TablesChanged,
        explain::{bridge_name, describe},
        partition::PartitionReasons,
    },
};

/// The sub-traversals of a packet.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSubTraversals {
    /// Partition policy, as in the configuration.
    pub policy: String,
    /// Number of stages.
    pub stages: u8,
    /// Reason why the traversal is one megaflow, or not cached.
    pub not_partitioned: Option<String>,
    /// Reason why the NIC does not support the traversal.
    pub not_offloaded: Option<String>,
    /// Sub-traversals, first to last.
    pub sub_traversals: Vec<TraceSubTraversal>,
}

/// A sub-traversal.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSubTraversal {
    /// Stage of its LTM entry if all stages have space.
    pub stage: u8,
    /// Tag that packets have before: a bridge, or the number of a partition point.
    pub tag: String,
    /// Tables that it visits.
    pub tables: Vec<TraceStep>,
    /// Fields that it consults, of those that relate sub-traversals.
    pub fields: Vec<&'static str>,
    /// Match of its LTM entry, on the headers at this point.
    pub mask: String,
    /// Tag that packets have afterwards; `None` for the last.
    pub next: Option<String>,
    /// Reason for the partition after it; `None` for the last.
    pub partitioned: Option<String>,
}

/// A table of a sub-traversal.
#[derive(Clone, Debug, Serialize)]
pub struct TraceStep {
    /// Name of the bridge.
    pub bridge: String,
    /// Table number.
    pub table: u8,
    /// Reason why the next table is in the same sub-traversal.
    ///
    /// `None` for the last table.
    pub joined: Option<String>,
}

/// The cache that holds the sub-traversals: its policy and stages.
struct SubTraversalCache {
    policy: PolicyName,
    stages: u8,
    /// Capabilities of the NIC; packet threads support every entry.
    nic: Option<OffloadCapabilities>,
}

/// The key of a packet, and its continuation after a recirculation.
type Ingress<'a> = (&'a FlowKey, Option<&'a Arc<Continuation>>);

impl ControlPlane {
    /// Describes the sub-traversals of a packet, if packet threads use Gigaflow caches.
    pub(crate) fn explain_sub_traversals(
        &self,
        ingress: Ingress<'_>,
        traversal: &Traversal,
    ) -> Result<Option<TraceSubTraversals>, TablesChanged> {
        let caches = self.config.lock().caches.clone();
        let (policy, stages) = (caches.gigaflow.policy.name(), caches.gigaflow.stages);
        if caches.kind != CacheKind::Gigaflow {
            return Ok(None);
        }
        let cache = SubTraversalCache { policy, stages, nic: None };
        self.explain_cached(ingress, traversal.version, &cache).map(Some)
    }

    /// Describes the sub-traversals of a packet in the NIC that has the ingress port.
    pub(crate) fn explain_nic_sub_traversals(
        &self,
        key: &FlowKey,
        traversal: &Traversal,
    ) -> Result<Option<TraceSubTraversals>, TablesChanged> {
        let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
        let front = self.nic();
        let held = front.zip(bridge).and_then(|(front, bridge)| {
            let nic = front.holds(bridge, key.in_port())?;
            Some((front.policy(), nic))
        });
        let Some((policy, nic)) = held else { return Ok(None) };
        let stages = u8::try_from(nic.stages_count()).unwrap_or(u8::MAX);
        let cache = SubTraversalCache { policy, stages, nic: Some(nic) };
        self.explain_cached((key, None), traversal.version, &cache).map(Some)
    }

    fn explain_cached(
        &self,
        (key, start): Ingress<'_>,
        version: Version,
        cache: &SubTraversalCache,
    ) -> Result<TraceSubTraversals, TablesChanged> {
        let pipeline = &self.plane.pipeline;
        let noted = pipeline.translate_noted(key, start, version);
        let mut outline = TraversalOutline::new();
        outline_of(&noted, 0, &mut outline);
        let (policy, parts) = cache.partition(&outline);
        let reasons = PartitionReasons::new((policy, cache.stages), &noted, (&outline, &parts));
        let mut megaflow = reason_for_megaflow(&noted).map(str::to_owned);
        let mut refused = None;
        let visits = if megaflow.is_none() { reasons.visits() } else { Vec::new() };
        let mut own = pipeline.translate_sub_traversals(key, start, version, &visits);
        if own.len() > 1 {
            let stages_count = usize::from(cache.stages);
            let near = !own.iter().all(|part| part.limit_use.fits(stages_count));
            megaflow = if near {
                Some(
                    "one megaflow: its sub-traversals would come near a limit of the translation"
                        .to_owned(),
                )
            } else {
                cache.refusal(&own).map(|why| format!("one megaflow: for a sub-traversal, {why}"))
            };
            if megaflow.is_some() {
                own = pipeline.translate_sub_traversals(key, start, version, &[]);
            }
        }
        if !pipeline.is_retained(version) {
            return Err(TablesChanged);
        }
        if let [one] = &own[..] {
            refused = cache.refusal(std::slice::from_ref(one)).map(|why| why.to_string());
        }
        let bridges = self.bridges.lock();
        let is_megaflow = megaflow.is_some();
        let mut first = 0;
        let explained = own.iter().enumerate().map(|(number, part)| {
            let stage = parts.get(number).map_or(0, |part| part.stage.number());
            let explained =
                self.explain_sub_traversal(&bridges, (part, stage), (&reasons, first, is_megaflow));
            let cut = if is_megaflow { None } else { reasons.reason_to_partition(number) };
            first += part.traversal.visits.len();
            TraceSubTraversal { partitioned: cut, ..explained }
        });
        Ok(TraceSubTraversals {
            policy: cache.policy.to_string(),
            stages: cache.stages,
            sub_traversals: explained.collect(),
            not_partitioned: megaflow,
            not_offloaded: refused,
        })
    }

    fn explain_sub_traversal(
        &self,
        bridges: &BridgeRegistry,
        (part, stage): (&SubTraversal, u8),
        (reasons, first, is_megaflow): (&PartitionReasons<'_>, usize, bool),
    ) -> TraceSubTraversal {
        let traversal = &part.traversal;
        let tag_of = |start: &Arc<Continuation>| format!("tag={}", start.id());
        let id = BridgeId::new(u16::try_from(traversal.key.bridge()).unwrap_or_default());
        let tag = traversal.continuation.as_ref();
        let last = traversal.visits.len().saturating_sub(1);
        let step = |(number, visit): (usize, &Visit)| TraceStep {
            bridge: bridge_name(bridges, visit.bridge),
            table: visit.table.number(),
            joined: (number < last)
                .then(|| reasons.reason_to_join(first + number + 1, is_megaflow)),
        };
        let [from, to] = [first, first + traversal.visits.len()]
            .map(|visit| u16::try_from(visit).unwrap_or(u16::MAX));
        let mut mask = FlowMask::from(&traversal.mask);
        mask.words_mut()[..HEADER_START].fill(0);
        let names = BridgeNames::new(&self.plane.pipeline, id);
        TraceSubTraversal {
            stage,
            tag: tag.map_or_else(|| format!("bridge {}", bridge_name(bridges, id)), tag_of),
            tables: traversal.visits.iter().enumerate().map(step).collect(),
            fields: reasons.fields(&(from..to)).iter().map(Coupling::as_str).collect(),
            mask: describe(&(&traversal.key).into(), mask, &names),
            next: traversal.next.as_ref().map(tag_of),
            partitioned: None,
        }
    }
}

impl SubTraversalCache {
    /// Partitions a traversal; returns the policy and its result.
    fn partition(&self, outline: &TraversalOutline) -> (PolicyName, Vec<Placement>) {
        // A traversal without partition points goes to the stage that packets reach first.
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
            // A megaflow changes headers by its actions.
            let is_megaflow = parts.len() == 1;
            let rewrite = if is_megaflow { Match::any() } else { part.rewrite.clone() };
            let rule = rule_of(&part.traversal, rewrite, Tag::new(number), next, &mut masks);
            nic.check(&rule).err()
        })
    }
}

/// Returns the reason why a traversal is one megaflow or not cached.
fn reason_for_megaflow(noted: &NotedTraversal) -> Option<&'static str> {
    let traversal = &noted.traversal;
    if !traversal.learnings.is_empty() {
        Some("not cached: the packet makes the switch learn")
    } else if traversal.error.is_some() {
        Some("one megaflow: the translation reached a limit")
    } else if traversal.actions.iter().any(DatapathAction::recirculates) {
        Some("one megaflow: the packet is recirculated")
    } else {
        None
    }
}

impl TraceSubTraversals {
    /// Returns the lines of this part of a trace.
    pub(crate) fn to_text(&self, title: &str) -> String {
        let megaflow =
            self.not_partitioned.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let Self { policy, stages, .. } = self;
        let mut text = format!(
            "{title}: policy {policy}, {stages} stages, computed for empty stages{megaflow}\n"
        );
        if let Some(why) = &self.not_offloaded {
            text += &format!("  not offloaded: {why}\n");
        }
        text.extend(self.sub_traversals.iter().map(TraceSubTraversal::to_text));
        text
    }
}

impl TraceSubTraversal {
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
            if let Some(why) = &step.joined {
                text += &format!("     >> not partitioned after table {}: {why}\n", step.table);
            }
        }
        if let (Some(why), Some(step)) = (&self.partitioned, self.tables.last()) {
            text += &format!("     >> partitioned after table {}: {why}\n", step.table);
        }
        text
    }
}
