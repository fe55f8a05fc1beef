/* Cast: see cast.h. */
#include "ir/cast.h"

#include "ir/half.h"
#include "ir/storage.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Elements handled together. */
enum { CHUNK = 1024 };

/* What a type can hold: its largest number, and the smallest one with all bits. */
typedef struct Range {
    double largest, normal;
} Range;

static Range dtype_range(DType dtype) {
    const double most = (double)FLT_MAX, least = (double)FLT_MIN;
    if (dtype == DTYPE_F16) return (Range){65504, 0x1p-14};
    if (dtype == DTYPE_BF16) return (Range){0x1.fep127, least};
    return (Range){most, least};
}

bool dtype_widens(DType from, DType to) {
    const bool half = from == DTYPE_F16 || from == DTYPE_BF16;
    return from == to || to == DTYPE_F64 || (to == DTYPE_F32 && half);
}

/* The float next to a double, towards zero, with the last bit set where they differ: what
 * is rounded from there is the same as from the double (Boldo and Melquiond, 2008). */
static float round_to_odd(double value) {
    const float nearest = (float)value;
    uint32_t bits = float_bits(nearest);
    bits -= fabs((double)nearest) > fabs(value); /* infinity becomes the largest */
    const bool exact = (double)float_of_bits(bits) == value || value != value;
    return float_of_bits(exact ? bits : bits | 1);
}

static void store_chunk(void *data, DType dtype, const double *values, int64_t count) {
    if (dtype == DTYPE_F32) {
        float *out = data;
        for (int64_t i = 0; i < count; i++) out[i] = (float)values[i];
        return;
    }
    float odd[CHUNK];
    uint16_t *out = data;
    for (int64_t i = 0; i < count; i++) odd[i] = round_to_odd(values[i]);
    if (dtype == DTYPE_F16)
        for (int64_t i = 0; i < count; i++) out[i] = f16_from_float(odd[i]);
    else
        for (int64_t i = 0; i < count; i++) out[i] = bf16_from_float(odd[i]);
}

/* Adds a chunk to the report; the index of the first number that is no longer finite, or
 * -1. */
static int64_t tally_chunk(CastReport *report, Range range, const double *from,
                           const double *to, int64_t count) {
    int64_t zeros = 0, subnormals = 0, beyond = 0;
    double error = report->error;
    for (int64_t i = 0; i < count; i++) {
        const double x = fabs(from[i]), y = fabs(to[i]), off = fabs(from[i] - to[i]);
        const bool small = y < range.normal;
        zeros += y == 0 && x != 0;
        subnormals += small && y != 0;
        beyond += y > range.largest && x <= DBL_MAX;
        if (!small && off > error * x) error = off / x;
    }
    report->zeros += zeros;
    report->subnormals += subnormals;
    for (int64_t i = 0; beyond && i < count; i++)
        if (fabs(to[i]) > range.largest && fabs(from[i]) <= DBL_MAX) return i;
    report->error = error;
    return -1;
}

/* "[3, 0]": where element `at` of a shape stands; returns `out`. */
static const char *index_text(char out[SHAPE_TEXT_BYTES], const Tensor *tensor,
                              int64_t at) {
    int64_t index[RANK_MAX];
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        index[axis] = at % tensor->dim[axis];
        at /= tensor->dim[axis];
    }
    return shape_text(out, tensor->rank, index);
}

static Status fail_overflow(const Tensor *from, const char *name, int64_t at,
                            double value, DType dtype, Diag *diag) {
    char where[SHAPE_TEXT_BYTES];
    diag_fail(diag, STATUS_MODEL, LOC_NONE, name,
              "weight %s is %.9g: expected at most %.9g, the largest number of type %s",
              index_text(where, from, at), value, dtype_range(dtype).largest,
              dtype_name(dtype));
    if (dtype == DTYPE_F16) diag_hint(diag, "bf16 has the range of f32");
    return STATUS_MODEL;
}

/* Fills `out`, which has the shape of `from`, with its rounded values. */
static Status round_values(Tensor *out, void *data, const Tensor *from, const char *name,
                           CastReport *report, Diag *diag) {
    const int64_t total = tensor_count(from);
    const Range range = dtype_range(out->dtype);
    double before[CHUNK], after[CHUNK];
    for (int64_t at = 0; at < total; at += CHUNK) {
        const int64_t n = total - at < CHUNK ? total - at : CHUNK;
        tensor_read_f64(from, at, n, before);
        store_chunk((char *)data + (size_t)at * dtype_bytes(out->dtype), out->dtype,
                    before, n);
        tensor_read_f64(out, at, n, after);
        const int64_t beyond = tally_chunk(report, range, before, after, n);
        if (beyond >= 0)
            return fail_overflow(from, name, at + beyond, before[beyond], out->dtype,
                                 diag);
    }
    return STATUS_OK;
}

static Status cast_storage(Storage *storage, DType dtype, CastReport *report,
                           Diag *diag) {
    const Tensor *from = storage_tensor(storage);
    const double error = report->error;
    Tensor values;
    void *data;
    TRY(storage_blank(&values, &data, storage, dtype, from->rank, from->dim, diag));
    const Status status =
        data ? round_values(&values, data, from, storage->name, report, diag) : STATUS_OK;
    if (status != STATUS_OK) {
        tensor_release(&values);
        return status;
    }
    report->storages++;
    report->elements += tensor_count(&values);
    if (report->error > error) report->worst = storage->name;
    storage_set_values(storage, values);
    return STATUS_OK;
}

Status tensor_cast(Tensor *out, const Tensor *from, DType dtype, const char *name,
                   Diag *diag) {
    void *data = NULL;
    CastReport report = {0};
    TRY(tensor_create(out, dtype, from->rank, from->dim, diag));
    Status status = tensor_writable(out, &data, diag);
    if (status == STATUS_OK) status = round_values(out, data, from, name, &report, diag);
    if (status != STATUS_OK) tensor_release(out);
    return status;
}

Status model_cast(Model *model, DType dtype, CastReport *report, Diag *diag) {
    CastReport own = {0};
    Status status = STATUS_OK;
    for (int i = 0; i < model->graph->storage_count && status == STATUS_OK; i++) {
        Storage *storage = model->graph->storages[i];
        const DType from = storage_tensor(storage)->dtype;
        if (dtype_is_real(from) && from != dtype)
            status = cast_storage(storage, dtype, &own, diag);
    }
    if (report) *report = own;
    return status;
}
