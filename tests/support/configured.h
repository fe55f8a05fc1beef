/* Models from a configuration as text, and what they compute on made-up inputs. */
#ifndef COMPRESS_TESTS_SUPPORT_CONFIGURED_H
#define COMPRESS_TESTS_SUPPORT_CONFIGURED_H

#include "ir/model.h"

/* Model of a configuration in YAML, weights drawn by seed. */
Model *configured_model(const char *yaml, uint64_t seed);

/* Model of IR text, weights drawn by seed. */
Model *parsed_model(const char *text, uint64_t seed);

/* A ViT of `layers` layers, width 8, and a post-norm BERT classifier of `layers` layers,
 * width 8, 12 words, 6 positions, 2 token types; storage names as in transformers. */
Model *configured_vit(int layers, uint64_t seed);
Model *configured_bert(int layers, uint64_t seed);

/* Output `name` in double for 2 samples (of 5 tokens where that is open, 4 of a source):
 * inputs depend on their names alone, token types are `type`, the last token of each odd
 * sample is masked. Returns the number of values, at most `most`. */
int64_t configured_run(Model *model, const char *name, int type, double *out,
                       int64_t most);

/* Terms behind that output (rounding_terms). */
double configured_terms(Model *model, const char *name);

#endif
