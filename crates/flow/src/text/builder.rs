//! Parsing of a match, item by item.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{
    error::MatchError,
    items,
    ports::PortNames,
    protocol::Shorthand,
    value::{FieldName, integer, parse_field_name, parse_tos},
};
use crate::{FieldId, Match, draft, draft::MatchDraft, field::NO_LATER_FRAGMENTS};

/// Parses a match such as `tcp,nw_dst=10.0.0.0/8,tp_dst=80`.
/// The empty text matches everything.
///
/// # Errors
///
/// The first error of the first wrong item.
pub fn parse_match(text: &str, ports: &dyn PortNames) -> Result<Match, MatchError> {
    let mut builder = MatchBuilder::new(ports);
    for (name, value) in items(text) {
        if !builder.set_item(name, value)? {
            return Err(MatchError::unknown(name));
        }
    }
    builder.finish()
}

/// A match that is parsed from text, item by item.
///
/// The order of items does not matter. [`Self::finish`] decides which field `tp_dst` means, and
/// whether the match allows that field.
///
/// ```
/// use shunt_flow::{FieldId, text::{MatchBuilder, NoPortNames}};
///
/// let mut builder = MatchBuilder::new(&NoPortNames);
/// assert!(builder.set_item("tp_dst", Some("80"))?);
/// assert!(builder.set_item("tcp", None)?);
/// assert!(!builder.set_item("priority", Some("5"))?, "no match field");
/// let matching = builder.finish()?;
/// assert_eq!(matching.key().field(FieldId::TcpDst), 80);
/// # Ok::<(), shunt_flow::text::MatchError>(())
/// ```
pub struct MatchBuilder<'a> {
    /// The names of the ports.
    ports: &'a dyn PortNames,
    /// The items that were parsed so far.
    items: Vec<MatchItem>,
}

/// One item: a field, its value and its mask.
#[derive(Clone, Debug)]
struct MatchItem {
    /// The text of the item, for errors.
    text: String,
    /// The field that the item matches.
    field: FieldId,
    /// The value of the field.
    value: u128,
    /// The bits of the field that are matched.
    mask: u128,
}

impl<'a> MatchBuilder<'a> {
    /// Creates a match of everything, on a bridge with these port names.
    #[must_use]
    pub const fn new(ports: &'a dyn PortNames) -> Self {
        Self { ports, items: Vec::new() }
    }

    /// Adds one item, and returns whether its name is a match field or a shorthand.
    ///
    /// # Errors
    ///
    /// If the value of the item is invalid.
    pub fn set_item(&mut self, name: &str, value: Option<&str>) -> Result<bool, MatchError> {
        if let Some(shorthand) = Shorthand::find(name) {
            self.refuse_value(shorthand.name, value)?;
            self.push(name, None, FieldId::EthType, exact(shorthand.eth_type));
            if let Some(protocol) = shorthand.ip_proto {
                self.push(name, None, FieldId::IpProto, exact(protocol));
            }
            return Ok(true);
        }
        if name == "eth" {
            // Every packet is Ethernet.
            return self.refuse_value("eth", value).map(|()| true);
        }
        let Some(field_name) = field_name(name) else { return Ok(false) };
        let field = field_name.field;
        let is_alias = matches!(field, FieldId::DlVlan | FieldId::DlVlanPcp);
        if field.info().oxms.is_empty() && !is_alias {
            return Err(MatchError::Unmatchable(field_name.name));
        }
        let text = match value.filter(|text| !text.is_empty()) {
            Some(text) => text,
            // The name alone matches the presence of the option.
            None if field.tunnel_option().is_some() => "*",
            None => return Err(MatchError::missing_value(field_name)),
        };
        let (field, bits) = match (field, integer(text)) {
            (FieldId::DlVlan, Some(NO_VLAN)) => (FieldId::VlanVid, exact(0)),
            (FieldId::NwTos, _) => (field, parse_tos(field_name, text)?),
            _ => (field, parse_field_name(field_name, text, self.ports)?),
        };
        self.push(name, value, field, bits);
        Ok(true)
    }

    /// Returns the match, once all items are added.
    ///
    /// # Errors
    ///
    /// If items contradict each other, or a field lacks its prerequisite.
    pub fn finish(self) -> Result<Match, MatchError> {
        let mut draft = MatchDraft::default();
        let mut taken: Vec<MatchItem> = Vec::new();
        let mut waiting = self.items;
        // Each pass takes every item with prerequisites that earlier passes have set. No chain of
        // prerequisites is longer than packet type, Ethernet type, protocol, ICMP type, ND.
        while !waiting.is_empty() {
            let (ready, rest): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|item| item.target_field(&draft).is_some());
            if let Some(item) = rest.first().filter(|_| ready.is_empty()) {
                return Err(item.unmet_prerequisite());
            }
            for item in ready {
                let Some(field) = item.target_field(&draft) else {
                    return Err(item.unmet_prerequisite());
                };
                let item = item.into_field(field)?;
                if draft.contradicts(field, item.value, item.mask) {
                    return Err(contradiction(&taken, item));
                }
                draft.add(field, item.value, item.mask);
                taken.push(item);
            }
            waiting = rest;
        }
        match taken.iter().find(|item| !draft.has_prerequisite(item.field)) {
            Some(item) => Err(item.unmet_prerequisite()),
            None => Ok(draft.finish()),
        }
    }

    /// Refuses a value behind an item that takes none.
    fn refuse_value(&self, name: &'static str, value: Option<&str>) -> Result<(), MatchError> {
        value.map_or(Ok(()), |_| Err(MatchError::UnexpectedValue(name)))
    }

    /// Adds an item of the match.
    fn push(&mut self, name: &str, value: Option<&str>, field: FieldId, bits: (u128, u128)) {
        let (value_bits, mask) = bits;
        if mask == 0 && field.tunnel_option().is_none() {
            return;
        }
        let text = value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}"));
        self.items.push(MatchItem {
            text,
            field,
            value: value_bits,
            mask: mask & field.value_max(),
        });
    }
}

impl MatchItem {
    /// Returns the field that this item means, given `draft`.
    /// The result is the item's own field, or another field with the same bits.
    ///
    /// Returns `None` while the prerequisites of all these fields are missing.
    fn target_field(&self, draft: &MatchDraft) -> Option<FieldId> {
        related_fields(self.field)
            .find(|field| draft.has_prerequisite(*field) || is_always_met(*field))
    }

    /// Returns this item on a field with the same bits.
    /// The field may be narrower (`tp_src` for `icmp_type`).
    fn into_field(self, field: FieldId) -> Result<Self, MatchError> {
        let whole = self.mask == self.field.value_max();
        let mask = if whole { field.value_max() } else { self.mask };
        if !draft::is_legal(field, self.value, mask) {
            let (name, bits) = (field.name(), draft::value_bits(field));
            return Err(MatchError::OutOfRange { name, text: self.text, bits });
        }
        Ok(Self { field, mask, ..self })
    }

    /// Returns the error of an item that lacks its prerequisite.
    fn unmet_prerequisite(&self) -> MatchError {
        let name = self.text.clone();
        // An alias such as `tp_dst` means the field of any of these protocols.
        let is_alias = !name.starts_with(self.field.name());
        let of_protocols = related_fields(self.field).take(if is_alias { usize::MAX } else { 1 });
        let needs: Vec<String> =
            of_protocols.map(|field| field.info().prerequisite.to_string()).collect();
        let first_fragments = needs.iter().any(|one| one.ends_with(NO_LATER_FRAGMENTS));
        let protocols: Vec<&str> =
            needs.iter().map(|one| one.trim_end_matches(NO_LATER_FRAGMENTS)).collect();
        let needs = protocols.join(", or ") + if first_fragments { NO_LATER_FRAGMENTS } else { "" };
        let example = format!("{},{name}", self.field.info().prerequisite.example());
        MatchError::Unmet { name, needs, example }
    }
}

/// Returns the field with the given name, together with that name.
fn field_name(name: &str) -> Option<FieldName> {
    let field = FieldId::find(name)?;
    let own = field.info().names.iter().find(|own| **own == name)?;
    Some(FieldName { field, name: own })
}

/// Returns a field, then the fields that have the same bits under another protocol.
fn related_fields(field: FieldId) -> impl Iterator<Item = FieldId> {
    let place = |field: FieldId| (field.slot().word, field.slot().shift);
    let differs = move |other: FieldId| other.info().prerequisite != field.info().prerequisite;
    let is_kin = move |other: &FieldId| {
        place(*other) == place(field) && differs(*other) && !other.info().oxms.is_empty()
    };
    std::iter::once(field).chain(FieldId::all().filter(is_kin))
}

/// Returns whether text may name the field in any match.
/// Matching a priority implies a tag.
const fn is_always_met(field: FieldId) -> bool {
    matches!(field, FieldId::VlanPcp | FieldId::DlVlanPcp)
}

/// Returns the error of two items that no packet matches together.
fn contradiction(taken: &[MatchItem], second: MatchItem) -> MatchError {
    let clashes = |first: &&MatchItem| {
        let mut alone = MatchDraft::default();
        alone.add(first.field, first.value, first.mask);
        alone.contradicts(second.field, second.value, second.mask)
    };
    let first = taken.iter().find(clashes).map_or_else(String::new, |first| first.text.clone());
    MatchError::Contradiction { first, second: second.text }
}

/// Returns a value with a mask of all bits.
const fn exact(value: u128) -> (u128, u128) {
    (value, u128::MAX)
}

/// The value of `dl_vlan` that matches untagged packets (`OFP_VLAN_NONE`).
const NO_VLAN: u128 = 0xffff;
