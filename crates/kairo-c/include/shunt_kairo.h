/* Kairo: which entries of a flow cache does a change of rules make stale?
 *
 * A cache entry stands for all packets that agree with one packet in the bits that mattered. It stays
 * right as long as every lookup behind it would find the same rule, for each of these packets. An
 * engine is told what the cache holds, what it lost and what changed, and answers which entries go: at
 * the cost of what the change touches, not of what is cached.
 *
 *     kairo *engine = kairo_new(version, seed);
 *     kairo_installed(engine, entry, &traversal);     the cache has made an entry
 *     kairo_removed(engine, entry);                   the cache has lost one by itself
 *     kairo_apply(engine, deltas, count, version);    rules have changed
 *     kairo_evicted(engine, entries, room);           these must go
 *     kairo_free(engine);
 *
 * An engine is used by one thread at a time. What a call is given belongs to the caller, and is not
 * looked at after the call. Versions grow from change to change: an entry that was made under an older
 * version than that of the last kairo_apply is not watched, and must go, and a change of that version or
 * an older one is refused. What changes under one version is one call. NULL with a count above zero is refused, as
 * whatever else makes no sense: an array that could not be allocated is not an empty one.
 *
 * cargo build --release --package shunt-kairo-c makes the library, in target/release.
 * Link with libshunt_kairo_c.a and -lpthread -ldl -lm -lgcc_s, or with libshunt_kairo_c.so.
 */
#ifndef SHUNT_KAIRO_H
#define SHUNT_KAIRO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The headers of a packet, or bits of them. kairo_parse writes them. */
#define KAIRO_WORDS 81
typedef uint64_t kairo_words[KAIRO_WORDS];

typedef struct kairo kairo;

/* The name of an entry. A slot is used again with another generation. */
typedef struct kairo_entry {
    uint16_t owner; /* which cache, if there are several */
    uint32_t slot;
    uint32_t generation;
} kairo_entry;

/* A rule of a table, 0 to 254. Of equal priorities the lesser id, which is the older rule, wins;
 * UINT64_MAX is no id, and an id is never used again: a change that does so is refused. An engine keeps a rule once for all visits of its id and revision, as the first of
 * them describes it. */
typedef struct kairo_rule {
    uint64_t id;
    uint32_t revision; /* how often it was modified */
    uint16_t priority;
    uint8_t table;
    const kairo_words *key;
    const kairo_words *mask;
} kairo_rule;

/* One lookup. */
typedef struct kairo_visit {
    uint8_t table;
    const kairo_words *packet;    /* all headers, as the packet entered the table */
    const kairo_words *consulted; /* the bits of them that the lookup looked at */
    const kairo_rule *rule;       /* the rule that it found; NULL: none */
} kairo_visit;

/* What made an entry. What tables wrote to the packet is seen from its visits. */
typedef struct kairo_traversal {
    uint64_t version;             /* of the rules that it saw */
    const kairo_words *packet;    /* all headers, as the packet came in */
    const kairo_words *consulted; /* the bits of them that anything depended on */
    const kairo_visit *visits;
    size_t visits_count;
    const uint64_t *reads;        /* what else it depended on: groups, ports, by numbers of yours */
    size_t reads_count;
} kairo_traversal;

#define KAIRO_ADDED 0    /* the rule is new */
#define KAIRO_REMOVED 1  /* the rule, as it was, is gone */
#define KAIRO_MODIFIED 2 /* the rule does something else, and has a new revision */
#define KAIRO_OBJECT 3   /* something that entries read has changed */

typedef struct kairo_delta {
    int change;
    const kairo_rule *rule; /* unless an object changed */
    uint64_t object;        /* if one did */
} kairo_delta;

/* An engine without entries, at a version of the rules. The seed goes into every hash: one that nobody can
 * guess keeps peers from choosing which of their packets collide. */
kairo *kairo_new(uint64_t version, uint64_t seed);

void kairo_free(kairo *engine);

/* Reads a match as ovs-ofctl spells it: "tcp,nw_dst=10.0.0.0/8". Answers 1, or 0 if it is none. key and
 * mask are two places. */
int kairo_parse(const char *text, kairo_words *key, kairo_words *mask);

/* Answers 1 if the entry is watched from now on, in the place of one of its name; 0 if it was made too
 * late and must go; -1 if what made it makes no sense. */
int kairo_installed(kairo *engine, kairo_entry entry, const kairo_traversal *traversal);

void kairo_removed(kairo *engine, kairo_entry entry);

/* A whole cache is gone. */
void kairo_forget(kairo *engine, uint16_t owner);

/* Answers with the number of entries that go, or -1 if a delta makes no sense, an id is used again, or the
 * version is not above that of kairo_new and of every kairo_apply before (without deltas it may be the
 * same); then nothing was done.
 * What changes together is one call. The entries are not watched any more. */
int64_t kairo_apply(kairo *engine, const kairo_delta *deltas, size_t count, uint64_t version);

/* Writes the entries that the last kairo_apply ended, at most so many; answers how many it wrote. */
size_t kairo_evicted(const kairo *engine, kairo_entry *entries, size_t count);

/* Does some of the work that was put off, when there is nothing else to do. 1: there is more. */
int kairo_tidy(kairo *engine);

/* Number of entries that are watched. */
size_t kairo_len(const kairo *engine);

#ifdef __cplusplus
}
#endif

#endif
