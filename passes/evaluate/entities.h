/* Entities: what the tags of a sequence's words mark, and how many of them are found.
 *
 * An entity is a type and the words from its first to its last. Tags are classes with
 * names: "O" marks no entity; "B-PER", "I-PER" the beginning and the inside of one of
 * type PER (IOB2), "E-PER" its end and "S-PER" one of a single word (IOBES; BILOU's L and
 * U are the same). If any name has another form, tags are plain: each except "O" is a
 * type, and consecutive words with the same tag are one entity.
 *
 * Rules are those of seqeval (Nakayama, 2018; after the CoNLL-2000 script conlleval). By
 * default an entity continues as long as the type stays, no B or S follows and no E or S
 * came before, so that "I-PER" alone is an entity; in strict mode it counts only if it
 * begins with B or S and, in IOBES, ends with E or S. */
#ifndef COMPRESS_PASSES_EVALUATE_ENTITIES_H
#define COMPRESS_PASSES_EVALUATE_ENTITIES_H

#include "ir/arena.h"
#include "passes/evaluate/label_metrics.h"

typedef enum TagScheme { TAGS_IOB2, TAGS_IOBES, TAGS_PLAIN } TagScheme;

/* What one class marks. */
typedef struct EntityTag {
    char prefix; /* 'B', 'I', 'E', 'S', or 'O' */
    int type;    /* index in EntityTags.types; -1 with 'O' */
} EntityTag;

typedef struct EntityTags {
    TagScheme scheme;
    EntityTag *tags; /* by class */
    int64_t classes;
    const char **types;
    int type_count;
} EntityTags;

/* Words `first` to `last` of a sequence. */
typedef struct Entity {
    int64_t first, last;
    int type;
} Entity;

/* Reads the classes' names; without names (NULL) every class is a plain tag. Names are
 * borrowed, the rest is in the arena. */
void entity_tags_read(EntityTags *out, Arena *arena, const char *const *names,
                      int64_t classes);

/* The entities of a sequence of n classes, in their order, into out[n]; returns their
 * number. */
int64_t entities_find(Entity *out, const EntityTags *tags, bool strict,
                      const int32_t *sequence, int64_t n);

/* Adds a sequence to counts[type_count]: an entity is a hit if both sequences have it,
 * with the same type and words. */
void entities_count(LabelCounts *counts, const EntityTags *tags, bool strict,
                    const int32_t *labels, const int32_t *predicted, int64_t n);

#endif
