//! The functions of `c/shim.c` as safe functions and types.
//!
//! A port belongs to one [`RawPort`], and each of its queues to one handle, so no two threads use a
//! queue at the same time. Buffers stay in a [`FrameBuffer`], which copies frames. Pools of buffers
//! are never freed, so buffers that drivers keep stay valid.

#![expect(unsafe_code, reason = "calls of C functions, with pointers to buffers of DPDK")]

mod statistics;

use std::{
    cell::Cell,
    collections::BTreeSet,
    ffi::{CStr, CString, c_char, c_int},
    ptr::{self, NonNull},
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use crate::log;

/// The numbers of the open ports.
///
/// The lock lets one thread at a time change the set of devices, as DPDK demands.
static OPEN_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Maximum number of frames in a burst.
pub(crate) const BURST: usize = 64;

/// The opaque `struct rte_mbuf`: Rust code has only pointers to the structure.
#[repr(C)]
struct Mbuf {
    _opaque: [u8; 0],
}

/// The opaque `struct rte_mempool`: Rust code has only pointers to the structure.
#[repr(C)]
struct Mempool {
    _opaque: [u8; 0],
}

/// `struct shunt_dpdk_frame`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Frame {
    mbuf: *mut Mbuf,
    length: u32,
    offload: RawOffload,
}

/// The second half of `struct shunt_dpdk_frame`: the offloads of a frame.
///
/// The device must apply these offloads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawOffload {
    pub(crate) flags: u16,
    pub(crate) segment_size: u16,
    pub(crate) l2_length: u16,
    pub(crate) l3_length: u16,
    pub(crate) l4_length: u16,
}

impl RawOffload {
    /// The device has found the checksums of a received frame right.
    pub(crate) const CHECKSUM_GOOD: u16 = 1;
    /// The device must fill in the TCP checksum.
    pub(crate) const TCP_CHECKSUM: u16 = 2;
    /// The device must fill in the UDP checksum.
    pub(crate) const UDP_CHECKSUM: u16 = 4;
    /// The device must cut the frame into TCP segments.
    pub(crate) const TCP_SEGMENTS: u16 = 8;
    /// The frame has IPv6, and IPv4 otherwise.
    pub(crate) const IPV6: u16 = 16;
}

/// `struct shunt_dpdk_limits`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawLimits {
    pub(crate) rx_queues_max: u16,
    pub(crate) tx_queues_max: u16,
    pub(crate) node: i32,
    pub(crate) mtu_min: u16,
    pub(crate) mtu_max: u16,
    pub(crate) tcp_checksum: u8,
    pub(crate) udp_checksum: u8,
    pub(crate) tcp_segments: u8,
    pub(crate) is_ring: u8,
    pub(crate) errors_are_refusals: u8,
}

/// `struct shunt_dpdk_settings`.
#[repr(C)]
struct RawSettings {
    pool: *mut Mempool,
    rx_queues: u16,
    tx_queues: u16,
    rx_slots: u16,
    tx_slots: u16,
    mtu: u16,
}

/// `struct shunt_dpdk_counters`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawCounters {
    pub(crate) rx_dropped: u64,
    pub(crate) tx_dropped: u64,
}

/// `struct shunt_dpdk_start`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawStart {
    step: u32,
    promiscuous: i32,
}

// The C compiler checks the same sizes.
const _: () = assert!(size_of::<Frame>() == 24);
const _: () = assert!(size_of::<RawLimits>() == 20);
const _: () = assert!(size_of::<RawSettings>() == 24);

type LogFunction = unsafe extern "C" fn(u32, *const c_char, usize);

unsafe extern "C" {
    fn shunt_dpdk_version() -> *const c_char;
    fn shunt_dpdk_start(argc: c_int, argv: *mut *mut c_char, log_to: LogFunction) -> c_int;
    fn shunt_dpdk_register_thread() -> c_int;
    fn shunt_dpdk_unregister_thread();
    fn shunt_dpdk_create_pool(
        name: *const c_char,
        count: u32,
        cache: u32,
        room: u16,
        node: i32,
        error: *mut i32,
    ) -> *mut Mempool;
    fn shunt_dpdk_free_buffers(pool: *const Mempool) -> u32;
    fn shunt_dpdk_attach(devargs: *const c_char, port: *mut u16) -> c_int;
    fn shunt_dpdk_detach(port: u16) -> c_int;
    fn shunt_dpdk_limits(port: u16, limits: *mut RawLimits) -> c_int;
    fn shunt_dpdk_start_device(
        port: u16,
        settings: *const RawSettings,
        start: *mut RawStart,
    ) -> c_int;
    fn shunt_dpdk_link_is_up(port: u16) -> c_int;
    fn shunt_dpdk_is_removed(port: u16) -> c_int;
    fn shunt_dpdk_mac(port: u16, mac: *mut u8) -> c_int;
    fn shunt_dpdk_mtu(port: u16, mtu: *mut u16) -> c_int;
    fn shunt_dpdk_counters(port: u16, counters: *mut RawCounters) -> c_int;
    fn shunt_dpdk_receive(port: u16, queue: u16, frames: *mut Frame, count: u16) -> u16;
    fn shunt_dpdk_read(frame: *const Frame, to: *mut u8);
    fn shunt_dpdk_allocate(pool: *mut Mempool, frames: *mut Frame, count: u16) -> u16;
    fn shunt_dpdk_write(pool: *mut Mempool, frame: *const Frame, from: *const u8) -> c_int;
    fn shunt_dpdk_send(
        port: u16,
        queue: u16,
        frames: *const Frame,
        count: u16,
        refused: *mut u8,
    ) -> u16;
    fn shunt_dpdk_release(frames: *const Frame, count: u16);
}

/// The error of a failed call: a negative `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DpdkErrno(pub(crate) i32);

const fn check_result(result: c_int) -> Result<(), DpdkErrno> {
    if result < 0 { Err(DpdkErrno(result)) } else { Ok(()) }
}

/// Returns the name and version of the linked DPDK.
pub(crate) fn version() -> &'static str {
    // SAFETY: the function takes nothing, and may be called before the start.
    let text = unsafe { shunt_dpdk_version() };
    // SAFETY: `rte_version` returns a string in static memory, with a NUL byte.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("DPDK")
}

/// A token that proves that DPDK has started in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started(());

/// Starts DPDK with the arguments of a command line.
///
/// # Errors
///
/// If DPDK refuses, or if this function was called before: DPDK can start only once.
pub(crate) fn start(arguments: Vec<CString>) -> Result<Started, DpdkErrno> {
    /// Set by the first call.
    static CALLED: AtomicBool = AtomicBool::new(false);
    if CALLED.swap(true, Relaxed) {
        return Err(DpdkErrno(-libc::EALREADY));
    }
    let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    let count = c_int::try_from(pointers.len()).map_err(|_| DpdkErrno(-libc::E2BIG))?;
    pointers.push(ptr::null_mut());
    // DPDK may keep the strings, so they and the list are never freed.
    let list = Vec::leak(pointers).as_mut_ptr();
    // SAFETY: `list` has `count` strings and a null pointer that live as long as the process, and the
    // flag above lets only one thread call this function. `log_text` has the type that the shim calls.
    check_result(unsafe { shunt_dpdk_start(count, list, log_text) })?;
    Ok(Started(()))
}

/// Passes text that DPDK logs to [`record`](crate::log::record).
///
/// # Safety
///
/// `text` has `length` bytes.
unsafe extern "C" fn log_text(level: u32, text: *const c_char, length: usize) {
    if text.is_null() || length == 0 {
        return;
    }
    // SAFETY: the caller promises `length` bytes, which it changes only after the return.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), length) };
    log::record(level, &String::from_utf8_lossy(bytes));
}

/// The registration of the current thread with DPDK.
///
/// An unregistered thread also works, but has no caches of buffers.
struct Registration {
    is_registered: Cell<Option<bool>>,
}

thread_local! {
    static REGISTRATION: Registration = const { Registration { is_registered: Cell::new(None) } };
}

impl Registration {
    fn ensure_registered(_: Started) {
        REGISTRATION.with(|own| {
            if own.is_registered.get().is_none() {
                // SAFETY: DPDK has started, and this thread calls the function for the first time.
                let result = unsafe { shunt_dpdk_register_thread() };
                own.is_registered.set(Some(result == 0));
            }
        });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.is_registered.get() == Some(true) {
            // SAFETY: this thread registered itself, and ends now.
            unsafe { shunt_dpdk_unregister_thread() }
        }
    }
}

/// A pool of packet buffers.
///
/// A pool lives as long as the process, because no function frees a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MbufPool(NonNull<Mempool>);

// SAFETY: pools of DPDK are made for use by several threads at a time.
unsafe impl Send for MbufPool {}
// SAFETY: as above.
unsafe impl Sync for MbufPool {}

impl MbufPool {
    /// Creates a pool of `count` buffers with room for `room` bytes on a NUMA node.
    pub(crate) fn create(
        _: Started,
        name: &CStr,
        count: u32,
        room: u16,
        node: i32,
    ) -> Result<Self, DpdkErrno> {
        let mut error = 0;
        // SAFETY: DPDK has started. `name` ends with a NUL byte and is copied; `error` is valid for
        // the call.
        let pool = unsafe {
            shunt_dpdk_create_pool(name.as_ptr(), count, CACHE, room, node, &raw mut error)
        };
        NonNull::new(pool).map(Self).ok_or(DpdkErrno(error))
    }

    /// Returns the number of free buffers, including those in the caches of threads.
    pub(crate) fn free_buffers(self) -> u32 {
        // SAFETY: the pool is never freed, and may be read while others use it.
        unsafe { shunt_dpdk_free_buffers(self.0.as_ptr()) }
    }
}

/// Number of free buffers that each thread keeps in its cache.
pub(crate) const CACHE: u32 = 256;

/// An open port of DPDK, for one attached device.
///
/// The port is closed when this value is dropped.
#[derive(Debug)]
pub(crate) struct RawPort {
    started: Started,
    port: u16,
}

/// The step at which a device refused to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStep {
    Configure,
    Mtu,
    RxQueue,
    TxQueue,
    Start,
}

/// Buffer pool, numbers of queues and slots, and MTU of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortSettings {
    pub(crate) pool: MbufPool,
    pub(crate) rx_queues: u16,
    pub(crate) tx_queues: u16,
    pub(crate) rx_slots: u16,
    pub(crate) tx_slots: u16,
    pub(crate) mtu: Option<u16>,
}

/// A started port, with a handle for each queue.
#[derive(Debug)]
pub(crate) struct StartedPort {
    pub(crate) port: Arc<RawPort>,
    pub(crate) rx: Vec<RxHandle>,
    pub(crate) tx: Vec<TxHandle>,
    /// An error if the device receives only frames to its own MAC address.
    pub(crate) promiscuous: Result<(), DpdkErrno>,
}

impl RawPort {
    /// Attaches the device of `devargs`.
    pub(crate) fn attach(started: Started, devargs: &CStr) -> Result<Self, DpdkErrno> {
        let mut port = 0;
        let mut open = OPEN_PORTS.lock();
        // SAFETY: DPDK has started. `devargs` ends with a NUL byte and is copied; `port` is valid for
        // the call.
        check_result(unsafe { shunt_dpdk_attach(devargs.as_ptr(), &raw mut port) })?;
        // For an attached device, DPDK returns its existing port, which belongs to the first
        // caller.
        if !open.insert(port) {
            return Err(DpdkErrno(-libc::EEXIST));
        }
        Ok(Self { started, port })
    }

    pub(crate) fn limits(&self) -> Result<RawLimits, DpdkErrno> {
        let mut limits = RawLimits::default();
        // SAFETY: the port is open, and `limits` is valid for the call.
        check_result(unsafe { shunt_dpdk_limits(self.port, &raw mut limits) })?;
        Ok(limits)
    }

    /// Configures and starts the port.
    ///
    /// The function consumes the port, so the port starts at most once, and each queue has one
    /// handle. A port that does not start is closed.
    pub(crate) fn start(self, own: PortSettings) -> Result<StartedPort, (StartStep, DpdkErrno)> {
        let PortSettings { pool, rx_queues, tx_queues, rx_slots, tx_slots, mtu } = own;
        let settings = RawSettings {
            pool: pool.0.as_ptr(),
            rx_queues,
            tx_queues,
            rx_slots,
            tx_slots,
            mtu: mtu.unwrap_or(0),
        };
        let mut start = RawStart::default();
        // SAFETY: the port is open and was not started. The pool is never freed. `settings` and `start` are
        // valid for the call.
        let result =
            unsafe { shunt_dpdk_start_device(self.port, &raw const settings, &raw mut start) };
        check_result(result).map_err(|error| {
            let steps =
                [StartStep::Configure, StartStep::Mtu, StartStep::RxQueue, StartStep::TxQueue];
            (steps.get(start.step as usize).copied().unwrap_or(StartStep::Start), error)
        })?;
        let port = Arc::new(self);
        let rx = (0..rx_queues).map(|queue| RxHandle { port: Arc::clone(&port), queue });
        let tx = (0..tx_queues).map(|queue| TxHandle { port: Arc::clone(&port), pool, queue });
        let (rx, tx) = (rx.collect(), tx.collect());
        Ok(StartedPort { port, rx, tx, promiscuous: check_result(start.promiscuous) })
    }

    pub(crate) fn link_is_up(&self) -> bool {
        // SAFETY: the port is open.
        (unsafe { shunt_dpdk_link_is_up(self.port) }) == 1
    }

    pub(crate) fn is_removed(&self) -> bool {
        // SAFETY: the port is open.
        (unsafe { shunt_dpdk_is_removed(self.port) }) == 1
    }

    pub(crate) fn mac(&self) -> Result<[u8; 6], DpdkErrno> {
        let mut mac = [0; 6];
        // SAFETY: the port is open, and `mac` has the six bytes that the function writes.
        check_result(unsafe { shunt_dpdk_mac(self.port, mac.as_mut_ptr()) })?;
        Ok(mac)
    }

    pub(crate) fn mtu(&self) -> Result<u16, DpdkErrno> {
        let mut mtu = 0;
        // SAFETY: the port is open, and `mtu` is valid for the call.
        check_result(unsafe { shunt_dpdk_mtu(self.port, &raw mut mtu) })?;
        Ok(mtu)
    }

    pub(crate) fn counters(&self) -> Result<RawCounters, DpdkErrno> {
        let mut counters = RawCounters::default();
        // SAFETY: the port is open, and `counters` is valid for the call.
        check_result(unsafe { shunt_dpdk_counters(self.port, &raw mut counters) })?;
        Ok(counters)
    }
}

impl Drop for RawPort {
    fn drop(&mut self) {
        let mut open = OPEN_PORTS.lock();
        // SAFETY: the port is open, and nobody uses it from now on: each handle of a queue keeps it.
        let result = unsafe { shunt_dpdk_detach(self.port) };
        open.remove(&self.port);
        if result < 0 {
            let reason = std::io::Error::from_raw_os_error(-result);
            tracing::warn!(
                %reason,
                "DPDK port {}: the device was not released: restart the daemon to reuse it",
                self.port
            );
        }
    }
}

/// The exclusive right to receive from a queue.
#[derive(Debug)]
pub(crate) struct RxHandle {
    port: Arc<RawPort>,
    queue: u16,
}

/// The exclusive right to send to a queue.
#[derive(Debug)]
pub(crate) struct TxHandle {
    port: Arc<RawPort>,
    pool: MbufPool,
    queue: u16,
}

/// The frames of a received burst, or of a burst to send, in buffers of DPDK.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    /// The first `count` frames have buffers, which belong to this value.
    frames: [Frame; BURST],
    count: usize,
}

// SAFETY: a buffer may be read, written, sent and returned by any thread, by one at a time.
unsafe impl Send for FrameBuffer {}

impl FrameBuffer {
    pub(crate) const fn new() -> Self {
        let offload =
            RawOffload { flags: 0, segment_size: 0, l2_length: 0, l3_length: 0, l4_length: 0 };
        let empty = Frame { mbuf: ptr::null_mut(), length: 0, offload };
        Self { frames: [empty; BURST], count: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Returns the buffers of all frames to their pools.
    pub(crate) fn release(&mut self) {
        self.release_from(0);
    }

    /// Returns the buffers of the frames from `position` on to their pools.
    fn release_from(&mut self, position: usize) {
        let Some(rest) = self.frames.get(position..self.count) else { return };
        if !rest.is_empty() {
            // SAFETY: the first `count` frames have buffers that belong to this value, which loses
            // these below.
            unsafe { shunt_dpdk_release(rest.as_ptr(), length(rest.len())) };
            self.count = position;
        }
    }

    /// Receives at most `max` frames, after it has released all earlier frames.
    pub(crate) fn receive(&mut self, from: &mut RxHandle, max: usize) {
        self.release();
        Registration::ensure_registered(from.port.started);
        let (port, queue) = (from.port.port, from.queue);
        let frames = self.frames.as_mut_ptr();
        // SAFETY: the port is started while the handle exists, and no other thread has the handle.
        // `frames` has room for BURST frames, and the buffers of those written belong to this value.
        let count = unsafe { shunt_dpdk_receive(port, queue, frames, length(max.min(BURST))) };
        self.count = usize::from(count).min(BURST);
    }

    /// Returns the length of a frame; true if the device has verified its checksum.
    ///
    /// The device verifies only transport checksums.
    pub(crate) fn describe(&self, position: usize) -> Option<(usize, bool)> {
        let frame = self.frames.get(..self.count)?.get(position)?;
        let is_good = frame.offload.flags & RawOffload::CHECKSUM_GOOD != 0;
        Some((frame.length as usize, is_good))
    }

    /// Copies a frame to `to`; returns false if the lengths differ.
    pub(crate) fn read(&self, position: usize, to: &mut [u8]) -> bool {
        let frames = self.frames.get(..self.count);
        let Some(frame) = frames.and_then(|frames| frames.get(position)) else { return false };
        if frame.length as usize != to.len() {
            return false;
        }
        // SAFETY: the frame has a buffer, and the function writes exactly its length to `to`.
        unsafe { shunt_dpdk_read(frame, to.as_mut_ptr()) };
        true
    }

    /// Takes empty buffers for `count` frames, all or none.
    ///
    /// Earlier frames are released.
    pub(crate) fn allocate(&mut self, queue: &TxHandle, count: usize) -> bool {
        self.release();
        Registration::ensure_registered(queue.port.started);
        let frames = self.frames.as_mut_ptr();
        let pool = queue.pool.0.as_ptr();
        // SAFETY: the pool is never freed. `frames` has room for BURST frames, and the buffers belong to
        // this value.
        let taken = unsafe { shunt_dpdk_allocate(pool, frames, length(count.min(BURST))) };
        self.count = usize::from(taken).min(BURST);
        self.count > 0 || count == 0
    }

    /// Copies a frame into the empty buffer at a position.
    ///
    /// Returns false if a long frame lacks further buffers. The buffers of this frame and of later
    /// frames are then released.
    pub(crate) fn write(
        &mut self,
        queue: &TxHandle,
        position: usize,
        bytes: &[u8],
        offload: RawOffload,
    ) -> bool {
        let frames = self.frames.get_mut(..self.count);
        let Some(frame) = frames.and_then(|frames| frames.get_mut(position)) else { return false };
        let Ok(length) = u32::try_from(bytes.len()) else { return false };
        (frame.length, frame.offload) = (length, offload);
        // SAFETY: the frame has an empty buffer of the pool, and the function reads its length from
        // `bytes`. The pool is never freed.
        let result = unsafe { shunt_dpdk_write(queue.pool.0.as_ptr(), frame, bytes.as_ptr()) };
        if result < 0 {
            self.release_from(position);
        }
        result == 0
    }

    /// Sends frames, first to last, and releases the buffers of the frames not sent.
    ///
    /// Returns the number of frames sent, and true if the device will never take the next frame.
    pub(crate) fn send(&mut self, to: &mut TxHandle) -> (usize, bool) {
        let (port, queue) = (to.port.port, to.queue);
        let (frames, offered) = (self.frames.as_ptr(), length(self.count));
        let mut refused = 0;
        // SAFETY: the port is started while the handle exists, and no other thread has the handle. The
        // frames have buffers with content; those of the sent ones belong to the device from now on.
        let sent = unsafe { shunt_dpdk_send(port, queue, frames, offered, &raw mut refused) };
        let sent = usize::from(sent).min(self.count);
        self.frames.copy_within(sent..self.count, 0);
        self.count -= sent;
        self.release();
        (sent, refused != 0)
    }
}

impl Drop for FrameBuffer {
    fn drop(&mut self) {
        self.release();
    }
}

/// Converts a number of frames, at most [`BURST`].
#[expect(clippy::cast_possible_truncation, reason = "the value is at most 64")]
const fn length(frames: usize) -> u16 {
    frames as u16
}

#[cfg(test)]
mod tests;
