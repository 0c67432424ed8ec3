//! The contract with an offload device, which holds LTM rules for packets that it forwards itself.
//!
//! An example is a NIC that is driven over P4Runtime. The stages of a packet thread are no offload
//! device. A call of [`Ltm`](crate::ltm::Ltm) is complete when it returns, and its entries cannot
//! be lost.
//!
//! One thread, the *owner*, drives a device. The owner submits [`Operation`]s in batches and never
//! waits. [`OffloadDevice::poll`] reports the result of each operation by its [`Ticket`], in any
//! order. Nothing else in the contract is asynchronous, so a device behind a network hides its
//! async runtime.
//!
//! # The rules for the owner
//!
//! - An entry has at most one pending operation: a removal waits for the result of the insertion.
//! - The removal of entries that a version made stale is confirmed before an entry of that version
//!   is inserted.
//! - Entries are inserted in the last stage first and removed in the first stage first, so no
//!   packet gets a tag without an entry for it in a later stage.
//! - The number of a tag is reused only if the device holds no rule with the tag. All packets that
//!   the device passed on with the tag must have been processed before.
//!
//! # The rules for the device
//!
//! - Every accepted operation is completed exactly once. If the device is lost, its operations are
//!   completed with [`OffloadError::Lost`]. The contents of the device are then unknown until
//!   [`OffloadEvent::Restored`].
//! - A device refuses a rule that it cannot hold exactly, and never holds a rule that matches more
//!   packets.

use std::{collections::BTreeSet, sync::Arc};

use shunt_flow::{FieldId, FlowMask, Match, prerequisite};
use shunt_pipeline::{DatapathAction, DatapathPort};

use crate::{
    ltm::{LtmRule, Next},
    partition::StageId,
};

/// A device that holds LTM rules in stages, and forwards packets by them itself.
pub trait OffloadDevice {
    /// Returns the capabilities of the device.
    /// Of the capabilities, only the ports may change while the device is connected.
    fn capabilities(&self) -> &OffloadCapabilities;

    /// Returns whether the device was connected at the last poll.
    ///
    /// A device that never connected counts as lost.
    fn is_connected(&self) -> bool;

    /// Returns the number of free entries of a stage.
    ///
    /// Pending operations count as complete.
    fn room(&self, stage: StageId) -> usize;

    /// Submits operations, which start in this order.
    ///
    /// Operations for which the device has no room stay in `batch`; the caller submits them again
    /// later.
    ///
    /// # Errors
    ///
    /// Fails if the device is lost. After an error, the device has accepted no operation.
    fn submit(&mut self, batch: &mut Vec<(Ticket, Operation)>) -> Result<(), Lost>;

    /// Appends the events since the last poll, and returns at once.
    fn poll(&mut self, events: &mut Vec<OffloadEvent>);

    /// Announces to a lost device that the owner will remove this entry.
    ///
    /// A device that restores its confirmed entries may then omit this entry. The later removal
    /// works in both cases.
    fn forget(&mut self, _entry: LtmIndex) {}
}

/// The number of an operation, chosen by the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The number of an entry of a device, chosen by the owner and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LtmIndex(pub u64);

/// An operation on a device.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Insert an entry into a stage.
    Insert {
        /// The number of the new entry.
        entry: LtmIndex,
        /// Stage of the entry.
        stage: StageId,
        /// Rule of the entry.
        rule: Arc<LtmRule>,
    },
    /// Replace the rule of an entry. The match and the length of the entry stay.
    Modify {
        /// The entry to change.
        entry: LtmIndex,
        /// The rule that replaces the former one.
        rule: Arc<LtmRule>,
    },
    /// Remove an entry. The device reports the final counters of the entry.
    Remove {
        /// The entry to remove.
        entry: LtmIndex,
    },
    /// Read the counters of entries, in one request if the device can.
    Count {
        /// The entries with the counters to read.
        entries: Vec<LtmIndex>,
    },
}

/// An event that a device reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffloadEvent {
    /// An operation is complete: it succeeded or failed.
    Completed {
        /// The ticket of the operation.
        ticket: Ticket,
        /// Result of the operation.
        result: Result<(), OffloadError>,
    },
    /// The counters of an entry since it was inserted.
    Counted {
        /// The entry with these counters.
        entry: LtmIndex,
        /// Hits of the entry.
        counters: Counters,
    },
    /// An entry had no hit during the configured idle timeout.
    Idle {
        /// The entry without hits.
        entry: LtmIndex,
    },
    /// The device is lost: its contents are unknown.
    Lost(Lost),
    /// The device is connected again, and holds exactly the entries that it confirmed.
    Restored,
}

/// The hits of an LTM entry of a device since it was inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of packets that matched the entry.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// The capabilities of a device.
#[derive(Clone, Debug)]
pub struct OffloadCapabilities {
    /// Maximum number of entries of each stage, first stage first.
    pub stage_entries: Box<[usize]>,
    /// The bits of a key that a rule may match, without hidden words.
    pub matches: FlowMask,
    /// The bits of a key that a rule may write.
    pub writes: FlowMask,
    /// Maximum number of different masks per stage; `None`: no limit.
    pub masks_max: Option<usize>,
    /// Maximum number of bits that one rule may match; `None`: no limit.
    pub key_bits_max: Option<u32>,
    /// Number of bits of a tag between stages.
    pub tag_bits: u8,
    /// Maximum number of table lookups that one rule may replace.
    ///
    /// The value is the greatest number of lookups of a translation, divided by the number of
    /// stages. So no chain replaces more lookups than a translation may make.
    pub length_max: u16,
    /// The kinds of actions that the device can execute.
    pub effects: Effects,
    /// The ports that the device can send to; `None`: all.
    pub outputs: Option<BTreeSet<DatapathPort>>,
    /// True if the device counts the hits of each entry.
    pub counts: bool,
    /// True if the device reports idle entries.
    pub reports_idle: bool,
    /// True if [`Operation::Modify`] replaces a rule without a gap.
    pub modifies: bool,
}

/// The kinds of actions that a device can execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Rewrites, and one output or none at the end: see [`LtmRule::plain`].
    Plain,
    /// The device executes all actions.
    All,
}

/// The reason why a device refuses a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The rule matches a field that the device does not match with this mask.
    #[error("the device refuses the LTM entry: it cannot match the field {}", .0.name())]
    Match(FieldId),
    /// The rule matches bits that belong to no field.
    #[error("the device refuses the LTM entry: it cannot match all bits that the entry matches")]
    MatchUnnamed,
    /// The rule writes a field that the device does not write.
    #[error("the device refuses the LTM entry: it cannot write the field {}", .0.name())]
    Write(FieldId),
    /// The rule writes bits that belong to no field.
    #[error("the device refuses the LTM entry: it cannot write all bits that the entry writes")]
    WriteUnnamed,
    /// The device cannot execute an action of the rule, or not in this position.
    #[error("the device refuses the LTM entry: it cannot execute the actions of the entry")]
    Actions,
    /// The rule sends to a port that the device does not have.
    #[error("the device refuses the LTM entry: the device has no port {}", .0.number())]
    Output(DatapathPort),
    /// The rule replaces more table lookups than one rule may.
    #[error(
        "the device refuses the LTM entry: the entry replaces {length} table lookups, and may \
         replace at most {max}"
    )]
    Length {
        /// Number of table lookups that the rule replaces.
        length: u16,
        /// Maximum number of table lookups that one rule may replace.
        max: u16,
    },
    /// The number of a tag is too large.
    #[error(
        "the device refuses the LTM entry: the tag of the entry has more than {0} bits, the width \
         of tags in the device"
    )]
    Tag(u8),
    /// The stage has reached its greatest number of masks.
    #[error("the device refuses the LTM entry: its stage has no room for another mask")]
    Masks,
    /// The rule matches more bits than a key of the device has.
    #[error(
        "the device refuses the LTM entry: the entry matches more bits than a key of the device \
         has"
    )]
    KeyBits,
}

/// The reason why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// The device cannot hold the rule.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The stage of the device is full.
    #[error("the stage of the device is full")]
    NoRoom,
    /// The device has no such stage.
    #[error("the device has no stage {0} for LTM entries")]
    NoSuchStage(u8),
    /// The stage holds an entry with this tag, match and length.
    #[error("the stage of the device already holds an LTM entry with this tag, match and length")]
    Exists,
    /// The device has no such entry.
    #[error("the device does not have the LTM entry that it is to change or remove")]
    NoSuchEntry,
    /// The device was lost before it replied, so the result is unknown.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The device replied with an error that the protocol does not allow.
    ///
    /// The number is its code.
    #[error("the device replied with the error code {0}, which the protocol does not allow")]
    Failed(i32),
}

/// The device is not connected, or does not reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device did not reply in time, or its connection is lost")]
pub struct Lost;

impl Operation {
    /// Returns the entry that the operation inserts, modifies or removes.
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
    /// Returns the number of LTM stages of the device.
    #[must_use]
    pub fn stages_count(&self) -> usize {
        self.stage_entries.len()
    }

    /// Checks whether the device can hold a rule exactly.
    ///
    /// The device itself checks the limits that depend on other entries: room and number of masks.
    ///
    /// # Errors
    ///
    /// Returns the reason why the device cannot hold the rule.
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
    /// Returns whether the device can execute the actions of `rule`.
    fn include(self, rule: &LtmRule) -> bool {
        let is_executed = |action: &DatapathAction| {
            !matches!(
                action,
                DatapathAction::Recirculate(_)
                    | DatapathAction::CheckLength { .. }
                    | DatapathAction::Sample(_)
            )
        };
        match self {
            Self::All => rule.actions.iter().all(is_executed),
            // A device would execute an output before the end even if a later stage misses.
            Self::Plain => {
                rule.plain().is_some_and(|plain| plain.output.is_none() || rule.next == Next::End)
            }
        }
    }
}

/// Returns a field with bits in `mask` that are not in `allowed`.
///
/// A field that the packets of the match have is preferred.
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
    use shunt_pipeline::QueueId;

    use super::*;
    use crate::ltm::Tag;

    /// Returns a mask of whole fields.
    fn mask(fields: &[FieldId]) -> FlowMask {
        let mut mask = FlowMask::EMPTY;
        fields.iter().for_each(|field| mask.add_field(*field));
        mask
    }

    /// Returns the capabilities of a small device.
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

    /// Returns a rule that the device can hold.
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
    fn a_refusal_names_what_the_device_lacks() {
        let matching = |field| Match::new(&FlowKey::ZERO, &mask(&[field]));
        let wide = Match::new(&FlowKey::ZERO, &mask(&[FieldId::EthDst, FieldId::Ipv4Dst]));
        let output = DatapathAction::Output {
            port: DatapathPort::new(1),
            queue: QueueId::DEFAULT,
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
        let output = DatapathAction::Output {
            port,
            queue: QueueId::DEFAULT,
            unless_ingress: true,
            max_len: None,
        };
        let rule = LtmRule { actions: [output].into(), ..rule() };
        for (outputs, expected) in [(vec![port], Ok(())), (vec![], Err(Refusal::Output(port)))] {
            let outputs = Some(outputs.into_iter().collect());
            assert_eq!(OffloadCapabilities { outputs, ..capabilities() }.check(&rule), expected);
        }
    }

    #[test]
    fn a_refusal_names_the_field_that_packets_have() {
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
