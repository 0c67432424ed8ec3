//! Generators of messages.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{Match, PortNo, testing::any_match};
use shunt_pipeline::{
    Action, Cookie, FlowFlags, FlowMod, FlowModCommand, Instructions, PacketInReason, PortConfig,
    Priority, QueueId, RemovedReason, RuleFilter, TableId, TableSelector,
};

use super::{
    action::{any_actions, any_instructions, any_table, short_port},
    flow_monitor::any_flow_monitor_message,
    group::{any_group, any_group_mod, any_meter, any_meter_mod, any_reply},
};
use crate::{
    error::ErrorNumber,
    message::{
        AggregateStatistics, AsyncConfig, AsyncMasks, BundleAdd, BundleCommand, BundleControl,
        BundleFlags, BundleId, ErrorMessage, Features, FlowRemoved, FlowStatistics, Generation,
        Hello, LinkFeatures, Message, MultipartReply, MultipartRequest, PacketIn, PacketInFormat,
        PacketOut, PortDescription, PortMod, PortStatistics, PortStatus, PortStatusReason,
        QueueConfig, QueueDescription, QueueFilter, QueueStatistics, ReportedPortCounters,
        RoleMessage, RoleName, SwitchConfig, SwitchDescription, TableFeatures, TableMod,
        TableStatistics, Xid,
    },
    wire::v13::COOKIE_UNCHANGED,
};

/// Generates messages that decoding returns unchanged after encoding.
pub fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        any_session_message(),
        any_packet_message(),
        any_change(),
        any_multipart_request(),
        any_multipart_reply(),
        any_flow_monitor_message(),
    ]
}

/// Generates a message about the connection: hello, error, echo, role, settings.
fn any_session_message() -> impl Strategy<Value = Message> {
    let payload = || vec(any::<u8>(), 0..64);
    let hello = (any::<u8>(), option::of(any::<u32>()))
        .prop_map(|(version, bitmap)| Message::Hello(Hello { version, bitmap }));
    let number = prop_oneof![
        (0..0xffff_u16, any::<u16>()).prop_map(|(kind, code)| ErrorNumber::Standard { kind, code }),
        (any::<u32>(), any::<u16>())
            .prop_map(|(experimenter, code)| ErrorNumber::Experimenter { experimenter, code }),
    ];
    let error = (number, payload())
        .prop_map(|(number, data)| Message::Error(ErrorMessage { number, data }));
    let role = (
        select(vec![RoleName::NoChange, RoleName::Equal, RoleName::Master, RoleName::Slave]),
        any::<u64>(),
    )
        .prop_map(|(role, generation)| RoleMessage {
            role,
            generation: Some(Generation(generation)),
        });
    let formats = vec![PacketInFormat::Standard, PacketInFormat::Nicira, PacketInFormat::Nicira2];
    prop_oneof![
        hello,
        error,
        payload().prop_map(Message::EchoRequest),
        payload().prop_map(Message::EchoReply),
        select(vec![
            Message::FeaturesRequest,
            Message::GetConfigRequest,
            Message::BarrierRequest,
            Message::BarrierReply,
            Message::GetAsyncRequest,
        ]),
        any_features().prop_map(|features| Message::FeaturesReply { features, ports: Vec::new() }),
        any::<u16>().prop_map(|miss_send_len| Message::SetConfig(SwitchConfig { miss_send_len })),
        role.clone().prop_map(Message::RoleRequest),
        role.prop_map(Message::RoleReply),
        any_async().prop_map(Message::SetAsync),
        any_async().prop_map(Message::GetAsyncReply),
        any::<u32>().prop_map(|port| Message::QueueConfigRequest(PortNo::new(port))),
        any_queue_config().prop_map(Message::QueueConfigReply),
        select(formats).prop_map(Message::SetPacketInFormat),
        any::<u16>().prop_map(Message::SetControllerId),
    ]
}

/// Generates a features reply of a switch.
fn any_features() -> impl Strategy<Value = Features> {
    (any::<u64>(), any::<u32>(), any::<u8>(), any::<u8>(), any::<u32>()).prop_map(
        |(datapath_id, buffers_count, tables_count, auxiliary_id, capabilities)| Features {
            datapath_id,
            buffers_count,
            tables_count,
            auxiliary_id,
            capabilities,
        },
    )
}

/// Generates the masks of asynchronous messages for masters and slaves.
fn any_async() -> impl Strategy<Value = AsyncConfig> {
    let masks = |[packet_in, port_status, flow_removed]: [u32; 3]| AsyncMasks {
        packet_in,
        port_status,
        flow_removed,
    };
    any::<([u32; 3], [u32; 3])>()
        .prop_map(move |(master, slave)| AsyncConfig { master: masks(master), slave: masks(slave) })
}

/// Generates a packet-in, packet-out or resume message.
fn any_packet_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        any_packet_in().prop_map(Message::PacketIn),
        any_packet_in().prop_map(Message::NiciraPacketIn),
        any_packet_in2().prop_map(Message::PacketIn2),
        any_packet_in2().prop_map(Message::Resume),
        any_packet_out().prop_map(Message::PacketOut),
    ]
}

/// Generates a packet-in with its whole frame, and without user data.
fn any_packet_in() -> impl Strategy<Value = PacketIn> {
    let reasons = vec![PacketInReason::NoMatch, PacketInReason::Action, PacketInReason::InvalidTtl];
    let packet = (select(reasons), any_table(), any::<u64>(), any_match(), vec(any::<u8>(), 0..99));
    packet.prop_map(|(reason, table, cookie, metadata, data)| PacketIn {
        reason,
        table,
        cookie: Cookie::new(cookie),
        metadata,
        userdata: Vec::new(),
        continuation: Vec::new(),
        length: u32::try_from(data.len()).unwrap_or(u32::MAX),
        data,
    })
}

/// Generates a packet-in with user data, and often a frame that was cut.
fn any_packet_in2() -> impl Strategy<Value = PacketIn> {
    let few = || vec(any::<u8>(), 0..9);
    let packet = (any_packet_in(), few(), few(), 0..100_u32);
    packet.prop_map(|(packet, userdata, continuation, cut)| {
        let length = packet.length + cut;
        PacketIn { userdata, continuation, length, ..packet }
    })
}

/// Generates a packet-out from a usual or reserved ingress port.
fn any_packet_out() -> impl Strategy<Value = PacketOut> {
    let in_port = prop_oneof![
        (0..=PortNo::MAX.number()).prop_map(PortNo::new),
        select(vec![PortNo::LOCAL, PortNo::CONTROLLER, PortNo::ANY]),
    ];
    (in_port, any_actions(), vec(any::<u8>(), 0..99))
        .prop_map(|(in_port, actions, data)| PacketOut { in_port, actions, data })
}

/// Generates a request to change the switch, or a notice of a change.
fn any_change() -> impl Strategy<Value = Message> {
    prop_oneof![
        any_bundlable(),
        any_meter_mod().prop_map(Message::MeterMod),
        option::of(any_table()).prop_map(|table| Message::TableMod(TableMod { table })),
        (any::<u32>(), select(BUNDLE_COMMANDS), any_bundle_flags()).prop_map(
            |(bundle, command, flags)| {
                let bundle = BundleId(bundle);
                Message::BundleControl(BundleControl { bundle, command, flags })
            }
        ),
        any_flow_removed().prop_map(Message::FlowRemoved),
        (any_port(), select(PORT_REASONS))
            .prop_map(|(port, reason)| Message::PortStatus(PortStatus { reason, port })),
    ]
}

/// Generates messages that a bundle can hold.
fn any_bundlable() -> impl Strategy<Value = Message> {
    prop_oneof![
        any_flow_mod().prop_map(Message::FlowMod),
        any_packet_out().prop_map(Message::PacketOut),
        any_port_mod().prop_map(Message::PortMod),
        any_group_mod().prop_map(Message::GroupMod),
    ]
}

/// All commands of a bundle message.
const BUNDLE_COMMANDS: &[BundleCommand] = &[
    BundleCommand::Open,
    BundleCommand::Opened,
    BundleCommand::Close,
    BundleCommand::Closed,
    BundleCommand::Commit,
    BundleCommand::Committed,
    BundleCommand::Discard,
    BundleCommand::Discarded,
];

/// All reasons of a port status message.
const PORT_REASONS: &[PortStatusReason] =
    &[PortStatusReason::Add, PortStatusReason::Delete, PortStatusReason::Modify];

/// Generates the `atomic` and `ordered` flags of a bundle.
fn any_bundle_flags() -> impl Strategy<Value = BundleFlags> {
    any::<(bool, bool)>().prop_map(|(atomic, ordered)| BundleFlags { atomic, ordered })
}

/// Generates bundle-add messages with transaction id `xid`, inside and outside.
pub fn any_bundle_add(xid: Xid) -> impl Strategy<Value = BundleAdd> {
    (any::<u32>(), any_bundle_flags(), any_bundlable()).prop_map(move |(bundle, flags, message)| {
        BundleAdd { bundle: BundleId(bundle), flags, xid, message: Box::new(message) }
    })
}

/// Generates flow-mods that OpenFlow 1.3 can express.
pub fn any_flow_mod() -> impl Strategy<Value = FlowMod> {
    let cookie_mask = prop_oneof![Just(0), any::<u64>()];
    let words = (any::<u64>(), cookie_mask, any::<u16>(), short_port(), any::<u32>());
    let commands = vec![
        FlowModCommand::Add,
        FlowModCommand::Modify,
        FlowModCommand::ModifyStrict,
        FlowModCommand::Delete,
        FlowModCommand::DeleteStrict,
    ];
    let rest = (any_timeout(), any_timeout(), any_flags(), any_instructions());
    (select(commands), option::of(any_table()), any_match(), words, rest).prop_map(
        |(command, table, matching, words, (idle_timeout, hard_timeout, flags, instructions))| {
            let (cookie, cookie_mask, priority, out_port, out_group) = words;
            let is_delete =
                matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
            let is_modify =
                matches!(command, FlowModCommand::Modify | FlowModCommand::ModifyStrict);
            let all = if is_delete { TableSelector::All } else { TableSelector::One(TableId::MAX) };
            FlowMod {
                command,
                table: table.map_or(all, TableSelector::One),
                matching,
                priority: Priority::new(priority),
                cookie: if is_modify && cookie_mask == 0 {
                    COOKIE_UNCHANGED
                } else {
                    Cookie::new(cookie)
                },
                cookie_mask: if command == FlowModCommand::Add { 0 } else { cookie_mask },
                idle_timeout,
                hard_timeout,
                importance: 0,
                flags,
                out_port: if is_delete { out_port } else { PortNo::ANY },
                out_group: if is_delete { out_group } else { RuleFilter::GROUP_ANY },
                instructions: if is_delete { Instructions::default() } else { instructions },
            }
        },
    )
}

/// Generates the flags of a rule, never with `modify_or_add`.
fn any_flags() -> impl Strategy<Value = FlowFlags> {
    any::<[bool; 5]>().prop_map(|bits| {
        let [send_flow_removed, check_overlap, reset_counts, no_packet_counts, no_byte_counts] =
            bits;
        FlowFlags {
            send_flow_removed,
            check_overlap,
            reset_counts,
            no_packet_counts,
            no_byte_counts,
            modify_or_add: false,
        }
    })
}

/// Generates a timeout of whole seconds that fits 16 bits.
fn any_timeout() -> impl Strategy<Value = Duration> {
    any::<u16>().prop_map(|seconds| Duration::from_secs(seconds.into()))
}

/// Generates an age of seconds and nanoseconds as in OpenFlow.
pub(super) fn any_duration() -> impl Strategy<Value = Duration> {
    (any::<u32>(), 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanoseconds)| Duration::new(seconds.into(), nanoseconds))
}

/// Generates a flow-removed message.
fn any_flow_removed() -> impl Strategy<Value = FlowRemoved> {
    let reasons = vec![
        RemovedReason::IdleTimeout,
        RemovedReason::HardTimeout,
        RemovedReason::Delete,
        RemovedReason::GroupDelete,
    ];
    let times = (any_duration(), any_timeout(), any_timeout());
    let words = any::<(u64, u64, u64, u16)>();
    (select(reasons), any_table(), any_match(), times, words).prop_map(
        |(reason, table, matching, (duration, idle_timeout, hard_timeout), words)| {
            let (cookie, packets, bytes, priority) = words;
            FlowRemoved {
                table,
                reason,
                duration,
                priority: Priority::new(priority),
                idle_timeout,
                hard_timeout,
                cookie: Cookie::new(cookie),
                packets,
                bytes,
                matching,
            }
        },
    )
}

/// Generates port settings, never with `no_flood`.
fn any_config() -> impl Strategy<Value = PortConfig> {
    any::<[bool; 4]>().prop_map(|[port_down, no_recv, no_fwd, no_packet_in]| PortConfig {
        port_down,
        no_recv,
        no_fwd,
        no_packet_in,
        no_flood: false,
    })
}

/// Generates the description of a port.
fn any_port() -> impl Strategy<Value = PortDescription> {
    let link = any::<[u32; 6]>().prop_map(
        |[current, advertised, supported, peer, speed_kbps, speed_max_kbps]| LinkFeatures {
            current,
            advertised,
            supported,
            peer,
            speed_kbps,
            speed_max_kbps,
        },
    );
    let state = any::<(bool, bool)>();
    (any::<u32>(), any::<[u8; 6]>(), "[a-z0-9]{0,15}", any_config(), state, link).prop_map(
        |(number, mac, name, config, (link_up, is_live), link)| PortDescription {
            number: PortNo::new(number),
            mac,
            name,
            config,
            link_up,
            is_live,
            link,
        },
    )
}

/// Generates a request to change the settings of a port.
fn any_port_mod() -> impl Strategy<Value = PortMod> {
    (any::<u32>(), any::<[u8; 6]>(), any_config(), any_config(), any::<u32>()).prop_map(
        |(port, mac, config, mask, advertise)| PortMod {
            port: PortNo::new(port),
            mac,
            config,
            mask,
            advertise,
        },
    )
}

/// Generates a filter of rules by table, match, cookie, port and group.
fn any_filter() -> impl Strategy<Value = RuleFilter> {
    let table = prop_oneof![Just(TableSelector::All), any_table().prop_map(TableSelector::One)];
    (table, any_match(), short_port(), any::<(u64, u64, u32)>()).prop_map(
        |(table, matching, out_port, (cookie, cookie_mask, out_group))| RuleFilter {
            table,
            matching,
            cookie: Cookie::new(cookie),
            cookie_mask,
            out_port,
            out_group,
        },
    )
}

/// Generates a request for statistics or descriptions.
fn any_multipart_request() -> impl Strategy<Value = Message> {
    let meter = || option::of(any_meter());
    let queue = (any::<u32>(), option::of(0..u32::MAX)).prop_map(|(port, queue)| {
        let queue = queue.map(QueueId::new);
        MultipartRequest::Queue(QueueFilter { port: PortNo::new(port), queue })
    });
    let request = prop_oneof![
        select(vec![
            MultipartRequest::Description,
            MultipartRequest::Table,
            MultipartRequest::GroupDescription(None),
            MultipartRequest::GroupFeatures,
            MultipartRequest::MeterFeatures,
            MultipartRequest::TableFeatures,
            MultipartRequest::PortDescription,
        ]),
        any_filter().prop_map(MultipartRequest::Flow),
        any_filter().prop_map(MultipartRequest::Aggregate),
        any::<u32>().prop_map(|port| MultipartRequest::Port(PortNo::new(port))),
        queue,
        option::of(any_group()).prop_map(MultipartRequest::Group),
        meter().prop_map(MultipartRequest::Meter),
        meter().prop_map(MultipartRequest::MeterConfig),
    ];
    request.prop_map(Message::MultipartRequest)
}

/// Generates one part of a reply with statistics or descriptions.
fn any_multipart_reply() -> impl Strategy<Value = Message> {
    let text = || "[ -~]{0,40}";
    let description = (text(), text(), text(), "[0-9]{0,31}", text()).prop_map(
        |(manufacturer, hardware, software, serial, datapath)| SwitchDescription {
            manufacturer,
            hardware,
            software,
            serial,
            datapath,
        },
    );
    let table =
        (any_table(), any::<(u32, u64, u64)>()).prop_map(|(table, (active, lookups, matches))| {
            TableStatistics { table, active, lookups, matches }
        });
    let features = (any_table(), "[ -~]{0,31}", any::<u32>())
        .prop_map(|(table, name, entries_max)| TableFeatures { table, name, entries_max });
    let port = (any::<u32>(), any::<u64>(), any_duration()).prop_map(|(port, count, duration)| {
        let counters =
            ReportedPortCounters { tx_bytes: count, collisions: !count, ..<_>::default() };
        PortStatistics { port: PortNo::new(port), counters, duration }
    });
    let reply = prop_oneof![
        description.prop_map(MultipartReply::Description),
        vec(any_flow_statistics(), 0..4).prop_map(MultipartReply::Flow),
        any::<(u64, u64, u32)>().prop_map(|(packets, bytes, flows)| {
            MultipartReply::Aggregate(AggregateStatistics { packets, bytes, flows })
        }),
        vec(table, 0..4).prop_map(MultipartReply::Table),
        vec(port, 0..4).prop_map(MultipartReply::Port),
        vec(any_queue_statistics(), 0..4).prop_map(MultipartReply::Queue),
        any_reply(),
        vec(features, 0..3).prop_map(MultipartReply::TableFeatures),
        vec(any_port(), 0..4).prop_map(MultipartReply::PortDescription),
    ];
    (any::<bool>(), reply).prop_map(|(more, reply)| Message::MultipartReply { more, reply })
}

/// Generates the counters of a queue.
fn any_queue_statistics() -> impl Strategy<Value = QueueStatistics> {
    let counts = any::<(u64, u64, u64)>();
    (any::<(u32, u32)>(), counts, any_duration()).prop_map(|((port, queue), counts, duration)| {
        let (tx_bytes, tx_packets, tx_errors) = counts;
        let (port, queue) = (PortNo::new(port), QueueId::new(queue));
        QueueStatistics { port, queue, tx_bytes, tx_packets, tx_errors, duration }
    })
}

/// Generates the queues of a port; a rate of `None` is not set.
fn any_queue_config() -> impl Strategy<Value = QueueConfig> {
    let rate = || option::of(0..=1000_u16);
    let queue =
        (any::<(u32, u32)>(), rate(), rate()).prop_map(|((port, queue), min_rate, max_rate)| {
            let (port, queue) = (PortNo::new(port), QueueId::new(queue));
            QueueDescription { port, queue, min_rate, max_rate }
        });
    (any::<u32>(), vec(queue, 0..4))
        .prop_map(|(port, queues)| QueueConfig { port: PortNo::new(port), queues })
}

/// Generates the entry of a rule in a flow statistics reply.
pub(super) fn any_flow_statistics() -> impl Strategy<Value = FlowStatistics> {
    let times = (any_duration(), any_timeout(), any_timeout());
    let words = any::<(u64, u64, u64, u16)>();
    (any_table(), any_match(), times, words, any_flags(), any_instructions()).prop_map(
        |(table, matching, times, words, flags, instructions)| {
            let (duration, idle_timeout, hard_timeout) = times;
            let (cookie, packets, bytes, priority) = words;
            // If the match has a transport protocol, the write of a port is listed in another form.
            let is_port_written = instructions.apply.iter().any(writes_port);
            let matching = if is_port_written { Match::any() } else { matching };
            FlowStatistics {
                table,
                duration,
                priority: Priority::new(priority),
                idle_timeout,
                hard_timeout,
                flags,
                cookie: Cookie::new(cookie),
                packets,
                bytes,
                matching,
                instructions: Arc::new(instructions),
            }
        },
    )
}

/// Returns whether an action or its nested actions write a transport port.
fn writes_port(action: &Action) -> bool {
    match action {
        Action::Clone(nested) => nested.iter().any(writes_port),
        _ => matches!(action, Action::SetTpSrc(_) | Action::SetTpDst(_)),
    }
}
