//! The port of a network device, and its two queues.

use std::{
    ffi::{c_int, c_uint},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    sys::socket::{
        getsockopt,
        sockopt::{RcvBuf, SocketError},
    },
};
use shunt_pipeline::DatapathPort;
use tracing::warn;

use super::ring::{Filled, Ring, RingLayout, SlotContent};
use crate::metrics::RxLoss;
use crate::packet::{
    buffer::{BURST, Packet, Pool},
    virtio::VirtioHeader,
};
use crate::port::{
    Capabilities, Port, PortCounters, PortError, Queues, RxQueue, RxReport, TxEnd, TxQueue,
    claim::{DeviceClaim, refuse_member},
    error::{lost_reason, tx_end_of},
    link,
    stored::{RefusedDescriptor, StoredDescriptor, accepted, copy},
    sys::{self, DeviceName},
};

/// Bytes of long frames that one socket may queue for receiving.
/// The kernel doubles the number, for its own structures.
const RECEIVE_BUFFER: c_int = 8 << 20;
/// Bytes that one socket may queue for sending.
/// These are a few bursts of packets that are segmented later.
const SEND_BUFFER: c_int = 8 << 20;
const NEEDS: &str = "CAP_NET_RAW";
/// The capability to set the MTU.
const ADMIN: &str = "CAP_NET_ADMIN";

/// A network device of the host.
pub struct AfPacket {
    device: DeviceName,
    index: c_uint,
    mac: [u8; 6],
    /// Keeps other switches away from the device.
    _claim: DeviceClaim,
    /// A socket for requests about the device; it receives nothing.
    /// It is in the network namespace in which it was opened.
    control: OwnedFd,
    /// Number of slots of a receive ring; `None`: the default.
    rx_slots: Option<u32>,
    /// The sockets that an earlier process stored, until the queues are created.
    inherited: Vec<StoredDescriptor>,
    /// The sockets of the queues; empty until the queues are created.
    sockets: Vec<OpenSocket>,
}

/// The socket of a queue.
struct OpenSocket {
    socket: Arc<Socket>,
    layout: RingLayout,
    /// Name under which an earlier process stored the socket.
    stored_name: Option<String>,
}

/// A packet socket, shared by both queues of a thread.
struct Socket {
    fd: OwnedFd,
    /// Frames dropped because the ring was full, as of the last request to the kernel.
    rx_dropped: AtomicU64,
}

impl AfPacket {
    /// The largest number of slots of a receive ring.
    ///
    /// Short slots then take 32 MiB, and long ones 1.1 GiB.
    pub const SLOTS_MAX: u32 = 16_384;

    /// Opens the device of this name, and sets its MTU if one is given.
    ///
    /// Each receive ring has `rx_slots` slots or some more.
    /// Uses the sockets that an earlier process stored.
    ///
    /// # Errors
    ///
    /// If there is no such device, if it has another user, or if the daemon lacks `CAP_NET_RAW`.
    pub fn open(
        device: &str,
        mtu: Option<u32>,
        rx_slots: Option<u32>,
        inherited: Vec<StoredDescriptor>,
    ) -> Result<Self, PortError> {
        let device = DeviceName::new(device)?;
        let failed = |source| PortError::device("open", device.as_str(), NEEDS, source);
        let control = sys::packet_socket().map_err(failed)?;
        let index = if_nametoindex(device.as_str()).map_err(|errno| failed(errno.into()))?;
        let mac = sys::hardware_address(control.as_fd(), &device).map_err(failed)?;
        refuse_member(&device, index)?;
        let claim = DeviceClaim::take("af_packet", &device, index)?;
        if let Some(mtu) = mtu {
            let failed =
                |source| PortError::device("set the MTU of", device.as_str(), ADMIN, source);
            sys::set_mtu(control.as_fd(), &device, mtu).map_err(failed)?;
        }
        let sockets = Vec::new();
        Ok(Self { device, index, mac, _claim: claim, control, rx_slots, inherited, sockets })
    }

    /// Creates a socket that receives from the device into its ring.
    fn queue(&self) -> io::Result<(OpenSocket, Ring)> {
        let fd = sys::packet_socket()?;
        let socket = fd.as_fd();
        let enable = |option| sys::set_option(socket, libc::SOL_PACKET, option, &1);
        // Set the virtio header option before the ring is created, and create the ring before the
        // socket is bound: every frame must be received through the ring.
        enable(libc::PACKET_VNET_HDR)?;
        enable(libc::PACKET_IGNORE_OUTGOING)?;
        let layout = self.layout(socket);
        if layout.is_short() {
            enable(libc::PACKET_COPY_THRESH)?;
        }
        let ring = Ring::new(socket, layout)?;
        sys::make_promiscuous(socket, self.index)?;
        // Without CAP_NET_ADMIN the system's limit applies, and more bursts are cut short.
        let _ = sys::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        sys::bind_packet(socket, self.index)?;
        Ok((OpenSocket { socket: Socket::new(fd), layout, stored_name: None }, ring))
    }

    /// Returns the layout of the ring of a socket, and makes its receive queue long.
    fn layout(&self, socket: BorrowedFd<'_>) -> RingLayout {
        let is_long = has_long_queue(socket);
        let layout = if is_long { RingLayout::SHORT_SLOTS } else { RingLayout::LONG_SLOTS };
        self.rx_slots.map_or(layout, |slots| layout.with_slots(slots))
    }

    /// Takes the queue of a socket that [`Self::check_inherited`] has accepted.
    fn inherit(&self, stored: StoredDescriptor) -> io::Result<(OpenSocket, Ring)> {
        let layout = self.layout(stored.fd.as_fd());
        let ring = Ring::inherit(stored.fd.as_fd(), layout)?;
        let StoredDescriptor { name, fd, .. } = stored;
        Ok((OpenSocket { socket: Socket::new(fd), layout, stored_name: Some(name) }, ring))
    }

    /// Checks that an inherited descriptor is a socket as [`Self::queue`] creates it.
    fn check_inherited(&self, stored: &StoredDescriptor) -> Result<(), RefusedDescriptor> {
        let fd = stored.fd.as_fd();
        let is = |option, value| sys::socket_option(fd, option).is_ok_and(|own| own == value);
        if !is(libc::SO_DOMAIN, libc::AF_PACKET) || !is(libc::SO_TYPE, libc::SOCK_RAW) {
            return Err(RefusedDescriptor::Kind("a packet socket"));
        }
        // Devices of two namespaces may have one number. Linux before 5.14 has no such option.
        let namespace = |fd| sys::namespace_of_socket(fd).ok();
        if sys::bound_device(fd)? != Some(self.index)
            || namespace(fd) != namespace(self.control.as_fd())
        {
            return Err(RefusedDescriptor::Device);
        }
        let is = |option, value| sys::packet_option(fd, option).is_ok_and(|own| own == value);
        let is_alike = is(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as c_int)
            && is(libc::PACKET_VNET_HDR, 1)
            && stored.name.ends_with(&format!("/{}", self.layout(fd)));
        if is_alike { Ok(()) } else { Err(RefusedDescriptor::Layout) }
    }
}

impl Socket {
    fn new(fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self { fd, rx_dropped: AtomicU64::new(0) })
    }
}

/// Makes the receive queue of a socket long; returns whether long frames fit.
///
/// The size is limited by `net.core.rmem_max`, except with `CAP_NET_ADMIN`. With the usual limit only
/// a few long frames would fit.
fn has_long_queue(socket: BorrowedFd<'_>) -> bool {
    let resize = |option| sys::set_option(socket, libc::SOL_SOCKET, option, &RECEIVE_BUFFER);
    if resize(libc::SO_RCVBUFFORCE).is_ok() {
        return true;
    }
    let _ = resize(libc::SO_RCVBUF);
    // The kernel returns the doubled number.
    getsockopt(&socket, RcvBuf).is_ok_and(|bytes| bytes / 2 >= RECEIVE_BUFFER as usize)
}

/// Lets the kernel spread flows over sockets that are bound to one device.
///
/// Inherited sockets may be in a group already.
fn deal_flows(sockets: &[OpenSocket]) -> io::Result<()> {
    let Some((first, others)) = sockets.split_first() else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    let joined = |socket: &Socket| sys::packet_option(socket.fd.as_fd(), libc::PACKET_FANOUT);
    let join = |socket: &Socket, flags: c_uint, group: c_uint| {
        let mode = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING | flags;
        sys::set_option(
            socket.fd.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            &(mode << 16 | group),
        )
    };
    if joined(&first.socket)? == 0 {
        // The kernel chooses an unused number.
        join(&first.socket, libc::PACKET_FANOUT_FLAG_UNIQUEID, 0)?;
    }
    let group = joined(&first.socket)?.cast_unsigned() & 0xffff;
    let alone = others.iter().map(|open| &open.socket).filter(|own| joined(own).unwrap_or(0) == 0);
    alone.map(Arc::as_ref).try_for_each(|socket| join(socket, 0, group))
}

impl Port for AfPacket {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            frame_max: Pool::LARGE,
            can_wait: true,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let name = self.device.as_str();
        if !self.sockets.is_empty() {
            return Err(PortError::AlreadySplit { name: name.to_owned() });
        }
        let failed = |source| PortError::device("receive from", name, NEEDS, source);
        let mut inherited = std::mem::take(&mut self.inherited);
        inherited = accepted(name, inherited, |stored| self.check_inherited(stored));
        inherited.truncate(threads.into());
        let mut made = Vec::new();
        for stored in inherited {
            match self.inherit(stored) {
                Ok(queue) => made.push(queue),
                Err(error) => warn!(%error, "device {name}: a stored socket cannot be used"),
            }
        }
        for _ in made.len()..threads.into() {
            made.push(self.queue().map_err(failed)?);
        }
        let (sockets, rings): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        deal_flows(&sockets).map_err(failed)?;
        // Before a socket joined the group, it received every frame, as the first one did.
        let mut queues = Vec::with_capacity(sockets.len());
        for (number, (open, ring)) in sockets.iter().zip(rings).enumerate() {
            let (device, socket) = (name.to_owned(), &open.socket);
            let mut rx = PacketRx { socket: Arc::clone(socket), ring, device, empty: 0 };
            if number > 0 && open.stored_name.is_none() {
                rx.clear();
            }
            let tx = PacketTx { socket: Arc::clone(socket), end: TxEnd::Full };
            queues.push(Queues { rx: Some(Box::new(rx)), tx: Box::new(tx) });
        }
        self.sockets = sockets;
        Ok(queues)
    }

    fn link_up(&self) -> bool {
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        sys::device_flags(self.control.as_fd(), &self.device)
            .is_ok_and(|flags| flags & wanted == wanted)
    }

    fn lost(&self) -> Option<String> {
        lost_reason(self.device.as_str(), self.index)
    }

    fn master(&self) -> Option<String> {
        link::master(self.index)
    }

    fn mtu(&self) -> Option<u32> {
        sys::mtu(self.control.as_fd(), &self.device).ok()
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn counters(&self) -> PortCounters {
        let mut counters = PortCounters::default();
        for OpenSocket { socket, .. } in &self.sockets {
            // The kernel resets this counter when it is read.
            let more = sys::take_packet_drops(socket.fd.as_fd()).unwrap_or(0);
            let before = socket.rx_dropped.fetch_add(more.into(), Relaxed);
            counters.rx_dropped += before + u64::from(more);
        }
        counters
    }

    fn stored_descriptors(&self) -> Vec<StoredDescriptor> {
        let name =
            |number, layout| format!("af_packet/{}/{number:04}/{layout}", self.device.as_str());
        let sockets = self.sockets.iter().enumerate();
        let stored = sockets.filter_map(|(number, open)| {
            copy(name(number, open.layout), &open.socket.fd, open.stored_name.as_deref())
        });
        stored.collect()
    }
}

/// Number of empty receives between two checks that the device still exists.
/// Each check costs two system calls.
const CHECK_ONE_IN: u32 = 64;

struct PacketRx {
    socket: Arc<Socket>,
    ring: Ring,
    device: String,
    /// Empty receives since the last check.
    empty: u32,
}

impl PacketRx {
    /// Discards every frame that was received so far.
    fn clear(&mut self) {
        for _ in 0..self.ring.slots() {
            let Some(slot) = self.ring.next() else { return };
            if let SlotContent::Queued { .. } = slot.content() {
                discard(self.socket.fd.as_fd());
            }
        }
    }

    fn check_device(&mut self) -> Result<(), PortError> {
        self.empty += 1;
        if self.empty < CHECK_ONE_IN {
            return Ok(());
        }
        self.empty = 0;
        // Reading the error clears it. Otherwise a device that is down would wake the thread again
        // and again.
        let _ = getsockopt(&self.socket.fd.as_fd(), SocketError);
        self.check()
    }
}

impl RxQueue for PacketRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let mut report = RxReport::default();
        if !self.ring.is_next_known() && !self.ring.find_next() {
            self.check_device()?;
            return Ok(report);
        }
        for received in 0..BURST {
            let Some(slot) = self.ring.next() else {
                if received == 0 {
                    self.check_device()?;
                }
                break;
            };
            let copied = match slot.content() {
                SlotContent::Whole(filled) => copied(&filled, pool),
                SlotContent::Queued { length, tag } => {
                    queued(self.socket.fd.as_fd(), length, tag, pool)
                }
                SlotContent::Truncated { length } => Err(RxLoss::truncated(length)),
                SlotContent::Invalid => Err(RxLoss::Refused),
            };
            match copied {
                Ok(packet) => burst.push(packet),
                Err(reason) => report.refuse(reason),
            }
        }
        Ok(report)
    }

    fn check(&mut self) -> Result<(), PortError> {
        match sys::bound_device(self.socket.fd.as_fd()) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(PortError::DeviceGone { name: self.device.clone() }),
            Err(source) => {
                Err(PortError::System { doing: "ask about", name: self.device.clone(), source })
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }
}

/// Offset of the VLAN tag in a frame: after the addresses.
const ADDRESSES: usize = 12;

impl RxLoss {
    /// Returns the reason why the kernel truncated a frame of `length` bytes.
    const fn truncated(length: usize) -> Self {
        if length > Pool::LARGE { Self::Refused } else { Self::RingFull }
    }
}

/// Takes a buffer for a received frame.
fn take_buffer(pool: &mut Pool, length: usize) -> Result<Packet, RxLoss> {
    pool.take(length, DatapathPort::default()).ok_or_else(|| RxLoss::without_buffer(length))
}

/// Copies the frame of a slot into a packet, and inserts its VLAN tag again.
fn copied(filled: &Filled<'_>, pool: &mut Pool) -> Result<Packet, RxLoss> {
    let Filled { virtio_header, frame, tag } = *filled;
    let Some(tag) = tag else {
        let virtio = VirtioHeader::receive(virtio_header, frame).map_err(|_| RxLoss::Refused)?;
        let mut packet = take_buffer(pool, frame.len())?;
        packet.frame_mut().copy_from_slice(frame);
        packet.virtio = virtio;
        return Ok(packet);
    };
    let (addresses, rest) = frame.split_at_checked(ADDRESSES).ok_or(RxLoss::Refused)?;
    // The offsets of the virtio header refer to the frame without the tag.
    let virtio = VirtioHeader::receive(virtio_header, frame).map_err(|_| RxLoss::Refused)?;
    let mut packet = take_buffer(pool, frame.len() + tag.len())?;
    let (front, back) = packet.frame_mut().split_at_mut(ADDRESSES + tag.len());
    front[..ADDRESSES].copy_from_slice(addresses);
    front[ADDRESSES..].copy_from_slice(&tag);
    back.copy_from_slice(rest);
    packet.virtio = virtio;
    packet.virtio.moved_back(4);
    Ok(packet)
}

/// Takes a frame of the receive queue as a packet, and inserts its VLAN tag again.
fn queued(
    socket: BorrowedFd<'_>,
    length: usize,
    tag: Option<[u8; 4]>,
    pool: &mut Pool,
) -> Result<Packet, RxLoss> {
    let tag_length = tag.map_or(0, |tag| tag.len());
    let mut packet = take_buffer(pool, length + tag_length).inspect_err(|_| discard(socket))?;
    let mut virtio_header = [0; VirtioHeader::ENCODED];
    // The offsets of the virtio header refer to the frame without the tag, which starts here.
    let frame = &mut packet.frame_mut()[tag_length..];
    let read = sys::receive_queued(socket, &mut virtio_header, frame);
    let is_whole = read.is_ok_and(|read| read == VirtioHeader::ENCODED + length);
    let virtio = VirtioHeader::receive(virtio_header, frame);
    let Some(virtio) = virtio.ok().filter(|_| is_whole) else {
        pool.give(packet);
        return Err(RxLoss::Refused);
    };
    packet.virtio = virtio;
    if let Some(tag) = tag {
        let frame = packet.frame_mut();
        frame.copy_within(tag.len()..tag.len() + ADDRESSES, 0);
        frame[ADDRESSES..ADDRESSES + tag.len()].copy_from_slice(&tag);
        packet.virtio.moved_back(4);
    }
    Ok(packet)
}

/// Discards the next frame of the receive queue.
fn discard(socket: BorrowedFd<'_>) {
    let mut virtio_header = [0; VirtioHeader::ENCODED];
    // The slot of the frame said that it is there.
    let _ = sys::receive_queued(socket, &mut virtio_header, &mut []);
}

/// The transmit queue of a packet socket.
pub(in crate::port) struct PacketTx {
    socket: Arc<Socket>,
    end: TxEnd,
}

impl PacketTx {
    /// Opens a packet socket that sends by a device and receives nothing.
    pub(in crate::port) fn open(device: c_uint) -> io::Result<Self> {
        let fd = sys::packet_socket()?;
        sys::set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        sys::bind_packet_sender(fd.as_fd(), device)?;
        Ok(Self { socket: Socket::new(fd), end: TxEnd::Full })
    }
}

/// Error codes of a device that is down or removed.
const GONE: [Errno; 3] = [Errno::ENETDOWN, Errno::ENXIO, Errno::ENODEV];

impl TxQueue for PacketTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        let mut taken = 0;
        while let Some(rest) = packets.get(taken..).filter(|rest| !rest.is_empty()) {
            match sys::send_packets(self.socket.fd.as_fd(), rest) {
                Ok(0) => {
                    self.end = TxEnd::Full;
                    break;
                }
                Ok(sent) => taken += sent,
                Err(error) => {
                    // ENOBUFS: the queueing discipline or the driver dropped this packet alone.
                    self.end = tx_end_of(&error, &GONE, TxEnd::Crowded);
                    break;
                }
            }
        }
        taken
    }

    fn tx_end(&self) -> TxEnd {
        self.end
    }

    fn flush(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(pool: &mut Pool, length: usize, tag: Option<[u8; 4]>) -> Option<RxLoss> {
        let frame = vec![0; length];
        let filled = Filled { virtio_header: [0; VirtioHeader::ENCODED], frame: &frame, tag };
        copied(&filled, pool).err()
    }

    /// A tag may make a frame too long.
    #[test]
    fn a_frame_that_is_too_long_is_refused() {
        let mut pool = Pool::new();
        assert_eq!(loss(&mut pool, Pool::LARGE, None), None);
        assert_eq!(loss(&mut pool, Pool::LARGE + 1, None), Some(RxLoss::Refused));
        assert_eq!(loss(&mut pool, Pool::LARGE, Some([0x81, 0, 0, 1])), Some(RxLoss::Refused));
        let lengths = [Pool::LARGE, Pool::LARGE + 1].map(RxLoss::truncated);
        assert_eq!(lengths, [RxLoss::RingFull, RxLoss::Refused]);
        while pool.take(Pool::LARGE, DatapathPort::default()).is_some() {}
        assert_eq!(loss(&mut pool, Pool::LARGE, None), Some(RxLoss::NoBuffer));
    }
}
