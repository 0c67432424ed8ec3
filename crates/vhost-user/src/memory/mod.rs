//! The memory of a guest, and the log of the pages that this process has changed in it.

mod dirty_log;
mod guest_memory;

pub(crate) use dirty_log::DirtyLog;
pub(crate) use guest_memory::{GuestMemory, GuestRange, MemoryError};
