/* Reading reports: see report_read.h. */
#include "session/report/report_read.h"

#include "io/files/json.h"

#define REPORT_BYTES_MAX ((size_t)256 << 20)

Status report_read(Tree **out, Arena *arena, const char *path, Diag *diag) {
    const Status status = json_read(out, arena, path, REPORT_BYTES_MAX, diag);
    if (status == STATUS_FORMAT)
        diag_hint(diag, "a report is what --report FILE of a run wrote; `compress report "
                        "MODEL` tells what a model knows of its run");
    TRY(status);
    const Tree *steps = tree_get(*out, "steps"), *input = tree_get(*out, "input");
    if ((steps && steps->kind == TREE_LIST) || (input && input->kind == TREE_MAP) ||
        tree_get(*out, "status"))
        return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
              "expected the report of a run, found JSON without `steps`");
    diag_hint(diag, "`compress --recipe R --report FILE` writes one");
    return STATUS_FORMAT;
}
