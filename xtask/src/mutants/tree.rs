//! A copy of the repository with mutants in its source, and the build of the copy.
//!
//! Some mutants do not type-check. If the compiler reports an error, the mutants of the smallest
//! region around the error are omitted, and the check is repeated.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    edits::Edited,
    schemata::{Mutant, OmittedMutants, Schemata},
};
use crate::shell::{TaskError, cargo, output, root};

/// The function that checks whether a mutant is active.
///
/// The function is appended to each `lib.rs` with mutants. While the reach of a test is traced, the
/// function records the checked mutants.
const AWAKE: &str = r#"
#[doc(hidden)]
pub fn mutant(id: usize) -> bool {
    use std::sync::{OnceLock, atomic::{AtomicBool, Ordering}};
    static AWAKE: OnceLock<usize> = OnceLock::new();
    static TRACE: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];
    let awake = *AWAKE.get_or_init(|| {
        std::env::var("SHUNT_MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(usize::MAX)
    });
    if let Some(path) = TRACE.get_or_init(|| std::env::var_os("SHUNT_MUTANT_TRACE")) {
        let is_new = |seen: &AtomicBool| {
            !seen.load(Ordering::Relaxed) && !seen.swap(true, Ordering::Relaxed)
        };
        if REACHED.get(id).is_none_or(is_new) {
            use std::io::Write;
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(format!("{id}\n").as_bytes()));
        }
    }
    awake == id
}
"#;

/// A source file with mutants.
struct MutatedSource {
    /// Path from the root of the repository.
    path: String,
    text: String,
    edited: Edited,
}

/// A test program, and its working directory.
pub(super) struct TestProgram {
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
}

/// The copy of the repository.
pub(super) struct MutatedTree {
    folder: PathBuf,
    sources: Vec<MutatedSource>,
    pub(super) dropped: OmittedMutants,
    /// Mutants in the order of their numbers, and the file of each mutant.
    pub(super) mutants: Vec<(String, Mutant)>,
}

impl MutatedTree {
    /// Copies the repository; files below `paths` get mutants.
    pub(super) fn copy(folder: PathBuf, paths: &[&str]) -> Result<Self, TaskError> {
        let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let listed = output(Command::new("git").args(list).current_dir(root()))?;
        let mut sources = Vec::new();
        for path in listed.lines().collect::<BTreeSet<_>>() {
            let source = root().join(path);
            if !source.is_file() {
                continue;
            }
            let is_tried = path.ends_with(".rs")
                && paths.iter().any(|start| path.starts_with(start))
                && !FOR_TESTS.iter().any(|name| path.contains(name));
            if is_tried {
                let text = fs::read_to_string(&source)?;
                sources.push(MutatedSource {
                    path: path.to_owned(),
                    text,
                    edited: Edited::default(),
                });
            } else if path.ends_with("src/lib.rs")
                && paths.iter().any(|start| start.starts_with(folder_of(path)))
            {
                write(&folder.join(path), (fs::read_to_string(&source)? + AWAKE).as_bytes())?;
            } else {
                write(&folder.join(path), &fs::read(&source)?)?;
            }
        }
        let mut tree =
            Self { folder, sources, dropped: OmittedMutants::default(), mutants: Vec::new() };
        tree.edit()?;
        Ok(tree)
    }

    /// Inserts the mutants into the source, except omitted mutants.
    fn edit(&mut self) -> Result<(), TaskError> {
        self.mutants.clear();
        for source in &mut self.sources {
            let MutatedSource { path, text, edited } = source;
            let schemata = Schemata::of(text, self.mutants.len(), &self.dropped)
                .map_err(|error| TaskError::new(format!("{path} cannot be read: {error}")))?;
            *edited = Edited::new(text, schemata.edits);
            let named = schemata.mutants.into_iter().map(|mutant| (path.clone(), mutant));
            self.mutants.extend(named);
        }
        Ok(())
    }

    fn write(&self) -> Result<(), TaskError> {
        self.sources.iter().try_for_each(|source| {
            write(&self.folder.join(&source.path), source.edited.text.as_bytes())
        })
    }

    /// Builds the tests of some packages; omits mutants that do not build.
    pub(super) fn build(&mut self, packages: &[&str]) -> Result<Vec<TestProgram>, TaskError> {
        for round in 1..=ROUNDS_MAX {
            self.edit()?;
            self.write()?;
            let messages = self.cargo(&["check", "--tests"], packages)?;
            let before = self.dropped.mutants.len() + self.dropped.consts.len();
            let errors: Vec<&Value> = messages.iter().filter(|m| m["level"] == "error").collect();
            if errors.is_empty() {
                return self.programs(packages);
            }
            errors.iter().for_each(|error| self.drop_for(error));
            let after = self.dropped.mutants.len() + self.dropped.consts.len();
            println!("check {round}: {} errors, {} mutants omitted", errors.len(), after - before);
            if after == before {
                let first = errors.iter().find_map(|error| error["rendered"].as_str());
                return Err(TaskError::new(first.unwrap_or("it does not build").to_owned()));
            }
        }
        Err(TaskError::new(format!("it does not build after {ROUNDS_MAX} rounds")))
    }

    fn programs(&self, packages: &[&str]) -> Result<Vec<TestProgram>, TaskError> {
        let messages = self.cargo(&["test", "--no-run"], packages)?;
        let program = |message: &Value| {
            let path = PathBuf::from(message["executable"].as_str()?);
            let manifest = Path::new(message["manifest_path"].as_str()?);
            Some(TestProgram { path, folder: manifest.parent()?.to_path_buf() })
        };
        Ok(messages.iter().filter_map(program).collect())
    }

    /// Runs cargo; returns compiler messages and artifacts.
    fn cargo(&self, words: &[&str], packages: &[&str]) -> Result<Vec<Value>, TaskError> {
        let mut command = cargo(words);
        command
            .current_dir(&self.folder)
            // All features of these packages only. None of the packages has `dpdk`, which needs
            // libdpdk.
            .args(["--all-features", "--quiet", "--message-format", "json"])
            .args(packages.iter().flat_map(|package| ["--package", package]))
            .env("CARGO_TARGET_DIR", folder().join("build"))
            .stdin(Stdio::null());
        let result = command.output()?;
        let text = String::from_utf8_lossy(&result.stdout);
        let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let inner = values.filter_map(|mut value| match value["reason"].as_str() {
            Some("compiler-message") => Some(value["message"].take()),
            Some("compiler-artifact") => Some(value),
            _ => None,
        });
        let messages: Vec<Value> = inner.collect();
        let has_error = messages.iter().any(|message| message["level"] == "error");
        if !result.status.success() && !has_error {
            return Err(TaskError::new(String::from_utf8_lossy(&result.stderr).into_owned()));
        }
        Ok(messages)
    }

    fn drop_for(&mut self, error: &Value) {
        if error["code"]["code"] == "E0015" {
            let name = error["message"].as_str().and_then(|text| text.split('`').nth(1));
            let last = name.and_then(|name| name.rsplit("::").next());
            let plain = last.map(|name| name.split(['<', '(']).next().unwrap_or(name).to_owned());
            self.dropped.consts.extend(plain);
        }
        let spans = error["spans"].as_array().into_iter().flatten();
        for span in spans.filter(|span| span["is_primary"] == true) {
            let file = span["file_name"].as_str().unwrap_or_default();
            let bytes =
                ["byte_start", "byte_end"].map(|end| span[end].as_u64().unwrap_or_default());
            let bytes = bytes.map(|byte| usize::try_from(byte).unwrap_or(usize::MAX));
            for source in self.sources.iter().filter(|source| file.ends_with(&source.path)) {
                self.dropped.mutants.extend(source.edited.mutants_at(&(bytes[0]..bytes[1])));
            }
        }
    }
}

/// Returns the folder for all generated files.
///
/// Copies are built separately. Otherwise, cargo confuses a crate of a copy with the crate of the
/// project, and rebuilds both.
pub(super) fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| root().join("target"), PathBuf::from).join("mutants")
}

/// Returns the source folder of a crate's `lib.rs`.
fn folder_of(lib: &str) -> &str {
    lib.strip_suffix("lib.rs").unwrap_or(lib)
}

/// Writes a file unless its content is unchanged, to avoid rebuilds.
fn write(path: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).map_err(TaskError::from)
}

/// Source files that only tests use.
const FOR_TESTS: &[&str] =
    &["/testing", "/src/translate/tests/", "tests.rs", "_tests", "/lib.rs", "/mod.rs"];

/// Maximum number of check rounds.
const ROUNDS_MAX: usize = 30;
