//! A setup that the benches of packet threads share.

pub(crate) mod packet_thread;
