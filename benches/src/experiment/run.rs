//! The context of a running experiment: options, temporary folder, progress.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{Progress, Row, interrupt};

/// One run of an experiment.
#[derive(Debug)]
pub struct Run {
    /// True for a run of about a minute.
    pub is_quick: bool,
    /// A folder that is deleted afterwards.
    pub folder: TempDir,
    /// The words of the command line after the name.
    pub options: Vec<String>,
    /// Progress of the experiment.
    pub progress: Progress,
    /// The reason why the experiment cannot run here.
    pub skipped: Option<String>,
}

impl Run {
    /// Returns the value of an option.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let pair = self.options.windows(2).find(|pair| pair[0] == name)?;
        Some(&pair[1])
    }

    /// Returns whether an option selects a name.
    ///
    /// The option is a comma-separated list. Without the option, all names are selected.
    #[must_use]
    pub fn chooses(&self, option: &str, name: &str) -> bool {
        self.option(option).is_none_or(|names| names.split(',').any(|word| word == name))
    }

    /// Returns `quick` for a quick run, else `full`.
    #[must_use]
    pub const fn either(&self, full: usize, quick: usize) -> usize {
        if self.is_quick { quick } else { full }
    }

    /// Returns a path in the folder of this run.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets the number of steps.
    pub fn begin(&mut self, steps: usize) {
        self.progress = Progress::new(steps);
    }

    /// Runs one step, unless there was an interrupt.
    pub fn step<T>(&mut self, what: &str, work: impl FnOnce(&Path) -> T) -> T {
        interrupt::check();
        self.progress.show(what);
        let result = work(self.folder.path());
        self.progress.advance();
        result
    }

    /// Ends the experiment without results, because something is missing here.
    ///
    /// The reason names what is missing, and the command that runs the experiment.
    pub fn skip(&mut self, reason: impl Into<String>) -> Vec<Row> {
        self.skipped = Some(reason.into());
        Vec::new()
    }

    /// Measures a part in a separate process, which prints a JSON value.
    ///
    /// # Panics
    ///
    /// If the process fails.
    pub fn part(&mut self, experiment: &str, part: &str) -> Value {
        let options = self.options.iter().skip_while(|word| !word.starts_with('-')).cloned();
        let options: Vec<String> = options.collect();
        self.step(part, |_| {
            let program = std::env::current_exe().unwrap_or_default();
            let mut command = Command::new(program);
            command.arg(experiment).args(["--part", part]).args(&options).stderr(Stdio::inherit());
            let output = command.output().unwrap_or_else(|error| panic!("{part}: {error}"));
            assert!(output.status.success(), "{part} failed");
            serde_json::from_slice(&output.stdout).unwrap_or_default()
        })
    }
}
