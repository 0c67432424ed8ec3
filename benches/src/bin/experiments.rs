//! Runs experiments by name: what `cargo xtask bench` builds and starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    shunt_benches::experiment::run_command()
}
