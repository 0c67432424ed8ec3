//! The hot functions alone.
//!
//! ```text
//! kernels time           nanoseconds of CPU of each, a line each
//! kernels names          their names
//! kernels call NAME N    calls one so many times, for callgrind
//! ```

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it reports to its caller")]

use std::process::ExitCode;

use shunt_kernels::{KERNELS, Kernel, cpu};

/// Calls of each kernel whose time is taken.
const CALLS: u32 = 100_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["time"] => KERNELS.iter().for_each(time),
        ["names"] => KERNELS.iter().for_each(|kernel| println!("{}", kernel.name)),
        ["call", name, count] => {
            let kernel = KERNELS.iter().find(|kernel| kernel.name == *name);
            let (Some(kernel), Ok(count)) = (kernel, count.parse::<u32>()) else {
                eprintln!("no kernel is called so, or that is no number: {words:?}");
                return ExitCode::FAILURE;
            };
            let mut call = (kernel.make)();
            (0..count).for_each(|_| call());
        }
        _ => {
            eprintln!("kernels time | names | call NAME N");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn time(kernel: &Kernel) {
    let mut call = (kernel.make)();
    let ns = cpu::timed(|| (0..CALLS).for_each(|_| call()));
    println!("{} {:.2}", kernel.name, ns as f64 / f64::from(CALLS));
}
