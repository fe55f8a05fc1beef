/* Expansion of YAML: the values that aliases and merge keys stand for, and texts with
 * ${NAME}. Private to the reader of YAML. */
#ifndef COMPRESS_IO_FILES_YAML_EXPAND_H
#define COMPRESS_IO_FILES_YAML_EXPAND_H

#include "io/files/yaml.h"

enum { YAML_DEPTH_MAX = 32, YAML_VALUES_MAX = 100000 };

/* What a value takes, with everything in it. */
typedef struct ValueSize {
    int values, depth;
    size_t bytes; /* of strings and keys */
} ValueSize;

/* Counts what a value takes. A scalar has depth 0. */
ValueSize value_size(const Tree *value);

/* Copy of a value in the same arena, places kept and strings shared. */
Tree *value_copy(Arena *arena, const Tree *value);

/* Replaces the merge key `<<` of a complete map by its content: the keys of a map, or of
 * a list of maps, that the map itself does not have; of several maps, the first that has
 * a key counts. A map without the merge key is unchanged. Fails with STATUS_RECIPE if
 * the key holds anything else. */
Status merge_key_expand(Arena *arena, Tree *map, Diag *diag);

/* A text at its place, in which to replace ${NAME}. */
typedef struct VariableText {
    const char *text;
    YamlPlace place;
    bool alone; /* set: the text is a single variable */
} VariableText;

/* Writes the text to `out` with every ${NAME} replaced by its value from `variables` and
 * $${ by ${. Fails with STATUS_RECIPE, also if the text grows beyond `limit` bytes. */
Status variables_expand(Text *out, VariableText *in, const YamlVariables *variables,
                        size_t limit, Diag *diag);

#endif
