//! How a client is set up.

use std::{collections::BTreeSet, error::Error, sync::Arc, time::Duration};

use parking_lot::RwLock;
use shunt_gigaflow::{
    ltm::LtmRule,
    offload::{LtmIndex, OffloadCapabilities, Refusal},
    partition::StageId,
};
use shunt_pipeline::DatapathPort;

use super::SessionError;
use crate::{
    codec::{Ports, Skills, capabilities, encode, put, put_place},
    program::{Program, TAG_FIRST},
    server::ElectionId,
    wire::{
        Writer,
        p4::v1::{TableEntry, update::Type},
    },
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
    /// The ports of the device; whoever has a clone can add some.
    pub ports: LivePorts,
    /// Why the device is lost; whoever has a clone can read it.
    pub trouble: Trouble,
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

/// The ports of a device, which may come and go while a client runs. Clones are one list.
#[derive(Clone, Debug, Default)]
pub struct LivePorts(Arc<RwLock<Listed>>);

#[derive(Debug, Default)]
struct Listed {
    ports: Ports,
    changes: u64,
}

/// Why a client has no session, in words. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<RwLock<Option<String>>>);

impl Trouble {
    /// Why there is no session; `None`: there is one, or none was tried.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.0.read().clone()
    }

    /// Notes why; answers whether that is new.
    pub(super) fn note(&self, error: &SessionError) -> bool {
        let (mut text, mut cause) = (error.to_string(), error.source());
        // The last cause says why; those between say in other words that it is so.
        while let Some(below) = cause.and_then(Error::source) {
            cause = Some(below);
        }
        let why = cause.map(ToString::to_string).unwrap_or_default();
        if !text.contains(&why) {
            text += &format!(": {why}");
        }
        self.0.write().replace(text.clone()) != Some(text)
    }

    pub(super) fn clear(&self) {
        *self.0.write() = None;
    }
}

impl From<Ports> for LivePorts {
    fn from(ports: Ports) -> Self {
        Self(Arc::new(RwLock::new(Listed { ports, changes: 0 })))
    }
}

impl LivePorts {
    /// A port of the datapath is this one of the device. It is to be one before a rule sends to it.
    pub fn add(&self, port: DatapathPort, number: u16) {
        let listed = &mut *self.0.write();
        listed.ports.0.insert(port, number);
        listed.changes += 1;
    }

    /// A port of the datapath is none of the device any more: from now on no rule sends to it. Those
    /// that the device has stay until they are removed.
    pub fn remove(&self, port: DatapathPort) {
        let listed = &mut *self.0.write();
        listed.ports.0.remove(&port);
        listed.changes += 1;
    }

    /// How often they changed.
    pub(super) fn changes(&self) -> u64 {
        self.0.read().changes
    }
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
            ports: LivePorts::default(),
            trouble: Trouble::default(),
            idle: None,
            batch: 256,
            operations_max: 16384,
            request_timeout: Duration::from_secs(5),
            retry: Duration::from_millis(100),
        }
    }

    /// What the device can hold and do, with the ports that it has by now.
    #[must_use]
    pub fn capabilities(&self) -> OffloadCapabilities {
        let own = capabilities(&self.program, &self.skills);
        OffloadCapabilities { outputs: Some(self.outputs()), ..own }
    }

    /// The ports of the datapath that the device can send to.
    pub(super) fn outputs(&self) -> BTreeSet<DatapathPort> {
        let listed = self.ports.0.read();
        let is_known = |number: &u16| *number <= self.skills.port_max;
        let known = listed.ports.0.iter().filter(|(_, number)| is_known(number));
        known.map(|(port, _)| *port).collect()
    }

    /// A rule in the words of the device.
    ///
    /// # Errors
    ///
    /// It cannot hold it.
    pub(super) fn encode(&self, stage: StageId, rule: &LtmRule) -> Result<TableEntry, Refusal> {
        encode(&self.program, &self.ports.0.read().ports, (stage, rule))
    }

    /// The time after which an entry is told.
    pub(super) fn idle_timeout_ns(&self) -> i64 {
        let idle = self.idle.unwrap_or_default().as_nanos();
        i64::try_from(idle).unwrap_or(i64::MAX)
    }

    /// An update that says a rule in the words of the device, as bytes.
    ///
    /// # Errors
    ///
    /// It cannot hold it.
    pub(super) fn encode_update(
        &self,
        (kind, entry): (Type, LtmIndex),
        (stage, rule): (StageId, &LtmRule),
    ) -> Result<Vec<u8>, Refusal> {
        let mut writer = Writer::new();
        writer.update(kind, |writer| {
            put(writer, (&self.program, &self.ports.0.read().ports), (stage, rule))?;
            writer.named(entry.0, self.idle_timeout_ns());
            Ok(())
        })?;
        Ok(writer.into_vec())
    }

    /// The place of a rule in the device, as bytes: it has one whatever ports there are.
    ///
    /// # Errors
    ///
    /// It cannot hold it.
    pub(super) fn encode_place(&self, stage: StageId, rule: &LtmRule) -> Result<Vec<u8>, Refusal> {
        let mut writer = Writer::new();
        put_place(&mut writer, &self.program, (stage, rule))?;
        Ok(writer.into_vec())
    }
}
