//! Which rules a request means.

use shunt_flow::{Match, PortNo};

use crate::{Action, Cookie, FlowMod, Instructions, Rule, TableSelector};

/// Chooses rules, as the requests for flow statistics and the loose flow-mods do
/// (OpenFlow 1.3.5, 6.4 and 7.3.5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFilter {
    /// Rules of this table.
    pub table: TableSelector,
    /// Rules whose match is this one or within it.
    pub matching: Match,
    /// The cookie that rules must have under `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of the cookie that count; 0: all rules.
    pub cookie_mask: u64,
    /// Rules with an output to this port; [`PortNo::ANY`]: all rules.
    pub out_port: PortNo,
    /// Rules with an output to this group; [`RuleFilter::GROUP_ANY`]: all rules.
    pub out_group: u32,
}

impl RuleFilter {
    /// `OFPG_ANY`: the filter does not look at groups.
    pub const GROUP_ANY: u32 = 0xffff_ffff;

    /// The filter that lets every rule through.
    #[must_use]
    pub fn all() -> Self {
        Self {
            table: TableSelector::All,
            matching: Match::any(),
            cookie: Cookie::default(),
            cookie_mask: 0,
            out_port: PortNo::ANY,
            out_group: Self::GROUP_ANY,
        }
    }

    /// Whether the filter lets a rule through.
    #[must_use]
    pub fn admits(&self, rule: &Rule) -> bool {
        self.admits_strictly(rule) && rule.matching.is_within(&self.matching)
    }

    /// As [`Self::admits`], whatever the rule's match: the caller has found it by its match.
    pub(crate) fn admits_strictly(&self, rule: &Rule) -> bool {
        let in_table = match self.table {
            TableSelector::One(table) => rule.table == table,
            TableSelector::All => true,
        };
        let differing = (rule.cookie.number() ^ self.cookie.number()) & self.cookie_mask;
        let port = self.out_port;
        in_table
            && differing == 0
            && self.out_group == Self::GROUP_ANY
            && (port == PortNo::ANY || rule.instructions.outputs_to(port))
    }

    /// The rules that a request to modify means; it does not look at outputs.
    pub(crate) fn to_modify(request: &FlowMod) -> Self {
        Self { out_port: PortNo::ANY, out_group: Self::GROUP_ANY, ..Self::to_delete(request) }
    }

    /// The rules that a request to delete means.
    pub(crate) fn to_delete(request: &FlowMod) -> Self {
        Self {
            table: request.table,
            matching: request.matching.clone(),
            cookie: request.cookie,
            cookie_mask: request.cookie_mask,
            out_port: request.out_port,
            out_group: request.out_group,
        }
    }
}

impl Instructions {
    /// Whether some action, however deep, is an output to `port`.
    fn outputs_to(&self, port: PortNo) -> bool {
        let mut lists = vec![&*self.apply, &*self.write];
        while let Some(list) = lists.pop() {
            for action in list {
                match action {
                    Action::Output { port: own, .. }
                    | Action::OutputTruncated { port: own, .. } => {
                        if *own == port {
                            return true;
                        }
                    }
                    Action::Controller(_) => {
                        if port == PortNo::CONTROLLER {
                            return true;
                        }
                    }
                    Action::Clone(inner) => lists.push(inner),
                    Action::OutputField { .. }
                    | Action::SetField { .. }
                    | Action::Load { .. }
                    | Action::Move { .. }
                    | Action::PushVlan { .. }
                    | Action::PopVlan
                    | Action::DecTtl { .. }
                    | Action::Resubmit { .. }
                    | Action::SetQueue(_)
                    | Action::PopQueue
                    | Action::Note(_)
                    | Action::Exit => {}
                }
            }
        }
        false
    }
}
