//! The ports of a NIC: their queues, their representors, and the doorbells between threads.

mod doorbell;
pub(crate) mod flow_order;
pub(crate) mod open_port;
pub(crate) mod representor;
