//! The description of a port to open.

use std::path::PathBuf;

use super::{
    Port, PortError, StoredDescriptor,
    af_packet::AfPacket,
    af_xdp::{AfXdp, XdpMode},
    null::Null,
    pcap::Pcap,
    tap::{Tap, TapSettings},
    vhost_user::{SocketMode, VhostUser},
};

/// The kind and the settings of a port to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// Discards packets.
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
    /// A network device of the host, by a packet socket.
    AfPacket {
        /// Its name.
        device: String,
        /// The MTU to set, in bytes; `None`: the one that it has.
        mtu: Option<u32>,
        /// Number of slots of the receive ring of each packet thread.
        ///
        /// `None`: 1 MiB of short slots, or 16 MiB of long ones.
        rx_slots: Option<u32>,
    },
    /// A network device of the host, by AF_XDP sockets.
    AfXdp {
        /// Its name.
        device: String,
        /// The MTU to set, in bytes; `None`: the one that it has.
        mtu: Option<u32>,
        /// How frames get from the device to the port.
        mode: XdpMode,
    },
    /// A TAP device, created if it does not exist.
    Tap {
        /// Its name.
        device: String,
        /// Its address, MTU and life time.
        settings: TapSettings,
    },
    /// The network card of a virtual machine, by a vhost-user socket.
    VhostUser {
        /// The path of the socket.
        path: PathBuf,
        /// The side that listens at the path.
        mode: SocketMode,
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
    /// Once; the queue then reports that it is exhausted.
    #[default]
    Once,
    /// Without end.
    Endless,
}

/// Opens a port.
///
/// `seed` differs between the ports of a daemon. Ports without a device derive their MAC address
/// from it.
///
/// # Errors
///
/// If the device or file cannot be opened. The error names the action that solves the problem.
pub fn open(spec: &PortSpec, seed: u64) -> Result<Box<dyn Port>, PortError> {
    open_inheriting(spec, seed, Vec::new())
}

/// Opens a port with the queues that an earlier process stored.
///
/// Descriptors that the port cannot use are closed.
///
/// # Errors
///
/// Like [`open`].
pub fn open_inheriting(
    spec: &PortSpec,
    seed: u64,
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
        PortSpec::AfXdp { device, mtu, mode } => Box::new(AfXdp::open(device, *mtu, *mode)?),
        PortSpec::Tap { device, settings } => Box::new(Tap::open(device, *settings, inherited)?),
        PortSpec::VhostUser { path, mode } => Box::new(VhostUser::new(path, *mode, seed)),
    })
}

/// Returns a locally administered MAC address with the low 40 bits of `seed`.
pub(super) const fn local_mac(seed: u64) -> [u8; 6] {
    let [a, b, c, d, e, ..] = seed.to_le_bytes();
    [0x02, e, d, c, b, a]
}
