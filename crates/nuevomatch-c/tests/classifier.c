/* Tests the promises of the header with a scan in C. Prints the layout of every structure, for the
 * comparison with the library. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shunt_nuevomatch.h"

#undef NDEBUG
#define LAYOUT(type, last) printf(#type " %zu %zu\n", sizeof(type), offsetof(type, last))
#define RULES 2000
#define KEYS 1000

static uint32_t state = 1;

static uint32_t random_word(void) {
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static uint32_t mask_of(uint8_t bits) { return bits == 0 ? 0 : 0xffffffffu << (32 - bits); }

static int matches(const nuevomatch_rule *rule, const nuevomatch_key *key) {
    return ((rule->source ^ key->source) & mask_of(rule->source_bits)) == 0 &&
           ((rule->destination ^ key->destination) & mask_of(rule->destination_bits)) == 0 &&
           rule->source_port_low <= key->source_port && key->source_port <= rule->source_port_high &&
           rule->destination_port_low <= key->destination_port &&
           key->destination_port <= rule->destination_port_high &&
           rule->protocol_low <= key->protocol && key->protocol <= rule->protocol_high;
}

/* Compares lookups, one by one and in a batch, with a scan of the rules that are live. */
static void compare(const nuevomatch *classifier, const nuevomatch_rule *rules, const int *live) {
    static nuevomatch_key keys[KEYS];
    static nuevomatch_match found[KEYS];
    for (size_t i = 0; i < KEYS; i++) {
        const nuevomatch_rule *rule = &rules[random_word() % RULES];
        keys[i] = (nuevomatch_key){rule->source | (random_word() & 3), rule->destination,
                                   rule->source_port_high, (uint16_t)random_word(), rule->protocol_low};
    }
    size_t expected_matches = 0;
    size_t batch_matches = nuevomatch_lookup_batch(classifier, keys, KEYS, found);
    for (size_t i = 0; i < KEYS; i++) {
        nuevomatch_match best = {NUEVOMATCH_NONE, 0}, one;
        for (size_t r = 0; r < RULES; r++)
            if (live[r] && rules[r].priority < best.priority && matches(&rules[r], &keys[i]))
                best = (nuevomatch_match){rules[r].priority, rules[r].value};
        assert(nuevomatch_lookup(classifier, &keys[i], &one) == (best.priority != NUEVOMATCH_NONE));
        assert(one.priority == best.priority && one.value == best.value);
        assert(found[i].priority == best.priority && found[i].value == best.value);
        expected_matches += best.priority != NUEVOMATCH_NONE;
    }
    assert(batch_matches == expected_matches && batch_matches > KEYS / 4);
}

/* Checks that a rule is refused with its position and the name of its member. */
static void refused(nuevomatch *classifier, const nuevomatch_rule *good, nuevomatch_rule bad, const char *field) {
    nuevomatch_rule list[4] = {good[0], good[1], bad, bad};
    nuevomatch_error error = {0};
    assert(nuevomatch_check(list, 2, &error) == 1 && error.field == NULL);
    assert(nuevomatch_check(list, 4, &error) == 0);
    assert(error.rule == 2 && strcmp(error.field, field) == 0 && strlen(error.reason) > 10);
    assert(nuevomatch_check(list, 4, NULL) == 0);
    assert(nuevomatch_build(list, 4, 1) == NULL);
    assert(nuevomatch_insert(classifier, &bad) == -1 && nuevomatch_remove(classifier, &bad) == -1);
}

/* Builds more rules than the memory of the process can hold twice. The process continues. */
static int build_without_memory(void) {
    const size_t count = 3000000;
    nuevomatch_rule *rules = calloc(count, sizeof *rules);
    assert(rules != NULL);
    assert(nuevomatch_build(rules, count, 1) == NULL);
    assert(nuevomatch_check(rules, count, NULL) == 1);
    nuevomatch *few = nuevomatch_build(rules, 100, 1);
    nuevomatch_statistics sizes;
    assert(nuevomatch_get_statistics(few, &sizes) == 1 && sizes.rules == 100);
    nuevomatch_free(few);
    free(rules);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "without-memory") == 0) return build_without_memory();
    static nuevomatch_rule rules[RULES];
    static int live[RULES];
    for (uint32_t i = 0; i < RULES; i++) {
        uint8_t bits = (uint8_t)(random_word() % 4 * 8 + 8);
        int any_port = random_word() % 2;
        rules[i] = (nuevomatch_rule){.source = 0x0a000000 | (random_word() & 0xffffff),
                                     .destination = random_word() & 0xff,
                                     .source_bits = bits,
                                     .destination_bits = random_word() % 2 ? 32 : 0,
                                     .protocol_low = any_port ? 0 : 6,
                                     .protocol_high = any_port ? 255 : 6,
                                     .source_port_high = 65535,
                                     .destination_port_low = any_port ? 0 : 1024,
                                     .destination_port_high = 65535,
                                     .priority = 2 * i,
                                     .value = RULES - i};
        live[i] = i % 4 != 0;
    }
    nuevomatch *classifier = nuevomatch_build(rules, RULES, 1);
    assert(classifier != NULL);
    for (size_t i = 0; i < RULES; i += 4) assert(nuevomatch_remove(classifier, &rules[i]) == 1);
    assert(nuevomatch_remove(classifier, &rules[0]) == 0);
    compare(classifier, rules, live);
    for (size_t i = 0; i < RULES; i += 8) {
        assert(nuevomatch_insert(classifier, &rules[i]) == 1);
        live[i] = 1;
    }
    compare(classifier, rules, live);

    nuevomatch_statistics sizes;
    assert(nuevomatch_get_statistics(classifier, &sizes) == 1);
    assert(sizes.rules == RULES - RULES / 8 && sizes.bytes > 24 * sizes.rules && sizes.sets > 0);

    /* Invalid arguments are refused, and change nothing. */
    nuevomatch_rule bad = rules[1];
    bad.source_bits = 33;
    refused(classifier, rules, bad, "source_bits");
    bad = rules[1];
    bad.destination_bits = 255;
    refused(classifier, rules, bad, "destination_bits");
    bad = rules[1];
    bad.source_port_low = 7;
    bad.source_port_high = 6;
    refused(classifier, rules, bad, "source_port_low");
    bad = rules[1];
    bad.destination_port_low = 7;
    bad.destination_port_high = 6;
    refused(classifier, rules, bad, "destination_port_low");
    bad = rules[1];
    bad.protocol_low = 7;
    bad.protocol_high = 6;
    refused(classifier, rules, bad, "protocol_low");
    bad = rules[1];
    bad.priority = NUEVOMATCH_NONE;
    refused(classifier, rules, bad, "priority");
    nuevomatch_error error;
    assert(nuevomatch_build(NULL, 1, 1) == NULL);
    assert(nuevomatch_check(NULL, 1, &error) == 0 && strcmp(error.field, "rules") == 0);
    assert(strstr(error.reason, "pass an array of at least one rule and its count") != NULL);
    assert(nuevomatch_check(NULL, 0, &error) == 1);
    assert(nuevomatch_insert(classifier, NULL) == -1);
    assert(nuevomatch_lookup(classifier, NULL, NULL) == 0);
    assert(nuevomatch_get_statistics(classifier, NULL) == 0);
    compare(classifier, rules, live);
    nuevomatch_free(classifier);
    nuevomatch_free(NULL);

    classifier = nuevomatch_build(NULL, 0, 1);
    nuevomatch_key key = {.protocol = 6};
    nuevomatch_match none;
    assert(nuevomatch_lookup(classifier, &key, &none) == 0 && none.priority == NUEVOMATCH_NONE);
    nuevomatch_free(classifier);

    LAYOUT(nuevomatch_rule, value);
    LAYOUT(nuevomatch_key, protocol);
    LAYOUT(nuevomatch_match, value);
    LAYOUT(nuevomatch_statistics, bytes);
    LAYOUT(nuevomatch_error, reason);
    printf("constants %u %u\n", NUEVOMATCH_PRIORITY_MAX, NUEVOMATCH_NONE);
    return 0;
}
