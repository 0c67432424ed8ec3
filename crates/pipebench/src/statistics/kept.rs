//! A cache that keeps what it has: entries come until it is full, and none goes.
//!
//! So the published runs have it, and so do Open vSwitch and Shunt as long as nothing is idle.

/// The entries of such a cache, by number, and what packets met.
///
/// ```
/// use shunt_pipebench::statistics::KeptEntries;
///
/// let mut cache = KeptEntries::new(1, 3);
/// [0, 1, 0, 1, 0].into_iter().for_each(|entry| cache.meet(entry));
/// assert_eq!((cache.packets(), cache.misses(), cache.used()), (5, 3, 1));
/// assert_eq!(cache.hit_rate(), 40.0);
/// ```
#[derive(Clone, Debug)]
pub struct KeptEntries {
    /// By number.
    has: Vec<bool>,
    used: usize,
    capacity: usize,
    packets: u64,
    misses: u64,
}

impl KeptEntries {
    /// None of so many that packets may need; at most `capacity` of them find room.
    #[must_use]
    pub fn new(capacity: usize, entries: usize) -> Self {
        Self { has: vec![false; entries], used: 0, capacity, packets: 0, misses: 0 }
    }

    /// A packet that needs an entry.
    pub fn meet(&mut self, entry: u32) {
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

    /// Entries that it has.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Packets that came.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets that found no entry.
    #[must_use]
    pub const fn misses(&self) -> u64 {
        self.misses
    }

    /// Percent of the packets that found theirs.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn hit_rate(&self) -> f64 {
        100.0 * (1.0 - self.misses as f64 / self.packets.max(1) as f64)
    }
}
