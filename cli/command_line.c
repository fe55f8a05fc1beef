/* The tables of flags and of commands; parsing, checking and help come from them. */
#include "cli/command.h"

#include "cli/annotate.h"
#include "exec/linalg/products.h"
#include "exec/processor.h"
#include "io/tokenizers/word_vocabulary.h"
#include "passes/pass.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- flags ---- */

static const Flag flags[] = {
    {"recipe", "FILE", F_STRING(Flags, recipe, "recipe (YAML); - reads standard input"),
     'r'},
    {"model", "PATH",
     F_STRING(Flags, model, "model to start from, instead of the recipe's")},
    {"input", "FILE", F_STRING(Flags, input, "inputs by name (safetensors)")},
    {"text", "TEXT",
     F_STRINGS(Flags, text, "a text to run on; may be given several times",
               .empty = true)},
    {"jsonl", "FILE",
     F_STRING(Flags, jsonl,
              "texts to run on: a map with \"text\", and \"text_pair\", on each line; - "
              "reads standard input")},
    {"image", "FILE",
     F_STRINGS(Flags, image, "a PNG or JPEG file to run on; may be given several times")},
    {"preprocessor", "PATH",
     F_STRING(Flags, preprocessor,
              "preprocessor_config.json of images; the model's if not given")},
    {"output", "FILE", F_STRING(Flags, output, "file to write"), 'o'},
    {"force", NULL,
     F_BOOL(Flags, force, "let what is written replace any file, also one that is read")},
    {"set", "KEY=VALUE",
     F_STRINGS(Flags, set,
               "change a key of the recipe, as in passes.0.distill.epochs=3; "
               "may be given several times")},
    {"env", "NAME[=VALUE]",
     F_STRINGS(
         Flags, env,
         "let ${NAME} stand in the recipe, for the environment's value or this one; "
         "may be given several times")},
    {"dtype", "TYPE",
     F_STRING(Flags, dtype,
              "type of the weights that are written: f32, f16, bf16, ...; int8 and "
              "int4 as by the pass quantize")},
    {"config", "FILE",
     F_STRING(Flags, config,
              "configuration of a model whose weights alone are in MODEL")},
    {"names", "FILE",
     F_STRING(Flags, names, "name map of those weights (docs/name-maps.md)"),
     .with = "config"},
    {"option", "KEY=VALUE",
     F_STRINGS(Flags, option,
               "option of the format that is written (`compress formats`); may be given "
               "several times")},
    {"threads", "N",
     F_INT(Flags, threads, 1, 4096, "threads; all processors if not given")},
    {"processor", "LEVEL",
     F_CHOICE(Flags, processor, PROCESSOR_NAMES,
              "the same bytes on every processor that has v2, v3 or v4 of x86-64")},
    {"products", "LIBRARY",
     F_CHOICE(Flags, products, PRODUCTS_NAMES,
              "what multiplies matrices of floats: packed, our own loops (auto); "
              "openblas; onednn, if it is there")},
    {"prompt", "TEXT",
     F_STRING(Flags, prompt, "text to go on from, or sentence to translate",
              .empty = true)},
    {"tokenizer", "PATH",
     F_STRING(Flags, tokenizer,
              "tokenizer: a folder or file; the model's folder if not given")},
    {"max-tokens", "N",
     F_INT(Flags, max_tokens, 1, 10000000, "most tokens to make; 128 if not given")},
    {"temperature", "X",
     F_REAL(
         Flags, temperature, 0, 1000,
         "divides the logits before sampling; 0, as if not given: the likeliest token")},
    {"top-k", "N",
     F_INT(Flags, top_k, 0, 10000000, "sample from so many of the likeliest tokens only"),
     .with = "temperature"},
    {"top-p", "X",
     F_REAL(Flags, top_p, 1e-9, 1,
            "sample from the fewest tokens whose probabilities reach this"),
     .with = "temperature"},
    {"min-p", "X",
     F_REAL(Flags, min_p, 0, 1,
            "sample from the tokens at least this times as likely as the likeliest"),
     .with = "temperature"},
    {"repetition-penalty", "X",
     F_REAL(Flags, repetition_penalty, 1e-9, 1000,
            "tokens that the text has become less likely by it: above 1 to repeat less")},
    {"stop", "TEXT",
     F_STRINGS(Flags, stop, "ends a text in front of TEXT; may be given several times")},
    {"prompts", "FILE",
     F_STRING(Flags, prompts,
              "prompts: one on each line, or in a .jsonl a map with \"prompt\"; - reads "
              "lines of standard input")},
    {"count", "N",
     F_INT(Flags, count, 1, 100000000,
           "texts of each prompt, as JSON Lines; the i-th, from 0, has seed --seed + i")},
    {"batch", "N",
     F_INT(Flags, batch, 1, 65536, "texts made side by side; 16 if not given")},
    {"logprobs", NULL,
     F_BOOL(Flags, logprobs, "log-probability of every token, natural logarithms")},
    {"seed", "N",
     F_INT(Flags, seed, 0, 1000000000000, "of what is drawn: tokens, inputs")},
    {"bf16", NULL, F_BOOL(Flags, bf16, "keep matrices in bfloat16: half the reading")},
    {"timing", NULL, F_BOOL(Flags, timing, "print times and sizes to stderr")},
    {"target-tokenizer", "PATH",
     F_STRING(Flags, target_tokenizer,
              "of a translation; the same as --tokenizer if not given")},
    {"beam", "N",
     F_INT(Flags, beam, 1, 1024,
           "hypotheses of a translation; 4 if not given; 1: greedy")},
    {"length-penalty", "X",
     F_REAL(
         Flags, length_penalty, 0, 100,
         "scores of translations are sums of log-probabilities over length^X; 1 if not "
         "given")},
    {"length", "N",
     F_INT(Flags, length, 2, 1 << 24,
           "tokens of a window; the model's context if not given, at most 2048")},
    {"stride", "N",
     F_INT(Flags, stride, 1, 1 << 24,
           "tokens from the start of a window to that of the next; half of --length if "
           "not given")},
    {"last-word", NULL,
     F_BOOL(Flags, last_word,
            "predict the last word of each line, or what is behind its last tab")},
    {"column", "NAME",
     F_STRINGS(Flags, column,
               "column of texts; may be given several times; every line is a text if not "
               "given")},
    {"split", "HOW",
     F_CHOICE(Flags, split, WORD_SPLIT_NAMES,
              "where words end: words (not given) keeps numbers and words with "
              "apostrophes or hyphens whole; punctuation; spaces")},
    {"lowercase", NULL, F_BOOL(Flags, lowercase, "texts become lower case")},
    {"min-count", "N",
     F_INT(Flags, min_count, 1, 1000000000,
           "fewest occurrences of a word; 1 if not given")},
    {"max-size", "N",
     F_INT(Flags, max_size, 5, 2097150, "most tokens, four special ones included")},
    {"dump-ir", "WHEN",
     F_CHOICE(Flags, dump_ir, DUMP_NAMES,
              "write the IR text of steps: before, after, change or "
              "failure")},
    {"dump-dir", "FOLDER", F_STRING(Flags, dump_dir, "folder for --dump-ir"),
     .with = "dump-ir"},
    {"values", NULL,
     F_BOOL(
         Flags, values,
         "IR text has each weight's norm, smallest and largest element, number of zeros "
         "and hash"),
     .with = "dump-ir"},
    {"dot", NULL,
     F_BOOL(Flags, dot, "print the graph in graphviz's language: layers as clusters")},
    {"svg", "FILE", F_STRING(Flags, svg, "draw that as SVG, by graphviz's `dot`")},
    {"report", "FILE",
     F_STRING(Flags, report,
              "write what came of the run as JSON, however it ends; -: standard output")},
    {"events", "FILE",
     F_STRING(Flags, events,
              "write what happens as JSON Lines while it does; -: standard output")},
    {"resume", NULL,
     F_BOOL(Flags, resume, "go on with the run that was stopped, from its checkpoint")},
    {"no-checkpoint", NULL, F_BOOL(Flags, no_checkpoint, "keep nothing to resume from")},
    {"cache", "FOLDER",
     F_STRING(Flags, cache, "keep finished steps here, and take those that are")},
    {"cache-limit", "SIZE",
     F_STRING(
         Flags, cache_limit,
         "largest size of that folder, as in 500M; 10G if not given; what was used the "
         "longest time ago goes first")},
    {"memory", "SIZE",
     F_STRING(Flags, memory,
              "refuse a run that is foretold to take more memory, as in 600M or 2G; for "
              "each rank")},
    {"hidden-states", NULL,
     F_BOOL(Flags, hidden_states, "also write every layer's output")},
    {"finite", NULL,
     F_BOOL(Flags, finite, "outputs that hold NaN or Inf are an error, and not written")},
    {"leave-early", NULL,
     F_BOOL(Flags, leave_early,
            "leave at the model's early exits, by the rule stored in it")},
    {"format", "FORMAT",
     F_CHOICE(Flags, format, "text|csv|markdown",
              "how the table is printed: text, csv or markdown")},
    {"columns", "A,B,...",
     F_STRING(
         Flags, columns,
         "columns instead of the usual ones; also metrics, and keys of the report or of "
         "its recipe")},
    {"sort", "COLUMN",
     F_STRING(Flags, sort, "sort by a column; the largest first with '-' in front")},
    {"hash", "HEX",
     F_STRING(Flags, hash, "the hash that the model must have, as a report names it")},
    {"structure", NULL, F_BOOL(Flags, structure, "compare no weights and run nothing")},
    {"no-outputs", NULL, F_BOOL(Flags, no_outputs, "run nothing")},
    {"tolerance", "X",
     F_REAL(Flags, tolerance, 0, 1000,
            "relative errors of weights and outputs up to this count as equal; 0 if not "
            "given")},
    {"folder", "FOLDER",
     F_STRING(Flags, folder,
              "folder for all that a search writes; of bench, for the file that the disk "
              "is measured with; of replay, the one that the recipe was in")},
    {"ranks", "N",
     F_INT(Flags, ranks, 1, 1000000,
           "foretell the recipe's training on up to N ranks, which --network joins")},
    {"threads-each", "N",
     F_INT(Flags, threads_each, 1, 4096,
           "threads of each of those ranks; 1 if not given"),
     .with = "ranks"},
    {"network", "SPEED,TIME",
     F_STRING(Flags, network,
              "of those ranks: bits a second of each, and time of a message, as in "
              "25G,20us"),
     .with = "ranks"},
    {"seconds", "X",
     F_REAL(Flags, seconds, 0.01, 86400, "time to measure, about; 45 if not given")},
    {"candidates", "N",
     F_INT(Flags, candidates, 1, 10000,
           "recipes that are drawn; 18 if not given, or as many as --minutes allow")},
    {"minutes", "X",
     F_REAL(Flags, minutes, 0.01, 1e6,
            "time to search, about; the first trial's time tells how many there are")},
    {"rungs", "N",
     F_INT(
         Flags, rungs, 1, 6,
         "rounds, each with a third of the recipes and three times their training; 3 if "
         "not given; 1: all run whole")},
    {"generations", "N",
     F_INT(Flags, generations, 1, 1000,
           "the first is drawn, further ones are children of the best; 8 if not given, 1 "
           "with --rungs 1: random search")},
    {"jobs", "N",
     F_INT(Flags, jobs, 1, 4096, "trials at a time, which share the threads")},
    {"metric", "NAME",
     F_STRING(Flags, metric, "of the last evaluate step; its usual one if not given")},
    {"max-flops", "X",
     F_REAL(Flags, max_flops, 1e-9, 1, "largest share of the input model's FLOPs")},
    {"max-parameters", "X",
     F_REAL(Flags, max_parameters, 1e-9, 1,
            "largest share of the input model's parameters")},
    {"max-drop", "X",
     F_REAL(Flags, max_drop, -1e9, 1e9,
            "largest drop of the metric against the input model, in its own units; the "
            "lightest recipe within it is the best")},
    {"json", NULL, F_BOOL(Flags, json, "print JSON")},
    {"check", NULL,
     F_BOOL(Flags, check, "make a model file again by its recipe, and compare")},
    {"schema", NULL, F_BOOL(Flags, schema, "print the JSON Schema of recipes")},
    {"resolved", NULL,
     F_BOOL(
         Flags, resolved,
         "print the recipe alone, with all that it extends, --set and ${NAME} in place")},
    {"no-data", NULL, F_BOOL(Flags, no_data, "data sets are neither opened nor checked")},
    {"annotate", "HOW",
     F_CHOICE(Flags, annotate, ANNOTATE_NAMES,
              "tell errors and warnings so that github or gitlab shows them beside the "
              "recipe's lines; auto: as the environment says")},
    {"annotate-file", "FILE",
     F_STRING(Flags, annotate_file,
              "gitlab: Code Quality report to write; " ANNOTATE_FILE " if not given"),
     .with = "annotate"},
    {"heartbeat", "SECONDS",
     F_REAL(Flags, heartbeat, 0, 86400,
            "between two lines about a long step where there is no terminal; 30 if not "
            "given")},
    {"plugin", "FILE",
     F_STRINGS(Flags, plugin,
               "a shared object with passes of one's own (docs/plugins.md); may be given "
               "several times")},
    {"untrusted", NULL,
     F_BOOL(Flags, untrusted,
            "the files are a stranger's: no other files, no network, no programs, and "
            "limits of memory (docs/security.md)")},
    {"allow", "PATH",
     F_STRINGS(Flags, allow,
               "a file or folder that may be read with --untrusted, too; may be given "
               "several times"),
     .with = "untrusted"},
    {"quiet", NULL, F_BOOL(Flags, quiet, "no progress and no plan on stderr"), 'q'},
    {"help", NULL, F_BOOL(Flags, help, "print this help"), 'h'},
    {"version", NULL, F_BOOL(Flags, version, "print the version"), 'V'},
    {NULL},
};
#define FLAG_COUNT ((int)(sizeof flags / sizeof flags[0]) - 1)

const Flag *flag_list(void) {
    return flags;
}

/* Flags that every command takes. */
#define COMMON_FLAGS "help|version"

/* Whether `name[0..length)` is one of the names joined by '|'. */
static bool names_hold(const char *names, const char *name, size_t length) {
    while (*names) {
        size_t end = strcspn(names, "|");
        if (end == length && strncmp(names, name, end) == 0) return true;
        names += end + (names[end] == '|');
    }
    return false;
}

bool flag_is_one_of(const Flag *flag, const char *names) {
    return names_hold(names, flag->name, strlen(flag->name));
}

bool command_takes(const Command *command, const Flag *flag) {
    return flag_is_one_of(flag, command->flags);
}

bool flag_is_common(const Flag *flag) {
    return flag_is_one_of(flag, COMMON_FLAGS);
}

static bool accepts(const Command *command, const Flag *flag) {
    return command_takes(command, flag) || flag_is_common(flag);
}

static const char *command_title(const Cli *cli) {
    const char *name = cli->command->name;
    return *name ? arena_printf(cli->arena, "compress %s", name) : "compress";
}

/* `word`: as it stands, "--name" or "-letter", without a value. */
static Status unknown_flag(const Cli *cli, const char *word, Diag *diag) {
    const char *names[FLAG_COUNT];
    int count = 0;
    for (int i = 0; i < FLAG_COUNT; i++)
        if (accepts(cli->command, &flags[i])) names[count++] = flags[i].name;
    Status status = diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                              "unknown flag %s of `%s`", word, command_title(cli));
    const char *nearest = name_nearest(word + strspn(word, "-"), names, count);
    if (nearest)
        diag_hint(diag, "did you mean --%s?", nearest);
    else
        diag_hint(diag, "`%s --help` lists the flags", command_title(cli));
    return status;
}

/* Whether a number is written as a recipe writes it: no spaces, no plus, no hexadecimal.
 */
static bool is_decimal(const char *text) {
    text += *text == '-';
    return *text && *text != '+' && strspn(text, "0123456789.eE+-") == strlen(text);
}

/* The value's tree node: a number where the flag takes one and it reads as one. */
static Tree *flag_tree(Arena *arena, const Flag *flag, const char *value) {
    Tree *tree = tree_new(arena, TREE_STRING, LOC_NONE);
    tree->string = arena_strdup(arena, value);
    if (flag->field.kind == FIELD_BOOL) {
        tree->kind = TREE_BOOL;
        tree->boolean = true;
    } else if (flag->field.kind == FIELD_INT) {
        char *end;
        errno = 0;
        long long number = strtoll(value, &end, 10);
        if (is_decimal(value) && !*end && errno == 0) {
            tree->kind = TREE_INT;
            tree->integer = number;
        }
    } else if (flag->field.kind == FIELD_REAL) {
        char *end;
        const double number = strtod(value, &end);
        if (is_decimal(value) && !*end) {
            tree->kind = TREE_FLOAT;
            tree->real = number;
        }
    }
    return tree;
}

static Status flag_set(Cli *cli, Tree *given, const Flag *flag, const char *value,
                       Diag *diag) {
    if (flag->field.kind == FIELD_STRINGS) {
        StringList *list = (StringList *)((char *)&cli->flags + flag->field.offset);
        const char **items =
            ARENA_ARRAY(cli->arena, const char *, (size_t)list->count + 1);
        for (int i = 0; i < list->count; i++) items[i] = list->items[i];
        items[list->count++] = arena_strdup(cli->arena, value);
        list->items = items;
        return STATUS_OK;
    }
    const char *key = arena_printf(cli->arena, "--%s", flag->name);
    if (tree_get(given, key))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "%s is given twice", key);
    Tree *tree = flag_tree(cli->arena, flag, value);
    tree_append(cli->arena, given, key, LOC_NONE, tree);
    return field_set(&flag->field, tree, &cli->flags, cli->arena, STATUS_USAGE, diag);
}

/* Flag of the command by its name or, with one byte, by its letter. */
static const Flag *flag_find(const Cli *cli, const char *name, size_t length,
                             bool letter) {
    for (const Flag *flag = flags; flag->name; flag++)
        if (accepts(cli->command, flag) &&
            (letter ? flag->letter == *name
                    : strlen(flag->name) == length &&
                          strncmp(flag->name, name, length) == 0))
            return flag;
    return NULL;
}

/* Parses the flag at argv[*index] into `cli` and moves *index past it and its value.
 * `given` collects the flags seen so far (a map). */
static Status flag_parse(Cli *cli, Tree *given, int argc, char **argv, int *index,
                         Diag *diag) {
    const char *word = argv[(*index)++];
    const bool letter = word[1] != '-';
    const char *name = word + (letter ? 1 : 2);
    const size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    const Flag *flag =
        !letter || length == 1 ? flag_find(cli, name, length, letter) : NULL;
    if (!flag) {
        const size_t shown = (size_t)(name - word) + length;
        return unknown_flag(cli, arena_strndup(cli->arena, word, shown), diag);
    }
    if (!flag->value && value)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--%s takes no value, found \"%s\"", flag->name, value);
    if (flag->value && !value && *index < argc) value = argv[(*index)++];
    if (flag->value && (!value || (!*value && !flag->field.empty)))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "expected --%s %s",
                         flag->name, flag->value);
    return flag_set(cli, given, flag, value ? value : "", diag);
}

/* ---- commands ---- */

static const Command commands[] = {
#define COMMAND(id, name, args, min, max, flags, summary)                                \
    {name, args, min, max, flags, summary, command_##id},
#include "cli/commands.def"
#undef COMMAND
    {NULL},
};
#define COMMAND_COUNT ((int)(sizeof commands / sizeof commands[0]) - 1)

const Command *command_list(void) {
    return commands;
}

const Command *command_find(const char *name) {
    for (const Command *command = commands; command->run; command++)
        if (strcmp(command->name, name) == 0) return command;
    return NULL;
}

static Status unknown_command(const char *name, Diag *diag) {
    const char *names[COMMAND_COUNT];
    int count = 0;
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (*commands[i].name) names[count++] = commands[i].name;
    Status status =
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "unknown command \"%s\"", name);
    if (pass_find(name))
        diag_hint(diag, "it is a pass, a step of recipes: `compress help %s`", name);
    else
        name_hint(diag, name, names, count, "`compress --help` lists the commands");
    return status;
}

static bool is_given(const Cli *cli, const Tree *given, const Flag *flag) {
    const StringList *list =
        (const StringList *)((const char *)&cli->flags + flag->field.offset);
    return flag->field.kind == FIELD_STRINGS
               ? list->count > 0
               : tree_get(given, arena_printf(cli->arena, "--%s", flag->name)) != NULL;
}

/* A flag that only says more about another one is not given alone, in commands that take
 * both: what somebody asks for does not stay undone without a word. */
static Status check_partners(const Cli *cli, const Tree *given, Diag *diag) {
    for (const Flag *flag = flags; flag->name; flag++) {
        if (!flag->with || !is_given(cli, given, flag)) continue;
        const Flag *other = flag_find(cli, flag->with, strlen(flag->with), false);
        if (!other || is_given(cli, given, other)) continue;
        return diag_fail(diag, STATUS_USAGE, LOC_NONE,
                         arena_printf(cli->arena, "--%s", flag->name),
                         "expected --%s%s%s with it", other->name,
                         other->value ? " " : "", other->value ? other->value : "");
    }
    return STATUS_OK;
}

static Status check_args(const Cli *cli, Diag *diag) {
    const Command *command = cli->command;
    int count = cli->arg_count;
    if (count > command->args_max)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "unexpected argument \"%s\"",
                         cli->args[command->args_max]);
    if (count < command->args_min)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "expected compress %s %s",
                         command->name, command->args);
    return STATUS_OK;
}

Status cli_parse(Cli *cli, int argc, char **argv, Diag *diag) {
    /* The command is the first word, or the one without a name before a flag. */
    const char *name = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    int index = *name ? 2 : 1;
    bool flags_over = false;
    cli->command = command_find(name);
    if (!cli->command) return unknown_command(name, diag);
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
    const char *recipe = cli->flags.recipe;
    if (recipe && strcmp(recipe, "-") == 0) cli->flags.recipe = "/dev/stdin";
    if (cli->flags.help || cli->flags.version) return STATUS_OK;
    TRY(check_args(cli, diag));
    return check_partners(cli, given, diag);
}
