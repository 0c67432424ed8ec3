//! LTM rules: one sub-traversal as a cache entry.
//!
//! # The meaning of a rule
//!
//! *A packet that has the tag of the rule and matches under the mask makes the visits of this
//! sub-traversal. The packet gets `actions`, `rewrite` changes its headers, and it continues with
//! the next tag or its traversal ends.*
//!
//! This meaning holds for every packet with the tag, whichever rule of an earlier stage set the
//! tag. Therefore any chain of matching entries is correct. The source is "GIGAFLOW: Rethinking the
//! Fast Path", chapter 3, and `docs/gigaflow.md` has the proof.
//!
//! # Actions and rewrite
//!
//! `actions` are the effects on the frame in order, including outputs before the end. `rewrite` has
//! the header bits that were written, with their values, for the match in the next stage. `rewrite`
//! also has written bits that did not change the headers of the first packet. The software cache
//! uses both forms: it looks up all stages before it executes actions. A device that rewrites
//! headers stage by stage uses [`LtmRule::plain`].

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_pipeline::{DatapathAction, DatapathPort, QueueId};

/// A tag: the number of the state in which a packet continues in a later stage.
///
/// A tag is never in a header, so no packet can forge one. A [`TagSpace`](crate::tag::TagSpace)
/// maps tags to states, and reuses the numbers of unused tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u32);

/// A sub-traversal as a rule of a stage. Equal rules are one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LtmRule {
    /// The tag that packets must have to match the rule.
    pub tag: Tag,
    /// The headers that packets must have to match the rule, including `in_port`.
    ///
    /// The mask has every bit that a table lookup or an action of the sub-traversal consulted,
    /// unless the sub-traversal had written the bit before. The mask has no hidden word, since all
    /// packets with one tag have the same hidden words.
    pub matching: Match,
    /// Number of table lookups that the entry replaces.
    ///
    /// If several rules match, the rule with the greatest length wins.
    pub length: u16,
    /// The actions on the packet, in order.
    /// The software cache executes the actions when the packet has reached the end of the chain.
    pub actions: Arc<[DatapathAction]>,
    /// The header bits that the sub-traversal wrote, with the written values.
    pub rewrite: Match,
    /// The next tag of the packet, or the end of its traversal.
    pub next: Next,
}

/// The next tag of a packet that matched an LTM rule, or the end of its traversal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The packet continues in a later stage with this tag.
    Tag(Tag),
    /// The traversal of the packet ends here.
    End,
}

/// A rule that only rewrites headers and then sends the packet to at most one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainRule {
    /// The header bits that the rule writes, with the written values.
    pub rewrite: Match,
    /// The port that the rewritten packet is sent to.
    ///
    /// With `None` and [`Next::End`] the packet is dropped.
    pub output: Option<DatapathPort>,
    /// True if the output skips packets that arrived on the same port.
    pub unless_ingress: bool,
}

impl Tag {
    /// Creates the tag with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the tag.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the number of the tag as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LtmRule {
    /// Returns the rule as a rewrite and an output, if it has no other effects.
    ///
    /// The actions may be rewrites, and after them at most one output of the whole frame. A push or
    /// pop of a VLAN tag counts as a rewrite of the tag fields if the match fixes the tags of the
    /// packet. A push after a pop does not count, because a rewrite cannot clear the drop-eligible
    /// bit of the popped tag.
    #[must_use]
    pub fn plain(&self) -> Option<PlainRule> {
        let mut headers = TrackedHeaders::that_match(&self.matching);
        let mut rest = self.actions.iter();
        let (output, unless_ingress) = loop {
            match rest.next() {
                None => break (None, false),
                Some(DatapathAction::SetHeader(set)) => headers.set(set),
                Some(DatapathAction::PushVlan { tpid, tci }) => headers.push_tag(*tpid, *tci)?,
                Some(DatapathAction::PopVlan) => headers.pop_tag()?,
                Some(DatapathAction::Output {
                    port,
                    queue: QueueId::DEFAULT,
                    unless_ingress,
                    max_len: None,
                }) if rest.as_slice().is_empty() => {
                    break (Some(*port), *unless_ingress);
                }
                Some(_) => return None,
            }
        };
        Some(PlainRule { rewrite: headers.written_over(&self.rewrite), output, unless_ingress })
    }
}

/// The common headers of all packets of a rule, while its actions are applied.
struct TrackedHeaders {
    /// The values of the known headers.
    key: FlowKey,
    /// The bits that are equal in all packets.
    known: FlowMask,
    /// The bits that actions have written.
    written: FlowMask,
    /// True after a VLAN tag was popped.
    is_popped: bool,
}

/// The TPID and TCI of a VLAN tag; zeros mean no tag.
type VlanTag = (u128, u128);

/// The TPID and TCI fields of the outer tag.
const OUTER: (FieldId, FieldId) = (FieldId::VlanTpid, FieldId::VlanTci);
/// The TPID and TCI fields of the inner tag.
const INNER: (FieldId, FieldId) = (FieldId::VlanTpid1, FieldId::VlanTci1);
/// The bit of the TCI field that is set if there is a tag.
const TCI_PRESENT: u128 = 0x1000;

impl TrackedHeaders {
    /// Returns the headers of packets that match `matching`.
    fn that_match(matching: &Match) -> Self {
        let known = FlowMask::from(matching.mask());
        Self { key: matching.key(), known, written: FlowMask::EMPTY, is_popped: false }
    }

    /// Writes values into the tracked headers.
    fn set(&mut self, set: &Match) {
        for ((index, bits), value) in set.mask().iter().zip(set.value()) {
            let word = &mut self.key.words_mut()[index];
            *word = *word & !bits | value;
            self.known.words_mut()[index] |= bits;
            self.written.words_mut()[index] |= bits;
        }
    }

    /// Pushes a VLAN tag onto the tracked headers.
    ///
    /// `None` means that the present tags are not known, that both tags of the key are in use, or
    /// that a tag was popped before.
    fn push_tag(&mut self, tpid: u16, tci: u16) -> Option<()> {
        let outer = self.tag(OUTER)?;
        let is_lost = outer != (0, 0) && self.tag(INNER)? != (0, 0);
        (!is_lost && !self.is_popped).then(|| self.set_tags((tpid.into(), tci.into()), outer))
    }

    /// Pops the outer VLAN tag; `None` means that the inner tag is not known.
    fn pop_tag(&mut self) -> Option<()> {
        let inner = self.tag(INNER)?;
        self.set_tags(inner, (0, 0));
        self.is_popped = true;
        Some(())
    }

    /// Returns a VLAN tag, if its bits are known.
    fn tag(&self, (tpid, tci): (FieldId, FieldId)) -> Option<VlanTag> {
        if self.known.field(tci) & TCI_PRESENT == 0 {
            return None;
        }
        if self.key.field(tci) & TCI_PRESENT == 0 {
            return Some((0, 0));
        }
        let is_known = self.known.field(tpid) == 0xffff && self.known.field(tci) == 0xffff;
        is_known.then(|| (self.key.field(tpid), self.key.field(tci)))
    }

    /// Writes both VLAN tags, and marks them as known and written.
    fn set_tags(&mut self, outer: VlanTag, inner: VlanTag) {
        for ((tpid, tci), tag) in [(OUTER, outer), (INNER, inner)] {
            for (field, value) in [(tpid, tag.0), (tci, tag.1)] {
                self.key.set_field(field, value);
                self.known.add_field(field);
                self.written.add_field(field);
            }
        }
    }

    /// Returns the bits that the rewrite and the actions write together.
    ///
    /// No stage follows the last entry of a traversal, so only its actions have its writes.
    fn written_over(&self, rewrite: &Match) -> Match {
        let (mut key, mut mask) = (rewrite.key(), FlowMask::from(rewrite.mask()));
        for (index, bits) in self.written.words().iter().enumerate() {
            let word = &mut key.words_mut()[index];
            *word = *word & !bits | self.key.words()[index] & bits;
            mask.words_mut()[index] |= bits;
        }
        Match::new(&key, &mask)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Returns a rule with some actions.
    fn rule(actions: Vec<DatapathAction>) -> LtmRule {
        LtmRule {
            tag: Tag::new(0),
            matching: Match::any(),
            length: 1,
            actions: actions.into(),
            rewrite: Match::any(),
            next: Next::End,
        }
    }

    /// Returns a match of some fields.
    fn set(fields: &[(FieldId, u128)]) -> Match {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        for (field, value) in fields {
            key.set_field(*field, *value);
            mask.add_field(*field);
        }
        Match::new(&key, &mask)
    }

    /// Returns a match of the fields of both VLAN tags.
    fn tags([outer, inner]: [VlanTag; 2]) -> Match {
        set(&[(OUTER.0, outer.0), (OUTER.1, outer.1), (INNER.0, inner.0), (INNER.1, inner.1)])
    }

    #[test]
    fn push_and_pop_rewrite_known_tags() {
        let (none, red, blue) = ((0, 0), (0x8100, 0x1007), (0x88a8, 0x1009));
        let push = || DatapathAction::PushVlan { tpid: 0x8100, tci: 0x1007 };
        let pop = || DatapathAction::PopVlan;
        let rewrite = |matching, actions: Vec<DatapathAction>| {
            let rule = LtmRule { matching, ..rule(actions) };
            rule.plain().map(|plain| plain.rewrite)
        };
        let untagged = || set(&[(FieldId::VlanTci, 0)]);
        assert_eq!(rewrite(untagged(), vec![push(), output()]), Some(tags([red, none])));
        let priority = DatapathAction::SetHeader(set(&[(FieldId::VlanTci, 0x3007)]));
        let other = (0x8100, 0x3007);
        assert_eq!(rewrite(untagged(), vec![push(), priority]), Some(tags([other, none])));
        assert_eq!(rewrite(untagged(), vec![push(), push()]), Some(tags([red, red])));
        assert_eq!(rewrite(tags([blue, none]), vec![push()]), Some(tags([red, blue])));
        assert_eq!(rewrite(tags([blue, red]), vec![pop()]), Some(tags([red, none])));
        assert_eq!(rewrite(untagged(), vec![push(), pop()]), Some(tags([none, none])));
        for (matching, actions) in [
            (Match::any(), vec![push()]),
            (Match::any(), vec![pop()]),
            (set(&[(FieldId::VlanTci, 0x1009)]), vec![push()]),
            (tags([blue, red]), vec![push()]),
            (tags([blue, none]), vec![pop(), push()]),
        ] {
            assert_eq!(
                rewrite(matching.clone(), actions.clone()),
                None,
                "{matching:?} {actions:?}"
            );
        }
    }

    #[test]
    fn writes_of_last_entry_come_from_actions() {
        let (ttl, port) = (FieldId::NwTtl, FieldId::UdpDst);
        let first = DatapathAction::SetHeader(set(&[(ttl, 9), (port, 1)]));
        let second = DatapathAction::SetHeader(set(&[(port, 3)]));
        let rule = rule(vec![first, second, output()]);
        let plain = rule.plain().unwrap();
        assert_eq!(plain.rewrite, set(&[(ttl, 9), (port, 3)]));
    }

    /// Returns an output to a port.
    fn output() -> DatapathAction {
        let port = DatapathPort::new(2);
        DatapathAction::Output {
            port,
            queue: QueueId::DEFAULT,
            unless_ingress: true,
            max_len: None,
        }
    }

    #[test]
    fn only_rewrites_with_one_output_are_plain() {
        let set = || DatapathAction::SetHeader(Match::any());
        let outputs = |actions| rule(actions).plain().map(|plain| plain.output);
        assert_eq!(outputs(vec![]), Some(None));
        assert_eq!(outputs(vec![set()]), Some(None));
        assert_eq!(outputs(vec![set(), output()]), Some(Some(DatapathPort::new(2))));
        for actions in [
            vec![output(), set()],
            vec![output(), output()],
            vec![DatapathAction::PopVlan, output()],
            vec![DatapathAction::OutputIngress { queue: QueueId::DEFAULT, max_len: None }],
        ] {
            assert_eq!(outputs(actions.clone()), None, "{actions:?}");
        }
    }
}
