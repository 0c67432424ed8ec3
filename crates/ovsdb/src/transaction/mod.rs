//! Transactions: the operations of a `transact` request (RFC 7047, section 5.2).

mod condition;
mod execution;
mod mutation;
mod operation;
mod parts;
mod row_json;

pub use condition::{Clause, Condition, ConditionFunction};
pub use execution::{
    DatabaseAccess, TransactionExecution, TransactionOutcome, TransactionRequest, execute,
};
pub use mutation::{Mutation, Mutator};
