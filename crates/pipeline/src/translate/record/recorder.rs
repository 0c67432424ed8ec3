//! The recorder: the one place where masks grow.
//!
//! Every use of a bit of the packet is a call here. The recorder keeps two kinds of masks.
//!
//! * The mask of the cache entry: the bits of the packet *as it arrived* that anything depends on.
//!   A bit that was rewritten before it was consulted does not count: its value is a constant of
//!   the entry.
//! * The mask of a visit: the bits of the packet *as it entered a table* that the lookup there and
//!   the actions of its rule depend on. Here a bit does not count if it was rewritten since the
//!   packet entered, by that rule or by a table that it resubmitted to.
//!
//! So the invariant is: a written value is a function of bits consulted before. `move` keeps it by
//! consulting its source.
//!
//! `resubmit(PORT,..)` looks up with another `in_port` and then continues with the packet's own. A
//! fragment is looked up without its ports, and `conj_id` is never the packet's. Within such a
//! visit these bits of the packet are *foreign*: they are not bits of the key that entered. So the
//! visit around it counts them.
//!
//! A lookup sees no ports of a first fragment, an action does. So code that consults or writes
//! ports also consults whether the packet is a fragment. Otherwise an entry would cover both kinds
//! of packets, fix their ports, and have two values for them in one table.
//!
//! Masks are dense while they grow, and sparse once they are final: the mask of a visit at its end.
//! Consecutive visits share equal keys and masks. The dense masks lie in a [`Scratch`] that each
//! thread reuses from one translation to the next.

use std::{cell::Cell, sync::Arc};

use shunt_flow::{
    FieldId, FlowKey, FlowMask, SparseKey, SparseMask, WordMap,
    layout::{HEADER_WORDS, word},
};

use super::{
    growing_mask::GrowingMask,
    reads::{Reads, TailReads},
};
use crate::{
    id::{BridgeId, TableId},
    tables::rule::Rule,
    traversals::{
        drop_cause::{DropCause, NotedDecision, TranslationNote},
        traversal::Visit,
    },
    versions::delta::Object,
};

/// The record of a translation so far.
pub(in crate::translate) struct Recorder {
    /// True for a decision that no cache stores.
    ///
    /// Only writes and the cause of a drop are recorded then.
    is_off: bool,
    /// The packet as it is now, unless it was written since the key was last needed.
    key: Option<SparseKey>,
    /// The last sparse mask of a visit or of a lookup.
    sparse: Option<SparseMask>,
    /// The bits that each lookup consulted, if requested: see [`Self::take_lookups`].
    lookups: Option<Vec<Option<SparseMask>>>,
    tail: TailState,
    /// The cause of the drop, if nothing is output from now on.
    drop_cause: DropCause,
    /// The decisions that rules do not show, if requested.
    notes: Option<Vec<TranslationNote>>,
    scratch: Box<Scratch>,
}

/// The state of the tail: the first visit that does more than lead to another
/// table, and all after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailState {
    /// The tail is not recorded.
    Off,
    /// There has been no such visit yet.
    Awaited,
    /// The tail began at the visit with this index.
    Begun(usize),
}

/// The buffers of a translation, which are empty between two translations.
struct Scratch {
    /// Consulted bits of the packet as it arrived.
    mask: Box<GrowingMask>,
    /// The bits of `mask` before the tail, which begins with an empty mask.
    mask_before: Box<GrowingMask>,
    /// Bits that were rewritten since the packet arrived.
    written: GrowingMask,
    /// The visits with running actions, each inside the one before it. Behind them come
    /// the visit that is being looked up, and frames for reuse.
    frames: Vec<VisitFrame>,
    /// Number of frames with running actions.
    depth: usize,
    /// All visits; each has the empty mask until it ends.
    visits: Vec<Visit>,
    empty: SparseMask,
    masks: Masks,
    reads: Reads,
}

/// Recent sparse masks, by hash.
///
/// Lookups in one table consult the same few sets of bits for most packets. So stored traversals
/// share these masks.
struct Masks(Box<[Option<SparseMask>]>);

/// A visit that has not ended.
#[derive(Default)]
struct VisitFrame {
    visit: usize,
    /// Consulted bits of the packet as it entered the table.
    mask: GrowingMask,
    /// Bits that were rewritten since the packet entered the table.
    written: GrowingMask,
    foreign: ForeignBits,
}

/// Bits of a lookup key that are not the packet's.
#[derive(Clone, Copy, Default)]
pub(in crate::translate) struct ForeignBits {
    /// [`IN_PORT_BITS`] or none.
    pub(in crate::translate) in_port: u64,
    /// [`PORTS_BITS`] or none.
    pub(in crate::translate) ports: u64,
    /// [`CONJ_ID_BITS`] or none.
    pub(in crate::translate) conj_id: u64,
}

/// The rewritten bits, which a clone restores.
pub(in crate::translate) struct RewrittenBits {
    since_ingress: GrowingMask,
    since_visit: Option<GrowingMask>,
    key: Option<SparseKey>,
}

/// The table and the key of a lookup.
#[derive(Clone, Copy)]
pub(in crate::translate) struct LookupInput<'k> {
    pub(in crate::translate) bridge: BridgeId,
    pub(in crate::translate) table: TableId,
    pub(in crate::translate) key: &'k FlowKey,
    pub(in crate::translate) foreign: ForeignBits,
    /// True if the key is the packet's own, without foreign values.
    pub(in crate::translate) is_own: bool,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// The most visits that the buffers of a thread keep capacity for.
const VISITS_KEPT: usize = 256;
/// Number of masks that a thread keeps.
const MASKS_KEPT: usize = 512;
/// Initial capacity of the list of lookups.
pub(in crate::translate) const LOOKUPS_EXPECTED: usize = 16;
/// The hidden words before the bridge.
const HIDDEN_COUNT: usize = word::BRIDGE as usize;
const IN_PORT: usize = word::IN_PORT as usize;
/// The word of `nw_frag`, and the bit in it that fragments have.
pub(in crate::translate) const FRAGMENT: (usize, u64) = {
    let slot = FieldId::NwFrag.slot();
    (slot.word as usize, 1 << slot.shift)
};
pub(in crate::translate) const TRANSPORT: usize = word::TRANSPORT as usize;
pub(in crate::translate) const CONJ_ID: usize = word::ACTSET_OUTPUT as usize;
/// The bits of `in_port` in its word.
pub(in crate::translate) const IN_PORT_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of transport ports, or of ICMP type and code, in their word.
pub(in crate::translate) const PORTS_BITS: u64 = 0xffff_ffff_0000_0000;
/// The bits of `conj_id` in its word.
pub(in crate::translate) const CONJ_ID_BITS: u64 = 0x0000_0000_ffff_ffff;

impl Recorder {
    /// Makes a recorder for a packet that arrives with this key.
    pub(in crate::translate) fn new(key: SparseKey) -> Self {
        Self { key: Some(key), is_off: false, ..Self::unused() }
    }

    /// Makes a recorder for a packet that no cache stores.
    pub(in crate::translate) fn off() -> Self {
        Self { is_off: true, ..Self::unused() }
    }

    fn unused() -> Self {
        let scratch = SCRATCH.take().unwrap_or_else(|| Box::new(Scratch::new()));
        Self {
            is_off: false,
            key: None,
            sparse: None,
            lookups: None,
            tail: TailState::Off,
            drop_cause: DropCause::default(),
            notes: None,
            scratch,
        }
    }

    /// Returns whether only writes and the cause of a drop are recorded.
    pub(in crate::translate) const fn is_off(&self) -> bool {
        self.is_off
    }

    /// Ends a record that was off.
    pub(in crate::translate) fn discard(mut self) {
        debug_assert!(self.is_off, "a record is finished");
        self.scratch.written.clear();
        SCRATCH.set(Some(self.scratch));
    }

    /// Records the read of an object.
    #[cfg_attr(test, track_caller)]
    pub(in crate::translate) fn read(&mut self, object: Object) {
        if !self.is_off && !is_disabled() {
            self.scratch.reads.add(object);
        }
    }

    /// Records that bits of a field were consulted.
    #[cfg_attr(test, track_caller)]
    pub(in crate::translate) fn consult(&mut self, field: FieldId, bits: u128) {
        if !self.is_off && !is_disabled() {
            words(field, bits).for_each(|(word, bits)| self.add_word(word, bits));
        }
    }

    /// Records that the bits of a mask were consulted.
    #[cfg_attr(test, track_caller)]
    pub(in crate::translate) fn consult_mask(&mut self, mask: &FlowMask) {
        if !self.is_off && !is_disabled() {
            let words = WordMap::nonzero(mask.words());
            words.iter().for_each(|word| self.add_word(word, mask.words()[word]));
        }
    }

    /// Records that bits of a word were consulted.
    #[cfg_attr(test, track_caller)]
    pub(in crate::translate) fn consult_word(&mut self, word: usize, bits: u64) {
        if !is_disabled() {
            self.add_word(word, bits);
        }
    }

    fn add_word(&mut self, word: usize, bits: u64) {
        if bits == 0 || self.is_off {
            return;
        }
        self.consult_fragment_bit(word, bits);
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

    /// Consults the fragment bit with the ports: a lookup sees no ports of a fragment.
    fn consult_fragment_bit(&mut self, word: usize, bits: u64) {
        if word == TRANSPORT && bits & PORTS_BITS != 0 {
            self.add_word(FRAGMENT.0, FRAGMENT.1);
        }
    }

    /// Records a write of bits of a word. The value depends on consulted bits alone.
    pub(in crate::translate) fn wrote_word(&mut self, word: usize, bits: u64) {
        self.consult_fragment_bit(word, bits);
        self.key = None;
        self.scratch.written.add(word, bits);
        if let Some(frame) = self.scratch.innermost() {
            frame.written.add(word, bits);
        }
    }

    /// Records a write of all hidden words except the bridge, with constants.
    pub(in crate::translate) fn wrote_hidden(&mut self) {
        self.key = None;
        self.scratch.written.add_first(HIDDEN_COUNT);
        if let Some(frame) = self.scratch.innermost() {
            frame.written.add_first(HIDDEN_COUNT);
        }
    }

    /// Returns the header bits that were rewritten since the packet arrived.
    pub(in crate::translate) fn written_headers(&self) -> FlowMask {
        let mut written = FlowMask::EMPTY;
        let headers = &self.scratch.written.words()[HEADER_WORDS];
        written.words_mut()[HEADER_WORDS].copy_from_slice(headers);
        written
    }

    /// Requests the bits of each lookup from now on, for [`Self::take_lookups`].
    pub(in crate::translate) fn note_lookups(&mut self) {
        self.lookups = Some(Vec::with_capacity(LOOKUPS_EXPECTED));
    }

    /// Takes the bits that each lookup consulted; `None` if they are those of its
    /// visit.
    pub(in crate::translate) fn take_lookups(&mut self) -> Vec<Option<SparseMask>> {
        self.lookups.take().unwrap_or_default()
    }

    /// Requests a record of the tail, for [`Self::take_tail`].
    pub(in crate::translate) const fn await_tail(&mut self) {
        self.tail = TailState::Awaited;
    }

    /// Takes the record of the tail: its first visit, its consulted bits, and its
    /// reads.
    pub(in crate::translate) fn take_tail(&mut self) -> Option<(usize, SparseMask, TailReads)> {
        let TailState::Begun(visit) = self.tail else { return None };
        let Scratch { mask, masks, reads, .. } = &mut *self.scratch;
        let (mask, tail) = (masks.of(mask), reads.tail());
        self.join_tail();
        Some((visit, mask, tail?))
    }

    /// Returns whether a tail is requested and has not begun: all visits so far only
    /// led to others.
    pub(in crate::translate) fn awaits_tail(&self) -> bool {
        self.tail == TailState::Awaited
    }

    fn begin_tail(&mut self) {
        if self.tail == TailState::Awaited {
            self.tail = TailState::Begun(self.visits_count());
            let Scratch { mask, mask_before, reads, .. } = &mut *self.scratch;
            std::mem::swap(mask, mask_before);
            reads.begin_tail();
        }
    }

    /// Merges the mask of the tail into that of the translation.
    fn join_tail(&mut self) {
        if let TailState::Begun(_) = std::mem::replace(&mut self.tail, TailState::Off) {
            let Scratch { mask, mask_before, .. } = &mut *self.scratch;
            std::mem::swap(mask, mask_before);
            mask.add_all(mask_before);
            mask_before.clear();
        }
    }

    /// Requests the decisions that rules do not show, for [`Self::take_notes`].
    pub(in crate::translate) fn keep_notes(&mut self) {
        self.notes = Some(Vec::new());
    }

    /// Takes the decisions that rules do not show.
    pub(in crate::translate) fn take_notes(&mut self) -> Vec<TranslationNote> {
        self.notes.take().unwrap_or_default()
    }

    /// Records a decision that the matched rule does not show.
    pub(in crate::translate) fn note(&mut self, bridge: BridgeId, decision: NotedDecision) {
        if let Some(cause) = decision.drop_cause() {
            self.drop_cause = cause;
        }
        if let Some(notes) = &mut self.notes {
            let visit = self.scratch.innermost().map(|frame| frame.visit);
            notes.push(TranslationNote { visit, bridge, decision });
        }
    }

    /// Returns the cause of the drop, if no action outputs the packet.
    pub(in crate::translate) const fn drop_cause(&self) -> DropCause {
        self.drop_cause
    }

    /// Returns the number of visits so far.
    pub(in crate::translate) const fn visits_count(&self) -> usize {
        self.scratch.visits.len()
    }

    /// Returns whether some bit of a field was rewritten since the packet arrived.
    pub(in crate::translate) fn is_rewritten(&self, field: FieldId) -> bool {
        self.scratch.written.field(field) != 0
    }

    /// Runs a lookup, which adds the bits that it consults to a mask.
    pub(in crate::translate) fn look_up<T>(
        &mut self,
        look_up: impl FnOnce(&mut FlowMask) -> T,
    ) -> T {
        self.scratch.next().mask.fill(look_up)
    }

    /// Notes the bits of a lookup with a known result.
    pub(in crate::translate) fn look_up_known(&mut self, lookup: &SparseMask) {
        self.scratch.next().mask.set(lookup);
    }

    /// Adds a visit with the last lookup. It lasts until [`Self::end_visit`].
    #[cfg_attr(test, track_caller)]
    pub(in crate::translate) fn visit(
        &mut self,
        entering: LookupInput<'_>,
        rule: Option<&Arc<Rule>>,
    ) {
        let goto_only = rule.is_some_and(|rule| rule.instructions.goto_only().is_some());
        if !goto_only {
            self.begin_tail();
        }
        self.drop_cause = match rule {
            Some(_) => DropCause::RuleWithoutOutput,
            None => DropCause::NoMatchingRule,
        };
        if self.is_off {
            return;
        }
        self.enter(entering.foreign);
        self.note_lookup(!goto_only);
        let (visit, empty) = (self.scratch.visits.len(), self.scratch.empty.clone());
        self.push(entering, empty, rule.cloned(), Box::default());
        let frame = self.scratch.next();
        (frame.visit, frame.foreign) = (visit, entering.foreign);
        frame.written.clear();
        self.scratch.depth += 1;
    }

    /// Adds a visit with a known lookup, of a rule that runs no actions.
    pub(in crate::translate) fn pass(
        &mut self,
        entering: LookupInput<'_>,
        lookup: &SparseMask,
        rule: Option<&Arc<Rule>>,
    ) {
        let Scratch { mask, written, .. } = &mut *self.scratch;
        for (word, bits) in lookup.iter() {
            mask.add(word, bits & !entering.foreign.bits(word) & !written.word(word));
        }
        self.push(entering, lookup.clone(), rule.cloned(), Box::default());
    }

    /// Adds a visit of a conjunction, which runs no actions.
    #[cfg_attr(test, track_caller)]
    pub(in crate::translate) fn visit_conjunction(
        &mut self,
        entering: LookupInput<'_>,
        clauses: Vec<Arc<Rule>>,
    ) {
        if self.is_off {
            return;
        }
        self.begin_tail();
        self.enter(entering.foreign);
        self.note_lookup(false);
        let Scratch { frames, depth, masks, .. } = &mut *self.scratch;
        let mask = masks.shared(&mut self.sparse, &frames[*depth].mask);
        self.push(entering, mask, None, clauses.into());
    }

    /// Adds the bits of the last lookup to the mask, except foreign and rewritten ones.
    #[cfg_attr(test, track_caller)]
    fn enter(&mut self, foreign: ForeignBits) {
        self.scratch.next();
        let Scratch { mask, written, frames, depth, .. } = &mut *self.scratch;
        let lookup = &mut frames[*depth].mask;
        if is_disabled() {
            lookup.clear();
        }
        lookup.add(usize::from(word::BRIDGE), u64::MAX);
        mask.add_some(lookup, |word, bits| bits & !foreign.bits(word) & !written.word(word));
    }

    /// Stores the bits of the last lookup, apart from its visit if actions are run
    /// there.
    fn note_lookup(&mut self, is_run: bool) {
        let Some(lookups) = &mut self.lookups else { return };
        let Scratch { frames, depth, masks, .. } = &mut *self.scratch;
        lookups.push(is_run.then(|| masks.shared(&mut self.sparse, &frames[*depth].mask)));
    }

    fn push(
        &mut self,
        entering: LookupInput<'_>,
        mask: SparseMask,
        rule: Option<Arc<Rule>>,
        clauses: Box<[Arc<Rule>]>,
    ) {
        let LookupInput { bridge, table, key, is_own, .. } = entering;
        let key = match &mut self.key {
            Some(shared) if is_own => {
                debug_assert!(shared.is_of(key), "a written key is not shared");
                shared.clone()
            }
            shared if is_own => shared.insert(SparseKey::from(key)).clone(),
            _ => SparseKey::from(key),
        };
        self.scratch.visits.push(Visit { bridge, table, key, mask, rule, clauses });
    }

    /// Ends the innermost visit: its actions have been run.
    pub(in crate::translate) fn end_visit(&mut self) {
        let Scratch { frames, depth, visits, masks, .. } = &mut *self.scratch;
        let (outer, ended) = frames.split_at_mut(depth.saturating_sub(1));
        let Some(frame) = ended.first().filter(|_| *depth > 0) else { return };
        *depth -= 1;
        visits[frame.visit].mask = masks.shared(&mut self.sparse, &frame.mask);
        if let Some(outer) = outer.last_mut() {
            outer.written.add_all(&frame.written);
        }
    }

    /// Returns the rewritten bits.
    pub(in crate::translate) fn save(&mut self) -> RewrittenBits {
        RewrittenBits {
            since_ingress: self.scratch.written.clone(),
            since_visit: self.scratch.innermost().map(|frame| frame.written.clone()),
            key: self.key.clone(),
        }
    }

    /// Restores the rewritten bits, in the visit in which they were saved.
    pub(in crate::translate) fn restore(&mut self, saved: RewrittenBits) {
        self.scratch.written = saved.since_ingress;
        if let (Some(frame), Some(written)) = (self.scratch.innermost(), saved.since_visit) {
            frame.written = written;
        }
        self.key = saved.key;
    }

    /// Returns the mask, the visits and the reads.
    pub(in crate::translate) fn finish(mut self) -> (SparseMask, Box<[Visit]>, Box<[Object]>) {
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

    /// Returns a sparse mask: the last one if it is equal.
    fn shared(&mut self, last: &mut Option<SparseMask>, mask: &GrowingMask) -> SparseMask {
        match last {
            Some(last) if mask.is(last) => last.clone(),
            last => last.insert(self.of(mask)).clone(),
        }
    }

    /// Returns a sparse mask: a stored one if it is equal.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits of a hash")]
    fn of(&mut self, mask: &GrowingMask) -> SparseMask {
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
            mask: Box::new(GrowingMask::EMPTY),
            mask_before: Box::new(GrowingMask::EMPTY),
            written: GrowingMask::EMPTY,
            frames: Vec::new(),
            depth: 0,
            visits: Vec::new(),
            empty,
            masks: Masks::new(),
            reads: Reads::default(),
        }
    }

    /// Returns the frame of the next visit.
    fn next(&mut self) -> &mut VisitFrame {
        if self.frames.len() == self.depth {
            self.frames.push(VisitFrame::default());
        }
        &mut self.frames[self.depth]
    }

    /// Returns the innermost visit with running actions.
    fn innermost(&mut self) -> Option<&mut VisitFrame> {
        let last = self.depth.checked_sub(1)?;
        self.frames.get_mut(last)
    }
}

/// Returns the mask that `fill` makes, shared with equal masks.
pub(in crate::translate) fn mask_of(fill: impl FnOnce(&mut GrowingMask)) -> SparseMask {
    let mut scratch = SCRATCH.take().unwrap_or_else(|| Box::new(Scratch::new()));
    let Scratch { mask, masks, .. } = &mut *scratch;
    fill(mask);
    let made = masks.of(mask);
    mask.clear();
    SCRATCH.set(Some(scratch));
    made
}

/// Returns the words of a field, with its bits that are set in `bits`.
#[expect(clippy::cast_possible_truncation, reason = "each half is used by itself")]
pub(in crate::translate) fn words(
    field: FieldId,
    bits: u128,
) -> impl Iterator<Item = (usize, u64)> {
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

/// Returns whether a test has disabled the calling line: see `call_sites`.
#[cfg(test)]
#[track_caller]
fn is_disabled() -> bool {
    crate::translate::tests::call_sites::is_disabled(std::panic::Location::caller())
}

/// Only tests disable calls.
#[cfg(not(test))]
const fn is_disabled() -> bool {
    false
}

impl ForeignBits {
    const fn bits(self, word: usize) -> u64 {
        match word {
            IN_PORT => self.in_port,
            TRANSPORT => self.ports,
            CONJ_ID => self.conj_id,
            _ => 0,
        }
    }
}
