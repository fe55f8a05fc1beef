/* Running out of memory on purpose, in a process of its own. */
#ifndef COMPRESS_TESTS_SUPPORT_STARVED_H
#define COMPRESS_TESTS_SUPPORT_STARVED_H

#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether memory can run out: a sanitizer needs all of the address space. A test begins
 * with `if (!can_starve()) skip();`. */
bool can_starve(void);

/* Calls `call` in a child process that gets `room` bytes of memory beside what this one
 * has, and fails the test unless it fails with STATUS_MEMORY and one error. */
void assert_starves(size_t room, Status (*call)(void *self, Diag *diag), void *self);

#endif
