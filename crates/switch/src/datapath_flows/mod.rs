//! Cache entries in the syntax of Open vSwitch's datapath, and the rules behind them.
//!
//! `ovs-appctl dpctl/dump-flows` prints flows in this syntax, and other programs parse it. The
//! syntax has no registers and metadata; a recirculation id replaces them. Fields that an entry
//! does not match are left out, so `in_port` is absent if the entry is for all ports.

mod actions;
mod fields;
mod key;
mod numbering;
mod reader;

pub use reader::{
    DatapathFlow, DatapathFlowFilter, DatapathFlowFormat, DatapathReader, PacketThreadCounters,
    RuleStatus,
};
