//! The forwarding pipeline: verification, saving and committing of a program.
//!
//! The P4Info is stored as the received bytes, so that unknown fields are returned. A commit clears
//! all entries. A reconcile keeps the entries, and is possible only if the program is already
//! running. Source: P4Runtime, "SetForwardingPipelineConfig RPC".

use prost::Message;

use super::{device::Device, store::EntryStore};
use crate::{
    error::RpcError,
    schema::{Schema, SchemaError},
    wire::p4::{
        config::v1::P4Info,
        v1::{
            ForwardingPipelineConfig, get_forwarding_pipeline_config_request::ResponseType,
            set_forwarding_pipeline_config_request::Action,
        },
    },
};

/// The running configuration, the saved configuration, and the entries.
#[derive(Debug, Default)]
pub(super) struct ForwardingPipeline {
    running: Option<ForwardingPipelineConfig>,
    saved: Option<Verified>,
    pub(super) store: EntryStore,
}

/// A verified configuration.
#[derive(Clone, Debug)]
struct Verified {
    config: ForwardingPipelineConfig,
    info: P4Info,
    schema: Schema,
}

impl ForwardingPipeline {
    /// Returns whether a program was committed.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Executes a request `SetForwardingPipelineConfig`.
    pub(super) fn set(
        &mut self,
        device: &mut dyn Device,
        action: i32,
        config: Option<ForwardingPipelineConfig>,
    ) -> Result<(), RpcError> {
        let action = Action::try_from(action).unwrap_or_default();
        if action == Action::Unspecified {
            return Err(RpcError::Unknown("action"));
        }
        if action == Action::Commit {
            if config.is_some() {
                return Err(RpcError::Config);
            }
            let saved = self.saved.take().ok_or(RpcError::NothingSaved)?;
            self.commit(device, saved);
            return Ok(());
        }
        let verified = verify(device, config.ok_or(RpcError::Config)?)?;
        match action {
            Action::VerifyAndSave => self.saved = Some(verified),
            Action::VerifyAndCommit => self.commit(device, verified),
            Action::ReconcileAndCommit => {
                let is_same = self.running.as_ref().is_some_and(|running| {
                    running.p4info == verified.config.p4info
                        && running.p4_device_config == verified.config.p4_device_config
                });
                if self.is_running() && !is_same {
                    return Err(RpcError::Unserved(
                        "reconcile with a program that is not the running one",
                    ));
                }
                if is_same {
                    self.running = Some(verified.config);
                } else {
                    self.commit(device, verified);
                }
            }
            Action::Verify | Action::Commit | Action::Unspecified => {}
        }
        Ok(())
    }

    /// Loads a verified configuration into the device.
    fn commit(&mut self, device: &mut dyn Device, verified: Verified) {
        device.commit(&verified.info, &verified.schema);
        self.store = EntryStore::new(verified.schema);
        self.running = Some(verified.config);
        self.saved = None;
    }

    /// Returns the parts of the configuration that a request selects.
    pub(super) fn get(&self, kind: i32) -> Result<Option<ForwardingPipelineConfig>, RpcError> {
        let kind = ResponseType::try_from(kind).map_err(|_| RpcError::Unknown("response type"))?;
        let Some(config) = self.running.clone() else { return Ok(None) };
        let (info, program) = (config.p4info, config.p4_device_config);
        let (p4info, p4_device_config) = match kind {
            ResponseType::All => (info, program),
            ResponseType::CookieOnly => (None, Vec::new()),
            ResponseType::P4infoAndCookie => (info, Vec::new()),
            ResponseType::DeviceConfigAndCookie => (None, program),
        };
        Ok(Some(ForwardingPipelineConfig { p4info, p4_device_config, cookie: config.cookie }))
    }
}

/// Checks a configuration against the device.
fn verify(device: &dyn Device, config: ForwardingPipelineConfig) -> Result<Verified, RpcError> {
    let bytes = config.p4info.as_deref().ok_or(RpcError::Config)?;
    let info = P4Info::decode(bytes).map_err(|_| SchemaError::Undecodable)?;
    let schema = Schema::read(&info)?;
    device.verify(&info, &config.p4_device_config).map_err(RpcError::Program)?;
    Ok(Verified { config, info, schema })
}
