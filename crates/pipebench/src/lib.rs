//! Workloads for virtual switches: rule sets, pipelines and traffic, reproducible by name.
//!
//! A measurement of a switch needs a pipeline of tables, rules for the tables, and packets. The
//! crate generates rules, flows and packets from a seed, so that two people who use the same name
//! measure the same workload. The crate does not depend on any switch. Other tools read its output:
//! ClassBench filter files, OpenFlow rules for `ovs-ofctl`, pcap files.
//!
//! All randomness comes from a [`Seed`]: the same seed gives the same bytes on every machine and
//! with every later version.
//!
//! ```
//! use shunt_pipebench::Seed;
//!
//! let mut ports = Seed::new(1).stream("ports");
//! let first: Vec<u64> = (0..3).map(|_| ports.below(65_536)).collect();
//!
//! let mut again = Seed::new(1).stream("ports");
//! assert!(first.iter().all(|port| *port == again.below(65_536)));
//! ```

pub mod classbench;
pub mod command_line;
mod distribution;
mod error;
mod groups;
pub mod input;
pub mod name;
mod nearest;
pub mod output;
pub mod pipeline_file;
pub mod populate;
mod progress;
pub mod published;
mod real;
mod seed;
pub mod statistics;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod traffic;
pub mod workload;

pub use classbench::{FilterRequestError, ParameterError, TextError};
pub use distribution::{Exponential, LogNormal, WeightedIndices, Zipf};
pub use error::{
    CoflowTraceError, DistributionError, FrameError, LiveError, NameError, NameProblem,
    OutputError, TrafficError, WorkloadError,
};
pub use input::InputError;
pub use nearest::UnknownName;
pub use pipeline_file::{PipelineError, PipelineFault};
pub use populate::{DumpError, PopulateError};
pub use progress::Progress;
pub use seed::{RandomStream, Seed};
