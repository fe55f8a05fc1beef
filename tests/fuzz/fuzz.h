/* Fuzz targets: programs that give a reader any bytes at all. One file a reader, which
 * ends with LLVMFuzzerTestOneInput (https://llvm.org/docs/LibFuzzer.html). A reader may
 * refuse; it must not crash, leak, read past an end or run for long. What it accepts is
 * used once, so that what it let through is met, too.
 *
 * With -DCOMPRESS_FUZZ=ON (clang; the preset `fuzz`) libFuzzer drives them: scripts/fuzz.
 * Otherwise replay.c gives them their seeds, and what it makes of those, as a test. */
#ifndef COMPRESS_TESTS_FUZZ_FUZZ_H
#define COMPRESS_TESTS_FUZZ_FUZZ_H

#include "io/formats/checkpoint.h"

/* One input. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of targets that have it: libFuzzer calls it before the first input. Returns 0. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Memory for the path of an input's file. */
typedef struct FuzzPath {
    char path[64];
} FuzzPath;

/* The folder for inputs and what stands beside them: in memory where the system has one,
 * since a fuzzer writes millions. */
const char *fuzz_folder(void);

/* Writes a file, over one that is there. Aborts where that cannot be. */
void fuzz_put(const char *path, const void *data, size_t size);

/* Writes an input into a file of its own whose name ends in `ending`, for readers that
 * take a path. Aborts where that cannot be. */
void fuzz_file(FuzzPath *out, const char *ending, const uint8_t *data, size_t size);

/* Removes the file. */
void fuzz_remove(const FuzzPath *file);

/* Aborts with a message unless `holds`: for what must be so of an input that was
 * accepted. */
void fuzz_expect(int holds, const char *what);

/* Aborts unless a reader that stops at the first fault told what its status says: nothing
 * where it succeeded, one error of that status where it did not. */
void fuzz_told(Status status, const Diag *diag);

/* Lets what child processes run count as covered, for readers that work in one:
 * libFuzzer's counters become memory that they share. Nothing where another program
 * drives the target. */
void fuzz_share_coverage(void);

/* Aborts where a child process that read the input ended by itself: a sanitizer's doing.
 * One that a signal ended is the reader's to tell: that is what the child is there for.
 */
void fuzz_no_exit(const Diag *diag);

/* Reads every value of a checkpoint and finds every tensor by its name. */
void fuzz_checkpoint(const Checkpoint *checkpoint);

/* Opens the data set of an entry of a recipe's `data`, in YAML, whose options hold. Of
 * one that is accepted 64 samples are fetched; no text may have more than `tokens`
 * tokens. */
void fuzz_data_set(const char *entry, int64_t tokens);

#endif
