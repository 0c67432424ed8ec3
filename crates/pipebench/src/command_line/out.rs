//! Output of commands: standard output, or a file that is written completely or not at all.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{OutputError, output::OutputFile};
use clap::Args;
use miette::IntoDiagnostic;

/// The file, or standard output, to which a command writes.
#[derive(Debug, Args)]
pub(crate) struct OutputDestination {
    /// File to write; standard output by default
    #[arg(long = "out", value_name = "FILE")]
    path: Option<PathBuf>,
}

impl OutputDestination {
    /// Checks that the destination can be written, before any work.
    pub(crate) fn check(&self) -> miette::Result<()> {
        self.path.as_deref().map_or(Ok(()), OutputFile::check).into_diagnostic()
    }

    /// Writes the output of a command.
    pub(crate) fn write(
        &self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> miette::Result<()> {
        match &self.path {
            Some(path) => write_file(path, content),
            None => print(content),
        }
    }
}

/// Writes a file.
pub(crate) fn write_file(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> miette::Result<()> {
    let mut file = OutputFile::create(path).into_diagnostic()?;
    content(&mut file).map_err(|error| file.failed(error)).into_diagnostic()?;
    file.finish().into_diagnostic()
}

/// Writes everything to standard output.
pub(crate) fn print(content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> miette::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match content(&mut out).and_then(|()| out.flush()) {
        // The reader has closed the pipe and needs no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(OutputError::standard).into_diagnostic(),
    }
}
