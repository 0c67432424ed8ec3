//! The results of a translation, and the hits of a translation without a record.

use std::sync::Arc;

use super::{
    learn_requests::LearnRequests, record::recorder::Recorder, working_packet::WorkingPacket,
};
use crate::{
    bridges::output_counter::OutputHit,
    decisions::hit_counts::HitCounts,
    id::{BridgeId, TableId},
    tables::rule::Rule,
    traversals::{
        datapath_action::DatapathAction,
        traversal::{GroupHit, TraversalError},
    },
};

/// The hits of a packet that is decided without a record.
pub(super) struct HitRecorder<'a> {
    pub(super) counts: &'a mut HitCounts,
    /// The slots of `HitCounts` in which the packet counts.
    pub(super) slots: &'a mut Vec<u32>,
}

impl HitRecorder<'_> {
    /// Counts a table lookup; `rule` is the rule that decided.
    pub(super) fn record_lookup(
        &mut self,
        bridge: BridgeId,
        table: TableId,
        rule: Option<&Arc<Rule>>,
    ) {
        self.slots.push(self.counts.of_lookup(bridge, table, rule));
    }
}

/// The results of a translation.
pub(super) struct TranslatedPacket {
    /// The actions for the datapath.
    pub(super) actions: Vec<DatapathAction>,
    pub(super) learn_requests: LearnRequests,
    /// The groups and buckets that the packet hit.
    pub(super) group_hits: Vec<GroupHit>,
    /// Mirrors and bonds that counted the packet; empty after an error.
    pub(super) output_hits: Vec<OutputHit>,
    /// The record of consulted bits and objects.
    pub(super) recorder: Recorder,
}

impl TranslatedPacket {
    /// Takes the results out of the packet, the learn requests and the hits.
    #[inline]
    pub(super) fn of(
        packet: WorkingPacket,
        result: &Result<(), TraversalError>,
        learn_requests: LearnRequests,
        group_hits: Vec<GroupHit>,
    ) -> Self {
        let WorkingPacket { builder, recorder, output_hits, .. } = packet;
        let output_hits = if result.is_ok() { output_hits } else { Vec::new() };
        Self { actions: builder.finish(), learn_requests, group_hits, output_hits, recorder }
    }
}
