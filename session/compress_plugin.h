/* compress_plugin: passes that are built outside compress.
 *
 * A plug-in is a shared object with one function, compress_plugin(), whose passes
 * recipes use like built-in ones:
 *
 *     compress --recipe recipe.yaml --plugin ./mine.so
 *
 * The recipe's binder checks their options, `compress passes NAME --plugin ./mine.so`
 * prints their manual, and the model file notes the plug-in's name and hash beside each
 * step. What a pass writes is checked like that of any other pass. Nothing needs to be
 * linked: the pass receives the functions it calls as a table. docs/plugins.md has an
 * example.
 *
 * A plug-in runs with all the rights of the program. Its results should depend only on
 * the weights, its options and the seed: then files have the same bytes every time.
 */
#ifndef COMPRESS_PLUGIN_H
#define COMPRESS_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface version that a plug-in is built for. A program also accepts earlier
 * versions and refuses later ones. 2 added `apply`. */
#define COMPRESS_PLUGIN_INTERFACE 2

/* The kind of value an option takes. */
typedef enum CompressOptionKind {
    COMPRESS_OPTION_REAL = 1,
    COMPRESS_OPTION_INTEGER = 2,
    COMPRESS_OPTION_FLAG = 3, /* true or false */
    COMPRESS_OPTION_TEXT = 4,
    COMPRESS_OPTION_NAMES = 5 /* a list of names, in which * matches any text */
} CompressOptionKind;

/* A row of a pass's options. */
typedef struct CompressPluginOption {
    const char *name; /* lower case, digits and _; NULL ends the list */
    CompressOptionKind kind;
    double least, most; /* of numbers, inclusive; both 0: any */
    double number;      /* the default: of numbers; of flags 0 or 1 */
    const char *text;   /* the default of a text; NULL = none */
    const char *help;   /* a line for the manual */
} CompressPluginOption;

/* A step that runs, or is planned. */
typedef struct CompressStep CompressStep;

enum { COMPRESS_WEIGHT_RANK_MAX = 6 };

/* A weight of the model; each is listed once, however many layers share it. Texts live
 * as long as the step. */
typedef struct CompressWeight {
    const char *name; /* "encoder.layer.0.attention.self.query.weight" */
    int rank;
    int64_t dim[COMPRESS_WEIGHT_RANK_MAX];
    int64_t count;     /* of its elements */
    const char *stack; /* of the first node that reads it, "encoder"; NULL = none */
    int64_t layer;     /* likewise, from 0; -1 = none */
    const char *role;  /* likewise, "q", "ffn_in" (docs/plugins.md); "" = none */
    int linear;        /* 1: the matrix of a linear layer, 0: anything else */
    int turned; /* of a linear layer: 1 = [inputs, outputs], 0 = [outputs, inputs] */
} CompressWeight;

/* What a pass may call while it runs, on the thread that called it. Functions that can
 * fail return 0 on success and another number on failure, which the step reports; `run`
 * then frees what it holds and returns 1. */
typedef struct CompressHost {
    int interface; /* COMPRESS_PLUGIN_INTERFACE of the program */

    /* The value of an option: of a number or a flag; of a text, NULL if none is given;
     * and whether a name is among an option's names, or the option lists none. For
     * options that the pass does not have: 0, NULL, 1. */
    double (*number)(const CompressStep *step, const char *option);
    const char *(*text)(const CompressStep *step, const char *option);
    int (*names)(const CompressStep *step, const char *option, const char *name);

    /* 1 if the step is being planned: weights have shapes, their values read as zeros,
     * and writes are ignored. A plan does everything else that a run does. */
    int (*planned)(const CompressStep *step);

    /* The seed of this step: the recipe's, mixed with the step's position. */
    uint64_t (*seed)(const CompressStep *step);

    /* The real-valued weights of the model, in its order. */
    size_t (*weight_count)(const CompressStep *step);
    CompressWeight (*weight)(const CompressStep *step, size_t index);

    /* Reads all values of a weight, row-major, whatever type they are stored in. */
    int (*read)(CompressStep *step, size_t index, float *values);

    /* Replaces them. 16-bit weights are rounded to nearest, quantised ones become
     * float32. Fails if a value is not finite or memory runs out. */
    int (*write)(CompressStep *step, size_t index, const float *values);

    /* Records a number under a name (lower case, digits and _; not "applied") in the
     * step's record, which goes into the model file and the report. It must be the same
     * in every run. Any other name makes the step fail, and so does a number that is not
     * finite; what a plan records is ignored. */
    void (*record)(CompressStep *step, const char *name, double value);

    /* Reports in a sentence that the model does not fit; returns 1. */
    int (*fail)(CompressStep *step, const char *message);

    /* Runs a pass of compress on the model, here and now, with options as in a recipe
     * (YAML: "{drop: [2, 5]}"; NULL = none). This is how a plug-in removes layers, heads
     * or units that it has chosen. Afterwards weights are listed anew: earlier indexes
     * and results of `weight` are invalid. Where the choice depends on values that a
     * plan cannot know, choose the same number. Passes that train or measure, and those
     * of plug-ins, are refused. What the pass records is in the step's record under
     * "applied". */
    int (*apply)(CompressStep *step, const char *pass, const char *options);
} CompressHost;

/* A pass. */
typedef struct CompressPluginPass {
    const char *name;    /* lower case, digits and _; NULL ends the passes */
    const char *summary; /* a line */
    const char *paper;   /* the source of the method; NULL = none */
    const CompressPluginOption *options; /* NULL = none */
    int (*run)(CompressStep *step, const CompressHost *host);
} CompressPluginPass;

typedef struct CompressPlugin {
    int interface; /* COMPRESS_PLUGIN_INTERFACE */
    const char *name, *version;
    const CompressPluginPass *passes;
} CompressPlugin;

/* The function of a plug-in. What it returns must not change. */
__attribute__((visibility("default"))) const CompressPlugin *compress_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
