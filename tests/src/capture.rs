//! Capture files in the classic pcap format, for ports of type `pcap`.

/// Returns a capture of the Ethernet frames `frames`, all at time 0.
#[must_use]
pub fn write_frames(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([0, 0, 1, 0, 1, 0, 0, 0]);
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap_or_default().to_le_bytes();
        file.extend([0; 8]);
        file.extend(length);
        file.extend(length);
        file.extend(frame);
    }
    file
}

/// Returns the frames of a capture that the switch has written.
#[must_use]
pub fn read(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut frames, mut rest) = (Vec::new(), file.get(HEADER..).unwrap_or_default());
    while let Some((record, behind)) = rest.split_at_checked(RECORD) {
        let length = record.get(8..12).and_then(|bytes| bytes.try_into().ok());
        let length = length.map_or(0, u32::from_le_bytes) as usize;
        let Some((frame, behind)) = behind.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

/// Length of the file header.
const HEADER: usize = 24;
/// Length of the header of each packet.
const RECORD: usize = 16;
