//! The flow monitors of a connection (`NXST_FLOW_MONITOR`; ONF EXT-187).
//!
//! A monitor begins with a list of the rules that exist, and then reports their changes. The queue
//! records changes before the rules are listed. The list is of one version of the tables, and the
//! monitor ignores changes of that version and of earlier ones.
//!
//! Updates are written before the next request is handled. So a barrier reply follows the updates
//! of all earlier requests of the connection.
//!
//! A peer can have many monitors that select no rule. So other tasks run after [`CHECKS_MAX`]
//! comparisons of rules and monitors.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_flow::{Match, PortNo};
use shunt_pipeline::{Rule, RuleFilter, RuleListing, TableSelector, Version};

use super::{
    ConnectionConfig,
    update_writer::{ListingWriter, UpdateStep, UpdateWriter},
};
use crate::{
    ChangeOrigin, Host, MonitorQueue,
    error::ErrorCode,
    message::{FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, FlowUpdateEvent, Message, Xid},
    monitor::{MonitoredChange, QueuedChanges},
    wire::Codec,
};

/// Maximum number of flow monitors of a connection.
const MONITORS_MAX: usize = 1024;

/// Number of comparisons of rules and monitors after which other tasks run.
///
/// The comparisons of one rule with all monitors may exceed the number.
const CHECKS_MAX: usize = 1 << 16;

/// The flow monitors of one connection.
#[derive(Debug)]
pub(super) struct FlowMonitors {
    /// The monitors, by their ids.
    by_id: BTreeMap<FlowMonitorId, ActiveMonitor>,
    /// The changes to report; `None` without monitors.
    queue: Option<Arc<MonitorQueue>>,
    /// Number of waiting changes at which the queue is paused.
    changes_max: usize,
    /// The reply to a request that is being written.
    listing: Option<ListingWriter>,
    /// The updates that are being written.
    updates: Option<UpdateWriter>,
    /// Number of comparisons of rules and monitors until other tasks run.
    checks_left: usize,
}

/// A flow monitor.
#[derive(Debug)]
pub(super) struct ActiveMonitor {
    /// The changes to report, and the form of the updates.
    flags: FlowMonitorFlags,
    /// The condition on the rules.
    filter: RuleFilter,
    /// The version that was listed; the monitor reports later versions.
    since: Version,
}

impl FlowMonitors {
    /// Returns a store of no monitors. Pauses after `changes_max` waiting changes.
    pub(super) const fn new(changes_max: usize) -> Self {
        Self {
            by_id: BTreeMap::new(),
            queue: None,
            changes_max,
            listing: None,
            updates: None,
            checks_left: CHECKS_MAX,
        }
    }

    /// Allows [`CHECKS_MAX`] comparisons of rules and monitors.
    pub(super) const fn renew_checks(&mut self) {
        self.checks_left = CHECKS_MAX;
    }

    /// Returns whether other tasks must run before more comparisons.
    pub(super) const fn are_checks_spent(&self) -> bool {
        self.checks_left == 0
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
        let initial = || requests.iter().filter(|request| request.flags.initial);
        // One scan of the tables serves all monitors.
        let listing = match cover(initial().map(FlowMonitorRequest::filter)) {
            Some(filter) => queue.list(|| host.list_rules(&filter)),
            None => RuleListing { version: host.version(), rules: Vec::new() },
        };
        let ids = initial().map(|request| request.id).collect();
        self.listing = Some(ListingWriter::new(xid, listing.rules, ids, codec));
        for request in requests {
            let (flags, filter, since) = (request.flags, request.filter(), listing.version);
            self.by_id.insert(request.id, ActiveMonitor { flags, filter, since });
        }
        // The request may be empty.
        self.drop_unused_queue();
        Ok(())
    }

    /// Removes a flow monitor of the connection.
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

    /// Returns the next message to the peer; `None` also if no comparison is left.
    ///
    /// `is_read` is true if the peer has read all earlier messages. `config` names the peer in the
    /// log of rules that are left out.
    pub(super) fn next_message(
        &mut self,
        codec: Codec,
        is_read: bool,
        config: &ConnectionConfig,
    ) -> Option<Vec<u8>> {
        const TOO_LONG: &str =
            "a rule is too long for the updates of a flow monitor, and is left out";
        loop {
            if let Some(listing) = &mut self.listing {
                match listing.next_message(&self.by_id, &mut self.checks_left) {
                    Ok(UpdateStep::Message(message)) => return Some(message),
                    Ok(UpdateStep::Interrupted) => return None,
                    Ok(UpdateStep::Complete) => self.listing = None,
                    Err(error) => config.log_unencoded(&error, TOO_LONG),
                }
                continue;
            }
            if let Some(updates) = &mut self.updates {
                match updates.next_message(&self.by_id, &mut self.checks_left) {
                    Ok(UpdateStep::Message(message)) => return Some(message),
                    Ok(UpdateStep::Interrupted) => return None,
                    Ok(UpdateStep::Complete) => self.updates = None,
                    Err(error) => config.log_unencoded(&error, TOO_LONG),
                }
                continue;
            }
            let taken = self.queue.as_ref()?.take(is_read)?;
            match taken {
                QueuedChanges::Changes(recorded) => {
                    self.updates = Some(UpdateWriter::new(recorded, codec));
                }
                QueuedChanges::Paused => {
                    return notice(codec, &Message::FlowMonitorPaused, config);
                }
                QueuedChanges::Resumed => {
                    self.drop_unused_queue();
                    return notice(codec, &Message::FlowMonitorResumed, config);
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
    /// Returns the flags of the monitor if it selects `rule` for the list.
    pub(super) fn flags_for_listed(&self, rule: &Rule) -> Option<FlowMonitorFlags> {
        self.filter.selects(rule).then_some(self.flags)
    }

    /// Returns the flags of the monitor if it requests an update about `change`.
    ///
    /// A rule that was added during a pause may also have been modified since. So the net effect is
    /// for monitors of modifications, too, as in Open vSwitch.
    pub(super) fn flags_for(&self, change: &MonitoredChange) -> Option<FlowMonitorFlags> {
        let is_requested = match change.event {
            FlowUpdateEvent::Added => self.flags.add || change.is_net && self.flags.modify,
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

/// Returns a filter that selects at least the rules of all these filters.
///
/// The result is `None` without filters.
fn cover(filters: impl Iterator<Item = RuleFilter>) -> Option<RuleFilter> {
    filters.reduce(|all, own| RuleFilter {
        table: if all.table == own.table { own.table } else { TableSelector::All },
        matching: if all.matching == own.matching { own.matching } else { Match::any() },
        out_port: if all.out_port == own.out_port { own.out_port } else { PortNo::ANY },
        ..RuleFilter::all()
    })
}

/// Encodes a message without content.
fn notice(codec: Codec, message: &Message, config: &ConnectionConfig) -> Option<Vec<u8>> {
    let loss = "an update of a flow monitor cannot be encoded, and is lost";
    let encoded = codec.encode(Xid::NONE, message);
    encoded.inspect_err(|error| config.log_unencoded(error, loss)).ok()
}
