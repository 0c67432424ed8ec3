//! Rule-sets in the format of ClassBench.
//!
//! A line has one rule, and the first line has the rule that wins over all others. The columns are
//! source and destination prefix, source and destination port range, protocol and mask. Further
//! columns, such as flags, are ignored.
//!
//! ```text
//! @10.1.0.0/16  192.168.7.9/32  0 : 65535  80 : 80  0x06/0xFF
//! ```

use thiserror::Error;

use crate::{BoxRule, PriorityRule};

/// A line of a rule-set that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the rule-set: {text:?} is not {expected}: correct the line")]
pub struct ClassBenchError {
    /// Number of the line, from 1.
    line: usize,
    /// The words of the line that were refused.
    text: String,
    /// A description of the expected words.
    expected: &'static str,
}

impl ClassBenchError {
    /// Returns the number of the refused line, from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }
}

/// Reads a rule-set.
/// The priority and the value of a rule are both its position, from 0.
///
/// Host bits of a prefix are dropped. Lines without words are skipped.
///
/// # Errors
///
/// Returns an error for the first line that is not a rule.
pub fn parse_classbench(text: &str) -> Result<Vec<PriorityRule<5>>, ClassBenchError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let rule = |(position, (at, line)): (u32, (usize, &str))| {
        rule(line)
            .map(|(low, high)| {
                let rule = BoxRule { low, high, value: position };
                PriorityRule { priority: position, ..PriorityRule::from(&rule) }
            })
            .map_err(|(text, expected)| ClassBenchError { line: at + 1, text, expected })
    };
    (0..).zip(lines).map(rule).collect()
}

/// The refused words, and a description of the expected words.
type RefusedWords = (String, &'static str);

/// Parses a line into the lowest and the highest value of each field.
fn rule(line: &str) -> Result<([u32; 5], [u32; 5]), RefusedWords> {
    let words: Vec<&str> = line.trim_start().trim_start_matches('@').split_whitespace().collect();
    let [source, destination, a, colon, b, c, other_colon, d, protocol, ..] = words[..] else {
        return Err((line.to_owned(), "a rule of nine words"));
    };
    if (colon, other_colon) != (":", ":") {
        return Err((line.to_owned(), "a rule with two port ranges"));
    }
    let ranges =
        [prefix(source)?, prefix(destination)?, ports(a, b)?, ports(c, d)?, proto(protocol)?];
    Ok((ranges.map(|(low, _)| low), ranges.map(|(_, high)| high)))
}

/// Parses an address prefix into its lowest and its highest address.
fn prefix(word: &str) -> Result<(u32, u32), RefusedWords> {
    let parsed = word.split_once('/').and_then(|(address, length)| {
        let address: std::net::Ipv4Addr = address.parse().ok()?;
        let length: u32 = length.parse().ok().filter(|length| *length <= 32)?;
        let free = u32::MAX.checked_shr(length).unwrap_or(0);
        Some((u32::from(address) & !free, u32::from(address) | free))
    });
    parsed.ok_or_else(|| (word.to_owned(), "an IPv4 prefix"))
}

/// Parses a range of ports.
fn ports(low: &str, high: &str) -> Result<(u32, u32), RefusedWords> {
    let parsed = low.parse::<u16>().ok().zip(high.parse::<u16>().ok());
    let parsed = parsed.filter(|(low, high)| low <= high);
    parsed
        .map(|(low, high)| (u32::from(low), u32::from(high)))
        .ok_or_else(|| (format!("{low} : {high}"), "a port range"))
}

/// Parses a protocol with its mask into a range.
fn proto(word: &str) -> Result<(u32, u32), RefusedWords> {
    let byte = |word: &str| u8::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let parsed = word.split_once('/').and_then(|(value, mask)| match byte(mask)? {
        0 => Some((0, 255)),
        0xff => byte(value).map(|value| (u32::from(value), u32::from(value))),
        _ => None,
    });
    parsed.ok_or_else(|| (word.to_owned(), "a protocol with the mask 0x00 or 0xFF"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_in_order() {
        let text = "@10.1.2.3/16\t0.0.0.0/0\t0 : 65535\t80 : 81\t0x06/0xFF\t0x0000/0x0200\t\n\n\
                    @1.2.3.4/32 5.6.7.8/31 7 : 7 0 : 9 0x00/0x00";
        let rules = parse_classbench(text).unwrap();
        assert_eq!(
            rules[0].as_box(),
            BoxRule {
                low: [0x0a01_0000, 0, 0, 80, 6],
                high: [0x0a01_ffff, u32::MAX, 65535, 81, 6],
                value: 0
            }
        );
        assert_eq!(
            rules[1].as_box(),
            BoxRule {
                low: [0x0102_0304, 0x0506_0708, 7, 0, 0],
                high: [0x0102_0304, 0x0506_0709, 7, 9, 255],
                value: 1
            }
        );
        assert_eq!((rules[0].priority(), rules[1].priority()), (0, 1));
    }

    #[test]
    fn an_error_names_the_line() {
        let good = "@1.2.3.4/32 5.6.7.8/31 7 : 7 0 : 9 0x00/0x00\n";
        for (bad, expected) in [
            ("@1.2.3.4/33 5.6.7.8/31 7 : 7 0 : 9 0x00/0x00", "an IPv4 prefix"),
            ("@1.2.3/32 5.6.7.8/31 7 : 7 0 : 9 0x00/0x00", "an IPv4 prefix"),
            ("@1.2.3.4/32 5.6.7.8/31 8 : 7 0 : 9 0x00/0x00", "a port range"),
            ("@1.2.3.4/32 5.6.7.8/31 7 : 7 0 : 65536 0x00/0x00", "a port range"),
            ("@1.2.3.4/32 5.6.7.8/31 7 : 7 0 : 9 0x00/0x0F", "protocol"),
            ("@1.2.3.4/32 5.6.7.8/31 7 : 7", "nine words"),
            ("@1.2.3.4/32 5.6.7.8/31 7 - 7 0 - 9 0x00/0x00", "two port ranges"),
        ] {
            let error = parse_classbench(&format!("{good}{bad}")).unwrap_err().to_string();
            assert!(
                error.starts_with("line 2 of the rule-set: ") && error.contains(expected),
                "{error}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_refused_or_gives_boxes(
            words in proptest::collection::vec("[@0-9a-fx./: -]{0,12}|[^\n]{0,3}|\n|1[.]2[.]3[.]4/32|0x06/0xFF", 0..40),
        ) {
            for rule in parse_classbench(&words.join("\t")).unwrap_or_default() {
                proptest::prop_assert!(rule.low.iter().zip(rule.high).all(|(low, high)| *low <= high));
            }
        }
    }
}
