//! Which port to open.

use std::path::PathBuf;

use super::{Port, PortError, af_packet::AfPacket, null::Null, pcap::Pcap, tap::Tap};

/// Which port to open, as a configuration says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// Swallows what it is sent.
    Null,
    /// Replays one capture file, writes another.
    Pcap {
        /// The file that packets come from.
        rx: Option<PathBuf>,
        /// The file that packets go to; replaced if it exists.
        tx: Option<PathBuf>,
        /// How often `rx` is replayed.
        repeat: Repeat,
    },
    /// A network device of the host, by a packet socket.
    AfPacket {
        /// Its name.
        device: String,
    },
    /// A TAP device, made if it does not exist.
    Tap {
        /// Its name.
        device: String,
    },
}

/// How often a capture file is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Once; the queue then reports that it is exhausted.
    #[default]
    Once,
    /// From the beginning again, without end.
    Endless,
}

/// Opens a port. `seed` is different for each port of a daemon: ports without a device make their
/// hardware address of it.
///
/// # Errors
///
/// When the device or file cannot be opened, naming who has to do what.
pub fn open(spec: &PortSpec, seed: u64) -> Result<Box<dyn Port>, PortError> {
    Ok(match spec {
        PortSpec::Null => Box::new(Null::new(seed)),
        PortSpec::Pcap { rx, tx, repeat } => {
            Box::new(Pcap::open(rx.as_deref(), tx.as_deref(), *repeat, seed)?)
        }
        PortSpec::AfPacket { device } => Box::new(AfPacket::open(device)?),
        PortSpec::Tap { device } => Box::new(Tap::open(device)?),
    })
}

/// A locally administered hardware address made of the low 40 bits of `seed`.
pub(super) const fn local_mac(seed: u64) -> [u8; 6] {
    let [a, b, c, d, e, ..] = seed.to_le_bytes();
    [0x02, e, d, c, b, a]
}
