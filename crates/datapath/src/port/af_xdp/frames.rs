//! The frames of an AF_XDP socket: memory that port and kernel share (UMEM), and its owners.
//!
//! The memory consists of chunks of equal size. Half of the chunks receive and half send, so the
//! receive queue and the transmit queue of a port share no chunk. A chunk has one owner at a time:
//! the port or the kernel. The kernel owns a chunk from the time at which the port puts it into a
//! ring until it comes back in another ring.
//!
//! The memory is a file, which a service manager can hold for the next process together with the
//! socket. The later process finds the owners of the chunks in the rings:
//!
//! - A receiving chunk that is in no ring is the kernel's, which will put it into the ring of
//!   received frames. The port has none: it releases received frames and returns their chunks at
//!   the end of each burst, in this order. A process that is killed between both steps loses the
//!   chunks of one burst.
//! - A sending chunk is the kernel's if it is in the ring of frames to send. The others are free,
//!   if the kernel has returned as many chunks as it has taken out of that ring
//!   ([`Sender::inherit`]).
#![expect(unsafe_code, reason = "the memory is shared with the kernel")]

use std::{
    collections::BTreeSet,
    ffi::c_void,
    fs::File,
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    slice,
    sync::Arc,
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};
use shunt_pipeline::DatapathPort;

use super::{
    layout::{CHAIN_PARTS_MAX, FrameLayout},
    ring::{ConsumerRing, ProducerRing},
};
use crate::port::{error::GONE_CODES, stored::RefusedDescriptor};

/// Size of a huge page, by which large memory is mapped.
const HUGE_PAGE: usize = 2 << 20;

/// The memory of a socket.
pub(super) struct Umem {
    /// The file that is mapped, which no process can shorten.
    file: File,
    /// The address of the mapping.
    base: NonNull<u8>,
    /// Size of a chunk.
    chunk: u32,
    /// Number of chunks in the memory of the socket.
    chunks: u32,
    /// Maximum number of chunks of a frame.
    parts_max: usize,
}

// SAFETY: the mapping belongs to this value alone; `Receiver` and `Sender` own disjoint chunks, and
// only the owner accesses a chunk.
unsafe impl Send for Umem {}
// SAFETY: a shared reference only gives addresses.
unsafe impl Sync for Umem {}

impl Umem {
    /// Creates `chunks` chunks of a layout, in huge pages if enough are free.
    pub(super) fn new(layout: FrameLayout, chunks: u32) -> io::Result<Self> {
        let length = layout.chunk() as usize * chunks as usize;
        if length.is_multiple_of(HUGE_PAGE)
            && let Ok(memory) = Self::create(layout, chunks, MFdFlags::MFD_HUGETLB)
        {
            return Ok(memory);
        }
        Self::create(layout, chunks, MFdFlags::empty())
    }

    /// Creates packet memory of `chunks` chunks in a new file.
    fn create(layout: FrameLayout, chunks: u32, pages: MFdFlags) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | pages;
        let file = File::from(memfd_create(c"shunt-frames", flags)?);
        file.set_len(u64::from(layout.chunk()) * u64::from(chunks))?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals()))?;
        Self::map(file, layout, chunks)
    }

    /// Maps the memory that an earlier process stored.
    ///
    /// # Errors
    ///
    /// If the descriptor is no such memory, or has another length.
    pub(super) fn inherit(
        file: OwnedFd,
        layout: FrameLayout,
        chunks: u32,
    ) -> Result<Self, RefusedDescriptor> {
        let sealed = fcntl(&file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_truncate);
        if !sealed.is_ok_and(|own| own.contains(seals())) {
            return Err(RefusedDescriptor::Kind("the memory of an AF_XDP socket"));
        }
        let file = File::from(file);
        if file.metadata()?.len() != u64::from(layout.chunk()) * u64::from(chunks) {
            return Err(RefusedDescriptor::Layout);
        }
        Ok(Self::map(file, layout, chunks)?)
    }

    /// Maps the packet memory of a file.
    fn map(file: File, layout: FrameLayout, chunks: u32) -> io::Result<Self> {
        let chunk = layout.chunk();
        let base = map(&file, chunk as usize * chunks as usize)?;
        Ok(Self { file, base, chunk, chunks, parts_max: layout.parts_max() })
    }

    /// Returns the file, for a later process.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Returns the description that the kernel registers.
    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.base.as_ptr() as u64,
            len: u64::from(self.chunk) * u64::from(self.chunks),
            chunk_size: self.chunk,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    /// Returns the length in bytes.
    const fn length(&self) -> usize {
        self.chunk as usize * self.chunks as usize
    }

    /// Returns the address of a range that lies in one chunk of `owned`.
    fn range(&self, owned: &Range<u32>, address: u64, length: usize) -> Option<NonNull<u8>> {
        let chunk = u64::from(self.chunk);
        let number = u32::try_from(address / chunk).ok()?;
        let start = usize::try_from(address % chunk).ok()?;
        let fits = start.checked_add(length)? <= self.chunk as usize;
        let offset = usize::try_from(address).ok()?;
        // SAFETY: the range lies in a chunk of the mapping.
        (owned.contains(&number) && fits).then(|| unsafe { self.base.add(offset) })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: base and length belong to the mapping, and both owners have ended.
        unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.length()) };
    }
}

/// Returns the seals of the file: no process can change its length.
fn seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

/// Maps a file into memory.
fn map(file: &File, length: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let fd = file.as_raw_fd();
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours. The
    // file keeps its length, so every page of the mapping exists.
    let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast())
        .ok_or_else(|| io::Error::other("the kernel mapped the memory at address 0"))
}

/// The receiving half of a socket.
pub(super) struct Receiver {
    /// The descriptor of the socket.
    socket: Arc<OwnedFd>,
    /// The memory that contains the frames.
    memory: Arc<Umem>,
    /// The numbers of the chunks that receive.
    owned: Range<u32>,
    /// The ring of received frames.
    received: ConsumerRing<libc::xdp_desc>,
    /// The ring of free frames, which the kernel fills with data.
    free: ProducerRing<u64>,
    /// The parts of the frame that was read last, until the frame is dropped.
    parts: Vec<libc::xdp_desc>,
    /// True if the next part belongs to a frame with too many parts.
    skips: bool,
}

impl Receiver {
    /// Creates the receiving half.
    ///
    /// The first half of the chunks goes to the kernel.
    /// The ring of free chunks must have two entries for each of these chunks.
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        memory: Arc<Umem>,
        received: ConsumerRing<libc::xdp_desc>,
        free: ProducerRing<u64>,
    ) -> Self {
        let mut receiver = Self::inherit(socket, memory, received, free);
        for chunk in receiver.owned.clone() {
            receiver.put_back(u64::from(chunk) * u64::from(receiver.memory.chunk));
        }
        receiver.free.publish();
        receiver
    }

    /// Creates the receiving half of a socket of an earlier process.
    ///
    /// All of its chunks are in the rings already.
    pub(super) fn inherit(
        socket: Arc<OwnedFd>,
        memory: Arc<Umem>,
        received: ConsumerRing<libc::xdp_desc>,
        free: ProducerRing<u64>,
    ) -> Self {
        let (owned, parts) = (0..memory.chunks / 2, Vec::with_capacity(CHAIN_PARTS_MAX));
        Self { socket, memory, owned, received, free, parts, skips: false }
    }

    /// Returns the next received frame, which the port owns until the frame is dropped.
    ///
    /// A frame of which a part is missing stays in the ring. So [`Self::publish`] never releases a
    /// part of a frame, except of a frame with too many parts.
    pub(super) fn next(&mut self) -> Option<RxFrame<'_>> {
        let mut count = 0;
        self.parts.clear();
        loop {
            let Some(part) = self.received.pop() else {
                self.received.unread(count);
                return None;
            };
            let is_last = part.options & libc::XDP_PKT_CONTD == 0;
            if self.skips {
                self.put_back(part.addr);
                self.skips = !is_last;
                continue;
            }
            self.parts.push(part);
            count += 1;
            if is_last || self.parts.len() == CHAIN_PARTS_MAX {
                self.skips = !is_last;
                return Some(RxFrame { receiver: self });
            }
        }
    }

    /// Returns whether received frames fill half of the ring.
    pub(super) fn is_half_full(&self) -> bool {
        self.received.is_half_full()
    }

    /// Returns the read entries and the free chunks to the kernel, in this order.
    ///
    /// In the other order, a chunk could have two owners after a killed process.
    pub(super) fn publish(&self) {
        self.received.release();
        self.free.publish();
        if self.free.needs_wakeup() {
            self.poll_device();
        }
    }

    /// Wakes the driver; with busy polling, the call runs its receive queue.
    pub(super) fn poll_device(&self) {
        let (fd, none) = (self.socket.as_raw_fd(), ptr::null_mut());
        // SAFETY: no memory is passed. The call only wakes the kernel; its error codes mean that
        // there is nothing to do.
        unsafe {
            libc::recvfrom(fd, ptr::null_mut(), 0, libc::MSG_DONTWAIT, none, ptr::null_mut());
        }
    }

    /// Returns the descriptor of the socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Writes a chunk to the ring of free chunks.
    fn put_back(&mut self, address: u64) {
        let has_room = self.free.push(address);
        debug_assert!(has_room, "the ring has room, because it has two entries for each chunk");
    }
}

/// A received frame, until it is dropped.
pub(super) struct RxFrame<'a> {
    /// The receiver that gets the frame back.
    receiver: &'a mut Receiver,
}

impl RxFrame<'_> {
    /// Returns the length; `None` for a wrong descriptor, or for too many of them.
    pub(super) fn length(&self) -> Option<usize> {
        if self.receiver.skips {
            return None;
        }
        self.parts().map(|part| part.map(<[u8]>::len)).sum()
    }

    /// Returns the bytes of each part, in their order; `None` for a wrong descriptor.
    pub(super) fn parts(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let Receiver { memory, owned, parts, .. } = &*self.receiver;
        parts.iter().map(move |part| {
            let length = part.len as usize;
            let start = memory.range(owned, part.addr, length)?;
            // SAFETY: the range lies in a chunk that receives. The kernel passed the chunk to the
            // port, and does not write to it until `drop` returns it.
            Some(unsafe { slice::from_raw_parts(start.as_ptr(), length) })
        })
    }
}

impl Drop for RxFrame<'_> {
    fn drop(&mut self) {
        while let Some(part) = self.receiver.parts.pop() {
            // The kernel accepts any address in the chunk.
            self.receiver.put_back(part.addr);
        }
    }
}

/// Returns a port for each position of a ring.
///
/// The frames of an earlier process have no port, because that process received them.
fn ingress_of(ring: &ProducerRing<libc::xdp_desc>) -> Box<[DatapathPort]> {
    vec![DatapathPort::default(); ring.capacity()].into_boxed_slice()
}

/// Returns the numbers of the chunks that send: the second half.
const fn sending_chunks(memory: &Umem) -> Range<u32> {
    memory.chunks / 2..memory.chunks
}

/// Number of checks for returned chunks.
const SETTLE_CHECKS: u32 = 20;
/// Pause between two checks for returned chunks.
const SETTLE_PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of system calls that send the frames of an earlier process.
///
/// In copy mode, a call sends at least 32 frames of a ring of 1,024.
const FLUSHES_MAX: u32 = 64;

/// Returns the number of frames that the kernel has taken and sent.
///
/// `None` if the kernel does not return all their chunks in a tenth of a second.
fn settled_count(
    socket: &OwnedFd,
    to_send: &ProducerRing<libc::xdp_desc>,
    sent: &ConsumerRing<u64>,
) -> Option<u32> {
    (0..SETTLE_CHECKS).find_map(|check| {
        if check > 0 {
            // A system call may have ended between two parts of a frame.
            send(socket);
            thread::sleep(SETTLE_PAUSE);
        }
        // Both counts only grow. If the first count did not change, it was valid together with the
        // second count.
        let taken = to_send.taken_count();
        let is_settled = sent.written_count() == taken && to_send.taken_count() == taken;
        is_settled.then_some(taken)
    })
}

/// Lets the kernel send frames of the ring; returns the result of the system call.
fn send(socket: &OwnedFd) -> isize {
    let fd = socket.as_raw_fd();
    // SAFETY: no memory is passed. The frames that the kernel does not send now stay in the ring,
    // with every error code.
    unsafe { libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) }
}

/// The sending half of a socket.
pub(super) struct Sender {
    /// The descriptor of the socket.
    socket: Arc<OwnedFd>,
    /// The memory that contains the frames.
    memory: Arc<Umem>,
    /// The numbers of the chunks that send.
    owned: Range<u32>,
    /// Addresses of the chunks that the port owns: the chunks in `owned`.
    free: Vec<u64>,
    /// The ring of frames to send.
    to_send: ProducerRing<libc::xdp_desc>,
    /// The ring of frames that were sent.
    sent: ConsumerRing<u64>,
    /// The port that received each frame in `to_send`, by position.
    ingress: Box<[DatapathPort]>,
    /// True if the device was down or removed at the last [`Self::flush`].
    is_down: bool,
}

impl Sender {
    /// Creates the sending half, which has the second half of the chunks.
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        memory: Arc<Umem>,
        to_send: ProducerRing<libc::xdp_desc>,
        sent: ConsumerRing<u64>,
    ) -> Self {
        let owned = sending_chunks(&memory);
        let free = owned.clone().map(|chunk| u64::from(chunk) * u64::from(memory.chunk)).collect();
        let ingress = ingress_of(&to_send);
        Self { socket, memory, owned, free, to_send, sent, ingress, is_down: false }
    }

    /// Creates the sending half of a socket of an earlier process.
    ///
    /// Frames that the process published, and that the kernel has not sent, are still sent.
    ///
    /// # Errors
    ///
    /// If the kernel keeps frames that it has taken. The chunks of these frames are unknown.
    pub(super) fn inherit(
        socket: Arc<OwnedFd>,
        memory: Arc<Umem>,
        to_send: ProducerRing<libc::xdp_desc>,
        mut sent: ConsumerRing<u64>,
    ) -> Result<Self, RefusedDescriptor> {
        let taken = settled_count(&socket, &to_send, &sent).ok_or(RefusedDescriptor::Unsettled)?;
        sent.skip_to(taken);
        let waiting = to_send.published_since(taken).ok_or(RefusedDescriptor::Layout)?;
        let chunk = u64::from(memory.chunk);
        let waiting: BTreeSet<u64> = waiting.map(|frame| frame.addr / chunk).collect();
        let owned = sending_chunks(&memory);
        let free = owned.clone().map(u64::from).filter(|number| !waiting.contains(number));
        let free = free.map(|number| number * chunk).collect();
        let ingress = ingress_of(&to_send);
        let mut sender =
            Self { socket, memory, owned, free, to_send, sent, ingress, is_down: false };
        // The packet thread flushes a queue only after it has sent packets.
        for _ in 0..FLUSHES_MAX {
            if !sender.is_pending() || sender.is_down {
                break;
            }
            sender.flush();
        }
        Ok(sender)
    }

    /// Takes back the chunks of frames that were sent.
    pub(super) fn reclaim(&mut self) {
        while let Some(address) = self.sent.pop() {
            let is_chunk =
                self.memory.range(&self.owned, address, self.memory.chunk as usize).is_some();
            debug_assert!(is_chunk, "the kernel returns the addresses of `push`");
            // With a wrong address, the port loses a chunk.
            if is_chunk {
                self.free.push(address);
            }
        }
        self.sent.release();
    }

    /// Copies a frame that the port `ingress` received into the ring.
    ///
    /// Returns false, and writes nothing, if there is no room for the whole frame.
    #[must_use]
    pub(super) fn push(&mut self, frame: &[u8], ingress: DatapathPort) -> bool {
        let chunk = self.memory.chunk as usize;
        let parts = frame.len().div_ceil(chunk).max(1);
        // The caller has compared the length with the MTU, but the MTU may have been raised.
        let is_too_long = parts > self.memory.parts_max;
        if is_too_long || parts > self.free.len() || !self.to_send.has_room(parts) {
            return false;
        }
        let mut rest = frame;
        loop {
            let (part, left) = rest.split_at(rest.len().min(chunk));
            let options = if left.is_empty() { 0 } else { libc::XDP_PKT_CONTD };
            self.push_part(part, options, ingress);
            if left.is_empty() {
                return true;
            }
            rest = left;
        }
    }

    /// Copies a part of a frame into a free chunk, for which the ring has room.
    fn push_part(&mut self, part: &[u8], options: u32, ingress: DatapathPort) {
        let chunk = self.free.pop().and_then(|address| {
            Some((address, self.memory.range(&self.owned, address, part.len())?))
        });
        let Some((addr, start)) = chunk else {
            debug_assert!(false, "`push` has counted the free chunks, and each has its full size");
            return;
        };
        // SAFETY: the chunk sends, and the port owns it: it is in no ring. The part is memory of
        // this process, outside of the mapping.
        unsafe { ptr::copy_nonoverlapping(part.as_ptr(), start.as_ptr(), part.len()) };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the length is at most that of a chunk"
        )]
        let len = part.len() as u32;
        let position = self.to_send.next_position();
        let is_in = self.to_send.push(libc::xdp_desc { addr, len, options });
        debug_assert!(is_in, "`push` has counted the entries");
        if let Some(own) = self.ingress.get_mut(position) {
            *own = ingress;
        }
    }

    /// Passes the frames to the kernel.
    pub(super) fn publish(&self) {
        self.to_send.publish();
    }

    /// Returns whether the kernel has not taken all frames.
    pub(super) fn is_pending(&self) -> bool {
        self.to_send.is_pending()
    }

    /// Returns whether frames that the port `ingress` received wait for the kernel.
    pub(super) fn holds_packets_of(&self, ingress: DatapathPort) -> bool {
        let mut positions = self.to_send.pending_positions();
        positions.any(|position| self.ingress.get(position) == Some(&ingress))
    }

    /// Lets the kernel send frames that still wait.
    ///
    /// In copy mode, one system call sends a limited number of frames.
    pub(super) fn flush(&mut self) {
        self.is_down = false;
        if self.is_pending() && self.to_send.needs_wakeup() {
            let result = send(&self.socket);
            self.is_down = result < 0 && GONE_CODES.contains(&Errno::last());
        }
    }

    /// Returns whether the device is down or removed; asks the kernel only if it was.
    ///
    /// The kernel reports the state only to the system call that sends. So the first frames after
    /// the device was set down wait in the ring until the device is up again.
    pub(super) fn is_device_down(&mut self) -> bool {
        if self.is_down {
            self.flush();
        }
        self.is_down
    }
}
