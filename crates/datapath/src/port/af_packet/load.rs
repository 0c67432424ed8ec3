//! The load of a port, which decides if the port has rings.

use std::time::Duration;

use shunt_pipeline::Time;

/// Frames per second from which a port gets rings.
///
/// At this rate rings save about 3,000 cycles for each short frame, or 5 % of a CPU.
const BUSY_RATE: u64 = 50_000;
/// Frames per second below which a port does not need its rings.
const QUIET_RATE: u64 = 5_000;
/// Time without load after which a port loses its rings.
pub(super) const QUIET_TIME: Duration = Duration::from_secs(10);
/// Shortest time over which a rate is computed.
const MEASURED_MIN: Duration = Duration::from_millis(100);

/// The source of received frames that the load of a port requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedSource {
    /// Sockets: the port is idle.
    Sockets,
    /// Rings: the port is busy.
    Rings,
}

/// Measures the load of a port.
#[derive(Debug)]
pub(super) struct LoadMeter {
    /// Frames at the last measurement, and its time.
    last: Option<(u64, Time)>,
    /// Time since which the port has been quiet.
    quiet_since: Option<Time>,
}

impl LoadMeter {
    /// Creates a meter without a previous reading.
    pub(super) const fn new() -> Self {
        Self { last: None, quiet_since: None }
    }

    /// Returns the source that the load requires; `None`: no change.
    ///
    /// `frames` is the number of frames that the port has received.
    pub(super) fn measure(&mut self, frames: u64, now: Time) -> Option<WantedSource> {
        let Some((before, at)) = self.last else {
            self.last = Some((frames, now));
            return None;
        };
        let elapsed = now.since(at);
        if elapsed < MEASURED_MIN {
            return None;
        }
        self.last = Some((frames, now));
        let count = u128::from(frames.saturating_sub(before)) * 1000;
        let rate = count / elapsed.as_millis().max(1);
        if rate >= BUSY_RATE.into() {
            self.quiet_since = None;
            return Some(WantedSource::Rings);
        }
        if rate >= QUIET_RATE.into() {
            self.quiet_since = None;
            return None;
        }
        let since = *self.quiet_since.get_or_insert(at);
        (now.since(since) >= QUIET_TIME).then_some(WantedSource::Sockets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes numbers of frames per half second to the meter; returns the last result.
    fn after(meter: &mut LoadMeter, frames: &[u64]) -> Option<WantedSource> {
        let (mut total, mut now) = meter.last.unwrap_or((0, Time::ZERO));
        meter.measure(total, now);
        let mut wanted = None;
        for more in frames {
            total += more;
            now = now.after(Duration::from_millis(500));
            wanted = meter.measure(total, now);
        }
        wanted
    }

    #[test]
    fn a_busy_port_needs_rings_at_once() {
        assert_eq!(after(&mut LoadMeter::new(), &[0, 24_999]), None);
        assert_eq!(after(&mut LoadMeter::new(), &[0, 25_000]), Some(WantedSource::Rings));
    }

    #[test]
    fn receive_rings_stay_until_the_port_is_quiet() {
        let mut meter = LoadMeter::new();
        assert_eq!(after(&mut meter, &[25_000]), Some(WantedSource::Rings));
        assert_eq!(after(&mut meter, &[2_499; 19]), None);
        assert_eq!(after(&mut meter, &[2_499]), Some(WantedSource::Sockets));
        assert_eq!(after(&mut meter, &[2_500]), None, "neither busy nor quiet");
        assert_eq!(after(&mut meter, &[0; 19]), None);
        assert_eq!(after(&mut meter, &[0]), Some(WantedSource::Sockets));
    }

    #[test]
    fn load_over_a_short_time_is_ignored() {
        let mut meter = LoadMeter::new();
        meter.measure(0, Time::ZERO);
        assert_eq!(meter.measure(5_000, Time::ZERO.after(MEASURED_MIN / 2)), None);
        let wanted = meter.measure(5_000, Time::ZERO.after(MEASURED_MIN));
        assert_eq!(wanted, Some(WantedSource::Rings));
    }
}
