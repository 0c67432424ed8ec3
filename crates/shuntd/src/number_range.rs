//! Limits of whole numbers, in words for the operator.
//!
//! Parsers name a number by its type, such as `u32`, and a number that is too large by the type
//! that could hold it. An operator needs the largest or the smallest number instead.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

/// A type of whole numbers in the configuration and in state files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberType {
    /// Name of the type in messages of parsers.
    name: &'static str,
    /// Smallest number of the type.
    min: i128,
    /// Largest number of the type.
    max: i128,
}

impl NumberType {
    /// The types of all numbers in the configuration.
    const ALL: [Self; 8] = [
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
    fn expected_by(message: &str) -> Option<Self> {
        let (_, after) = message.rsplit_once(EXPECTED)?;
        let name = after.split_whitespace().next()?;
        Self::ALL.into_iter().find(|number| number.name == name)
    }
}

/// The words before the expected type in a message of a parser.
const EXPECTED: &str = ", expected ";

/// The rule of a key with a number.
pub(crate) const EXPECTED_NUMBER: &str = "expected a whole number";

/// Returns the rule that a refused value breaks: `it must be at most 255`.
///
/// The limit belongs to the type, and the range of the key may be smaller. `message` is the message
/// of the parser about `value`. `None` if the parser does not expect a number.
pub(crate) fn broken_rule(message: &str, value: &str) -> Option<String> {
    let NumberType { min, max, .. } = NumberType::expected_by(message)?;
    let (_, found) = message.split_once(": ")?;
    // The JSON parser reads a number with many digits as a fraction.
    let is_integer = found.starts_with("integer `")
        || value.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    if !is_integer {
        return Some(EXPECTED_NUMBER.to_owned());
    }
    Some(if value.starts_with('-') {
        format!("it must be at least {min}")
    } else {
        format!("it must be at most {max}")
    })
}

/// Returns the refusal of a number in a JSON text with one key on each line.
///
/// `None` if the error is not about a number.
pub(crate) fn refusal_in_json(error: &serde_json::Error, text: &[u8]) -> Option<String> {
    let message = error.to_string();
    let text = String::from_utf8_lossy(text);
    let line = text.lines().nth(error.line().checked_sub(1)?)?;
    let (key, value) = line.trim().trim_end_matches(',').split_once(": ")?;
    let is_alone = !value.contains([',', '{', '[']);
    let rule = broken_rule(&message, value).filter(|_| is_alone)?;
    Some(format!("line {}: {} = {value}: {rule}", error.line(), key.trim_matches('"')))
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
    fn broken_rule_is_limit_of_type() {
        for (name, min, max) in [
            ("u8", "0", "255"),
            ("u16", "0", "65535"),
            ("u32", "0", "4294967295"),
            ("u64", "0", "18446744073709551615"),
            ("i16", "-32768", "32767"),
            ("i32", "-2147483648", "2147483647"),
            ("i64", "-9223372036854775808", "9223372036854775807"),
        ] {
            /// A number that no type holds.
            const VALUE: &str = "99999999999999999999";
            let message = format!("invalid type: integer `{VALUE}` as i128, expected {name}");
            let rule = broken_rule(&message, VALUE);
            assert_eq!(rule, Some(format!("it must be at most {max}")));
            let value = format!("-{VALUE}");
            let message = format!("invalid value: integer `{value}`, expected {name} at line 3");
            let rule = broken_rule(&message, &value);
            assert_eq!(rule, Some(format!("it must be at least {min}")));
        }
    }

    #[test]
    fn other_value_breaks_no_limit() {
        let text = "invalid type: string \": integer `\", expected u8";
        assert_eq!(broken_rule(text, "\": integer `\"").as_deref(), Some(EXPECTED_NUMBER));
        let fraction = "invalid type: floating point `-1.5`, expected u8";
        assert_eq!(broken_rule(fraction, "-1.5").as_deref(), Some(EXPECTED_NUMBER));
        assert_eq!(broken_rule("invalid type: map, expected a string", "{}"), None);
        assert_eq!(broken_rule("integer number overflowed", "1"), None);
    }

    #[test]
    fn number_in_json_has_line_and_key() {
        /// A configuration file with one number.
        #[derive(Debug, serde::Deserialize)]
        struct SecondsFile {
            #[expect(dead_code, reason = "the text is refused")]
            seconds: u32,
        }
        let refused = |text: &str| {
            let error = serde_json::from_str::<SecondsFile>(text).unwrap_err();
            refusal_in_json(&error, text.as_bytes())
        };
        for (value, rule) in [
            ("99999999999", "it must be at most 4294967295"),
            ("99999999999999999999999", "it must be at most 4294967295"),
            ("-1", "it must be at least 0"),
            ("1.5", "expected a whole number"),
            ("\"1\"", "expected a whole number"),
        ] {
            let message = Some(format!("line 2: seconds = {value}: {rule}"));
            assert_eq!(refused(&format!("{{\n  \"seconds\": {value}\n}}")), message);
            let text = format!("{{\n  \"seconds\": {value},\n  \"other\": 1\n}}");
            assert_eq!(refused(&text), message);
        }
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
