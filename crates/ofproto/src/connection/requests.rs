//! Handles each kind of OpenFlow request.

use bytes::Bytes;
use shunt_pipeline::{FlowMod, Group, GroupId, GroupMod, Modification, PortConfig, Time};

use super::{
    Connection, WarningKind, change_log,
    endpoint::{Wait, WaitingRequest},
    statistics::{self, FlowReply, FlowReplyForm},
};
use crate::{
    Host,
    error::{ErrorCode, RequestRefusal, TooLong},
    message::{
        BundleCommand, BundleControl, BundleFlags, FlowStatistics, GroupDescription, Message,
        MultipartReply, MultipartRequest, PortDescription, PortMod, RoleName, SwitchConfig, Xid,
    },
    wire::{Codec, header::Header, v10::V10Settings},
};

/// Length above which a flow-mod is checked to fit into a statistics reply.
///
/// Actions of one version are up to three times as long in another version: `OFPAT_ENQUEUE` has 16
/// bytes, and its three actions of OpenFlow 1.3 have 40. So the rule of a shorter flow-mod fits.
const FLOW_MOD_LONG: usize = 1 << 14;

/// Clients of these versions list all rules and groups.
const LISTING_CODECS: [Codec; 2] = [Codec::NEWEST, Codec::V10(V10Settings::INITIAL)];

/// A request with its encoded frame, for error messages, and its time.
struct ReceivedRequest<'a> {
    xid: Xid,
    frame: &'a Bytes,
    now: Time,
}

impl Connection {
    /// Handles one OpenFlow message from the peer.
    pub(super) fn handle<H: Host>(
        &mut self,
        header: &Header,
        frame: &Bytes,
        host: &H,
        now: Time,
    ) -> Result<(), RequestRefusal> {
        if self.codec.is_from_switch(header.kind) {
            return Err(ErrorCode::BadType.into());
        }
        if self.codec.is_multipart_request(header.kind) {
            let whole =
                self.assemblies.take(header.xid, frame, &self.config.limits, now, self.codec)?;
            return whole.map_or(Ok(()), |request| {
                self.handle_multipart_request(header.xid, request, host, now)
            });
        }
        let (xid, message) = self.codec.decode(frame)?;
        if is_change(&message) && self.role() == RoleName::Slave {
            return Err(ErrorCode::IsSlave.into());
        }
        match message {
            Message::EchoRequest(payload) => self.reply(xid, &Message::EchoReply(payload), now),
            Message::FeaturesRequest => {
                let has_ports = self.codec.has_ports_in_features();
                let ports = if has_ports { host.ports() } else { Vec::new() };
                let features = host.features();
                self.reply(xid, &Message::FeaturesReply { features, ports }, now);
            }
            Message::QueueConfigRequest(port) => {
                let config = statistics::queue_config(port, host)?;
                self.reply(xid, &Message::QueueConfigReply(config), now);
            }
            Message::FlowMod(flow_mod) => {
                check_flow_mod(&flow_mod, frame.len(), self.codec)?;
                self.modify(xid, flow_mod.into(), host)?;
            }
            Message::GroupMod(group_mod) => {
                check_group_mod(&group_mod)?;
                self.modify(xid, group_mod.into(), host)?;
            }
            Message::MeterMod(meter_mod) => self.modify(xid, meter_mod.into(), host)?,
            Message::PacketOut(packet) => {
                crate::check_packet_out(&packet, host.vlan_limit(), self.codec.absent_fields())?;
                host.check_actions(&packet.actions)?;
                host.packet_out(packet);
                self.packets_sent = true;
            }
            Message::Resume(packet) => {
                host.resume(packet)?;
                self.packets_sent = true;
            }
            Message::PortMod(port_mod) => {
                let config = check_port_mod(&port_mod, &host.ports())?;
                self.changed = Some(host.set_port_config(port_mod.port, config));
            }
            Message::BundleControl(control) => {
                self.control_bundle(control, &ReceivedRequest { xid, frame, now }, host)?;
            }
            Message::BundleAdd(add) => {
                let inside = self.codec.bundled_message(frame);
                self.bundles.add(add, inside, &self.config.limits, host, self.codec)?;
            }
            // OpenFlow 1.3 defines no table setting.
            Message::TableMod(_) => {}
            Message::BarrierRequest => self.reply_to_barrier(xid, now),
            message => self.configure(xid, message, now)?,
        }
        Ok(())
    }

    /// Handles requests that concern the connection itself.
    fn configure(&mut self, xid: Xid, message: Message, now: Time) -> Result<(), ErrorCode> {
        match message {
            Message::GetConfigRequest => {
                let miss_send_len = self.subscription.miss_send_len;
                self.reply(xid, &Message::GetConfigReply(SwitchConfig { miss_send_len }), now);
            }
            Message::SetConfig(config) => self.subscription.miss_send_len = config.miss_send_len,
            Message::RoleRequest(request) => {
                let granted = self.roles.grant(self.id, request, &mut self.requested_role)?;
                self.reply(xid, &Message::RoleReply(granted), now);
            }
            Message::GetAsyncRequest => {
                self.reply(xid, &Message::GetAsyncReply(self.subscription.config), now);
            }
            Message::SetAsync(config) => self.subscription.config = config,
            Message::SetPacketInFormat(format) => self.subscription.format = format,
            Message::SetControllerId(id) => self.subscription.controller_id = id,
            Message::SetFlowFormat(format) => self.codec = self.codec.with_flow_format(format),
            Message::FlowMonitorCancel(id) => self.monitors.cancel(id)?,
            Message::FlowModTableId(is_on) => self.codec = self.codec.with_table_ids(is_on),
            Message::EchoReply(_) => {}
            Message::Error(error) => {
                // A reply to an error could start an endless exchange of errors.
                let number = error.number;
                let is_logged = self.warn(WarningKind::PeerError, now, |peer, suppressed| {
                    tracing::warn!(peer, suppressed, ?number, "the peer sent an error message");
                });
                if !is_logged {
                    let peer = self.config.peer.as_str();
                    tracing::debug!(peer, ?number, "the peer sent an error message");
                }
            }
            // A second hello, or a message that only a switch sends.
            _ => return Err(ErrorCode::BadType),
        }
        Ok(())
    }

    /// Applies a modification; its version is then the last change of the peer.
    fn modify<H: Host>(
        &mut self,
        xid: Xid,
        request: Modification,
        host: &H,
    ) -> Result<(), RequestRefusal> {
        let modified = host.modify(vec![request], &self.monitors.origin(xid));
        self.changed = Some(modified.map_err(|rejected| rejected.error)?);
        Ok(())
    }

    /// Executes a request that opens, closes, commits or discards a bundle.
    fn control_bundle<H: Host>(
        &mut self,
        control: BundleControl,
        request: &ReceivedRequest<'_>,
        host: &H,
    ) -> Result<(), RequestRefusal> {
        let ReceivedRequest { xid, frame, now } = *request;
        let command = if control.command == BundleCommand::Commit {
            let frames = match change_log::is_enabled() {
                true => self.bundles.frames(control.bundle),
                false => Vec::new(),
            };
            match self.bundles.commit(control, host, &self.monitors)? {
                Ok(version) => {
                    frames.iter().for_each(|frame| self.log_change(frame, host));
                    self.changed = version.or(self.changed);
                    // The bundle may contain packet-outs.
                    self.packets_sent = true;
                }
                Err(failure) => {
                    self.refuse(failure.xid, &failure.refusal, &failure.frame, now);
                    self.refuse(xid, &ErrorCode::BundleMessageFailed.into(), frame, now);
                    return Ok(());
                }
            }
            BundleCommand::Committed
        } else {
            self.bundles.control(control, &self.config.limits, now)?
        };
        // Flags have no meaning in a reply, and Open vSwitch sends none.
        let flags = BundleFlags::default();
        self.reply(xid, &Message::BundleControl(BundleControl { command, flags, ..control }), now);
        Ok(())
    }

    /// Replies to a barrier after all threads have adopted the earlier changes.
    ///
    /// The packet-outs that arrived before the barrier have then been executed, too.
    fn reply_to_barrier(&mut self, xid: Xid, now: Time) {
        match self.changed {
            None => self.reply_after_packets(xid, now),
            Some(version) => {
                self.waiting = Some((Wait::Adopted(version), WaitingRequest::Barrier(xid)));
            }
        }
    }

    /// Replies to a barrier after earlier packet-outs have been executed.
    ///
    /// Threads execute packets and report counters in the order of the requests.
    fn reply_after_packets(&mut self, xid: Xid, now: Time) {
        if std::mem::take(&mut self.packets_sent) {
            self.waiting = Some((Wait::Counts, WaitingRequest::Barrier(xid)));
        } else {
            self.reply(xid, &Message::BarrierReply, now);
        }
    }

    /// Handles a multipart request, after threads have reported the counters it needs.
    fn handle_multipart_request<H: Host>(
        &mut self,
        xid: Xid,
        request: MultipartRequest,
        host: &H,
        now: Time,
    ) -> Result<(), RequestRefusal> {
        if let MultipartRequest::FlowMonitor(monitors) = request {
            self.monitors.add(xid, monitors, host, self.codec)?;
            return Ok(());
        }
        statistics::check(&request, host)?;
        if statistics::is_counted(&request) {
            self.waiting = Some((Wait::Counts, WaitingRequest::Statistics(xid, request)));
            return Ok(());
        }
        let reply = statistics::reply(&request, host, self.codec);
        self.send_parts(xid, &reply, now);
        Ok(())
    }

    /// Finishes a request that waited.
    pub(super) fn finish<H: Host>(&mut self, waiting: WaitingRequest, host: &H, now: Time) {
        match waiting {
            WaitingRequest::Barrier(xid) => self.reply_after_packets(xid, now),
            WaitingRequest::Statistics(xid, MultipartRequest::Flow(filter)) => {
                let rules = host.rules(&filter);
                self.flows =
                    Some(FlowReply::new(xid, FlowReplyForm::Standard, rules, now, self.codec));
            }
            WaitingRequest::Statistics(xid, MultipartRequest::NiciraFlow(filter)) => {
                let rules = host.rules(&filter);
                self.flows =
                    Some(FlowReply::new(xid, FlowReplyForm::Nicira, rules, now, self.codec));
            }
            WaitingRequest::Statistics(xid, request) => {
                let reply = statistics::reply(&request, host, self.codec);
                self.send_parts(xid, &reply, now);
            }
        }
    }

    /// Queues a multipart reply, without the entries that are too long.
    pub(super) fn send_parts(&mut self, xid: Xid, reply: &MultipartReply, now: Time) {
        let mut leave_out = |error: TooLong| {
            let loss = "an entry is too long for a reply, and is left out";
            self.config.log_unencoded(&error, loss);
        };
        match self.codec.encode_reply(xid, reply, &mut leave_out) {
            Ok(parts) => parts.into_iter().for_each(|part| self.output.send(part, now)),
            Err(error) => {
                self.config.log_unencoded(&error, "a reply cannot be encoded, and is not sent");
            }
        }
    }
}

/// Returns whether a slave may not send the message.
const fn is_change(message: &Message) -> bool {
    matches!(
        message,
        Message::PacketOut(_)
            | Message::Resume(_)
            | Message::FlowMod(_)
            | Message::GroupMod(_)
            | Message::PortMod(_)
            | Message::TableMod(_)
            | Message::MeterMod(_)
            | Message::BundleControl(_)
            | Message::BundleAdd(_)
    )
}

/// Checks a flow-mod of `length` bytes.
///
/// The rule of the flow-mod must also fit into a statistics reply, which has a longer header.
pub(super) fn check_flow_mod(
    flow_mod: &FlowMod,
    length: usize,
    codec: Codec,
) -> Result<(), RequestRefusal> {
    crate::check_flow_mod(flow_mod, codec.absent_fields())?;
    if length <= FLOW_MOD_LONG {
        return Ok(());
    }
    let entry = FlowStatistics {
        table: shunt_pipeline::TableId::FIRST,
        duration: std::time::Duration::ZERO,
        priority: flow_mod.priority,
        idle_timeout: flow_mod.idle_timeout,
        hard_timeout: flow_mod.hard_timeout,
        flags: flow_mod.flags,
        cookie: flow_mod.cookie,
        packets: 0,
        bytes: 0,
        matching: flow_mod.matching.clone(),
        instructions: std::sync::Arc::new(flow_mod.instructions.clone()),
    };
    let replies =
        [MultipartReply::Flow(vec![entry.clone()]), MultipartReply::NiciraFlow(vec![entry])];
    for (codec, reply) in LISTING_CODECS.into_iter().zip(replies) {
        let reply = Message::MultipartReply { more: false, reply };
        codec.encode(Xid::NONE, &reply).map_err(|_| ErrorCode::ActionTooMany)?;
    }
    Ok(())
}

/// Checks a group-mod.
///
/// The group must also fit into a group description reply of each version.
pub(super) fn check_group_mod(group_mod: &GroupMod) -> Result<(), RequestRefusal> {
    crate::check_group_mod(group_mod)?;
    if group_mod.buckets.len() > Group::BUCKETS_MAX || !is_listable(group_mod) {
        return Err(ErrorCode::GroupBucketsFull.into());
    }
    Ok(())
}

/// Returns whether a group fits into a group description reply of each version.
///
/// `group_mod` has all buckets of the group.
#[must_use]
pub fn is_listable(group_mod: &GroupMod) -> bool {
    let entry = GroupDescription {
        group: GroupId::ALL,
        kind: group_mod.kind,
        selection: group_mod.selection.clone(),
        buckets: group_mod.buckets.clone(),
    };
    let reply = MultipartReply::GroupDescription(vec![entry]);
    let reply = Message::MultipartReply { more: false, reply };
    LISTING_CODECS.iter().all(|codec| codec.encode(Xid::NONE, &reply).is_ok())
}

/// Checks a port-mod and returns the new settings of its port.
pub(super) fn check_port_mod(
    port_mod: &PortMod,
    ports: &[PortDescription],
) -> Result<PortConfig, ErrorCode> {
    let port = ports.iter().find(|port| port.number == port_mod.port);
    let port = port.ok_or(ErrorCode::PortModPort)?;
    if port.mac != port_mod.mac {
        return Err(ErrorCode::PortModAddress);
    }
    // Controllers repeat the advertised features if they do not want to change them.
    if port_mod.advertise != 0 && port_mod.advertise != port.link.advertised {
        return Err(ErrorCode::PortModAdvertise);
    }
    Ok(port_mod.apply_to(port.config))
}
