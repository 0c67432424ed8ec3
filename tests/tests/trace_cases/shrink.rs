//! Shrinks a case to the smallest part that still has a difference.

use crate::{case::Case, rival::Rival, side_by_side::play};

/// Maximum number of smaller cases to try.
const TRIES: usize = 300;

/// Removes parts of a case while the first difference is of the same kind.
///
/// Parts are packets, rules, groups and actions. Returns the case and its differences.
pub(crate) fn shrink(case: Case, found: Vec<String>, rival: &mut Rival) -> (Case, Vec<String>) {
    let mut search = Search { kind: kind(&found), case, found, rival, tries: TRIES };
    search.drop_parts(|case| &mut case.packets);
    search.drop_parts(|case| &mut case.flows);
    search.drop_parts(|case| &mut case.groups);
    search.drop_parts(|case| &mut case.meters);
    search.drop_parts(|case| &mut case.port_mods);
    search.drop_parts(|case| &mut case.vlans);
    search.drop_parts(|case| &mut case.mirrors);
    search.drop_actions();
    search.drop_parts(|case| &mut case.flows);
    (search.case, search.found)
}

/// A search for a smaller case with the same kind of difference.
struct Search<'a> {
    kind: String,
    case: Case,
    found: Vec<String>,
    rival: &'a mut Rival,
    tries: usize,
}

impl Search<'_> {
    /// Applies `change` if the changed case has a difference, too.
    ///
    /// Returns whether the change is applied.
    fn takes(&mut self, change: impl FnOnce(&mut Case)) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        let mut smaller = self.case.clone();
        change(&mut smaller);
        let Some((found, _)) = play(&smaller, self.rival) else { return false };
        let differs = kind(&found) == self.kind;
        if differs {
            (self.case, self.found) = (smaller, found);
        }
        differs
    }

    /// Removes parts; at first several parts together.
    fn drop_parts<T>(&mut self, parts: impl Fn(&mut Case) -> &mut Vec<T>) {
        let mut chunk = parts(&mut self.case).len();
        while chunk > 0 {
            let mut begin = 0;
            while begin < parts(&mut self.case).len() {
                let end = (begin + chunk).min(parts(&mut self.case).len());
                if !self.takes(|case| drop(parts(case).drain(begin..end))) {
                    begin = end;
                }
            }
            chunk /= 2;
        }
    }

    /// Removes actions of rules one after the other.
    fn drop_actions(&mut self) {
        for index in 0..self.case.flows.len() {
            let mut place = 0;
            while let Some(shorter) = without_action(&self.case.flows[index], place) {
                if !self.takes(|case| case.flows[index] = shorter) {
                    place += 1;
                }
            }
        }
    }
}

/// Returns the kind of the first difference.
fn kind(found: &[String]) -> String {
    let first = found.first().map_or("", String::as_str);
    let words: Vec<&str> = first.split_whitespace().take(3).collect();
    match words[..] {
        ["pass", ..] => "frames".to_owned(),
        ["addresses", ..] => "addresses".to_owned(),
        _ => words.join(" "),
    }
}

/// Returns a rule without one of its actions, unless the action is the only action.
fn without_action(rule: &str, place: usize) -> Option<String> {
    let (matching, actions) = rule.split_once("actions=")?;
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for letter in actions.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if letter == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(letter);
        }
    }
    if parts.len() < 2 || place >= parts.len() {
        return None;
    }
    parts.remove(place);
    Some(format!("{matching}actions={}", parts.join(",")))
}
