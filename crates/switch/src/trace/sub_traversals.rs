//! How a chain of stages keeps the way of a traced packet, in the packet threads or in the NIC in front
//! of them: where it is cut and where not, by whom and why.
//!
//! The policy is asked with stages that are empty: what is in the stages of a packet thread decides in
//! which stage a piece lies, and sometimes where ways of equal worth are cut.

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
    control::Control,
    ports::{bridges::Bridges, names::BridgeNames},
    trace::{
        error::Overtaken,
        explain::{bridge_name, describe},
        partition::Cuts,
    },
};

/// The way of a packet, as a chain of stages keeps it.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSubTraversals {
    /// Where ways are cut, as the configuration says it.
    pub policy: String,
    /// Stages of a chain.
    pub stages: u8,
    /// Why it is not cut, or not kept at all, if that is so.
    pub whole: Option<String>,
    /// Why a NIC cannot hold it, so that its packets stay with the switch.
    pub refused: Option<String>,
    /// The pieces, first to last.
    pub pieces: Vec<TraceSubTraversal>,
}

/// A piece of the way.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSubTraversal {
    /// The stage that it goes to where all have room.
    pub stage: u8,
    /// The name of the state that packets come with: that of a bridge, or the number of a cut.
    pub tag: String,
    /// The tables that it visits. Behind each but the last stands why it is not cut there.
    pub tables: Vec<TraceStep>,
    /// The fields that it looks at, of those by which policies tell what belongs together.
    pub fields: Vec<&'static str>,
    /// The headers under which packets share it, as they are when they come to it.
    pub mask: String,
    /// The name of the state that packets leave with; `None`: their way is over.
    pub next: Option<String>,
    /// Why the way is cut behind it; `None`: it is the last.
    pub cut: Option<String>,
}

/// A table that a piece visits.
#[derive(Clone, Debug, Serialize)]
pub struct TraceStep {
    /// The bridge.
    pub bridge: String,
    /// The table.
    pub table: u8,
    /// Why the way goes on uncut to the next table of the piece; `None`: it is the last.
    pub uncut: Option<String>,
}

/// Where ways are kept: by whom they are cut, for how many stages, and what these hold.
struct Keeper {
    policy: PolicyName,
    stages: u8,
    /// What a NIC can hold; stages of packet threads hold anything.
    nic: Option<OffloadCapabilities>,
}

/// A packet, from where it comes in or goes on.
type Ingress<'a> = (&'a FlowKey, Option<&'a Arc<Continuation>>);

impl Control {
    /// How the way of a packet is kept, where the packet threads keep ways in a chain of stages.
    pub(crate) fn explain_pieces(
        &self,
        ingress: Ingress<'_>,
        traversal: &Traversal,
    ) -> Result<Option<TraceSubTraversals>, Overtaken> {
        let caches = self.config.lock().caches.clone();
        let (policy, stages) = (caches.gigaflow.policy.name(), caches.gigaflow.stages);
        if caches.kind != CacheKind::Gigaflow {
            return Ok(None);
        }
        let keeper = Keeper { policy, stages, nic: None };
        self.explain_kept(ingress, traversal.version, &keeper).map(Some)
    }

    /// How the way of a packet is kept by the NIC that it comes in by.
    pub(crate) fn explain_nic_pieces(
        &self,
        key: &FlowKey,
        traversal: &Traversal,
    ) -> Result<Option<TraceSubTraversals>, Overtaken> {
        let bridge = u16::try_from(key.bridge()).ok().map(BridgeId::new);
        let front = self.nic();
        let held = front.zip(bridge).and_then(|(front, bridge)| {
            let nic = front.holds(bridge, key.in_port())?;
            Some((front.policy(), nic))
        });
        let Some((policy, nic)) = held else { return Ok(None) };
        let stages = u8::try_from(nic.stages_count()).unwrap_or(u8::MAX);
        let keeper = Keeper { policy, stages, nic: Some(nic) };
        self.explain_kept((key, None), traversal.version, &keeper).map(Some)
    }

    fn explain_kept(
        &self,
        (key, start): Ingress<'_>,
        version: Version,
        keeper: &Keeper,
    ) -> Result<TraceSubTraversals, Overtaken> {
        let pipeline = &self.plane.pipeline;
        let noted = pipeline.translate_noted(key, start, version);
        let mut way = TraversalOutline::new();
        outline_of(&noted, 0, &mut way);
        let (policy, parts) = keeper.partition(&way);
        let cuts = Cuts::new((policy, keeper.stages), &noted, (&way, &parts));
        let mut whole = whole(&noted).map(str::to_owned);
        let mut refused = None;
        let visits = if whole.is_none() { cuts.visits() } else { Vec::new() };
        let mut pieces = pipeline.translate_sub_traversals(key, start, version, &visits);
        if pieces.len() > 1 {
            let stages_count = usize::from(keeper.stages);
            let near = !pieces.iter().all(|piece| piece.limit_use.fits(stages_count));
            whole = if near {
                Some("one entry: its pieces come near to a bound".to_owned())
            } else {
                keeper.refusal(&pieces).map(|why| format!("one entry: of a piece, {why}"))
            };
            if whole.is_some() {
                pieces = pipeline.translate_sub_traversals(key, start, version, &[]);
            }
        }
        if !pipeline.is_retained(version) {
            return Err(Overtaken);
        }
        if let [one] = &pieces[..] {
            refused = keeper.refusal(std::slice::from_ref(one)).map(|why| why.to_string());
        }
        let bridges = self.bridges.lock();
        let is_one = whole.is_some();
        let mut first = 0;
        let explained = pieces.iter().enumerate().map(|(number, piece)| {
            let stage = parts.get(number).map_or(0, |part| part.stage.number());
            let explained = self.explain_piece(&bridges, (piece, stage), (&cuts, first, is_one));
            let cut = if is_one { None } else { cuts.why_cut(number) };
            first += piece.traversal.visits.len();
            TraceSubTraversal { cut, ..explained }
        });
        Ok(TraceSubTraversals {
            policy: keeper.policy.to_string(),
            stages: keeper.stages,
            pieces: explained.collect(),
            whole,
            refused,
        })
    }

    fn explain_piece(
        &self,
        bridges: &Bridges,
        (piece, stage): (&SubTraversal, u8),
        (cuts, first, is_one): (&Cuts<'_>, usize, bool),
    ) -> TraceSubTraversal {
        let traversal = &piece.traversal;
        let cut = |start: &Arc<Continuation>| format!("recirc_id={}", start.id());
        let id = BridgeId::new(u16::try_from(traversal.key.bridge()).unwrap_or_default());
        let tag = traversal.continuation.as_ref();
        let last = traversal.visits.len().saturating_sub(1);
        let step = |(number, visit): (usize, &Visit)| TraceStep {
            bridge: bridge_name(bridges, visit.bridge),
            table: visit.table.number(),
            uncut: (number < last).then(|| cuts.why_uncut(first + number + 1, is_one)),
        };
        let [from, to] = [first, first + traversal.visits.len()]
            .map(|visit| u16::try_from(visit).unwrap_or(u16::MAX));
        let mut mask = FlowMask::from(&traversal.mask);
        mask.words_mut()[..HEADER_START].fill(0);
        let names = BridgeNames::new(&self.plane.pipeline, id);
        TraceSubTraversal {
            stage,
            tag: tag.map_or_else(|| format!("bridge {}", bridge_name(bridges, id)), cut),
            tables: traversal.visits.iter().enumerate().map(step).collect(),
            fields: cuts.fields(&(from..to)).iter().map(Coupling::as_str).collect(),
            mask: describe(&(&traversal.key).into(), mask, &names),
            next: traversal.next.as_ref().map(cut),
            cut: None,
        }
    }
}

impl Keeper {
    /// Where it cuts a way, and by which policy.
    fn partition(&self, way: &TraversalOutline) -> (PolicyName, Vec<Placement>) {
        // What cannot be cut goes where packets meet it before any piece.
        let is_uncut = way.segments_count() == 1 && way.steps_count() > 1;
        let policy = if is_uncut { PolicyName::Megaflow } else { self.policy };
        (policy, policy.policy(0).partition(way, &EmptyStages(self.stages)).to_vec())
    }

    /// Why the first of these pieces that it cannot hold cannot be held.
    fn refusal(&self, pieces: &[SubTraversal]) -> Option<Refusal> {
        let nic = self.nic.as_ref()?;
        let (mut masks, mut behind) = (HeaderMasks::default(), pieces.len());
        pieces.iter().zip(0..).find_map(|(piece, number)| {
            behind -= 1;
            let next = if behind == 0 { Next::End } else { Next::Tag(Tag::new(number + 1)) };
            // What is one entry makes its headers by its actions.
            let is_one = pieces.len() == 1;
            let rewrite = if is_one { Match::any() } else { piece.rewrite.clone() };
            let rule = rule_of(&piece.traversal, rewrite, Tag::new(number), next, &mut masks);
            nic.check(&rule).err()
        })
    }
}

/// Why a way is one entry, or none.
fn whole(noted: &NotedTraversal) -> Option<&'static str> {
    let traversal = &noted.traversal;
    if !traversal.learnings.is_empty() {
        Some("not kept: it teaches")
    } else if traversal.error.is_some() {
        Some("one entry: it ends at a bound")
    } else if traversal.actions.iter().any(DatapathAction::recirculates) {
        Some("one entry: it is parsed again")
    } else {
        None
    }
}

impl TraceSubTraversals {
    /// The lines about the chain of the packet threads, or of a NIC, as the title says.
    pub(crate) fn to_text(&self, title: &str) -> String {
        let whole = self.whole.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let Self { policy, stages, .. } = self;
        let mut text =
            format!("{title}: policy {policy}, {stages} stages, as if these were empty{whole}\n");
        if let Some(why) = &self.refused {
            text += &format!("  not held: {why}\n");
        }
        text.extend(self.pieces.iter().map(TraceSubTraversal::to_text));
        text
    }
}

impl TraceSubTraversal {
    fn to_text(&self) -> String {
        let tables: Vec<String> = self.tables.iter().map(|own| own.table.to_string()).collect();
        let tables = if tables.is_empty() { "none".to_owned() } else { tables.join(" ") };
        let Self { stage, tag, fields, mask, .. } = self;
        let next = self.next.as_deref().unwrap_or("end");
        let mask = if mask.is_empty() { "any packet" } else { mask };
        let mut text = format!("  stage {stage}: tables {tables}; {tag} to {next}; {mask}\n");
        let fields =
            if fields.is_empty() { "no coupling field".to_owned() } else { fields.join(", ") };
        text += &format!("     looks at {fields}\n");
        for step in &self.tables {
            if let Some(why) = &step.uncut {
                text += &format!("     >> not cut behind table {}: {why}\n", step.table);
            }
        }
        if let (Some(why), Some(step)) = (&self.cut, self.tables.last()) {
            text += &format!("     >> cut behind table {}: {why}\n", step.table);
        }
        text
    }
}
