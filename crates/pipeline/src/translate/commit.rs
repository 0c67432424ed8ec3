//! What the packet on the wire still lacks.
//!
//! Actions write the flow key. What has been written reaches the packet only when it leaves, to a
//! port or to a controller: then the lack is made up by as few datapath actions as there can be.
//! Rewrites that nobody sees cost nothing, and a clone that puts the packet back as it was pays
//! only if a rewritten packet has left meanwhile.
//!
//! **Fields.** `pending` holds the header bits that were written and have not been emitted. All of
//! them are emitted, also where the new value is the one that this packet had: other packets of
//! the entry's region may have had another. After a clone, what was emitted inside it is pending
//! again; where it puts back what came in with the packet, that is consulted, so that it is a
//! constant.
//!
//! **Shims.** A VLAN tag has an identity, which stands for its value: a tag whose rewritten bits are
//! emitted becomes another one. The tags that both the packet on the wire and the key have are the
//! innermost ones; the others are popped from the wire, and those that only the key has are pushed,
//! whole. So a clone that rewrote a tag on the wire is undone by a pop and a push.
//!
//! **Meters.** A meter ends the packet, or changes it in a way that is not known here. If it stands
//! in a clone, a bucket or a peer bridge, only what is done there must end or change: so all of it
//! is left to a real copy of the packet. So is what emits a rewrite of the DSCP after a meter that
//! changes it too, because to undo the one would undo the other.
//!
//! **Labels** of MPLS are treated as tags are; they lie behind all tags, so neither knows of the
//! other. The Ethernet type goes along with the labels: what a push or a pop writes is the type that
//! the key has. Where the labels agree and the types do not, which takes two pops that name different
//! ones, a label is pushed for nothing but its pop.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    layout::{FLOW_WORDS, word},
};

use super::recorder::Recorder;
use crate::traversals::{datapath_action::DatapathAction, traversal::TraversalError};

/// The packet as the datapath actions so far leave it, as far as it differs from the key.
#[derive(Default)]
pub(super) struct Wire {
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
    /// The Ethernet type of the packet on the wire, once there have been changes of labels.
    wire_type: Option<u16>,
    /// Whether the packet on the wire may lack something.
    is_behind: bool,
    /// The identity of the newest tag or label.
    newest: u32,
    /// Number of writes so far; a clone that writes nothing puts nothing back.
    writes: u64,
    /// Number of actions so far, those inside copies too.
    count: usize,
    metering: Metering,
}

/// The meters in the actions so far, those inside copies left out.
#[derive(Clone, Copy, Default)]
struct Metering {
    meters: usize,
    /// Those of them that may change packets.
    remarks: usize,
    /// How deep copies nest, since the state was last saved.
    nesting: usize,
}

/// A stack of VLAN tags or MPLS labels, as it differs from what came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shims {
    /// Number of those that came in and are gone, outermost first.
    popped: usize,
    /// Identities of those above the others, outermost last.
    pushed: Vec<u32>,
}

/// What a clone puts back.
pub(super) struct Uncommitted {
    pending: FlowMask,
    emitted: FlowMask,
    key_tags: Shims,
    wire_tags: Shims,
    key_labels: Shims,
    wire_labels: Shims,
    wire_type: Option<u16>,
    writes: u64,
    /// Number of actions before it.
    begun: usize,
    metering: Metering,
}

/// How deep copies nest for the datapath, which executes each inside the one around it.
const COPY_DEPTH_MAX: u16 = 64;

/// The most datapath actions of one traversal.
pub(super) const ACTIONS_MAX: usize = 1 << 16;

const VLAN: usize = word::VLAN as usize;
const MPLS: usize = word::MPLS as usize;
const MPLS_THIRD: usize = word::MPLS_PBB as usize;
/// `ETH_TYPE_MPLS`: the type of a label that is pushed to be popped.
const ETHERTYPE_MPLS: u16 = 0x8847;
/// First word that lies in the packet: the one before holds `in_port`.
const FIRST_PACKET_WORD: usize = word::ETH_DST as usize;

impl Wire {
    /// Bits of a word of the key were written.
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

    /// The inner of the key's two tags is gone, because another is pushed.
    pub(super) fn lost_inner_tag(&mut self) {
        let outer_is_pushed = !self.key_tags.pushed.is_empty();
        if self.key_tags.pushed.len() > 1 {
            self.key_tags.pushed.remove(0);
        } else {
            self.key_tags.popped += 1;
        }
        if !outer_is_pushed {
            // What lay below the outer tag is not what came in below it.
            self.replace_key_tag();
        }
    }

    /// A tag was pushed onto the key's.
    pub(super) fn pushed_tag(&mut self) {
        if self.take_pending_tag() {
            self.replace_key_tag();
        }
        let tag = self.new_identity();
        self.key_tags.pushed.push(tag);
        self.wrote();
    }

    /// The key's outermost tag was popped.
    pub(super) fn popped_tag(&mut self) {
        self.take_pending_tag();
        self.key_tags.pop();
        self.wrote();
    }

    /// A label was pushed onto the key's; the Ethernet type was `before`.
    pub(super) fn pushed_label(&mut self, before: u16) {
        self.change_labels(before);
        if self.take_pending(MPLS) {
            self.replace_key_label();
        }
        let label = self.new_identity();
        self.key_labels.pushed.push(label);
    }

    /// The key's outermost label was popped; the Ethernet type was `before`.
    pub(super) fn popped_label(&mut self, before: u16) {
        self.change_labels(before);
        self.take_pending(MPLS);
        self.key_labels.pop();
    }

    /// The two outermost labels of the key were rewritten; the Ethernet type is `before`.
    pub(super) fn rewrote_labels(&mut self, before: u16) {
        self.popped_label(before);
        self.replace_key_label();
        self.pushed_label(before);
    }

    /// Emits an action on the packet as the key says that it is.
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

    /// An action was done, or would have been if there were what it is for.
    pub(super) const fn count_action(&mut self) -> Result<(), TraversalError> {
        self.count += 1;
        if self.count > ACTIONS_MAX {
            return Err(TraversalError::TooManyActions(ACTIONS_MAX));
        }
        Ok(())
    }

    /// What is to be put back after a clone that begins now.
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

    /// The key is again as it was when this was saved.
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
            // A tag or a label that was emitted is another one: it is pushed whole.
            self.pending.words_mut()[VLAN] = 0;
            self.pending.words_mut()[MPLS] = 0;
            self.pending.add(&saved.pending);
            self.key_tags = saved.key_tags;
            self.key_labels = saved.key_labels;
        }
        self.emitted.add(&saved.emitted);
        Ok(())
    }

    /// Leaves what was emitted since this was saved to a copy of the packet.
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

    /// Whether the key says all about the packet on the wire once it is committed: a meter that may
    /// have changed it decides how later clones are undone.
    pub(super) const fn is_told_by_key(&self) -> bool {
        self.metering.remarks == 0
    }

    /// Number of actions so far, those inside copies too.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// All that was emitted.
    pub(super) fn finish(self) -> Vec<DatapathAction> {
        self.actions
    }

    /// Makes the packet on the wire what the key says that it is.
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

    /// Whether bits of the outermost tag were pending; they are not any more.
    fn take_pending_tag(&mut self) -> bool {
        self.take_pending(VLAN)
    }

    fn take_pending(&mut self, word: usize) -> bool {
        std::mem::take(&mut self.pending.words_mut()[word]) != 0
    }

    /// Labels of the key are about to change. Until the first change the wire has its type.
    fn change_labels(&mut self, before: u16) {
        self.wire_type.get_or_insert(before);
        self.wrote();
    }

    /// The key's outermost label is not any more the one that came in or was pushed.
    fn replace_key_label(&mut self) {
        let label = self.new_identity();
        self.key_labels.pop();
        self.key_labels.pushed.push(label);
    }

    /// The key's outermost tag is not any more the one that came in or was pushed.
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

    /// How many to pop off `self` and then to push, to get `other`.
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

/// Tag protocol identifier and tag control information of a tag in the key.
const fn tag(key: &FlowKey, shift: u32) -> [u8; 4] {
    entry(key, VLAN, shift).to_be_bytes()
}

/// The half of a word that a tag or a label fills.
#[expect(clippy::cast_possible_truncation, reason = "the half is what is asked for")]
const fn entry(key: &FlowKey, word: usize, shift: u32) -> u32 {
    (key.words()[word] >> shift) as u32
}
