/* Token stream: see token_stream.h. */
#include "io/tokenizers/token_stream.h"

#include "io/files/file.h"
#include "io/tokenizers/unicode.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES ((size_t)1 << 30)

/* One reading. */
typedef struct StreamReader {
    TokenStream *out;
    const Tokenizer *tokenizer;
    const StreamRules *rules;
    const char *path;
    Encoding encoding;
    Text lower;
} StreamReader;

/* --- documents --- */

static void add_tokens(TokenStream *out, const int32_t *tokens, int64_t count) {
    const int64_t end = out->count + count;
    if (end > out->capacity) {
        out->capacity = end + end / 2;
        out->tokens =
            memory_grow(out->tokens, (size_t)out->capacity, sizeof *out->tokens);
    }
    memcpy(out->tokens + out->count, tokens, (size_t)count * sizeof *tokens);
    out->count = end;
}

static Status add_document(StreamReader *r, TextSpan text, Diag *diag) {
    if (text.length == 0) return STATUS_OK;
    if (r->rules->lowercase) {
        r->lower.length = 0;
        utf8_lower(&r->lower, text.text, text.length);
        text = (TextSpan){r->lower.data, r->lower.length};
    }
    r->encoding.skip_unknown = r->rules->skip_unknown;
    TRY(tokenizer_encode_plain(r->tokenizer, &r->encoding, text, LOC_FILE(r->path),
                               diag));
    if (r->encoding.length == 0) return STATUS_OK;
    if (r->rules->add_bos) add_tokens(r->out, &tokenizer_specials(r->tokenizer)->bos, 1);
    add_tokens(r->out, r->encoding.ids, (int64_t)r->encoding.length);
    r->out->characters += (int64_t)(text_characters(text) - r->encoding.skipped);
    r->out->documents++;
    return STATUS_OK;
}

/* Adds what lies between lines that are the separator. */
static Status add_documents(StreamReader *r, TextSpan text, Diag *diag) {
    const char *end = text.text + text.length, *begin = text.text;
    const char *separator = r->rules->separator;
    for (const char *line = begin, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        next = stop ? stop + 1 : end;
        size_t length = (size_t)(next - line); /* without the end of the line */
        if (length > 0 && line[length - 1] == '\n') length--;
        if (length > 0 && line[length - 1] == '\r') length--;
        if (length != strlen(separator) || memcmp(line, separator, length) != 0) continue;
        TRY(add_document(r, (TextSpan){begin, (size_t)(line - begin)}, diag));
        begin = next;
    }
    return add_document(r, (TextSpan){begin, (size_t)(end - begin)}, diag);
}

/* --- the text --- */

/* Offset of the first character that starts at this share of the text or after it. */
static size_t share_offset(TextSpan text, double share) {
    size_t at = (size_t)(share * (double)text.length);
    while (at < text.length && ((unsigned char)text.text[at] & 0xC0) == 0x80) at++;
    return at;
}

static Status read_text(StreamReader *r, Arena *arena, Diag *diag) {
    char *text;
    size_t length;
    TRY(file_read(&text, &length, arena, r->path, TEXT_BYTES, diag));
    TRY(utf8_check_file(r->path, text, length, diag));
    r->out->text_bytes = (int64_t)length;
    const size_t mark = utf8_mark_length(text, length);
    const TextSpan whole = {text + mark, length - mark};
    const size_t from = share_offset(whole, r->rules->from);
    const size_t to = share_offset(whole, r->rules->to);
    const TextSpan part = {whole.text + from, to - from};
    if (r->rules->separator && *r->rules->separator) return add_documents(r, part, diag);
    return add_document(r, part, diag);
}

Status token_stream_read(TokenStream *out, const Tokenizer *tokenizer, const char *path,
                         const StreamRules *rules, Loc at, Diag *diag) {
    if (rules->add_bos && tokenizer_specials(tokenizer)->bos < 0)
        return diag_fail(diag, STATUS_RECIPE, at, "add_bos",
                         "expected a tokenizer with a token for the beginning of a text, "
                         "found none");
    Arena *arena = arena_create();
    StreamReader reader = {
        .out = out, .tokenizer = tokenizer, .rules = rules, .path = path};
    const Status status = read_text(&reader, arena, diag);
    encoding_free(&reader.encoding);
    text_free(&reader.lower);
    arena_destroy(arena);
    return status;
}

void token_stream_free(TokenStream *stream) {
    free(stream->tokens);
    *stream = (TokenStream){0};
}
