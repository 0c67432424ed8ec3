//! Errors of a switch.

use std::io;

use shunt_datapath::PortError;
use thiserror::Error;

use crate::{config::ConfigError, openflow::endpoint::EndpointError};

/// A reason why a switch does not start, or refuses a request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A name is not valid.
    #[error(
        "{0:?} is not a valid name: use 1 to 15 letters, digits, `-`, `_` or `.`, not beginning with `.`"
    )]
    BadName(String),
    /// A bridge or port has no name.
    #[error("`name` is missing: give 1 to 15 letters, digits, `-`, `_` or `.`")]
    NoName,
    /// A port has the name of its bridge, which is the local port.
    #[error(
        "{0} is the local port of its bridge already: remove this port, and set `local = \"tap\"` \
         in the bridge for a TAP device"
    )]
    LocalPort(String),
    /// The bridge exists already.
    #[error("bridge {0} exists already: choose another name")]
    BridgeExists(String),
    /// The bridge does not exist.
    #[error("no bridge {name}; existing bridges: {known}")]
    NoSuchBridge {
        /// The name.
        name: String,
        /// Names of the existing bridges.
        known: String,
    },
    /// The port exists already.
    #[error("port {name} exists already, on bridge {bridge}: choose another name")]
    PortExists {
        /// The name.
        name: String,
        /// Bridge of the port.
        bridge: String,
    },
    /// The port does not exist.
    #[error("no port {name}; existing ports: {known}")]
    NoSuchPort {
        /// The name.
        name: String,
        /// Names of the existing ports.
        known: String,
    },
    /// Another port has the number.
    #[error("number {number} belongs to port {port}: omit `number` to get the lowest free number")]
    NumberTaken {
        /// The number.
        number: u32,
        /// Name of the port that has the number.
        port: String,
    },
    /// Another port has the device, or writes the file.
    #[error(
        "{what} belongs to port {port} of bridge {bridge}: a device or output file serves one port only"
    )]
    InUse {
        /// The device or file.
        what: String,
        /// Name of the port that has it.
        port: String,
        /// The bridge of that port.
        bridge: String,
    },
    /// All numbers for objects of this kind are in use.
    #[error("cannot add another {what}: all numbers are in use; delete one first")]
    NoNumber {
        /// Kind of the object.
        what: &'static str,
    },
    /// An external NIC has no address.
    #[error("kind p4runtime needs the `address` of the NIC, such as 192.0.2.7:9559")]
    NoNicAddress,
    /// The previous NIC is not empty yet.
    #[error("the entries of the previous NIC are still being removed: try again in a few seconds")]
    NicLeaving,
    /// Every packet thread has panicked.
    #[error("all packet threads have panicked: restart the switch")]
    NoThreads,
    /// The eviction engine is not part of this build.
    #[error(
        "this build does not contain the engine `{0}`: build it with the feature dbsp, or choose `direct` \
         or `iterative`"
    )]
    EngineNotBuilt(&'static str),
    /// The eviction thread has panicked.
    #[error("the eviction thread has panicked: restart the switch")]
    NoEvictionThread,
    /// The text is not the name of a cache entry.
    #[error(transparent)]
    EntryText(#[from] shunt_pipeline::EntryIdError),
    /// The cache entry does not exist, and is not among the recent evictions.
    #[error("no entry {entry}: {present}, and it is not among the last {remembered} evictions")]
    NoSuchEntry {
        /// The entry.
        entry: shunt_pipeline::EntryId,
        /// Content of the slot of the entry.
        present: String,
        /// Number of evictions that the switch remembers.
        remembered: usize,
    },
    /// The number is not an OpenFlow port number.
    #[error("{0} is not a port number: port numbers are 1 to 65279")]
    NumberRange(u32),
    /// A key is missing, or not allowed for this type of port.
    #[error("port {port}: {problem}")]
    PortSetting {
        /// The port.
        port: String,
        /// The rule that is violated, and a way to correct it.
        problem: &'static str,
    },
    /// The bond does not exist.
    #[error("no bond {name}; existing bonds: {known}")]
    NoSuchBond {
        /// The name.
        name: String,
        /// Names of the existing bonds.
        known: String,
    },
    /// The port is not a member of the bond.
    #[error("bond {bond} has no member {member}; its members: {known}")]
    NoSuchMember {
        /// The bond.
        bond: String,
        /// The port.
        member: String,
        /// Names of the members.
        known: String,
    },
    /// The primary member is enabled, so no other can be active.
    #[error(
        "bond {bond}: member {member} cannot be active while the primary member {primary} is \
         enabled: disable {primary} with bond/disable-member, or remove `primary`"
    )]
    PrimaryEnabled {
        /// The bond.
        bond: String,
        /// The member.
        member: String,
        /// The primary member.
        primary: String,
    },
    /// The bond does not balance.
    #[error("bond {bond} has no buckets: its mode is not balance-slb")]
    BondWithoutBuckets {
        /// The bond.
        bond: String,
    },
    /// A disabled member of a bond cannot be active.
    #[error(
        "bond {bond}: member {member} is disabled: it cannot be active; enable it with \
         bond/enable-member, or choose another"
    )]
    MemberDisabled {
        /// The bond.
        bond: String,
        /// The member.
        member: String,
    },
    /// A member of a bond has no open port.
    #[error(
        "bond {bond}: member {member} has no port that is open: add the port, or enable its device"
    )]
    MemberWithoutPort {
        /// The bond.
        bond: String,
        /// The member.
        member: String,
    },
    /// A member of a bond without a link cannot be enabled.
    #[error("bond {bond}: the link of member {member} is down: it cannot be enabled")]
    MemberWithoutLink {
        /// The bond.
        bond: String,
        /// The member.
        member: String,
    },
    /// A port of another bridge is a member of a bond.
    #[error("bond {bond}: member {member} is a port of bridge {bridge}: remove it there first")]
    MemberElsewhere {
        /// The bond.
        bond: String,
        /// The member.
        member: String,
        /// The bridge of the port.
        bridge: String,
    },
    /// A bridge, port or bond has the name of a new bond.
    #[error("bond {bond}: a {owner} of {bridge} has this name: choose another name")]
    BondNameTaken {
        /// The bond.
        bond: String,
        /// The object with the name: `port`, `local port` or `bond`.
        owner: &'static str,
        /// The bridge.
        bridge: String,
    },
    /// The keys of a bond are missing, exclude each other, or are not supported.
    #[error("bond {bond}: {problem}")]
    BondSetting {
        /// The bond.
        bond: String,
        /// The rule that is violated, and a way to correct it.
        problem: &'static str,
    },
    /// The mirror exists already.
    #[error("mirror {mirror} exists already, on bridge {bridge}: choose another name")]
    MirrorExists {
        /// The mirror.
        mirror: String,
        /// Its bridge.
        bridge: String,
    },
    /// The mirror does not exist.
    #[error("bridge {bridge} has no mirror {name}; existing mirrors: {known}")]
    NoSuchMirror {
        /// The name.
        name: String,
        /// The bridge.
        bridge: String,
        /// Names of the existing mirrors.
        known: String,
    },
    /// The bridge has the largest number of mirrors.
    #[error(
        "mirror {mirror}: bridge {bridge} has {limit} other mirrors, the limit: delete one first"
    )]
    TooManyMirrors {
        /// The mirror that is one too many.
        mirror: String,
        /// The bridge.
        bridge: String,
        /// The most mirrors of a bridge.
        limit: usize,
    },
    /// Keys of a mirror are missing, or exclude each other.
    #[error("mirror {mirror}: {problem}")]
    MirrorSetting {
        /// The mirror.
        mirror: String,
        /// The rule that is violated, and a way to correct it.
        problem: &'static str,
    },
    /// A value is outside its range.
    #[error("{setting} = {value}: it must be {range}")]
    Range {
        /// Name of the setting in the configuration file.
        setting: &'static str,
        /// The value.
        value: String,
        /// Description of the allowed values.
        range: &'static str,
    },
    /// A text is not the address of a controller.
    #[error("bridge {bridge}: {source}")]
    ControllerEndpoint {
        /// The bridge.
        bridge: String,
        /// The mistake in the address.
        source: EndpointError,
    },
    /// A port cannot be opened.
    #[error("port {name}: {source}")]
    Port {
        /// The port.
        name: String,
        /// The cause.
        source: PortError,
    },
    /// A flow-mod was refused; nothing changed.
    #[error(transparent)]
    FlowMod(#[from] shunt_pipeline::RejectedMod),
    /// A text is not a rule.
    #[error(transparent)]
    RuleText(#[from] shunt_pipeline::text::RuleTextError),
    /// A saved text is not a rule, group or meter.
    #[error("`{text}` in the saved state: {problem}")]
    SavedText {
        /// The text.
        text: String,
        /// The mistake in the text.
        problem: String,
    },
    /// The saved state has the format of another version of the switch.
    #[error(
        "the saved state has format {found}, and this version reads formats up to {known}: restore it \
         with the version that has saved it"
    )]
    SavedFormat {
        /// Format of the state.
        found: u32,
        /// Format that can be read.
        known: u32,
    },
    /// A system call failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation that failed.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Returns an error with all its causes, in one line.
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
