//! The objects that a translation has read, each once. Rules are recorded in visits.
//!
//! If a packet reads more than [`PORTS_MAX`] ports of a bridge, the object of all ports is recorded
//! instead. So the change of any port evicts the cache entry, and the number of reads of an entry
//! is bounded.

use std::collections::BTreeSet;

use crate::{id::BridgeId, versions::delta::Object};

/// Objects in the order of their first read.
#[derive(Default)]
pub(in crate::translate) struct Reads {
    /// The objects that a translation read, without repetitions.
    list: Vec<Object>,
    /// All recorded objects, once there are more than [`LINEAR_SEARCH_MAX`].
    set: BTreeSet<Object>,
    /// The reads of the current tail, if one is recorded.
    tail: Option<TailReads>,
}

/// The reads of the tail of a translation, as indexes into all of its reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailReads {
    /// Number of objects that were read before the tail.
    before: usize,
    /// A bit for each object before the tail, set if the tail read it again.
    again: u64,
}

/// The most ports of one bridge that are recorded one by one.
const PORTS_MAX: usize = 32;

/// Number of objects up to which a linear search is fastest.
const LINEAR_SEARCH_MAX: usize = 64;

impl Reads {
    /// Records that the translation consulted an object.
    pub(in crate::translate) fn add(&mut self, object: Object) {
        if self.has(object) {
            return self.note_repeat(object);
        }
        if let Object::Port(bridge, _) = object {
            let all = Object::Ports(bridge);
            if self.has(all) {
                return self.note_repeat(all);
            }
            if self.list.iter().filter(|read| is_port_of(read, bridge)).count() == PORTS_MAX {
                // The ports stay in the set, so that later reads of them find them recorded.
                self.list.retain(|read| !is_port_of(read, bridge));
                self.push(all);
                return;
            }
        }
        self.push(object);
    }

    /// Starts the tail of the translation: later reads belong to it.
    ///
    /// If a port was read before, the reads of the tail stay unknown, because [`Object::Ports`] may
    /// replace the port.
    pub(in crate::translate) fn begin_tail(&mut self) {
        let before = self.list.len();
        let is_port = |object: &Object| matches!(object, Object::Port(..));
        if before <= u64::BITS as usize && !self.list.iter().any(is_port) {
            self.tail = Some(TailReads { before, again: 0 });
        }
    }

    /// Returns the reads of the tail, if a tail was begun.
    pub(in crate::translate) const fn tail(&self) -> Option<TailReads> {
        self.tail
    }

    /// Takes all objects that were read, and leaves none.
    pub(in crate::translate) fn take(&mut self) -> Box<[Object]> {
        self.tail = None;
        self.set.clear();
        self.list.drain(..).collect()
    }

    /// Returns whether an object is recorded already.
    fn has(&self, object: Object) -> bool {
        if self.set.is_empty() { self.list.contains(&object) } else { self.set.contains(&object) }
    }

    /// Records a read of an object that may have been read before the tail.
    fn note_repeat(&mut self, object: Object) {
        let Some(TailReads { before, again }) = &mut self.tail else { return };
        let index = self.list.iter().take(*before).position(|read| *read == object);
        *again |= index.map_or(0, |index| 1 << index);
    }

    /// Appends an object to the list.
    fn push(&mut self, object: Object) {
        self.list.push(object);
        if !self.set.is_empty() {
            self.set.insert(object);
        } else if self.list.len() > LINEAR_SEARCH_MAX {
            self.set.extend(&self.list);
        }
    }
}

impl TailReads {
    /// Returns the objects of `reads` that were read before the tail.
    pub(in crate::translate) fn head<'a>(&self, reads: &'a [Object]) -> &'a [Object] {
        reads.get(..self.before).unwrap_or_default()
    }

    /// Returns the objects of `reads` that the tail read.
    pub(in crate::translate) fn own<'a>(
        &self,
        reads: &'a [Object],
    ) -> impl Iterator<Item = &'a Object> {
        let Self { before, again } = *self;
        let is_own = move |index: usize| index >= before || again >> index & 1 != 0;
        reads.iter().enumerate().filter(move |(index, _)| is_own(*index)).map(|(_, read)| read)
    }
}

/// Returns whether an object is a single port of the bridge.
fn is_port_of(read: &Object, bridge: BridgeId) -> bool {
    matches!(read, Object::Port(own, _) if *own == bridge)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_flow::PortNo;

    use super::*;
    use crate::id::GroupId;

    /// The bridges of the objects.
    const BRIDGES: [BridgeId; 2] = [BridgeId::new(1), BridgeId::new(2)];

    /// Returns a port as an object.
    fn port(bridge: usize, number: u32) -> Object {
        Object::Port(BRIDGES[bridge], PortNo::new(number))
    }

    /// Returns the reads of a traversal that consults some objects.
    fn reads(objects: impl IntoIterator<Item = Object>) -> Box<[Object]> {
        let mut reads = Reads::default();
        objects.into_iter().for_each(|object| reads.add(object));
        reads.take()
    }

    /// Generates an object that translations consult.
    fn object() -> impl Strategy<Value = Object> {
        prop_oneof![
            4 => (0..2_usize, 1..60_u32).prop_map(|(bridge, number)| port(bridge, number)),
            4 => (1..200_u32).prop_map(|group| Object::Group(BRIDGES[0], GroupId::new(group))),
            1 => (0..2_usize).prop_map(|bridge| Object::Ports(BRIDGES[bridge])),
        ]
    }

    #[test]
    fn thirty_two_ports_are_recorded_one_by_one() {
        let few: Vec<_> = (1..=32).flat_map(|number| [port(0, number), port(1, number)]).collect();
        assert_eq!(*reads(few.iter().copied().chain(few.iter().copied())), *few);
        let many = reads(few.into_iter().chain([port(0, 33), port(0, 1), port(0, 34)]));
        assert_eq!(many.len(), 33);
        assert_eq!(many.last(), Some(&Object::Ports(BRIDGES[0])));
        assert!(many[..32].iter().all(|read| is_port_of(read, BRIDGES[1])));
    }

    proptest! {
        #[test]
        fn every_read_object_is_recorded_once(
            objects in prop::collection::vec(object(), 0..400),
        ) {
            let reads = reads(objects.iter().copied());
            let set: BTreeSet<_> = reads.iter().copied().collect();
            prop_assert_eq!(set.len(), reads.len());
            for object in objects {
                let is_within = match object {
                    Object::Port(bridge, _) => set.contains(&Object::Ports(bridge)),
                    _ => false,
                };
                prop_assert!(is_within || set.contains(&object), "{:?}", object);
            }
        }

        #[test]
        fn reads_of_each_sub_traversal_are_separate(
            first in prop::collection::vec(object(), 0..100),
            second in prop::collection::vec(object(), 0..300),
        ) {
            let mut used = Reads::default();
            first.iter().for_each(|object| used.add(*object));
            used.begin_tail();
            second.iter().for_each(|object| used.add(*object));
            let (tail, all) = (used.tail(), used.take());
            let is_port = |object: &Object| matches!(object, Object::Port(..));
            let before = reads(first);
            prop_assert_eq!(tail.is_some(), before.len() <= 64 && !before.iter().any(is_port));
            if let Some(tail) = tail {
                prop_assert_eq!(tail.head(&all), &*before);
                let own: BTreeSet<_> = tail.own(&all).copied().collect();
                let alone: BTreeSet<_> = reads(second).iter().copied().collect();
                // Once all ports of a bridge count as read, a read of one port counts as a read of
                // all.
                let widened: BTreeSet<_> = alone.iter().map(|object| match object {
                    Object::Port(bridge, _) if before.contains(&Object::Ports(*bridge)) => {
                        Object::Ports(*bridge)
                    }
                    object => *object,
                }).collect();
                prop_assert_eq!(own, widened);
            }
        }

        #[test]
        fn taken_reads_leave_an_empty_list(
            first in prop::collection::vec(object(), 0..300),
            second in prop::collection::vec(object(), 0..300),
        ) {
            let mut used = Reads::default();
            first.into_iter().for_each(|object| used.add(object));
            let _ = used.take();
            second.iter().for_each(|object| used.add(*object));
            prop_assert_eq!(used.take(), reads(second));
        }
    }
}
