/* Commands: the sub-commands and flags of `compress`, declared in tables; parsing, help
 * and hints all come from them. */
#ifndef COMPRESS_CLI_COMMAND_H
#define COMPRESS_CLI_COMMAND_H

#include "ir/field.h"
#include "ir/version.h"

/* Values of --dump-ir; the order is that of DumpWhen in passes/pipeline/pipeline.h. */
#define DUMP_NAMES "never|before|after|change|failure"

/* Every flag of every command; rows in cli/command_line.c. */
typedef struct Flags {
    const char *recipe, *model, *output, *report, *events, *input, *dump_dir;
    const char *cache, *cache_limit, *memory;
    bool resume, no_checkpoint;
    const char *prompt, *prompts, *tokenizer, *target_tokenizer;
    const char *jsonl, *preprocessor, *svg;
    StringList set, env, column, option, text, image, stop;
    const char *dtype, *config, *names;
    int64_t threads, max_tokens, top_k, seed, min_count, max_size, beam;
    int64_t count, batch;
    double temperature, top_p;        /* top_p 0 = not given */
    double min_p, repetition_penalty; /* likewise */
    double length_penalty;            /* negative = not given */
    double heartbeat;                 /* likewise */
    double tolerance;
    const char *columns, *sort, *hash;
    int format; /* of `compress table` */
    const char *folder, *metric;
    double max_flops, max_parameters, max_drop, minutes; /* max_drop NaN = not given */
    int64_t candidates, rungs, generations, jobs;
    int dump_ir, split;          /* split: WordSplit */
    double seconds;              /* of `compress bench`; 0 = not given */
    const char *network;         /* likewise */
    int64_t ranks, threads_each; /* likewise */
    int processor;               /* Processor */
    int products;                /* Products */
    int64_t length, stride;      /* of `compress perplexity` */
    bool last_word;
    bool lowercase, quiet, no_data, timing, logprobs, bf16, json, schema, hidden_states;
    bool leave_early, values, structure, no_outputs, dot;
    bool resolved;
    int annotate; /* Annotate */
    const char *annotate_file;
    bool check, force, finite;
    bool untrusted;
    StringList allow, plugin;
    bool help, version;
} Flags;

typedef struct Command Command;

/* One parsed command line. */
typedef struct Cli {
    Arena *arena;
    const Command *command;
    Flags flags;
    const char **args; /* positional arguments */
    int arg_count;
} Cli;

/* A sub-command: one row of cli/commands.def. */
struct Command {
    const char *name;       /* "" = runs without a sub-command's name */
    const char *args;       /* of the usage line: "FILE" */
    int args_min, args_max; /* number of positional arguments */
    const char *flags;      /* accepted flags, joined by '|' */
    const char *summary;    /* one line */
    Status (*run)(const Cli *cli, Diag *diag);
};

/* A flag: a row of the table in cli/command_line.c. */
typedef struct Flag {
    const char *name, *value; /* "--name VALUE"; value NULL = a switch */
    Field field;
    char letter;      /* "-l VALUE"; 0 = it has none */
    const char *with; /* flag without which it has no effect; NULL = none */
} Flag;

/* An example of a command: a row of cli/examples.def. */
typedef struct Example {
    const char *command, *line;
} Example;

/* All examples, ended by one without a command. */
const Example *example_list(void);

/* All flags, ended by one without a name; all commands, ended by one without a function;
 * the first is the one without a name of its own. */
const Flag *flag_list(void);
const Command *command_list(void);

/* Whether a flag is one of the command's own, and whether it is one of every command. */
bool command_takes(const Command *command, const Flag *flag);
bool flag_is_common(const Flag *flag);

/* Whether a flag's name is one of these, joined by '|'. */
bool flag_is_one_of(const Flag *flag, const char *names);

/* Command by name, NULL when unknown. */
const Command *command_find(const char *name);

/* Parses a command line. Fails with STATUS_USAGE, with the nearest name as a hint. */
Status cli_parse(Cli *cli, int argc, char **argv, Diag *diag);

/* What `compress help` explains besides commands, passes, ops and formats. */
#define HELP_TOPICS "recipe, data, exit-codes, man"

/* Prints the help of the program, or of one command, made from the tables. */
void cli_help(const Command *command, FILE *out);

/* Prints the exit codes, one per line. */
void help_exit_codes(FILE *out);

/* Prints the manual page of section 1, in roff. */
void help_man_page(FILE *out);

/* The functions behind the rows: command_recipe, command_plan, ... Each does what its
 * row's summary says; results go to stdout, the rest to stderr. */
#define COMMAND(id, ...) Status command_##id(const Cli *cli, Diag *diag);
#include "cli/commands.def"
#undef COMMAND

#endif
