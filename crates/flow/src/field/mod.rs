//! The field table: the single source of names, widths, slots, wire numbers and prerequisites.
//!
//! One table has a row per field. All code that reads or writes fields (match text, OXM and NXM
//! headers, prerequisites, traces, documentation) uses [`FieldId::info`]. Names are the spellings
//! of `ovs-fields(7)`.

mod info;
mod table;
pub(crate) mod vlan;

pub(crate) use info::NO_LATER_FRAGMENTS;
pub use info::{Access, FieldInfo, Format, Maskable, Oxm, OxmClass, Prerequisite};
pub use table::FieldId;
