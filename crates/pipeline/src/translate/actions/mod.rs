//! Actions, one file for each family.

pub(super) mod action_set;
pub(super) mod bundle;
pub(super) mod fields;
pub(super) mod fin_timeout;
pub(super) mod hash;
pub(super) mod learn;
pub(super) mod mpls;
pub(super) mod multipath;
pub(super) mod normal;
pub(super) mod output;
pub(super) mod stack;
pub(super) mod vlan;
