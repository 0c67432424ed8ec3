//! Tables of `shuntctl`: each key that the tables read is a field of a status.
//!
//! The client reads the JSON of a daemon by keys, so that the client can also show the status of an
//! older or newer daemon. The client shows a key without a field in the status as 0 or as an empty
//! word.

use std::collections::BTreeSet;

use shunt_tests::repository::files;

/// Words of the tables that look like keys.
const NOT_KEYS: &[&str] =
    &["packet_in_listener_full", "packet_in_no_connection", "packet_in_no_bridge"];

/// Returns the code of the files in the folders `starts`, without unit tests.
fn code_of(starts: &[&str]) -> Vec<String> {
    let all = files(".rs").into_iter();
    let wanted = all.filter(|(path, _)| {
        starts.iter().any(|start| path.starts_with(start)) && !path.ends_with("/tests.rs")
    });
    wanted.map(|(_, text)| text.split("#[cfg(test)]").next().unwrap_or_default().into()).collect()
}

fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte))
}

/// Returns the quoted words that index a value or contain an underscore.
fn keys(code: &str) -> impl Iterator<Item = &str> {
    let words = code.match_indices('"').filter_map(|(at, _)| {
        let word = code[at + 1..].split('"').next().filter(|word| is_name(word))?;
        let is_index = code[..at].ends_with('[') && code[at + word.len() + 2..].starts_with(']');
        (is_index || word.contains('_')).then_some(word)
    });
    words.filter(|word| !NOT_KEYS.contains(word))
}

/// Returns the fields of structures and variants,
/// including fields that `serde` renames.
fn fields(code: &str) -> impl Iterator<Item = &str> {
    let renamed = code.split("rename = \"").skip(1).filter_map(|rest| rest.split('"').next());
    let declared = code.split(['\n', '{', ',']).filter_map(|part| {
        let name = part.trim().split(": ").next().unwrap_or_default();
        name.strip_prefix("pub ").or_else(|| name.strip_prefix("pub(crate) ")).or(Some(name))
    });
    renamed.chain(declared).filter(|name| is_name(name))
}

#[test]
fn documented_keys_are_fields_of_a_status() {
    let statuses = code_of(&["crates/switch/src/"]);
    let statuses: Vec<String> =
        statuses.into_iter().filter(|code| code.contains("Serialize")).collect();
    let known: BTreeSet<&str> = statuses.iter().flat_map(|code| fields(code)).collect();
    let tables = code_of(&["crates/shuntd/src/render"]);
    let read: BTreeSet<&str> = tables.iter().flat_map(|code| keys(code)).collect();
    assert!(read.len() > 100, "{read:?}");
    let unknown: Vec<_> = read.difference(&known).collect();
    assert!(unknown.is_empty(), "no status has {unknown:?}");
}
