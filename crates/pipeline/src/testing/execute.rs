//! What datapath actions do to one concrete packet.

use shunt_flow::{FieldId, FlowKey, FlowMask, layout::word};

use super::oracle::{Outcome, Punted};
use crate::{DatapathAction, DatapathPort, MeterVerdict, Time, raise_drop_precedence};

/// What became of a packet.
#[derive(Debug, Default)]
pub struct Executed {
    /// What left, in order.
    pub outcomes: Vec<Outcome>,
    /// A meter ended the packet, or a copy of it.
    pub was_metered: bool,
}

/// Length of every packet for meters, in bytes.
const LENGTH: usize = 1500;

/// Executes actions on a packet that came in by `ingress`; for meters it is the beginning of time.
///
/// # Panics
///
/// When an action pops a tag that is not there, or pushes a third one.
#[must_use]
pub fn execute(
    actions: &[DatapathAction],
    key: &FlowKey,
    ingress: Option<DatapathPort>,
) -> Executed {
    let mut executed = Executed::default();
    executed.run(actions, key, ingress);
    executed
}

impl Executed {
    fn run(&mut self, actions: &[DatapathAction], key: &FlowKey, ingress: Option<DatapathPort>) {
        let mut key = key.clone();
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
                        self.outcomes.push(Outcome::sent(*port, *max_len, &key));
                    }
                }
                DatapathAction::OutputIngress { max_len } => {
                    if let Some(port) = ingress {
                        self.outcomes.push(Outcome::sent(port, *max_len, &key));
                    }
                }
                DatapathAction::Punt(punt) => {
                    let headers = Outcome::headers(&key);
                    self.outcomes.push(Outcome::Punted(Punted::of(punt), headers));
                }
                DatapathAction::Meter(meter) => match meter.admit(Time::ZERO, LENGTH) {
                    MeterVerdict::Pass => {}
                    MeterVerdict::Remark(levels) => {
                        let dscp = u8::try_from(key.field(FieldId::IpDscp)).unwrap_or(0);
                        let raised = raise_drop_precedence(dscp, levels);
                        key.set_field(FieldId::IpDscp, raised.into());
                    }
                    MeterVerdict::Drop => {
                        self.was_metered = true;
                        return;
                    }
                },
                DatapathAction::Copy(inner) => self.run(inner, &key, ingress),
                other => unreachable!("the generators make no {other:?}"),
            }
        }
    }
}
