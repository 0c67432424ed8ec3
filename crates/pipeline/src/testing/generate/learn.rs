//! Learn actions with few tables, fields and values, so that learned rules match packets.

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_classifier::Priority;
use shunt_flow::FieldId;

use super::table;
use crate::{
    action::{Action, LearnAction, LearnSource, LearnSpec, LearnTarget, Subfield},
    id::Cookie,
};

/// A random `learn` action.
pub(super) fn learn() -> impl Strategy<Value = Action> {
    let timeouts = (select(vec![0u16, 0, 2]), select(vec![0u16, 0, 3]));
    let fin = (select(vec![0u16, 0, 0, 1]), select(vec![0u16, 0, 0, 2]));
    let rarely = || prop::bool::weighted(0.3);
    let limit = prop_oneof![3 => Just(0u32), 1 => 1u32..3];
    let result = option::weighted(0.4, 0u8..3)
        .prop_map(|bit| bit.and_then(|bit| Subfield::new(FieldId::Reg0, bit, 1)));
    let place = (table(), 0u16..4, 0u64..3);
    let specs = (vec(match_spec(), 0..3), vec(spec(), 0..3));
    (place, timeouts, fin, (rarely(), rarely()), limit, result, specs).prop_map(
        |((table, priority, cookie), timeouts, fin, flags, limit, result, (matched, done))| {
            Action::Learn(Box::new(LearnAction {
                idle_timeout: timeouts.0,
                hard_timeout: timeouts.1,
                priority: Priority::new(priority),
                cookie: if cookie == 2 { Cookie::new(u64::MAX) } else { Cookie::new(cookie) },
                table,
                fin_idle_timeout: fin.0,
                fin_hard_timeout: fin.1,
                send_flow_removed: flags.0,
                delete_learned: flags.1,
                limit,
                result,
                specs: [matched, done].concat().into(),
            }))
        },
    )
}

/// Returns a source of a `learn` action: a whole field.
fn field(field: FieldId) -> LearnSource {
    LearnSource::Field(Subfield::whole(field))
}

/// Generates a match spec of a `learn` action, from a field or a constant.
fn match_spec() -> impl Strategy<Value = LearnSpec> {
    let same = select(vec![
        FieldId::EthSrc,
        FieldId::EthDst,
        FieldId::Reg0,
        FieldId::InPort,
        FieldId::VlanTci,
        FieldId::DlVlan,
        FieldId::Ipv4Src,
        FieldId::TcpSrc,
    ])
    .prop_map(|same| LearnSpec {
        source: field(same),
        target: LearnTarget::Match(Subfield::whole(same)),
        width: same.width(),
    });
    let swapped = select(vec![
        (FieldId::EthSrc, FieldId::EthDst),
        (FieldId::EthDst, FieldId::EthSrc),
        (FieldId::Ipv4Dst, FieldId::Ipv4Src),
    ])
    .prop_map(|(source, target)| LearnSpec {
        source: field(source),
        target: LearnTarget::Match(Subfield::whole(target)),
        width: source.width(),
    });
    let part = (0u8..40, 1u8..8).prop_map(|(offset, width)| {
        let part = Subfield { field: FieldId::EthDst, offset, width };
        LearnSpec { source: LearnSource::Field(part), target: LearnTarget::Match(part), width }
    });
    let port = Subfield { field: FieldId::InPort, offset: 0, width: 16 };
    let port =
        LearnSpec { source: LearnSource::Field(port), target: LearnTarget::Match(port), width: 16 };
    let value = (0u128..3).prop_map(|value| LearnSpec {
        source: LearnSource::Value(value),
        target: LearnTarget::Match(Subfield::whole(FieldId::Reg1)),
        width: 32,
    });
    prop_oneof![3 => same, 2 => swapped, 1 => part, 1 => Just(port), 1 => value]
}

/// Generates a spec of a `learn` action.
fn spec() -> impl Strategy<Value = LearnSpec> {
    let port = Subfield { field: FieldId::InPort, offset: 0, width: 16 };
    let output = select(vec![port, Subfield { field: FieldId::Reg0, offset: 0, width: 16 }])
        .prop_map(|source| LearnSpec {
            source: LearnSource::Field(source),
            target: LearnTarget::Output,
            width: source.width,
        });
    let fixed = select(vec![1u128, 2, 0xfff8, 0xfffa, 0xfffb, 0xfffd, 0xfffe]).prop_map(|port| {
        LearnSpec { source: LearnSource::Value(port), target: LearnTarget::Output, width: 16 }
    });
    let load = select(vec![FieldId::Reg0, FieldId::Reg1]).prop_map(|target| LearnSpec {
        source: field(FieldId::InPort),
        target: LearnTarget::Load(Subfield::whole(target)),
        width: 32,
    });
    prop_oneof![2 => output, 1 => fixed, 2 => load]
}

/// A random `fin_timeout` action.
pub(super) fn fin_timeout() -> impl Strategy<Value = Action> {
    (0u16..3, 0u16..3).prop_map(|(idle, hard)| Action::FinTimeout { idle, hard })
}
