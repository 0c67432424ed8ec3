//! Numbers in names: `100k`, `3m`, `1500ms`, `zipf-0.9`.

/// Formats a count, with `k` or `m` for multiples of a thousand or a million.
pub(crate) fn count(number: u64) -> String {
    match number {
        0 => "0".to_owned(),
        number if number % 1_000_000 == 0 => format!("{}m", number / 1_000_000),
        number if number % 1000 == 0 => format!("{}k", number / 1000),
        number => number.to_string(),
    }
}

/// Parses a count: digits, with an optional `k` for thousands or `m` for millions.
#[must_use]
pub fn parse_count(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = match text.strip_suffix('k') {
        Some(digits) => (digits, 1000),
        None => match text.strip_suffix('m') {
            Some(digits) => (digits, 1_000_000),
            None => (text.as_str(), 1),
        },
    };
    parse_digits(digits)?.checked_mul(unit)
}

/// Formats a time, in seconds if it is a whole number of seconds.
pub(crate) fn time(milliseconds: u32) -> String {
    match milliseconds {
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// Parses a time in milliseconds.
pub(super) fn parse_time(text: &str) -> Option<u32> {
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    u32::try_from(parse_digits(digits)?.checked_mul(unit)?).ok()
}

/// Formats hundredths as a decimal number without trailing zeros.
pub(super) fn hundredths(number: u16) -> String {
    let text = format!("{}.{:02}", number / 100, number % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Parses a decimal number with at most two decimals, in hundredths.
pub(super) fn parse_hundredths(text: &str) -> Option<u16> {
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    if places.is_empty() || places.len() > 2 {
        return None;
    }
    let places = parse_digits(&format!("{places:0<2}"))?;
    u16::try_from(parse_digits(whole)?.checked_mul(100)?.checked_add(places)?).ok()
}

/// Parses digits only: no sign, no blank.
pub(super) fn parse_digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn printed_numbers_parse_back(number: u64, ms: u32, places: u16) {
            prop_assert_eq!(parse_count(&count(number)), Some(number));
            prop_assert_eq!(parse_count(&count(number % 1000 * 1000)), Some(number % 1000 * 1000));
            prop_assert_eq!(parse_time(&time(ms)), Some(ms));
            prop_assert_eq!(parse_hundredths(&hundredths(places)), Some(places));
        }
    }

    #[test]
    fn non_numbers_are_refused() {
        for text in ["", "k", "-1", "+1", "1 k", "1.5k", "1kk", "99999999999999999999", "1e3"] {
            assert_eq!(parse_count(text), None, "{text}");
        }
        for text in ["", "1", "s", "1m", "5000000s"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        for text in ["", ".", "1.", ".5", "1.234", "700", "1.-5"] {
            assert_eq!(parse_hundredths(text), None, "{text}");
        }
    }
}
