//! Why a NIC does not run, or does not take a port.

use shunt_datapath::PortError;
use shunt_p4runtime::server::ServerError;

/// Why a NIC does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// A port cannot be used.
    #[error("port {number} cannot be used")]
    Port {
        /// Which.
        number: u16,
        /// Why.
        source: PortError,
    },
    /// Two ports have one number.
    #[error("there are two ports of number {0}")]
    NumberTaken(u16),
    /// The system has no thread or descriptor left.
    #[error("the NIC's thread cannot run")]
    System(#[from] std::io::Error),
    /// The server cannot listen.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Why a NIC that runs does not take a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderError {
    /// Its thread has ended.
    #[error("the NIC has stopped")]
    Stopped,
    /// Another port has the number.
    #[error("the NIC has a port of this number")]
    NumberTaken,
}
