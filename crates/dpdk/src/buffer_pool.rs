//! Pools of packet buffers: created for a device, and used again by later ones.
//!
//! A driver may pass a buffer to another device, as `net_ring` does. So nobody knows when the last buffer
//! of a pool is back, and a pool that is not in use is kept for the next device that needs the same.

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

/// A pool of a device; used again when dropped.
#[derive(Debug)]
pub(crate) struct PoolLease {
    shape: PoolShape,
    pool: MbufPool,
}

impl PoolLease {
    /// Takes a pool that is not in use, or creates one.
    pub(crate) fn take(started: Started, shape: PoolShape) -> Result<Self, DpdkErrno> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut idle = IDLE.lock();
        if let Some(position) = idle.iter().position(|(found, _)| *found == shape) {
            let (shape, pool) = idle.swap_remove(position);
            return Ok(Self { shape, pool });
        }
        drop(idle);
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
