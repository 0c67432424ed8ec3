//! Actions that choose by a hash: `multipath`, `bundle`, `bundle_load`.
//!
//! The arguments of these actions have no names, and a fixed order.

use shunt_flow::{
    PortNo,
    text::{PortNames, format_port},
};

use super::super::{
    RuleTextError, RuleTextProblem,
    number::parse_as,
    scope::Scope,
    slice::{Item, Items, TextSlice},
    subfield::{self, Writes},
};
use crate::action::{
    Action, BundleAction, BundleAlgorithm, HashFields, MultipathAction, MultipathAlgorithm,
};

/// Parses `multipath(FIELDS,BASIS,ALGORITHM,LINKS,ARGUMENT,FIELD[..])`.
pub(super) fn multipath(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let mut words = Words::of(argument, "multipath", MULTIPATH_FORM);
    let fields = words.next_of(&FIELDS)?;
    let basis = parse_as(words.next()?, "a basis", u16::MAX)?;
    let algorithm = words.next_of(&MULTIPATHS)?;
    let links = words.next()?;
    let number = parse_as(words.next()?, "an argument", u32::MAX)?;
    let target = words.next()?;
    words.end()?;
    let target = subfield::parse_target(target, Writes::Packet)
        .and_then(|bits| subfield::require_short(bits).map_err(|problem| target.error(problem)))?;
    let most = 1_u32.checked_shl(target.width.into()).unwrap_or(LINKS_MAX).min(LINKS_MAX);
    let link_max = parse_as(links, "a number of links", most)?.checked_sub(1);
    let link_max = link_max.and_then(|max| u16::try_from(max).ok());
    let link_max = link_max.ok_or_else(|| links.bad("multipath", MULTIPATH_FORM))?;
    let argument = number;
    let action = MultipathAction { fields, basis, algorithm, link_max, argument, target };
    Ok(Action::Multipath(Box::new(action)))
}

/// Prints `multipath`.
pub(super) fn format_multipath(action: &MultipathAction) -> String {
    format!(
        "multipath({},{},{},{},{},{})",
        name_of(&FIELDS, action.fields),
        action.basis,
        name_of(&MULTIPATHS, action.algorithm),
        u32::from(action.link_max).saturating_add(1),
        action.argument,
        subfield::format(action.target),
    )
}

/// Parses `bundle(FIELDS,BASIS,ALGORITHM,ofport,members:PORT,..)`.
pub(super) fn bundle(argument: TextSlice<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let mut words = Words::of(argument, "bundle", BUNDLE_FORM);
    let mut action = words.bundle()?;
    action.members = words.members(scope)?;
    Ok(Action::Bundle(Box::new(action)))
}

/// Parses `bundle_load(FIELDS,BASIS,ALGORITHM,ofport,FIELD[..],members:PORT,..)`.
pub(super) fn bundle_load(
    argument: TextSlice<'_>,
    scope: &Scope<'_>,
) -> Result<Action, RuleTextError> {
    let mut words = Words::of(argument, "bundle_load", BUNDLE_LOAD_FORM);
    let mut action = words.bundle()?;
    let target = words.next()?;
    let bits = subfield::parse_target(target, Writes::Packet)
        .and_then(|bits| subfield::require_short(bits).map_err(|problem| target.error(problem)))?;
    if bits.width < 16 {
        return Err(target.bad("bundle_load", BUNDLE_LOAD_FORM));
    }
    action.target = Some(bits);
    action.members = words.members(scope)?;
    Ok(Action::Bundle(Box::new(action)))
}

/// Prints `bundle` and `bundle_load`.
pub(super) fn format_bundle(action: &BundleAction, ports: &dyn PortNames) -> String {
    let (name, target) = match action.target {
        Some(target) => ("bundle_load", subfield::format(target) + ","),
        None => ("bundle", String::new()),
    };
    let members: Vec<String> =
        action.members.iter().map(|port| format_port(*port, ports)).collect();
    format!(
        "{name}({},{},{},ofport,{target}members:{})",
        name_of(&FIELDS, action.fields),
        action.basis,
        name_of(&BUNDLES, action.algorithm),
        members.join(","),
    )
}

/// The arguments of one action, taken one by one.
struct Words<'a> {
    /// The text of all arguments.
    whole: TextSlice<'a>,
    /// The arguments that are not taken yet.
    items: Items<'a>,
    /// The name of the action, for errors.
    action: &'static str,
    /// The expected form, for errors.
    form: &'static str,
}

impl<'a> Words<'a> {
    /// Returns the arguments of an action.
    const fn of(whole: TextSlice<'a>, action: &'static str, form: &'static str) -> Self {
        Self { whole, items: whole.items(), action, form }
    }

    /// Returns the next argument, or an error if there is none.
    fn item(&mut self) -> Result<Item<'a>, RuleTextError> {
        self.items.next().ok_or_else(|| self.whole.bad(self.action, self.form))?
    }

    /// Returns the next argument, or an error if there is none.
    fn next(&mut self) -> Result<TextSlice<'a>, RuleTextError> {
        let item = self.item()?;
        match item.argument {
            None => Ok(item.name),
            Some(more) => Err(more.bad(self.action, self.form)),
        }
    }

    /// Reads the next argument, which must be one of `names`.
    fn next_of<T: Copy>(&mut self, names: &[(&str, T)]) -> Result<T, RuleTextError> {
        let word = self.next()?;
        let named = names.iter().find(|(name, _)| *name == word.text());
        named.map(|(_, value)| *value).ok_or_else(|| word.bad(self.action, self.form))
    }

    /// Reads the arguments that `bundle` and `bundle_load` have in common.
    fn bundle(&mut self) -> Result<BundleAction, RuleTextError> {
        let fields = self.next_of(&FIELDS)?;
        let basis = parse_as(self.next()?, "a basis", u16::MAX)?;
        let algorithm = self.next_of(&BUNDLES)?;
        self.next_of(&[("ofport", ())])?;
        Ok(BundleAction { fields, basis, algorithm, members: Box::default(), target: None })
    }

    /// Parses `members:PORT,..` up to the end of the arguments.
    fn members(&mut self, scope: &Scope<'_>) -> Result<Box<[PortNo]>, RuleTextError> {
        let first = self.item()?;
        if !matches!(first.name.text(), "members" | "slaves") {
            return Err(first.name.bad(self.action, self.form));
        }
        let first = first.argument.filter(|port| !port.is_empty());
        let mut members = Vec::new();
        members.extend(first.map(|port| self.member(port, scope)).transpose()?);
        while let Some(item) = self.items.next() {
            let item = item?;
            if let Some(more) = item.argument {
                return Err(more.bad(self.action, self.form));
            }
            members.push(self.member(item.name, scope)?);
        }
        Ok(members.into())
    }

    /// Parses a member port.
    fn member(&self, slice: TextSlice<'_>, scope: &Scope<'_>) -> Result<PortNo, RuleTextError> {
        let (port, action) = (scope.port(slice)?, self.action);
        let is_port = port <= PortNo::MAX || port.reserved_name().is_some();
        if is_port && !matches!(port, PortNo::CONTROLLER | PortNo::TABLE) {
            Ok(port)
        } else {
            Err(slice.error(RuleTextProblem::BadPort { port, action }))
        }
    }

    /// Returns an error if an argument is left.
    fn end(&mut self) -> Result<(), RuleTextError> {
        match self.items.next() {
            None => Ok(()),
            Some(item) => Err(item?.name.bad(self.action, self.form)),
        }
    }
}

/// Returns the name of a value.
fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| name)
}

/// The sets of hashed fields by name.
const FIELDS: [(&str, HashFields); 7] = [
    ("eth_src", HashFields::EthSrc),
    ("symmetric_l4", HashFields::SymmetricL4),
    ("symmetric_l3l4", HashFields::SymmetricL3L4),
    ("symmetric_l3l4+udp", HashFields::SymmetricL3L4Udp),
    ("nw_src", HashFields::NwSrc),
    ("nw_dst", HashFields::NwDst),
    ("symmetric_l3", HashFields::SymmetricL3),
];
/// The algorithms of `multipath` by name.
const MULTIPATHS: [(&str, MultipathAlgorithm); 4] = [
    ("modulo_n", MultipathAlgorithm::ModuloN),
    ("hash_threshold", MultipathAlgorithm::HashThreshold),
    ("hrw", MultipathAlgorithm::HighestRandomWeight),
    ("iter_hash", MultipathAlgorithm::IterativeHash),
];
/// The algorithms of `bundle` by name.
const BUNDLES: [(&str, BundleAlgorithm); 2] = [
    ("active_backup", BundleAlgorithm::ActiveBackup),
    ("hrw", BundleAlgorithm::HighestRandomWeight),
];
/// The most links, because an OpenFlow message has the highest link in 16 bits.
const LINKS_MAX: u32 = 65536;
/// The form of a `multipath` action, for error messages.
const MULTIPATH_FORM: &str = "multipath(FIELDS,BASIS,modulo_n|hash_threshold|hrw|iter_hash,LINKS,\
                              ARGUMENT,FIELD[..]) with at least one link";
/// The form of a `bundle` action, for error messages.
const BUNDLE_FORM: &str = "bundle(FIELDS,BASIS,active_backup|hrw,ofport,members:PORT,..)";
/// The form of a `bundle_load` action, for error messages.
const BUNDLE_LOAD_FORM: &str = "bundle_load(FIELDS,BASIS,active_backup|hrw,ofport,FIELD[..],\
                                members:PORT,..) with a field of at least 16 bits";
