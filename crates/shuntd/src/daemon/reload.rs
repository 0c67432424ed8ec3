//! Reload of the configuration file, on SIGHUP or `shuntctl reload`.

use std::{
    fmt::Write,
    path::PathBuf,
    sync::{Arc, Mutex as SyncMutex, PoisonError},
};

use shunt_ovsdb::client::OvsdbRemote;
use shunt_switch::{Config, ReloadReport, Switch};
use tokio::{sync::Mutex, task::spawn_blocking};
use tracing::{info, warn};

use super::{service_manager, trace_log};
use crate::{
    config::{self, ConfigFile},
    http::HttpOptions,
    ovsdb::OvsdbOptions,
    tls::{self, TlsOptions},
};

/// The configuration file of a running daemon, as it was last loaded.
pub(crate) struct Reloader {
    /// The path of the file; `None` without a file.
    path: Option<PathBuf>,
    /// The foreign database of the daemon; a change needs a restart.
    database: Option<OvsdbRemote>,
    /// Locked during a reload, so that reloads run one at a time.
    loaded: Mutex<LoadedFile>,
    switch: Arc<Switch>,
    /// Parts of the last loaded configuration that are not in force.
    not_in_force: SyncMutex<Vec<String>>,
}

/// The beginning of a line about a refused change.
pub(crate) const REFUSED: &str = "refused: ";

/// The last loaded content of the configuration file.
#[derive(Clone)]
pub(crate) struct LoadedFile {
    /// The log filter (`logging.filter`).
    pub(crate) filter: String,
    /// Configuration of the switch, without the changes that are not in force.
    ///
    /// The next reload or start retries these changes.
    pub(crate) config: Config,
    /// Options of the running OVSDB server; a change needs a restart.
    ovsdb: OvsdbOptions,
    /// Options of the running HTTP server; a change needs a restart.
    http: HttpOptions,
    /// Paths of the TLS files in force; their content may change at any time.
    tls: TlsOptions,
}

impl Reloader {
    /// Creates the reloader of a daemon that was started with `file`.
    ///
    /// `config` is the configuration of that file without the refused changes, and `refused` lists
    /// these changes. `database` is the foreign database that the daemon uses.
    pub(crate) fn new(
        path: Option<PathBuf>,
        database: Option<OvsdbRemote>,
        file: ConfigFile,
        config: Config,
        refused: &[String],
        switch: Arc<Switch>,
    ) -> Self {
        let ConfigFile { logging, ovsdb, http, tls, .. } = file;
        let loaded = LoadedFile { filter: logging.filter, config, ovsdb, http, tls };
        let refused = refused.iter().map(|change| format!("{REFUSED}{change}"));
        let not_in_force = SyncMutex::new(refused.collect());
        Self { path, database, loaded: Mutex::new(loaded), switch, not_in_force }
    }

    /// Returns the file as it was last loaded,
    /// without the changes that are not in force.
    pub(crate) async fn loaded(&self) -> LoadedFile {
        self.loaded.lock().await.clone()
    }

    /// Returns the parts of the configuration that are not in force, with the reasons.
    pub(crate) fn not_in_force(&self) -> Vec<String> {
        self.not_in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again and applies its differences from the last load.
    ///
    /// Returns the changes as text, one line each, and logs them.
    ///
    /// # Errors
    ///
    /// If there is no file, or the file is not valid. After an error, nothing has changed.
    pub(crate) async fn reload(&self) -> Result<String, String> {
        // The lock is held to the end, so that the results of two reloads keep their order.
        let mut loaded = self.loaded.lock().await;
        service_manager::notify_reloading();
        let reloaded = self.load(&mut loaded).await;
        let not_in_force = match &reloaded {
            Ok((_, report)) => {
                log(report);
                not_in_force(report)
            }
            Err(problem) => {
                warn!("configuration: not reloaded: {problem}");
                vec![format!("not reloaded: {problem}")]
            }
        };
        *self.not_in_force.lock().unwrap_or_else(PoisonError::into_inner) = not_in_force;
        service_manager::notify_ready(&self.switch);
        reloaded.map(|(text, _)| text)
    }

    /// Reads the file, and applies its differences to the switch.
    async fn load(&self, loaded: &mut LoadedFile) -> Result<(String, ReloadReport), String> {
        let Some(path) = self.path.clone() else {
            let text = "the daemon was started without --config, so there is no file to reload";
            return Err(text.to_owned());
        };
        // The file is read on a blocking thread, because a disk may be slow.
        let read = spawn_blocking(move || config::read(&path).map_err(|error| error.in_one_line()));
        let file = read.await.unwrap_or_else(|error| Err(error.to_string()))?;
        // The connection to the database stays until the daemon ends, and needs the TLS files.
        let database = file.tls.check_database(self.database.as_ref());
        database
            .map_err(|problem| format!("{problem}, or restart the daemon without this database"))?;
        let config = file.switch();
        // Addresses with TLS need the files, so the files are set before the addresses.
        let (changes, remarks) = self.set_tls(&mut loaded.tls, file.tls).await;
        let mut report = self.switch.reload(&loaded.config, &config).await;
        if !changes.is_empty() {
            let bridges = self.switch.running_config().bridges;
            report.remarks.extend(tls::address_warnings(self.switch.tls(), &bridges));
        }
        report.applied.extend(changes);
        report.remarks.extend(remarks);
        loaded.config = report.in_force(&loaded.config, &config);
        let keys = loaded.ovsdb.keys_that_differ(&file.ovsdb);
        report.at_restart.extend(keys.map(str::to_owned));
        let keys = loaded.http.keys_that_differ(&file.http);
        report.at_restart.extend(keys.map(str::to_owned));
        if loaded.filter != file.logging.filter {
            trace_log::set(&file.logging.filter)?;
            report.applied.push(format!("logging.filter={}", file.logging.filter));
            loaded.filter = file.logging.filter;
        }
        Ok((text(&report, "no changes to apply\n"), report))
    }

    /// Puts changed TLS files in force, for connections that are opened later.
    ///
    /// Returns the keys that are in force now. The function also returns remarks: the changed keys
    /// that are not in force, because a database has other files, and the reason why the files
    /// cannot be used.
    async fn set_tls(
        &self,
        loaded: &mut TlsOptions,
        new: TlsOptions,
    ) -> (Vec<String>, Vec<String>) {
        let changes = loaded.changes_to(&new);
        if changes.is_empty() {
            return (changes, Vec::new());
        }
        let files = new.files();
        self.switch.tls().set(files.clone());
        *loaded = new;
        let problem = spawn_blocking(move || files.as_ref().and_then(tls::problem)).await;
        let problem = problem.unwrap_or_default();
        if self.switch.tls().is_replaced() {
            let not_used = tls::not_used(&changes);
            return (Vec::new(), [not_used].into_iter().chain(problem).collect());
        }
        (changes, problem.into_iter().collect())
    }
}

/// Returns the changes in a report that are not in force.
fn not_in_force(report: &ReloadReport) -> Vec<String> {
    let refused = report.refused.iter().map(|change| format!("{REFUSED}{change}"));
    let waiting = report.at_restart.iter();
    let waiting = waiting.map(|key| format!("{key} takes effect at the next start"));
    refused.chain(waiting).collect()
}

/// Returns a report as text; `nothing` is the text of an empty report.
pub(crate) fn text(report: &ReloadReport, nothing: &str) -> String {
    let mut text = String::new();
    for change in &report.applied {
        let _ = writeln!(text, "{change}");
    }
    for remark in &report.remarks {
        let _ = writeln!(text, "{remark}");
    }
    for change in &report.refused {
        let _ = writeln!(text, "{REFUSED}{change}");
    }
    for key in &report.at_restart {
        let _ = writeln!(text, "takes effect at the next start: {key}");
    }
    if text.is_empty() {
        text.push_str(nothing);
    }
    text
}

/// Logs the outcome of a reload for each object.
fn log(report: &ReloadReport) {
    for change in &report.applied {
        info!("configuration: {change}");
    }
    for remark in &report.remarks {
        warn!("configuration: {remark}");
    }
    for change in &report.refused {
        warn!("configuration: {REFUSED}{change}");
    }
    for key in &report.at_restart {
        warn!("configuration: {key} takes effect at the next start");
    }
    info!(
        applied = report.applied.len(),
        refused = report.refused.len(),
        at_restart = report.at_restart.len(),
        "configuration: reloaded"
    );
}
