//! The CPU to which a packet thread is bound.
//!
//! Source: `sched_setaffinity(2)`, and `/sys/devices/system/cpu/online` of the kernel.

use std::{fs, io};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use tracing::warn;

/// The CPU of a packet thread, as a set with one CPU.
pub(super) struct CpuBinding {
    /// The number of the CPU.
    cpu: usize,
    /// The set with this CPU.
    set: CpuSet,
}

/// The file with the CPUs of the system, such as `0-3,8`.
const ONLINE: &str = "/sys/devices/system/cpu/online";

impl CpuBinding {
    /// Returns a binding to a CPU.
    ///
    /// # Errors
    ///
    /// If the number does not fit into the set of the kernel, which ends at 1023.
    pub(super) fn new(cpu: usize) -> io::Result<Self> {
        let mut set = CpuSet::new();
        set.set(cpu)?;
        Ok(Self { cpu, set })
    }

    /// Binds the calling thread, which is packet thread `index`.
    ///
    /// If the kernel refuses the CPU, the thread runs on any CPU, and the log has the reason.
    pub(super) fn bind(&self, index: u16) {
        let Err(error) = sched_setaffinity(Pid::from_raw(0), &self.set) else { return };
        let online = fs::read_to_string(ONLINE).unwrap_or_default();
        let (cpu, mend) = (self.cpu, remedy(self.cpu, online.trim()));
        warn!(
            %error,
            "packet thread {index}: cannot be bound to CPU {cpu} of threads.cpus, so it runs on \
             any CPU: {mend}"
        );
    }
}

/// Returns what to do about a CPU that the kernel refuses.
///
/// `online` lists the CPUs of the system, in the form of the kernel.
fn remedy(cpu: usize, online: &str) -> String {
    if !online.is_empty() && !is_in(online, cpu) {
        return format!("use one of the CPUs {online} of this system");
    }
    "add the CPU to the control group of the daemon (`AllowedCPUs` of systemd)".to_owned()
}

/// Returns whether a list of CPUs, such as `0-3,8`, contains a CPU.
fn is_in(list: &str, cpu: usize) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        ends.is_some_and(|(first, last)| (first..=last).contains(&cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration allows the same numbers.
    #[test]
    fn cpu_numbers_end_at_1023() {
        assert!(CpuBinding::new(0).is_ok() && CpuBinding::new(1023).is_ok());
        assert!(CpuBinding::new(1024).is_err());
    }

    #[test]
    fn a_missing_cpu_is_refused_with_present_ones() {
        for present in [0, 3, 8] {
            assert!(is_in("0-3,8", present), "{present}");
            assert!(remedy(present, "0-3,8").contains("AllowedCPUs"), "{present}");
        }
        for missing in [4, 7, 9, 1023] {
            assert_eq!(remedy(missing, "0-3,8"), "use one of the CPUs 0-3,8 of this system");
        }
        assert!(remedy(4, "").contains("AllowedCPUs"), "the list cannot be read");
    }
}
