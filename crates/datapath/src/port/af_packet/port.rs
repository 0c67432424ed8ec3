//! The port [`AfPacket`]: a network device of the host.

use std::{ffi::c_int, os::fd::AsFd, sync::Arc};

use shunt_pipeline::Time;
use tracing::warn;

use super::{
    ring::RingLayout,
    rx::PacketRx,
    socket::has_long_queue,
    sockets::{RxSettings, RxSockets, WITHOUT_RING},
    tx::PacketTx,
};
use crate::{
    packet::buffer::Pool,
    port::{
        Capabilities, DeviceLosses, FrameCopies, HostDevice, Port, PortCopies, PortCounters,
        PortError, PortWork, Queues,
        claim::{DeviceClaim, refuse_member},
        device_loss::DeviceLoss,
        host_device::{refuse_other_link, try_mtu},
        stored::{RefusedDescriptor, StoredDescriptor, accepted},
        sys::{self, DeviceName},
    },
};

/// The capability that a packet socket needs, for error messages.
const NEEDS: &str = "CAP_NET_RAW";

/// A network device of the host.
pub struct AfPacket {
    /// The network device of the port.
    device: HostDevice,
    /// The MAC address of the port.
    mac: [u8; 6],
    /// The claim that keeps other processes from using the device as a port.
    _claim: DeviceClaim,
    /// Number of slots of a receive ring; `None`: the default.
    rx_slots: Option<u32>,
    /// The sockets that an earlier process stored, until the queues are created.
    inherited: Vec<StoredDescriptor>,
    /// The sockets of the queues; `None` until the queues are created.
    sockets: Option<Arc<RxSockets>>,
    /// The packets that the kernel counts as dropped at the device.
    loss: DeviceLoss,
}

impl AfPacket {
    /// The largest number of slots of a receive ring.
    ///
    /// A ring of short slots then takes 32 MiB, and a ring of long slots 1.1 GiB.
    pub const SLOTS_MAX: u32 = 16_384;

    /// Opens the device of this name, and sets its MTU if one is given.
    ///
    /// If the device refuses the MTU, it keeps its own MTU.
    ///
    /// Each receive ring has at least `rx_slots` slots. The port uses the sockets that an earlier
    /// process stored.
    ///
    /// # Errors
    ///
    /// If there is no such Ethernet device, or if another port uses it. The queues need `CAP_NET_RAW`.
    pub fn open(
        device: &str,
        mtu: Option<u32>,
        rx_slots: Option<u32>,
        inherited: Vec<StoredDescriptor>,
    ) -> Result<Self, PortError> {
        let name = DeviceName::new(device)?;
        let failed = |source| PortError::device("open", name.as_str(), NEEDS, source);
        let control = sys::request_socket().map_err(failed)?;
        let index = sys::device_index(control.as_fd(), &name).map_err(failed)?;
        let mac = sys::hardware_address(control.as_fd(), &name).map_err(failed)?;
        refuse_other_link(control.as_fd(), &name)?;
        refuse_member(&name, index)?;
        let claim = DeviceClaim::take("af_packet", &name, index)?;
        let mtu_refusal = try_mtu(control.as_fd(), &name, mtu);
        let device = HostDevice::new(control, name, index).with_mtu_refusal(mtu_refusal);
        let loss = DeviceLoss::of_received(index);
        Ok(Self { device, mac, _claim: claim, rx_slots, inherited, sockets: None, loss })
    }

    /// Returns the sockets that an earlier process stored; `None` if one is missing.
    fn inherit(&mut self, threads: u16) -> Option<Arc<RxSockets>> {
        let device = self.device.name.as_str();
        let inherited = std::mem::take(&mut self.inherited);
        let inherited = accepted(device, inherited, |stored| self.check_inherited(stored));
        let (sockets, rings): (Vec<_>, Vec<_>) =
            inherited.into_iter().partition(|stored| has_kind(stored, WITHOUT_RING));
        if sockets.is_empty() {
            return None;
        }
        if sockets.len() != usize::from(threads) {
            let count = sockets.len();
            warn!(
                "device {device}: the earlier process stored the sockets of {count} queues, but \
                 {threads} are needed, so all are replaced"
            );
            return None;
        }
        let rings = rings.into_iter().map(|stored| {
            let layout = self.layout(&stored);
            (stored, layout)
        });
        match RxSockets::inherit(self.settings(), sockets, rings.collect()) {
            Ok(sockets) => Some(sockets),
            Err(error) => {
                warn!(
                    %error,
                    "device {device}: the sockets that the earlier process stored cannot be used, \
                     so they are replaced"
                );
                None
            }
        }
    }

    /// Checks that an inherited descriptor is a socket as the port creates it.
    fn check_inherited(&self, stored: &StoredDescriptor) -> Result<(), RefusedDescriptor> {
        let fd = stored.fd.as_fd();
        let is = |option, value| sys::socket_option(fd, option).is_ok_and(|own| own == value);
        if !is(libc::SO_DOMAIN, libc::AF_PACKET) || !is(libc::SO_TYPE, libc::SOCK_RAW) {
            return Err(RefusedDescriptor::Kind("a packet socket"));
        }
        // Devices of two network namespaces may have the same number. Linux before 5.14 cannot
        // report the namespace of a socket.
        let namespace = |fd| sys::namespace_of_socket(fd).ok();
        if sys::bound_device(fd)? != Some(self.device.index)
            || namespace(fd) != namespace(self.device.control.as_fd())
        {
            return Err(RefusedDescriptor::Device);
        }
        let is = |option, value| sys::packet_option(fd, option).is_ok_and(|own| own == value);
        let is_alike = is(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as c_int)
            && is(libc::PACKET_VNET_HDR, 1)
            && (has_kind(stored, WITHOUT_RING)
                || has_kind(stored, &self.layout(stored).to_string()));
        if is_alike { Ok(()) } else { Err(RefusedDescriptor::Layout) }
    }

    /// Returns the layout of the ring of an inherited socket.
    fn layout(&self, stored: &StoredDescriptor) -> RingLayout {
        RingLayout::of(has_long_queue(stored.fd.as_fd()), self.rx_slots)
    }

    /// Returns the settings of the receive queues.
    fn settings(&self) -> RxSettings {
        let device = self.device.name.as_str().to_owned();
        RxSettings { device, index: self.device.index, slots: self.rx_slots }
    }
}

/// Returns whether the name of a descriptor ends in `kind`.
fn has_kind(stored: &StoredDescriptor, kind: &str) -> bool {
    stored.name.rsplit('/').next() == Some(kind)
}

impl Port for AfPacket {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            tx_tunnel_segmentation: false,
            frame_max: Pool::LARGE,
            can_wait: true,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        if self.sockets.is_some() {
            return Err(PortError::AlreadySplit { name: self.device.name.as_str().to_owned() });
        }
        let sockets = match self.inherit(threads) {
            Some(sockets) => sockets,
            None => RxSockets::open(self.settings(), threads).map_err(|source| {
                PortError::device("receive from", self.device.name.as_str(), NEEDS, source)
            })?,
        };
        let queues = sockets.queues().iter().map(|queue| {
            let socket = &queue.socket.socket;
            let rx = PacketRx::new(socket, &queue.shared, self.device.name.as_str());
            let tx = PacketTx::new(Arc::clone(socket));
            Queues { rx: Some(Box::new(rx)), tx: Box::new(tx) }
        });
        let queues = queues.collect();
        self.sockets = Some(sockets);
        Ok(queues)
    }

    fn link_up(&self) -> bool {
        self.device.link_up()
    }

    fn host_device(&self) -> Option<&HostDevice> {
        Some(&self.device)
    }

    fn mtu(&self) -> Option<u32> {
        self.device.mtu()
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        let rx_dropped = self.sockets.as_ref().map_or(0, |sockets| sockets.dropped());
        PortCounters { rx_dropped, tx_dropped: 0 }
    }

    fn copies(&self) -> PortCopies {
        let rx = self.sockets.as_ref().map_or_else(FrameCopies::default, |own| own.copies());
        // The kernel copies the frames that are sent.
        PortCopies { rx, tx: FrameCopies::default() }
    }

    fn driver_counters(&self) -> Vec<(String, u64)> {
        // The kernel also counts tagged frames of protocols that it does not know, although the
        // sockets get them. So these are no losses of the port.
        self.loss.driver_counters()
    }

    fn note_losses(&self, losses: &DeviceLosses) {
        self.loss.note(losses.find(self.device.index));
    }

    fn maintenance(&mut self, now: Time) -> Option<PortWork> {
        self.sockets.as_ref()?.maintenance(now)
    }

    fn stored_descriptors(&self) -> Vec<StoredDescriptor> {
        self.sockets.as_ref().map_or_else(Vec::new, |sockets| sockets.stored_descriptors())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// The kernel waits for all CPUs when a packet socket is closed.
    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    fn requests_about_the_device_use_no_packet_socket() {
        let thread = thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a namespace: {error}");
                return;
            }
            let port = AfPacket::open("lo", None, None, Vec::new()).unwrap();
            let control = port.device.control.as_fd();
            assert_eq!(sys::socket_option(control, libc::SO_DOMAIN).unwrap(), libc::AF_UNIX);
            assert_eq!(port.device.state().map(|state| state.index), Some(1));
        });
        thread.join().unwrap();
    }
}
