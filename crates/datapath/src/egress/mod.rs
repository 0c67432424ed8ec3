//! Quality of service of the packets that a port sends.
//!
//! A port with the QoS type `egress-policer` drops the packets above its rate
//! ([`EgressPolicer`](crate::packet::egress_policer::EgressPolicer)). A port with the type `linux-htb`
//! holds them in queues:
//!
//! * [`htb`] has the token buckets, which decide which queue sends next and when.
//! * [`scheduler`] has the state that packet threads share: the tokens behind a lock, and the
//!   number of waiting packets of each queue.
//! * `queues` holds the waiting packets of one thread. Buffers belong to the pool of a thread, so
//!   each thread holds its own packets of a queue, and sends them on its own transmit queue.

pub mod counters;
pub mod htb;
#[cfg(not(loom))]
mod qos;
#[cfg(not(loom))]
pub(crate) mod queues;
pub mod scheduler;

#[cfg(not(loom))]
pub use qos::PortQos;
