//! What each request does.

use bytes::Bytes;
use shunt_pipeline::{FlowMod, GroupId, GroupMod, Modification, PortConfig, Time};

use super::{
    Connection,
    endpoint::{Wait, Waiting},
    statistics::{self, FlowReply},
};
use crate::{
    Host,
    error::ErrorCode,
    message::{
        BundleCommand, BundleControl, BundleFlags, FlowStatistics, GroupDescription, Message,
        MultipartReply, MultipartRequest, PortDescription, PortMod, RoleName, SwitchConfig, Xid,
    },
    wire::{Codec, header::Header},
};

/// Length of a flow-mod from which on it is tried whether its rule fits into a statistics reply.
const FLOW_MOD_LONG: usize = 1 << 15;

/// The most buckets of a group: their counters fit into one message.
const BUCKETS_MAX: usize = 4000;

/// A request as it came.
struct Request<'a> {
    xid: Xid,
    frame: &'a Bytes,
    now: Time,
}

impl Connection {
    /// Does what a message asks.
    pub(super) fn obey<H: Host>(
        &mut self,
        header: &Header,
        frame: &Bytes,
        host: &H,
        now: Time,
    ) -> Result<(), ErrorCode> {
        if self.codec.is_from_switch(header.kind) {
            return Err(ErrorCode::BadType);
        }
        if self.codec.is_multipart_request(header.kind) {
            let whole =
                self.assemblies.take(header.xid, frame, &self.config.limits, now, self.codec)?;
            return whole.map_or(Ok(()), |request| self.ask(header.xid, request, host, now));
        }
        let (xid, message) = self.codec.decode(frame)?;
        if is_change(&message) && self.role() == RoleName::Slave {
            return Err(ErrorCode::IsSlave);
        }
        match message {
            Message::EchoRequest(payload) => self.reply(xid, &Message::EchoReply(payload), now),
            Message::FeaturesRequest => {
                self.reply(xid, &Message::FeaturesReply(host.features()), now);
            }
            Message::QueueConfigRequest(port) => {
                statistics::check_queues(port, host)?;
                self.reply(xid, &Message::QueueConfigReply(port), now);
            }
            Message::FlowMod(flow_mod) => {
                check_flow_mod(&flow_mod, frame.len(), self.codec)?;
                self.modify(flow_mod.into(), host)?;
            }
            Message::GroupMod(group_mod) => {
                check_group_mod(&group_mod, self.codec)?;
                self.modify(group_mod.into(), host)?;
            }
            Message::MeterMod(meter_mod) => self.modify(meter_mod.into(), host)?,
            Message::PacketOut(packet) => {
                crate::check_packet_out(&packet, host.vlan_limit())?;
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
                self.control_bundle(control, &Request { xid, frame, now }, host)?;
            }
            Message::BundleAdd(add) => {
                let inside = self.codec.bundled_message(frame);
                self.bundles.add(add, inside, &self.config.limits, host, self.codec)?;
            }
            // There is no table setting left to make.
            Message::TableMod(_) => {}
            Message::BarrierRequest => self.await_barrier(xid, now),
            message => self.configure(xid, message, now)?,
        }
        Ok(())
    }

    /// Requests that concern the connection itself.
    fn configure(&mut self, xid: Xid, message: Message, now: Time) -> Result<(), ErrorCode> {
        match message {
            Message::GetConfigRequest => {
                let miss_send_len = self.subscription.miss_send_len;
                self.reply(xid, &Message::GetConfigReply(SwitchConfig { miss_send_len }), now);
            }
            Message::SetConfig(config) => self.subscription.miss_send_len = config.miss_send_len,
            Message::RoleRequest(request) => {
                let granted = self.roles.grant(self.id, request, &mut self.wish)?;
                self.reply(xid, &Message::RoleReply(granted), now);
            }
            Message::GetAsyncRequest => {
                self.reply(xid, &Message::GetAsyncReply(self.subscription.config), now);
            }
            Message::SetAsync(config) => self.subscription.config = config,
            Message::SetPacketInFormat(format) => self.subscription.format = format,
            Message::SetControllerId(id) => self.subscription.controller_id = id,
            Message::EchoReply(_) => {}
            Message::Error(error) => {
                // Answering an error by an error could go on for ever.
                self.warn(now, |peer, held_back| {
                    tracing::warn!(peer, held_back, number = ?error.number, "the peer sent an error");
                });
            }
            // A second hello, and what only a switch sends.
            _ => return Err(ErrorCode::BadType),
        }
        Ok(())
    }

    fn modify<H: Host>(&mut self, request: Modification, host: &H) -> Result<(), ErrorCode> {
        let modified = host.modify(vec![request]);
        self.changed = Some(modified.map_err(|rejected| rejected.error)?);
        Ok(())
    }

    fn control_bundle<H: Host>(
        &mut self,
        control: BundleControl,
        request: &Request<'_>,
        host: &H,
    ) -> Result<(), ErrorCode> {
        let Request { xid, frame, now } = *request;
        let command = if control.command == BundleCommand::Commit {
            match self.bundles.commit(control, host)? {
                Ok(version) => {
                    self.changed = version.or(self.changed);
                    // The bundle may have held packets.
                    self.packets_sent = true;
                }
                Err(failure) => {
                    self.refuse(failure.xid, failure.code, &failure.frame, now);
                    self.refuse(xid, ErrorCode::BundleMessageFailed, frame, now);
                    return Ok(());
                }
            }
            BundleCommand::Committed
        } else {
            self.bundles.control(control, &self.config.limits, now)?
        };
        // Flags in a reply mean nothing, and Open vSwitch sends none.
        let flags = BundleFlags::default();
        self.reply(xid, &Message::BundleControl(BundleControl { command, flags, ..control }), now);
        Ok(())
    }

    /// Answers a barrier once the newest change of this connection is in force everywhere, and the
    /// packets that it sent are on their way.
    fn await_barrier(&mut self, xid: Xid, now: Time) {
        match self.changed {
            None => self.await_packets(xid, now),
            Some(version) => {
                self.waiting = Some((Wait::Adopted(version), Waiting::Barrier(xid)));
            }
        }
    }

    /// Answers a barrier once the packets before it are on their way: threads execute them and
    /// hand in counts in the order in which they were asked.
    fn await_packets(&mut self, xid: Xid, now: Time) {
        if std::mem::take(&mut self.packets_sent) {
            self.waiting = Some((Wait::Counts, Waiting::Barrier(xid)));
        } else {
            self.reply(xid, &Message::BarrierReply, now);
        }
    }

    /// Answers a multipart request, once its counters are in.
    fn ask<H: Host>(
        &mut self,
        xid: Xid,
        request: MultipartRequest,
        host: &H,
        now: Time,
    ) -> Result<(), ErrorCode> {
        statistics::check(&request, host)?;
        if statistics::is_counted(&request) {
            self.waiting = Some((Wait::Counts, Waiting::Statistics(xid, request)));
            return Ok(());
        }
        let reply = statistics::answer(&request, host, self.codec);
        self.reply_in_parts(xid, &reply, now);
        Ok(())
    }

    /// Finishes a request that waited.
    pub(super) fn finish<H: Host>(&mut self, waiting: Waiting, host: &H, now: Time) {
        match waiting {
            Waiting::Barrier(xid) => self.await_packets(xid, now),
            Waiting::Statistics(xid, MultipartRequest::Flow(filter)) => {
                self.flows = Some(FlowReply::new(xid, host.rules(&filter), now, self.codec));
            }
            Waiting::Statistics(xid, request) => {
                let reply = statistics::answer(&request, host, self.codec);
                self.reply_in_parts(xid, &reply, now);
            }
        }
    }

    fn reply_in_parts(&mut self, xid: Xid, reply: &MultipartReply, now: Time) {
        match self.codec.encode_reply(xid, reply) {
            Ok(parts) => parts.into_iter().for_each(|part| self.output.send(part, now)),
            Err(error) => tracing::error!(%error, "a reply could not be written"),
        }
    }
}

/// Whether a slave may not send the message.
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

/// Whether a flow-mod of so many bytes makes sense, and its rule fits into a statistics reply, whose
/// frame is longer.
pub(super) fn check_flow_mod(
    flow_mod: &FlowMod,
    length: usize,
    codec: Codec,
) -> Result<(), ErrorCode> {
    crate::check_flow_mod(flow_mod)?;
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
    let reply = Message::MultipartReply { more: false, reply: MultipartReply::Flow(vec![entry]) };
    codec.encode(Xid::NONE, &reply).map_err(|_| ErrorCode::ActionTooMany)?;
    Ok(())
}

/// Whether a group-mod makes sense, and its group fits into the replies that tell of it.
pub(super) fn check_group_mod(group_mod: &GroupMod, codec: Codec) -> Result<(), ErrorCode> {
    crate::check_group_mod(group_mod)?;
    if group_mod.buckets.len() > BUCKETS_MAX {
        return Err(ErrorCode::GroupBucketsFull);
    }
    let entry = GroupDescription {
        group: GroupId::ALL,
        kind: group_mod.kind,
        buckets: group_mod.buckets.clone(),
    };
    let reply = MultipartReply::GroupDescription(vec![entry]);
    let reply = Message::MultipartReply { more: false, reply };
    codec.encode(Xid::NONE, &reply).map_err(|_| ErrorCode::GroupBucketsFull)?;
    Ok(())
}

/// The settings that a port-mod leads to.
pub(super) fn check_port_mod(
    port_mod: &PortMod,
    ports: &[PortDescription],
) -> Result<PortConfig, ErrorCode> {
    let port = ports.iter().find(|port| port.number == port_mod.port);
    let port = port.ok_or(ErrorCode::PortModPort)?;
    if port.mac != port_mod.mac {
        return Err(ErrorCode::PortModAddress);
    }
    // Controllers repeat what the port advertises where they mean no change.
    if port_mod.advertise != 0 && port_mod.advertise != port.link.advertised {
        return Err(ErrorCode::PortModAdvertise);
    }
    Ok(port_mod.apply_to(port.config))
}
