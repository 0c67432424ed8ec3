//! `cargo xtask package`: the Debian package of the daemon and its client, and its check.

mod booted_root;
mod check;
mod pages;
mod staging;

use std::path::{Path, PathBuf};

use crate::{
    install, man,
    shell::{TaskError, cargo, output, run, step, target},
};

/// Revision of the package; the check also builds the next one, to upgrade.
const REVISION: u32 = 1;

/// Options of the command.
struct PackageOptions {
    /// True if the package is installed in a fresh root, and tried there.
    is_checked: bool,
    /// Profile of cargo: `release`, or `dev` for a quick trial.
    profile: String,
    /// Folder of programs that were built before; they are packaged as they are.
    programs: Option<PathBuf>,
}

impl PackageOptions {
    fn parse(arguments: &[String]) -> Result<Self, TaskError> {
        let mut options = Self { is_checked: false, profile: "release".to_owned(), programs: None };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| TaskError::new(format!("{word} needs a value")));
            match word.as_str() {
                "--check" => options.is_checked = true,
                "--profile" => value()?.clone_into(&mut options.profile),
                "--programs" => options.programs = Some(value()?.into()),
                _ => {
                    return Err(TaskError::new(format!(
                        "unknown option `{word}`: choose --check, --profile NAME or --programs DIR"
                    )));
                }
            }
        }
        Ok(options)
    }

    /// Builds the programs and the writer of the manual, and returns their folder.
    ///
    /// One build has them all, so that nothing is compiled twice.
    fn programs(&self) -> Result<PathBuf, TaskError> {
        if let Some(folder) = &self.programs {
            return Ok(std::path::absolute(folder)?);
        }
        // All eviction engines: `visits` and `relational` need dbsp.
        let build = [
            "build",
            "--package",
            "shuntd",
            "--bins",
            "--example",
            man::WRITER,
            "--features",
            "dbsp",
        ];
        run(cargo(&build).args(["--profile", &self.profile]))?;
        let folder = if self.profile == "dev" { "debug" } else { &self.profile };
        Ok(target().join(folder))
    }
}

/// Builds the package, and with `--check` tries it in a fresh root.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    let options = PackageOptions::parse(arguments)?;
    install::ensure(install::PACKAGE)?;
    if options.is_checked {
        install::ensure(install::PACKAGE_CHECK)?;
    }
    let programs = step("programs", || options.programs())?;
    let manual = step("manual", || man::write_by(&programs))?;
    let folder = target().join("package");
    let package = step("package", || build(&folder, &programs, &manual, REVISION))?;
    println!("{}", package.display());
    if options.is_checked {
        let next = step("next package", || build(&folder, &programs, &manual, REVISION + 1))?;
        check::check(&folder, &package, &next)?;
    }
    Ok(())
}

/// Builds one package, and returns its path.
fn build(
    folder: &Path,
    programs: &Path,
    manual: &Path,
    revision: u32,
) -> Result<PathBuf, TaskError> {
    let version = format!("{}-{revision}", env!("CARGO_PKG_VERSION"));
    let architecture = output(std::process::Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let stage = folder.join("stage");
    staging::write(
        &stage,
        &staging::Sources { programs, manual, version: &version, architecture },
    )?;
    let package = folder.join(format!("shunt_{version}_{architecture}.deb"));
    let mut pack = std::process::Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--uniform-compression", "-Zxz", "--build"]);
    pack.env("SOURCE_DATE_EPOCH", staging::commit_time("%ct")?.trim());
    run(pack.arg(&stage).arg(&package))?;
    Ok(package)
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
        assert!(parse(&["--profile"]).is_err() && parse(&["--chek"]).is_err());
    }
}
