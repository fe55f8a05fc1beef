/* Corpus text: JSON Lines when it begins with a brace, else a text; from several places
 * of several parts on, pieces until the ring has gone round, where damage ends it and
 * where it is left out. */
#include "io/datasets/corpus_text.h"
#include "io/tokenizers/unicode.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Reads `count` pieces from a byte on; what is told must be told once. */
static void read_from(const CorpusText *corpus, int64_t at, int count) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CorpusPlace place;
    Status status = corpus_text_seek(&place, corpus, at, arena, diag);
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        CorpusPiece piece;
        status = corpus_text_next(&piece, &place, corpus, 1 + i % 7 * 5, arena, diag);
        if (status != STATUS_OK) break;
        fuzz_expect(piece.text.length > 0, "a piece has text");
        fuzz_expect(utf8_check(piece.text.text, piece.text.length) == piece.text.length,
                    "it is UTF-8");
        fuzz_expect(!memchr(piece.text.text, 0, piece.text.length), "without NUL");
    }
    fuzz_told(status, diag);
    diag_destroy(diag);
    arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const double FROM[] = {0, 0.3, 0.7}, TO[] = {1, 0.5, 1};
    FuzzPath file;
    fuzz_file(&file, size > 0 && data[0] == '{' ? ".jsonl" : ".txt", data, size);
    for (int round = 0; round < 6; round++) {
        const int part = round / 2;
        const CorpusRules rules = {.from = FROM[part],
                                   .to = TO[part],
                                   .field = "text",
                                   .separator = part % 2 ? "" : "--",
                                   .skip_damaged = round % 2};
        Diag *diag = diag_create();
        CorpusText *corpus;
        const Status status = corpus_text_open(&corpus, file.path, &rules, diag);
        fuzz_told(status, diag);
        if (status == STATUS_OK) {
            const int64_t bytes = corpus_text_bytes(corpus);
            for (int64_t at = 0; at < bytes; at += 1 + bytes / 5)
                read_from(corpus, at, 20);
            corpus_text_close(corpus);
        }
        diag_destroy(diag);
    }
    fuzz_remove(&file);
    return 0;
}
