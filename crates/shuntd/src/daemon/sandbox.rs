//! Rights that the daemon drops: system calls (seccomp) and write access (Landlock).
//!
//! The restrictions limit an attacker who runs code in the daemon because of a flaw in a parser.
//!
//! - The filter of system calls is always in force. With it, the attacker's code cannot start
//!   programs, and cannot use calls that take over other processes or change the kernel.
//! - With `--writable`, the code can also change no file outside the directories of the daemon.
//! - Without `--writable`, the code can change all files that the user of the daemon can change.
//!   For root these are all files, including the memory of other processes (`/proc/PID/mem`). So
//!   run the daemon with `--user` or by the systemd unit.
//!
//! The systemd unit restricts more: see docs/install.md.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use thiserror::Error;

/// System calls that fail with `EPERM`, because no part of the switch uses them.
///
/// Ports are opened at run time, so a list of permitted calls would be long, and would depend on
/// the kernel and on libraries. So this is a list of refused calls. The refused calls start
/// programs, take memory or descriptors of other processes, or change mounts, keys, clocks or the
/// kernel.
///
/// `bpf` and `setns` are permitted. AF_XDP ports load a program, and the daemon reads the state of
/// a TAP that was moved to another network namespace.
const REFUSED_CALLS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
];

/// Devices that ports open for writing.
const DEVICES: [&str; 4] = ["/dev/net/tun", "/dev/vfio", "/dev/hugepages", "/dev/null"];

/// The reason why a restriction is not in force.
#[derive(Debug, Error)]
pub(crate) enum SandboxError {
    /// The kernel refuses the filter of system calls.
    #[error("the filter of system calls is not in force: {0}")]
    Filter(String),
    /// A directory of `--writable` cannot be opened.
    #[error("--writable {path}: {why}; create the directory, or leave it out")]
    Path {
        /// Path of the directory.
        path: String,
        /// Error of the operating system.
        why: String,
    },
    /// The kernel cannot restrict access to directories.
    #[error("--writable: {0}; a kernel since Linux 5.13 with Landlock is needed")]
    Directories(String),
}

/// The extent to which the kernel restricts changes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRestriction {
    /// All changes outside the directories are refused.
    Full,
    /// All changes but truncation: before Linux 6.2, a file can be truncated.
    ///
    /// The permissions of the file must allow the truncation.
    Partial,
}

/// Refuses the system calls of [`REFUSED_CALLS`] in all threads.
///
/// # Errors
///
/// If the kernel refuses the filter: it has no seccomp, or a filter of the container forbids the
/// call.
pub(crate) fn refuse_system_calls() -> Result<(), SandboxError> {
    let failed = |error: &dyn std::error::Error| SandboxError::Filter(error.to_string());
    let program = filter().map_err(|error| failed(&error))?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| failed(&error))
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = REFUSED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

/// Permits changes of files only in the given directories.
///
/// Other files can still be read. Sockets of other programs can be connected to, and the devices of
/// ports can be opened. The call must precede the creation of threads, because older kernels
/// restrict a single thread.
///
/// # Errors
///
/// If a directory does not exist, or the kernel has no Landlock.
pub(crate) fn restrict_writes(directories: &[PathBuf]) -> Result<WriteRestriction, SandboxError> {
    let failed = |error: &dyn std::error::Error| SandboxError::Directories(error.to_string());
    // Device requests (`ioctl`) are not restricted, because ports need them.
    let changes = AccessFs::from_write(ABI::V3);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(changes)
        .and_then(Ruleset::create)
        .map_err(|error| failed(&error))?;
    let mut rules = Vec::new();
    for directory in directories {
        let opened = PathFd::new(directory).map_err(|error| SandboxError::Path {
            path: directory.display().to_string(),
            why: error.to_string(),
        })?;
        rules.push(PathBeneath::new(opened, changes));
    }
    for device in DEVICES.map(Path::new) {
        // A device that does not exist on the host needs no rule.
        let Ok(opened) = PathFd::new(device) else { continue };
        let access = if device.is_dir() { changes } else { BitFlags::from(AccessFs::WriteFile) };
        rules.push(PathBeneath::new(opened, access));
    }
    let rules = rules.into_iter().map(Ok::<_, landlock::RulesetError>);
    let status = ruleset.add_rules(rules).and_then(landlock::RulesetCreated::restrict_self);
    match status.map_err(|error| failed(&error))?.ruleset {
        RulesetStatus::FullyEnforced => Ok(WriteRestriction::Full),
        RulesetStatus::PartiallyEnforced => Ok(WriteRestriction::Partial),
        RulesetStatus::NotEnforced => {
            Err(SandboxError::Directories("the kernel restricts no directories".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_compiles_on_this_architecture() {
        // The filter has one comparison for each call, and a check of the architecture.
        assert!(filter().unwrap().len() > REFUSED_CALLS.len());
    }

    #[test]
    fn a_directory_that_does_not_exist_is_named() {
        let refused = restrict_writes(&[PathBuf::from("/nonexistent/folder")]).unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("--writable /nonexistent/folder: "), "{text}");
        assert!(text.ends_with("; create the directory, or leave it out"), "{text}");
    }
}
