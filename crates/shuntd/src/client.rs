//! `shuntctl`: asks a running daemon.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

use clap::{Parser, Subcommand};
use serde_json::Value;

use crate::{
    metrics, render, render_caches, render_evict,
    rpc::{CallError, Client},
    run_dir, setting,
};

/// Asks a running shuntd, and tells it what to do.
///
/// Rules are OpenFlow's business: `ovs-ofctl -O OpenFlow13 .. unix:RUN_DIR/BRIDGE.mgmt`.
#[derive(Debug, Parser)]
#[command(name = "shuntctl", version)]
struct Arguments {
    /// The run directory of the daemon.
    #[arg(long, value_name = "DIR", default_value = "/run/shunt", global = true)]
    run_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bridges, their ports and controllers.
    Show {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ports with their counters.
    Ports {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a bridge.
    AddBr {
        /// Its name: at most 15 bytes.
        name: String,
    },
    /// Remove a bridge with its ports and rules.
    DelBr {
        /// Its name.
        name: String,
    },
    /// Add a port: `add-port br0 eth1`, `add-port br0 tap1 type=tap`.
    AddPort {
        /// The bridge.
        bridge: String,
        /// The name of the port: at most 15 bytes.
        name: String,
        /// type=af_packet|tap|pcap|patch|null, number=N, device=NAME, rx=FILE, tx=FILE,
        /// repeat=once|endless, peer=PORT, vlan_mode=MODE, tag=VLAN, trunks=VLAN,VLAN..
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Remove a port.
    DelPort {
        /// Its name.
        name: String,
    },
    /// Give a port its VLANs, as NORMAL sees them: `set-vlans eth1 tag=10`, `set-vlans eth2
    /// vlan_mode=trunk trunks=10,20`. What is not said is as for a new port; so without any word the
    /// port is a trunk of all VLANs again.
    SetVlans {
        /// The port.
        name: String,
        /// vlan_mode=access|trunk|native-tagged|native-untagged, tag=VLAN, trunks=VLAN,VLAN..
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// The MAC addresses that NORMAL knows in a bridge.
    Macs {
        /// The bridge.
        bridge: String,
    },
    /// Change settings while the daemon runs, at once: `set caches.idle_ms=5000`, `set logging.filter=debug`.
    Set {
        /// caches.kind=megaflow|gigaflow, caches.idle_ms=MILLISECONDS, caches.verify_one_in=HITS,
        /// caches.gigaflow.KEY=VALUE, caches.gigaflow.target.KEY=VALUE, threads.translations_per_iteration=COUNT,
        /// eviction.asynchronous=true|false, eviction.repair=off|on|rate,
        /// eviction.repair_rate=ENTRIES_A_SECOND, logging.filter=FILTER.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// What `set` changes, as it is in force.
    Settings {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Hits of the caches, misses, evictions.
    Caches {
        /// As JSON.
        #[arg(long, conflicts_with_all = ["line", "metrics"])]
        json: bool,
        /// In one line.
        #[arg(long, conflicts_with = "metrics")]
        line: bool,
        /// As metrics, in the text format of Prometheus.
        #[arg(long)]
        metrics: bool,
    },
    /// Cache entries, each with its name, those with most packets first.
    Entries {
        /// How many; 0: all.
        #[arg(long, default_value_t = 20)]
        count: u64,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// What the eviction engine keeps, how long changes take, what they evicted and why.
    Evict {
        /// As JSON.
        #[arg(long, conflicts_with = "metrics")]
        json: bool,
        /// As metrics, in the text format of Prometheus.
        #[arg(long)]
        metrics: bool,
    },
    /// Why a cache entry is there: the lookups that must find again what they found, and what else must
    /// stay as it is. Of one that was evicted lately: which change ended it.
    ///
    /// `shuntctl entries` lists entries with their names. A name is three numbers: the packet thread,
    /// a slot, and how often the slot was used before; so a name is never given twice.
    ///
    /// An entry is evicted when a rule that decided one of its lookups goes or changes, when a rule
    /// comes that outranks it and overlaps what the lookup consulted, or when something that it reads
    /// changes: a group, the ports, a MAC address. Besides, an entry goes when it is idle for too long;
    /// then nothing is remembered of it.
    Why {
        /// The entry, as `shuntctl entries` names it: `0.17.2`.
        entry: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Which rules decide the fate of a packet, and with which mask.
    Trace {
        /// The bridge.
        bridge: String,
        /// `in_port=1,tcp,nw_dst=10.0.0.1,tp_dst=80`, or a frame in hexadecimal.
        flow: String,
        /// A frame in hexadecimal; FLOW then says where it comes in.
        frame: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Where packets went, and why those that went nowhere did.
    Drops {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Live: packets a second, hits, drops. Ends with Ctrl-C.
    Top {
        /// Seconds between two looks.
        #[arg(long, default_value_t = 1)]
        interval: u64,
        /// Looks before it ends; 0: never.
        #[arg(long, default_value_t = 0)]
        count: u64,
    },
    /// Copy packets of a port, or those that are dropped, to a capture file or to standard output:
    /// `shuntctl capture p1 | tcpdump -r -`.
    Capture {
        /// A port, or `drops`.
        place: String,
        /// The file; standard output if there is none.
        file: Option<PathBuf>,
        /// Packets before it ends; 0: until Ctrl-C.
        #[arg(long, default_value_t = 0)]
        count: u64,
    },
    /// Stop the daemon.
    Exit,
}

/// How often a capture is fetched from the daemon.
const CAPTURE_INTERVAL: Duration = Duration::from_millis(100);

/// Runs one command.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            match error {
                CallError::Refused(_) => ExitCode::FAILURE,
                CallError::NoDaemon { .. } | CallError::Unreachable { .. } | CallError::Broken => {
                    ExitCode::from(3)
                }
            }
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command talks to its user")]
fn complain(error: &CallError) {
    eprintln!("shuntctl: {error}");
    if let CallError::NoDaemon { .. } | CallError::Unreachable { .. } = error {
        eprintln!("is shuntd running, and is --run-dir the one that it was started with?");
    }
}

fn run(arguments: &Arguments) -> Result<(), CallError> {
    let mut client = connect(&arguments.run_dir)?;
    match &arguments.command {
        Command::Show { json: true } => shown(&mut client, "shunt/show", &[], true, render::show),
        Command::Show { json: false } => {
            shown(&mut client, "shunt/show", &[], false, render::show)?;
            shown(&mut client, "shunt/threads", &[], false, render::threads)
        }
        Command::Ports { json: true } => {
            let bridges = value(&client.call("shunt/show", &[])?);
            print(&format!("{}\n", render::ports_of(&bridges)));
            Ok(())
        }
        Command::Ports { json: false } => {
            shown(&mut client, "shunt/show", &[], false, render::ports)
        }
        Command::AddBr { name } => silent(&mut client, "shunt/add-bridge", &[name]),
        Command::DelBr { name } => silent(&mut client, "shunt/del-bridge", &[name]),
        Command::AddPort { bridge, name, settings } => {
            let words = settings.iter().map(|word| setting::resolved(word));
            let settings: Vec<_> = words.collect::<Result<_, _>>().map_err(CallError::Refused)?;
            let before = [bridge.as_str(), name];
            silent(&mut client, "shunt/add-port", &followed_by(&before, &settings))
        }
        Command::DelPort { name } => silent(&mut client, "shunt/del-port", &[name]),
        Command::SetVlans { name, settings } => {
            silent(&mut client, "shunt/set-vlans", &followed_by(&[name], settings))
        }
        Command::Macs { bridge } => {
            print(&client.call("fdb/show", &[bridge])?);
            Ok(())
        }
        Command::Set { settings } => silent(&mut client, "shunt/set", &followed_by(&[], settings)),
        Command::Settings { json } => {
            shown(&mut client, "shunt/settings", &[], *json, render::settings)
        }
        Command::Caches { json, line, metrics } => {
            let (table, parameters): (fn(&Value) -> String, &[&str]) = match (line, metrics) {
                (true, _) => (render_caches::caches_line, &[]),
                (_, true) => (metrics::caches, &["coverage"]),
                _ => (render_caches::caches, &["coverage"]),
            };
            shown(&mut client, "shunt/caches", parameters, *json, table)
        }
        Command::Entries { count, json } => {
            let table = render_evict::entries;
            shown(&mut client, "shunt/entries", &[&count.to_string()], *json, table)
        }
        Command::Evict { json, metrics } => {
            let table = if *metrics { metrics::evict } else { render_evict::evict };
            shown(&mut client, "shunt/evict", &[], *json, table)
        }
        Command::Why { entry, json } => {
            shown(&mut client, "shunt/why", &[entry], *json, render_evict::why)
        }
        Command::Trace { bridge, flow, frame, json } => {
            let mut parameters = vec![bridge.as_str(), flow];
            parameters.extend(frame.as_deref());
            let method = if *json { "shunt/trace" } else { "ofproto/trace" };
            print(&client.call(method, &parameters)?);
            Ok(())
        }
        Command::Drops { json } => shown(&mut client, "shunt/drops", &[], *json, render::drops),
        Command::Top { interval, count } => top(&mut client, *interval, *count),
        Command::Capture { place, file, count } => {
            capture(&mut client, place, file.as_deref(), *count)
        }
        Command::Exit => silent(&mut client, "exit", &[]),
    }
}

/// Connects to the daemon of a run directory.
fn connect(folder: &Path) -> Result<Client, CallError> {
    let missing = |why| CallError::NoDaemon { folder: folder.display().to_string(), why };
    Client::connect(&run_dir::find_socket(folder).map_err(missing)?)
}

fn silent(client: &mut Client, method: &str, parameters: &[&str]) -> Result<(), CallError> {
    client.call(method, parameters).map(|_| ())
}

/// Words, and settings behind them.
fn followed_by<'a>(words: &[&'a str], settings: &'a [String]) -> Vec<&'a str> {
    words.iter().copied().chain(settings.iter().map(String::as_str)).collect()
}

fn shown(
    client: &mut Client,
    method: &str,
    parameters: &[&str],
    json: bool,
    table: fn(&Value) -> String,
) -> Result<(), CallError> {
    let text = client.call(method, parameters)?;
    print(&if json { text } else { table(&value(&text)) });
    Ok(())
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Writes to standard output; a reader that went away ends the command quietly.
fn print(text: &str) {
    let written = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

/// Clears a terminal, and goes to its upper left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

fn top(client: &mut Client, interval: u64, count: u64) -> Result<(), CallError> {
    let clear = if io::stdout().is_terminal() { CLEAR } else { "" };
    let mut before: Option<render::Snapshot> = None;
    let mut looks = 0;
    loop {
        let now = render::Snapshot {
            bridges: value(&client.call("shunt/show", &[])?),
            caches: value(&client.call("shunt/caches", &[])?),
            drops: value(&client.call("shunt/drops", &[])?),
        };
        if let Some(before) = &before {
            print(&format!("{clear}{}", render::top(before, &now, interval)));
            looks += 1;
        }
        if count > 0 && looks >= count {
            return Ok(());
        }
        before = Some(now);
        sleep(Duration::from_secs(interval.max(1)));
    }
}

fn capture(
    client: &mut Client,
    place: &str,
    file: Option<&Path>,
    count: u64,
) -> Result<(), CallError> {
    let broken = |error: io::Error| CallError::Refused(format!("cannot write: {error}"));
    let mut output: Box<dyn Write> = match file {
        Some(path) => Box::new(File::create(path).map_err(broken)?),
        None => Box::new(io::stdout()),
    };
    let id = client.call("shunt/capture-start", &[place])?;
    let id = id.trim();
    output.write_all(&render::PCAP_HEADER).map_err(broken)?;
    let mut written = 0;
    while count == 0 || written < count {
        let packets = value(&client.call("shunt/capture-read", &[id])?);
        let packets = packets.as_array().map_or(&[][..], Vec::as_slice);
        let left = usize::try_from(count - written).unwrap_or(usize::MAX);
        let wanted = if count == 0 { packets.len() } else { packets.len().min(left) };
        for packet in &packets[..wanted] {
            output.write_all(&render::pcap_record(packet)).map_err(broken)?;
            written += 1;
        }
        output.flush().map_err(broken)?;
        if wanted == 0 {
            sleep(CAPTURE_INTERVAL);
        }
    }
    client.call("shunt/capture-stop", &[id]).map(|_| ())
}
