//! Desired state: bridges, ports and settings as one value, which is applied as a difference.
//!
//! [`DesiredState`] describes what a switch is to have. [`difference`] returns the ordered changes
//! that lead from one state to another, and compares no device. [`Application`](apply::Application)
//! makes these changes, and reports each object in an [`ApplyReport`]. The reload of the
//! configuration file, the rows of an OVSDB database and the commands of `shuntctl` are users of
//! this module.
//!
//! An object is identified by its name ([`ObjectId`]), so an object with a new number is still
//! the same object in reports.

pub(crate) mod apply;
mod change;
mod command;
mod difference;
mod numbers;
mod object;
mod present;
mod report;
mod state;

pub use apply::ApplyPolicy;
pub(crate) use difference::with_nic_bridges;
pub use object::ObjectId;
pub use present::PresentState;
pub use report::{ApplyReport, ObjectOutcome, ObjectReport};
pub use state::{DeclaredBridge, DeclaredPort, DesiredState};
#[cfg(test)]
pub(crate) use {
    change::StateChange,
    difference::{Difference, difference},
};
