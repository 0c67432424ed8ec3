//! What tables do to packets, and controllers to tables, claim by claim.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod build;
mod conjunction;
mod cuts;
mod expiry;
mod flow_mods;
mod group_mods;
mod groups;
mod labels;
mod learn;
mod meters;
mod normal;
mod outputs;
mod ovn;
mod patches;
mod pause;
mod pieces;
mod reads;
mod rewrites;
mod switch;
mod tables;
mod tags;
mod versions;
