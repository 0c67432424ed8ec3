//! Rule changes on their way to the flow monitors of connections.
//!
//! The switch passes each change of its tables to [`MonitorQueues`], which gives it to the
//! [`MonitorQueue`] of each connection with a flow monitor. A connection takes changes from its
//! queue as fast as its peer reads, and selects those that its monitors request. Without any flow
//! monitor, a change costs one check of a number.
//!
//! # A slow peer
//!
//! A queue that is too long is paused, as in Open vSwitch. From then on the queue takes only
//! removals of rules that the peer knows, and keeps the net effect of all other changes
//! ([`coalesced`]). When the peer has read everything, the queue reports the net effect, and the
//! view of the peer is complete again. A change of the tables only passes a reference to a paused
//! queue, and the task of the connection computes the net effect. So a queue holds at most twice its
//! limit, the changes of two versions of the tables, and one change for each rule.

mod change;
mod coalesced;
mod queue;
mod queues;

pub(crate) use change::MonitoredChange;
pub use queue::{ChangeOrigin, MonitorQueue};
pub(crate) use queue::{QueuedChanges, RecordedChanges};
pub use queues::MonitorQueues;
