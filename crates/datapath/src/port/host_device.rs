//! The state of a network device of the host, and changes of it.
//!
//! Source: netdevice(7).

use std::{
    ffi::c_uint,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    thread,
};

use nix::{
    sched::{CloneFlags, setns},
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

use tracing::warn;

use super::{
    DeviceWork,
    error::{device_name, lost_reason},
    ethtool, link,
    sys::{self, DeviceName},
};

/// The state of a network device of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDeviceState {
    /// Index in the network namespace of the port; 0 for a TAP that was moved to another one.
    pub index: u32,
    /// True if the device is set up (`IFF_UP`).
    pub is_up: bool,
    /// MAC address.
    pub mac: [u8; 6],
    /// Longest packet without its Ethernet header, in bytes.
    pub mtu: u32,
}

/// A setting of a network device of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostDeviceSetting {
    /// True for a device that is set up (`IFF_UP`).
    Up(bool),
    /// Its MAC address.
    Mac([u8; 6]),
    /// Its MTU in bytes.
    Mtu(u32),
}

/// The speed and the duplex mode of a link, each if the driver knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkMode {
    /// Speed in bits per second.
    pub speed_bps: Option<u64>,
    /// True for full duplex, and false for half duplex.
    pub is_full_duplex: Option<bool>,
}

/// A reader of a network device of the host, for a thread that may block.
#[derive(Debug)]
pub struct DeviceReader {
    /// A socket in the network namespace of the device.
    control: OwnedFd,
    device: DeviceName,
    index: c_uint,
    /// A queue of a TAP, which stays with it in any network namespace.
    queue: Option<Arc<File>>,
}

/// The state of a network device and of its link at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// State of the device; `None` if it is gone.
    pub state: Option<HostDeviceState>,
    /// True if the link is up.
    pub link_up: bool,
    /// Speed and duplex mode of the link; `None` if the driver was not asked.
    pub link_mode: Option<LinkMode>,
    /// Reason why a port no longer serves the device, such as a new name.
    pub lost: Option<String>,
}

impl DeviceReader {
    /// Makes a reader with a copy of `control`, a socket; `None` without a free descriptor.
    pub(super) fn new(control: &OwnedFd, device: &DeviceName, index: c_uint) -> Option<Self> {
        Some(Self {
            control: control.try_clone().ok()?,
            device: device.clone(),
            index,
            queue: None,
        })
    }

    /// Returns the reader of a TAP, with one of its queues.
    pub(super) fn with_queue(self, queue: Option<Arc<File>>) -> Self {
        Self { queue, ..self }
    }

    /// Returns the name of a TAP that was moved to another network namespace.
    ///
    /// Packets pass as before: its queues stay with it.
    pub(super) fn name_elsewhere(&self) -> Option<String> {
        let queue = self.queue.as_ref().filter(|_| device_name(self.index).is_none())?;
        sys::tun_of_queue(queue.as_fd()).ok().map(|(name, _)| name)
    }

    fn read_elsewhere(&self) -> Option<DeviceReading> {
        let name = self.name_elsewhere()?;
        let namespace = sys::namespace_of_tun(self.queue.as_ref()?.as_fd());
        let read = namespace.and_then(|namespace| state_in(namespace, &name));
        // A queue of this process gives the device its carrier.
        let (state, link_up) = read.map_or((None, true), |(state, link_up)| (Some(state), link_up));
        Some(DeviceReading { state, link_up, link_mode: None, lost: None })
    }

    /// Reads the device and its link.
    ///
    /// The driver is asked if `last` differs, or has no link mode.
    #[must_use]
    pub fn read(&self, last: &DeviceReading) -> DeviceReading {
        if let Some(reading) = self.read_elsewhere() {
            return reading;
        }
        let control = self.control.as_fd();
        let flags = sys::device_flags(control, &self.device).unwrap_or_default();
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        let (state, link_up) =
            (HostDeviceState::read(control, &self.device, self.index), flags & wanted == wanted);
        let asks_driver =
            last.link_mode.is_none() || (state, link_up) != (last.state, last.link_up);
        DeviceReading {
            state,
            link_up,
            link_mode: asks_driver.then(|| LinkMode::read(control, &self.device)),
            lost: lost_reason(self.device.as_str(), self.index),
        }
    }

    /// Returns the bridge, bond or team of the system that has the device as a member.
    #[must_use]
    pub fn master(&self) -> Option<String> {
        link::master(self.index)
    }
}

impl HostDeviceState {
    /// Reads the state by `control`, a socket; `None` if the device is gone.
    pub(super) fn read(
        control: BorrowedFd<'_>,
        device: &DeviceName,
        index: c_uint,
    ) -> Option<Self> {
        let flags = sys::device_flags(control, device).ok()?;
        Some(Self {
            index,
            is_up: flags & libc::IFF_UP != 0,
            mac: sys::hardware_address(control, device).ok()?,
            mtu: sys::mtu(control, device).ok()?,
        })
    }
}

impl LinkMode {
    /// Asks the driver of a device by `control`, a socket.
    pub(super) fn read(control: BorrowedFd<'_>, device: &DeviceName) -> Self {
        ethtool::link_mode(control, device).unwrap_or_default()
    }
}

/// Reads a device of another network namespace, and whether its link is up.
///
/// A thread that enters a namespace stays there, so one is made for this.
fn state_in(namespace: OwnedFd, name: &str) -> io::Result<(HostDeviceState, bool)> {
    let device = DeviceName::new(name).map_err(io::Error::other)?;
    let read = move || -> io::Result<(HostDeviceState, bool)> {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        let (family, kind) = (AddressFamily::Unix, SockType::Datagram);
        let control = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
        let control = control.as_fd();
        let flags = sys::device_flags(control, &device)?;
        let state = HostDeviceState {
            index: 0,
            is_up: flags & libc::IFF_UP != 0,
            mac: sys::hardware_address(control, &device)?,
            mtu: sys::mtu(control, &device)?,
        };
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        Ok((state, flags & wanted == wanted))
    };
    let reader = thread::Builder::new().name("shunt-netns".to_owned()).spawn(read)?;
    reader.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

/// Sets the MTU of a device that is being opened, if one is given.
///
/// A device that refuses it must not stay closed, so it keeps the MTU that it has.
pub(super) fn try_mtu(control: BorrowedFd<'_>, device: &DeviceName, mtu: Option<u32>) {
    let Some(mtu) = mtu else { return };
    if let Err(error) = sys::set_mtu(control, device, mtu) {
        let name = device.as_str();
        warn!(%error, "device {name}: the MTU {mtu} is refused, it keeps its own (needs CAP_NET_ADMIN)");
    }
}

/// Returns work that changes a device by a copy of `control`, a socket.
///
/// All settings need the lock of the kernel for devices. Setting a device down also waits until no
/// processor of the host sends by it.
pub(super) fn change_work(
    control: &OwnedFd,
    device: &DeviceName,
    setting: HostDeviceSetting,
) -> Option<DeviceWork> {
    let (control, device) = (control.try_clone().ok()?, device.clone());
    Some(Box::new(move || match setting {
        HostDeviceSetting::Up(is_up) => set_up(control.as_fd(), &device, is_up),
        HostDeviceSetting::Mac(mac) => sys::set_hardware_address(control.as_fd(), &device, mac),
        HostDeviceSetting::Mtu(mtu) => sys::set_mtu(control.as_fd(), &device, mtu),
    }))
}

fn set_up(control: BorrowedFd<'_>, device: &DeviceName, is_up: bool) -> io::Result<()> {
    let flags = sys::device_flags(control, device)?;
    let wanted = if is_up { flags | libc::IFF_UP } else { flags & !libc::IFF_UP };
    if wanted == flags { Ok(()) } else { sys::set_device_flags(control, device, wanted) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::{
        net::if_::if_nametoindex,
        sched::{CloneFlags, unshare},
    };

    use super::*;

    /// The values are those of `ip link`, and the device follows the work.
    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    fn a_device_is_read_and_set() {
        let test = std::thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            let ip = |line: &str| {
                assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success());
            };
            ip("link add a0 address 02:00:00:00:00:0a mtu 1400 type veth peer name b0");
            let (control, device) = (sys::packet_socket().unwrap(), DeviceName::new("a0").unwrap());
            let index = if_nametoindex("a0").unwrap();
            let read = || HostDeviceState::read(control.as_fd(), &device, index);
            let reader = DeviceReader::new(&control, &device, index).unwrap();
            let mut expected =
                HostDeviceState { index, is_up: false, mac: [2, 0, 0, 0, 0, 0xa], mtu: 1400 };
            assert_eq!(read(), Some(expected));
            let change = |setting| change_work(&control, &device, setting).unwrap()();
            for is_up in [true, true, false] {
                change(HostDeviceSetting::Up(is_up)).unwrap();
                expected.is_up = is_up;
                assert_eq!(read(), Some(expected));
            }
            change(HostDeviceSetting::Mtu(1300)).unwrap();
            change(HostDeviceSetting::Mac([2, 0, 0, 0, 0, 0xb])).unwrap();
            assert!(change(HostDeviceSetting::Mtu(1)).is_err());
            (expected.mtu, expected.mac) = (1300, [2, 0, 0, 0, 0, 0xb]);
            assert_eq!(read(), Some(expected));
            // A veth has a fixed mode.
            let mode = LinkMode { speed_bps: Some(10_000_000_000), is_full_duplex: Some(true) };
            assert_eq!(LinkMode::read(control.as_fd(), &device), mode);
            let first = reader.read(&DeviceReading::default());
            let is_up = DeviceReading {
                state: Some(expected),
                link_up: false,
                link_mode: Some(mode),
                lost: None,
            };
            assert_eq!(first, is_up);
            assert_eq!(reader.read(&first).link_mode, None, "nothing has changed");
            ip("link set a0 up");
            assert_eq!(reader.read(&first).link_mode, Some(mode));
            ip("link add br0 type bridge");
            ip("link set a0 master br0");
            assert_eq!(reader.master().as_deref(), Some("br0"));
            ip("link del a0");
            assert_eq!(reader.read(&first).lost.as_deref(), Some("the device has vanished"));
            assert_eq!(read(), None);
            assert_eq!(LinkMode::read(control.as_fd(), &device), LinkMode::default());
        });
        test.join().unwrap();
    }
}
