//! The experiment framework: experiments by name, their rows, and the written reports.

mod axis;
mod choice;
mod columns;
mod command;
mod guide;
mod interrupt;
mod lines;
mod machine;
mod overview;
mod plot;
mod progress;
mod registry;
mod report;
mod row;
mod run;
mod table;
mod title;
mod words;

pub use choice::Choice;
pub use command::run_command;
pub(crate) use command::target;
pub use machine::machine;
use overview::overview;
pub use plot::plot;
pub use progress::Progress;
pub use registry::{EXPERIMENTS, Experiment, find};
use registry::{OF_DBSP, WITH_CIRCUITS};
pub(crate) use report::write_atomically;
pub use report::{Form, Report};
pub use row::{Better, Curve, Ratio, Row, Samples, Verdict, quantile, quantile_per_mille};
pub use run::Run;
pub use table::table;
pub(crate) use table::table_of_builds;
