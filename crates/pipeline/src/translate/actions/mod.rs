//! The actions, one file for each family.

pub(super) mod action_set;
pub(super) mod bond;
pub(super) mod bundle;
pub(super) mod fin_timeout;
pub(super) mod group;
pub(super) mod hash;
pub(super) mod learn;
pub(super) mod mirror;
pub(super) mod multicast;
pub(super) mod multipath;
pub(super) mod normal;
pub(super) mod output;
pub(super) mod packet_in;
pub(super) mod packet_length;
pub(super) mod port_tags;
pub(super) mod protocols;
pub(super) mod sample;
pub(super) mod stack;
pub(super) mod ttl;
