//! Rule changes on running switches, measured at controllers and with packets.
//!
//! Both switches have an OpenFlow 1.3 controller, four tables, cached flows, and packets that hit
//! these flows continuously. A change affects packets with two possible exits. These packets have
//! numbers, so the rule of each packet is known.

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
pub(super) mod traffic;
