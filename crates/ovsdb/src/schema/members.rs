//! Strict access to the members of a JSON object: an object with an unknown member is refused.

use std::cell::RefCell;

use serde_json::{Map, Value};

/// The members of a JSON object, and the names of the members that were read.
pub(crate) struct Members<'a> {
    object: &'a Map<String, Value>,
    /// The names, of which some may be there several times.
    ///
    /// An operation has few members, and a message may have thousands of operations. A list is
    /// cheaper than a set then.
    read: RefCell<Vec<&'a str>>,
}

/// Room for the names of an operation, so that the list does not grow.
const READ_CAPACITY: usize = 16;

impl<'a> Members<'a> {
    /// Returns the members of a value, or `None` if it is no object.
    pub(crate) fn of(json: &'a Value) -> Option<Self> {
        let read = RefCell::new(Vec::with_capacity(READ_CAPACITY));
        Some(Self { object: json.as_object()?, read })
    }

    /// Returns a member of the object, and records that it was read.
    pub(crate) fn find(&self, name: &str) -> Option<&'a Value> {
        let (name, value) = self.object.get_key_value(name)?;
        self.read.borrow_mut().push(name);
        Some(value)
    }

    /// Returns a member that the object must have.
    pub(crate) fn required(&self, name: &str) -> Result<&'a Value, String> {
        self.find(name).ok_or_else(|| format!("Required '{name}' member is missing."))
    }

    /// Returns a member that is a string, if the object has it.
    pub(crate) fn find_string(&self, name: &str) -> Result<Option<&'a str>, String> {
        self.find(name).map(|value| value.as_str().ok_or_else(|| mismatch(name))).transpose()
    }

    /// Returns a required member that is a string.
    pub(crate) fn string(&self, name: &str) -> Result<&'a str, String> {
        self.required(name)?.as_str().ok_or_else(|| mismatch(name))
    }

    /// Returns a member that is an integer, if the object has it.
    pub(crate) fn find_integer(&self, name: &str) -> Result<Option<i64>, String> {
        self.find(name).map(|value| value.as_i64().ok_or_else(|| mismatch(name))).transpose()
    }

    /// Returns a member that is a boolean, if the object has it.
    pub(crate) fn find_boolean(&self, name: &str) -> Result<Option<bool>, String> {
        self.find(name).map(|value| value.as_bool().ok_or_else(|| mismatch(name))).transpose()
    }

    /// Returns a member that is an array, if the object has it.
    pub(crate) fn find_array(&self, name: &str) -> Result<Option<&'a [Value]>, String> {
        let array =
            |value: &'a Value| value.as_array().map(Vec::as_slice).ok_or_else(|| mismatch(name));
        self.find(name).map(array).transpose()
    }

    /// Returns a required member that is an object.
    pub(crate) fn object(&self, name: &str) -> Result<&'a Map<String, Value>, String> {
        self.required(name)?.as_object().ok_or_else(|| mismatch(name))
    }

    /// Returns an error if a member was not read.
    pub(crate) fn finish(&self) -> Result<(), String> {
        let read = self.read.borrow();
        match self.object.keys().find(|name| !read.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(format!("Member '{name}' is present but not allowed here.")),
        }
    }
}

/// Returns the error of a member with a wrong JSON type.
fn mismatch(name: &str) -> String {
    format!("Type mismatch for member '{name}'.")
}

/// Returns whether a text is an `<id>`.
///
/// An `<id>` has letters, digits and underscores, and does not begin with a digit.
pub(crate) fn is_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
