//! Events that predictors learn from.

use shunt_flow::{FieldId, FlowKey, SparseKey};

use crate::forecast::ForecastSource;

/// An event that a switch passes to predictors.
#[derive(Clone, Copy, Debug)]
pub enum FlowEvent<'a> {
    /// The first packet of a flow arrived.
    Started(&'a NewFlow),
    /// A flow ended: its entry expired.
    Ended(&'a SparseKey),
    /// The rules changed; these are the sets of alternative values in the new rules.
    RulesChanged(&'a [SiblingSet]),
}

/// The first packet of a flow.
#[derive(Clone, Debug)]
pub struct NewFlow {
    /// The key of the packet as it arrived.
    pub key: FlowKey,
    /// The key of the packet as it left, with the egress port as its ingress port.
    ///
    /// `None` if the packet left by several ports, or not at all.
    pub egress: Option<FlowKey>,
    /// The origin of the forecast that the packet hit; `None` if it missed.
    pub forecast: Option<ForecastSource>,
}

/// Alternative values of one field: the back ends of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiblingSet {
    /// The field.
    pub field: FieldId,
    /// The values.
    pub values: Vec<u128>,
}
