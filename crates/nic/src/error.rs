//! The errors of a NIC.

use shunt_datapath::PortError;
use shunt_p4runtime::server::ServerError;

/// The reason why a NIC does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// A port cannot be opened or used.
    #[error("the port {number} of the NIC cannot be opened")]
    Port {
        /// The number of the port.
        number: u16,
        /// The error that the port returned.
        source: PortError,
    },
    /// Two ports have the same number.
    #[error("the port {0} of the NIC is configured twice: give each port another number")]
    NumberTaken(u16),
    /// The system cannot create a thread or a descriptor.
    #[error("the packet thread of the NIC cannot start")]
    System(#[from] std::io::Error),
    /// The P4Runtime server cannot listen on its address.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// The reason why a running NIC does not accept a new port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddPortError {
    /// The thread of the NIC has ended.
    #[error("the NIC has stopped: start it again")]
    Stopped,
    /// Another port has this number.
    #[error("the NIC already has a port with this number: use another number")]
    NumberTaken,
}
