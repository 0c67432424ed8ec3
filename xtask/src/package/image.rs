//! The container image: an archive in the layout of the OCI image specification 1.0.
//!
//! `podman load` and `skopeo` read the archive. No container engine is needed to create the
//! archive. The programs are linked statically, so the image has no other libraries.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::files::{commit_time, copy, write_file};
use crate::shell::{TaskError, cargo, output, root, run};

/// The program of the container.
const PROGRAM: &str = "/usr/sbin/shuntd";

/// The options of the program. A container may be given other options instead.
const OPTIONS: [&str; 6] = [
    "--config",
    "/etc/shunt/shunt.toml",
    "--run-dir",
    "/run/shunt",
    "--state",
    "/var/lib/shunt/state.json",
];

const PROGRAMS: [(&str, &str); 2] = [("shuntd", "usr/sbin"), ("shuntctl", "usr/bin")];

/// Builds the static programs with all eviction engines, and returns the folder.
pub(super) fn programs(profile: &str) -> Result<PathBuf, TaskError> {
    // With an explicit target the flags do not apply to build scripts.
    let target = host()?;
    let mut build = cargo(&["build", "--package", "shuntd", "--bins", "--features", "dbsp"]);
    build.args(["--target", &target, "--profile", profile]);
    run(build.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(crate::shell::target().join(target).join(super::folder_of(profile)))
}

/// Returns the target triple of this machine.
fn host() -> Result<String, TaskError> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or_else(|| TaskError::new("rustc -vV names no host"))?.to_owned())
}

/// Builds the image, and returns the path of the archive.
///
/// `architecture` is Debian's name of the architecture, which is also the name in Go and in the
/// specification.
pub(super) fn build(
    folder: &Path,
    programs: &Path,
    version: &str,
    architecture: &str,
) -> Result<PathBuf, TaskError> {
    let stage = folder.join("image-root");
    write_root(&stage, programs)?;
    let layout = Layout::create(folder.join("image"))?;
    let (layer, content) = layout.layer(&stage)?;
    let created = commit_time("%cI")?;
    let config = layout.blob(
        "application/vnd.oci.image.config.v1+json",
        config(created.trim(), architecture, &content).to_string().as_bytes(),
    )?;
    let mut manifest = layout.blob(
        "application/vnd.oci.image.manifest.v1+json",
        manifest(&config, &layer).to_string().as_bytes(),
    )?;
    manifest["annotations"] =
        json!({ "org.opencontainers.image.ref.name": format!("shunt:{version}") });
    manifest["platform"] = json!({ "architecture": architecture, "os": "linux" });
    layout.finish(&manifest)?;
    let archive = folder.join(format!("shunt_{version}_{architecture}.oci.tar"));
    pack(&layout.folder, &archive)?;
    Ok(archive)
}

/// Writes the files of the container.
fn write_root(stage: &Path, programs: &Path) -> Result<(), TaskError> {
    if stage.exists() {
        fs::remove_dir_all(stage)?;
    }
    for (program, folder) in PROGRAMS {
        let to = stage.join(folder).join(program);
        copy(&programs.join(program), &to, 0o755)?;
        let headers = output(Command::new("readelf").arg("--program-headers").arg(&to))?;
        if headers.contains("INTERP") {
            return Err(TaskError::new(format!(
                "{}: is linked dynamically, and the image has no libraries",
                programs.join(program).display()
            )));
        }
        run(Command::new("strip").arg("--strip-unneeded").arg(&to))?;
    }
    copy(&root().join("packaging/shunt.toml"), &stage.join("etc/shunt/shunt.toml"), 0o644)?;
    copy(&root().join("LICENSE"), &stage.join("usr/share/doc/shunt/LICENSE"), 0o644)?;
    write_file(&stage.join("etc/passwd"), "root:x:0:0:root:/:/usr/sbin/shuntd\n", 0o644)?;
    write_file(&stage.join("etc/group"), "root:x:0:\n", 0o644)?;
    for folder in ["run/shunt", "var/lib/shunt"] {
        fs::create_dir_all(stage.join(folder))?;
    }
    for folder in ["", "run", "run/shunt", "var", "var/lib", "var/lib/shunt"] {
        fs::set_permissions(stage.join(folder), fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Returns the configuration of the image:
/// the command and the content of the image.
fn config(created: &str, architecture: &str, content: &str) -> Value {
    json!({
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": [PROGRAM],
            "Cmd": OPTIONS,
            "Env": ["PATH=/usr/sbin:/usr/bin"],
            "StopSignal": "SIGTERM",
            "Volumes": { "/var/lib/shunt": {} },
            "Labels": {
                "org.opencontainers.image.title": "shunt",
                "org.opencontainers.image.description": "Virtual switch with OpenFlow",
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [content] },
        "history": [{ "created": created, "created_by": "cargo xtask package --image" }],
    })
}

fn manifest(config: &Value, layer: &Value) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    })
}

/// A folder in the image layout.
struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// Creates the folder, and replaces an earlier folder.
    fn create(folder: PathBuf) -> Result<Self, TaskError> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(folder.join("blobs/sha256"))?;
        Ok(Self { folder })
    }

    /// Packs the files of the container as a layer.
    ///
    /// Returns the descriptor of the packed layer, and the digest of the unpacked layer.
    fn layer(&self, stage: &Path) -> Result<(Value, String), TaskError> {
        let tar = self.folder.join("layer.tar");
        pack(stage, &tar)?;
        let content = format!("sha256:{}", digest(&tar)?);
        super::files::compress(std::slice::from_ref(&tar))?;
        let packed = self.folder.join("layer.tar.gz");
        let layer = self.store_blob(&packed, "application/vnd.oci.image.layer.v1.tar+gzip")?;
        Ok((layer, content))
    }

    /// Writes a blob, and returns its descriptor.
    fn blob(&self, kind: &str, bytes: &[u8]) -> Result<Value, TaskError> {
        let file = self.folder.join("blob");
        fs::write(&file, bytes)?;
        self.store_blob(&file, kind)
    }

    /// Moves a file to the blobs, and returns its descriptor.
    fn store_blob(&self, file: &Path, kind: &str) -> Result<Value, TaskError> {
        let (digest, size) = (digest(file)?, fs::metadata(file)?.len());
        fs::rename(file, self.folder.join("blobs/sha256").join(&digest))?;
        Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size }))
    }

    /// Writes the index with the only manifest.
    fn finish(&self, manifest: &Value) -> Result<(), TaskError> {
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        });
        fs::write(self.folder.join("index.json"), index.to_string())?;
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        Ok(fs::write(self.folder.join("oci-layout"), version.to_string())?)
    }
}

/// Packs a folder into an archive.
///
/// The bytes depend only on the names, contents and modes of the files.
fn pack(folder: &Path, archive: &Path) -> Result<(), TaskError> {
    let time = format!("--mtime=@{}", commit_time("%ct")?.trim());
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &time]);
    // The umask and the environment must not change the archive.
    tar.args(["--mode=u=rwX,go=rX", "--format=gnu"]).env_remove("TAR_OPTIONS");
    // An archive inside of the folder contains itself.
    let part = archive.with_extension("part");
    let part = if part.starts_with(folder) { folder.with_extension("tar") } else { part };
    run(tar.arg("--create").arg("--file").arg(&part).arg("--directory").arg(folder).arg("."))?;
    Ok(fs::rename(part, archive)?)
}

/// Returns the SHA-256 of a file in hexadecimal.
fn digest(file: &Path) -> Result<String, TaskError> {
    let text = output(Command::new("sha256sum").arg("--binary").arg(file))?;
    let digest = text.split_whitespace().next().unwrap_or_default();
    if digest.len() != 64 {
        return Err(TaskError::new(format!("sha256sum printed `{text}`")));
    }
    Ok(digest.to_owned())
}
