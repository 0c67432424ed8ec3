//! The files of the package, in a folder that `dpkg-deb` packs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    files::{commit_time, compress, copy, write_file},
    pages,
};
use crate::shell::{TaskError, output, root, run};

/// The inputs of a package.
pub(super) struct Sources<'a> {
    /// Folder of the programs.
    pub(super) programs: &'a Path,
    /// Folder of the manual pages and completions.
    pub(super) manual: &'a Path,
    pub(super) version: &'a str,
    pub(super) architecture: &'a str,
}

/// A program of the package, with its folder and the section of its manual pages.
const PROGRAMS: [(&str, &str, &str); 2] =
    [("shuntd", "usr/sbin", "8"), ("shuntctl", "usr/bin", "1")];

/// Folder of the documents of the package.
const DOC: &str = "usr/share/doc/shunt";

/// Files that an upgrade does not overwrite if the operator has changed the files.
const CONFFILES: &str = "/etc/shunt/shunt.toml\n";

/// Writes all files of the package below an empty folder.
pub(super) fn write(stage: &Path, sources: &Sources<'_>) -> Result<(), TaskError> {
    if stage.exists() {
        fs::remove_dir_all(stage)?;
    }
    for (program, folder, section) in PROGRAMS {
        let to = stage.join(folder).join(program);
        copy(&sources.programs.join(program), &to, 0o755)?;
        // The symbols are not needed, and are most of the file.
        run(Command::new("strip").arg("--strip-unneeded").arg(&to))?;
        manual_pages(stage, sources.manual, program, section)?;
        completions(stage, sources.manual, program)?;
    }
    let docs = root().join("docs");
    copy(&docs.join("shuntd.service"), &stage.join("lib/systemd/system/shuntd.service"), 0o644)?;
    copy(&root().join("packaging/shunt.toml"), &stage.join("etc/shunt/shunt.toml"), 0o644)?;
    for (page, text) in pages::pages(&root())? {
        write_file(&stage.join(DOC).join(page), &text, 0o644)?;
    }
    for example in pages::EXAMPLES {
        copy(&docs.join(example), &stage.join(DOC).join("examples").join(example), 0o644)?;
    }
    copy(&root().join("CHANGELOG.md"), &stage.join(DOC).join("changelog"), 0o644)?;
    compress(&[stage.join(DOC).join("changelog")])?;
    let changelog = stage.join(DOC).join("changelog.Debian");
    write_file(&changelog, &changes("shunt", sources.version)?, 0o644)?;
    compress(&[changelog])?;
    let debian = root().join("packaging/debian");
    copy(&debian.join("copyright"), &stage.join(DOC).join("copyright"), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&debian.join(script), &stage.join("DEBIAN").join(script), 0o755)?;
    }
    write_file(&stage.join("DEBIAN/conffiles"), CONFFILES, 0o644)?;
    write_file(&stage.join("DEBIAN/md5sums"), &checksums(stage)?, 0o644)?;
    let programs = PROGRAMS.map(|(program, folder, _)| stage.join(folder).join(program));
    let control = fs::read_to_string(debian.join("control"))?
        .replace("@VERSION@", sources.version)
        .replace("@ARCHITECTURE@", sources.architecture)
        .replace("@SIZE@", &installed_size(stage)?)
        .replace("@DEPENDS@", &dependencies(stage, &programs)?);
    write_file(&stage.join("DEBIAN/control"), &control, 0o644)
}

fn manual_pages(
    stage: &Path,
    manual: &Path,
    program: &str,
    section: &str,
) -> Result<(), TaskError> {
    let folder = stage.join(format!("usr/share/man/man{section}"));
    let mut pages = Vec::new();
    for page in fs::read_dir(manual.join("man"))? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        let stem = name.strip_suffix(&format!(".{section}")).unwrap_or_default();
        if stem == program || stem.starts_with(&format!("{program}-")) {
            let to = folder.join(&name);
            copy(&page.path(), &to, 0o644)?;
            pages.push(to);
        }
    }
    compress(&pages)
}

fn completions(stage: &Path, manual: &Path, program: &str) -> Result<(), TaskError> {
    let from = manual.join("completions");
    let share = stage.join("usr/share");
    let files = [
        (format!("{program}.bash"), format!("bash-completion/completions/{program}")),
        (format!("_{program}"), format!("zsh/vendor-completions/_{program}")),
        (format!("{program}.fish"), format!("fish/vendor_completions.d/{program}.fish")),
    ];
    files.iter().try_for_each(|(name, to)| copy(&from.join(name), &share.join(to), 0o644))
}

/// Returns the changelog of a package.
pub(super) fn changes(package: &str, version: &str) -> Result<String, TaskError> {
    let date = commit_time("%aD")?;
    Ok(format!(
        "{package} ({version}) unstable; urgency=medium\n\n  * Package of this version; its changes are \
         in changelog.gz.\n\n -- The Shunt authors <maintainers@shunt.invalid>  {}\n",
        date.trim()
    ))
}

/// Returns the checksums of all files except the configuration.
pub(super) fn checksums(stage: &Path) -> Result<String, TaskError> {
    let files = "find * -path DEBIAN -prune -o -type f ! -path etc/shunt/shunt.toml -print0 | sort -z | \
                 xargs -0 md5sum";
    output(Command::new("sh").args(["-c", files]).current_dir(stage))
}

/// Returns the size of the installed files, in KiB.
pub(super) fn installed_size(stage: &Path) -> Result<String, TaskError> {
    let size = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(stage))?;
    Ok(size.split_whitespace().next().unwrap_or("0").to_owned())
}

/// Returns the packages of the shared libraries that the programs use.
pub(super) fn dependencies(stage: &Path, programs: &[PathBuf]) -> Result<String, TaskError> {
    // The tool reads the control file of a source package. Only the names in that file matter.
    let source = stage.with_file_name("source");
    write_file(
        &source.join("debian/control"),
        "Source: shunt\n\nPackage: shunt\nArchitecture: any\n",
        0o644,
    )?;
    let mut tool = Command::new("dpkg-shlibdeps");
    tool.arg("-O").current_dir(&source).args(programs);
    let found = output(&mut tool)?;
    let found = found.trim().strip_prefix("shlibs:Depends=").unwrap_or_default();
    if found.is_empty() {
        return Err(TaskError::new("dpkg-shlibdeps found no shared libraries"));
    }
    Ok(found.to_owned())
}
