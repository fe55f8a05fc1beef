/* Load: a model from whatever the path is. */
#ifndef COMPRESS_IO_FORMATS_LOAD_H
#define COMPRESS_IO_FORMATS_LOAD_H

#include "io/formats/format.h"

/* Reads a model of any format, told apart by content. `check` verifies hashes and that
 * all weights are finite; without it no weight is touched (for inspect and plan). Fails
 * as ModelFormat.read does. */
Status model_load(Model **out, const char *path, const OpTable *ops, bool check,
                  Diag *diag);

/* model_load with the configuration changed; formats that cannot are refused. `options`
 * NULL = model_load. */
Status model_load_with(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag);

#endif
