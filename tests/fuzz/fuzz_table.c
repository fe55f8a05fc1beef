/* Tables of text: the first byte says whether as TSV, CSV, JSON Lines or plain lines, and
 * with which options; every cell of what was accepted. */
#include "io/datasets/data_table.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void read_cells(const Table *table) {
    const int columns = table_columns(table);
    fuzz_expect(table_rows(table) > 0 && columns > 0 && columns <= TABLE_COLUMNS_MAX,
                "there are rows and columns");
    for (int c = 0; c < columns;
         c++) { /* one whose name is empty has none to find it by */
        const char *name = table_name(table, c);
        fuzz_expect(!name || !*name || table_find(table, name) == c,
                    "a column is found by its name");
    }
    for (int64_t row = 0; row < table_rows(table); row++)
        for (int c = 0; c < columns; c++) {
            size_t length = 0;
            const char *cell = table_cell(table, row, c, &length);
            fuzz_expect(strlen(cell) == length, "a cell ends where its length says");
        }
    fuzz_expect(table_loc(table, table_rows(table) - 1).line > 0, "a row has a line");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    FuzzPath file;
    Diag *diag = diag_create();
    Table *table = NULL;
    const TableOptions options = {
        .format = (TableFormat)(TABLE_TSV + (data[0] & 3)),
        .quotes = data[0] & 4 ? TABLE_QUOTES_RFC4180 : TABLE_QUOTES_BY_FORMAT,
        .no_header = data[0] & 8,
        .skip_bad = data[0] & 16,
        .lists = data[0] & 32,
    };
    fuzz_file(&file, ".txt", data + 1, size - 1);
    const Status status = table_read(&table, file.path, &options, diag);
    fuzz_told(status, diag);
    if (status == STATUS_OK) {
        read_cells(table);
        table_destroy(table);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
