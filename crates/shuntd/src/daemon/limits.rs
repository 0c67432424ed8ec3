//! Limits of the process that the daemon raises at its start.

use rlimit::Resource;
use tracing::{debug, warn};

/// Raises the soft limit of open files to the hard limit.
///
/// Each packet thread opens its own queues of each port. The usual soft limit of 1024 is meant for
/// programs that use `select`, which cannot watch larger descriptors; the daemon uses `epoll`.
pub(crate) fn raise_open_files() {
    let raised = Resource::NOFILE
        .get()
        .and_then(|(soft, hard)| Resource::NOFILE.set(hard, hard).map(|()| (soft, hard)));
    match raised {
        Ok((soft, hard)) => debug!(soft, hard, "open files: soft limit raised to the hard limit"),
        Err(error) => warn!(%error, "open files: the soft limit cannot be raised"),
    }
}
