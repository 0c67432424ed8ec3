//! sFlow version 5 (P. Phaal and M. Lavine, "sFlow Version 5", sflow.org, 2004).
//!
//! A switch samples one random packet in N, and reports its first bytes in a *flow sample*. At
//! intervals it reports the counters of each interface in a *counters sample*. UDP datagrams
//! contain both kinds of samples.
//!
//! Counters never decrease, and each kind of sample has sequence numbers. So a collector computes
//! exact rates from any two samples, and detects lost datagrams.

mod counters;
mod exporter;
mod flow;

pub use counters::{InterfaceStatistics, LinkDuplex};
pub use exporter::{SflowAgent, SflowExporter};
pub use flow::{DiscardReason, FlowSample, SampledInterface, SampledTag, SourceId};
