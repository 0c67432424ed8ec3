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
//!
//! A lookup and an action differ in what a first fragment's ports are, as a lookup sees none. So
//! whoever consults or writes ports consults as well whether the packet is a fragment: otherwise an
//! entry would stand for both, fix their ports, and have two values for them in one table.
//!
//! Masks are dense while they grow, and sparse from the moment that they cannot any more: a visit's
//! when it ends. Visits one after another share keys and masks where these are the same. What is
//! dense lies in a [`Scratch`] that each thread keeps from one translation to the next.

use std::{cell::Cell, sync::Arc};

use shunt_flow::{
    FieldId, FlowKey, FlowMask, SparseKey, SparseMask, WordMap,
    layout::{HEADER_WORDS, word},
};

use super::{
    bits::Bits,
    reads::{Reads, TailReads},
};
use crate::{
    id::{BridgeId, TableId},
    tables::rule::Rule,
    traversals::traversal::Visit,
    versions::delta::Object,
};

/// What a translation consulted so far.
pub(super) struct Recorder {
    /// The packet as it is now, unless it was written to since it was last needed.
    key: Option<SparseKey>,
    /// The mask of a visit or of a lookup that was made sparse last.
    sparse: Option<SparseMask>,
    /// What each lookup consulted, if that is to be told: see [`Self::take_lookups`].
    lookups: Option<Vec<Option<SparseMask>>>,
    tail: Tail,
    scratch: Box<Scratch>,
}

/// What a translation consults from its first visit on that does more than lead to another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// That is not told apart.
    Untold,
    /// There has been no such visit.
    Awaited,
    /// It is the visit of this number.
    Begun(usize),
}

/// What a translation needs room for, and leaves empty for the next.
struct Scratch {
    /// Bits of the packet as it came in.
    mask: Box<Bits>,
    /// What was in `mask` before the tail, which begins with none.
    mask_before: Box<Bits>,
    /// Bits that are not any more what came in.
    written: Bits,
    /// The visits whose actions are being run, each inside the one before it; behind them the one
    /// that is being looked up, and those that were run.
    frames: Vec<Frame>,
    /// How many of the frames are visits whose actions are being run.
    depth: usize,
    /// All visits; one has this empty mask until it ends.
    visits: Vec<Visit>,
    empty: SparseMask,
    masks: Masks,
    reads: Reads,
}

/// Masks that were made sparse lately. Lookups in one table consult the same few sets of bits for most
/// packets, so traversals that are kept share theirs instead of having each its own.
struct Masks(Box<[Option<SparseMask>]>);

/// A visit that has not ended.
#[derive(Default)]
struct Frame {
    visit: usize,
    /// Bits of the packet as it entered the table.
    mask: Bits,
    /// Bits that are not any more what entered the table.
    written: Bits,
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
    since_ingress: Bits,
    since_visit: Option<Bits>,
    key: Option<SparseKey>,
}

/// Where and with what a lookup is made.
#[derive(Clone, Copy)]
pub(super) struct Entering<'k> {
    pub(super) bridge: BridgeId,
    pub(super) table: TableId,
    pub(super) key: &'k FlowKey,
    pub(super) foreign: Foreign,
    /// Whether the key is that of the packet, without foreign values.
    pub(super) is_own: bool,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Visits that a thread keeps room for.
const VISITS_KEPT: usize = 256;
/// Masks that a thread keeps.
const MASKS_KEPT: usize = 512;
/// Lookups that there is room for from the beginning where they are told.
pub(super) const LOOKUPS_EXPECTED: usize = 16;
/// The hidden words in front of the bridge.
const HIDDEN_COUNT: usize = word::BRIDGE as usize;
const IN_PORT: usize = word::IN_PORT as usize;
/// The word of `nw_frag`, and its bit that fragments have.
pub(super) const FRAGMENT: (usize, u64) = {
    let slot = FieldId::NwFrag.slot();
    (slot.word as usize, 1 << slot.shift)
};
pub(super) const TRANSPORT: usize = word::TRANSPORT as usize;
pub(super) const CONJ_ID: usize = word::ACTSET_OUTPUT as usize;
/// The bits of `in_port` in its word.
pub(super) const IN_PORT_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of transport ports, or of ICMP type and code, in their word.
pub(super) const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of `conj_id` in its word.
pub(super) const CONJ_ID_BITS: u64 = 0x0000_0000_ffff_ffff;

impl Recorder {
    /// Of a packet that comes in with this key.
    pub(super) fn new(key: SparseKey) -> Self {
        let scratch = SCRATCH.take().unwrap_or_else(|| Box::new(Scratch::new()));
        Self { key: Some(key), sparse: None, lookups: None, tail: Tail::Untold, scratch }
    }

    /// An object was consulted.
    #[cfg_attr(test, track_caller)]
    pub(super) fn read(&mut self, object: Object) {
        if !is_disabled() {
            self.scratch.reads.add(object);
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
            let words = WordMap::nonzero(mask.words());
            words.iter().for_each(|word| self.add_word(word, mask.words()[word]));
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
        if bits == 0 {
            return;
        }
        self.look_at_fragments(word, bits);
        let Scratch { mask, written, frames, depth, .. } = &mut *self.scratch;
        mask.add(word, bits & !written.word(word));
        let mut bits = bits;
        for frame in frames[..*depth].iter_mut().rev() {
            bits &= !frame.written.word(word);
            let foreign = bits & frame.foreign.bits(word);
            frame.mask.add(word, bits & !foreign);
            bits = foreign;
            if bits == 0 {
                break;
            }
        }
    }

    /// What the ports of a packet are to a lookup depends on whether it is a fragment.
    fn look_at_fragments(&mut self, word: usize, bits: u64) {
        if word == TRANSPORT && bits & PORTS_BITS != 0 {
            self.add_word(FRAGMENT.0, FRAGMENT.1);
        }
    }

    /// Bits of a word were overwritten, by a value that depends on nothing but consulted bits.
    pub(super) fn wrote_word(&mut self, word: usize, bits: u64) {
        self.look_at_fragments(word, bits);
        self.key = None;
        self.scratch.written.add(word, bits);
        if let Some(frame) = self.scratch.innermost() {
            frame.written.add(word, bits);
        }
    }

    /// Everything hidden was overwritten, by constants, but for the bridge.
    pub(super) fn wrote_hidden(&mut self) {
        self.key = None;
        self.scratch.written.add_first(HIDDEN_COUNT);
        if let Some(frame) = self.scratch.innermost() {
            frame.written.add_first(HIDDEN_COUNT);
        }
    }

    /// The bits of headers that are no longer what came in.
    pub(super) fn written_headers(&self) -> FlowMask {
        let mut written = FlowMask::EMPTY;
        let headers = &self.scratch.written.words()[HEADER_WORDS];
        written.words_mut()[HEADER_WORDS].copy_from_slice(headers);
        written
    }

    /// What each lookup consults from now on is told by [`Self::take_lookups`].
    pub(super) fn note_lookups(&mut self) {
        self.lookups = Some(Vec::with_capacity(LOOKUPS_EXPECTED));
    }

    /// What each lookup consulted; `None`: what its visit did, where nothing was run.
    pub(super) fn take_lookups(&mut self) -> Vec<Option<SparseMask>> {
        self.lookups.take().unwrap_or_default()
    }

    /// What is consulted from the first visit on that does more than lead to another table is told by
    /// [`Self::take_tail`].
    pub(super) const fn await_tail(&mut self) {
        self.tail = Tail::Awaited;
    }

    /// The number of the first visit that did more than lead to another table, what was consulted of
    /// the packet from there on, and which of all that was read was read there.
    pub(super) fn take_tail(&mut self) -> Option<(usize, SparseMask, TailReads)> {
        let Tail::Begun(visit) = self.tail else { return None };
        let Scratch { mask, masks, reads, .. } = &mut *self.scratch;
        let (mask, tail) = (masks.of(mask), reads.tail());
        self.join_tail();
        Some((visit, mask, tail?))
    }

    /// Whether what is consulted is told, and nothing was done so far but to look up.
    pub(super) fn awaits_tail(&self) -> bool {
        self.tail == Tail::Awaited
    }

    fn begin_tail(&mut self) {
        if self.tail == Tail::Awaited {
            self.tail = Tail::Begun(self.visits_count());
            let Scratch { mask, mask_before, reads, .. } = &mut *self.scratch;
            std::mem::swap(mask, mask_before);
            reads.begin_tail();
        }
    }

    /// The mask is again that of all the translation.
    fn join_tail(&mut self) {
        if let Tail::Begun(_) = std::mem::replace(&mut self.tail, Tail::Untold) {
            let Scratch { mask, mask_before, .. } = &mut *self.scratch;
            std::mem::swap(mask, mask_before);
            mask.add_all(mask_before);
            mask_before.clear();
        }
    }

    /// Number of visits so far.
    pub(super) const fn visits_count(&self) -> usize {
        self.scratch.visits.len()
    }

    /// Whether some bit of a field is no longer what came in.
    pub(super) fn is_rewritten(&self, field: FieldId) -> bool {
        self.scratch.written.field(field) != 0
    }

    /// What a packet depends on that is looked up now is what `look_up` adds to its mask.
    pub(super) fn look_up<T>(&mut self, look_up: impl FnOnce(&mut FlowMask) -> T) -> T {
        self.scratch.next().mask.fill(look_up)
    }

    /// As [`Self::look_up`], where it is known what the lookup consults.
    pub(super) fn look_up_known(&mut self, lookup: &SparseMask) {
        self.scratch.next().mask.set(lookup);
    }

    /// A packet enters a table: what it finds there depends on what the last lookup consulted. The
    /// visit lasts until [`Self::end_visit`].
    #[cfg_attr(test, track_caller)]
    pub(super) fn visit(&mut self, entering: Entering<'_>, rule: Option<&Arc<Rule>>) {
        let leads_only = rule.is_some_and(|rule| rule.instructions.leads_only().is_some());
        if !leads_only {
            self.begin_tail();
        }
        self.enter(entering.foreign);
        self.note_lookup(!leads_only);
        let (visit, empty) = (self.scratch.visits.len(), self.scratch.empty.clone());
        self.push(entering, empty, rule.cloned(), Box::default());
        let frame = self.scratch.next();
        (frame.visit, frame.foreign) = (visit, entering.foreign);
        frame.written.clear();
        self.scratch.depth += 1;
    }

    /// As [`Self::visit`], where it is known what the lookup consults, and that nothing is run there.
    pub(super) fn pass(
        &mut self,
        entering: Entering<'_>,
        lookup: &SparseMask,
        rule: Option<&Arc<Rule>>,
    ) {
        let Scratch { mask, written, .. } = &mut *self.scratch;
        for (word, bits) in lookup.iter() {
            mask.add(word, bits & !entering.foreign.bits(word) & !written.word(word));
        }
        self.push(entering, lookup.clone(), rule.cloned(), Box::default());
    }

    /// As [`Self::visit`], of a packet that meets a conjunction: nothing is run in such a visit.
    #[cfg_attr(test, track_caller)]
    pub(super) fn meet(&mut self, entering: Entering<'_>, clauses: Vec<Arc<Rule>>) {
        self.begin_tail();
        self.enter(entering.foreign);
        self.note_lookup(false);
        let Scratch { frames, depth, masks, .. } = &mut *self.scratch;
        let mask = masks.shared(&mut self.sparse, &frames[*depth].mask);
        self.push(entering, mask, None, clauses.into());
    }

    /// The last lookup has decided something: what it consulted counts, as far as it is the packet's.
    #[cfg_attr(test, track_caller)]
    fn enter(&mut self, foreign: Foreign) {
        self.scratch.next();
        let Scratch { mask, written, frames, depth, .. } = &mut *self.scratch;
        let lookup = &mut frames[*depth].mask;
        if is_disabled() {
            lookup.clear();
        }
        lookup.add(usize::from(word::BRIDGE), u64::MAX);
        mask.add_some(lookup, |word, bits| bits & !foreign.bits(word) & !written.word(word));
    }

    /// Tells what the last lookup consulted, apart from its visit if something is run there.
    fn note_lookup(&mut self, is_run: bool) {
        let Some(lookups) = &mut self.lookups else { return };
        let Scratch { frames, depth, masks, .. } = &mut *self.scratch;
        lookups.push(is_run.then(|| masks.shared(&mut self.sparse, &frames[*depth].mask)));
    }

    fn push(
        &mut self,
        entering: Entering<'_>,
        mask: SparseMask,
        rule: Option<Arc<Rule>>,
        clauses: Box<[Arc<Rule>]>,
    ) {
        let Entering { bridge, table, key, is_own, .. } = entering;
        let key = match &mut self.key {
            Some(shared) if is_own => {
                debug_assert!(shared.is_of(key), "a key that is written to is not shared");
                shared.clone()
            }
            shared if is_own => shared.insert(SparseKey::from(key)).clone(),
            _ => SparseKey::from(key),
        };
        self.scratch.visits.push(Visit { bridge, table, key, mask, rule, clauses });
    }

    /// The actions of the innermost visit have been run.
    pub(super) fn end_visit(&mut self) {
        let Scratch { frames, depth, visits, masks, .. } = &mut *self.scratch;
        let (outer, ended) = frames.split_at_mut(depth.saturating_sub(1));
        let Some(frame) = ended.first().filter(|_| *depth > 0) else { return };
        *depth -= 1;
        visits[frame.visit].mask = masks.shared(&mut self.sparse, &frame.mask);
        if let Some(outer) = outer.last_mut() {
            outer.written.add_all(&frame.written);
        }
    }

    /// Which bits are rewritten now.
    pub(super) fn save(&mut self) -> Written {
        Written {
            since_ingress: self.scratch.written.clone(),
            since_visit: self.scratch.innermost().map(|frame| frame.written.clone()),
            key: self.key.clone(),
        }
    }

    /// The packet is again as it was when this was saved, in the same visit.
    pub(super) fn restore(&mut self, saved: Written) {
        self.scratch.written = saved.since_ingress;
        if let (Some(frame), Some(written)) = (self.scratch.innermost(), saved.since_visit) {
            frame.written = written;
        }
        self.key = saved.key;
    }

    /// The mask, the visits and the reads.
    pub(super) fn finish(mut self) -> (SparseMask, Box<[Visit]>, Box<[Object]>) {
        while self.scratch.depth > 0 {
            self.end_visit();
        }
        self.join_tail();
        let mut scratch = self.scratch;
        let mask = scratch.masks.of(&scratch.mask);
        let visits = scratch.visits.drain(..).collect();
        let reads = scratch.reads.take();
        scratch.visits.shrink_to(VISITS_KEPT);
        scratch.mask.clear();
        scratch.written.clear();
        SCRATCH.set(Some(scratch));
        (mask, visits, reads)
    }
}

impl Masks {
    fn new() -> Self {
        Self(vec![None; MASKS_KEPT].into_boxed_slice())
    }

    /// A mask made sparse: the last one if it is equal.
    fn shared(&mut self, last: &mut Option<SparseMask>, mask: &Bits) -> SparseMask {
        match last {
            Some(last) if mask.is(last) => last.clone(),
            last => last.insert(self.of(mask)).clone(),
        }
    }

    /// A mask made sparse: one that is kept if it is equal.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits of a hash")]
    fn of(&mut self, mask: &Bits) -> SparseMask {
        match &mut self.0[mask.hash() as usize % MASKS_KEPT] {
            Some(kept) if mask.is(kept) => kept.clone(),
            slot => slot.insert(mask.sparse()).clone(),
        }
    }
}

impl Scratch {
    fn new() -> Self {
        let empty = SparseMask::from(&FlowMask::EMPTY);
        Self {
            mask: Box::new(Bits::EMPTY),
            mask_before: Box::new(Bits::EMPTY),
            written: Bits::EMPTY,
            frames: Vec::new(),
            depth: 0,
            visits: Vec::new(),
            empty,
            masks: Masks::new(),
            reads: Reads::default(),
        }
    }

    /// The visit that comes next.
    fn next(&mut self) -> &mut Frame {
        if self.frames.len() == self.depth {
            self.frames.push(Frame::default());
        }
        &mut self.frames[self.depth]
    }

    /// The visit whose actions are being run.
    fn innermost(&mut self) -> Option<&mut Frame> {
        let last = self.depth.checked_sub(1)?;
        self.frames.get_mut(last)
    }
}

/// The mask that `fill` makes of none, shared with equal ones.
pub(super) fn mask_of(fill: impl FnOnce(&mut Bits)) -> SparseMask {
    let mut scratch = SCRATCH.take().unwrap_or_else(|| Box::new(Scratch::new()));
    let Scratch { mask, masks, .. } = &mut *scratch;
    fill(mask);
    let made = masks.of(mask);
    mask.clear();
    SCRATCH.set(Some(scratch));
    made
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
