//! Which bits a translation consulted: the one place where masks grow.
//!
//! Every use of a bit of the packet is a call here. The recorder answers two questions with it.
//!
//! * Which bits of the packet *as it came in* did anything depend on? That is the mask of the
//!   cache entry. A bit that was rewritten before it was consulted does not count: its value is a
//!   constant of the entry.
//! * Which bits of the packet *as it entered a table* did the lookup there and the actions of its
//!   rule depend on? That is the mask of the visit. Here a bit does not count if it was rewritten
//!   since the packet entered, by that rule or by whatever it resubmitted to.
//!
//! So the invariant: a value that was written is a function of bits consulted before. `move` keeps
//! it by consulting its source.
//!
//! `resubmit(PORT,..)` looks up with another `in_port` and then goes on with the packet's own, a
//! fragment is looked up without its ports, and `conj_id` is never the packet's. Within such a visit these bits of the packet are
//! *foreign*: no bits of the key that entered. So the visit around it pays for them.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, layout::word};

use crate::{BridgeId, Object, Rule, TableId, Visit};

/// What a translation consulted so far.
pub(super) struct Recorder {
    /// Bits of the packet as it came in.
    mask: FlowMask,
    /// Bits that are not any more what came in.
    written: FlowMask,
    /// The visits whose actions are being run, each inside the one before it.
    frames: Vec<Frame>,
    visits: Vec<Visit>,
    reads: Vec<Object>,
}

/// A visit that has not ended.
struct Frame {
    visit: usize,
    /// Bits that are not any more what entered the table.
    written: FlowMask,
    foreign: Foreign,
}

/// Bits that a lookup did not take from the packet.
#[derive(Clone, Copy, Default)]
pub(super) struct Foreign {
    /// [`IN_PORT_BITS`] or none.
    pub(super) in_port: u64,
    /// [`PORTS_BITS`] or none.
    pub(super) ports: u64,
    /// [`CONJ_ID_BITS`] or none.
    pub(super) conj_id: u64,
}

/// Which bits are rewritten: what a clone puts back.
pub(super) struct Written {
    since_ingress: FlowMask,
    since_visit: Option<FlowMask>,
}

/// Where and with what a lookup is made.
#[derive(Clone)]
pub(super) struct Entering {
    pub(super) bridge: BridgeId,
    pub(super) table: TableId,
    pub(super) key: FlowKey,
    pub(super) foreign: Foreign,
}

/// Visits that most packets do not make more of: they are large to move.
const VISITS_USUAL: usize = 16;
const IN_PORT: usize = word::IN_PORT as usize;
const TRANSPORT: usize = word::TRANSPORT as usize;
const CONJ_ID: usize = word::ACTSET_OUTPUT as usize;
/// The bits of `in_port` in its word.
pub(super) const IN_PORT_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of transport ports, or of ICMP type and code, in their word.
pub(super) const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of `conj_id` in its word.
pub(super) const CONJ_ID_BITS: u64 = 0x0000_0000_ffff_ffff;

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            mask: FlowMask::EMPTY,
            written: FlowMask::EMPTY,
            frames: Vec::new(),
            visits: Vec::with_capacity(VISITS_USUAL),
            reads: Vec::new(),
        }
    }

    /// An object was consulted.
    #[cfg_attr(test, track_caller)]
    pub(super) fn read(&mut self, object: Object) {
        if is_disabled() {
            return;
        }
        if !self.reads.contains(&object) {
            self.reads.push(object);
        }
    }

    /// Bits of a field were consulted.
    #[cfg_attr(test, track_caller)]
    pub(super) fn consult(&mut self, field: FieldId, bits: u128) {
        if !is_disabled() {
            words(field, bits).for_each(|(word, bits)| self.add_word(word, bits));
        }
    }

    /// The bits of a mask were consulted.
    #[cfg_attr(test, track_caller)]
    pub(super) fn consult_mask(&mut self, mask: &FlowMask) {
        if !is_disabled() {
            let words = mask.words().iter().enumerate().filter(|(_, bits)| **bits != 0);
            words.for_each(|(word, bits)| self.add_word(word, *bits));
        }
    }

    /// Bits of a word were consulted.
    #[cfg_attr(test, track_caller)]
    pub(super) fn consult_word(&mut self, word: usize, bits: u64) {
        if !is_disabled() {
            self.add_word(word, bits);
        }
    }

    fn add_word(&mut self, word: usize, bits: u64) {
        self.mask.words_mut()[word] |= bits & !self.written.words()[word];
        let mut bits = bits;
        for frame in self.frames.iter().rev() {
            bits &= !frame.written.words()[word];
            let foreign = bits & frame.foreign.bits(word);
            self.visits[frame.visit].mask.words_mut()[word] |= bits & !foreign;
            bits = foreign;
            if bits == 0 {
                break;
            }
        }
    }

    /// Bits of a word were overwritten, by a value that depends on nothing but consulted bits.
    pub(super) fn wrote_word(&mut self, word: usize, bits: u64) {
        self.written.words_mut()[word] |= bits;
        if let Some(frame) = self.frames.last_mut() {
            frame.written.words_mut()[word] |= bits;
        }
    }

    /// Whether some bit of a field is no longer what came in.
    pub(super) fn is_rewritten(&self, field: FieldId) -> bool {
        self.written.field(field) != 0
    }

    /// A packet enters a table: what it finds there depends on the bits of `mask`. The visit lasts
    /// until [`Self::end_visit`].
    #[cfg_attr(test, track_caller)]
    pub(super) fn visit(&mut self, entering: Entering, mask: FlowMask, rule: Option<&Arc<Rule>>) {
        let (visit, foreign) = (self.visits.len(), entering.foreign);
        self.push(entering, mask, rule.cloned(), Vec::new());
        self.frames.push(Frame { visit, written: FlowMask::EMPTY, foreign });
    }

    /// As [`Self::visit`], of a packet that meets a conjunction: nothing is run in such a visit.
    #[cfg_attr(test, track_caller)]
    pub(super) fn meet(&mut self, entering: Entering, mask: FlowMask, clauses: Vec<Arc<Rule>>) {
        self.push(entering, mask, None, clauses);
    }

    #[cfg_attr(test, track_caller)]
    fn push(
        &mut self,
        entering: Entering,
        mut mask: FlowMask,
        rule: Option<Arc<Rule>>,
        clauses: Vec<Arc<Rule>>,
    ) {
        let Entering { bridge, table, key, foreign } = entering;
        if is_disabled() {
            mask = FlowMask::EMPTY;
        }
        mask.words_mut()[usize::from(word::BRIDGE)] = u64::MAX;
        let mut own = mask.clone();
        own.words_mut()[IN_PORT] &= !foreign.in_port;
        own.words_mut()[TRANSPORT] &= !foreign.ports;
        own.words_mut()[CONJ_ID] &= !foreign.conj_id;
        own.remove(&self.written);
        self.mask.add(&own);
        self.visits.push(Visit { bridge, table, key, mask, rule, clauses });
    }

    /// The actions of the innermost visit have been run.
    pub(super) fn end_visit(&mut self) {
        let ended = self.frames.pop();
        if let (Some(ended), Some(outer)) = (ended, self.frames.last_mut()) {
            outer.written.add(&ended.written);
        }
    }

    /// Which bits are rewritten now.
    pub(super) fn save(&self) -> Written {
        Written {
            since_ingress: self.written.clone(),
            since_visit: self.frames.last().map(|frame| frame.written.clone()),
        }
    }

    /// The packet is again as it was when this was saved, in the same visit.
    pub(super) fn restore(&mut self, saved: Written) {
        self.written = saved.since_ingress;
        if let (Some(frame), Some(written)) = (self.frames.last_mut(), saved.since_visit) {
            frame.written = written;
        }
    }

    /// The mask, the visits and the reads.
    ///
    /// A traversal is kept as long as its cache entry, so it keeps no room that it does not use.
    pub(super) fn finish(mut self) -> (FlowMask, Vec<Visit>, Vec<Object>) {
        self.visits.shrink_to_fit();
        (self.mask, self.visits, self.reads)
    }
}

/// The words that a field lies in, with those of its bits that are set in `bits`.
#[expect(clippy::cast_possible_truncation, reason = "the two halves are what is asked for")]
pub(super) fn words(field: FieldId, bits: u128) -> impl Iterator<Item = (usize, u64)> {
    let slot = field.slot();
    let bits = bits & slot.value_max();
    let index = usize::from(slot.word);
    let pair = if slot.width == 128 {
        [(index, (bits >> 64) as u64), (index + 1, bits as u64)]
    } else {
        [(index, (bits as u64) << slot.shift), (index, 0)]
    };
    pair.into_iter().filter(|(_, bits)| *bits != 0)
}

/// Whether a test has disabled the call that records something: see `call_sites`.
#[cfg(test)]
#[track_caller]
fn is_disabled() -> bool {
    super::call_sites::is_disabled(std::panic::Location::caller())
}

/// Nothing is disabled but by a test.
#[cfg(not(test))]
const fn is_disabled() -> bool {
    false
}

impl Foreign {
    const fn bits(self, word: usize) -> u64 {
        match word {
            IN_PORT => self.in_port,
            TRANSPORT => self.ports,
            CONJ_ID => self.conj_id,
            _ => 0,
        }
    }
}
