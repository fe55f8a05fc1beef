/* Class names: the label that a folder or word stands for. */
#ifndef COMPRESS_IO_DATASETS_CLASS_NAMES_H
#define COMPRESS_IO_DATASETS_CLASS_NAMES_H

#include "ir/field.h"

/* Names by label from the `id2label` of a config.json, or of the one in a folder. Empty
 * when it has only LABEL_0, LABEL_1, ... Fails with STATUS_IO, or STATUS_FORMAT when
 * keys are not 0, 1, ... or a name is not text. */
Status class_names_read(StringList *out, const char *path, Arena *arena, Diag *diag);

/* The same of a configuration that has been read; `path` is for messages. */
Status class_names_of(StringList *out, const Tree *config, const char *path, Arena *arena,
                      Diag *diag);

/* Whether a configuration names its classes, by `id2label` or `label2id`, other than
 * LABEL_0, LABEL_1, ... */
bool class_names_given(const Tree *config);

/* Label of a name, -1 when there is none. */
int64_t class_names_find(const StringList *names, const char *name);

/* A copy for Batches.class_names, including the texts; NULL if there are no names. */
const char *const *class_names_copy(Arena *arena, const StringList *names);

/* Checks that no name occurs twice. Fails with STATUS_RECIPE at `at`, about `key`. */
Status class_names_check(const StringList *names, Loc at, const char *key, Diag *diag);

#endif
