//! The keys `flow-limit` and `max-idle` of `Open_vSwitch`: the limits of the caches.

use shunt_ovsdb::RowView;
use shunt_switch::{DatapathReader, Switch};

use super::auto_lb::apply_key;

/// The values of the keys in a row.
///
/// `None`: an absent key, or a value that has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheLimits {
    /// Maximum number of megaflows of all packet threads.
    flow_limit: Option<u32>,
    /// Milliseconds without a hit after which an entry expires.
    max_idle_ms: Option<u32>,
}

/// The most megaflows of a packet thread; a higher limit has the same effect.
const ENTRIES_MAX: u32 = 16_777_216;

impl CacheLimits {
    /// Reads the keys of a row of `Open_vSwitch`.
    pub(super) fn of(root: RowView<'_>) -> Self {
        let number = |key| {
            let number = root.entry("other_config", key)?.parse().ok();
            number.filter(|number: &u32| *number > 0)
        };
        Self { flow_limit: number("flow-limit"), max_idle_ms: number("max-idle") }
    }

    /// Returns the share of the limit for each of some packet threads, rounded up.
    fn share(self, threads: usize) -> Option<u32> {
        let threads = u32::try_from(threads.max(1)).unwrap_or(u32::MAX);
        Some(self.flow_limit?.div_ceil(threads).min(ENTRIES_MAX))
    }
}

/// Puts the keys in force; without a key, the configured setting.
pub(super) async fn apply_cache_limits(switch: &Switch, limits: CacheLimits) {
    let threads = DatapathReader::new(switch).packet_threads().len();
    apply_key(switch, "flow-limit", "caches.megaflow_entries", limits.share(threads)).await;
    apply_key(switch, "max-idle", "caches.idle_ms", limits.max_idle_ms).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_threads_share_the_limit() {
        let share = |flow_limit, threads| {
            CacheLimits { flow_limit, ..CacheLimits::default() }.share(threads)
        };
        assert_eq!(share(None, 3), None);
        assert_eq!(share(Some(200_000), 1), Some(200_000));
        assert_eq!(share(Some(10), 3), Some(4));
        assert_eq!(share(Some(1), 3), Some(1));
        assert_eq!(share(Some(u32::MAX), 2), Some(ENTRIES_MAX));
    }
}
