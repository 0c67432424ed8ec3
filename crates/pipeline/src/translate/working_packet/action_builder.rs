//! Builds the datapath actions that write the flow key into the datapath's packet.
//!
//! Actions write the flow key. When the packet leaves, to a port or to a controller, the builder
//! emits as few datapath actions as possible, which write the key into the packet. A write that no
//! output follows needs no datapath action. The restore after a clone needs a datapath action only
//! if a rewritten packet has left meanwhile.
//!
//! **Fields.** `pending` holds the header bits that were written and not emitted yet. All pending
//! bits are emitted, even if the new value equals the old value in this packet: other packets of
//! the entry's region may have another old value. After a clone, the bits that were emitted inside
//! it are pending again. If a restore writes the value with which the packet arrived, its bits are
//! consulted, so that the value is a constant of the entry.
//!
//! **Shims.** Each VLAN tag has an identity. A tag gets a new identity when rewritten bits of it
//! are emitted. The innermost tags of the datapath's packet and of the key may be the same tags.
//! All other tags of the datapath's packet are popped, and all other tags of the key are pushed
//! whole. So the restore after a clone that rewrote a tag is a pop and a push.
//!
//! **Meters.** A meter drops the packet, or changes its DSCP in a manner that the translation does
//! not know. In a clone, a bucket or a peer bridge, the drop or change must be limited to these
//! steps. So the datapath executes these steps on a real copy of the packet. The same applies to
//! steps that rewrite the DSCP after an earlier meter may have changed it, because a restore would
//! undo the change of the meter.
//!
//! **Labels** of MPLS are handled like tags. Labels lie after all tags, so both are independent.
//! The Ethernet type belongs to the labels: a push or a pop writes the type of the key. After two
//! pops that name different types, the labels may agree while the types differ. In this case, a
//! label is pushed and popped only to write the type.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    layout::{FLOW_WORDS, word},
};

use crate::{
    translate::{limits::ACTIONS_MAX, record::recorder::Recorder},
    traversals::{datapath_action::DatapathAction, traversal::TraversalError},
};

/// The differences between the key and the datapath's packet.
/// The datapath's packet is the packet after the datapath actions so far.
#[derive(Default)]
pub(in crate::translate) struct ActionBuilder {
    actions: Vec<DatapathAction>,
    /// Header bits that were written and not emitted yet.
    pending: FlowMask,
    /// Header bits that were emitted since the last save.
    emitted: FlowMask,
    /// The VLAN tags of the key.
    key_tags: Shims,
    /// The VLAN tags of the datapath's packet.
    wire_tags: Shims,
    /// The MPLS labels of the key.
    key_labels: Shims,
    /// The MPLS labels of the datapath's packet.
    wire_labels: Shims,
    /// The Ethernet type of the datapath's packet, from the first change of labels on.
    wire_type: Option<u16>,
    /// True if the datapath's packet may differ from the key.
    is_behind: bool,
    /// The identity of the newest tag or label.
    newest: u32,
    /// Number of writes so far; a clone without writes restores nothing.
    writes: u64,
    /// Number of actions so far, including those inside copies.
    count: usize,
    /// The meters that the packet passes, and their effect on copies.
    metering: Metering,
}

/// The meters among the actions so far, without the meters inside copies.
#[derive(Clone, Copy, Default)]
struct Metering {
    /// Number of meters so far.
    meters: usize,
    /// Number of meters that may change packets.
    remarks: usize,
    /// Nesting depth of copies since the last save.
    nesting: usize,
}

/// A stack of VLAN tags or MPLS labels, as a difference from the packet that
/// arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shims {
    /// Number of popped tags among those with which the packet arrived.
    popped: usize,
    /// Identities of the pushed tags, with the outermost at the end.
    pushed: Vec<u32>,
}

/// The state of the builder that the end of a clone restores.
pub(super) struct Uncommitted {
    /// Header bits that were written and not emitted yet.
    pending: FlowMask,
    /// Header bits that were emitted since the last save.
    emitted: FlowMask,
    /// The VLAN tags of the key.
    key_tags: Shims,
    /// The VLAN tags of the datapath's packet.
    wire_tags: Shims,
    /// The MPLS labels of the key.
    key_labels: Shims,
    /// The MPLS labels of the datapath's packet.
    wire_labels: Shims,
    /// The Ethernet type of the datapath's packet, as in the builder.
    wire_type: Option<u16>,
    /// Number of writes so far.
    writes: u64,
    /// Number of emitted actions before the clone.
    begun: usize,
    /// The meters among the actions.
    metering: Metering,
}

/// The most nested copies, because the datapath executes copies recursively.
const COPY_DEPTH_MAX: u16 = 64;

/// Index of the word with the VLAN tags.
const VLAN: usize = word::VLAN as usize;
/// Index of the word with the first two MPLS labels.
const MPLS: usize = word::MPLS as usize;
/// Index of the word with the third label.
const MPLS_THIRD: usize = word::MPLS_PBB as usize;
/// `ETH_TYPE_MPLS`: the Ethernet type of a label that is pushed only to be popped.
const ETHERTYPE_MPLS: u16 = 0x8847;
/// The first word of header fields, after the word of `in_port`.
const FIRST_PACKET_WORD: usize = word::ETH_DST as usize;

impl ActionBuilder {
    /// Creates a builder that collects actions in an empty list, which is reused.
    pub(in crate::translate) fn with(actions: Vec<DatapathAction>) -> Self {
        Self { actions, ..Self::default() }
    }

    /// Records a write of bits of a word of the key.
    pub(super) fn wrote_word(&mut self, word: usize, bits: u64) {
        if word >= FIRST_PACKET_WORD {
            self.pending.words_mut()[word] |= bits;
            self.mark_written();
        }
    }

    /// Notes that a field was written, for which no action was emitted yet.
    const fn mark_written(&mut self) {
        self.writes += 1;
        self.is_behind = true;
    }

    /// Records that a push drops the inner tag of the two tags in the key.
    pub(super) fn lost_inner_tag(&mut self) {
        let outer_is_pushed = !self.key_tags.pushed.is_empty();
        if self.key_tags.pushed.len() > 1 {
            self.key_tags.pushed.remove(0);
        } else {
            self.key_tags.popped += 1;
        }
        if !outer_is_pushed {
            // The tag below the outer tag is not the tag with which the packet arrived.
            self.replace_key_tag();
        }
    }

    /// Records a push of a tag onto the key's tags.
    pub(super) fn pushed_tag(&mut self) {
        if self.take_pending_tag() {
            self.replace_key_tag();
        }
        let tag = self.new_identity();
        self.key_tags.pushed.push(tag);
        self.mark_written();
    }

    /// Records a pop of the key's outermost tag.
    pub(super) fn popped_tag(&mut self) {
        self.take_pending_tag();
        self.key_tags.pop();
        self.mark_written();
    }

    /// Records a push of a label onto the key's labels; the Ethernet type was `before`.
    pub(super) fn pushed_label(&mut self, before: u16) {
        self.change_labels(before);
        if self.take_pending(MPLS) {
            self.replace_key_label();
        }
        let label = self.new_identity();
        self.key_labels.pushed.push(label);
    }

    /// Records a pop of the key's outermost label; the Ethernet type was `before`.
    pub(super) fn popped_label(&mut self, before: u16) {
        self.change_labels(before);
        self.take_pending(MPLS);
        self.key_labels.pop();
    }

    /// Records a rewrite of the key's two outermost labels; the Ethernet type is
    /// `before`.
    pub(super) fn rewrote_labels(&mut self, before: u16) {
        self.popped_label(before);
        self.replace_key_label();
        self.pushed_label(before);
    }

    /// Commits the key, and emits an action.
    pub(super) fn emit(
        &mut self,
        key: &FlowKey,
        recorder: &mut Recorder,
        action: DatapathAction,
    ) -> Result<(), TraversalError> {
        self.commit(key, recorder);
        match &action {
            DatapathAction::Meter(meter) => {
                self.metering.meters += 1;
                self.metering.remarks += usize::from(meter.remarks());
            }
            DatapathAction::Copy(_) => self.metering.nesting = self.metering.nesting.max(1),
            _ => {}
        }
        self.actions.push(action);
        self.count_action()
    }

    /// Counts an emitted action, or an output to a port that does not exist.
    pub(super) const fn count_action(&mut self) -> Result<(), TraversalError> {
        self.count += 1;
        if self.count > ACTIONS_MAX {
            return Err(TraversalError::TooManyActions(ACTIONS_MAX));
        }
        Ok(())
    }

    /// Returns the state of the builder before a clone, for [`Self::restore`].
    pub(super) fn save(&mut self) -> Uncommitted {
        Uncommitted {
            pending: self.pending.clone(),
            emitted: std::mem::take(&mut self.emitted),
            key_tags: self.key_tags.clone(),
            wire_tags: self.wire_tags.clone(),
            key_labels: self.key_labels.clone(),
            wire_labels: self.wire_labels.clone(),
            wire_type: self.wire_type,
            writes: self.writes,
            begun: self.actions.len(),
            metering: Metering {
                nesting: std::mem::take(&mut self.metering.nesting),
                ..self.metering
            },
        }
    }

    /// Records that the key has the values of `saved` again.
    pub(super) fn restore(&mut self, saved: Uncommitted) -> Result<(), TraversalError> {
        self.is_behind = true;
        let was_metered = self.metering.meters > saved.metering.meters;
        let wrote_dscp = self.emitted.field(FieldId::IpDscp) != 0;
        let was_remarked = saved.metering.remarks > 0 && wrote_dscp;
        if was_metered || was_remarked {
            return self.copy(saved);
        }
        self.metering.nesting = self.metering.nesting.max(saved.metering.nesting);
        if self.writes != saved.writes {
            self.pending.clone_from(&self.emitted);
            // Tags and labels with emitted bits have new identities, and are pushed whole.
            self.pending.words_mut()[VLAN] = 0;
            self.pending.words_mut()[MPLS] = 0;
            self.pending.add(&saved.pending);
            self.key_tags = saved.key_tags;
            self.key_labels = saved.key_labels;
        }
        self.emitted.add(&saved.emitted);
        Ok(())
    }

    /// Moves the actions since the save into a copy of the packet.
    fn copy(&mut self, saved: Uncommitted) -> Result<(), TraversalError> {
        let nesting = self.metering.nesting + 1;
        if nesting > usize::from(COPY_DEPTH_MAX) {
            return Err(TraversalError::TooDeep(COPY_DEPTH_MAX));
        }
        let inner = self.actions.split_off(saved.begun);
        self.actions.push(DatapathAction::Copy(inner.into()));
        self.metering = Metering { nesting: nesting.max(saved.metering.nesting), ..saved.metering };
        self.pending = saved.pending;
        self.emitted = saved.emitted;
        self.key_tags = saved.key_tags;
        self.wire_tags = saved.wire_tags;
        self.key_labels = saved.key_labels;
        self.wire_labels = saved.wire_labels;
        self.wire_type = saved.wire_type;
        Ok(())
    }

    /// Returns whether a committed key describes the datapath's packet completely.
    ///
    /// False after a meter that may have changed the packet, on which the restore of later clones
    /// depends.
    pub(super) const fn is_known_from_key(&self) -> bool {
        self.metering.remarks == 0
    }

    /// Returns the number of actions so far, including those inside copies.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Returns all actions of the traversal.
    pub(in crate::translate) fn finish(self) -> Vec<DatapathAction> {
        self.actions
    }

    /// Emits the actions that make the datapath's packet equal to the key.
    pub(super) fn commit(&mut self, key: &FlowKey, recorder: &mut Recorder) {
        if !std::mem::take(&mut self.is_behind) {
            return;
        }
        if self.wire_tags != self.key_tags {
            self.commit_tags(key, recorder);
        }
        let ethertype = key.eth_type();
        if self.wire_labels != self.key_labels
            || self.wire_type.is_some_and(|wire_type| wire_type != ethertype)
        {
            self.commit_labels(key, recorder);
        }
        for word in FIRST_PACKET_WORD..FLOW_WORDS {
            recorder.consult_word(word, self.pending.words()[word]);
        }
        if !self.pending.is_empty() {
            self.actions.push(DatapathAction::SetHeader(Match::new(key, &self.pending)));
            self.emitted.add(&self.pending);
            if self.take_pending_tag() {
                self.replace_key_tag();
                self.wire_tags = self.key_tags.clone();
            }
            if self.take_pending(MPLS) {
                self.replace_key_label();
                self.wire_labels = self.key_labels.clone();
            }
            self.pending = FlowMask::EMPTY;
        }
    }

    /// Emits the pushes and pops of VLAN tags so far.
    fn commit_tags(&mut self, key: &FlowKey, recorder: &mut Recorder) {
        let (pops, pushes) = self.wire_tags.difference(&self.key_tags);
        self.actions.extend(std::iter::repeat_n(DatapathAction::PopVlan, pops));
        for depth in (0..pushes).rev() {
            let shift = if depth == 0 { 32 } else { 0 };
            recorder.consult_word(VLAN, 0xffff_ffff << shift);
            let [tpid_high, tpid_low, tci_high, tci_low] = tag(key, shift);
            let tpid = u16::from_be_bytes([tpid_high, tpid_low]);
            let tci = u16::from_be_bytes([tci_high, tci_low]);
            self.actions.push(DatapathAction::PushVlan { tpid, tci });
        }
        if pushes > 0 && self.take_pending_tag() {
            self.replace_key_tag();
        }
        self.wire_tags = self.key_tags.clone();
    }

    /// Emits the pushes and pops of MPLS labels so far.
    fn commit_labels(&mut self, key: &FlowKey, recorder: &mut Recorder) {
        recorder.consult(FieldId::EthType, u128::MAX);
        let ethertype = key.eth_type();
        let (mut pops, pushes) = self.wire_labels.difference(&self.key_labels);
        if (pops, pushes) == (0, 0) {
            let idle = DatapathAction::PushMpls { lse: 0, ethertype: ETHERTYPE_MPLS };
            self.actions.push(idle);
            pops = 1;
        }
        self.actions.extend(std::iter::repeat_n(DatapathAction::PopMpls { ethertype }, pops));
        for depth in (0..pushes).rev() {
            let (word, shift) = [(MPLS, 32), (MPLS, 0), (MPLS_THIRD, 32)][depth];
            recorder.consult_word(word, 0xffff_ffff << shift);
            let lse = entry(key, word, shift);
            self.actions.push(DatapathAction::PushMpls { lse, ethertype });
        }
        if pushes > 0 && self.take_pending(MPLS) {
            self.replace_key_label();
        }
        self.wire_labels = self.key_labels.clone();
        self.wire_type = Some(ethertype);
    }

    /// Returns whether bits of the outermost tag were pending, and clears them.
    fn take_pending_tag(&mut self) -> bool {
        self.take_pending(VLAN)
    }

    /// Returns whether a word has pending writes, and clears them.
    fn take_pending(&mut self, word: usize) -> bool {
        std::mem::take(&mut self.pending.words_mut()[word]) != 0
    }

    /// Records that labels of the key are about to change.
    /// Before the first change, the datapath's packet has the Ethernet type of the key.
    fn change_labels(&mut self, before: u16) {
        self.wire_type.get_or_insert(before);
        self.mark_written();
    }

    /// Gives the key's outermost label a new identity.
    fn replace_key_label(&mut self) {
        let label = self.new_identity();
        self.key_labels.pop();
        self.key_labels.pushed.push(label);
    }

    /// Gives the key's outermost tag a new identity.
    fn replace_key_tag(&mut self) {
        let tag = self.new_identity();
        self.key_tags.pop();
        self.key_tags.pushed.push(tag);
    }

    /// Returns a new identity for a pushed tag or label.
    const fn new_identity(&mut self) -> u32 {
        self.newest += 1;
        self.newest
    }
}

impl Shims {
    /// Pops a pushed tag or label, or else one of the original packet.
    fn pop(&mut self) {
        if self.pushed.pop().is_none() {
            self.popped += 1;
        }
    }

    /// Returns the number of pops and then of pushes that turn `self` into `other`.
    fn difference(&self, other: &Self) -> (usize, usize) {
        let (own, others) = (self.pushed.len(), other.pushed.len());
        let kept = if self.popped == other.popped {
            self.pushed.iter().zip(&other.pushed).take_while(|(a, b)| a == b).count()
        } else {
            0
        };
        let pops = other.popped.saturating_sub(self.popped) + own - kept;
        let pushes = self.popped.saturating_sub(other.popped) + others - kept;
        (pops, pushes)
    }
}

/// Returns the protocol identifier and the control information of a tag in the key.
const fn tag(key: &FlowKey, shift: u32) -> [u8; 4] {
    entry(key, VLAN, shift).to_be_bytes()
}

/// Returns the 32 bits of a word that hold a tag or a label.
#[expect(clippy::cast_possible_truncation, reason = "only the low half is used")]
const fn entry(key: &FlowKey, word: usize, shift: u32) -> u32 {
    (key.words()[word] >> shift) as u32
}
