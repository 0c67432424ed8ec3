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

use shunt_flow::{FlowMask, Match};
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
    /// whole frame, are all that it has.
    #[must_use]
    pub fn plain(&self) -> Option<Plain> {
        let is_rewrite = |action: &&DatapathAction| matches!(action, DatapathAction::SetHeader(_));
        let rewrites_count = self.actions.iter().take_while(is_rewrite).count();
        let (output, unless_ingress) = match &self.actions[rewrites_count..] {
            [] => (None, false),
            [DatapathAction::Output { port, unless_ingress, max_len: None }] => {
                (Some(*port), *unless_ingress)
            }
            _ => return None,
        };
        let rewrite = written(&self.rewrite, &self.actions[..rewrites_count]);
        Some(Plain { rewrite, output, unless_ingress })
    }
}

/// What a rewrite and these actions behind it write together. Behind the last piece nobody looks up
/// anything, so that what it writes is in its actions alone.
fn written(rewrite: &Match, actions: &[DatapathAction]) -> Match {
    let (mut key, mut mask) = (rewrite.key(), FlowMask::from(rewrite.mask()));
    for action in actions {
        let DatapathAction::SetHeader(set) = action else { continue };
        for ((index, bits), value) in set.mask().iter().zip(set.value()) {
            let word = &mut key.words_mut()[index];
            *word = *word & !bits | value;
            mask.words_mut()[index] |= bits;
        }
    }
    Match::new(&key, &mask)
}

#[cfg(test)]
mod tests {
    use shunt_flow::{FieldId, FlowKey};

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

    #[test]
    fn what_the_last_piece_writes_is_in_its_actions() {
        let set = |fields: &[(FieldId, u128)]| {
            let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
            for (field, value) in fields {
                key.set_field(*field, *value);
                mask.add_field(*field);
            }
            Match::new(&key, &mask)
        };
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
