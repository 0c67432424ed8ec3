//! The devices that the switch has set down for controllers.
//!
//! When a port is removed, or the daemon ends, these devices are set up again. A daemon that is
//! killed cannot set devices up again. So a file in the run directory lists the devices, and the
//! next daemon sets each device up when it opens the port. The file is written before a device is
//! set down, and again after it was set up. So after a crash between the two steps, the file may
//! list a device that is already up.
//!
//! The first line of the file is the boot id of the system, because indexes of devices change with
//! a reboot. Each further line is the index and the name of a device.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use tracing::warn;

/// The devices that the switch has set down, and the file that lists them.
pub(crate) struct DevicesSetDown {
    /// Path of the file; `None` without a run directory,
    /// which means that no file is written.
    file: Option<PathBuf>,
    /// The identifier of this boot of the host.
    boot: String,
    /// Names of the devices by index.
    devices: Mutex<BTreeMap<u32, String>>,
    /// Held while the file is written, so that the newest list is written last.
    saving: Mutex<()>,
}

/// Name of the file in the run directory.
const FILE: &str = "devices-set-down";

/// Path of the boot id of the system (`random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl DevicesSetDown {
    /// Reads the devices that an earlier daemon left in a run directory.
    pub(crate) fn read(run_dir: Option<&Path>) -> Self {
        let file = run_dir.map(|folder| folder.join(FILE));
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let devices = Mutex::new(devices_in(&text.unwrap_or_default(), &boot));
        Self { file, boot, devices, saving: Mutex::default() }
    }

    /// Returns whether the switch has set a device down.
    pub(crate) fn contains(&self, index: u32, name: &str) -> bool {
        self.devices.lock().get(&index).is_some_and(|own| own == name)
    }

    /// Adds a device that the caller sets down after [`Self::save`].
    pub(crate) fn insert(&self, index: u32, name: &str) {
        self.devices.lock().insert(index, name.to_owned());
    }

    /// Removes a device; returns whether the switch has set it down.
    pub(crate) fn remove(&self, index: u32, name: &str) -> bool {
        let mut devices = self.devices.lock();
        let is_own = devices.get(&index).is_some_and(|own| own == name);
        if is_own {
            devices.remove(&index);
        }
        is_own
    }

    /// Writes the devices to the file, which survives restarts of the daemon.
    pub(crate) fn save(&self) {
        let Some(file) = &self.file else { return };
        let _saving = self.saving.lock();
        let devices = self.devices.lock().clone();
        if let Err(error) = write(file, &self.boot, &devices) {
            let file = file.display();
            warn!(
                %error,
                "cannot write {file}, so devices that a controller has set down stay down after \
                 a crash: set them up by `ip link set DEVICE up`"
            );
        }
    }
}

/// Returns the devices in a file of the present boot; empty for an earlier boot.
fn devices_in(text: &str, boot: &str) -> BTreeMap<u32, String> {
    let mut lines = text.lines();
    if lines.next() != Some(boot) {
        return BTreeMap::new();
    }
    let device = |line: &str| {
        let (index, name) = line.split_once(' ')?;
        Some((index.parse().ok()?, name.to_owned()))
    };
    lines.filter_map(device).collect()
}

/// Replaces the file; an empty list removes the file.
fn write(file: &Path, boot: &str, devices: &BTreeMap<u32, String>) -> io::Result<()> {
    if devices.is_empty() {
        return match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        };
    }
    let lines = devices.iter().map(|(index, name)| format!("{index} {name}\n"));
    let text = format!("{boot}\n{}", lines.collect::<String>());
    // A reader finds the whole old file or the whole new file.
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_process_reads_devices_set_down() {
        let folder = tempfile::tempdir().unwrap();
        let read = || DevicesSetDown::read(Some(folder.path()));
        let first = read();
        first.insert(4, "eth0");
        first.insert(5, "eth1");
        assert!(first.remove(5, "eth1"));
        assert!(!first.remove(5, "eth1"));
        first.save();
        let next = read();
        assert!(next.contains(4, "eth0"));
        // A device with another name is another device.
        assert!(!next.contains(4, "eth1") && !next.remove(4, "eth1"));
        assert!(!next.contains(5, "eth1"));
        assert!(next.remove(4, "eth0"));
        next.save();
        next.save();
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "the file is gone");
    }

    #[test]
    fn wrong_lines_and_earlier_boots_are_ignored() {
        let text = "boot-1\n4 eth0\nfive eth1\n6\n\n7 eth 2\n";
        let expected = BTreeMap::from([(4, "eth0".to_owned()), (7, "eth 2".to_owned())]);
        assert_eq!(devices_in(text, "boot-1"), expected);
        assert_eq!(devices_in(text, "boot-2"), BTreeMap::new());
        assert_eq!(devices_in("", "boot-1"), BTreeMap::new());
    }
}
