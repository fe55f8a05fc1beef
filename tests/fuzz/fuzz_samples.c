/* Data sets of tables of text: the first byte says what the rows are (classes, numbers,
 * pairs, choices, endings, translations) and in which format; every sample of what was
 * accepted. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

enum { WIDTH = 16 }; /* max_length and its like */

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    FuzzPath file;
    char text[512];
    fuzz_file(&file, ".txt", data + 1, size - 1);
    snprintf(text, sizeof text, "{path: %s, table: %s, %s}", file.path,
             TABLES[data[0] / ENTRY_COUNT % TABLE_COUNT], ENTRIES[data[0] % ENTRY_COUNT]);
    fuzz_data_set(text, WIDTH);
    fuzz_remove(&file);
    return 0;
}
