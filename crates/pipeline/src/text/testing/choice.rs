//! Generators of `multipath`, `bundle` and `bundle_load`.

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, PortNo};

use super::{
    super::subfield,
    action::{bits, is_writable, single_port},
};
use crate::action::{
    Action, BundleAction, BundleAlgorithm, HashFields, MultipathAction, MultipathAlgorithm,
    Subfield,
};

/// Generates a choice of the fields that a hash includes.
fn hash_fields() -> impl Strategy<Value = HashFields> {
    select(vec![
        HashFields::EthSrc,
        HashFields::SymmetricL4,
        HashFields::SymmetricL3L4,
        HashFields::SymmetricL3L4Udp,
        HashFields::NwSrc,
        HashFields::NwDst,
        HashFields::SymmetricL3,
    ])
}

/// Generates a `multipath` action.
pub(super) fn multipath() -> impl Strategy<Value = Action> {
    let algorithms = vec![
        MultipathAlgorithm::ModuloN,
        MultipathAlgorithm::HashThreshold,
        MultipathAlgorithm::HighestRandomWeight,
        MultipathAlgorithm::IterativeHash,
    ];
    let numbers = any::<(u16, u16, u32)>();
    (hash_fields(), numbers, select(algorithms), target()).prop_map(
        |(fields, (basis, link_max, argument), algorithm, target)| {
            let highest = u16::try_from(target.bits() >> target.offset).unwrap_or(u16::MAX);
            let link_max = link_max.min(highest);
            let action = MultipathAction { fields, basis, algorithm, link_max, argument, target };
            Action::Multipath(Box::new(action))
        },
    )
}

/// Generates a `bundle` action.
pub(super) fn bundle() -> impl Strategy<Value = Action> {
    let algorithms = vec![BundleAlgorithm::ActiveBackup, BundleAlgorithm::HighestRandomWeight];
    let member = prop_oneof![single_port(), select(vec![PortNo::ANY, PortNo::NORMAL])];
    let target =
        target().prop_filter("the target has room for a port number", |target| target.width >= 16);
    let choice = (hash_fields(), any::<u16>(), select(algorithms));
    (choice, vec(member, 0..5), option::of(target)).prop_map(
        |((fields, basis, algorithm), members, target)| {
            let members = members.into();
            Action::Bundle(Box::new(BundleAction { fields, basis, algorithm, members, target }))
        },
    )
}

/// Bits of a field with an OXM header of 32 bits.
fn target() -> impl Strategy<Value = Subfield> {
    let is_short = |field: &FieldId| subfield::require_short(Subfield::whole(*field)).is_ok();
    bits(move |field| is_writable(field) && is_short(field), 128)
}
