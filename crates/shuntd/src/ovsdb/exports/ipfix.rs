//! IPFIX options from the table `IPFIX`.

use shunt_ovsdb::RowView;
use shunt_switch::config::IpfixOptions;

use super::rows::{WORDS, checked, number};

/// Reads a row of `IPFIX`, or returns the reason why it cannot be used.
pub(super) fn options(row: RowView<'_>) -> Result<IpfixOptions, String> {
    let defaults = IpfixOptions::default();
    let word = |column, default| number(row, column, default, WORDS);
    let options = IpfixOptions {
        targets: row.strings("targets").map(str::to_owned).collect(),
        sampling: word("sampling", defaults.sampling)?,
        obs_domain_id: word("obs_domain_id", defaults.obs_domain_id)?,
        obs_point_id: word("obs_point_id", defaults.obs_point_id)?,
        virtual_obs_id: row.entry("other_config", "virtual_obs_id").unwrap_or_default().to_owned(),
        cache_active_timeout: word("cache_active_timeout", defaults.cache_active_timeout)?,
        cache_max_flows: word("cache_max_flows", defaults.cache_max_flows)?,
    };
    checked(options, IpfixOptions::check)
}
