//! `shuntctl doctor`: what the host lacks for the ports of a switch, and commands that fix it.
//!
//! If a daemon runs, the checks are about its process and its ports. Without a daemon, the checks
//! are about the calling user and the ports in the configuration file. If the file has no ports,
//! the needs of the usual port types `af_packet` and `tap` are checked.

mod checks;
mod dpdk;
mod system;

use std::{fmt::Write, path::Path, process::ExitCode};

use serde::Serialize;
use serde_json::{Value, json};

use self::{
    checks::{PortNeeds, RunningDaemon},
    dpdk::DpdkNeeds,
    system::HostSystem,
};
use super::{connect, print, value};
use crate::{config, http::HttpService, render::counted, rpc::RpcClient};

/// The result of one check of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct HostCheck {
    /// The outcome of the check.
    state: CheckState,
    /// The checked object, such as `CAP_NET_RAW`.
    subject: String,
    /// The result as a sentence.
    detail: String,
    /// Command that fixes the problem, if there is such a command.
    mend: Option<String>,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckState {
    /// The checked requirement is met.
    Ok,
    /// A hint: the switch works without the object.
    Note,
    /// The object is missing, and the switch or a port does not work without it.
    Missing,
    /// The object exists, but the switch cannot work with its present state.
    Wrong,
}

impl HostCheck {
    /// Returns a check that succeeded.
    fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        let (subject, detail) = (subject.into(), detail.into());
        Self { state: CheckState::Ok, subject, detail, mend: None }
    }

    /// Returns a check that is only information.
    fn note(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { state: CheckState::Note, ..Self::ok(subject, detail) }
    }

    /// Returns a check that failed, because something is missing.
    fn missing(
        subject: impl Into<String>,
        detail: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        let mend = Some(mend.into());
        Self { state: CheckState::Missing, mend, ..Self::ok(subject, detail) }
    }

    /// Returns a check that failed, because something is wrong.
    fn wrong(
        subject: impl Into<String>,
        detail: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { state: CheckState::Wrong, ..Self::missing(subject, detail, mend) }
    }
}

/// Checks the host, and prints the results.
///
/// The exit code is 1 if any check has the state missing or wrong.
pub(super) fn doctor(run_dir: &Path, config: &Path, json: bool) -> ExitCode {
    let system = HostSystem::new("/");
    report(&run_checks(&system, run_dir, config), json)
}

/// Checks what DPDK ports with some network cards need, and prints the results.
pub(super) fn doctor_of_dpdk(cards: &[String], json: bool) -> ExitCode {
    report(&DpdkNeeds::of_cards(cards).checks(&HostSystem::new("/")), json)
}

/// Prints the results of checks; the exit code is 1 if one failed.
fn report(checks: &[HostCheck], json: bool) -> ExitCode {
    print(&if json { json_of(checks) } else { text_of(checks) });
    if is_complete(checks) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all checks of the host.
fn run_checks(system: &HostSystem, run_dir: &Path, config: &Path) -> Vec<HostCheck> {
    let mut checks = Vec::new();
    let daemon = match connect(run_dir) {
        Ok(mut client) => {
            let daemon = running_daemon(&mut client, system, run_dir);
            if daemon.is_none() {
                checks.push(HostCheck::note(
                    "daemon",
                    "the daemon answers, but without its process and ports; the checks below are \
                     about this user",
                ));
            }
            daemon
        }
        Err(error) => {
            checks.push(HostCheck::note(
                "daemon",
                format!("{error}; the checks below are about this user"),
            ));
            None
        }
    };
    if let Some(daemon) = daemon {
        checks.extend(daemon.checks(system));
    } else {
        checks.extend(checks_of_user(system, run_dir, config));
    }
    checks.extend(checks::service(system));
    checks
}

/// Requests the ports and threads of a running daemon.
///
/// `None` if no daemon answers, or its process id is not known.
fn running_daemon(
    client: &mut RpcClient,
    system: &HostSystem,
    run_dir: &Path,
) -> Option<RunningDaemon> {
    let process = system.daemon_of(run_dir)?;
    let mut ask = |method| client.call(method, &[]).ok().map(|text| value(&text));
    Some(RunningDaemon { process, bridges: ask("shunt/show")?, threads: ask("shunt/threads")? })
}

/// Checks the needs of a daemon that this user would start with a file.
fn checks_of_user(system: &HostSystem, run_dir: &Path, config: &Path) -> Vec<HostCheck> {
    let mut checks = Vec::new();
    let shown = config.display();
    let needs = match config::read(config) {
        _ if !config.exists() => {
            let detail = format!("{shown} does not exist, so the usual port types are checked");
            checks.push(HostCheck::note("configuration", detail));
            PortNeeds::default()
        }
        Ok(file) => {
            let needs = PortNeeds::of_config(&file.switch());
            let ports = counted(needs.ports, "port");
            checks.push(HostCheck::ok("configuration", format!("{shown} is valid, with {ports}")));
            checks.extend(HttpService::check(&file.http).err().map(|error| {
                let mend = format!("shuntd --config {shown} --check");
                HostCheck::wrong("HTTP server", error.to_string(), mend)
            }));
            needs
        }
        Err(error) => {
            let mend = format!("shuntd --config {shown} --check");
            checks.push(HostCheck::wrong("configuration", error.in_one_line(), mend));
            PortNeeds::default()
        }
    };
    checks.extend(needs.checks_of_user(system));
    checks.push(checks::run_dir(run_dir));
    checks
}

/// Returns the number of checks with a state.
fn count(checks: &[HostCheck], state: CheckState) -> usize {
    checks.iter().filter(|check| check.state == state).count()
}

/// Returns whether no check has the state missing or wrong.
fn is_complete(checks: &[HostCheck]) -> bool {
    [CheckState::Missing, CheckState::Wrong].iter().all(|state| count(checks, *state) == 0)
}

/// Returns the results of the checks as JSON.
fn json_of(checks: &[HostCheck]) -> String {
    let (missing, wrong) = (count(checks, CheckState::Missing), count(checks, CheckState::Wrong));
    let all: Value = json!({"checks": checks, "missing": missing, "wrong": wrong});
    format!("{all}\n")
}

/// Returns the results of the checks as text, one line for each.
fn text_of(checks: &[HostCheck]) -> String {
    let mut text = String::new();
    for HostCheck { state, subject, detail, mend } in checks {
        let state = match state {
            CheckState::Ok => "ok",
            CheckState::Note => "note",
            CheckState::Missing => "missing",
            CheckState::Wrong => "wrong",
        };
        let _ = writeln!(text, "{state:<8} {subject}: {detail}");
        for (number, line) in mend.iter().flat_map(|mend| mend.lines()).enumerate() {
            let word = if number == 0 { "run:" } else { "" };
            let _ = writeln!(text, "         {word:<4} {line}");
        }
    }
    let verdict = match (count(checks, CheckState::Missing), count(checks, CheckState::Wrong)) {
        (0, 0) => "nothing is missing".to_owned(),
        (missing, 0) => format!("{missing} missing"),
        (0, wrong) => format!("{wrong} wrong"),
        (missing, wrong) => format!("{missing} missing, {wrong} wrong"),
    };
    let _ = writeln!(text, "{}, {verdict}", counted(checks.len() as u64, "check"));
    text
}

#[cfg(test)]
mod tests;
