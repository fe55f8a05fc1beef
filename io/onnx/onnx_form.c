/* Forms of weights: see onnx_form.h. */
#include "io/onnx/onnx_form.h"

#include <string.h>

/* to[K, M] = from[M, K], in tiles that stay in cache. */
static void copy_transposed(uint8_t *to, const uint8_t *from, int64_t M, int64_t K,
                            size_t each) {
    enum { TILE = 32 };
    for (int64_t m0 = 0; m0 < M; m0 += TILE)
        for (int64_t k0 = 0; k0 < K; k0 += TILE)
            for (int64_t m = m0; m < M && m < m0 + TILE; m++)
                for (int64_t k = k0; k < K && k < k0 + TILE; k++)
                    memcpy(to + (size_t)(k * M + m) * each,
                           from + (size_t)(m * K + k) * each, each);
}

/* Copies a tensor's bytes into a form, or with `back` out of it. */
static void copy_form(uint8_t *to, const uint8_t *from, const Tensor *tensor,
                      OnnxForm form, bool back) {
    static const size_t GATES[] = {0, 3, 1, 2};
    const size_t length = tensor_bytes(tensor), block = length / 4;
    const int64_t rows = tensor->dim[0],
                  columns = rows > 0 ? tensor_count(tensor) / rows : 0;
    switch (form) {
    case ONNX_AS_IT_IS: memcpy(to, from, length); break;
    case ONNX_TRANSPOSED:
        copy_transposed(to, from, back ? columns : rows, back ? rows : columns,
                        dtype_bytes(tensor->dtype));
        break;
    case ONNX_GATES: /* rows of a [4 H, ...] weight in the order i, o, f, g */
        for (size_t i = 0; i < 4; i++)
            memcpy(to + (back ? GATES[i] : i) * block,
                   from + (back ? i : GATES[i]) * block, block);
        break;
    }
}

Status onnx_form_bytes(const uint8_t **bytes, Buf **made, const Tensor *tensor,
                       OnnxForm form, Diag *diag) {
    *made = NULL;
    *bytes = tensor_data(tensor);
    if (form == ONNX_AS_IT_IS) return STATUS_OK;
    TRY(buf_create(made, tensor_bytes(tensor), diag));
    uint8_t *to = (uint8_t *)buf_data(*made);
    copy_form(to, *bytes, tensor, form, false);
    *bytes = to;
    return STATUS_OK;
}

Status onnx_form_back(Tensor *out, const Tensor *like, const void *bytes, OnnxForm form,
                      Diag *diag) {
    void *data;
    TRY(tensor_create(out, like->dtype, like->rank, like->dim, diag));
    const Status status = tensor_writable(out, &data, diag);
    if (status == STATUS_OK)
        copy_form(data, bytes, out, form, true);
    else
        tensor_release(out);
    return status;
}
