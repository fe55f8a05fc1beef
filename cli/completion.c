/* Completion of command lines in bash, zsh and fish, from the tables of flags and
 * commands.
 */
#include "cli/command.h"
#include "passes/pipeline/recipe.h"

#include <string.h>

#define SHELLS "bash zsh fish"
#define NAME_CHARACTERS                                                                  \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* What may stand behind a command's name, beside flags. */
typedef enum Words { WORDS_FILES, WORDS_PASSES, WORDS_NAMES, WORDS_SHELLS } Words;

static Words command_words(const Command *command) {
    if (strcmp(command->name, "help") == 0) return WORDS_NAMES;
    if (strcmp(command->name, "passes") == 0) return WORDS_PASSES;
    return strcmp(command->name, "completion") == 0 ? WORDS_SHELLS : WORDS_FILES;
}

static bool command_has(const Command *command, const Flag *flag) {
    return command_takes(command, flag) || flag_is_common(flag);
}

static void put_passes(FILE *out) {
    for (const Pass *const *pass = pass_list(); *pass; pass++)
        fprintf(out, "%s ", (*pass)->name);
}

static void put_commands(FILE *out) {
    for (const Command *command = command_list() + 1; command->run; command++)
        fprintf(out, "%s ", command->name);
}

/* Prints the values of a flag of choices, with spaces between. */
static void put_choices(const Flag *flag, FILE *out) {
    for (const char *c = flag->field.choices; *c; c++) fputc(*c == '|' ? ' ' : *c, out);
}

/* Prints text for the inside of single quotes, with `special` characters behind
 * backslashes; `quote` is how a single quote is written there. */
static void put_quoted(const char *text, const char *special, const char *quote,
                       FILE *out) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, out);
            continue;
        }
        if (strchr(special, *text)) fputc('\\', out);
        fputc(*text, out);
    }
}

/* ---- bash ---- */

/* Prints the words that may follow a command. */
static void bash_command(const Command *command, FILE *out) {
    const Words words = command_words(command);
    fprintf(out, "        %s) words=\"", *command->name ? command->name : "*");
    if (words == WORDS_NAMES) put_commands(out);
    if (words == WORDS_NAMES || words == WORDS_PASSES) fprintf(out, "$passes ");
    if (words == WORDS_SHELLS) fprintf(out, SHELLS " ");
    for (const Flag *flag = flag_list(); flag->name; flag++)
        if (command_has(command, flag)) fprintf(out, "--%s ", flag->name);
    fprintf(out, "\" ;;\n");
}

static void complete_bash(const char *name, FILE *out) {
    fprintf(out,
            "# Completion of `%s` in bash: source <(%s completion bash)\n"
            "_compress() {\n"
            "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
            "    local before=${COMP_WORDS[COMP_CWORD - 1]} passes=\"",
            name, name);
    put_passes(out);
    fprintf(out, "\"\n    case $before in\n");
    for (const Flag *flag = flag_list(); flag->name; flag++) {
        if (flag->field.kind != FIELD_CHOICE) continue;
        fprintf(out, "        --%s) words=\"", flag->name);
        put_choices(flag, out);
        fprintf(out, "\" ;;\n");
    }
    fprintf(out, "        --*) [[ $word == -* ]] || return ;;\n    esac\n"
                 "    [[ $words ]] || case ${COMP_WORDS[1]} in\n");
    for (const Command *command = command_list() + 1; command->run; command++)
        bash_command(command, out);
    bash_command(command_list(), out);
    fprintf(out,
            "    esac\n    if ((COMP_CWORD == 1)) && [[ $word != -* ]]; then words=\"");
    put_commands(out);
    fprintf(out,
            "\"; fi\n"
            "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
            "}\n"
            "complete -o default -F _compress %s\n",
            name);
}

/* ---- zsh ---- */

#define ZSH_QUOTE "'\\''"

/* Prints a flag as an argument of zsh's _arguments. */
static void zsh_flag(const Flag *flag, FILE *out) {
    const bool choice = flag->field.kind == FIELD_CHOICE;
    const bool often = flag->field.kind == FIELD_STRINGS;
    fprintf(out, " \\\n            '%s--%s[", often ? "*" : "", flag->name);
    put_quoted(flag->field.help, "[]:\\", ZSH_QUOTE, out);
    fputc(']', out);
    if (flag->value) fputc(':', out);
    if (flag->value) put_quoted(flag->value, ":\\", ZSH_QUOTE, out);
    if (flag->value) fputs(choice ? ":(" : ":_files", out);
    if (choice) put_choices(flag, out);
    if (choice) fputc(')', out);
    fputc('\'', out);
}

static void zsh_command(const Command *command, FILE *out) {
    static const char *const arguments[] = {[WORDS_FILES] = "*:file:_files",
                                            [WORDS_PASSES] = "*:pass:($passes)",
                                            [WORDS_NAMES] = "*:name:($names $passes)",
                                            [WORDS_SHELLS] = "*:shell:(" SHELLS ")"};
    const bool none = !*command->name;
    fprintf(out, "        %s) _arguments", none ? "*" : command->name);
    for (const Flag *flag = flag_list(); flag->name; flag++)
        if (command_has(command, flag)) zsh_flag(flag, out);
    fprintf(out, " \\\n            \"%s\" ;;\n", arguments[command_words(command)]);
}

static void complete_zsh(const char *name, FILE *out) {
    fprintf(out,
            "#compdef %s\n"
            "# Completion of `%s` in zsh: source <(%s completion zsh)\n"
            "_compress() {\n"
            "    local -a commands names passes\n    commands=(\n",
            name, name, name);
    for (const Command *command = command_list() + 1; command->run; command++) {
        fprintf(out, "        '%s:", command->name);
        put_quoted(command->summary, "\\", ZSH_QUOTE, out);
        fputs("'\n", out);
    }
    fputs("    )\n    names=(${commands%%:*})\n    passes=(", out);
    put_passes(out);
    fputs(")\n"
          "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
          "        _describe command commands\n        return\n    fi\n"
          "    case $words[2] in\n",
          out);
    for (const Command *command = command_list() + 1; command->run; command++)
        zsh_command(command, out);
    zsh_command(command_list(), out);
    fprintf(out,
            "    esac\n}\n"
            "if [[ $funcstack[1] == _* ]]; then _compress; else compdef _compress %s; "
            "fi\n",
            name);
}

/* ---- fish ---- */

#define FISH_QUOTE "\\'"

static void fish_help(const char *text, FILE *out) {
    fputs(" -d '", out);
    put_quoted(text, "\\", FISH_QUOTE, out);
    fputs("'\n", out);
}

/* Prints the words and flags that may follow a command. */
static void fish_command(const char *name, const Command *command, FILE *out) {
    static const char *const words[] = {[WORDS_PASSES] = "$passes",
                                        [WORDS_NAMES] = "$commands $passes",
                                        [WORDS_SHELLS] = SHELLS};
    const char *own = words[command_words(command)];
    char when[160];
    if (*command->name)
        snprintf(when, sizeof when, "__fish_seen_subcommand_from %s", command->name);
    else
        snprintf(when, sizeof when, "not __fish_seen_subcommand_from $commands");
    if (own) fprintf(out, "complete -c %s -n \"%s\" -f -a \"%s\"\n", name, when, own);
    for (const Flag *flag = flag_list(); flag->name; flag++) {
        if (!command_has(command, flag)) continue;
        fprintf(out, "complete -c %s -n \"%s\" -l %s", name, when, flag->name);
        if (flag->letter) fprintf(out, " -s %c", flag->letter);
        if (flag->value)
            fputs(flag->field.kind == FIELD_CHOICE ? " -x -a '" : " -r", out);
        if (flag->field.kind == FIELD_CHOICE) put_choices(flag, out);
        if (flag->field.kind == FIELD_CHOICE) fputc('\'', out);
        fish_help(flag->field.help, out);
    }
}

static void complete_fish(const char *name, FILE *out) {
    fprintf(out,
            "# Completion of `%s` in fish: %s completion fish | source\n"
            "set -l commands ",
            name, name);
    put_commands(out);
    fputs("\nset -l passes ", out);
    put_passes(out);
    fputc('\n', out);
    for (const Command *command = command_list() + 1; command->run; command++) {
        fprintf(out,
                "complete -c %s -n \"not __fish_seen_subcommand_from $commands\" -a %s",
                name, command->name);
        fish_help(command->summary, out);
    }
    for (const Command *command = command_list(); command->run; command++)
        fish_command(name, command, out);
}

/* ---- compress completion ---- */

Status command_completion(const Cli *cli, Diag *diag) {
    static const struct {
        const char *shell;
        void (*print)(const char *name, FILE *out);
    } shells[] = {
        {"bash", complete_bash}, {"zsh", complete_zsh}, {"fish", complete_fish}};
    const char *name = cli->arg_count > 1 ? cli->args[1] : "compress";
    if (strspn(name, NAME_CHARACTERS) != strlen(name) || !*name)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected a name of letters, digits, '.', '_' and '-', found "
                         "\"%s\"",
                         name);
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].shell, cli->args[0]) != 0) continue;
        shells[i].print(name, stdout);
        return STATUS_OK;
    }
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "expected the name of a shell, bash, zsh or fish, found \"%s\"",
                     cli->args[0]);
}
