//! Refusals of numbers in the configuration file, with their key and value.
//!
//! The TOML parser only knows the type of a number. So these messages state a limit of the type, and
//! the range of the key may be smaller. The check of the configuration refuses the other numbers,
//! with the exact range of the key.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Mistake, page};
use crate::number_range::broken_rule;

/// The message of the TOML parser about a number with too many digits for any type.
const OVERFLOW: &str = "integer number overflowed";

/// Returns the mistake if a message of the parser is about a number at a place.
pub(super) fn mistake(text: &str, message: &str, place: &Range<usize>) -> Option<Mistake> {
    // A text of several lines keeps the message of the parser, which has one line.
    let value = text.get(place.clone()).filter(|value| !value.contains('\n'))?;
    let rule = if message == OVERFLOW {
        let size = if value.starts_with('-') { "small" } else { "large" };
        format!("the number is too {size}")
    } else {
        broken_rule(message, value)?
    };
    let key = key_at(text, place)?;
    let quotes = value.starts_with(['"', '\'']).then_some("write the number without quotes");
    let help = quotes.map_or_else(|| format!("{} explains every key", page()), str::to_owned);
    Some(Mistake {
        message: format!("{key} = {value}: {rule}"),
        help: Some(help),
        span: place.clone(),
    })
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
    use super::super::{ConfigFileError, page, parse};

    /// Returns the message and the help of a refused text; without help, an empty text.
    fn refusal(text: &str) -> (String, String) {
        let Err(ConfigFileError::Text { message, help, .. }) = parse("shunt.toml", text.into())
        else {
            panic!("no complaint about {text}");
        };
        (message, help.unwrap_or_default())
    }

    /// The keys are in a table, a bridge, a port, a table of a port, and a list.
    #[test]
    fn refused_number_has_key_and_limit() {
        const BRIDGE: &str = "[[bridge]]\nname = \"a\"\n";
        const PORT: &str = "[[bridge]]\nname = \"a\"\n[[bridge.port]]\nname = \"p\"\n";
        for (start, line, message) in [
            (PORT, "bfd.mult = 300", "bfd.mult = 300: it must be at most 255"),
            (PORT, "[bridge.port.bfd]\nmult = 300", "bfd.mult = 300: it must be at most 255"),
            (PORT, "[bridge.port.bfd]\nmult = -1", "bfd.mult = -1: it must be at least 0"),
            (PORT, "trunks = [1, 70000]", "trunks = 70000: it must be at most 65535"),
            (PORT, "number = -7", "number = -7: it must be at least 0"),
            (BRIDGE, "mac_ageing_s = 99999999999", {
                "mac_ageing_s = 99999999999: it must be at most 4294967295"
            }),
            (BRIDGE, "[bridge.netflow]\nengine_id = -2147483649", {
                "netflow.engine_id = -2147483649: it must be at least -2147483648"
            }),
            ("", "caches.idle_ms = -4", "caches.idle_ms = -4: it must be at least 0"),
            ("[threads]\n", "packet = 99999", "threads.packet = 99999: it must be at most 65535"),
            ("[threads]\n", "packet = 0x1_0000", {
                "threads.packet = 0x1_0000: it must be at most 65535"
            }),
            ("[threads]\n", "cpus = [0, -1]", "threads.cpus = -1: it must be at least 0"),
        ] {
            let text = format!("{start}{line}\n");
            assert_eq!(refusal(&text), (message.to_owned(), every_key()), "{text}");
        }
    }

    #[test]
    fn number_with_too_many_digits_is_refused() {
        for (sign, rule) in [("", "the number is too large"), ("-", "the number is too small")] {
            let value = format!("{sign}{}", "9".repeat(46));
            let (message, help) = refusal(&format!("[threads]\npacket = {value}\n"));
            assert_eq!(message, format!("threads.packet = {value}: {rule}"));
            assert_eq!(help, every_key());
        }
    }

    #[test]
    fn other_value_has_key_and_rule() {
        let (message, help) = refusal("[threads]\npacket = 1.5\n");
        assert_eq!(message, "threads.packet = 1.5: expected a whole number");
        assert_eq!(help, every_key());
        for value in ["\"2\"", "'2'"] {
            let (message, help) = refusal(&format!("[threads]\npacket = {value}\n"));
            assert_eq!(message, format!("threads.packet = {value}: expected a whole number"));
            assert_eq!(help, "write the number without quotes");
        }
        let (message, _) = refusal("[threads]\npacket = \"\"\"2\n\"\"\"\n");
        assert!(message.ends_with("expected a whole number"), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    /// Returns the help that names the page with the range of every key.
    fn every_key() -> String {
        format!("{} explains every key", page())
    }
}
