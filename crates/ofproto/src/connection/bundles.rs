//! Changes that are collected and become true together (ONF EXT-230; OpenFlow 1.4.1, 7.3.9).
//!
//! What is wrong with one message is said when it is added, and the bundle goes on without it, as
//! in Open vSwitch. What only the tables can tell is said at the commit: then the message's own
//! error comes first, that the bundle failed second, and nothing has changed.
//!
//! Whatever flags a bundle has, it is ordered and becomes one version. A packet-out is translated by
//! what stands before it, as in Open vSwitch, and is sent when all of the bundle has gone well. Settings
//! of ports are part of the version; Open vSwitch cannot make them so, and does not commit a bundle that
//! has to be atomic and has some.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use shunt_pipeline::{FlowModError, Time, Version};

use super::{BundleSpace, Limits, requests};
use crate::{
    Host, HostStep,
    error::ErrorCode,
    message::{
        BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId, Message, PortDescription,
        PortMod, Xid,
    },
    wire::Codec,
};

/// The bundles of one connection.
#[derive(Debug)]
pub(super) struct Bundles {
    open: BTreeMap<BundleId, Bundle>,
    messages_count: usize,
    /// Of all messages together.
    bytes: usize,
    space: Arc<BundleSpace>,
}

/// A bundle that is not committed yet.
#[derive(Debug)]
struct Bundle {
    flags: BundleFlags,
    closed: bool,
    messages: Vec<Bundled>,
    touched: Time,
}

/// A message of a bundle.
#[derive(Debug)]
struct Bundled {
    xid: Xid,
    /// As it came, to be sent back if it fails.
    frame: Bytes,
    change: Change,
}

/// What a message of a bundle does.
#[derive(Debug)]
enum Change {
    Step(HostStep),
    /// It sets what depends on how the messages before it leave the port.
    Port(PortMod),
}

/// The message of a bundle that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) xid: Xid,
    pub(super) frame: Bytes,
    pub(super) code: ErrorCode,
}

impl Bundles {
    pub(super) const fn new(space: Arc<BundleSpace>) -> Self {
        Self { open: BTreeMap::new(), messages_count: 0, bytes: 0, space }
    }

    /// Opens, closes or discards a bundle; answers what to reply.
    pub(super) fn control(
        &mut self,
        control: BundleControl,
        limits: &Limits,
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

    /// Adds a message, and opens the bundle if it is not.
    pub(super) fn add(
        &mut self,
        add: BundleAdd,
        frame: Bytes,
        limits: &Limits,
        host: &impl Host,
        codec: Codec,
    ) -> Result<(), ErrorCode> {
        let now = host.now();
        let bytes = self.bytes.saturating_add(frame.len());
        if self.messages_count >= limits.bundle_messages_max || bytes > limits.bundle_bytes_max {
            return Err(ErrorCode::BundleMessageTooMany);
        }
        if !self.open.contains_key(&add.bundle) {
            self.create(add.bundle, add.flags, limits, now)?;
        }
        self.find(add.bundle, add.flags)?;
        let change = Change::new(*add.message, frame.len(), host, codec)?;
        if !self.space.take(frame.len()) {
            return Err(ErrorCode::BundleMessageTooMany);
        }
        let bundle = self.open.get_mut(&add.bundle).ok_or(ErrorCode::BundleId)?;
        bundle.messages.push(Bundled { xid: add.xid, frame, change });
        bundle.touched = now;
        self.messages_count += 1;
        self.bytes = bytes;
        Ok(())
    }

    /// Makes the changes of a bundle, which is gone afterwards either way.
    ///
    /// The outer error is about the commit; the inner one about a message of the bundle.
    pub(super) fn commit(
        &mut self,
        control: BundleControl,
        host: &impl Host,
    ) -> Result<Result<Option<Version>, Failure>, ErrorCode> {
        let bundle = self.remove(control.bundle).ok_or(ErrorCode::BundleId)?;
        if bundle.flags != control.flags {
            return Err(ErrorCode::BundleFlags);
        }
        Ok(bundle.commit(host))
    }

    /// Forgets bundles that nothing happened to for long; answers how many.
    pub(super) fn expire(&mut self, limits: &Limits, now: Time) -> usize {
        let is_over = |bundle: &Bundle| now >= bundle.touched.after(limits.bundle_timeout);
        let over: Vec<_> =
            self.open.iter().filter(|(_, bundle)| is_over(bundle)).map(|(id, _)| *id).collect();
        over.iter().filter(|id| self.remove(**id).is_some()).count()
    }

    /// When the next bundle expires.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Time> {
        self.open.values().map(|bundle| bundle.touched.after(limits.bundle_timeout)).min()
    }

    fn create(
        &mut self,
        id: BundleId,
        flags: BundleFlags,
        limits: &Limits,
        now: Time,
    ) -> Result<(), ErrorCode> {
        if self.open.len() >= limits.bundles_max {
            return Err(ErrorCode::BundleTableFull);
        }
        self.open.insert(id, Bundle { flags, closed: false, messages: Vec::new(), touched: now });
        Ok(())
    }

    /// A bundle that is not closed, of whoever knows its flags. Any other mistake ends it, as in Open
    /// vSwitch: who is wrong about a bundle does not know what a commit would do.
    fn find(&mut self, id: BundleId, flags: BundleFlags) -> Result<&mut Bundle, ErrorCode> {
        let bundle = self.open.get(&id).ok_or(ErrorCode::BundleId)?;
        let mistake = match bundle {
            Bundle { closed: true, .. } => Some(ErrorCode::BundleClosed),
            bundle if bundle.flags != flags => Some(ErrorCode::BundleFlags),
            _ => None,
        };
        if let Some(mistake) = mistake {
            self.remove(id);
            return Err(mistake);
        }
        self.open.get_mut(&id).ok_or(ErrorCode::BundleId)
    }

    fn remove(&mut self, id: BundleId) -> Option<Bundle> {
        let bundle = self.open.remove(&id)?;
        self.messages_count -= bundle.messages.len();
        let bytes = bundle.messages.iter().map(|message| message.frame.len()).sum::<usize>();
        self.bytes -= bytes;
        self.space.give(bytes);
        Some(bundle)
    }
}

impl Drop for Bundles {
    fn drop(&mut self) {
        self.space.give(self.bytes);
    }
}

impl Change {
    /// What a message does that has so many bytes.
    fn new(
        message: Message,
        length: usize,
        host: &impl Host,
        codec: Codec,
    ) -> Result<Self, ErrorCode> {
        Ok(match message {
            Message::FlowMod(flow_mod) => {
                requests::check_flow_mod(&flow_mod, length, codec)?;
                Self::Step(HostStep::Modify(flow_mod.into()))
            }
            Message::GroupMod(group_mod) => {
                requests::check_group_mod(&group_mod, codec)?;
                Self::Step(HostStep::Modify(group_mod.into()))
            }
            Message::PortMod(port_mod) => Self::Port(port_mod),
            Message::PacketOut(packet) => {
                crate::check_packet_out(&packet, host.vlan_limit())?;
                match host.check_actions(&packet.actions) {
                    // The bundle may bring it, before the packet.
                    Ok(()) | Err(FlowModError::NoSuchGroup(_)) => {
                        Self::Step(HostStep::Packet(packet))
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            _ => return Err(ErrorCode::BundleMessageUnsupported),
        })
    }

    /// What the bridge is asked for, with its ports as what stands before leaves them.
    fn settle(&mut self, ports: &mut [PortDescription]) -> Result<(), ErrorCode> {
        if let Self::Port(port_mod) = self {
            let config = requests::check_port_mod(port_mod, ports)?;
            let own = ports.iter_mut().find(|own| own.number == port_mod.port);
            own.ok_or(ErrorCode::PortModPort)?.config = config;
            *self = Self::Step(HostStep::Port(port_mod.port, config));
        }
        Ok(())
    }

    /// The step, once it is settled.
    fn into_step(self) -> Option<HostStep> {
        match self {
            Self::Step(step) => Some(step),
            Self::Port(_) => None,
        }
    }
}

impl Bundle {
    /// All changes or none.
    ///
    /// A message is let go when its turn comes: what it took then serves the rule that it makes.
    fn commit(mut self, host: &impl Host) -> Result<Option<Version>, Failure> {
        let mut ports = host.ports();
        for Bundled { xid, frame, change } in &mut self.messages {
            let failure = |code| Failure { xid: *xid, frame: frame.clone(), code };
            change.settle(&mut ports).map_err(failure)?;
        }
        let Some(first) = self.messages.first() else { return Ok(None) };
        let (mut xid, mut frame) = (first.xid, first.frame.clone());
        let steps = self.messages.into_iter().filter_map(|bundled| {
            (xid, frame) = (bundled.xid, bundled.frame);
            bundled.change.into_step()
        });
        let committed = host.commit(steps);
        // The step that failed is the last one that was taken.
        committed.map(Some).map_err(|rejected| Failure { xid, frame, code: rejected.error.into() })
    }
}
