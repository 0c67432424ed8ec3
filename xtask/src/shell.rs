//! Functions that run other programs, and error messages.

use std::{
    fmt,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

/// The message that explains why a command of the project failed.
#[derive(Debug)]
pub(crate) struct TaskError(pub(crate) String);

impl TaskError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for TaskError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new(".")).to_path_buf()
}

/// Returns the build folder of cargo, which contains this program.
pub(crate) fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).map_or_else(|| root().join("target"), Path::to_path_buf)
}

/// Returns a cargo command in the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a program with inherited output until the program ends.
pub(crate) fn run(command: &mut Command) -> Result<(), TaskError> {
    let status = command.status().map_err(|error| run_failure(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(TaskError::new(format!("`{}` ended with {status}", line(command))))
    }
}

/// Runs a program until the program ends.
///
/// Forwards each output line after `watch` has handled the line.
pub(crate) fn run_watched(
    command: &mut Command,
    mut watch: impl FnMut(&str),
) -> Result<(), TaskError> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| run_failure(command, &error))?;
    let (lines, written) = mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        let lines = lines.clone();
        thread::spawn(move || {
            let lines_read = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
            for line_read in lines_read {
                // The receiver exists while there are lines.
                let _ = lines.send(String::from_utf8_lossy(&line_read).into_owned());
            }
        });
    }
    drop(lines);
    for text in written {
        watch(&text);
        println!("{text}");
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(TaskError::new(format!("`{}` ended with {status}", line(command))))
    }
}

/// Runs a program until the program ends, and returns the output.
///
/// The error contains the error output of the program.
pub(crate) fn output(command: &mut Command) -> Result<String, TaskError> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| run_failure(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(TaskError::new(format!("`{}` ended with {}: {complaint}", line(command), output.status)))
}

/// Returns whether a program is on the path, or exists at an absolute path.
pub(crate) fn has(program: &str) -> bool {
    if Path::new(program).is_absolute() {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).any(|folder| folder.join(program).is_file())
}

/// Returns whether this process runs as root.
pub(crate) fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}

/// Prints a headline, runs a step, and prints its duration.
pub(crate) fn step<T>(
    name: &str,
    work: impl FnOnce() -> Result<T, TaskError>,
) -> Result<T, TaskError> {
    println!("\n== {name}");
    let start = Instant::now();
    let result = work();
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    println!("== {name}: {verdict} in {:.1} s", start.elapsed().as_secs_f64());
    result
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn run_failure(command: &Command, error: &std::io::Error) -> TaskError {
    TaskError::new(format!("cannot run `{}`: {error}", line(command)))
}
