//! What datapath actions do to one concrete packet.

use shunt_flow::{FlowKey, FlowMask, layout::word};

use super::oracle::{Outcome, Punted};
use crate::{DatapathAction, DatapathPort};

/// Executes actions on a packet that came in by `ingress`: what leaves, in order.
///
/// # Panics
///
/// When an action pops a tag that is not there, or pushes a third one.
#[must_use]
pub fn execute(
    actions: &[DatapathAction],
    key: &FlowKey,
    ingress: Option<DatapathPort>,
) -> Vec<Outcome> {
    let mut key = key.clone();
    let mut outcomes = Vec::new();
    for action in actions {
        let vlan = key.words()[usize::from(word::VLAN)];
        match action {
            DatapathAction::SetHeader(set) => {
                let (value, mask) = (set.key(), FlowMask::from(set.mask()));
                let words = value.words().iter().zip(mask.words());
                for (word, (value, mask)) in key.words_mut().iter_mut().zip(words) {
                    *word = *word & !mask | value;
                }
            }
            DatapathAction::PushVlan { tpid, tci } => {
                assert_eq!(vlan & 0x1000, 0, "a third tag");
                let tag = u64::from(*tpid) << 16 | u64::from(*tci);
                key.words_mut()[usize::from(word::VLAN)] = tag << 32 | vlan >> 32;
            }
            DatapathAction::PopVlan => {
                assert_ne!(vlan & 0x1000 << 32, 0, "no tag to pop");
                key.words_mut()[usize::from(word::VLAN)] = vlan << 32;
            }
            DatapathAction::Output { port, unless_ingress, max_len } => {
                if !(*unless_ingress && ingress == Some(*port)) {
                    outcomes.push(Outcome::sent(*port, *max_len, &key));
                }
            }
            DatapathAction::OutputIngress { max_len } => {
                if let Some(port) = ingress {
                    outcomes.push(Outcome::sent(port, *max_len, &key));
                }
            }
            DatapathAction::Punt(punt) => {
                outcomes.push(Outcome::Punted(Punted::of(punt), Outcome::headers(&key)));
            }
            DatapathAction::Recirculate(_) => unreachable!("nothing recirculates yet"),
        }
    }
    outcomes
}
