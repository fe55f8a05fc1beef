/* --untrusted: a command on files that come from strangers. */
#ifndef COMPRESS_CLI_UNTRUSTED_H
#define COMPRESS_CLI_UNTRUSTED_H

#include "cli/command.h"

/* Confines the process (io/files/confine.h) to what its command line names: it may read
 * below the folders of the given files and of what --allow adds, write below the folders
 * of its output files, hold private memory up to half of the machine's, and write no
 * file larger than all of it. `arguments` are main's: the program restarts once if
 * threads are already running. Fails with STATUS_USAGE if the system cannot confine it,
 * STATUS_IO at a path. */
Status untrusted_confine(const Cli *cli, char **arguments, Diag *diag);

#endif
