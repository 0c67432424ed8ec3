//! Rule changes on running switches, as controllers and packets see them.
//!
//! Both switches have an OpenFlow 1.3 controller, four tables, cached flows, and packets that keep
//! hitting those flows. A change affects packets with two possible exits. These packets carry
//! numbers, so the rule that each of them followed is known.

pub(crate) mod barrier;
pub(crate) mod engines;
mod flap;
pub(crate) mod flapping;
mod judge;
pub(crate) mod nic;
pub(crate) mod nic_latency;
mod os_ken;
mod probe;
pub(crate) mod repair;
mod testbed;
mod traffic;
