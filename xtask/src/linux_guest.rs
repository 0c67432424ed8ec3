//! The Linux guest of tests and experiments: the kernel of a Debian package, and a file system with one script.
//!
//! The guest runs in QEMU without hardware acceleration, so the guest needs no privileges. The
//! script of the guest repeats a round forever: a ping, a download, an upload, and a line about the
//! round on the console.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    install::{self, LINUX_GUEST},
    shell::{TaskError, output, root},
};

/// The environment variable with the folder of `vmlinuz` and `initrd.gz`.
pub(crate) const VARIABLE: &str = "SHUNT_LINUX_GUEST";

/// The package that depends on the kernel package of the release.
const KERNEL: &str = "linux-image-cloud-amd64";

/// Modules in the order in which they are loaded.
const MODULES: &[&str] = &[
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

/// The first program of the guest.
///
/// The line `MODULES` is replaced by the commands that load the modules.
const SCRIPT: &str = include_str!("linux_guest.sh");

/// Returns whether an earlier run has downloaded the kernel of the guest.
pub(crate) fn has_kernel() -> bool {
    folder().join("vmlinuz").exists()
}

/// Returns the folder of the files.
fn folder() -> PathBuf {
    root().join("target/linux-guest")
}

/// Creates the files of the guest, if files are missing; returns the folder.
///
/// # Errors
///
/// If programs are missing, or the package of the kernel cannot be downloaded.
pub(crate) fn ensure() -> Result<PathBuf, TaskError> {
    install::ensure(LINUX_GUEST)?;
    let folder = folder();
    let (kernel, modules) = (folder.join("vmlinuz"), folder.join("modules"));
    if !kernel.exists() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&modules)?;
        unpack_kernel(&folder)?;
    }
    // The script may have changed since the last run.
    write_file_system(&folder, &modules)?;
    Ok(folder)
}

/// Downloads the package of the kernel, and keeps the kernel and the modules.
fn unpack_kernel(folder: &Path) -> Result<(), TaskError> {
    println!("downloading the kernel of {KERNEL} into {}", folder.display());
    let dependencies = output(Command::new("apt-cache").args(["depends", KERNEL]))?;
    let package = dependencies.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let missing = || TaskError::new(format!("apt-cache knows no {KERNEL}: run apt-get update"));
    let package = package.ok_or_else(missing)?;
    output(Command::new("apt-get").args(["download", package]).current_dir(folder))?;
    let archive = find(folder, "linux-image")?;
    let unpacked = folder.join("package");
    output(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked))?;
    let release = find(&unpacked.join("lib/modules"), "")?.join("kernel");
    for module in MODULES {
        let name = Path::new(module).file_name().unwrap_or_default();
        fs::copy(release.join(module), folder.join("modules").join(name))?;
    }
    // This file is copied last, so if the kernel exists, the other files exist.
    fs::copy(find(&unpacked.join("boot"), "vmlinuz")?, folder.join("vmlinuz"))?;
    fs::remove_file(archive)?;
    fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// Returns the entry of a folder with the name prefix `name`.
fn find(folder: &Path, name: &str) -> Result<PathBuf, TaskError> {
    let entries = fs::read_dir(folder)?.filter_map(Result::ok);
    let mut entries = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(name));
    let missing = || TaskError::new(format!("{} has no {name}*", folder.display()));
    Ok(entries.next().ok_or_else(missing)?.path())
}

/// Writes the file system of the guest.
fn write_file_system(folder: &Path, modules: &Path) -> Result<(), TaskError> {
    let system = folder.join("system");
    let _ = fs::remove_dir_all(&system);
    for own in ["bin", "proc", "sys", "dev"] {
        fs::create_dir_all(system.join(own))?;
    }
    fs::copy("/bin/busybox", system.join("bin/busybox"))?;
    let mut loads = String::new();
    for module in MODULES {
        let name = Path::new(module).file_name().unwrap_or_default();
        fs::copy(modules.join(name), system.join(name))?;
        loads += &format!("insmod /{}\n", name.to_string_lossy());
    }
    fs::write(system.join("init"), SCRIPT.replace("MODULES\n", &loads))?;
    let script = "chmod +x init && find . | cpio --quiet -o -H newc | gzip > ../initrd.gz";
    output(Command::new("sh").args(["-ec", script]).current_dir(&system)).map(|_| ())
}
