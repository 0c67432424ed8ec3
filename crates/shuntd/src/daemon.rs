//! `shuntd`: the switch as a daemon.

pub(crate) mod control_threads;
mod descriptor_store;
mod hang_watch;
mod limits;
mod nic;
mod passed_descriptors;
mod privileges;
pub(crate) mod reload;
mod sandbox;
mod service_manager;
mod signals;
mod start;
pub(crate) mod state_file;
mod state_keeper;
pub(crate) mod trace_log;

use std::{
    hash::{BuildHasher, Hasher},
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{CommandFactory, Parser, Subcommand};
use miette::{Diagnostic, Report};
use shunt_ovsdb::client::OvsdbRemote;
use shunt_switch::{ControlTask, ListeningSockets, Switch, with_causes};
use shunt_tls::TlsIdentity;
use thiserror::Error;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tracing::{info, warn};

use self::{
    descriptor_store::ServiceDescriptors,
    nic::NicArguments,
    privileges::{Account, AccountError},
    reload::Reloader,
    sandbox::{SandboxError, WriteRestriction},
    signals::{Signal, Signals},
    start::start_switch,
    state_file::{Resumed, StateLock, StateLockError},
    state_keeper::StateKeeper,
};
use crate::{
    appctl::DaemonMethods,
    config::{self, ConfigFile, ConfigFileError},
    connection_places::ConnectionPlaces,
    http::{HttpService, HttpStartError},
    listener_log::ListenerLog,
    ovsdb::{OvsdbOptions, OvsdbService, OvsdbStartError},
    rpc,
    run_dir::{ClaimError, RunDir, remove_if_present},
    tls,
};

/// Run a virtual switch for hypervisors and container hosts.
///
/// Reads bridges, ports and controllers from a TOML file, and forwards packets until it is stopped.
/// Answers `shuntctl` and `ovs-appctl` on a socket in its run directory. Rules come from OpenFlow
/// controllers, or from `ovs-ofctl .. unix:RUN_DIR/BRIDGE.mgmt`.
#[derive(Debug, Parser)]
#[command(name = "shuntd", version)]
struct Arguments {
    /// Read this configuration file; without it the daemon starts without bridges.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Create sockets and the pid file in this directory; create it if needed.
    #[arg(long, value_name = "DIR", default_value = "/run/shunt")]
    run_dir: PathBuf,
    /// Restore bridges, ports, settings and rules from this file, and update it.
    ///
    /// The file is created if it does not exist, written after changes and at the end, and replaced
    /// as a whole. Changes of the configuration file since the last run are applied.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Follow the Open_vSwitch database of this server.
    ///
    /// SERVER is unix:FILE, tcp:IP[:PORT] or, with the files of [tls], ssl:IP[:PORT]. Bridges and
    /// ports are then those of the database, as with ovs-vswitchd. The daemon takes the lock
    /// `ovs_vswitchd`, and waits while another switch owns it.
    #[arg(long, value_name = "SERVER")]
    db: Option<OvsdbRemote>,
    /// Run as this user (USER or USER:GROUP), with the capabilities that ports need.
    ///
    /// shuntd must be started as root. The run directory is created for the user. The user
    /// must own the configuration, the state file and the database.
    #[arg(long, value_name = "USER")]
    user: Option<Account>,
    /// Change files only below DIR, the run directory and that of the state file.
    ///
    /// May be given several times. Such files are captures, and the sockets of vhost-user and memif
    /// ports that listen. Ports of DPDK need /var/run/dpdk. Needs Linux 5.13 with Landlock.
    #[arg(long, value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// Check the configuration file, with the files of the HTTP server, and exit.
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

/// Name of the control socket in the set of listening sockets.
const CONTROL: &str = "control";

/// Pause after a failed accept on the control socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum time to wait for the last counts of the packet threads.
const LAST_COUNTS_MAX: Duration = Duration::from_secs(1);

/// The reason why the daemon does not run.
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
    #[diagnostic(help("move the file away to start without its bridges, ports and rules"))]
    State(String),
    #[error("{0}")]
    #[diagnostic(help("create its directory, or name another file with --state"))]
    StateNotKept(String),
    #[error("{0}")]
    #[diagnostic(help("stop that daemon, or name another file with --state"))]
    StateTaken(String),
    #[error("{0}")]
    Database(String),
    #[error("{0}")]
    Nic(String),
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Ovsdb(#[from] OvsdbStartError),
    #[error(transparent)]
    Http(#[from] HttpStartError),
    /// A check of the configuration has found a file that the HTTP server cannot use.
    #[error(transparent)]
    HttpFiles(HttpStartError),
    #[error("{0}")]
    #[diagnostic(help("stop it with `shuntctl --run-dir {1} exit`, or use another --run-dir"))]
    Running(String, String),
    #[error("{0}")]
    RunDir(String),
    // The report prints the error of the operating system in a separate line.
    #[error("cannot {doing}")]
    System { doing: String, source: io::Error },
}

impl DaemonError {
    /// Returns the exit code of the daemon.
    ///
    /// The code is 2 for an invalid configuration, state file or option, 3 if another daemon has
    /// the run directory or the state file, and otherwise 1.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_)
            | Self::Logging(_)
            | Self::State(_)
            | Self::StateNotKept(_)
            | Self::Database(_)
            | Self::HttpFiles(_)
            | Self::Account(_)
            | Self::Sandbox(_) => ExitCode::from(2),
            Self::Running(..) | Self::StateTaken(_) => ExitCode::from(3),
            Self::Switch(_)
            | Self::RunDir(_)
            | Self::Nic(_)
            | Self::Ovsdb(_)
            | Self::Http(_)
            | Self::System { .. } => ExitCode::FAILURE,
        }
    }
}

impl From<ClaimError> for DaemonError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::System { doing, source } => Self::System { doing, source },
            ClaimError::Unusable { .. } => Self::RunDir(error.to_string()),
            ClaimError::Taken { ref folder, .. } => {
                Self::Running(error.to_string(), folder.clone())
            }
        }
    }
}

impl From<StateLockError> for DaemonError {
    fn from(error: StateLockError) -> Self {
        match error {
            StateLockError::Taken { .. } => Self::StateTaken(error.to_string()),
            StateLockError::System { .. } => Self::StateNotKept(error.to_string()),
        }
    }
}

/// Returns the command line of `shuntd`, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
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

/// Prints an error of the start.
#[expect(clippy::print_stderr, reason = "the reason why a daemon does not start is for its user")]
fn print_error(error: DaemonError) {
    eprintln!("{:?}", Report::new(error));
}

/// Prints warnings of the configuration.
#[expect(clippy::print_stderr, reason = "a check writes no log")]
fn print_warnings(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// Starts the daemon, and runs it until a signal ends it.
fn run(arguments: &Arguments) -> Result<(), DaemonError> {
    let restriction = restrict(arguments)?;
    let runtime = control_threads::start().map_err(system("start the control threads"))?;
    let mut signals = Signals::install(&runtime).map_err(system("wait for signals"))?;
    let file = match &arguments.config {
        Some(path) => config::read(path)?,
        None => ConfigFile::default(),
    };
    let ovsdb = file.database(arguments.db.as_ref()).map_err(DaemonError::Database)?;
    if arguments.check {
        HttpService::check(&file.http).map_err(DaemonError::HttpFiles)?;
        print_warnings(&file.switch().datapath_id_warnings());
        return Ok(());
    }
    if arguments.state.is_some() && ovsdb.is_enabled() {
        // The state file and the database would both restore the bridges.
        let problem = "--state cannot be used with --db or [ovsdb]: the database keeps the bridges; \
                       remove one";
        return Err(DaemonError::Switch(problem.to_owned()));
    }
    trace_log::start(&file.logging.filter).map_err(DaemonError::Logging)?;
    let descriptors = Arc::new(ServiceDescriptors::new());
    limits::raise_open_files();
    if let Err(error) = sandbox::refuse_system_calls() {
        warn!(%error, "sandbox");
    }
    if restriction == Some(WriteRestriction::Partial) {
        warn!(
            "--writable protects only in part: this kernel lets the daemon truncate files \
             outside the directories; use Linux 6.2 or later"
        );
    }
    match &arguments.command {
        Some(Command::Nic(arguments)) => runtime.block_on(serve_nic(arguments, signals)),
        None => {
            let sockets = InheritedSockets::new(descriptors);
            let claimed = runtime.block_on(claim(arguments, &sockets.listening, &mut signals))?;
            let Some(mut locks) = claimed else { return Ok(()) };
            let socket = locks.run_dir.socket();
            let serve = serve(arguments, file, &ovsdb, socket, &sockets, signals);
            let served = runtime.block_on(serve);
            // The runtime owns network devices. The locks are held until all devices are closed.
            drop(runtime);
            if sockets.listening.are_kept() && !matches!(served, Ok(StopReason::Request)) {
                locks.run_dir.leave();
            } else {
                sockets.listening.release_all();
            }
            drop(locks);
            served.map(|_reason| ())
        }
    }
}

/// Changes the user of the process, and restricts its access to files.
///
/// Returns how far the kernel restricts changes of files; `None` without `--writable`. The process
/// must still have a single thread, because capabilities and restrictions belong to threads.
fn restrict(arguments: &Arguments) -> Result<Option<WriteRestriction>, DaemonError> {
    if arguments.check {
        return Ok(None);
    }
    if let Some(account) = &arguments.user {
        privileges::become_account(account, &arguments.run_dir)?;
    }
    if arguments.writable.is_empty() {
        return Ok(None);
    }
    let run_dir = &arguments.run_dir;
    std::fs::create_dir_all(run_dir).map_err(system(&format!("create {}", run_dir.display())))?;
    let of_state = arguments.state.as_deref().and_then(Path::parent).map(|parent| {
        // The parent of a file name without a directory is empty.
        if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
    });
    let own = [Some(run_dir.as_path()), of_state].into_iter().flatten().map(Path::to_owned);
    let directories: Vec<PathBuf> = arguments.writable.iter().cloned().chain(own).collect();
    Ok(Some(sandbox::restrict_writes(&directories)?))
}

/// The descriptors that systemd keeps: queues of ports, and listening sockets.
struct InheritedSockets {
    descriptors: Arc<ServiceDescriptors>,
    /// The listening sockets in the store.
    listening: Arc<ListeningSockets>,
}

impl InheritedSockets {
    fn new(descriptors: Arc<ServiceDescriptors>) -> Self {
        let store = Arc::<ServiceDescriptors>::clone(&descriptors);
        Self { descriptors, listening: Arc::new(ListeningSockets::new(store)) }
    }
}

/// The reason why a daemon stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// A signal: the service manager may start a next process.
    Signal,
    /// A request of a client, after which no next process is expected.
    Request,
}

/// The files that keep other daemons away.
struct DaemonLocks {
    /// Dropped first, so that the lock of the run directory is released last.
    _state: Option<StateLock>,
    /// The lock of the run directory.
    run_dir: RunDir,
}

/// Locks the run directory and the state file.
///
/// Waits while an earlier daemon ends. Returns `None` if this daemon is stopped meanwhile.
async fn claim(
    arguments: &Arguments,
    listening: &ListeningSockets,
    signals: &mut Signals,
) -> Result<Option<DaemonLocks>, DaemonError> {
    let locks = async {
        let run_dir = RunDir::claim(&arguments.run_dir, &listening.files()).await?;
        let state = match &arguments.state {
            Some(path) => StateLock::lock(path).await?,
            None => None,
        };
        Ok::<_, DaemonError>(DaemonLocks { _state: state, run_dir })
    };
    tokio::select! {
        biased;
        locks = locks => locks.map(Some),
        () = signals.stopped() => {
            info!("shuntd: stopped by a signal while it waited for the end of another daemon");
            Ok(None)
        }
    }
}

/// Runs an embedded NIC alone, until a signal ends it.
async fn serve_nic(arguments: &NicArguments, mut signals: Signals) -> Result<(), DaemonError> {
    let stop = async {
        while let Signal::Reload = signals.next().await {
            info!(
                "nic: the signal SIGHUP is ignored, because the command line is the only \
                 configuration: restart the NIC to change it"
            );
        }
    };
    let run = nic::run(arguments, random_seed(), stop).await;
    run.map_err(|error| DaemonError::Nic(with_causes(&error)))
}

/// Returns a random seed, so that peers cannot choose colliding hash keys.
fn random_seed() -> u64 {
    foldhash::quality::RandomState::default().build_hasher().finish()
}

/// Runs the daemon until a signal or command ends it.
async fn serve(
    arguments: &Arguments,
    file: ConfigFile,
    ovsdb: &OvsdbOptions,
    socket: &Path,
    sockets: &InheritedSockets,
    mut signals: Signals,
) -> Result<StopReason, DaemonError> {
    let (switch, resumed) = start_switch(arguments, &file, sockets).await?;
    let Resumed { may_write, loaded, refused } = resumed;
    let listening = &sockets.listening;
    let database = ovsdb.remote.clone();
    let mut ovsdb = OvsdbService::start(ovsdb, &switch).await?;
    let listener = listen_for_control(listening, socket)
        .map_err(system(&format!("listen on {}", socket.display())))?;
    let stop = Arc::new(Notify::new());
    let http = file.http.clone();
    let config = arguments.config.clone();
    let reloader = Reloader::new(config, database, file, loaded, &refused, Arc::clone(&switch));
    let reloader = Arc::new(reloader);
    let http = HttpService::start(&http, &switch, &reloader, OvsdbService::problem(ovsdb.as_ref()))
        .await?;
    let methods =
        DaemonMethods::start(Arc::clone(&switch), Arc::clone(&reloader), Arc::clone(&stop));
    let methods = Arc::new(methods);
    let keeper = arguments.state.as_ref().filter(|_| may_write).map(|path| {
        let keeper = StateKeeper::new(path.clone(), Arc::clone(&switch), Arc::clone(&reloader));
        Arc::new(keeper)
    });
    let keeping = keeper.clone().map(|keeper| {
        tokio::spawn(ControlTask::new("state file", async move { keeper.run().await }))
    });
    log_ready(arguments, &switch.running_config(), socket);
    service_manager::start(&switch);
    let first_rows = ovsdb.as_mut().and_then(OvsdbService::take_first_rows);
    discard_unused(sockets, &switch, first_rows).await;
    let clients = serve_clients(&listener, &methods, &stop);
    let reason = tokio::select! {
        () = clients => StopReason::Request,
        () = reload_until_stopped(&mut signals, &reloader) => StopReason::Signal,
    };
    info!("shuntd: stopping");
    service_manager::notify_stopping();
    if reason == StopReason::Request || !listening.are_kept() {
        // Without the socket, a daemon that starts now waits for the end of this daemon.
        let _ = std::fs::remove_file(socket);
    }
    HttpService::stop(http).await;
    OvsdbService::stop(ovsdb).await;
    if let (Some(keeper), Some(keeping)) = (keeper, keeping) {
        // The state file contains counters. The timeout ends the wait for a hanging packet thread.
        let _ = tokio::time::timeout(LAST_COUNTS_MAX, switch.pull_counts()).await;
        write_last_state(&keeper, keeping).await;
    }
    switch.stop().await;
    Ok(reason)
}

/// Serves clients of the control socket until a client stops the daemon.
async fn serve_clients(listener: &UnixListener, methods: &Arc<DaemonMethods>, stop: &Notify) {
    let places = ConnectionPlaces::new(rpc::CLIENTS_MAX, None);
    let mut log = ListenerLog::new("control socket");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let accepted = accepted.map(|(stream, _)| stream);
                serve_client(accepted, methods, &places, &mut log).await;
            }
            () = stop.notified() => return,
        }
    }
}

/// Reloads the configuration at each SIGHUP until a signal stops the daemon.
///
/// The reload logs its result, and runs in a separate task, so signals are served meanwhile.
async fn reload_until_stopped(signals: &mut Signals, reloader: &Arc<Reloader>) {
    while let Signal::Reload = signals.next().await {
        let reloader = Arc::clone(reloader);
        tokio::spawn(async move { drop(reloader.reload().await) });
    }
}

/// Opens the control socket, or takes over the socket of an earlier process.
fn listen_for_control(listening: &ListeningSockets, path: &Path) -> io::Result<UnixListener> {
    if let Some(socket) = listening.inherited_unix(CONTROL, path) {
        return UnixListener::from_std(socket);
    }
    remove_if_present(path)?;
    let listener = UnixListener::bind(path)?;
    listening.keep_unix(CONTROL, path, listener.as_fd());
    Ok(listener)
}

/// Returns the key and the certificates of TLS connections.
fn tls_identity(file: &ConfigFile) -> TlsIdentity {
    let identity = TlsIdentity::default();
    let files = file.tls.files();
    if let Some(problem) = files.as_ref().and_then(tls::problem) {
        // The files are read at each handshake, so the daemon starts despite the error.
        warn!("{problem}");
    }
    identity.set(files);
    identity
}

/// Discards stored descriptors that no port and no listener has taken.
///
/// All ports of the configuration, of the state and of the database must be open before. If the
/// rows of a foreign database arrive later, the call waits for `first_rows`.
async fn discard_unused(
    sockets: &InheritedSockets,
    switch: &Arc<Switch>,
    first_rows: Option<oneshot::Receiver<()>>,
) {
    let descriptors = Arc::clone(&sockets.descriptors);
    let (listening, switch) = (Arc::clone(&sockets.listening), Arc::clone(switch));
    let discard = async move {
        // Controllers may wait for restored rules, and then their listeners are opened later.
        if !switch.holds_packets().await {
            listening.release_unused();
        }
        descriptors.discard_unused();
    };
    let Some(first_rows) = first_rows else { return discard.await };
    tokio::spawn(async move {
        // Until rows have arrived, the ports of the database are not known.
        if first_rows.await.is_ok() {
            discard.await;
        }
    });
}

/// Serves a client of the control socket in its own task, if the limit permits.
async fn serve_client(
    accepted: io::Result<UnixStream>,
    methods: &Arc<DaemonMethods>,
    places: &Arc<ConnectionPlaces>,
    log: &mut ListenerLog,
) {
    let stream = match accepted {
        Ok(stream) => stream,
        Err(error) => {
            log.log_failed(&error);
            // The cause may be a lack of descriptors, so an immediate second attempt would fail.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return;
        }
    };
    let Some(place) = places.insert() else {
        log.log_refused(rpc::CLIENTS_MAX);
        rpc::refuse_new(stream);
        return;
    };
    tokio::spawn(rpc::serve(stream, Arc::clone(methods), place));
}

/// Writes the state file at the end.
async fn write_last_state(keeper: &StateKeeper, keeping: JoinHandle<()>) {
    // The periodic write must not run at the same time as the last write.
    keeping.abort();
    let _ = keeping.await;
    keeper.write().await;
}

/// Logs that the daemon serves clients, with its version, file, ports and threads.
fn log_ready(arguments: &Arguments, config: &shunt_switch::Config, socket: &Path) {
    let file =
        arguments.config.as_ref().map_or_else(|| "none".into(), |file| file.display().to_string());
    info!(
        config = file,
        socket = %socket.display(),
        bridges = config.bridges.len(),
        ports = config.bridges.iter().map(|bridge| bridge.ports.len()).sum::<usize>(),
        packet_threads = config.threads.packet,
        "shuntd {}: ready",
        env!("CARGO_PKG_VERSION")
    );
}

/// Returns a function that makes the error of a failed system call.
fn system(doing: &str) -> impl FnOnce(io::Error) -> DaemonError {
    let doing = doing.to_owned();
    move |source| DaemonError::System { doing, source }
}
