//! The description of a port to open.

use std::path::PathBuf;

use shunt_dpdk::EalOptions;
use shunt_memif::MemifOptions;

use super::{
    Port, PortError, StoredDescriptor,
    af_packet::AfPacket,
    af_xdp::{AfXdp, XdpMode},
    memif::Memif,
    null::Null,
    pcap::Pcap,
    tap::{Tap, TapSettings},
    vhost_user::{SocketMode, VhostUser},
};

/// The kind and the settings of a port to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// Discards packets, and receives none.
    Null,
    /// Replays one capture file, and writes another.
    Pcap {
        /// The file to replay.
        rx: Option<PathBuf>,
        /// The file to write; replaced if it exists.
        tx: Option<PathBuf>,
        /// Number of times that `rx` is replayed.
        repeat: Repeat,
    },
    /// A network device of the host, through packet sockets.
    AfPacket {
        /// The name of the device.
        device: String,
        /// The MTU to set, in bytes; `None` keeps the MTU of the device.
        mtu: Option<u32>,
        /// Number of slots of the receive ring of each packet thread.
        ///
        /// `None`: 1 MiB of short slots, or 16 MiB of long ones.
        rx_slots: Option<u32>,
    },
    /// A network device of the host, through AF_XDP sockets.
    AfXdp {
        /// The name of the device.
        device: String,
        /// The MTU to set, in bytes; `None` keeps the MTU of the device.
        mtu: Option<u32>,
        /// The way frames take from the device to the port: driver or network stack.
        mode: XdpMode,
        /// Time of a busy poll in microseconds; 0: the device interrupts.
        busy_poll_us: u32,
    },
    /// A TAP device, created if it does not exist.
    Tap {
        /// The name of the device.
        device: String,
        /// The MAC address, the MTU and the life time of the device.
        settings: TapSettings,
    },
    /// The network card of a virtual machine, through a vhost-user socket.
    VhostUser {
        /// The path of the socket.
        path: PathBuf,
        /// The process that listens at the path: the daemon or the hypervisor.
        mode: SocketMode,
    },
    /// A memory interface (memif) to another program.
    Memif(MemifOptions),
    /// A device of DPDK.
    Dpdk {
        /// The devargs: the name of the device, and the arguments of its driver.
        devargs: String,
        /// Number of receive queues; `None`: one for each packet thread.
        rx_queues: Option<u16>,
        /// The MTU to set, in bytes; `None` keeps the MTU of the device.
        mtu: Option<u32>,
    },
}

/// Number of times that a capture file is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Repeat {
    /// Replays the file once; the receive queue then reports that it is exhausted.
    #[default]
    Once,
    /// Replays the file until the port closes.
    Endless,
}

/// Opens a port.
///
/// `seed` differs between the ports of a daemon. Ports without a device derive their MAC address
/// from `seed`.
///
/// # Errors
///
/// If the device or file cannot be opened. The error names the solution.
pub fn open(spec: &PortSpec, seed: u64) -> Result<Box<dyn Port>, PortError> {
    open_inheriting(spec, seed, &EalOptions::default(), Vec::new())
}

/// Opens a port with the queues that an earlier process stored.
///
/// Descriptors that the port cannot use are closed. DPDK starts, with the options `dpdk`, when the
/// first DPDK port opens.
///
/// # Errors
///
/// Like [`open`].
pub fn open_inheriting(
    spec: &PortSpec,
    seed: u64,
    dpdk: &EalOptions,
    inherited: Vec<StoredDescriptor>,
) -> Result<Box<dyn Port>, PortError> {
    Ok(match spec {
        PortSpec::Null => Box::new(Null::new(seed)),
        PortSpec::Pcap { rx, tx, repeat } => {
            Box::new(Pcap::open(rx.as_deref(), tx.as_deref(), *repeat, seed)?)
        }
        PortSpec::AfPacket { device, mtu, rx_slots } => {
            Box::new(AfPacket::open(device, *mtu, *rx_slots, inherited)?)
        }
        PortSpec::AfXdp { device, mtu, mode, busy_poll_us } => {
            Box::new(AfXdp::open(device, *mtu, *mode, *busy_poll_us, inherited)?)
        }
        PortSpec::Tap { device, settings } => Box::new(Tap::open(device, *settings, inherited)?),
        PortSpec::VhostUser { path, mode } => Box::new(VhostUser::new(path, *mode, seed)),
        PortSpec::Memif(options) => Box::new(Memif::new(options.clone(), seed)?),
        #[cfg(feature = "dpdk")]
        PortSpec::Dpdk { devargs, rx_queues, mtu } => {
            Box::new(super::dpdk::Dpdk::open(devargs, *rx_queues, *mtu, dpdk, seed)?)
        }
        #[cfg(not(feature = "dpdk"))]
        PortSpec::Dpdk { .. } => {
            let _ = dpdk;
            return Err(shunt_dpdk::DpdkError::NotBuilt.into());
        }
    })
}

/// Returns a locally administered MAC address with the low 40 bits of `seed`.
pub(super) const fn local_mac(seed: u64) -> [u8; 6] {
    let [a, b, c, d, e, ..] = seed.to_le_bytes();
    [0x02, e, d, c, b, a]
}

#[cfg(all(test, not(feature = "dpdk")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_dpdk_refuses_its_ports() {
        let devargs = "net_null0".to_owned();
        let spec = PortSpec::Dpdk { devargs, rx_queues: None, mtu: None };
        let error = open(&spec, 0).map(drop).unwrap_err().to_string();
        assert!(error.contains("built without DPDK"), "{error}");
        assert!(error.contains("--features dpdk"), "{error}");
    }
}
