/* Entities: see entities.h. */
#include "passes/evaluate/entities.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* Prefix of a name in a scheme of prefixes, 0 when it has none. BILOU's last and unit
 * words are ends and singles. */
static char prefix_of(const char *name) {
    static const char FROM[] = "BIESLU", TO[] = "BIESES";
    const char *found = *name ? strchr(FROM, *name) : NULL;
    if (strcmp(name, "O") == 0) return 'O';
    return found && (name[1] == '-' || !name[1]) ? TO[found - FROM] : 0;
}

static int type_of(EntityTags *tags, const char *name) {
    for (int i = 0; i < tags->type_count; i++)
        if (strcmp(tags->types[i], name) == 0) return i;
    tags->types[tags->type_count] = name;
    return tags->type_count++;
}

static TagScheme scheme_of(const char *const *names, int64_t classes) {
    TagScheme scheme = TAGS_IOB2;
    bool begins = false;
    for (int64_t c = 0; c < classes; c++) {
        const char prefix = names ? prefix_of(names[c]) : 0;
        if (!prefix) return TAGS_PLAIN;
        if (prefix == 'E' || prefix == 'S') scheme = TAGS_IOBES;
        begins |= prefix != 'O';
    }
    return begins ? scheme : TAGS_PLAIN;
}

void entity_tags_read(EntityTags *out, Arena *arena, const char *const *names,
                      int64_t classes) {
    *out = (EntityTags){.scheme = scheme_of(names, classes), .classes = classes};
    out->tags = ARENA_ARRAY(arena, EntityTag, (size_t)classes);
    out->types = ARENA_ARRAY(arena, const char *, (size_t)classes);
    for (int64_t c = 0; c < classes; c++) {
        const char *name = names ? names[c] : arena_printf(arena, "%lld", (long long)c);
        const bool plain = out->scheme == TAGS_PLAIN;
        out->tags[c].prefix = plain && strcmp(name, "O") != 0 ? 'I' : prefix_of(name);
        out->tags[c].type = -1;
        if (out->tags[c].prefix == 'O') continue;
        /* "B" without a type is of the type "_" */
        out->tags[c].type = type_of(out, plain ? name : name[1] ? name + 2 : "_");
    }
}

/* ---- sequences ---- */

/* Whether an entity goes on from one word to the next. */
static bool goes_on(EntityTag from, EntityTag to) {
    return from.type == to.type && (from.prefix == 'B' || from.prefix == 'I') &&
           (to.prefix == 'I' || to.prefix == 'E');
}

/* Whether strict mode lets words that go on be an entity. */
static bool is_whole(TagScheme scheme, EntityTag first, EntityTag last) {
    const bool begun = first.prefix == 'B' || first.prefix == 'S';
    const bool ended = last.prefix == 'E' || last.prefix == 'S';
    return scheme == TAGS_PLAIN || (begun && (ended || scheme == TAGS_IOB2));
}

int64_t entities_find(Entity *out, const EntityTags *tags, bool strict,
                      const int32_t *sequence, int64_t n) {
    int64_t count = 0;
    for (int64_t first = 0, last; first < n; first = last + 1) {
        const EntityTag tag = tags->tags[sequence[first]];
        last = first;
        if (tag.prefix == 'O') continue;
        while (last + 1 < n &&
               goes_on(tags->tags[sequence[last]], tags->tags[sequence[last + 1]]))
            last++;
        if (!strict || is_whole(tags->scheme, tag, tags->tags[sequence[last]]))
            out[count++] = (Entity){first, last, tag.type};
    }
    return count;
}

void entities_count(LabelCounts *counts, const EntityTags *tags, bool strict,
                    const int32_t *labels, const int32_t *predicted, int64_t n) {
    Entity *entities = memory_alloc(2 * (size_t)n, sizeof *entities),
           *found = entities + n;
    const int64_t there = entities_find(entities, tags, strict, labels, n);
    const int64_t many = entities_find(found, tags, strict, predicted, n);
    for (int64_t i = 0; i < there; i++) counts[entities[i].type].labelled++;
    for (int64_t i = 0; i < many; i++) counts[found[i].type].predicted++;
    for (int64_t i = 0, j = 0; i < there && j < many;) {
        const Entity a = entities[i], b = found[j];
        if (a.first == b.first && a.last == b.last && a.type == b.type)
            counts[a.type].hits++;
        i += a.first <= b.first;
        j += b.first <= a.first;
    }
    free(entities);
}
