//! The operations of a request, of which the most frequent one needs no JSON value.
//!
//! Before `ovs-vsctl` changes the ports of a bridge, it checks that no other client has changed
//! them. So it sends one `wait` for each port, thousands on a large switch. As JSON values, these
//! operations would take most of the time of the transaction.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::{
    json_object::json_members,
    value::{Atom, Datum, RowUuid},
};

/// An operation of a `transact` request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestedOperation {
    /// Any operation, in the form of RFC 7047.
    Json(Value),
    /// A check of the references of one row.
    Check(RowCheck),
}

/// A `wait` that fails at once unless a column of a row has these references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCheck {
    pub(crate) table: Box<str>,
    pub(crate) column: Box<str>,
    pub(crate) row: RowUuid,
    pub(crate) references: ExpectedReferences,
}

/// The references that a row must have, in the form that the client chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedReferences {
    /// One row, as `["uuid", UUID]`.
    One(RowUuid),
    /// Several rows, as `["set", [["uuid", UUID], ..]]`.
    Set(Vec<RowUuid>),
}

impl RequestedOperation {
    /// Returns the operation in the form of RFC 7047.
    #[must_use]
    pub fn to_json(&self) -> Cow<'_, Value> {
        match self {
            Self::Json(json) => Cow::Borrowed(json),
            Self::Check(check) => Cow::Owned(check.to_json()),
        }
    }
}

impl RowCheck {
    /// Returns the check as the operation `wait` with timeout 0.
    fn to_json(&self) -> Value {
        let column = &*self.column;
        json!({
            "op": "wait",
            "table": &*self.table,
            "timeout": 0,
            "where": [["_uuid", "==", uuid_json(self.row)]],
            "columns": [column],
            "until": "==",
            "rows": [{ column: self.references.to_json() }],
        })
    }
}

impl ExpectedReferences {
    /// Returns whether a set has exactly these references.
    ///
    /// References in another order than that of the set may give false.
    pub(super) fn are_those_of(&self, value: &Datum) -> bool {
        let expected = match self {
            Self::One(uuid) => std::slice::from_ref(uuid),
            Self::Set(uuids) => uuids.as_slice(),
        };
        let actual = value.keys().iter().map(Atom::as_uuid);
        actual.eq(expected.iter().copied().map(Some))
    }

    /// Returns the references in the form that the client chose.
    fn to_json(&self) -> Value {
        match self {
            Self::One(uuid) => uuid_json(*uuid),
            Self::Set(uuids) => json_members("set", uuids.iter().copied().map(uuid_json).collect()),
        }
    }
}

/// Returns a UUID as JSON.
fn uuid_json(uuid: RowUuid) -> Value {
    json!(["uuid", uuid.to_string()])
}
