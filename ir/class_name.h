/* Names of classes and labels in a configuration: `id2label`, a map from "0", "1", ... */
#ifndef COMPRESS_IR_CLASS_NAME_H
#define COMPRESS_IR_CLASS_NAME_H

#include "ir/tree.h"

/* The name that a configuration (NULL = none) gives a label, or else its generic one.
 * Borrowed from the configuration, or in the arena. */
const char *class_name(const Tree *config, int64_t label, Arena *arena);

/* LABEL_0, LABEL_1, ...: what transformers writes for unnamed classes. In the arena. */
const char *class_name_generic(int64_t label, Arena *arena);

/* Whether a name is a generic one. */
bool class_name_is_generic(const char *name);

#endif
