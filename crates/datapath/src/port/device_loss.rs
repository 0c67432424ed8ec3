//! The packets that the kernel dropped on their way to a port.

use std::{
    ffi::c_uint,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::link::{DeviceDrops, DeviceLosses};

/// Name of the counter *RX dropped* of `ip -s link` in the counters of the driver.
const DEVICE_RX_DROPPED: &str = "device_rx_dropped";

/// The packets that the kernel dropped on their way to a port.
///
/// A drop counter of the device has the lost packets.
pub(super) struct DeviceLoss {
    /// Returns the drop counter of the device.
    counter: fn(DeviceDrops) -> u64,
    /// The drop counter when the port was opened: the device may be older.
    before: u64,
    /// Number of lost packets since then; stays if the device is removed.
    lost: AtomicU64,
}

impl DeviceLoss {
    /// Starts to count the losses of a device.
    pub(super) fn since_now(device: c_uint, counter: fn(DeviceDrops) -> u64) -> Self {
        let before = DeviceLosses::of(device).find(device).map_or(0, counter);
        Self { counter, before, lost: AtomicU64::new(0) }
    }

    /// Starts to count the received packets that the kernel drops before any socket.
    pub(super) fn of_received(device: c_uint) -> Self {
        Self::since_now(device, |drops| drops.rx)
    }

    /// Updates the losses from the counters of the device; `None`: the device is gone.
    pub(super) fn note(&self, drops: Option<DeviceDrops>) {
        // A drop counter never decreases, so the maximum is the newest value.
        let lost = drops.map_or(0, |drops| (self.counter)(drops).saturating_sub(self.before));
        self.lost.fetch_max(lost, Relaxed);
    }

    /// Returns the number of lost packets at the last [`Self::note`].
    pub(super) fn packets(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Returns the lost received packets as a counter of the driver, if there are any.
    pub(super) fn driver_counters(&self) -> Vec<(String, u64)> {
        let dropped = self.packets();
        if dropped > 0 { vec![(DEVICE_RX_DROPPED.to_owned(), dropped)] } else { Vec::new() }
    }
}
