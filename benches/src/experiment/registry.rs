//! The experiments by name.

use shunt_flow::text::nearest_of;

use super::{Choice, Row, Run};
use crate::experiments::{
    characterisation, classifier, dpdk_ports, foresight, forwarding, generation, gigaflow,
    guest_ports, host_ports, idle_ports, kernel_ports, live, megaflows, misses, nic_push,
    nuevomatch, ovsdb_ports, pipeline, port_churn, port_latency, slow_path, updates, vm_ports,
    workloads,
};

/// An experiment of `shunt-bench`: its name, its plot and the function to run.
#[derive(Debug)]
pub struct Experiment {
    /// Name on the command line and in file names.
    pub name: &'static str,
    /// Title of the plot.
    pub title: &'static str,
    /// Description in one line.
    pub what: &'static str,
    /// Source of the published figures, or a note that there is none.
    pub source: &'static str,
    /// True if the experiment needs a rival.
    ///
    /// A run without the rival does not replace published results.
    pub has_rival: bool,
    /// Options of this experiment.
    pub options: &'static [Choice],
    /// Downloads everything that the experiment needs, before network access ends.
    pub prepare: fn(),
    /// Runs the experiment.
    pub run: fn(&mut Run) -> Vec<Row>,
    /// Measures one part in a separate process, and prints the values that `run` reads.
    pub run_part: fn(&mut Run, &str),
}

impl Experiment {
    /// Returns whether the experiment also measures engines that run as dbsp circuits.
    pub(super) fn has_circuits(&self) -> bool {
        OF_DBSP.contains(&self.name) || WITH_CIRCUITS.contains(&self.name)
    }

    /// Returns whether this build lacks engines that the experiment needs.
    pub(super) fn lacks_circuits(&self) -> bool {
        cfg!(not(feature = "dbsp")) && self.has_circuits()
    }
}

/// Experiments that exist only in builds with dbsp.
pub(super) const OF_DBSP: [&str; 1] = ["kairo-gates"];

/// Experiments that also measure engines that run as dbsp circuits.
pub(super) const WITH_CIRCUITS: [&str; 3] = ["kairo-updates", "kairo-engines", "kairo-live"];

/// An experiment without a rival, options and parts.
const OWN: Experiment = Experiment {
    name: "",
    title: "",
    what: "",
    source: "own experiment",
    has_rival: false,
    options: &[],
    prepare: || (),
    run: |_| Vec::new(),
    run_part: |_, part| panic!("there is no part {part}"),
};

/// An experiment with Open vSwitch as its rival.
const WITH_OPEN_VSWITCH: Experiment =
    Experiment { source: "own experiment, compared with Open vSwitch", has_rival: true, ..OWN };

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "spine",
        title: "Forwarding on one core",
        what: "CPU cycles per packet from a capture file by one L4 rule to a null port, for each \
               cache",
        run: forwarding::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-idle",
        title: "Idle ports",
        what: "CPU, memory and wake-up latency of a switch with 1 to 1,000 idle ports",
        run: idle_ports::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ovsdb-ports",
        title: "Ports by ovs-vsctl",
        what: "Time and CPU to add 1,000 ports by ovs-vsctl one by one: the first and the last 100",
        run: ovsdb_ports::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-devices",
        title: "Frames between two network devices",
        what: "CPU cycles per packet between two af_packet, af_xdp or tap ports, on one core",
        run: kernel_ports::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-latency",
        title: "Time of a packet through a switch",
        what: "Median and p99.9 of af_packet, af_xdp and tap ports, idle and at half load",
        run: port_latency::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-hosts",
        title: "TCP, UDP and pings between two hosts",
        what: "Rates, CPU and round trips between hosts, against Open vSwitch and a Linux bridge",
        source: "own experiment, compared with Open vSwitch and a Linux bridge",
        has_rival: true,
        run: host_ports::run,
        ..OWN
    },
    Experiment {
        name: "ports-guests",
        title: "Frames between two cards of a guest",
        what: "CPU cycles per packet between two vhost-user ports, on one core, against OVS-DPDK",
        run: guest_ports::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-churn",
        title: "Ports that come and go",
        what: "Lost frames, time and memory while ports are added and deleted on a switch with 100",
        run: port_churn::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-vms",
        title: "TCP between two virtual machines",
        what: "TCP between Linux guests in QEMU through rules that rewrite addresses",
        run: vm_ports::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-memif",
        title: "Frames between two memory interfaces",
        what: "CPU cycles per packet between two memif ports, on one core, against OVS-DPDK",
        run: guest_ports::run_memif,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "ports-dpdk",
        title: "Frames between two devices of DPDK",
        what: "CPU cycles per packet from net_null and net_pcap to net_null, on one core (--dpdk)",
        run: dpdk_ports::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "pipeline",
        title: "Pipeline: misses and rule changes",
        what: "Translation, flow set-up, flow-mods and memory, by number of tables, action and \
               table size",
        options: &[Choice { option: "--only", names: pipeline::parts }],
        run: pipeline::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "classifier",
        title: "Classifier alone",
        what: "Lookups, insertions and removals in tables of 100K rules with many masks",
        source: "own experiment, compared with Open vSwitch's classifier library",
        has_rival: true,
        prepare: classifier::prepare,
        run: classifier::run,
        run_part: classifier::run_part,
        ..OWN
    },
    Experiment {
        name: "megaflows",
        title: "Megaflows that classifier masks produce",
        what: "Entries and masks of an unbounded cache after 30,000 packets",
        source: "own experiment, compared with Open vSwitch's classifier library",
        has_rival: true,
        prepare: classifier::prepare,
        run: megaflows::run,
        run_part: megaflows::run_part,
        ..OWN
    },
    Experiment {
        name: "gigaflow-hits",
        title: "Gigaflow: hit rates compared with megaflows",
        what: "Hits, entries, sharing and rule-space coverage of 4 x 8K LTM entries and of 32K \
               megaflows",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second \
                 Era, Fig 3.10 to 3.13",
        options: &[
            Choice { option: "--pipelines", names: gigaflow::hits::pipelines },
            Choice { option: "--caches", names: gigaflow::hits::cache_cases },
        ],
        run: gigaflow::hits::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-settled",
        title: "Gigaflow: hit rates in steady state",
        what: "Hits in the last third of 3,000,000 packets of OLS, with set duelling, compared \
               with megaflows",
        run: gigaflow::settled::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-stages",
        title: "Gigaflow: benefit of each additional stage",
        what: "Misses, entries and rule-space coverage with 1 to 5 stages of 100K entries, for \
               three pipelines",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.4, 3.16 and 3.17",
        run: gigaflow::stages::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-policies",
        title: "Gigaflow: partition policies",
        what: "Misses and entries by partition policy, compared with megaflows in a cache of \
               equal size",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.18",
        run: gigaflow::policies::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-liveness",
        title: "Gigaflow: state that no table reads",
        what: "Hits, entries and tags if rules write a register that no table matches, or that \
               one table matches",
        run: gigaflow::liveness::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-arrival",
        title: "Gigaflow: arrival of new flows",
        what: "Hit rate before and after new flows double the number of active flows",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.20",
        run: gigaflow::arrival::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-costs",
        title: "Gigaflow: cost of misses and hits",
        what: "CPU to partition a traversal and create its LTM entries, and of a hit in four \
               stages",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second \
                 Era, Fig 3.15, and own experiment",
        options: &[Choice { option: "--pipelines", names: gigaflow::hits::pipelines }],
        run: gigaflow::costs::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-packets",
        title: "Gigaflow: average cost of a packet",
        what: "CPU per packet over hits and misses, with LTM entries and with megaflows",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.14",
        run: gigaflow::packets::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-cores",
        title: "Gigaflow: several cores",
        what: "Misses per core with one cache per core, by number of cores",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.21",
        run: gigaflow::cores::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-forwarding",
        title: "Gigaflow: forwarding on one core through ten tables",
        what: "Cycles per packet with LTM entries and with megaflows, on one core, against \
               OVS-DPDK",
        run: gigaflow::forwarding::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "nuevomatch-forwarding",
        title: "NuevoMatch: forwarding on one core with hundreds of masks",
        what: "Cycles per packet through rule sets of ClassBench, as installed, against OVS-DPDK",
        options: &[Choice { option: "--only", names: nuevomatch::forwarding::names }],
        run: nuevomatch::forwarding::run,
        ..WITH_OPEN_VSWITCH
    },
    Experiment {
        name: "nuevomatch-lookup",
        title: "NuevoMatch: lookups of the classifier alone",
        what: "CPU of a lookup in rule sets of ClassBench, beside other classifiers",
        source: "A. Rashelbach et al., A Computational Approach to Packet Classification, Fig 9, \
                 compared with tuple space search",
        run: nuevomatch::lookups::run,
        run_part: nuevomatch::lookups::run_part,
        ..OWN
    },
    Experiment {
        name: "nuevomatch-answers",
        title: "NuevoMatch: lookups beside two judges",
        what: "Wrong answers of each index, against a linear scan and against TupleMerge",
        options: &[nuevomatch::answers::HEADERS],
        run: nuevomatch::answers::run,
        run_part: nuevomatch::answers::run_part,
        ..OWN
    },
    Experiment {
        name: "nuevomatch-build",
        title: "NuevoMatch: build of the classifier",
        what: "CPU to build with a tree, linear segments and a trained RQ-RMI, and bytes of a rule",
        source: "A. Rashelbach et al., Scaling Open vSwitch with a Computational Cache, Fig 7 and \
                 12, on our own rule sets",
        run: nuevomatch::building::run,
        run_part: nuevomatch::building::run_part,
        ..OWN
    },
    Experiment {
        name: "nuevomatch-updates",
        title: "NuevoMatch: changes of rules under lookups",
        what: "Changes per second, coverage, and the tail of lookups while rules change",
        source: "A. Rashelbach et al., Scaling Open vSwitch with a Computational Cache, Fig 15, \
                 on our own rule sets",
        run: nuevomatch::rule_updates::run,
        run_part: nuevomatch::rule_updates::run_part,
        ..OWN
    },
    Experiment {
        name: "nuevomatch-bundles",
        title: "NuevoMatch: bundles of rules under lookups",
        what: "Rate of lookups while bundles are added, at once or after a rebuild, and at swaps",
        source: "A. Rashelbach et al., Scaling Open vSwitch with a Computational Cache, Fig 16 \
                 and 17, on our own rule sets",
        run: nuevomatch::bundles::run,
        run_part: nuevomatch::bundles::run_part,
        ..OWN
    },
    Experiment {
        name: "nuevomatch-sizes",
        title: "NuevoMatch: forwarding by the number of rules",
        what: "Rate of megaflows and computational flows in multiples of OVS-DPDK as installed",
        source: "A. Rashelbach et al., Scaling Open vSwitch with a Computational Cache, Fig 8, \
                 compared with Open vSwitch",
        has_rival: true,
        run: nuevomatch::sizes::run,
        ..OWN
    },
    Experiment {
        name: "foresight-coflows",
        title: "Foresight: coflows with a share of flows preloaded",
        what: "Latency of first and all packets, and CPU, by the share of flows with a forecast",
        source: "E. Ståhl et al., On the Benefits of Predictable Traffic in Virtual Switches, \
                 Fig 4 and 5, compared with Open vSwitch",
        has_rival: true,
        options: &[Choice { option: "--only", names: foresight::coflows::names }],
        run: foresight::coflows::run,
        ..OWN
    },
    Experiment {
        name: "foresight-predictors",
        title: "Foresight: predictors at run time",
        what: "First packets that miss, their latency, and CPU, by predictor, for six workloads",
        options: &[Choice { option: "--only", names: foresight::predictors::names }],
        run: foresight::predictors::run,
        ..OWN
    },
    Experiment {
        name: "foresight-run-time",
        title: "Foresight: predictors on coflows, by the share that is predictable",
        what: "Share of the misses that perfect forecasts save, of generated and recorded coflows",
        source: "workload of E. Ståhl et al., On the Benefits of Predictable Traffic in Virtual \
                 Switches, section 4",
        run: foresight::run_time::run,
        ..OWN
    },
    Experiment {
        name: "foresight-offline",
        title: "Foresight: predictors without a switch, and the bound",
        what: "New flows that predictors name in time, and those that can be named at all",
        source: "workload of E. Ståhl et al., On the Benefits of Predictable Traffic in Virtual \
                 Switches, section 4",
        run: foresight::offline::run,
        ..OWN
    },
    Experiment {
        name: "foresight-gigaflow",
        title: "Foresight: forecasts as LTM entries",
        what: "Misses that forecasts of some flows save, as LTM entries and as megaflows",
        run: foresight::gigaflow::run,
        ..OWN
    },
    Experiment {
        name: "nic-push",
        title: "Rule updates of the embedded NIC",
        what: "Rules inserted and removed per second over P4Runtime, by batch size",
        run: nic_push::run,
        ..OWN
    },
    Experiment {
        name: "workloads",
        title: "Workloads compared with published properties",
        what: "Tables, rules, flows and locality of five pipelines, and how often header tuples \
               recur",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Table 3.1, Fig 3.5, 3.10 and 3.11, and rules from P2 in Table 4.3",
        run: workloads::run,
        ..OWN
    },
    Experiment {
        name: "generation",
        title: "Workloads: cost of generation",
        what: "Time and memory to generate a million rules, and a capture of ten million packets",
        run: generation::run,
        run_part: generation::run_part,
        ..OWN
    },
    Experiment {
        name: "characterisation",
        title: "Megaflow cache and cost of a miss",
        what: "Hits by cache size, phases of flow set-up, and revalidation, for five pipelines \
               in one process",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 2.5, and the baselines of Fig 3.10 and 3.11",
        run: characterisation::run,
        ..OWN
    },
    Experiment {
        name: "misses",
        title: "Distribution of the cost of a miss",
        what: "Cycles of a miss in one table of up to 450K filters: median and tail",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 2.3 and 2.4",
        run: misses::run,
        ..OWN
    },
    Experiment {
        name: "slow-path",
        title: "Slow path of complete switches with real pipelines",
        what: "Rules loaded, flows set up, and entries revalidated, for five pipelines",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 2.4 and Fig 2.5, compared with Open vSwitch",
        has_rival: true,
        run: slow_path::run,
        ..OWN
    },
    Experiment {
        name: "kairo-updates",
        title: "Eviction: cost of a rule change",
        what: "CPU of the eviction engine for updates P1 to P5 and for one rule, and the share \
               evicted",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second \
                 Era, section 4.5, compared with Shunt's iterative engine",
        has_rival: true,
        run: updates::run,
        run_part: updates::run_part,
        ..OWN
    },
    Experiment {
        name: "kairo-revalidation",
        title: "Eviction: P1 to P5 compared with Open vSwitch",
        what: "CPU of the eviction engine and of OVS-DPDK's revalidators for each change",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.6b, compared with Open vSwitch",
        has_rival: true,
        run: updates::revalidation::run,
        ..OWN
    },
    Experiment {
        name: "kairo-sizes",
        title: "Eviction: size of updates and of caches",
        what: "CPU of the eviction engine by share of changed rules, and by number of entries",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second \
                 Era, Fig 4.7a to 4.7c, compared with Shunt's iterative engine",
        run: updates::sizes::run,
        ..OWN
    },
    Experiment {
        name: "kairo-gigaflow",
        title: "Eviction: rule changes with LTM entries",
        what: "CPU of the eviction engine and stale packets, with a Gigaflow chain of 4 x 8K \
               entries",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second \
                 Era, Fig 4.9, compared with Shunt's iterative engine",
        run: updates::ltm_entries::run,
        ..OWN
    },
    Experiment {
        name: "kairo-engines",
        title: "Eviction: P1 to P5 for every engine",
        what: "CPU, evictions and stale packets of each change, compared with Shunt's iterative \
               engine",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.5 and 4.6",
        run: updates::every_engine::run,
        ..OWN
    },
    #[cfg(feature = "dbsp")]
    Experiment {
        name: "kairo-gates",
        title: "Eviction: gates and timer of the published engine",
        what: "CPU of the second of two updates: with gates and timer, with gates only, with \
               neither",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.8",
        run: updates::gates::run,
        ..OWN
    },
    Experiment {
        name: "kairo-overhead",
        title: "Eviction: cost of an engine between changes",
        what: "CPU of flow set-up, memory, and CPU of ten cores, relative to the iterative engine",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second \
                 Era, Table 4.4, compared with OVS-DPDK",
        has_rival: true,
        run: updates::overhead::run,
        run_part: updates::overhead::run_part,
        ..OWN
    },
    Experiment {
        name: "kairo-barrier",
        title: "Eviction: time from a flow-mod until all packets follow it",
        what: "Time to the barrier reply, and until no packet follows the old rule, under traffic",
        source: "own experiment, compared with Open vSwitch",
        has_rival: true,
        options: &[Choice { option: "--sizes", names: live::barrier::sizes }],
        run: live::barrier::run,
        ..OWN
    },
    Experiment {
        name: "kairo-live",
        title: "Eviction: every engine in a running switch",
        what: "Time to the barrier reply, and until no packet follows the old rule, for each \
               engine",
        source: "own experiment, compared with Shunt's default engine",
        run: live::engines::run,
        ..OWN
    },
    Experiment {
        name: "kairo-flapping",
        title: "Eviction: one rule that changes continuously",
        what: "Packets sent after the barrier reply that follow the old rule, while one rule \
               changes continuously",
        source: "own experiment, compared with Open vSwitch",
        has_rival: true,
        options: &[Choice { option: "--controller", names: live::flapping::controllers }],
        run: live::flapping::run,
        ..OWN
    },
    Experiment {
        name: "gigaflow-flapping",
        title: "Gigaflow on a NIC: one rule that changes continuously",
        what: "Packets sent after the barrier reply that the NIC forwards by the old rule, with \
               connection cuts",
        run: live::nic::run,
        ..OWN
    },
    Experiment {
        name: "nic-latency",
        title: "From a miss to the NIC",
        what: "Time until the NIC forwards a new flow, and until a NIC is synchronised after a \
               reconnect",
        run: live::nic_latency::run,
        ..OWN
    },
    Experiment {
        name: "kairo-repair",
        title: "Eviction: throughput dip after a change of many entries",
        what: "Packets forwarded around a change of 8,192 of 100K entries, with and without \
               repair",
        run: live::repair::run,
        ..WITH_OPEN_VSWITCH
    },
];

/// Returns the experiment with this name.
///
/// # Errors
///
/// If there is no such experiment: the error names the nearest name.
pub fn find(name: &str) -> Result<&'static Experiment, String> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let nearest = nearest_of(name, EXPERIMENTS.iter().map(|experiment| experiment.name));
        if OF_DBSP.contains(&name) {
            return format!("`{name}` needs --dbsp");
        }
        let advice = nearest.map_or_else(
            || "--list shows all".to_owned(),
            |other| format!("did you mean `{other}`?"),
        );
        format!("unknown experiment `{name}`: {advice}")
    })
}

#[cfg(test)]
mod tests;
