//! Ports, packet threads, caches and the execution of actions.

mod packet;
pub mod port;

pub use packet::{BURST, Offload, Packet, Pool};
pub use port::{Port, PortError, RxQueue, TxQueue};
