/* Questions about texts in SQuAD's JSON: every sample of what was accepted, with the text
 * between its answer's tokens. */
#include "io/datasets/dataset.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

enum { WIDTH = 16 };

static void use(const Batches *data, Diag *diag) {
    const Answers *answers = data->answers;
    fuzz_expect(data->count > 0 && data->max_tokens <= WIDTH, "samples that fit");
    for (int64_t i = 0; i < data->count; i++) {
        int32_t ids[WIDTH], mask[WIDTH], types[WIDTH], first, last;
        void *const dst[] = {ids, mask, types, &first, &last};
        const Fetch what = {&i, 1, WIDTH, 0};
        int64_t from, end;
        size_t length;
        double exact, f1;
        fuzz_expect(data->fetch(data, &what, dst, diag) == STATUS_OK, "a sample");
        answers->tokens(data, i, &from, &end);
        fuzz_expect(from <= end && end < data->length(data, i), "tokens of the text");
        if (first == 0) continue;
        fuzz_expect(first >= from && first <= last && last < end, "an answer in them");
        const char *text = answers->text(data, i, first, last, &length);
        answers->compare(data, answers->question(data, i), text, length, &exact, &f1);
        fuzz_expect(exact >= 0 && exact <= f1 && f1 <= 1, "shares of words");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Tree *spec = tree_new(arena, TREE_MAP, LOC_NONE);
    const DataFormat *format;
    void *options;
    Batches *set;
    fuzz_file(&file, ".json", data, size);
    tree_put_string(arena, spec, "format", "spans");
    tree_put_string(arena, spec, "path", file.path);
    tree_put_string(arena, spec, "tokenizer", "tests/data/text/vocab.txt");
    tree_put_int(arena, spec, "max_length", WIDTH);
    tree_put_int(arena, spec, "question_length", 4);
    tree_put_int(arena, spec, "stride", 3);
    fuzz_expect(dataset_bind(&format, &options, arena, spec, ".", diag) == STATUS_OK,
                "options that hold");
    if (dataset_open(&set, format, options, LOC_NONE, diag) == STATUS_OK) {
        use(set, diag);
        batches_destroy(set);
    }
    fuzz_remove(&file);
    arena_destroy(arena);
    diag_destroy(diag);
    return 0;
}
