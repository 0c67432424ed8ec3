//! Configuration of a client.

use std::{collections::BTreeSet, error::Error, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::RwLock;
use shunt_gigaflow::{
    ltm::LtmRule,
    offload::{LtmIndex, OffloadCapabilities, Refusal},
    partition::StageId,
};
use shunt_pipeline::DatapathPort;

use super::SessionError;
use crate::{
    codec::{DeviceFeatures, Ports, capabilities, encode, put, put_key},
    program::{Program, TAG_FIRST},
    server::ElectionId,
    wire::{
        ProtoWriter,
        p4::v1::{TableEntry, update::Type},
    },
};

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Address of the server, such as `http://127.0.0.1:9559`.
    pub address: String,
    /// Device id at the server.
    pub device_id: u64,
    /// The role in which to be primary; empty for the default role.
    pub role: String,
    /// The first election id. The client raises the id if another controller uses it.
    pub election_id: ElectionId,
    /// The program that the device must run.
    pub program: Program,
    /// The device configuration that a device without the program gets.
    pub device_config: DeviceConfig,
    /// Features of the device that the protocol does not report.
    pub features: DeviceFeatures,
    /// The start tag of packets: the tag of the bridge of the device's ports.
    pub start_tag: u16,
    /// The ports of the device. Clones share the list and can change it.
    pub ports: LivePorts,
    /// The reason why the device is lost, which clones of the settings share.
    pub last_error: LastError,
    /// Idle timeout of entries; `None` disables it.
    pub idle: Option<Duration>,
    /// Maximum number of updates per write.
    pub batch: usize,
    /// Maximum number of pending operations.
    pub operations_max: usize,
    /// Time after which a request has failed.
    pub request_timeout: Duration,
    /// Idle time after which a request checks that the device still answers.
    pub probe: Duration,
    /// Delay before the next attempt to connect.
    pub retry: Duration,
}

/// The form of the program that a device loads (P4Runtime: `p4_device_config`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceConfig {
    /// The JSON of bmv2, generated from the program.
    #[default]
    Bmv2,
    /// A file with the output of the compiler of the device, sent as it is.
    ///
    /// The client reads the file each time that it must set the program.
    File(PathBuf),
}

/// The ports of a device, which may change at any time.
///
/// Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct LivePorts(Arc<RwLock<PortList>>);

/// The ports of the device, and the number of their changes.
#[derive(Debug, Default)]
struct PortList {
    ports: Ports,
    changes: u64,
}

/// The reason why a client has no session, which clones share.
#[derive(Clone, Debug, Default)]
pub struct LastError(Arc<RwLock<SessionEnd>>);

/// The end of the last session.
#[derive(Debug, Default)]
struct SessionEnd {
    reason: Option<String>,
    is_intended: bool,
}

impl LastError {
    /// Returns the reason; `None` if a session exists or no session was attempted.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.0.read().reason.clone()
    }

    /// Sets whether the end of the session is intended.
    ///
    /// The end is intended if the operator removes or replaces the device. Errors of the device are
    /// then not logged as warnings.
    pub fn set_intended(&self, is_intended: bool) {
        self.0.write().is_intended = is_intended;
    }

    /// Returns whether the last session was closed on purpose.
    pub(super) fn is_intended(&self) -> bool {
        self.0.read().is_intended
    }

    /// Records a reason; returns whether it is new.
    pub(super) fn note(&self, error: &SessionError) -> bool {
        let (mut text, mut cause) = (error.to_string(), error.source());
        // The last cause is the most specific one; the causes between only repeat the error.
        while let Some(below) = cause.and_then(Error::source) {
            cause = Some(below);
        }
        let reason = cause.map(ToString::to_string).unwrap_or_default();
        if !text.contains(&reason) {
            text += &format!(": {reason}");
        }
        self.0.write().reason.replace(text.clone()) != Some(text)
    }

    /// Forgets the last error, after a session has begun.
    pub(super) fn clear(&self) {
        self.0.write().reason = None;
    }
}

impl From<Ports> for LivePorts {
    fn from(ports: Ports) -> Self {
        Self(Arc::new(RwLock::new(PortList { ports, changes: 0 })))
    }
}

impl LivePorts {
    /// Maps a datapath port to a port of the device.
    ///
    /// Map a port before a rule sends to it.
    pub fn add(&self, port: DatapathPort, number: u16) {
        let listed = &mut *self.0.write();
        listed.ports.0.insert(port, number);
        listed.changes += 1;
    }

    /// Removes a datapath port, so that no further rule sends to it.
    ///
    /// Rules that the device already holds stay until they are removed.
    pub fn remove(&self, port: DatapathPort) {
        let listed = &mut *self.0.write();
        listed.ports.0.remove(&port);
        listed.changes += 1;
    }

    /// Returns the number of changes of the port list so far.
    pub(super) fn changes(&self) -> u64 {
        self.0.read().changes
    }
}

impl ClientSettings {
    /// Creates a configuration for an embedded NIC at `address`.
    #[must_use]
    pub fn new(address: String) -> Self {
        Self {
            address,
            device_id: 1,
            role: String::new(),
            election_id: 1,
            program: Program::default(),
            device_config: DeviceConfig::default(),
            features: DeviceFeatures::default(),
            start_tag: TAG_FIRST,
            ports: LivePorts::default(),
            last_error: LastError::default(),
            idle: None,
            batch: 256,
            operations_max: 16384,
            request_timeout: Duration::from_secs(5),
            probe: Duration::from_secs(2),
            retry: Duration::from_millis(100),
        }
    }

    /// Returns the capacity and features of the device, with its current ports.
    #[must_use]
    pub fn capabilities(&self) -> OffloadCapabilities {
        let own = capabilities(&self.program, &self.features);
        OffloadCapabilities { outputs: Some(self.outputs()), ..own }
    }

    /// Returns the datapath ports to which the device can send.
    pub(super) fn outputs(&self) -> BTreeSet<DatapathPort> {
        let listed = self.ports.0.read();
        let is_known = |number: &u16| *number <= self.features.port_max;
        let known = listed.ports.0.iter().filter(|(_, number)| is_known(number));
        known.map(|(port, _)| *port).collect()
    }

    /// Encodes a rule as a table entry.
    ///
    /// # Errors
    ///
    /// The device cannot hold the rule.
    pub(super) fn encode(&self, stage: StageId, rule: &LtmRule) -> Result<TableEntry, Refusal> {
        encode(&self.program, &self.ports.0.read().ports, stage, rule)
    }

    /// Returns the idle timeout of entries.
    pub(super) fn idle_timeout_ns(&self) -> i64 {
        let idle = self.idle.unwrap_or_default().as_nanos();
        // A timeout of more than 292 years is shortened to 292 years.
        i64::try_from(idle).unwrap_or(i64::MAX)
    }

    /// Encodes an update of a rule.
    ///
    /// # Errors
    ///
    /// The device cannot hold the rule.
    pub(super) fn encode_update(
        &self,
        kind: Type,
        entry: LtmIndex,
        stage: StageId,
        rule: &LtmRule,
    ) -> Result<Vec<u8>, Refusal> {
        let mut writer = ProtoWriter::new();
        writer.update(kind, |writer| {
            put(writer, &self.program, &self.ports.0.read().ports, stage, rule)?;
            writer.name_and_timeout(entry.0, self.idle_timeout_ns());
            Ok(())
        })?;
        Ok(writer.into_vec())
    }

    /// Encodes the key of a rule, which does not depend on the ports.
    ///
    /// # Errors
    ///
    /// The device cannot hold the rule.
    pub(super) fn encode_key(&self, stage: StageId, rule: &LtmRule) -> Result<Vec<u8>, Refusal> {
        let mut writer = ProtoWriter::new();
        put_key(&mut writer, &self.program, stage, rule)?;
        Ok(writer.into_vec())
    }
}
