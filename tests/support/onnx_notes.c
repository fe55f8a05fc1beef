/* Files without notes: see onnx_notes.h. */
#include "tests/support/onnx_notes.h"

#include "io/files/file.h"
#include "io/onnx/proto.h"
#include "tests/support/check.h"

void forget_notes(const char *path) {
    Diag *diag = diag_create();
    Buf *map;
    OnnxFile parsed;
    OutFile *out;
    assert_ok(file_map(&map, path, diag), diag);
    assert_ok(onnx_parse(&parsed, buf_data(map), buf_bytes(map), LOC_FILE(path), diag),
              diag);
    assert_true(parsed.model->n_metadata_props > 0);
    parsed.model->n_metadata_props = 0;
    assert_ok(outfile_open(&out, NULL, path, diag), diag);
    assert_ok(onnx_write(parsed.model, out, diag), diag);
    assert_ok(outfile_commit(out, diag), diag);
    onnx_release(&parsed);
    buf_release(map);
    diag_destroy(diag);
}
