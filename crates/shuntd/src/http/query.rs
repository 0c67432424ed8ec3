//! Parameters of a request: the query part of its address, URL-encoded.

/// Returns the first value of a parameter.
///
/// `None` if the parameter is absent or not valid UTF-8.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.into_iter().find(|(own, _)| *own == name)?;
    decode(value)
}

/// Decodes `%XX` and `+`; an incomplete escape stays as it is.
fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return String::from_utf8(decoded).ok(),
            [b'%', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                decoded.push(digit(*high) << 4 | digit(*low));
                after
            }
            [byte, after @ ..] => {
                decoded.push(if *byte == b'+' { b' ' } else { *byte });
                after
            }
        };
    }
}

/// Returns the value of a hexadecimal digit.
const fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_parameter_is_decoded() {
        let query = "bridge=br0&flow=in_port%3Dp1%2Ctcp+x%C3%a9&flow=second&empty=";
        assert_eq!(parameter(query, "bridge").as_deref(), Some("br0"));
        assert_eq!(parameter(query, "flow").as_deref(), Some("in_port=p1,tcp x\u{e9}"));
        assert_eq!(parameter(query, "empty").as_deref(), Some(""));
        assert_eq!(parameter(query, "missing"), None);
    }

    #[test]
    fn invalid_url_escapes_are_kept_or_refused() {
        for (text, expected) in [
            ("%", Some("%")),
            ("%4", Some("%4")),
            ("%zz", Some("%zz")),
            ("%%41", Some("%A")),
            ("%ff", None),
            ("%00", Some("\0")),
        ] {
            assert_eq!(parameter(&format!("a={text}"), "a").as_deref(), expected, "{text}");
        }
        for query in ["", "&&&", "=", "a", "a&b=1"] {
            assert_eq!(parameter(query, "a"), None, "{query}");
        }
    }
}
