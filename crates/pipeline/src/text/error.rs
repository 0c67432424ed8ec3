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
    /// The rule does not say what to do.
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
    #[error("`{name}` says nothing to a command that {}: leave it out", does(*command))]
    UselessItem {
        /// The item.
        name: String,
        /// The command.
        command: FlowModCommand,
    },
    /// An item stands there without a value.
    #[error("`{name}` has no value: write `{name}=..`")]
    ValueMissing {
        /// The item.
        name: String,
    },
    /// A flag has a value.
    #[error("`{name}` takes no value: it is set where it stands")]
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
    #[error("a rule that is added has a cookie without a mask: write `cookie=VALUE`")]
    MaskedCookie,
    /// A rule that is deleted cannot get a cookie.
    #[error("rules are deleted by cookie and mask: write `cookie=VALUE/-1`")]
    UnmaskedCookie,
    /// A parenthesis stays open.
    #[error("a parenthesis stays open: close it with `)`")]
    Unclosed,
    /// No action has this name.
    #[error("unknown action or port `{name}`{}", or_rather(*nearest))]
    UnknownAction {
        /// The unknown name.
        name: String,
        /// The most similar known name, if any is similar.
        nearest: Option<&'static str>,
    },
    /// The action is known, but not built.
    #[error("action \"{0}\" does not exist yet in this switch")]
    NotYet(&'static str),
    /// An action that takes none has an argument.
    #[error("`{name}` takes no argument: write `{name}` alone")]
    NoArgument {
        /// The action.
        name: &'static str,
    },
    /// An argument is missing or has the wrong form.
    #[error("{} is not what `{action}` takes: write `{form}`", quoted(text))]
    BadArgument {
        /// The action.
        action: &'static str,
        /// The wrong text.
        text: String,
        /// How it is written.
        form: &'static str,
    },
    /// `drop` stands beside another action.
    #[error("`drop` stands alone: remove it or the other actions")]
    DropNotAlone,
    /// Instructions stand in the wrong order.
    #[error("`{first}` is executed before `{second}`: write it before")]
    Order {
        /// The later instruction, which must be first.
        first: String,
        /// The earlier instruction.
        second: &'static str,
    },
    /// An instruction stands there twice.
    #[error("`{0}` stands twice: a rule has one of each instruction")]
    Duplicate(&'static str),
    /// An instruction among the actions of a list.
    #[error("`{instruction}` is an instruction of the rule: it cannot stand inside `{outer}`")]
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
    #[error("a rule with `conjunction` has nothing else but `note`: remove `{name}`")]
    BesideConjunction {
        /// The other action.
        name: String,
    },
    /// A name that is valid only inside `ct` is outside of it.
    #[error("`{0}` means something only inside `ct`: write `ct(commit,..)`")]
    OutsideCt(&'static str),
    /// An action that is not about a connection is inside `ct`.
    #[error(
        "`{name}` cannot stand inside `ct`: it holds `nat`, and writes of ct_mark and ct_label"
    )]
    InsideCt {
        /// The action or field.
        name: String,
    },
    /// A connection that is not kept is to be changed.
    #[error("`{name}` changes a connection that is not kept: add `commit`")]
    CommitMissing {
        /// The action or field.
        name: String,
    },
    /// Several bits where one is asked for.
    #[error("there is one bit to write: name it, as in `reg0[0]`")]
    ManyBits,
    /// A field with an OpenFlow number that is too long for the action.
    #[error("the number of {} in OpenFlow is too long for this action", .0.name())]
    LongNumber(FieldId),
    /// Something is missing.
    #[error("{of} is not complete: add {missing}")]
    Incomplete {
        /// The incomplete item.
        of: &'static str,
        /// The missing part.
        missing: &'static str,
    },
    /// `clone` in `clone` in `clone` ..
    #[error("actions are nested more than {max} deep")]
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
    #[error("the mask of {} is empty: nothing would be written", .0.name())]
    EmptyMask(FieldId),
    /// A port that nothing can be sent to in this way.
    #[error("`{action}` cannot send to port {port}")]
    BadPort {
        /// The port.
        port: PortNo,
        /// The action.
        action: &'static str,
    },
    /// No such field.
    #[error("unknown field `{name}`{}", or_rather(*nearest))]
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
        /// Its highest bit.
        last: u8,
    },
    /// A field that actions cannot write.
    #[error("{} can be matched but not written", .0.name())]
    ReadOnly(FieldId),
    /// A field that has no number on the wire.
    #[error("{} has no number in OpenFlow: actions cannot name it", .0.name())]
    MatchOnly(FieldId),
    /// A move between bits of different number.
    #[error("{source_width} bits do not fit {target_width}: move as many bits as there are")]
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
    #[error("`{text}` is not bytes: write two hexadecimal digits each, such as `01.ff`")]
    BadHex {
        /// The wrong text.
        text: String,
    },
    /// The packets that the rule matches may not have the field.
    #[error("packets that match need not have {}: match {} too", .0.name(), .0.info().prerequisite)]
    Prerequisite(FieldId),
    /// The packets that a learned rule matches may not have the field.
    #[error(
        "packets of the learned rule need not have {}: before it, match {} in the learned rule too",
        .0.name(),
        .0.info().prerequisite
    )]
    PrerequisiteOfLearned(FieldId),
    /// The packets that the rule matches may not have a VLAN tag.
    #[error("packets that match need not have a VLAN tag: match vlan_tci=0x1000/0x1000 too")]
    NoVlan,
    /// Nothing says which transport protocol it is.
    #[error("`{0}` must know the protocol: match tcp, udp or sctp too")]
    NoTransport(&'static str),
    /// `goto_table` leads back.
    #[error("goto_table leads from table {table} to {target}: it must lead to a higher table")]
    GotoNotUp {
        /// Where the rule stands.
        table: TableId,
        /// Where it wants to go.
        target: TableId,
    },
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "nothing".to_owned() } else { format!("`{text}`") }
}

fn or_rather(nearest: Option<&'static str>) -> String {
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
