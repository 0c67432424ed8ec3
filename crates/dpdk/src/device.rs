//! A device of DPDK: attached by devargs, started with queues, closed with its last queue.

use std::{ffi::CString, sync::Arc};

use parking_lot::Mutex;

use tracing::warn;

use crate::{
    buffer_pool::{PoolLease, PoolShape},
    eal::Eal,
    error::DpdkError,
    log::Request,
    options::device_name,
    queue::{DpdkReceiver, DpdkSender},
    shim::{DpdkErrno, PortSettings, RawCounters, RawLimits, RawPort, StartStep, StartedPort},
};

/// Number of slots of a receive queue, unless the device has fewer.
const RX_SLOTS: u16 = 1024;
/// Number of slots of a transmit queue, unless the device has fewer.
const TX_SLOTS: u16 = 1024;
/// Bytes of a frame beyond the MTU: the Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: u32 = 14 + 8;
/// Bytes of the frame check sequence, which some cards write to the buffer.
const CHECK_SEQUENCE: u32 = 4;

/// The lock for requests that change the set of devices: DPDK handles one at once.
///
/// The lock also separates the logged errors of different requests.
static CONTROL: Mutex<()> = Mutex::new(());

/// A network device that DPDK drives.
#[derive(Debug)]
pub struct DpdkDevice {
    /// DPDK itself, which has started.
    eal: Eal,
    /// The name of the device.
    name: String,
    /// The limits of the device.
    limits: DeviceLimits,
    /// The state: opened, started or closed.
    state: DeviceState,
    /// The counters at the last reading.
    counters: LastCounters,
}

/// The state of a device: attached, started, or failed.
#[derive(Debug)]
enum DeviceState {
    Attached(RawPort),
    Started {
        /// The started DPDK port.
        port: Arc<RawPort>,
        /// The buffer pool, which becomes idle when the device is closed.
        _buffers: PoolLease,
    },
    /// The device did not start, and is closed.
    Failed,
}

/// The limits and the offloads of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Maximum number of receive queues.
    pub rx_queues: u16,
    /// Maximum number of transmit queues.
    pub tx_queues: u16,
    /// NUMA node of the device; -1 for any node.
    node: i32,
    /// Smallest MTU, in bytes.
    pub mtu_min: u16,
    /// Largest MTU, in bytes.
    pub mtu_max: u16,
    /// True if the device can complete TCP checksums.
    pub tcp_checksum: bool,
    /// True if the device can complete UDP checksums.
    pub udp_checksum: bool,
    /// True if the device can segment TCP packets.
    pub tcp_segments: bool,
    /// True if each queue returns the frames that are sent to it, as a ring does.
    is_ring: bool,
    /// True if the device counts a frame that it refuses as an error.
    errors_are_refusals: bool,
}

/// The settings with which a device starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Number of receive queues.
    ///
    /// `None`: one queue for each thread, or all queues of the device if it has fewer.
    pub rx_queues: Option<u16>,
    /// Number of threads that send.
    ///
    /// Each thread has its own transmit queue. If the device has fewer queues, threads share them.
    pub threads: u16,
    /// The MTU to set, in bytes; `None` keeps the MTU of the device.
    pub mtu: Option<u16>,
}

/// The queues of a device.
#[derive(Debug)]
pub struct DpdkQueues {
    /// The receive queues; empty for a device that receives nothing.
    pub receivers: Vec<DpdkReceiver>,
    /// The transmit queues: at least one, and at most one for each thread.
    pub senders: Vec<DpdkSender>,
}

/// Numbers of frames that a device of DPDK dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Number of frames that arrived at the device, but that no queue returned.
    pub rx_dropped: u64,
    /// Number of frames that the device took and did not send.
    pub tx_dropped: u64,
}

/// The last counters that the driver of a device returned.
#[derive(Debug, Default)]
struct LastCounters(Mutex<DeviceCounters>);

impl LastCounters {
    /// Stores new counters, and returns the newest known counters.
    ///
    /// A driver may return no counters, for example after the removal of a card: the last counters
    /// then stay.
    fn update(&self, counters: Option<DeviceCounters>) -> DeviceCounters {
        let mut last = self.0.lock();
        *last = counters.unwrap_or(*last);
        *last
    }
}

impl DpdkDevice {
    /// Attaches the device of `devargs`, such as `net_null0` or `0000:01:00.0`.
    ///
    /// # Errors
    ///
    /// If the devargs are wrong, if no driver takes the device, or if another port uses the device.
    pub fn attach(eal: Eal, devargs: &str) -> Result<Self, DpdkError> {
        let name = device_name(devargs).to_owned();
        let wrong = || DpdkError::Devargs { devargs: devargs.to_owned() };
        if !has_device(&name) {
            return Err(wrong());
        }
        if is_ring_with_arguments(devargs) {
            return Err(DpdkError::RingArguments { devargs: devargs.to_owned() });
        }
        let text = CString::new(devargs).map_err(|_| wrong())?;
        let _control = CONTROL.lock();
        let request = Request::begin();
        let port = RawPort::attach(eal.0, &text)
            .map_err(|error| refused_device(devargs, &name, &request, error))?;
        let failed = |error: DpdkErrno| DpdkError::Request {
            doing: "ask",
            device: name.clone(),
            reason: request.reason(error.0),
        };
        let limits = DeviceLimits::of(port.limits().map_err(failed)?);
        if limits.tx_queues == 0 {
            return Err(DpdkError::NoTxQueue { device: name });
        }
        let counters = LastCounters::default();
        Ok(Self { eal, name, limits, state: DeviceState::Attached(port), counters })
    }

    /// Returns the name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the limits and the offloads of the device.
    #[must_use]
    pub const fn limits(&self) -> DeviceLimits {
        self.limits
    }

    /// Configures and starts the device, and creates its queues.
    ///
    /// # Errors
    ///
    /// If the device refuses the settings, which closes the device, or if it was started before.
    pub fn start(&mut self, settings: DeviceSettings) -> Result<DpdkQueues, DpdkError> {
        let device = || self.name.clone();
        let limits = self.limits;
        let rx_queues = match settings.rx_queues {
            None => settings.threads.min(limits.rx_queues),
            Some(wanted) if wanted <= limits.rx_queues => wanted,
            Some(wanted) => {
                let max = limits.rx_queues;
                return Err(DpdkError::Queues { device: device(), wanted, max });
            }
        };
        if let Some(mtu) = settings.mtu
            && !(limits.mtu_min..=limits.mtu_max).contains(&mtu)
        {
            let (min, max) = (limits.mtu_min, limits.mtu_max);
            return Err(DpdkError::MtuRange { device: device(), mtu, min, max });
        }
        let mut tx_queues = settings.threads.min(limits.tx_queues);
        if limits.is_ring {
            // A ring returns frames on the same queue, so more transmit than receive queues would
            // lose frames.
            tx_queues = tx_queues.min(rx_queues.max(1));
        }
        let slots =
            u32::from(rx_queues) * u32::from(RX_SLOTS) + u32::from(tx_queues) * u32::from(TX_SLOTS);
        let mtu = settings.mtu.unwrap_or_else(|| self.mtu());
        let frame_max = u32::from(mtu) + FRAME_OVERHEAD + CHECK_SEQUENCE;
        let shape = PoolShape::of(slots, settings.threads, frame_max, limits.node);
        let _control = CONTROL.lock();
        let request = Request::begin();
        let port = match std::mem::replace(&mut self.state, DeviceState::Failed) {
            DeviceState::Attached(port) => port,
            started => {
                self.state = started;
                return Err(DpdkError::AlreadyStarted { device: self.name.clone() });
            }
        };
        let buffers = PoolLease::take(self.eal.0, shape).map_err(|error| DpdkError::Memory {
            device: self.name.clone(),
            buffers: shape.count,
            reason: request.reason(error.0),
        })?;
        let own = PortSettings {
            pool: buffers.pool(),
            rx_queues,
            tx_queues,
            rx_slots: RX_SLOTS,
            tx_slots: TX_SLOTS,
            mtu: settings.mtu,
        };
        let StartedPort { port, rx, tx, promiscuous } = port
            .start(own)
            .map_err(|(step, error)| self.refused_start(step, request.reason(error.0), mtu))?;
        if let Some(warning) = promiscuous.err().and_then(|error| filter_warning(&self.name, error))
        {
            warn!("{warning}");
        }
        self.state = DeviceState::Started { port, _buffers: buffers };
        let receivers = rx.into_iter().map(DpdkReceiver::new).collect();
        let senders = tx.into_iter().map(DpdkSender::new).collect();
        Ok(DpdkQueues { receivers, senders })
    }

    /// Returns the error of a failed step of the start.
    fn refused_start(&self, step: StartStep, reason: String, mtu: u16) -> DpdkError {
        let device = self.name.clone();
        let doing = match step {
            StartStep::Mtu => return DpdkError::Mtu { device, mtu, reason },
            StartStep::Configure => "configure",
            StartStep::RxQueue => "create a receive queue of",
            StartStep::TxQueue => "create a transmit queue of",
            StartStep::Start => "start",
        };
        DpdkError::Request { doing, device, reason }
    }

    /// Returns the port of the device, if the device is open.
    fn port(&self) -> Option<&RawPort> {
        match &self.state {
            DeviceState::Attached(port) => Some(port),
            DeviceState::Started { port, .. } => Some(port),
            DeviceState::Failed => None,
        }
    }

    /// Returns whether the link is up.
    #[must_use]
    pub fn link_is_up(&self) -> bool {
        self.port().is_some_and(RawPort::link_is_up)
    }

    /// Returns whether the hardware of the device was removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.port().is_none_or(RawPort::is_removed)
    }

    /// Returns the MAC address; `None` if the device has none.
    #[must_use]
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.port()?.mac().ok().filter(|mac| *mac != [0; 6])
    }

    /// Returns the MTU in bytes: the longest packet without its Ethernet header.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.port().and_then(|port| port.mtu().ok()).unwrap_or(1500)
    }

    /// Returns the length of the longest frame, without the frame check sequence.
    #[must_use]
    pub fn frame_max(&self) -> usize {
        (u32::from(self.mtu()) + FRAME_OVERHEAD) as usize
    }

    /// Returns the counters of the driver that are not 0, with their names.
    ///
    /// DPDK calls these counters extended statistics. Empty if the driver returns none.
    #[must_use]
    pub fn driver_counters(&self) -> Vec<(String, u64)> {
        self.port().and_then(|port| port.statistics().ok()).unwrap_or_default()
    }

    /// Returns the counters of the device.
    #[must_use]
    pub fn counters(&self) -> DeviceCounters {
        let read = self.port().and_then(|port| port.counters().ok());
        self.counters.update(read.map(|RawCounters { rx_dropped, tx_dropped }| DeviceCounters {
            rx_dropped,
            // The sender has already counted the refused frames.
            tx_dropped: if self.limits.errors_are_refusals { 0 } else { tx_dropped },
        }))
    }
}

impl DeviceLimits {
    /// Returns the NUMA node of the device; `None` for a device without a node.
    #[must_use]
    pub fn numa_node(self) -> Option<u32> {
        u32::try_from(self.node).ok()
    }

    /// Converts the limits that the shim has read.
    const fn of(raw: RawLimits) -> Self {
        Self {
            rx_queues: raw.rx_queues_max,
            tx_queues: raw.tx_queues_max,
            node: raw.node,
            mtu_min: raw.mtu_min,
            mtu_max: raw.mtu_max,
            tcp_checksum: raw.tcp_checksum != 0,
            udp_checksum: raw.udp_checksum != 0,
            tcp_segments: raw.tcp_segments != 0,
            is_ring: raw.is_ring != 0,
            errors_are_refusals: raw.errors_are_refusals != 0,
        }
    }
}

/// Returns whether a name can be the name of a device.
///
/// Devargs like `bus=pci,addr=..`, in DPDK's own syntax, would give all cards one name.
fn has_device(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == '=' || c.is_whitespace() || c.is_control())
}

/// Returns whether devargs pass arguments to the driver `net_ring`.
///
/// The argument `internal` is an address of memory that the driver reads. With the argument
/// `nodeaction`, two devices share a ring, which the driver frees when the first of them closes.
fn is_ring_with_arguments(devargs: &str) -> bool {
    let name = device_name(devargs);
    devargs.contains(',') && ["net_ring", "eth_ring"].iter().any(|own| name.starts_with(own))
}

/// Returns the warning for a device that refuses promiscuous mode.
///
/// `None` for virtual devices that lack this mode because they never filter frames by address.
fn filter_warning(name: &str, DpdkErrno(errno): DpdkErrno) -> Option<String> {
    let is_card = name.contains(':');
    let reason = std::io::Error::from_raw_os_error(errno.abs());
    (is_card || errno != -libc::ENOTSUP).then(|| {
        format!(
            "DPDK device {name}: the driver refuses promiscuous mode ({reason}), so frames to MAC addresses \
             other than the one of the device may not arrive: allow the mode, for a virtual function with \
             `ip link set DEVICE vf NUMBER trust on`"
        )
    })
}

/// Returns the error of a device that DPDK did not attach.
fn refused_device(
    devargs: &str,
    name: &str,
    request: &Request,
    DpdkErrno(errno): DpdkErrno,
) -> DpdkError {
    let reason = request.reason(errno);
    match errno.abs() {
        libc::EEXIST => DpdkError::InUse { device: name.to_owned() },
        // `EFAULT` if no bus knows the name.
        libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::EFAULT => {
            let (device, advice) = (name.to_owned(), advice(name));
            DpdkError::NoDriver { device, advice, reason }
        }
        _ => DpdkError::Attach { devargs: devargs.to_owned(), reason },
    }
}

/// Returns the text that tells how to get a driver for a device.
fn advice(name: &str) -> String {
    if name.contains(':') {
        return format!(
            "check that the card exists, and bind it to VFIO with `dpdk-devbind.py --bind=vfio-pci {name}`"
        );
    }
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit()).replace('_', "-");
    format!(
        "check the name of its driver, which Debian has in the package `librte-{driver}` with a number"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_read_keeps_the_last_counters() {
        let counters = LastCounters::default();
        assert_eq!(counters.update(None), DeviceCounters::default());
        let read = DeviceCounters { rx_dropped: 3, tx_dropped: 4 };
        assert_eq!(counters.update(Some(read)), read);
        assert_eq!(counters.update(None), read);
    }

    #[test]
    fn only_devices_with_a_filter_get_a_warning() {
        let refused = |name, errno: i32| filter_warning(name, DpdkErrno(-errno));
        assert_eq!(refused("net_null0", libc::ENOTSUP), None);
        let card = refused("0000:01:00.0", libc::ENOTSUP).unwrap();
        assert!(card.starts_with("DPDK device 0000:01:00.0: the driver refuses promiscuous mode"));
        assert!(refused("net_tap0", libc::EPERM).unwrap().contains("not permitted"));
    }

    #[test]
    fn ring_devices_with_arguments_are_recognized() {
        assert!(is_ring_with_arguments("net_ring0,nodeaction=net_ring1:0:ATTACH"));
        assert!(is_ring_with_arguments("vdev:eth_ring0,internal=0x1000"));
        assert!(
            !is_ring_with_arguments("net_ring0") && !is_ring_with_arguments("net_null0,size=64")
        );
        assert!(!has_device("bus=pci") && has_device("0000:01:00.0"));
    }
}
