//! `shuntctl preload`: reads flows from a file or a capture and sends them to the daemon.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Write,
    fs::File,
    io,
    path::Path,
    thread::sleep,
    time::Duration,
};

use serde::Deserialize;
use shunt_flow::{
    FlowKey, SparseKey,
    extract::{VlanLimit, extract},
    hash::split_mix,
};
use shunt_pcap::PcapReader;

use crate::{
    render::counted,
    rpc::{CallError, RpcClient},
};

/// The flows to preload, and the bridge on which they arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreloadRequest<'a> {
    /// The name of the bridge.
    pub(crate) bridge: &'a str,
    /// The file with the flows, or a capture.
    pub(crate) file: &'a Path,
    /// The ingress port for the packets of a capture.
    pub(crate) in_port: Option<&'a str>,
    /// Seconds for which the flows are expected.
    pub(crate) seconds: u64,
    /// Share of the flows that are sent, in percent.
    pub(crate) percent: u8,
}

/// Limits of one call: number of flows,
/// and bytes unless the call has a single flow.
const FLOWS_PER_CALL: usize = 1024;
/// Maximum number of bytes of flows in one call.
const BYTES_PER_CALL: usize = 65_536;

/// Maximum time to wait for packet threads that do not handle any flow.
const STALL_MAX: Duration = Duration::from_secs(10);

/// Time between two calls while packet threads are busy.
const PAUSE: Duration = Duration::from_millis(20);

/// The first bytes of a capture file.
///
/// The numbers depend on the byte order, and on the resolution in microseconds or nanoseconds.
const MAGICS: [[u8; 4]; 4] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];

/// Sends the flows of a file, and waits until all are handled.
///
/// Packet threads handle the flows, and then the NIC.
///
/// Of the packets of a capture with equal headers, only the first is sent.
pub(crate) fn preload(
    client: &mut RpcClient,
    request: PreloadRequest<'_>,
) -> Result<PreloadReport, CallError> {
    let flows = flows_of(request).map_err(CallError::Refused)?;
    let flows = share_of(&flows, request.percent);
    let id = client.call("shunt/preload-start", &[])?;
    let id = id.trim();
    let PreloadReply { threads, entries, .. } = send(client, id, request, &flows)?;
    let mut report =
        PreloadReport { flows: flows.len() as u64, threads, entries, ..PreloadReport::default() };
    let mut waited = Duration::ZERO;
    loop {
        let counts = PreloadCounts::read(client, id)?;
        if counts.waiting() < report.counts.waiting() {
            waited = Duration::ZERO;
        }
        report.counts = counts;
        if report.counts.waiting() == 0 || waited >= STALL_MAX {
            return Ok(report);
        }
        sleep(PAUSE);
        waited += PAUSE;
    }
}

/// Sends flows in several calls;
/// waits while the queue of the daemon is full.
fn send(
    client: &mut RpcClient,
    id: &str,
    request: PreloadRequest<'_>,
    flows: &[&str],
) -> Result<PreloadReply, CallError> {
    let seconds = request.seconds.to_string();
    let (mut left, mut last) = (flows, PreloadReply::default());
    let mut waited = Duration::ZERO;
    while !left.is_empty() {
        let mut bytes = 0;
        let fits = |flow: &&&str| {
            bytes += flow.len();
            bytes <= BYTES_PER_CALL
        };
        let count = left.iter().take(FLOWS_PER_CALL).take_while(fits).count().max(1);
        let parameters = [&[id, request.bridge, seconds.as_str()], &left[..count]].concat();
        let reply = client.call("shunt/preload", &parameters)?;
        let reply: PreloadReply = serde_json::from_str(&reply).map_err(|_| CallError::Broken)?;
        last = PreloadReply { threads: reply.threads.max(last.threads), ..reply };
        left = left.get(last.accepted..).unwrap_or_default();
        if last.refused == 0 {
            waited = Duration::ZERO;
            continue;
        }
        if waited >= STALL_MAX {
            return Err(CallError::Refused(format!(
                "{} of {} flows were not sent: packet threads translate them only while no packet \
                 waits, and took none for {} s; try again under less load",
                left.len(),
                flows.len(),
                STALL_MAX.as_secs()
            )));
        }
        sleep(PAUSE);
        waited = if last.accepted > 0 { Duration::ZERO } else { waited + PAUSE };
    }
    Ok(last)
}

/// The daemon's answer to one call.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct PreloadReply {
    /// Number of flows that the daemon took.
    accepted: usize,
    /// Number of flows for which the queue was full.
    refused: usize,
    /// Number of packet threads that get each flow.
    threads: u64,
    /// Maximum number of preloaded flows without a hit, for each thread.
    entries: u64,
}

/// The outcomes of the flows, counted once for each receiving packet thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct PreloadCounts {
    /// Number of flows that were sent to packet threads.
    sent: u64,
    /// Number of flows that got entries.
    installed: u64,
    /// Flows that already had entries.
    covered: u64,
    /// Number of refused flows, by reason.
    refused: Vec<(String, u64)>,
    /// Number of flows without a result from the NIC.
    nic_waiting: u64,
    /// Number of flows that the NIC accepted.
    nic_accepted: u64,
    /// Number of flows that the NIC refused.
    nic_refused: u64,
}

/// The outcome of a preload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreloadReport {
    /// Number of flows to preload.
    flows: u64,
    /// Number of packet threads that get each flow.
    threads: u64,
    /// Limit of each packet thread: preloaded flows that have entries but no hit yet.
    entries: u64,
    /// Number of flows by outcome.
    counts: PreloadCounts,
}

impl PreloadCounts {
    /// Asks the daemon for the counts of a preload.
    fn read(client: &mut RpcClient, id: &str) -> Result<Self, CallError> {
        let reply = client.call("shunt/preload-read", &[id])?;
        serde_json::from_str(&reply).map_err(|_| CallError::Broken)
    }

    /// Returns the number of refused flows.
    fn refused_total(&self) -> u64 {
        self.refused.iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of flows that packet threads still have to handle.
    fn waiting_for_threads(&self) -> u64 {
        self.sent.saturating_sub(self.installed + self.covered + self.refused_total())
    }

    /// Returns the number of flows that packet threads or the NIC still have to handle.
    fn waiting(&self) -> u64 {
        self.waiting_for_threads() + self.nic_waiting
    }
}

impl PreloadReport {
    /// Returns the summary line for standard output.
    pub(crate) fn line(&self) -> String {
        if self.flows == 0 {
            return "0 flows\n".to_owned();
        }
        let PreloadCounts { installed, covered, nic_accepted, nic_refused, .. } = self.counts;
        let mut line = format!(
            "{} on {}: {installed} installed, {covered} covered, {} refused\n",
            counted(self.flows, "flow"),
            counted(self.threads, "packet thread"),
            self.counts.refused_total(),
        );
        if nic_accepted + nic_refused + self.counts.nic_waiting > 0 {
            let _ = writeln!(
                line,
                "NIC: {nic_accepted} accepted, {nic_refused} refused (`shuntctl caches` has the \
                 reasons), {} waiting",
                self.counts.nic_waiting
            );
        }
        line
    }

    /// Returns an error if flows have no entries.
    pub(crate) fn result(&self) -> Result<(), CallError> {
        let refused = self.counts.refused.iter();
        let mut reasons: Vec<String> = refused
            .map(|(reason, count)| format!("{reason} {count}{}", self.hint(reason)))
            .collect();
        let waiting = self.counts.waiting_for_threads();
        if waiting > 0 {
            reasons.push(format!(
                "{waiting} still wait (packets come first: see `shuntctl forecast`)"
            ));
        }
        if reasons.is_empty() {
            return Ok(());
        }
        Err(CallError::Refused(format!("flows without an entry: {}", reasons.join(", "))))
    }

    /// Returns the rule behind a reason, and what to do, in parentheses.
    ///
    /// The result is empty for a reason of a newer daemon.
    fn hint(&self, reason: &str) -> String {
        let hint = match reason {
            "expired" => "their time passed while they waited: raise `--seconds`",
            "queue_full" => "too many flows waited: repeat the command",
            "forecasts_full" => {
                return format!(
                    " (a packet thread keeps entries of at most {} flows without a hit: raise \
                     `foresight.entries`)",
                    self.entries
                );
            }
            "hidden_state" => "arriving packets have no registers and no metadata: leave them out",
            "no_such_port" => "no packet thread receives from `in_port`: see `shuntctl ports`",
            "translation_error" => "the tables drop the flow with an error: see `shuntctl trace`",
            "learns" => "the switch would learn, which only a packet may cause",
            "unknown_bits" => "the rules match bits that the mask of the flow leaves open",
            "no_room" => "three quarters of the cache are in use: raise the size of the cache",
            "reports_full" => "the eviction thread does not keep up: repeat the command",
            "no_entries" => "this kind of cache gets no entries of forecasts: see `caches.kind`",
            _ => return String::new(),
        };
        format!(" ({hint})")
    }
}

/// Returns a random share of the flows.
///
/// Each call selects the same flows, and a larger share includes all flows of a smaller share.
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

/// Returns the flows of a capture: the first of all frames with equal headers.
fn frames(name: &str, file: File, in_port: &str) -> Result<BTreeSet<String>, String> {
    let mut reader = PcapReader::new(name, file).map_err(|error| error.to_string())?;
    let (mut flows, mut seen, mut key) = (BTreeSet::new(), HashSet::new(), FlowKey::ZERO);
    while let Some(packet) = reader.next_packet().map_err(|error| error.to_string())? {
        // Flows that differ in the second VLAN tag are `covered`, if the daemon reads one tag.
        extract(packet.frame, VlanLimit::Two, &mut key);
        if !seen.insert(SparseKey::from(&key)) {
            continue;
        }
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

    use shunt_flow::testing::packet::PacketBuilder;
    use shunt_pcap::PcapWriter;

    use super::*;

    #[test]
    fn flows_without_an_entry_are_an_error() {
        let counts = |installed, refused: &[(&str, u64)]| PreloadCounts {
            sent: 20,
            installed,
            refused: refused.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            ..PreloadCounts::default()
        };
        let report = |counts| PreloadReport { flows: 20, threads: 1, entries: 16, counts };
        let good = report(counts(20, &[]));
        assert_eq!(
            good.line(),
            "20 flows on 1 packet thread: 20 installed, 0 covered, 0 refused\n"
        );
        assert!(good.result().is_ok());
        let full = report(counts(16, &[("forecasts_full", 4)])).result().unwrap_err();
        assert!(
            full.to_string()
                .contains("forecasts_full 4 (a packet thread keeps entries of at most 16")
        );
        let refused = [("no_such_port", 2), ("learns", 1), ("of_a_newer_daemon", 3)];
        let refused = report(counts(14, &refused)).result().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "flows without an entry: no_such_port 2 (no packet thread receives from `in_port`: see \
             `shuntctl ports`), learns 1 (the switch would learn, which only a packet may cause), \
             of_a_newer_daemon 3"
        );
        let busy = report(counts(19, &[])).result().unwrap_err();
        assert!(busy.to_string().contains("1 still wait"), "{busy}");
        // Flows that the NIC refused keep their entries in software, so this is no error.
        let nic = PreloadCounts { nic_accepted: 17, nic_refused: 3, ..counts(20, &[]) };
        let nic = report(nic);
        assert!(nic.line().contains("\nNIC: 17 accepted, 3 refused ("), "{}", nic.line());
        assert!(nic.result().is_ok());
    }

    /// Returns the flows of a file, or the error.
    fn request(file: &Path, in_port: Option<&'static str>) -> Result<BTreeSet<String>, String> {
        flows_of(PreloadRequest { bridge: "br0", file, in_port, seconds: 1, percent: 100 })
    }

    #[test]
    fn text_file_has_one_flow_per_line() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"# flows\nin_port=1,arp # first\n\nin_port=2,ip\n").unwrap();
        let flows = request(file.path(), None).unwrap();
        assert!(flows.iter().eq(["in_port=1,arp", "in_port=2,ip"]));
    }

    #[test]
    fn a_larger_preload_includes_a_smaller_one() {
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

    #[test]
    fn packets_with_equal_headers_are_one_flow() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = PcapWriter::new(file.reopen().unwrap()).unwrap();
        for (source_port, payload) in [(4000, 1_u8), (4000, 2), (4001, 1)] {
            let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(source_port, 53);
            writer.write(0, &packet.payload([payload; 8]).build()).unwrap();
        }
        drop(writer.into_inner());
        assert_eq!(request(file.path(), Some("p1")).unwrap().len(), 2);
    }
}
