//! `shuntctl`: the command-line client of a running daemon.

mod arguments;
mod doctor;
mod end_signals;
mod key_help;
mod preload;
mod top;

use std::{
    env,
    fs::File,
    io::{self, Write},
    path::{self, Path},
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

use clap::{CommandFactory, Parser, error::ErrorKind};
use serde_json::Value;

use self::{
    arguments::{Arguments, Command, RUN_DIR_DEFAULT},
    doctor::{doctor, doctor_of_dpdk},
    preload::{PreloadRequest, preload},
};
use crate::{
    daemon::{reload::REFUSED, state_file::write_whole},
    open_vswitch,
    render::{self, caches, drops::drops, evict, forecast::forecast, thread_list::thread_list},
    rpc::{CallError, RpcClient},
    run_dir, setting,
};

/// Maximum time that `shuntctl exit` waits for the end of the daemon.
const EXIT_MAX: Duration = Duration::from_secs(30);

/// Interval between two requests for captured packets.
const CAPTURE_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the command line of `shuntctl`, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command that the command line names.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| refuse(&error));
    if let Command::Doctor { subject, cards, config, json } = &arguments.command {
        return match subject {
            Some(_) => doctor_of_dpdk(cards, *json),
            None => doctor(&arguments.run_dir, config, *json),
        };
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            match error {
                CallError::Refused(_) | CallError::StillRuns { .. } => ExitCode::FAILURE,
                CallError::NoDaemon { .. }
                | CallError::Unreachable { .. }
                | CallError::Ended { .. }
                | CallError::NotPermitted { .. }
                | CallError::NotServed(_)
                | CallError::Interrupted
                | CallError::Broken => ExitCode::from(3),
            }
        }
    }
}

/// Prints an error of the command line and exits.
#[expect(clippy::print_stderr, reason = "a command prints for its user")]
fn refuse(error: &clap::Error) -> ! {
    let words: Vec<String> = env::args().skip(1).collect();
    match usage_hint(error.kind(), &words) {
        Some(hint) => {
            eprintln!("shuntctl: {hint}");
            std::process::exit(USAGE_ERROR)
        }
        None => error.exit(),
    }
}

/// Exit code for an invalid command line.
const USAGE_ERROR: i32 = 2;

/// Returns a hint for a command line that follows the habits of Open vSwitch.
fn usage_hint(error: ErrorKind, words: &[String]) -> Option<String> {
    let has = |command: &str| words.iter().any(|word| word == command);
    match error {
        ErrorKind::InvalidSubcommand => {
            let run_dir = path::absolute(given_run_dir(words)).unwrap_or_default();
            words.iter().find_map(|word| open_vswitch::command_hint(word, &run_dir))
        }
        ErrorKind::UnknownArgument if has("del-port") => {
            Some("del-port takes a port, without its bridge: shuntctl del-port PORT".to_owned())
        }
        ErrorKind::MissingRequiredArgument if has("trace") => {
            Some("trace takes the bridge before the packet: shuntctl trace BRIDGE FLOW".to_owned())
        }
        _ => None,
    }
}

/// Returns the run directory in a command line that is not valid, or the default.
fn given_run_dir(words: &[String]) -> &str {
    let option = "--run-dir";
    let joined = words.iter().find_map(|word| word.strip_prefix(option)?.strip_prefix('='));
    let next = || words.iter().skip_while(|word| *word != option).nth(1).map(String::as_str);
    joined.or_else(next).unwrap_or(RUN_DIR_DEFAULT)
}

/// Prints an error, and advice if the daemon cannot be reached.
#[expect(clippy::print_stderr, reason = "a command prints for its user")]
fn print_error(error: &CallError) {
    eprintln!("shuntctl: {error}");
    if let CallError::NoDaemon { .. } | CallError::Unreachable { .. } = error {
        eprintln!("check that shuntd runs with this --run-dir");
    }
}

fn run(arguments: &Arguments) -> Result<(), CallError> {
    let mut connected = connect(&arguments.run_dir)?;
    let client = &mut connected;
    match &arguments.command {
        Command::Show { json } => show_all(client, *json),
        Command::Ports { json } => show_ports(client, *json),
        Command::Threads { json } => show(client, "shunt/threads", &[], *json, thread_list),
        Command::AddBr { name, settings } => change(client, "shunt/add-bridge", name, settings),
        Command::SetBr { name, settings } => change(client, "shunt/set-bridge", name, settings),
        Command::DelBr { name } => call(client, "shunt/del-bridge", &[name]),
        Command::AddPort { bridge, name, settings } => add_port(client, bridge, name, settings),
        Command::DelPort { name } => call(client, "shunt/del-port", &[name]),
        Command::SetPolicing { name, settings } => {
            change(client, "shunt/set-policing", name, settings)
        }
        Command::SetBfd { name, settings } => change(client, "shunt/set-bfd", name, settings),
        Command::SetQos { name, settings } => change(client, "shunt/set-qos", name, settings),
        Command::SetVlans { name, settings } => change(client, "shunt/set-vlans", name, settings),
        Command::AddBond { bridge, name, settings } => {
            call(client, "shunt/add-bond", &followed_by(&[bridge, name], settings))
        }
        Command::DelBond { bridge, name } => call(client, "shunt/del-bond", &[bridge, name]),
        Command::AddMirror { bridge, name, settings } => {
            call(client, "shunt/add-mirror", &followed_by(&[bridge, name], settings))
        }
        Command::DelMirror { bridge, name } => call(client, "shunt/del-mirror", &[bridge, name]),
        Command::Macs { bridge } => call_and_print(client, "fdb/show", &[bridge]),
        Command::Mdb { bridge } => call_and_print(client, "mdb/show", &[bridge]),
        Command::Reload => apply_and_print(client, "shunt/reload", &[]),
        Command::Save { file } => save(client, file.as_deref()),
        Command::Restore { file } => restore(client, file),
        Command::Set { settings } => call(client, "shunt/set", &followed_by(&[], settings)),
        Command::Settings { json } => show(client, "shunt/settings", &[], *json, render::settings),
        Command::Metrics => call_and_print(client, "shunt/metrics", &[]),
        Command::Caches { metrics: true, .. } => {
            call_and_print(client, "shunt/metrics", &["caches"])
        }
        Command::Caches { json, line, metrics: false } => {
            let (table, parameters): (fn(&Value) -> String, &[&str]) =
                if *line { (caches::caches_line, &[]) } else { (caches::caches, &["rule-space"]) };
            show(client, "shunt/caches", parameters, *json, table)
        }
        Command::Entries { count, json } => {
            show(client, "shunt/entries", &[&count.to_string()], *json, evict::entries)
        }
        Command::Evict { metrics: true, .. } => call_and_print(client, "shunt/metrics", &["evict"]),
        Command::Evict { json, metrics: false } => {
            show(client, "shunt/evict", &[], *json, evict::evict)
        }
        Command::Why { entry, json } => show(client, "shunt/why", &[entry], *json, evict::why),
        Command::Trace { bridge, flow, frame, json } => {
            print_trace(client, [bridge, flow], frame.as_deref(), *json)
        }
        Command::Drops { metrics: true, .. } => call_and_print(client, "shunt/metrics", &["drops"]),
        Command::Drops { json, .. } => {
            let run_dir = path::absolute(&arguments.run_dir).unwrap_or_default();
            show(client, "shunt/drops", &[], *json, |value| drops(value, &run_dir))
        }
        Command::Forecast { json, metrics } => forecasts(client, *json, *metrics),
        Command::Preload { bridge, file, in_port, seconds, percent } => {
            let (in_port, seconds, percent) = (in_port.as_deref(), *seconds, *percent);
            preload_and_print(client, PreloadRequest { bridge, file, in_port, seconds, percent })
        }
        Command::Top { interval, count } => top::run(client, *interval, *count),
        Command::Capture { source, file, count } => {
            capture(client, source, file.as_deref(), *count)
        }
        Command::Exit => exit(connected, &arguments.run_dir),
        // `doctor` works without a daemon.
        Command::Doctor { .. } => Ok(()),
    }
}

/// Prints bridges, controllers and ports; as text, also the threads.
fn show_all(client: &mut RpcClient, json: bool) -> Result<(), CallError> {
    show(client, "shunt/show", &[], json, render::show)?;
    if json { Ok(()) } else { show(client, "shunt/threads", &[], false, render::threads) }
}

/// Prints the ports of all bridges.
fn show_ports(client: &mut RpcClient, json: bool) -> Result<(), CallError> {
    let as_json = |bridges: &Value| format!("{}\n", render::ports_of(bridges));
    show(client, "shunt/show", &[], false, if json { as_json } else { render::ports })
}

/// Prints the trace of a packet that is given by bridge, flow and optional frame.
fn print_trace(
    client: &mut RpcClient,
    packet: [&str; 2],
    frame: Option<&str>,
    json: bool,
) -> Result<(), CallError> {
    let parameters: Vec<&str> = packet.into_iter().chain(frame).collect();
    call_and_print(client, if json { "shunt/trace" } else { "ofproto/trace" }, &parameters)
}

/// Stops a daemon; returns when the daemon has released its run directory.
fn exit(mut client: RpcClient, folder: &Path) -> Result<(), CallError> {
    let socket = run_dir::find_socket(folder)?;
    client.call("exit", &[])?;
    client.wait_for_end(EXIT_MAX)?;
    run_dir::wait_for_release(folder, &socket, EXIT_MAX)
}

/// Calls a method, and prints its changes; fails if any change was refused.
fn apply_and_print(
    client: &mut RpcClient,
    method: &str,
    parameters: &[&str],
) -> Result<(), CallError> {
    let report = client.call(method, parameters)?;
    print(&report);
    match report.lines().filter(|line| line.starts_with(REFUSED)).count() as u64 {
        0 => Ok(()),
        count => Err(CallError::Refused(format!("{} refused", render::counted(count, "change")))),
    }
}

/// Shows the outcomes of forecasts.
fn forecasts(client: &mut RpcClient, json: bool, metrics: bool) -> Result<(), CallError> {
    if metrics {
        return call_and_print(client, "shunt/metrics", &["forecast"]);
    }
    show(client, "shunt/forecast", &[], json, forecast)
}

/// Announces flows, and prints how many were accepted.
fn preload_and_print(client: &mut RpcClient, request: PreloadRequest<'_>) -> Result<(), CallError> {
    let report = preload(client, request)?;
    print(&report.line());
    report.result()
}

/// Connects to the daemon of a run directory.
fn connect(folder: &Path) -> Result<RpcClient, CallError> {
    RpcClient::connect(&run_dir::find_socket(folder)?)
}

/// Calls a method, and prints nothing.
fn call(client: &mut RpcClient, method: &str, parameters: &[&str]) -> Result<(), CallError> {
    client.call(method, parameters).map(|_| ())
}

/// Changes a bridge or port by `KEY=VALUE`, and prints remarks of the daemon.
fn change(
    client: &mut RpcClient,
    method: &str,
    name: &str,
    settings: &[String],
) -> Result<(), CallError> {
    let remarks = client.call(method, &followed_by(&[name], settings))?;
    print_remarks(&remarks);
    Ok(())
}

/// Prints remarks of the daemon about a change that was made, as warnings.
#[expect(clippy::print_stderr, reason = "a command prints for its user")]
fn print_remarks(remarks: &str) {
    remarks.lines().for_each(|remark| eprintln!("warning: {remark}"));
}

/// Adds a port with its settings.
fn add_port(
    client: &mut RpcClient,
    bridge: &str,
    name: &str,
    settings: &[String],
) -> Result<(), CallError> {
    let words = settings.iter().map(|word| setting::resolved(word));
    let settings: Vec<_> = words.collect::<Result<_, _>>().map_err(CallError::Refused)?;
    let remarks = client.call("shunt/add-port", &followed_by(&[bridge, name], &settings))?;
    print_remarks(&remarks);
    Ok(())
}

/// Saves the state of the daemon to a file, or to standard output.
fn save(client: &mut RpcClient, file: Option<&Path>) -> Result<(), CallError> {
    let state = client.call("shunt/save", &[])?;
    let Some(path) = file else {
        print(&state);
        return Ok(());
    };
    let failed = |error| CallError::Refused(format!("cannot write {}: {error}", path.display()));
    write_whole(path, &state).map_err(failed)
}

/// Restores a file; passes its absolute path,
/// because the daemon has another working directory.
fn restore(client: &mut RpcClient, file: &Path) -> Result<(), CallError> {
    let path = path::absolute(file)
        .map_err(|error| CallError::Refused(format!("{}: {error}", file.display())))?;
    apply_and_print(client, "shunt/restore", &[&path.to_string_lossy()])
}

/// Returns the words of a call, followed by settings.
fn followed_by<'a>(words: &[&'a str], settings: &'a [String]) -> Vec<&'a str> {
    words.iter().copied().chain(settings.iter().map(String::as_str)).collect()
}

/// Calls a method, and prints its result unchanged.
fn call_and_print(
    client: &mut RpcClient,
    method: &str,
    parameters: &[&str],
) -> Result<(), CallError> {
    print(&client.call(method, parameters)?);
    Ok(())
}

/// Calls a method, and prints its result as JSON or as a table.
fn show(
    client: &mut RpcClient,
    method: &str,
    parameters: &[&str],
    json: bool,
    table: impl Fn(&Value) -> String,
) -> Result<(), CallError> {
    let text = client.call(method, parameters)?;
    print(&if json { text } else { table(&value(&text)) });
    Ok(())
}

/// Parses JSON; a wrong text is null.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Writes to standard output; if its reader is gone,
/// ends the command without an error.
fn print(text: &str) {
    let written = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

/// Writes captured packets to a file or to standard output.
fn capture(
    client: &mut RpcClient,
    place: &str,
    file: Option<&Path>,
    count: u64,
) -> Result<(), CallError> {
    let target =
        file.map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
    let broken = |error: io::Error| {
        CallError::Refused(format!("cannot write the capture to {target}: {error}"))
    };
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
        // A count beyond `usize` is treated as no limit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_socket_in_run_directory() {
        for (line, run_dir) in [
            ("dump-flows br0", "/run/shunt"),
            ("--run-dir /run/a dump-flows br0", "/run/a"),
            ("dump-flows br0 --run-dir=/run/b", "/run/b"),
            ("dump-flows br0 --run-dir", "/run/shunt"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let hint = usage_hint(ErrorKind::InvalidSubcommand, &words).unwrap();
            assert!(hint.ends_with(&format!(" unix:{run_dir}/BRIDGE.mgmt")), "{line}: {hint}");
        }
    }
}
