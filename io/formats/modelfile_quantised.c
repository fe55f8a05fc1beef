/* Native model file, quantised storages: see modelfile_quantised.h. */
#include "io/formats/modelfile_quantised.h"

#include "ir/quantised.h"
#include "ir/resident.h"

#include <string.h>

int modelfile_quantised_sets(Hdf5Set out[QUANTISED_SETS], const char *link,
                             const Tensor *tensor) {
    const bool q8 = tensor->dtype == DTYPE_Q8;
    const int64_t rows = quantised_rows(tensor), groups = quantised_groups(tensor);
    out[0] = (Hdf5Set){.group = MODELFILE_WEIGHTS,
                       .name = link,
                       .dtype = q8 ? DTYPE_I8 : DTYPE_U8,
                       .rank = q8 ? tensor->rank : 2,
                       .data = tensor_q_values(tensor)};
    if (q8)
        memcpy(out[0].dim, tensor->dim, sizeof out[0].dim);
    else
        memcpy(out[0].dim, (int64_t[]){rows, (int64_t)quantised_parts(tensor).row_values},
               2 * sizeof(int64_t));
    out[1] = (Hdf5Set){.group = MODELFILE_SCALES,
                       .name = link,
                       .dtype = q8 ? DTYPE_F32 : DTYPE_F16,
                       .rank = q8 ? 1 : 2,
                       .dim = {rows, q8 ? 0 : groups},
                       .data = tensor_q_scales(tensor)};
    if (!tensor->zeros) return 2;
    out[2] = (Hdf5Set){.group = MODELFILE_ZEROS,
                       .name = link,
                       .dtype = DTYPE_U8,
                       .rank = 2,
                       .dim = {rows, groups},
                       .data = tensor_q_zeros(tensor)};
    return 3;
}

/* The set of the file that is as `wanted` says. */
static Status find_set(const Hdf5Set **out, const SetTable *table, const Hdf5Set *wanted,
                       const char *path, const char *storage, Diag *diag) {
    const Hdf5Set *set = sets_find(table, wanted->group, wanted->name);
    char want[SHAPE_TEXT_BYTES], have[SHAPE_TEXT_BYTES];
    if (!set)
        return modelfile_damaged(path, diag, "storage '%s' has no '%s' in the file",
                                 storage, wanted->group);
    if (set->dtype != wanted->dtype || set->rank != wanted->rank ||
        memcmp(set->dim, wanted->dim, (size_t)set->rank * sizeof *set->dim) != 0)
        return modelfile_damaged(path, diag,
                                 "storage '%s': expected %s of type %s and shape %s, "
                                 "found %s%s",
                                 storage, wanted->group, dtype_name(wanted->dtype),
                                 shape_text(want, wanted->rank, wanted->dim),
                                 dtype_name(set->dtype),
                                 shape_text(have, set->rank, set->dim));
    *out = set;
    return STATUS_OK;
}

Status modelfile_read_quantised(Tensor *tensor, const char *path, const char *storage,
                                const SetTable *table, const char *link, const Buf *map,
                                Diag *diag) {
    const QuantisedParts parts = quantised_parts(tensor);
    const size_t at[QUANTISED_SETS] = {0, parts.scales, parts.zeros};
    const Hdf5Set *found[QUANTISED_SETS] = {0};
    Hdf5Set wanted[QUANTISED_SETS];
    const int count = modelfile_quantised_sets(wanted, link, tensor);
    for (int i = 0; i < count; i++)
        TRY(find_set(&found[i], table, &wanted[i], path, storage, diag));
    TRY(tensor_allocate(tensor,
                        diag)); /* no larger than the sets, which are in the file */
    char *data = (char *)(uintptr_t)tensor_data(tensor);
    for (int i = 0; i < count; i++)
        if (found[i]->bytes > 0) {
            const char *from = (const char *)buf_data(map) + found[i]->offset;
            resident_use(from, (size_t)found[i]->bytes);
            memcpy(data + at[i], from, (size_t)found[i]->bytes);
        }
    return quantised_check(tensor, STATUS_FORMAT, storage, diag);
}
