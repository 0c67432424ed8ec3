//! What is said when something cannot be done, with the code that says so on the wire.
//!
//! A request fails as a whole ([`RequestError`]), or update by update: then the status is `UNKNOWN`,
//! and one `p4.v1.Error` for each update, those that succeeded included, is in its details
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

/// The type of a `p4.v1.Error` in the details of a status.
const ERROR_TYPE: &str = "type.googleapis.com/p4.v1.Error";

/// Why one update, or one entity that is read, cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// The update says neither insert nor modify nor delete.
    #[error("an update must be an insert, a modify or a delete")]
    NoType,
    /// There is nothing in it.
    #[error("the entity is not set")]
    NoEntity,
    /// It is of a kind that this server does not have.
    #[error("entities of this kind are not served")]
    Unserved,
    /// No table has this number.
    #[error("there is no table {0:#010x}")]
    NoTable(u32),
    /// The number is not that of a table.
    #[error("{0:#010x} is no id of a table")]
    NotATable(u32),
    /// Something beside all tables was asked for.
    #[error("all tables at once are asked for everything: name one to choose by what entries say")]
    AllTables,
    /// The key has no such field.
    #[error("the table has no match field {0}")]
    NoField(u32),
    /// A field is there twice.
    #[error("match field {0} is there twice")]
    FieldTwice(u32),
    /// It is matched in another way.
    #[error("match field {0} is matched in another way")]
    FieldKind(u32),
    /// A field that must be there is not.
    #[error("exact match field {0} is missing")]
    FieldMissing(u32),
    /// A field that matches anything must be left out.
    #[error("match field {0} matches anything, and must be left out")]
    FieldAny(u32),
    /// The value has bits that the mask, or the prefix, has not.
    #[error("match field {0} has bits outside of its mask")]
    FieldBits(u32),
    /// A range from a value to a smaller one.
    #[error("match field {0} begins above its end")]
    FieldRange(u32),
    /// A value is no value.
    #[error("{what} {id}: {error}")]
    Value {
        /// Match field or parameter.
        what: &'static str,
        /// Its number.
        id: u32,
        /// What is wrong with it.
        error: ValueError,
    },
    /// Priorities are positive where several entries can match, and zero elsewhere.
    #[error("a priority of {0}: positive in tables with masks, zero in others")]
    Priority(i32),
    /// The entry has no action.
    #[error("the entry has no action")]
    NoAction,
    /// The table does not have this action.
    #[error("the table does not have action {0:#010x}")]
    UnknownAction(u32),
    /// The action may not stand here.
    #[error("action {0:#010x} may not stand here")]
    ActionScope(u32),
    /// The action is one of a profile, which the table does not have.
    #[error("the table has no action profile")]
    ActionKind,
    /// Its parameters are not those of the action.
    #[error("action {action:#010x} has other parameters: look at {param}")]
    Params {
        /// The action.
        action: u32,
        /// The first parameter that is missing, unknown, or there twice.
        param: u32,
    },
    /// Only the program makes constant entries.
    #[error("an entry cannot be made constant")]
    IsConst,
    /// The entries of the table are constant.
    #[error("the table is constant")]
    ConstTable,
    /// The default action is constant.
    #[error("the default action is constant")]
    ConstDefault,
    /// A default entry has neither a match nor a priority nor a timeout, and is only modified.
    #[error("the default entry is only modified, and has no match, priority or timeout")]
    Default,
    /// A table without a key has no entries.
    #[error("a table without a key has no entries but its default")]
    Keyless,
    /// Neither time nor meter can be written here.
    #[error("the table has no {0}")]
    NoResource(&'static str),
    /// What cannot be written is set.
    #[error("{0} can be read, not written")]
    ReadOnly(&'static str),
    /// A time before the beginning.
    #[error("a timeout of {0} ns")]
    Timeout(i64),
    /// The controller notes more than is kept for it.
    #[error("metadata of {bytes} bytes: at most {max} are kept")]
    Metadata {
        /// How much it is.
        bytes: usize,
        /// How much it may be.
        max: usize,
    },
    /// A counter is only modified.
    #[error("a counter is only modified")]
    CounterUpdate,
    /// The entry is there already.
    #[error("the entry is there already")]
    Exists,
    /// The entry is not there.
    #[error("there is no such entry")]
    NotFound,
    /// The table is full.
    #[error("the table is full")]
    Full,
    /// The device does not hold such entries.
    #[error("the device cannot hold the entry: {0}")]
    Refused(&'static str),
    /// The table has as many masks as it may.
    #[error("the table has no room for another mask")]
    Masks,
    /// The entry matches more bits than a key of the device has.
    #[error("the device has no keys of so many bits")]
    KeyBits,
    /// The device has no entry where the server knows one.
    #[error("the device does not know the entry any more")]
    Lost,
    /// A counter cannot be less than nothing.
    #[error("a counter is not negative")]
    Count,
    /// The update was to be taken back, and the device did not.
    #[error("the device did not take back the update when another of the batch failed")]
    NotRestored,
    /// Not tried, or taken back, as another update of the batch failed.
    #[error("not done, as another update of the batch failed")]
    Aborted,
}

impl EntityError {
    /// The code that says so.
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

/// Why a request is not served at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There is no such device here.
    #[error("there is no device {0}")]
    NoDevice(u64),
    /// Only the primary controller of its role may do this.
    #[error("only the primary controller may do this")]
    NotPrimary,
    /// There is no pipeline yet.
    #[error("there is no forwarding pipeline yet")]
    NoPipeline,
    /// The device does not do this in one step.
    #[error("the device does not change several entries at once")]
    NotAtomic,
    /// The request says something that is not in the protocol.
    #[error("the request has an unknown {0}")]
    Unknown(&'static str),
    /// The configuration is missing, or must not be there.
    #[error("a configuration is needed to verify, and must not come with a commit")]
    Config,
    /// Nothing was saved.
    #[error("there is no saved configuration to commit")]
    NothingSaved,
    /// The P4Info makes no sense.
    #[error("the P4Info cannot be served: {0}")]
    Info(#[from] SchemaError),
    /// The device cannot run that program.
    #[error("the device cannot run the program: {0}")]
    Program(#[source] ProgramError),
    /// Another controller has this election id.
    #[error("another controller has this election id")]
    ElectionTaken,
    /// A stream keeps its device and its role.
    #[error("a stream keeps its device and its role")]
    StreamMoved,
    /// There are as many streams as there may be.
    #[error("there are {0} streams already")]
    TooManyStreams(usize),
    /// There is more in it than is served at once.
    #[error("a request of more than {0} parts")]
    TooManyParts(usize),
    /// A controller must say in time who it is.
    #[error("no arbitration update came in time")]
    Late,
    /// The server ends the stream.
    #[error("the server has ended the stream")]
    Ended,
    /// The first message of a stream says who the controller is.
    #[error("a stream begins with an arbitration update")]
    NoArbitration,
    /// No scheme of roles has been agreed on.
    #[error("roles have no configuration here")]
    RoleConfig,
    /// The name of a role is too long.
    #[error("a role of more than {0} bytes")]
    RoleName(usize),
    /// This is a way that the server does not have.
    #[error("not served: {0}")]
    Unserved(&'static str),
}

impl RequestError {
    /// The code that says so.
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

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// The status of a batch: fine if every part is, else with an error for each part.
///
/// # Errors
///
/// The status to answer with.
pub fn batch_status<T>(results: &[Result<T, EntityError>]) -> Result<(), Box<Status>> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    // The details come in a header, which clients take up to 8 KiB of: of many parts only the codes.
    let is_told = results.len() <= PARTS_TOLD_MAX;
    let detail = |result: &Result<T, EntityError>| {
        let mut error = v1::Error::default();
        if let Err(why) = result {
            error.canonical_code = why.code().into();
            if is_told {
                error.message = why.to_string();
            }
            if let Some(limit) = Limit::of(why) {
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

/// Whose the numbers of errors are that no canonical code says.
const SPACE: &str = "shunt";

/// Parts of a batch up to which each is told in words why it failed.
const PARTS_TOLD_MAX: usize = 32;

/// What became of one part of a batch, as a status tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartCode {
    /// The canonical code.
    pub code: Code,
    /// The limit of the device that it is beyond, where that is told.
    pub limit: Option<Limit>,
}

/// A limit of a device that no canonical code names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// There is no room for another mask, which another entry might have needed less.
    Masks,
    /// There are no keys of so many bits.
    KeyBits,
}

impl Limit {
    const ALL: [Self; 2] = [Self::Masks, Self::KeyBits];

    const fn of(error: &EntityError) -> Option<Self> {
        match error {
            EntityError::Masks => Some(Self::Masks),
            EntityError::KeyBits => Some(Self::KeyBits),
            _ => None,
        }
    }

    /// Its number among errors of [`SPACE`].
    const fn code(self) -> i32 {
        match self {
            Self::Masks => 1,
            Self::KeyBits => 2,
        }
    }
}

impl From<Code> for PartCode {
    fn from(code: Code) -> Self {
        Self { code, limit: None }
    }
}

/// The codes of the parts of a batch, as a status tells them; `None` if it tells nothing.
#[must_use]
pub fn batch_codes(status: &Status) -> Option<Vec<PartCode>> {
    let details = rpc::Status::decode(status.details()).ok()?.details;
    let code = |detail: &Any| -> Option<PartCode> {
        let error = v1::Error::decode(&detail.value[..]).ok()?;
        let is_it = |limit: &Limit| error.space == SPACE && error.code == limit.code();
        let limit = Limit::ALL.into_iter().find(is_it);
        let code = Code::from_i32(error.canonical_code);
        (detail.type_url == ERROR_TYPE).then_some(PartCode { code, limit })
    };
    details.iter().map(code).collect::<Option<Vec<_>>>().filter(|codes| !codes.is_empty())
}
