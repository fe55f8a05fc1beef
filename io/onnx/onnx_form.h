/* Onnx form: converts bytes of weights to the forms that ONNX operators need, and back.
 *
 * A quantised weight is several initialisers. Those of a q8 are as in ir/quantised.h,
 * with the numbers possibly transposed. Those of a q4 are as MatMulNBits of
 * com.microsoft needs them: a row is cut into groups of whole bytes, the last one filled
 * up with zeros, and scales are f32, which can represent every f16. */
#ifndef COMPRESS_IO_ONNX_ONNX_FORM_H
#define COMPRESS_IO_ONNX_ONNX_FORM_H

#include "io/onnx/write/onnx_build.h"

/* Element type (ONNX_F32, ...) and shape of a tensor's initialiser in a form. */
int32_t onnx_form_type(const Tensor *tensor, OnnxForm form);
int onnx_form_shape(const Tensor *tensor, OnnxForm form, int64_t out[RANK_MAX]);

/* Its bytes. */
size_t onnx_form_length(const Tensor *tensor, OnnxForm form);

/* The bytes of a weight in a form: those of the tensor itself (`*made` is NULL), or a
 * copy in `*made`, which the caller releases. A tensor in gates has 4 H rows. Fails with
 * STATUS_MEMORY. */
Status onnx_form_bytes(const uint8_t **bytes, Buf **made, const Tensor *tensor,
                       OnnxForm form, Diag *diag);

/* Fills a new tensor of `like`'s type and shape from its bytes in a form, at any
 * alignment. Fails with STATUS_MEMORY. */
Status onnx_form_back(Tensor *out, const Tensor *like, const void *bytes, OnnxForm form,
                      Diag *diag);

/* The same for a quantised tensor, from its numbers in a form, its scales, and its zero
 * points if it has any. Fails with STATUS_FORMAT if they are not possible values.
 */
Status onnx_form_quantised(Tensor *out, const Tensor *like, const void *numbers,
                           OnnxForm form, const void *scales, const void *zeros,
                           Diag *diag);

#endif
