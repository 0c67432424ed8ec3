//! Pipelines filled with rules, and rules dumped from a switch.
//!
//! [`populate`] generates OpenFlow rules for all tables of a pipeline from a rule set, as A.
//! Zulfiqar describes for his Pipebench (*Rearchitecting the End Host Network for the Terabit Per
//! Second Era*, thesis, University of Michigan, 2026, section 3.6.1.4). [`SwitchDump`] reads the rules of
//! a real switch, such as those of OVN or Antrea, from the output of `ovs-ofctl dump-flows`.
//!
//! ```
//! use shunt_pipebench::{
//!     Progress, Seed,
//!     classbench::{BuiltinSet, FilterRequest, generate},
//!     pipeline_file::{Builtin, PipelineFile},
//!     populate::{TraversalSelection, RuleForm, populate},
//! };
//!
//! let filters = generate(
//!     &BuiltinSet::Acl.parameters(),
//!     &FilterRequest::new(100),
//!     Seed::new(1),
//!     &Progress::hidden(),
//! )?;
//! let psc = PipelineFile::parse(Builtin::find("psc").expect("a built-in pipeline").json)?;
//! let population = populate(&psc, &filters, TraversalSelection::Forwarding, RuleForm::Plain, Seed::new(1), &Progress::hidden())?;
//!
//! assert_eq!(population.counts().tables, 7);
//! let first = population.rules()[0].to_string();
//! assert!(first.starts_with("table=0,priority="), "{first}");
//! assert_eq!(population.flow_mods()?.len(), population.rules().len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base;
mod counts;
mod dump;
mod error;
mod fill;
mod matching;
mod step_state;

pub use base::{BaseRule, sampled};
pub use counts::PopulationCounts;
pub use dump::{DumpTable, SwitchDump};
pub use error::{DumpError, PopulateError};
pub use fill::{PopulatedPath, PopulatedRule, Population, RuleForm, TraversalSelection, populate};
pub(crate) use matching::{OtherMatches, step_matches};
