//! Traversals: all that happened to one packet, and all that it depended on.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::{FlowKey, FlowMask};

use crate::{BridgeId, DatapathAction, Object, Rule, TableId};

/// All visits of one packet, its reads, and what was decided.
#[derive(Clone, Debug)]
pub struct Traversal {
    /// The version that it saw.
    pub version: Version,
    /// The packet, as it came in.
    pub key: FlowKey,
    /// Every bit of `key` that anything depended on: a packet that agrees under it fares alike.
    pub mask: FlowMask,
    /// Lookups, in order.
    pub visits: Vec<Visit>,
    /// Everything else that was consulted, each once.
    pub reads: Vec<Object>,
    /// What later hits must refresh.
    pub refreshes: Vec<Refresh>,
    /// What happens to the packet. Empty: it is dropped.
    pub actions: Arc<[DatapathAction]>,
    /// Why it came to nothing, if the switch and not a rule decided so.
    pub error: Option<TraversalError>,
}

/// One table lookup of a traversal.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The bridge.
    pub bridge: BridgeId,
    /// The table.
    pub table: TableId,
    /// The packet as it entered the table.
    pub key: FlowKey,
    /// The bits of `key` that the lookup and the actions of the matched rule consulted.
    pub mask: FlowMask,
    /// The rule that matched; `None`: a table miss.
    pub rule: Option<Arc<Rule>>,
}

/// Something that a hit prolongs (law 7). Nothing refreshes yet: NORMAL and `learn` will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refresh {}

/// Why a translation was cut short; the whole packet is dropped, outputs already decided included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraversalError {
    /// Resubmits or patch ports nested deeper than the bound.
    #[error("resubmits and patch ports are nested deeper than {0}")]
    TooDeep(u16),
    /// More table lookups by resubmit, goto or patch ports than the bound.
    #[error("more than {0} resubmits")]
    TooManyResubmits(u16),
    /// The packet came in by a port that no bridge has.
    #[error("the packet came in by a port that no bridge has")]
    NoSuchPort,
    /// More steps than a packet thread is given.
    #[error("more than {0} outputs and rewrites")]
    TooManyActions(usize),
}
