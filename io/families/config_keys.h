/* Config keys: the meaning of keys of a config.json that no family reads. */
#ifndef COMPRESS_IO_FAMILIES_CONFIG_KEYS_H
#define COMPRESS_IO_FAMILIES_CONFIG_KEYS_H

#include "ir/tree.h"

/* Refuses keys that change the weights or the mathematics of any model in ways that a
 * family does not support: quantised weights, pruned heads, tied stacks, ... `follows`
 * are the keys that it supports, ended by NULL; NULL = none. Fails with STATUS_MODEL, at
 * the key. */
Status config_check(const Tree *config, const char *const *follows, Diag *diag);

/* Whether a key does not affect what a model computes from given weights: its origin,
 * its training, how texts are generated, parts that do not belong to the classes that
 * are read. */
bool config_key_is_passive(const char *key);

#endif
