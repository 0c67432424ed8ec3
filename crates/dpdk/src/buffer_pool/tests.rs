//! Tests pools with real devices. All tests share the pools of the process, so each test has its
//! own shapes.

use std::thread;

use super::*;
use crate::{
    BurstEnd, DeviceSettings, DpdkDevice, DpdkSender, Eal, EalOptions, FrameOffload, HugePages,
};

/// Starts DPDK without huge pages.
fn eal() -> Eal {
    let options = EalOptions { huge_pages: HugePages::Off, ..EalOptions::default() };
    Eal::start(&options).unwrap()
}

/// Returns the number of free buffers of each idle pool of `count` buffers.
fn idle(count: u32) -> Vec<u32> {
    let own =
        |(shape, pool): &(PoolShape, MbufPool)| (shape.count == count).then(|| pool.free_buffers());
    IDLE.lock().iter().filter_map(own).collect()
}

/// Adds an idle pool with only `free` buffers, as if a driver had the others.
fn add_idle(shape: PoolShape, free: u32) {
    /// Number of pools that were created, for unique names.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = CString::new(format!("test{}", NUMBER.fetch_add(1, Relaxed))).unwrap();
    let pool = MbufPool::create(eal().0, &name, free, shape.room, shape.node).unwrap();
    assert_eq!(pool.free_buffers(), free);
    IDLE.lock().push((shape, pool));
}

/// Sends 1000 frames.
fn fill(sender: &mut DpdkSender, byte: u8) {
    let frames = [[byte; 60]; 1000];
    let frames = frames.iter().map(|bytes| (bytes.as_slice(), FrameOffload::default()));
    assert_eq!(sender.send(frames), (1000, BurstEnd::All));
}

#[test]
fn pool_has_buffers_for_slots_and_caches() {
    let shape = PoolShape::of(2048, 1, 1518, -1);
    let expected = PoolShape { count: 2048 + 2 * 512, slots: 2048, room: 2048, node: -1 };
    assert_eq!(shape, expected);
    assert_eq!(PoolShape::of(0, 0, 9022, 1).room, 9024);
    assert_eq!(PoolShape::of(0, 0, 70_000, 1).room, 16_384);
    assert_eq!(PoolShape::of(u32::MAX, u16::MAX, 0, 0).count, u32::MAX);
}

/// The test closes rings while they are full.
///
/// All buffers return to their pool, and no round needs another pool.
#[test]
fn rings_that_close_full_keep_one_buffer_pool() {
    // Buffers of the pool: two queues of 1024 slots in each direction, and the caches of threads.
    const COUNT: u32 = 4 * 1024 + 4 * 512;
    for round in 0..4 {
        let mut device = DpdkDevice::attach(eal(), "net_ring40").unwrap();
        let settings = DeviceSettings { rx_queues: Some(2), threads: 3, mtu: None };
        let mut queues = device.start(settings).unwrap();
        assert_eq!(idle(COUNT), [0; 0], "round {round}: the device has the only pool");
        // A thread that sends gets a NUMA node, which rings attached by this thread would have.
        thread::scope(|scope| {
            scope.spawn(|| queues.senders.iter_mut().for_each(|sender| fill(sender, round)));
        });
        drop((device, queues));
        assert_eq!(idle(COUNT), [COUNT], "round {round}: all buffers are back");
    }
}

/// A pool that misses at most one buffer in eight is used again.
///
/// A pool that misses more stays idle until its buffers return.
#[test]
fn pool_without_many_buffers_is_set_aside() {
    let shape = PoolShape { count: 800, slots: 200, room: 2048, node: -1 };
    add_idle(shape, 699);
    let other = PoolLease::take(eal().0, shape).unwrap();
    assert_eq!((other.pool.free_buffers(), idle(shape.count)), (800, vec![699]));
    drop(other);
    let fullest = PoolLease::take(eal().0, shape).unwrap();
    assert_eq!((fullest.pool.free_buffers(), idle(shape.count)), (800, vec![699]));
    add_idle(shape, 700);
    let nearly_full = PoolLease::take(eal().0, shape).unwrap();
    assert_eq!((nearly_full.pool.free_buffers(), idle(shape.count)), (700, vec![699]));
}

/// One buffer in eight may be missing, if each slot still has a buffer.
#[test]
fn a_pool_has_a_buffer_for_each_slot() {
    let shape = PoolShape { count: 960, slots: 900, room: 2048, node: -1 };
    add_idle(shape, 899);
    let other = PoolLease::take(eal().0, shape).unwrap();
    assert_eq!((other.pool.free_buffers(), idle(shape.count)), (960, vec![899]));
}

/// Without memory for another pool, an idle pool needs a buffer for each slot.
///
/// With fewer buffers, the device would not start, or would receive nothing.
#[test]
fn short_memory_pool_needs_buffer_per_slot() {
    // The pool needs 2 GiB, and DPDK has 256 MiB.
    let shape = PoolShape { count: 1 << 20, slots: 500, room: 2048, node: -1 };
    add_idle(shape, 499);
    let error = PoolLease::take(eal().0, shape).map(|lease| lease.shape);
    assert_eq!(error, Err(DpdkErrno(-libc::ENOMEM)));
    assert_eq!(idle(shape.count), [499], "the idle pool is kept");
    add_idle(shape, 500);
    let enough = PoolLease::take(eal().0, shape).unwrap();
    assert_eq!((enough.pool.free_buffers(), idle(shape.count)), (500, vec![499]));
}
