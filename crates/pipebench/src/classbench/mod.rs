//! ClassBench rule sets: 5-tuple filters with the structure of real filter sets.
//!
//! ClassBench (D. Taylor and J. Turner, *ClassBench: A Packet Classification Benchmark*, INFOCOM
//! 2005) describes a real filter set by a parameter file, and generates sets of any size from the
//! file. The module is an independent implementation of ClassBench: it reads and writes
//! [`Parameters`], [`generate()`] makes filters from parameters, and [`read_filters`] reads the
//! filter files of any ClassBench tool. [`BuiltinSet`] has Shunt's own parameters.
//!
//! ```
//! use shunt_pipebench::{
//!     Progress, Seed,
//!     classbench::{BuiltinSet, FilterRequest, Statistics, generate, read_filters},
//! };
//!
//! let firewall = BuiltinSet::Firewall.parameters();
//! let filters = generate(&firewall, &FilterRequest::new(1000), Seed::new(1), &Progress::hidden())?;
//!
//! let text: String = filters.iter().map(|filter| format!("{filter}\n")).collect();
//! assert_eq!(read_filters(&text)?, filters);
//! assert!(Statistics::of(&filters).address_pairs > 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod destination;
mod error;
mod filter;
mod generate;
mod lengths;
mod parameters;
mod parse;
mod published;
mod ranges;
mod scan;
mod sets;
mod source;
mod statistics;

pub use error::{FilterRequestError, ParameterError, TextError};
pub use filter::{AddressPrefix, Filter, TcpFlags, read_filters};
pub use generate::{FilterRequest, generate};
pub use parameters::Parameters;
pub use published::{PUBLISHED, PublishedSet};
pub use ranges::{PortMask, PortRange};
pub use sets::BuiltinSet;
pub use statistics::{FilterField, Statistics, tuple_recurrence};
