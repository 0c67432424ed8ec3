//! Flow monitor replies that are encoded as fast as the peer reads them.

use std::{collections::BTreeMap, sync::Arc, vec};

use shunt_pipeline::Rule;

use super::flow_monitors::ActiveMonitor;
use crate::{
    error::TooLong,
    message::{
        FlowMonitorFlags, FlowMonitorId, FlowUpdate, FlowUpdateEvent, FullFlowUpdate,
        MultipartReply, Xid,
    },
    monitor::RecordedChanges,
    wire::{
        Codec,
        part_writer::{PartWriter, ReplyEntry},
    },
};

/// The reply to a flow monitor request: the rules that exist.
#[derive(Debug)]
pub(super) struct ListingWriter {
    /// The rules of a version, also rules that no monitor selects.
    rules: vec::IntoIter<Arc<Rule>>,
    /// The monitors of the request that list rules.
    monitors: Vec<FlowMonitorId>,
    /// `None` after the last message.
    parts: Option<PartWriter>,
}

/// The updates about the rule changes of one version.
#[derive(Debug)]
pub(super) struct UpdateWriter {
    codec: Codec,
    recorded: RecordedChanges,
    /// Index of the next change.
    next: usize,
    /// True if the own request is already reported by its transaction id.
    is_abbreviated: bool,
    /// `None` before the first update and after the last message.
    parts: Option<PartWriter>,
}

/// The result of a call that writes updates.
#[derive(Debug)]
pub(super) enum UpdateStep {
    /// The next message with updates.
    Message(Vec<u8>),
    /// The caller must allow more comparisons of rules and monitors.
    Interrupted,
    /// All messages of the updates are written.
    Complete,
}

impl ListingWriter {
    /// Returns a writer of a reply in which no rule is written yet.
    pub(super) fn new(
        xid: Xid,
        rules: Vec<Arc<Rule>>,
        monitors: Vec<FlowMonitorId>,
        codec: Codec,
    ) -> Self {
        Self { rules: rules.into_iter(), monitors, parts: Some(begin(codec, xid)) }
    }

    /// Returns the next message.
    ///
    /// A rule that several monitors select is listed once. `checks_left` is the number of
    /// comparisons of rules and monitors that the call may make.
    ///
    /// # Errors
    ///
    /// A rule does not fit into a message and is left out.
    pub(super) fn next_message(
        &mut self,
        monitors: &BTreeMap<FlowMonitorId, ActiveMonitor>,
        checks_left: &mut usize,
    ) -> Result<UpdateStep, TooLong> {
        while *checks_left > 0 {
            let Some(rule) = self.rules.next() else { return finish(&mut self.parts) };
            let Some(parts) = &mut self.parts else { return Ok(UpdateStep::Complete) };
            *checks_left = checks_left.saturating_sub(self.monitors.len());
            let selecting = self.monitors.iter().filter_map(|id| monitors.get(id));
            let all_flags = selecting.filter_map(|monitor| monitor.flags_for_listed(&rule));
            let Some(flags) = merge_flags(all_flags) else { continue };
            let update = full_update(&rule, FlowUpdateEvent::Added, flags);
            if let Some(message) = parts.push(ReplyEntry::FlowUpdate(&update))? {
                return Ok(UpdateStep::Message(message));
            }
        }
        Ok(UpdateStep::Interrupted)
    }
}

impl UpdateWriter {
    /// Returns a writer of the updates before the first change is written.
    pub(super) const fn new(recorded: RecordedChanges, codec: Codec) -> Self {
        Self { codec, recorded, next: 0, is_abbreviated: false, parts: None }
    }

    /// Returns the next message.
    ///
    /// The result is empty if no monitor requests an update. `checks_left` is the number of
    /// comparisons of rules and monitors that the call may make.
    ///
    /// # Errors
    ///
    /// A rule does not fit into a message and is left out.
    pub(super) fn next_message(
        &mut self,
        monitors: &BTreeMap<FlowMonitorId, ActiveMonitor>,
        checks_left: &mut usize,
    ) -> Result<UpdateStep, TooLong> {
        while *checks_left > 0 {
            let Some(change) = self.recorded.changes.get(self.next) else {
                return finish(&mut self.parts);
            };
            self.next += 1;
            *checks_left = checks_left.saturating_sub(monitors.len().max(1));
            let all_flags = monitors.values().filter_map(|monitor| monitor.flags_for(change));
            let Some(flags) = merge_flags(all_flags) else { continue };
            let update = match self.recorded.own {
                Some(_) if !flags.own && self.is_abbreviated => continue,
                Some(xid) if !flags.own => {
                    self.is_abbreviated = true;
                    FlowUpdate::Abbreviated(xid)
                }
                _ => full_update(&change.rule, change.event, flags),
            };
            let codec = self.codec;
            let parts = self.parts.get_or_insert_with(|| begin(codec, Xid::NONE));
            if let Some(message) = parts.push(ReplyEntry::FlowUpdate(&update))? {
                return Ok(UpdateStep::Message(message));
            }
        }
        Ok(UpdateStep::Interrupted)
    }
}

/// Begins a reply to a flow monitor.
fn begin(codec: Codec, xid: Xid) -> PartWriter {
    codec.part_writer(xid, &MultipartReply::FlowMonitor(Vec::new()))
}

/// Returns the last message, if there is one.
fn finish(parts: &mut Option<PartWriter>) -> Result<UpdateStep, TooLong> {
    let Some(parts) = parts.take() else { return Ok(UpdateStep::Complete) };
    parts.finish().map(UpdateStep::Message)
}

/// Describes a change of `rule`, with the instructions if `flags` request them.
fn full_update(rule: &Rule, event: FlowUpdateEvent, flags: FlowMonitorFlags) -> FlowUpdate {
    let full = FullFlowUpdate::of(rule, event);
    FlowUpdate::Full(if flags.actions { full } else { full.without_instructions() })
}

/// Returns the flags of all monitors that request an update.
fn merge_flags(all_flags: impl Iterator<Item = FlowMonitorFlags>) -> Option<FlowMonitorFlags> {
    all_flags.reduce(|all, own| FlowMonitorFlags {
        actions: all.actions || own.actions,
        own: all.own || own.own,
        ..all
    })
}
