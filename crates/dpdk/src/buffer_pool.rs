//! Pools of packet buffers: created for a device, and used again by later ones.
//!
//! A driver may keep a buffer, or pass it to another device. So nobody knows when the last buffer of a pool
//! is back, and no pool is ever freed: no buffer becomes invalid while somebody has it. A pool that is not in
//! use is kept for the next device that needs the same, once nearly all its buffers are back. Without memory
//! for another pool, fewer are enough: one for each slot of the device.

use std::{
    ffi::CString,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use parking_lot::Mutex;
use tracing::warn;

use crate::shim::{CACHE, DpdkErrno, MbufPool, Started};

/// The pools that no device has.
static IDLE: Mutex<Vec<(PoolShape, MbufPool)>> = Mutex::new(Vec::new());

/// Number and size of the buffers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolShape {
    /// Number of buffers.
    pub(crate) count: u32,
    /// Number of these that the queues may have at a time.
    pub(crate) slots: u32,
    /// Longest frame in one buffer, in bytes.
    pub(crate) room: u16,
    /// NUMA node; -1: any.
    pub(crate) node: i32,
}

impl PoolShape {
    /// Returns the shape for a device.
    ///
    /// Every slot of every queue, and the cache of every thread, may have a buffer.
    pub(crate) fn of(slots: u32, threads: u16, frame_max: u32, node: i32) -> Self {
        // A cache has at most half as many buffers again as its nominal number.
        let cached = u32::from(threads).saturating_add(1).saturating_mul(CACHE * 2);
        let room = u16::try_from(frame_max).unwrap_or(ROOM_MAX);
        let room = room.clamp(ROOM_MIN, ROOM_MAX).next_multiple_of(64);
        Self { count: slots.saturating_add(cached), slots, room, node }
    }
}

/// Smallest room: drivers expect it.
const ROOM_MIN: u16 = 2048;
/// Largest room: longer frames take several buffers.
const ROOM_MAX: u16 = 16_384;
/// A pool that misses at most one buffer in this number is used again.
const MISSING_ONE_IN: u32 = 8;

/// A pool of a device; used again when dropped.
#[derive(Debug)]
pub(crate) struct PoolLease {
    shape: PoolShape,
    pool: MbufPool,
}

impl PoolLease {
    /// Takes a pool that is not in use, or creates one.
    ///
    /// A pool that misses many buffers is only taken if there is no memory for another, and if it has a
    /// buffer for each slot. A device would not start with fewer, or would receive nothing.
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
                    "DPDK: drivers keep buffers of a pool that no device uses, so another pool is created; \
                     raise `memory_mib` in [dpdk] if this is frequent"
                );
                Ok(created)
            }
            Err(_) if free >= shape.slots => {
                warn!(
                    free,
                    total,
                    "DPDK: drivers keep buffers of the pool of a device, and there is no memory for another \
                     pool: raise `memory_mib` in [dpdk] and restart the daemon"
                );
                Ok(lease)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the pool with most free buffers that is not in use.
    ///
    /// Also returns the number of its free buffers.
    fn take_fullest(shape: PoolShape) -> Option<(Self, u32)> {
        let mut idle = IDLE.lock();
        let own = idle.iter().enumerate().filter(|(_, (found, _))| *found == shape);
        let counted = own.map(|(position, (_, pool))| (pool.free_buffers(), position));
        let (free, position) = counted.max()?;
        let (shape, pool) = idle.swap_remove(position);
        Some((Self { shape, pool }, free))
    }

    fn create(started: Started, shape: PoolShape) -> Result<Self, DpdkErrno> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("shunt{}", NUMBER.fetch_add(1, Relaxed));
        let name = CString::new(name).unwrap_or_default();
        let PoolShape { count, room, node, .. } = shape;
        let pool = MbufPool::create(started, &name, count, room, node)?;
        Ok(Self { shape, pool })
    }

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
