/* Texts to tokens and back, for scripts/test-consumers.
 *
 *     tokenize TOKENIZER TEXTS.json
 *
 * TEXTS is a list of strings. Prints a line for each, {"ids": [...], "decoded": "..."},
 * as tokenizer_encode puts special tokens around it and tokenizer_decode leaves them out.
 */
#include "io/files/json.h"
#include "io/tokenizers/tokenizer.h"

#include <stdio.h>
#include <string.h>

static Status print_text(const Tokenizer *tokenizer, Encoding *encoding, const char *text,
                         Diag *diag) {
    Text line = {0}, decoded = {0};
    const TextSpan span = {text, strlen(text)};
    TRY(tokenizer_encode(tokenizer, encoding, span, NULL, 0, LOC_NONE, diag));
    const Status status = tokenizer_decode(tokenizer, &decoded, encoding->ids,
                                           encoding->length, true, LOC_NONE, diag);
    text_add(&line, "{\"ids\":[");
    for (size_t i = 0; i < encoding->length; i++)
        text_add(&line, "%s%d", i ? "," : "", (int)encoding->ids[i]);
    text_add(&line, "],\"decoded\":");
    text_quoted(&line, decoded.data ? decoded.data : "");
    text_add(&line, "}");
    puts(line.data);
    text_free(&line);
    text_free(&decoded);
    return status;
}

static Status print_all(const char *path, const char *texts, Arena *arena, Diag *diag) {
    Tokenizer *tokenizer;
    Tree *root;
    Encoding encoding = {.skip_unknown = true};
    TRY(json_read(&root, arena, texts, (size_t)64 << 20, diag));
    TRY(tokenizer_read(&tokenizer, path, diag));
    Status status = STATUS_OK;
    for (const Tree *item = root->first; item && status == STATUS_OK; item = item->next)
        status = print_text(tokenizer, &encoding, item->string, diag);
    encoding_free(&encoding);
    tokenizer_destroy(tokenizer);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const Status status = print_all(argv[1], argv[2], arena, diag);
    diag_print(diag, stderr);
    diag_destroy(diag);
    arena_destroy(arena);
    return status != STATUS_OK;
}
