//! The steps of a reload that change bonds.

use std::collections::BTreeMap;

use super::ReloadStep;
use crate::config::{BondOptions, BridgeOptions};

/// Returns the steps that remove bonds when one set of bridges replaces another.
pub(super) fn removals_of_bonds(
    old: &BTreeMap<&str, &BridgeOptions>,
    new: &BTreeMap<&str, &BridgeOptions>,
) -> Vec<ReloadStep> {
    let pairs = old.iter().filter_map(|(name, old)| Some((name, &old.bonds, new.get(name)?)));
    pairs
        .filter_map(|(name, old, new)| bond_step(name, old, &kept_bonds(old, &new.bonds)))
        .collect()
}

/// Returns the bonds in `old` of which the name is also in `new`.
pub(super) fn kept_bonds(old: &[BondOptions], new: &[BondOptions]) -> Vec<BondOptions> {
    let stays = |bond: &&BondOptions| new.iter().any(|other| other.name == bond.name);
    old.iter().filter(stays).cloned().collect()
}

/// Returns the step that sets the bonds in `new`, after [`removals_of_bonds`].
pub(super) fn setting_of_bonds(
    bridge: &str,
    old: &[BondOptions],
    new: &[BondOptions],
) -> Option<ReloadStep> {
    bond_step(bridge, &kept_bonds(old, new), new)
}

/// Returns the step that replaces the bonds of a bridge, if they differ.
fn bond_step(bridge: &str, old: &[BondOptions], new: &[BondOptions]) -> Option<ReloadStep> {
    let set = || ReloadStep::SetBonds { bridge: bridge.to_owned(), bonds: new.to_vec() };
    (old != new).then(set)
}
