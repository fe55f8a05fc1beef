/* Plug-ins: passes from shared objects (session/compress_plugin.h), which join the others
 * of the process. */
#ifndef COMPRESS_SESSION_PLUGIN_H
#define COMPRESS_SESSION_PLUGIN_H

#include "ir/status.h"

/* Loads a plug-in for as long as the process lives; one that is loaded already is left
 * alone. Runs its code: not for files of strangers. Fails with STATUS_IO where the file
 * cannot be read, with STATUS_FORMAT where it is no plug-in, or one for another
 * interface, and with STATUS_USAGE where its passes cannot be added: a name that is taken
 * or none, an option without a kind. None of them is added then. */
Status plugin_load(const char *path, Diag *diag);

#endif
