//! The changes of a difference, made one after another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tracing::warn;

use super::{
    change::StateChange,
    difference::{Difference, difference},
    numbers::NumberCandidates,
    object::ObjectId,
    report::{ApplyReport, ObjectOutcome, ObjectReport},
    state::{DeclaredBridge, DesiredState},
};
use crate::{
    config::{
        BondOptions, BridgeOptions, PortOptions, changed_settings::ChangedSettings,
        setting::SettingSection,
    },
    control::{
        settings::SettingOrigin,
        structure::{OpenPolicy, Structure, TableFiller},
    },
    error::{SwitchError, with_causes},
    switch::Switch,
};

/// The way in which a desired state is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyPolicy {
    /// The state comes from an operator, who reads the report.
    ///
    /// An object with refused options keeps its old options. A port gets exactly the number that it
    /// requests. A bridge with another device than before is reported, and keeps its device.
    Once,
    /// The state comes from a program that applies it until it is in force.
    ///
    /// A port with refused options is removed, because its old options are not wanted any more. A
    /// port gets another number if its number is taken. A bridge is replaced if its device changes,
    /// unless the new bridge would be refused.
    Continuous,
}

impl Switch {
    /// Changes the switch where it differs from a state, and reports each object.
    ///
    /// Bridges and ports that the state lacks are removed. Equal objects are not touched, so a
    /// repeated call changes nothing. A refused change does not prevent the others, and the next
    /// call retries it. Ports and listeners that cannot be opened are retried.
    pub async fn apply(&self, desired: &DesiredState) -> ApplyReport {
        let structure = self.control.structure().await;
        let present = DesiredState::of(&structure.running_config());
        apply(&structure, &present, desired, ApplyPolicy::Continuous, &mut |_| ()).await
    }

    /// Applies the differences between two states, and reports each object.
    ///
    /// Objects that are equal in both states stay as they are, even if they were changed otherwise.
    /// So `present` limits the call to the objects of one owner. `fill` is called for each new
    /// bridge before it has ports and controllers; it may add rules, and must not change bridges.
    pub async fn apply_difference(
        &self,
        present: &DesiredState,
        desired: &DesiredState,
        policy: ApplyPolicy,
        fill: &mut (dyn FnMut(&str) + Send),
    ) -> ApplyReport {
        apply(&*self.control.structure().await, present, desired, policy, fill).await
    }
}

/// Applies the differences between two states.
///
/// `fill` fills the tables of new bridges before they have ports.
pub(crate) async fn apply(
    structure: &Structure,
    present: &DesiredState,
    desired: &DesiredState,
    policy: ApplyPolicy,
    fill: &mut TableFiller<'_>,
) -> ApplyReport {
    let Difference { changes, at_restart, repeated } = difference(present, desired, policy);
    let mut application = Application::new(structure, [present, desired], policy);
    for change in changes {
        application.make(change, fill).await;
    }
    let mut report = application.report;
    report.refuse_repeated(repeated);
    report.add_at_restart(at_restart);
    report.ports_revision = structure.bridges().lock().ports_revision();
    report
}

/// Applies the differences between two states, as the command of an operator.
///
/// The first refused change ends the command with its error.
pub(super) async fn command(
    structure: &Structure,
    present: &DesiredState,
    desired: &DesiredState,
) -> Result<(), SwitchError> {
    let policy = ApplyPolicy::Once;
    let application = Application::new(structure, [present, desired], policy);
    let application = Application { opening: OpenPolicy::Required, ..application };
    for change in difference(present, desired, policy).changes {
        // A new bridge is added together with its ports.
        let is_added = matches!(&change, StateChange::AddPort { bridge, .. }
            if present.bridge(bridge).is_none());
        if !is_added {
            application.run(&change, &mut |_| ()).await?;
        }
    }
    Ok(())
}

/// The changes that are in progress, with their results.
pub(crate) struct Application<'a> {
    structure: &'a Structure,
    /// The state before the changes.
    present: &'a DesiredState,
    /// The state after the changes.
    desired: &'a DesiredState,
    policy: ApplyPolicy,
    /// The handling of devices and addresses that cannot be opened.
    opening: OpenPolicy,
    /// The result for each object so far.
    report: ApplyReport,
    /// Bridges that could not be added or replaced.
    ///
    /// The other changes of these bridges are skipped.
    refused_bridges: BTreeSet<String>,
    /// Members of refused bonds, with the reasons.
    without_bond: BTreeMap<String, String>,
    /// Ports that could not be removed.
    kept_ports: BTreeSet<String>,
    /// Removed ports with their bridges.
    removed_ports: BTreeMap<String, (String, PortOptions)>,
    /// Numbers for new ports, by bridge.
    numbers: BTreeMap<String, NumberCandidates>,
}

impl<'a> Application<'a> {
    /// Returns the application of the changes between two states, none applied yet.
    fn new(
        structure: &'a Structure,
        [present, desired]: [&'a DesiredState; 2],
        policy: ApplyPolicy,
    ) -> Self {
        Self {
            structure,
            present,
            desired,
            policy,
            opening: OpenPolicy::Retried,
            report: ApplyReport::default(),
            refused_bridges: BTreeSet::new(),
            without_bond: BTreeMap::new(),
            kept_ports: BTreeSet::new(),
            removed_ports: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }
}

impl Application<'_> {
    /// Makes one change, and reports its result.
    async fn make(&mut self, change: StateChange, fill: &mut TableFiller<'_>) {
        if self.is_skipped(&change) {
            return;
        }
        match change {
            StateChange::AddPort { bridge, port, last_number } => {
                self.add_port(bridge, port, last_number).await;
            }
            StateChange::SetBonds { bridge, bonds } => self.set_bonds(&bridge, bonds).await,
            StateChange::SetBridge { bridge, object, settings } => {
                self.set_bridge(&bridge, object, settings).await;
            }
            StateChange::RemovePort(name) => self.remove_port(name).await,
            StateChange::RemoveBridge { .. }
            | StateChange::AddBridge(_)
            | StateChange::SetVlans(_)
            | StateChange::SetPolicing(_)
            | StateChange::SetQos(_)
            | StateChange::SetBfd(_)
            | StateChange::SetBond { .. }
            | StateChange::SetMtu(_)
            | StateChange::SetMac(_)
            | StateChange::RemoveMirror { .. }
            | StateChange::SetMirror { .. }
            | StateChange::SetCollectorSets { .. }
            | StateChange::SetBridgeMtu { .. }
            | StateChange::Set(_) => {
                let done = self.run(&change, fill).await;
                self.finish(change, done);
            }
        }
    }

    /// Returns whether a change would fail because of an earlier refusal.
    fn is_skipped(&self, change: &StateChange) -> bool {
        let bridge = change.bridge().is_some_and(|name| self.refused_bridges.contains(name));
        let port = matches!(change, StateChange::AddPort { port, .. }
            if self.kept_ports.contains(&port.name));
        bridge || port
    }

    /// Makes a change that is reported as a whole.
    async fn run(
        &self,
        change: &StateChange,
        fill: &mut TableFiller<'_>,
    ) -> Result<(), SwitchError> {
        let structure = self.structure;
        match change {
            StateChange::RemoveBridge { name, replacement } => {
                if let Some(new) = replacement {
                    self.check_replacement(new)?;
                }
                match structure.remove_bridge(name).await {
                    Err(SwitchError::NoSuchBridge { .. }) => Ok(()),
                    removed => removed,
                }
            }
            StateChange::AddBridge(bridge) => match self.opening {
                OpenPolicy::Required => {
                    let whole = self.desired.bridge(&bridge.name);
                    let whole = whole.map(DeclaredBridge::bridge_options);
                    structure.add_bridge(&whole.unwrap_or_else(|| (**bridge).clone())).await
                }
                OpenPolicy::Retried => structure.create_bridge(bridge, self.opening, fill).await,
            },
            StateChange::SetVlans(port) => structure.set_vlans(port).await,
            StateChange::SetPolicing(port) => structure.set_ingress_policing(port).await,
            StateChange::SetQos(port) => structure.set_qos(port).await,
            StateChange::SetBfd(port) => structure.set_bfd(port),
            StateChange::SetMtu(port) => structure.set_mtu(&port.name, port.mtu).await,
            StateChange::SetMac(port) => structure.set_mac(&port.name, &port.mac).await,
            StateChange::RemoveMirror { bridge, name } => {
                structure.remove_mirror(bridge, name).await
            }
            StateChange::SetMirror { bridge, mirror } => {
                structure.set_mirror(bridge, mirror.clone()).await
            }
            StateChange::SetCollectorSets { bridge, sets } => {
                structure.set_collector_sets(bridge, sets.clone()).await
            }
            StateChange::SetBridgeMtu { bridge, mtu } => structure.set_mtu(bridge, *mtu).await,
            StateChange::SetBridge { bridge, settings, .. } => {
                structure.change_bridge(bridge, settings, self.opening, self.origin()).await
            }
            StateChange::SetBonds { bridge, bonds } => {
                structure.set_bonds(bridge, bonds.clone()).await
            }
            StateChange::SetBond { bridge, bond } => {
                let mut bonds = self.bonds(bridge);
                bonds.retain(|own| own.name != bond.name);
                bonds.push(bond.clone());
                structure.set_bonds(bridge, bonds).await
            }
            StateChange::RemovePort(name) => match structure.remove_port(name).await {
                Err(SwitchError::NoSuchPort { .. }) => Ok(()),
                removed => removed,
            },
            StateChange::AddPort { bridge, port, .. } => {
                let port = (**port).clone();
                match self.opening {
                    OpenPolicy::Required => structure.add_port(bridge, port).await,
                    OpenPolicy::Retried => self.open_port(bridge, port).await.map(drop),
                }
            }
            StateChange::Set(settings) => structure.change_settings(settings).await,
        }
    }

    /// Refuses a replacement that could not be added after the removal.
    fn check_replacement(&self, bridge: &BridgeOptions) -> Result<(), SwitchError> {
        match self.structure.check_replacement(&self.policy.first_options(bridge)) {
            Err(SwitchError::NoSuchBridge { .. }) => Ok(()),
            checked => checked,
        }
    }

    /// Reports a change that was made or refused.
    fn finish(&mut self, change: StateChange, done: Result<(), SwitchError>) {
        match done {
            Ok(()) => self.note_outcome(&change, change.success()),
            Err(_) if self.is_done(&change) => {}
            Err(error) => {
                let is_bridge = matches!(
                    change,
                    StateChange::AddBridge(_)
                        | StateChange::RemoveBridge { replacement: Some(_), .. }
                );
                if is_bridge
                    && self.policy == ApplyPolicy::Continuous
                    && let ObjectId::Bridge(name) = change.object()
                {
                    self.refused_bridges.insert(name);
                }
                self.refuse(change, with_causes(&error));
            }
        }
    }

    /// Records the outcome of a change for its object.
    fn note_outcome(&mut self, change: &StateChange, outcome: ObjectOutcome) {
        let (object, change) = (change.object(), change.description());
        self.report.objects.push(ObjectReport { object, change, outcome });
    }

    /// Records a change that was refused.
    fn refuse(&mut self, change: StateChange, reason: String) {
        let (object, text, outcome) =
            (change.object(), change.refused_description(), change.refusal(reason));
        self.report.objects.push(ObjectReport { object, change: text, outcome });
        self.report.refused.push(change);
    }

    /// Returns whether the switch already has the bridge or port of a refused change.
    ///
    /// All options must be equal. An operator, or an earlier call, has then added the object. With
    /// `Continuous`, such an object belongs to another owner, and the change is refused.
    fn is_done(&self, change: &StateChange) -> bool {
        if self.policy == ApplyPolicy::Continuous {
            return false;
        }
        let running = || self.structure.running_config().bridges.into_iter();
        match change {
            StateChange::AddBridge(bridge) => {
                running().any(|own| **bridge == BridgeOptions { ports: Vec::new(), ..own })
            }
            StateChange::AddPort { bridge, port, .. } => {
                let place = running().find(|own| own.name == *bridge);
                let own = place.into_iter().flat_map(|own| own.ports);
                own.into_iter().find(|own| own.name == port.name).is_some_and(|own| {
                    let number = if port.number == 0 { 0 } else { own.number };
                    **port == PortOptions { number, ..own }
                })
            }
            StateChange::RemovePort(_)
            | StateChange::RemoveBridge { .. }
            | StateChange::SetVlans(_)
            | StateChange::SetPolicing(_)
            | StateChange::SetQos(_)
            | StateChange::SetBfd(_)
            | StateChange::SetBonds { .. }
            | StateChange::SetBond { .. }
            | StateChange::SetMtu(_)
            | StateChange::SetMac(_)
            | StateChange::RemoveMirror { .. }
            | StateChange::SetMirror { .. }
            | StateChange::SetCollectorSets { .. }
            | StateChange::SetBridgeMtu { .. }
            | StateChange::SetBridge { .. }
            | StateChange::Set(_) => false,
        }
    }

    /// Removes a port, and keeps its options in case that its replacement is refused.
    async fn remove_port(&mut self, name: String) {
        let old = {
            let bridges = self.structure.bridges().lock();
            bridges.find_port(&name).ok().map(|(bridge, port)| {
                let number = port.number.number();
                let options = PortOptions { number, ..port.settings.clone() };
                (bridge.settings.name.clone(), options)
            })
        };
        let change = StateChange::RemovePort(name.clone());
        match self.run(&change, &mut |_| ()).await {
            Ok(()) => {
                self.removed_ports.extend(old.map(|old| (name, old)));
                self.note_outcome(&change, ObjectOutcome::Removed);
            }
            Err(error) => {
                if self.policy == ApplyPolicy::Continuous {
                    self.kept_ports.insert(name);
                }
                self.refuse(change, with_causes(&error));
            }
        }
    }

    /// Adds a port with the first number that is free.
    async fn add_port(&mut self, bridge: String, port: Arc<PortOptions>, last_number: u32) {
        let name = port.name.clone();
        let added = match self.without_bond.get(&name) {
            // Outside its refused bond, the port would close a loop with the other members.
            Some(reason) => Err(reason.clone()),
            None => {
                let added = self.open_with_number(&bridge, &port, last_number).await;
                added.map_err(|error| with_causes(&error))
            }
        };
        let change = StateChange::AddPort { bridge, port, last_number };
        match added {
            Ok(None) => self.note_outcome(&change, ObjectOutcome::Added),
            Ok(Some(problem)) => self.note_outcome(&change, ObjectOutcome::AddedDown(problem)),
            Err(_) if !self.without_bond.contains_key(&name) && self.is_done(&change) => {}
            Err(reason) => {
                self.refuse(change, reason);
                if self.policy == ApplyPolicy::Once && !self.without_bond.contains_key(&name) {
                    self.restore_port(name).await;
                }
            }
        }
    }

    /// Opens a port, with its former number if that is free.
    async fn open_with_number(
        &mut self,
        bridge: &str,
        port: &Arc<PortOptions>,
        last_number: u32,
    ) -> Result<Option<String>, SwitchError> {
        if self.policy == ApplyPolicy::Once {
            return self.open_port(bridge, (**port).clone()).await;
        }
        let declared = self.desired.bridge(bridge).map(|own| own.ports.as_slice());
        let claimed = || NumberCandidates::new(declared.unwrap_or_default());
        let candidates = {
            let own = self.numbers.entry(bridge.to_owned()).or_insert_with(claimed);
            let bridges = self.structure.bridges().lock();
            own.of(port.number, last_number, bridges.find(bridge).ok().map(|found| &found.ports))
        };
        let mut added = Ok(None);
        for number in candidates {
            added = self.open_port(bridge, PortOptions { number, ..(**port).clone() }).await;
            match added {
                Err(SwitchError::NumberTaken { .. } | SwitchError::NumberRange(_)) => {}
                Ok(_) | Err(_) => {
                    if let Some(own) = self.numbers.get_mut(bridge) {
                        own.claim(number);
                    }
                    break;
                }
            }
        }
        added
    }

    /// Opens a port of a bridge.
    async fn open_port(
        &self,
        bridge: &str,
        port: PortOptions,
    ) -> Result<Option<String>, SwitchError> {
        port.check()?;
        self.structure.add_configured_port(bridge, port, None, OpenPolicy::Retried).await
    }

    /// Adds a removed port again, because its new options were refused.
    async fn restore_port(&mut self, name: String) {
        let Some((bridge, old)) = self.removed_ports.remove(&name) else { return };
        if self.structure.bridges().lock().find_port(&name).is_ok() {
            return;
        }
        match self.structure.add_configured_port(&bridge, old, None, OpenPolicy::Retried).await {
            Ok(_) => {
                warn!("port {name}: the new options are refused, so the port keeps the old ones");
                let removal = StateChange::RemovePort(name);
                let text = removal.description();
                self.report.objects.retain(|own| own.change != text);
                self.report.refused.push(removal);
            }
            Err(error) => warn!(
                error = with_causes(&error),
                "port {name}: removed, because both its new options and its old ones are refused"
            ),
        }
    }

    /// Sets changed settings of a bridge.
    ///
    /// If one value is refused, the others are set nevertheless.
    async fn set_bridge(
        &mut self,
        bridge: &str,
        object: ObjectId,
        settings: ChangedSettings<BridgeOptions>,
    ) {
        let parts = settings.parts();
        let whole = StateChange::SetBridge { bridge: bridge.to_owned(), object, settings };
        match self.run(&whole, &mut |_| ()).await {
            Ok(()) => self.note_outcome(&whole, ObjectOutcome::Changed),
            Err(_) if parts.len() > 1 => {
                for (section, settings) in parts {
                    let object = section.object(bridge);
                    let bridge = bridge.to_owned();
                    let part = StateChange::SetBridge { bridge, object, settings };
                    let done = self.run(&part, &mut |_| ()).await;
                    self.finish(part, done);
                }
            }
            Err(error) => {
                let StateChange::SetBridge { bridge, settings, .. } = whole else { return };
                let object = parts.first().map(|(section, _)| section.object(&bridge));
                let object = object.unwrap_or_else(|| ObjectId::Bridge(bridge.clone()));
                let part = StateChange::SetBridge { bridge, object, settings };
                self.refuse(part, with_causes(&error));
            }
        }
    }

    /// Replaces the bonds of a bridge.
    ///
    /// With `Continuous`, a refused bond does not prevent the others, and its members are removed.
    async fn set_bonds(&mut self, bridge: &str, bonds: Vec<BondOptions>) {
        let running = self.bonds(bridge);
        let whole = StateChange::SetBonds { bridge: bridge.to_owned(), bonds: bonds.clone() };
        let Err(error) = self.run(&whole, &mut |_| ()).await else {
            return self.note_outcome(&whole, ObjectOutcome::Changed);
        };
        let is_removal = bonds.iter().all(|bond| running.contains(bond));
        match self.policy {
            ApplyPolicy::Continuous if !is_removal => {
                for bond in bonds.into_iter().filter(|bond| !running.contains(bond)) {
                    self.set_bond(bridge, bond).await;
                }
            }
            ApplyPolicy::Continuous => self.refuse(whole, with_causes(&error)),
            ApplyPolicy::Once => {
                let members = bonds.iter().flat_map(|bond| &bond.members);
                let reason = "its bond was refused".to_owned();
                self.without_bond.extend(members.map(|name| (name.clone(), reason.clone())));
                self.refuse(whole, with_causes(&error));
            }
        }
    }

    /// Sets one bond of a bridge; removes its members if it is refused.
    ///
    /// As separate ports, the members would close a loop.
    async fn set_bond(&mut self, bridge: &str, bond: BondOptions) {
        let change = StateChange::SetBond { bridge: bridge.to_owned(), bond: bond.clone() };
        let Err(error) = self.run(&change, &mut |_| ()).await else {
            return self.note_outcome(&change, ObjectOutcome::Changed);
        };
        let reason = with_causes(&error);
        self.refuse(change, reason.clone());
        let kept = self.bonds(bridge);
        for name in bond.members {
            if kept.iter().any(|bond| bond.members.contains(&name)) {
                continue;
            }
            self.without_bond.insert(name.clone(), reason.clone());
            let declared = self.present.bridge(bridge).and_then(|own| own.port(&name));
            let Some(declared) = declared.filter(|_| !self.removed_ports.contains_key(&name))
            else {
                continue;
            };
            warn!("port {name}: removed, because its bond was refused: {reason}");
            if let Err(error) = self.structure.remove_port(&name).await {
                warn!(error = with_causes(&error), "port {name}: cannot be removed");
            }
            // The port is not in force, so the next call adds it.
            let (bridge, port) = (bridge.to_owned(), Arc::clone(&declared.options));
            self.report.refused.push(StateChange::AddPort { bridge, port, last_number: 0 });
        }
    }

    /// Returns the bonds of a bridge.
    fn bonds(&self, bridge: &str) -> Vec<BondOptions> {
        let bridges = self.structure.bridges().lock();
        bridges.find(bridge).map(|own| own.settings.bonds.clone()).unwrap_or_default()
    }

    /// Returns the origin of the settings that are applied.
    const fn origin(&self) -> SettingOrigin {
        match self.policy {
            ApplyPolicy::Once => SettingOrigin::Operator,
            ApplyPolicy::Continuous => SettingOrigin::Database,
        }
    }
}

impl SettingSection {
    /// Returns the object of a bridge to which the section belongs.
    fn object(self, bridge: &str) -> ObjectId {
        let bridge = bridge.to_owned();
        match self {
            Self::Separate => ObjectId::Bridge(bridge),
            Self::Controllers => ObjectId::Controllers(bridge),
            Self::Sflow => ObjectId::Sflow(bridge),
            Self::Netflow => ObjectId::Netflow(bridge),
            Self::Ipfix => ObjectId::Ipfix(bridge),
        }
    }
}
