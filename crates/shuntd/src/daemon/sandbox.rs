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

use std::{
    error::Error as _,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, sock_filter};
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

/// The bit in all call numbers of x32, a second set of calls on x86-64.
///
/// Linux names this bit `__X32_SYSCALL_BIT`. The numbers in [`REFUSED_CALLS`] lack it, so the list
/// does not refuse these calls.
const X32_CALL: u32 = 0x4000_0000;

/// Instructions of a filter (Linux `linux/bpf_common.h`).
mod bpf {
    /// `BPF_LD | BPF_W | BPF_ABS`: loads the word at the offset `k`.
    pub(super) const LOAD: u16 = 0x20;
    /// `BPF_JMP | BPF_JSET | BPF_K`: skips instructions.
    ///
    /// Skips `jt` of them if a bit of `k` is set, and otherwise `jf`.
    pub(super) const SKIP_IF_SET: u16 = 0x45;
    /// `BPF_RET | BPF_K`: ends with the action `k`.
    pub(super) const RETURN: u16 = 0x06;
}

/// Devices that ports open for writing.
const DEVICES: [&str; 4] = ["/dev/net/tun", "/dev/vfio", "/dev/hugepages", "/dev/null"];

/// The reason why a restriction is not in force.
#[derive(Debug, Error)]
pub(crate) enum SandboxError {
    /// The kernel refuses the filter of system calls.
    #[error("the filter of system calls cannot be put in force: {0}")]
    Filter(String),
    /// A directory of `--writable` cannot be opened.
    #[error(
        "--writable {path}: {reason}; create the directory for the user of the daemon, with `install \
         -d -o USER {path}`, or leave it out"
    )]
    Path {
        /// Path of the directory.
        path: String,
        /// Error of the operating system.
        reason: String,
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
    /// All changes outside the directories are refused, except truncation.
    ///
    /// Linux before 6.2 cannot refuse the truncation of a file. The permissions of the file must
    /// allow the truncation.
    Partial,
}

/// Refuses the system calls of [`REFUSED_CALLS`] and of x32 in all threads.
///
/// A call of another architecture (32 bits on x86-64) ends the process.
///
/// # Errors
///
/// If the kernel refuses the filter: it has no seccomp, or a filter of the container forbids the
/// call.
pub(crate) fn refuse_system_calls() -> Result<(), SandboxError> {
    let failed = |error: &dyn std::error::Error| SandboxError::Filter(error.to_string());
    let program = system_call_filter().map_err(|error| failed(&error))?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| failed(&error))
}

/// Returns the filter of system calls as a program.
fn system_call_filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = REFUSED_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let listed: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()?;
    let x32 = cfg!(target_arch = "x86_64").then(without_x32);
    Ok(x32.into_iter().flatten().chain(listed).collect())
}

/// Returns the beginning of a filter that refuses all calls of x32.
const fn without_x32() -> [sock_filter; 3] {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    [
        // The number of the call is the first word of `seccomp_data`.
        sock_filter { code: bpf::LOAD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: bpf::SKIP_IF_SET, jt: 0, jf: 1, k: X32_CALL },
        sock_filter { code: bpf::RETURN, jt: 0, jf: 0, k: refuse },
    ]
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
            // The text of the error itself repeats the path.
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
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
    use std::process::Command;

    use super::*;

    /// Takes a filter and a call number; prints the error number of the call, or 0.
    const CALLER: &str = r#"
import ctypes, sys

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
code = bytes.fromhex(sys.argv[1])
zero = ctypes.c_ulong(0)
assert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0
program = Program(len(code) // 8, code)
assert libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(program), zero, zero) == 0
result = libc.syscall(ctypes.c_long(int(sys.argv[2])))
print(ctypes.get_errno() if result < 0 else 0)
"#;

    /// Returns the error number of a call of a child under the filter.
    ///
    /// The number is 0 if the call succeeds. `None` without Python.
    fn error_of_call(number: libc::c_long) -> Option<libc::c_int> {
        let word = |own: &sock_filter| {
            format!("{:04x}{:02x}{:02x}{:08x}", own.code.to_be(), own.jt, own.jf, own.k.to_be())
        };
        let code: String = system_call_filter().unwrap().iter().map(word).collect();
        let arguments = ["-c", CALLER, &code, &number.to_string()];
        let output = Command::new("python3").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        Some(text.trim().parse().unwrap())
    }

    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    #[test]
    fn listed_calls_and_calls_of_x32_are_refused() {
        let Some(error) = error_of_call(libc::SYS_getpid) else {
            eprintln!("SKIPPED: python3 is missing");
            return;
        };
        assert_eq!(error, 0);
        assert_eq!(error_of_call(libc::SYS_syslog), Some(libc::EPERM));
        if cfg!(target_arch = "x86_64") {
            // A kernel without x32 would answer ENOSYS.
            for number in [libc::SYS_getpid, libc::SYS_syslog] {
                let refused = error_of_call(number | libc::c_long::from(X32_CALL));
                assert_eq!(refused, Some(libc::EPERM), "call {number}");
            }
        }
    }

    #[test]
    fn the_filter_compiles_on_this_architecture() {
        // The filter has one comparison for each call, and a check of the architecture.
        assert!(system_call_filter().unwrap().len() > REFUSED_CALLS.len());
    }

    #[test]
    fn a_directory_that_does_not_exist_is_named() {
        let refused = restrict_writes(&[PathBuf::from("/nonexistent/folder")]).unwrap_err();
        let text = refused.to_string();
        assert!(text.starts_with("--writable /nonexistent/folder: No such file"), "{text}");
        assert!(text.contains("`install -d -o USER /nonexistent/folder`"), "{text}");
        assert!(text.ends_with(", or leave it out"), "{text}");
    }
}
