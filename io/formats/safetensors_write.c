/* safetensors: writing. The file is read back and compared before it is put in place. */
#include "io/files/file.h"
#include "io/formats/safetensors.h"

#include "ir/text.h"

#include <string.h>

static const char *safetensors_dtype(DType dtype) {
    static const char *const NAMES[DTYPE_COUNT] = {
        [DTYPE_F64] = "F64",   [DTYPE_F32] = "F32", [DTYPE_F16] = "F16",
        [DTYPE_BF16] = "BF16", [DTYPE_I64] = "I64", [DTYPE_I32] = "I32",
        [DTYPE_I8] = "I8",     [DTYPE_U8] = "U8",   [DTYPE_BOOL] = "BOOL"};
    return NAMES[dtype];
}

/* The JSON header, padded with spaces so that the data starts at a multiple of 8. */
static void header_print(Text *text, const NamedTensor *tensors, int count) {
    size_t begin = 0;
    text_add(text, "{");
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = &tensors[i].tensor;
        if (i) text_add(text, ",");
        text_quoted(text, tensors[i].name);
        text_add(text, ":{\"dtype\":\"%s\",\"shape\":[",
                 safetensors_dtype(tensor->dtype));
        for (int d = 0; d < tensor->rank; d++)
            text_add(text, "%s%lld", d ? "," : "", (long long)tensor->dim[d]);
        size_t end = begin + tensor_bytes(tensor);
        text_add(text, "],\"data_offsets\":[%zu,%zu]}", begin, end);
        begin = end;
    }
    text_add(text, "}");
    while (text->length % 8) text_add(text, " ");
}

static Status file_put(OutFile *file, const Text *header, const NamedTensor *tensors,
                       int count, Diag *diag) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header->length >> 8 * i);
    TRY(outfile_write(file, length, sizeof length, diag));
    TRY(outfile_write(file, header->data, header->length, diag));
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = &tensors[i].tensor;
        TRY(outfile_write(file, tensor_data(tensor), tensor_bytes(tensor), diag));
    }
    return STATUS_OK;
}

static bool tensor_same(const Tensor *a, const Tensor *b) {
    size_t bytes = tensor_bytes(a);
    return a->dtype == b->dtype && tensor_same_shape(a, b) &&
           (bytes == 0 || memcmp(tensor_data(a), tensor_data(b), bytes) == 0);
}

static Status file_verify(const char *path, const NamedTensor *tensors, int count,
                          Diag *diag) {
    Checkpoint *back;
    Status status = STATUS_OK;
    TRY(safetensors_read(&back, path, diag));
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        const Tensor *found = checkpoint_find(back, tensors[i].name);
        if (!found || !tensor_same(&tensors[i].tensor, found))
            status = diag_fail(diag, STATUS_IO, LOC_FILE(path), tensors[i].name,
                               "what was written does not read back equal");
    }
    checkpoint_destroy(back);
    return status;
}

Status safetensors_write(const char *path, const NamedTensor *tensors, int count,
                         Diag *diag) {
    for (int i = 0; i < count; i++)
        if (!tensors[i].tensor.buf)
            return diag_fail(diag, STATUS_MODEL, LOC_FILE(path), tensors[i].name,
                             "the tensor has no data to write");
    OutFile *file;
    const char *temporary;
    TRY(outfile_open(&file, &temporary, path, diag));
    Text header = {0};
    header_print(&header, tensors, count);
    Status status = file_put(file, &header, tensors, count, diag);
    text_free(&header);
    if (status == STATUS_OK) status = file_verify(temporary, tensors, count, diag);
    if (status == STATUS_OK) return outfile_commit(file, diag);
    outfile_abandon(file);
    return status;
}
