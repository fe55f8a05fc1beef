/* Inside of params, for the optimiser: see exec/run/run.h. */
#ifndef COMPRESS_EXEC_RUN_PARAMS_INTERNAL_H
#define COMPRESS_EXEC_RUN_PARAMS_INTERNAL_H

#include "exec/run/run.h"

/* Another reference; params_destroy drops one. */
Params *params_retain(const Params *params);

/* Precision the weights were made ready in. */
Precision params_precision(const Params *params);

#endif
