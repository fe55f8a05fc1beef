/* The man page, from the tables of flags and commands. */
#include "cli/command.h"

#include <string.h>

/* Prints text of a page in roff: nothing in it is a request or an escape, and hyphens are
 * those of the keyboard. */
static void put_text(const char *text, FILE *out) {
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void put_line(const char *text, FILE *out) {
    put_text(text, out);
    fputc('\n', out);
}

/* A flag with its value, as the head of a paragraph, and its help. */
static void put_flag(const Flag *flag, FILE *out) {
    fputs(".TP\n", out);
    if (flag->letter) fprintf(out, "\\fB\\-%c\\fR, ", flag->letter);
    fputs("\\fB\\-\\-", out);
    put_text(flag->name, out);
    fputs("\\fR", out);
    if (flag->value) fputs(" \\fI", out);
    if (flag->value) put_text(flag->value, out);
    fputs(flag->value ? "\\fR\n" : "\n", out);
    put_line(flag->field.help, out);
}

static void put_examples(const Command *command, FILE *out) {
    bool any = false;
    for (const Example *example = example_list(); example->command; example++) {
        if (strcmp(example->command, command->name) != 0) continue;
        fputs(any ? "" : ".PP\n.nf\n.RS\n", out);
        any = true;
        put_line(example->line, out);
    }
    if (any) fputs(".RE\n.fi\n", out);
}

/* A command under a heading of its own: what it does, its flags, examples. */
static void put_command(const Command *command, FILE *out) {
    fputs(".SS \"compress", out);
    if (*command->name) fprintf(out, " %s", command->name);
    if (*command->args) fputc(' ', out);
    put_text(command->args, out);
    fputs(*command->flags ? " [flags]\"\n" : "\"\n", out);
    put_line(command->summary, out);
    for (const Flag *flag = flag_list(); flag->name; flag++)
        if (command_takes(command, flag)) put_flag(flag, out);
    put_examples(command, out);
}

void help_man_page(FILE *out) {
    fprintf(out, ".TH COMPRESS 1 \"\" \"compress %s\"\n", COMPRESS_VERSION_TEXT);
    fputs(".SH NAME\ncompress \\- makes trained transformers smaller by recipes of "
          "passes\n"
          ".SH SYNOPSIS\n"
          ".B compress\n\\fB\\-\\-recipe\\fR \\fIFILE\\fR [flags]\n.br\n"
          ".B compress\n\\fICOMMAND\\fR ...\n"
          ".SH COMMANDS\n",
          out);
    for (const Command *command = command_list(); command->run; command++)
        put_command(command, out);
    fputs(".SH \"FLAGS OF EVERY COMMAND\"\n", out);
    for (const Flag *flag = flag_list(); flag->name; flag++)
        if (flag_is_common(flag)) put_flag(flag, out);
    fputs(".SH \"EXIT STATUS\"\n", out);
    for (int status = 0; status < STATUS_COUNT; status++) {
        fprintf(out, ".TP\n%d\n", status_exit_code((Status)status));
        put_line(status_help((Status)status), out);
    }
    fputs(".SH \"SEE ALSO\"\n", out);
    put_line("`compress help NAME` says more of a command, a pass, an op or a format.",
             out);
}
