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
//! **Tags.** A VLAN tag has an identity, which stands for its value: a tag whose rewritten bits are
//! emitted becomes another one. The tags that both the packet on the wire and the key have are the
//! innermost ones; the others are popped from the wire, and those that only the key has are pushed,
//! whole. So a clone that rewrote a tag on the wire is undone by a pop and a push.

use shunt_flow::{
    FlowKey, FlowMask, Match,
    layout::{FLOW_WORDS, word},
};

use super::recorder::Recorder;
use crate::{DatapathAction, TraversalError};

/// The packet as the datapath actions so far leave it, as far as it differs from the key.
#[derive(Default)]
pub(super) struct Wire {
    actions: Vec<DatapathAction>,
    /// Header bits that were written since they were last emitted.
    pending: FlowMask,
    /// Header bits that were emitted since the state was last saved.
    emitted: FlowMask,
    /// The tags of the key.
    key_tags: Tags,
    /// The tags of the packet on the wire.
    wire_tags: Tags,
    /// The identity of the next new tag.
    next_tag: u32,
    /// Number of writes so far; a clone that writes nothing puts nothing back.
    writes: u64,
}

/// A stack of VLAN tags, as it differs from what came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tags {
    /// Number of tags that came in and are gone, outermost first.
    popped: usize,
    /// Identities of the tags above the others, outermost last.
    pushed: Vec<u32>,
}

/// What a clone puts back.
pub(super) struct Uncommitted {
    pending: FlowMask,
    emitted: FlowMask,
    key_tags: Tags,
    writes: u64,
}

/// The most datapath actions of one traversal.
pub(super) const ACTIONS_MAX: usize = 1 << 16;

const VLAN: usize = word::VLAN as usize;
/// First word that lies in the packet: the one before holds `in_port`.
const FIRST_PACKET_WORD: usize = word::ETH_DST as usize;

impl Wire {
    /// Bits of a word of the key were written.
    pub(super) fn wrote_word(&mut self, word: usize, bits: u64) {
        if word >= FIRST_PACKET_WORD {
            self.pending.words_mut()[word] |= bits;
            self.writes += 1;
        }
    }

    /// The inner of the key's two tags is gone.
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
        let tag = self.new_tag();
        self.key_tags.pushed.push(tag);
        self.writes += 1;
    }

    /// The key's outermost tag was popped.
    pub(super) fn popped_tag(&mut self) {
        self.take_pending_tag();
        self.key_tags.pop();
        self.writes += 1;
    }

    /// Emits an action on the packet as the key says that it is.
    pub(super) fn emit(
        &mut self,
        key: &FlowKey,
        recorder: &mut Recorder,
        action: DatapathAction,
    ) -> Result<(), TraversalError> {
        self.commit(key, recorder);
        self.actions.push(action);
        if self.actions.len() > ACTIONS_MAX {
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
            writes: self.writes,
        }
    }

    /// The key is again as it was when this was saved.
    pub(super) fn restore(&mut self, saved: Uncommitted) {
        if self.writes != saved.writes {
            self.pending.clone_from(&self.emitted);
            // A tag that was emitted is another one: it is pushed whole.
            self.pending.words_mut()[VLAN] = 0;
            self.pending.add(&saved.pending);
            self.key_tags = saved.key_tags;
        }
        self.emitted.add(&saved.emitted);
    }

    /// All that was emitted.
    pub(super) fn finish(self) -> Vec<DatapathAction> {
        self.actions
    }

    fn commit(&mut self, key: &FlowKey, recorder: &mut Recorder) {
        if self.wire_tags != self.key_tags {
            self.commit_tags(key, recorder);
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

    /// Whether bits of the outermost tag were pending; they are not any more.
    fn take_pending_tag(&mut self) -> bool {
        std::mem::take(&mut self.pending.words_mut()[VLAN]) != 0
    }

    /// The key's outermost tag is not any more the one that came in or was pushed.
    fn replace_key_tag(&mut self) {
        let tag = self.new_tag();
        self.key_tags.pop();
        self.key_tags.pushed.push(tag);
    }

    const fn new_tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }
}

impl Tags {
    fn pop(&mut self) {
        if self.pushed.pop().is_none() {
            self.popped += 1;
        }
    }

    /// How many tags to pop off `self` and then to push, to get `other`.
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
#[expect(clippy::cast_possible_truncation, reason = "a tag is half of its word")]
const fn tag(key: &FlowKey, shift: u32) -> [u8; 4] {
    ((key.words()[VLAN] >> shift) as u32).to_be_bytes()
}
