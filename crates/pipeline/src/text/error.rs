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
    #[error("the rule has no actions: end it with `actions=..`, or `actions=drop` to drop")]
    ActionsMissing,
    /// No item of a rule has this name.
    #[error("unknown item `{name}`: is `{nearest}` meant?")]
    UnknownItem {
        /// The unknown name.
        name: String,
        /// The most similar known name.
        nearest: &'static str,
    },
    /// The command has no use for the item.
    #[error("`{name}` has no meaning in a command that {}: remove it", does(*command))]
    UselessItem {
        /// The item.
        name: String,
        /// The command.
        command: FlowModCommand,
    },
    /// An item has no value.
    #[error("`{name}` has no value: write `{name}=..`")]
    ValueMissing {
        /// The item.
        name: String,
    },
    /// A flag has a value.
    #[error("flag `{name}` takes no value: write `{name}` alone")]
    ValueOfFlag {
        /// The flag.
        name: String,
    },
    /// A field of the match is wrong.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// Not a number, or too large.
    #[error("{} is not {of}: write a number from 0 to {max}", quoted(text))]
    BadNumber {
        /// The wrong text.
        text: String,
        /// The expected number.
        of: &'static str,
        /// The largest one.
        max: u128,
    },
    /// A new rule cannot choose by cookie.
    #[error("`cookie` has a mask, but a command that adds a rule takes none: write `cookie=VALUE`")]
    MaskedCookie,
    /// A rule that is deleted cannot get a cookie.
    #[error(
        "`cookie` has no mask, but a command that deletes rules needs one: write `cookie=VALUE/-1`"
    )]
    UnmaskedCookie,
    /// A parenthesis stays open.
    #[error("a parenthesis is not closed: add `)`")]
    Unclosed,
    /// No action has this name.
    #[error("unknown action or port `{name}`{}", suggestion_text(*nearest))]
    UnknownAction {
        /// The unknown name.
        name: String,
        /// The most similar known name, if any is similar.
        nearest: Option<&'static str>,
    },
    /// The action is known, but not built.
    #[error("action `{0}` is not supported by this switch: remove it")]
    NotYet(&'static str),
    /// An action that takes none has an argument.
    #[error("`{name}` takes no argument: write `{name}` alone")]
    NoArgument {
        /// The action.
        name: &'static str,
    },
    /// An argument is missing or has the wrong form.
    #[error("{} is not an argument of `{action}`: write `{form}`", quoted(text))]
    BadArgument {
        /// The action.
        action: &'static str,
        /// The wrong text.
        text: String,
        /// The right form of the argument.
        form: &'static str,
    },
    /// `drop` is combined with another action.
    #[error("`drop` cannot be combined with other actions: remove `drop` or the others")]
    DropNotAlone,
    /// Instructions stand in the wrong order.
    #[error("`{first}` is after `{second}` but is executed first: move it before `{second}`")]
    Order {
        /// The later instruction, which must be first.
        first: String,
        /// The earlier instruction.
        second: &'static str,
    },
    /// An instruction occurs twice.
    #[error("instruction `{0}` occurs twice, but a rule has at most one of each: remove one")]
    Duplicate(&'static str),
    /// An instruction among the actions of a list.
    #[error("`{instruction}` is an instruction, but `{outer}` takes only actions: move it out")]
    Nested {
        /// The instruction.
        instruction: &'static str,
        /// The list.
        outer: &'static str,
    },
    /// An action that an action set cannot hold.
    #[error("`{name}` cannot be part of an action set: move it out of `write_actions`")]
    NotInActionSet {
        /// The action.
        name: String,
    },
    /// An action beside a clause of a conjunction.
    #[error("`{name}` is combined with `conjunction`, but only `note` may be: remove `{name}`")]
    BesideConjunction {
        /// The other action.
        name: String,
    },
    /// A name that is valid only inside `ct` is outside of it.
    #[error("`{0}` is allowed only inside `ct`: write `ct(commit,..)`")]
    OutsideCt(&'static str),
    /// An action that is not about a connection is inside `ct`.
    #[error(
        "`{name}` is inside `ct`, which takes only `nat` and writes of ct_mark and ct_label: move it out"
    )]
    InsideCt {
        /// The action or field.
        name: String,
    },
    /// A connection that is not kept is to be changed.
    #[error("`{name}` changes a connection that `ct` does not commit: add `commit`")]
    CommitMissing {
        /// The action or field.
        name: String,
    },
    /// Several bits where one is required.
    #[error("this action writes one bit, but several are named: name one, as in `reg0[0]`")]
    ManyBits,
    /// A field with an OpenFlow number that is too long for the action.
    #[error("the OpenFlow number of {} exceeds the 32 bits of this action: use another field", .0.name())]
    LongNumber(FieldId),
    /// A required part is missing.
    #[error("{of} is not complete: add {missing}")]
    Incomplete {
        /// The incomplete item.
        of: &'static str,
        /// The missing part.
        missing: &'static str,
    },
    /// `clone` in `clone` in `clone` ..
    #[error("actions are nested more than {max} levels deep: remove a level")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// No such port.
    #[error("unknown port `{name}`: write its number, its name, or a reserved port such as LOCAL")]
    UnknownPort {
        /// The unknown name.
        name: String,
    },
    /// A mask without bits.
    #[error("the mask of {} is zero, so nothing would be written: set a bit of the mask", .0.name())]
    EmptyMask(FieldId),
    /// A port that nothing can be sent to in this way.
    #[error("`{action}` cannot send to port {port}: name another port")]
    BadPort {
        /// The port.
        port: PortNo,
        /// The action.
        action: &'static str,
    },
    /// No such field.
    #[error("unknown field `{name}`{}", suggestion_text(*nearest))]
    UnknownField {
        /// The unknown name.
        name: String,
        /// The most similar known name, if any is similar.
        nearest: Option<&'static str>,
    },
    /// Not bits of a field.
    #[error(
        "`{text}` is not a range of bits of {}: write [], [BIT] or [FIRST..LAST] with bits from 0 to {last}",
        field.name()
    )]
    BadBits {
        /// The wrong text.
        text: String,
        /// The field.
        field: FieldId,
        /// Highest bit of the field.
        last: u8,
    },
    /// A field that actions cannot write.
    #[error("{} can be matched but not written: use another field", .0.name())]
    ReadOnly(FieldId),
    /// A field that has no number on the wire.
    #[error("{} has no OpenFlow number, so actions cannot name it: use another field", .0.name())]
    MatchOnly(FieldId),
    /// A move between bits of different number.
    #[error(
        "the source has {source_width} bits and the target {target_width}: name ranges of equal width"
    )]
    Widths {
        /// Bits to read.
        source_width: u8,
        /// Bits to write.
        target_width: u8,
    },
    /// A value that a field cannot have.
    #[error("{value:#x} is not a value of {}: {rule}", field.name())]
    BadValue {
        /// The value.
        value: u128,
        /// The field.
        field: FieldId,
        /// The values that the field can have.
        rule: &'static str,
    },
    /// Not bytes.
    #[error(
        "`{text}` is not a list of bytes: write two hexadecimal digits for each, as in `01.ff`"
    )]
    BadHex {
        /// The wrong text.
        text: String,
    },
    /// The packets that the rule matches may not have the field.
    #[error("a packet that matches may lack {}: match {} too", .0.name(), .0.info().prerequisite)]
    Prerequisite(FieldId),
    /// The packets that a learned rule matches may not have the field.
    #[error(
        "a packet that matches the learned rule may lack {}: match {} before it in the learned \
         rule",
        .0.name(),
        .0.info().prerequisite
    )]
    PrerequisiteOfLearned(FieldId),
    /// The packets that the rule matches may not have a VLAN tag.
    #[error("a packet that matches may lack a VLAN tag: match vlan_tci=0x1000/0x1000 too")]
    NoVlan,
    /// The match does not fix the transport protocol.
    #[error("`{0}` needs the transport protocol: match tcp, udp or sctp too")]
    NoTransport(&'static str),
    /// `goto_table` leads back.
    #[error("goto_table leads from table {table} to table {target}: name a higher table")]
    GotoNotUp {
        /// The table of the rule.
        table: TableId,
        /// Table that `goto_table` leads to.
        target: TableId,
    },
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "nothing".to_owned() } else { format!("`{text}`") }
}

fn suggestion_text(nearest: Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!(": is `{nearest}` meant?"))
}

const fn does(command: FlowModCommand) -> &'static str {
    match command {
        FlowModCommand::Add => "adds a rule",
        FlowModCommand::Modify => "modifies rules",
        FlowModCommand::ModifyStrict => "modifies one rule",
        FlowModCommand::Delete => "deletes rules",
        FlowModCommand::DeleteStrict => "deletes one rule",
    }
}
