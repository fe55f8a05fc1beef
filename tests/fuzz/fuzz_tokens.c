/* Tagged words: CoNLL columns when the first byte is even, else JSON Lines; every word
 * and label of what was accepted. */
#include "io/datasets/tagged_words.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    TaggedWords words = {0};
    const TaggedColumns columns = {.format = size > 0 && data[0] == '{' ? TAGGED_JSONL
                                                                        : TAGGED_CONLL};
    fuzz_file(&file, ".txt", data, size);
    const Status status = tagged_words_read(&words, file.path, &columns, LOC_NONE, diag);
    fuzz_told(status, diag);
    if (status == STATUS_OK) {
        size_t bytes = 0;
        fuzz_expect(words.sentences > 0 && words.first[0] == 0, "there are sentences");
        for (int64_t s = 0; s < words.sentences; s++) {
            fuzz_expect(words.first[s] < words.first[s + 1], "sentences have words");
            for (int64_t w = words.first[s]; w < words.first[s + 1]; w++)
                bytes += tagged_word(&words, w).length + strlen(tagged_tag(&words, w));
        }
        fuzz_expect(words.first[words.sentences] == words.words, "all words are in some");
        fuzz_expect(bytes <= words.text.length, "texts do not overlap");
    }
    tagged_words_free(&words);
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
