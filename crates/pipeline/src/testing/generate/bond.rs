//! Generated bonds: some ports are their members, other ports have no bond.

use std::{
    array,
    sync::{Arc, LazyLock},
};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, FlowKey, PortNo};

use crate::bridges::{
    bond::{BondBalance, BondCounters, BondHash, BondMember, LacpAdmission},
    port::PortInfo,
};

/// Names of bonds.
const BONDS: &[&str] = &["b1", "b2"];

/// The counters of the bonds, which all generated lists of ports share.
static COUNTERS: LazyLock<Vec<BondCounters>> =
    LazyLock::new(|| BONDS.iter().map(|bond| BondCounters::new(bond)).collect());

/// The random settings of a bond.
#[derive(Clone, Debug)]
struct Choices {
    /// The active member: an index, modulo the number of members.
    active: Option<usize>,
    /// The members of the buckets in turn by index, the basis and the hash.
    ///
    /// `None` if the bond does not balance.
    balance: Option<(Vec<Option<usize>>, u32, BondHash)>,
    /// The LACP admissions of the members, in turn.
    lacp: Vec<LacpAdmission>,
}

/// Packets: a few are frames of slow protocols, or have only their Ethernet type.
pub(super) fn few_for_lacp(
    packets: impl Strategy<Value = FlowKey>,
) -> impl Strategy<Value = FlowKey> {
    (packets, 0u8..24).prop_map(|(mut key, kind)| {
        if kind < 2 {
            key.set_field(FieldId::EthType, 0x8809);
        }
        if kind == 0 {
            key.set_field(FieldId::EthDst, 0x0180_c200_0002);
        }
        key
    })
}

/// Ports of which few are members of bonds, so that other cases stay frequent.
pub(super) fn few_bonded(ports: Vec<PortInfo>) -> impl Strategy<Value = Vec<PortInfo>> {
    prop_oneof![5 => Just(ports.clone()), 2 => bonded(ports, 8)]
}

/// Ports, most of them members of bonds.
///
/// Most bonds have one active member, and the others have none. For each bond with LACP there are
/// `plain` bonds without it.
pub(super) fn bonded(ports: Vec<PortInfo>, plain: u32) -> impl Strategy<Value = Vec<PortInfo>> {
    let bonds = vec(option::weighted(0.6, select(BONDS)), ports.len());
    let positions = 0..ports.len();
    let senders = vec(option::weighted(0.9, positions.clone()), 1..4);
    let hash = select(vec![BondHash::Source, BondHash::Connection]);
    let balance = option::of((senders, 0..2u32, hash));
    let lacp =
        prop_oneof![plain => Just(vec![LacpAdmission::Off]), 1 => vec(lacp_admission(), 1..4)];
    let choices = (option::weighted(0.9, positions), balance, lacp)
        .prop_map(|(active, balance, lacp)| Choices { active, balance, lacp });
    let choices = vec(choices, BONDS.len());
    (bonds, choices).prop_map(move |(bonds, choices)| {
        let mut ports = ports.clone();
        for (port, bond) in ports.iter_mut().zip(&bonds) {
            let member = |bond| BondMember {
                bond: Arc::from(bond),
                is_active: false,
                balance: None,
                lacp: LacpAdmission::Off,
            };
            port.bond = bond.map(member);
        }
        for ((bond, choices), counters) in BONDS.iter().zip(choices).zip(&*COUNTERS) {
            choose(&mut ports, bond, &choices, counters);
        }
        ports
    })
}

/// The admission of a member of a bond that uses LACP.
fn lacp_admission() -> impl Strategy<Value = LacpAdmission> {
    use LacpAdmission::{All, Fallback, None};
    prop_oneof![Just(All), Just(None), Just(Fallback)]
}

/// Gives a bond its VLANs, its active member and its buckets.
fn choose(ports: &mut [PortInfo], bond: &str, choices: &Choices, counters: &BondCounters) {
    let is_member = |port: &PortInfo| port.bond_name() == Some(bond);
    let members: Vec<usize> = (0..ports.len()).filter(|index| is_member(&ports[*index])).collect();
    let vlans = members.first().map(|index| ports[*index].vlans.clone());
    let member = |wanted: usize| members.get(wanted % members.len().max(1)).copied();
    let active = choices.active.and_then(member);
    let numbers: Vec<PortNo> = ports.iter().map(|port| port.number).collect();
    let balance = choices.balance.as_ref().map(|(senders, basis, hash)| {
        let sender = |bucket: usize| Some(numbers[member(senders[bucket % senders.len()]?)?]);
        Arc::new(BondBalance::new(*hash, *basis, array::from_fn(sender), counters.clone()))
    });
    let lacp = choices.lacp.iter().cycle();
    for (index, lacp) in members.iter().copied().zip(lacp) {
        if let Some(vlans) = &vlans {
            ports[index].vlans.clone_from(vlans);
        }
        if let Some(own) = &mut ports[index].bond {
            (own.is_active, own.balance) = (Some(index) == active, balance.clone());
            own.lacp = *lacp;
        }
    }
}
