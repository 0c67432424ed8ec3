//! A pipeline beside the world that it should be.

use std::sync::Arc;

use shunt_flow::FlowKey;

use super::{
    Fate, Visited, World, WorldBridge, execute,
    generate::{BRIDGES, Op},
};
use crate::{BridgeSettings, Change, Pipeline, Time, Traversal, Visit};

/// A pipeline and a world that go through the same changes.
pub struct Twin {
    /// The pipeline.
    pub pipeline: Arc<Pipeline>,
    /// What it should be at its newest version.
    pub world: World,
}

impl Twin {
    /// Bridges of [`BRIDGES`] after these changes.
    #[must_use]
    pub fn new(ops: &[Op]) -> Self {
        let mut twin = Self { pipeline: Arc::new(Pipeline::new(1)), world: World::default() };
        for id in BRIDGES {
            twin.pipeline.add_bridge(id, BridgeSettings::default());
            twin.world.bridges.insert(id, WorldBridge::default());
        }
        ops.iter().for_each(|op| drop(twin.apply(op)));
        twin
    }

    /// Applies a change to both. Answers with what it was, unless it was refused.
    ///
    /// # Panics
    ///
    /// When one refuses it and the other does not.
    pub fn apply(&mut self, op: &Op) -> Option<Change> {
        match op {
            Op::Apply(id, mods) => {
                let expected = self.world.apply(*id, mods, Time::ZERO);
                let applied = self.pipeline.apply(*id, mods, Time::ZERO);
                let error = applied.as_ref().err().map(|rejected| rejected.error);
                assert_eq!(error, expected.err());
                applied.ok()
            }
            Op::SetPorts(id, ports) => {
                if let Some(bridge) = self.world.bridges.get_mut(id) {
                    bridge.ports.clone_from(ports);
                }
                self.pipeline.set_ports(*id, ports.clone()).ok()
            }
            Op::Reclaim => {
                self.pipeline.reclaim(self.pipeline.version());
                None
            }
        }
    }

    /// The pipeline's translation at its newest version.
    #[must_use]
    pub fn translate(&self, key: &FlowKey) -> Traversal {
        self.pipeline.translate(key, self.pipeline.version())
    }

    /// What a traversal, perhaps made of another packet of its region, does to a packet.
    #[must_use]
    pub fn fate(&self, traversal: &Traversal, key: &FlowKey) -> Fate {
        let visited = |visit: &Visit| Visited {
            place: (visit.bridge, visit.table),
            rule: visit.rule.as_ref().map(|rule| rule.id),
        };
        Fate {
            outcomes: execute(&traversal.actions, key, self.world.ingress(key)),
            error: traversal.error,
            visited: traversal.visits.iter().map(visited).collect(),
        }
    }
}
