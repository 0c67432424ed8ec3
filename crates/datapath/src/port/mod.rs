//! The contract of ports: how packets get in and out.
//!
//! A port is opened on the control thread and split into queues, which move to packet threads; the
//! port stays behind for its settings, link and counters. Dispatch is once per burst.

mod contract;

pub use contract::{
    Capabilities, Port, PortCounters, PortError, Queues, RxQueue, RxReport, TxQueue,
};
