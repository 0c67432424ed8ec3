//! A pipeline filled with rules, and rules that were in a switch already.
//!
//! [`populate`] makes OpenFlow rules for all tables of a pipeline out of a rule-set, as A. Zulfiqar
//! describes for his Pipebench (*Rearchitecting the End Host Network for the Terabit Per Second Era*,
//! thesis, University of Michigan, 2026, section 3.6.1.4). [`Dump`] reads the rules of a real switch,
//! such as those of OVN or Antrea, from what `ovs-ofctl dump-flows` prints.
//!
//! ```
//! use shunt_pipebench::{
//!     Progress, Seed,
//!     classbench::{BuiltinSet, Request, generate},
//!     pipeline_file::{Builtin, PipelineFile},
//!     populate::{Filling, Form, populate},
//! };
//!
//! let filters = generate(
//!     &BuiltinSet::Acl.parameters(),
//!     &Request::new(100),
//!     Seed::new(1),
//!     &Progress::hidden(),
//! )?;
//! let psc = PipelineFile::parse(Builtin::find("psc").expect("one of the crate's").json)?;
//! let population = populate(&psc, &filters, (Filling::Forwarding, Form::Plain), Seed::new(1), &Progress::hidden())?;
//!
//! assert_eq!(population.counts().tables, 7);
//! let first = population.rules()[0].to_string();
//! assert!(first.starts_with("table=0,priority="), "{first}");
//! assert_eq!(population.flow_mods()?.len(), population.rules().len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base;
mod carried;
mod counts;
mod dump;
mod error;
mod fill;
mod matching;

pub use base::{BaseRule, drawn};
pub use counts::Counts;
pub use dump::{Dump, DumpTable};
pub use error::{DumpError, PopulateError};
pub use fill::{Filling, Form, PopulatedPath, PopulatedRule, Population, populate};
pub(crate) use matching::{Beside, step_matches};
