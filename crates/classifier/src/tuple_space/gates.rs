//! Gates: sets of the values that rules have in the first words, shared by many subtables.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowKey, FlowMask, SparseMask, layout::Stage};

use super::{
    value_set::ValueSet,
    words::{HashedWord, Hashing},
};

/// The gates of a table: one per set of masked words before the network layer.
///
/// A gate has the values of all rules with masks that begin with the words of the gate. A table has
/// many masks, but few different first words, so one probe of a gate excludes many subtables. A
/// gate has the values of all its subtables together. The stages of a single subtable exclude more
/// packets.
#[derive(Clone, Debug)]
pub(super) struct Gates {
    /// The gates by [`GateId`]; the gates in `free` have no rules.
    gates: Vec<Gate>,
    /// Numbers of unused gates.
    free: Vec<GateId>,
    /// The gate of each set of masked words.
    by_mask: HashMap<SparseMask, GateId, FixedState>,
}

/// The id of a gate of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateId(u32);

/// A set of masked words, with the values that its subtables contain.
#[derive(Clone, Debug)]
struct Gate {
    /// The masked words before the network layer.
    mask: SparseMask,
    /// The masked words with the secrets of their hash.
    words: Box<[HashedWord]>,
    /// The values that the subtables of the gate contain.
    values: ValueSet,
    /// Number of subtables that use the gate.
    subtables_count: usize,
}

/// The results of the first gates for a packet during one lookup.
#[derive(Clone, Debug, Default)]
pub(super) struct GateAnswers {
    /// A bit for each gate that was checked.
    checked: [u64; GATE_ANSWER_WORDS],
    /// A bit for each checked gate that does not exclude the packet.
    open: [u64; GATE_ANSWER_WORDS],
}

/// Number of words of 64 gate results that are remembered.
/// The results of further gates are not remembered.
const GATE_ANSWER_WORDS: usize = 4;

impl Gates {
    /// Creates an empty list of gates.
    pub(super) fn new(seed: &FixedState) -> Self {
        let by_mask = HashMap::with_hasher(seed.clone());
        Self { gates: Vec::new(), free: Vec::new(), by_mask }
    }

    /// Returns the gate of a new subtable, if the subtable gets one.
    /// A subtable gets a gate if its mask has words before the network layer and also later words.
    pub(super) fn acquire(&mut self, mask: &SparseMask, hashing: &Hashing) -> Option<GateId> {
        let words_count = mask.words_until(Stage::Link);
        let is_one = (1..mask.words().len()).contains(&words_count);
        is_one.then(|| self.acquire_one(leading_words(mask, words_count), hashing))
    }

    /// Returns the gate for a mask, with one more use.
    fn acquire_one(&mut self, mask: SparseMask, hashing: &Hashing) -> GateId {
        if let Some(id) = self.by_mask.get(&mask) {
            self.gates[id.index()].subtables_count += 1;
            return *id;
        }
        let words = hashing.words(&mask);
        let values = ValueSet::default();
        let gate = Gate { mask: mask.clone(), words, values, subtables_count: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.gates[id.index()] = gate;
                id
            }
            None => {
                self.gates.push(gate);
                #[expect(clippy::expect_used, reason = "that many gates would fill 256 GiB")]
                GateId(
                    u32::try_from(self.gates.len() - 1).expect("a table has fewer than 2^32 gates"),
                )
            }
        };
        self.by_mask.insert(mask, id);
        id
    }

    /// Releases the gate of a subtable that has no rules any more.
    pub(super) fn release(&mut self, id: GateId) {
        let gate = &mut self.gates[id.index()];
        gate.subtables_count -= 1;
        if gate.subtables_count == 0 {
            self.by_mask.remove(&gate.mask);
            // Frees the hash table now.
            gate.values = ValueSet::default();
            self.free.push(id);
        }
    }

    /// Adds the values of a rule to a gate.
    pub(super) fn insert(&mut self, id: GateId, key: &FlowKey, hashing: &Hashing) {
        let gate = &mut self.gates[id.index()];
        gate.values.insert(hashing.hash(&gate.words, key));
    }

    /// Removes the values of a rule from a gate.
    pub(super) fn remove(&mut self, id: GateId, key: &FlowKey, hashing: &Hashing) {
        let gate = &mut self.gates[id.index()];
        gate.values.remove(hashing.hash(&gate.words, key));
    }

    /// Returns whether a rule of the subtables of a gate has the first words of a key.
    pub(super) fn is_open(&self, id: GateId, key: &FlowKey, hashing: &Hashing) -> bool {
        let gate = &self.gates[id.index()];
        gate.values.contains(hashing.hash(&gate.words, key))
    }
}

impl GateId {
    /// Returns the position of the gate in the list of gates.
    const fn index(self) -> usize {
        self.0 as usize
    }
}

impl GateAnswers {
    /// Returns the result of a gate, and calls `check` if it is not known yet.
    pub(super) fn get_or_check(&mut self, id: GateId, check: impl FnOnce() -> bool) -> bool {
        let (word, bit) = (id.index() / 64, 1 << (id.index() % 64));
        let Some(checked) = self.checked.get_mut(word) else { return check() };
        if *checked & bit == 0 {
            *checked |= bit;
            self.open[word] |= if check() { bit } else { 0 };
        }
        self.open[word] & bit != 0
    }
}

/// Returns the first `count` words of a mask.
fn leading_words(mask: &SparseMask, count: usize) -> SparseMask {
    let mut leading = FlowMask::EMPTY;
    mask.iter().take(count).for_each(|(index, bits)| leading.words_mut()[index] = bits);
    SparseMask::from(&leading)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often a gate is probed if its result is needed three times.
    fn times_checked(gate_answers: &mut GateAnswers, id: u32, is_open: bool) -> usize {
        let mut times = 0;
        for _ in 0..3 {
            let answer = gate_answers.get_or_check(GateId(id), || {
                times += 1;
                is_open
            });
            assert_eq!(answer, is_open, "gate {id}");
        }
        times
    }

    #[test]
    fn the_first_256_gates_are_checked_once() {
        let mut gate_answers = GateAnswers::default();
        for (id, is_open) in [(0, true), (1, false), (65, true), (66, false), (255, true)] {
            assert_eq!(times_checked(&mut gate_answers, id, is_open), 1, "gate {id}");
        }
        assert_eq!(times_checked(&mut gate_answers, 256, true), 3);
        assert_eq!(times_checked(&mut gate_answers, 257, false), 3);
    }
}
