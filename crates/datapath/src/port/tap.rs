//! A TAP device: a port to the network stack of the host.
//!
//! One `read` or `write` of a file transfers one frame. The virtio header precedes the frame, so
//! the host passes packets of up to 64 KiB in one read and takes them in one write. Packets with
//! segmentation offload give a TAP its throughput. From Linux 6.17, such a packet may be in a UDP
//! tunnel, as the VXLAN device of a host sends it.
//!
//! The length of a frame is known only after the read. Each read offers a small buffer and, after
//! the small buffer, a large buffer without its first 2 KiB. If the frame is long, the first 2 KiB
//! are copied into the large buffer, which then holds the whole frame.
//!
//! Each packet thread has a queue of the device; the host spreads flows over the queues. The port
//! creates a missing device, and brings the device up. A device that the port created is removed
//! with its last queue. A device that an administrator created for the daemon's user needs no
//! capability, and stays.
//!
//! If a queue is full, the host drops its packets, and counts them as dropped by the device. A
//! device that the port created has no queue discipline.
//!
//! An administrator may move the device to another network namespace, such as that of a container.
//! The queues of the port stay usable.
//!
//! A process can inherit the queues of an earlier process ([`StoredDescriptor`]). The device then
//! keeps its carrier during the restart.
//!
//! Source: Linux `Documentation/networking/tuntap.rst`.

mod offloads;

use std::{
    ffi::{c_int, c_uint},
    fs::{File, OpenOptions},
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use nix::{errno::Errno, net::if_::if_nametoindex};
use shunt_pipeline::DatapathPort;

use self::offloads::HEADER;
use super::{
    Capabilities, CopyCounters, DeviceLosses, DeviceReader, FrameCopies, HostDevice, Port,
    PortCopies, PortCounters, PortError, QueueCopies, Queues, RxQueue, RxReport, TxEnd, TxQueue,
    claim::DeviceClaim,
    device_loss::DeviceLoss,
    error::tx_end_of,
    host_device::{refuse_other_link, try_mtu},
    link, qdisc,
    stored::{RefusedDescriptor, StoredDescriptor, accepted, copy},
    sys::{self, DeviceName},
};
use crate::{
    metrics::RxLoss,
    packet::{
        buffer::{BURST, Packet, Pool},
        virtio::VirtioHeader,
    },
};

/// The capability that opening a TAP needs, for error messages.
const NEEDS: &str = "CAP_NET_ADMIN";

/// A TAP device.
pub struct Tap {
    /// The network device of the TAP.
    device: HostDevice,
    /// The MAC address of the port.
    mac: [u8; 6],
    /// True if the device outlives the port.
    is_persistent: bool,
    /// The lock that keeps other switches from using the device.
    _claim: DeviceClaim,
    /// The inherited queues, or the queue that created the device.
    ///
    /// From [`Port::split`] on, one queue for each packet thread.
    queues: Vec<OpenQueue>,
    /// True if the host takes packets in a UDP tunnel that are to be segmented.
    takes_tunnels: bool,
    /// True after the queues were taken.
    is_split: bool,
    /// The copies of the receive queues.
    copies: QueueCopies,
    /// The packets for which a queue of the port was full.
    loss: DeviceLoss,
}

/// A queue of the device.
struct OpenQueue {
    /// The open file of the queue.
    file: Arc<File>,
    /// Name under which an earlier process stored the queue.
    stored_name: Option<String>,
}

/// Settings of a TAP device; `None` leaves a setting of the device as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapSettings {
    /// MAC address of the host's end of the TAP.
    pub mac: Option<[u8; 6]>,
    /// Longest packet without its Ethernet header, in bytes.
    ///
    /// The device keeps its MTU if it refuses this one.
    pub mtu: Option<u32>,
    /// Keeps the device and the addresses of the host when the port closes.
    ///
    /// [`Port::remove_device`] removes the device.
    pub persistent: bool,
}

impl Tap {
    /// Opens or creates the TAP device `device`, and brings it up.
    ///
    /// Uses the queues that an earlier process stored.
    ///
    /// # Errors
    ///
    /// If the device exists and is not a TAP with several queues, if another program or switch uses
    /// the device, or if the daemon lacks `CAP_NET_ADMIN`.
    pub fn open(
        device: &str,
        settings: TapSettings,
        inherited: Vec<StoredDescriptor>,
    ) -> Result<Self, PortError> {
        let name = DeviceName::new(device)?;
        // A missing device is claimed after it has been created.
        let existing = if_nametoindex(name.as_str()).ok();
        let failing = |doing| {
            let name = name.as_str();
            move |source| PortError::device(doing, name, NEEDS, source)
        };
        let failed = failing("bring up");
        let control = sys::request_socket().map_err(failed)?;
        if let Some(index) = existing {
            refuse_other_link(control.as_fd(), &name)?;
            if link::is_tap(index) == Some(false) {
                return Err(PortError::NotTap { name: name.as_str().to_owned() });
            }
        }
        let claim = existing.map(|index| DeviceClaim::take("tap", &name, index)).transpose()?;
        let inherited = accepted(name.as_str(), inherited, |stored| check_queue(&stored.fd, &name));
        let mut queues: Vec<_> = inherited.into_iter().map(OpenQueue::inherited).collect();
        if queues.is_empty() {
            if existing.is_some_and(is_held) {
                return Err(PortError::InUse { name: name.as_str().to_owned() });
            }
            queues.push(OpenQueue::open(&name)?);
        }
        let first = Arc::clone(&queues[0].file);
        // An inherited queue may have the settings of an earlier version.
        let accepted =
            offloads::configure(first.as_fd()).map_err(failing("set the offloads of"))?;
        let index = sys::device_index(control.as_fd(), &name).map_err(failed)?;
        let claim = match claim {
            Some(claim) => claim,
            None => DeviceClaim::take("tap", &name, index)?,
        };
        let mut mac = sys::hardware_address(control.as_fd(), &name).map_err(failed)?;
        if let Some(wanted) = settings.mac.filter(|wanted| *wanted != mac) {
            let failed = failing("set the MAC address of");
            sys::set_hardware_address(control.as_fd(), &name, wanted).map_err(failed)?;
            mac = wanted;
        }
        let mtu_refusal = try_mtu(control.as_fd(), &name, settings.mtu);
        if settings.persistent {
            sys::set_tun_persistent(first.as_fd(), true).map_err(failing("keep"))?;
        }
        let flags = sys::device_flags(control.as_fd(), &name).map_err(failed)?;
        if flags & libc::IFF_UP == 0 {
            if existing.is_none() {
                // A device with a queue discipline works, too, and takes more memory.
                let _ = qdisc::remove(index);
            }
            let flags = flags | libc::IFF_UP;
            sys::set_device_flags(control.as_fd(), &name, flags).map_err(failed)?;
        }
        let is_persistent = settings.persistent;
        Ok(Self {
            device: HostDevice::new(control, name, index).with_mtu_refusal(mtu_refusal),
            mac,
            is_persistent,
            _claim: claim,
            queues,
            takes_tunnels: accepted & offloads::TUN_F_UDP_TUNNEL_GSO != 0,
            is_split: false,
            copies: QueueCopies::default(),
            loss: DeviceLoss::since_now(index, |drops| drops.tx),
        })
    }
}

/// Maximum number of checks that no program holds the TAP any more.
///
/// The kernel releases the claim of a killed switch before its last queue.
const HELD_CHECKS: u32 = 50;
/// Pause between two checks.
const HELD_PAUSE: Duration = Duration::from_millis(20);

/// Returns whether another program, such as a hypervisor, holds a queue of a TAP.
///
/// A further queue would take packets from that program.
fn is_held(index: c_uint) -> bool {
    (0..HELD_CHECKS).all(|check| {
        if check > 0 {
            sleep(HELD_PAUSE);
        }
        link::has_carrier(index)
    })
}

/// Opens a queue of a TAP device; creates a missing device.
fn queue(device: &DeviceName) -> Result<File, PortError> {
    let name = device.as_str();
    let failed = |source| PortError::device("open", name, NEEDS, source);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|source| PortError::device("open", "/dev/net/tun", NEEDS, source))?;
    sys::attach_tun(file.as_fd(), device, QUEUE_FLAGS).map_err(|source| {
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EBUSY | Errno::EINVAL) => PortError::InUse { name: name.to_owned() },
            _ => failed(source),
        }
    })?;
    Ok(file)
}

impl Port for Tap {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            tx_tunnel_segmentation: self.takes_tunnels,
            frame_max: Pool::LARGE,
            can_wait: true,
        }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let name = self.device.name.as_str();
        if self.is_split {
            return Err(PortError::AlreadySplit { name: name.to_owned() });
        }
        self.is_split = true;
        for _ in self.queues.len()..threads.into() {
            self.queues.push(OpenQueue::open(&self.device.name)?);
        }
        self.queues.truncate(threads.into());
        let queues = self.queues.iter().map(|OpenQueue { file, .. }| {
            let (file, copies) = (Arc::clone(file), self.copies.add_rx());
            let tx = TapTx { file: Arc::clone(&file), end: TxEnd::Full };
            let rx = TapRx { file, device: name.to_owned(), copies };
            Queues { rx: Some(Box::new(rx)), tx: Box::new(tx) }
        });
        Ok(queues.collect())
    }

    fn link_up(&self) -> bool {
        self.device.link_up()
    }

    fn host_device(&self) -> Option<&HostDevice> {
        Some(&self.device)
    }

    fn lost(&self) -> Option<String> {
        let reason = self.device.lost()?;
        let elsewhere = self.device_reader().and_then(|reader| reader.name_elsewhere());
        elsewhere.is_none().then_some(reason)
    }

    fn remove_device(&self) -> Result<(), PortError> {
        if !self.is_persistent {
            return Ok(());
        }
        let failed = |source| PortError::device("remove", self.device.name.as_str(), NEEDS, source);
        // The device disappears with its last queue.
        sys::set_tun_persistent(queue(&self.device.name)?.as_fd(), false).map_err(failed)
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn device_reader(&self) -> Option<DeviceReader> {
        let queue = self.queues.first().map(|queue| Arc::clone(&queue.file));
        self.device.reader().map(|reader| reader.with_queue(queue))
    }

    fn counters(&self) -> PortCounters {
        PortCounters { rx_dropped: self.loss.packets(), ..PortCounters::default() }
    }

    fn copies(&self) -> PortCopies {
        self.copies.total()
    }

    fn note_losses(&self, losses: &DeviceLosses) {
        self.loss.note(losses.find(self.device.index));
    }

    fn stored_descriptors(&self) -> Vec<StoredDescriptor> {
        let queues = self.queues.iter().enumerate();
        let stored = queues.filter_map(|(number, OpenQueue { file, stored_name })| {
            let name = format!("tap/{}/{number:04}", self.device.name.as_str());
            copy(name, &**file, stored_name.as_deref())
        });
        stored.collect()
    }
}

impl OpenQueue {
    /// Opens a queue of a device.
    fn open(device: &DeviceName) -> Result<Self, PortError> {
        Ok(Self { file: Arc::new(queue(device)?), stored_name: None })
    }

    /// Returns a queue that an earlier process has stored.
    fn inherited(stored: StoredDescriptor) -> Self {
        Self { file: Arc::new(File::from(stored.fd)), stored_name: Some(stored.name) }
    }
}

/// Checks that an inherited descriptor is a queue of the device.
fn check_queue(queue: &OwnedFd, device: &DeviceName) -> Result<(), RefusedDescriptor> {
    let kind = RefusedDescriptor::Kind("a queue of a TAP");
    let Ok((name, flags)) = sys::tun_of_queue(queue.as_fd()) else { return Err(kind) };
    if flags & libc::IFF_TAP == 0 {
        return Err(kind);
    }
    // The kernel reports the first name of a device, and finds the device by every name.
    let index = if_nametoindex(device.as_str()).ok();
    if index.is_none() || if_nametoindex(name.as_str()).ok() != index {
        return Err(RefusedDescriptor::Device);
    }
    let is_alike = flags & QUEUE_FLAGS == QUEUE_FLAGS;
    if is_alike { Ok(()) } else { Err(RefusedDescriptor::Layout) }
}

/// The flags with which a queue of a TAP is opened.
const QUEUE_FLAGS: c_int =
    libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;

/// The receive queue of a TAP port.
struct TapRx {
    /// The open file of the queue.
    file: Arc<File>,
    /// The name of the device.
    device: String,
    /// The counters of copies of frames that needed two buffers.
    copies: Arc<CopyCounters>,
}

/// The result of one read of a queue that had a frame.
enum Received {
    Packet(Packet),
    Refused(RxLoss),
}

/// Buffers for the next frame; kept after a read that found no frame.
///
/// `None`: the pool must supply the buffer.
#[derive(Default)]
struct ReadBuffers {
    /// A buffer for usual frames.
    small: Option<Packet>,
    /// A buffer for frames of offloaded segmentation.
    large: Option<Packet>,
}

impl ReadBuffers {
    /// Takes missing buffers from the pool; returns false without a small buffer.
    fn fill(&mut self, pool: &mut Pool) -> bool {
        let none = DatapathPort::default();
        self.small = self.small.take().or_else(|| pool.take(Pool::SMALL, none));
        self.large = self.large.take().or_else(|| pool.take(Pool::LARGE, none));
        self.small.is_some()
    }

    /// Returns the unused buffers to the pool.
    fn return_to(self, pool: &mut Pool) {
        self.small.into_iter().chain(self.large).for_each(|packet| pool.put_back(packet));
    }
}

impl TapRx {
    /// Reads a frame; leaves unused buffers in `buffers`.
    fn receive(
        &self,
        pool: &mut Pool,
        buffers: &mut ReadBuffers,
        copies: &mut FrameCopies,
    ) -> io::Result<Received> {
        if !buffers.fill(pool) {
            return self.discard();
        }
        let ReadBuffers { small, large } = buffers;
        let mut header = [0; HEADER];
        let front = small.as_mut().map_or(&mut [][..], Packet::frame_mut);
        let rest = large.as_mut().map_or(&mut [][..], |l| &mut l.frame_mut()[Pool::SMALL..]);
        let room = HEADER + front.len() + rest.len();
        let read = (&*self.file).read_vectored(&mut [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(front),
            IoSliceMut::new(rest),
        ]);
        let length = match read? {
            // A read that fills the buffers may have been truncated.
            read if read < room => read.checked_sub(HEADER),
            _ => None,
        };
        let Some(length) = length else {
            let reason = if large.is_some() { RxLoss::Refused } else { RxLoss::NoBuffer };
            return Ok(Received::Refused(reason));
        };
        if length > Pool::SMALL
            && let (Some(small), Some(mut long)) = (&small, large.take())
        {
            long.frame_mut()[..Pool::SMALL].copy_from_slice(small.frame());
            copies.record(Pool::SMALL);
            return Ok(checked_packet(long, length, header, pool));
        }
        Ok(match small.take() {
            Some(small) => checked_packet(small, length, header, pool),
            None => Received::Refused(RxLoss::NoBuffer),
        })
    }

    /// Removes a frame from the queue because the pool has no buffer for it.
    fn discard(&self) -> io::Result<Received> {
        (&*self.file).read(&mut [0; HEADER]).map(|_| Received::Refused(RxLoss::NoBuffer))
    }
}

/// Shortens a packet to its frame; refuses a frame with an invalid virtio header.
fn checked_packet(
    mut packet: Packet,
    length: usize,
    header: [u8; HEADER],
    pool: &mut Pool,
) -> Received {
    packet.truncate(length);
    let virtio_header = header.first_chunk().copied().unwrap_or_default();
    match VirtioHeader::receive(virtio_header, packet.frame()) {
        Ok(virtio) => {
            packet.virtio = virtio;
            Received::Packet(packet)
        }
        Err(_) => {
            pool.put_back(packet);
            Received::Refused(RxLoss::Refused)
        }
    }
}

impl RxQueue for TapRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let mut report = RxReport::default();
        let (mut buffers, mut copies) = (ReadBuffers::default(), FrameCopies::default());
        let mut broken = None;
        for _ in 0..BURST {
            match self.receive(pool, &mut buffers, &mut copies) {
                Ok(Received::Packet(packet)) => burst.push(packet),
                Ok(Received::Refused(reason)) => report.refuse(reason),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    report.is_drained = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                Err(source) => {
                    broken = Some(self.read_error(source));
                    break;
                }
            }
        }
        buffers.return_to(pool);
        self.copies.add(copies);
        broken.map_or(Ok(report), Err)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl TapRx {
    /// Returns the error of a device that cannot be read.
    fn read_error(&self, source: io::Error) -> PortError {
        let name = self.device.clone();
        match source.raw_os_error().map(Errno::from_raw) {
            // Errors of a queue without its device: `EBADFD` after the removal, `EFAULT` during the
            // removal.
            Some(Errno::EBADFD | Errno::EFAULT) => PortError::DeviceGone { name },
            _ => PortError::System { doing: "receive from", name, source },
        }
    }
}

/// The transmit queue of a TAP port.
struct TapTx {
    /// The open file of the queue.
    file: Arc<File>,
    /// The state of the end of the queue.
    end: TxEnd,
}

impl TapTx {
    /// Writes a packet with its virtio header.
    fn write(&self, packet: &Packet) -> io::Result<()> {
        let header = packet.virtio.encode_with_tunnel(packet.frame()).ok_or(Errno::EINVAL)?;
        let parts = [IoSlice::new(&header), IoSlice::new(packet.frame())];
        (&*self.file).write_vectored(&parts).map(drop)
    }
}

impl TxQueue for TapTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        for (taken, packet) in packets.iter().enumerate() {
            if let Err(error) = self.write(packet) {
                self.end = tx_end_of(&error, &[Errno::EIO, Errno::EBADFD], TxEnd::Full);
                return taken;
            }
        }
        packets.len()
    }

    fn tx_end(&self) -> TxEnd {
        self.end
    }

    fn flush(&mut self) {}
}
