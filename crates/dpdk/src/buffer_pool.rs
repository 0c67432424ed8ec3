//! Pools of packet buffers: created for a device, and used again by later devices.
//!
//! A driver may keep a buffer, or pass it to another device. So no one knows when the last buffer
//! of a pool has returned. The crate never frees a pool, so buffers stay valid. The next device of
//! the same shape takes an idle pool, once nearly all its buffers have returned. Without memory for
//! another pool, one buffer for each slot of the device is enough.

use std::{
    ffi::CString,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use parking_lot::Mutex;
use tracing::warn;

use crate::shim::{CACHE, DpdkErrno, MbufPool, Started};

/// The pools that no device uses.
static IDLE: Mutex<Vec<(PoolShape, MbufPool)>> = Mutex::new(Vec::new());

/// Number and size of the buffers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolShape {
    /// Number of buffers of the pool.
    pub(crate) count: u32,
    /// Number of buffers that the queues of the device may occupy at a time.
    pub(crate) slots: u32,
    /// Length in bytes of the longest frame that fits one buffer.
    pub(crate) room: u16,
    /// NUMA node of the buffers; -1: any.
    pub(crate) node: i32,
}

impl PoolShape {
    /// Returns the shape of a pool for a device.
    ///
    /// Every slot of every queue, and every place in the cache of every thread, may occupy a
    /// buffer.
    pub(crate) fn of(slots: u32, threads: u16, frame_max: u32, node: i32) -> Self {
        // The cache of a thread may exceed its nominal size by half.
        let cached = u32::from(threads).saturating_add(1).saturating_mul(CACHE * 2);
        let room = u16::try_from(frame_max).unwrap_or(ROOM_MAX);
        let room = room.clamp(ROOM_MIN, ROOM_MAX).next_multiple_of(64);
        Self { count: slots.saturating_add(cached), slots, room, node }
    }
}

/// Smallest room of a buffer, which drivers expect.
const ROOM_MIN: u16 = 2048;
/// Largest room of a buffer; longer frames take several buffers.
const ROOM_MAX: u16 = 16_384;
/// A device takes an idle pool if at most one buffer in this number is missing.
const MISSING_ONE_IN: u32 = 8;

/// A pool that a device uses; becomes idle when dropped.
#[derive(Debug)]
pub(crate) struct PoolLease {
    /// The size and the NUMA node of the pool.
    shape: PoolShape,
    /// The pool that the device uses.
    pool: MbufPool,
}

impl PoolLease {
    /// Takes an idle pool, or creates a pool.
    ///
    /// An idle pool that misses many buffers is only taken without memory for another pool, and if
    /// it has a buffer for each slot. With fewer buffers, a device would not start, or would
    /// receive nothing.
    pub(crate) fn take(started: Started, shape: PoolShape) -> Result<Self, DpdkErrno> {
        let nearly_all = shape.count - shape.count / MISSING_ONE_IN;
        let Some((lease, free)) = Self::take_fullest(shape) else {
            return Self::create(started, shape);
        };
        if free >= nearly_all.max(shape.slots) {
            return Ok(lease);
        }
        let total = shape.count;
        match Self::create(started, shape) {
            Ok(created) => {
                warn!(
                    free,
                    total,
                    "DPDK: another buffer pool is created, because drivers keep buffers of a pool \
                     that no device uses: raise `memory_mib` in [dpdk] if this is frequent"
                );
                Ok(created)
            }
            Err(_) if free >= shape.slots => {
                warn!(
                    free,
                    total,
                    "DPDK: no memory for another buffer pool, while drivers keep buffers of the \
                     pool of a device: raise `memory_mib` in [dpdk] and restart the daemon"
                );
                Ok(lease)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the idle pool with most free buffers, and returns their number.
    ///
    /// `None` without an idle pool of this shape.
    fn take_fullest(shape: PoolShape) -> Option<(Self, u32)> {
        let mut idle = IDLE.lock();
        let own = idle.iter().enumerate().filter(|(_, (found, _))| *found == shape);
        let counted = own.map(|(position, (_, pool))| (pool.free_buffers(), position));
        let (free, position) = counted.max()?;
        let (shape, pool) = idle.swap_remove(position);
        Some((Self { shape, pool }, free))
    }

    /// Creates a pool with a new name.
    fn create(started: Started, shape: PoolShape) -> Result<Self, DpdkErrno> {
        /// Number of pools that were created, for unique names.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("shunt{}", NUMBER.fetch_add(1, Relaxed));
        let name = CString::new(name).unwrap_or_default();
        let PoolShape { count, room, node, .. } = shape;
        let pool = MbufPool::create(started, &name, count, room, node)?;
        Ok(Self { shape, pool })
    }

    /// Returns the leased pool.
    pub(crate) const fn pool(&self) -> MbufPool {
        self.pool
    }
}

impl Drop for PoolLease {
    fn drop(&mut self) {
        IDLE.lock().push((self.shape, self.pool));
    }
}

#[cfg(test)]
mod tests;
