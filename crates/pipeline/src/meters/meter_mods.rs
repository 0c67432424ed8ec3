//! Meter-mods: changes of the meters of a bridge (OpenFlow 1.3.5, 7.3.4.4).
//!
//! As in Open vSwitch, a modified meter keeps the time of its addition, starts with full buckets
//! and counts from zero.

use std::{collections::BTreeSet, sync::Arc};

use super::meter::{Meter, MeterCommand, MeterMod, MeterModError};
use crate::{
    bridges::bridge::VersionedBridge,
    id::{BridgeId, MeterId},
    tables::rule::Rule,
    update::batch::UpdateBatch,
    versions::delta::{Delta, Object, RemovedReason},
};

impl UpdateBatch {
    /// Applies one request. If it fails, nothing has changed.
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
                    let all = bridge.meters.iter(version).map(|(meter, _)| meter).collect();
                    self.delete_meters(id, bridge, all);
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
                self.delete_meters(id, bridge, old.map(|_| meter).into_iter().collect());
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

    /// Deletes meters, and the rules that use them.
    fn delete_meters(
        &mut self,
        id: BridgeId,
        bridge: &mut VersionedBridge,
        meters: BTreeSet<MeterId>,
    ) {
        if meters.is_empty() {
            return;
        }
        let passes_one = |rule: &Rule| !rule.instructions.meters().is_disjoint(&meters);
        for rule in bridge.rules_with(self.version(), passes_one) {
            self.remove(bridge, rule, RemovedReason::MeterDelete);
        }
        for meter in meters {
            bridge.meters.end(meter, self.version());
            self.push(Delta::Changed(Object::Meter(id, meter)));
        }
    }
}
