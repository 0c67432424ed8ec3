//! The recorder: the only code that adds bits to masks.
//!
//! Every use of a bit of the packet calls the recorder. The recorder keeps two kinds of masks.
//!
//! * The mask of the cache entry: the bits of the packet *as it arrived* that the traversal
//!   depends on. A bit that was rewritten before it was consulted is not added: its value is a
//!   constant of the entry.
//! * The mask of a visit: the bits of the packet *as it entered a table* that the lookup there and
//!   the actions of its rule depend on. A bit is not added if it was rewritten since the packet
//!   entered the table, by that rule or by a table to which the rule resubmitted.
//!
//! So the invariant is: a written value is a function of bits consulted before. `move` keeps the
//! invariant by consulting its source.
//!
//! `resubmit(PORT,..)` looks up with another `in_port`, and then continues with the packet's
//! `in_port`. A fragment is looked up without its transport ports, and the `conj_id` of a lookup is
//! never that of the packet. Within such a visit these bits of the packet are *foreign*: the lookup
//! key does not contain them. So if an action consults them, they are added to the mask of the
//! surrounding visit.
//!
//! A lookup does not see the transport ports of a first fragment, but an action does. So code that
//! consults or writes ports also consults the fragment bit. Otherwise one entry would cover
//! fragments and other packets with the same ports, which have different lookup keys in one table.
//!
//! Masks are dense while they grow. The mask of a visit becomes sparse at the end of the visit.
//! Consecutive visits share equal keys and masks. The dense masks lie in a [`Scratch`] that each
//! thread reuses from one translation to the next.

use std::sync::Arc;

use shunt_flow::{
    FieldId, FlowKey, FlowMask, SparseKey, SparseMask, WordMap,
    layout::{HEADER_WORDS, word},
};

use super::{
    foreign_bits::{FRAGMENT, ForeignBits, PORTS_BITS, TRANSPORT},
    growing_mask::GrowingMask,
    reads::TailReads,
    scratch::Scratch,
    tail::TailState,
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
    /// A recorder that is off records only writes and the drop cause.
    is_off: bool,
    /// The current key of the packet; `None` after a write.
    key: Option<SparseKey>,
    /// The last sparse mask of a visit or lookup, for sharing.
    sparse: Option<SparseMask>,
    /// The bits that each lookup consulted, if requested: see [`Self::take_lookups`].
    lookups: Option<Vec<Option<SparseMask>>>,
    /// The state of the recording of a tail.
    tail: TailState,
    /// The drop cause of the packet if no later action outputs it.
    drop_cause: DropCause,
    /// The notes for the explanation of the translation, if requested.
    notes: Option<Vec<TranslationNote>>,
    /// The buffers that the next translation reuses.
    scratch: Box<Scratch>,
}

/// The rewritten bits, which a clone restores.
pub(in crate::translate) struct RewrittenBits {
    /// The bits rewritten since the packet arrived.
    since_ingress: GrowingMask,
    /// The bits rewritten in the innermost visit.
    since_visit: Option<GrowingMask>,
    /// The current key of the packet; `None` after a write.
    key: Option<SparseKey>,
}

/// The table and the key of a lookup.
#[derive(Clone, Copy)]
pub(in crate::translate) struct LookupInput<'k> {
    pub(in crate::translate) bridge: BridgeId,
    pub(in crate::translate) table: TableId,
    pub(in crate::translate) key: &'k FlowKey,
    /// The bits of the key that are not those of the packet.
    pub(in crate::translate) foreign: ForeignBits,
    /// True if the key has the packet's own bits only.
    pub(in crate::translate) is_own: bool,
}

/// Initial capacity of the list of lookups.
pub(in crate::translate) const LOOKUPS_EXPECTED: usize = 16;
/// Number of hidden words before the word of the bridge.
const HIDDEN_COUNT: usize = word::BRIDGE as usize;

impl Recorder {
    /// Creates a recorder for a packet that arrives with this key.
    pub(in crate::translate) fn new(key: SparseKey) -> Self {
        Self { key: Some(key), is_off: false, ..Self::unused() }
    }

    /// Creates a recorder for a packet that no cache stores.
    pub(in crate::translate) fn off() -> Self {
        Self { is_off: true, ..Self::unused() }
    }

    /// Returns a recorder without a packet.
    fn unused() -> Self {
        Self {
            is_off: false,
            key: None,
            sparse: None,
            lookups: None,
            tail: TailState::Off,
            drop_cause: DropCause::default(),
            notes: None,
            scratch: Scratch::of_thread(),
        }
    }

    /// Returns whether the recorder is off, and records only writes and the drop cause.
    pub(in crate::translate) const fn is_off(&self) -> bool {
        self.is_off
    }

    /// Ends the record of a recorder that is off.
    pub(in crate::translate) fn discard(mut self) {
        debug_assert!(self.is_off, "only a recorder that is off is discarded");
        self.scratch.written.clear();
        self.scratch.return_to_thread();
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

    /// Records that bits of a word were consulted.
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

    /// Consults the fragment bit together with transport ports.
    /// A lookup sees no ports of a fragment.
    fn consult_fragment_bit(&mut self, word: usize, bits: u64) {
        if word == TRANSPORT && bits & PORTS_BITS != 0 {
            self.add_word(FRAGMENT.0, FRAGMENT.1);
        }
    }

    /// Records a write of bits of a word, with a value that depends on consulted bits.
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

    /// Takes the bits that each lookup consulted.
    /// `None`: the mask of the visit has the bits.
    pub(in crate::translate) fn take_lookups(&mut self) -> Vec<Option<SparseMask>> {
        self.lookups.take().unwrap_or_default()
    }

    /// Requests a record of the tail, for [`Self::take_tail`].
    pub(in crate::translate) const fn await_tail(&mut self) {
        self.tail = TailState::Awaited;
    }

    /// Takes the record of the tail: the first visit, consulted bits, and reads.
    pub(in crate::translate) fn take_tail(&mut self) -> Option<(usize, SparseMask, TailReads)> {
        self.tail.take(&mut self.scratch)
    }

    /// Returns whether the tail is requested and has not begun.
    /// All visits so far have only led to other tables.
    pub(in crate::translate) fn awaits_tail(&self) -> bool {
        self.tail == TailState::Awaited
    }

    /// Requests notes for an explanation of the translation, see [`Self::take_notes`].
    pub(in crate::translate) fn keep_notes(&mut self) {
        self.notes = Some(Vec::new());
    }

    /// Takes the notes for the explanation of the translation.
    pub(in crate::translate) fn take_notes(&mut self) -> Vec<TranslationNote> {
        self.notes.take().unwrap_or_default()
    }

    /// Records a decision that the matched rule does not show, and its drop cause.
    pub(in crate::translate) fn note(&mut self, bridge: BridgeId, decision: NotedDecision) {
        if let Some(cause) = decision.drop_cause() {
            self.drop_cause = cause;
        }
        if let Some(notes) = &mut self.notes {
            let visit = self.scratch.innermost().map(|frame| frame.visit);
            notes.push(TranslationNote { visit, bridge, decision });
        }
    }

    /// Returns the drop cause of the packet if no action outputs it.
    pub(in crate::translate) const fn drop_cause(&self) -> DropCause {
        self.drop_cause
    }

    /// Restores the drop cause, after the copies of mirrors.
    pub(in crate::translate) const fn set_drop_cause(&mut self, cause: DropCause) {
        self.drop_cause = cause;
    }

    /// Returns the number of visits so far.
    pub(in crate::translate) const fn visits_count(&self) -> usize {
        self.scratch.visits.len()
    }

    /// Returns whether any bit of a field was rewritten since the packet arrived.
    pub(in crate::translate) fn is_rewritten(&self, field: FieldId) -> bool {
        self.scratch.written.field(field) != 0
    }

    /// Runs a lookup, and stores the bits that it consults for the next visit.
    pub(in crate::translate) fn look_up<T>(
        &mut self,
        look_up: impl FnOnce(&mut FlowMask) -> T,
    ) -> T {
        self.scratch.next().mask.fill(look_up)
    }

    /// Stores the bits of a known lookup for the next visit.
    pub(in crate::translate) fn look_up_known(&mut self, lookup: &SparseMask) {
        self.scratch.next().mask.set(lookup);
    }

    /// Adds a visit with the last lookup, which lasts until [`Self::end_visit`].
    #[cfg_attr(test, track_caller)]
    pub(in crate::translate) fn begin_visit(
        &mut self,
        entering: LookupInput<'_>,
        rule: Option<&Arc<Rule>>,
    ) {
        let goto_only = rule.is_some_and(|rule| rule.instructions.goto_only().is_some());
        if !goto_only {
            self.tail.begin(&mut self.scratch);
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
        self.tail.begin(&mut self.scratch);
        self.enter(entering.foreign);
        self.note_lookup(false);
        let Scratch { frames, depth, masks, .. } = &mut *self.scratch;
        let mask = masks.shared(&mut self.sparse, &frames[*depth].mask);
        self.push(entering, mask, None, clauses.into());
    }

    /// Adds the bits of the last lookup to the mask, except foreign and rewritten bits.
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

    /// Stores the bits of the last lookup for [`Self::take_lookups`].
    /// `is_run` is true if the visit runs actions, which may consult further bits.
    fn note_lookup(&mut self, is_run: bool) {
        let Some(lookups) = &mut self.lookups else { return };
        let Scratch { frames, depth, masks, .. } = &mut *self.scratch;
        lookups.push(is_run.then(|| masks.shared(&mut self.sparse, &frames[*depth].mask)));
    }

    /// Appends a visit to the traversal.
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

    /// Ends the innermost visit after its actions have run.
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

    /// Returns the rewritten bits, for [`Self::restore`].
    pub(in crate::translate) fn save(&mut self) -> RewrittenBits {
        RewrittenBits {
            since_ingress: self.scratch.written.clone(),
            since_visit: self.scratch.innermost().map(|frame| frame.written.clone()),
            key: self.key.clone(),
        }
    }

    /// Restores the rewritten bits, in the visit in which [`Self::save`] was called.
    pub(in crate::translate) fn restore(&mut self, saved: RewrittenBits) {
        self.scratch.written = saved.since_ingress;
        if let (Some(frame), Some(written)) = (self.scratch.innermost(), saved.since_visit) {
            frame.written = written;
        }
        self.key = saved.key;
    }

    /// Ends the record, and returns the mask, the visits and the reads.
    pub(in crate::translate) fn finish(mut self) -> (SparseMask, Box<[Visit]>, Box<[Object]>) {
        while self.scratch.depth > 0 {
            self.end_visit();
        }
        self.tail.join(&mut self.scratch);
        let mut scratch = self.scratch;
        let mask = scratch.masks.of(&scratch.mask);
        let visits = scratch.visits.drain(..).collect();
        let reads = scratch.reads.take();
        scratch.mask.clear();
        scratch.written.clear();
        scratch.return_to_thread();
        (mask, visits, reads)
    }
}

/// Returns the words of a field, with its bits that are set in `bits`.
#[expect(clippy::cast_possible_truncation, reason = "each half is used separately")]
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

/// Returns false: outside of tests, no call is disabled.
#[cfg(not(test))]
const fn is_disabled() -> bool {
    false
}
