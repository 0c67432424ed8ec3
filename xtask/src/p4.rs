//! `cargo xtask p4`: what follows from the description of the LTM program, written into `p4/`.

use crate::shell::{Failure, cargo, root, run};

const PROGRAM: &[&str] =
    &["run", "--quiet", "--package", "shunt-p4runtime", "--example", "program", "--"];

/// Writes P4Info and bmv2 program; it takes no arguments.
pub(crate) fn run_command(_: &[String]) -> Result<(), Failure> {
    run(cargo(PROGRAM).arg(root().join("p4")))
}
