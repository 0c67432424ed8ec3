//! Pools of packet buffers: created for a device, and used again by later ones.
//!
//! A driver may keep a buffer, or pass it to another device. So nobody knows when the last buffer of a pool
//! is back, and no pool is ever freed: no buffer becomes invalid while somebody has it. A pool that is not in
//! use is kept for the next device that needs the same, once nearly all its buffers are back.

use std::{
    ffi::CString,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::shim::{CACHE, DpdkErrno, MbufPool, Started};

/// The pools that no device has.
static IDLE: Mutex<Vec<(PoolShape, MbufPool)>> = Mutex::new(Vec::new());

/// Number and size of the buffers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolShape {
    /// Number of buffers.
    pub(crate) count: u32,
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
        Self { count: slots.saturating_add(cached), room, node }
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
    /// A pool that misses many buffers is only taken if there is no memory for another.
    pub(crate) fn take(started: Started, shape: PoolShape) -> Result<Self, DpdkErrno> {
        let enough = shape.count - shape.count / MISSING_ONE_IN;
        if let Some(lease) = Self::find(shape, enough) {
            return Ok(lease);
        }
        Self::create(started, shape).or_else(|error| Self::find(shape, 0).ok_or(error))
    }

    /// Takes a pool that is not in use, with at least `enough` free buffers.
    fn find(shape: PoolShape, enough: u32) -> Option<Self> {
        let mut idle = IDLE.lock();
        let fits = |(found, pool): &(PoolShape, MbufPool)| {
            *found == shape && pool.free_buffers() >= enough
        };
        let position = idle.iter().position(fits)?;
        let (shape, pool) = idle.swap_remove(position);
        Some(Self { shape, pool })
    }

    fn create(started: Started, shape: PoolShape) -> Result<Self, DpdkErrno> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("shunt{}", NUMBER.fetch_add(1, Relaxed));
        let name = CString::new(name).unwrap_or_default();
        let PoolShape { count, room, node } = shape;
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
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_a_buffer_for_every_slot_and_cache() {
        let shape = PoolShape::of(2048, 1, 1518, -1);
        assert_eq!(shape, PoolShape { count: 2048 + 2 * 512, room: 2048, node: -1 });
        assert_eq!(PoolShape::of(0, 0, 9022, 1).room, 9024);
        assert_eq!(PoolShape::of(0, 0, 70_000, 1).room, 16_384);
        assert_eq!(PoolShape::of(u32::MAX, u16::MAX, 0, 0).count, u32::MAX);
    }
}
