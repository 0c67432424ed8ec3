//! Errors of a switch.

use std::io;

use shunt_datapath::PortError;
use thiserror::Error;

use crate::{config::ConfigError, openflow::endpoint::EndpointError};

/// A reason why a switch does not start, or why it refuses a request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A name of a bridge or port is not valid.
    #[error(
        "{name:?} is not a valid name: use 1 to {bytes_max} letters, digits, `-`, `_` or `.`, not beginning with `.`"
    )]
    BadName {
        /// The name that was refused.
        name: String,
        /// Maximum length of such a name, in bytes.
        bytes_max: usize,
    },
    /// A bridge or port is configured without a name.
    #[error("`name` is missing: give 1 to 15 letters, digits, `-`, `_` or `.`")]
    NoName,
    /// A port has the name of its bridge, which is the name of the local port.
    #[error(
        "{0} is the local port of its bridge already: remove this port, and set `local = \"tap\"` \
         in the bridge for a TAP device"
    )]
    LocalPort(String),
    /// A bridge with this name exists already.
    #[error("bridge {0} exists already: choose another name")]
    BridgeExists(String),
    /// No bridge has this name.
    #[error("there is no bridge {name}; existing bridges: {known}")]
    NoSuchBridge {
        /// Requested name of a bridge.
        name: String,
        /// Names of the existing bridges.
        known: String,
    },
    /// A port with this name exists already.
    #[error("port {name} exists already, on bridge {bridge}: choose another name")]
    PortExists {
        /// Name of the port.
        name: String,
        /// Bridge of the existing port.
        bridge: String,
    },
    /// No port has this name.
    #[error("there is no port {name}; existing ports: {known}")]
    NoSuchPort {
        /// Requested name of a port.
        name: String,
        /// Names of the existing ports.
        known: String,
    },
    /// Another port of the bridge has the requested number.
    #[error("number {number} belongs to port {port}: omit `number` to get the lowest free number")]
    NumberTaken {
        /// The port number that was requested.
        number: u32,
        /// Name of the port that has the number.
        port: String,
    },
    /// Another port has the requested device, or writes the requested file.
    #[error(
        "{what} belongs to port {port} of bridge {bridge}: a device or output file serves one port only"
    )]
    InUse {
        /// Name of the device, or path of the output file.
        what: String,
        /// Name of the port that has the device or file.
        port: String,
        /// Name of the bridge of this port.
        bridge: String,
    },
    /// All numbers for objects of a kind are in use.
    #[error("cannot add another {what}: all numbers are in use; delete one first")]
    NoNumber {
        /// Kind of the object, in the plural.
        what: &'static str,
    },
    /// An external NIC has no address.
    #[error("the offload kind p4runtime needs the `address` of the NIC, such as 192.0.2.7:9559")]
    NoNicAddress,
    /// The previous NIC still has entries to remove.
    #[error(
        "the NIC cannot be replaced yet, because entries of the previous NIC are still being \
         removed: try again in a few seconds"
    )]
    NicLeaving,
    /// Every packet thread has panicked.
    #[error("all packet threads have panicked: restart the switch")]
    NoThreads,
    /// The requested eviction engine is not part of this build.
    #[error(
        "this build does not contain the engine `{0}`: build it with the feature dbsp, or choose `direct` \
         or `iterative`"
    )]
    EngineNotBuilt(&'static str),
    /// The eviction thread has panicked.
    #[error("the eviction thread has panicked: restart the switch")]
    NoEvictionThread,
    /// A text is not the name of a cache entry.
    #[error(transparent)]
    EntryText(#[from] shunt_pipeline::EntryIdError),
    /// The requested entry does not exist, and is not among the recent evictions.
    #[error(
        "there is no cache entry {entry}: {present}, and it is not among the last {remembered} \
         evictions"
    )]
    NoSuchEntry {
        /// Name of the requested cache entry.
        entry: shunt_pipeline::EntryId,
        /// Present content of the slot of the entry.
        present: String,
        /// Number of evictions that the switch remembers.
        remembered: usize,
    },
    /// A number is not an OpenFlow port number.
    #[error("{0} is not a port number: use 1 to 65279")]
    NumberRange(u32),
    /// A key of a port is missing, or not allowed for its type.
    #[error("port {port}: {problem}")]
    PortSetting {
        /// Name of the port.
        port: String,
        /// The rule that is violated, and a way to correct it.
        problem: &'static str,
    },
    /// A member of a bond has a key of its own for VLANs.
    #[error(
        "port {port}: its VLANs are those of its bond {bond}: remove `{key}`, and set it in the bond"
    )]
    MemberVlans {
        /// Name of the port.
        port: String,
        /// Name of the bond.
        bond: String,
        /// The key of the port.
        key: &'static str,
    },
    /// No bond has this name.
    #[error("there is no bond {name}; existing bonds: {known}")]
    NoSuchBond {
        /// Requested name of a bond.
        name: String,
        /// Names of the existing bonds.
        known: String,
    },
    /// A port is not a member of the bond.
    #[error("bond {bond} has no member {member}; its members: {known}")]
    NoSuchMember {
        /// Name of the bond.
        bond: String,
        /// Name of the port.
        member: String,
        /// Names of the members of the bond.
        known: String,
    },
    /// The primary member is enabled, so no other member can be active.
    #[error(
        "bond {bond}: member {member} cannot be active while the primary member {primary} is \
         enabled: disable {primary} with bond/disable-member, or remove `primary`"
    )]
    PrimaryEnabled {
        /// Name of the bond.
        bond: String,
        /// Name of the member.
        member: String,
        /// Name of the primary member.
        primary: String,
    },
    /// The bond has no buckets, because its mode does not balance.
    #[error("bond {bond} has no buckets, because its mode is not balance-slb: set this mode")]
    BondWithoutBuckets {
        /// Name of the bond without buckets.
        bond: String,
    },
    /// A disabled member of a bond cannot be active.
    #[error(
        "bond {bond}: member {member} cannot be active, because it is disabled: enable it with \
         bond/enable-member, or choose another"
    )]
    MemberDisabled {
        /// Name of the bond.
        bond: String,
        /// Name of the member.
        member: String,
    },
    /// A member of a bond has no port, or its port is closed.
    #[error("bond {bond}: member {member} has no open port: add the port, or enable its device")]
    MemberWithoutPort {
        /// Name of the bond.
        bond: String,
        /// Name of the member.
        member: String,
    },
    /// A member of a bond without a link cannot be enabled.
    #[error(
        "bond {bond}: member {member} cannot be enabled, because its link is down: bring up the \
         link"
    )]
    MemberWithoutLink {
        /// Name of the bond.
        bond: String,
        /// Name of the member.
        member: String,
    },
    /// A member of a bond is a port of another bridge.
    #[error("bond {bond}: member {member} is a port of bridge {bridge}: remove it there first")]
    MemberElsewhere {
        /// Name of the bond.
        bond: String,
        /// Name of the member.
        member: String,
        /// Name of the bridge of the port.
        bridge: String,
    },
    /// The name of a new bond is in use by a bridge, port or bond.
    #[error("bond {bond}: a {owner} of {bridge} has this name: choose another name")]
    BondNameTaken {
        /// Name of the bond.
        bond: String,
        /// The object that has the name: `port`, `local port` or `bond`.
        owner: &'static str,
        /// The bridge of this object.
        bridge: String,
    },
    /// The keys of a bond are missing, exclude each other, or are not supported.
    #[error("bond {bond}: {problem}")]
    BondSetting {
        /// Name of the bond.
        bond: String,
        /// The rule that is violated, and a way to correct it.
        problem: &'static str,
    },
    /// A static MAC address cannot be added or removed.
    #[error("bridge {bridge}: {error}")]
    StaticMac {
        /// Name of the bridge.
        bridge: String,
        /// The reason of the refusal.
        #[source]
        error: shunt_pipeline::StaticMacError,
    },
    /// The bridge has a mirror with this name already.
    #[error("mirror {mirror} exists already, on bridge {bridge}: choose another name")]
    MirrorExists {
        /// Name of the mirror.
        mirror: String,
        /// Name of the bridge of the mirror.
        bridge: String,
    },
    /// The bridge has no mirror with this name.
    #[error("bridge {bridge} has no mirror {name}; existing mirrors: {known}")]
    NoSuchMirror {
        /// Requested name of a mirror.
        name: String,
        /// Name of the bridge.
        bridge: String,
        /// Names of the existing mirrors.
        known: String,
    },
    /// The bridge has the maximum number of mirrors.
    #[error(
        "mirror {mirror}: bridge {bridge} has {limit} other mirrors, which is the limit: delete \
         one first"
    )]
    TooManyMirrors {
        /// Name of the mirror that exceeds the limit.
        mirror: String,
        /// Name of the bridge.
        bridge: String,
        /// Maximum number of mirrors of a bridge.
        limit: usize,
    },
    /// The device of a new port keeps another MTU than the configured one.
    #[error("port {port}: {problem}")]
    PortMtu {
        /// Name of the port.
        port: String,
        /// The MTUs, the reason, and a way to correct it.
        problem: String,
    },
    /// Keys of a mirror are missing, or exclude each other.
    #[error("mirror {mirror}: {problem}")]
    MirrorSetting {
        /// Name of the mirror.
        mirror: String,
        /// The rule that is violated, and a way to correct it.
        problem: &'static str,
    },
    /// A value is outside its range.
    #[error("{setting} = {value}: it must be {range}")]
    Range {
        /// Name of the setting in the configuration file.
        setting: &'static str,
        /// The value that is out of range.
        value: String,
        /// Description of the allowed values.
        range: &'static str,
    },
    /// A text is not the address of a controller.
    #[error("bridge {bridge}: {source}")]
    ControllerEndpoint {
        /// Name of the bridge.
        bridge: String,
        /// The mistake in the address.
        source: EndpointError,
    },
    /// A port cannot be opened.
    #[error("port {name}: {source}")]
    Port {
        /// Name of the port that cannot be opened.
        name: String,
        /// The reason why the port cannot be opened.
        source: PortError,
    },
    /// A flow-mod was refused; no rule has changed.
    #[error(transparent)]
    FlowMod(#[from] shunt_pipeline::RejectedMod),
    /// A text is not a rule.
    #[error(transparent)]
    RuleText(#[from] shunt_pipeline::text::RuleTextError),
    /// The saved state has a format that this version of the switch cannot read.
    #[error(
        "the saved state has format {found}, and this version reads formats up to {known}: restore it \
         with the version that has saved it"
    )]
    SavedFormat {
        /// Number of the format of the saved state.
        found: u32,
        /// Newest format that this version can read.
        known: u32,
    },
    /// A system call of the switch failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation that failed.
        doing: String,
        /// The error of the operating system.
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
