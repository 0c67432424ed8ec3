//! How a client is set up.

use std::time::Duration;

use crate::{
    codec::{Ports, Skills},
    program::{Program, TAG_FIRST},
    server::ElectionId,
};

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the server is: `http://127.0.0.1:9559`.
    pub address: String,
    /// The device of the server.
    pub device_id: u64,
    /// The role to be primary of; empty: the default one.
    pub role: String,
    /// The first election id to come with; it grows when it is taken.
    pub election_id: ElectionId,
    /// The program that the device shall run.
    pub program: Program,
    /// What a device that does not run bmv2's form of the program is given to run.
    pub device_config: Option<Vec<u8>>,
    /// What the device does besides, which nothing on the wire tells.
    pub skills: Skills,
    /// The tag that packets begin with: that of the bridge whose ports the device has.
    pub start_tag: u16,
    /// The ports of the device.
    pub ports: Ports,
    /// Time without hits after which an entry is told; `None`: never.
    pub idle: Option<Duration>,
    /// Updates of one write.
    pub batch: usize,
    /// Operations under way.
    pub operations_max: usize,
    /// A request that takes longer has failed.
    pub request_timeout: Duration,
    /// Pause before the next try to connect.
    pub retry: Duration,
}

impl Settings {
    /// What suits an embedded NIC at this address.
    #[must_use]
    pub fn new(address: String) -> Self {
        Self {
            address,
            device_id: 1,
            role: String::new(),
            election_id: 1,
            program: Program::default(),
            device_config: None,
            skills: Skills::default(),
            start_tag: TAG_FIRST,
            ports: Ports::default(),
            idle: None,
            batch: 256,
            operations_max: 16384,
            request_timeout: Duration::from_secs(5),
            retry: Duration::from_millis(100),
        }
    }
}
