/* Comparing what two models compute from the same inputs. */
#ifndef COMPRESS_SESSION_COMPARE_COMPARE_OUTPUTS_H
#define COMPRESS_SESSION_COMPARE_COMPARE_OUTPUTS_H

#include "exec/run/ticker.h"
#include "ir/field.h"
#include "ir/model.h"

/* The inputs for both models: one kind of input, else numbers drawn from `seed`. */
typedef struct CompareInputs {
    const char *file;         /* tensors by name (safetensors); NULL = none */
    StringList texts, images; /* for which each model has its own tokenizer, ... */
    const char *jsonl;        /* texts of a file (user_texts_read); NULL = none */
    const char *tokenizer, *preprocessor; /* ... unless these are given */
    uint64_t seed;
} CompareInputs;

typedef struct OutputPair {
    const char *name;
    const char *reason; /* why it could not be compared; NULL = it was: */
    double relative;    /* |a - b| / |a| over all samples (Frobenius) */
    double largest;     /* largest absolute difference */
    double agreement;   /* for logits: share of rows with the same argmax,
                           which one with a NaN has not; else -1 */
    bool differs;       /* relative error above the tolerance, or only one model has it */
} OutputPair;

typedef struct OutputComparison {
    const char *inputs; /* "4 samples drawn from seed 1"; "x.safetensors" */
    OutputPair *pairs;  /* outputs of A, then those that only B has */
    int count, differing;
} OutputComparison;

/* Runs both models, read from `paths`, which must have weights, and compares their
 * outputs by name. Everything is in the arena. Fails as user_inputs_of_texts,
 * file_batches_create and forward_batches do. */
Status compare_outputs(OutputComparison *out, Arena *arena, const CompareInputs *inputs,
                       const Model *const models[2], const char *const paths[2],
                       double tolerance, int threads, const Watch *watch, Diag *diag);

#endif
