//! A mistake in a configuration, and its place in it.
//!
//! The place is a path (`bridges[0].ports[1].name`): whoever read the configuration out of a text
//! knows from it where to point.

use std::fmt;

use thiserror::Error;

use crate::error::SwitchError;

/// A mistake in a configuration, and its place.
#[derive(Debug, Error)]
pub struct ConfigError {
    /// Where it is.
    pub path: ConfigPath,
    /// What is wrong.
    pub problem: Box<SwitchError>,
}

/// A place in a configuration, from the outside in: fields of [`Config`](crate::Config) and of what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigPath(Vec<ConfigStep>);

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigStep {
    /// Into a field.
    Field(&'static str),
    /// Into a list.
    Index(usize),
}

impl ConfigPath {
    /// The steps, from the outside in.
    #[must_use]
    pub fn steps(&self) -> &[ConfigStep] {
        &self.0
    }
}

impl fmt::Display for ConfigPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, step) in self.0.iter().enumerate() {
            match step {
                ConfigStep::Field(name) if depth == 0 => f.write_str(name)?,
                ConfigStep::Field(name) => write!(f, ".{name}")?,
                ConfigStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, problem } = self;
        match &**problem {
            // The path names the setting, and where it is.
            SwitchError::Range { value, range, .. } => {
                write!(f, "{path} = {value}: it must be {range}")
            }
            problem => write!(f, "{path}: {problem}"),
        }
    }
}

impl ConfigError {
    /// A problem with a field, or with a field of a field: `threads.packet`.
    pub(crate) fn at(field: &'static str, problem: SwitchError) -> Self {
        let path = ConfigPath(field.split('.').map(ConfigStep::Field).collect());
        Self { path, problem: Box::new(problem) }
    }

    /// Whether a value is in its range: `ok` says so, and `range` which it is.
    pub(crate) fn unless_in_range(
        setting: &'static str,
        value: String,
        ok: bool,
        range: &'static str,
    ) -> Result<(), Self> {
        if ok {
            return Ok(());
        }
        Err(Self::at(setting, SwitchError::Range { setting, value, range }))
    }

    /// A problem with an element of a list.
    pub(crate) fn of_element(list: &'static str, index: usize, problem: SwitchError) -> Self {
        Self { path: ConfigPath::default(), problem: Box::new(problem) }.within(list, index)
    }

    /// This problem, of one element of a list.
    pub(crate) fn within(mut self, list: &'static str, index: usize) -> Self {
        self.path.0.splice(0..0, [ConfigStep::Field(list), ConfigStep::Index(index)]);
        self
    }
}
