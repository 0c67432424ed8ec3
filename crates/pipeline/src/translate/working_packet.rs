//! The packet during a translation: its key, its consulted bits, and the emitted actions.
//!
//! A [`WorkingPacket`] sees neither tables nor the agenda. Each read of a bit is recorded, and each
//! write is noted for the recorder and for the [`ActionBuilder`], which emits it when the packet
//! leaves. The modules of the packet are:
//!
//! ```text
//! action_builder   datapath actions that bring the packet on the wire up to the key
//! fields           writes of fields
//! vlan, mpls       tags and labels, which move within the key
//! ```

mod action_builder;
pub(super) mod fields;
mod mpls;
pub(super) mod vlan;

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo, field::Prerequisite, layout::word, prerequisite,
};

use self::action_builder::{ActionBuilder, Uncommitted};
use super::{
    actions::mirror::MirrorState,
    record::{
        foreign_bits::IN_PORT_BITS,
        recorder::{Recorder, RewrittenBits, words},
    },
};
use crate::{
    action::Subfield,
    bridges::{mirror_table::MirrorSet, output_counter::OutputHit},
    continuations::hidden_state::is_naming,
    id::BridgeId,
    traversals::{datapath_action::DatapathAction, traversal::TraversalError},
};

/// The packet during a translation, with all writes so far.
pub(super) struct WorkingPacket {
    /// The key with all writes so far.
    key: FlowKey,
    /// The known structure of the headers.
    headers: HeaderState,
    /// The record of consulted bits and objects.
    pub(super) recorder: Recorder,
    /// The datapath actions so far.
    pub(super) builder: ActionBuilder,
    /// The mirrors of the current bridge that have copied the packet.
    pub(super) mirror: MirrorState,
    /// The counters of mirrors that copied the packet, and of bonds that sent it.
    pub(super) output_hits: Vec<OutputHit>,
}

/// The state of the headers in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderState {
    /// The key has all headers of the packet for which it has fields.
    Parsed,
    /// A pop of MPLS labels has uncovered headers that are not in the key.
    Uncovered,
}

/// The packet before a clone, a bucket or a patch port, to be restored afterwards.
pub(super) struct SavedPacket {
    /// The key before the writes.
    key: FlowKey,
    /// The rewritten bits before the writes.
    written: RewrittenBits,
    /// The writes that had no datapath action yet.
    uncommitted: Uncommitted,
    /// The structure of the headers before the writes.
    headers: HeaderState,
}

impl WorkingPacket {
    /// Creates a packet with this key.
    #[inline]
    pub(super) fn new(key: FlowKey, recorder: Recorder) -> Self {
        let builder = ActionBuilder::default();
        let mirror = MirrorState::default();
        let output_hits = Vec::new();
        Self { key, headers: HeaderState::Parsed, recorder, builder, mirror, output_hits }
    }

    /// Collects the actions in `actions`, an empty list that is reused.
    pub(super) fn collect_in(&mut self, actions: Vec<DatapathAction>) {
        self.builder = ActionBuilder::with(actions);
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

    /// Restores a packet that was saved before.
    pub(super) fn restore(&mut self, saved: SavedPacket) -> Result<(), TraversalError> {
        self.key = saved.key;
        self.recorder.restore(saved.written);
        self.headers = saved.headers;
        self.builder.restore(saved.uncommitted)
    }

    /// Returns the key of the packet. The caller records the bits that it reads.
    pub(super) const fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Returns the key of the packet, and the recorder of its bits.
    pub(super) const fn key_and_recorder(&mut self) -> (&FlowKey, &mut Recorder) {
        (&self.key, &mut self.recorder)
    }

    /// Returns whether a pop has uncovered headers that the key does not show.
    pub(super) fn has_uncovered_headers(&self) -> bool {
        self.headers == HeaderState::Uncovered
    }

    /// Emits an action, after the datapath actions that write the key into the packet.
    pub(super) fn emit(&mut self, action: DatapathAction) -> Result<(), TraversalError> {
        self.builder.emit(&self.key, &mut self.recorder, action)
    }

    /// Counts an output without effect: the bound on actions includes such outputs.
    pub(super) const fn count_action(&mut self) -> Result<(), TraversalError> {
        self.builder.count_action()
    }

    /// Returns the number of actions so far, including those inside copies.
    pub(super) const fn actions_count(&self) -> usize {
        self.builder.count()
    }

    /// Emits the datapath actions that write the key into the packet.
    pub(super) fn commit(&mut self) {
        self.builder.commit(&self.key, &mut self.recorder);
    }

    /// Returns whether a committed key describes the datapath's packet completely.
    pub(super) const fn is_known_from_key(&self) -> bool {
        self.builder.is_known_from_key()
    }

    /// Returns the ingress port, after writes of actions.
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

    /// Returns bits of a field, and records that they were consulted.
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

    /// Enters the peer bridge of a patch port, which sees less hidden state.
    pub(super) fn enter_bridge(&mut self, bridge: BridgeId, port: PortNo) {
        (word::TUN_METADATA..word::PKT_MARK).for_each(|word| self.write_hidden(word, 0));
        self.write_hidden(word::ACTSET_OUTPUT, 0);
        self.write_hidden(word::BRIDGE, u64::from(bridge.number()));
        self.write(FieldId::InPort, u128::from(port.number()), u128::MAX);
        self.mirror.done = MirrorSet::default();
    }

    /// Replaces the hidden state, and the ingress port if a continuation has one.
    ///
    /// The key of a resumed packet has only the recirculation id and the bridge as hidden words.
    pub(super) fn thaw(&mut self, hidden: &Match, in_port: Option<PortNo>) {
        self.key.words_mut()[..usize::from(word::BRIDGE)].fill(0);
        for (index, value) in hidden.mask().map().iter().zip(hidden.value()) {
            if !is_naming(index) {
                self.key.words_mut()[index] = *value;
            }
        }
        self.recorder.wrote_hidden();
        if let Some(port) = in_port {
            self.key.set_in_port(port);
            self.recorder.wrote_word(usize::from(word::IN_PORT), IN_PORT_BITS);
        }
    }

    /// Writes a word of hidden state.
    fn write_hidden(&mut self, word: u8, value: u64) {
        debug_assert!(word <= word::BRIDGE, "header words are written field by field");
        self.key.words_mut()[usize::from(word)] = value;
        self.recorder.wrote_word(usize::from(word), u64::MAX);
    }
}
