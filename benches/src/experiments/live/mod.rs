//! Changes of rules on live switches: what controllers and packets see of them.
//!
//! Both switches have a controller that speaks OpenFlow 1.3 with them, four tables, as many cached
//! flows as the case asks for, and packets that keep hitting these. One of two ways out is that of
//! the packets that a change is about; these carry numbers, so what they went by is known of each.

pub(crate) mod barrier;
mod bed;
pub(crate) mod engines;
mod flap;
pub(crate) mod flapping;
mod judge;
pub(crate) mod nic;
pub(crate) mod nic_latency;
mod os_ken;
mod probe;
pub(crate) mod repair;
mod traffic;
