//! The effects of a packet, collected between each two parses of the packet.

use super::{
    effects::{Outcome, PacketEffects, Visited},
    learn::{LearnEffect, Refreshed},
};
use crate::{
    id::{BridgeId, GroupId, RuleId, TableId},
    traversals::traversal::TraversalError,
};

/// The walk of a packet from one parse to the next, or to the end of the walk.
#[derive(Default)]
struct PacketPass {
    /// The table lookups in order.
    visited: Vec<Visited>,
    /// The chosen bucket of each group; `None` if a group runs all of them.
    groups: Vec<(BridgeId, GroupId, Option<usize>)>,
    /// The names of the mirrors that copied the packet.
    mirrored: Vec<String>,
    learned: Vec<LearnEffect>,
    /// The rules and addresses of which the packet changed the lifetime.
    refreshed: Vec<Refreshed>,
    /// Length of the frame at the parse with which the pass begins.
    length: usize,
    /// True if the pass sent the packet somewhere.
    has_emitted: bool,
    /// True if the packet passed a meter.
    was_metered: bool,
    /// True if the datapath never reaches this pass, so its effects do not count.
    is_ghost: bool,
    /// True if the packet is dropped because it was parsed too often.
    is_spent: bool,
    /// Numbers of outcomes and errors before the pass began.
    before: (usize, usize),
}

/// All passes of a packet, in the order in which they began.
pub(super) struct PacketPasses {
    all: Vec<PacketPass>,
    /// Index of the current pass.
    current: usize,
    /// Number of parses up to the current pass.
    cuts: u8,
    /// Number of lookups up to the first partition point of the innermost copy.
    /// `None` if there was no partition point since the copy was made.
    resubmits_at_cut: Option<u16>,
    /// Meters passed and copies nested since the innermost copy was made.
    copies: Copies,
    /// Value of `copies` at the first partition point since the innermost copy.
    copies_at_cut: Option<Copies>,
    /// Limit of the parses of the packet and all of its copies together.
    parsed_max: usize,
    /// The frames that have left so far, in order.
    outcomes: Vec<Outcome>,
    /// The errors so far, in order.
    errors: Vec<TraversalError>,
}

/// The nesting of the copies that the datapath makes because of meters.
///
/// The datapath makes a real copy of the packet for a clone or bucket that passes a meter.
#[derive(Clone, Copy, Default)]
struct Copies {
    /// True if the current copy passed a meter.
    is_metered: bool,
    /// Depth of real copies inside.
    nesting: u16,
}

/// The fields of [`PacketPasses`] at the beginning of a copy, restored at its end.
#[derive(Clone, Copy)]
pub(super) struct OuterPass {
    copies: Copies,
    copies_at_cut: Option<Copies>,
    current: usize,
    cuts: u8,
    resubmits_at_cut: Option<u16>,
}

/// The value of `copies` before a packet-in.
pub(super) struct PacketInCopies(Copies);

/// Maximum number of recirculations.
const CUTS_MAX: u8 = 6;
/// Maximum depth of copies in copies.
const COPY_DEPTH_MAX: u16 = 64;

impl PacketPasses {
    /// Returns one pass of a frame of `length` bytes.
    pub(super) fn new(length: usize, parsed_max: usize) -> Self {
        Self {
            all: vec![PacketPass { length, ..PacketPass::default() }],
            current: 0,
            cuts: 0,
            resubmits_at_cut: None,
            copies: Copies::default(),
            copies_at_cut: None,
            parsed_max,
            outcomes: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Begins a copy of the packet.
    pub(super) fn begin(&mut self) -> OuterPass {
        OuterPass {
            copies: std::mem::take(&mut self.copies),
            copies_at_cut: self.copies_at_cut.take(),
            current: self.current,
            cuts: self.cuts,
            resubmits_at_cut: self.resubmits_at_cut.take(),
        }
    }

    /// Ends the copy that began with `outer`.
    ///
    /// If the copy was parsed again, returns the number of lookups before the first such parse. An
    /// error then ends only the copy.
    pub(super) fn end(&mut self, outer: OuterPass, error: Option<TraversalError>) -> Option<u16> {
        let at_cut = self.resubmits_at_cut;
        if let (Some(_), Some(error)) = (at_cut, error) {
            self.undo(self.current);
            if !self.all[self.current].is_ghost {
                self.errors.push(error);
            }
        }
        let OuterPass { copies, copies_at_cut, current, cuts, resubmits_at_cut } = outer;
        let inner = self.copies_at_cut.unwrap_or(self.copies);
        let nesting = copies.nesting.max(inner.nesting + u16::from(inner.is_metered));
        self.copies = Copies { nesting, ..copies };
        self.copies_at_cut = copies_at_cut;
        // An error of a copy that was not parsed again belongs to the pass in which the copy was
        // made.
        (self.current, self.cuts, self.resubmits_at_cut) = (current, cuts, resubmits_at_cut);
        at_cut
    }

    /// Checks that copies do not nest too deep.
    pub(super) const fn bound_copies(&self) -> Result<(), TraversalError> {
        if self.copies.nesting > COPY_DEPTH_MAX {
            return Err(TraversalError::TooDeep(COPY_DEPTH_MAX));
        }
        Ok(())
    }

    /// Begins a packet-in, which may pass its own meter.
    pub(super) fn begin_packet_in(&mut self) -> PacketInCopies {
        PacketInCopies(std::mem::take(&mut self.copies))
    }

    /// Ends the packet-in, and adds the copy that its meter needs.
    pub(super) fn end_packet_in(&mut self, PacketInCopies(copies): PacketInCopies) {
        let nesting = copies.nesting.max(u16::from(self.copies.is_metered));
        self.copies = Copies { nesting, ..copies };
    }

    /// Records that a meter is passed, with any result.
    pub(super) const fn pass_meter(&mut self) {
        self.copies.is_metered = true;
    }

    /// Parses the packet again after `resubmits` lookups.
    ///
    /// The walk ends here if a meter has dropped the packet, or if the packet and its copies were
    /// parsed too often.
    pub(super) fn cut(&mut self, resubmits: u16, is_muted: bool) -> Result<(), TraversalError> {
        if self.cuts == CUTS_MAX {
            return Err(TraversalError::TooManyRecirculations(CUTS_MAX));
        }
        self.cuts += 1;
        self.resubmits_at_cut.get_or_insert(resubmits);
        self.copies_at_cut.get_or_insert(self.copies);
        self.copies = Copies::default();
        self.all[self.current].has_emitted |= !is_muted;
        self.current = self.all.len();
        let before = (self.outcomes.len(), self.errors.len());
        let parsed = self.all.iter().skip(1).filter(|pass| !pass.is_ghost).count();
        let is_spent = !is_muted && parsed == self.parsed_max;
        let is_ghost = is_muted || is_spent;
        self.all.push(PacketPass { is_ghost, is_spent, before, ..PacketPass::default() });
        if is_ghost { Err(TraversalError::TooManyRecirculations(CUTS_MAX)) } else { Ok(()) }
    }

    /// Ends the walk here, because the packet waits for a controller.
    /// The walk has made `resubmits` lookups.
    ///
    /// Returns an error that ends the walk and that no test sees.
    pub(super) fn pause(&mut self, resubmits: u16) -> TraversalError {
        self.resubmits_at_cut.get_or_insert(resubmits);
        self.copies_at_cut.get_or_insert(self.copies);
        self.copies = Copies::default();
        self.current = self.all.len();
        let before = (self.outcomes.len(), self.errors.len());
        self.all.push(PacketPass { is_ghost: true, before, ..PacketPass::default() });
        TraversalError::TooManyRecirculations(CUTS_MAX)
    }

    /// Sets the length of the frame at the start of the current pass, in bytes.
    pub(super) fn set_length(&mut self, length: usize) {
        self.current_pass().length = length;
    }

    /// Records a table lookup. `rule` is `None` for a table miss.
    pub(super) fn note_visit(&mut self, place: (BridgeId, TableId), rule: Option<RuleId>) {
        let pass = self.current_pass();
        pass.visited.push(Visited { place, rule, length: pass.length });
    }

    /// Records the bucket of a group, or `None` if the group runs all buckets.
    pub(super) fn note_choice(&mut self, bridge: BridgeId, group: GroupId, bucket: Option<usize>) {
        self.current_pass().groups.push((bridge, group, bucket));
    }

    /// Records that a mirror copies the packet in the current pass.
    pub(super) fn note_mirror(&mut self, mirror: &str) {
        self.current_pass().mirrored.push(mirror.to_owned());
    }

    /// Records an effect of learning once for the current pass.
    pub(super) fn add_learned(&mut self, learned: LearnEffect) {
        let pass = self.current_pass();
        if !pass.learned.contains(&learned) {
            pass.learned.push(learned);
        }
    }

    /// Returns whether an effect of learning in the current pass fulfils `is`.
    pub(super) fn has_learned(&mut self, is: impl Fn(&LearnEffect) -> bool) -> bool {
        self.current_pass().learned.iter().any(is)
    }

    /// Records that the packet refreshes a rule or an address.
    pub(super) fn refresh(&mut self, refreshed: Refreshed) {
        let pass = self.current_pass();
        if !pass.refreshed.contains(&refreshed) {
            pass.refreshed.push(refreshed);
        }
    }

    /// Records that the packet was metered in the current pass.
    pub(super) fn note_meter(&mut self) {
        self.current_pass().was_metered = true;
    }

    /// Records an outcome of the current pass.
    pub(super) fn emit(&mut self, outcome: Outcome) {
        self.current_pass().has_emitted = true;
        self.outcomes.push(outcome);
    }

    /// Returns all effects of the packet.
    pub(super) fn effects(mut self, error: Option<TraversalError>) -> PacketEffects {
        if error.is_some() {
            self.undo(0);
        }
        let mut effects = PacketEffects {
            error,
            outcomes: self.outcomes,
            later_errors: self.errors,
            ..PacketEffects::default()
        };
        effects.dropped += self.all.iter().filter(|pass| pass.is_spent).count();
        for pass in self.all.into_iter().filter(|pass| !pass.is_ghost) {
            effects.visited.extend(pass.visited);
            effects.groups.extend(pass.groups);
            effects.mirrored.extend(pass.mirrored);
            effects.learned.extend(pass.learned);
            effects.refreshed.extend(pass.refreshed);
            effects.was_metered |= pass.was_metered;
            effects.dropped += usize::from(!pass.has_emitted);
        }
        effects
    }

    /// Returns the current pass of the packet.
    fn current_pass(&mut self) -> &mut PacketPass {
        &mut self.all[self.current]
    }

    /// Removes the effects of a pass and of the passes that began after it.
    ///
    /// The table and group statistics of these passes stay.
    fn undo(&mut self, index: usize) {
        let pass = &mut self.all[index];
        pass.has_emitted = false;
        pass.was_metered = false;
        pass.mirrored.clear();
        pass.learned.clear();
        pass.refreshed.clear();
        let (outcomes, errors) = pass.before;
        self.all.truncate(index + 1);
        self.outcomes.truncate(outcomes);
        self.errors.truncate(errors);
    }
}
