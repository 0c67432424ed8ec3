//! Commands of `ovs-vswitchd` that Shunt lacks, each with an alternative.

/// Returns the alternative to a command of `ovs-vswitchd` that Shunt lacks.
pub(super) fn instead_of(name: &str) -> Option<&'static str> {
    let (_, instead) = REFUSALS.iter().find(|(names, _)| names.contains(&name))?;
    Some(instead)
}

/// Returns the names of the refused commands.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    REFUSALS.iter().flat_map(|(names, _)| names.iter().copied())
}

/// Commands that are refused, with the reason.
const REFUSALS: &[(&[&str], &str)] = &[
    (&["cfm/set-fault"], "CFM does not exist"),
    (
        &["dpctl/add-dp", "dpctl/del-dp", "dpctl/set-if"],
        "there is one datapath for all bridges: use `shuntctl add-br`, `del-br` and `set-vlans`",
    ),
    (&["dpctl/add-if", "dpctl/del-if"], "use `shuntctl add-port` or `del-port`"),
    (
        &["dpctl/add-flow", "dpctl/add-flows", "dpctl/mod-flow", "dpctl/mod-flows"],
        "cache entries come from the tables alone: add rules with `ovs-ofctl add-flow`, or \
         announce flows with `shuntctl preload`",
    ),
    (
        &["dpctl/del-flow"],
        "a change of the tables evicts the stale cache entries; `dpctl/del-flows` removes all",
    ),
    (
        &["dpctl/cache-get-size", "dpctl/cache-set-size"],
        "use `shuntctl settings`; sizes of caches change in the configuration file, with a restart",
    ),
    (
        &[
            "dpctl/ct-bkts",
            "dpctl/ct-del-limits",
            "dpctl/ct-disable-tcp-seq-chk",
            "dpctl/ct-enable-tcp-seq-chk",
            "dpctl/ct-get-limits",
            "dpctl/ct-get-maxconns",
            "dpctl/ct-get-nconns",
            "dpctl/ct-get-tcp-seq-chk",
            "dpctl/ct-set-limits",
            "dpctl/ct-set-maxconns",
            "dpctl/ct-stats-show",
            "dpctl/dump-conntrack",
            "dpctl/flush-conntrack",
        ],
        "connection tracking does not exist, and rules with a `ct` action are refused",
    ),
    (
        &[
            "dpctl/ipf-get-status",
            "dpctl/ipf-set-disabled",
            "dpctl/ipf-set-enabled",
            "dpctl/ipf-set-max-nfrags",
            "dpctl/ipf-set-min-frag",
        ],
        "fragments are not reassembled: rules match them with `nw_frag`",
    ),
    (
        &["dpctl/normalize-actions", "dpctl/parse-actions"],
        "`ovs-ofctl parse-flow` checks actions of rules",
    ),
    (&["dpctl/offload-stats-show"], "use `shuntctl show`, which has the entries of a NIC"),
    (
        &["dpdk/get-malloc-stats", "netdev-dpdk/get-mempool-info"],
        "use `memory/show`, which has the memory that is shared with DPDK",
    ),
    (&["dpdk/lcore-list"], "packet threads are no threads of DPDK: use `shuntctl threads`"),
    (
        &["dpdk/log-list", "dpdk/log-set"],
        "give DPDK `--log-level` in `extra_args` of [dpdk] in the configuration file",
    ),
    (&["netdev-dpdk/detach"], "use `shuntctl del-port`, which closes the device"),
    (&["netdev-dpdk/set-admin-state"], "use `ovs-ofctl mod-port BRIDGE PORT up`, or `down`"),
    (
        &[
            "dpif-netdev/dpif-impl-get",
            "dpif-netdev/dpif-impl-set",
            "dpif-netdev/miniflow-parser-get",
            "dpif-netdev/miniflow-parser-set",
            "dpif-netdev/subtable-lookup-info-get",
            "dpif-netdev/subtable-lookup-prio-set",
            "odp-execute/action-impl-set",
            "odp-execute/action-impl-show",
        ],
        "each function has one implementation; `shuntctl settings` shows the choice of caches",
    ),
    (
        &["dpif-netdev/pmd-perf-log-set"],
        "iterations are not logged: use `shuntctl top`, or metrics over HTTP",
    ),
    (&["dpif-netlink/dispatch-mode"], "the kernel datapath is not used"),
    (&["dpif/set-dp-features"], "features are fixed: `dpif/show-dp-features` lists them"),
    (
        &["ofproto/trace-packet-out"],
        "use `ofproto/trace`, and for a packet-out `ovs-ofctl packet-out`",
    ),
    (
        &["ovs/route/add", "ovs/route/del"],
        "tunnels do not exist, so no routes are used: `ip route` shows those of the host",
    ),
    (&["rstp/tcn", "stp/tcn"], "spanning tree does not exist"),
    (
        &[
            "tnl/arp/aging",
            "tnl/arp/flush",
            "tnl/arp/set",
            "tnl/egress_port_range",
            "tnl/neigh/aging",
            "tnl/neigh/flush",
            "tnl/neigh/set",
        ],
        "tunnels do not exist",
    ),
    (
        &["upcall/disable-megaflows"],
        "use `shuntctl set caches.kind=flows`, which decides each packet by the tables",
    ),
    (&["upcall/disable-ufid"], "each cache entry has a UUID, which `dpctl/dump-flows -m` shows"),
    (
        &["vlog/disable-rate-limit", "vlog/enable-rate-limit"],
        "the daemon logs to standard error, with fixed limits for messages about peers",
    ),
];
