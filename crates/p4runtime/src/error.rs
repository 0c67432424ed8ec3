//! Errors of the server, with their gRPC status codes.
//!
//! A request can fail as a whole ([`RpcError`]), or update by update. In the second case the status
//! is `UNKNOWN`, and its details have one `p4.v1.Error` per update, including those that succeeded
//! ([`batch_status`]). Source: P4Runtime, "Error Reporting".

use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};

use crate::{
    schema::SchemaError,
    server::ProgramError,
    value::ValueError,
    wire::{google::rpc, p4::v1},
};

/// The type URL of a `p4.v1.Error` in status details.
const ERROR_TYPE: &str = "type.googleapis.com/p4.v1.Error";

/// The reason why one update or read entity is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// The update has no type.
    #[error("the update has no type: set insert, modify or delete")]
    NoType,
    /// The update or query has no entity.
    #[error("the entity is not set: set a table entry or a direct counter entry")]
    NoEntity,
    /// The server does not support this kind of entity.
    #[error("this kind of entity is not supported: use table entries or direct counter entries")]
    Unserved,
    /// No table has this id.
    #[error("table {0:#010x} does not exist: use a table of the P4Info")]
    NoTable(u32),
    /// The id is not that of a table.
    #[error("{0:#010x} is not a table id: table ids start with 0x02")]
    NotATable(u32),
    /// A read of all tables has a filter.
    #[error("a wildcard table read cannot filter on entry fields: specify table_id")]
    AllTables,
    /// The table has no such match field.
    #[error("the table has no match field {0}: use its fields in the P4Info")]
    NoField(u32),
    /// A match field occurs twice.
    #[error("match field {0} occurs twice: send it once")]
    FieldTwice(u32),
    /// The match kind is wrong for the field.
    #[error("match field {0} has another match kind in the P4Info: use that kind")]
    FieldKind(u32),
    /// A required field is missing.
    #[error("exact match field {0} is missing: every entry must have it")]
    FieldMissing(u32),
    /// A field that matches every value is present.
    #[error("match field {0} matches every value: leave it out")]
    FieldAny(u32),
    /// The value has bits outside its mask or prefix.
    #[error("match field {0} has value bits outside its mask or prefix: clear them")]
    FieldBits(u32),
    /// The range of a match field is empty.
    #[error("the range of match field {0} is empty: low must not be above high")]
    FieldRange(u32),
    /// A value of the entity is invalid.
    #[error("{what} {id}: {error}")]
    Value {
        /// The kind of the value: "match field" or "parameter".
        what: &'static str,
        /// The id of the field or parameter.
        id: u32,
        /// The reason why the value is invalid.
        error: ValueError,
    },
    /// The priority of the entry is invalid.
    #[error(
        "priority {0} is invalid: it must be positive in tables with ternary, range or optional \
         fields, and zero in others"
    )]
    Priority(i32),
    /// The entry has no action.
    #[error("the entry has no action: an insert needs one")]
    NoAction,
    /// The table does not have this action.
    #[error("the table does not have action {0:#010x}: use its actions in the P4Info")]
    UnknownAction(u32),
    /// The table does not allow the action for this use: in an entry, or as default.
    #[error("action {0:#010x} is not allowed here: its scope is entries only or default only")]
    ActionScope(u32),
    /// The action refers to an action profile, which the table does not have.
    #[error("the table has no action profile: set a direct action")]
    ActionKind,
    /// The parameters are wrong for the action.
    #[error(
        "parameter {param} of action {action:#010x} is missing, unknown or duplicate: send each \
         one once"
    )]
    Params {
        /// Id of the action.
        action: u32,
        /// The first parameter that is missing, unknown or duplicate.
        param: u32,
    },
    /// The entry is marked constant.
    #[error("an entry cannot be written as constant: clear is_const")]
    IsConst,
    /// The entries of the table are constant.
    #[error("the entries of this table are constant and cannot be changed")]
    ConstTable,
    /// The default action of the table is constant.
    #[error("the default action of this table is constant and cannot be changed")]
    ConstDefault,
    /// The update of a default entry is invalid.
    #[error("a default entry can only be modified, and has no match, priority or timeout")]
    Default,
    /// A table without a key can only have a default entry.
    #[error("a table without a key can only have a default entry: set is_default_action")]
    Keyless,
    /// The table has no resource of this kind, such as a direct counter.
    #[error("the table has no {0}")]
    NoResource(&'static str),
    /// A read-only field is set.
    #[error("{0} is read-only: leave it out")]
    ReadOnly(&'static str),
    /// The timeout of the entry is negative.
    #[error("the timeout is {0} ns: it must not be negative")]
    Timeout(i64),
    /// The metadata is too long.
    #[error("metadata of {bytes} bytes is too long: the limit is {max} bytes")]
    Metadata {
        /// Length of the metadata.
        bytes: usize,
        /// The maximum length of the metadata in bytes.
        max: usize,
    },
    /// A counter can only be modified.
    #[error("a counter can only be modified: send a modify update")]
    CounterUpdate,
    /// The entry already exists.
    #[error("the entry exists already: modify it")]
    Exists,
    /// The entry does not exist.
    #[error("the entry does not exist: insert it first")]
    NotFound,
    /// The table is full.
    #[error("the table is full: delete entries first")]
    Full,
    /// The device cannot hold an entry of this form.
    #[error("the device cannot hold the entry: {0}")]
    Refused(&'static str),
    /// The table has the maximum number of masks.
    #[error("the table has no room for another mask: use a mask that it already has")]
    Masks,
    /// The entry matches more bits than the device supports.
    #[error("the entry matches more bits than a key of the device has: match fewer fields")]
    KeyBits,
    /// The device has lost an entry that the server has stored.
    #[error("the device no longer has the entry: insert it again")]
    Lost,
    /// The counter of the entry is negative.
    #[error("a counter must not be negative: send 0 or more")]
    Count,
    /// The device failed to roll an update back.
    #[error("the batch failed, and the device could not roll this update back: read the entries")]
    NotRestored,
    /// The update was not executed, or was rolled back, because another update failed.
    #[error(
        "the update was not executed, because another update of the batch failed: correct that \
         one"
    )]
    Aborted,
}

impl EntityError {
    /// Returns the status code of the error.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Unserved => Code::Unimplemented,
            Self::NoTable(_) | Self::NotFound => Code::NotFound,
            Self::Value { .. } => Code::OutOfRange,
            Self::ActionScope(_) | Self::ConstTable | Self::ConstDefault => Code::PermissionDenied,
            Self::Exists => Code::AlreadyExists,
            Self::Full | Self::Masks | Self::KeyBits | Self::Refused(_) | Self::Metadata { .. } => {
                Code::ResourceExhausted
            }
            Self::Lost | Self::NotRestored => Code::Internal,
            Self::Aborted => Code::Aborted,
            Self::NoType
            | Self::NoEntity
            | Self::NotATable(_)
            | Self::AllTables
            | Self::NoField(_)
            | Self::FieldTwice(_)
            | Self::FieldKind(_)
            | Self::FieldMissing(_)
            | Self::FieldAny(_)
            | Self::FieldBits(_)
            | Self::FieldRange(_)
            | Self::Priority(_)
            | Self::NoAction
            | Self::UnknownAction(_)
            | Self::ActionKind
            | Self::Params { .. }
            | Self::IsConst
            | Self::Default
            | Self::Keyless
            | Self::NoResource(_)
            | Self::ReadOnly(_)
            | Self::Timeout(_)
            | Self::CounterUpdate
            | Self::Count => Code::InvalidArgument,
        }
    }
}

/// The reason why a whole request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The device id is unknown.
    #[error("device {0} does not exist: use the device id of this server")]
    NoDevice(u64),
    /// Only the primary controller of the role may send this request.
    #[error("only the primary controller may send this request: become primary first")]
    NotPrimary,
    /// No forwarding pipeline is set.
    #[error("no forwarding pipeline is set: set one first")]
    NoPipeline,
    /// The device cannot apply several updates atomically.
    #[error("the device cannot apply several updates atomically: use another atomicity")]
    NotAtomic,
    /// The request contains an unknown enum value.
    #[error("the request has an unknown {0}")]
    Unknown(&'static str),
    /// The configuration is missing, or a commit of a saved configuration has one.
    #[error("a configuration is required to verify, and not allowed in a commit")]
    Config,
    /// No forwarding configuration is saved.
    #[error("no configuration is saved: verify and save one first")]
    NothingSaved,
    /// The P4Info of the request is invalid.
    #[error("invalid P4Info: {0}")]
    Info(#[from] SchemaError),
    /// The device cannot run the program.
    #[error("the device cannot run the program: {0}")]
    Program(#[source] ProgramError),
    /// Another controller uses this election id.
    #[error("another controller uses this election id: choose another id")]
    ElectionTaken,
    /// A stream may not change its device or role.
    #[error("a stream may not change its device or role: open another stream")]
    StreamMoved,
    /// Too many streams, or too many roles.
    #[error("there are already {0} streams or roles, which is the limit")]
    TooManyStreams(usize),
    /// The request has too many parts.
    #[error("the request has too many parts: the limit is {0}, so divide it")]
    TooManyParts(usize),
    /// The first arbitration update did not arrive in time.
    #[error("no arbitration update arrived in time: send one when the stream opens")]
    Late,
    /// The server ends the stream.
    #[error("the server has ended the stream: open another one")]
    Ended,
    /// The first message of a stream is not an arbitration update.
    #[error("the first message of a stream must be an arbitration update")]
    NoArbitration,
    /// Role configurations are not supported.
    #[error("role configurations are not supported: leave config out")]
    RoleConfig,
    /// The role name is too long.
    #[error("the role name is too long: the limit is {0} bytes")]
    RoleName(usize),
    /// The server does not support this kind of request.
    #[error("the request is not supported: {0}")]
    Unserved(&'static str),
}

impl RpcError {
    /// Returns the status code of the error.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NoDevice(_) | Self::NothingSaved => Code::NotFound,
            Self::NotPrimary => Code::PermissionDenied,
            Self::NoPipeline | Self::StreamMoved | Self::NoArbitration => Code::FailedPrecondition,
            Self::NotAtomic | Self::Unserved(_) => Code::Unimplemented,
            Self::TooManyStreams(_) | Self::TooManyParts(_) => Code::ResourceExhausted,
            Self::Late => Code::DeadlineExceeded,
            Self::Ended => Code::Unavailable,
            Self::Unknown(_)
            | Self::Config
            | Self::Info(_)
            | Self::Program(_)
            | Self::ElectionTaken
            | Self::RoleConfig
            | Self::RoleName(_) => Code::InvalidArgument,
        }
    }
}

impl From<RpcError> for Status {
    fn from(error: RpcError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Returns `Ok` if all updates succeeded, or the status of the batch.
///
/// # Errors
///
/// The status, with one error per update in its details.
pub fn batch_status<T>(results: &[Result<T, EntityError>]) -> Result<(), Box<Status>> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    // The details are sent in one header, and clients accept about 8 KiB. Large batches therefore
    // have codes but no messages.
    let has_messages = results.len() <= DETAILED_UPDATES_MAX;
    let detail = |result: &Result<T, EntityError>| {
        let mut error = v1::Error::default();
        if let Err(reason) = result {
            error.canonical_code = reason.code().into();
            if has_messages {
                error.message = reason.to_string();
            }
            if let Some(limit) = DeviceLimit::of(reason) {
                (error.space, error.code) = (SPACE.to_owned(), limit.code());
            }
        }
        Any { type_url: ERROR_TYPE.to_owned(), value: error.encode_to_vec() }
    };
    let message = format!("{failed} of {} parts failed", results.len());
    let status = rpc::Status {
        code: Code::Unknown.into(),
        message: message.clone(),
        details: results.iter().map(detail).collect(),
    };
    Err(Box::new(Status::with_details(Code::Unknown, message, status.encode_to_vec().into())))
}

/// The error space of codes that have no canonical code.
const SPACE: &str = "shunt";

/// Largest batch for which each error has a message.
const DETAILED_UPDATES_MAX: usize = 32;

/// The result of one update, as reported in a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateCode {
    /// The gRPC code of the result.
    pub code: Code,
    /// The device limit that was exceeded, if reported.
    pub limit: Option<DeviceLimit>,
}

/// A device limit without a canonical code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLimit {
    /// The device has no room for another mask.
    /// An entry with a mask in use may still fit.
    Masks,
    /// The entry matches more bits than a key has.
    KeyBits,
}

impl DeviceLimit {
    /// All limits of a device.
    const ALL: [Self; 2] = [Self::Masks, Self::KeyBits];

    /// Returns the limit of the device that the error is about.
    const fn of(error: &EntityError) -> Option<Self> {
        match error {
            EntityError::Masks => Some(Self::Masks),
            EntityError::KeyBits => Some(Self::KeyBits),
            _ => None,
        }
    }

    /// Returns the error code in [`SPACE`].
    const fn code(self) -> i32 {
        match self {
            Self::Masks => 1,
            Self::KeyBits => 2,
        }
    }
}

impl From<Code> for UpdateCode {
    fn from(code: Code) -> Self {
        Self { code, limit: None }
    }
}

/// Returns the results of a batch from its status; `None` without details.
#[must_use]
pub fn batch_codes(status: &Status) -> Option<Vec<UpdateCode>> {
    let details = rpc::Status::decode(status.details()).ok()?.details;
    let code = |detail: &Any| -> Option<UpdateCode> {
        let error = v1::Error::decode(&detail.value[..]).ok()?;
        let is_it = |limit: &DeviceLimit| error.space == SPACE && error.code == limit.code();
        let limit = DeviceLimit::ALL.into_iter().find(is_it);
        let code = Code::from_i32(error.canonical_code);
        (detail.type_url == ERROR_TYPE).then_some(UpdateCode { code, limit })
    };
    details.iter().map(code).collect::<Option<Vec<_>>>().filter(|codes| !codes.is_empty())
}
