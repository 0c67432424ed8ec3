//! Meter-mods: changes of the meters of a bridge (OpenFlow 1.3.5, 7.3.4.4).
//!
//! As in Open vSwitch, a modified meter keeps the time of its addition, starts with full buckets
//! and counts from zero.

use std::sync::Arc;

use super::meter::{Meter, MeterCommand, MeterMod, MeterModError};
use crate::{
    bridges::bridge::VersionedBridge,
    id::{BridgeId, MeterId},
    update::{batch::UpdateBatch, pending::RuleSelection},
    versions::delta::{Delta, Object},
};

impl UpdateBatch {
    /// Applies one request for a meter. A request that fails changes nothing.
    pub(crate) fn change_meter(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        request: MeterMod,
    ) -> Result<(), MeterModError> {
        let version = self.version();
        let Some(meter) = request.meter else {
            return match request.command {
                MeterCommand::Delete => {
                    self.note(RuleSelection::DeleteMeters(None));
                    Ok(())
                }
                MeterCommand::Add | MeterCommand::Modify => {
                    Err(MeterModError::Invalid(MeterId::ALL))
                }
            };
        };
        let old = bridge.meters.find(meter, version).map(|old| old.created);
        match request.command {
            MeterCommand::Delete => {
                if old.is_some() {
                    self.note(RuleSelection::DeleteMeters(Some(meter)));
                }
                return Ok(());
            }
            MeterCommand::Add if old.is_some() => return Err(MeterModError::Exists(meter)),
            MeterCommand::Modify if old.is_none() => return Err(MeterModError::Unknown(meter)),
            MeterCommand::Add | MeterCommand::Modify => {}
        }
        if meter.number() == 0 || meter > MeterId::MAX {
            return Err(MeterModError::Invalid(meter));
        }
        let bands_count = request.config.bands.len();
        if bands_count > Meter::BANDS_MAX {
            return Err(MeterModError::TooManyBands(bands_count));
        }
        if old.is_none() && bridge.meters.count() >= Meter::COUNT_MAX {
            return Err(MeterModError::TooMany(Meter::COUNT_MAX));
        }
        let created = old.unwrap_or_else(|| self.now());
        let value = Meter::since(meter, id, request.config, created, self.now());
        bridge.meters.set(meter, Arc::new(value), version);
        self.push(Delta::Changed(Object::Meter(id, meter)));
        Ok(())
    }
}
