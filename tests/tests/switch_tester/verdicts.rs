//! Parser for the log of the switch tester.

use std::collections::BTreeMap;

/// Result of a test: success, or an error message.
pub(crate) type Verdict = Result<(), String>;

/// Parses the log up to the summary.
///
/// ```text
/// match: 00_IN_PORT                                                   the file
///     ethernet/ipv4/tcp-->'in_port=1,actions=output:2'       OK      a test
///     ethernet/ipv6/tcp-->'in_port=1,actions=output:2'       ERROR   another
///         Received incorrect packet                                  its message
/// ```
pub(crate) fn verdicts(log: &str) -> BTreeMap<String, Verdict> {
    let mut verdicts = BTreeMap::new();
    let (mut file, mut last) = (String::new(), String::new());
    let is_summary =
        |line: &&str| line.starts_with("--- Test report") || line.starts_with("---  Test end");
    for line in log.lines().take_while(|line| !is_summary(line)) {
        let (indent, words) = (line.len() - line.trim_start().len(), line.trim());
        match indent {
            0 if is_file(words) => words.clone_into(&mut file),
            4 => {
                let (name, verdict) = if let Some(name) = words.strip_suffix(" OK") {
                    (name, Ok(()))
                } else if let Some(name) = words.strip_suffix(" ERROR") {
                    (name, Err(String::new()))
                } else {
                    continue;
                };
                last = format!("{file} | {}", name.trim());
                verdicts.insert(last.clone(), verdict);
            }
            8 => {
                if let Some(Err(error_text)) = verdicts.get_mut(&last)
                    && error_text.is_empty()
                {
                    words.clone_into(error_text);
                }
            }
            _ => {}
        }
    }
    verdicts
}

fn is_file(line: &str) -> bool {
    ["action: ", "match: ", "group: ", "meter: "].iter().any(|kind| line.starts_with(kind))
}

#[test]
fn a_log_is_read_up_to_its_summary() {
    let log = "Test files directory = x\nmatch: A\n    one-->'x'      OK\n    two-->'y'    ERROR\n\
               \x20       no packet\n        more\n---  Test end  ---\n    three-->'z'   OK\n";
    let read = verdicts(log);
    let names: Vec<_> = read.keys().map(String::as_str).collect();
    assert_eq!(names, ["match: A | one-->'x'", "match: A | two-->'y'"]);
    assert_eq!(read["match: A | two-->'y'"], Err("no packet".to_owned()));
}
