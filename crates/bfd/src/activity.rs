//! Received packets of any kind as evidence that the path works (`forwarding_if_rx` of Open
//! vSwitch).

use std::time::Duration;

/// The evidence that packets are received on the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveActivity {
    /// Number of received packets at the last check.
    received: u64,
    /// Time of the next check of the number of received packets.
    look: Option<Duration>,
    /// Time until which received packets count as evidence of a working path.
    until: Option<Duration>,
    /// Time until which the last control packet permits such evidence.
    permitted_until: Option<Duration>,
}

impl ReceiveActivity {
    /// Returns whether received packets keep the path in use,
    /// in any state of the session.
    pub(crate) fn is_active(&self, now: Duration) -> bool {
        let is_later = |time: Option<Duration>| time.is_some_and(|time| time > now);
        is_later(self.until) && is_later(self.permitted_until)
    }

    /// Returns the time of the next check, or of the next change of `is_active`.
    pub(crate) fn deadline(&self, now: Duration) -> Option<Duration> {
        let ends = [self.until, self.permitted_until];
        let ends = ends.into_iter().flatten().filter(|end| *end > now);
        ends.chain(self.look).min()
    }

    /// Records the reception of a control packet.
    pub(crate) fn on_packet(&mut self, min_rx: Duration, now: Duration) {
        let permitted = min_rx.saturating_mul(PERMITTED_INTERVALS);
        self.permitted_until = Some(now.saturating_add(permitted));
    }

    /// Compares the number of received packets with the number at the last check,
    /// if a check is due.
    pub(crate) fn run(&mut self, detection_time: Duration, received: u64, now: Duration) {
        match self.look {
            // At the first check, the number is only recorded.
            None => self.received = received,
            Some(look) if look > now => return,
            Some(_) => {}
        }
        if received > self.received {
            self.until = Some(now.saturating_add(detection_time.max(ACTIVITY_MIN)));
        }
        self.received = received;
        self.look = Some(now.saturating_add(LOOK_INTERVAL));
    }
}

/// Number of `min_rx` intervals within which a control packet must arrive.
const PERMITTED_INTERVALS: u32 = 100;

/// The minimum time for which received packets are evidence.
const ACTIVITY_MIN: Duration = Duration::from_secs(2);

/// Time between two checks of the number of received packets.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
