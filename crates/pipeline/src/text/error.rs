//! Errors in the text of a rule, group or meter.

use std::ops::Range;

use shunt_flow::{FieldId, PortNo, text::MatchError};

use crate::{id::TableId, tables::flow_mod::FlowModCommand};

/// An error in the text of a rule, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct RuleTextError {
    /// Byte range of the wrong text.
    pub span: Range<usize>,
    /// The problem, and how to mend it.
    pub problem: RuleTextProblem,
}

/// The problem in the text of a rule, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleTextProblem {
    /// The rule has no actions.
    #[error(
        "the rule has no actions: end it with `actions=..`, or with `actions=drop` to drop \
         packets"
    )]
    ActionsMissing,
    /// An item of the text has an unknown name.
    #[error("unknown item `{name}`: is `{nearest}` meant?")]
    UnknownItem {
        /// The name that is not known.
        name: String,
        /// The most similar known name.
        nearest: &'static str,
    },
    /// The item has no meaning for the command.
    #[error("`{name}` has no meaning in a command that {}: remove it", verb_of(*command))]
    UselessItem {
        /// Name of the item.
        name: String,
        /// The command in which the item has no meaning.
        command: FlowModCommand,
    },
    /// An item has no value.
    #[error("`{name}` has no value: write `{name}=..`")]
    ValueMissing {
        /// Name of the item.
        name: String,
    },
    /// A flag has a value.
    #[error("flag `{name}` takes no value: write `{name}` alone")]
    ValueOfFlag {
        /// The flag that has a value.
        name: String,
    },
    /// A field of the match is wrong.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// The text is not a number, or the number is too large.
    #[error("{} is not {of}: write a number from 0 to {max}", quote(text))]
    BadNumber {
        /// The text that is not such a number.
        text: String,
        /// The name of the expected number.
        of: &'static str,
        /// The largest number that is legal.
        max: u128,
    },
    /// The cookie of a new rule has a mask.
    #[error(
        "the `cookie` has a mask, but a command that adds a rule takes none: write `cookie=VALUE`"
    )]
    MaskedCookie,
    /// The cookie of a command that deletes rules has no mask.
    #[error(
        "the `cookie` has no mask, but a command that deletes rules needs one: write \
         `cookie=VALUE/-1`"
    )]
    UnmaskedCookie,
    /// A parenthesis is not closed.
    #[error("a parenthesis is not closed: add `)`")]
    Unclosed,
    /// No action has this name.
    #[error("unknown action or port `{name}`{}", suggestion_text(*nearest))]
    UnknownAction {
        /// The name that is not known.
        name: String,
        /// The most similar known name, if any is similar.
        nearest: Option<&'static str>,
    },
    /// The switch does not support this known action.
    #[error("action `{0}` is not supported by this switch: remove it")]
    NotYet(&'static str),
    /// An action has an argument, but takes none.
    #[error("`{name}` takes no argument: write `{name}` alone")]
    NoArgument {
        /// Name of the action.
        name: &'static str,
    },
    /// An argument is missing or has the wrong form.
    #[error("{} is not an argument of `{action}`: write {form}", quote(text))]
    BadArgument {
        /// Name of the action.
        action: &'static str,
        /// The text that is not such an argument.
        text: String,
        /// The right form of the argument.
        form: &'static str,
    },
    /// `drop` is combined with another action.
    #[error("the action `drop` cannot be combined with other actions: remove `drop` or the others")]
    DropNotAlone,
    /// Instructions are in the wrong order.
    #[error("`{first}` is after `{second}` but is executed first: move it before `{second}`")]
    Order {
        /// The instruction that must be first, and stands later in the text.
        first: String,
        /// The instruction that is before `first` in the text.
        second: &'static str,
    },
    /// An instruction occurs twice in the rule.
    #[error("instruction `{0}` occurs twice, but a rule has at most one of each: remove one")]
    Duplicate(&'static str),
    /// An instruction is among the actions of a list that cannot hold it.
    #[error("`{instruction}` is an instruction, but `{outer}` takes only actions: move it out")]
    Nested {
        /// The instruction among the actions.
        instruction: &'static str,
        /// The name of the list.
        outer: &'static str,
    },
    /// The list is an action set, which cannot hold the action.
    #[error("the action `{name}` cannot be part of an action set: move it out of `write_actions`")]
    NotInActionSet {
        /// Name of the action.
        name: String,
    },
    /// A list with `conjunction` has an action other than `note`.
    #[error("`{name}` is combined with `conjunction`, but only `note` may be: remove `{name}`")]
    BesideConjunction {
        /// The action that must not be combined with `conjunction`.
        name: String,
    },
    /// A name that is valid only inside `ct` is outside of it.
    #[error("the action `{0}` is allowed only inside `ct`: write `ct(commit,..)`")]
    OutsideCt(&'static str),
    /// An action inside `ct` is neither `nat` nor a write of ct_mark or ct_label.
    #[error(
        "`{name}` is inside `ct`, which takes only `nat` and writes of ct_mark and ct_label: move it out"
    )]
    InsideCt {
        /// The name of the action or field.
        name: String,
    },
    /// `ct` changes a connection, but has no `commit`.
    #[error("`{name}` changes a connection that `ct` does not commit: add `commit`")]
    CommitMissing {
        /// The name of the action or field.
        name: String,
    },
    /// The text names several bits where one bit is required.
    #[error("the action writes one bit, but several bits are named: name one, as in `reg0[0]`")]
    ManyBits,
    /// The OXM number of a field is too long for the action.
    #[error(
        "the OXM header of {} exceeds the 32 bits of this action: use another field",
        .0.name()
    )]
    LongNumber(FieldId),
    /// An item lacks a required part.
    #[error("the text of {of} is not complete: add {missing}")]
    Incomplete {
        /// The item that lacks a part.
        of: &'static str,
        /// The part that is missing.
        missing: &'static str,
    },
    /// `clone` actions are nested too deep.
    #[error("actions are nested more than {max} levels deep: remove a level")]
    TooDeep {
        /// The most `clone` actions around an action.
        max: usize,
    },
    /// No port has this name.
    #[error("unknown port `{name}`: write its number, its name, or a reserved port such as LOCAL")]
    UnknownPort {
        /// The name that is not known.
        name: String,
    },
    /// The mask of a field is zero.
    #[error(
        "the mask of {} is zero, so nothing would be written: set a bit of the mask",
        .0.name()
    )]
    EmptyMask(FieldId),
    /// The action cannot send to this port.
    #[error("`{action}` cannot send to port {port}: name another port")]
    BadPort {
        /// The port that was refused.
        port: PortNo,
        /// Name of the action.
        action: &'static str,
    },
    /// No field has this name.
    #[error("unknown field `{name}`{}", suggestion_text(*nearest))]
    UnknownField {
        /// The name that is not known.
        name: String,
        /// The most similar known name, if any is similar.
        nearest: Option<&'static str>,
    },
    /// The text is not a range of bits of the field.
    #[error(
        "`{text}` is not a range of bits of {}: write [], [BIT] or [FIRST..LAST] with bits from 0 to {last}",
        field.name()
    )]
    BadBits {
        /// The text that is not a range of bits.
        text: String,
        /// The field that has other bits.
        field: FieldId,
        /// Highest bit of the field.
        last: u8,
    },
    /// Actions cannot write the field.
    #[error("{} can be matched but not written: use another field", .0.name())]
    ReadOnly(FieldId),
    /// The field has no OXM number, so actions cannot name it.
    #[error("{} has no OXM number, so actions cannot name it: use another field", .0.name())]
    MatchOnly(FieldId),
    /// The source and the target of a `move` have different widths.
    #[error(
        "the source has {source_width} bits and the target {target_width}: name ranges of equal width"
    )]
    Widths {
        /// Number of bits of the source.
        source_width: u8,
        /// Number of bits of the target.
        target_width: u8,
    },
    /// The value is not in the range of the field.
    #[error("{value:#x} is not a value of {}: {rule}", field.name())]
    BadValue {
        /// The value that was refused.
        value: u128,
        /// The field with the refused value.
        field: FieldId,
        /// The values that the field can have.
        rule: &'static str,
    },
    /// The text is not a list of bytes.
    #[error(
        "`{text}` is not a list of bytes: write two hexadecimal digits for each, as in `01.ff`"
    )]
    BadHex {
        /// The text that is not a list of bytes.
        text: String,
    },
    /// An action needs a field that packets of the rule may lack.
    #[error(
        "the rule uses the field {}, but matches packets without it: also match {}",
        .0.name(), .0.info().prerequisite
    )]
    Prerequisite(FieldId),
    /// An action or match of a learned rule needs a field that its packets may lack.
    #[error(
        "the learned rule uses the field {}, but matches packets without it: match {} before it \
         in the learned rule",
        .0.name(),
        .0.info().prerequisite
    )]
    PrerequisiteOfLearned(FieldId),
    /// An action needs a VLAN tag, which packets of the rule may lack.
    #[error(
        "the rule writes a VLAN tag, but matches packets without one: also match \
         vlan_tci=0x1000/0x1000"
    )]
    NoVlan,
    /// An action needs a transport protocol, which the match does not name.
    #[error("the action `{0}` needs a transport protocol: also match tcp, udp or sctp")]
    NoTransport(&'static str),
    /// `goto_table` names the table of the rule or a lower table.
    #[error("goto_table leads from table {table} to table {target}: name a higher table")]
    GotoNotUp {
        /// The table of the rule.
        table: TableId,
        /// The table that `goto_table` names.
        target: TableId,
    },
}

/// Writes a text in quotes.
fn quote(text: &str) -> String {
    if text.is_empty() { "nothing".to_owned() } else { format!("`{text}`") }
}

/// Returns the end of an error message that suggests a name.
fn suggestion_text(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(": is `{nearest}` meant?"))
}

/// Returns the effect of a flow-mod command, as a verb with its object.
const fn verb_of(command: FlowModCommand) -> &'static str {
    match command {
        FlowModCommand::Add => "adds a rule",
        FlowModCommand::Modify => "modifies rules",
        FlowModCommand::ModifyStrict => "modifies one rule",
        FlowModCommand::Delete => "deletes rules",
        FlowModCommand::DeleteStrict => "deletes one rule",
    }
}
