//! The state of DPDK in this process, for status reports.

/// The state of DPDK in this process: not built, not started or started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DpdkState {
    /// The daemon was built without DPDK.
    NotBuilt,
    /// No port has needed DPDK, or the start of DPDK failed.
    NotStarted {
        /// Name and version of the linked DPDK, such as `DPDK 22.11.11`.
        version: &'static str,
    },
    /// DPDK has started in this process.
    Started {
        /// Name and version of the linked DPDK.
        version: &'static str,
    },
}

impl DpdkState {
    /// Returns the state of DPDK in this process.
    #[must_use]
    pub fn read() -> Self {
        #[cfg(not(feature = "dpdk"))]
        return Self::NotBuilt;
        #[cfg(feature = "dpdk")]
        {
            let version = crate::version();
            match crate::Eal::find() {
                Some(_) => Self::Started { version },
                None => Self::NotStarted { version },
            }
        }
    }

    /// Returns name and version of the linked DPDK.
    #[must_use]
    pub const fn version(self) -> Option<&'static str> {
        match self {
            Self::NotBuilt => None,
            Self::NotStarted { version } | Self::Started { version } => Some(version),
        }
    }

    /// Returns whether DPDK has started.
    #[must_use]
    pub const fn is_started(self) -> bool {
        matches!(self, Self::Started { .. })
    }
}
