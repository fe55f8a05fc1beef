/* The table of commands, how a command line chooses one, and the help. */
#include "cli/commands.h"

#include <string.h>

static const Command commands[] = {
#define COMMAND(id, name, args, min, max, flags, summary)                                \
    {name, args, min, max, flags, summary, command_##id},
#include "cli/commands.def"
#undef COMMAND
};
#define COMMAND_COUNT ((int)(sizeof commands / sizeof commands[0]))

static Status unknown_command(const char *name, Diag *diag) {
    const char *names[COMMAND_COUNT];
    int count = 0;
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (*commands[i].name) names[count++] = commands[i].name;
    Status status =
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "unknown command \"%s\"", name);
    const char *nearest = name_nearest(name, names, count);
    if (nearest)
        diag_hint(diag, "did you mean \"%s\"?", nearest);
    else
        diag_hint(diag, "`compress --help` lists the commands");
    return status;
}

/* Chooses the command: the first word, or the one without a name before a flag. */
static Status choose_command(Cli *cli, int argc, char **argv, int *index, Diag *diag) {
    const char *name = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) cli->command = &commands[i];
    *index = *name ? 2 : 1;
    return cli->command ? STATUS_OK : unknown_command(name, diag);
}

static Status check_args(const Cli *cli, Diag *diag) {
    const Command *command = cli->command;
    int count = cli->arg_count;
    if (cli->flags.help || cli->flags.version) return STATUS_OK;
    if (count > command->args_max)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "unexpected argument \"%s\"",
                         cli->args[command->args_max]);
    if (count < command->args_min)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "expected compress %s %s",
                         command->name, command->args);
    return STATUS_OK;
}

Status cli_parse(Cli *cli, int argc, char **argv, Diag *diag) {
    int index = 1;
    bool flags_over = false;
    TRY(choose_command(cli, argc, argv, &index, diag));
    cli->args = ARENA_ARRAY(cli->arena, const char *, (size_t)argc + 1);
    Tree *given = tree_new(cli->arena, TREE_MAP, LOC_NONE);
    while (index < argc) {
        const char *word = argv[index];
        if (!flags_over && strcmp(word, "--") == 0) {
            flags_over = true;
            index++;
        } else if (!flags_over && word[0] == '-' && word[1]) {
            TRY(flag_parse(cli, given, argc, argv, &index, diag));
        } else {
            cli->args[cli->arg_count++] = word;
            index++;
        }
    }
    return check_args(cli, diag);
}

static void help_usage(const Command *command, FILE *out) {
    fprintf(out, "compress%s%s%s%s%s", *command->name ? " " : "", command->name,
            *command->args ? " " : "", command->args, *command->flags ? " [flags]" : "");
}

static void help_exit_codes(FILE *out) {
    fprintf(out, "\nExit codes:\n");
    for (int status = 0; status < STATUS_COUNT; status++)
        fprintf(out, "  %3d  %s\n", status_exit_code((Status)status),
                status_help((Status)status));
}

static void help_program(FILE *out) {
    fprintf(out,
            "compress %s: makes trained transformers smaller by recipes of passes\n\n",
            COMPRESS_VERSION_TEXT);
    fprintf(out, "Usage:\n  compress --recipe FILE [flags]\n  compress COMMAND ...\n\n");
    fprintf(out, "Commands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", *commands[i].name ? commands[i].name : "(none)",
                commands[i].summary);
    fprintf(out, "\nFlags to run a recipe:\n");
    flags_help(commands[0].flags, out);
    fprintf(out, "\nFlags of every command:\n");
    flags_help("help|version", out);
    help_exit_codes(out);
}

void cli_help(const Command *command, FILE *out) {
    if (!*command->name) {
        help_program(out);
        return;
    }
    fprintf(out, "%s\n\nUsage:\n  ", command->summary);
    help_usage(command, out);
    fprintf(out, "\n");
    if (*command->flags) fprintf(out, "\nFlags:\n");
    flags_help(command->flags, out);
}
