//! Generators of flow monitor requests and updates.

use proptest::{collection::vec, prelude::*, sample::select};
use shunt_flow::testing::any_match;
use shunt_pipeline::{RemovedReason, TableSelector};

use super::{
    action::{any_table, short_port},
    message::any_flow_statistics,
};
use crate::message::{
    FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, FlowUpdate, FlowUpdateEvent,
    FullFlowUpdate, Message, MultipartReply, MultipartRequest, Xid,
};

/// Generates the messages of flow monitors.
pub(super) fn any_flow_monitor_message() -> impl Strategy<Value = Message> {
    let request = vec(any_request(), 0..4).prop_map(MultipartRequest::FlowMonitor);
    let reply = (any::<bool>(), vec(any_update(), 0..4));
    prop_oneof![
        request.prop_map(Message::MultipartRequest),
        reply.prop_map(|(more, updates)| {
            Message::MultipartReply { more, reply: MultipartReply::FlowMonitor(updates) }
        }),
        any::<u32>().prop_map(|id| Message::FlowMonitorCancel(FlowMonitorId(id))),
        select(vec![Message::FlowMonitorPaused, Message::FlowMonitorResumed]),
    ]
}

/// Generates flags that request some updates.
fn any_flags() -> impl Strategy<Value = FlowMonitorFlags> {
    (1..8_u8, any::<[bool; 3]>()).prop_map(|(updates, [initial, actions, own])| FlowMonitorFlags {
        initial,
        add: updates & 1 != 0,
        delete: updates & 2 != 0,
        modify: updates & 4 != 0,
        actions,
        own,
    })
}

/// Generates a request for a flow monitor.
fn any_request() -> impl Strategy<Value = FlowMonitorRequest> {
    let table = prop_oneof![Just(TableSelector::All), any_table().prop_map(TableSelector::One)];
    (any::<u32>(), short_port(), any_flags(), table, any_match()).prop_map(
        |(id, out_port, flags, table, matching)| FlowMonitorRequest {
            id: FlowMonitorId(id),
            flags,
            table,
            matching,
            out_port,
        },
    )
}

/// Generates a full or abbreviated flow update.
fn any_update() -> impl Strategy<Value = FlowUpdate> {
    let reasons = [
        RemovedReason::IdleTimeout,
        RemovedReason::HardTimeout,
        RemovedReason::Delete,
        RemovedReason::GroupDelete,
        RemovedReason::MeterDelete,
        RemovedReason::Eviction,
    ];
    let mut events = vec![FlowUpdateEvent::Added, FlowUpdateEvent::Modified];
    events.extend(reasons.map(FlowUpdateEvent::Deleted));
    let full = (select(events), any_flow_statistics()).prop_map(|(event, flow)| {
        FlowUpdate::Full(FullFlowUpdate {
            event,
            table: flow.table,
            priority: flow.priority,
            idle_timeout: flow.idle_timeout,
            hard_timeout: flow.hard_timeout,
            cookie: flow.cookie,
            matching: flow.matching,
            instructions: flow.instructions,
        })
    });
    prop_oneof![full, any::<u32>().prop_map(|xid| FlowUpdate::Abbreviated(Xid::new(xid)))]
}
