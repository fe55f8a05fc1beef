/* Reports of runs: any JSON beside a report, as rows of one table; what was accepted has
 * a cell for every column, in the order that was asked for. */
#include "io/files/json.h"
#include "session/report/report_table.h"
#include "tests/fuzz/fuzz.h"

static const char OTHER[] =
    "{\"status\": \"done\", \"recipe\": {\"path\": \"r.yaml\", \"resolved\": {\"passes\": "
    "[{\"distill\": {\"epochs\": 2}}]}}, \"steps\": [{\"pass\": \"evaluate\", \"record\": "
    "{\"data\": \"test\", \"accuracy\": 80.5}, \"parameters\": 10}], \"seconds\": 2}";

static void use(Tree *const *reports, Arena *arena, const char *columns,
                const char *sort) {
    const StringList paths = {(const char *[]){"a.json", "b.json"}, 2};
    const ReportTableOptions options = {columns, sort};
    ReportTable *table = ARENA_NEW(arena, ReportTable);
    Diag *diag = diag_create();
    if (report_table_make(table, arena, &paths, reports, &options, diag) == STATUS_OK) {
        fuzz_expect(table->rows == 2 && table->column_count > 0, "two rows");
        for (int i = 0; i < 2 * table->column_count; i++)
            fuzz_expect(!table->columns[i % table->column_count].numbers ||
                            !table->cells[i].text || table->cells[i].is_number,
                        "columns of numbers hold numbers");
    }
    diag_destroy(diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *reports[2];
    if (json_parse(&reports[0], arena, "input", (const char *)data, size, diag) ==
            STATUS_OK &&
        json_parse(&reports[1], arena, "other", OTHER, sizeof OTHER - 1, diag) ==
            STATUS_OK) {
        use(reports, arena, NULL, "-seconds");
        use(reports, arena, "report,accuracy,passes.0.distill.epochs,seed", "status");
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return 0;
}
