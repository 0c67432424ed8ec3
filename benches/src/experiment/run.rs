//! What an experiment is given.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{Progress, interrupt};

/// One run of an experiment.
#[derive(Debug)]
pub struct Run {
    /// Whether it shall be over in about a minute.
    pub is_quick: bool,
    /// A folder that is gone afterwards.
    pub folder: TempDir,
    /// What stood on the command line after the name.
    pub options: Vec<String>,
    /// How far it has come.
    pub progress: Progress,
}

impl Run {
    /// The value of an option: what follows it.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let pair = self.options.windows(2).find(|pair| pair[0] == name)?;
        Some(&pair[1])
    }

    /// Whether a name is among those of an option, which may be several with commas: all are without it.
    #[must_use]
    pub fn chooses(&self, option: &str, name: &str) -> bool {
        self.option(option).is_none_or(|names| names.split(',').any(|word| word == name))
    }

    /// One of two numbers.
    #[must_use]
    pub const fn either(&self, full: usize, quick: usize) -> usize {
        if self.is_quick { quick } else { full }
    }

    /// A path in the folder of this run.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Says how many steps there will be.
    pub fn begin(&mut self, steps: usize) {
        self.progress = Progress::new(steps);
    }

    /// Takes one step, unless there was an interrupt.
    pub fn step<T>(&mut self, what: &str, work: impl FnOnce(&Path) -> T) -> T {
        interrupt::check();
        self.progress.show(what);
        let result = work(self.folder.path());
        self.progress.invalidation();
        result
    }

    /// Measures a part in a process of its own, which prints a value.
    ///
    /// # Panics
    ///
    /// When the process fails.
    pub fn part(&mut self, experiment: &str, part: &str) -> Value {
        let options = self.options.iter().skip_while(|word| !word.starts_with('-')).cloned();
        let options: Vec<String> = options.collect();
        self.step(part, |_| {
            let program = std::env::current_exe().unwrap_or_default();
            let mut command = Command::new(program);
            command.arg(experiment).args(["--part", part]).args(&options).stderr(Stdio::inherit());
            let output = command.output().unwrap_or_else(|error| panic!("{part}: {error}"));
            assert!(output.status.success(), "{part} was not measured");
            serde_json::from_slice(&output.stdout).unwrap_or_default()
        })
    }
}
