//! Messages about the switch as a whole.

use shunt_pipeline::TableId;

/// `ofp_hello`: the versions that a peer offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version byte of the header: the highest version offered.
    pub version: u8,
    /// Bit `n` for wire version `n` (`OFPHET_VERSIONBITMAP`); `None` if absent.
    pub bitmap: Option<u32>,
}

impl Hello {
    /// Returns the versions offered, bit `n` for wire version `n` (OpenFlow 6.3.1).
    ///
    /// The result is the versions of the bitmap or, without a bitmap, all versions up to that of
    /// the header. An empty bitmap counts as no bitmap, as in Open vSwitch.
    #[must_use]
    pub const fn versions(self) -> u32 {
        match self.bitmap {
            Some(bitmap) if bitmap != 0 => bitmap,
            _ if self.version < 31 => (1 << (self.version + 1)) - 2,
            _ => u32::MAX - 1,
        }
    }
}

/// `ofp_switch_features`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Identity of the bridge: 16 freely chosen bits above a 48-bit MAC address.
    pub datapath_id: u64,
    /// Number of packets that the switch can buffer.
    pub buffers_count: u32,
    /// Number of tables of the switch.
    pub tables_count: u8,
    /// Id of an auxiliary connection; 0 for the main connection.
    pub auxiliary_id: u8,
    /// The capabilities of the switch (`ofp_capabilities`).
    pub capabilities: u32,
}

impl Features {
    /// The switch has flow statistics (`OFPC_FLOW_STATS`).
    pub const FLOW_STATS: u32 = 1;
    /// The switch has table statistics (`OFPC_TABLE_STATS`).
    pub const TABLE_STATS: u32 = 1 << 1;
    /// The switch has port statistics (`OFPC_PORT_STATS`).
    pub const PORT_STATS: u32 = 1 << 2;
    /// The switch has group statistics (`OFPC_GROUP_STATS`).
    pub const GROUP_STATS: u32 = 1 << 3;
    /// The switch has queue statistics (`OFPC_QUEUE_STATS`).
    pub const QUEUE_STATS: u32 = 1 << 6;

    /// Returns the features that every bridge of this switch has.
    #[must_use]
    pub const fn of_bridge(datapath_id: u64) -> Self {
        Self {
            datapath_id,
            buffers_count: 0,
            tables_count: TableId::COUNT,
            auxiliary_id: 0,
            capabilities: Self::FLOW_STATS
                | Self::TABLE_STATS
                | Self::PORT_STATS
                | Self::GROUP_STATS
                | Self::QUEUE_STATS,
        }
    }
}

/// `ofp_switch_config` of one connection.
///
/// Fragments are always handled as `OFPC_FRAG_NORMAL`; there is no other policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Number of bytes of a packet to send on a table miss.
    ///
    /// Packets are never buffered, so whole packets are sent. A value of 0 turns off events on a
    /// management connection.
    pub miss_send_len: u16,
}

/// `ofp_table_mod`. OpenFlow 1.3 defines no table setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// The table; `None` selects all tables.
    pub table: Option<TableId>,
}
