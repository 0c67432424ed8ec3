//! Functions for fuzz targets, which accept any bytes.

use shunt_datapath::{
    Pool, VirtioHeader,
    packet::virtio::{Unsendable, finish},
    port::{Capabilities, pcap::Capture},
};
use shunt_pipeline::DatapathPort;

/// Reads the bytes as a capture file.
///
/// # Panics
///
/// Panics if the reader is wrong.
pub fn fuzz_pcap(data: &[u8]) {
    let Ok(capture) = Capture::parse("fuzz", data.to_vec()) else { return };
    let frames = (0..capture.len()).filter_map(|index| capture.frame(index));
    let length: usize = frames.map(<[u8]>::len).sum();
    assert!(length <= data.len(), "the frames together are not longer than the file");
}

/// Completes a packet from a virtio header and a frame.
/// The header is in the first bytes, the frame in the rest.
///
/// # Panics
///
/// Panics if the result is wrong.
pub fn fuzz_offload(data: &[u8]) {
    let Some((header, frame)) = data.split_first_chunk() else { return };
    let Ok(virtio) = VirtioHeader::receive(*header, frame) else { return };
    let encoded = virtio.encode_with_tunnel(frame);
    let again = encoded.as_ref().and_then(|encoded| encoded.first_chunk());
    let again = again.map(|header| VirtioHeader::receive(*header, frame));
    assert_eq!(again, Some(Ok(virtio)), "an accepted header survives encoding");
    let (mut pool, mut out) = (Pool::new(), Vec::new());
    let Some(mut packet) = pool.take(frame.len(), DatapathPort::default()) else { return };
    packet.frame_mut().copy_from_slice(frame);
    packet.virtio = virtio;
    let port = Capabilities {
        tx_checksum: false,
        tx_segmentation: false,
        tx_tunnel_segmentation: false,
        frame_max: Pool::LARGE,
        can_wait: false,
    };
    match finish(packet, &port, &mut pool, &mut out) {
        Ok(()) => assert!(out.iter().all(|made| !made.virtio.needs_checksum)),
        Err(Unsendable::MtuExceeded { .. } | Unsendable::Segment(_)) => assert!(out.is_empty()),
    }
    assert_eq!(pool.out(), out.len(), "all other buffers are returned");
}
