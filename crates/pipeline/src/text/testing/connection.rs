//! Generators of `ct` and `nat`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::FieldId;

use super::action::bits;
use crate::{
    action::{Action, CtAction, CtZone, NatAction, NatKind, NatRange, Subfield},
    id::TableId,
};

/// Generates a `ct` action.
pub(super) fn ct() -> impl Strategy<Value = Action> {
    let zone = prop_oneof![
        any::<u16>().prop_map(CtZone::Number),
        (0..17_u8)
            .prop_filter_map("16 bits", |offset| Subfield::new(FieldId::Reg3, offset, 16))
            .prop_map(CtZone::Field),
    ];
    let table = option::of(
        (0..=TableId::MAX.number()).prop_map(|table| TableId::new(table).unwrap_or_default()),
    );
    let inner = prop_oneof![nat(), write()];
    let (flags, algs) = (any::<(bool, bool)>(), select(vec![0, 21, 69]));
    (flags, zone, table, algs, vec(inner, 0..4)).prop_map(
        |((commit, force), zone, table, alg, mut actions)| {
            let again = NatAction {
                kind: None,
                range: None,
                persistent: false,
                hash: false,
                random: false,
            };
            if !commit {
                // `ct` without `commit` keeps no connection, so it cannot change the mark or label.
                actions = vec![Action::Nat(Box::new(again))];
            }
            let (force, actions) = (force && commit, actions.into());
            Action::Ct(Box::new(CtAction { commit, force, zone, table, alg, actions }))
        },
    )
}

/// Generates an action of `ct` that writes a field.
fn write() -> impl Strategy<Value = Action> {
    let target = || bits(|field| matches!(field, FieldId::CtMark | FieldId::CtLabel), 64);
    let load = (target(), any::<u64>()).prop_map(|(target, value)| Action::Load {
        target,
        value: value & (u64::MAX >> (64 - target.width)),
    });
    let fields = select(vec![FieldId::CtMark, FieldId::CtLabel]);
    let set = fields
        .prop_flat_map(|field| (Just(field), shunt_flow::testing::field_bits(field)))
        .prop_map(|(field, (value, mask))| Action::SetField { field, value, mask });
    let moved = target().prop_filter_map("the register has bits of this width", |target| {
        let source = Subfield::new(FieldId::Xxreg1, 3, target.width)?;
        Some(Action::Move { source, target })
    });
    prop_oneof![load, set, moved]
}

/// Generates a `nat` action.
fn nat() -> impl Strategy<Value = Action> {
    let kind = select(vec![NatKind::Source, NatKind::Destination]);
    let flags = (any::<bool>(), select(vec![(false, false), (true, false), (false, true)]));
    let ranged =
        (kind.clone(), range(), flags).prop_map(|(kind, range, (persistent, (hash, random)))| {
            NatAction { kind: Some(kind), range: Some(range), persistent, hash, random }
        });
    let plain = option::of(kind).prop_map(|kind| NatAction {
        kind,
        range: None,
        persistent: false,
        hash: false,
        random: false,
    });
    prop_oneof![ranged, plain].prop_map(|nat| Action::Nat(Box::new(nat)))
}

/// Generates a range of addresses and ports.
fn range() -> impl Strategy<Value = NatRange> {
    let four = (1..=u32::MAX, any::<u32>()).prop_map(|(one, other)| {
        let address = |address: u32| IpAddr::V4(Ipv4Addr::from(address));
        address(one)..=address(one.max(other))
    });
    let six = (1..=u128::MAX, any::<u128>()).prop_map(|(one, other)| {
        let address = |address: u128| IpAddr::V6(Ipv6Addr::from(address));
        address(one)..=address(one.max(other))
    });
    let ports = (1..=u16::MAX, any::<u16>()).prop_map(|(one, other)| one..=one.max(other));
    (prop_oneof![four, six], option::of(ports))
        .prop_map(|(addresses, ports)| NatRange { addresses, ports })
}
