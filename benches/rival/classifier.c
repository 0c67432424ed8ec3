/* Open vSwitch's classifier without a switch: the rival of the `classifier` binary of these benches.
 *
 *   classifier RULES PACKETS
 *
 * RULES has one rule per line in the syntax of ovs-ofctl(8), without actions. PACKETS has one packet
 * per line in the same syntax; all fields that a line does not name are zero.
 * Each line of standard input is a command, and its result is one line:
 *
 *   masked   looks up every packet with a mask: nanoseconds of CPU time for all
 *   plain    looks up every packet without a mask
 *   answers  the priority of each packet's rule, -1 for none, on one line
 *   megaflows  number of entries and of masks in an unlimited megaflow cache after all packets
 *   rules    number of rules
 *   packets  number of packets
 *   rebuild  removes all rules and inserts them again: nanoseconds of removal and of insertion
 *   bytes    bytes of heap that the table uses, without the structures of the rules
 *
 * The table has the settings of a bridge: segments of the flow, tries over IPv4 addresses.
 */
#include <config.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "classifier.h"
#include "flow.h"
#include "hash.h"
#include "openflow/openflow.h"
#include "openvswitch/hmap.h"
#include "openvswitch/match.h"
#include "openvswitch/meta-flow.h"
#include "openvswitch/ofp-actions.h"
#include "openvswitch/ofp-flow.h"
#include "ovs-rcu.h"
#include "util.h"
#include "versions.h"

static struct classifier table;
static struct cls_rule *rules;
static size_t n_rules;
static struct flow *packets;
static size_t n_packets;

static unsigned long long
cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void
fail(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

static char *
next_line(FILE *file, char *line, int size)
{
    char *read = fgets(line, size, file);
    if (read) {
        read[strcspn(read, "\n")] = '\0';
    }
    return read;
}

static void *
grown(void *array, size_t count, size_t size)
{
    return count & (count - 1) ? array : xrealloc(array, (count ? 2 * count : 1) * size);
}

/* Calls 'take' with each match of a file, and the priority of the match. */
static void
read_matches(const char *name, void (*take)(const struct minimatch *, int priority))
{
    char line[4096];
    FILE *file = fopen(name, "r");
    if (!file) {
        fail("cannot open", name);
    }
    while (next_line(file, line, sizeof line)) {
        struct ofputil_flow_mod mod;
        enum ofputil_protocol protocols;
        char *text = xasprintf("%s,actions=drop", line);
        char *error = parse_ofp_flow_mod_str(&mod, text, NULL, NULL, OFPFC_ADD, &protocols);
        if (error) {
            fail(line, error);
        }
        take(&mod.match, mod.priority);
        minimatch_destroy(&mod.match);
        free(CONST_CAST(void *, (const void *) mod.ofpacts));
        free(text);
    }
    fclose(file);
}

static void
take_rule(const struct minimatch *match, int priority)
{
    rules = grown(rules, n_rules, sizeof *rules);
    cls_rule_init_from_minimatch(&rules[n_rules++], match, priority);
}

static void
take_packet(const struct minimatch *match, int priority OVS_UNUSED)
{
    packets = grown(packets, n_packets, sizeof *packets);
    miniflow_expand(match->flow, &packets[n_packets++]);
}

static void
fill(void)
{
    classifier_defer(&table);
    for (size_t i = 0; i < n_rules; i++) {
        classifier_insert(&table, &rules[i], OVS_VERSION_MIN, NULL, 0);
    }
    classifier_publish(&table);
}

static void
empty(void)
{
    classifier_defer(&table);
    for (size_t i = 0; i < n_rules; i++) {
        classifier_remove_assert(&table, &rules[i]);
    }
    classifier_publish(&table);
}

static void
look_up(bool masked)
{
    size_t found = 0;
    unsigned long long start = cpu_ns();
    for (size_t i = 0; i < n_packets; i++) {
        struct flow_wildcards wc;
        if (masked) {
            flow_wildcards_init_catchall(&wc);
        }
        found += !!classifier_lookup(&table, OVS_VERSION_MIN, &packets[i], masked ? &wc : NULL);
    }
    printf("%llu %"PRIuSIZE"\n", cpu_ns() - start, found);
}

static void
answers(void)
{
    for (size_t i = 0; i < n_packets; i++) {
        const struct cls_rule *rule = classifier_lookup(&table, OVS_VERSION_MIN, &packets[i], NULL);
        printf("%d ", rule ? rule->priority : -1);
    }
    printf("\n");
}

/* A value under a mask. */
struct entry {
    struct hmap_node node;
    struct flow value;
};

/* The entries of one mask. */
struct mask {
    struct flow_wildcards wc;
    struct hmap entries;
};

static struct flow
masked(const struct flow *packet, const struct flow_wildcards *wc)
{
    struct flow value = *packet;
    for (size_t byte = 0; byte < sizeof value; byte++) {
        ((uint8_t *) &value)[byte] &= ((const uint8_t *) &wc->masks)[byte];
    }
    return value;
}

static bool
has_entry(const struct mask *mask, const struct flow *value, uint32_t hash)
{
    struct entry *entry;
    HMAP_FOR_EACH_WITH_HASH (entry, node, hash, &mask->entries) {
        if (!memcmp(&entry->value, value, sizeof *value)) {
            return true;
        }
    }
    return false;
}

static uint32_t
hash_value(const struct flow *value)
{
    return hash_bytes64((const uint64_t *) value, sizeof *value, 0);
}

static void
megaflows(void)
{
    struct mask *masks = NULL;
    size_t n_masks = 0, n_entries = 0;
    for (size_t i = 0; i < n_packets; i++) {
        size_t m;
        for (m = 0; m < n_masks; m++) {
            struct flow value = masked(&packets[i], &masks[m].wc);
            if (has_entry(&masks[m], &value, hash_value(&value))) {
                break;
            }
        }
        if (m < n_masks) {
            continue;
        }
        struct flow_wildcards wc;
        flow_wildcards_init_catchall(&wc);
        classifier_lookup(&table, OVS_VERSION_MIN, &packets[i], &wc);
        for (m = 0; m < n_masks; m++) {
            if (!memcmp(&masks[m].wc, &wc, sizeof wc)) {
                break;
            }
        }
        if (m == n_masks) {
            masks = xrealloc(masks, (n_masks + 1) * sizeof *masks);
            masks[n_masks].wc = wc;
            hmap_init(&masks[n_masks++].entries);
            for (size_t k = 0; k < n_masks; k++) {
                /* The hash table may have moved, and the structure contains its single bucket. */
                hmap_moved(&masks[k].entries);
            }
        }
        struct entry *entry = xmalloc(sizeof *entry);
        entry->value = masked(&packets[i], &wc);
        hmap_insert(&masks[m].entries, &entry->node, hash_value(&entry->value));
        n_entries++;
    }
    printf("%"PRIuSIZE" %"PRIuSIZE"\n", n_entries, n_masks);
}

int
main(int argc, char *argv[])
{
    static const enum mf_field_id prefixes[] = { MFF_IPV4_DST, MFF_IPV4_SRC };
    char line[64];
    if (argc != 3) {
        fail("usage", "classifier RULES PACKETS");
    }
    read_matches(argv[1], take_rule);
    read_matches(argv[2], take_packet);
    size_t heap = mallinfo2().uordblks;
    classifier_init(&table, flow_segment_u64s);
    classifier_set_prefix_fields(&table, prefixes, ARRAY_SIZE(prefixes));
    fill();
    ovsrcu_quiesce();
    heap = mallinfo2().uordblks - heap;
    while (next_line(stdin, line, sizeof line)) {
        if (!strcmp(line, "masked") || !strcmp(line, "plain")) {
            look_up(!strcmp(line, "masked"));
        } else if (!strcmp(line, "answers")) {
            answers();
        } else if (!strcmp(line, "megaflows")) {
            megaflows();
        } else if (!strcmp(line, "rules")) {
            printf("%"PRIuSIZE"\n", n_rules);
        } else if (!strcmp(line, "packets")) {
            printf("%"PRIuSIZE"\n", n_packets);
        } else if (!strcmp(line, "rebuild")) {
            unsigned long long start = cpu_ns();
            empty();
            unsigned long long half = cpu_ns();
            ovsrcu_quiesce();
            unsigned long long refill = cpu_ns();
            fill();
            printf("%llu %llu\n", half - start, cpu_ns() - refill);
        } else if (!strcmp(line, "bytes")) {
            printf("%"PRIuSIZE"\n", heap);
        } else {
            fail("no such command", line);
        }
        fflush(stdout);
    }
    return 0;
}
