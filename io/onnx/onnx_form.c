/* Forms of weights: see onnx_form.h. */
#include "io/onnx/onnx_form.h"

#include "ir/half.h"
#include "ir/quantised.h"

#include <string.h>

/* ---- types and shapes ---- */

static int64_t count_of(const int64_t *dim, int rank) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dim[i];
    return count;
}

int32_t onnx_form_type(const Tensor *tensor, OnnxForm form) {
    switch (form) {
    case ONNX_SCALES: return ONNX_F32;
    case ONNX_BLOCKS:
    case ONNX_ZEROS: return ONNX_U8;
    default: return tensor->dtype == DTYPE_Q8 ? ONNX_I8 : onnx_data_type(tensor->dtype);
    }
}

int onnx_form_shape(const Tensor *tensor, OnnxForm form, int64_t out[RANK_MAX]) {
    const bool few = dtype_is_quantised(tensor->dtype);
    const int64_t groups = few ? quantised_groups(tensor) : 0;
    switch (form) {
    case ONNX_TRANSPOSED:
        out[0] = count_of(tensor->dim + 1, tensor->rank - 1);
        out[1] = tensor->dim[0];
        return 2;
    case ONNX_BLOCKS:
        out[0] = tensor->dim[0];
        out[1] = groups;
        out[2] = tensor->group / 2;
        return 3;
    case ONNX_SCALES: out[0] = tensor->dim[0] * groups; return 1;
    case ONNX_ZEROS: out[0] = tensor->dim[0] * ((groups + 1) / 2); return 1;
    default:
        for (int i = 0; i < tensor->rank; i++) out[i] = tensor->dim[i];
        return tensor->rank;
    }
}

size_t onnx_form_length(const Tensor *tensor, OnnxForm form) {
    int64_t dim[RANK_MAX];
    if (!dtype_is_quantised(tensor->dtype)) return tensor_bytes(tensor);
    const int rank = onnx_form_shape(tensor, form, dim);
    return (size_t)count_of(dim, rank) *
           (form == ONNX_SCALES ? sizeof(float) : sizeof(uint8_t));
}

/* ---- bytes ---- */

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
    const bool few = tensor->dtype == DTYPE_Q8; /* its numbers, a byte each */
    const size_t each = few ? 1 : dtype_bytes(tensor->dtype);
    const size_t length = (size_t)tensor_count(tensor) * each, block = length / 4;
    const int64_t rows = tensor->dim[0],
                  columns = rows > 0 ? tensor_count(tensor) / rows : 0;
    switch (form) {
    case ONNX_AS_IT_IS: memcpy(to, from, length); break;
    case ONNX_TRANSPOSED:
        copy_transposed(to, from, back ? columns : rows, back ? rows : columns, each);
        break;
    case ONNX_GATES: /* rows of a [4 H, ...] weight in the order i, o, f, g */
        for (size_t i = 0; i < 4; i++)
            memcpy(to + (back ? GATES[i] : i) * block,
                   from + (back ? i : GATES[i]) * block, block);
        break;
    default: break;
    }
}

/* Whether the form's bytes lie in the tensor as they are. */
static bool is_as_stored(const Tensor *tensor, OnnxForm form) {
    return form == ONNX_AS_IT_IS || (form == ONNX_SCALES && tensor->dtype == DTYPE_Q8);
}

/* Rows of `bytes` each as rows of `wide`, or back, the rest zeros. */
static void copy_rows(uint8_t *to, int64_t to_bytes, const uint8_t *from,
                      int64_t from_bytes, int64_t rows) {
    const int64_t bytes = to_bytes < from_bytes ? to_bytes : from_bytes;
    for (int64_t m = 0; m < rows; m++)
        memcpy(to + m * to_bytes, from + m * from_bytes, (size_t)bytes);
}

/* The forms of a q4 from its parts; `to` is zeros. */
static void copy_q4(uint8_t *to, const Tensor *tensor, OnnxForm form) {
    const int64_t rows = quantised_rows(tensor), groups = quantised_groups(tensor);
    const int64_t count = rows * groups, wide = groups * (tensor->group / 2);
    const uint16_t *scales = tensor_q_scales(tensor);
    const uint8_t *zeros = tensor_q_zeros(tensor);
    if (form == ONNX_BLOCKS)
        copy_rows(to, wide, tensor_q_values(tensor),
                  (int64_t)quantised_parts(tensor).row_values, rows);
    for (int64_t i = 0; form == ONNX_SCALES && i < count; i++) {
        const float scale = f16_to_float(scales[i]);
        memcpy(to + (size_t)i * sizeof scale, &scale, sizeof scale);
    }
    for (int64_t i = 0; form == ONNX_ZEROS && i < count; i++) {
        const int64_t row = i / groups, at = i % groups;
        to[row * ((groups + 1) / 2) + at / 2] |=
            (uint8_t)(at % 2 ? zeros[i] << 4 : zeros[i]);
    }
}

Status onnx_form_bytes(const uint8_t **bytes, Buf **made, const Tensor *tensor,
                       OnnxForm form, Diag *diag) {
    *made = NULL;
    *bytes = form == ONNX_SCALES ? tensor_q_scales(tensor) : tensor_data(tensor);
    if (is_as_stored(tensor, form)) return STATUS_OK;
    const size_t length = onnx_form_length(tensor, form);
    TRY(buf_create(made, length, diag));
    uint8_t *to = (uint8_t *)buf_data(*made);
    if (tensor->dtype == DTYPE_Q4) {
        memset(to, 0, length);
        copy_q4(to, tensor, form);
    } else {
        copy_form(to, *bytes, tensor, form, false);
    }
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

/* Fills the parts of a q4, which are zeros, and checks that its scales are halves. */
static bool fill_q4(Tensor *out, uint8_t *data, const uint8_t *numbers,
                    const uint8_t *scales, const uint8_t *zeros) {
    const QuantisedParts parts = quantised_parts(out);
    const int64_t rows = quantised_rows(out), groups = quantised_groups(out);
    const int64_t width = quantised_width(out);
    copy_rows(data, (int64_t)parts.row_values, numbers, groups * (out->group / 2), rows);
    for (int64_t m = 0; width % 2 && m < rows; m++) /* an odd row's last half byte */
        data[(m + 1) * (int64_t)parts.row_values - 1] &= 15;
    for (int64_t i = 0; i < rows * groups; i++) {
        float scale;
        memcpy(&scale, scales + (size_t)i * sizeof scale, sizeof scale);
        const uint16_t half = f16_from_float(scale);
        if (!(f16_to_float(half) == scale)) return false;
        memcpy(data + parts.scales + (size_t)i * sizeof half, &half, sizeof half);
        const int64_t row = i / groups, at = i % groups;
        if (out->zeros)
            data[parts.zeros + (size_t)i] =
                15 & (zeros[row * ((groups + 1) / 2) + at / 2] >> (at % 2 ? 4 : 0));
    }
    return true;
}

Status onnx_form_quantised(Tensor *out, const Tensor *like, const void *numbers,
                           OnnxForm form, const void *scales, const void *zeros,
                           Diag *diag) {
    void *data;
    *out = tensor_shape_like(like, like->rank, like->dim);
    TRY(tensor_allocate(out, diag));
    Status status = tensor_writable(out, &data, diag);
    if (status == STATUS_OK && out->dtype == DTYPE_Q8) {
        copy_form(data, numbers, out, form, true);
        memcpy((char *)data + quantised_parts(out).scales, scales,
               (size_t)quantised_rows(out) * sizeof(float));
    } else if (status == STATUS_OK && !fill_q4(out, data, numbers, scales, zeros)) {
        status = diag_fail(diag, STATUS_FORMAT, LOC_NONE, NULL, "a scale is no half");
    }
    if (status == STATUS_OK) status = quantised_check(out, STATUS_FORMAT, "", diag);
    if (status != STATUS_OK) tensor_release(out);
    return status;
}
