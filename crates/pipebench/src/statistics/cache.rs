//! A cache without eviction: entries are added until it is full.
//!
//! The caches of the published runs work this way. The caches of Open vSwitch and Shunt do so while
//! no entry is idle.

/// A cache without eviction, with numbered entries and packet counters.
///
/// ```
/// use shunt_pipebench::statistics::NoEvictionCache;
///
/// let mut cache = NoEvictionCache::new(1, 3);
/// [0, 1, 0, 1, 0].into_iter().for_each(|entry| cache.look_up(entry));
/// assert_eq!((cache.packets(), cache.misses(), cache.used()), (5, 3, 1));
/// assert_eq!(cache.hit_rate(), 40.0);
/// ```
#[derive(Clone, Debug)]
pub struct NoEvictionCache {
    /// True for each cached entry.
    has: Vec<bool>,
    used: usize,
    capacity: usize,
    packets: u64,
    misses: u64,
}

impl NoEvictionCache {
    /// Creates an empty cache for at most `capacity` of `entries` entries.
    #[must_use]
    pub fn new(capacity: usize, entries: usize) -> Self {
        Self { has: vec![false; entries], used: 0, capacity, packets: 0, misses: 0 }
    }

    /// Looks up the entry of a packet, and adds it after a miss if there is space.
    pub fn look_up(&mut self, entry: u32) {
        self.packets = self.packets.saturating_add(1);
        match self.has.get_mut(entry as usize) {
            Some(true) => return,
            Some(has) if self.used < self.capacity => {
                *has = true;
                self.used = self.used.saturating_add(1);
            }
            _ => {}
        }
        self.misses = self.misses.saturating_add(1);
    }

    /// Returns the number of cached entries.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of packets that were looked up in the cache.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of packets that the cache missed.
    #[must_use]
    pub const fn misses(&self) -> u64 {
        self.misses
    }

    /// Returns the hit rate in percent.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the count is far below 2^53")]
    pub fn hit_rate(&self) -> f64 {
        100.0 * (1.0 - self.misses as f64 / self.packets.max(1) as f64)
    }
}
