//! Bonds of some ports.

use std::sync::Arc;

use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::bridges::{bond::BondMember, port::PortInfo};

/// Names of bonds.
const BONDS: &[&str] = &["b1", "b2"];

/// Ports that are rarely members of bonds, so that other properties stay frequent.
pub(super) fn few_bonded(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    prop_oneof![5 => Just(ports.clone()), 1 => bonded(ports)]
}

/// Ports, most of them members of bonds.
///
/// Most bonds have an active member, and none has two.
pub(super) fn bonded(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    let bonds = vec(option::weighted(0.6, select(BONDS)), ports.len());
    // The active member of each bond, by its position in the list of ports.
    let active = vec(option::weighted(0.9, 0..ports.len()), BONDS.len());
    (bonds, active).prop_map(move |(bonds, active)| {
        let mut ports = ports.clone();
        for (port, bond) in ports.iter_mut().zip(&bonds) {
            port.bond = bond.map(|bond| BondMember { bond: Arc::from(bond), is_active: false });
        }
        for (bond, wanted) in BONDS.iter().zip(active) {
            let is_member = |port: &PortInfo| port.bond_name() == Some(bond);
            let Some(wanted) = wanted else { continue };
            // The next member from this position on.
            let index = (0..ports.len())
                .map(|step| (wanted + step) % ports.len())
                .find(|index| is_member(&ports[*index]));
            if let Some(member) = index.and_then(|index| ports[index].bond.as_mut()) {
                member.is_active = true;
            }
        }
        ports
    })
}
