//! The interface between the server and a device.

use std::time::Duration;

use crate::{
    schema::{Schema, SchemaDifference},
    wire::p4::{
        config::v1::P4Info,
        v1::{Action, PacketOut, TableEntry},
    },
};

/// The number of an entry at the device, which is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryNo(pub u64);

/// Hits of an entry since it was inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryHits {
    /// Number of packets that hit the entry.
    pub packets: u64,
    /// Number of bytes in the frames of the packets that hit the entry.
    pub bytes: u64,
    /// Time of the last hit, by the [steady](super::ClockReading) clock.
    pub last: Option<Duration>,
}

/// The reason why a device refuses an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The table is full.
    Full,
    /// The table has no room for another mask.
    Masks,
    /// The entry matches more bits than a key has.
    KeyBits,
    /// The device has no entry with this number.
    Unknown,
    /// The device cannot hold this kind of entry.
    Refused(&'static str),
}

/// The reason why a device refuses a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The device runs another program; this is the first difference.
    #[error("the P4Info is not that of this device: {0}")]
    Info(SchemaDifference),
    /// The device configuration does not belong to the P4Info.
    #[error("the device configuration is not a program with the P4Info of this device")]
    Config,
}

/// The reason why a device refuses to send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The payload is empty or too long.
    #[error("the payload is empty or longer than a frame: send one Ethernet frame")]
    Frame,
    /// The metadata contains an unknown port.
    #[error("the port does not exist: send to a port of the NIC")]
    Port,
    /// Too many packets wait to be sent.
    #[error("too many packets wait to be sent: send them more slowly")]
    Busy,
}

/// Holds entries that match the schema, and forwards packets with them.
pub trait Device: Send + 'static {
    /// Checks that the device can run a program. The P4Info itself is already valid.
    ///
    /// # Errors
    ///
    /// The reason why the device cannot run the program.
    fn verify(&self, info: &P4Info, config: &[u8]) -> Result<(), ProgramError>;

    /// Runs a verified program, without entries.
    fn commit(&mut self, info: &P4Info, schema: &Schema);

    /// Inserts an entry.
    ///
    /// # Errors
    ///
    /// The entry is not inserted.
    fn insert(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError>;

    /// Replaces the action of an entry.
    ///
    /// # Errors
    ///
    /// The entry is unchanged, or there is no entry with this number.
    fn modify(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError>;

    /// Removes an entry and returns its hits.
    fn remove(&mut self, entry: EntryNo) -> EntryHits;

    /// Sets the action of a table for packets without a matching entry.
    ///
    /// # Errors
    ///
    /// The action is unchanged.
    fn set_default(&mut self, table: u32, action: Option<&Action>) -> Result<(), DeviceError>;

    /// Returns the hits of an entry so far.
    fn hits(&mut self, entry: EntryNo) -> EntryHits;

    /// Sends a packet.
    ///
    /// # Errors
    ///
    /// The reason why the packet is not sent.
    fn send(&mut self, packet: &PacketOut) -> Result<(), PacketError>;

    /// Returns whether changes under one lock take effect atomically for packets.
    fn is_atomic(&self) -> bool {
        false
    }
}

/// The current time, by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// Monotonic time since an arbitrary start, used for idle timeouts.
    pub steady: Duration,
    /// Time since the Unix epoch, used in messages.
    pub day: Duration,
}
