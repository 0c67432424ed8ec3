//! Bundles: changes that are collected and committed together (ONF EXT-230; OpenFlow 1.4.1, 7.3.9).
//!
//! An error in one message is reported when the message is added, and the bundle continues without
//! that message, as in Open vSwitch. Errors that only the tables can detect are reported at the
//! commit. The commit then gets two error messages: the first is the error of the failed message,
//! the second reports that the bundle failed. No change of the bundle is applied.
//!
//! A bundle is always ordered and becomes one version, regardless of its flags. A packet-out is
//! translated by the tables as changed by earlier messages of the bundle, as in Open vSwitch. The
//! packet is sent after the whole bundle has succeeded. Port-mods are part of the version of the
//! bundle. Open vSwitch refuses to commit an atomic bundle that contains port-mods.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use shunt_pipeline::{FlowModError, Time, Version};

use super::{BundleQuota, ConnectionLimits, flow_monitors::FlowMonitors, requests};
use crate::{
    Host, HostStep,
    error::{ErrorCode, RequestRefusal},
    message::{
        BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId, Message, PortDescription,
        PortMod, Xid,
    },
    wire::Codec,
};

/// The bundles of one connection.
#[derive(Debug)]
pub(super) struct Bundles {
    /// The bundles that are open.
    open: BTreeMap<BundleId, OpenBundle>,
    /// Number of messages in all open bundles.
    messages_count: usize,
    /// Total number of bytes of the messages of all open bundles.
    bytes: usize,
    /// The bytes that all bundles of the bridge may use.
    quota: Arc<BundleQuota>,
}

/// A bundle that is not committed yet.
#[derive(Debug)]
struct OpenBundle {
    /// The flags of the bundle.
    flags: BundleFlags,
    /// True after the close request.
    closed: bool,
    /// The messages of the bundle, in order.
    messages: Vec<BundledMessage>,
    /// Time of the last message of the bundle.
    touched: Time,
}

/// A message of a bundle.
#[derive(Debug)]
struct BundledMessage {
    /// The transaction id, for an error reply.
    xid: Xid,
    /// The received bytes, which are quoted if the message fails.
    frame: Bytes,
    /// The decoded change of the tables or ports.
    change: BundledChange,
}

/// The change that a message of a bundle makes.
#[derive(Debug)]
enum BundledChange {
    Step(HostStep),
    /// A port-mod, with a result that depends on earlier port-mods of the bundle.
    Port(PortMod),
}

/// The message that made the commit of its bundle fail.
#[derive(Debug)]
pub(super) struct BundleFailure {
    /// The transaction id of the message.
    pub(super) xid: Xid,
    /// The encoded message that failed.
    pub(super) frame: Bytes,
    /// The reason of the failure.
    pub(super) refusal: RequestRefusal,
}

impl Bundles {
    /// Returns bundles without messages, which share `quota` with other connections.
    pub(super) const fn new(quota: Arc<BundleQuota>) -> Self {
        Self { open: BTreeMap::new(), messages_count: 0, bytes: 0, quota }
    }

    /// Opens, closes or discards a bundle; returns the command of the reply.
    pub(super) fn control(
        &mut self,
        control: BundleControl,
        limits: &ConnectionLimits,
        now: Time,
    ) -> Result<BundleCommand, ErrorCode> {
        match control.command {
            BundleCommand::Open => {
                if self.remove(control.bundle).is_some() {
                    return Err(ErrorCode::BundleId);
                }
                self.create(control.bundle, control.flags, limits, now)?;
                Ok(BundleCommand::Opened)
            }
            BundleCommand::Close => {
                let bundle = self.find(control.bundle, control.flags)?;
                bundle.closed = true;
                bundle.touched = now;
                Ok(BundleCommand::Closed)
            }
            BundleCommand::Discard => {
                self.remove(control.bundle).ok_or(ErrorCode::BundleId)?;
                Ok(BundleCommand::Discarded)
            }
            BundleCommand::Commit
            | BundleCommand::Opened
            | BundleCommand::Closed
            | BundleCommand::Committed
            | BundleCommand::Discarded => Err(ErrorCode::BundleType),
        }
    }

    /// Adds a message, and opens the bundle if necessary.
    pub(super) fn add(
        &mut self,
        add: BundleAdd,
        frame: Bytes,
        limits: &ConnectionLimits,
        host: &impl Host,
        codec: Codec,
    ) -> Result<(), RequestRefusal> {
        let now = host.now();
        let bytes = self.bytes.saturating_add(frame.len());
        if self.messages_count >= limits.bundle_messages_max || bytes > limits.bundle_bytes_max {
            return Err(ErrorCode::BundleMessageTooMany.into());
        }
        if !self.open.contains_key(&add.bundle) {
            self.create(add.bundle, add.flags, limits, now)?;
        }
        self.find(add.bundle, add.flags)?;
        let change = BundledChange::new(*add.message, frame.len(), host, codec)?;
        if !self.quota.try_reserve(frame.len()) {
            return Err(ErrorCode::BundleMessageTooMany.into());
        }
        let bundle = self.open.get_mut(&add.bundle).ok_or(ErrorCode::BundleId)?;
        bundle.messages.push(BundledMessage { xid: add.xid, frame, change });
        bundle.touched = now;
        self.messages_count += 1;
        self.bytes = bytes;
        Ok(())
    }

    /// Commits a bundle and removes it, also if the commit fails.
    ///
    /// The outer error concerns the commit request, the inner error a message of the bundle.
    pub(super) fn commit(
        &mut self,
        control: BundleControl,
        host: &impl Host,
        monitors: &FlowMonitors,
    ) -> Result<Result<Option<Version>, BundleFailure>, ErrorCode> {
        let bundle = self.remove(control.bundle).ok_or(ErrorCode::BundleId)?;
        if bundle.flags != control.flags {
            return Err(ErrorCode::BundleFlags);
        }
        Ok(bundle.commit(host, monitors))
    }

    /// Returns the messages of a bundle as received.
    pub(super) fn frames(&self, id: BundleId) -> Vec<Bytes> {
        let messages = self.open.get(&id).map(|bundle| bundle.messages.iter());
        messages.into_iter().flatten().map(|message| message.frame.clone()).collect()
    }

    /// Removes bundles that have timed out; returns their number.
    pub(super) fn expire(&mut self, limits: &ConnectionLimits, now: Time) -> usize {
        let is_over = |bundle: &OpenBundle| now >= bundle.touched.after(limits.bundle_timeout);
        let over: Vec<_> =
            self.open.iter().filter(|(_, bundle)| is_over(bundle)).map(|(id, _)| *id).collect();
        over.iter().filter(|id| self.remove(**id).is_some()).count()
    }

    /// Returns the time at which the next bundle times out.
    pub(super) fn deadline(&self, limits: &ConnectionLimits) -> Option<Time> {
        self.open.values().map(|bundle| bundle.touched.after(limits.bundle_timeout)).min()
    }

    /// Opens a bundle of the connection.
    fn create(
        &mut self,
        id: BundleId,
        flags: BundleFlags,
        limits: &ConnectionLimits,
        now: Time,
    ) -> Result<(), ErrorCode> {
        if self.open.len() >= limits.bundles_max {
            return Err(ErrorCode::BundleTableFull);
        }
        self.open
            .insert(id, OpenBundle { flags, closed: false, messages: Vec::new(), touched: now });
        Ok(())
    }

    /// Returns the bundle `id` if it is open and has `flags`.
    ///
    /// A closed bundle, or one with other flags, is removed, as in Open vSwitch: a controller with
    /// a wrong view of a bundle must not commit it.
    fn find(&mut self, id: BundleId, flags: BundleFlags) -> Result<&mut OpenBundle, ErrorCode> {
        let bundle = self.open.get(&id).ok_or(ErrorCode::BundleId)?;
        let mistake = match bundle {
            OpenBundle { closed: true, .. } => Some(ErrorCode::BundleClosed),
            bundle if bundle.flags != flags => Some(ErrorCode::BundleFlags),
            _ => None,
        };
        if let Some(mistake) = mistake {
            self.remove(id);
            return Err(mistake);
        }
        self.open.get_mut(&id).ok_or(ErrorCode::BundleId)
    }

    /// Removes a bundle, and returns its share of the quota.
    fn remove(&mut self, id: BundleId) -> Option<OpenBundle> {
        let bundle = self.open.remove(&id)?;
        self.messages_count -= bundle.messages.len();
        let bytes = bundle.messages.iter().map(|message| message.frame.len()).sum::<usize>();
        self.bytes -= bytes;
        self.quota.release(bytes);
        Some(bundle)
    }
}

impl Drop for Bundles {
    fn drop(&mut self) {
        self.quota.release(self.bytes);
    }
}

impl BundledChange {
    /// Checks a message of `length` bytes and returns its change.
    fn new(
        message: Message,
        length: usize,
        host: &impl Host,
        codec: Codec,
    ) -> Result<Self, RequestRefusal> {
        Ok(match message {
            Message::FlowMod(flow_mod) => {
                requests::check_flow_mod(&flow_mod, length, codec)?;
                Self::Step(HostStep::Modify(flow_mod.into()))
            }
            Message::GroupMod(group_mod) => {
                requests::check_group_mod(&group_mod)?;
                Self::Step(HostStep::Modify(group_mod.into()))
            }
            Message::PortMod(port_mod) => Self::Port(port_mod),
            Message::PacketOut(packet) => {
                crate::check_packet_out(&packet, host.vlan_limit(), codec.absent_fields())?;
                match host.check_actions(&packet.actions) {
                    // An earlier message of the bundle may add the group.
                    Ok(()) | Err(FlowModError::NoSuchGroup(_)) => {
                        Self::Step(HostStep::Packet(packet))
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            _ => return Err(ErrorCode::BundleMessageUnsupported.into()),
        })
    }

    /// Turns a port-mod into a step, and applies it to `ports` for later port-mods.
    fn settle(&mut self, ports: &mut [PortDescription]) -> Result<(), ErrorCode> {
        if let Self::Port(port_mod) = self {
            let config = requests::check_port_mod(port_mod, ports)?;
            let own = ports.iter_mut().find(|own| own.number == port_mod.port);
            own.ok_or(ErrorCode::PortModPort)?.config = config;
            *self = Self::Step(HostStep::Port(port_mod.port, config));
        }
        Ok(())
    }

    /// Returns the step after [`Self::settle`] has succeeded.
    fn into_step(self) -> Option<HostStep> {
        match self {
            Self::Step(step) => Some(step),
            Self::Port(_) => None,
        }
    }
}

impl OpenBundle {
    /// Commits all changes of the bundle or none.
    ///
    /// Each message is freed when the host takes its step, so that the new rule can reuse the
    /// memory of the message.
    fn commit(
        mut self,
        host: &impl Host,
        monitors: &FlowMonitors,
    ) -> Result<Option<Version>, BundleFailure> {
        let mut ports = host.ports();
        for BundledMessage { xid, frame, change } in &mut self.messages {
            let failure = |code: ErrorCode| BundleFailure {
                xid: *xid,
                frame: frame.clone(),
                refusal: code.into(),
            };
            change.settle(&mut ports).map_err(failure)?;
        }
        let Some(first) = self.messages.first() else { return Ok(None) };
        // One abbreviated update reports the whole bundle, as in Open vSwitch.
        let origin = monitors.origin(first.xid);
        let (mut xid, mut frame) = (first.xid, first.frame.clone());
        let steps = self.messages.into_iter().filter_map(|bundled| {
            (xid, frame) = (bundled.xid, bundled.frame);
            bundled.change.into_step()
        });
        let committed = host.commit(steps, &origin);
        // The host takes no step after a failed step, so the last step that it took failed.
        committed.map(Some).map_err(|rejected| BundleFailure {
            xid,
            frame,
            refusal: rejected.error.into(),
        })
    }
}
