//! Words of the pages of results, and their meanings.

/// Words and their meanings: first the quantities, then the cases.
pub(super) const WORDS: &[(&str, &str)] = &[
    // Time and CPU.
    (
        "CPU cycles per packet",
        "cycles of the time stamp counter in the run, times the share of a CPU that the \
         forwarding thread had, divided by the packets that the switch received",
    ),
    (
        "CPU share of the forwarding thread",
        "the CPU time of the thread that forwards, divided by the time of the run",
    ),
    (
        "CPU share of the process",
        "the CPU time of all threads of the switch, divided by the time of the run",
    ),
    ("packets per second", "millions of packets (Mpps) that the switch received in a second"),
    (
        "probe packets",
        "packets with a sequence number and their send time, by which the receiver knows the rule \
         that each of them followed",
    ),
    (
        "probe packets sent after a barrier reply and received",
        "the number of probe packets that were checked",
    ),
    ("p50", "the median; `p99` is the 99th percentile, and `max` or `slowest` the largest value"),
    // Hosts.
    (
        "TCP rate received",
        "the bits of TCP payload that the receiving host got in a second, as its `iperf3` reports",
    ),
    (
        "share of UDP packets that arrive",
        "packets with 18 bytes of payload that the UDP sockets of the receiving host got, divided \
         by the packets offered. Packets that the sender had no CPU time to send have not arrived",
    ),
    (
        "share of UDP packets that the program received",
        "the arrived packets without those that the receiving `iperf3` read too late, when the \
         buffer of its socket was full",
    ),
    (
        "rewritten addresses",
        "the rules give the receiving host another address, so the switch changes an address in \
         each packet of both directions",
    ),
    (
        "memory that ports leave behind",
        "the growth of the resident memory of the switch from the deletion of the first tenth of \
         the ports to that of the last",
    ),
    (
        "TCP rate between two guests",
        "bits of the frames that the port of the receiving guest sent to it in a second, headers \
         included",
    ),
    (
        "time of a packet through the switch",
        "the time from just before a probe is sent, until the kernel gets it behind the switch",
    ),
    (
        "half load",
        "UDP frames of 64 bytes share the port with the probes, at half of the rate that the \
         slower switch receives",
    ),
    ("median round trip time", "the median of the times that `ping` prints"),
    (
        "CPU cores of the switch",
        "the CPU time of all threads of the switch, divided by the time of the run. Work of the \
         kernel for a packet is in it if the kernel does it in such a thread",
    ),
    (
        "offloads",
        "the hosts leave checksums and TCP segmentation to their devices, so the switch gets \
         frames of up to 64 KiB. *No offloads*: the hosts do both, and no frame is longer than \
         the MTU",
    ),
    (
        "Linux bridge",
        "the bridge of the kernel, which forwards in the context of the sender. It has no process, \
         so its CPU time is not shown",
    ),
    // Caches.
    (
        "megaflows",
        "cache entries as in Open vSwitch: one entry for all packets that agree in the bits that \
         their lookups read",
    ),
    (
        "exact match",
        "a cache with one entry for each flow, in front of the others; Open vSwitch calls it EMC",
    ),
    (
        "EMC",
        "the exact-match cache of OVS-DPDK; *as installed* it takes in one new flow of a hundred",
    ),
    ("SMC", "the signature cache of OVS-DPDK"),
    ("no cache", "OVS-DPDK with neither EMC nor SMC: each packet is looked up among its megaflows"),
    ("hit rate", "the share of packets that found a cache entry"),
    (
        "hit rate in the last third",
        "the hit rate among the last third of the packets, when the cache is warm",
    ),
    ("misses", "packets that no cache entry matched, and that the OpenFlow tables translated"),
    (
        "revalidate",
        "translate every cache entry again and compare the result, as Open vSwitch's revalidators \
         do",
    ),
    ("entries in use", "cache entries at the end of the run"),
    ("second-use eviction", "a full cache first evicts entries that no second packet has used"),
    ("LRU eviction", "a full cache evicts the entry that was not used for the longest time"),
    // Gigaflow.
    (
        "LTM entries",
        "cache entries of Gigaflow (*longest traversal matching*): each is for a part of a \
         packet's sequence of table lookups, and many flows share it",
    ),
    (
        "Gigaflow",
        "a cache of several stages. A packet matches one LTM entry in each stage, and the actions \
         of all are executed. Each stage has 8K entries unless the row states another number",
    ),
    ("traversals", "sequences of table lookups of a packet, from the first table to the actions"),
    ("sub-traversals", "the parts into which a traversal is divided; each becomes an LTM entry"),
    (
        "sub-traversals that were already LTM entries",
        "parts of missed traversals that needed no new entry, because another flow had made it",
    ),
    (
        "misses that a second cache of unlimited size missed, too",
        "misses that cost a translation if a cache in software stands behind this one",
    ),
    (
        "rule-space coverage",
        "the number of different traversals that the LTM entries of all stages form together. \
         *Exact* counts them all, *pairwise* estimates from neighbouring stages, and the \
         *published formula* is the one of the paper",
    ),
    (
        "tags in use",
        "different names for the state of a packet between two stages; like `recirc_id` of \
         Open vSwitch",
    ),
    (
        "table lookups in translations of misses",
        "lookups in OpenFlow tables that the misses caused",
    ),
    (
        "Gigaflow with resumed translations",
        "the translation of a miss begins at the stage where the packet missed, not at the first \
         table",
    ),
    (
        "first-fit partition",
        "the parts of policy `disjoint`, each in the first stage that has it or has room",
    ),
    ("one LTM entry per lookup", "no sub-traversal has more than one table lookup"),
    (
        "Gigaflow with the defaults of the switch",
        "Gigaflow with the eviction and the set duelling that the switch has by default",
    ),
    ("policy random", "a traversal is divided at random points"),
    (
        "policy disjoint",
        "a traversal is divided between tables that match unrelated fields, as in the paper; \
         the stages are chosen afterwards",
    ),
    (
        "policy joint",
        "as policy `disjoint`, but partition points and stages are chosen in one step; the \
         default",
    ),
    (
        "policy profiled",
        "a traversal is divided into the parts that most flows of the measured traffic share",
    ),
    (
        "smallest number of stages with nearly the fewest misses",
        "at most 1 % of the packets more than the number of stages with the fewest misses",
    ),
    ("translation alone", "a miss that only computes the actions and adds no cache entry"),
    ("all pipelines together", "the sums over all five pipelines, compared"),
    ("part 1 of 12", "the first twelfth of the packets; new flows arrive after the sixth"),
    ("twelfth of the run", "new flows arrive after the sixth twelfth"),
    // Eviction.
    (
        "CPU of the eviction engine",
        "CPU time from a change of the tables until all stale entries are known",
    ),
    (
        "eviction engine",
        "the part of the switch that finds the cache entries that a change of rules made stale",
    ),
    (
        "iterative engine",
        "an eviction engine that translates every entry again, as Open vSwitch's revalidators do",
    ),
    (
        "engine Direct",
        "the default engine: an index of the lookups of all entries, which a change queries",
    ),
    (
        "engine Visits",
        "the same index as a circuit of the library dbsp (incremental view maintenance)",
    ),
    ("engine Relational", "the same search as joins of dbsp"),
    ("engine Iterative", "translates every entry again"),
    ("engine PublishedKairo", "Kairo as its paper describes it, rebuilt as a circuit of dbsp"),
    (
        "stale packets",
        "packets that match an entry between a change and the eviction of this entry",
    ),
    ("entries evicted by a change", "the share of all cache entries that the engine evicted"),
    ("visits each", "table lookups behind one cache entry"),
    ("visit", "a lookup in one table with the bits that it read"),
    ("CPU to register", "CPU time to add a new cache entry to the index of the engine"),
    ("a new rule with a new mask", "the rule has a mask that no rule of its table had before"),
    ("with at most 2,000 evictions", "only the changes that evicted at most 2,000 entries"),
    ("no maintenance", "without the deferred work of the engine"),
    ("update of one rule", "one rule is deleted and added again, in turn"),
    ("update P1", "6 % of the rules change: access lists"),
    ("update P2", "10 % of the rules change: redundant rules are removed"),
    ("update P3", "300 rules change: routes after a link failed"),
    ("update P4", "110 rules change: members of a service"),
    ("update P5", "500 rules change: temporary monitoring rules"),
    (
        "updates P1 to P5",
        "the mean of five kinds of updates: 6 % and 10 % of the rules, 300, 110 and 500 rules",
    ),
    ("one rule that matches 2,048 flows", "2,048 of the cached flows follow the changed rule"),
    ("one rule that matches no flow", "no cached flow follows the changed rule"),
    (
        "adopted in the same iteration",
        "shares of the changes: in the poll iteration in which the change was published, one \
         later, two later, or more",
    ),
    (
        "gates and timer",
        "parts of the published engine: a gate holds rows back behind a table, and a timer opens \
         it",
    ),
    ("repair on", "the switch translates evicted entries again before their next packets"),
    ("8K of 100K", "the change concerns 8,192 of 100,000 cached flows"),
    ("own", "the controller of this experiment; `os-ken` is a third-party controller"),
    ("all windows", "the sum of all measured periods; `each window` is the median of the periods"),
    (
        "disturbed every 2 s",
        "every two seconds the connection to the NIC is cut, or the NIC is replaced",
    ),
    // Rule sets and traffic.
    (
        "ClassBench",
        "rules like those of the ClassBench generator: `acl` access lists, `fw` firewalls, `ipc` \
         IP chains",
    ),
    ("high locality", "many flows have header values in common; with `low locality` few have"),
    ("low locality", "few flows have header values in common"),
    ("rules with random priorities", "generated rules over 600 masks, each with a random priority"),
    (
        "rules with priorities by length",
        "generated rules over 600 masks; a rule that matches more bits has a higher priority",
    ),
    ("Zipf traffic", "packets belong to flows by Zipf's law: few flows have most packets"),
    ("uniform traffic", "each packet belongs to a random flow of 100,000"),
    (
        "computational flows",
        "Shunt without caches: each packet is looked up in the tables by learned indexes \
         (`caches.kind = \"flows\"`)",
    ),
    ("tuple space search", "a hash table for each mask, as in Open vSwitch's classifier"),
    (
        "iSets",
        "groups of rules with ranges that do not overlap in one field; a learned index finds \
         their rules",
    ),
    (
        "RQ-RMI",
        "the learned index of NuevoMatch: small neural networks that predict the position of a key",
    ),
    ("linear segments", "an index of straight lines that predict the position of a key"),
    ("predicted", "the share of the flows that have a cache entry before their first packet"),
    ("predictor reply", "predictor of the reverse direction of each new flow"),
    ("predictor successor", "predictor of the flows that followed similar flows before"),
    ("predictor siblings", "predictor of the same flow to other back ends of a service"),
    ("predictor periodic", "predictor of flows that return at equal intervals"),
    ("perfect forecasts", "a forecast of every flow: no predictor can save more"),
    ("collectives", "rounds in which each host sends to all others, as in distributed training"),
    ("coflows", "groups of flows that belong to one job"),
    ("service calls", "trees of requests between services, with their replies"),
    ("no structure", "each packet is the only one of its flow"),
    ("of flows", "the share of the flows that have a forecast"),
    // Costs of rules and flows.
    (
        "set up a flow",
        "handle the first packet of a flow: translate it, send it, and add its cache entry",
    ),
    ("flow set-up", "the first packet of a flow: its translation and its new cache entry"),
    (
        "one bundle",
        "all rules in one OpenFlow bundle; `one by one` waits for a barrier reply after each",
    ),
    ("number of tables", "tables that the packet passes, with 100 rules each"),
    ("extraction", "reading the header fields of a packet, for comparison"),
    ("eviction engine registration", "the report of a new cache entry to the eviction engine"),
    (
        "table lookups for each distinct visit",
        "lookups of all flows, divided by the different pairs of a table and the bits read in it",
    ),
    ("flows that are forwarded", "flows that the rules do not drop"),
    (
        "all five",
        "both addresses, both ports and the protocol; *one to four fields* is the mean over \
         smaller choices",
    ),
    (
        "in batches of 32 packets",
        "one call looks up 32 packets, as a packet thread does with a burst; the time is that of \
         one packet",
    ),
    (
        "batches of 1",
        "each write request of P4Runtime has one rule; with `batches of 16` each has 16 rules",
    ),
];
