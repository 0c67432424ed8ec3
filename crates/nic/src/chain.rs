//! The stages of a NIC, and the walk of a packet through them.
//!
//! The first tag is that of the table before the stages. A stage that has an entry for the packet
//! rewrites the copy of its headers and gives it the next tag; one that has none lets it pass. Hits are
//! counted when the packet has come to the end of its way, so that a packet which the switch starts
//! over is counted there alone; but any hit keeps an entry from being idle.

use std::time::Duration;

use hashbrown::{HashMap, hash_map::Entry};
use shunt_flow::{FlowKey, SparseMask};
use shunt_gigaflow::ltm::{LtmRule, Next, Tag};
use shunt_p4runtime::{
    codec::{Decoded, Meaning},
    program::{Program, TAG_FIRST},
    server::{DeviceError, EntryNo, Hits},
};
use shunt_pipeline::DatapathAction;

use crate::{
    limits::Limits,
    packets::Write,
    table::{Place, Table},
};

type Seeded = foldhash::fast::FixedState;

/// The stages of a NIC with their entries.
#[derive(Debug)]
pub struct Chain {
    program: Program,
    limits: Limits,
    seed: u64,
    stages: Vec<Stage>,
    slots: Vec<Option<Held>>,
    hits: Vec<Hits>,
    free: Vec<u32>,
    numbers: HashMap<EntryNo, u32, Seeded>,
    start: Tag,
}

/// One stage: its entries, by their slots in the chain, and how many of them have each mask.
#[derive(Debug)]
struct Stage {
    table: Table,
    masks: HashMap<SparseMask, u32, Seeded>,
}

/// An entry, wherever it is.
#[derive(Debug)]
struct Held {
    no: EntryNo,
    stage: usize,
    priority: u32,
    rule: LtmRule,
    /// What it does to frames.
    write: Write,
    /// Where packets leave whose way ends here.
    port: Option<u16>,
    /// Its packets go to the controller.
    is_punt: bool,
}

impl Held {
    fn new((no, stage, priority): (EntryNo, usize, u32), rule: LtmRule, is_punt: bool) -> Self {
        let port = match rule.actions.last() {
            Some(DatapathAction::Output { port, .. }) => u16::try_from(port.number()).ok(),
            _ => None,
        };
        let write = Write::of(&rule.rewrite);
        Self { no, stage, priority, rule, write, port, is_punt }
    }

    const fn place(&self) -> Place<'_> {
        Place { tag: self.rule.tag, matching: &self.rule.matching, priority: self.priority }
    }
}

/// The way of a packet through the stages. It is used again for the next packet.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    slots: Vec<u32>,
    /// The headers by now, if an entry has rewritten some.
    key: FlowKey,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves, rewritten by the entries of its walk.
    Forward {
        /// The port of the NIC.
        port: u16,
    },
    /// It goes nowhere.
    Drop,
    /// It goes to the controller, as it came.
    Punt {
        /// 0 no entry was found, 2 an entry says so.
        reason: u8,
        /// The tag that no entry was found for.
        miss_tag: u16,
        /// The last stage that had an entry, from 1; 0: none.
        last_stage: u8,
    },
}

/// Why a packet is sent to the controller.
pub(crate) const REASON_MISS: u8 = 0;
pub(crate) const REASON_ASKED: u8 = 2;

impl Stage {
    fn new(seed: u64) -> Self {
        Self { table: Table::new(seed), masks: HashMap::with_hasher(Seeded::with_seed(seed)) }
    }

    fn leave(&mut self, held: &Held) {
        self.table.remove(held.place());
        if let Entry::Occupied(mut count) = self.masks.entry(held.rule.matching.mask().clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Chain {
    /// Empty stages. Hashes are made with `seed`.
    #[must_use]
    pub fn new(program: Program, limits: Limits, seed: u64) -> Self {
        Self {
            program,
            limits,
            seed,
            stages: (0..program.stages()).map(|_| Stage::new(seed)).collect(),
            slots: Vec::new(),
            hits: Vec::new(),
            free: Vec::new(),
            numbers: HashMap::with_hasher(Seeded::with_seed(seed)),
            start: Tag::new(TAG_FIRST.into()),
        }
    }

    /// The program that it runs.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.program
    }

    /// Takes out all entries, and begins with the first tag again.
    pub fn clear(&mut self) {
        *self = Self::new(self.program, self.limits, self.seed);
    }

    /// Sets the first tag.
    pub const fn set_start(&mut self, tag: Tag) {
        self.start = tag;
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// The stage has no room for another mask, no key as wide, or an entry in its place.
    pub fn insert(&mut self, no: EntryNo, decoded: Decoded) -> Result<(), DeviceError> {
        let Decoded { stage, priority, meaning } = decoded;
        let (rule, is_punt) = parts(meaning);
        let stage = stage.index();
        let held = Held::new((no, stage, priority), rule, is_punt);
        let Some(stage) = self.stages.get_mut(stage) else {
            return Err(DeviceError::Refused("there is no such stage"));
        };
        let mask = held.rule.matching.mask();
        if self.limits.key_bits_max.is_some_and(|max| mask.bits_count() > max) {
            return Err(DeviceError::KeyBits);
        }
        let is_full = self.limits.masks_max.is_some_and(|max| stage.masks.len() >= max);
        if is_full && !stage.masks.contains_key(mask) {
            return Err(DeviceError::Masks);
        }
        if stage.table.find_exact(held.place()).is_some() {
            return Err(DeviceError::Refused("an entry with its match and priority is there"));
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).map_err(|_| DeviceError::Full)?;
                self.slots.push(None);
                self.hits.push(Hits::default());
                slot
            }
        };
        *stage.masks.entry(mask.clone()).or_default() += 1;
        stage.table.insert(held.place(), slot);
        self.numbers.insert(no, slot);
        self.hits[slot as usize] = Hits::default();
        self.slots[slot as usize] = Some(held);
        Ok(())
    }

    /// Replaces what an entry does; its match and length stay as they are.
    ///
    /// # Errors
    ///
    /// There is no entry of this number.
    pub fn modify(&mut self, no: EntryNo, meaning: Meaning) -> Result<(), DeviceError> {
        let (rule, is_punt) = parts(meaning);
        let slot = self.numbers.get(&no).copied();
        let held = slot.and_then(|slot| self.slots.get_mut(slot as usize)?.as_mut());
        let held = held.ok_or(DeviceError::Unknown)?;
        let rule = LtmRule {
            actions: rule.actions,
            rewrite: rule.rewrite,
            next: rule.next,
            ..held.rule.clone()
        };
        *held = Held::new((no, held.stage, held.priority), rule, is_punt);
        Ok(())
    }

    /// Takes out an entry, and says how often it was hit.
    pub fn remove(&mut self, no: EntryNo) -> Hits {
        let Some(slot) = self.numbers.remove(&no) else { return Hits::default() };
        let held = self.slots.get_mut(slot as usize).and_then(Option::take);
        if let Some(held) = held {
            debug_assert_eq!(held.no, no, "a number has one entry");
            if let Some(stage) = self.stages.get_mut(held.stage) {
                stage.leave(&held);
            }
            self.free.push(slot);
        }
        self.hits.get(slot as usize).copied().unwrap_or_default()
    }

    /// The hits of an entry.
    #[must_use]
    pub fn hits(&self, no: EntryNo) -> Hits {
        let slot = self.numbers.get(&no).copied();
        slot.and_then(|slot| self.hits.get(slot as usize)).copied().unwrap_or_default()
    }

    /// Walks a packet through the stages; `walk` takes the entries that it met.
    pub fn walk(&self, key: &FlowKey, walk: &mut Walk) -> Verdict {
        walk.slots.clear();
        let (mut tag, mut is_rewritten, mut last_stage) = (self.start, false, 0);
        let told = |reason, tag: Tag, last_stage| Verdict::Punt {
            reason,
            miss_tag: u16::try_from(tag.number()).unwrap_or(u16::MAX),
            last_stage,
        };
        for (number, stage) in (1..).zip(&self.stages) {
            let now = if is_rewritten { &walk.key } else { key };
            let Some(slot) = stage.table.find(tag, now) else { continue };
            let Some(Some(held)) = self.slots.get(slot as usize) else { continue };
            walk.slots.push(slot);
            last_stage = number;
            if held.is_punt {
                return told(REASON_ASKED, tag, last_stage);
            }
            match held.rule.next {
                Next::Tag(next) => {
                    tag = next;
                    if !held.rule.rewrite.mask().is_empty() {
                        if !is_rewritten {
                            walk.key.clone_from(key);
                            is_rewritten = true;
                        }
                        rewrite(&mut walk.key, &held.rule);
                    }
                }
                Next::End => {
                    // Nothing is sent back to where it came from.
                    let left = held.port.filter(|port| u32::from(*port) != key.in_port().number());
                    return left.map_or(Verdict::Drop, |port| Verdict::Forward { port });
                }
            }
        }
        told(REASON_MISS, tag, last_stage)
    }

    /// What the entries of a walk write, in their order.
    pub(crate) fn writes<'a>(&'a self, walk: &'a Walk) -> impl Iterator<Item = &'a Write> {
        let held = |slot: &u32| self.slots.get(*slot as usize)?.as_ref();
        walk.slots.iter().filter_map(held).map(|held| &held.write)
    }

    /// Counts a walk: as hits if it came to its end.
    pub fn count(&mut self, walk: &Walk, verdict: Verdict, (bytes, now): (usize, Duration)) {
        let is_whole = !matches!(verdict, Verdict::Punt { reason: REASON_MISS, .. });
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

fn parts(meaning: Meaning) -> (LtmRule, bool) {
    match meaning {
        Meaning::Rule(rule) => (rule, false),
        Meaning::Punt(rule) => (rule, true),
    }
}

/// Writes what a rule writes.
fn rewrite(key: &mut FlowKey, rule: &LtmRule) {
    for ((index, mask), value) in rule.rewrite.mask().iter().zip(rule.rewrite.value()) {
        if let Some(word) = key.words_mut().get_mut(index) {
            *word = *word & !mask | value;
        }
    }
}
