/* Tests the promises of the header with a flow cache in C. Prints the layout of every structure, for
 * the comparison with the library. */
#include <assert.h>
#include <stdio.h>

#include "shunt_kairo.h"

#undef NDEBUG
#define LAYOUT(type, last) printf(#type " %zu %zu\n", sizeof(type), offsetof(type, last))

int main(void) {
    /* Rule 1 matches 10.0.0.0/8. A packet to 10.1.2.3 installs an entry for the whole network. */
    kairo_words packet, all, key, mask;
    assert(kairo_parse("ip,nw_src=1.2.3.4,nw_dst=10.1.2.3", &packet, &all));
    assert(kairo_parse("ip,nw_dst=10.0.0.0/8", &key, &mask));
    kairo_rule rule = {.id = 1, .priority = 100, .key = &key, .mask = &mask};
    kairo_visit visit = {.packet = &packet, .consulted = &mask, .rule = &rule};
    uint64_t group = 7;
    kairo_traversal traversal = {.version = 1, .packet = &packet, .consulted = &mask,
                                 .visits = &visit, .visits_count = 1,
                                 .reads = &group, .reads_count = 1};
    kairo *engine = kairo_new(1, 1);
    kairo_entry entry = {.slot = 5}, evicted[4];
    assert(kairo_installed(engine, entry, &traversal) == 1);

    /* A rule outside the network evicts nothing. One inside evicts the entry, although the packet does
     * not match it. */
    kairo_words beside_key, beside_mask, within_key, within_mask;
    assert(kairo_parse("ip,nw_dst=11.0.0.0/8", &beside_key, &beside_mask));
    assert(kairo_parse("ip,nw_dst=10.1.99.0/24", &within_key, &within_mask));
    kairo_rule beside = {.id = 2, .priority = 200, .key = &beside_key, .mask = &beside_mask};
    kairo_rule within = {.id = 3, .priority = 200, .key = &within_key, .mask = &within_mask};
    kairo_delta added = {.change = KAIRO_ADDED, .rule = &beside};
    assert(kairo_apply(engine, &added, 1, 2) == 0);
    added.rule = &within;
    assert(kairo_apply(engine, &added, 1, 3) == 1);
    assert(kairo_evicted(engine, evicted, 4) == 1 && evicted[0].slot == 5);
    assert(kairo_len(engine) == 0);

    /* An entry of an older version is refused. */
    assert(kairo_installed(engine, entry, &traversal) == 0);
    traversal.version = 3;

    /* The entry is evicted with the rule that decided, and when an object that it read changes. */
    assert(kairo_installed(engine, entry, &traversal) == 1);
    kairo_delta removed = {.change = KAIRO_REMOVED, .rule = &rule};
    assert(kairo_apply(engine, &removed, 1, 4) == 1);
    traversal.version = 4;
    assert(kairo_installed(engine, entry, &traversal) == 1);
    kairo_delta changed = {.change = KAIRO_OBJECT, .object = 8};
    assert(kairo_apply(engine, &changed, 1, 5) == 0);
    changed.object = group;
    assert(kairo_apply(engine, &changed, 1, 6) == 1);

    /* Entries that the cache dropped itself are not evicted. */
    traversal.version = 6;
    assert(kairo_installed(engine, entry, &traversal) == 1);
    kairo_removed(engine, entry);
    assert(kairo_len(engine) == 0);
    assert(kairo_installed(engine, (kairo_entry){.owner = 1}, &traversal) == 1);
    assert(kairo_len(engine) == 1);
    kairo_forget(engine, 1);
    assert(kairo_len(engine) == 0);

    /* An entry is evicted if the actions of its rule change, that is, if the revision changes. */
    assert(kairo_installed(engine, entry, &traversal) == 1);
    kairo_delta modified = {.change = KAIRO_MODIFIED, .rule = &rule};
    assert(kairo_apply(engine, &modified, 1, 7) == 0);
    assert(kairo_evicted(engine, evicted, 4) == 0 && kairo_len(engine) == 1);
    rule.revision = 1;
    assert(kairo_apply(engine, &modified, 1, 8) == 1);
    assert(kairo_evicted(engine, evicted, 4) == 1 && evicted[0].slot == 5);
    assert(kairo_evicted(engine, evicted, 0) == 0 && kairo_evicted(engine, NULL, 4) == 0);
    while (kairo_run_maintenance(engine)) {
    }

    /* A version that does not increase is refused, and nothing changes. */
    traversal.version = 8;
    assert(kairo_installed(engine, entry, &traversal) == 1);
    removed.rule = &rule;
    assert(kairo_apply(engine, &removed, 1, 7) == -1);
    assert(kairo_len(engine) == 1 && kairo_evicted(engine, evicted, 4) == 1);
    traversal.version = 7;
    assert(kairo_installed(engine, (kairo_entry){.slot = 6}, &traversal) == 0);
    assert(kairo_apply(engine, &removed, 1, 8) == -1 && kairo_len(engine) == 1);
    changed.object = group;
    assert(kairo_apply(engine, &changed, 1, 8) == -1 && kairo_len(engine) == 1);

    /* A change may not use the id of a removed rule again. A rule that a change both adds and removes
     * has no effect. */
    kairo_delta again[2] = {removed, {.change = KAIRO_ADDED, .rule = &within}};
    within.id = rule.id;
    assert(kairo_apply(engine, again, 2, 9) == -1 && kairo_len(engine) == 1);
    within.id = 3;
    kairo_delta brief[2] = {{.change = KAIRO_ADDED, .rule = &within},
                            {.change = KAIRO_REMOVED, .rule = &within}};
    assert(kairo_apply(engine, brief, 2, 9) == 0 && kairo_len(engine) == 1);
    assert(kairo_apply(engine, &removed, 1, 10) == 1);
    kairo *later = kairo_new(3, 1);
    assert(kairo_apply(later, NULL, 0, 2) == -1 && kairo_apply(later, NULL, 0, 3) == 0);
    kairo_free(later);

    /* Invalid arguments are refused. */
    kairo_delta nonsense = {.change = 9, .rule = &rule};
    assert(kairo_apply(engine, &nonsense, 1, 11) == -1);
    traversal.version = 10;
    traversal.reads = NULL;
    assert(kairo_installed(engine, entry, &traversal) == -1);
    traversal.reads = &group;
    traversal.visits = NULL;
    assert(kairo_installed(engine, entry, &traversal) == -1);
    traversal.visits = &visit;
    traversal.visits_count = SIZE_MAX;
    assert(kairo_installed(engine, entry, &traversal) == -1);
    traversal.visits_count = 1;
    assert(kairo_apply(engine, NULL, 3, 11) == -1 && kairo_apply(engine, NULL, 0, 10) == 0);
    rule.id = UINT64_MAX;
    assert(kairo_installed(engine, entry, &traversal) == -1);
    assert(kairo_apply(engine, &modified, 1, 11) == -1);
    rule.id = 1;
    assert(kairo_installed(engine, entry, &traversal) == 1);
    visit.table = 255;
    assert(kairo_installed(engine, entry, &traversal) == -1);
    assert(kairo_installed(engine, entry, NULL) == -1);
    assert(!kairo_parse("nw_dst=10.0.0", &key, &mask) && !kairo_parse(NULL, &key, &mask));
    kairo_free(engine);
    kairo_free(NULL);

    LAYOUT(kairo_entry, generation);
    LAYOUT(kairo_rule, mask);
    LAYOUT(kairo_visit, rule);
    LAYOUT(kairo_traversal, reads_count);
    LAYOUT(kairo_delta, object);
    printf("KAIRO_WORDS %d\n", KAIRO_WORDS);
    printf("changes %d %d %d %d\n", KAIRO_ADDED, KAIRO_REMOVED, KAIRO_MODIFIED, KAIRO_OBJECT);
    return 0;
}
