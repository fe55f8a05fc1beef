/* What formulas say of a model: its storages, sizes, outputs and records by name, as
 * formula.h lists them. What is not there fails the test. */
#ifndef COMPRESS_TESTS_SUPPORT_FORMULA_MODEL_H
#define COMPRESS_TESTS_SUPPORT_FORMULA_MODEL_H

#include "tests/support/formula_value.h"

enum { FORMULA_NAME_BYTES = 200 };

/* The storage that "encoder.0.q.weight" or "@name" means. */
Storage *formula_storage(Formula *f, Model *model, const char *name);

/* Operands that are a storage. */
double formula_uses(const Model *model, const Storage *storage);

/* An output on a seeded input, in double. */
Value formula_output(Formula *f, Model *model, const char *name);

/* Heads of the attention, or units of the feed-forward block, of a layer. */
double formula_layer_size(Formula *f, const Model *model, const char *place, Role role);

/* "record.loss", "record2.loss", "stored.KEY": of the provenance. */
Value formula_record(Formula *f, const Model *model, const char *name);

/* "parameters" and the like; `known` = whether it is one of these. */
Value formula_measure(Formula *f, Model *model, const char *name, bool *known);

/* "index", "row", "column" in the shape of f->like. */
Value formula_coordinate(Formula *f, const char *name);

/* Means or variances of a storage's Gaussian. */
Value formula_gaussian(Formula *f, const Storage *storage, bool mean);

#endif
