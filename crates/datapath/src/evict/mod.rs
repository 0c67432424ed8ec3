//! The eviction protocol: versions, reports and invalidations between owners and an engine.
//!
//! [`owner`] states the rules of the protocol. An [`Owner`](owner::Owner) holds entries for a
//! thread, the [`EvictionCoordinator`](coordinator::EvictionCoordinator) applies changes to the
//! engine, and a [`Mailbox`](mailbox::Mailbox) carries invalidations from the coordinator to an
//! owner.

pub mod coordinator;
pub mod handle;
pub mod history;
pub(crate) mod link;
pub mod mailbox;
pub mod owner;
pub(crate) mod signal;
pub(crate) mod waker;
