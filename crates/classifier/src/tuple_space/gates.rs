//! Gates: which beginnings of keys lead to any rule.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowKey, FlowMask, SparseMask, layout::Stage};

use super::{
    values::Values,
    words::{Hashing, MaskWord},
};

/// The gates of a table: for each beginning that masks have before the network layer, the values
/// of all rules whose masks begin so.
///
/// A table has many masks, and few beginnings of them, so one probe tells of many subtables that
/// none of their rules matches. It takes all these subtables together; the stages of each one
/// tell more.
#[derive(Clone, Debug)]
pub(super) struct Gates {
    /// By [`GateId`]; those in `free` have no rules.
    gates: Vec<Gate>,
    free: Vec<GateId>,
    by_mask: HashMap<SparseMask, GateId, FixedState>,
}

/// Names a gate of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateId(u32);

#[derive(Clone, Debug)]
struct Gate {
    mask: SparseMask,
    words: Box<[MaskWord]>,
    values: Values,
    subtables_count: usize,
}

/// What the first gates have said of a packet in the course of one lookup.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    known: [u64; ASKED_WORDS],
    open: [u64; ASKED_WORDS],
}

/// Answers of so many times 64 gates are kept; gates beyond are asked again.
const ASKED_WORDS: usize = 4;

impl Gates {
    pub(super) fn new(seed: &FixedState) -> Self {
        let by_mask = HashMap::with_hasher(seed.clone());
        Self { gates: Vec::new(), free: Vec::new(), by_mask }
    }

    /// The gate of a mask that becomes a subtable, if the mask begins before the network layer and
    /// does not end there.
    pub(super) fn acquire(&mut self, mask: &SparseMask, hashing: &Hashing) -> Option<GateId> {
        let words_count = mask.words_until(Stage::Link);
        let is_one = (1..mask.words().len()).contains(&words_count);
        is_one.then(|| self.acquire_one(leading_words(mask, words_count), hashing))
    }

    fn acquire_one(&mut self, mask: SparseMask, hashing: &Hashing) -> GateId {
        if let Some(id) = self.by_mask.get(&mask) {
            self.gates[id.place()].subtables_count += 1;
            return *id;
        }
        let words = hashing.words(&mask);
        let values = Values::default();
        let gate = Gate { mask: mask.clone(), words, values, subtables_count: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.gates[id.place()] = gate;
                id
            }
            None => {
                self.gates.push(gate);
                #[expect(clippy::expect_used, reason = "that many gates would fill 256 GiB")]
                GateId(u32::try_from(self.gates.len() - 1).expect("fewer than 2^32 gates"))
            }
        };
        self.by_mask.insert(mask, id);
        id
    }

    /// Gives back the gate of a subtable that has no rule any more.
    pub(super) fn release(&mut self, id: GateId) {
        let gate = &mut self.gates[id.place()];
        gate.subtables_count -= 1;
        if gate.subtables_count == 0 {
            self.by_mask.remove(&gate.mask);
            // What its hash table grew to is given back now.
            gate.values = Values::default();
            self.free.push(id);
        }
    }

    pub(super) fn insert(&mut self, id: GateId, key: &FlowKey, hashing: &Hashing) {
        let gate = &mut self.gates[id.place()];
        gate.values.insert(hashing.hash(&gate.words, key));
    }

    pub(super) fn remove(&mut self, id: GateId, key: &FlowKey, hashing: &Hashing) {
        let gate = &mut self.gates[id.place()];
        gate.values.remove(hashing.hash(&gate.words, key));
    }

    /// Whether any rule behind a gate has the beginning of this key.
    pub(super) fn is_open(&self, id: GateId, key: &FlowKey, hashing: &Hashing) -> bool {
        let gate = &self.gates[id.place()];
        gate.values.contains(hashing.hash(&gate.words, key))
    }
}

impl GateId {
    const fn place(self) -> usize {
        self.0 as usize
    }
}

impl Asked {
    /// What a gate says, asked for by `ask` where it is not known yet.
    pub(super) fn or_ask(&mut self, id: GateId, ask: impl FnOnce() -> bool) -> bool {
        let (word, bit) = (id.place() / 64, 1 << (id.place() % 64));
        let Some(known) = self.known.get_mut(word) else { return ask() };
        if *known & bit == 0 {
            *known |= bit;
            self.open[word] |= if ask() { bit } else { 0 };
        }
        self.open[word] & bit != 0
    }
}

fn leading_words(mask: &SparseMask, count: usize) -> SparseMask {
    let mut leading = FlowMask::EMPTY;
    mask.iter().take(count).for_each(|(index, bits)| leading.words_mut()[index] = bits);
    SparseMask::from(&leading)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a gate is asked that is to be looked at three times.
    fn times_asked(asked: &mut Asked, id: u32, is_open: bool) -> usize {
        let mut times = 0;
        for _ in 0..3 {
            let answer = asked.or_ask(GateId(id), || {
                times += 1;
                is_open
            });
            assert_eq!(answer, is_open, "gate {id}");
        }
        times
    }

    #[test]
    fn a_gate_is_asked_once_and_those_beyond_the_first_each_time() {
        let mut asked = Asked::default();
        for (id, is_open) in [(0, true), (1, false), (65, true), (66, false), (255, true)] {
            assert_eq!(times_asked(&mut asked, id, is_open), 1, "gate {id}");
        }
        assert_eq!(times_asked(&mut asked, 256, true), 3);
        assert_eq!(times_asked(&mut asked, 257, false), 3);
    }
}
