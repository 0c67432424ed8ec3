//! MPLS labels, values on the stack, lengths of frames.
//!
//! Any rule may push or pop a label. Only rules that match a second label name MPLS as the Ethernet
//! type after a pop ([`popping`]). So a packet of IPv4 or ARP is never read as labels, which the
//! oracle does not model.

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo, layout::word};

use super::{Action, BRIDGES, FlowMod, Op, Subfield, TableId, conjunction, groups, learn};
use crate::testing::set_test_word;

/// Labels that cannot be read as the beginning of an IPv4 or ARP packet.
pub(super) const LABELS: &[u128] = &[16, 17, 40];

/// Lengths of generated frames, in bytes.
/// All lengths are above the burst size of the meters, even without tags and labels.
const LENGTHS: std::ops::Range<u16> = 152..220;

/// Index of the word with the first two MPLS labels.
const MPLS: usize = word::MPLS as usize;
/// Index of the word with the third label.
const THIRD: usize = word::MPLS_PBB as usize;
/// The bottom-of-stack bit of a label.
const BOTTOM: u64 = 0x100;

/// A packet, most often without labels, in a frame of random length.
pub(super) fn labelled(packet: impl Strategy<Value = FlowKey>) -> impl Strategy<Value = FlowKey> {
    let entry = (select(LABELS), select(vec![0u64, 3]), select(vec![0u64, 1, 2, 64]));
    let entry = entry
        .prop_map(|(label, class, ttl)| u64::try_from(label).unwrap_or(0) << 12 | class << 9 | ttl);
    let entries = prop_oneof![3 => Just(Vec::new()), 2 => vec(entry, 1..=4)];
    (packet, entries, LENGTHS).prop_map(|(mut key, entries, length)| {
        let hidden_type = key.eth_type();
        set_test_word(&mut key, hidden_type, length);
        let last = entries.len().saturating_sub(1);
        let entry = |index: usize| match entries.get(index) {
            Some(entry) if index == last => entry | BOTTOM,
            Some(entry) => *entry,
            None => 0,
        };
        if !entries.is_empty() {
            key.set_field(FieldId::EthType, 0x8847);
            key.words_mut()[MPLS] = entry(0) << 32 | entry(1);
            key.words_mut()[THIRD] |= entry(2) << 32;
        }
        key
    })
}

/// Actions on labels, on the stack, and on the headers after the labels.
pub(super) fn list() -> impl Strategy<Value = Vec<Action>> {
    let port = prop_oneof![6 => (1u32..=6).prop_map(PortNo::new), 1 => Just(PortNo::NORMAL)];
    let output = port.prop_map(|port| Action::Output { port, max_len: 0 });
    let ttl = Action::DecTtl { controllers: Box::new([0]) };
    let table =
        (0u8..4).prop_map(|table| Action::Resubmit { port: None, table: TableId::new(table) });
    let register = select(vec![FieldId::Reg0, FieldId::Reg1]).prop_map(|field| Subfield {
        field,
        offset: 0,
        width: 2,
    });
    let output_register =
        register.clone().prop_map(|source| Action::OutputField { source, max_len: 0 });
    let leaf = prop_oneof![
        8 => output,
        8 => action(),
        4 => super::set_field(),
        2 => Just(ttl),
        2 => table,
        1 => register.clone().prop_map(Action::Push),
        1 => register.prop_map(Action::Pop),
        1 => output_register,
        3 => groups::action(),
        2 => groups::meter().prop_map(Action::Meter),
        2 => learn::learn(),
        2 => learn::fin_timeout(),
        2 => select(vec![Action::CopyTtlIn, Action::CopyTtlOut]),
        2 => metered_clone(),
        2 => super::controller().prop_map(|asked| Action::Controller(Box::new(asked))),
    ];
    let nested = leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            6 => inner.clone(),
            2 => vec(inner, 1..5).prop_map(|list| Action::Clone(list.into())),
        ]
    });
    let list = vec(nested, 1..7);
    let stacked = option::weighted(0.2, stack_actions());
    // Table 1 may have conjunctions.
    let further = option::weighted(0.4, Just(TableId::new(1)));
    (list, super::set_field(), prop::bool::weighted(0.2), stacked, further).prop_map(
        |(mut list, rewrite, hides, stacked, further)| {
            list.extend(further.map(|table| Action::Resubmit { port: None, table }));
            let (push, pop) =
                (Action::PushMpls { ethertype: 0x8847 }, Action::PopMpls { ethertype: 0x0800 });
            let hidden = hides.then_some([rewrite, push, pop]).into_iter().flatten();
            hidden.chain(stacked.into_iter().flatten()).chain(list).collect()
        },
    )
}

/// A `clone` that passes a meter, after which the copy is parsed again.
fn metered_clone() -> impl Strategy<Value = Action> {
    (groups::meter(), action(), 1u32..=6).prop_map(|(meter, action, port)| {
        let ttl = Action::DecTtl { controllers: Box::new([]) };
        let output = Action::Output { port: PortNo::new(port), max_len: 0 };
        Action::Clone([Action::Meter(meter), action, ttl, output].into())
    })
}

/// Actions that push values, and send the packet to the first popped value.
/// An action on labels may come between the pushes and the pop.
fn stack_actions() -> impl Strategy<Value = Vec<Action>> {
    let value = Subfield { field: FieldId::Reg0, offset: 0, width: 3 };
    let pushes = vec(
        (1u64..6).prop_map(move |port| {
            [Action::Load { target: value, value: port }, Action::Push(value)]
        }),
        1..4,
    );
    (pushes, option::weighted(0.5, action())).prop_map(move |(pushes, between)| {
        let output = Action::OutputField { source: value, max_len: 0 };
        let ends = [Action::Pop(value), output];
        pushes.into_iter().flatten().chain(between).chain(ends).collect()
    })
}

/// A network in which most actions of rules concern labels.
pub(super) fn network() -> impl Strategy<Value = Vec<Op>> {
    let met = BRIDGES
        .map(|id| conjunction::common_conjunction().prop_map(move |rules| Op::Apply(id, rules)));
    let met = option::weighted(0.5, met);
    (super::plain_network(), met).prop_flat_map(|(mut network, met)| {
        network.extend(met.into_iter().flatten());
        let lists = vec(list(), 48);
        (Just(network), lists).prop_map(|(mut network, lists)| {
            let mut lists = lists.into_iter();
            for op in &mut network {
                let Op::Apply(_, mods) = op else { continue };
                let is_clause = |request: &FlowMod| {
                    let mut actions = request.instructions.apply.iter();
                    actions.any(|action| matches!(action, Action::Conjunction { .. }))
                };
                for request in mods.iter_mut().filter(|request| !is_clause(request)) {
                    let popping = request
                        .instructions
                        .apply
                        .first()
                        .filter(|first| matches!(first, Action::PopMpls { ethertype: 0x8847 }));
                    let first = popping.cloned().into_iter();
                    let list = first.chain(lists.next().unwrap_or_default());
                    request.instructions.apply = list.collect();
                }
            }
            network
        })
    })
}

/// An action on labels or on the stack, or an action that needs the whole frame.
pub(super) fn action() -> impl Strategy<Value = Action> {
    let bit = (select(vec![FieldId::Reg0, FieldId::Reg1]), 0u8..2)
        .prop_map(|(field, offset)| Subfield { field, offset, width: 1 });
    let check = (130u16..230, bit);
    prop_oneof![
        4 => select(vec![0x8847, 0x8848]).prop_map(|ethertype| Action::PushMpls { ethertype }),
        6 => select(vec![0x0800, 0x0800, 0x0806, 0x88cc])
            .prop_map(|ethertype| Action::PopMpls { ethertype }),
        1 => select(vec![0u8, 1, 2, 64]).prop_map(Action::SetMplsTtl),
        1 => select(vec![0u8, 1, 2, 64]).prop_map(Action::SetNwTtl),
        2 => Just(Action::DecMplsTtl),
        3 => Just(Action::CopyTtlIn),
        3 => Just(Action::CopyTtlOut),
        2 => super::subfield().prop_map(Action::Push),
        2 => super::subfield().prop_map(Action::Pop),
        3 => check.prop_map(|(length, target)| Action::CheckPktLarger { length, target }),
    ]
}

/// Returns the request for a rule that pops a label with another label below.
pub(super) fn popping(request: FlowMod) -> FlowMod {
    let (mut key, mut mask) = (request.matching.key(), FlowMask::from(request.matching.mask()));
    for (field, value) in [(FieldId::EthType, 0x8847), (FieldId::MplsBos, 0)] {
        key.set_field(field, value);
        mask.add_field(field);
    }
    let mut instructions = request.instructions;
    let pop = Action::PopMpls { ethertype: 0x8847 };
    instructions.apply = std::iter::once(pop).chain(instructions.apply).collect();
    FlowMod { matching: Match::new(&key, &mask), instructions, ..request }
}

/// Makes the labels and the hidden part of `other` agree with those of `key`.
///
/// Words of labels that `other` does not have are zero. The hidden Ethernet type comes from `key`,
/// and the length of the frame is random.
pub(super) fn copy_hidden_state(other: &mut FlowKey, key: &FlowKey, mask: &FlowMask) {
    let [hidden_type, noise] =
        [key.words()[THIRD] >> 16, other.words()[THIRD]].map(|word| word & 0xffff);
    let [hidden_type, noise] = [hidden_type, noise].map(|half| u16::try_from(half).unwrap_or(0));
    let lengths = LENGTHS.end - LENGTHS.start;
    set_test_word(other, hidden_type, LENGTHS.start + noise % lengths);
    let words = other.words_mut();
    let (first, second) = (words[MPLS] >> 32 & BOTTOM, words[MPLS] & BOTTOM);
    if !matches!(other.eth_type(), 0x8847 | 0x8848) {
        other.words_mut()[MPLS] = 0;
        other.words_mut()[THIRD] &= 0xffff_ffff;
    } else if first != 0 {
        other.words_mut()[MPLS] &= 0xffff_ffff << 32;
        other.words_mut()[THIRD] &= 0xffff_ffff;
    } else if second != 0 {
        other.words_mut()[THIRD] &= 0xffff_ffff;
    }
    for (word, shown) in [(MPLS, u64::MAX), (THIRD, !0xffff_ffff)] {
        let own = key.words()[word];
        let differs = (other.words()[word] ^ own) & mask.words()[word] != 0;
        if differs {
            let other = &mut other.words_mut()[word];
            *other = own & shown | *other & !shown;
        }
    }
}
