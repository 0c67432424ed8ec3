//! Events that predictors learn from.

use std::{collections::BTreeMap, sync::Arc};

use shunt_flow::{FieldId, FlowKey, SparseKey};

use crate::forecast::ForecastSource;

/// An event that a switch passes to predictors.
#[derive(Clone, Copy, Debug)]
pub enum FlowEvent<'a> {
    /// The first packet of a flow arrived.
    Started(&'a NewFlow),
    /// A flow ended: its cache entry expired.
    Ended(&'a SparseKey),
    /// The rules changed.
    /// The event has the sets of alternative values in the new rules.
    RulesChanged(&'a Arc<SiblingSets>),
}

/// The first packet of a flow.
#[derive(Clone, Debug)]
pub struct NewFlow {
    /// The key of the packet when it arrived.
    pub key: FlowKey,
    /// The key of the packet when it left, with the egress port as ingress port.
    ///
    /// `None` means that the packet left by several ports, or was not sent.
    pub egress: Option<FlowKey>,
    /// The origin of the forecast that the packet hit; `None` if it missed.
    pub forecast: Option<ForecastSource>,
}

/// Alternative values of one field, for example the back ends of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiblingSet {
    /// The field that has one of the values.
    pub field: FieldId,
    /// The values that replace each other.
    pub values: Vec<u128>,
}

/// The sets of alternative values in the rules of a switch.
///
/// The sets are built once for all threads, because they can have many values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiblingSets {
    /// The sets of alternative values.
    sets: Vec<SiblingSet>,
    /// The index of the set that has a value of a field.
    set_of: BTreeMap<(FieldId, u128), usize>,
}

impl SiblingSets {
    /// Maximum number of values in all sets.
    pub const VALUES_MAX: usize = 16_384;

    /// Creates the collection of these sets, with at most [`Self::VALUES_MAX`] values.
    /// Further sets are ignored.
    #[must_use]
    pub fn new(sets: Vec<SiblingSet>) -> Self {
        let mut all = Self::default();
        for set in sets {
            if all.set_of.len() + set.values.len() > Self::VALUES_MAX {
                break;
            }
            let index = all.sets.len();
            all.set_of.extend(set.values.iter().map(|value| ((set.field, *value), index)));
            all.sets.push(set);
        }
        all
    }

    /// Returns the other values in the set of a value of a field.
    pub fn siblings(&self, field: FieldId, value: u128) -> impl Iterator<Item = u128> {
        let set = self.set_of.get(&(field, value)).and_then(|index| self.sets.get(*index));
        let values = set.into_iter().flat_map(|set| &set.values).copied();
        values.filter(move |other| *other != value)
    }

    /// Returns the number of values in all sets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.set_of.len()
    }

    /// Returns whether no set has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set_of.is_empty()
    }
}
