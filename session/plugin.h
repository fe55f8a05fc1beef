/* Plug-ins: passes from shared objects (session/compress_plugin.h), which join the others
 * of the process. */
#ifndef COMPRESS_SESSION_PLUGIN_H
#define COMPRESS_SESSION_PLUGIN_H

#include "ir/status.h"

/* Loads a plug-in for the lifetime of the process; does nothing if it is already loaded.
 * Runs its code, so do not use it for untrusted files. Fails with STATUS_IO if the file
 * cannot be read, with STATUS_FORMAT if it is not a plug-in, or one for another
 * interface, and with STATUS_USAGE if its passes cannot be added: a name that is taken
 * or invalid, an option without a kind. Then none of them is added. */
Status plugin_load(const char *path, Diag *diag);

#endif
