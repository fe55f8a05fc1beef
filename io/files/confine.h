/* Confinement: a process permanently gives up what it does not need to handle untrusted
 * files, so that a recipe that names other people's files, or a reader taken over by a
 * damaged file, reaches nothing else.
 *
 * Files are restricted by Landlock (Linux 5.13), the rest by a system call filter and by
 * process limits. See docs/security.md for what this protects against. */
#ifndef COMPRESS_IO_FILES_CONFINE_H
#define COMPRESS_IO_FILES_CONFINE_H

#include "ir/field.h"
#include "ir/status.h"

#include <stdbool.h>

typedef struct Confinement {
    StringList reads;  /* files, and folders with everything below, that may be read;
                          missing ones are ignored */
    StringList writes; /* folders below which files may be created, replaced, removed and
                          also read */
    int64_t memory; /* bytes of private memory of each process; unchanged if 0, and under
                       AddressSanitizer, whose shadow counts as such memory */
    int64_t file;   /* bytes of any file that is written; 0 = unchanged */
} Confinement;

/* Whether the process has only one thread. Existing threads would not be confined. */
bool confine_can(void);

/* Confines the process, which must have one thread, with all its future threads and
 * children: it can open no other files (open descriptors stay), make no connection,
 * start no program, and, on Linux 6.12 or newer, signal no other process. Fails with
 * STATUS_USAGE if the system has no Landlock or no filters, STATUS_IO at a path that
 * cannot be opened; the process may then be partly confined. */
Status confine(const Confinement *wanted, Diag *diag);

#endif
