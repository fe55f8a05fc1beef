/* --untrusted: a command on files that come from strangers. */
#ifndef COMPRESS_CLI_UNTRUSTED_H
#define COMPRESS_CLI_UNTRUSTED_H

#include "cli/command.h"

/* Confines the process (io/files/confine.h) to what its command line names: it reads
 * below the folders of the files that it is given and what --allow adds, writes below the
 * folders of the files that it is to write, and holds no more private memory than half of
 * the machine's, no file larger than all of it. `arguments` are main's: the program
 * begins anew, once, where threads run already. Fails with STATUS_USAGE where the system
 * cannot confine it, STATUS_IO at a path. */
Status untrusted_confine(const Cli *cli, char **arguments, Diag *diag);

#endif
