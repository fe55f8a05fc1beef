/* Confinement: a process gives up, for good, what it does not need for files that come
 * from strangers, so that a recipe that names others' files, or a reader that is taken
 * over by a damaged one, reaches nothing else.
 *
 * Files by Landlock (Linux 5.13), the rest by a filter of system calls and by limits of
 * the process. See docs/security.md for what this keeps from whom. */
#ifndef COMPRESS_IO_FILES_CONFINE_H
#define COMPRESS_IO_FILES_CONFINE_H

#include "ir/field.h"
#include "ir/status.h"

#include <stdbool.h>

typedef struct Confinement {
    StringList reads;  /* files, and folders with all below, that may be read; those that
                          are not there are left out */
    StringList writes; /* folders below which files may be made, replaced, removed and
                          read too */
    int64_t memory;    /* bytes of private memory of each process; 0 = as it is, and under
                        * AddressSanitizer, whose shadow counts as such memory */
    int64_t file;      /* bytes of any file that is written; 0 = as it is */
} Confinement;

/* Whether the process has one thread. Threads that are there already would not be
 * confined. */
bool confine_can(void);

/* Confines the process, which has one thread, with all its threads and children to come:
 * no file but these is opened (descriptors that are open stay), no connection made, no
 * program started, no other process signalled where Linux is 6.12 or newer. Fails with
 * STATUS_USAGE where the system has no Landlock or no filters, STATUS_IO at a path that
 * cannot be opened; the process may then be confined in part. */
Status confine(const Confinement *wanted, Diag *diag);

#endif
