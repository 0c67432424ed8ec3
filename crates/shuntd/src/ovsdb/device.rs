//! The columns of `Interface` that describe a network device, from `/sys/class/net`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use shunt_ovsdb::value::Datum;

/// The network devices of the host.
pub(super) struct Devices {
    folder: PathBuf,
}

/// The flag of a device that is set up (`IFF_UP`).
const UP: u32 = 1;

/// The columns that [`Devices::columns`] fills.
pub(super) const DEVICE_COLUMNS: [&str; 6] =
    ["admin_state", "duplex", "ifindex", "link_speed", "mac_in_use", "mtu"];

impl Devices {
    /// The devices of the network namespace of the process.
    pub(super) fn of_system() -> Self {
        Self { folder: "/sys/class/net".into() }
    }

    /// Returns the values of [`DEVICE_COLUMNS`]; those that are unknown are empty.
    ///
    /// Without a name, or without the device, all of them are. It costs the reading of six small files.
    pub(super) fn columns(&self, name: Option<&str>) -> [Datum; 6] {
        let device = name.map(|name| self.folder.join(name));
        let text = |file: &str| device.as_deref().and_then(|device| read(device, file));
        let integer = |file: &str| text(file).and_then(|text| text.parse::<i64>().ok());
        let optional = |value: Option<Datum>| value.unwrap_or_default();
        let flags = text("flags");
        let flags = flags.as_deref().and_then(|text| text.strip_prefix("0x"));
        let flags = flags.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let state = flags.map(|flags| if flags & UP == 0 { "down" } else { "up" });
        // The kernel has `unknown` and a negative speed for devices without a wire.
        let duplex = text("duplex").filter(|word| matches!(word.as_str(), "full" | "half"));
        let megabits = integer("speed").filter(|speed| *speed > 0);
        let speed = megabits.and_then(|speed| speed.checked_mul(1_000_000));
        [
            optional(state.map(Datum::string)),
            optional(duplex.as_deref().map(Datum::string)),
            optional(integer("ifindex").map(Datum::integer)),
            optional(speed.map(Datum::integer)),
            optional(text("address").as_deref().map(Datum::string)),
            optional(integer("mtu").map(Datum::integer)),
        ]
    }
}

/// Returns the text of a file of a device.
///
/// Some of them cannot be read while the device is down.
fn read(device: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(device.join(file)).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("eth1");
        fs::create_dir(&device).unwrap();
        for (file, text) in [
            ("flags", "0x1003\n"),
            ("duplex", "unknown\n"),
            ("speed", "-1\n"),
            ("ifindex", "7\n"),
            ("address", "02:00:00:00:00:01\n"),
        ] {
            fs::write(device.join(file), text).unwrap();
        }
        let devices = Devices { folder: folder.path().to_owned() };
        let mut expected = [const { Datum::empty() }; 6];
        assert_eq!(devices.columns(None), expected);
        assert_eq!(devices.columns(Some("eth2")), expected);
        expected[0] = Datum::string("up");
        expected[2] = Datum::integer(7);
        expected[4] = Datum::string("02:00:00:00:00:01");
        assert_eq!(devices.columns(Some("eth1")), expected);
        for (file, text) in [("flags", "0x1002"), ("duplex", "full"), ("speed", "10000")] {
            fs::write(device.join(file), text).unwrap();
        }
        expected[0] = Datum::string("down");
        expected[1] = Datum::string("full");
        expected[3] = Datum::integer(10_000_000_000);
        assert_eq!(devices.columns(Some("eth1")), expected);
    }
}
