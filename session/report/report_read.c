/* Reading reports: see report_read.h. */
#include "session/report/report_read.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/text_start.h"
#include "io/formats/load.h"

#include <string.h>

#define REPORT_BYTES_MAX ((size_t)256 << 20)

/* Says what a file is that is none of JSON: a model, or another one with bytes that no
 * text has. */
static Status check_text(const char *path, Diag *diag) {
    char start[4096];
    const size_t length = file_start(start, sizeof start, path);
    const bool may_be_model = length > 0 || path_is_folder(path);
    const ModelFormat *format = may_be_model ? model_format_of(path) : NULL;
    if (format)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected the report of a run, found %s", format->what);
    TRY(text_start_check(path, start, length, diag));
    if (!memchr(start, 0, length)) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                     "expected the report of a run, found a binary file");
}

Status report_read(Tree **out, Arena *arena, const char *path, Diag *diag) {
    Status status = check_text(path, diag);
    if (status == STATUS_OK) status = json_read(out, arena, path, REPORT_BYTES_MAX, diag);
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
