//! An AF_XDP socket: its memory, its four rings, and the queue of a device to which it is bound.
#![expect(unsafe_code, reason = "system calls that neither std nor nix wraps")]

use std::{
    ffi::c_uint,
    io,
    mem::zeroed,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
    sync::Arc,
    thread,
    time::Duration,
};

use super::{
    busy_poll::{BusyPollRefusal, set_busy_poll},
    frames::{Receiver, Sender, Umem},
    layout::FrameLayout,
    ring::{ConsumerRing, ProducerRing},
};
use crate::port::{stored::RefusedDescriptor, sys};

/// Number of entries of each ring, which hold frames while the thread is busy.
const RING_ENTRIES: u32 = 1024;

/// Number of entries of the ring of free chunks: two for each receiving chunk.
///
/// The kernel passes a received frame to the port before it releases the ring entry of the frame's
/// chunk. So the port may return every chunk while the old entries of all chunks are still in the
/// ring.
const FREE_ENTRIES: u32 = 2 * RING_ENTRIES;

/// Number of chunks of the memory: half of them receive, and half send.
const CHUNKS: u32 = 2 * RING_ENTRIES;

/// Number of frames that one system call sends in copy mode; 32 by default.
///
/// More frames take fewer calls, but a thread adopts no version during a call.
const SEND_BUDGET: u32 = 128;
/// The socket option for `SEND_BUDGET`: `XDP_MAX_TX_SKB_BUDGET`, from Linux 6.17.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Attempts to bind to a queue that a closed socket still has.
const BIND_ATTEMPTS: u32 = 200;
/// Pause between two attempts to bind.
const BIND_PAUSE: Duration = Duration::from_millis(5);

/// A receive queue of a device, and the transmit queue of the same number.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceQueue {
    /// Index of the device.
    pub(super) device: c_uint,
    /// Number of the queue.
    pub(super) queue: u32,
}

/// The transfer of frames from the device to the memory of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameTransfer {
    /// The device writes frames into the memory.
    ZeroCopy,
    /// The kernel copies frames into the memory.
    Copy,
}

/// A socket that is bound to one queue of a device.
pub(super) struct XdpSocket {
    /// The descriptor, for its counters.
    pub(super) fd: Arc<OwnedFd>,
    /// The memory of the frames.
    pub(super) memory: Arc<Umem>,
    /// The half of the socket that receives frames.
    pub(super) receiver: Receiver,
    /// The half of the socket that sends frames.
    pub(super) sender: Sender,
}

impl XdpSocket {
    /// Opens a socket with frames of a layout and binds it to a queue.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another socket has the queue, `EOPNOTSUPP` if the device does not support the
    /// transfer or the layout, `ENOBUFS` if the daemon may not lock enough memory.
    pub(super) fn open(
        queue: DeviceQueue,
        layout: FrameLayout,
        transfer: FrameTransfer,
    ) -> io::Result<Self> {
        let socket = new_socket()?;
        let fd = socket.as_fd();
        let memory = Umem::new(layout, CHUNKS)?;
        sys::set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory.registration())?;
        let rings = [
            (libc::XDP_UMEM_FILL_RING, FREE_ENTRIES),
            (libc::XDP_UMEM_COMPLETION_RING, RING_ENTRIES),
            (libc::XDP_RX_RING, RING_ENTRIES),
            (libc::XDP_TX_RING, RING_ENTRIES),
        ];
        for (ring, entries) in rings {
            sys::set_option(fd, libc::SOL_XDP, ring, &entries)?;
        }
        // Older kernels have no such option.
        let _ = sys::set_option(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &SEND_BUDGET);
        let SocketRings { free, sent, received, to_send } = SocketRings::map(fd)?;
        let (socket, memory) = (Arc::new(socket), Arc::new(memory));
        let receiver = Receiver::new(Arc::clone(&socket), Arc::clone(&memory), received, free);
        let sender = Sender::new(Arc::clone(&socket), Arc::clone(&memory), to_send, sent);
        let mode = match transfer {
            FrameTransfer::ZeroCopy => libc::XDP_ZEROCOPY,
            FrameTransfer::Copy => libc::XDP_COPY,
        };
        let chains = match layout {
            FrameLayout::Small | FrameLayout::Large => 0,
            FrameLayout::Chain => libc::XDP_USE_SG,
        };
        bind(&socket, queue, mode | chains | libc::XDP_USE_NEED_WAKEUP)?;
        Ok(Self { fd: socket, memory, receiver, sender })
    }

    /// Continues with the bound socket of an earlier process, and with its memory.
    ///
    /// Linux maps the rings of a bound socket from 6.4 on.
    ///
    /// # Errors
    ///
    /// If the descriptors are not those of such a socket, or if the system refuses.
    pub(super) fn inherit(
        socket: OwnedFd,
        memory: OwnedFd,
        layout: FrameLayout,
    ) -> Result<Self, RefusedDescriptor> {
        let domain = sys::socket_option(socket.as_fd(), libc::SO_DOMAIN);
        if !domain.is_ok_and(|domain| domain == libc::AF_XDP) {
            return Err(RefusedDescriptor::Kind("an AF_XDP socket"));
        }
        // The kernel sets the error when the device is removed.
        if sys::socket_option(socket.as_fd(), libc::SO_ERROR)? != 0 {
            return Err(RefusedDescriptor::Device);
        }
        let memory = Arc::new(Umem::inherit(memory, layout, CHUNKS)?);
        let SocketRings { free, sent, received, to_send } = SocketRings::map(socket.as_fd())?;
        let socket = Arc::new(socket);
        let receiver = Receiver::inherit(Arc::clone(&socket), Arc::clone(&memory), received, free);
        let sender = Sender::inherit(Arc::clone(&socket), Arc::clone(&memory), to_send, sent)?;
        Ok(Self { fd: socket, memory, receiver, sender })
    }

    /// Returns the memory of a layout, as the store names it.
    pub(super) fn memory_name(layout: FrameLayout) -> String {
        layout.memory_name(CHUNKS)
    }
}

/// The four rings that an `AF_XDP` socket shares with the kernel.
struct SocketRings {
    /// The ring of free frames to receive into.
    free: ProducerRing<u64>,
    /// The ring of frames that were sent.
    sent: ConsumerRing<u64>,
    /// The ring of received frames.
    received: ConsumerRing<libc::xdp_desc>,
    /// The ring of frames to send.
    to_send: ProducerRing<libc::xdp_desc>,
}

impl SocketRings {
    /// Maps the rings of a socket.
    fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let libc::xdp_mmap_offsets { rx, tx, fr, cr } = get_option(fd, libc::XDP_MMAP_OFFSETS)?;
        Ok(Self {
            free: ProducerRing::new(fd, fr, FREE_ENTRIES, FILL_PAGE)?,
            sent: ConsumerRing::new(fd, cr, RING_ENTRIES, COMPLETION_PAGE)?,
            received: ConsumerRing::new(fd, rx, RING_ENTRIES, libc::XDP_PGOFF_RX_RING)?,
            to_send: ProducerRing::new(fd, tx, RING_ENTRIES, libc::XDP_PGOFF_TX_RING)?,
        })
    }
}

/// Offset of the ring of free chunks in the file of the socket.
#[expect(clippy::cast_possible_wrap, reason = "the value is below 2^34")]
const FILL_PAGE: libc::off_t = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
/// Offset of the ring of sent chunks in the file of the socket.
#[expect(clippy::cast_possible_wrap, reason = "the value is below 2^34")]
const COMPLETION_PAGE: libc::off_t = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;

/// Binds a socket to a queue; waits while a closed socket still has the queue.
fn bind(socket: &OwnedFd, queue: DeviceQueue, flags: u16) -> io::Result<()> {
    for _ in 1..BIND_ATTEMPTS {
        match bind_once(socket.as_fd(), queue, flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => thread::sleep(BIND_PAUSE),
            other => return other,
        }
    }
    bind_once(socket.as_fd(), queue, flags)
}

/// Binds a socket to a queue, without a second attempt.
fn bind_once(socket: BorrowedFd<'_>, queue: DeviceQueue, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        #[expect(clippy::cast_possible_truncation, reason = "44")]
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: queue.device,
        sxdp_queue_id: queue.queue,
        sxdp_shared_umem_fd: 0,
    };
    let length = sys::length_of::<libc::sockaddr_xdp>();
    // SAFETY: the kernel reads `length` bytes from `address`, which has this length.
    let result = unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length) };
    sys::check_result(result).map(drop)
}

/// Returns whether the kernel supports frames of several chunks (Linux 6.6).
///
/// The kernel checks the flags before it looks for the device. The index 0 is never that of a
/// device.
pub(super) fn supports_chains() -> bool {
    let Ok(socket) = new_socket() else { return false };
    let refused = bind_once(socket.as_fd(), DeviceQueue { device: 0, queue: 0 }, libc::XDP_USE_SG);
    refused.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
}

/// Refuses busy polling without kernel support, before a device is touched.
pub(super) fn refuse_busy_poll(busy_poll_us: u32) -> Result<(), BusyPollRefusal> {
    if busy_poll_us == 0 {
        return Ok(());
    }
    // Without AF_XDP sockets, the port reports that.
    new_socket().map_or(Ok(()), |socket| set_busy_poll(socket.as_fd(), busy_poll_us))
}

/// Opens an `AF_XDP` socket without a device.
fn new_socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    let fd = sys::check_result(fd)?;
    // SAFETY: the descriptor is new, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the counters of a socket.
pub(super) fn statistics(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    get_option(socket, libc::XDP_STATISTICS)
}

/// The value of a socket option, which consists of integers.
trait OptionValue: Copy {}
impl OptionValue for libc::xdp_statistics {}
impl OptionValue for libc::xdp_mmap_offsets {}

/// Reads an option of an AF_XDP socket.
fn get_option<T: OptionValue>(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<T> {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut value: T = unsafe { zeroed() };
    let mut length = sys::length_of::<T>();
    let (fd, target) = (socket.as_raw_fd(), ptr::from_mut(&mut value).cast());
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has this length.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, target, &raw mut length) };
    sys::check_result(result).map(|_| value)
}
