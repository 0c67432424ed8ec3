//! The operating system of the host, for the columns that `ovs-ctl` writes beside `ovsdb-server`.
//!
//! Source: os-release(5).

use std::fs;

/// The name and the version of an operating system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SystemRelease {
    /// Its identifier, such as `debian`.
    pub(super) kind: String,
    /// Its version, such as `12`.
    pub(super) version: String,
}

/// The files that describe the system; the first that exists counts.
const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// The value of a column of which the system is not known, as `ovs-ctl` writes it.
const UNKNOWN: &str = "unknown";

impl SystemRelease {
    /// Reads the description of the host.
    pub(super) fn read() -> Self {
        let text = FILES.iter().find_map(|file| fs::read_to_string(file).ok());
        Self::of(&text.unwrap_or_default())
    }

    fn of(text: &str) -> Self {
        let value = |key| find_value(text, key).unwrap_or(UNKNOWN).to_owned();
        Self { kind: value("ID"), version: value("VERSION_ID") }
    }
}

/// Returns the value of a line `KEY=VALUE`, without quotation marks.
///
/// `None` if it is missing or empty.
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
