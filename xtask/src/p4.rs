//! `cargo xtask p4`: generates the files in `p4/` from the description of the LTM program.

use crate::shell::{TaskError, cargo, root, run};

/// Arguments of cargo that run the generator.
const PROGRAM: &[&str] =
    &["run", "--quiet", "--package", "shunt-p4runtime", "--example", "program", "--"];

/// Writes P4Info and bmv2 program. The command has no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    run(cargo(PROGRAM).arg(root().join("p4")))
}
