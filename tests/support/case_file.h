/* Files of test cases: sections of text under lines that begin with "-- ".
 *
 *     # What is tested, and why.
 *     -- recipe
 *     passes:
 *       - prune_heads: {keep: 1}
 *     -- error
 *     recipe:2:25: error: ...
 *
 * A file `keep_one.case` holds the case keep_one, or several cases when it has lines
 * `-- case NAME`, with an empty line above, before the sections of each. A section's
 * line may have an argument (`-- files vocab.txt`). Its text is everything up to the
 * next section; a last line `\ no newline` takes the newline before it away. Lines
 * before the first section are a comment, and so is what follows a case's line.
 *
 * A program of cases runs all of them, or those of whose names, FOLDER/CASE, or files,
 * FOLDER/FILE, one of its arguments is a pattern (`prune_heads/keep_*`). With
 * COMPRESS_REWRITE=1 the sections that record what the program does are written anew
 * instead of compared. */
#ifndef COMPRESS_TESTS_SUPPORT_CASE_FILE_H
#define COMPRESS_TESTS_SUPPORT_CASE_FILE_H

#include "ir/arena.h"

#include <stdbool.h>

typedef struct Section {
    const char *kind;     /* "recipe" */
    const char *argument; /* what follows the kind on its line; "" = nothing */
    const char *text;
} Section;

enum { SECTIONS_MAX = 64 };

typedef struct CaseFile {
    Arena *arena; /* owned: everything in the file */
    const char *path, *comment;
    struct Case *first; /* the cases, in order */
    bool changed;       /* to be written by case_file_close */
} CaseFile;

typedef struct Case {
    CaseFile *file;
    const char *name;    /* FOLDER/CASE below the root of all cases */
    const char *heading; /* NAME of its "-- case" line; NULL = it has none */
    const char *comment; /* behind that line */
    Section sections[SECTIONS_MAX];
    int section_count;
    struct Case *next;
} Case;

/* Reads a file whose cases are named `folder`/CASE ("" = CASE alone). Prints what is
 * wrong with it and gives NULL when it cannot be read. */
CaseFile *case_file_open(const char *path, const char *folder);

/* Writes the file where a section was changed, and frees it. */
void case_file_close(CaseFile *file);

/* First section of a kind, at or behind `from` sections; -1 when there is none. */
int case_find(const Case *one, const char *kind, int from);

/* Text of a case's first section of a kind, NULL when it has none. */
const char *case_text(const Case *one, const char *kind);

/* Whether recorded sections are to be written anew. */
bool case_rewrites(void);

/* Compares `got` with the section at `index` of a kind; a section that is not there
 * (index < 0) stands for `absent`. Prints both and returns false where they differ. When
 * rewriting, gives the section the text instead, takes it away where that is `absent`, or
 * adds it behind section `after`. */
bool case_compare(Case *one, int index, const char *kind, const char *got,
                  const char *absent, int after);

/* Main program: runs `run` on every case of the files ROOT/FOLDER/NAME.case (or
 * ROOT/NAME.case) that the arguments name. Each is a test of its own. Returns the exit
 * code: 0 when all of them pass and there is at least one. */
int case_main(int argc, char **argv, const char *root, void (*run)(Case *one));

#endif
