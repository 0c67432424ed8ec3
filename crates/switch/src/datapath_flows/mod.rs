//! Cache entries in the syntax of the datapath of Open vSwitch, and the rules behind them.
//!
//! `ovs-appctl dpctl/dump-flows` prints flows in this syntax, and other programs parse it. Registers
//! and metadata have no place in it: a recirculation id names this state. Fields that an entry does
//! not match are left out, so `in_port` is absent if the entry serves all ports.

mod actions;
mod fields;
mod key;
mod numbering;
mod reader;

pub use reader::{
    DatapathFlow, DatapathFlowFilter, DatapathFlowFormat, DatapathReader, PacketThreadCounters,
    RuleStatus,
};
