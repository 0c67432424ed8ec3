//! What a packet is: flow keys, masks, fields, header parsing and writing.

pub mod field;
mod key;
pub mod layout;
mod mask;
mod port;
mod sparse;

pub use field::FieldId;
pub use key::FlowKey;
pub use mask::FlowMask;
pub use port::PortNo;
pub use sparse::{Match, SparseMask, WordMap};
