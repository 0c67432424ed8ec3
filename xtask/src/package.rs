//! `cargo xtask package`: the Debian package of the daemon and its client, the check of the
//! package, and the container image.

mod booted_root;
mod check;
mod dpdk;
mod files;
mod image;
mod image_check;
mod pages;
mod staging;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    install, man,
    shell::{TaskError, cargo, output, run, step, target},
};

/// Revision of the package. The check also builds the next revision,
/// for an upgrade.
const REVISION: u32 = 1;

/// The time that the compression of a package may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    /// A small package, for users.
    Thorough,
    /// A larger package in a fifth of the time, for a check.
    Quick,
}

impl Compression {
    /// Returns the name of the step that packs a file.
    const fn step_name(self) -> &'static str {
        match self {
            Self::Thorough => "pack thoroughly, one to five minutes without output",
            Self::Quick => "pack quickly, up to a minute without output",
        }
    }
}

/// Options of the command.
struct PackageOptions {
    /// True if the package is installed and tested in a fresh root.
    is_checked: bool,
    /// True if a container image is built instead of the package.
    is_image: bool,
    /// True if the package of the daemon with DPDK ports is built, too.
    has_dpdk: bool,
    compression: Compression,
    /// Number of upgrades that the check does.
    upgrades: u32,
    /// Profile of cargo: `release`, or `dev` for a quick trial.
    profile: String,
    /// Folder of programs that were built before.
    /// These programs are packaged unchanged.
    programs: Option<PathBuf>,
}

impl PackageOptions {
    fn parse(arguments: &[String]) -> Result<Self, TaskError> {
        let mut options = Self {
            is_checked: false,
            is_image: false,
            has_dpdk: false,
            compression: Compression::Thorough,
            upgrades: 1,
            profile: "release".to_owned(),
            programs: None,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| TaskError::new(format!("{word} needs a value")));
            match word.as_str() {
                "--check" => options.is_checked = true,
                "--image" => options.is_image = true,
                "--dpdk" => options.has_dpdk = true,
                "--profile" => value()?.clone_into(&mut options.profile),
                "--quick" => options.compression = Compression::Quick,
                "--upgrades" => {
                    let number = value()?;
                    options.upgrades = number.parse().map_err(|error| {
                        TaskError::new(format!("--upgrades {number}: {error}; give a number"))
                    })?;
                }
                "--programs" => options.programs = Some(value()?.into()),
                _ => {
                    return Err(TaskError::new(format!(
                        "unknown option `{word}`: choose --dpdk, --image, --check, --quick, --upgrades N, \
                         --profile NAME or --programs DIR"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// Returns the folder of the programs.
    ///
    /// `build` builds the programs if the command names no folder.
    fn programs(
        &self,
        build: impl FnOnce(&str) -> Result<PathBuf, TaskError>,
    ) -> Result<PathBuf, TaskError> {
        match &self.programs {
            Some(folder) => Ok(std::path::absolute(folder)?),
            None => step(build_step_name(&self.profile), || build(&self.profile)),
        }
    }
}

/// Returns the name of the step that builds the programs.
fn build_step_name(profile: &str) -> &'static str {
    if profile == "dev" {
        "programs, some minutes the first time"
    } else {
        "programs, about half an hour of CPU time, the last minutes without output"
    }
}

/// Builds the programs and the writer of the manual, and returns the folder.
///
/// One build includes all programs, so that nothing is compiled twice.
fn programs(profile: &str) -> Result<PathBuf, TaskError> {
    // All eviction engines: `visits` and `relational` need dbsp.
    let build =
        ["build", "--package", "shuntd", "--bins", "--example", man::WRITER, "--features", "dbsp"];
    run(cargo(&build).args(["--profile", profile]))?;
    Ok(target().join(folder_of(profile)))
}

/// Returns the folder below `target` that cargo uses for a profile.
fn folder_of(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

/// Builds the package or the image. With `--check`, tests the result.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    let options = PackageOptions::parse(arguments)?;
    let folder = target().join("package");
    if options.is_image {
        return image_command(&options, &folder);
    }
    install::ensure(install::PACKAGE)?;
    if options.is_checked {
        install::ensure(install::PACKAGE_CHECK)?;
    }
    let programs = options.programs(programs)?;
    let manual = step("manual", || man::write_by(&programs))?;
    let sources = PackageSources { folder: &folder, programs: &programs, manual: &manual };
    let package = step("package", || build(&sources, REVISION, options.compression))?;
    println!("{}", package.display());
    let next = options
        .is_checked
        .then(|| step("next package", || build(&sources, REVISION + 1, Compression::Quick)));
    let next = next.transpose()?;
    // This build replaces the daemon in the folder of the programs, so this build comes last.
    let with_dpdk = options.has_dpdk.then(|| dpdk::build(&options, &folder)).transpose()?;
    if let Some(package) = &with_dpdk {
        println!("{}", package.display());
    }
    next.map_or(Ok(()), |next| {
        let with_dpdk = with_dpdk.as_deref();
        let packages = check::Packages { first: &package, next: &next, with_dpdk };
        check::check(&folder, &packages, options.upgrades)
    })
}

/// Builds the container image. With `--check`, runs the image.
fn image_command(options: &PackageOptions, folder: &Path) -> Result<(), TaskError> {
    install::ensure(install::IMAGE)?;
    if options.is_checked {
        install::ensure(install::IMAGE_CHECK)?;
    }
    let programs = options.programs(image::programs)?;
    let version = env!("CARGO_PKG_VERSION");
    let image = step("image", || image::build(folder, &programs, version, architecture()?.trim()))?;
    println!("{}", image.display());
    if options.is_checked {
        image_check::check(folder, &image, version)?;
    }
    Ok(())
}

/// Returns Debian's name of the architecture of this machine.
fn architecture() -> Result<String, TaskError> {
    output(Command::new("dpkg").arg("--print-architecture"))
}

/// The folder of the packages, and the folders of their content.
struct PackageSources<'a> {
    folder: &'a Path,
    programs: &'a Path,
    manual: &'a Path,
}

/// Builds one package, and returns its path.
fn build(
    sources: &PackageSources<'_>,
    revision: u32,
    compression: Compression,
) -> Result<PathBuf, TaskError> {
    let &PackageSources { folder, programs, manual } = sources;
    let version = format!("{}-{revision}", env!("CARGO_PKG_VERSION"));
    let architecture = architecture()?;
    let architecture = architecture.trim();
    let stage = folder.join("stage");
    staging::write(
        &stage,
        &staging::Sources { programs, manual, version: &version, architecture },
    )?;
    pack(&stage, &folder.join(format!("shunt_{version}_{architecture}.deb")), compression)
}

/// Packs the files of a folder, and returns the package.
fn pack(stage: &Path, package: &Path, compression: Compression) -> Result<PathBuf, TaskError> {
    let level = match compression {
        Compression::Thorough => "-z6",
        Compression::Quick => "-z1",
    };
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--uniform-compression", "-Zxz", level, "--build"]);
    pack.env("SOURCE_DATE_EPOCH", files::commit_time("%ct")?.trim());
    step(compression.step_name(), || run(pack.arg(stage).arg(package)))?;
    Ok(package.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<PackageOptions, TaskError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        PackageOptions::parse(&words)
    }

    #[test]
    fn options_are_parsed() {
        let options = parse(&["--check", "--profile", "dev"]).unwrap();
        assert_eq!((options.is_checked, options.profile.as_str()), (true, "dev"));
        assert!(!parse(&[]).unwrap().is_checked);
        assert!(parse(&["--image"]).unwrap().is_image);
        assert!(parse(&["--dpdk"]).unwrap().has_dpdk && !parse(&[]).unwrap().has_dpdk);
        assert_eq!(parse(&["--quick"]).unwrap().compression, Compression::Quick);
        assert_eq!(parse(&["--check", "--upgrades", "20"]).unwrap().upgrades, 20);
        assert!(parse(&["--upgrades", "many"]).is_err());
        assert!(parse(&["--profile"]).is_err() && parse(&["--chek"]).is_err());
    }

    #[test]
    fn long_steps_name_their_time() {
        assert!(build_step_name("release").contains("half an hour"));
        assert!(build_step_name("dev").contains("some minutes"));
        assert!(Compression::Thorough.step_name().contains("five minutes"));
        assert!(Compression::Quick.step_name().contains("a minute"));
    }
}
