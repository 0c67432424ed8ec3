//! The stages of a NIC, and the walk of a packet through them.
//!
//! The first tag is that of the table before the stages. A stage that has an entry for the packet
//! rewrites the copy of its headers and gives it the next tag; one that has none lets it pass. Hits are
//! counted when the packet has come to the end of its way, so that a packet which the switch starts
//! over is counted there alone; but any hit keeps an entry from being idle.

use std::time::Duration;

use hashbrown::HashMap;
use shunt_flow::FlowKey;
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    partition::StageId,
};
use shunt_p4runtime::{
    codec::Meaning,
    program::{Program, TAG_FIRST},
    server::{DeviceError, EntryNo, Hits},
};

use crate::{
    limits::Limits,
    stage::{Held, Slot, Stage},
};

/// The stages of a NIC with their entries.
#[derive(Debug)]
pub struct Chain {
    program: Program,
    limits: Limits,
    seed: u64,
    stages: Vec<Stage>,
    slots: Vec<Option<Held>>,
    hits: Vec<Hits>,
    free: Vec<Slot>,
    numbers: HashMap<EntryNo, Slot, foldhash::fast::FixedState>,
    start: Tag,
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
const REASON_MISS: u8 = 0;
const REASON_ASKED: u8 = 2;

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
            numbers: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
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

    /// Adds an entry; there is none with its match and length.
    ///
    /// # Errors
    ///
    /// The stage has no room for another mask.
    pub fn insert(
        &mut self,
        no: EntryNo,
        stage: StageId,
        meaning: Meaning,
    ) -> Result<(), DeviceError> {
        let (rule, is_punt) = parts(meaning);
        let table = self.stages.get_mut(stage.index());
        let table = table.ok_or(DeviceError::Refused("there is no such stage"))?;
        let is_new = table.is_new_mask(&rule);
        if is_new && self.limits.masks_max.is_some_and(|max| table.masks_count() >= max) {
            return Err(DeviceError::Refused("the stage has no room for another mask"));
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.hits.push(Hits::default());
                let last = self.slots.len().saturating_sub(1);
                u32::try_from(last).map_err(|_| DeviceError::Full)?
            }
        };
        table.insert(&rule, slot);
        self.numbers.insert(no, slot);
        if let (Some(place), Some(hits)) =
            (self.slots.get_mut(slot as usize), self.hits.get_mut(slot as usize))
        {
            *place = Some(Held { no, stage: stage.index(), rule, is_punt });
            *hits = Hits::default();
        }
        Ok(())
    }

    /// Replaces what an entry does; its match and length stay as they are.
    pub fn modify(&mut self, no: EntryNo, meaning: Meaning) {
        let (rule, is_punt) = parts(meaning);
        let slot = self.numbers.get(&no).copied();
        if let Some(Some(held)) = slot.and_then(|slot| self.slots.get_mut(slot as usize)) {
            held.rule = LtmRule {
                actions: rule.actions,
                rewrite: rule.rewrite,
                next: rule.next,
                ..held.rule.clone()
            };
            held.is_punt = is_punt;
        }
    }

    /// Takes out an entry.
    pub fn remove(&mut self, no: EntryNo) {
        let Some(slot) = self.numbers.remove(&no) else { return };
        let held = self.slots.get_mut(slot as usize).and_then(Option::take);
        if let Some(held) = held {
            debug_assert_eq!(held.no, no, "a number has one entry");
            if let Some(stage) = self.stages.get_mut(held.stage) {
                stage.remove(&held.rule);
            }
            self.free.push(slot);
        }
    }

    /// The hits of an entry.
    #[must_use]
    pub fn hits(&self, no: EntryNo) -> Hits {
        let slot = self.numbers.get(&no).copied();
        slot.and_then(|slot| self.hits.get(slot as usize)).copied().unwrap_or_default()
    }

    /// Walks a packet through the stages; `walk` takes the entries that it met.
    pub fn walk(&self, key: &FlowKey, walk: &mut Vec<u32>) -> Verdict {
        walk.clear();
        let (mut tag, mut now, mut last_stage) = (self.start, None::<FlowKey>, 0);
        let told = |reason, tag: Tag, last_stage| Verdict::Punt {
            reason,
            miss_tag: u16::try_from(tag.number()).unwrap_or(u16::MAX),
            last_stage,
        };
        for (number, stage) in (1..).zip(&self.stages) {
            let Some(slot) = stage.find(tag, now.as_ref().unwrap_or(key)) else { continue };
            let Some(Some(held)) = self.slots.get(slot as usize) else { continue };
            walk.push(slot);
            last_stage = number;
            if held.is_punt {
                return told(REASON_ASKED, tag, last_stage);
            }
            match held.rule.next {
                Next::Tag(next) => {
                    tag = next;
                    rewrite(now.get_or_insert_with(|| key.clone()), &held.rule);
                }
                Next::End => {
                    let output = held.rule.plain().and_then(|plain| plain.output);
                    let port = output.and_then(|port| u16::try_from(port.number()).ok());
                    // Nothing is sent back to where it came from.
                    let left = port.filter(|port| u32::from(*port) != key.in_port().number());
                    return left.map_or(Verdict::Drop, |port| Verdict::Forward { port });
                }
            }
        }
        told(REASON_MISS, tag, last_stage)
    }

    /// What the entries of a walk say, in their order.
    pub fn rules<'a>(&'a self, walk: &'a [u32]) -> impl Iterator<Item = &'a LtmRule> {
        let held = |slot: &u32| self.slots.get(*slot as usize)?.as_ref();
        walk.iter().filter_map(held).map(|held| &held.rule)
    }

    /// Counts a walk: as hits if it came to its end.
    pub fn count(&mut self, walk: &[u32], verdict: Verdict, (bytes, now): (usize, Duration)) {
        let is_whole = !matches!(verdict, Verdict::Punt { reason: REASON_MISS, .. });
        for slot in walk {
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
