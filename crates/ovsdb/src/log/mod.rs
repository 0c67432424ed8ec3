//! The log: a file of checked records, in the format of `ovsdb-tool`.
//!
//! The first record has the schema, and each later record the changes of a transaction. A record is
//! a line `OVSDB JSON LENGTH SHA1` and the JSON of that length. `ovsdb-tool show-log`, `query` and
//! `compact` read the file, and `ovsdb-server` can take it over.
//!
//! | event | result |
//! | --- | --- |
//! | the last record is incomplete, as after a power failure | it is cut, with a warning |
//! | an earlier record is damaged, or the schema differs | the file is refused and unchanged |
//! | a record cannot be written, as on a full disk | the transaction fails, and the file is cut to the records before |
//! | the log is [`COMPACTION_FACTOR`] times as long as its last snapshot | it is replaced by a new snapshot |

mod file_lock;
mod journal;
mod record;
mod storage;
mod transaction_json;

#[cfg(any(test, feature = "testing"))]
pub(crate) use journal::replay;
pub use journal::{COMPACTION_BYTES_MIN, COMPACTION_FACTOR, Journal};
pub use record::{RecordError, RecordReader, encode_record};
pub use storage::{FileStorage, LogStorage};
