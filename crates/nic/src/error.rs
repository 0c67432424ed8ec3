//! The errors of a NIC.

use shunt_datapath::PortError;
use shunt_p4runtime::server::ServerError;

/// The reason why a NIC does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// A port cannot be used.
    #[error("port {number} cannot be used")]
    Port {
        /// The number of the port.
        number: u16,
        /// The error of the port.
        source: PortError,
    },
    /// Two ports have the same number.
    #[error("port {0} is configured twice: give each port another number")]
    NumberTaken(u16),
    /// The system cannot create a thread or a descriptor.
    #[error("the packet thread of the NIC cannot start")]
    System(#[from] std::io::Error),
    /// The server cannot listen.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// The reason why a NIC that runs does not accept a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddPortError {
    /// The thread of the NIC has ended.
    #[error("the NIC has stopped: start it again")]
    Stopped,
    /// Another port has this number.
    #[error("the NIC already has a port with this number: use another number")]
    NumberTaken,
}
