//! The Shunt daemon.

fn main() -> std::process::ExitCode {
    shuntd::daemon::main()
}
