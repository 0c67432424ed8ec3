//! The generator of workloads.

fn main() -> miette::Result<()> {
    shunt_pipebench::command_line::main()
}
