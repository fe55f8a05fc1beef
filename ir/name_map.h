/* NameMap: hash map from strings to pointers, for readers and checks that would take
 * quadratic time otherwise. Used inside ir only. */
#ifndef COMPRESS_IR_NAME_MAP_H
#define COMPRESS_IR_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct NameEntry {
    const char *key; /* borrowed; NULL = free */
    void *value;
} NameEntry;

/* Start with zeros; free with name_map_free. */
typedef struct NameMap {
    NameEntry *entries;
    size_t capacity, count; /* capacity is 0 or a power of two */
} NameMap;

/* Value of a key, NULL when absent. */
void *name_map_get(const NameMap *map, const char *key);

/* Adds a key, which must outlive the map, with a value other than NULL. False, with
 * nothing changed, when the key is there already. */
bool name_map_add(NameMap *map, const char *key, void *value);

/* Frees the map's memory. */
void name_map_free(NameMap *map);

#endif
