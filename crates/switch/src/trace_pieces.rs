//! How a chain of stages keeps the way of a traced packet: where it is cut, by whom, and where it is
//! not and why.
//!
//! The policy is asked with stages that are empty: what is in the stages of a packet thread decides in
//! which stage a piece lies, and sometimes where ways of equal worth are cut.

use std::sync::Arc;

use serde::Serialize;
use shunt_flow::{FlowKey, FlowMask, layout::HEADER_START};
use shunt_gigaflow::{
    partition::{Piece, Policy as _, PolicyName, StageSet, Stages},
    rule_of::way_of,
    way::{Candidate, Way},
};
use shunt_pipeline::{
    BridgeId, Continuation, DatapathAction, NotedTraversal, Traversal, TraversalPiece, Visit,
};

use crate::{
    bridges::Bridges,
    config::{CacheKind, Gigaflow},
    control::Control,
    names::BridgeNames,
    trace::{bridge_name, describe},
};

/// The way of a packet, as a chain of stages keeps it.
#[derive(Clone, Debug, Serialize)]
pub struct TracePieces {
    /// Where ways are cut, as the configuration says it.
    pub policy: String,
    /// Stages of a chain.
    pub stages: u8,
    /// Why it is not cut, or not kept at all, if that is so.
    pub whole: Option<&'static str>,
    /// The pieces, first to last.
    pub pieces: Vec<TracePiece>,
}

/// A piece of the way.
#[derive(Clone, Debug, Serialize)]
pub struct TracePiece {
    /// The stage that it goes to where all have room.
    pub stage: u8,
    /// The name of the state that packets come with: that of a bridge, or the number of a cut.
    pub tag: String,
    /// The tables that it visits. Behind each but the last stands why it is not cut there.
    pub tables: Vec<TraceStep>,
    /// The headers under which packets share it, as they are when they come to it.
    pub mask: String,
    /// The name of the state that packets leave with; `None`: their way is over.
    pub next: Option<String>,
}

/// A table that a piece visits.
#[derive(Clone, Debug, Serialize)]
pub struct TraceStep {
    /// The bridge.
    pub bridge: String,
    /// The table.
    pub table: u8,
    /// Why the way goes on uncut to the next table of the piece; `None`: it is the last.
    pub uncut: Option<&'static str>,
}

/// Stages with room for everything.
struct Empty(u8);

impl Stages for Empty {
    fn count(&self) -> u8 {
        self.0
    }

    fn holders(&self, _: &Candidate) -> StageSet {
        StageSet::EMPTY
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(self.0)
    }
}

/// No state has a name there: something is to be put back, or cannot be told.
const NAMELESS: &str = "inside a clone, bucket or peer bridge, or behind a meter";
/// The policy found no use in it.
const UNWANTED: &str = "the policy keeps it together";

impl Control {
    /// How the way of a packet is kept, where a chain of stages keeps ways.
    pub(crate) fn explain_pieces(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        traversal: &Traversal,
    ) -> Option<TracePieces> {
        let caches = self.config.lock().caches.clone();
        if caches.kind != CacheKind::Gigaflow {
            return None;
        }
        let (pipeline, version) = (&self.plane.pipeline, traversal.version);
        let noted = pipeline.translate_noting(key, start, version);
        let mut whole = whole(&noted);
        let parts = partition(&noted, &caches.gigaflow);
        let cuts: Vec<usize> =
            parts.iter().skip(1).map(|part| usize::from(part.steps.start)).collect();
        let cuts = if whole.is_none() { cuts } else { Vec::new() };
        let mut pieces = pipeline.translate_pieces(key, start, version, &cuts);
        let stages_count = usize::from(caches.gigaflow.stages);
        if pieces.len() > 1 && !pieces.iter().all(|piece| piece.spending.fits(stages_count)) {
            whole = Some("one entry: its pieces come near to a bound");
            pieces = pipeline.translate_pieces(key, start, version, &[]);
        }
        let bridges = self.bridges.lock();
        let mut visits_before = 0;
        let explained = pieces.iter().enumerate().map(|(number, piece)| {
            let stage = parts.get(number).map_or(0, |part| part.stage.number());
            let explained = self.explain_piece(&bridges, piece, stage, (&noted, visits_before));
            visits_before += piece.traversal.visits.len();
            explained
        });
        let policy = caches.gigaflow.policy.name().to_string();
        Some(TracePieces {
            policy,
            stages: caches.gigaflow.stages,
            whole,
            pieces: explained.collect(),
        })
    }

    fn explain_piece(
        &self,
        bridges: &Bridges,
        piece: &TraversalPiece,
        stage: u8,
        (noted, visits_before): (&NotedTraversal, usize),
    ) -> TracePiece {
        let traversal = &piece.traversal;
        let cut = |start: &Arc<Continuation>| format!("cut {:#x}", start.id());
        let id = BridgeId::new(u16::try_from(traversal.key.bridge()).unwrap_or_default());
        let tag = traversal.continuation.as_ref();
        let last = traversal.visits.len().saturating_sub(1);
        let step = |(number, visit): (usize, &Visit)| TraceStep {
            bridge: bridge_name(bridges, visit.bridge),
            table: visit.table.number(),
            uncut: (number < last).then(|| {
                let behind = visits_before + number + 1;
                let has_name = noted.points.iter().any(|point| point.visit == behind);
                if has_name { UNWANTED } else { NAMELESS }
            }),
        };
        let mut mask = FlowMask::from(&traversal.mask);
        mask.words_mut()[..HEADER_START].fill(0);
        let names = BridgeNames::new(&self.plane.pipeline, id);
        TracePiece {
            stage,
            tag: tag.map_or_else(|| format!("bridge {}", bridge_name(bridges, id)), cut),
            tables: traversal.visits.iter().enumerate().map(step).collect(),
            mask: describe(&(&traversal.key).into(), mask, &names),
            next: traversal.next.as_ref().map(cut),
        }
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

fn partition(noted: &NotedTraversal, config: &Gigaflow) -> Vec<Piece> {
    let mut way = Way::new();
    way_of(noted, 0, &mut way);
    // What cannot be cut goes where packets meet it before any piece.
    let is_uncut = way.legs_count() == 1 && way.steps_count() > 1;
    let policy = if is_uncut { PolicyName::Megaflow } else { config.policy.name() };
    policy.policy(0).partition(&way, &Empty(config.stages)).to_vec()
}

impl TracePieces {
    pub(crate) fn to_text(&self) -> String {
        let whole = self.whole.map(|why| format!("; {why}")).unwrap_or_default();
        let Self { policy, stages, .. } = self;
        let mut text =
            format!("Pieces: policy {policy}, {stages} stages, as if these were empty{whole}\n");
        for piece in &self.pieces {
            let tables: Vec<String> =
                piece.tables.iter().map(|own| own.table.to_string()).collect();
            let tables = if tables.is_empty() { "none".to_owned() } else { tables.join(" ") };
            let next = piece.next.as_deref().unwrap_or("end");
            text += &format!(
                "  stage {}: tables {tables}; {} to {next}; {}\n",
                piece.stage,
                piece.tag,
                if piece.mask.is_empty() { "any packet" } else { &piece.mask },
            );
            for step in &piece.tables {
                if let Some(why) = step.uncut {
                    text += &format!("     >> not cut behind table {}: {why}\n", step.table);
                }
            }
        }
        text
    }
}
