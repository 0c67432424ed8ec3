//! The text format of a P4Info, as P4 compilers write it and P4Runtime shells read it.
//!
//! The writer supports only what a [`Program`](super::Program) contains; absent fields and zeros
//! are left out, as usual in this format.

use std::fmt::{self, Write};

use crate::wire::p4::config::v1::{
    Action, ActionRef, ControllerPacketMetadata, DirectCounter, MatchField, P4Info, Preamble,
    Table, action_ref, counter_spec, match_field, table,
};

/// Returns the text format of a P4Info.
#[must_use]
pub fn p4info_text(info: &P4Info) -> String {
    let mut text = TextWriter(String::new(), 0);
    // Writing to a string cannot fail.
    let _ = write_info(&mut text, info);
    text.0
}

/// The text so far, and the indentation level.
struct TextWriter(String, usize);

/// The result of writing text.
type WriteResult = Result<(), fmt::Error>;

impl TextWriter {
    /// Writes a line with its indentation.
    fn line(&mut self, line: impl fmt::Display) -> WriteResult {
        writeln!(self.0, "{:indent$}{line}", "", indent = self.1 * 2)
    }

    /// Writes a message in braces.
    fn block(&mut self, name: &str, inner: impl FnOnce(&mut Self) -> WriteResult) -> WriteResult {
        self.line(format_args!("{name} {{"))?;
        self.1 += 1;
        inner(self)?;
        self.1 -= 1;
        self.line("}")
    }

    /// Writes a string field; an empty string is left out.
    fn word(&mut self, name: &str, word: &str) -> WriteResult {
        if word.is_empty() {
            return Ok(());
        }
        let escaped = word.replace('\\', "\\\\").replace('"', "\\\"");
        self.line(format_args!("{name}: \"{escaped}\""))
    }

    /// Writes a number field.
    fn number(&mut self, name: &str, number: impl Into<i64>) -> WriteResult {
        match number.into() {
            0 => Ok(()),
            number => self.line(format_args!("{name}: {number}")),
        }
    }
}

/// Writes a whole P4Info.
fn write_info(text: &mut TextWriter, info: &P4Info) -> WriteResult {
    if let Some(package) = &info.pkg_info {
        text.block("pkg_info", |text| {
            text.word("name", &package.name)?;
            text.word("arch", &package.arch)
        })?;
    }
    info.tables
        .iter()
        .try_for_each(|table| text.block("tables", |text| write_table(text, table)))?;
    info.actions
        .iter()
        .try_for_each(|action| text.block("actions", |text| write_action(text, action)))?;
    info.direct_counters.iter().try_for_each(|counter| {
        text.block("direct_counters", |text| write_counter(text, counter))
    })?;
    info.controller_packet_metadata.iter().try_for_each(|header| {
        text.block("controller_packet_metadata", |text| write_header(text, header))
    })
}

/// Writes the id and the names of an object.
fn write_preamble(text: &mut TextWriter, preamble: Option<&Preamble>) -> WriteResult {
    let Some(preamble) = preamble else { return Ok(()) };
    text.block("preamble", |text| {
        text.number("id", preamble.id)?;
        text.word("name", &preamble.name)?;
        text.word("alias", &preamble.alias)?;
        preamble.annotations.iter().try_for_each(|note| text.word("annotations", note))
    })
}

/// Writes a table.
fn write_table(text: &mut TextWriter, table: &Table) -> WriteResult {
    write_preamble(text, table.preamble.as_ref())?;
    for field in &table.match_fields {
        text.block("match_fields", |text| write_field(text, field))?;
    }
    for action in &table.action_refs {
        text.block("action_refs", |text| write_reference(text, action))?;
    }
    text.number("const_default_action_id", table.const_default_action_id)?;
    if let Some(call) = &table.initial_default_action {
        text.block("initial_default_action", |text| {
            text.number("action_id", call.action_id)?;
            call.arguments.iter().try_for_each(|argument| {
                text.block("arguments", |text| {
                    text.number("param_id", argument.param_id)?;
                    let bytes: String =
                        argument.value.iter().map(|byte| format!("\\{byte:03o}")).collect();
                    text.line(format_args!("value: \"{bytes}\""))
                })
            })
        })?;
    }
    table.direct_resource_ids.iter().try_for_each(|id| text.number("direct_resource_ids", *id))?;
    text.number("size", table.size)?;
    let behaviour = table.idle_timeout_behavior();
    if behaviour != table::IdleTimeoutBehavior::NoTimeout {
        text.line(format_args!("idle_timeout_behavior: {}", behaviour.as_str_name()))?;
    }
    Ok(())
}

/// Writes a key field of a table.
fn write_field(text: &mut TextWriter, field: &MatchField) -> WriteResult {
    text.number("id", field.id)?;
    text.word("name", &field.name)?;
    text.number("bitwidth", field.bitwidth)?;
    let Some(match_field::Match::MatchType(kind)) = field.r#match else { return Ok(()) };
    let kind = match_field::MatchType::try_from(kind).unwrap_or_default();
    text.line(format_args!("match_type: {}", kind.as_str_name()))
}

/// Writes an action that a table may use.
fn write_reference(text: &mut TextWriter, action: &ActionRef) -> WriteResult {
    text.number("id", action.id)?;
    match action.scope() {
        action_ref::Scope::TableAndDefault => Ok(()),
        scope => text.line(format_args!("scope: {}", scope.as_str_name())),
    }
}

/// Writes an action with its parameters.
fn write_action(text: &mut TextWriter, action: &Action) -> WriteResult {
    write_preamble(text, action.preamble.as_ref())?;
    action.params.iter().try_for_each(|param| {
        text.block("params", |text| {
            text.number("id", param.id)?;
            text.word("name", &param.name)?;
            text.number("bitwidth", param.bitwidth)
        })
    })
}

/// Writes the counter of a table.
fn write_counter(text: &mut TextWriter, counter: &DirectCounter) -> WriteResult {
    write_preamble(text, counter.preamble.as_ref())?;
    if let Some(spec) = &counter.spec
        && spec.unit() != counter_spec::Unit::Unspecified
    {
        text.block("spec", |text| text.line(format_args!("unit: {}", spec.unit().as_str_name())))?;
    }
    text.number("direct_table_id", counter.direct_table_id)
}

/// Writes the header of packets from or to the controller.
fn write_header(text: &mut TextWriter, header: &ControllerPacketMetadata) -> WriteResult {
    write_preamble(text, header.preamble.as_ref())?;
    header.metadata.iter().try_for_each(|field| {
        text.block("metadata", |text| {
            text.number("id", field.id)?;
            text.word("name", &field.name)?;
            text.number("bitwidth", field.bitwidth)
        })
    })
}
