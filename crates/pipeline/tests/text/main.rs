//! Compares texts of rules with recordings of Open vSwitch 3.1 and of OVN.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed")]

mod groups;
mod ovn;
mod rules;

/// Returns a list of recorded texts.
fn recorded_texts(data: &str, list: &str) -> Vec<serde_json::Value> {
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    data[list].as_array().unwrap().clone()
}
