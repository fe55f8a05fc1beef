/* The functions behind the rows of cli/commands.def: command_recipe, command_plan, ... */
#ifndef COMPRESS_CLI_COMMANDS_H
#define COMPRESS_CLI_COMMANDS_H

#include "cli/command.h"

/* Each does what its row's summary says; results go to stdout, the rest to stderr. */
#define COMMAND(id, ...) Status command_##id(const Cli *cli, Diag *diag);
#include "cli/commands.def"
#undef COMMAND

#endif
