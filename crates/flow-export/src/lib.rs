//! Encoders of samples, counters and flows for collectors: sFlow, NetFlow and IPFIX.
//!
//! The crate encodes datagrams. The crate has no sockets, no clock and no threads: the caller
//! passes samples, flows and the time, and sends the returned datagrams.
//!
//! ```
//! use shunt_flow_export::sflow::{
//!     FlowSample, SampledInterface, SflowAgent, SflowExporter, SourceId, SampledTag,
//! };
//!
//! let agent = SflowAgent { address: [192, 0, 2, 1].into(), sub_agent: 0 };
//! let mut exporter = SflowExporter::new(agent);
//! exporter.add_flow(
//!     &FlowSample {
//!         source: SourceId::bridge(),
//!         rate: 64,
//!         pool: 64,
//!         drops: 0,
//!         input: SampledInterface::Index(3),
//!         output: SampledInterface::Index(5),
//!         vlan_in: SampledTag::default(),
//!         vlan_out: SampledTag::default(),
//!         frame_length: 60,
//!         header: &[0; 60],
//!     },
//!     1000,
//! );
//! let datagrams = exporter.take_datagrams(1000);
//! assert_eq!(datagrams.len(), 1);
//! assert_eq!(datagrams[0].bytes[..4], [0, 0, 0, 5]);
//! assert_eq!(datagrams[0].records, 1);
//! ```

mod datagram;
pub mod ipfix;
pub mod netflow;
pub mod sflow;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod xdr;

pub use datagram::{DATAGRAM_MAX, ExportDatagram};
