//! The start of the switch, with the bridges and rules of the last run.

use std::sync::Arc;

use shunt_switch::{Switch, with_causes};
use tracing::error;

use super::{
    Arguments, DaemonError, InheritedSockets,
    descriptor_store::ServiceDescriptors,
    random_seed,
    state_file::{Resumed, StateFile, StateReadError, copy_newer},
    tls_identity,
};
use crate::config::ConfigFile;

/// Starts the switch by the configuration file and the state file.
///
/// Frees the start configuration and the state file, of which the switch has its own copy. Both
/// together have half a megabyte for 1,000 ports.
pub(super) async fn start_switch(
    arguments: &Arguments,
    file: &ConfigFile,
    sockets: &InheritedSockets,
) -> Result<(Arc<Switch>, Resumed), DaemonError> {
    let saved = read_state(arguments, file)?;
    let config = match &saved {
        // The saved state has the bridges with all changes of the last run.
        Some(saved) => saved.start_config(&file.switch()),
        None => file.switch(),
    };
    let (run_dir, seed) = (Some(arguments.run_dir.clone()), random_seed());
    let InheritedSockets { descriptors, listening } = sockets;
    let store = Arc::<ServiceDescriptors>::clone(descriptors);
    let (tls, shared) = (tls_identity(file), Arc::clone(listening));
    let started = Switch::start_inheriting(&config, run_dir, seed, store, shared, tls).await;
    let switch = Arc::new(started.map_err(|error| DaemonError::Switch(with_causes(&error)))?);
    let resumed = match (&saved, &arguments.state) {
        (Some(saved), Some(path)) => {
            let resumed = saved.resume(path, &switch, &file.switch()).await;
            resumed.map_err(DaemonError::State)?
        }
        _ => Resumed { may_write: true, loaded: file.switch(), refused: Vec::new() },
    };
    Ok((switch, resumed))
}

/// Reads the state file, and applies the log filter in it.
fn read_state(arguments: &Arguments, file: &ConfigFile) -> Result<Option<StateFile>, DaemonError> {
    let saved = match arguments.state.as_deref().map(StateFile::read).transpose() {
        Ok(saved) => saved.flatten(),
        Err(ref later @ StateReadError::Later { ref path, found }) => {
            let copy = copy_newer(path, found).map_err(DaemonError::State)?;
            let copy = copy.display();
            error!(
                "state file {later}: the daemon starts without it, and keeps it as {copy}: install the \
                 newer version and move the file back"
            );
            None
        }
        Err(StateReadError::Invalid(problem)) => return Err(DaemonError::State(problem)),
    };
    if let Some(saved) = &saved {
        saved.set_start_filter(&file.logging.filter);
    }
    Ok(saved)
}
