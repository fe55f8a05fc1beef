/* SentencePiece's models: the file, and a text to tokens and back with what was accepted.
 */
#include "io/tokenizers/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const char TEXT[] =
    "The  time machine na\xc3\xafve e\xcc\x81 \xe6\x9d\xb1\xe4\xba\xac 12"
    "\r\n\xf0\x9f\x98\x80<x>\xe2\x96\x81\xe2\x96\x81 .</s> ";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    FuzzPath file;
    Diag *diag = diag_create();
    Tokenizer *tokenizer = NULL;
    Encoding encoding = {.skip_unknown = true};
    Text text = {0};
    const TextSpan span = {TEXT, strlen(TEXT)};
    fuzz_file(&file, ".model", data, size);
    if (tokenizer_read(&tokenizer, file.path, diag) == STATUS_OK &&
        tokenizer_encode(tokenizer, &encoding, span, NULL, 0, LOC_NONE, diag) ==
            STATUS_OK) {
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
    tokenizer_destroy(tokenizer);
    fuzz_remove(&file);
    diag_destroy(diag);
    return 0;
}
