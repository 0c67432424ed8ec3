//! The copies that a port made of frames, as plain values.

use serde::Serialize;
use shunt_datapath::port::{FrameCopies, PortCopies};

/// The copies that a port made of frames between two buffers.
///
/// A copy is a transfer of a frame by code of the switch. Transfers by the kernel are no copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCopyStatus {
    /// Copies of received frames.
    pub rx_copies: u64,
    /// Bytes in these copies.
    pub rx_copied_bytes: u64,
    /// Copies of sent packets; a packet that was copied twice counts twice.
    pub tx_copies: u64,
    /// Bytes in these copies.
    pub tx_copied_bytes: u64,
}

impl PortCopyStatus {
    /// Returns the status of these copies.
    pub(crate) const fn new(copies: PortCopies) -> Self {
        let PortCopies { rx, tx } = copies;
        let FrameCopies { frames: rx_copies, bytes: rx_copied_bytes } = rx;
        let FrameCopies { frames: tx_copies, bytes: tx_copied_bytes } = tx;
        Self { rx_copies, rx_copied_bytes, tx_copies, tx_copied_bytes }
    }
}
