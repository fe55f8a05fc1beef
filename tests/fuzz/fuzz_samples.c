/* Data sets of tables of text: the first byte says what the rows are (classes, numbers,
 * pairs, choices, endings, translations) and in which format; every sample of what was
 * accepted. */
#include "io/datasets/dataset.h"
#include "io/files/yaml.h"
#include "ir/op.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 16, COLUMNS_MAX = 8, SAMPLES = 64 };

#define VOCABULARY "tokenizer: tests/data/text/vocab.txt"
#define WORDS      "tokenizer: recipes/data/shakespeare/tokenizer.json"
#define SENTENCES  "tokenizer: recipes/data/tatoeba/ru.json"

static const char *const ENTRIES[] = {
    "format: text, max_length: 16, sentence: a, label: b, labels: [x, y], " VOCABULARY,
    "format: text, max_length: 16, sentence: a, label: b, " VOCABULARY,
    "format: text, max_length: 16, sentence: a, sentence2: c, targets: values, label: b, " VOCABULARY,
    "format: text, max_length: 16, sentence: a, label: '', mask_share: 0.3, " VOCABULARY,
    "format: choices, max_length: 16, context: a, label: b, choices: [c, d], " VOCABULARY,
    "format: choices, max_length: 16, context: a, label: b, question: c, choices: [d], " VOCABULARY,
    "format: endings, max_length: 16, context: a, label: b, choices: [c, d], " WORDS,
    "format: endings, max_length: 16, context: a, " WORDS,
    "format: translation, max_source: 16, max_target: 16, source: a, target: b, " SENTENCES,
};
static const char *const TABLES[] = {"tsv", "csv", "jsonl"};
enum { ENTRY_COUNT = sizeof ENTRIES / sizeof *ENTRIES, TABLE_COUNT = 3 };

static void fetch_one(const Batches *set, int64_t sample, Diag *diag) {
    Fetch what = {.index = &sample, .n = 1};
    void *to[COLUMNS_MAX] = {NULL};
    batches_pad(set, &what);
    int64_t sizes[DIM_SYMBOLS] = {0};
    sizes[DIM_INDEX(DIM_N)] = 1;
    sizes[DIM_INDEX(DIM_T)] = what.tokens;
    sizes[DIM_INDEX(DIM_S)] = what.source;
    sizes[DIM_INDEX(DIM_M)] = batches_masked(set, what.tokens);
    fuzz_expect(what.tokens <= WIDTH && what.source <= WIDTH, "samples that fit");
    for (int c = 0; c < set->column_count; c++) {
        Type type;
        fuzz_expect(type_bind(&set->columns[c].type, sizes, &type), "a column has sizes");
        to[c] = malloc(((size_t)type_count(&type) + 1) * sizeof(float));
    }
    fuzz_expect(set->fetch(set, &what, to, diag) == STATUS_OK, "a sample is there");
    for (int c = 0; c < set->column_count; c++) free(to[c]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    FuzzPath file;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    const DataFormat *format;
    Tree *spec;
    void *options;
    Batches *set;
    char text[512];
    fuzz_file(&file, ".txt", data + 1, size - 1);
    const int length = snprintf(text, sizeof text, "{path: %s, table: %s, %s}", file.path,
                                TABLES[data[0] / ENTRY_COUNT % TABLE_COUNT],
                                ENTRIES[data[0] % ENTRY_COUNT]);
    fuzz_expect(yaml_parse(&spec, arena, "entry", text, (size_t)length, diag) ==
                        STATUS_OK &&
                    dataset_bind(&format, &options, arena, spec, ".", diag) == STATUS_OK,
                "options that hold");
    const Status status = dataset_open(&set, format, options, LOC_NONE, diag);
    if (status == STATUS_OK) {
        fuzz_expect(set->count > 0 && set->column_count <= COLUMNS_MAX, "samples");
        for (int64_t i = 0; i < set->count && i < SAMPLES; i++) fetch_one(set, i, diag);
        batches_destroy(set);
    } else {
        fuzz_told(status, diag);
    }
    fuzz_remove(&file);
    arena_destroy(arena);
    diag_destroy(diag);
    return 0;
}
