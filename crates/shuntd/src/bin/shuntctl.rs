//! The client of the Shunt daemon.

fn main() -> std::process::ExitCode {
    shuntd::client::main()
}
