//! The forwarding pipeline: verifying, saving and committing a program.
//!
//! The P4Info is kept as the bytes that came, so that what this server does not know of it comes back.
//! To commit clears all entries; to reconcile keeps them, which is possible exactly if the program is
//! the one that runs. Source: P4Runtime, "SetForwardingPipelineConfig RPC".

use prost::Message;

use super::{device::Device, store::Store};
use crate::{
    error::RequestError,
    schema::{Schema, SchemaError},
    wire::p4::{
        config::v1::P4Info,
        v1::{
            ForwardingPipelineConfig, get_forwarding_pipeline_config_request::ResponseType,
            set_forwarding_pipeline_config_request::Action,
        },
    },
};

/// What runs, and what is saved to run.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    running: Option<ForwardingPipelineConfig>,
    saved: Option<Verified>,
    pub(super) store: Store,
}

/// A configuration that has been checked.
#[derive(Clone, Debug)]
struct Verified {
    config: ForwardingPipelineConfig,
    info: P4Info,
    schema: Schema,
}

impl Pipeline {
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn set(
        &mut self,
        device: &mut dyn Device,
        action: i32,
        config: Option<ForwardingPipelineConfig>,
    ) -> Result<(), RequestError> {
        let action = Action::try_from(action).unwrap_or_default();
        if action == Action::Unspecified {
            return Err(RequestError::Unknown("action"));
        }
        if action == Action::Commit {
            if config.is_some() {
                return Err(RequestError::Config);
            }
            let saved = self.saved.take().ok_or(RequestError::NothingSaved)?;
            self.commit(device, saved);
            return Ok(());
        }
        let verified = verify(device, config.ok_or(RequestError::Config)?)?;
        match action {
            Action::VerifyAndSave => self.saved = Some(verified),
            Action::VerifyAndCommit => self.commit(device, verified),
            Action::ReconcileAndCommit => {
                let is_same = self.running.as_ref().is_some_and(|running| {
                    running.p4info == verified.config.p4info
                        && running.p4_device_config == verified.config.p4_device_config
                });
                if self.is_running() && !is_same {
                    return Err(RequestError::Unserved("reconciling with another program"));
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

    fn commit(&mut self, device: &mut dyn Device, verified: Verified) {
        device.commit(&verified.info, &verified.schema);
        self.store = Store::new(verified.schema);
        self.running = Some(verified.config);
        self.saved = None;
    }

    pub(super) fn get(&self, kind: i32) -> Result<Option<ForwardingPipelineConfig>, RequestError> {
        let kind =
            ResponseType::try_from(kind).map_err(|_| RequestError::Unknown("response type"))?;
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

fn verify(device: &dyn Device, config: ForwardingPipelineConfig) -> Result<Verified, RequestError> {
    let bytes = config.p4info.as_deref().ok_or(RequestError::Config)?;
    let info = P4Info::decode(bytes).map_err(|_| SchemaError::Undecodable)?;
    let schema = Schema::read(&info)?;
    device.verify(&info, &config.p4_device_config).map_err(RequestError::Program)?;
    Ok(Verified { config, info, schema })
}
