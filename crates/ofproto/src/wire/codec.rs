//! The OpenFlow versions that the switch speaks.
//!
//! A connection holds the [`Codec`] on which both hellos agreed, and calls it for everything that
//! depends on the wire format. To add OpenFlow 1.5, write `wire/v15` beside [`v13`], add a variant
//! and an entry in [`Codec::ALL`], and complete the matches of this file.

use std::fmt;

use bytes::Bytes;
use shunt_pipeline::{PacketInReason, RemovedReason};

use super::{
    ByteReader,
    header::Header,
    part_writer::{self, PartHeader, PartWriter, ReplyEntry},
    v10::{self, FlowFormat, V10Settings},
    v13::{self, multipart},
};
use crate::{
    AbsentFields,
    error::{EncodeError, ErrorCode, ErrorNumber, RequestRefusal, TooLong},
    message::{Message, MultipartReply, MultipartRequest, PortStatusReason, Xid},
};

/// Reads and writes the messages of one OpenFlow version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// OpenFlow 1.0.0, with the forms that the client chose.
    V10(V10Settings),
    /// The codec of OpenFlow 1.3.5.
    V13,
}

impl Codec {
    /// Every version that the switch speaks, the newest first.
    pub const ALL: &[Self] = &[Self::V13, Self::V10(V10Settings::INITIAL)];

    /// The codec of the newest version of OpenFlow.
    ///
    /// The newest codec reads and writes hellos, which have the same format in every version.
    pub const NEWEST: Self = Self::V13;

    /// Returns the versions that the switch speaks, bit `n` for wire version `n`.
    #[must_use]
    pub fn versions() -> u32 {
        Self::ALL.iter().fold(0, |bitmap, codec| bitmap | 1 << codec.version())
    }

    /// Returns the newest codec among `versions`, bit `n` for wire version `n`.
    #[must_use]
    pub fn newest_of(versions: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|codec| versions >> codec.version() & 1 == 1)
    }

    /// Returns the name that Open vSwitch gives to the version, such as `OpenFlow13`.
    #[must_use]
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V10(_) => "OpenFlow10",
            Self::V13 => "OpenFlow13",
        }
    }

    /// Returns the codec with the given name of Open vSwitch.
    #[must_use]
    pub fn find_protocol(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|codec| codec.protocol_name() == name)
    }

    /// Returns the version byte in the header of a message.
    #[must_use]
    pub const fn version(self) -> u8 {
        match self {
            Self::V10(_) => v10::VERSION,
            Self::V13 => v13::VERSION,
        }
    }

    /// Reads one whole message.
    ///
    /// # Errors
    ///
    /// The error to send to the peer if the message is malformed or of another version.
    pub fn decode(self, frame: &[u8]) -> Result<(Xid, Message), ErrorCode> {
        match self {
            Self::V10(settings) => v10::decode(frame, settings),
            Self::V13 => v13::decode(frame),
        }
    }

    /// Writes one message.
    ///
    /// # Errors
    ///
    /// The message does not exist in this version, or does not fit into the 16-bit length of its
    /// header.
    pub fn encode(self, xid: Xid, message: &Message) -> Result<Vec<u8>, EncodeError> {
        match self {
            Self::V10(settings) => v10::encode(xid, message, settings),
            Self::V13 => v13::encode(xid, message),
        }
    }

    /// Returns a short text of a message for the log; the message may be malformed.
    pub(crate) fn describe(self, frame: &[u8]) -> String {
        match self {
            Self::V10(settings) => v10::describe(frame, settings),
            Self::V13 => v13::describe(frame),
        }
    }

    /// Returns the wire numbers of an error.
    pub(crate) const fn error_number(self, code: ErrorCode) -> ErrorNumber {
        match self {
            Self::V10(_) => v10::error_number(code),
            Self::V13 => code.number(),
        }
    }

    /// Returns a refusal in words, which begin with the error's name in this version.
    pub(crate) fn describe_refusal(self, refusal: &RequestRefusal) -> String {
        let (text, code) = (refusal.to_string(), refusal.code());
        let name = match self {
            Self::V10(_) => v10::error_name(code),
            Self::V13 => code.name(),
        };
        match text.strip_prefix(code.name()) {
            Some(rest) => format!("{name}{rest}"),
            None => text,
        }
    }

    /// Returns whether a features reply lists the ports of the bridge.
    pub(crate) const fn has_ports_in_features(self) -> bool {
        match self {
            Self::V10(_) => true,
            Self::V13 => false,
        }
    }

    /// Returns whether clients get packets that no rule matches.
    ///
    /// Since OpenFlow 1.3 a table-miss rule sends such packets, and no rule drops them.
    pub(crate) const fn sends_misses(self) -> bool {
        match self {
            Self::V10(_) => true,
            Self::V13 => false,
        }
    }

    /// Returns the treatment of an action for a field that its packets lack.
    ///
    /// OpenFlow 1.0 has no error for such an action. Open vSwitch accepts its standard actions.
    pub(crate) const fn absent_fields(self) -> AbsentFields {
        match self {
            Self::V10(_) => AbsentFields::Ignored,
            Self::V13 => AbsentFields::Refused,
        }
    }

    /// Returns the codec after the client chose a form of matches.
    pub(crate) const fn with_flow_format(self, flow_format: FlowFormat) -> Self {
        match self {
            Self::V10(settings) => Self::V10(V10Settings { flow_format, ..settings }),
            Self::V13 => self,
        }
    }

    /// Returns the codec after the client chose whether flow-mods name a table.
    pub(crate) const fn with_table_ids(self, has_table_ids: bool) -> Self {
        match self {
            Self::V10(settings) => Self::V10(V10Settings { has_table_ids, ..settings }),
            Self::V13 => self,
        }
    }

    /// Writes a multipart reply as one or more messages.
    ///
    /// Calls `leave_out` for each entry that does not fit into a message.
    pub(crate) fn encode_reply(
        self,
        xid: Xid,
        reply: &MultipartReply,
        leave_out: &mut dyn FnMut(TooLong),
    ) -> Result<Vec<Vec<u8>>, EncodeError> {
        part_writer::encode_reply(self, xid, reply, leave_out)
    }

    /// Begins a multipart reply of the kind of `reply`, to be written entry by entry.
    pub(crate) fn part_writer(self, xid: Xid, reply: &MultipartReply) -> PartWriter {
        PartWriter::new(self, xid, reply)
    }

    /// Begins one message of a multipart reply, without entries.
    pub(super) fn begin_reply(self, xid: Xid, reply: &MultipartReply) -> Vec<u8> {
        match self {
            Self::V10(_) => v10::begin_reply(xid, reply),
            Self::V13 => multipart::begin_reply(xid, reply),
        }
    }

    /// Writes an entry of a multipart reply.
    pub(super) fn put_entry(self, out: &mut Vec<u8>, entry: ReplyEntry<'_>) {
        match self {
            Self::V10(_) => v10::put_entry(out, entry),
            Self::V13 => multipart::put_entry(out, entry),
        }
    }

    /// Returns whether a message changes rules, groups, meters or ports.
    pub(crate) fn is_lasting_change(self, header: &Header, frame: &[u8]) -> bool {
        match self {
            Self::V10(_) => v10::is_lasting_change(header.kind, frame),
            Self::V13 => v13::is_lasting_change(header.kind),
        }
    }

    /// Returns whether only a switch sends messages of type `kind`.
    pub(crate) const fn is_from_switch(self, kind: u8) -> bool {
        match self {
            Self::V10(_) => v10::is_from_switch(kind),
            Self::V13 => v13::is_from_switch(kind),
        }
    }

    /// Returns whether messages of type `kind` are multipart requests.
    pub(crate) const fn is_multipart_request(self, kind: u8) -> bool {
        match self {
            Self::V10(_) => kind == v10::STATS_REQUEST,
            Self::V13 => kind == v13::MULTIPART_REQUEST,
        }
    }

    /// Reads the header of one part of a multipart request.
    pub(crate) fn read_part_header(
        self,
        body: &mut ByteReader<'_>,
    ) -> Result<PartHeader, ErrorCode> {
        match self {
            Self::V10(_) => v10::read_part_header(body),
            Self::V13 => multipart::read_part_header(body),
        }
    }

    /// Reads the body of a multipart request of type `kind`, joined from all parts.
    pub(crate) fn read_request(
        self,
        kind: u16,
        body: &mut ByteReader<'_>,
    ) -> Result<MultipartRequest, ErrorCode> {
        match self {
            Self::V10(_) => v10::read_request(kind, body),
            Self::V13 => multipart::read_request(kind, body),
        }
    }

    /// Returns the message that a decoded bundle-add message carries, with its header.
    pub(crate) fn bundled_message(self, bundle_add: &Bytes) -> Bytes {
        match self {
            // Bundle messages have the same form in every version that has them.
            Self::V10(_) | Self::V13 => v13::bundled_message(bundle_add),
        }
    }

    /// Returns the standard actions (`ofp_action_type`) that the switch executes.
    pub(crate) const fn standard_actions(self) -> &'static [u16] {
        match self {
            Self::V10(_) => &v10::STANDARD_ACTIONS,
            Self::V13 => &v13::STANDARD_ACTIONS,
        }
    }

    /// Returns the number of a packet-in reason and its bit in asynchronous masks.
    pub(crate) const fn packet_in_reason(self, reason: PacketInReason) -> u8 {
        match self {
            // The numbers are the same.
            Self::V10(_) | Self::V13 => v13::packet_in_reason(reason),
        }
    }

    /// Returns the number of a port-status reason and its bit in asynchronous masks.
    pub(crate) const fn port_status_reason(self, reason: PortStatusReason) -> u8 {
        match self {
            // The numbers are the same.
            Self::V10(_) | Self::V13 => v13::port_status_reason(reason),
        }
    }

    /// Returns the number of a flow-removed reason and its bit in asynchronous masks.
    pub(crate) const fn flow_removed_reason(self, reason: RemovedReason) -> u8 {
        match self {
            // The numbers are the same.
            Self::V10(_) | Self::V13 => v13::flow_removed_reason(reason),
        }
    }
}

/// Writes the version as in the title of the standard, such as `1.3`.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&version_names(1 << self.version()))
    }
}

/// Returns the names of a bitmap of versions, such as `1.0, 1.3`.
pub(crate) fn version_names(versions: u32) -> String {
    let names: Vec<_> = (0..32)
        .filter(|bit| versions >> bit & 1 == 1)
        .map(|bit: u32| match bit {
            1..=6 => format!("1.{}", bit.saturating_sub(1)),
            _ => format!("version {bit:#04x}"),
        })
        .collect();
    if names.is_empty() { "no version".to_owned() } else { names.join(", ") }
}
