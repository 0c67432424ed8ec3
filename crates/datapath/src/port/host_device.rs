//! The state of a network device of the host, and changes of it.
//!
//! Source: netdevice(7).

use std::{
    ffi::c_uint,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    thread,
};

use nix::sched::{CloneFlags, setns};
use tracing::warn;

use super::{
    DeviceWork, PortError, ethtool, link,
    numa::device_node,
    sys::{self, DeviceName},
};

/// The state of a network device of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDeviceState {
    /// Index in the network namespace of the port; 0 for a TAP that was moved.
    pub index: u32,
    /// True if the administrator has set the device up (`IFF_UP`).
    pub is_up: bool,
    /// MAC address of the device.
    pub mac: [u8; 6],
    /// Longest packet without its Ethernet header, in bytes.
    pub mtu: u32,
}

/// A setting of a network device of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostDeviceSetting {
    /// The administrative state (`IFF_UP`): true means up.
    Up(bool),
    /// Set the MAC address of the device.
    Mac([u8; 6]),
    /// The MTU in bytes.
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

/// The driver of a network device, as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// Name of the driver, such as `veth`.
    pub name: String,
    /// Version of the driver.
    pub version: String,
    /// Version of the firmware; empty without firmware.
    pub firmware_version: String,
}

/// A network device of the host that a port serves.
#[derive(Debug)]
pub struct HostDevice {
    /// A socket for requests about the device.
    ///
    /// The socket belongs to the network namespace in which it was opened, and receives nothing.
    pub(super) control: OwnedFd,
    /// The name of the device.
    pub(super) name: DeviceName,
    /// Index of the device when it was opened.
    pub(super) index: c_uint,
    /// True if the device had another first name when it was opened.
    is_second_name: bool,
    /// The MTU that was refused when the device was opened.
    pub(super) mtu_refusal: Option<MtuRefusal>,
    /// The driver when the device was opened; `None` if the device has none.
    pub(super) driver: Option<Arc<DriverInfo>>,
    /// The NUMA node of the device when it was opened; `None` without one.
    pub(super) numa_node: Option<u32>,
}

/// An MTU that was refused when a device was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuRefusal {
    /// The refused MTU in bytes.
    pub mtu: u32,
    /// The reason why the device keeps its own MTU.
    pub reason: MtuRefusalReason,
}

/// The reason why a device does not get an MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuRefusalReason {
    /// The error of the system.
    ///
    /// `PermissionDenied` if the process lacks `CAP_NET_ADMIN`.
    System(io::ErrorKind),
    /// The type of the port takes no MTU above a limit.
    PortType {
        /// The largest MTU of the type in bytes.
        max: u32,
    },
}

/// The MTU that a network device of the host had before a port was added.
#[derive(Debug)]
pub struct DeviceMtu {
    /// The network device with the changed MTU.
    device: HostDevice,
    /// The MTU in bytes.
    mtu: u32,
}

/// A reader of a network device of the host, for a thread that may block.
#[derive(Debug)]
pub struct DeviceReader {
    /// The network device that is read.
    device: HostDevice,
    /// A queue of a TAP device: usable even after the device changed its namespace.
    queue: Option<Arc<File>>,
}

/// The state of a network device and of its link at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// The state of the device; `None` if the device was removed.
    pub state: Option<HostDeviceState>,
    /// True if the link is up.
    pub link_up: bool,
    /// The speed and duplex mode of the link; `None` if the driver was not asked.
    pub link_mode: Option<LinkMode>,
    /// The reason why a port no longer serves the device, such as a new name.
    pub lost: Option<String>,
}

impl HostDevice {
    /// Creates a device that the kernel finds by `name` and by `index`.
    pub(super) fn new(control: OwnedFd, name: DeviceName, index: c_uint) -> Self {
        let first = sys::device_name(control.as_fd(), index).ok().flatten();
        let numa_node =
            device_node(Path::new("/"), first.as_deref().unwrap_or(name.as_str()), index);
        let is_second_name = first.is_some_and(|first| first != name.as_str());
        let driver = ethtool::driver(control.as_fd(), &name).ok().map(Arc::new);
        Self { control, name, index, is_second_name, mtu_refusal: None, driver, numa_node }
    }

    /// Returns this device with the MTU that was refused when it was opened.
    pub(super) fn with_mtu_refusal(self, mtu_refusal: Option<MtuRefusal>) -> Self {
        Self { mtu_refusal, ..self }
    }

    /// Returns the reason why the device is lost: it was removed, or has lost its name.
    ///
    /// A device that the kernel does not name for another reason is not lost. A device with several
    /// names is not lost while it has the name of the port.
    pub(super) fn lost(&self) -> Option<String> {
        let (control, device) = (self.control.as_fd(), self.name.as_str());
        // The kernel returns only the first name of a device, and finds the device by every name.
        let has_name =
            || sys::device_index(control, &self.name).is_ok_and(|index| index == self.index);
        match sys::device_name(control, self.index).ok()? {
            Some(name) if name == device || has_name() => None,
            Some(name) if self.is_second_name => {
                Some(format!("the device {name} no longer has the name {device}"))
            }
            Some(name) => Some(format!("the device {device} was renamed to {name}")),
            None => Some("the device has vanished".to_owned()),
        }
    }

    /// Returns whether the network namespace of the port has no device with this index.
    fn has_left(&self) -> bool {
        matches!(sys::device_name(self.control.as_fd(), self.index), Ok(None))
    }

    /// Returns whether the device is set up and its link is up.
    pub(super) fn link_up(&self) -> bool {
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        let flags = sys::device_flags(self.control.as_fd(), &self.name).unwrap_or_default();
        flags & wanted == wanted
    }

    /// Returns the MTU; `None` if the device was removed.
    pub(super) fn mtu(&self) -> Option<u32> {
        sys::mtu(self.control.as_fd(), &self.name).ok()
    }

    /// Reads the state; `None` if the device was removed.
    pub(super) fn state(&self) -> Option<HostDeviceState> {
        let control = self.control.as_fd();
        let flags = sys::device_flags(control, &self.name).ok()?;
        Some(HostDeviceState {
            index: self.index,
            is_up: flags & libc::IFF_UP != 0,
            mac: sys::hardware_address(control, &self.name).ok()?,
            mtu: sys::mtu(control, &self.name).ok()?,
        })
    }

    /// Asks the driver for the speed and the duplex mode of the link.
    pub(super) fn link_mode(&self) -> LinkMode {
        ethtool::link_mode(self.control.as_fd(), &self.name).unwrap_or_default()
    }

    /// Returns a reader for another thread; `None` if no descriptor is free.
    pub(super) fn reader(&self) -> Option<DeviceReader> {
        Some(DeviceReader { device: self.try_clone()?, queue: None })
    }

    /// Returns work that changes the device; `None` if no descriptor is free.
    ///
    /// Every change needs the kernel's lock for devices. Setting a device down also waits until no
    /// processor sends by the device.
    pub(super) fn change_work(&self, setting: HostDeviceSetting) -> Option<DeviceWork> {
        let device = self.try_clone()?;
        Some(Box::new(move || {
            let (control, name) = (device.control.as_fd(), &device.name);
            match setting {
                HostDeviceSetting::Up(is_up) => set_up(control, name, is_up),
                HostDeviceSetting::Mac(mac) => sys::set_hardware_address(control, name, mac),
                HostDeviceSetting::Mtu(mtu) => sys::set_mtu(control, name, mtu),
            }
        }))
    }

    /// Duplicates the socket of the device; `None` if no descriptor is left.
    fn try_clone(&self) -> Option<Self> {
        let control = self.control.try_clone().ok()?;
        let Self { index, is_second_name, mtu_refusal, numa_node, .. } = *self;
        let (name, driver) = (self.name.clone(), self.driver.clone());
        Some(Self { control, name, index, is_second_name, mtu_refusal, driver, numa_node })
    }
}

impl DeviceMtu {
    /// Reads the MTU of the device of this name; `None` if there is no such device.
    #[must_use]
    pub fn read(device: &str) -> Option<Self> {
        let name = DeviceName::new(device).ok()?;
        let control = sys::request_socket().ok()?;
        let index = sys::device_index(control.as_fd(), &name).ok()?;
        let device = HostDevice::new(control, name, index);
        let mtu = device.mtu()?;
        Some(Self { device, mtu })
    }

    /// Sets the MTU that the device had, if the device has another one now.
    ///
    /// May block, because a change waits for the kernel's lock for devices.
    pub fn restore(&self) {
        let Self { device, mtu } = self;
        if device.lost().is_some() || device.mtu().is_none_or(|own| own == *mtu) {
            return;
        }
        if let Err(error) = sys::set_mtu(device.control.as_fd(), &device.name, *mtu) {
            let name = device.name.as_str();
            warn!(
                %error,
                "device {name}: the MTU of {mtu} cannot be restored: use `ip link set {name} mtu \
                 {mtu}`"
            );
        }
    }
}

impl DeviceReader {
    /// Returns the reader of a TAP device, with one of its queues.
    pub(super) fn with_queue(self, queue: Option<Arc<File>>) -> Self {
        Self { queue, ..self }
    }

    /// Returns the name of a TAP device that was moved to another network namespace.
    ///
    /// Packets of the port pass as before, because the queues stay with the device.
    pub(super) fn name_elsewhere(&self) -> Option<String> {
        let queue = self.queue.as_ref().filter(|_| self.device.has_left())?;
        sys::tun_of_queue(queue.as_fd()).ok().map(|(name, _)| name)
    }

    /// Reads the state of a device in another namespace.
    fn read_elsewhere(&self) -> Option<DeviceReading> {
        let name = self.name_elsewhere()?;
        let namespace = sys::namespace_of_tun(self.queue.as_ref()?.as_fd());
        let read = namespace.and_then(|namespace| state_in(namespace, &name));
        // The device has its carrier from the queue of this process, so the link counts as up.
        let (state, link_up) = read.map_or((None, true), |(state, link_up)| (Some(state), link_up));
        Some(DeviceReading { state, link_up, link_mode: None, lost: None })
    }

    /// Reads the device and its link.
    ///
    /// The driver is asked for the link mode if the state differs from `last`, or `last` has no
    /// link mode.
    #[must_use]
    pub fn read(&self, last: &DeviceReading) -> DeviceReading {
        if let Some(reading) = self.read_elsewhere() {
            return reading;
        }
        let reading = self.read_here(last);
        // A TAP may move during the reading, mostly while the kernel is asked for the link mode.
        let moved = reading.lost.as_ref().and_then(|_| self.read_elsewhere());
        moved.unwrap_or(reading)
    }

    /// Reads the state of a device in the namespace of the daemon.
    fn read_here(&self, last: &DeviceReading) -> DeviceReading {
        let device = &self.device;
        let (state, link_up) = (device.state(), device.link_up());
        let asks_driver =
            last.link_mode.is_none() || (state, link_up) != (last.state, last.link_up);
        let link_mode = asks_driver.then(|| device.link_mode());
        DeviceReading { state, link_up, link_mode, lost: device.lost() }
    }

    /// Returns the index of the device when its port was opened.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.device.index
    }

    /// Returns the bridge, bond or team of the system that has the device as a member.
    #[must_use]
    pub fn master(&self) -> Option<String> {
        link::master(self.device.index)
    }
}

/// Reads a device of another network namespace, and whether its link is up.
///
/// A thread that enters a namespace stays there, so a new thread is created for this.
fn state_in(namespace: OwnedFd, name: &str) -> io::Result<(HostDeviceState, bool)> {
    let name = DeviceName::new(name).map_err(io::Error::other)?;
    let read = move || -> io::Result<(HostDeviceState, bool)> {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        let control = sys::request_socket()?;
        // The index of the device in the other namespace is unknown, and not needed.
        let device = HostDevice::new(control, name, 0);
        let state = device.state().ok_or(io::ErrorKind::NotFound)?;
        Ok((state, device.link_up()))
    };
    let reader = thread::Builder::new().name("shunt-netns".to_owned()).spawn(read)?;
    reader.join().unwrap_or_else(|_| {
        Err(io::Error::other("the thread that reads the device in its network namespace panicked"))
    })
}

/// Refuses a device that carries no Ethernet frames, such as a TUN device.
///
/// The loopback device has Ethernet headers, too. A device without an answer has vanished, which
/// the caller notices.
///
/// # Errors
///
/// If the link layer of the device is not Ethernet.
pub(super) fn refuse_other_link(
    control: BorrowedFd<'_>,
    device: &DeviceName,
) -> Result<(), PortError> {
    match sys::link_type(control, device) {
        Ok(libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) | Err(_) => Ok(()),
        Ok(link_type) => {
            Err(PortError::NotEthernet { name: device.as_str().to_owned(), link_type })
        }
    }
}

/// Sets the MTU of a device that is being opened, if one is given.
///
/// A device that refuses the MTU keeps its own MTU, so that the port opens in any case. Returns the
/// refusal. A device that has the MTU already needs no change, and so no capability.
pub(super) fn try_mtu(
    control: BorrowedFd<'_>,
    device: &DeviceName,
    mtu: Option<u32>,
) -> Option<MtuRefusal> {
    let mtu = mtu?;
    if sys::mtu(control, device).is_ok_and(|own| own == mtu) {
        return None;
    }
    let error = sys::set_mtu(control, device, mtu).err()?;
    let name = device.as_str();
    warn!(
        %error,
        "device {name}: the MTU {mtu} is refused by the system, so the device keeps its own: give \
         the daemon CAP_NET_ADMIN"
    );
    Some(MtuRefusal { mtu, reason: MtuRefusalReason::System(error.kind()) })
}

/// Sets a device up or down.
fn set_up(control: BorrowedFd<'_>, device: &DeviceName, is_up: bool) -> io::Result<()> {
    let flags = sys::device_flags(control, device)?;
    let wanted = if is_up { flags | libc::IFF_UP } else { flags & !libc::IFF_UP };
    if wanted == flags { Ok(()) } else { sys::set_device_flags(control, device, wanted) }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use nix::{
        net::if_::if_nametoindex,
        sched::{CloneFlags, unshare},
    };

    use super::*;

    /// `ip link` shows the same state, and changes of the state take effect.
    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    fn a_device_is_read_and_set() {
        let test = thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            let ip = |line: &str| {
                assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success());
            };
            ip("link add a0 address 02:00:00:00:00:0a mtu 1400 type veth peer name b0");
            let (control, name) = (sys::packet_socket().unwrap(), DeviceName::new("a0").unwrap());
            let index = if_nametoindex("a0").unwrap();
            let device = HostDevice::new(control, name, index);
            let read = || device.state();
            let reader = device.reader().unwrap();
            assert_eq!(device.driver.as_ref().unwrap().name, "veth");
            let mut expected =
                HostDeviceState { index, is_up: false, mac: [2, 0, 0, 0, 0, 0xa], mtu: 1400 };
            assert_eq!(read(), Some(expected));
            let change = |setting| device.change_work(setting).unwrap()();
            for is_up in [true, true, false] {
                change(HostDeviceSetting::Up(is_up)).unwrap();
                expected.is_up = is_up;
                assert_eq!(read(), Some(expected));
            }
            let open = |mtu| try_mtu(device.control.as_fd(), &device.name, mtu);
            let refused = open(Some(1)).unwrap();
            let reason = MtuRefusalReason::System(io::ErrorKind::InvalidInput);
            assert_eq!(refused, MtuRefusal { mtu: 1, reason });
            assert_eq!([None, Some(1400)].map(open), [None, None]);
            change(HostDeviceSetting::Mtu(1300)).unwrap();
            change(HostDeviceSetting::Mac([2, 0, 0, 0, 0, 0xb])).unwrap();
            assert!(change(HostDeviceSetting::Mtu(1)).is_err());
            (expected.mtu, expected.mac) = (1300, [2, 0, 0, 0, 0, 0xb]);
            assert_eq!(read(), Some(expected));
            // A veth device always reports this link mode.
            let mode = LinkMode { speed_bps: Some(10_000_000_000), is_full_duplex: Some(true) };
            assert_eq!(device.link_mode(), mode);
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
            assert_eq!(device.link_mode(), LinkMode::default());
        });
        test.join().unwrap();
    }

    /// A device gets its MTU back, and another device of the same name does not.
    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    fn an_mtu_is_restored() {
        let test = thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            let ip = |line: &str| {
                assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success());
            };
            let mtu = || DeviceMtu::read("a0").map(|own| own.mtu);
            assert_eq!(mtu(), None, "there is no such device");
            ip("link add a0 mtu 1400 type veth peer name b0");
            let before = DeviceMtu::read("a0").unwrap();
            ip("link set a0 mtu 9000");
            assert_eq!(mtu(), Some(9000));
            before.restore();
            assert_eq!(mtu(), Some(1400));
            ip("link del a0");
            ip("link add a0 mtu 2000 type veth peer name b0");
            before.restore();
            assert_eq!(mtu(), Some(2000));
        });
        test.join().unwrap();
    }

    /// A process that has used up its descriptors keeps a device, and notices its end.
    ///
    /// The limit of this process may be too large to be reached, and its other tests need
    /// descriptors. So the test runs itself in a process with a low limit.
    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    fn a_device_is_lost_without_free_descriptors() {
        if env::var_os(FEW_DESCRIPTORS).is_some() {
            return thread::spawn(check_without_descriptors).join().unwrap();
        }
        let path = concat!(module_path!(), "::a_device_is_lost_without_free_descriptors");
        let (_, name) = path.split_once("::").unwrap();
        let script = format!("ulimit -n {DESCRIPTORS_MAX} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(FEW_DESCRIPTORS, "1");
        let output = command.output().unwrap();
        let [out, errors] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        eprint!("{errors}");
        assert!(output.status.success() && out.contains("1 passed"), "{out}");
    }

    /// The variable that the process with a low limit has.
    const FEW_DESCRIPTORS: &str = "SHUNT_TEST_FEW_DESCRIPTORS";

    /// The limit of open files in that process.
    const DESCRIPTORS_MAX: usize = 128;

    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    fn check_without_descriptors() {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
            return;
        }
        let ip = |line: &str| {
            assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success());
        };
        ip("link add a0 type veth peer name b0");
        let (control, name) = (sys::packet_socket().unwrap(), DeviceName::new("a0").unwrap());
        let index = if_nametoindex("a0").unwrap();
        let device = HostDevice::new(control, name, index);
        assert_eq!(lost_without_descriptors(&device), None);
        ip("link del a0");
        assert_eq!(lost_without_descriptors(&device).as_deref(), Some("the device has vanished"));
    }

    /// Returns the reason why a device is lost, as a thread without a free descriptor
    /// finds it.
    fn lost_without_descriptors(device: &HostDevice) -> Option<String> {
        let find = || {
            // The descriptors of the other threads stay free.
            unshare(CloneFlags::CLONE_FILES).unwrap();
            let copies = (0..DESCRIPTORS_MAX).map_while(|_| device.control.try_clone().ok());
            let copies: Vec<OwnedFd> = copies.collect();
            let next = device.control.try_clone();
            assert_eq!(
                next.unwrap_err().raw_os_error(),
                Some(libc::EMFILE),
                "no descriptor is free"
            );
            let lost = device.lost();
            drop(copies);
            lost
        };
        thread::scope(|scope| scope.spawn(find).join().unwrap())
    }
}
