//! Claims of network devices, so that no two processes of this switch attach one device.
//!
//! Two packet sockets on one device both receive every packet, and two switches would forward each
//! packet twice. A claim is a socket in the abstract namespace of Unix sockets. An abstract name
//! belongs to a network namespace, as a device does, and the system releases the name when the
//! process ends, even if it is killed. The name contains the number of the device, so a rename of
//! the device has no effect.
//!
//! A killed process holds its claims until the system has closed all of its devices. A new claim
//! waits until the system has closed them.
//!
//! Source: unix(7), "Abstract sockets".

use std::{
    ffi::c_uint,
    fs, io,
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
    thread::sleep,
    time::Duration,
};

use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
        sockopt::PeerCredentials,
    },
};
use tracing::info;

use super::{PortError, link, sys::DeviceName};

/// A claim on a device, until it is dropped.
#[derive(Debug)]
pub(super) struct DeviceClaim {
    /// The socket of the claim; others connect to it only to learn the process.
    _socket: UnixListener,
}

impl DeviceClaim {
    /// Claims a device.
    ///
    /// `side` is the end of the device that the port uses: two ports may use the two ends of a TAP
    /// device.
    ///
    /// # Errors
    ///
    /// If another port has claimed the device, in this process or another one.
    pub(super) fn take(
        side: &'static str,
        device: &DeviceName,
        index: c_uint,
    ) -> Result<Self, PortError> {
        let name = || device.as_str().to_owned();
        let failed = |source| PortError::system("claim", name(), source);
        let socket_name = format!("shunt/{side}/{index}");
        let address = SocketAddr::from_abstract_name(&socket_name).map_err(failed)?;
        let mut owner = ClaimOwner::Ended;
        for _ in 0..ATTEMPTS_MAX {
            match UnixListener::bind_addr(&address) {
                Ok(socket) => return Ok(Self { _socket: socket }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(failed(error)),
            }
            // A known owner is not asked again, because each request takes a place in its queue of
            // connections.
            if !matches!(owner, ClaimOwner::Process(_)) {
                owner = ClaimOwner::of(&socket_name);
            }
            match owner {
                ClaimOwner::Unknown => break,
                ClaimOwner::Process(process) if !is_killed(process) => break,
                ClaimOwner::Process(process) => log_wait(device.as_str(), process),
                ClaimOwner::Ended => {}
            }
            sleep(PAUSE);
        }
        let process = if let ClaimOwner::Process(process) = owner { Some(process) } else { None };
        Err(PortError::Claimed { name: name(), index, process })
    }
}

/// Maximum number of attempts to claim a device of a killed process.
///
/// All attempts together take ten seconds.
const ATTEMPTS_MAX: u32 = 500;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// The state of the process that claimed a device.
#[derive(Clone, Copy, Debug)]
enum ClaimOwner {
    /// The owner has just released the claim.
    Ended,
    /// The owner is the process with this id.
    Process(i32),
    /// The owner does not answer.
    Unknown,
}

impl ClaimOwner {
    /// Finds the process that has an abstract socket; never blocks.
    fn of(socket_name: &str) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let Ok(stream) = socket(AddressFamily::Unix, SockType::Stream, flags, None) else {
            return Self::Unknown;
        };
        let connected = UnixAddr::new_abstract(socket_name.as_bytes())
            .and_then(|address| connect(stream.as_raw_fd(), &address));
        match connected.and_then(|()| getsockopt(&stream, PeerCredentials)) {
            Ok(credentials) => Self::Process(credentials.pid()),
            Err(Errno::ECONNREFUSED) => Self::Ended,
            Err(_) => Self::Unknown,
        }
    }
}

/// Returns whether a process was killed.
///
/// A killed process has no memory any more, but may still have open files.
fn is_killed(process: i32) -> bool {
    let memory = fs::read_link(format!("/proc/{process}/exe"));
    memory.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Logs the wait for a process only once, because it may have had many devices.
fn log_wait(device: &str, process: i32) {
    /// The last process for which a wait was logged.
    static LOGGED: AtomicI32 = AtomicI32::new(0);
    if LOGGED.swap(process, Relaxed) != process {
        info!(
            "device {device}: waiting for process {process}, which was killed and still holds \
             the device"
        );
    }
}

/// Refuses a member of a bridge, bond or team of the system, or of Open vSwitch.
///
/// # Errors
///
/// If the device is a member.
pub(super) fn refuse_member(device: &DeviceName, index: c_uint) -> Result<(), PortError> {
    let name = || device.as_str().to_owned();
    match link::master(index) {
        Some(master) if master == OPEN_VSWITCH => Err(PortError::OpenVswitch { name: name() }),
        Some(master) => Err(PortError::Enslaved { name: name(), master }),
        None if has_socket_of_open_vswitch(index) => Err(PortError::OpenVswitch { name: name() }),
        None => Ok(()),
    }
}

/// The master of devices that belong to the kernel datapath of Open vSwitch.
const OPEN_VSWITCH: &str = "ovs-system";
/// The process with the packet sockets of Open vSwitch's userspace datapath.
const DAEMON: &str = "ovs-vswitchd";

/// Returns whether the userspace datapath of Open vSwitch uses `device`.
///
/// Processes with descriptors that this process may not read are ignored.
#[must_use]
pub fn is_held_by_open_vswitch(device: &str) -> bool {
    if_nametoindex(device).is_ok_and(has_socket_of_open_vswitch)
}

/// Returns whether the userspace datapath of Open vSwitch receives from a device.
///
/// Other programs with a packet socket, such as `tcpdump`, do not forward packets. Processes with
/// descriptors that this process may not read are ignored.
fn has_socket_of_open_vswitch(index: c_uint) -> bool {
    let sockets = fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default();
    let sockets: Vec<String> = receivers(&sockets, index).collect();
    if sockets.is_empty() {
        return false;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.map(|process| process.path()).any(|process| {
        fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == DAEMON)
            && fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|fd| {
                fs::read_link(fd.path())
                    .is_ok_and(|target| sockets.iter().any(|socket| target == Path::new(socket)))
            })
    })
}

/// Returns the sockets that receive all protocols of a device.
///
/// Each socket has the name that `/proc/PID/fd` shows.
/// Columns of `/proc/net/packet`: `sk RefCnt Type Proto Iface R Rmem User Inode`.
fn receivers(table: &str, index: c_uint) -> impl Iterator<Item = String> {
    table.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_whitespace().skip(3);
        let (protocol, device) = (words.next()?, words.next()?);
        let receives = protocol == "0003" && device.parse() == Ok(index);
        words.nth(3).filter(|_| receives).map(|inode| format!("socket:[{inode}]"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_of_a_device_are_found() {
        let table = "sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                     0000000000000000 3      3    0003   7     1 0      0      101\n\
                     0000000000000000 3      3    0003   8     1 0      0      102\n\
                     0000000000000000 3      3    0000   7     0 0      0      103\n";
        let found = |index| receivers(table, index).collect::<Vec<_>>();
        assert_eq!(found(7), ["socket:[101]"]);
        assert_eq!(found(9), Vec::<String>::new());
    }
}
