//! Refusals of numbers in the configuration file, with key, value and allowed numbers.
//!
//! The TOML parser only knows the type of a number, and most keys have a smaller range. The check of
//! the configuration knows this range, but needs a number of the type. So the wrong number is
//! replaced by the largest and then by the smallest number of its type, and the check names the
//! range.

use std::ops::Range;

use shunt_switch::{ConfigError, SwitchError};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{ConfigFile, Mistake, page, span};
use crate::number_range::{NumberType, refusal};

/// A number that is larger than any type, but short enough for the TOML parser.
const TOO_LARGE: &str = "99999999999999999999";

/// The message of the TOML parser about a number with too many digits for any type.
const OVERFLOW: &str = "integer number overflowed";

/// Returns the mistake if a message of the parser is about a number at a place.
pub(super) fn mistake(text: &str, message: &str, place: &Range<usize>) -> Option<Mistake> {
    let value = text.get(place.clone())?;
    let expected = if message.starts_with(OVERFLOW) {
        let probe = replaced(text, place, TOO_LARGE)?;
        let error = toml::from_str::<ConfigFile>(&probe).err()?;
        NumberType::expected_by(error.message().lines().next()?)?
    } else {
        NumberType::expected_by(message)?
    };
    let key = key_at(text, place)?;
    let refused = RefusedNumber { text, place, expected };
    let is_number = message.starts_with(OVERFLOW) || message.contains(": integer `");
    let message = if is_number {
        refusal(&key, value, &refused.range())
    } else {
        let found = message.rsplit_once(", expected ").map_or(message, |(found, _)| found);
        let range = refused.range();
        format!("{found}, expected a whole number: {key} must be {range}")
    };
    let quotes = value.starts_with(['"', '\'']).then_some("write the number without quotes");
    let help = quotes.map_or_else(|| format!("{} explains every key", page()), str::to_owned);
    Some(Mistake { message, help: Some(help), span: place.clone() })
}

/// A value at a place that needs a number of another size.
struct RefusedNumber<'a> {
    text: &'a str,
    place: &'a Range<usize>,
    expected: NumberType,
}

impl RefusedNumber<'_> {
    /// Returns the allowed numbers.
    fn range(&self) -> String {
        let own = |number: i128| match self.problem(&number.to_string())?.problem.as_ref() {
            SwitchError::Range { range, .. } => Some(*range),
            SwitchError::NumberRange(_) => Some("from 1 to 65279"),
            _ => None,
        };
        let NumberType { min, max, .. } = self.expected;
        match own(max).or_else(|| own(min)) {
            None => self.expected.range(),
            Some(range) => match range.strip_prefix("at least ") {
                Some(least) => format!("from {least} to {max}"),
                None => range.to_owned(),
            },
        }
    }

    /// Returns the problem that the check finds with `number` at the place.
    fn problem(&self, number: &str) -> Option<ConfigError> {
        let probe = replaced(self.text, self.place, number)?;
        let file: ConfigFile = toml::from_str(&probe).ok()?;
        let problem = file.switch().check().err()?;
        let place = span(&probe, problem.path.steps())?;
        place.contains(&self.place.start).then_some(problem)
    }
}

/// Returns the text with another value at a place.
fn replaced(text: &str, place: &Range<usize>, value: &str) -> Option<String> {
    Some(format!("{}{value}{}", text.get(..place.start)?, text.get(place.end..)?))
}

/// Returns the key of a value: `threads.packet`, or `mtu` in a bridge or port.
fn key_at(text: &str, place: &Range<usize>) -> Option<String> {
    let document = DeTable::parse(text).ok()?;
    let mut open: Vec<(String, &Spanned<DeValue<'_>>)> = Vec::new();
    let entries = document.get_ref().iter();
    open.extend(entries.map(|(name, value)| (name.get_ref().to_string(), value)));
    while let Some((key, value)) = open.pop() {
        match value.get_ref() {
            DeValue::Table(table) => {
                let dot = if key.is_empty() { "" } else { "." };
                let inner = table.iter();
                open.extend(
                    inner.map(|(name, value)| (format!("{key}{dot}{}", name.get_ref()), value)),
                );
            }
            DeValue::Array(list) => {
                // The elements of a list of bridges or ports have their own keys.
                let own = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
                    DeValue::Table(_) => String::new(),
                    _ => key.clone(),
                };
                open.extend(list.iter().map(|value| (own(value), value)));
            }
            _ if value.span() == *place => return Some(key),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ConfigFileError, parse},
        *,
    };

    fn error_text(text: &str) -> String {
        let Err(ConfigFileError::Text { message, help, .. }) = parse("shunt.toml", text.into())
        else {
            panic!("no complaint about {text}");
        };
        assert!(help.is_some(), "{text}");
        message
    }

    #[test]
    fn refused_numbers_have_key_and_range() {
        const HUGE: &str = "9999999999999999999999999999999999999999999999";
        for (text, message) in [
            (
                "[threads]\npacket = 99999\n".to_owned(),
                "threads.packet = 99999: it must be from 1 to 64",
            ),
            ("[threads]\npacket = -1\n".to_owned(), "threads.packet = -1: it must be from 1 to 64"),
            (
                format!("[threads]\npacket = {TOO_LARGE}\n"),
                "threads.packet = 99999999999999999999: it must be from 1 to 64",
            ),
            (
                format!("[threads]\npacket = {HUGE}\n"),
                "threads.packet = 9999999999999999999999999999999999999999999999: it must be from 1 \
                 to 64",
            ),
            (
                "caches.idle_ms = -4\n".to_owned(),
                "caches.idle_ms = -4: it must be from 1 to 18446744073709551615",
            ),
            (
                "[[bridge]]\nname = \"a\"\nmac_ageing_s = 99999999999\n".to_owned(),
                "mac_ageing_s = 99999999999: it must be from 0 to 4294967295",
            ),
            (
                "[[bridge]]\nname = \"a\"\n[bridge.netflow]\nengine_id = 99999999999\n".to_owned(),
                "netflow.engine_id = 99999999999: it must be from -1 to 255",
            ),
            (
                "[[bridge]]\nname = \"a\"\n[[bridge.port]]\nname = \"p\"\ntrunks = [1, 70000]\n"
                    .to_owned(),
                "trunks = 70000: it must be a VLAN from 0 to 4095",
            ),
            (
                "[[bridge]]\nname = \"a\"\n[[bridge.port]]\nname = \"p\"\nnumber = 99999999999\n"
                    .to_owned(),
                "number = 99999999999: it must be from 1 to 65279",
            ),
            (
                "[threads]\npacket = 1.5\n".to_owned(),
                "invalid type: floating point `1.5`, expected a whole number: threads.packet must \
                 be from 1 to 64",
            ),
        ] {
            assert_eq!(error_text(&text), message, "{text}");
        }
    }

    /// Another mistake in the file hides the range of the key.
    #[test]
    fn type_range_is_the_last_resort() {
        let text = "[threads]\npacket = 0\ntranslations_per_iteration = 99999999999999999999\n";
        let message = error_text(text);
        let start =
            "threads.translations_per_iteration = 99999999999999999999: it must be from 0 to ";
        assert!(message.starts_with(start), "{message}");
    }
}
