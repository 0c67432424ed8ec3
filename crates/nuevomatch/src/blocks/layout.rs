//! The layout of a block: the ranges of 16 rules, lane by lane.
//!
//! A block has whole cache lines. Each lane of a rule takes as few bytes as the width of the lane
//! allows. The values of one lane are next to each other, so that a vector register holds all 16:
//!
//! | kind | low ends | high ends |
//! | --- | --- | --- |
//! | prefix | 16 words: the values | 16 bytes: the number of low bits that do not count |
//! | word | 16 words | 16 words |
//! | half | 16 half words | 16 half words |
//! | byte | 16 bytes | 16 bytes |
//!
//! If a rule has a mask in a lane that is not a prefix, the lane also has an array of masks, as
//! large as the array of low ends. The arrays are sorted by size, so that each array is aligned to
//! its size. Priorities are one more line at the end. If the priority of every rule is its value,
//! blocks have no line of priorities.
//!
//! The 5-tuple with address prefixes has its own layout of six lines, with 24 bytes per rule: see
//! [`super::five_tuple`].

use super::five_tuple::{self, FIVE_TUPLE_LINES, FiveTupleBlock, VALUES_LINE};
use crate::{
    rule::{PriorityRule, rank},
    schema::lane_max,
    simd::{BLOCK_RULES, LINE_WORDS, Line},
};

/// The representation of one lane in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// The lane has 0 bits: every rule contains every key.
    Absent,
    /// A value, and the number of its low bits that are ignored.
    Prefix,
    /// Both ends of a range as words.
    Word,
    /// Both ends of a range as half words.
    Half,
    /// Both ends of a range as bytes.
    Byte,
}

/// The position of an array in a block, in units of 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrayOffset(u16);

/// The positions of the arrays of one lane in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneSlot {
    pub(crate) kind: LaneKind,
    /// The array of low ends, or of the values of prefixes.
    pub(crate) low: ArrayOffset,
    /// The array of high ends, or of the numbers of ignored bits of prefixes.
    pub(crate) high: ArrayOffset,
    /// The array of bits that must agree with the low ends, if a rule has a mask.
    pub(crate) mask: Option<ArrayOffset>,
    /// Last value of the lane.
    pub(crate) max: u32,
}

/// The place of priorities in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorityForm {
    /// The rules have no priorities.
    Absent,
    /// The priority of every rule is its value.
    SameAsValue,
    /// The priorities have their own line.
    Words,
}

/// The properties of rules that decide the layout of their blocks, lane by lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayoutDemand<const N: usize> {
    /// True for lanes in which a range is not a prefix.
    has_ranges: [bool; N],
    /// True for lanes in which a mask is not a prefix.
    has_masks: [bool; N],
    priorities: PriorityForm,
}

impl<const N: usize> LayoutDemand<N> {
    /// Creates the properties of an empty list of rules.
    pub(crate) const fn new(has_priorities: bool) -> Self {
        let priorities =
            if has_priorities { PriorityForm::SameAsValue } else { PriorityForm::Absent };
        Self { has_ranges: [false; N], has_masks: [false; N], priorities }
    }

    /// Adds the properties of a rule.
    pub(crate) fn add(&mut self, rule: &PriorityRule<N>) {
        for lane in 0..N {
            self.has_ranges[lane] |= prefix(rule.low[lane], rule.high[lane]).is_none();
            self.has_masks[lane] |= rule.mask[lane] != 0;
        }
        if self.priorities == PriorityForm::SameAsValue && rule.priority != rule.value {
            self.priorities = PriorityForm::Words;
        }
    }
}

/// The layout of all blocks of one index.
#[derive(Clone, Debug)]
pub(crate) struct BlockLayout<const N: usize> {
    /// The arrays of each lane.
    slots: [LaneSlot; N],
    /// The array of the values of the rules.
    values: ArrayOffset,
    /// The array of the priorities of the rules.
    ///
    /// If each priority equals the value of its rule, this is the array of the values.
    priorities: ArrayOffset,
    form: PriorityForm,
    /// Number of cache lines of a block.
    lines: usize,
    /// True for the layout of a 5-tuple with address prefixes.
    is_five_tuple: bool,
}

impl<const N: usize> BlockLayout<N> {
    /// Chooses the layout for the widths of lanes and for the rules.
    ///
    /// A lane of more than 16 bits is stored as prefixes if all ranges of the rules are prefixes.
    pub(crate) fn new(widths: &[u8; N], demand: &LayoutDemand<N>) -> Self {
        let mut slots: [LaneSlot; N] = std::array::from_fn(|lane| LaneSlot {
            kind: match widths[lane] {
                0 => LaneKind::Absent,
                1..=8 => LaneKind::Byte,
                9..=16 => LaneKind::Half,
                _ if demand.has_ranges[lane] => LaneKind::Word,
                _ => LaneKind::Prefix,
            },
            low: ArrayOffset(0),
            high: ArrayOffset(0),
            mask: None,
            max: lane_max(widths[lane]),
        });
        let mut next = 0;
        let mut take = |quarters: u16| {
            next += quarters;
            ArrayOffset(next - quarters)
        };
        for (slot, has_mask) in slots.iter_mut().zip(demand.has_masks) {
            if matches!(slot.kind, LaneKind::Prefix | LaneKind::Word) {
                slot.low = take(4);
                slot.mask = has_mask.then(|| take(4));
            }
            if slot.kind == LaneKind::Word {
                slot.high = take(4);
            }
        }
        let values = take(4);
        for (slot, has_mask) in slots.iter_mut().zip(demand.has_masks) {
            if slot.kind == LaneKind::Half {
                (slot.low, slot.high) = (take(2), take(2));
                slot.mask = has_mask.then(|| take(2));
            }
        }
        for (slot, has_mask) in slots.iter_mut().zip(demand.has_masks) {
            match slot.kind {
                LaneKind::Prefix => slot.high = take(1),
                LaneKind::Byte => {
                    (slot.low, slot.high) = (take(1), take(1));
                    slot.mask = has_mask.then(|| take(1));
                }
                LaneKind::Absent | LaneKind::Word | LaneKind::Half => {}
            }
        }
        let mut lines = usize::from(next).div_ceil(4);
        let is_five_tuple = widths[..] == [32, 32, 16, 16, 8]
            && slots.iter().all(|slot| slot.mask.is_none() && slot.kind != LaneKind::Word);
        let values = if is_five_tuple { ArrayOffset::of_line(VALUES_LINE) } else { values };
        if is_five_tuple {
            lines = FIVE_TUPLE_LINES;
        }
        let form = demand.priorities;
        let has_line = form == PriorityForm::Words;
        let priorities = if has_line { ArrayOffset::of_line(lines) } else { values };
        lines += usize::from(has_line);
        Self { slots, values, priorities, form, lines, is_five_tuple }
    }

    /// Returns the positions of the lanes in a block.
    pub(crate) fn slots(&self) -> &[LaneSlot; N] {
        &self.slots
    }

    /// Returns whether the rules have priorities; if so, runs are in rank order.
    pub(crate) fn has_priorities(&self) -> bool {
        self.form != PriorityForm::Absent
    }

    /// Returns the number of lines of a block.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Returns whether blocks have the layout of 5-tuples that vector kernels support.
    pub(crate) fn is_five_tuple(&self) -> bool {
        self.is_five_tuple
    }

    /// Returns whether a block can hold the rule.
    pub(crate) fn can_hold(&self, rule: &PriorityRule<N>) -> bool {
        if self.form == PriorityForm::SameAsValue && rule.priority != rule.value {
            return false;
        }
        self.slots.iter().enumerate().all(|(lane, slot)| {
            let (low, high) = (rule.low[lane], rule.high[lane]);
            let is_held = slot.kind != LaneKind::Prefix || prefix(low, high).is_some();
            let has_mask = slot.mask.is_some() || rule.mask[lane] == 0;
            low <= high && high <= slot.max && is_held && has_mask
        })
    }

    /// Writes a rule to its position in a block, which must be able to hold it.
    pub(crate) fn write(&self, block: &mut [Line], at: usize, rule: &PriorityRule<N>) {
        self.values.set_word(block, at, rule.value);
        if self.form == PriorityForm::Words {
            self.priorities.set_word(block, at, rule.priority);
        }
        if let Some(block) = self.five_tuples_mut(block) {
            let free_bits =
                [0, 1].map(|lane| prefix(rule.low[lane], rule.high[lane]).unwrap_or_default());
            five_tuple::write(block, at, rule, free_bits);
            return;
        }
        for (lane, slot) in self.slots.iter().enumerate() {
            let (low, high) = (rule.low[lane], rule.high[lane]);
            match slot.kind {
                LaneKind::Absent => {}
                LaneKind::Prefix => {
                    slot.low.set_word(block, at, low);
                    slot.high.set_byte(block, at, prefix(low, high).unwrap_or_default());
                }
                LaneKind::Word => {
                    slot.low.set_word(block, at, low);
                    slot.high.set_word(block, at, high);
                }
                LaneKind::Half => {
                    slot.low.set_half(block, at, low);
                    slot.high.set_half(block, at, high);
                }
                LaneKind::Byte => {
                    slot.low.set_byte(block, at, low);
                    slot.high.set_byte(block, at, high);
                }
            }
            if let Some(mask) = slot.mask {
                match slot.kind {
                    LaneKind::Absent => {}
                    LaneKind::Prefix | LaneKind::Word => mask.set_word(block, at, rule.mask[lane]),
                    LaneKind::Half => mask.set_half(block, at, rule.mask[lane]),
                    LaneKind::Byte => mask.set_byte(block, at, rule.mask[lane]),
                }
            }
        }
    }

    /// Returns the block as one of 5-tuples, if the layout has that form.
    fn five_tuples_mut<'a>(&self, block: &'a mut [Line]) -> Option<&'a mut FiveTupleBlock> {
        if self.is_five_tuple { block.first_chunk_mut() } else { None }
    }

    /// Returns the ranges of a block if it has the layout of 5-tuples.
    #[inline]
    pub(crate) fn five_tuples<'a>(&self, block: &'a [Line]) -> Option<&'a FiveTupleBlock> {
        if self.is_five_tuple { block.first_chunk() } else { None }
    }

    /// Writes the largest rank to a position of a block.
    ///
    /// A rule with this rank never wins.
    pub(crate) fn clear(&self, block: &mut [Line], at: usize) {
        self.values.set_word(block, at, u32::MAX);
        if self.has_priorities() {
            self.priorities.set_word(block, at, u32::MAX);
        }
    }

    /// Reads the rule at a position of a block.
    pub(crate) fn read(&self, block: &[Line], at: usize) -> PriorityRule<N> {
        let (priority, value) = (self.priority(block, at), self.values.word(block, at));
        let mut rule = PriorityRule { low: [0; N], high: [0; N], mask: [0; N], priority, value };
        if let Some(block) = self.five_tuples(block) {
            five_tuple::read(block, at, &mut rule);
            return rule;
        }
        for (lane, slot) in self.slots.iter().enumerate() {
            (rule.low[lane], rule.high[lane]) = match slot.kind {
                LaneKind::Absent => (0, 0),
                LaneKind::Prefix => {
                    let (low, bits) = (slot.low.word(block, at), slot.high.byte(block, at));
                    (low, low | u32::MAX.checked_shr(u32::BITS - bits).unwrap_or(0))
                }
                LaneKind::Word => (slot.low.word(block, at), slot.high.word(block, at)),
                LaneKind::Half => (slot.low.half(block, at), slot.high.half(block, at)),
                LaneKind::Byte => (slot.low.byte(block, at), slot.high.byte(block, at)),
            };
            rule.mask[lane] = slot.mask.map_or(0, |mask| match slot.kind {
                LaneKind::Absent => 0,
                LaneKind::Prefix | LaneKind::Word => mask.word(block, at),
                LaneKind::Half => mask.half(block, at),
                LaneKind::Byte => mask.byte(block, at),
            });
        }
        rule
    }

    /// Returns the priority of the rule at a position of a block.
    #[inline]
    pub(crate) fn priority(&self, block: &[Line], at: usize) -> u32 {
        match self.form {
            PriorityForm::Absent => 0,
            PriorityForm::SameAsValue | PriorityForm::Words => self.priorities.word(block, at),
        }
    }

    /// Returns the rank of the rule at a position of a block of rules with priorities.
    #[inline]
    pub(crate) fn rank(&self, block: &[Line], at: usize) -> u64 {
        rank(self.priorities.word(block, at), self.values.word(block, at))
    }

    /// Returns the value of the rule at a position of a block.
    #[inline]
    pub(crate) fn value(&self, block: &[Line], at: usize) -> u32 {
        self.values.word(block, at)
    }
}

/// Returns the number of ignored low bits if a range is a prefix, else `None`.
fn prefix(low: u32, high: u32) -> Option<u32> {
    let differ = low ^ high;
    let is_prefix = differ & differ.wrapping_add(1) == 0 && low & differ == 0;
    is_prefix.then(|| u32::BITS - differ.leading_zeros())
}

impl ArrayOffset {
    /// Returns the offset at which a line begins.
    #[expect(clippy::cast_possible_truncation, reason = "a block has few lines")]
    const fn of_line(line: usize) -> Self {
        Self(line as u16 * 4)
    }

    /// Returns the line of an array of words.
    #[inline]
    pub(crate) fn line(self, block: &[Line]) -> &Line {
        &block[usize::from(self.0 >> 2)]
    }

    /// Returns the words of an array of half words: half of a line.
    #[inline]
    pub(crate) fn pair(self, block: &[Line]) -> &[u32; 8] {
        Self::halves(self.line(block))[usize::from(self.0 >> 1 & 1)]
    }

    /// Returns the words of an array of bytes: a quarter of a line.
    #[inline]
    pub(crate) fn quarter(self, block: &[Line]) -> &[u32; 4] {
        Self::quarters(self.line(block))[usize::from(self.0 & 3)]
    }

    /// Returns the two halves of a line of words.
    #[inline]
    pub(crate) fn halves(line: &Line) -> [&[u32; 8]; 2] {
        let (halves, _) = line.0.as_chunks();
        [&halves[0], &halves[1]]
    }

    /// Returns the four quarters of a line of words.
    #[inline]
    pub(crate) fn quarters(line: &Line) -> [&[u32; 4]; 4] {
        let (quarters, _) = line.0.as_chunks();
        [&quarters[0], &quarters[1], &quarters[2], &quarters[3]]
    }

    /// Reads the word of the rule at position `at` of a block.
    #[inline]
    pub(crate) fn word(self, block: &[Line], at: usize) -> u32 {
        self.line(block).0[at]
    }

    /// Reads the half word of the rule at position `at` of a block.
    pub(crate) fn half(self, block: &[Line], at: usize) -> u32 {
        let (word, shift) = self.position(at, 2);
        block[word / LINE_WORDS].0[word % LINE_WORDS] >> shift & 0xffff
    }

    /// Reads the byte of the rule at position `at` of a block.
    pub(crate) fn byte(self, block: &[Line], at: usize) -> u32 {
        let (word, shift) = self.position(at, 1);
        block[word / LINE_WORDS].0[word % LINE_WORDS] >> shift & 0xff
    }

    /// Writes an element of 32 bits.
    fn set_word(self, block: &mut [Line], at: usize, value: u32) {
        block[usize::from(self.0 >> 2)].0[at] = value;
    }

    /// Writes an element of 16 bits.
    fn set_half(self, block: &mut [Line], at: usize, value: u32) {
        let (word, shift) = self.position(at, 2);
        let word = &mut block[word / LINE_WORDS].0[word % LINE_WORDS];
        *word = *word & !(0xffff << shift) | value << shift;
    }

    /// Writes an element of 8 bits.
    fn set_byte(self, block: &mut [Line], at: usize, value: u32) {
        let (word, shift) = self.position(at, 1);
        let word = &mut block[word / LINE_WORDS].0[word % LINE_WORDS];
        *word = *word & !(0xff << shift) | value << shift;
    }

    /// Returns the word and the bit of a block that hold element `at` of `bytes` bytes.
    fn position(self, at: usize, bytes: usize) -> (usize, usize) {
        debug_assert!(at < BLOCK_RULES);
        let byte = at * bytes;
        (usize::from(self.0) * 4 + byte / 4, byte % 4 * 8)
    }
}
