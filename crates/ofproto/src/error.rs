//! What goes wrong, by who is to blame: the peer's message, the peer itself, or the system.
//!
//! Every message that cannot be obeyed has one [`ErrorCode`]: a name of the standard, the numbers
//! that go on the wire, and a sentence for the log. The numbers are those that Open vSwitch sends
//! for the same mistake over OpenFlow 1.3; codes that OpenFlow 1.3 lacks travel as experimenter
//! errors of the ONF or of Nicira, as they do there (OpenFlow 1.3.5, 7.4.4; ONF extensions for
//! 1.3.x, EXT-230 and EXT-260).

use shunt_pipeline::{FlowModError, GroupModError, MeterModError, ModificationError};

use crate::wire::codec::{Codec, version_names};

/// How an error code is written on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorNumber {
    /// `type` and `code` of `ofp_error_msg`.
    Standard {
        /// The high-level kind of error (`ofp_error_type`).
        kind: u16,
        /// What exactly, by kind.
        code: u16,
    },
    /// `ofp_error_experimenter_msg`.
    Experimenter {
        /// Who defined the error.
        experimenter: u32,
        /// What exactly, by experimenter.
        code: u16,
    },
}

/// The Open Networking Foundation as an experimenter.
pub const ONF_EXPERIMENTER: u32 = 0x4f4e_4600;
/// Nicira as an experimenter.
pub const NICIRA_EXPERIMENTER: u32 = 0x0000_2320;

const fn standard(kind: u16, code: u16) -> ErrorNumber {
    ErrorNumber::Standard { kind, code }
}

const fn onf(code: u16) -> ErrorNumber {
    ErrorNumber::Experimenter { experimenter: ONF_EXPERIMENTER, code }
}

const fn nicira(code: u16) -> ErrorNumber {
    ErrorNumber::Experimenter { experimenter: NICIRA_EXPERIMENTER, code }
}

macro_rules! error_codes {
    ($($variant:ident = $number:expr, $name:literal, $text:literal;)+) => {
        /// Why a message of a peer was not obeyed; the peer is to blame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`", $name, "`: ", $text, ".")]
                #[error("{}: {}", $name, $text)]
                $variant,
            )+
        }

        impl ErrorCode {
            /// Every code that this switch sends.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The numbers on the wire of OpenFlow 1.3.
            #[must_use]
            pub const fn number(self) -> ErrorNumber {
                match self {
                    $(Self::$variant => $number,)+
                }
            }
        }
    };
}

error_codes! {
    HelloIncompatible = standard(0, 0), "OFPHFC_INCOMPATIBLE", "no version in common";
    BadVersion = standard(1, 0), "OFPBRC_BAD_VERSION", "not the version that was agreed on";
    BadType = standard(1, 1), "OFPBRC_BAD_TYPE", "no such request";
    BadMultipart = standard(1, 2), "OFPBRC_BAD_MULTIPART", "no such multipart request";
    BadExperimenter = standard(1, 3), "OFPBRC_BAD_EXPERIMENTER", "unknown experimenter";
    BadExperimenterType = standard(1, 4), "OFPBRC_BAD_EXP_TYPE", "unknown experimenter message";
    Permission = standard(1, 5), "OFPBRC_EPERM", "not allowed";
    BadLength = standard(1, 6), "OFPBRC_BAD_LEN", "the length does not fit the message's type";
    BufferUnknown = standard(1, 8), "OFPBRC_BUFFER_UNKNOWN", "packets are never buffered";
    BadTableId = standard(1, 9), "OFPBRC_BAD_TABLE_ID", "no such table";
    IsSlave = standard(1, 10), "OFPBRC_IS_SLAVE", "a slave may only read";
    BadPort = standard(1, 11), "OFPBRC_BAD_PORT", "no packet can come from this port";
    MultipartOverflow = standard(1, 13), "OFPBRC_MULTIPART_BUFFER_OVERFLOW",
        "the parts of the request are too many to keep";
    MultipartTimeout = onf(2640), "OFPBRC_MULTIPART_REQUEST_TIMEOUT",
        "the rest of the request did not come";
    MustBeZero = nicira(4), "NXBRC_MUST_BE_ZERO", "reserved bits are set";
    ResumeStale = nicira(35), "NXR_STALE",
        "the packet did not pause here, or too long ago";
    ActionType = standard(2, 0), "OFPBAC_BAD_TYPE", "this switch has no such action";
    ActionLength = standard(2, 1), "OFPBAC_BAD_LEN", "the length does not fit the action's type";
    ActionExperimenter = standard(2, 2), "OFPBAC_BAD_EXPERIMENTER",
        "unknown experimenter of an action";
    ActionExperimenterType = standard(2, 3), "OFPBAC_BAD_EXP_TYPE",
        "this switch has no such action of the experimenter";
    ActionOutPort = standard(2, 4), "OFPBAC_BAD_OUT_PORT", "no output to this port";
    ActionArgument = standard(2, 5), "OFPBAC_BAD_ARGUMENT", "bad argument of an action";
    ActionTooMany = standard(2, 7), "OFPBAC_TOO_MANY", "the actions do not fit the switch's limits";
    ActionOutGroup = standard(2, 9), "OFPBAC_BAD_OUT_GROUP", "no such group";
    ActionInconsistent = standard(2, 10), "OFPBAC_MATCH_INCONSISTENT",
        "the match lacks what an action needs";
    ActionTag = standard(2, 12), "OFPBAC_BAD_TAG", "a packet has no room for another tag";
    SetFieldType = standard(2, 13), "OFPBAC_BAD_SET_TYPE", "unknown field of an action";
    SetFieldLength = standard(2, 14), "OFPBAC_BAD_SET_LEN",
        "the length or the bits do not fit the field of an action";
    SetFieldArgument = standard(2, 15), "OFPBAC_BAD_SET_ARGUMENT",
        "the field cannot be written, or not with this value";
    SetFieldMask = onf(4250), "OFPBAC_BAD_SET_MASK", "the field cannot be written in part";
    ActionMustBeZero = nicira(11), "NXBAC_MUST_BE_ZERO", "reserved bits of an action are set";
    ActionConjunction = nicira(15), "NXBAC_BAD_CONJUNCTION",
        "a conjunction has no such clause, or does not stand alone";
    InstructionUnknown = standard(3, 0), "OFPBIC_UNKNOWN_INST", "unknown instruction";
    InstructionTableId = standard(3, 2), "OFPBIC_BAD_TABLE_ID", "goto_table must lead upwards";
    InstructionExperimenter = standard(3, 5), "OFPBIC_BAD_EXPERIMENTER",
        "unknown experimenter of an instruction";
    InstructionLength = standard(3, 7), "OFPBIC_BAD_LEN",
        "the length does not fit the instruction's type";
    InstructionDuplicate = onf(2600), "OFPBIC_DUP_INST", "an instruction stands twice";
    MatchType = standard(4, 0), "OFPBMC_BAD_TYPE", "unknown type of match";
    MatchLength = standard(4, 1), "OFPBMC_BAD_LEN", "the match has a wrong length";
    MatchWildcards = standard(4, 5), "OFPBMC_BAD_WILDCARDS", "value bits outside the mask";
    MatchField = standard(4, 6), "OFPBMC_BAD_FIELD", "unknown field in a match";
    MatchValue = standard(4, 7), "OFPBMC_BAD_VALUE", "the field cannot have this value";
    MatchMask = standard(4, 8), "OFPBMC_BAD_MASK", "the field cannot be matched in part";
    MatchPrerequisite = standard(4, 9), "OFPBMC_BAD_PREREQ",
        "a field stands without what it depends on";
    MatchDuplicate = standard(4, 10), "OFPBMC_DUP_FIELD", "a field stands twice in a match";
    FlowUnknown = standard(5, 0), "OFPFMFC_UNKNOWN", "the rule cannot be changed so";
    FlowTableFull = standard(5, 1), "OFPFMFC_TABLE_FULL", "the table is full";
    FlowTableId = standard(5, 2), "OFPFMFC_BAD_TABLE_ID", "no such table for a rule";
    FlowOverlap = standard(5, 3), "OFPFMFC_OVERLAP", "the rule overlaps another";
    FlowCommand = standard(5, 6), "OFPFMFC_BAD_COMMAND", "unknown flow-mod command";
    FlowFlags = standard(5, 7), "OFPFMFC_BAD_FLAGS", "unknown flow-mod flags";
    GroupExists = standard(6, 0), "OFPGMFC_GROUP_EXISTS", "the group exists already";
    GroupInvalid = standard(6, 1), "OFPGMFC_INVALID_GROUP", "a group cannot be so";
    GroupTableFull = standard(6, 3), "OFPGMFC_OUT_OF_GROUPS", "the bridge has too many groups";
    GroupBucketsFull = standard(6, 4), "OFPGMFC_OUT_OF_BUCKETS", "the group has too many buckets";
    GroupWatch = standard(6, 6), "OFPGMFC_WATCH_UNSUPPORTED",
        "buckets of such a group watch nothing";
    GroupLoop = standard(6, 7), "OFPGMFC_LOOP", "the group would lead back to itself";
    GroupUnknown = standard(6, 8), "OFPGMFC_UNKNOWN_GROUP", "no such group";
    GroupType = standard(6, 10), "OFPGMFC_BAD_TYPE", "unknown type of group";
    GroupCommand = standard(6, 11), "OFPGMFC_BAD_COMMAND", "unknown group-mod command";
    GroupBucket = standard(6, 12), "OFPGMFC_BAD_BUCKET", "a bucket has a wrong length";
    GroupWatchPort = standard(6, 13), "OFPGMFC_BAD_WATCH", "no port of this number can be watched";
    PortModPort = standard(7, 0), "OFPPMFC_BAD_PORT", "no such port";
    PortModAddress = standard(7, 1), "OFPPMFC_BAD_HW_ADDR",
        "the hardware address is not the port's";
    PortModAdvertise = standard(7, 3), "OFPPMFC_BAD_ADVERTISE",
        "what a port advertises cannot be changed";
    TableModTable = standard(8, 0), "OFPTMFC_BAD_TABLE", "no such table";
    QueuePort = standard(9, 0), "OFPQOFC_BAD_PORT", "no such port";
    QueueUnknown = standard(9, 1), "OFPQOFC_BAD_QUEUE", "no such queue";
    ConfigFlags = standard(10, 0), "OFPSCFC_BAD_FLAGS", "unknown or unsupported configuration";
    RoleStale = standard(11, 0), "OFPRRFC_STALE", "the generation id is behind";
    RoleUnknown = standard(11, 2), "OFPRRFC_BAD_ROLE", "unknown role";
    MeterExists = standard(12, 1), "OFPMMFC_METER_EXISTS", "the meter exists already";
    MeterInvalid = standard(12, 2), "OFPMMFC_INVALID_METER", "a meter cannot be so";
    MeterUnknown = standard(12, 3), "OFPMMFC_UNKNOWN_METER", "no such meter";
    MeterCommand = standard(12, 4), "OFPMMFC_BAD_COMMAND", "unknown meter-mod command";
    MeterFlags = standard(12, 5), "OFPMMFC_BAD_FLAGS", "unknown or contradictory meter flags";
    MeterRate = standard(12, 6), "OFPMMFC_BAD_RATE", "a band lets nothing through";
    MeterBand = standard(12, 8), "OFPMMFC_BAD_BAND", "unknown type of band";
    MeterTableFull = standard(12, 10), "OFPMMFC_OUT_OF_METERS", "the bridge has too many meters";
    MeterBandsFull = standard(12, 11), "OFPMMFC_OUT_OF_BANDS", "the meter has too many bands";
    PropertyType = standard(13, 2), "OFPTFFC_BAD_TYPE", "unknown property";
    PropertyLength = standard(13, 3), "OFPTFFC_BAD_LEN", "a property has a wrong length";
    TableFeaturesPermission = standard(13, 5), "OFPTFFC_EPERM",
        "the features of tables cannot be changed";
    BundleId = onf(2302), "OFPBFC_BAD_ID", "no bundle can be had by this id";
    BundleClosed = onf(2304), "OFPBFC_BUNDLE_CLOSED", "the bundle is closed";
    BundleTableFull = onf(2305), "OFPBFC_OUT_OF_BUNDLES", "too many bundles are open";
    BundleType = onf(2306), "OFPBFC_BAD_TYPE", "unknown bundle control";
    BundleFlags = onf(2307), "OFPBFC_BAD_FLAGS", "the flags are not the bundle's";
    BundleMessageLength = onf(2308), "OFPBFC_MSG_BAD_LEN",
        "the length of the message in the bundle is wrong";
    BundleMessageXid = onf(2309), "OFPBFC_MSG_BAD_XID",
        "the transaction id is not that of the message in the bundle";
    BundleMessageUnsupported = onf(2310), "OFPBFC_MSG_UNSUP",
        "a bundle cannot hold such a message";
    BundleMessageTooMany = onf(2312), "OFPBFC_MSG_TOO_MANY", "the bundle holds too many messages";
    BundleMessageFailed = onf(2313), "OFPBFC_MSG_FAILED", "a message of the bundle failed";
}

impl From<FlowModError> for ErrorCode {
    fn from(error: FlowModError) -> Self {
        match error {
            FlowModError::Overlap(_) => Self::FlowOverlap,
            FlowModError::TableAll => Self::FlowTableId,
            FlowModError::GotoNotUp { .. } => Self::InstructionTableId,
            FlowModError::TableFull(_) => Self::FlowTableFull,
            FlowModError::NoSuchGroup(_) => Self::ActionOutGroup,
            FlowModError::NoSuchMeter(_) => Self::MeterInvalid,
            FlowModError::MixedConjunction => Self::ActionConjunction,
            FlowModError::NotYet(_) => Self::ActionExperimenterType,
            _ => Self::FlowUnknown,
        }
    }
}

impl From<GroupModError> for ErrorCode {
    fn from(error: GroupModError) -> Self {
        match error {
            GroupModError::Exists(_) => Self::GroupExists,
            GroupModError::Unknown(_) => Self::GroupUnknown,
            GroupModError::Loop(_) => Self::GroupLoop,
            GroupModError::Unwatchable(_) => Self::GroupWatch,
            GroupModError::NoSuchRule(_) => Self::ActionOutGroup,
            GroupModError::NotYet(_) => Self::ActionExperimenterType,
            GroupModError::TooMany(_) => Self::GroupTableFull,
            // The last of those that exist, and whatever groups learn to complain of.
            _ => Self::GroupInvalid,
        }
    }
}

impl From<MeterModError> for ErrorCode {
    fn from(error: MeterModError) -> Self {
        match error {
            MeterModError::Exists(_) => Self::MeterExists,
            MeterModError::Unknown(_) => Self::MeterUnknown,
            MeterModError::TooManyBands(_) => Self::MeterBandsFull,
            MeterModError::TooMany(_) => Self::MeterTableFull,
            // As for groups.
            _ => Self::MeterInvalid,
        }
    }
}

impl From<ModificationError> for ErrorCode {
    fn from(error: ModificationError) -> Self {
        match error {
            ModificationError::Flow(error) => error.into(),
            ModificationError::Group(error) => error.into(),
            ModificationError::Meter(error) => error.into(),
            ModificationError::NoSuchPort(_) => Self::PortModPort,
            _ => Self::FlowUnknown,
        }
    }
}

/// A message that OpenFlow has no room for; the switch is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes does not fit: the length field ends at {max}", max = u16::MAX)]
pub struct TooLong {
    /// How long it would be.
    pub length: usize,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer: a header that nothing can be framed after.
    #[error("the peer sent a header with length {length}, a header alone has 8 bytes")]
    Framing {
        /// The length in the header.
        length: u16,
    },
    /// The peer: something else than a HELLO came first.
    #[error("the peer began with message type {kind} and not with a hello")]
    NotHello {
        /// The type of the message.
        kind: u8,
    },
    /// The peer: it speaks no version that the switch speaks.
    #[error(
        "the peer speaks {offered}, the switch speaks {} only",
        version_names(Codec::versions())
    )]
    Version {
        /// The versions that it offered.
        offered: String,
    },
    /// The peer: it answered nothing within the inactivity probe.
    #[error("the peer was silent for the inactivity probe of {seconds} s, twice")]
    Silent {
        /// The setting.
        seconds: u64,
    },
    /// The peer: it did not say hello in time.
    #[error("the peer said no hello within {seconds} s")]
    NoHello {
        /// The limit.
        seconds: u64,
    },
    /// The peer: it does not read what it is sent.
    #[error("the peer took next to nothing of what it was sent for {seconds} s")]
    Stalled {
        /// The limit.
        seconds: u64,
    },
    /// The peer: it reads so slowly that it would have missed what it must hear.
    #[error("the peer reads too slowly to be told of everything that happens")]
    Lagged,
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The system: reading or writing failed.
    #[error("the connection failed: {0}")]
    Transport(std::io::ErrorKind),
}
