/* NameMap: hash map from strings to pointers, for readers, checks and large maps of
 * documents that would take quadratic time otherwise. For ir, and for readers of files
 * with names. */
#ifndef COMPRESS_IR_NAME_MAP_H
#define COMPRESS_IR_NAME_MAP_H

#include "ir/arena.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct NameEntry {
    const char *key; /* borrowed; NULL = free */
    void *value;
} NameEntry;

/* Initialise with zeros; free with name_map_free, or give it an arena. */
typedef struct NameMap {
    NameEntry *entries;
    size_t capacity, count; /* capacity is 0 or a power of two */
    Arena *arena;           /* of the entries; NULL = name_map_free frees them */
} NameMap;

/* Value of a key, NULL if absent. */
void *name_map_get(const NameMap *map, const char *key);

/* Adds a key, which must outlive the map, with a value other than NULL. False, with
 * nothing changed, if the key exists already. */
bool name_map_add(NameMap *map, const char *key, void *value);

/* Changes the value of an existing key. */
void name_map_replace(NameMap *map, const char *key, void *value);

/* Frees the map's memory; does nothing if it is in an arena. */
void name_map_free(NameMap *map);

#endif
