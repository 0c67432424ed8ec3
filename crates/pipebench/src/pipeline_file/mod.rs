//! Pipeline files: tables, the edges between them, and the traversals of packets.
//!
//! A pipeline is JSON. Only `pipeline`, `tables`, `edges` and `traversals` are required:
//!
//! ```
//! use shunt_pipebench::pipeline_file::PipelineFile;
//!
//! let text = r#"{
//!   "pipeline": "router",
//!   "tables": [
//!     {"id": 0, "name": "port", "match_fields": ["eth_dst"]},
//!     {"id": 1, "name": "route", "match_fields": ["ip_dst"], "writes": ["eth_src", "eth_dst"]}
//!   ],
//!   "edges": [[0, 1, "mine"]],
//!   "traversals": [
//!     {"id": "routed", "terminal": "output", "steps": [
//!       {"table": 0, "match": ["eth_dst"]},
//!       {"table": 1, "match": ["ip_dst"], "set": ["eth_src", "eth_dst"]}
//!     ]}
//!   ]
//! }"#;
//! let pipeline = PipelineFile::parse(text)?;
//! assert_eq!(pipeline.traversals[0].partition_points(&pipeline.driven_fields).len(), 1);
//!
//! let typo = PipelineFile::parse(&text.replace("eth_src", "eth_scr")).unwrap_err();
//! assert!(typo.to_string().contains("did you mean `eth_src`?"));
//! # Ok::<(), shunt_pipebench::PipelineError>(())
//! ```
//!
//! Fields have OpenFlow names (`eth_dst`, `ip_src`, `tp_dst`); a register's role is `reg:role`.
//! Flows of workloads differ in the fields of `driven_fields`; the default is the eight fields of
//! Ethernet, IP and ports.

mod builtin;
mod check;
mod describe;
mod error;
mod field;
mod model;
mod picture;

pub use builtin::{BUILTIN, Builtin};
pub use describe::PipelineDescription;
pub use error::{PipelineError, PipelineFault};
pub use field::Field;
pub use model::{
    Edge, PipelineFile, PipelineTable, PipelineTraversal, PublishedCounts, Terminal, TraversalStep,
};
pub use picture::picture;
