//! A doorkeeper: remembers what was seen once, in a table of a fixed size.
//!
//! Most flows and most sources of flows are seen once: a client has a new source port for each flow.
//! Predictors only need those that are seen again. So a flow takes a slot of some bytes here, and
//! enters the table of its predictor at its second sighting.
//!
//! A hash chooses the slot, and a newer sighting takes the slot of an older one. Two items with
//! equal hashes are confused with probability 2^-31, and the result is a wrong forecast.

use std::time::Duration;

/// The items that were seen once, by their hash, each with a value.
#[derive(Debug)]
pub(super) struct FirstSightings<T> {
    /// The slots; their number is a power of two.
    slots: Box<[SightingSlot<T>]>,
    /// Number of slots in use.
    used: usize,
}

/// The slot of one item.
#[derive(Clone, Copy, Debug, Default)]
struct SightingSlot<T> {
    /// A part of the hash of the item; 0 means that the slot is free.
    fingerprint: u32,
    /// Time of the sighting in milliseconds, of which the lowest 32 bits are stored.
    time_ms: u32,
    /// The value of the item.
    value: T,
}

/// The last sighting of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sighting<T> {
    /// The value that was recorded.
    pub(super) value: T,
    /// The time since the sighting, in whole milliseconds.
    pub(super) age: Duration,
}

/// Number of slots for each item that a predictor remembers.
const SLOTS_PER_ITEM: usize = 16;

impl<T: Copy + Default> FirstSightings<T> {
    /// Creates an empty table beside a table of `items` items.
    pub(super) fn new(items: usize) -> Self {
        let count = (items * SLOTS_PER_ITEM).next_power_of_two();
        Self { slots: vec![SightingSlot::default(); count].into(), used: 0 }
    }

    /// Returns the number of slots in use.
    pub(super) const fn len(&self) -> usize {
        self.used
    }

    /// Returns the number of slots.
    pub(super) const fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the last recorded sighting of the item with a hash.
    pub(super) fn find(&self, hash: u64, now: Duration) -> Option<Sighting<T>> {
        let slot = self.slots.get(self.index(hash))?;
        let age = milliseconds(now).wrapping_sub(slot.time_ms);
        let age = Duration::from_millis(age.into());
        (slot.fingerprint == fingerprint(hash)).then_some(Sighting { value: slot.value, age })
    }

    /// Records a sighting of the item with a hash.
    pub(super) fn record(&mut self, hash: u64, value: T, now: Duration) {
        let index = self.index(hash);
        let Some(slot) = self.slots.get_mut(index) else { return };
        self.used += usize::from(slot.fingerprint == 0);
        *slot = SightingSlot { fingerprint: fingerprint(hash), time_ms: milliseconds(now), value };
    }

    /// Returns the index of the slot of a hash.
    fn index(&self, hash: u64) -> usize {
        let low = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or_default();
        usize::try_from(low).unwrap_or_default() & (self.slots.len() - 1)
    }
}

/// Returns the part of a hash that a slot stores, which is never 0.
fn fingerprint(hash: u64) -> u32 {
    u32::try_from(hash >> 32).unwrap_or_default() | 1
}

/// Returns the lowest 32 bits of a time in milliseconds.
fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis() & u128::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shunt_flow::hash::KeyHasher;

    use super::*;

    #[test]
    fn the_second_sighting_finds_the_first() {
        let mut table = FirstSightings::new(64);
        let (start, days) = (Duration::from_secs(1), Duration::from_secs(86_400 * 60));
        let [one, two] = [1, 2].map(|item| KeyHasher::new(1).hash(&[item]));
        assert_eq!(table.find(one, start), None);
        table.record(one, 5, start);
        table.record(two, 6, start);
        let age = Duration::from_millis(700);
        assert_eq!(table.find(one, start + age), Some(Sighting { value: 5, age }));
        table.record(one, 7, start + age);
        assert_eq!(table.find(one, start + age).map(|own| own.value), Some(7));
        // 32 bits of milliseconds overflow after 49 days.
        assert!(table.find(two, start + days).unwrap().age > Duration::from_secs(86_400));
        assert_eq!((table.len(), table.capacity()), (2, 1024));
    }

    /// The model remembers the last sighting of each item.
    #[test]
    fn a_found_sighting_is_the_last_of_its_item() {
        let (mut table, mut model) = (FirstSightings::new(256), BTreeMap::new());
        let hasher = KeyHasher::new(1);
        let (mut random, mut found) = (1_u64, 0);
        for step in 0..50_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [high, low, value, ..] = random.to_be_bytes();
            let item = u16::from_be_bytes([high, low]) % 5000;
            let (hash, now) = (hasher.hash(&[item.into()]), Duration::from_millis(step));
            if let Some(own) = table.find(hash, now) {
                let (value, before) = model[&item];
                assert_eq!(own, Sighting { value, age: Duration::from_millis(step - before) });
                found += 1;
            }
            table.record(hash, value, now);
            model.insert(item, (value, step));
        }
        assert!(found > 15_000, "{found}");
        assert!(table.len() <= table.capacity());
    }
}
