//! Rules and flows as text.

use std::{borrow::Cow, fmt, io};

use shunt_flow::FieldId;

use super::Workload;
use crate::traffic::{CoflowRole, ScheduledBatch, UpdateOperation};

/// A rule as a line in the syntax of `ovs-ofctl add-flows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLine {
    /// The table of the rule.
    pub table: u8,
    /// The text of the rule.
    pub text: String,
}

impl RuleLine {
    /// Returns the rule without its actions, for `delete_strict`.
    #[must_use]
    pub fn strict_match(&self) -> &str {
        let matching = self.text.split("actions=").next().unwrap_or_default();
        matching.trim_end_matches([',', ' '])
    }
}

impl fmt::Display for RuleLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Workload {
    /// Writes the initial rules in the syntax of `ovs-ofctl add-flows`.
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub fn write_rules(&self, out: &mut impl io::Write) -> io::Result<()> {
        writeln!(out, "# {}", self.name())?;
        self.base_rules().try_for_each(|rule| writeln!(out, "{rule}"))
    }

    /// Writes the rule changes batch by batch, each after a comment with its time.
    ///
    /// `ovs-ofctl --bundle add-flows` accepts each batch; it would apply the whole text as one
    /// bundle, without the times.
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub fn write_updates(&self, out: &mut impl io::Write) -> io::Result<()> {
        writeln!(out, "# {}", self.name())?;
        let batches = &self.updates().batches;
        (1..).zip(batches).try_for_each(|(number, batch)| self.write_batch(number, batch, out))
    }

    /// Writes the changes of one batch, by its number from 1.
    ///
    /// Writes nothing if no batch has this number. `ovs-ofctl --bundle add-flows` accepts the
    /// output.
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub fn write_update(&self, number: usize, out: &mut impl io::Write) -> io::Result<()> {
        let batch = number.checked_sub(1).and_then(|index| self.updates().batches.get(index));
        batch.map_or(Ok(()), |batch| self.write_batch(number, batch, out))
    }

    /// Writes a batch of rule changes.
    fn write_batch(
        &self,
        number: usize,
        batch: &ScheduledBatch,
        out: &mut impl io::Write,
    ) -> io::Result<()> {
        let (done, command) = match batch.change {
            UpdateOperation::Add => ("added", "add"),
            UpdateOperation::Delete => ("deleted", "delete_strict"),
        };
        let rules = batch.rules.len();
        let seconds = batch.at.as_secs();
        let rest = batch.at.subsec_nanos();
        writeln!(out, "# batch {number} at {seconds}.{rest:09} s: {rules} {done}")?;
        for rule in batch.rules.iter().filter_map(|rule| self.rules().get(*rule)) {
            match batch.change {
                UpdateOperation::Add => writeln!(out, "{command} {rule}")?,
                UpdateOperation::Delete => writeln!(out, "{command} {}", rule.strict_match())?,
            }
        }
        Ok(())
    }

    /// Writes the flows as comma-separated values, with a header line.
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub fn write_flows(&self, out: &mut impl io::Write) -> io::Result<()> {
        writeln!(
            out,
            "flow,class,role,coflow,packets,in_port,eth_src,eth_dst,ip_proto,ip_src,ip_dst,tp_src,tp_dst"
        )?;
        for ((index, flow), packets) in (0_u32..).zip(self.flows()).zip(self.packets_of_flows()) {
            let class = self.classes().get(usize::from(flow.class)).map_or("", |class| &class.name);
            let class = quote(class);
            let (role, coflow) = match flow.role {
                CoflowRole::Alone => ("alone", String::new()),
                CoflowRole::Base { coflow } => ("base", coflow.to_string()),
                CoflowRole::Associated { coflow, predicted: true } => {
                    ("predicted", coflow.to_string())
                }
                CoflowRole::Associated { coflow, predicted: false } => {
                    ("associated", coflow.to_string())
                }
            };
            let key = flow.key();
            let number = |field| key.field(field);
            writeln!(
                out,
                "{index},{class},{role},{coflow},{packets},{},{},{},{},{},{},{},{}",
                flow.in_port(),
                mac(number(FieldId::EthSrc)),
                mac(number(FieldId::EthDst)),
                number(FieldId::IpProto),
                address(number(FieldId::Ipv4Src)),
                address(number(FieldId::Ipv4Dst)),
                number(FieldId::TcpSrc),
                number(FieldId::TcpDst),
            )?;
        }
        Ok(())
    }
}

/// Quotes a value if it contains a separator.
fn quote(value: &str) -> Cow<'_, str> {
    if value.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", value.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(value)
    }
}

/// Formats a MAC address.
fn mac(value: u128) -> String {
    let bytes = value.to_be_bytes();
    let bytes = bytes.last_chunk::<6>().copied().unwrap_or_default();
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns an IPv4 address.
fn address(value: u128) -> std::net::Ipv4Addr {
    let bytes = value.to_be_bytes();
    bytes.last_chunk::<4>().copied().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_comma_stays_one_value() {
        assert_eq!(quote("psc-routed"), "psc-routed");
        assert_eq!(quote("bal,anced"), "\"bal,anced\"");
        assert_eq!(quote("a \"b\""), "\"a \"\"b\"\"\"");
    }

    #[test]
    fn rule_is_deleted_by_match_and_priority() {
        let strict =
            |text: &str| RuleLine { table: 0, text: text.to_owned() }.strict_match().to_owned();
        assert_eq!(
            strict("table=1,priority=5,tcp,tp_dst=80,actions=drop"),
            "table=1,priority=5,tcp,tp_dst=80"
        );
        assert_eq!(strict("table=1,priority=5 actions=output:1"), "table=1,priority=5");
    }
}
