/* Running out of memory on purpose, in a process of its own. */
#ifndef COMPRESS_TESTS_SUPPORT_STARVED_H
#define COMPRESS_TESTS_SUPPORT_STARVED_H

#include "ir/status.h"

#include <stddef.h>

/* Calls `call` in a child process that gets `room` bytes of memory beside what this one
 * has, and fails the test unless it fails with STATUS_MEMORY and one error. Skips the
 * test where a sanitizer needs all of the address space. */
void assert_starves(size_t room, Status (*call)(void *self, Diag *diag), void *self);

#endif
