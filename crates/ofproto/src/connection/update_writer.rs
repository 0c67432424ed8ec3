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
    monitor::{MonitoredChange, RecordedChanges},
    wire::{
        Codec,
        part_writer::{PartWriter, ReplyEntry},
    },
};

/// A rule that exists when its monitors begin.
#[derive(Debug)]
pub(super) struct InitialRule {
    pub(super) rule: Arc<Rule>,
    /// True if a monitor requests the actions.
    pub(super) has_actions: bool,
}

/// The reply to a flow monitor request: the rules that exist.
#[derive(Debug)]
pub(super) struct ListingWriter {
    rules: vec::IntoIter<InitialRule>,
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

impl InitialRule {
    pub(super) fn new(rule: &Arc<Rule>) -> Self {
        Self { rule: Arc::clone(rule), has_actions: false }
    }
}

impl ListingWriter {
    pub(super) fn new(xid: Xid, rules: Vec<InitialRule>, codec: Codec) -> Self {
        Self { rules: rules.into_iter(), parts: Some(begin(codec, xid)) }
    }

    /// Returns the next message; `None` after the last one.
    ///
    /// # Errors
    ///
    /// A rule does not fit into a message and is left out.
    pub(super) fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let Some(parts) = &mut self.parts else { return Ok(None) };
        for InitialRule { rule, has_actions } in self.rules.by_ref() {
            let full = FullFlowUpdate::of(&rule, FlowUpdateEvent::Added);
            let full = if has_actions { full } else { full.without_instructions() };
            if let Some(message) = parts.push(ReplyEntry::FlowUpdate(&FlowUpdate::Full(full)))? {
                return Ok(Some(message));
            }
        }
        self.parts.take().map(PartWriter::finish).transpose()
    }
}

impl UpdateWriter {
    pub(super) const fn new(recorded: RecordedChanges, codec: Codec) -> Self {
        Self { codec, recorded, next: 0, is_abbreviated: false, parts: None }
    }

    /// Returns the next message; `None` after the last one.
    ///
    /// There is no message if no monitor requests an update.
    ///
    /// # Errors
    ///
    /// A rule does not fit into a message and is left out.
    pub(super) fn next_message(
        &mut self,
        monitors: &BTreeMap<FlowMonitorId, ActiveMonitor>,
    ) -> Result<Option<Vec<u8>>, TooLong> {
        while let Some(change) = self.recorded.changes.get(self.next) {
            self.next += 1;
            let Some(flags) = merged_flags(monitors, change) else { continue };
            let update = match self.recorded.own {
                Some(_) if !flags.own && self.is_abbreviated => continue,
                Some(xid) if !flags.own => {
                    self.is_abbreviated = true;
                    FlowUpdate::Abbreviated(xid)
                }
                _ => {
                    let full = FullFlowUpdate::of(&change.rule, change.event);
                    FlowUpdate::Full(if flags.actions { full } else { full.without_instructions() })
                }
            };
            let codec = self.codec;
            let parts = self.parts.get_or_insert_with(|| begin(codec, Xid::NONE));
            if let Some(message) = parts.push(ReplyEntry::FlowUpdate(&update))? {
                return Ok(Some(message));
            }
        }
        self.parts.take().map(PartWriter::finish).transpose()
    }
}

fn begin(codec: Codec, xid: Xid) -> PartWriter {
    codec.part_writer(xid, &MultipartReply::FlowMonitor(Vec::new()))
}

/// Returns the flags of all monitors that request an update about `change`.
fn merged_flags(
    monitors: &BTreeMap<FlowMonitorId, ActiveMonitor>,
    change: &MonitoredChange,
) -> Option<FlowMonitorFlags> {
    let wanted = monitors.values().filter_map(|monitor| monitor.flags_for(change));
    wanted.reduce(|all, own| FlowMonitorFlags {
        actions: all.actions || own.actions,
        own: all.own || own.own,
        ..all
    })
}
