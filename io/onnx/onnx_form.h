/* Onnx form: bytes of weights in the forms that operators of ONNX want, and back. */
#ifndef COMPRESS_IO_ONNX_ONNX_FORM_H
#define COMPRESS_IO_ONNX_ONNX_FORM_H

#include "io/onnx/onnx_build.h"

/* The bytes of a weight in a form: those of the tensor itself (`*made` is NULL), or a
 * copy in `*made`, which the caller releases. A tensor in gates has 4 H rows. Fails with
 * STATUS_MEMORY. */
Status onnx_form_bytes(const uint8_t **bytes, Buf **made, const Tensor *tensor,
                       OnnxForm form, Diag *diag);

/* Fills a new tensor of `like`'s type and shape from its bytes in a form, at any
 * alignment. Fails with STATUS_MEMORY. */
Status onnx_form_back(Tensor *out, const Tensor *like, const void *bytes, OnnxForm form,
                      Diag *diag);

#endif
