//! Tags: short numbers for the hidden state at partition points.
//!
//! # The meaning of a tag
//!
//! A tag represents one of two states. The first state is the start of a traversal: a packet
//! arrives on a bridge without hidden state. The second state is a [`Continuation`], which holds by
//! value everything that the rest of the traversal can read or do. A continuation has the next
//! table, registers and metadata, the action set, and the tables that resubmits return to. A tag is
//! never just a table, and never a reference to a rule or a group. Partition points with equal
//! states have the same tag, regardless of the earlier tables. Therefore flows can share entries.
//!
//! A tag is never written into a header. A packet that arrives gets the tag of its bridge from
//! [`TagSpace::start_of`], and from nowhere else. So no packet can forge a tag.
//!
//! # The life of a tag
//!
//! - *Held*: [`TagSpace::hold`] maps a state to a tag. Each LTM rule holds its first and its next
//!   tag once. A caller that is about to build a rule holds the tags of the rule too.
//! - *Retired*: the last holder has released the tag. The tag space drops the state of the tag. If
//!   an equal state is held again, it gets another tag.
//! - *Freed*: the number of the tag may be given to another state. With [`Reuse::AtOnce`] a retired
//!   tag is freed immediately, since one thread both looks up packets and retires tags. With
//!   [`Reuse::Drained`] it is freed by [`TagSpace::free_retired`], when no packet is under way with
//!   the tag.
//!
//! The number of tags is bounded. If no tag is left, no further traversal is partitioned: see
//! [`TagsFull`].

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
    /// The tags by their numbers.
    slots: Vec<TagSlot>,
    /// The start tag of each bridge, by the number of the bridge.
    by_bridge: HashMap<u64, Tag, foldhash::fast::FixedState>,
    /// The tags by the number of their continuation.
    /// The number is unique while a slot holds the continuation.
    by_continuation: HashMap<u32, Tag, foldhash::fast::FixedState>,
    /// The tags of which the numbers may be used again.
    free: Vec<Tag>,
    /// The tags that are retired and not yet freed, oldest first.
    retired: VecDeque<Tag>,
    /// Number of tags that were retired so far.
    retired_count: u64,
    reuse: Reuse,
    /// Maximum number of tags.
    count_max: usize,
}

/// The state that a tag represents, by which the tag is found.
#[derive(Clone, Debug)]
pub enum TagName {
    /// The start of a packet that arrives on the bridge with this number.
    Start(u64),
    /// A partition point: the rest of the traversal with its hidden state.
    Continuation(Arc<Continuation>),
}

/// The moment from which the number of a retired tag may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The number is reused at once, because no packet has a retired tag.
    AtOnce,
    /// The number is reused after [`TagSpace::free_retired`] has freed the tag.
    Drained,
}

/// All numbers of tags are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no tag is left for another sub-traversal: all {0} tags are in use")]
pub struct TagsFull(pub usize);

/// A tag number: its name, and the number of entries that hold it.
#[derive(Debug)]
struct TagSlot {
    /// The state that the tag represents; `None` for a free or retired tag.
    name: Option<TagName>,
    /// Number of entries and fills that hold the tag.
    held_count: u32,
}

/// Index of the word with the bridge.
const BRIDGE: usize = word::BRIDGE as usize;
/// Index of the word with the recirculation id.
const RECIRC: usize = word::RECIRC as usize;

impl TagSpace {
    /// Creates an empty tag space with this number of bits per tag.
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

    /// Returns the tag that a packet begins with, if it is in use.
    ///
    /// A packet that arrives with hidden state has no tag.
    #[must_use]
    pub fn start_of(&self, key: &FlowKey) -> Option<Tag> {
        if has_other_hidden_state(key) {
            return None;
        }
        let words = key.words();
        let id = u32::try_from(key.field(FieldId::RecircId)).ok()?;
        match id {
            0 => self.by_bridge.get(&words[BRIDGE]).copied(),
            id => self.by_continuation.get(&id).copied(),
        }
    }

    /// Returns the tag of a state, and adds one holder.
    ///
    /// # Errors
    ///
    /// Fails if the state has no tag yet, and no number is left.
    pub fn hold(&mut self, name: &TagName) -> Result<Tag, TagsFull> {
        let found = match name {
            TagName::Start(bridge) => self.by_bridge.get(bridge),
            TagName::Continuation(continuation) => self.by_continuation.get(&continuation.id()),
        };
        let tag = match found {
            Some(tag) => *tag,
            None => self.allocate(name)?,
        };
        self.hold_again(tag);
        Ok(tag)
    }

    /// Adds one holder to a tag that is held already.
    pub fn hold_again(&mut self, tag: Tag) {
        if let Some(slot) = self.slots.get_mut(tag.index()) {
            slot.held_count += 1;
        }
    }

    /// Removes one holder of a tag. Without a holder, the tag is retired.
    pub fn release(&mut self, tag: Tag) {
        let Some(slot) = self.slots.get_mut(tag.index()) else { return };
        slot.held_count = slot.held_count.saturating_sub(1);
        if slot.held_count > 0 {
            return;
        }
        match slot.name.take() {
            Some(TagName::Start(bridge)) => self.by_bridge.remove(&bridge),
            Some(TagName::Continuation(continuation)) => {
                self.by_continuation.remove(&continuation.id())
            }
            None => return,
        };
        self.retired_count += 1;
        match self.reuse {
            Reuse::AtOnce => self.free.push(tag),
            Reuse::Drained => self.retired.push_back(tag),
        }
    }

    /// Returns the state of a tag, while the tag is held.
    #[must_use]
    pub fn name(&self, tag: Tag) -> Option<&TagName> {
        self.slots.get(tag.index())?.name.as_ref()
    }

    /// Returns the number of tags that were retired so far.
    #[must_use]
    pub const fn retired_count(&self) -> u64 {
        self.retired_count
    }

    /// Frees the first `count` retired tags, because no packet has them any more.
    pub fn free_retired(&mut self, count: u64) {
        let waiting = self.retired.len() as u64;
        let freed = count.saturating_sub(self.retired_count - waiting).min(waiting);
        for _ in 0..freed {
            self.free.extend(self.retired.pop_front());
        }
    }

    /// Returns the number of tags in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_bridge.len() + self.by_continuation.len()
    }

    /// Returns whether no tag is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allocates a tag for a state.
    fn allocate(&mut self, name: &TagName) -> Result<Tag, TagsFull> {
        let tag = match self.free.pop() {
            Some(tag) => tag,
            None if self.slots.len() < self.count_max => {
                #[expect(clippy::expect_used, reason = "the number is less than `count_max`")]
                let number = u32::try_from(self.slots.len()).expect("a tag has at most 24 bits");
                self.slots.push(TagSlot { name: None, held_count: 0 });
                Tag::new(number)
            }
            None => return Err(TagsFull(self.count_max)),
        };
        match name {
            TagName::Start(bridge) => self.by_bridge.insert(*bridge, tag),
            TagName::Continuation(continuation) => {
                self.by_continuation.insert(continuation.id(), tag)
            }
        };
        self.slots[tag.index()].name = Some(name.clone());
        Ok(tag)
    }
}

/// Returns whether a packet has hidden state beyond bridge and recirculation id.
pub(crate) fn has_other_hidden_state(key: &FlowKey) -> bool {
    let words = key.words();
    let others = words[..RECIRC].iter().chain(&words[RECIRC + 1..BRIDGE]);
    let id = u32::try_from(key.field(FieldId::RecircId)).unwrap_or_default();
    let is_named = u64::from(id) << FieldId::RecircId.slot().shift == words[RECIRC];
    !is_named || others.fold(0, |all, word| all | word) != 0
}

impl TagName {
    /// Returns the first state of a packet: `start`, or the start on its bridge.
    #[must_use]
    pub fn of_start(key: &FlowKey, start: Option<&Arc<Continuation>>) -> Self {
        start.map_or_else(
            || Self::Start(key.bridge()),
            |start| Self::Continuation(Arc::clone(start)),
        )
    }
}

const _: () = assert!(RECIRC < BRIDGE && BRIDGE + 1 == HEADER_START);

/// Maximum number of bits of a tag.
pub const TAG_BITS_MAX: u8 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a tag space without tags.
    fn space(reuse: Reuse) -> TagSpace {
        TagSpace::new(1, reuse, 7)
    }

    #[test]
    fn equal_states_share_a_held_tag() {
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
    fn retired_tag_is_reused_once_freed() {
        let mut space = space(Reuse::Drained);
        let tags: Vec<_> =
            (1..=2).map(|bridge| space.hold(&TagName::Start(bridge)).unwrap()).collect();
        tags.iter().for_each(|tag| space.release(*tag));
        assert_eq!(space.hold(&TagName::Start(1)), Err(TagsFull(2)));
        space.free_retired(1);
        assert_eq!(space.hold(&TagName::Start(5)), Ok(tags[0]));
        assert_eq!(space.hold(&TagName::Start(6)), Err(TagsFull(2)));
        space.free_retired(space.retired_count());
        assert_eq!(space.hold(&TagName::Start(6)), Ok(tags[1]));
    }

    #[test]
    fn no_packet_can_forge_a_tag() {
        let mut space = space(Reuse::AtOnce);
        let tag = space.hold(&TagName::Start(1)).unwrap();
        let mut key = FlowKey::ZERO;
        key.set_bridge(1);
        assert_eq!(space.start_of(&key), Some(tag));
        for index in HEADER_START..key.words().len() {
            let mut forged = key.clone();
            forged.words_mut()[index] = u64::MAX;
            assert_eq!(space.start_of(&forged), Some(tag), "headers do not change the tag");
        }
        for index in (0..HEADER_START).filter(|index| *index != BRIDGE) {
            let mut hiding = key.clone();
            hiding.words_mut()[index] = 1;
            assert_eq!(space.start_of(&hiding), None, "word {index}");
        }
    }
}
