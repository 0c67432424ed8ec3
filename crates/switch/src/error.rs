//! Why a switch does not start, or does not do what it was asked to.

use std::io;

use shunt_datapath::PortError;
use thiserror::Error;

use crate::{config::ConfigError, openflow::endpoint::EndpointError};

/// Why a switch does not start, or does not do what it was asked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The configuration has a mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operator has to choose another name.
    #[error("{0:?} cannot be a name: 1 to 15 letters, digits, `-`, `_` or `.`")]
    BadName(String),
    /// There is a bridge of this name.
    #[error("there is a bridge {0} already")]
    BridgeExists(String),
    /// There is no bridge of this name.
    #[error("there is no bridge {name}; there are: {known}")]
    NoSuchBridge {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// There is a port of this name.
    #[error("there is a port {name} already, on bridge {bridge}")]
    PortExists {
        /// The name.
        name: String,
        /// Its bridge.
        bridge: String,
    },
    /// There is no port of this name.
    #[error("there is no port {name}; there are: {known}")]
    NoSuchPort {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The number is another port's.
    #[error("number {number} is that of port {port}; leave `number` out for the lowest free one")]
    NumberTaken {
        /// The number.
        number: u32,
        /// Whose it is.
        port: String,
    },
    /// Another port has a device, or writes a file.
    #[error("{what} is that of port {port} of bridge {bridge}")]
    InUse {
        /// The device or file.
        what: String,
        /// Whose it is.
        port: String,
        /// The bridge of that port.
        bridge: String,
    },
    /// All numbers that the switch has for things of this kind are in use.
    #[error("no number is left for another {what}: 65535 are in use")]
    NoNumber {
        /// What was to be added.
        what: &'static str,
    },
    /// A NIC is to come while the one before may still forward by rules that are gone.
    #[error("the NIC before is still being emptied: try again in some seconds")]
    NicLeaving,
    /// Every packet thread has ended by a panic.
    #[error("no packet thread is left to take packets: restart the switch")]
    NoThreads,
    /// The configuration names an eviction engine that was not compiled in.
    #[error(
        "this program was built without the engine `{0}`: build it with the feature dbsp, or choose \
         `direct` or `iterative`"
    )]
    EngineNotBuilt(&'static str),
    /// The eviction thread has ended by a panic.
    #[error("the eviction thread has ended: restart the switch")]
    NoEvictionThread,
    /// A text is not the name of a cache entry.
    #[error(transparent)]
    EntryText(#[from] shunt_pipeline::EntryIdError),
    /// A cache entry is not there, and not known to have been evicted lately.
    #[error(
        "there is no entry {entry}: {present}, and it is not among the last {remembered} evictions"
    )]
    NoSuchEntry {
        /// The entry.
        entry: shunt_pipeline::EntryId,
        /// What there is in its place.
        present: String,
        /// Evictions that are remembered.
        remembered: usize,
    },
    /// OpenFlow has no such port number.
    #[error("{0} is no port number: they run from 1 to 4294967040 (0xffffff00)")]
    NumberRange(u32),
    /// A key is missing, or makes no sense for this type of port.
    #[error("port {port}: {problem}")]
    PortSetting {
        /// The port.
        port: String,
        /// What is wrong, and what would mend it.
        problem: &'static str,
    },
    /// A value is outside its range.
    #[error("{setting} = {value}: it must be {range}")]
    Range {
        /// The setting, as the configuration spells it.
        setting: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// An address of a controller is not one.
    #[error("bridge {bridge}: {source}")]
    Endpoint {
        /// The bridge.
        bridge: String,
        /// What is wrong.
        source: EndpointError,
    },
    /// A port does not open.
    #[error("port {name}: {source}")]
    Port {
        /// The port.
        name: String,
        /// Why.
        source: PortError,
    },
    /// A flow-mod was refused; nothing was changed.
    #[error(transparent)]
    FlowMod(#[from] shunt_pipeline::RejectedMod),
    /// A text is not a rule.
    #[error(transparent)]
    RuleText(#[from] shunt_pipeline::text::RuleTextError),
    /// The system refused.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

/// An error with its causes, in one line.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = source.source();
    }
    text
}
