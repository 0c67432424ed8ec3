//! Groups, meters and choices by a hash in the oracle, by recursion.

use shunt_flow::{FieldId, PortNo};

use super::{
    hash::hash,
    walker::{Role, Walker},
};
use crate::{
    action::{BundleAction, BundleAlgorithm, MultipathAction, MultipathAlgorithm},
    groups::group::{Bucket, GroupKind, GroupMod, Selection},
    id::{GroupId, MeterId},
    meters::meter::{MeterBandKind, MeterConfig, MeterUnit},
    traversals::traversal::TraversalError,
};

impl Walker<'_> {
    /// Executes a group with its buckets.
    pub(super) fn group(&mut self, id: GroupId) -> Result<(), TraversalError> {
        let Some(group) = self.find_group(id) else { return Ok(()) };
        let chosen = match group.kind {
            GroupKind::All | GroupKind::Indirect => {
                self.passes.note_choice(self.id(), id, None);
                for bucket in &group.buckets {
                    self.bucket(bucket)?;
                }
                return Ok(());
            }
            GroupKind::FastFailover => group.buckets.iter().position(|bucket| self.is_live(bucket)),
            GroupKind::Select => self.select(&group),
        };
        let Some(chosen) = chosen else { return Ok(()) };
        self.passes.note_choice(self.id(), id, Some(chosen));
        self.bucket(&group.buckets[chosen])
    }

    /// Executes a bucket on a copy of the packet.
    fn bucket(&mut self, bucket: &Bucket) -> Result<(), TraversalError> {
        self.bound()?;
        let result = self.nested(|copy| {
            copy.role.in_bucket = true;
            copy.depth += 1;
            copy.list(&Self::ordered(&bucket.actions))?;
            copy.has_exited = false;
            Ok(())
        });
        // An error for too many labels drops only the copy of this bucket.
        let is_over = matches!(result, Err(TraversalError::TooManyMplsLabels(_)));
        if is_over { Ok(()) } else { result }
    }

    /// Returns the group of the current bridge, or `None` if there is none.
    fn find_group(&self, id: GroupId) -> Option<GroupMod> {
        self.model.bridges[&self.id()].groups.get(&id).cloned()
    }

    /// Returns whether the port or group that the bucket watches is live.
    fn is_live(&self, bucket: &Bucket) -> bool {
        let group_is_live = |id| {
            let watched = self.find_group(id);
            watched.is_some_and(|group| group.buckets.iter().any(|bucket| self.is_live(bucket)))
        };
        match (bucket.watch_port, bucket.watch_group) {
            (PortNo::ANY, None) => true,
            (port, group) => self.is_up(port) || group.is_some_and(group_is_live),
        }
    }

    /// Returns whether the bridge has the port and it can carry packets.
    fn is_up(&self, port: PortNo) -> bool {
        self.port(port).is_some_and(|port| self.is_usable(port))
    }

    /// Chooses a bucket by weighted hash.
    /// Each bucket gets a pseudo-random time, exponential with its weight as rate; the earliest
    /// wins.
    fn select(&self, group: &GroupMod) -> Option<usize> {
        let (basis, values) = match &group.selection {
            Selection::Default => (0, self.packet.connection()),
            Selection::DatapathHash { basis } => (*basis, self.packet.connection()),
            Selection::Fields { basis, fields } => {
                let there = fields.iter().filter(|(field, _)| self.packet.has(*field));
                let masked = |(field, mask): &(FieldId, _)| self.packet.key().field(*field) & mask;
                (*basis, there.map(masked).collect())
            }
        };
        let time = |bucket: &Bucket| {
            let drawn = hash(basis, &[&values[..], &[bucket.id.into()]].concat());
            #[expect(clippy::cast_precision_loss, reason = "a float holds 52 bits")]
            let share = ((drawn >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            -share.ln() / f64::from(bucket.weight)
        };
        let chances = group.buckets.iter().enumerate();
        chances
            .filter(|(_, bucket)| bucket.weight > 0 && self.is_live(bucket))
            .min_by(|(_, one), (_, other)| time(one).total_cmp(&time(other)))
            .map(|(index, _)| index)
    }

    /// Executes a `multipath` action.
    pub(super) fn multipath(&mut self, action: &MultipathAction) {
        let values = self.packet.hashed(action.fields);
        let whole = |more: &[u128]| hash(action.basis.into(), &[&values[..], more].concat());
        let short = |more: &[u128]| whole(more) >> 32;
        let count = u64::from(action.link_max) + 1;
        let link = match action.algorithm {
            MultipathAlgorithm::ModuloN => short(&[]) % count,
            MultipathAlgorithm::HashThreshold => short(&[]) / (0xffff_ffff / count + 1),
            MultipathAlgorithm::HighestRandomWeight if count > 64 => short(&[]) % count,
            MultipathAlgorithm::HighestRandomWeight => {
                (0..count).max_by_key(|link| whole(&[(*link).into()])).unwrap_or(0)
            }
            MultipathAlgorithm::IterativeHash => {
                let argument = u64::from(action.argument);
                let fits = count <= argument && argument / 2 <= count;
                let modulus = if fits { argument } else { count.next_power_of_two() };
                let mut rounds = (0..64).map(|round| short(&[round]) % modulus);
                rounds.find(|link| *link < count).unwrap_or_else(|| short(&[]) % count)
            }
        };
        let target = action.target;
        self.set(target.field, u128::from(link) << target.offset, target.bits());
    }

    /// Executes a `bundle` action.
    pub(super) fn bundle(&mut self, action: &BundleAction) -> Result<(), TraversalError> {
        let members = (0_u128..).zip(&action.members).filter(|(_, port)| {
            matches!(**port, PortNo::IN_PORT | PortNo::FLOOD | PortNo::ALL) || self.is_up(**port)
        });
        let values = self.packet.hashed(action.fields);
        let weight = |place: u128| hash(action.basis.into(), &[&values[..], &[place]].concat());
        let chosen = match action.algorithm {
            BundleAlgorithm::ActiveBackup => members.min_by_key(|(place, _)| *place),
            BundleAlgorithm::HighestRandomWeight => members.max_by_key(|(place, _)| weight(*place)),
        };
        let port = chosen.map(|(_, port)| *port);
        match action.target {
            Some(target) => {
                let number = port.map_or(0xffff, |port| port.number() & 0xffff);
                self.set(target.field, u128::from(number) << target.offset, target.bits());
                Ok(())
            }
            None => port.map_or(Ok(()), |port| self.output(port, 0)),
        }
    }

    /// Passes a meter: the packet is dropped, gets another DSCP, or passes unchanged.
    pub(super) fn meter(&mut self, id: MeterId) {
        if self.model.bridges[&self.id()].meters.contains_key(&id) {
            self.passes.pass_meter();
        }
        match self.acting(id) {
            Some(MeterBandKind::Drop) => self.is_muted = true,
            Some(MeterBandKind::DscpRemark { precedence }) => {
                self.packet.remark(|dscp| remark(dscp, precedence));
            }
            None => {}
        }
        if self.is_muted {
            self.passes.note_meter();
        }
    }

    /// Returns the kind of the acting band of a meter that packets exceed.
    /// `None` if the meter has no such band.
    pub(super) fn acting(&self, id: MeterId) -> Option<MeterBandKind> {
        let MeterConfig { unit, bands, .. } = self.model.bridges[&self.id()].meters.get(&id)?;
        // Generated bands are exceeded by no packet or by all packets.
        let exceeded =
            bands.iter().filter(|band| *unit == MeterUnit::Kilobits && band.burst_size == 1);
        exceeded.rev().max_by_key(|band| band.rate).map(|band| band.kind)
    }
}

impl Role {
    pub(super) const NONE: Self = Self { in_set: false, in_bucket: false };
}

/// Returns a DSCP with its drop precedence raised by `levels`.
/// Only DSCPs of assured forwarding change.
fn remark(dscp: u128, levels: u8) -> u128 {
    let assured = [[10, 12, 14], [18, 20, 22], [26, 28, 30], [34, 36, 38]];
    for class in assured {
        if let Some(place) = class.iter().position(|own| *own == dscp) {
            return class[(place + usize::from(levels)).min(2)];
        }
    }
    dscp
}
