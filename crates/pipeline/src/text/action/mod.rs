//! Actions as text: each module parses and prints the actions of one topic.
//!
//! ```text
//! named      which module reads the action of a name     format     which one prints an action
//! list       lists of actions, and what may stand there  output     ports, queues, controllers
//! header     writes of whole headers                     bits       writes and reads of some bits
//! learn      rules made of packets                       hash       choices by a hash
//! conntrack  connections and their addresses             number     actions that take numbers
//! ```

mod bits;
mod conntrack;
mod format;
mod hash;
mod header;
mod learn;
mod list;
mod named;
mod number;
mod output;

pub use format::format_action;
pub(super) use format::{format_each, format_list};
pub(super) use list::{ActionListKind, List};
