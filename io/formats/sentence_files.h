/* Files of sentence-transformers next to a model: modules.json lists the steps applied
 * to a text (Transformer, Pooling, Normalize), 1_Pooling/config.json says how its tokens
 * are pooled. They are read into the keys of io/families/sentence.h, and written from
 * them. */
#ifndef COMPRESS_IO_FORMATS_SENTENCE_FILES_H
#define COMPRESS_IO_FORMATS_SENTENCE_FILES_H

#include "ir/model.h"

/* Adds `pooling` and `normalize` to the configuration of a folder that has modules.json;
 * does nothing if `config` already has `pooling`. Fails with STATUS_MODEL for modules
 * and ways to pool that graphs here do not support (max pooling, Dense), with
 * STATUS_FORMAT for files of another form, with STATUS_IO. */
Status sentence_files_read(Tree *config, const char *folder, Arena *arena, Diag *diag);

/* A copy of a configuration without the two keys, for the config.json that accompanies
 * these files. */
Tree *sentence_config_strip(Arena *arena, const Tree *config);

/* Writes the files into `folder`, if a configuration has the keys; `width` is that of
 * the embedding. Fails with STATUS_IO. */
Status sentence_files_write(const Tree *config, const char *folder, int64_t width,
                            Arena *arena, Diag *diag);

/* Whether such a folder can contain a file, or a folder ("1_Pooling/"), of this name. */
bool sentence_file_is_known(const char *name);

#endif
