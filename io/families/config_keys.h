/* Config keys: what the keys of a config.json mean that no family asks for. */
#ifndef COMPRESS_IO_FAMILIES_CONFIG_KEYS_H
#define COMPRESS_IO_FAMILIES_CONFIG_KEYS_H

#include "ir/tree.h"

/* Refuses what changes the weights or the mathematics of any model in ways that a family
 * does not follow: quantised weights, heads that were pruned, tied stacks, ... `follows`
 * are the keys that it does, ended by NULL; NULL = none. Fails with STATUS_MODEL, at the
 * key. */
Status config_check(const Tree *config, const char *const *follows, Diag *diag);

/* Whether a key changes nothing of what a model computes from given weights: where it
 * comes from, how it is trained, how texts are generated, parts that are no part of the
 * classes that are read. */
bool config_key_is_passive(const char *key);

#endif
