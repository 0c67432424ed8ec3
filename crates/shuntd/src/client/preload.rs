//! `shuntctl preload`: flows of a file or a capture, as the daemon reads them.

use std::{collections::BTreeSet, fmt::Write, fs::File, io, path::Path};

use shunt_flow::hash::split_mix;
use shunt_pcap::PcapReader;

use crate::rpc::{CallError, RpcClient};

/// The flows to preload, and the bridge where they arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreloadRequest<'a> {
    pub(crate) bridge: &'a str,
    pub(crate) file: &'a Path,
    /// The ingress port of the packets of a capture.
    pub(crate) in_port: Option<&'a str>,
    /// Time in which the flows are expected.
    pub(crate) seconds: u64,
    /// Share of the flows that are sent.
    pub(crate) percent: u8,
}

/// Maximum number of flows in one call, and of their bytes unless it is one flow.
const FLOWS_PER_CALL: usize = 1024;
const BYTES_PER_CALL: usize = 65_536;

/// The first bytes of a capture.
///
/// In either byte order, with microseconds or nanoseconds.
const MAGICS: [[u8; 4]; 4] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];

/// Sends the flows of a file; returns their number.
///
/// Equal packets of a capture are sent once.
pub(crate) fn preload(
    client: &mut RpcClient,
    request: PreloadRequest<'_>,
) -> Result<u64, CallError> {
    let flows = flows_of(request).map_err(CallError::Refused)?;
    let seconds = request.seconds.to_string();
    let flows = share_of(&flows, request.percent);
    let mut left = flows.clone();
    while !left.is_empty() {
        let mut bytes = 0;
        let fits = |flow: &&&str| {
            bytes += flow.len();
            bytes <= BYTES_PER_CALL
        };
        let count = left.iter().take(FLOWS_PER_CALL).take_while(fits).count().max(1);
        let parameters = [&[request.bridge, seconds.as_str()], &left[..count]].concat();
        client.call("shunt/preload", &parameters)?;
        left.drain(..count);
    }
    Ok(flows.len() as u64)
}

/// Returns a random share of the flows.
///
/// It is the same one in each call, and a larger share has all flows of a smaller one.
fn share_of(flows: &BTreeSet<String>, percent: u8) -> Vec<&str> {
    let mut state = 0;
    let flows = flows.iter().map(String::as_str);
    flows.filter(|_| split_mix(&mut state) % 100 < percent.into()).collect()
}

/// Returns the flows of a capture, or the lines of a text file.
fn flows_of(request: PreloadRequest<'_>) -> Result<BTreeSet<String>, String> {
    let name = request.file.display().to_string();
    let cannot = |error: io::Error| format!("cannot read {name}: {error}");
    let bytes = std::fs::read(request.file).map_err(cannot)?;
    if bytes.first_chunk().is_some_and(|start| MAGICS.contains(start)) {
        let in_port = request.in_port.ok_or_else(|| {
            format!("{name} is a capture, which has no ingress port: add --in-port PORT")
        })?;
        let file = File::open(request.file).map_err(cannot)?;
        return frames(&name, file, in_port);
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        format!("{name} is neither a classic pcap file nor text: convert it with `editcap -F pcap`")
    })?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn frames(name: &str, file: File, in_port: &str) -> Result<BTreeSet<String>, String> {
    let mut reader = PcapReader::new(name, file).map_err(|error| error.to_string())?;
    let mut flows = BTreeSet::new();
    while let Some(packet) = reader.next_packet().map_err(|error| error.to_string())? {
        let mut flow = format!("in_port={in_port} ");
        for byte in packet.frame {
            let _ = write!(flow, "{byte:02x}");
        }
        flows.insert(flow);
    }
    Ok(flows)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use shunt_pcap::PcapWriter;

    use super::*;

    fn request(file: &Path, in_port: Option<&'static str>) -> Result<BTreeSet<String>, String> {
        flows_of(PreloadRequest { bridge: "br0", file, in_port, seconds: 1, percent: 100 })
    }

    #[test]
    fn a_text_file_has_one_flow_in_each_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"# flows\nin_port=1,arp # first\n\nin_port=2,ip\n").unwrap();
        let flows = request(file.path(), None).unwrap();
        assert!(flows.iter().eq(["in_port=1,arp", "in_port=2,ip"]));
    }

    #[test]
    fn a_larger_share_has_the_flows_of_a_smaller_one() {
        let flows = (0..10_000).map(|at| format!("in_port=1,tp_dst={at}")).collect();
        let shares = [0, 25, 75, 100].map(|percent| share_of(&flows, percent));
        let [none, quarter, most, all] = &shares;
        assert_eq!((none.len(), all.len()), (0, flows.len()));
        assert!((2300..2700).contains(&quarter.len()), "{}", quarter.len());
        assert!((7300..7700).contains(&most.len()), "{}", most.len());
        let most: BTreeSet<_> = most.iter().collect();
        assert!(quarter.iter().all(|flow| most.contains(flow)));
    }

    #[test]
    fn a_capture_needs_an_ingress_port() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = PcapWriter::new(file.reopen().unwrap()).unwrap();
        for at in [0_u8, 1, 1] {
            writer.write(at.into(), &[at; 14]).unwrap();
        }
        drop(writer.into_inner());
        let refused = request(file.path(), None).unwrap_err();
        assert!(refused.contains("--in-port"), "{refused}");
        let flows = request(file.path(), Some("p1")).unwrap();
        let expected = ["00", "01"].map(|byte| format!("in_port=p1 {}", byte.repeat(14)));
        assert!(flows.iter().eq(&expected));
    }
}
