/* NameMap: open addressing with linear probing, at most half full. */
#include "ir/name_map.h"

#include "ir/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a, with the high bits folded into those that select the entry. */
static uint64_t name_hash(const char *key) {
    uint64_t hash = 14695981039346656037u;
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * 1099511628211u;
    return hash ^ (hash >> 32);
}

static NameEntry *entry_find(const NameMap *map, const char *key) {
    size_t mask = map->capacity - 1;
    size_t i = (size_t)name_hash(key) & mask;
    while (map->entries[i].key && strcmp(map->entries[i].key, key) != 0)
        i = (i + 1) & mask;
    return &map->entries[i];
}

static void map_grow(NameMap *map) {
    NameMap old = *map;
    map->capacity = old.capacity ? old.capacity * 2 : 64;
    map->entries = map->arena ? ARENA_ARRAY(map->arena, NameEntry, map->capacity)
                              : memory_alloc(map->capacity, sizeof(NameEntry));
    for (size_t i = 0; i < old.capacity; i++)
        if (old.entries[i].key) *entry_find(map, old.entries[i].key) = old.entries[i];
    if (!map->arena) free(old.entries);
}

void *name_map_get(const NameMap *map, const char *key) {
    return map->capacity ? entry_find(map, key)->value : NULL;
}

bool name_map_add(NameMap *map, const char *key, void *value) {
    if (map->count * 2 >= map->capacity) map_grow(map);
    NameEntry *entry = entry_find(map, key);
    if (entry->key) return false;
    *entry = (NameEntry){key, value};
    map->count++;
    return true;
}

void name_map_replace(NameMap *map, const char *key, void *value) {
    NameEntry *entry = entry_find(map, key);
    if (entry->key) *entry = (NameEntry){key, value};
}

void name_map_free(NameMap *map) {
    if (!map->arena) free(map->entries);
    *map = (NameMap){0};
}
