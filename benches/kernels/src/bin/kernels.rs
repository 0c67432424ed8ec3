//! The hot functions alone.
//!
//! ```text
//! kernels time           CPU nanoseconds of each kernel, one per line
//! kernels names          their names
//! kernels call NAME N    calls one kernel N times, for callgrind
//! ```

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the program prints for its caller")]

use std::process::ExitCode;

use shunt_kernels::{KERNELS, Kernel, cpu};

/// Number of timed calls of each kernel.
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
                eprintln!("no kernel has this name, or the count is not a number: {words:?}");
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
    let ns = cpu::measure_ns(|| (0..CALLS).for_each(|_| call()));
    println!("{} {:.2}", kernel.name, ns as f64 / f64::from(CALLS));
}
