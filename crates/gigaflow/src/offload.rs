//! The contract with whatever holds LTM rules for packets that it forwards itself, as a NIC behind
//! P4Runtime does.
//!
//! The stages of a packet thread are none: what is asked of [`Ltm`](crate::ltm::Ltm) is done when it
//! answers, and it cannot be lost.
//!
//! One thread owns a target. It hands over [`Operation`]s in batches and never waits: what became of
//! each is told by [`OffloadDevice::poll`], in any order, by the operation's [`Ticket`]. That is all the
//! asynchrony there is, so a target that lives behind a network keeps its runtime to itself.
//!
//! # What an owner keeps to
//!
//! - One operation at a time per entry: a removal waits for the answer to the insertion.
//! - What a version made stale is confirmed gone before a piece of that version goes in.
//! - Pieces go in last stage first and out first stage first, so that no packet walks into a hole.
//! - The number of a tag is used again only when the target holds no rule with it, in or out, and the
//!   packets that it handed over before that was confirmed have been dealt with.
//!
//! # What a target keeps to
//!
//! - Every operation that was taken is answered exactly once, also when the target is lost: then by
//!   [`OffloadError::Lost`], and what it holds is unknown until [`OffloadEvent::Restored`], which follows.
//! - A rule that it cannot hold as it is, it refuses. It never holds a wider one.

use std::{collections::BTreeSet, sync::Arc};

use shunt_flow::{FieldId, FlowMask, Match, prerequisite};
use shunt_pipeline::{DatapathAction, DatapathPort};

use crate::{
    ltm::{LtmRule, Next},
    partition::StageId,
};

/// Holds LTM rules in stages, for packets that it forwards itself.
pub trait OffloadDevice {
    /// What it can hold and do; the same for as long as it is connected, but for ports that come.
    fn capabilities(&self) -> &OffloadCapabilities;

    /// Whether it answers, as far as is known from what was polled. What was never there is lost too.
    fn is_there(&self) -> bool;

    /// How many entries more a stage can take, as far as is known: what is under way counts as done.
    fn room(&self, stage: StageId) -> usize;

    /// Hands over operations, which are begun in this order. What does not fit any more stays in
    /// `batch`, and is handed over again later.
    ///
    /// # Errors
    ///
    /// The target is lost: nothing was taken.
    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost>;

    /// Adds what has happened since it was last asked, and returns at once.
    fn poll(&mut self, events: &mut Vec<OffloadEvent>);

    /// While it is lost: this entry is to be removed as soon as it is back. One that is restored to what
    /// it has confirmed may leave it out at once; what is asked of it then is as ever.
    fn forget(&mut self, _entry: LtmIndex) {}
}

/// Names an operation to whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names an entry of a target to its owner: a number that is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LtmIndex(pub u64);

/// Something to do.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Add an entry.
    Insert {
        /// What it is called from now on.
        entry: LtmIndex,
        /// Where it goes.
        stage: StageId,
        /// What it says.
        rule: Arc<LtmRule>,
    },
    /// Replace what an entry says: its match and length stay as they are.
    Modify {
        /// Which.
        entry: LtmIndex,
        /// What it says from now on.
        rule: Arc<LtmRule>,
    },
    /// Take an entry out. The answer is the last count of its hits.
    Remove {
        /// Which.
        entry: LtmIndex,
    },
    /// Read the counters of these entries; all at once where the target can.
    Count {
        /// Which.
        entries: Vec<LtmIndex>,
    },
}

/// What a target tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffloadEvent {
    /// An operation is done, or has failed.
    Completed {
        /// Which.
        ticket: Ticket,
        /// Why it was not done.
        result: Result<(), OffloadError>,
    },
    /// What an entry has counted since it was inserted.
    Counted {
        /// Which.
        entry: LtmIndex,
        /// Its hits.
        counters: Counters,
    },
    /// An entry has not been hit for the time that the target was set up with.
    Idle {
        /// Which.
        entry: LtmIndex,
    },
    /// The target does not answer: what it holds is unknown.
    Lost(Lost),
    /// The target answers again, and holds just what it confirmed.
    Restored,
}

/// Hits of an entry since it was inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// What a target can hold and do.
#[derive(Clone, Debug)]
pub struct OffloadCapabilities {
    /// Entries of each stage, from the one that packets meet first.
    pub stage_entries: Box<[usize]>,
    /// The bits of a key that a rule may match; hidden words none.
    pub matches: FlowMask,
    /// The bits of a key that a rule may write.
    pub writes: FlowMask,
    /// Different masks that one stage may hold; `None`: as many as there are.
    pub masks_max: Option<usize>,
    /// Bits that one rule may match: the width of a key; `None`: all that there are.
    pub key_bits_max: Option<u32>,
    /// Bits of a tag on the way between stages.
    pub tag_bits: u8,
    /// Lookups of the pipeline that one rule may stand for: the bound of a translation by the number
    /// of stages, so that no chain makes more of them than a translation may.
    pub length_max: u16,
    /// What becomes of packets.
    pub effects: Effects,
    /// The ports that it can send to; `None`: all.
    pub outputs: Option<BTreeSet<DatapathPort>>,
    /// Whether hits are counted for each entry.
    pub counts: bool,
    /// Whether it tells of idle entries.
    pub reports_idle: bool,
    /// Whether [`Operation::Modify`] is done at once, without a time at which neither is there.
    pub modifies: bool,
}

/// Which actions a target can execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Rewrites, and one output or none at the end of the last piece: see [`LtmRule::plain`].
    Plain,
    /// All.
    All,
}

/// Why a target does not hold a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It consults a field that the target does not match, or not bit by bit.
    #[error("the target cannot match {}", .0.name())]
    Match(FieldId),
    /// It consults bits that no field names.
    #[error("the target cannot match all bits that the rule consults")]
    MatchUnnamed,
    /// It writes a field that the target does not write.
    #[error("the target cannot write {}", .0.name())]
    Write(FieldId),
    /// It writes bits that no field names.
    #[error("the target cannot write all bits that the rule writes")]
    WriteUnnamed,
    /// It does something that the target cannot do, or not at this place.
    #[error("the target cannot execute the actions of the rule")]
    Actions,
    /// It sends to a port that the target does not have.
    #[error("the target does not have port {} of the datapath", .0.number())]
    Output(DatapathPort),
    /// It stands for more lookups than a piece may.
    #[error("the rule stands for {length} lookups, more than {max}")]
    Length {
        /// Its lookups.
        length: u16,
        /// The most that a piece may have.
        max: u16,
    },
    /// The number of a tag is too large.
    #[error("the rule has a tag of more than {0} bits")]
    Tag(u8),
    /// The stage has as many masks as it may.
    #[error("the stage has no room for another mask")]
    Masks,
    /// It consults more bits than a key of the target has.
    #[error("the rule consults more bits than the target has in a key")]
    KeyBits,
}

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// The rule cannot be held.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The stage is full.
    #[error("the stage is full")]
    NoRoom,
    /// There is no such stage.
    #[error("there is no stage {0}")]
    NoSuchStage(u8),
    /// An entry with this tag, match and length is there already.
    #[error("there is an entry with this tag, match and length")]
    Exists,
    /// There is no such entry.
    #[error("there is no such entry")]
    NoSuchEntry,
    /// The target was lost before it answered: whether it was done is unknown.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The target answered what the protocol does not allow; its own code.
    #[error("the target failed with code {0}")]
    Failed(i32),
}

/// The target does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the target does not answer")]
pub struct Lost;

impl Operation {
    /// The entry that it writes.
    #[must_use]
    pub const fn entry(&self) -> Option<LtmIndex> {
        match self {
            Self::Insert { entry, .. } | Self::Modify { entry, .. } | Self::Remove { entry } => {
                Some(*entry)
            }
            Self::Count { .. } => None,
        }
    }
}

impl OffloadCapabilities {
    /// Number of stages.
    #[must_use]
    pub fn stages_count(&self) -> usize {
        self.stage_entries.len()
    }

    /// Whether a rule can be held as it is. What depends on what else is held, room and masks, the
    /// target says itself.
    ///
    /// # Errors
    ///
    /// Why it cannot be held.
    pub fn check(&self, rule: &LtmRule) -> Result<(), Refusal> {
        let matched = FlowMask::from(rule.matching.mask());
        if !matched.is_subset_of(&self.matches) {
            let field = first_beyond(&matched, &self.matches, &rule.matching);
            return Err(field.map_or(Refusal::MatchUnnamed, Refusal::Match));
        }
        if self.key_bits_max.is_some_and(|max| rule.matching.mask().bits_count() > max) {
            return Err(Refusal::KeyBits);
        }
        let plain = rule.plain();
        let rewrite = plain.as_ref().map_or(&rule.rewrite, |plain| &plain.rewrite);
        let written = FlowMask::from(rewrite.mask());
        if !written.is_subset_of(&self.writes) {
            let field = first_beyond(&written, &self.writes, &rule.matching);
            return Err(field.map_or(Refusal::WriteUnnamed, Refusal::Write));
        }
        if rule.length > self.length_max {
            return Err(Refusal::Length { length: rule.length, max: self.length_max });
        }
        let next = match rule.next {
            Next::Tag(tag) => Some(tag),
            Next::End => None,
        };
        let is_wide = |number: u32| number.checked_shr(self.tag_bits.into()).unwrap_or(0) != 0;
        if [Some(rule.tag), next].into_iter().flatten().any(|tag| is_wide(tag.number())) {
            return Err(Refusal::Tag(self.tag_bits));
        }
        if !self.effects.include(rule) {
            return Err(Refusal::Actions);
        }
        let missing = |action: &DatapathAction| match (action, &self.outputs) {
            (DatapathAction::Output { port, .. }, Some(own)) if !own.contains(port) => Some(*port),
            _ => None,
        };
        match rule.actions.iter().find_map(missing) {
            Some(port) => Err(Refusal::Output(port)),
            None => Ok(()),
        }
    }
}

impl Effects {
    fn include(self, rule: &LtmRule) -> bool {
        let is_executed = |action: &DatapathAction| {
            !matches!(action, DatapathAction::Recirculate(_) | DatapathAction::CheckLength { .. })
        };
        match self {
            Self::All => rule.actions.iter().all(is_executed),
            // What leaves before the end of the chain would be seen even if a later stage misses.
            Self::Plain => {
                rule.plain().is_some_and(|plain| plain.output.is_none() || rule.next == Next::End)
            }
        }
    }
}

/// A field with a bit in `mask` that `allowed` lacks. Of fields that share bits, one that packets of the
/// match have, as far as the match says what they are.
fn first_beyond(mask: &FlowMask, allowed: &FlowMask, matching: &Match) -> Option<FieldId> {
    let mut beyond = mask.clone();
    beyond.remove(allowed);
    let (key, known) = (matching.key(), FlowMask::from(matching.mask()));
    let fields = || FieldId::all().filter(|field| beyond.field(*field) != 0);
    let had = fields().find(|field| prerequisite::is_met(*field, &key, &known));
    had.or_else(|| fields().next())
}

#[cfg(test)]
mod tests {
    use shunt_flow::{
        FlowKey,
        text::{NoPortNames, parse_match},
    };

    use super::*;
    use crate::ltm::Tag;

    fn mask(fields: &[FieldId]) -> FlowMask {
        let mut mask = FlowMask::EMPTY;
        fields.iter().for_each(|field| mask.add_field(*field));
        mask
    }

    fn capabilities() -> OffloadCapabilities {
        OffloadCapabilities {
            stage_entries: [8, 8].into(),
            matches: mask(&[FieldId::EthDst, FieldId::Ipv4Dst]),
            writes: mask(&[FieldId::EthDst]),
            masks_max: None,
            key_bits_max: Some(48),
            tag_bits: 8,
            length_max: 16,
            effects: Effects::Plain,
            outputs: None,
            counts: true,
            reports_idle: true,
            modifies: true,
        }
    }

    fn rule() -> LtmRule {
        LtmRule {
            tag: Tag::new(255),
            matching: Match::new(&FlowKey::ZERO, &mask(&[FieldId::EthDst])),
            length: 16,
            actions: Arc::new([]),
            rewrite: Match::any(),
            next: Next::End,
        }
    }

    #[test]
    fn a_rule_that_a_target_cannot_hold_is_refused_by_name() {
        let matching = |field| Match::new(&FlowKey::ZERO, &mask(&[field]));
        let wide = Match::new(&FlowKey::ZERO, &mask(&[FieldId::EthDst, FieldId::Ipv4Dst]));
        let output = DatapathAction::Output {
            port: DatapathPort::new(1),
            unless_ingress: true,
            max_len: None,
        };
        let partial_hits = LtmRule { actions: [output].into(), ..rule() };
        let cases = [
            (rule(), Ok(())),
            (partial_hits.clone(), Ok(())),
            (LtmRule { next: Next::Tag(Tag::new(1)), ..partial_hits }, Err(Refusal::Actions)),
            (
                LtmRule { matching: matching(FieldId::EthSrc), ..rule() },
                Err(Refusal::Match(FieldId::EthSrc)),
            ),
            (LtmRule { matching: wide, ..rule() }, Err(Refusal::KeyBits)),
            (
                LtmRule { rewrite: matching(FieldId::Ipv4Dst), ..rule() },
                Err(Refusal::Write(FieldId::Ipv4Dst)),
            ),
            (LtmRule { length: 17, ..rule() }, Err(Refusal::Length { length: 17, max: 16 })),
            (LtmRule { next: Next::Tag(Tag::new(256)), ..rule() }, Err(Refusal::Tag(8))),
            (
                LtmRule { actions: [DatapathAction::PopVlan].into(), ..rule() },
                Err(Refusal::Actions),
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(capabilities().check(&rule), expected, "{rule:?}");
        }
        let port = DatapathPort::new(1);
        let output = DatapathAction::Output { port, unless_ingress: true, max_len: None };
        let rule = LtmRule { actions: [output].into(), ..rule() };
        for (outputs, expected) in [(vec![port], Ok(())), (vec![], Err(Refusal::Output(port)))] {
            let outputs = Some(outputs.into_iter().collect());
            assert_eq!(OffloadCapabilities { outputs, ..capabilities() }.check(&rule), expected);
        }
    }

    #[test]
    fn of_fields_that_share_bits_a_refusal_names_the_one_that_packets_have() {
        let known = [FieldId::EthType, FieldId::IpProto, FieldId::IcmpType];
        let capabilities = OffloadCapabilities {
            matches: mask(&known),
            key_bits_max: None,
            writes: FlowMask::EMPTY,
            ..capabilities()
        };
        for (text, field) in [
            ("icmp6,icmp_type=135,nd_target=::1", FieldId::NdTarget),
            ("ip,nw_dst=10.0.0.1", FieldId::Ipv4Dst),
            ("arp,arp_tpa=10.0.0.1", FieldId::ArpTpa),
            ("eth_type=0x894f,nsh_c3=1", FieldId::NshC3),
        ] {
            let matching = parse_match(text, &NoPortNames).unwrap();
            let refusal = capabilities.check(&LtmRule { matching, ..rule() });
            assert_eq!(refusal, Err(Refusal::Match(field)), "{text}");
        }
    }
}
