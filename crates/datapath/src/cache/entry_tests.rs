//! Tests that compare the entry store with a model of plain maps.

use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt};

use proptest::prelude::*;
use shunt_classifier::Version;
use shunt_flow::{FieldId, FlowKey, FlowMask, SparseKey, SparseMask};
use shunt_pipeline::{DropCause, TraversalError};

use super::*;

/// Returns a traversal that is identified by `number`.
fn traversal(number: u64) -> Arc<Traversal> {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::Metadata, u128::from(number));
    Arc::new(Traversal {
        version: Version::ZERO,
        key: SparseKey::from(&key),
        continuation: None,
        next: None,
        mask: SparseMask::from(&FlowMask::EMPTY),
        visits: Box::default(),
        reads: Box::default(),
        group_hits: Box::default(),
        output_hits: Box::default(),
        learnings: Vec::new(),
        refreshes: Box::default(),
        actions: Arc::new([]),
        error: None,
        drop_cause: DropCause::default(),
    })
}

/// Returns the number of a test traversal, which its metadata field has.
fn number_of(traversal: &Traversal) -> u64 {
    u64::try_from(traversal.key.field(FieldId::Metadata)).unwrap()
}

/// An operation on the store and on its model.
#[derive(Clone, Copy, Debug)]
enum Op {
    Insert,
    Kill(usize),
    Hit(usize, u64),
    Credit(usize),
    Reclaim,
}

/// Generates operations on a cache.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => Just(Op::Insert),
        2 => (0..16_usize).prop_map(Op::Kill),
        6 => (0..16_usize, 60..1500_u64).prop_map(|(which, bytes)| Op::Hit(which, bytes)),
        2 => (0..2 * LIMIT).prop_map(Op::Credit),
        1 => Just(Op::Reclaim),
    ];
    prop::collection::vec(op, 0..200)
}

/// The store, and a model of all entries, live and dead, by install number.
struct Model {
    /// The entry store that the test checks.
    entries: Entries,
    /// The live entry of each install number.
    live: BTreeMap<u64, EntryRef>,
    /// The entries that were removed.
    dead: Vec<EntryRef>,
    /// Packets and bytes that hit each entry.
    hits: BTreeMap<u64, (u64, u64)>,
    /// Packets and bytes that were credited to each entry.
    credited: BTreeMap<u64, (u64, u64)>,
    /// Number of entries that were made.
    made: u64,
    /// The current time in seconds.
    now: u64,
}

/// Maximum number of entries of the store.
const LIMIT: usize = 6;

impl Model {
    /// Adds a credit to the counts of a traversal's rules.
    fn credit(credited: &mut BTreeMap<u64, (u64, u64)>, traversal: &Traversal, credit: Credit) {
        let own = credited.entry(number_of(traversal)).or_default();
        own.0 += credit.packets;
        own.1 += credit.bytes;
    }

    /// Runs an operation on the cache and on the model.
    fn run(&mut self, op: Op) {
        self.now += 1;
        let now = Time::from_nanoseconds(self.now);
        let nth = |live: &BTreeMap<u64, EntryRef>, which: usize| {
            live.iter().nth(which % live.len().max(1)).map(|(number, entry)| (*number, *entry))
        };
        match op {
            Op::Insert => {
                let number = self.made + 1;
                let made = self.entries.insert(InstallNo(number), traversal(number), now);
                let retired = self.entries.retired();
                assert_eq!(made.is_some(), self.live.len() + retired < LIMIT);
                if let Some(entry) = made {
                    assert!(self.live.values().all(|own| own.slot != entry.slot));
                    assert!(!self.dead.contains(&entry), "a name is used once");
                    self.made = number;
                    self.live.insert(number, entry);
                }
            }
            Op::Kill(which) => {
                if let Some((number, entry)) = nth(&self.live, which) {
                    assert!(self.entries.kill(entry) && !self.entries.kill(entry));
                    self.live.remove(&number);
                    self.dead.push(entry);
                }
            }
            Op::Hit(which, bytes) => {
                if let Some((number, entry)) = nth(&self.live, which) {
                    self.entries.hit(entry.slot, bytes, now);
                    let own = self.hits.entry(number).or_default();
                    own.0 += 1;
                    own.1 += bytes;
                    assert_eq!(self.entries.used_at(entry.slot), Some((entry, now)));
                }
            }
            Op::Credit(slots_max) => {
                let taken = self.entries.take_credits(slots_max);
                for own in self.entries.credits(&taken) {
                    let TraversalCredit { traversal, packets, bytes, used } = own;
                    Self::credit(&mut self.credited, traversal, Credit { packets, bytes, used });
                }
            }
            Op::Reclaim => {
                if let Some(reclaimed) = self.entries.reclaim()
                    && let Some(credit) = reclaimed.credit
                {
                    Self::credit(&mut self.credited, &reclaimed.traversal, credit);
                }
            }
        }
    }

    /// Compares the live entries with the model.
    fn check(&self) {
        let entries = &self.entries;
        assert_eq!(entries.len(), self.live.len());
        assert!(self.live.values().all(|entry| entries.is_live(*entry)));
        assert!(!self.dead.iter().any(|entry| entries.is_live(*entry)));
        let ends =
            |end: Option<(EntryRef, InstallNo)>| end.map(|(entry, number)| (number.0, entry));
        let (first, last) = (self.live.first_key_value(), self.live.last_key_value());
        assert_eq!(ends(entries.oldest()), first.map(|(number, entry)| (*number, *entry)));
        assert_eq!(ends(entries.newest()), last.map(|(number, entry)| (*number, *entry)));
        for (number, entry) in &self.live {
            let (packets, bytes) = self.hits.get(number).copied().unwrap_or_default();
            let totals = entries.totals(entry.slot);
            assert_eq!((totals.packets, totals.bytes), (packets, bytes));
        }
    }
}

proptest! {
    #[test]
    fn every_hit_is_credited_once_to_its_entry(ops in ops()) {
        let mut model = Model {
            entries: Entries::new(LIMIT),
            live: BTreeMap::new(),
            dead: Vec::new(),
            hits: BTreeMap::new(),
            credited: BTreeMap::new(),
            made: 0,
            now: 0,
        };
        for op in ops {
            model.run(op);
            model.check();
        }
        while model.entries.dirty() > 0 {
            model.run(Op::Credit(1));
        }
        prop_assert_eq!(model.hits, model.credited);
    }
}

/// Returns the resident bytes of the memory of `slots`.
///
/// Unlike the memory of the process, no other test changes it. See proc_pid_pagemap(5).
fn resident_bytes<T>(slots: &Vec<T>) -> usize {
    /// The size of a memory page.
    const PAGE: usize = 4096;
    let begin = slots.as_ptr().addr();
    let pages = begin / PAGE..(begin + slots.capacity() * size_of::<T>()).div_ceil(PAGE);
    let mut states = vec![0; pages.len() * 8];
    let offset = u64::try_from(pages.start * 8).unwrap();
    File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut states, offset).unwrap();
    let (states, _) = states.as_chunks();
    // Bit 63 is set if the page is in memory, and bit 62 if it is swapped out.
    states.iter().filter(|state| u64::from_ne_bytes(**state) >> 62 != 0).count() * PAGE
}

/// A copy of all slots would make 128 MiB resident.
#[test]
#[cfg_attr(miri, ignore = "the interpreter has no pages")]
fn a_larger_limit_copies_only_used_slots() {
    let mut entries = Entries::new(1 << 21);
    let entry = entries.insert(InstallNo(1), traversal(1), Time::ZERO).unwrap();
    entries.set_limit((1 << 21) + 1);
    let resident = resident_bytes(&entries.hot) + resident_bytes(&entries.cold);
    let half: usize = 64 << 20;
    assert!(0 < resident && resident < half, "{resident} bytes");
    assert_eq!(number_of(entries.traversal(entry.slot).unwrap()), 1);
}

/// An error has precedence over the drop cause, also in a used slot.
#[test]
fn an_entry_has_the_drop_reason_of_its_traversal() {
    let with = |error, drop_cause| {
        let mut traversal = traversal(1);
        let own = Arc::get_mut(&mut traversal).unwrap();
        (own.error, own.drop_cause) = (error, drop_cause);
        traversal
    };
    let mut entries = Entries::new(1);
    let cases = [
        (None, DropCause::NoMatchingRule, DropReason::NoMatchingRule, false),
        (None, DropCause::Hairpin, DropReason::Hairpin, false),
        (Some(TraversalError::TooDeep(3)), DropCause::Hairpin, DropReason::RecursionTooDeep, true),
    ];
    for (number, (error, cause, reason, is_error)) in (1..).zip(cases) {
        let entry = entries.insert(InstallNo(number), with(error, cause), Time::ZERO).unwrap();
        assert_eq!(entries.drop_of(entry.slot), TraversalDrop { reason, is_error });
        assert!(entries.kill(entry));
        assert!(entries.reclaim().is_some());
    }
}
