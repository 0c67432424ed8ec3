//! The claim of a switch on a network device, so that no two switches attach one device.
//!
//! Two packet sockets on one device both receive every packet, and two switches would forward each
//! packet twice. A claim is a socket in the abstract namespace of Unix sockets. This namespace
//! belongs to the network namespace, as devices do, and the system releases the name when the
//! process ends in any way. The number of the device is part of the name, so a rename does not
//! matter.
//!
//! Source: unix(7), "Abstract sockets".

use std::{
    ffi::c_uint,
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{PortError, sys::DeviceName};

/// A claim on a device, until it is dropped.
#[derive(Debug)]
pub(super) struct DeviceClaim {
    /// Nobody connects to it but a switch that wants to know the process.
    _socket: UnixListener,
}

impl DeviceClaim {
    /// Claims a device.
    ///
    /// `side` is the side of the device that the port has: the two ends of a TAP may have two users.
    ///
    /// # Errors
    ///
    /// If another switch has claimed the device.
    pub(super) fn take(
        side: &'static str,
        device: &DeviceName,
        index: c_uint,
    ) -> Result<Self, PortError> {
        let name = || device.as_str().to_owned();
        let failed = |source| PortError::System { doing: "claim", name: name(), source };
        let address =
            SocketAddr::from_abstract_name(format!("shunt/{side}/{index}")).map_err(failed)?;
        match UnixListener::bind_addr(&address) {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(PortError::Claimed { name: name(), process: owner(&address) })
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Returns the process that has an abstract socket.
///
/// `None` if it ends in this moment.
fn owner(address: &SocketAddr) -> Option<i32> {
    let stream = UnixStream::connect_addr(address).ok()?;
    getsockopt(&stream, PeerCredentials).ok().map(|credentials| credentials.pid())
}

/// Refuses a device that a bridge, bond or team of the system has as a member.
///
/// # Errors
///
/// If it is a member.
pub(super) fn refuse_member(device: &DeviceName, index: c_uint) -> Result<(), PortError> {
    match master(device, index) {
        Some(master) => Err(PortError::Enslaved { name: device.as_str().to_owned(), master }),
        None => Ok(()),
    }
}

/// Returns the bridge, bond or team that has the device as a member.
///
/// `/sys` may show the devices of another network namespace; a device with another number is not
/// this one.
fn master(device: &DeviceName, index: c_uint) -> Option<String> {
    let folder = format!("/sys/class/net/{}", device.as_str());
    let shown = fs::read_to_string(format!("{folder}/ifindex")).ok()?;
    let is_same = shown.trim().parse() == Ok(index);
    let master = fs::read_link(format!("{folder}/master")).ok().filter(|_| is_same)?;
    master.file_name()?.to_str().map(str::to_owned)
}
