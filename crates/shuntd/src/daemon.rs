//! `shuntd`: the switch as a daemon.

use std::{
    hash::{BuildHasher, Hasher},
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Parser, Subcommand};
use miette::{Diagnostic, Report};
use shunt_switch::{Switch, with_causes};
use thiserror::Error;
use tokio::{
    net::UnixListener,
    signal::unix,
    sync::{Notify, Semaphore},
};
use tracing::{info, warn};

use crate::{
    config::{self, ConfigFile, ConfigFileError},
    methods::DaemonMethods,
    nic::{self, NicArguments},
    rpc,
    run_dir::{ClaimError, RunDir},
    trace_log,
};

/// Run a virtual switch for hypervisors and container hosts.
///
/// Reads bridges, ports and controllers from a TOML file, and forwards packets until it is stopped.
/// Answers `shuntctl` and `ovs-appctl` on a socket in its run directory. Rules come from OpenFlow
/// 1.3 controllers, or from `ovs-ofctl -O OpenFlow13 .. unix:RUN_DIR/BRIDGE.mgmt`.
#[derive(Debug, Parser)]
#[command(name = "shuntd", version)]
struct Arguments {
    /// Read this configuration file; without it the daemon starts without bridges.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Create sockets and the pid file in this directory; create it if needed.
    #[arg(long, value_name = "DIR", default_value = "/run/shunt")]
    run_dir: PathBuf,
    /// Check the configuration file and exit.
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// The subcommands of the daemon.
#[derive(Debug, Subcommand)]
enum Command {
    Nic(NicArguments),
}

/// Maximum number of clients at a time; further connections are closed at once.
const CLIENTS_MAX: usize = 64;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A reason why the daemon does not run.
#[derive(Debug, Error, Diagnostic)]
enum DaemonError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Config(#[from] ConfigFileError),
    #[error("{0}")]
    Logging(String),
    #[error("{0}")]
    Switch(String),
    #[error("{0}")]
    Nic(String),
    #[error("{0}")]
    #[diagnostic(help("stop it with `shuntctl --run-dir {1} exit`, or use another --run-dir"))]
    Running(String, String),
    // The report shows the error of the system in a separate line.
    #[error("cannot {doing}")]
    System { doing: String, source: io::Error },
}

impl DaemonError {
    /// Returns the exit code.
    ///
    /// 2 for an invalid configuration, 3 if another daemon runs, else 1.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) | Self::Logging(_) => ExitCode::from(2),
            Self::Running(..) => ExitCode::from(3),
            Self::Switch(_) | Self::Nic(_) | Self::System { .. } => ExitCode::FAILURE,
        }
    }
}

impl From<ClaimError> for DaemonError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::System { doing, source } => Self::System { doing, source },
            ClaimError::Taken { ref folder, .. } => {
                Self::Running(error.to_string(), folder.clone())
            }
        }
    }
}

/// Runs the daemon until it is stopped.
#[must_use]
pub fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.exit_code();
            print_error(error);
            code
        }
    }
}

#[expect(clippy::print_stderr, reason = "the reason why a daemon does not start is for its user")]
fn print_error(error: DaemonError) {
    eprintln!("{:?}", Report::new(error));
}

fn run(arguments: &Arguments) -> Result<(), DaemonError> {
    let file = match &arguments.config {
        Some(path) => config::read(path)?,
        None => ConfigFile::default(),
    };
    if arguments.check {
        return Ok(());
    }
    trace_log::start(&file.logging.filter).map_err(DaemonError::Logging)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("shunt-control")
        .enable_all()
        .build()
        .map_err(system("start the control threads"))?;
    match &arguments.command {
        Some(Command::Nic(arguments)) => runtime.block_on(serve_nic(arguments)),
        None => {
            let run_dir = RunDir::claim(&arguments.run_dir)?;
            runtime.block_on(serve(&file.switch(), &arguments.run_dir, run_dir.socket()))
        }
    }
}

async fn serve_nic(arguments: &NicArguments) -> Result<(), DaemonError> {
    let mut terminate = unix::signal(unix::SignalKind::terminate()).map_err(system("wait"))?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    let run = nic::run(arguments, random_seed(), stop).await;
    run.map_err(|error| DaemonError::Nic(with_causes(&error)))
}

/// Returns a random seed, so that peers cannot choose keys that collide.
fn random_seed() -> u64 {
    foldhash::quality::RandomState::default().build_hasher().finish()
}

async fn serve(
    config: &shunt_switch::Config,
    folder: &Path,
    socket: &Path,
) -> Result<(), DaemonError> {
    let started = Switch::start(config, Some(folder.to_path_buf()), random_seed()).await;
    let switch = Arc::new(started.map_err(|error| DaemonError::Switch(with_causes(&error)))?);
    let listener =
        UnixListener::bind(socket).map_err(system(&format!("listen on {}", socket.display())))?;
    let stop = Arc::new(Notify::new());
    let methods = Arc::new(DaemonMethods::new(Arc::clone(&switch), Arc::clone(&stop)));
    info!(socket = %socket.display(), bridges = config.bridges.len(), "shuntd {}: ready", env!("CARGO_PKG_VERSION"));
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    let mut terminate = unix::signal(unix::SignalKind::terminate()).map_err(system("wait"))?;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => {
                        let methods = Arc::clone(&methods);
                        tokio::spawn(async move {
                            rpc::serve(stream, methods).await;
                            drop(place);
                        });
                    }
                    Err(_) => warn!(max = CLIENTS_MAX, "control socket: connection refused, too many clients"),
                },
                Err(error) => {
                    warn!(%error, "control socket: accept failed");
                    // Without a free descriptor the next attempt would fail at once.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = stop.notified() => break,
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    info!("shuntd: stopping");
    switch.stop().await;
    Ok(())
}

fn system(doing: &str) -> impl FnOnce(io::Error) -> DaemonError {
    let doing = doing.to_owned();
    move |source| DaemonError::System { doing, source }
}
