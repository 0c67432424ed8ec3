//! The experiments by name.

use shunt_flow::text::nearest_of;

use super::{Row, Run};
use crate::experiments::{
    characterisation, classifier, forwarding, gigaflow, live, making, megaflows, misses, nic_push,
    pipeline, slow_path, updates, workloads,
};

/// One experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line and in the names of files.
    pub name: &'static str,
    /// The title of its plot.
    pub title: &'static str,
    /// What it measures, in a line.
    pub what: &'static str,
    /// The figure or table of a paper, or that it is our own.
    pub source: &'static str,
    /// Whether it is beside a rival: without one, what was published stays.
    pub has_rival: bool,
    /// Its own options.
    pub options: &'static [Choice],
    /// Gets what the experiment needs from the network, before it is cut off.
    pub prepare: fn(),
    /// Measures.
    pub run: fn(&mut Run) -> Vec<Row>,
    /// Measures one part of it, in a process of its own, and prints what `run` reads.
    pub run_part: fn(&mut Run, &str),
}

/// An option with which a part of an experiment is chosen, by one name or several with commas.
#[derive(Debug)]
pub struct Choice {
    /// The option.
    pub option: &'static str,
    /// What may be chosen.
    pub names: fn() -> Vec<&'static str>,
}

impl Experiment {
    /// Whether engines in circuits are a part of it.
    pub(super) fn has_circuits(&self) -> bool {
        OF_DBSP.contains(&self.name) || WITH_CIRCUITS.contains(&self.name)
    }

    /// Whether engines in circuits are a part of it and were not built.
    pub(super) fn lacks_circuits(&self) -> bool {
        cfg!(not(feature = "dbsp")) && self.has_circuits()
    }
}

/// Experiments that are there only where dbsp was built.
pub(super) const OF_DBSP: [&str; 1] = ["kairo-gates"];

/// Experiments that also measure engines in circuits.
pub(super) const WITH_CIRCUITS: [&str; 3] = ["kairo-updates", "kairo-engines", "kairo-live"];

const NOTHING: fn() = || ();
const NO_PARTS: fn(&mut Run, &str) = |_, part| panic!("there is no part {part}");

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "spine",
        title: "Forwarding on one core",
        what: "Capture in, one rule that looks at L4, null out, on one core, by caches, beside OVS-DPDK",
        source: "our own, against the rival",
        has_rival: true,
        options: &[],
        prepare: NOTHING,
        run: forwarding::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "pipeline",
        title: "The pipeline: misses, and changes of rules",
        what: "Translations, set-up of flows, flow-mods and memory, by tables, actions and sizes",
        source: "our own, against the rival",
        has_rival: true,
        options: &[Choice { option: "--only", names: pipeline::parts }],
        prepare: NOTHING,
        run: pipeline::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "classifier",
        title: "The classifier alone",
        what: "Lookups, insertion and removal in tables of 100K rules and many masks",
        source: "our own, against the rival's library",
        has_rival: true,
        options: &[],
        prepare: classifier::prepare,
        run: classifier::run,
        run_part: classifier::run_part,
    },
    Experiment {
        name: "megaflows",
        title: "Cache entries that masks make",
        what: "Entries and masks of an unbounded cache after 30,000 packets",
        source: "our own, against the rival's library",
        has_rival: true,
        options: &[],
        prepare: classifier::prepare,
        run: megaflows::run,
        run_part: megaflows::run_part,
    },
    Experiment {
        name: "gigaflow-hits",
        title: "Pieces of traversals, beside whole ones",
        what: "Hits, entries, sharing and coverage of 4 x 8K pieces and of 32K whole entries",
        source: "Gigaflow, figures 3.10 to 3.13",
        has_rival: false,
        options: &[
            Choice { option: "--pipelines", names: gigaflow::hits::pipelines },
            Choice { option: "--ways", names: gigaflow::hits::ways },
        ],
        prepare: NOTHING,
        run: gigaflow::hits::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-settled",
        title: "Pieces where they lose, once settled",
        what: "Hits of the last third of 3,000,000 packets of OLS, with the duel and of whole entries",
        source: "our own",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::settled::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-stages",
        title: "Pieces: what each stage more wins",
        what: "Misses, entries and ways with 1 to 5 stages of 100K entries, for three pipelines",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.4, 3.16 and 3.17",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::stages::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-policies",
        title: "Pieces: where to cut",
        what: "Misses and entries by partition policy, beside whole entries in as much room",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.18",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::policies::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-liveness",
        title: "Pieces: state that nobody reads",
        what: "Hits, entries and tags where a register is written that no table looks at, and one does",
        source: "our own",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::liveness::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-arrival",
        title: "Pieces: new flows come",
        what: "Hits before and after as many new flows come while the old ones go on",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.20",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::arrival::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-costs",
        title: "Pieces: what a miss and a hit cost",
        what: "CPU to cut a way and make its pieces, and of a packet that hits four stages",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.15, and our own",
        has_rival: false,
        options: &[Choice { option: "--pipelines", names: gigaflow::hits::pipelines }],
        prepare: NOTHING,
        run: gigaflow::costs::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-packets",
        title: "Pieces: what a packet costs on average",
        what: "CPU of a packet, hits and misses together, for pieces and for whole entries",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.14",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::packets::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-cores",
        title: "Pieces on more cores",
        what: "Misses of a core with caches of its own, by the number of cores",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 3.21",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::cores::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-forwarding",
        title: "Pieces: forwarding on one core through ten tables",
        what: "Cycles of a packet in pieces and in whole entries, on one core, beside OVS-DPDK",
        source: "our own, against the rival",
        has_rival: true,
        options: &[],
        prepare: NOTHING,
        run: gigaflow::forwarding::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "nic-push",
        title: "Rules pushed into the embedded NIC",
        what: "Rules inserted and removed in a second by P4Runtime, by the size of a batch",
        source: "our own",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: nic_push::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "workloads",
        title: "Workloads beside what was published",
        what: "Tables, rules, flows and locality of five pipelines, and how often header tuples recur",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Table 3.1, Fig 3.5, 3.10 and 3.11, and rules from P2 in Table 4.3",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: workloads::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "making",
        title: "Workloads: what they cost to make",
        what: "Time and memory to make a million rules, and a capture of ten million packets",
        source: "our own",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: making::run,
        run_part: making::run_part,
    },
    Experiment {
        name: "characterisation",
        title: "A cache of whole traversals, and what a miss is made of",
        what: "Hits by capacity, parts of a set-up, and revalidation, for five pipelines in one process",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 2.5, and the baselines of Fig 3.10 and 3.11",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: characterisation::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "misses",
        title: "What one miss costs after the other",
        what: "Cycles of a miss in one table of up to 450K filters, its middle and its tail",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 2.3 and 2.4",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: misses::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "slow-path",
        title: "The slow path of whole switches with real pipelines",
        what: "Rules loaded, flows set up, and entries judged anew, for five pipelines",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 2.4 and Fig 2.5, against the rival",
        has_rival: true,
        options: &[],
        prepare: NOTHING,
        run: slow_path::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-updates",
        title: "Eviction: what a change of rules costs",
        what: "CPU of the eviction engine for updates P1 to P5 and one rule, and the share evicted",
        source: "A. Zulfiqar, Rearchitecting the End Host Network, section 4.5, beside our iterative engine",
        has_rival: true,
        options: &[],
        prepare: NOTHING,
        run: updates::run,
        run_part: updates::run_part,
    },
    Experiment {
        name: "kairo-revalidation",
        title: "Eviction: P1 to P5 beside Open vSwitch",
        what: "CPU of the eviction engine, and of OVS-DPDK's revalidators, for each change",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.6b, against the rival",
        has_rival: true,
        options: &[],
        prepare: NOTHING,
        run: updates::revalidation::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-sizes",
        title: "Eviction: sizes of updates and of caches",
        what: "CPU of the eviction engine by the share of rules that change, and by entries",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.7a to 4.7c, beside our iterative engine",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: updates::sizes::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-pieces",
        title: "Eviction: changes under pieces",
        what: "CPU of the eviction engine and packets that meet what is stale, with a chain of 4 x 8K",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.9, beside our iterative engine",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: updates::pieces::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-engines",
        title: "Eviction: P1 to P5 for every engine",
        what: "CPU, evictions and stale packets of each change, beside our iterative engine",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.5 and 4.6",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: updates::every_engine::run,
        run_part: NO_PARTS,
    },
    #[cfg(feature = "dbsp")]
    Experiment {
        name: "kairo-gates",
        title: "Eviction: gates and timer of the published engine",
        what: "CPU of the second of two updates, with gates, timer, and neither",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Fig 4.8",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: updates::gates::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-overhead",
        title: "Eviction: what an engine costs between changes",
        what: "CPU of a flow's set-up, memory, and CPU of ten cores, over the iterative engine",
        source: "A. Zulfiqar, Rearchitecting the End Host Network for the Terabit Per Second Era, \
                 Table 4.4, and beside OVS-DPDK",
        has_rival: true,
        options: &[],
        prepare: NOTHING,
        run: updates::overhead::run,
        run_part: updates::overhead::run_part,
    },
    Experiment {
        name: "kairo-barrier",
        title: "Eviction: from a flow-mod until all packets go by it",
        what: "Time to the barrier reply, and until no packet goes by the old rule, under traffic",
        source: "our own, against the rival",
        has_rival: true,
        options: &[Choice { option: "--sizes", names: live::barrier::sizes }],
        prepare: NOTHING,
        run: live::barrier::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-live",
        title: "Eviction: every engine in a running switch",
        what: "Time to the barrier reply, and until no packet goes by the old rule, for each engine",
        source: "our own, beside our default engine",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: live::engines::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-flapping",
        title: "Eviction: a rule that flaps",
        what: "Packets sent after the barrier reply that leave by the old rule, as one rule flaps",
        source: "our own, against the rival",
        has_rival: true,
        options: &[Choice { option: "--controller", names: live::flapping::controllers }],
        prepare: NOTHING,
        run: live::flapping::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "gigaflow-flapping",
        title: "Pieces on a NIC: a rule that flaps",
        what: "Packets sent after the barrier reply that a NIC sends by the old rule, also as its \
               connection is cut",
        source: "our own",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: live::nic::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "nic-latency",
        title: "From a miss to the NIC",
        what: "How long a new flow misses the NIC, and how long it takes a NIC to be whole again",
        source: "our own",
        has_rival: false,
        options: &[],
        prepare: NOTHING,
        run: live::nic_latency::run,
        run_part: NO_PARTS,
    },
    Experiment {
        name: "kairo-repair",
        title: "Eviction: the dip after a change of many entries",
        what: "Packets forwarded around a change of 8,192 of 100K entries, with repair and without",
        source: "our own, against the rival",
        has_rival: true,
        options: &[],
        prepare: NOTHING,
        run: live::repair::run,
        run_part: NO_PARTS,
    },
];

/// The experiment of this name.
///
/// # Errors
///
/// With the nearest name, where there is none.
pub fn find(name: &str) -> Result<&'static Experiment, String> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let nearest = nearest_of(name, EXPERIMENTS.iter().map(|experiment| experiment.name));
        if OF_DBSP.contains(&name) {
            return format!("`{name}` is there with --dbsp");
        }
        let advice = nearest.map_or_else(
            || "--list shows all".to_owned(),
            |other| format!("did you mean `{other}`?"),
        );
        format!("no experiment is called `{name}`: {advice}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_typo_is_answered_by_the_nearest() {
        assert!(find("piepline").unwrap_err().contains("`pipeline`"));
        assert!(find("spines").unwrap_err().contains("`spine`"));
        assert!(find("xyzzyplugh").unwrap_err().contains("--list"));
        assert_eq!(find("spine").unwrap().name, "spine");
        let circuits = find("kairo-gates");
        assert!(circuits.map_or_else(|error| error.contains("--dbsp"), |_| cfg!(feature = "dbsp")));
    }

    #[test]
    fn names_are_unique_and_lines_are_short() {
        let mut names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(EXPERIMENTS.iter().all(|experiment| experiment.what.len() <= 100));
        assert!(WITH_CIRCUITS.iter().all(|name| names.contains(name)));
    }
}
