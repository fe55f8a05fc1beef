/* Recipe documents: the file of a recipe with everything that it takes from elsewhere,
 * as one document: allowed environment variables, and the recipes it extends.
 */
#ifndef COMPRESS_SESSION_RECIPE_DOCUMENT_H
#define COMPRESS_SESSION_RECIPE_DOCUMENT_H

#include "ir/field.h"

/* Most files of one recipe, and the longest chain of files that extend one another. */
#define EXTENDS_FILES_MAX 32
#define EXTENDS_DEPTH_MAX 8

/* Reads a recipe. `env`: "NAME" lets ${NAME} take its value from the environment,
 * "NAME=VALUE" gives it one; others are refused. The files under `extends` are read in
 * order, each over those before, and the recipe over all of them: maps are merged key by
 * key, any other value replaces the earlier one. Every value keeps its place, so that
 * messages name its file; paths of files are made relative to the recipe's own folder.
 * `extends` and `anchors` are gone from the document. A path that is a stream
 * (file_descriptor) is read to its end. Fails with STATUS_RECIPE, STATUS_USAGE for
 * `env`, STATUS_IO. */
Status recipe_document_read(Tree **out, Arena *arena, const char *path,
                            const StringList *env, Diag *diag);

/* Reads a recipe from a text in memory, `name` in messages: a list is its `passes`, a map
 * is laid over the files that it extends. Paths are relative to the working directory.
 * ${NAME} is ordinary text; the files may not use variables, since none are allowed.
 * Fails with STATUS_RECIPE, also if the text is neither, and STATUS_IO. */
Status recipe_document_parse(Tree **out, Arena *arena, const char *name, const char *text,
                             Diag *diag);

/* Puts `folder` in front of the relative paths among the options of steps, a list of a
 * document that has been read: for writing them into a recipe in another folder. */
void recipe_steps_move(Arena *arena, Tree *passes, const char *folder);

/* Appends a document as a recipe that reads back equal without any variables. */
void recipe_document_print(Text *text, const Tree *document);

#endif
