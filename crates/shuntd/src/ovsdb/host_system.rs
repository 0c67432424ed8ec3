//! The operating system of the host, for the columns that `ovs-ctl` writes for `ovsdb-server`.
//!
//! Source: os-release(5).

use std::fs;

/// The name and the version of an operating system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SystemRelease {
    /// Identifier of the operating system, such as `debian`.
    pub(super) kind: String,
    /// Version of the operating system, such as `12`.
    pub(super) version: String,
}

/// The files that describe the operating system; the first existing file is read.
const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// The value of a column if the operating system is not known, as in `ovs-ctl`.
const UNKNOWN: &str = "unknown";

impl SystemRelease {
    /// Reads the name and version of the host's operating system.
    pub(super) fn read() -> Self {
        let text = FILES.iter().find_map(|file| fs::read_to_string(file).ok());
        Self::of(&text.unwrap_or_default())
    }

    /// Parses the text of `/etc/os-release`.
    fn of(text: &str) -> Self {
        let value = |key| find_value(text, key).unwrap_or(UNKNOWN).to_owned();
        Self { kind: value("ID"), version: value("VERSION_ID") }
    }
}

/// Returns the value of a line `KEY=VALUE`, without quotation marks.
///
/// `None` if the key is missing, or its value is empty.
fn find_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = |line: &'a str| line.trim().strip_prefix(key)?.strip_prefix('=');
    let value = text.lines().find_map(line)?.trim_matches(['"', '\'']);
    Some(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_have_no_quotation_marks() {
        let read = |text| {
            let SystemRelease { kind, version } = SystemRelease::of(text);
            [kind, version]
        };
        let debian = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12\"\nID=debian\n";
        assert_eq!(read(debian), ["debian", "12"]);
        assert_eq!(read("ID='arch'\nBUILD_ID=rolling\n"), ["arch", UNKNOWN]);
        assert_eq!(read("VERSION_ID=\"\"\n"), [UNKNOWN, UNKNOWN]);
        assert_eq!(read(""), [UNKNOWN, UNKNOWN]);
    }
}
