/* Help, from the tables of flags and commands. */
#include "cli/command.h"
#include "cli/program.h"
#include "cli/terminal.h"

#include <string.h>

/* Column where the help of a flag begins, and that of a command. */
enum { FLAG_COLUMN = 28, COMMAND_COLUMN = 13 };

const Example *example_list(void) {
    static const Example list[] = {
#define EXAMPLE(command, line) {command, line},
#include "cli/examples.def"
#undef EXAMPLE
        {NULL, NULL}};
    return list;
}

/* Prints the rows of the flags that a command takes, or those of every command. */
static void help_flags(const char *title, const Command *command, FILE *out) {
    const int columns = terminal_columns(out);
    bool any = false;
    for (const Flag *flag = flag_list(); flag->name; flag++) {
        if (!(command ? command_takes(command, flag) : flag_is_common(flag))) continue;
        if (!any) fprintf(out, "\n%s:\n", title);
        any = true;
        int used =
            flag->letter ? fprintf(out, "  -%c, ", flag->letter) : fprintf(out, "      ");
        used += fprintf(out, "--%s %s", flag->name, flag->value ? flag->value : "");
        if (used >= FLAG_COLUMN) {
            fputc('\n', out);
            used = 0;
        }
        fprintf(out, "%*s", FLAG_COLUMN - used, "");
        terminal_wrap(out, flag->field.help, FLAG_COLUMN, FLAG_COLUMN, columns);
    }
}

static void help_examples(const Command *command, FILE *out) {
    bool any = false;
    for (const Example *example = example_list(); example->command; example++) {
        if (strcmp(example->command, command->name) != 0) continue;
        if (!any) fprintf(out, "\nExamples:\n");
        any = true;
        fprintf(out, "  %s\n", example->line);
    }
}

void help_exit_codes(FILE *out) {
    const int columns = terminal_columns(out);
    for (int status = 0; status < STATUS_COUNT; status++) {
        fprintf(out, "  %3d  ", status_exit_code((Status)status));
        terminal_wrap(out, status_help((Status)status), 7, 7, columns);
    }
}

static void help_program(FILE *out) {
    const int columns = terminal_columns(out);
    fprintf(out,
            "compress %s: makes trained transformers smaller by recipes of passes\n\n",
            COMPRESS_VERSION_TEXT);
    fprintf(out, "Usage:\n  compress --recipe FILE [flags]\n  compress COMMAND ...\n\n");
    fprintf(out, "Commands:\n");
    for (const Command *command = command_list(); command->run; command++) {
        fprintf(out, "  %-10s ", *command->name ? command->name : "(none)");
        terminal_wrap(out, command->summary, COMMAND_COLUMN, COMMAND_COLUMN, columns);
    }
    help_flags("Flags to run a recipe", command_list(), out);
    help_flags("Flags of every command", NULL, out);
    help_examples(command_list(), out);
    fprintf(out, "\nExit codes:\n");
    help_exit_codes(out);
    fputc('\n', out);
    terminal_wrap(out,
                  "`compress help NAME` says more of a command, a pass, an op, a format, "
                  "or of: " HELP_TOPICS ".",
                  0, 0, columns);
}

static void help_command(const Command *command, FILE *out) {
    terminal_wrap(out, command->summary, 0, 0, terminal_columns(out));
    fprintf(out, "\nUsage:\n  compress %s%s%s%s\n", command->name,
            *command->args ? " " : "", command->args, *command->flags ? " [flags]" : "");
    help_flags("Flags", command, out);
    help_examples(command, out);
}

static void print_help(const void *what, FILE *out) {
    const Command *command = what;
    if (*command->name)
        help_command(command, out);
    else
        help_program(out);
}

void cli_help(const Command *command, FILE *out) {
    program_tell(out, print_help, command);
}
