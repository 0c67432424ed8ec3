//! Builds the datapath actions that bring the packet on the wire up to the flow key.
//!
//! Actions write the flow key. A write reaches the packet only when the packet leaves, to a port or
//! to a controller: then as few datapath actions as possible are emitted. A write that no output
//! follows costs nothing. A clone that puts the packet back costs an action only if a rewritten
//! packet has left meanwhile.
//!
//! **Fields.** `pending` holds the header bits that were written and not emitted yet. All of them
//! are emitted, even if the new value equals the old one of this packet: other packets of the
//! entry's region may have had another. After a clone, the bits that were emitted inside it are
//! pending again. If an action restores the value with which the packet arrived, the bits are
//! consulted, so that the value is a constant of the entry.
//!
//! **Shims.** A VLAN tag has an identity, which represents its value: a tag with emitted rewritten
//! bits becomes another tag. The tags that both the packet on the wire and the key have are the
//! innermost ones. The other tags of the wire are popped, and those that only the key has are
//! pushed whole. So a clone that rewrote a tag on the wire is undone by a pop and a push.
//!
//! **Meters.** A meter drops the packet, or changes it in a manner that is unknown here. In a
//! clone, a bucket or a peer bridge, the drop or change must be limited to that part. So the whole
//! part is executed on a real copy of the packet. The same applies to a part that emits a rewrite
//! of the DSCP after a meter that changes it too, because undoing the one would undo the other.
//!
//! **Labels** of MPLS are handled like tags. They lie after all tags, so the two are independent.
//! The Ethernet type belongs to the labels: a push or a pop writes the type of the key. If the
//! labels agree and the types do not, which takes two pops that name different types, a label is
//! pushed and popped only to write the type.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    layout::{FLOW_WORDS, word},
};

use crate::{
    translate::{limits::ACTIONS_MAX, record::recorder::Recorder},
    traversals::{datapath_action::DatapathAction, traversal::TraversalError},
};

/// The packet on the wire after the datapath actions so far, where it differs from
/// the key.
#[derive(Default)]
pub(in crate::translate) struct ActionBuilder {
    actions: Vec<DatapathAction>,
    /// Header bits that were written since they were last emitted.
    pending: FlowMask,
    /// Header bits that were emitted since the state was last saved.
    emitted: FlowMask,
    /// The tags of the key.
    key_tags: Shims,
    /// The tags of the packet on the wire.
    wire_tags: Shims,
    /// The labels of the key.
    key_labels: Shims,
    /// The labels of the packet on the wire.
    wire_labels: Shims,
    /// The Ethernet type of the packet on the wire, from the first label change on.
    wire_type: Option<u16>,
    /// True if the packet on the wire may differ from the key.
    is_behind: bool,
    /// The identity of the newest tag or label.
    newest: u32,
    /// Number of writes so far; a clone without writes restores nothing.
    writes: u64,
    /// Number of actions so far, including those inside copies.
    count: usize,
    metering: Metering,
}

/// The meters among the actions so far, without those inside copies.
#[derive(Clone, Copy, Default)]
struct Metering {
    meters: usize,
    /// Number of meters that may change packets.
    remarks: usize,
    /// Nesting depth of copies, since the state was last saved.
    nesting: usize,
}

/// A stack of VLAN tags or MPLS labels, as a difference from the packet that
/// arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shims {
    /// Number of tags that the packet arrived with and that are popped, outermost
    /// first.
    popped: usize,
    /// Identities of the tags above the others, outermost last.
    pushed: Vec<u32>,
}

/// The state that a clone restores.
pub(super) struct Uncommitted {
    pending: FlowMask,
    emitted: FlowMask,
    key_tags: Shims,
    wire_tags: Shims,
    key_labels: Shims,
    wire_labels: Shims,
    wire_type: Option<u16>,
    writes: u64,
    /// Number of actions before the clone.
    begun: usize,
    metering: Metering,
}

/// The most nested copies: the datapath executes each inside the one around it.
const COPY_DEPTH_MAX: u16 = 64;

const VLAN: usize = word::VLAN as usize;
const MPLS: usize = word::MPLS as usize;
const MPLS_THIRD: usize = word::MPLS_PBB as usize;
/// `ETH_TYPE_MPLS`: the type of a label that is pushed only to be popped.
const ETHERTYPE_MPLS: u16 = 0x8847;
/// The first word that lies in the packet: the one before holds `in_port`.
const FIRST_PACKET_WORD: usize = word::ETH_DST as usize;

impl ActionBuilder {
    /// Makes a builder that collects actions in empty memory.
    pub(in crate::translate) fn with(actions: Vec<DatapathAction>) -> Self {
        Self { actions, ..Self::default() }
    }

    /// Notes a write of bits of a word of the key.
    pub(super) fn wrote_word(&mut self, word: usize, bits: u64) {
        if word >= FIRST_PACKET_WORD {
            self.pending.words_mut()[word] |= bits;
            self.wrote();
        }
    }

    const fn wrote(&mut self) {
        self.writes += 1;
        self.is_behind = true;
    }

    /// Notes that the inner of the key's two tags is lost, because another tag is
    /// pushed.
    pub(super) fn lost_inner_tag(&mut self) {
        let outer_is_pushed = !self.key_tags.pushed.is_empty();
        if self.key_tags.pushed.len() > 1 {
            self.key_tags.pushed.remove(0);
        } else {
            self.key_tags.popped += 1;
        }
        if !outer_is_pushed {
            // The tag below the outer tag is not the one that the packet arrived with.
            self.replace_key_tag();
        }
    }

    /// Notes a push of a tag onto the key's tags.
    pub(super) fn pushed_tag(&mut self) {
        if self.take_pending_tag() {
            self.replace_key_tag();
        }
        let tag = self.new_identity();
        self.key_tags.pushed.push(tag);
        self.wrote();
    }

    /// Notes a pop of the key's outermost tag.
    pub(super) fn popped_tag(&mut self) {
        self.take_pending_tag();
        self.key_tags.pop();
        self.wrote();
    }

    /// Notes a push of a label onto the key's labels; the Ethernet type was `before`.
    pub(super) fn pushed_label(&mut self, before: u16) {
        self.change_labels(before);
        if self.take_pending(MPLS) {
            self.replace_key_label();
        }
        let label = self.new_identity();
        self.key_labels.pushed.push(label);
    }

    /// Notes a pop of the key's outermost label; the Ethernet type was `before`.
    pub(super) fn popped_label(&mut self, before: u16) {
        self.change_labels(before);
        self.take_pending(MPLS);
        self.key_labels.pop();
    }

    /// Notes a rewrite of the key's two outermost labels; the Ethernet type is
    /// `before`.
    pub(super) fn rewrote_labels(&mut self, before: u16) {
        self.popped_label(before);
        self.replace_key_label();
        self.pushed_label(before);
    }

    /// Emits an action on the packet as the key describes it.
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

    /// Counts an action: one that is emitted, or an output to a port that does not
    /// exist.
    pub(super) const fn count_action(&mut self) -> Result<(), TraversalError> {
        self.count += 1;
        if self.count > ACTIONS_MAX {
            return Err(TraversalError::TooManyActions(ACTIONS_MAX));
        }
        Ok(())
    }

    /// Returns the state that a clone that begins now restores.
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

    /// Restores a state: the key is again as it was when the state was saved.
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
            // An emitted tag or label has another identity: it is pushed whole.
            self.pending.words_mut()[VLAN] = 0;
            self.pending.words_mut()[MPLS] = 0;
            self.pending.add(&saved.pending);
            self.key_tags = saved.key_tags;
            self.key_labels = saved.key_labels;
        }
        self.emitted.add(&saved.emitted);
        Ok(())
    }

    /// Moves the actions that were emitted since the state was saved into a copy of the
    /// packet.
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

    /// Returns whether the key describes the packet on the wire completely, once it is
    /// committed.
    ///
    /// A meter that may have changed the packet decides how later clones are undone.
    pub(super) const fn is_known_from_key(&self) -> bool {
        self.metering.remarks == 0
    }

    /// Returns the number of actions so far, including those inside copies.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Returns all emitted actions.
    pub(in crate::translate) fn finish(self) -> Vec<DatapathAction> {
        self.actions
    }

    /// Emits the actions that make the packet on the wire equal to the key.
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

    fn take_pending(&mut self, word: usize) -> bool {
        std::mem::take(&mut self.pending.words_mut()[word]) != 0
    }

    /// Notes that labels of the key are about to change. Until the first change the
    /// wire has its type.
    fn change_labels(&mut self, before: u16) {
        self.wire_type.get_or_insert(before);
        self.wrote();
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

    const fn new_identity(&mut self) -> u32 {
        self.newest += 1;
        self.newest
    }
}

impl Shims {
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

/// Returns the half of a word that a tag or a label fills.
#[expect(clippy::cast_possible_truncation, reason = "only the low half is used")]
const fn entry(key: &FlowKey, word: usize, shift: u32) -> u32 {
    (key.words()[word] >> shift) as u32
}
