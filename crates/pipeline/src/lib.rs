//! OpenFlow tables, rules and their translation into traversals.

mod action;
mod delta;
mod evictor;
mod flow_mod;
mod id;
mod outcome;
mod port;
mod rule;
mod time;
mod traversal;

pub use action::{Action, ControllerAction, PacketInReason, Subfield};
pub use delta::{Delta, Object, RemovedReason, RuleChange, RuleDelta};
pub use evictor::{EntryId, Evictor, InstallNo, Installed, OwnerId};
pub use flow_mod::{FlowMod, FlowModCommand, FlowModError, TableSelector};
pub use id::{BridgeId, Cookie, DatapathPort, RuleId, TableId};
pub use outcome::{DatapathAction, PacketIn, Punt};
pub use port::{PortConfig, PortInfo, PortKind};
pub use rule::{FlowFlags, Instructions, Rule, RuleStats, RuleTotals};
pub use shunt_classifier::{Lifetime, Priority, Rank, Version};
pub use time::Time;
pub use traversal::{Refresh, Traversal, TraversalError, Visit};
