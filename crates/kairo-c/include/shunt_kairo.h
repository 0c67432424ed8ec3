/* Kairo: finds the entries of a flow cache that a change of rules makes stale.
 *
 * A cache entry covers all packets that agree with one packet in the bits that mattered. It is right as
 * long as every table lookup behind it finds the same rule, for each of these packets. The caller reports
 * the entries that its cache installs and drops, and the changes of rules. The engine returns the
 * entries to evict, in time that depends on the change and not on the size of the cache.
 *
 *     kairo *engine = kairo_new(version, seed);
 *     kairo_installed(engine, entry, &traversal);     the cache has installed an entry
 *     kairo_removed(engine, entry);                   the cache has dropped an entry itself
 *     kairo_apply(engine, deltas, count, version);    rules have changed
 *     kairo_evicted(engine, entries, count);          these entries must be evicted
 *     kairo_free(engine);
 *
 * One thread at a time may use an engine. Arguments belong to the caller, and are not read after the call.
 * Versions grow from change to change. An entry of an older version than that of the last kairo_apply
 * is not watched, and must be dropped. A change of that version or an older one is refused. All changes of
 * one version are one call. NULL with a count above zero is refused, as is every other invalid argument: an
 * array that could not be allocated is not an empty one.
 *
 * Build the library with: cargo build --release --package shunt-kairo-c (into target/release).
 * Link with libshunt_kairo_c.a and -lpthread -ldl -lm -lgcc_s, or with libshunt_kairo_c.so.
 */
#ifndef SHUNT_KAIRO_H
#define SHUNT_KAIRO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The headers of a packet, or a mask of them. kairo_parse writes them. */
#define KAIRO_WORDS 81
typedef uint64_t kairo_words[KAIRO_WORDS];

typedef struct kairo kairo;

/* The id of an entry. A slot is used again with another generation. */
typedef struct kairo_entry {
    uint16_t owner; /* number of the cache, if there are several */
    uint32_t slot;
    uint32_t generation;
} kairo_entry;

/* A rule of a table, 0 to 254. Of two rules of one priority, the smaller id is older and wins. UINT64_MAX is
 * not an id. An id is never used again: a change that uses one again is refused. The engine stores a rule
 * once for all visits of its id and revision, as the first of them describes it. */
typedef struct kairo_rule {
    uint64_t id;
    uint32_t revision; /* number of times that it was modified */
    uint16_t priority;
    uint8_t table;
    const kairo_words *key;
    const kairo_words *mask;
} kairo_rule;

/* One table lookup. */
typedef struct kairo_visit {
    uint8_t table;
    const kairo_words *packet;    /* all headers, as the packet entered the table */
    const kairo_words *consulted; /* the bits that the lookup consulted */
    const kairo_rule *rule;       /* the rule that won; NULL for a table miss */
} kairo_visit;

/* The traversal that made an entry. Its visits show what the tables wrote to the packet. */
typedef struct kairo_traversal {
    uint64_t version;             /* version of the rules that it used */
    const kairo_words *packet;    /* all headers, as the packet arrived */
    const kairo_words *consulted; /* the bits that any decision depended on */
    const kairo_visit *visits;
    size_t visits_count;
    const uint64_t *reads;        /* other objects it depends on (groups, ports), by numbers of the caller */
    size_t reads_count;
} kairo_traversal;

#define KAIRO_ADDED 0    /* the rule is new */
#define KAIRO_REMOVED 1  /* the rule was removed */
#define KAIRO_MODIFIED 2 /* the actions of the rule changed, and its revision is new */
#define KAIRO_OBJECT 3   /* an object that entries read has changed */

typedef struct kairo_delta {
    int change;
    const kairo_rule *rule; /* ignored if an object changed */
    uint64_t object;        /* the object, if one changed */
} kairo_delta;

/* Creates an engine without entries, at a version of the rules. The seed is part of every hash. With a secret
 * seed, senders cannot choose packets that collide. */
kairo *kairo_new(uint64_t version, uint64_t seed);

/* Frees an engine; NULL is ignored. */
void kairo_free(kairo *engine);

/* Parses a match in the syntax of ovs-ofctl: "tcp,nw_dst=10.0.0.0/8". Returns 1, or 0 if it is not a match.
 * key and mask must not be the same. */
int kairo_parse(const char *text, kairo_words *key, kairo_words *mask);

/* Records a new entry, and replaces one with the same id. Returns 1 if it is watched from now on, 0 if its
 * version is too old and it must be dropped, and -1 if its traversal is invalid. */
int kairo_installed(kairo *engine, kairo_entry entry, const kairo_traversal *traversal);

/* Records that the cache has dropped an entry itself. */
void kairo_removed(kairo *engine, kairo_entry entry);

/* Forgets a cache with all its entries. */
void kairo_forget(kairo *engine, uint16_t owner);

/* Applies a change and returns the number of evicted entries, which are not watched any more. Returns -1, and
 * does nothing, in three cases: a delta is invalid, an id is used again, or the version is not above that
 * of kairo_new and of every kairo_apply before (without deltas it may be the same). All that changes
 * together is one call. */
int64_t kairo_apply(kairo *engine, const kairo_delta *deltas, size_t count, uint64_t version);

/* Writes up to count of the entries that the last kairo_apply evicted; returns the number written. */
size_t kairo_evicted(const kairo *engine, kairo_entry *entries, size_t count);

/* Does some deferred work; call it when there is no other work. Returns 1 if more is left. */
int kairo_run_maintenance(kairo *engine);

/* Returns the number of watched entries. */
size_t kairo_len(const kairo *engine);

#ifdef __cplusplus
}
#endif

#endif
