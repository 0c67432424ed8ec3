/* NuevoMatch: finds the best of many rules for each IPv4 packet.
 *
 *     nuevomatch *rules = nuevomatch_build(list, count, seed);
 *     if (rules == NULL && !nuevomatch_check(list, count, &error))
 *         printf("rule %zu: %s: %s\n", error.rule, error.field, error.reason);
 *     nuevomatch_lookup_batch(rules, keys, keys_count, matches);
 *     nuevomatch_insert(rules, &rule);
 *     nuevomatch_remove(rules, &rule);
 *     nuevomatch_free(rules);
 *
 * Numbers are in the byte order of the machine. Arguments belong to the caller, and are not read after the
 * call. Several threads may look up at the same time. During an insertion or a removal no other thread may
 * use the classifier. NULL with a count above zero is refused, as is every other invalid argument.
 *
 * Build the library with: cargo build --release --package shunt-nuevomatch-c (into target/release).
 * Link with libshunt_nuevomatch_c.a and -lpthread -ldl -lm -lgcc_s, or with libshunt_nuevomatch_c.so.
 */
#ifndef SHUNT_NUEVOMATCH_H
#define SHUNT_NUEVOMATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nuevomatch nuevomatch;

/* A rule. Of the rules that match a packet, the one with the smallest priority wins; among equal priorities,
 * the one with the smallest value. Rules with a priority equal to their value need the least memory. */
typedef struct nuevomatch_rule {
    uint32_t source;             /* network; bits after the prefix do not count */
    uint32_t destination;
    uint8_t source_bits;         /* length of the prefix, 0 to 32 */
    uint8_t destination_bits;
    uint8_t protocol_low;        /* first and last protocol: 0 and 255 for all */
    uint8_t protocol_high;
    uint16_t source_port_low;    /* first and last port: 0 and 65535 for all */
    uint16_t source_port_high;
    uint16_t destination_port_low;
    uint16_t destination_port_high;
    uint32_t priority;           /* 0 to NUEVOMATCH_PRIORITY_MAX */
    uint32_t value;              /* a number of the caller */
} nuevomatch_rule;

/* The headers of a packet. Ports are 0 if the packet has none. */
typedef struct nuevomatch_key {
    uint32_t source;
    uint32_t destination;
    uint16_t source_port;
    uint16_t destination_port;
    uint8_t protocol;
} nuevomatch_key;

#define NUEVOMATCH_PRIORITY_MAX 4294967294u
#define NUEVOMATCH_NONE 4294967295u /* the priority of the result if no rule matches */

/* The winner for a packet. */
typedef struct nuevomatch_match {
    uint32_t priority;
    uint32_t value;
} nuevomatch_match;

typedef struct nuevomatch_statistics {
    size_t rules;
    size_t sets;             /* number of iSets */
    size_t remainder_rules;  /* number of rules that no iSet holds */
    size_t remainder_tables; /* number of hash tables of the remainder */
    size_t bytes;            /* everything that lookups read */
} nuevomatch_statistics;

/* A refused rule. The texts are constant, and valid for ever. */
typedef struct nuevomatch_error {
    size_t rule;        /* position of the rule, from 0 */
    const char *field;  /* name of the refused member, or "rules" if the pointer is NULL */
    const char *reason; /* the limit, and a correction */
} nuevomatch_error;

/* Checks rules. Returns 1 if all are valid. Else returns 0, and writes the first refused member of the first
 * invalid rule; error may be NULL. */
int nuevomatch_check(const nuevomatch_rule *rules, size_t count, nuevomatch_error *error);

/* Builds a classifier. The seed is part of every hash: with a secret seed, rules from outside cannot choose
 * collisions. Returns NULL if a rule is invalid (nuevomatch_check finds it), or if the system refuses the least
 * memory of the build.
 * Build again when the remainder has grown to a tenth of the rules, in another thread if lookups must
 * continue. */
nuevomatch *nuevomatch_build(const nuevomatch_rule *rules, size_t count, uint64_t seed);

/* Frees a classifier; NULL is ignored. */
void nuevomatch_free(nuevomatch *classifier);

/* Writes the winner for a packet. Returns 1, or 0 if no rule matches. */
int nuevomatch_lookup(const nuevomatch *classifier, const nuevomatch_key *key, nuevomatch_match *match);

/* Writes the winners for packets, which is faster than one by one from two packets on. Returns the number of
 * packets that a rule matches. */
size_t nuevomatch_lookup_batch(const nuevomatch *classifier, const nuevomatch_key *keys, size_t count,
                               nuevomatch_match *matches);

/* Adds a rule. Returns 1, 0 if there is no room for it, or -1 if it is invalid. */
int nuevomatch_insert(nuevomatch *classifier, const nuevomatch_rule *rule);

/* Removes a rule that is equal in all members. Returns 1, 0 if there is none, or -1 if it is invalid. */
int nuevomatch_remove(nuevomatch *classifier, const nuevomatch_rule *rule);

/* Writes the sizes of a classifier. Returns 1, or 0 if a pointer is NULL. */
int nuevomatch_get_statistics(const nuevomatch *classifier, nuevomatch_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif
