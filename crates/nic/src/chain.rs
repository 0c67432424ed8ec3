//! The stages of a NIC, and the lookup of a packet in one stage after the other.
//!
//! The start table sets the first tag of a packet. In a stage with a matching entry, the entry
//! rewrites a copy of the headers and sets the next tag. A packet that misses in a stage passes to
//! the next stage. Entries count a hit only when the packet reaches the end of its traversal. So
//! only the switch counts a packet with a partial hit, because it translates the whole packet
//! again. However, any match counts as a use of the entry, so that the entry does not become idle.

use std::time::Duration;

use hashbrown::{HashMap, hash_map::Entry};
use shunt_flow::{FlowKey, SparseMask};
use shunt_gigaflow::ltm::{LtmRule, Next, Tag};
use shunt_p4runtime::{
    codec::{Decoded, Meaning},
    program::{Program, TAG_FIRST},
    server::{DeviceError, EntryHits, EntryNo},
};
use shunt_pipeline::DatapathAction;

use crate::{
    limits::NicLimits,
    packets::HeaderWrite,
    table::{MatchKey, SeededState, StageTable},
};

/// The stages of a NIC, with their entries.
#[derive(Debug)]
pub struct NicChain {
    program: Program,
    limits: NicLimits,
    seed: u64,
    stages: Vec<NicStage>,
    slots: Vec<Option<NicEntry>>,
    hits: Vec<EntryHits>,
    free: Vec<u32>,
    numbers: HashMap<EntryNo, u32, SeededState>,
    /// The tag of a received packet before the first stage.
    start: Tag,
}

/// One stage: its entries by slot, and the number of entries per mask.
#[derive(Debug)]
struct NicStage {
    table: StageTable,
    masks: HashMap<SparseMask, u32, SeededState>,
}

/// An entry of a stage.
#[derive(Debug)]
struct NicEntry {
    no: EntryNo,
    stage: usize,
    priority: u32,
    rule: LtmRule,
    /// The header bits that the entry writes into frames.
    write: HeaderWrite,
    /// The output port, if the traversal ends with this entry.
    port: Option<u16>,
    /// True if packets that match the entry go to the controller.
    is_punt: bool,
}

impl NicEntry {
    /// Returns an entry, with the output port and header bits of its rule.
    fn new(no: EntryNo, stage: usize, priority: u32, rule: LtmRule, is_punt: bool) -> Self {
        let port = match rule.actions.last() {
            Some(DatapathAction::Output { port, .. }) => u16::try_from(port.number()).ok(),
            _ => None,
        };
        let write = HeaderWrite::of(&rule.rewrite);
        Self { no, stage, priority, rule, write, port, is_punt }
    }

    /// Returns the key that no other entry of the stage may have.
    const fn match_key(&self) -> MatchKey<'_> {
        MatchKey { tag: self.rule.tag, matching: &self.rule.matching, priority: self.priority }
    }
}

/// The entries that a packet matched in the stages, with its current headers.
///
/// The memory of a walk is reused for the next packet.
#[derive(Clone, Debug, Default)]
pub struct NicWalk {
    slots: Vec<u32>,
    /// The current headers, valid after the first rewrite.
    key: FlowKey,
}

/// The decision of the stages for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicVerdict {
    /// The packet is sent by a port, rewritten by the entries that it matched.
    Forward {
        /// The output port of the NIC.
        port: u16,
    },
    /// The stages drop the packet.
    Drop,
    /// The packet goes to the controller unchanged.
    Punt {
        /// The reason: 0 if no entry matched, 2 if an entry punts the packet.
        reason: u8,
        /// The tag with which the packet matched no entry.
        miss_tag: u16,
        /// The last stage in which an entry matched, counted from 1; 0 if none matched.
        last_stage: u8,
    },
}

/// The punt reason of a packet that no entry matched.
pub(crate) const REASON_MISS: u8 = 0;
/// The punt reason of a packet that an entry sends to the controller.
pub(crate) const REASON_ACTION: u8 = 2;

impl NicStage {
    /// Returns a stage without entries.
    fn new(seed: u64) -> Self {
        Self {
            table: StageTable::new(seed),
            masks: HashMap::with_hasher(SeededState::with_seed(seed)),
        }
    }

    /// Removes an entry from the index of the stage.
    fn remove(&mut self, entry: &NicEntry) {
        self.table.remove(entry.match_key());
        if let Entry::Occupied(mut count) = self.masks.entry(entry.rule.matching.mask().clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl NicChain {
    /// Creates stages without entries. `seed` is the seed of all hashes.
    #[must_use]
    pub fn new(program: Program, limits: NicLimits, seed: u64) -> Self {
        Self {
            program,
            limits,
            seed,
            stages: (0..program.stages()).map(|_| NicStage::new(seed)).collect(),
            slots: Vec::new(),
            hits: Vec::new(),
            free: Vec::new(),
            numbers: HashMap::with_hasher(SeededState::with_seed(seed)),
            start: Tag::new(TAG_FIRST.into()),
        }
    }

    /// Returns the P4 program of the stages.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.program
    }

    /// Removes all entries, and resets the first tag of packets.
    pub fn clear(&mut self) {
        *self = Self::new(self.program, self.limits, self.seed);
    }

    /// Sets the first tag of packets.
    pub const fn set_start(&mut self, tag: Tag) {
        self.start = tag;
    }

    /// Returns the number of entries of all stages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns whether the stages have no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Adds an entry to its stage.
    ///
    /// # Errors
    ///
    /// Fails if the stage does not exist, or if it holds an entry with the same tag, match and
    /// priority. The limits of masks and of key bits are also checked.
    pub fn insert(&mut self, no: EntryNo, decoded: Decoded) -> Result<(), DeviceError> {
        let Decoded { stage, priority, meaning } = decoded;
        let (rule, is_punt) = split(meaning);
        let stage = stage.index();
        let entry = NicEntry::new(no, stage, priority, rule, is_punt);
        let Some(stage) = self.stages.get_mut(stage) else {
            return Err(DeviceError::Refused("the P4 program has no stage of this number"));
        };
        let mask = entry.rule.matching.mask();
        if self.limits.key_bits_max.is_some_and(|max| mask.bits_count() > max) {
            return Err(DeviceError::KeyBits);
        }
        let is_full = self.limits.masks_max.is_some_and(|max| stage.masks.len() >= max);
        if is_full && !stage.masks.contains_key(mask) {
            return Err(DeviceError::Masks);
        }
        if stage.table.find_exact(entry.match_key()).is_some() {
            return Err(DeviceError::Refused(
                "the stage holds an entry with this match and priority: delete it first",
            ));
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).map_err(|_| DeviceError::Full)?;
                self.slots.push(None);
                self.hits.push(EntryHits::default());
                slot
            }
        };
        *stage.masks.entry(mask.clone()).or_default() += 1;
        stage.table.insert(entry.match_key(), slot);
        self.numbers.insert(no, slot);
        self.hits[slot as usize] = EntryHits::default();
        self.slots[slot as usize] = Some(entry);
        Ok(())
    }

    /// Replaces the action of an entry. The match and the length of the entry stay.
    ///
    /// # Errors
    ///
    /// Fails if there is no entry with this number.
    pub fn modify(&mut self, no: EntryNo, meaning: Meaning) -> Result<(), DeviceError> {
        let (rule, is_punt) = split(meaning);
        let slot = self.numbers.get(&no).copied();
        let entry = slot.and_then(|slot| self.slots.get_mut(slot as usize)?.as_mut());
        let entry = entry.ok_or(DeviceError::Unknown)?;
        let rule = LtmRule {
            actions: rule.actions,
            rewrite: rule.rewrite,
            next: rule.next,
            ..entry.rule.clone()
        };
        *entry = NicEntry::new(no, entry.stage, entry.priority, rule, is_punt);
        Ok(())
    }

    /// Removes an entry, and returns its hits.
    pub fn remove(&mut self, no: EntryNo) -> EntryHits {
        let Some(slot) = self.numbers.remove(&no) else { return EntryHits::default() };
        let entry = self.slots.get_mut(slot as usize).and_then(Option::take);
        if let Some(entry) = entry {
            debug_assert_eq!(entry.no, no, "the slot of an entry number has that entry");
            if let Some(stage) = self.stages.get_mut(entry.stage) {
                stage.remove(&entry);
            }
            self.free.push(slot);
        }
        self.hits.get(slot as usize).copied().unwrap_or_default()
    }

    /// Returns the hits of an entry.
    #[must_use]
    pub fn hits(&self, no: EntryNo) -> EntryHits {
        let slot = self.numbers.get(&no).copied();
        slot.and_then(|slot| self.hits.get(slot as usize)).copied().unwrap_or_default()
    }

    /// Looks up a packet in the stages, and records the matched entries in `walk`.
    pub fn walk(&self, key: &FlowKey, walk: &mut NicWalk) -> NicVerdict {
        walk.slots.clear();
        let (mut tag, mut is_rewritten, mut last_stage) = (self.start, false, 0);
        let punt = |reason, tag: Tag, last_stage| {
            let miss_tag = u16::try_from(tag.number());
            debug_assert!(
                miss_tag.is_ok(),
                "the P4 program has tags of 16 bits, so {tag:?} cannot occur"
            );
            NicVerdict::Punt { reason, miss_tag: miss_tag.unwrap_or(u16::MAX), last_stage }
        };
        for (number, stage) in (1..).zip(&self.stages) {
            let now = if is_rewritten { &walk.key } else { key };
            let Some(slot) = stage.table.find(tag, now) else { continue };
            let Some(Some(entry)) = self.slots.get(slot as usize) else { continue };
            walk.slots.push(slot);
            last_stage = number;
            if entry.is_punt {
                return punt(REASON_ACTION, tag, last_stage);
            }
            match entry.rule.next {
                Next::Tag(next) => {
                    tag = next;
                    if !entry.rule.rewrite.mask().is_empty() {
                        if !is_rewritten {
                            walk.key.clone_from(key);
                            is_rewritten = true;
                        }
                        rewrite_key(&mut walk.key, &entry.rule);
                    }
                }
                Next::End => {
                    // A packet is never sent back to its ingress port.
                    let left = entry.port.filter(|port| u32::from(*port) != key.in_port().number());
                    return left.map_or(NicVerdict::Drop, |port| NicVerdict::Forward { port });
                }
            }
        }
        punt(REASON_MISS, tag, last_stage)
    }

    /// Returns the header writes of the entries that a walk matched, in order.
    pub(crate) fn writes<'a>(&'a self, walk: &'a NicWalk) -> impl Iterator<Item = &'a HeaderWrite> {
        let entry = |slot: &u32| self.slots.get(*slot as usize)?.as_ref();
        walk.slots.iter().filter_map(entry).map(|entry| &entry.write)
    }

    /// Counts the matched entries of a walk as used at `now`.
    /// If the walk is complete, it also counts as a hit of each entry.
    pub fn count(&mut self, walk: &NicWalk, verdict: NicVerdict, bytes: usize, now: Duration) {
        let is_whole = !matches!(verdict, NicVerdict::Punt { reason: REASON_MISS, .. });
        for slot in &walk.slots {
            let Some(hits) = self.hits.get_mut(*slot as usize) else { continue };
            hits.last = Some(now);
            if is_whole {
                hits.packets += 1;
                hits.bytes += bytes as u64;
            }
        }
    }
}

/// Returns the rule of an entry, and whether it punts.
fn split(meaning: Meaning) -> (LtmRule, bool) {
    match meaning {
        Meaning::Rule(rule) => (rule, false),
        Meaning::Punt(rule) => (rule, true),
    }
}

/// Applies the rewrite of a rule to a key.
fn rewrite_key(key: &mut FlowKey, rule: &LtmRule) {
    for ((index, mask), value) in rule.rewrite.mask().iter().zip(rule.rewrite.value()) {
        if let Some(word) = key.words_mut().get_mut(index) {
            *word = *word & !mask | value;
        }
    }
}
