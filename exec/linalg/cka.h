/* Centred kernel alignment: how alike two sets of activations are. */
#ifndef COMPRESS_EXEC_LINALG_CKA_H
#define COMPRESS_EXEC_LINALG_CKA_H

#include "ir/status.h"

#include <stdint.h>

/* Linear centred kernel alignment of x[samples, x_width] and y[samples, y_width]:
 * ||Yc^T Xc||_F^2 / (||Xc^T Xc||_F ||Yc^T Yc||_F) with columns centred, in [0, 1]
 * (Kornblith et al., ICML 2019, eq. 5). NaN when a side is constant. Fails with
 * STATUS_MEMORY. */
Status linear_cka(double *out, const float *x, int64_t x_width, const float *y,
                  int64_t y_width, int64_t samples, Diag *diag);

#endif
