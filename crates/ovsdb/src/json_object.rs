//! JSON values that take their members without a copy.
//!
//! The macro `json!` copies every value that is an expression, with all its members. The first
//! message to a monitor has all rows, so such copies would take longer than the rows themselves.

use serde_json::Value;

/// Returns an object of members.
pub(crate) fn json_object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Returns `[CLASS, [MEMBER, ..]]`, the form of sets and maps.
pub(crate) fn json_members(class: &str, members: Vec<Value>) -> Value {
    Value::Array(vec![class.into(), Value::Array(members)])
}
