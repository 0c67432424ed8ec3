//! Names of particular tables, as text.

use std::collections::BTreeMap;

use shunt_pipeline::TableId;

use super::BridgeOptions;
use crate::error::SwitchError;

/// The longest name of a table (`OFP_MAX_TABLE_NAME_LEN`, without the final zero).
const NAME_BYTES_MAX: usize = 31;

impl BridgeOptions {
    /// Returns the names of particular tables.
    ///
    /// # Errors
    ///
    /// If a text is not a name, or a table has two.
    pub fn table_names(&self) -> Result<BTreeMap<TableId, String>, SwitchError> {
        let mut names = BTreeMap::new();
        for text in &self.table_names {
            let parsed = parse(text).filter(|(table, _)| !names.contains_key(table));
            let (table, name) = parsed.ok_or_else(|| SwitchError::Range {
                setting: "table_names",
                value: text.clone(),
                range: "TABLE:NAME, once for each table, with TABLE from 0 to 253 and a name of at \
                        most 31 ASCII characters without spaces and commas",
            })?;
            names.insert(table, name.to_owned());
        }
        Ok(names)
    }
}

/// Parses the name of a table, after its number.
fn parse(text: &str) -> Option<(TableId, &str)> {
    let (table, name) = text.split_once(':')?;
    let is_legal = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_legal);
    is_name.then_some((TableId::new(table.parse().ok()?)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses names of tables.
    fn names(texts: &[&str]) -> Result<BTreeMap<TableId, String>, SwitchError> {
        let table_names = texts.iter().map(|text| (*text).to_owned()).collect();
        BridgeOptions { table_names, ..BridgeOptions::default() }.table_names()
    }

    #[test]
    fn a_table_has_one_name() {
        let table = |number| TableId::new(number).unwrap();
        let expected = [(table(0), "classifier".to_owned()), (table(253), "a:b".to_owned())];
        assert_eq!(names(&["0:classifier", "253:a:b"]).unwrap(), BTreeMap::from(expected));
        let long = format!("0:{}", "x".repeat(32));
        for texts in
            [&["0:a", "0:b"][..], &["254:a"], &["0:"], &["0"], &["0:a b"], &["0:a,b"], &[&long]]
        {
            let error = names(texts).unwrap_err().to_string();
            assert!(error.starts_with("table_names"), "{error}");
        }
    }
}
