//! Mirrors of few ports and VLANs.

use proptest::{
    collection::{btree_set, vec},
    option,
    prelude::*,
    sample::select,
};

use super::{BRIDGES, Op};
use crate::{
    bridges::mirror::{Mirror, MirrorOutput, MirroredPorts},
    id::BridgeId,
};

/// Names of generated ports and bonds, and a name that no bridge has.
const PORTS: &[&str] = &["p1", "p2", "p3", "p4", "p5", "b1", "b2", "none"];

/// No tag (0), a VLAN of generated packets, and a VLAN that no packet has.
const VLANS: &[u16] = &[0, 5, 7];

/// The mirrors of a new bridge; most bridges have none.
pub(super) fn first(id: BridgeId) -> impl Strategy<Value = Vec<Op>> {
    let mirrors = option::weighted(0.3, mirrors());
    mirrors
        .prop_map(move |mirrors| mirrors.map(|own| Op::SetMirrors(id, own)).into_iter().collect())
}

/// A change of the mirrors of a bridge.
pub(super) fn op() -> impl Strategy<Value = Op> {
    (select(&BRIDGES[..]), mirrors()).prop_map(|(id, mirrors)| Op::SetMirrors(id, mirrors))
}

/// The mirrors of a bridge: up to three.
pub fn mirrors() -> impl Strategy<Value = Vec<Mirror>> {
    vec(mirror(), 0..4).prop_map(|mirrors| {
        let named = mirrors.into_iter().enumerate();
        named.map(|(index, own)| Mirror { name: format!("m{index}"), ..own }).collect()
    })
}

/// Generates a mirror.
fn mirror() -> impl Strategy<Value = Mirror> {
    let port = || select(PORTS).prop_map(str::to_owned);
    let named = (btree_set(port(), 0..3), btree_set(port(), 0..3))
        .prop_map(|(received, sent)| MirroredPorts::Named { received, sent });
    let ports = prop_oneof![1 => Just(MirroredPorts::All), 3 => named];
    let output = prop_oneof![
        3 => port().prop_map(MirrorOutput::Port),
        1 => select(VLANS).prop_map(MirrorOutput::Vlan),
    ];
    let vlans =
        prop_oneof![2 => btree_set(select(VLANS), 0..1), 1 => btree_set(select(VLANS), 1..3)];
    let snaplen = option::weighted(0.3, 14_u32..80);
    (ports, vlans, output, snaplen).prop_map(|(ports, vlans, output, snaplen)| Mirror {
        name: String::new(),
        ports,
        vlans,
        output,
        snaplen,
    })
}
