//! Bonds of some ports.

use std::{
    array,
    sync::{Arc, LazyLock},
};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::PortNo;

use crate::bridges::{
    bond::{BondBalance, BondCounters, BondMember},
    port::PortInfo,
};

/// Names of bonds.
const BONDS: &[&str] = &["b1", "b2"];

/// The counters of the bonds, the same ones in every list of ports.
static COUNTERS: LazyLock<Vec<BondCounters>> =
    LazyLock::new(|| BONDS.iter().map(|bond| BondCounters::new(bond)).collect());

/// The choices for a bond.
#[derive(Clone, Debug)]
struct Choices {
    /// The active member, or one after it, by its position in the list of ports.
    active: Option<usize>,
    /// The members of buckets in turn, by such positions, and the basis.
    ///
    /// `None` if the bond does not balance.
    balance: Option<(Vec<Option<usize>>, u32)>,
}

/// Ports that are rarely members of bonds, so that other properties stay frequent.
pub(super) fn few_bonded(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    prop_oneof![5 => Just(ports.clone()), 1 => bonded(ports)]
}

/// Ports, most of them members of bonds.
///
/// Most bonds have an active member, and none has two.
pub(super) fn bonded(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    let bonds = vec(option::weighted(0.6, select(BONDS)), ports.len());
    let positions = 0..ports.len();
    let senders = vec(option::weighted(0.9, positions.clone()), 1..4);
    let balance = option::of((senders, 0..2u32));
    let choices = (option::weighted(0.9, positions), balance)
        .prop_map(|(active, balance)| Choices { active, balance });
    let choices = vec(choices, BONDS.len());
    (bonds, choices).prop_map(move |(bonds, choices)| {
        let mut ports = ports.clone();
        for (port, bond) in ports.iter_mut().zip(&bonds) {
            let member =
                |bond| BondMember { bond: Arc::from(bond), is_active: false, balance: None };
            port.bond = bond.map(member);
        }
        for ((bond, choices), counters) in BONDS.iter().zip(choices).zip(&*COUNTERS) {
            choose(&mut ports, bond, &choices, counters);
        }
        ports
    })
}

/// Gives a bond its VLANs, its active member and its buckets.
fn choose(ports: &mut [PortInfo], bond: &str, choices: &Choices, counters: &BondCounters) {
    let is_member = |port: &PortInfo| port.bond_name() == Some(bond);
    let members: Vec<usize> = (0..ports.len()).filter(|index| is_member(&ports[*index])).collect();
    let vlans = members.first().map(|index| ports[*index].vlans.clone());
    let member = |wanted: usize| members.get(wanted % members.len().max(1)).copied();
    let active = choices.active.and_then(member);
    let numbers: Vec<PortNo> = ports.iter().map(|port| port.number).collect();
    let balance = choices.balance.as_ref().map(|(senders, basis)| {
        let sender = |bucket: usize| Some(numbers[member(senders[bucket % senders.len()]?)?]);
        Arc::new(BondBalance::new(*basis, array::from_fn(sender), counters.clone()))
    });
    for index in members.iter().copied() {
        if let Some(vlans) = &vlans {
            ports[index].vlans.clone_from(vlans);
        }
        if let Some(own) = &mut ports[index].bond {
            (own.is_active, own.balance) = (Some(index) == active, balance.clone());
        }
    }
}
