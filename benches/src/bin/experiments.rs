//! Runs experiments by name; `cargo xtask bench` builds and starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    shunt_benches::experiment::run_command()
}
