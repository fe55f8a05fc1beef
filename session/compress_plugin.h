/* compress_plugin: passes that are built outside of compress.
 *
 * A plug-in is a shared object with one function, compress_plugin(), whose passes a
 * recipe names as it does built-in ones:
 *
 *     compress --recipe recipe.yaml --plugin ./mine.so
 *
 * The recipe's binder checks their options, `compress passes NAME --plugin ./mine.so`
 * prints their manual, and the model file notes the plug-in's name and hash beside each
 * step. What a pass writes is checked as what others write. Nothing needs to be linked:
 * the pass gets what it calls as a table of functions. docs/plugins.md has an example.
 *
 * A plug-in runs with all the rights of the program. Its results should depend on nothing
 * but the weights, its options and the seed: then files have the same bytes every time.
 */
#ifndef COMPRESS_PLUGIN_H
#define COMPRESS_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a plug-in is built for. A program takes what was built for an earlier number, too,
 * and refuses a later one. 2: `apply`. */
#define COMPRESS_PLUGIN_INTERFACE 2

/* What the value of an option is. */
typedef enum CompressOptionKind {
    COMPRESS_OPTION_REAL = 1,
    COMPRESS_OPTION_INTEGER = 2,
    COMPRESS_OPTION_FLAG = 3, /* true or false */
    COMPRESS_OPTION_TEXT = 4,
    COMPRESS_OPTION_NAMES = 5 /* a list of names, in which * is any text */
} CompressOptionKind;

/* A row of a pass's options. */
typedef struct CompressPluginOption {
    const char *name; /* lower case, digits and _; NULL ends the rows */
    CompressOptionKind kind;
    double least, most; /* of numbers, inclusive; both 0: any */
    double number;      /* the default: of numbers; of flags 0 or 1 */
    const char *text;   /* the default of a text; NULL = none */
    const char *help;   /* a line for the manual */
} CompressPluginOption;

/* A step that runs, or is planned. */
typedef struct CompressStep CompressStep;

enum { COMPRESS_WEIGHT_RANK_MAX = 6 };

/* A weight of the model, each once, however many layers share it. Texts live as long as
 * the step. */
typedef struct CompressWeight {
    const char *name; /* "encoder.layer.0.attention.self.query.weight" */
    int rank;
    int64_t dim[COMPRESS_WEIGHT_RANK_MAX];
    int64_t count;     /* of its elements */
    const char *stack; /* of the first node that reads it, "encoder"; NULL = none */
    int64_t layer;     /* likewise, from 0; -1 = none */
    const char *role;  /* likewise, "q", "ffn_in"; "" = none */
    int linear;        /* 1: the matrix of a linear layer, 0: anything else */
    int turned; /* of a linear layer: 1 = [inputs, outputs], 0 = [outputs, inputs] */
} CompressWeight;

/* What a pass may call while it runs, on the thread that called it. Functions that can
 * fail return 0, or another number after a fault, which the step tells; `run` then frees
 * what it has and returns 1. */
typedef struct CompressHost {
    int interface; /* COMPRESS_PLUGIN_INTERFACE of the program */

    /* The value of an option: of a number or a flag; of a text, NULL where none is given;
     * and whether a name is among an option's names, or the option gives none. Options
     * that the pass has not are 0, NULL, 1. */
    double (*number)(const CompressStep *step, const char *option);
    const char *(*text)(const CompressStep *step, const char *option);
    int (*names)(const CompressStep *step, const char *option, const char *name);

    /* 1 where the step is planned: weights have shapes, their values read as zeros, and
     * what is written is left alone. A plan does everything else that a run does. */
    int (*planned)(const CompressStep *step);

    /* Of this step: the recipe's, mixed with the step's place. */
    uint64_t (*seed)(const CompressStep *step);

    /* Real weights of the model, in its order. */
    size_t (*weight_count)(const CompressStep *step);
    CompressWeight (*weight)(const CompressStep *step, size_t index);

    /* Reads all values of a weight, row-major, whatever type they are kept in. */
    int (*read)(CompressStep *step, size_t index, float *values);

    /* Puts others in their place. Weights of 16 bits are rounded to nearest, quantised
     * ones become float32. Fails where a value is not finite, and without memory. */
    int (*write)(CompressStep *step, size_t index, const float *values);

    /* Notes a number under a name (lower case, digits and _; not "applied") in the step's
     * record, which goes into the model file and the report. It must be the same in every
     * run. Another name is a fault of the step, and so is a number that is not finite;
     * what a plan notes is left alone. */
    void (*record)(CompressStep *step, const char *name, double value);

    /* Says that the model does not fit, in a sentence; returns 1. */
    int (*fail)(CompressStep *step, const char *message);

    /* Runs a pass of compress on the model, here and now, with options as a recipe has
     * them (YAML: "{drop: [2, 5]}"; NULL = none): how layers, heads, units go that a
     * plug-in has chosen. Afterwards weights are listed anew: indexes and what `weight`
     * gave before hold no more. Where a plan cannot know what values decide, choose as
     * many. Passes that train or measure, and those of plug-ins, are refused. What the
     * pass notes is in the step's record under "applied". */
    int (*apply)(CompressStep *step, const char *pass, const char *options);
} CompressHost;

/* A pass. */
typedef struct CompressPluginPass {
    const char *name;    /* lower case, digits and _; NULL ends the passes */
    const char *summary; /* a line */
    const char *paper;   /* where the method is from; NULL = nowhere */
    const CompressPluginOption *options; /* NULL = none */
    int (*run)(CompressStep *step, const CompressHost *host);
} CompressPluginPass;

typedef struct CompressPlugin {
    int interface; /* COMPRESS_PLUGIN_INTERFACE */
    const char *name, *version;
    const CompressPluginPass *passes;
} CompressPlugin;

/* The function of a plug-in. What it returns stays as it is. */
__attribute__((visibility("default"))) const CompressPlugin *compress_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
