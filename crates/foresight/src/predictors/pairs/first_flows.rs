//! The first flows of sources, in a table of a fixed size.
//!
//! Most sources open one flow: a client has a new source port for each flow. The sources that open
//! flows to several destinations are few, and much time passes between two of their flows. So a
//! source that opens its first flow takes a slot of [`FirstFlow`] here, which is much smaller than a
//! source with its sets of destinations. A source leaves this table with its second destination.
//!
//! The hash of a source chooses its slot, and a newer source takes the slot of an older one. Two
//! sources with equal hashes are confused with probability 2^-31, and the result is a wrong forecast.

use std::time::Duration;

use shunt_flow::hash::KeyHasher;

use super::{super::flow_ends::FlowService, destination_set::DestinationId};

/// The first flows of sources, by the hash of the source.
#[derive(Debug)]
pub(super) struct FirstFlows {
    /// The hash function of sources.
    hasher: KeyHasher,
    /// The slots; their number is a power of two.
    slots: Box<[FirstFlow]>,
    /// Number of slots in use.
    used: usize,
}

/// The only flow of a source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FirstFlow {
    /// A part of the hash of the source; 0 means that the slot is free.
    fingerprint: u32,
    /// Time of the flow in milliseconds, of which the lowest 32 bits are stored.
    time_ms: u32,
    /// The number of the destination of the flow.
    destination: u8,
}

/// The last flow of a source that has one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlierFlow {
    /// The destination of the flow.
    pub(super) destination: DestinationId,
    /// The time since the flow, in whole milliseconds.
    pub(super) age: Duration,
}

/// Number of slots for each source that opened flows to several destinations.
const SLOTS_PER_SOURCE: usize = 16;

impl FirstFlows {
    /// Creates an empty table beside a table of `sources` sources.
    pub(super) fn new(sources: usize, seed: u64) -> Self {
        let count = (sources * SLOTS_PER_SOURCE).next_power_of_two();
        Self {
            hasher: KeyHasher::new(seed),
            slots: vec![FirstFlow::default(); count].into(),
            used: 0,
        }
    }

    /// Returns the number of slots in use.
    pub(super) const fn len(&self) -> usize {
        self.used
    }

    /// Returns the number of slots.
    pub(super) const fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Records a flow of a source, and returns the flow of this source that was recorded before.
    pub(super) fn record(
        &mut self,
        source: &FlowService,
        destination: DestinationId,
        now: Duration,
    ) -> Option<EarlierFlow> {
        let hash = self.hasher.hash_array(&source.words());
        let [high, low] = [hash >> 32, hash & u64::from(u32::MAX)];
        let fingerprint = u32::try_from(high).unwrap_or_default() | 1;
        let index = usize::try_from(low).unwrap_or_default() & (self.slots.len() - 1);
        let slot = self.slots.get_mut(index)?;
        let time_ms = u32::try_from(now.as_millis() & u128::from(u32::MAX)).unwrap_or_default();
        let new = FirstFlow { fingerprint, time_ms, destination: destination.0 };
        let old = std::mem::replace(slot, new);
        if old.fingerprint == 0 {
            self.used += 1;
        }
        (old.fingerprint == fingerprint).then(|| EarlierFlow {
            destination: DestinationId(old.destination),
            age: Duration::from_millis(time_ms.wrapping_sub(old.time_ms).into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shunt_flow::testing::UdpFlow;

    use super::*;
    use crate::predictors::flow_ends::FlowEnds;

    /// Returns a source with a port.
    fn source(port: u16) -> FlowService {
        let flow = UdpFlow { in_port: 1, source: (1, port), destination: (2, 53) };
        FlowEnds::of(&flow.key()).unwrap().source_socket()
    }

    #[test]
    fn the_second_flow_finds_the_first() {
        let mut table = FirstFlows::new(64, 1);
        let (start, day) = (Duration::from_secs(1), Duration::from_secs(86_400 * 60));
        assert_eq!(table.record(&source(1), DestinationId(5), start), None);
        assert_eq!(table.record(&source(2), DestinationId(6), start), None);
        let age = Duration::from_millis(700);
        let first = EarlierFlow { destination: DestinationId(5), age };
        assert_eq!(table.record(&source(1), DestinationId(7), start + age), Some(first));
        // 32 bits of milliseconds overflow after 49 days.
        let wrapped = table.record(&source(2), DestinationId(6), start + day).unwrap();
        assert!(wrapped.age > Duration::from_secs(86_400));
        assert_eq!((table.len(), table.capacity()), (2, 1024));
    }

    /// The model remembers the last flow of each source.
    #[test]
    fn a_recorded_flow_is_the_last_of_its_source() {
        let (mut table, mut model) = (FirstFlows::new(256, 1), BTreeMap::new());
        let (mut random, mut found) = (1_u64, 0);
        for step in 0..50_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [high, low, id, ..] = random.to_be_bytes();
            let port = u16::from_be_bytes([high, low]) % 5000;
            let now = Duration::from_millis(step);
            let expected = model.insert(port, (id, step));
            if let Some(own) = table.record(&source(port), DestinationId(id), now) {
                let (id, before) = expected.unwrap();
                let age = Duration::from_millis(step - before);
                assert_eq!(own, EarlierFlow { destination: DestinationId(id), age });
                found += 1;
            }
        }
        assert!(found > 15_000, "{found}");
        assert!(table.len() <= table.capacity());
    }
}
