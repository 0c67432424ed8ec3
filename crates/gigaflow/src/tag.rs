//! Tags: short numbers for the hidden state at a cut.
//!
//! # What a tag names
//!
//! Either the beginning of the way of a packet that comes in at a bridge with no hidden state, or a
//! [`Continuation`], which is everything that the rest of the way can still read and do, by value:
//! the table that comes next, registers and metadata, the action set, what resubmits come back to.
//! Never a table alone, never a reference to a rule or a group. Two cuts with equal state have one
//! tag, whichever ways lead to them; that is what lets flows recombine.
//!
//! A tag is not written into any header, and a packet that comes in gets the tag of its bridge, by
//! [`TagSpace::start_of`] and nothing else. So no packet can bring one.
//!
//! # The life of a tag
//!
//! *Named* by [`TagSpace::hold`], and held once for every rule that has it, in or out, and by whoever is
//! about to make one. *Retired* when nobody holds it: its name is forgotten, so equal state that
//! comes back is another tag. *Freed* when its number may mean something else: at once where whoever
//! looks up is also who retires, and otherwise only when the packets that were under way with it have
//! been dealt with, which [`TagSpace::drained`] says.
//!
//! There are only so many numbers. Where there is none left, nothing new is cut: [`TagsFull`].

use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashMap;
use shunt_flow::{
    FieldId, FlowKey,
    layout::{HEADER_START, word},
};
use shunt_pipeline::Continuation;

use crate::ltm::Tag;

/// All tags of one chain of stages.
#[derive(Debug)]
pub struct TagSpace {
    slots: Vec<Slot>,
    by_bridge: HashMap<u64, Tag, foldhash::fast::FixedState>,
    /// By the number of the continuation, which is no other's while a slot has it.
    by_continuation: HashMap<u32, Tag, foldhash::fast::FixedState>,
    free: Vec<Tag>,
    /// Those that are retired and not freed, oldest first.
    retired: VecDeque<Tag>,
    retired_count: u64,
    reuse: Reuse,
    count_max: usize,
}

/// What a tag stands for.
#[derive(Clone, Debug)]
pub enum TagName {
    /// A packet comes in at the bridge of this number.
    Start(u64),
    /// What is left to do, and with what.
    StateId(Arc<Continuation>),
}

/// When the number of a retired tag may be given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// At once: nothing is under way with it.
    AtOnce,
    /// Once it is [drained](TagSpace::drained).
    Drained,
}

/// There is no number left for another tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {0} tags are in use")]
pub struct TagsFull(pub usize);

#[derive(Debug)]
struct Slot {
    name: Option<TagName>,
    held_count: u32,
}

const BRIDGE: usize = word::BRIDGE as usize;
const RECIRC: usize = word::RECIRC as usize;

impl TagSpace {
    /// A space of tags with so many bits, from which nothing is taken.
    #[must_use]
    pub fn new(bits: u8, reuse: Reuse, seed: u64) -> Self {
        let hasher = foldhash::fast::FixedState::with_seed(seed);
        Self {
            slots: Vec::new(),
            by_bridge: HashMap::with_hasher(hasher.clone()),
            by_continuation: HashMap::with_hasher(hasher),
            free: Vec::new(),
            retired: VecDeque::new(),
            retired_count: 0,
            reuse,
            count_max: 1 << bits.min(TAG_BITS_MAX),
        }
    }

    /// The tag that a packet begins with, if it is in use. A packet with hidden state that nothing
    /// names has none.
    #[must_use]
    pub fn start_of(&self, key: &FlowKey) -> Option<Tag> {
        if is_hiding(key) {
            return None;
        }
        let words = key.words();
        let id = u32::try_from(key.field(FieldId::RecircId)).ok()?;
        match id {
            0 => self.by_bridge.get(&words[BRIDGE]).copied(),
            id => self.by_continuation.get(&id).copied(),
        }
    }

    /// The tag of a name, which is held once more.
    ///
    /// # Errors
    ///
    /// The name is new, and there is no number for it.
    pub fn hold(&mut self, name: &TagName) -> Result<Tag, TagsFull> {
        let found = match name {
            TagName::Start(bridge) => self.by_bridge.get(bridge),
            TagName::StateId(continuation) => self.by_continuation.get(&continuation.id()),
        };
        let tag = match found {
            Some(tag) => *tag,
            None => self.named(name)?,
        };
        self.hold_again(tag);
        Ok(tag)
    }

    /// A tag that is held is held once more.
    pub fn hold_again(&mut self, tag: Tag) {
        if let Some(slot) = self.slots.get_mut(tag.index()) {
            slot.held_count += 1;
        }
    }

    /// A tag is held once less. With the last one its name is forgotten.
    pub fn release(&mut self, tag: Tag) {
        let Some(slot) = self.slots.get_mut(tag.index()) else { return };
        slot.held_count = slot.held_count.saturating_sub(1);
        if slot.held_count > 0 {
            return;
        }
        match slot.name.take() {
            Some(TagName::Start(bridge)) => self.by_bridge.remove(&bridge),
            Some(TagName::StateId(continuation)) => self.by_continuation.remove(&continuation.id()),
            None => return,
        };
        self.retired_count += 1;
        match self.reuse {
            Reuse::AtOnce => self.free.push(tag),
            Reuse::Drained => self.retired.push_back(tag),
        }
    }

    /// What a tag stands for, while it is held.
    #[must_use]
    pub fn name(&self, tag: Tag) -> Option<&TagName> {
        self.slots.get(tag.index())?.name.as_ref()
    }

    /// How many tags have been retired so far.
    #[must_use]
    pub const fn retired_count(&self) -> u64 {
        self.retired_count
    }

    /// Nothing is under way any more with the first `count` tags that were ever retired.
    pub fn drained(&mut self, count: u64) {
        let waiting = self.retired.len() as u64;
        let drained = count.saturating_sub(self.retired_count - waiting).min(waiting);
        for _ in 0..drained {
            self.free.extend(self.retired.pop_front());
        }
    }

    /// Number of tags in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_bridge.len() + self.by_continuation.len()
    }

    /// Whether no tag is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn named(&mut self, name: &TagName) -> Result<Tag, TagsFull> {
        let tag = match self.free.pop() {
            Some(tag) => tag,
            None if self.slots.len() < self.count_max => {
                let number = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
                self.slots.push(Slot { name: None, held_count: 0 });
                Tag::new(number)
            }
            None => return Err(TagsFull(self.count_max)),
        };
        match name {
            TagName::Start(bridge) => self.by_bridge.insert(*bridge, tag),
            TagName::StateId(continuation) => self.by_continuation.insert(continuation.id(), tag),
        };
        self.slots[tag.index()].name = Some(name.clone());
        Ok(tag)
    }
}

/// Whether a packet has hidden state that is neither its bridge nor where it goes on.
pub(crate) fn is_hiding(key: &FlowKey) -> bool {
    let words = key.words();
    let others = words[..RECIRC].iter().chain(&words[RECIRC + 1..BRIDGE]);
    let id = u32::try_from(key.field(FieldId::RecircId)).unwrap_or_default();
    let is_named = u64::from(id) << FieldId::RecircId.slot().shift == words[RECIRC];
    !is_named || others.fold(0, |all, word| all | word) != 0
}

impl TagName {
    /// What the way of a packet begins with that goes on from `start`, or comes in.
    #[must_use]
    pub fn of_start(key: &FlowKey, start: Option<&Arc<Continuation>>) -> Self {
        start.map_or_else(|| Self::Start(key.bridge()), |start| Self::StateId(Arc::clone(start)))
    }
}

const _: () = assert!(RECIRC < BRIDGE && BRIDGE + 1 == HEADER_START);

/// Bits of the largest space of tags.
pub const TAG_BITS_MAX: u8 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn space(reuse: Reuse) -> TagSpace {
        TagSpace::new(1, reuse, 7)
    }

    #[test]
    fn equal_names_are_one_tag_until_nobody_holds_it() {
        let mut space = space(Reuse::AtOnce);
        let one = space.hold(&TagName::Start(1)).unwrap();
        assert_eq!(space.hold(&TagName::Start(1)), Ok(one));
        let two = space.hold(&TagName::Start(2)).unwrap();
        assert_ne!(one, two);
        assert_eq!(space.hold(&TagName::Start(3)), Err(TagsFull(2)));
        space.release(one);
        assert!(space.name(one).is_some(), "held once more");
        space.release(one);
        assert!(space.name(one).is_none());
        assert_eq!(space.hold(&TagName::Start(3)), Ok(one), "its number is free");
    }

    #[test]
    fn a_retired_tag_is_no_other_before_it_is_drained() {
        let mut space = space(Reuse::Drained);
        let tags: Vec<_> =
            (1..=2).map(|bridge| space.hold(&TagName::Start(bridge)).unwrap()).collect();
        tags.iter().for_each(|tag| space.release(*tag));
        assert_eq!(space.hold(&TagName::Start(1)), Err(TagsFull(2)));
        space.drained(1);
        assert_eq!(space.hold(&TagName::Start(5)), Ok(tags[0]));
        assert_eq!(space.hold(&TagName::Start(6)), Err(TagsFull(2)));
        space.drained(space.retired_count());
        assert_eq!(space.hold(&TagName::Start(6)), Ok(tags[1]));
    }

    #[test]
    fn what_a_packet_says_is_never_its_tag() {
        let mut space = space(Reuse::AtOnce);
        let tag = space.hold(&TagName::Start(1)).unwrap();
        let mut key = FlowKey::ZERO;
        key.set_bridge(1);
        assert_eq!(space.start_of(&key), Some(tag));
        for index in HEADER_START..key.words().len() {
            let mut forged = key.clone();
            forged.words_mut()[index] = u64::MAX;
            assert_eq!(space.start_of(&forged), Some(tag), "a header decides nothing");
        }
        for index in (0..HEADER_START).filter(|index| *index != BRIDGE) {
            let mut hiding = key.clone();
            hiding.words_mut()[index] = 1;
            assert_eq!(space.start_of(&hiding), None, "word {index}");
        }
    }
}
