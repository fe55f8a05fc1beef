/* tokenizer.json: the file, and a text to tokens and back with what was accepted. */
#include "io/tokenizers/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const char TEXT[] = "The don't [MASK] na\xc3\xafve \xe6\x9d\xb1\xe4\xba\xac  A 12"
                           "\n\xf0\x9f\x98\x80 \xcc\x81"
                           "e\t.</s>";

static void there_and_back(const Tokenizer *tokenizer, Diag *diag) {
    Encoding encoding = {0};
    Text text = {0};
    const TextSpan span = {TEXT, strlen(TEXT)};
    if (tokenizer_encode(tokenizer, &encoding, span, &span, 32, LOC_NONE, diag) ==
        STATUS_OK) {
        fuzz_expect(encoding.length <= 32, "no more tokens than wanted");
        for (size_t i = 0; i < encoding.length; i++)
            fuzz_expect(encoding.ids[i] >= 0 &&
                            encoding.ids[i] < tokenizer_size(tokenizer),
                        "numbers of tokens below the size");
        tokenizer_decode(tokenizer, &text, encoding.ids, encoding.length, false, LOC_NONE,
                         diag);
        fuzz_expect(!text.data || utf8_is_valid(text.data), "the text is UTF-8");
    }
    text_free(&text);
    encoding_free(&encoding);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Tokenizer *tokenizer = NULL;
    fuzz_file(&file, ".json", data, size);
    if (tokenizer_read(&tokenizer, file.path, diag) == STATUS_OK) {
        there_and_back(tokenizer, diag);
        tokenizer_destroy(tokenizer);
    }
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
