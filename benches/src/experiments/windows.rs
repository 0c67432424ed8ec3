//! Packets that are sent in windows, each awaited behind the switch before the next: no switch is
//! overrun.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

/// Devices behind a switch, where packets are awaited.
pub(crate) struct Sink {
    pub(crate) devices: Vec<String>,
    /// How long a window is waited for.
    pub(crate) stall_budget: Duration,
}

impl Sink {
    /// Sends packets by number, so many at once; answers how many arrived of them.
    ///
    /// `send` answers whether it sent the packet.
    pub(crate) fn send(
        &self,
        mut numbers: std::ops::Range<u32>,
        window: u32,
        mut send: impl FnMut(u32) -> bool,
    ) -> u32 {
        let before = self.arrived();
        while !numbers.is_empty() {
            let end = numbers.end.min(numbers.start + window);
            // What was lost before is not waited for again.
            let due =
                self.arrived() + (numbers.start..end).map(&mut send).map(u32::from).sum::<u32>();
            numbers.start = end;
            let start = Instant::now();
            while self.arrived() < due && start.elapsed() < self.stall_budget {
                sleep(Duration::from_micros(100));
            }
        }
        self.arrived() - before
    }

    /// Packets that the devices have received.
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
