//! The text of groups: `ovs-ofctl add-group`, `dump-groups`.
//!
//! A group is one list of items. Each `bucket=` begins a bucket, which has the items up to the next
//! `bucket=`. A few of the items are properties of the bucket, and the other items are its actions.
//!
//! Items with a default may be omitted. By default, the number of a bucket is its position. The
//! default weight is 1 in a select group and 0 in other groups.

use shunt_flow::{
    FieldId, PortNo,
    field::Maskable,
    text::{PortNames, format_port, format_value, parse_value},
};

use super::{
    RuleTextError, RuleTextProblem,
    action::{ActionListKind, List, format_list},
    number::{group, parse_as},
    scope::Scope,
    slice::{Item, TextSlice},
    subfield,
};
use crate::{
    groups::group::{Bucket, Group, GroupCommand, GroupKind, GroupMod, Selection},
    id::GroupId,
};

/// Reads a group, or a selection of groups to delete, as `ovs-ofctl` does.
///
/// ```
/// use shunt_flow::text::NoPortNames;
/// use shunt_pipeline::{GroupCommand, text};
///
/// let line = "group_id=1,type=select,bucket=weight:5,output:1,bucket=output:2";
/// let group = text::parse_group_mod(GroupCommand::Add, line, &NoPortNames)?;
/// assert_eq!((group.buckets[0].weight, group.buckets[1].weight), (5, 1));
///
/// let line = "group_id=1,type=ff,bucket=output:1";
/// let error = text::parse_group_mod(GroupCommand::Add, line, &NoPortNames).unwrap_err();
/// assert_eq!(&line[error.span], "output:1");
/// let expected = "of this group is not complete: add watch_port or watch_group";
/// assert!(error.problem.to_string().ends_with(expected));
/// # Ok::<(), text::RuleTextError>(())
/// ```
///
/// # Errors
///
/// The error has the problem and its position in `text`.
pub fn parse_group_mod(
    command: GroupCommand,
    text: &str,
    ports: &dyn PortNames,
) -> Result<GroupMod, RuleTextError> {
    let whole = TextSlice::whole(text);
    let mut draft = GroupDraft::new(Scope::of_packet_out(ports));
    for item in whole.items() {
        draft.add(item?, command)?;
    }
    draft.finish(whole, command)
}

/// Prints a group as `ovs-ofctl -O OpenFlow15 dump-groups` does.
#[must_use]
pub fn format_group(group: &Group, ports: &dyn PortNames) -> String {
    let kind = KINDS.iter().find(|(_, kind)| *kind == group.kind).map_or("", |(name, _)| name);
    let mut text = format!("group_id={},type={kind}", group.id);
    text += &format_selection(&group.selection);
    for bucket in &group.buckets {
        text += &format!(",bucket=bucket_id:{}", bucket.id);
        if group.kind == GroupKind::Select && bucket.weight != 1 {
            text += &format!(",weight:{}", bucket.weight);
        }
        if bucket.watch_port != PortNo::ANY {
            text += &format!(",watch_port:{}", format_port(bucket.watch_port, ports));
        }
        if let Some(watch) = bucket.watch_group {
            text += &format!(",watch_group:{watch}");
        }
        text = text + ",actions=" + &format_list(&bucket.actions, ports);
    }
    text
}

/// Formats the selection method of a group.
fn format_selection(selection: &Selection) -> String {
    let (method, basis, fields): (_, _, &[_]) = match selection {
        Selection::Default => return String::new(),
        Selection::DatapathHash { basis } => ("dp_hash", basis, &[]),
        Selection::Fields { basis, fields } => ("hash", basis, fields),
    };
    let mut text = format!(",selection_method={method}");
    if *basis != 0 {
        text += &format!(",selection_method_param={basis}");
    }
    let fields: Vec<String> =
        fields.iter().map(|(field, mask)| format_hashed(*field, *mask)).collect();
    text + &match &*fields {
        [] => String::new(),
        [only] => format!(",fields={only}"),
        several => format!(",fields({})", several.join(",")),
    }
}

/// Prints a field of `fields(..)`, with its mask unless the mask has all bits.
fn format_hashed(field: FieldId, mask: u128) -> String {
    let (name, all) = (field.name(), field.value_max());
    if mask == all { name.to_owned() } else { format!("{name}={}", format_value(field, mask, all)) }
}

/// A group with the items read so far.
struct GroupDraft<'a> {
    /// The id; `None` until `group_id` is read.
    group: Option<GroupId>,
    /// The type; `None` until `type` is read.
    kind: Option<GroupKind>,
    /// The selection method of `selection_method=`.
    method: Option<Method>,
    /// The parameter of the method, with its text.
    basis: Option<(TextSlice<'a>, u64)>,
    /// The fields to hash, with their text.
    fields: Option<(TextSlice<'a>, Vec<(FieldId, u128)>)>,
    buckets: Vec<BucketDraft<'a>>,
    scope: Scope<'a>,
}

/// The names of `selection_method`.
#[derive(Clone, Copy)]
enum Method {
    DatapathHash,
    Fields,
}

impl<'a> GroupDraft<'a> {
    /// Returns the draft of a group before its first item is read.
    const fn new(scope: Scope<'a>) -> Self {
        let (method, basis, fields) = (None, None, None);
        Self { group: None, kind: None, method, basis, fields, buckets: Vec::new(), scope }
    }

    /// Parses one item of the text of a group.
    fn add(&mut self, item: Item<'a>, command: GroupCommand) -> Result<(), RuleTextError> {
        let value = item.argument_or_end();
        let name = item.name.text();
        if name == "group_id" && self.buckets.is_empty() {
            self.group = match (value.text(), command) {
                ("all", GroupCommand::Delete) => None,
                _ => Some(group(value)?),
            };
            return Ok(());
        }
        if command == GroupCommand::Delete {
            return Err(item.name.bad("a deletion of groups", "group_id=ID or group_id=all"));
        }
        if matches!(name, "bucket" | "buckets") {
            let list = List::new(ActionListKind::Bucket, self.scope.clone());
            self.buckets.push(BucketDraft::new(value, list));
            let scope = self.scope.clone();
            let Some(bucket) = self.buckets.last_mut() else { return Ok(()) };
            return value.items().try_for_each(|item| bucket.add(item?, &scope));
        }
        match self.buckets.last_mut() {
            Some(bucket) => bucket.add(item, &self.scope),
            None => self.setting(item),
        }
    }

    /// Reads an item before the first bucket.
    fn setting(&mut self, item: Item<'a>) -> Result<(), RuleTextError> {
        let value = item.argument_or_end();
        match item.name.text() {
            "type" => self.kind = Some(kind(value)?),
            "selection_method" => {
                self.method = match value.text() {
                    "" => None,
                    "dp_hash" => Some(Method::DatapathHash),
                    "hash" => Some(Method::Fields),
                    _ => return Err(value.bad("group", "selection_method=dp_hash or hash")),
                }
            }
            "selection_method_param" => {
                self.basis = Some((item.name, parse_as(value, "a basis", u64::MAX)?));
            }
            "fields" => self.fields = Some((item.name, parse_hash_fields(value)?)),
            _ => return Err(item.name.bad("group", GROUP_FORM)),
        }
        Ok(())
    }

    /// Checks the items together, and returns the request.
    fn finish(
        self,
        whole: TextSlice<'a>,
        command: GroupCommand,
    ) -> Result<GroupMod, RuleTextError> {
        let incomplete =
            |missing| whole.error(RuleTextProblem::Incomplete { of: "a group", missing });
        let (kind, selection) = match (command, self.kind) {
            (GroupCommand::Delete, _) => (GroupKind::All, Selection::Default),
            (_, None) => return Err(incomplete("type=all, select, indirect or ff")),
            (_, Some(kind)) => (kind, self.selection()?),
        };
        if self.group.is_none() && command != GroupCommand::Delete {
            return Err(incomplete("group_id=ID"));
        }
        let buckets = self.buckets.into_iter().zip(0..);
        let buckets = buckets.map(|(bucket, place)| bucket.finish(kind, place));
        let buckets = buckets.collect::<Result<_, _>>()?;
        Ok(GroupMod { command, group: self.group, kind, selection, buckets })
    }

    /// Returns the selection method with its parameters.
    fn selection(&self) -> Result<Selection, RuleTextError> {
        let is_fields = matches!(self.method, Some(Method::Fields));
        if let Some((at, _)) = self.fields.as_ref().filter(|_| !is_fields) {
            return Err(at.bad("group", "selection_method=hash before fields"));
        }
        if let Some((at, _)) = self.basis.filter(|_| self.method.is_none()) {
            return Err(at.bad("group", "selection_method=dp_hash or hash before its parameter"));
        }
        let basis = self.basis.map_or(0, |(_, basis)| basis);
        let fields =
            self.fields.as_ref().map_or_else(Box::default, |(_, fields)| fields.as_slice().into());
        match self.method {
            None => Ok(Selection::Default),
            Some(Method::DatapathHash) => Ok(Selection::DatapathHash { basis }),
            Some(Method::Fields) => Ok(Selection::Fields { basis, fields }),
        }
    }
}

/// A bucket with the items read so far.
struct BucketDraft<'a> {
    /// The text of the bucket.
    at: TextSlice<'a>,
    /// The id; `None` if the text leaves the choice to the switch.
    id: Option<u32>,
    /// The weight with its text; `None` if the text has none.
    weight: Option<(TextSlice<'a>, u16)>,
    /// The watched port, or `PortNo::ANY`.
    watch_port: PortNo,
    watch_group: Option<GroupId>,
    /// True once an item with actions is read.
    has_actions: bool,
    /// The actions of the bucket.
    actions: List<'a>,
}

impl<'a> BucketDraft<'a> {
    /// Returns the draft of a bucket before its first item is read.
    const fn new(at: TextSlice<'a>, actions: List<'a>) -> Self {
        let (watch_port, watch_group) = (PortNo::ANY, None);
        Self { at, id: None, weight: None, watch_port, watch_group, has_actions: false, actions }
    }

    /// Parses one item of the text of a bucket.
    fn add(&mut self, item: Item<'a>, scope: &Scope<'_>) -> Result<(), RuleTextError> {
        let value = item.argument_or_end();
        match item.name.text() {
            "bucket_id" => self.id = Some(parse_as(value, "a bucket", BUCKET_MAX)?),
            "weight" => self.weight = Some((item.name, parse_as(value, "a weight", u16::MAX)?)),
            "watch_port" => self.watch_port = parse_watch_port(value, scope)?,
            "watch_group" => self.watch_group = Some(group(value)?),
            "actions" | "action" => {
                self.has_actions = true;
                self.actions.add_all(value)?;
            }
            _ => {
                self.has_actions = true;
                self.actions.add(item)?;
            }
        }
        Ok(())
    }

    /// Checks the items together, and returns the bucket.
    fn finish(self, kind: GroupKind, place: u32) -> Result<Bucket, RuleTextError> {
        let is_watched = self.watch_port != PortNo::ANY || self.watch_group.is_some();
        let missing = if !self.has_actions {
            Some("its actions, or drop")
        } else if kind == GroupKind::FastFailover && !is_watched {
            Some("watch_port or watch_group")
        } else {
            None
        };
        if let Some(missing) = missing {
            let of = "a bucket of this group";
            return Err(self.at.error(RuleTextProblem::Incomplete { of, missing }));
        }
        let usual = u16::from(kind == GroupKind::Select);
        let weight = match self.weight {
            Some((at, weight)) if kind != GroupKind::Select && weight != 0 => {
                return Err(at.bad("bucket", "weight:0, or weights in groups of type=select only"));
            }
            weight => weight.map_or(usual, |(_, weight)| weight),
        };
        Ok(Bucket {
            id: self.id.unwrap_or(place),
            weight,
            watch_port: self.watch_port,
            watch_group: self.watch_group,
            actions: self.actions.finish()?,
        })
    }
}

/// Parses the type of a group.
fn kind(value: TextSlice<'_>) -> Result<GroupKind, RuleTextError> {
    let named = KINDS.iter().find(|(name, _)| *name == value.text());
    named
        .map(|(_, kind)| *kind)
        .ok_or_else(|| value.bad("group", "type=all, select, indirect or ff"))
}

/// Reads the port of `watch_port`: a port with a link, or `any`.
fn parse_watch_port(value: TextSlice<'_>, scope: &Scope<'_>) -> Result<PortNo, RuleTextError> {
    let port = scope.port(value)?;
    if port <= PortNo::MAX || port == PortNo::ANY {
        Ok(port)
    } else {
        Err(value.error(RuleTextProblem::BadPort { port, action: "watch_port" }))
    }
}

/// Reads the fields of `fields(FIELD,FIELD=MASK,..)`.
/// The result is in the order of the field table.
fn parse_hash_fields(argument: TextSlice<'_>) -> Result<Vec<(FieldId, u128)>, RuleTextError> {
    let mut fields: Vec<(FieldId, u128)> = Vec::new();
    for item in argument.items() {
        let item = item?;
        let field =
            FieldId::find(item.name.text()).ok_or_else(|| subfield::unknown_field(item.name))?;
        if field.info().oxms.is_empty() {
            return Err(item.name.error(RuleTextProblem::MatchOnly(field)));
        }
        let mask =
            item.argument.map_or_else(|| Ok(field.value_max()), |value| mask(field, value))?;
        if fields.iter().any(|(other, _)| *other == field) {
            return Err(item.name.bad("fields", "each field once"));
        }
        fields.push((field, mask));
    }
    fields.sort_unstable_by_key(|(field, _)| *field);
    Ok(fields)
}

/// Parses the mask of a hashed field.
fn mask(field: FieldId, text: TextSlice<'_>) -> Result<u128, RuleTextError> {
    let (mask, whole) =
        parse_value(field, text.text()).map_err(|error| text.error(error.into()))?;
    let is_legal = field.info().maskable == Maskable::Maskable || mask == field.value_max();
    if whole == field.value_max() && mask != 0 && is_legal {
        Ok(mask)
    } else {
        Err(text.bad("fields", "FIELD to hash all its bits, or FIELD=MASK to hash some"))
    }
}

/// Names of the group types; the first name of each is printed.
const KINDS: [(&str, GroupKind); 5] = [
    ("all", GroupKind::All),
    ("select", GroupKind::Select),
    ("indirect", GroupKind::Indirect),
    ("ff", GroupKind::FastFailover),
    ("fast_failover", GroupKind::FastFailover),
];
/// The highest number of a bucket (`OFPG_BUCKET_MAX`).
const BUCKET_MAX: u32 = 0xffff_ff00;
/// The form of a group, for error messages.
const GROUP_FORM: &str =
    "group_id=ID,type=KIND,selection_method=METHOD,bucket=weight:WEIGHT,ACTIONS,..";
