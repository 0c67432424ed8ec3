//! One piece of a traversal as a cache entry.
//!
//! # What a rule says
//!
//! *A packet that arrives with this tag, and whose headers agree under the mask, makes these visits:
//! `actions` happen to it, its headers are then `rewrite` where that writes, and it goes on with the
//! next tag, or has come to its end.* That holds for every packet, whichever rule of the stage before
//! gave it the tag; it is all that a chain needs ("GIGAFLOW: Rethinking the Fast Path", chapter 3;
//! why it is enough is in `docs/gigaflow.md`).
//!
//! # Two views of one thing
//!
//! `actions` is what happens to the frame, in order, outputs in the middle included. `rewrite` is what
//! the next stage sees: which header bits were written, also those whose value happened to be that of
//! the packet which made the rule. Whoever looks up before it executes, as the software does, uses
//! both; a target that rewrites headers as it goes, as hardware does, takes [`LtmRule::plain`].

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_pipeline::{DatapathAction, DatapathPort};

/// A name of hidden state: where the way of a packet goes on, and with what.
///
/// It never lies in a header, so that no packet can bring one. Which state it names, only a
/// [`TagSpace`](crate::tag::TagSpace) knows; numbers of tags that nobody uses any more are used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u32);

/// A piece of a traversal. Two that are equal are one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LtmRule {
    /// The tag that packets arrive with.
    pub tag: Tag,
    /// The headers that they have as they arrive, `in_port` included. It holds every bit that a
    /// lookup or an action of the piece consulted and that the piece had not written before, and no
    /// hidden word: those are constants of the tag.
    pub matching: Match,
    /// How many lookups it stands for: of several rules that match, the longest wins.
    pub length: u16,
    /// What happens to the packet, in order. It becomes visible at the end of the chain.
    pub actions: Arc<[DatapathAction]>,
    /// The header bits that the piece wrote, with their values, as the next stage sees them.
    pub rewrite: Match,
    /// How the packet goes on.
    pub next: Next,
}

/// How a packet goes on behind a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// In a later stage, with this tag.
    Tag(Tag),
    /// Nowhere: this was the last piece of its way.
    End,
}

/// A rule that does no more than rewrite headers and then send the packet to one port at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The header bits that are written, with their values; of the last piece too.
    pub rewrite: Match,
    /// The port that the packet is sent to as it is then; `None` with [`Next::End`]: it is dropped.
    pub output: Option<DatapathPort>,
    /// The output does nothing for packets that came in by this very port.
    pub unless_ingress: bool,
}

impl Tag {
    /// The tag of this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Its number, to index with.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LtmRule {
    /// The rule without its list of actions, if rewrites, and behind them at most one output of the
    /// whole frame, are all that it has. To push or to pop a VLAN tag is a rewrite of the fields of
    /// tags, where the match says which tags there are; but not to push one where another was popped:
    /// fields do not say that the tag is a new one, which has nothing of the other's drop-eligible bit.
    #[must_use]
    pub fn plain(&self) -> Option<Plain> {
        let mut headers = Headers::that_match(&self.matching);
        let mut rest = self.actions.iter();
        let (output, unless_ingress) = loop {
            match rest.next() {
                None => break (None, false),
                Some(DatapathAction::SetHeader(set)) => headers.set(set),
                Some(DatapathAction::PushVlan { tpid, tci }) => headers.push_tag(*tpid, *tci)?,
                Some(DatapathAction::PopVlan) => headers.pop_tag()?,
                Some(DatapathAction::Output { port, unless_ingress, max_len: None })
                    if rest.as_slice().is_empty() =>
                {
                    break (Some(*port), *unless_ingress);
                }
                Some(_) => return None,
            }
        };
        Some(Plain { rewrite: headers.written_over(&self.rewrite), output, unless_ingress })
    }
}

/// What is known of the headers of every packet of a rule while its actions are done.
struct Headers {
    key: FlowKey,
    known: FlowMask,
    written: FlowMask,
    /// A tag that came in is gone.
    is_popped: bool,
}

/// The type of a tag and its control information; zeros: there is none.
type VlanTag = (u128, u128);

const OUTER: (FieldId, FieldId) = (FieldId::VlanTpid, FieldId::VlanTci);
const INNER: (FieldId, FieldId) = (FieldId::VlanTpid1, FieldId::VlanTci1);
/// The bit of the control information that says that there is a tag.
const TCI_PRESENT: u128 = 0x1000;

impl Headers {
    fn that_match(matching: &Match) -> Self {
        let known = FlowMask::from(matching.mask());
        Self { key: matching.key(), known, written: FlowMask::EMPTY, is_popped: false }
    }

    fn set(&mut self, set: &Match) {
        for ((index, bits), value) in set.mask().iter().zip(set.value()) {
            let word = &mut self.key.words_mut()[index];
            *word = *word & !bits | value;
            self.known.words_mut()[index] |= bits;
            self.written.words_mut()[index] |= bits;
        }
    }

    /// `None`: which tags there are then is not known, or there are more than a key has fields for, or
    /// the tag stands where another was.
    fn push_tag(&mut self, tpid: u16, tci: u16) -> Option<()> {
        let outer = self.tag(OUTER)?;
        let is_lost = outer != (0, 0) && self.tag(INNER)? != (0, 0);
        (!is_lost && !self.is_popped).then(|| self.set_tags((tpid.into(), tci.into()), outer))
    }

    /// `None`: which tag there is then is not known.
    fn pop_tag(&mut self) -> Option<()> {
        let inner = self.tag(INNER)?;
        self.set_tags(inner, (0, 0));
        self.is_popped = true;
        Some(())
    }

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

    fn set_tags(&mut self, outer: VlanTag, inner: VlanTag) {
        for ((tpid, tci), tag) in [(OUTER, outer), (INNER, inner)] {
            for (field, value) in [(tpid, tag.0), (tci, tag.1)] {
                self.key.set_field(field, value);
                self.known.add_field(field);
                self.written.add_field(field);
            }
        }
    }

    /// What a rewrite and the actions write together. Behind the last piece nobody looks up anything,
    /// so that what it writes is in its actions alone.
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

    fn set(fields: &[(FieldId, u128)]) -> Match {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        for (field, value) in fields {
            key.set_field(*field, *value);
            mask.add_field(*field);
        }
        Match::new(&key, &mask)
    }

    /// The fields of both tags.
    fn tags([outer, inner]: [VlanTag; 2]) -> Match {
        set(&[(OUTER.0, outer.0), (OUTER.1, outer.1), (INNER.0, inner.0), (INNER.1, inner.1)])
    }

    #[test]
    fn tags_that_come_and_go_are_written_where_it_is_known_which_there_are() {
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
    fn what_the_last_piece_writes_is_in_its_actions() {
        let (ttl, port) = (FieldId::NwTtl, FieldId::UdpDst);
        let first = DatapathAction::SetHeader(set(&[(ttl, 9), (port, 1)]));
        let second = DatapathAction::SetHeader(set(&[(port, 3)]));
        let rule = rule(vec![first, second, output()]);
        let plain = rule.plain().unwrap();
        assert_eq!(plain.rewrite, set(&[(ttl, 9), (port, 3)]));
    }

    fn output() -> DatapathAction {
        let port = DatapathPort::new(2);
        DatapathAction::Output { port, unless_ingress: true, max_len: None }
    }

    #[test]
    fn rewrites_before_one_output_are_plain_and_nothing_else_is() {
        let set = || DatapathAction::SetHeader(Match::any());
        let outputs = |actions| rule(actions).plain().map(|plain| plain.output);
        assert_eq!(outputs(vec![]), Some(None));
        assert_eq!(outputs(vec![set()]), Some(None));
        assert_eq!(outputs(vec![set(), output()]), Some(Some(DatapathPort::new(2))));
        for actions in [
            vec![output(), set()],
            vec![output(), output()],
            vec![DatapathAction::PopVlan, output()],
            vec![DatapathAction::OutputIngress { max_len: None }],
        ] {
            assert_eq!(outputs(actions.clone()), None, "{actions:?}");
        }
    }
}
