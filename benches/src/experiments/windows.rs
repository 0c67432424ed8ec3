//! Packets in windows: each window is awaited behind the switch before the next window, so no
//! switch is overrun.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

/// Devices behind a switch that count arriving packets.
pub(crate) struct Sink {
    pub(crate) devices: Vec<String>,
    /// Maximum time to wait for a window.
    pub(crate) timeout: Duration,
}

impl Sink {
    /// Sends numbered packets in windows; returns the number of packets that arrived.
    ///
    /// `send` returns true if the packet was sent.
    pub(crate) fn send(
        &self,
        mut numbers: std::ops::Range<u32>,
        window: u32,
        mut send: impl FnMut(u32) -> bool,
    ) -> u32 {
        let before = self.arrived();
        while !numbers.is_empty() {
            let end = numbers.end.min(numbers.start + window);
            // Packets lost earlier are not awaited again.
            let due =
                self.arrived() + (numbers.start..end).map(&mut send).map(u32::from).sum::<u32>();
            numbers.start = end;
            let start = Instant::now();
            while self.arrived() < due && start.elapsed() < self.timeout {
                sleep(Duration::from_micros(100));
            }
        }
        self.arrived() - before
    }

    /// Returns the number of packets that the devices have received.
    pub(crate) fn arrived(&self) -> u32 {
        let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let counts = text.lines().filter_map(|line| {
            let (device, counts) = line.trim().split_once(':')?;
            let is_ours = self.devices.iter().any(|own| own == device);
            let count = counts.split_whitespace().nth(1)?;
            is_ours.then(|| count.parse::<u32>().ok())?
        });
        counts.sum()
    }
}
