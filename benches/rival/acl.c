/* rte_acl of DPDK without a switch: a rival of the experiment `nuevomatch-lookup`.
 *
 *   acl RULES PACKETS..
 *
 * RULES has one rule per line: the first and last value of source, destination, source port,
 * destination port and protocol, and its value. Ranges of addresses are prefixes. The rule with the
 * smallest value wins. Each PACKETS has one packet per line: five values. Packets of a file are
 * named by the position of the file, from 0.
 * Each line of standard input is a command, and its result is one line:
 *
 *   rules      number of rules
 *   batch N    looks up the packets of a file in batches of 32: nanoseconds of CPU time for all
 *   single N   looks up the packets of a file one by one
 *   answers N  the value of each packet's rule, -1 for none, on one line
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rte_acl.h>
#include <rte_byteorder.h>
#include <rte_eal.h>

#define FIELDS 5
#define BATCH 32

RTE_ACL_RULE_DEF(tuple_rule, FIELDS);

/* A packet as rte_acl reads it: groups of four bytes in network byte order, after the first byte. */
struct tuple {
    uint8_t protocol;
    uint8_t unused[3];
    uint32_t source;
    uint32_t destination;
    uint16_t source_port;
    uint16_t destination_port;
};

struct trace {
    struct tuple *packets;
    const uint8_t **data;
    size_t count;
};

static struct rte_acl_ctx *table;
static size_t n_rules;

static void
fail(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

static unsigned long long
cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void *
grown(void *array, size_t count, size_t size)
{
    if (count & (count - 1)) {
        return array;
    }
    array = realloc(array, (count ? 2 * count : 1) * size);
    if (!array) {
        fail("out of memory", "rules or packets");
    }
    return array;
}

static FILE *
open_file(const char *name)
{
    FILE *file = fopen(name, "r");
    if (!file) {
        fail("cannot open", name);
    }
    return file;
}

static void
define(struct rte_acl_config *config, int index, uint8_t type, uint8_t size, uint8_t input,
       uint32_t offset)
{
    config->defs[index] = (struct rte_acl_field_def) {
        .type = type, .size = size, .field_index = index, .input_index = input, .offset = offset,
    };
}

static uint32_t
prefix_length(uint32_t low, uint32_t high)
{
    return low == high ? 32 : (uint32_t) __builtin_clz(low ^ high);
}

/* Reads the rules, and builds the table. */
static void
build(const char *name)
{
    FILE *file = open_file(name);
    struct tuple_rule *rules = NULL;
    uint32_t v[11];
    while (fscanf(file, "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32
                  "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32, &v[0], &v[1], &v[2],
                  &v[3], &v[4], &v[5], &v[6], &v[7], &v[8], &v[9], &v[10]) == 11) {
        struct tuple_rule *rule;
        rules = grown(rules, n_rules, sizeof *rules);
        rule = &rules[n_rules++];
        memset(rule, 0, sizeof *rule);
        rule->data.category_mask = 1;
        rule->data.priority = RTE_ACL_MAX_PRIORITY - v[10];
        rule->data.userdata = v[10] + 1;
        rule->field[0].value.u8 = v[8];
        rule->field[0].mask_range.u8 = v[8] == v[9] ? 0xff : 0;
        rule->field[1].value.u32 = v[0];
        rule->field[1].mask_range.u32 = prefix_length(v[0], v[1]);
        rule->field[2].value.u32 = v[2];
        rule->field[2].mask_range.u32 = prefix_length(v[2], v[3]);
        rule->field[3].value.u16 = v[4];
        rule->field[3].mask_range.u16 = v[5];
        rule->field[4].value.u16 = v[6];
        rule->field[4].mask_range.u16 = v[7];
    }
    fclose(file);
    struct rte_acl_param param = {
        .name = "rules", .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(FIELDS),
        .max_rule_num = n_rules,
    };
    struct rte_acl_config config = { .num_categories = 1, .num_fields = FIELDS };
    define(&config, 0, RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, offsetof(struct tuple, protocol));
    define(&config, 1, RTE_ACL_FIELD_TYPE_MASK, 4, 1, offsetof(struct tuple, source));
    define(&config, 2, RTE_ACL_FIELD_TYPE_MASK, 4, 2, offsetof(struct tuple, destination));
    define(&config, 3, RTE_ACL_FIELD_TYPE_RANGE, 2, 3, offsetof(struct tuple, source_port));
    define(&config, 4, RTE_ACL_FIELD_TYPE_RANGE, 2, 3, offsetof(struct tuple, destination_port));
    table = rte_acl_create(&param);
    if (!table || rte_acl_add_rules(table, (struct rte_acl_rule *) rules, n_rules)) {
        fail("rte_acl refuses the rules", name);
    }
    if (rte_acl_build(table, &config)) {
        fail("rte_acl cannot build its table; it may need more memory", name);
    }
    free(rules);
}

static struct trace
read_trace(const char *name)
{
    FILE *file = open_file(name);
    struct trace trace = { NULL, NULL, 0 };
    uint32_t v[5];
    while (fscanf(file, "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32 "%" SCNu32, &v[0], &v[1],
                  &v[2], &v[3], &v[4]) == 5) {
        trace.packets = grown(trace.packets, trace.count, sizeof *trace.packets);
        trace.packets[trace.count++] = (struct tuple) {
            .protocol = v[4],
            .source = rte_cpu_to_be_32(v[0]),
            .destination = rte_cpu_to_be_32(v[1]),
            .source_port = rte_cpu_to_be_16(v[2]),
            .destination_port = rte_cpu_to_be_16(v[3]),
        };
    }
    fclose(file);
    for (size_t i = 0; i < trace.count; i++) {
        trace.data = grown(trace.data, i, sizeof *trace.data);
        trace.data[i] = (const uint8_t *) &trace.packets[i];
    }
    return trace;
}

/* Looks up all packets, 'size' in a call. Prints the values of the rules if 'prints' is set. */
static void
look_up(const struct trace *trace, size_t size, int prints)
{
    uint32_t results[BATCH];
    for (size_t i = 0; i < trace->count; i += size) {
        size_t left = trace->count - i;
        size_t count = left < size ? left : size;
        rte_acl_classify(table, &trace->data[i], results, count, 1);
        for (size_t k = 0; prints && k < count; k++) {
            printf("%" PRId64 " ", (int64_t) results[k] - 1);
        }
        __asm__ volatile("" : : "r" (results) : "memory");
    }
}

int
main(int argc, char *argv[])
{
    char *options[] = {
        argv[0], "-l", "0", "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "-m", "4096",
        "--force-max-simd-bitwidth=512", "--log-level=error",
    };
    struct trace *traces;
    char line[64];
    int n_traces = argc - 2;
    if (n_traces < 1) {
        fail("usage", "acl RULES PACKETS..");
    }
    if (rte_eal_init(sizeof options / sizeof *options, options) < 0) {
        fail("DPDK", "cannot start");
    }
    build(argv[1]);
    traces = calloc(n_traces, sizeof *traces);
    if (!traces) {
        fail("out of memory", "packets");
    }
    for (int i = 0; i < n_traces; i++) {
        traces[i] = read_trace(argv[2 + i]);
    }
    while (fgets(line, sizeof line, stdin)) {
        char command[16] = "";
        int at = 0;
        sscanf(line, "%15s %d", command, &at);
        if (at < 0 || at >= n_traces) {
            fail("no such file of packets", line);
        } else if (!strcmp(command, "rules")) {
            printf("%zu\n", n_rules);
        } else if (!strcmp(command, "answers")) {
            look_up(&traces[at], BATCH, 1);
            printf("\n");
        } else if (!strcmp(command, "batch") || !strcmp(command, "single")) {
            unsigned long long start = cpu_ns();
            look_up(&traces[at], *command == 'b' ? BATCH : 1, 0);
            printf("%llu\n", cpu_ns() - start);
        } else {
            fail("unknown command", line);
        }
        fflush(stdout);
    }
    return 0;
}
