//! Pipelines as files: tables, the ways between them, and the traversals that packets take.
//!
//! A pipeline is JSON. Only `pipeline`, `tables`, `edges` and `traversals` must be there:
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
//! assert_eq!(pipeline.traversals[0].cuts(&pipeline.fields8).len(), 1);
//!
//! let typo = PipelineFile::parse(&text.replace("eth_src", "eth_scr")).unwrap_err();
//! assert!(typo.to_string().contains("did you mean `eth_src`?"));
//! # Ok::<(), shunt_pipebench::PipelineError>(())
//! ```
//!
//! Fields have names like those of OpenFlow (`eth_dst`, `ip_src`, `tp_dst`); a register's role is
//! `reg:role`. `fields8` are the fields that workloads drive; without it they are the eight of
//! Ethernet, IP and ports.

mod builtin;
mod check;
mod describe;
mod error;
mod field;
mod model;
mod picture;

pub use builtin::{BUILTIN, Builtin};
pub use describe::Description;
pub use error::{PipelineError, PipelineFault};
pub use field::Field;
pub use model::{Edge, PipelineFile, PublishedCounts, Step, Table, Terminal, Traversal};
pub use picture::picture;
