//! Rule limits of particular tables, as text.

use std::collections::BTreeMap;

use shunt_pipeline::{OverflowPolicy, TableId};

use super::BridgeOptions;
use crate::error::SwitchError;

/// The allowed texts, for errors.
#[cfg(target_pointer_width = "64")]
const RANGE: &str = "TABLE:RULES, TABLE:RULES:refuse or TABLE:RULES:evict, once for each table, with \
                     TABLE from 0 to 253 and RULES from 0 to 18446744073709551615";
/// The form of a limit, for error messages.
#[cfg(not(target_pointer_width = "64"))]
const RANGE: &str = "TABLE:RULES, TABLE:RULES:refuse or TABLE:RULES:evict, once for each table, with \
                     TABLE from 0 to 253 and RULES from 0 to 4294967295";

/// The rule limit of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableLimit {
    /// Maximum number of rules in the table.
    pub(crate) rules: usize,
    /// The handling of additions to the full table; `None`:
    /// as for tables without a limit of their own.
    pub(crate) overflow: Option<OverflowPolicy>,
}

impl BridgeOptions {
    /// Returns the rule limits of particular tables.
    ///
    /// # Errors
    ///
    /// If a text is not a limit, or a table has two limits.
    pub(crate) fn table_limits(&self) -> Result<BTreeMap<TableId, TableLimit>, SwitchError> {
        let mut limits = BTreeMap::new();
        for text in &self.table_limits {
            let parsed = parse(text).filter(|(table, _)| !limits.contains_key(table));
            let (table, limit) = parsed.ok_or_else(|| SwitchError::Range {
                setting: "table_limits",
                value: text.clone(),
                range: RANGE,
            })?;
            limits.insert(table, limit);
        }
        Ok(limits)
    }
}

/// Parses the limit of a table, such as `3:1000:evict`.
fn parse(text: &str) -> Option<(TableId, TableLimit)> {
    let mut parts = text.split(':');
    let table = TableId::new(parts.next()?.parse().ok()?)?;
    let rules = parts.next()?.parse().ok()?;
    let overflow = match parts.next() {
        None => None,
        Some("refuse") => Some(OverflowPolicy::Refuse),
        Some("evict") => Some(OverflowPolicy::Evict),
        Some(_) => return None,
    };
    parts.next().is_none().then_some((table, TableLimit { rules, overflow }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_limit_needs_table_and_rules() {
        let limits = |texts: &[&str]| {
            let table_limits = texts.iter().map(|text| (*text).to_owned()).collect();
            BridgeOptions { table_limits, ..BridgeOptions::default() }.table_limits()
        };
        let read = limits(&["0:1", "253:50:evict", "7:0:refuse"]).unwrap();
        let expected = [
            (0, 1, None),
            (7, 0, Some(OverflowPolicy::Refuse)),
            (253, 50, Some(OverflowPolicy::Evict)),
        ];
        let expected = expected.map(|(table, rules, overflow)| {
            (TableId::new(table).unwrap(), TableLimit { rules, overflow })
        });
        assert_eq!(read, BTreeMap::from(expected));
        assert_eq!(limits(&[]).unwrap(), BTreeMap::new());
        for wrong in ["", "1", "254:1", "1:-1", "1:1:drop", "1:1:evict:1", "a:1"] {
            let error = limits(&[wrong]).unwrap_err().to_string();
            assert!(error.starts_with("table_limits"), "{error}");
        }
        assert!(limits(&["1:1", "1:2"]).is_err());
        let range = format!("TABLE from 0 to 253 and RULES from 0 to {}", usize::MAX);
        for wrong in ["255:3", "1:99999999999999999999"] {
            let error = limits(&[wrong]).unwrap_err().to_string();
            assert!(error.ends_with(&range), "{error}");
        }
    }
}
