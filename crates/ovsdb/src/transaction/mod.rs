//! Transactions: the operations of a `transact` request (RFC 7047, section 5.2).

mod condition;
mod execution;
mod json_members;
mod mutation;
mod operation;
mod requested_operation;
mod row_json;
mod row_transaction;

pub use condition::{Clause, Condition, ConditionFunction};
pub use execution::{
    DatabaseAccess, TransactionExecution, TransactionOutcome, TransactionRequest, execute,
};
pub use mutation::{Mutation, Mutator};
pub(crate) use requested_operation::ExpectedReferences;
pub use requested_operation::{RequestedOperation, RowCheck};
pub use row_transaction::RowTransaction;
pub(crate) use row_transaction::{RowEffect, RowOperation};
