//! Tests of the tables through the public API: packets, requests and versions.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bfd;
mod bonds;
mod build;
mod conjunction;
mod contents;
mod dependencies;
mod drop_causes;
mod expiry;
mod flow_mods;
mod group_mods;
mod groups;
mod labels;
mod learn;
mod masks;
mod meters;
mod mirrors;
mod multicast;
mod normal;
mod outputs;
mod ovn;
mod patches;
mod pause;
mod reads;
mod recirculation;
mod rewrites;
mod static_macs;
mod sub_traversals;
mod switch;
mod tables;
mod tags;
mod versions;
