//! The packet during a translation: its key, the bits consulted of it, the actions emitted so far.
//!
//! Actions that only read and write the packet are methods of [`WorkingPacket`] (see `actions`): they
//! see neither tables nor the agenda. Each read of a bit is recorded, and each write is noted for the
//! recorder and for the [`ActionBuilder`], which emits it when the packet leaves.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, PortNo, field::Prerequisite, layout::word, prerequisite,
};

use super::{
    action_builder::{ActionBuilder, Uncommitted},
    record::recorder::{Recorder, RewrittenBits, words},
};
use crate::{
    action::Subfield,
    traversals::{datapath_action::DatapathAction, traversal::TraversalError},
};

/// The packet as it is now.
pub(super) struct WorkingPacket {
    pub(super) key: FlowKey,
    pub(super) headers: HeaderState,
    pub(super) recorder: Recorder,
    pub(super) builder: ActionBuilder,
}

/// The headers that the key shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// The key shows all headers that it can hold.
    Parsed,
    /// Headers that lay behind MPLS labels have not been parsed.
    Uncovered,
}

/// The packet in front of a clone, a bucket or a patch port, to be put back
/// afterwards.
pub(super) struct SavedPacket {
    key: FlowKey,
    written: RewrittenBits,
    uncommitted: Uncommitted,
    headers: HeaderState,
}

impl WorkingPacket {
    /// Makes a packet with this key.
    pub(super) fn new(key: FlowKey, recorder: Recorder) -> Self {
        let builder = ActionBuilder::default();
        Self { key, headers: HeaderState::Parsed, recorder, builder }
    }

    /// Returns the packet as it is now, for [`Self::restore`].
    pub(super) fn save(&mut self) -> SavedPacket {
        SavedPacket {
            key: self.key.clone(),
            written: self.recorder.save(),
            uncommitted: self.builder.save(),
            headers: self.headers,
        }
    }

    /// Puts the packet back as it was saved.
    pub(super) fn restore(&mut self, saved: SavedPacket) -> Result<(), TraversalError> {
        self.key = saved.key;
        self.recorder.restore(saved.written);
        self.headers = saved.headers;
        self.builder.restore(saved.uncommitted)
    }

    /// Emits an action on the packet as it is now.
    pub(super) fn emit(&mut self, action: DatapathAction) -> Result<(), TraversalError> {
        self.builder.emit(&self.key, &mut self.recorder, action)
    }

    /// Returns the ingress port, as actions have left it.
    pub(super) fn in_port(&mut self) -> PortNo {
        self.recorder.consult(FieldId::InPort, u128::MAX);
        self.key.in_port()
    }

    /// Returns whether the packet has a field; consults the bits that decide it.
    pub(super) fn has_field(&mut self, field: FieldId) -> bool {
        if field.info().prerequisite == Prerequisite::Any {
            return true;
        }
        let mut mask = FlowMask::EMPTY;
        let has = prerequisite::consult(field, &self.key, &mut mask);
        self.recorder.consult_mask(&mask);
        has
    }

    /// Returns the bits of a field, which are consulted.
    pub(super) fn read_bits(&mut self, source: Subfield) -> u128 {
        self.recorder.consult(source.field, source.bits());
        (self.key.field(source.field) & source.bits()) >> source.offset
    }

    /// Writes bits of a field that the packet has.
    pub(super) fn write(&mut self, field: FieldId, value: u128, mask: u128) {
        self.key.set_field_masked(field, value, mask);
        for (word, bits) in words(field, mask) {
            self.recorder.wrote_word(word, bits);
            self.builder.wrote_word(word, bits);
        }
    }

    /// Writes a word of hidden state.
    pub(super) fn write_hidden(&mut self, word: u8, value: u64) {
        debug_assert!(word <= word::BRIDGE, "header words are written field by field");
        self.key.words_mut()[usize::from(word)] = value;
        self.recorder.wrote_word(usize::from(word), u64::MAX);
    }
}
