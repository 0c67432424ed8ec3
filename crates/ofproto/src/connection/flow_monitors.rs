//! The flow monitors of a connection (`NXST_FLOW_MONITOR`; ONF EXT-187).
//!
//! A monitor begins with a list of the rules that exist, and then reports their changes. The queue
//! records changes before the rules are listed. The list is of one version of the tables, and the
//! monitor ignores changes of that version and of earlier ones.
//!
//! Updates are written before the next request is handled. So a barrier reply follows the updates
//! of all earlier requests of the connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_pipeline::{Rule, RuleFilter, RuleListing, Version};

use super::update_writer::{InitialRule, ListingWriter, UpdateWriter};
use crate::{
    ChangeOrigin, Host, MonitorQueue,
    error::{ErrorCode, TooLong},
    message::{FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, FlowUpdateEvent, Message, Xid},
    monitor::{MonitoredChange, QueuedChanges},
    wire::Codec,
};

/// Maximum number of flow monitors of a connection.
const MONITORS_MAX: usize = 1024;

/// The flow monitors of one connection.
#[derive(Debug)]
pub(super) struct FlowMonitors {
    by_id: BTreeMap<FlowMonitorId, ActiveMonitor>,
    /// The changes to report; `None` without monitors.
    queue: Option<Arc<MonitorQueue>>,
    /// Number of waiting changes at which the queue is paused.
    changes_max: usize,
    /// The reply to a request that is being written.
    listing: Option<ListingWriter>,
    /// The updates that are being written.
    updates: Option<UpdateWriter>,
}

/// A flow monitor.
#[derive(Debug)]
pub(super) struct ActiveMonitor {
    flags: FlowMonitorFlags,
    filter: RuleFilter,
    /// The version that was listed; the monitor reports later versions.
    since: Version,
}

impl FlowMonitors {
    pub(super) const fn new(changes_max: usize) -> Self {
        Self { by_id: BTreeMap::new(), queue: None, changes_max, listing: None, updates: None }
    }

    /// Adds all monitors of request `xid` or none, and begins the reply.
    pub(super) fn add<H: Host>(
        &mut self,
        xid: Xid,
        requests: Vec<FlowMonitorRequest>,
        host: &H,
        codec: Codec,
    ) -> Result<(), ErrorCode> {
        let mut ids = BTreeSet::new();
        let is_used = |id: FlowMonitorId| self.by_id.contains_key(&id) || !ids.insert(id);
        if requests.iter().map(|request| request.id).any(is_used) {
            return Err(ErrorCode::MonitorExists);
        }
        if self.by_id.len() + requests.len() > MONITORS_MAX {
            return Err(ErrorCode::MonitorTableFull);
        }
        let queue = self.queue.get_or_insert_with(|| {
            let queue = Arc::new(MonitorQueue::new(self.changes_max));
            host.monitor(&queue);
            queue
        });
        let mut listed = BTreeMap::new();
        for request in requests {
            let (flags, filter) = (request.flags, request.filter());
            let listing = if flags.initial {
                queue.list(|| host.list_rules(&filter))
            } else {
                RuleListing { version: host.version(), rules: Vec::new() }
            };
            for rule in listing.rules {
                // A rule that several monitors select is listed once.
                let own = listed.entry((rule.table, rule.id));
                let own = own.or_insert_with(|| InitialRule::new(&rule));
                own.rule = rule;
                own.has_actions |= flags.actions;
            }
            let monitor = ActiveMonitor { flags, filter, since: listing.version };
            self.by_id.insert(request.id, monitor);
        }
        self.listing = Some(ListingWriter::new(xid, listed.into_values().collect(), codec));
        // The request may be empty.
        self.drop_unused_queue();
        Ok(())
    }

    /// Removes a monitor.
    pub(super) fn cancel(&mut self, id: FlowMonitorId) -> Result<(), ErrorCode> {
        self.by_id.remove(&id).ok_or(ErrorCode::MonitorUnknown)?;
        self.drop_unused_queue();
        Ok(())
    }

    /// Returns the origin of the changes of request `xid`.
    pub(super) fn origin(&self, xid: Xid) -> ChangeOrigin {
        ChangeOrigin::new(self.queue.clone(), xid)
    }

    /// Returns the queue of the monitors; `None` without monitors.
    pub(super) fn queue(&self) -> Option<Arc<MonitorQueue>> {
        self.queue.clone()
    }

    /// Returns the next message to the peer.
    ///
    /// `is_read` is true if the peer has read all earlier messages.
    pub(super) fn next_message(&mut self, codec: Codec, is_read: bool) -> Option<Vec<u8>> {
        loop {
            if let Some(listing) = &mut self.listing {
                match listing.next_message() {
                    Ok(Some(message)) => return Some(message),
                    Ok(None) => self.listing = None,
                    Err(error) => log_long(error),
                }
                continue;
            }
            if let Some(updates) = &mut self.updates {
                match updates.next_message(&self.by_id) {
                    Ok(Some(message)) => return Some(message),
                    Ok(None) => self.updates = None,
                    Err(error) => log_long(error),
                }
                continue;
            }
            let taken = self.queue.as_ref()?.take(is_read)?;
            match taken {
                QueuedChanges::Changes(recorded) => {
                    self.updates = Some(UpdateWriter::new(recorded, codec));
                }
                QueuedChanges::Paused => return notice(codec, &Message::FlowMonitorPaused),
                QueuedChanges::Resumed => {
                    self.drop_unused_queue();
                    return notice(codec, &Message::FlowMonitorResumed);
                }
            }
        }
    }

    /// Drops the queue if there is no monitor and the peer waits for no notice.
    fn drop_unused_queue(&mut self) {
        if self.by_id.is_empty() {
            self.queue.take_if(|queue| !queue.is_paused());
        }
    }
}

impl ActiveMonitor {
    /// Returns the flags of the monitor if it requests an update about `change`.
    pub(super) fn flags_for(&self, change: &MonitoredChange) -> Option<FlowMonitorFlags> {
        let is_requested = match change.event {
            FlowUpdateEvent::Added => self.flags.add,
            FlowUpdateEvent::Deleted(_) => self.flags.delete,
            FlowUpdateEvent::Modified => self.flags.modify,
        };
        let is_selected = |rule: &Rule| self.filter.selects(rule);
        let is_wanted = is_requested
            && change.version > self.since
            && (is_selected(&change.rule) || change.previous.as_deref().is_some_and(is_selected));
        is_wanted.then_some(self.flags)
    }
}

/// Encodes a message without content.
fn notice(codec: Codec, message: &Message) -> Option<Vec<u8>> {
    let encoded = codec.encode(Xid::NONE, message);
    encoded.inspect_err(|error| tracing::error!(%error, "a notice could not be encoded")).ok()
}

fn log_long(error: TooLong) {
    tracing::error!(%error, "a rule is too long for a flow monitor and is left out");
}
