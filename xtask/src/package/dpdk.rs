//! The package of the daemon with DPDK ports, which replaces the program of the service.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Compression, PackageOptions, REVISION, architecture,
    files::{compress, copy, write_file},
    folder_of, pack,
    staging::{changes, checksums, dependencies, installed_size},
};
use crate::{
    dpdk,
    shell::{TaskError, cargo, root, run, step, target},
};

/// The program of the package.
pub(super) const PROGRAM: &str = "usr/lib/shunt/shuntd-dpdk";

/// Folder of the documents of the package.
const DOC: &str = "usr/share/doc/shunt-dpdk";

/// Builds the package, and returns its path.
///
/// Programs that were built before are in the folder `dpdk` beside the other programs.
pub(super) fn build(options: &PackageOptions, folder: &Path) -> Result<PathBuf, TaskError> {
    let program = match &options.programs {
        Some(programs) => std::path::absolute(programs)?.join("dpdk/shuntd"),
        None => step("program with DPDK, minutes without output", || program(&options.profile))?,
    };
    step("package of DPDK", || package(folder, &program, options.compression))
}

/// Builds the daemon with DPDK ports and all eviction engines.
fn program(profile: &str) -> Result<PathBuf, TaskError> {
    dpdk::ensure_headers()?;
    let build = ["build", "--package", "shuntd", "--bin", "shuntd", "--features", "dbsp,dpdk"];
    run(cargo(&build).args(["--profile", profile]))?;
    Ok(target().join(folder_of(profile)).join("shuntd"))
}

fn package(folder: &Path, program: &Path, compression: Compression) -> Result<PathBuf, TaskError> {
    let stage = folder.join("stage-dpdk");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    let (version, architecture) = (version(), architecture()?);
    let to = stage.join(PROGRAM);
    copy(program, &to, 0o755)?;
    run(Command::new("strip").arg("--strip-unneeded").arg(&to))?;
    let settings = stage.join("lib/systemd/system/shuntd.service.d/dpdk.conf");
    copy(&root().join("docs/dpdk.conf"), &settings, 0o644)?;
    let debian = root().join("packaging/debian");
    copy(&debian.join("copyright"), &stage.join(DOC).join("copyright"), 0o644)?;
    let changelog = stage.join(DOC).join("changelog.Debian");
    write_file(&changelog, &changes("shunt-dpdk", &version)?, 0o644)?;
    compress(&[changelog])?;
    for script in ["postinst", "postrm"] {
        copy(&debian.join("dpdk").join(script), &stage.join("DEBIAN").join(script), 0o755)?;
    }
    write_file(&stage.join("DEBIAN/md5sums"), &checksums(&stage)?, 0o644)?;
    let control = fs::read_to_string(debian.join("dpdk/control"))?
        .replace("@VERSION@", &version)
        .replace("@ARCHITECTURE@", architecture.trim())
        .replace("@SIZE@", &installed_size(&stage)?)
        .replace("@DEPENDS@", &dependencies(&stage, &[to])?);
    write_file(&stage.join("DEBIAN/control"), &control, 0o644)?;
    let name = format!("shunt-dpdk_{version}_{}.deb", architecture.trim());
    pack(&stage, &folder.join(name), compression)
}

fn version() -> String {
    format!("{}-{REVISION}", env!("CARGO_PKG_VERSION"))
}
