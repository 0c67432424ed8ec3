//! The generator of workloads.

/// Runs the command line. Fails with a diagnostic for the user.
fn main() -> miette::Result<()> {
    shunt_pipebench::command_line::main()
}
