//! The predictors of flows.

mod due;
mod first_sightings;
mod flow_ends;
pub(crate) mod oracle;
mod pairs;
pub(crate) mod periodic;
pub(crate) mod reply;
mod scan_hand;
pub(crate) mod siblings;
mod source_ports;
pub(crate) mod successor;
