//! The forms that a client of OpenFlow 1.0 chooses for its connection.

/// The form of matches in flow-removed messages (`NXT_SET_FLOW_FORMAT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowFormat {
    /// Matches have the format `ofp_match` (`NXFF_OPENFLOW10`).
    #[default]
    OpenFlow10,
    /// `nx_match`, which has every field (`NXFF_NXM`).
    Nxm,
}

/// The choices of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V10Settings {
    /// The form of flow-mods and flow-removed messages that are written.
    pub flow_format: FlowFormat,
    /// True if the high byte of a flow-mod command is a table.
    ///
    /// `NXT_FLOW_MOD_TABLE_ID` sets the value.
    pub has_table_ids: bool,
}

impl V10Settings {
    /// The choices at the start of a connection.
    pub const INITIAL: Self = Self { flow_format: FlowFormat::OpenFlow10, has_table_ids: false };
}
