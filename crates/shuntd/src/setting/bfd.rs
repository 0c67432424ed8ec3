//! The BFD session of a port on the command line, as `key=value` words.

use shunt_switch::{
    config::{BfdOptions, PortOptions},
    with_causes,
};

use super::{split, unknown};

/// Parses the BFD session of a port from words.
///
/// Examples are `min_tx_ms=300 min_rx_ms=300`, or `enable=true` for a session with all defaults.
/// Without words, the port has no session.
///
/// # Errors
///
/// Like [`port`](super::port).
pub(crate) fn bfd(name: &str, words: &[String]) -> Result<PortOptions, String> {
    let mut port = PortOptions { name: name.to_owned(), ..PortOptions::default() };
    for word in words {
        let (key, value) = split(word)?;
        set(&mut port, key, value)?;
    }
    Ok(port)
}

/// Sets `bfd.KEY` of a port; returns false for any other key.
pub(super) fn set_bfd(port: &mut PortOptions, key: &str, value: &str) -> Result<bool, String> {
    let Some(key) = key.strip_prefix("bfd.") else { return Ok(false) };
    set(port, key, value)?;
    Ok(true)
}

/// Sets a BFD option of a port.
fn set(port: &mut PortOptions, key: &str, value: &str) -> Result<(), String> {
    let options = port.bfd.get_or_insert_default();
    match options.set(key, value).map_err(|error| with_causes(&error))? {
        true => Ok(()),
        false => Err(unknown("key", key, BfdOptions::KEYS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text into words.
    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn bfd_session_is_parsed_from_command_line() {
        let port = bfd("p", &words("min_tx_ms=300 mult=5 dst_ip=192.0.2.2")).unwrap();
        let options = port.bfd.unwrap();
        assert_eq!((options.enable, options.min_tx_ms, options.mult), (true, 300, 5));
        assert_eq!(bfd("p", &[]).unwrap().bfd, None);
        assert_eq!(bfd("p", &words("enable=true")).unwrap().bfd, Some(BfdOptions::default()));
        let error_text = |text: &str| bfd("p", &words(text)).unwrap_err();
        assert!(error_text("min_tx=300").ends_with("the key is `min_tx_ms`, in milliseconds"));
        assert!(error_text("min_tx_s=300").contains("did you mean `min_tx_ms`?"));
        assert_eq!(error_text("mult=many"), "mult = many: it must be 1 to 255");
        let port = super::super::port("p", &words("type=null bfd.min_rx_ms=50")).unwrap();
        assert_eq!(port.bfd.map(|own| own.min_rx_ms), Some(50));
        let error = super::super::port("p", &words("bfd.min=50")).unwrap_err();
        assert!(error.contains("unknown key `min`"), "{error}");
    }
}
