/* Guard: what happens when a mapped file shrinks while it is in use.
 *
 * Touching a page that is no longer in the file raises SIGBUS, which no check at opening
 * can prevent. With the guard installed, the program then ends with one message that
 * names the file, and the exit code of STATUS_IO; files being written are removed first.
 * Bus errors elsewhere keep their usual effect. */
#ifndef COMPRESS_IO_FILES_GUARD_H
#define COMPRESS_IO_FILES_GUARD_H

#include <stddef.h>

/* Installs the handler; for the program's main, once. */
void guard_install(void);

/* Registers and forgets a mapping; used by file_map. The path is copied. */
void guard_add(const void *base, size_t bytes, const char *path);
void guard_remove(const void *base);

#endif
