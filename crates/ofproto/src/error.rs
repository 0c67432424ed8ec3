//! Errors of this crate, by cause: the message of a peer, the peer itself, or the system.
//!
//! Each refused message has one [`ErrorCode`]: a name of the standard, its wire numbers, and a text
//! for the log. The numbers are those that Open vSwitch sends over OpenFlow 1.3 for the same error.
//! Codes that OpenFlow 1.3 lacks are sent as experimenter errors of the ONF or of Nicira, as in
//! Open vSwitch (OpenFlow 1.3.5, 7.4.4; ONF extensions for 1.3.x, EXT-230 and EXT-260).

use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    Action, FlowModError, GroupModError, MeterModError, ModificationError, text::format_action,
};

use crate::wire::codec::version_names;

/// The wire format of an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorNumber {
    /// `type` and `code` of `ofp_error_msg`.
    Standard {
        /// The number of the error type (`ofp_error_type`).
        kind: u16,
        /// The error code within its type.
        code: u16,
    },
    /// The format `ofp_error_experimenter_msg`.
    Experimenter {
        /// The experimenter that defines the error.
        experimenter: u32,
        /// The error code within its experimenter.
        code: u16,
    },
    /// `nx_vendor_error`, for errors of a vendor in OpenFlow 1.0.
    Vendor {
        /// The vendor that defines the error.
        vendor: u32,
        /// The number of the error type.
        kind: u16,
        /// The error code within its type.
        code: u16,
    },
}

/// Experimenter id of the Open Networking Foundation.
pub const ONF_EXPERIMENTER: u32 = 0x4f4e_4600;
/// Experimenter id of Nicira.
pub const NICIRA_EXPERIMENTER: u32 = 0x0000_2320;

/// Returns an error number of the standard.
const fn standard(kind: u16, code: u16) -> ErrorNumber {
    ErrorNumber::Standard { kind, code }
}

/// Returns the number of an error of an ONF extension.
const fn onf(code: u16) -> ErrorNumber {
    ErrorNumber::Experimenter { experimenter: ONF_EXPERIMENTER, code }
}

/// Returns the number of a vendor error of Nicira.
const fn nicira(code: u16) -> ErrorNumber {
    ErrorNumber::Experimenter { experimenter: NICIRA_EXPERIMENTER, code }
}

macro_rules! error_codes {
    ($($variant:ident = $number:expr, $name:literal, $text:literal;)+) => {
        /// The reason why a peer's message is refused.
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
            /// All codes that this switch sends.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name of the error in the standard, such as `OFPBRC_BAD_TYPE`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the wire numbers of the error in OpenFlow 1.3.
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
    HelloIncompatible = standard(0, 0), "OFPHFC_INCOMPATIBLE", "no common version: offer one that the switch speaks";
    BadVersion = standard(1, 0), "OFPBRC_BAD_VERSION", "the message has another OpenFlow version than the connection";
    BadType = standard(1, 1), "OFPBRC_BAD_TYPE", "the switch does not handle this message type";
    BadMultipart = standard(1, 2), "OFPBRC_BAD_MULTIPART", "unknown multipart type, or its parts differ in type";
    BadExperimenter = standard(1, 3), "OFPBRC_BAD_EXPERIMENTER", "unknown experimenter: only ONF and Nicira are supported";
    BadExperimenterType = standard(1, 4), "OFPBRC_BAD_EXP_TYPE", "the experimenter has no such message";
    Permission = standard(1, 5), "OFPBRC_EPERM",
        "the switch has no such format: request NXPIF_STANDARD, NXPIF_NXT_PACKET_IN or NXPIF_NXT_PACKET_IN2, \
         NXFF_OPENFLOW10 or NXFF_NXM";
    TableReserved = standard(1, 5), "OFPBRC_EPERM",
        "table 254 is reserved for the switch: use tables 0 to 253";
    BadLength = standard(1, 6), "OFPBRC_BAD_LEN", "the length is wrong for this message type";
    BufferUnknown = standard(1, 8), "OFPBRC_BUFFER_UNKNOWN", "unknown buffer id: packets are never buffered, send OFP_NO_BUFFER";
    BadTableId = standard(1, 9), "OFPBRC_BAD_TABLE_ID", "the table does not exist: use tables 0 to 253";
    IsSlave = standard(1, 10), "OFPBRC_IS_SLAVE", "a slave may not change the switch: request role equal or master";
    BadPort = standard(1, 11), "OFPBRC_BAD_PORT", "in_port must be a port, LOCAL, CONTROLLER or ANY";
    MultipartOverflow = standard(1, 13), "OFPBRC_MULTIPART_BUFFER_OVERFLOW",
        "too many incomplete multipart requests, or one is too long";
    MultipartTimeout = onf(2640), "OFPBRC_MULTIPART_REQUEST_TIMEOUT",
        "the next part of the request did not arrive in time";
    MustBeZero = nicira(4), "NXBRC_MUST_BE_ZERO", "reserved bits are set: they must be zero";
    ResumeStale = nicira(35), "NXR_STALE",
        "the packet did not pause at this switch, or paused too long ago";
    ActionType = standard(2, 0), "OFPBAC_BAD_TYPE", "unknown action type, or not allowed here";
    ActionLength = standard(2, 1), "OFPBAC_BAD_LEN", "the length is wrong for this action type";
    ActionExperimenter = standard(2, 2), "OFPBAC_BAD_EXPERIMENTER",
        "unknown action experimenter: only Nicira is supported";
    ActionExperimenterType = standard(2, 3), "OFPBAC_BAD_EXP_TYPE",
        "the switch does not support this action of the experimenter";
    ActionOutPort = standard(2, 4), "OFPBAC_BAD_OUT_PORT", "the output port is not allowed here";
    ActionArgument = standard(2, 5), "OFPBAC_BAD_ARGUMENT", "an action argument is out of range";
    LoadValue = standard(2, 5), "OFPBAC_BAD_ARGUMENT",
        "the value of load has more bits than its target: name more bits, or load a smaller value";
    PushVlanType = standard(2, 5), "OFPBAC_BAD_ARGUMENT",
        "push_vlan needs the Ethernet type of a VLAN tag: use 0x8100 or 0x88a8";
    PushMplsType = standard(2, 5), "OFPBAC_BAD_ARGUMENT",
        "push_mpls needs the Ethernet type of MPLS: use 0x8847 or 0x8848";
    LearnFlags = standard(2, 5), "OFPBAC_BAD_ARGUMENT",
        "learn has unknown flags: set only send_flow_rem (1), delete_learned (2), and in learn2 write_result (4)";
    LearnTable = standard(2, 5), "OFPBAC_BAD_ARGUMENT", "the table of learn does not exist: use tables 0 to 253";
    LearnSpecification = standard(2, 5), "OFPBAC_BAD_ARGUMENT",
        "a specification of learn has reserved bits or an unknown kind: copy a field or value to a match or \
         field, or output a field";
    LearnResult = standard(2, 5), "OFPBAC_BAD_ARGUMENT",
        "learn2 has an offset of the result without the flag write_result (4): set the flag, or clear the offset";
    LearnPadding = standard(2, 5), "OFPBAC_BAD_ARGUMENT", "learn has padding that is not zero: clear it";
    ActionTooMany = standard(2, 7), "OFPBAC_TOO_MANY", "too many actions, or actions nested too deeply";
    ActionOutGroup = standard(2, 9), "OFPBAC_BAD_OUT_GROUP", "the group does not exist: add it first";
    ActionInconsistent = standard(2, 10), "OFPBAC_MATCH_INCONSISTENT",
        "an action needs a field that the match does not require: extend the match";
    ActionOrder = standard(2, 11), "OFPBAC_UNSUPPORTED_ORDER",
        "write_metadata must be the last action, without write_actions or clear_actions";
    ActionTag = standard(2, 12), "OFPBAC_BAD_TAG", "the packet already has the maximum number of VLAN tags";
    SetFieldType = standard(2, 13), "OFPBAC_BAD_SET_TYPE", "unknown field in an action";
    SetFieldLength = standard(2, 14), "OFPBAC_BAD_SET_LEN",
        "the length or bit range is wrong for the field of an action";
    SetFieldArgument = standard(2, 15), "OFPBAC_BAD_SET_ARGUMENT",
        "the field is read-only, or the value is out of range";
    SetFieldMask = onf(4250), "OFPBAC_BAD_SET_MASK", "the field does not support a mask";
    ActionMustBeZero = nicira(11), "NXBAC_MUST_BE_ZERO", "reserved bits of an action are set: they must be zero";
    ActionConjunction = nicira(15), "NXBAC_BAD_CONJUNCTION",
        "a conjunction needs 2 to 64 clauses and no other actions";
    InstructionUnknown = standard(3, 0), "OFPBIC_UNKNOWN_INST", "unknown instruction";
    InstructionUnsupported = standard(3, 1), "OFPBIC_UNSUP_INST",
        "an instruction as an action is allowed in apply_actions of a rule only";
    InstructionTableId = standard(3, 2), "OFPBIC_BAD_TABLE_ID",
        "the table of goto_table does not exist: name a higher table, at most 253";
    InstructionExperimenter = standard(3, 5), "OFPBIC_BAD_EXPERIMENTER",
        "unknown instruction experimenter: none is supported";
    InstructionLength = standard(3, 7), "OFPBIC_BAD_LEN",
        "the length is wrong for this instruction type";
    InstructionDuplicate = onf(2600), "OFPBIC_DUP_INST", "the instruction occurs twice: send it once";
    MatchType = standard(4, 0), "OFPBMC_BAD_TYPE", "unknown match type: send OFPMT_OXM";
    MatchLength = standard(4, 1), "OFPBMC_BAD_LEN", "the match has a wrong length";
    MatchWildcards = standard(4, 5), "OFPBMC_BAD_WILDCARDS", "the value has bits outside its mask: clear them";
    MatchField = standard(4, 6), "OFPBMC_BAD_FIELD", "unknown field in a match";
    MatchValue = standard(4, 7), "OFPBMC_BAD_VALUE", "the value is out of range for the field";
    MatchMask = standard(4, 8), "OFPBMC_BAD_MASK", "the field does not support this mask";
    MatchPrerequisite = standard(4, 9), "OFPBMC_BAD_PREREQ",
        "the match lacks a prerequisite of one of its fields";
    MatchDuplicate = standard(4, 10), "OFPBMC_DUP_FIELD", "the field occurs twice in the match: send it once";
    MatchNicira = nicira(2), "NXBRC_NXM_INVALID", "the Nicira match has a wrong length, or a cookie that is not allowed here";
    FlowUnknown = standard(5, 0), "OFPFMFC_UNKNOWN",
        "the flow-mod cannot be executed in this form, such as one that selects rules by a cookie and sets another";
    FlowTableFull = standard(5, 1), "OFPFMFC_TABLE_FULL", "the table is full: delete rules first";
    FlowTableId = standard(5, 2), "OFPFMFC_BAD_TABLE_ID", "the table cannot hold rules";
    FlowOverlap = standard(5, 3), "OFPFMFC_OVERLAP", "the rule overlaps another rule of the same priority";
    FlowCommand = standard(5, 6), "OFPFMFC_BAD_COMMAND", "unknown flow-mod command";
    FlowEmergencyTimeout = nicira(10), "OFPFMFC_BAD_EMERG_TIMEOUT",
        "an emergency rule cannot have a timeout, and the switch has no table for such rules";
    FlowFlags = standard(5, 7), "OFPFMFC_BAD_FLAGS", "unknown flow-mod flags";
    GroupExists = standard(6, 0), "OFPGMFC_GROUP_EXISTS", "the group already exists: modify it";
    GroupInvalid = standard(6, 1), "OFPGMFC_INVALID_GROUP", "the type, id or buckets of the group are invalid";
    GroupTableFull = standard(6, 3), "OFPGMFC_OUT_OF_GROUPS", "the bridge has too many groups: delete some first";
    GroupBucketsFull = standard(6, 4), "OFPGMFC_OUT_OF_BUCKETS", "the group has too many buckets";
    GroupWatch = standard(6, 6), "OFPGMFC_WATCH_UNSUPPORTED",
        "a bucket of this group type cannot watch a port or group";
    GroupLoop = standard(6, 7), "OFPGMFC_LOOP", "the group would lead back to itself";
    GroupUnknown = standard(6, 8), "OFPGMFC_UNKNOWN_GROUP", "the group does not exist: add it first";
    GroupType = standard(6, 10), "OFPGMFC_BAD_TYPE", "unknown group type";
    GroupCommand = standard(6, 11), "OFPGMFC_BAD_COMMAND", "unknown group-mod command";
    GroupBucket = standard(6, 12), "OFPGMFC_BAD_BUCKET",
        "a bucket has a wrong length, or a number that occurs twice or is not allowed here";
    GroupWatchPort = standard(6, 13), "OFPGMFC_BAD_WATCH", "the watched port number is invalid";
    GroupBucketUnknown = standard(6, 15), "OFPGMFC_UNKNOWN_BUCKET",
        "the group has no bucket of this number";
    GroupBucketExists = standard(6, 16), "OFPGMFC_BUCKET_EXISTS",
        "the group already has a bucket of this number";
    PortModPort = standard(7, 0), "OFPPMFC_BAD_PORT", "the port does not exist";
    PortModAddress = standard(7, 1), "OFPPMFC_BAD_HW_ADDR",
        "the hardware address is not that of the port";
    PortModAdvertise = standard(7, 3), "OFPPMFC_BAD_ADVERTISE",
        "advertised features cannot be changed";
    TableModTable = standard(8, 0), "OFPTMFC_BAD_TABLE", "the table does not exist: use tables 0 to 253";
    QueuePort = standard(9, 0), "OFPQOFC_BAD_PORT", "the port does not exist";
    QueueUnknown = standard(9, 1), "OFPQOFC_BAD_QUEUE", "the port has no such queue";
    ConfigFlags = standard(10, 0), "OFPSCFC_BAD_FLAGS", "unsupported configuration flags: send OFPC_FRAG_NORMAL";
    RoleStale = standard(11, 0), "OFPRRFC_STALE", "the generation id is older than that of the last election";
    RoleUnknown = standard(11, 2), "OFPRRFC_BAD_ROLE", "unknown role";
    MeterExists = standard(12, 1), "OFPMMFC_METER_EXISTS", "the meter already exists: modify it";
    MeterInvalid = standard(12, 2), "OFPMMFC_INVALID_METER", "invalid meter id: ids run from 1 to 4294901760 (0xffff0000)";
    MeterUnknown = standard(12, 3), "OFPMMFC_UNKNOWN_METER", "the meter does not exist: add it first";
    MeterCommand = standard(12, 4), "OFPMMFC_BAD_COMMAND", "unknown meter-mod command";
    MeterFlags = standard(12, 5), "OFPMMFC_BAD_FLAGS", "unknown or contradictory meter flags";
    MeterRate = standard(12, 6), "OFPMMFC_BAD_RATE", "the rate of a band is zero: it must be at least 1";
    MeterBand = standard(12, 8), "OFPMMFC_BAD_BAND", "unknown band type";
    MeterTableFull = standard(12, 10), "OFPMMFC_OUT_OF_METERS", "the bridge has too many meters: delete some first";
    MeterBandsFull = standard(12, 11), "OFPMMFC_OUT_OF_BANDS", "the meter has too many bands";
    TableFeaturesTable = standard(13, 0), "OFPTFFC_BAD_TABLE",
        "table features are those of one table: use tables 0 to 253";
    PropertyType = standard(13, 2), "OFPTFFC_BAD_TYPE", "unknown property";
    PropertyLength = standard(13, 3), "OFPTFFC_BAD_LEN", "a property has a wrong length";
    PropertyValue = standard(13, 4), "OFPBPC_BAD_VALUE",
        "a property has an unknown value, or is not allowed here";
    PropertyExperimenter = standard(13, 2), "OFPBPC_BAD_EXP_TYPE", "unknown experimenter property";
    TableFeaturesPermission = standard(13, 5), "OFPTFFC_EPERM",
        "table features cannot be changed";
    MonitorExists = nicira(6), "OFPMOFC_MONITOR_EXISTS",
        "the connection has a flow monitor with this id: cancel it, or choose another id";
    MonitorUnknown = nicira(8), "OFPMOFC_UNKNOWN_MONITOR", "the connection has no flow monitor with this id";
    MonitorFlags = nicira(7), "OFPMOFC_BAD_FLAGS",
        "unknown flow monitor flags, or none of add, delete and modify";
    MonitorTableFull = standard(1, 5), "OFPBRC_EPERM",
        "a connection can have 1024 flow monitors: cancel some first";
    BundleId = onf(2302), "OFPBFC_BAD_ID", "the bundle id is unknown, or already in use";
    BundleClosed = onf(2304), "OFPBFC_BUNDLE_CLOSED", "the bundle is closed: open another one";
    BundleTableFull = onf(2305), "OFPBFC_OUT_OF_BUNDLES", "too many bundles are open: commit or discard some";
    BundleType = onf(2306), "OFPBFC_BAD_TYPE", "unknown bundle control type";
    BundleFlags = onf(2307), "OFPBFC_BAD_FLAGS", "the flags differ from those of the bundle";
    BundleMessageLength = onf(2308), "OFPBFC_MSG_BAD_LEN",
        "the message inside the bundle message has a wrong length";
    BundleMessageXid = onf(2309), "OFPBFC_MSG_BAD_XID",
        "the message inside the bundle message has another transaction id";
    BundleMessageUnsupported = onf(2310), "OFPBFC_MSG_UNSUP",
        "a bundle cannot hold this message type";
    BundleMessageTooMany = onf(2312), "OFPBFC_MSG_TOO_MANY", "the bundle has too many messages";
    BundleMessageFailed = onf(2313), "OFPBFC_MSG_FAILED", "a message of the bundle failed, nothing was changed";
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
            GroupModError::NoSuchGroup(_) => Self::ActionOutGroup,
            GroupModError::NotYet(_) => Self::ActionExperimenterType,
            GroupModError::UnknownBucket(..) => Self::GroupBucketUnknown,
            GroupModError::BucketExists(..) => Self::GroupBucketExists,
            GroupModError::TooManyBuckets(..) | GroupModError::TooLong(..) => {
                Self::GroupBucketsFull
            }
            GroupModError::TooMany(_) => Self::GroupTableFull,
            // The last variant of `GroupModError`, and variants that are added later.
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
            // The last variant of `MeterModError`, and variants that are added later.
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

/// A refused request: its error code, and the mistake in words for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestRefusal {
    /// A mistake that the error code describes.
    #[error(transparent)]
    Code(#[from] ErrorCode),
    /// An action that does not fit the packets that reach it.
    #[error("{code}; the action is {text}", text = format_action(.action, &NoPortNames))]
    Action {
        /// The error code that the peer receives.
        code: ErrorCode,
        /// The action that was refused.
        action: Box<Action>,
    },
    /// A change that the tables refuse.
    #[error("{name}: {0}", name = ErrorCode::from(*.0).name())]
    Modification(#[from] ModificationError),
}

impl RequestRefusal {
    /// Returns the code that the peer receives.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Code(code) | Self::Action { code, .. } => *code,
            Self::Modification(error) => (*error).into(),
        }
    }
}

impl From<FlowModError> for RequestRefusal {
    fn from(error: FlowModError) -> Self {
        Self::Modification(error.into())
    }
}

/// The reason why a message has no bytes in an OpenFlow version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message is longer than OpenFlow allows.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The version has no such message.
    #[error(
        "the message does not exist in OpenFlow {}: use another version",
        version_names(1 << .version)
    )]
    Absent {
        /// The OpenFlow version on the wire.
        version: u8,
    },
}

/// A message that is longer than OpenFlow allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a message of {length} bytes is too long for OpenFlow: the limit is {max} bytes",
    max = u16::MAX
)]
pub struct TooLong {
    /// Length of the message in bytes.
    pub length: usize,
}

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer sent a header with a length below the length of a header.
    #[error("the peer sent a header with length {length}: a message has at least 8 bytes")]
    Framing {
        /// The length in the header.
        length: u16,
    },
    /// The peer sent another message before its hello.
    #[error("the peer sent message type {kind} first: a connection starts with a hello")]
    NotHello {
        /// The type of the message that arrived before the hello.
        kind: u8,
    },
    /// The peer speaks no version that the bridge speaks.
    #[error(
        "the peer offers {offered}, but the switch is set to {own}: use the same version at both \
         ends"
    )]
    Version {
        /// The versions that the peer offered.
        offered: String,
        /// The versions that the bridge accepts.
        own: String,
    },
    /// The peer did not reply to the inactivity probe.
    #[error("the peer was idle for twice the inactivity probe of {seconds} s")]
    Silent {
        /// The inactivity probe in seconds.
        seconds: u64,
    },
    /// The peer did not send its hello in time.
    #[error("the peer sent no hello within {seconds} s")]
    NoHello {
        /// The hello timeout in seconds.
        seconds: u64,
    },
    /// The peer does not read its connection.
    #[error("the peer read almost nothing for {seconds} s")]
    Stalled {
        /// The stall timeout in seconds.
        seconds: u64,
    },
    /// The peer reads so slowly that it would have lost an event that must not be lost.
    #[error(
        "the peer reads too slowly: notifications that must not be dropped have filled its queue"
    )]
    Lagged,
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The system failed to read or write.
    #[error("the connection failed: {0}")]
    Transport(std::io::ErrorKind),
    /// The TLS handshake with the peer failed.
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
}
