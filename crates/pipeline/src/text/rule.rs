//! The text of whole rules, as `ovs-ofctl` reads them.

use std::time::Duration;

use shunt_classifier::Priority;
use shunt_flow::{
    Match, PortNo,
    text::{MatchBuilder, MatchError, NoPortNames, PortNames, nearest_of},
};

use super::{
    RuleTextError, RuleTextProblem,
    instructions::parse_instructions,
    names::ITEMS,
    number::{self, parse_as, table},
    scope::Scope,
    slice::{Item, TextSlice},
};
use crate::{
    id::{Cookie, TableId},
    tables::{
        flow_mod::{
            FlowMod,
            FlowModCommand::{self, Add, Delete, DeleteStrict, Modify, ModifyStrict},
            TableSelector,
        },
        rule::{FlowFlags, Instructions},
    },
};

/// Reads a rule, or a selection of rules to modify or delete, as `ovs-ofctl` does.
///
/// Without `table=` a rule is added to table 0, and rules are modified or deleted in all tables.
/// Items that only `dump-flows` prints, such as counters, are skipped.
///
/// ```
/// use shunt_flow::text::NoPortNames;
/// use shunt_pipeline::{FlowModCommand, text};
///
/// let line = "table=2,priority=5,tcp,nw_dst=10.0.0.0/8,actions=dec_ttl,output:3";
/// let rule = text::parse_rule(FlowModCommand::Add, line, &NoPortNames)?;
/// assert_eq!(text::format_actions(&rule.instructions, &NoPortNames), "dec_ttl,output:3");
///
/// let error = text::parse_rule(FlowModCommand::Add, "ip,actions=ouptut:3", &NoPortNames);
/// let error = error.unwrap_err();
/// assert_eq!(error.span, 11..17);
/// assert_eq!(error.to_string(), "unknown action or port `ouptut`: is `output` meant?");
/// # Ok::<(), text::RuleTextError>(())
/// ```
///
/// # Errors
///
/// The error has the problem and its position in `text`.
pub fn parse_rule(
    command: FlowModCommand,
    text: &str,
    ports: &dyn PortNames,
) -> Result<FlowMod, RuleTextError> {
    read(command, text, ports, |matching| Scope::of_rule(matching, ports))
}

/// Reads the text of a rule that the switch has accepted before.
///
/// Unlike [`parse_rule`], it accepts actions on headers that the packets of the rule may lack.
/// OpenFlow 1.0 accepts such actions too. An action on a header has no effect on a packet without
/// the header.
///
/// # Errors
///
/// The error has the problem and its position in `text`.
pub fn parse_saved_rule(text: &str) -> Result<FlowMod, RuleTextError> {
    let ports: &dyn PortNames = &NoPortNames;
    read(Add, text, ports, |matching| Scope::of_saved_rule(matching, ports))
}

/// Reads a rule; `scope` returns the scope of its actions.
fn read<'a>(
    command: FlowModCommand,
    text: &'a str,
    ports: &'a dyn PortNames,
    scope: impl FnOnce(&Match) -> Scope<'a>,
) -> Result<FlowMod, RuleTextError> {
    let whole = TextSlice::whole(text);
    let (items, actions) = match command {
        Add | Modify | ModifyStrict => {
            let (items, actions) = split_actions(whole)
                .ok_or_else(|| whole.tail().error(RuleTextProblem::ActionsMissing))?;
            (items, Some(actions))
        }
        Delete | DeleteStrict => (whole, None),
    };
    let mut draft = RuleDraft { rule: blank(command), matching: MatchBuilder::new(ports), ports };
    items.items().try_for_each(|item| draft.add(item?))?;
    draft.finish(items, actions, scope)
}

/// A rule with the items read so far.
struct RuleDraft<'a> {
    /// The request, with the values read so far.
    rule: FlowMod,
    /// The match, with the fields read so far.
    matching: MatchBuilder<'a>,
    ports: &'a dyn PortNames,
}

impl<'a> RuleDraft<'a> {
    /// Parses one item of the text of a rule.
    fn add(&mut self, item: Item<'_>) -> Result<(), RuleTextError> {
        let name = item.name.text();
        let command = self.rule.command;
        if !is_useful(name, command) {
            let name = name.to_owned();
            return Err(item.name.error(RuleTextProblem::UselessItem { name, command }));
        }
        if let Some(flag) = self.flag(name) {
            *flag = true;
            return match item.argument {
                None => Ok(()),
                Some(value) => {
                    Err(value.error(RuleTextProblem::ValueOfFlag { name: name.to_owned() }))
                }
            };
        }
        let value = item.argument.map(TextSlice::text);
        let at = item.argument.unwrap_or(item.name);
        match self.matching.set_item(name, value) {
            Ok(true) => Ok(()),
            Ok(false) => self.setting(item),
            Err(error) => Err(at.error(error.into())),
        }
    }

    /// Returns the flag of the rule with this name.
    fn flag(&mut self, name: &str) -> Option<&mut bool> {
        let flags = &mut self.rule.flags;
        Some(match name {
            "send_flow_rem" => &mut flags.send_flow_removed,
            "check_overlap" => &mut flags.check_overlap,
            "reset_counts" => &mut flags.reset_counts,
            "no_packet_counts" => &mut flags.no_packet_counts,
            "no_byte_counts" => &mut flags.no_byte_counts,
            _ => return None,
        })
    }

    /// Reads an item with a value that is not part of the match.
    fn setting(&mut self, item: Item<'_>) -> Result<(), RuleTextError> {
        let name = item.name.text();
        let missing = || RuleTextProblem::ValueMissing { name: name.to_owned() };
        let known = ITEMS.contains(&name) || is_counter(name);
        let value = match item.argument.filter(|value| !value.is_empty()) {
            Some(value) => value,
            None if known => return Err(item.name.error(missing())),
            None => return Err(unknown(item.name)),
        };
        let rule = &mut self.rule;
        match name {
            "table" => rule.table = selector(value, rule.table)?,
            "priority" => {
                rule.priority = Priority::new(parse_as(value, "a priority", u16::MAX)?);
            }
            "idle_timeout" => rule.idle_timeout = seconds(value)?,
            "hard_timeout" => rule.hard_timeout = seconds(value)?,
            "importance" => rule.importance = parse_as(value, "an importance", u16::MAX)?,
            "out_port" => rule.out_port = Scope::of_packet_out(self.ports).port(value)?,
            "out_group" => rule.out_group = group(value)?,
            "cookie" => {
                (rule.cookie, rule.cookie_mask) = cookie_and_mask(value, rule.command)?;
            }
            _ if is_counter(name) => {}
            _ => return Err(unknown(item.name)),
        }
        Ok(())
    }

    /// Checks the items together, and returns the request.
    fn finish(
        self,
        items: TextSlice<'_>,
        actions: Option<TextSlice<'_>>,
        scope: impl FnOnce(&Match) -> Scope<'a>,
    ) -> Result<FlowMod, RuleTextError> {
        let mut rule = self.rule;
        rule.matching = self.matching.finish().map_err(|error| items.error(error.into()))?;
        let Some(actions) = actions else { return Ok(rule) };
        rule.instructions = parse_instructions(actions, scope(&rule.matching))?;
        match (rule.table, rule.instructions.goto) {
            (TableSelector::One(table), Some(target)) if target <= table => {
                Err(actions.error(RuleTextProblem::GotoNotUp { table, target }))
            }
            _ => Ok(rule),
        }
    }
}

/// Returns the request of a command without items: every field has its default.
fn blank(command: FlowModCommand) -> FlowMod {
    FlowMod {
        command,
        table: match command {
            Add => TableSelector::One(TableId::FIRST),
            Modify | ModifyStrict | Delete | DeleteStrict => TableSelector::All,
        },
        matching: Match::any(),
        priority: Priority::DEFAULT,
        cookie: Cookie::default(),
        cookie_mask: 0,
        idle_timeout: Duration::ZERO,
        hard_timeout: Duration::ZERO,
        importance: 0,
        flags: FlowFlags::default(),
        out_port: PortNo::ANY,
        out_group: GROUP_ANY,
        instructions: Instructions::default(),
    }
}

/// Splits the text at `actions=`.
fn split_actions(text: TextSlice<'_>) -> Option<(TextSlice<'_>, TextSlice<'_>)> {
    let (items, behind) = text.split_once("action")?;
    let (_, actions) = behind.split_once("=")?;
    Some((items, actions))
}

/// Returns whether an item has a meaning for a command.
fn is_useful(name: &str, command: FlowModCommand) -> bool {
    match name {
        "importance" => command == Add,
        "out_port" | "out_group" => matches!(command, Delete | DeleteStrict),
        "priority" => command != Delete,
        "idle_timeout" | "hard_timeout" | "send_flow_rem" | "check_overlap" | "reset_counts"
        | "no_packet_counts" | "no_byte_counts" | "action" | "actions" => {
            matches!(command, Add | Modify | ModifyStrict)
        }
        _ => true,
    }
}

/// Returns whether only `dump-flows` prints the item.
fn is_counter(name: &str) -> bool {
    matches!(name, "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age")
}

/// Returns the error for a name that is neither an item nor a field.
fn unknown(name: TextSlice<'_>) -> RuleTextError {
    let text = name.text();
    name.error(match nearest_of(text, ITEMS.iter().copied()) {
        Some(nearest) => RuleTextProblem::UnknownItem { name: text.to_owned(), nearest },
        None => MatchError::unknown(text).into(),
    })
}

/// Reads a table number; 255 means `default`.
fn selector(value: TextSlice<'_>, default: TableSelector) -> Result<TableSelector, RuleTextError> {
    if value.text() == "255" { Ok(default) } else { table(value).map(TableSelector::One) }
}

/// Parses a number of seconds.
fn seconds(value: TextSlice<'_>) -> Result<Duration, RuleTextError> {
    parse_as(value, "a number of seconds", u16::MAX)
        .map(|seconds| Duration::from_secs(seconds.into()))
}

/// Parses the number of a group.
fn group(value: TextSlice<'_>) -> Result<u32, RuleTextError> {
    match value.text() {
        "any" | "ANY" => Ok(GROUP_ANY),
        _ => parse_as(value, "a group", u32::MAX),
    }
}

/// Reads the value and mask of a cookie.
///
/// A new rule gets the cookie. Rules to delete are selected by cookie and mask.
fn cookie_and_mask(
    value: TextSlice<'_>,
    command: FlowModCommand,
) -> Result<(Cookie, u64), RuleTextError> {
    match (value.split_once("/"), command) {
        (Some(_), Add) => Err(value.error(RuleTextProblem::MaskedCookie)),
        (None, Delete | DeleteStrict) => Err(value.error(RuleTextProblem::UnmaskedCookie)),
        (Some((value, mask)), _) => {
            Ok((Cookie::new(number::cookie(value)?), number::cookie(mask)?))
        }
        (None, _) => Ok((Cookie::new(number::cookie(value)?), 0)),
    }
}

/// `OFPG_ANY`.
const GROUP_ANY: u32 = u32::MAX;
