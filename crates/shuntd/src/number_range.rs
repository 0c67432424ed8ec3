//! Ranges of whole numbers, in words for the operator.
//!
//! Parsers name a number by its type, such as `u32`, and a number that is too large by the type that
//! could hold it. An operator needs the smallest and the largest allowed number instead.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

/// A type of whole numbers in the configuration and in state files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberType {
    /// Name of the type in messages of parsers.
    name: &'static str,
    /// Smallest number of the type.
    pub(crate) min: i128,
    /// Largest number of the type.
    pub(crate) max: i128,
}

impl NumberType {
    /// The types of all numbers in the configuration.
    pub(crate) const ALL: [Self; 8] = [
        Self { name: "u8", min: 0, max: u8::MAX as i128 },
        Self { name: "u16", min: 0, max: u16::MAX as i128 },
        Self { name: "u32", min: 0, max: u32::MAX as i128 },
        Self { name: "u64", min: 0, max: u64::MAX as i128 },
        Self { name: "usize", min: 0, max: usize::MAX as i128 },
        Self { name: "i16", min: i16::MIN as i128, max: i16::MAX as i128 },
        Self { name: "i32", min: i32::MIN as i128, max: i32::MAX as i128 },
        Self { name: "i64", min: i64::MIN as i128, max: i64::MAX as i128 },
    ];

    /// Returns the type that a message of a parser expects, such as `.., expected u32`.
    pub(crate) fn expected_by(message: &str) -> Option<Self> {
        let (_, after) = message.rsplit_once(EXPECTED)?;
        let name = after.split_whitespace().next()?;
        Self::ALL.into_iter().find(|number| number.name == name)
    }

    /// Returns the allowed numbers: `from 0 to 255`.
    pub(crate) fn range(self) -> String {
        let Self { min, max, .. } = self;
        format!("from {min} to {max}")
    }
}

/// The words before the expected type in a message of a parser.
const EXPECTED: &str = ", expected ";

/// Returns the refusal of a number: `threads.packet = 0: it must be from 1 to 64`.
pub(crate) fn refusal(key: &str, value: &str, range: &str) -> String {
    format!("{key} = {value}: it must be {range}")
}

/// Returns the refusal of a number in a JSON text with one key on each line.
///
/// `None` if the error is not about a number.
pub(crate) fn refusal_in_json(error: &serde_json::Error, text: &[u8]) -> Option<String> {
    let expected = NumberType::expected_by(&error.to_string())?;
    let text = String::from_utf8_lossy(text);
    let line = text.lines().nth(error.line().checked_sub(1)?)?;
    let (key, value) = line.trim().trim_end_matches(',').split_once(": ")?;
    let is_alone = !value.contains([',', '{', '[']);
    let refusal = refusal(key.trim_matches('"'), value, &expected.range());
    is_alone.then(|| format!("line {}: {refusal}", error.line()))
}

/// Returns a parser of numbers with errors that have the allowed numbers.
pub(crate) fn number_in<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse::<T>().ok().filter(|number| range.contains(number));
        let (min, max) = (range.start(), range.end());
        number.ok_or_else(|| format!("use a whole number from {min} to {max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_type_of_a_message_is_found() {
        let range = |message| NumberType::expected_by(message).map(NumberType::range);
        let found = range("invalid value: integer `-4`, expected u8");
        assert_eq!(found.as_deref(), Some("from 0 to 255"));
        let found = range("invalid value: integer `-4`, expected u32 at line 3 column 9");
        assert_eq!(found.as_deref(), Some("from 0 to 4294967295"));
        let found = range("invalid type: integer `99` as i128, expected i32");
        assert_eq!(found.as_deref(), Some("from -2147483648 to 2147483647"));
        assert_eq!(range("invalid type: map, expected a string"), None);
        assert_eq!(range("integer number overflowed"), None);
    }

    #[test]
    fn number_in_json_has_line_and_key() {
        #[derive(Debug, serde::Deserialize)]
        struct SecondsFile {
            #[expect(dead_code, reason = "the text is refused")]
            seconds: u32,
        }
        let refused = |text: &str| {
            let error = serde_json::from_str::<SecondsFile>(text).unwrap_err();
            refusal_in_json(&error, text.as_bytes())
        };
        let message = "line 2: seconds = 99999999999: it must be from 0 to 4294967295";
        let text = "{\n  \"seconds\": 99999999999,\n  \"other\": 1\n}";
        assert_eq!(refused(text).as_deref(), Some(message));
        assert_eq!(
            refused("{\n  \"seconds\": -1\n}").unwrap(),
            message.replace("99999999999", "-1")
        );
        assert_eq!(refused("{}"), None);
    }

    #[test]
    fn command_line_numbers_have_a_range() {
        let parse = number_in(1..=64_u8);
        assert_eq!(parse("64"), Ok(64));
        for wrong in ["0", "65", "256", "-1", "1e30", "", "two"] {
            let message = "use a whole number from 1 to 64".to_owned();
            assert_eq!(parse(wrong), Err(message), "{wrong}");
        }
    }
}
