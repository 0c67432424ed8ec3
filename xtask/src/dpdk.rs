//! The daemon with DPDK ports, which the suite `dpdk_ports` runs.

use std::{fs, path::Path, process::Command};

use crate::{
    install,
    shell::{TaskError, cargo, has, output, run, target},
};

/// Environment variable that gives tests the folder of the programs with DPDK.
pub(crate) const VARIABLE: &str = "SHUNT_DPDK_PROGRAMS";

/// Programs of the daemon.
const PROGRAMS: [&str; 2] = ["shuntd", "shuntctl"];

/// The network drivers that the tests use, which DPDK loads at run time.
const DRIVERS: [&str; 8] = ["null", "pcap", "ring", "tap", "af_packet", "vhost", "virtio", "memif"];

/// The oldest release of libdpdk that compiles.
const OLDEST: &str = "22.11";

/// Installs the headers and libraries of DPDK if permitted.
///
/// No drivers are needed, because DPDK loads drivers at run time.
///
/// # Errors
///
/// If the installation is not permitted or fails.
pub(crate) fn ensure_headers() -> Result<(), TaskError> {
    if has_headers() {
        return Ok(());
    }
    install::ensure(install::DPDK)?;
    if has_headers() {
        return Ok(());
    }
    Err(TaskError::new(format!(
        "`pkg-config` finds no libdpdk of release {OLDEST} or later: install it, on Debian with \
         `apt-get install libdpdk-dev`"
    )))
}

fn has_headers() -> bool {
    let version = format!("--atleast-version={OLDEST}");
    has("cc") && output(Command::new("pkg-config").args([&version, "libdpdk"])).is_ok()
}

/// Installs libdpdk and the drivers of the tests if permitted.
///
/// # Errors
///
/// If the installation is not permitted or fails, or if one of the drivers is missing.
pub(crate) fn ensure_library() -> Result<(), TaskError> {
    install::ensure(install::DPDK)?;
    ensure_headers()?;
    let folder = output(Command::new("pkg-config").args(["--variable=libdir", "libdpdk"]))?;
    let names = file_names(Path::new(folder.trim()))?;
    let missing = missing_drivers(&names);
    if missing.is_empty() {
        return Ok(());
    }
    let (missing, folder) = (missing.join(", "), folder.trim());
    Err(TaskError::new(format!(
        "DPDK lacks the network drivers {missing} in {folder}: install their packages, on Debian those that \
         `apt-cache depends libdpdk-dev` lists"
    )))
}

fn file_names(folder: &Path) -> Result<Vec<String>, TaskError> {
    let entries = fs::read_dir(folder)?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Returns the drivers without a shared library in a list of file names.
fn missing_drivers(files: &[String]) -> Vec<&'static str> {
    let is_missing = |driver: &&str| {
        let library = format!("librte_net_{driver}.so.");
        !files.iter().any(|file| file.starts_with(&library))
    };
    DRIVERS.into_iter().filter(is_missing).collect()
}

/// Builds the daemon with DPDK ports; returns the folder of its programs.
///
/// `with_dpdk` and `without` are the arguments of cargo for both builds. The programs with DPDK
/// have a separate folder, because other suites run the daemon without DPDK.
///
/// # Errors
///
/// If a build fails.
pub(crate) fn ensure_programs(with_dpdk: &[&str], without: &[&str]) -> Result<String, TaskError> {
    run(&mut cargo(with_dpdk))?;
    let folder = target().join("dpdk");
    fs::create_dir_all(&folder)?;
    for program in PROGRAMS {
        let copy = folder.join(program);
        // A running program cannot be overwritten.
        let _ = fs::remove_file(&copy);
        fs::copy(target().join("debug").join(program), copy)?;
    }
    // The second build puts the programs without DPDK back. These programs are built already.
    run(&mut cargo(without))?;
    Ok(folder.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_of_any_release_is_found() {
        let file = |name: &&str| format!("librte_net_{name}.so.25.1");
        let files: Vec<String> = DRIVERS[1..].iter().map(file).collect();
        assert_eq!(missing_drivers(&files), ["null"]);
        let headers = ["librte_net_null.a".to_owned(), "librte_net_null.so".to_owned()];
        assert!(
            missing_drivers(&headers).contains(&"null"),
            "an archive or a link cannot be loaded"
        );
    }
}
