//! The announcement of a guest that has moved to this host.
//!
//! A front-end requests the announcement after a migration, for a guest that does not announce
//! itself (`VIRTIO_NET_F_GUEST_ANNOUNCE`). Switches learn from the frame where the guest is.
//!
//! Source: vhost-user protocol, `VHOST_USER_SEND_RARP`; RFC 903.

/// Length of an announcement: the shortest Ethernet frame without its checksum.
const LENGTH: usize = 60;

/// Returns a RARP request from a MAC address, as an Ethernet frame.
pub(crate) fn announcement(mac: [u8; 6]) -> [u8; LENGTH] {
    /// The broadcast MAC address.
    const BROADCAST: [u8; 6] = [0xff; 6];
    /// The Ethernet type of RARP.
    const RARP: [u8; 2] = [0x80, 0x35];
    // Ethernet and IPv4, their address lengths, and the operation "request reverse".
    const REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 3];
    /// The IPv4 address 0.0.0.0, because the guest has no known address.
    const NO_ADDRESS: [u8; 4] = [0; 4];
    let fields: [&[u8]; 8] =
        [&BROADCAST, &mac, &RARP, &REQUEST, &mac, &NO_ADDRESS, &mac, &NO_ADDRESS];
    let mut frame = [0; LENGTH];
    frame.iter_mut().zip(fields.into_iter().flatten()).for_each(|(to, from)| *to = *from);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_a_rarp_request() {
        let mac = [2, 0, 0, 0, 0, 7];
        let frame = announcement(mac);
        assert_eq!((&frame[..6], &frame[6..12]), (&[0xff; 6][..], &mac[..]));
        assert_eq!(frame[12..22], [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!((&frame[22..28], &frame[32..38]), (&mac[..], &mac[..]));
        assert_eq!((&frame[28..32], &frame[38..]), (&[0; 4][..], &[0; 22][..]));
    }
}
