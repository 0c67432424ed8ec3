//! Pushing and popping the outermost VLAN tag (IEEE 802.1Q, 9.3).

/// Bytes of the two MAC addresses; a tag follows them.
const ADDRESSES: usize = 12;

/// Bytes of a tag.
const TAG: usize = 4;

/// Inserts a tag as the outermost one of a frame.
///
/// `buffer` is the frame with four free bytes before it; afterwards the frame fills `buffer`. The
/// present bit of a TCI in a flow key is not sent. A buffer without room for an Ethernet header and
/// a tag is not changed.
pub fn push_vlan(buffer: &mut [u8], tpid: u16, tci: u16) {
    /// The bit of a TCI that is set if the packet has the tag.
    const TAG_PRESENT: u16 = 0x1000;
    let Some(header) = buffer.first_chunk_mut::<{ ADDRESSES + TAG }>() else { return };
    header.copy_within(TAG.., 0);
    let [tpid_high, tpid_low] = tpid.to_be_bytes();
    let [tci_high, tci_low] = (tci & !TAG_PRESENT).to_be_bytes();
    if let Some(tag) = header.last_chunk_mut() {
        *tag = [tpid_high, tpid_low, tci_high, tci_low];
    }
}

/// Removes the outermost tag of a frame: afterwards the frame is `frame[4..]`.
///
/// A frame without room for an Ethernet header and a tag is not changed.
pub fn pop_vlan(frame: &mut [u8]) {
    if let Some(header) = frame.first_chunk_mut::<{ ADDRESSES + TAG }>() {
        header.copy_within(..ADDRESSES, TAG);
    }
}
