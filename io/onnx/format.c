/* ONNX as a format of models. */
#include "io/onnx/onnx_read.h"
#include "io/onnx/write/onnx_file.h"

#include <string.h>

static Status check(const Model *model, const WriteOptions *options, Diag *diag) {
    return onnx_check(model, onnx_options(options), diag);
}

static Status write(Model *model, const char *path, const WriteOptions *options,
                    Written *written, Diag *diag) {
    const bool half = onnx_in_half(options);
    *written = (Written){0};
    return onnx_file_write(model, ONNX_WHOLE, path, false, half, onnx_options(options),
                           written, diag);
}

static Status read_format(Model **out, const char *path, const HfOptions *options,
                          const OpTable *ops, bool verify, Diag *diag) {
    (void)options, (void)verify;
    return onnx_read(out, path, ops, diag);
}

const ModelFormat model_format_onnx = {
    .name = "onnx",
    .what = "an ONNX file",
    .ending = ".onnx",
    .summary =
        "opset 17 for onnxruntime and all that reads ONNX; dtype f16 computes in f16",
    .probe = onnx_probe,
    .read = read_format,
    .fields = ONNX_FIELDS,
    .options_size = sizeof(OnnxOptions),
    .defaults = &ONNX_DEFAULTS,
    .dtypes = "keep|f32|f16",
    .check = check,
    .write = write,
};
