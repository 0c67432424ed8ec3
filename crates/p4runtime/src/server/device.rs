//! What a device must do to be served.

use std::time::Duration;

use crate::{
    schema::{Difference, Schema},
    wire::p4::{
        config::v1::P4Info,
        v1::{Action, PacketOut, TableEntry},
    },
};

/// Names an entry to a device: a number that is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryNo(pub u64);

/// Hits of an entry since it was inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// When the last one was, by the [steady](super::Now) clock.
    pub last: Option<Duration>,
}

/// Why a device did not take an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// There is no room.
    Full,
    /// There is no room for another mask in the table.
    Masks,
    /// It has no keys of so many bits.
    KeyBits,
    /// It has no entry of this number.
    Unknown,
    /// It cannot hold such an entry.
    Refused(&'static str),
}

/// Why a device does not run a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// It runs another, which differs in this.
    #[error("the P4Info is not that of this device: {0}")]
    Info(Difference),
    /// The configuration is of another program, or of none.
    #[error("the device configuration is not a program of the P4Info that this device runs")]
    Config,
}

/// Why a device does not send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// It is empty, or longer than any that it sends.
    #[error("the payload is no frame")]
    Frame,
    /// Its metadata names a port that is not there.
    #[error("there is no such port")]
    Port,
    /// Those before it have not left yet.
    #[error("too many packets wait")]
    Busy,
}

/// Holds entries that have been checked against the schema, and forwards packets by them.
pub trait Device: Send + 'static {
    /// Whether it can run a program; the P4Info itself makes sense.
    ///
    /// # Errors
    ///
    /// Why not.
    fn verify(&self, info: &P4Info, config: &[u8]) -> Result<(), ProgramError>;

    /// Runs a program that it verified, without any entries.
    fn commit(&mut self, info: &P4Info, schema: &Schema);

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// It is not there, then.
    fn insert(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError>;

    /// Replaces what an entry does.
    ///
    /// # Errors
    ///
    /// It does what it did, then; or there is none of this number.
    fn modify(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError>;

    /// Takes an entry out, and says how often it was hit.
    fn remove(&mut self, entry: EntryNo) -> Hits;

    /// Replaces what a table does with a packet that hits nothing.
    ///
    /// # Errors
    ///
    /// It does what it did, then.
    fn set_default(&mut self, table: u32, action: Option<&Action>) -> Result<(), DeviceError>;

    /// The hits of an entry so far.
    fn hits(&mut self, entry: EntryNo) -> Hits;

    /// Sends a packet, or not.
    ///
    /// # Errors
    ///
    /// Why not.
    fn send(&mut self, packet: &PacketOut) -> Result<(), PacketError>;

    /// Whether packets meet all changes that are made under one lock, or none.
    fn is_atomic(&self) -> bool {
        false
    }
}

/// What time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since some moment that stays the same: it neither steps nor stands still. Idle times are taken
    /// from it.
    pub steady: Duration,
    /// Since the Epoch, as people and controllers are told.
    pub day: Duration,
}
