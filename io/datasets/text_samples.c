/* Text samples: see text_samples.h. */
#include "io/datasets/text_samples.h"

#include "io/datasets/class_names.h"
#include "io/datasets/unknown_tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- texts --- */

static TextSpan span_of(const TextRows *rows, int64_t row, int column) {
    TextSpan span;
    span.text = table_cell(rows->table, row, column, &span.length);
    return span;
}

Status text_samples_check_room(const Tokenizer *tokenizer, bool pair, int64_t max_length,
                               Loc at, Diag *diag) {
    const int64_t least = (int64_t)tokenizer_overhead(tokenizer, pair) + 1 + pair;
    if (max_length >= least) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, "max_length",
                     "expected at least %" PRId64
                     ", special tokens and one of each text, found %" PRId64,
                     least, max_length);
}

Status text_samples_add(TextSamples *out, int64_t sample, const Encoding *encoding,
                        Diag *diag) {
    const int64_t length = (int64_t)encoding->length;
    if (length == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_NONE, NULL,
                         "expected text, found a row without tokens");
    const int64_t start = out->start[sample], end = start + length;
    if (end > out->capacity) {
        out->capacity = end + end / 2 + 1024;
        out->tokens =
            memory_grow(out->tokens, (size_t)out->capacity, sizeof *out->tokens);
    }
    uint32_t *tokens = out->tokens + start;
    for (int64_t i = 0; i < length; i++)
        tokens[i] =
            (uint32_t)encoding->types[i] << TOKEN_TYPE_SHIFT | (uint32_t)encoding->ids[i];
    out->start[sample + 1] = end;
    if (length > out->longest) out->longest = length;
    out->cut += encoding->cut > 0;
    return STATUS_OK;
}

void text_samples_warn_cut(const TextSamples *samples, int64_t count, int64_t max_length,
                           const char *name, Loc at, Diag *diag) {
    if (samples->cut > 0)
        diag_warn(diag, at, "max_length",
                  "%s: %" PRId64 " of %" PRId64 " texts have more than %" PRId64
                  " tokens and are cut",
                  name, samples->cut, count, max_length);
}

void text_samples_warn_unknown(const TextSamples *samples, int64_t count,
                               const Tokenizer *tokenizer, const char *path,
                               const char *name, Loc at, Diag *diag) {
    UnknownTokens unknown;
    unknown_tokens_start(&unknown, tokenizer);
    for (int64_t i = 0; i < samples->start[count]; i++)
        unknown_tokens_see(&unknown, text_token_id(samples->tokens[i]));
    unknown_tokens_warn(&unknown, name, path, at, diag);
}

/* Encodes one sample of a row. */
static Status sample_encode(TextSamples *out, int64_t sample, const Tokenizer *tokenizer,
                            Encoding *encoding, const TextRows *rows, int64_t row,
                            int first, int second, size_t max_length, Diag *diag) {
    const TextSpan text = span_of(rows, row, first);
    const TextSpan pair = second < 0 ? (TextSpan){0} : span_of(rows, row, second);
    Status status = tokenizer_encode(tokenizer, encoding, text, second < 0 ? NULL : &pair,
                                     max_length, LOC_NONE, diag);
    if (status == STATUS_OK) status = text_samples_add(out, sample, encoding, diag);
    if (status != STATUS_OK) diag_place(diag, table_loc(rows->table, row), NULL);
    return status;
}

Status text_samples_encode(TextSamples *out, const Tokenizer *tokenizer,
                           const TextRows *rows, int first, int second, size_t max_length,
                           Diag *diag) {
    Encoding encoding = {0};
    Status status = STATUS_OK;
    out->start = memory_alloc((size_t)rows->count + 1, sizeof *out->start);
    for (int64_t i = 0; i < rows->count && status == STATUS_OK; i++)
        status = sample_encode(out, i, tokenizer, &encoding, rows, rows->first + i, first,
                               second, max_length, diag);
    encoding_free(&encoding);
    return status;
}

Status text_samples_encode_apart(TextSamples *out, const Tokenizer *tokenizer,
                                 const TextRows *rows, const int *columns, int count,
                                 size_t max_length, Diag *diag) {
    Encoding encoding = {0};
    Status status = STATUS_OK;
    const int64_t samples = rows->count * count;
    out->start = memory_alloc((size_t)samples + 1, sizeof *out->start);
    for (int64_t i = 0; i < samples && status == STATUS_OK; i++)
        status =
            sample_encode(out, i, tokenizer, &encoding, rows, rows->first + i / count,
                          columns[i % count], -1, max_length, diag);
    encoding_free(&encoding);
    return status;
}

void text_samples_write(const TextSamples *samples, int64_t sample, int64_t tokens,
                        int32_t pad, int32_t *ids, int32_t *mask, int32_t *types) {
    const uint32_t *src = samples->tokens + samples->start[sample];
    const int64_t length = samples->start[sample + 1] - samples->start[sample];
    for (int64_t i = 0; i < tokens; i++) {
        const bool token = i < length;
        ids[i] = token ? text_token_id(src[i]) : pad;
        mask[i] = token;
        types[i] = token ? text_token_type(src[i]) : 0;
    }
}

Status text_samples_check_padding(const TextSamples *samples, int64_t count, int32_t pad,
                                  const char *tokenizer, Loc at, Diag *diag) {
    for (int64_t i = 0; i < count && pad < 0; i++) {
        const int64_t length = samples->start[i + 1] - samples->start[i];
        if (length == samples->longest) continue;
        diag_fail(diag, STATUS_RECIPE, at, "tokenizer",
                  "expected one with a padding token, as samples have %" PRId64
                  " to %" PRId64 " tokens, found none in %s",
                  length, samples->longest, tokenizer);
        diag_hint(diag, "add <pad> or [PAD] to its added_tokens as a special token, or "
                        "let a tokenizer_config.json beside it name its pad_token");
        return STATUS_RECIPE;
    }
    return STATUS_OK;
}

void text_samples_free(TextSamples *samples) {
    free(samples->tokens);
    free(samples->start);
    *samples = (TextSamples){0};
}

/* --- labels --- */

int64_t text_label_parse(const char *text) {
    char *end;
    if (*text < '0' || *text > '9') return -1;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    return *end || errno ? -1 : value;
}

static Status fail_name(const TextRows *rows, int64_t row, const char *cell,
                        const StringList *names, Diag *diag) {
    enum { MOST = 16 };
    Text list = {0};
    for (int i = 0; i < names->count && i < MOST; i++)
        text_add(&list, "%s%.64s", i ? ", " : "", names->items[i]);
    diag_fail(diag, STATUS_FORMAT, table_loc(rows->table, row), NULL,
              "unknown label '%.64s'", cell);
    diag_hint(diag, "labels: %s%s", list.data, names->count > MOST ? " ..." : "");
    text_free(&list);
    return STATUS_FORMAT;
}

static Status fail_number(const TextRows *rows, int64_t row, const char *cell,
                          int64_t classes, Diag *diag) {
    diag_fail(diag, STATUS_FORMAT, table_loc(rows->table, row), NULL,
              "expected a label from 0 to %" PRId64 ", found '%.64s'",
              (classes ? classes : TEXT_CLASSES_MAX) - 1, cell);
    if (classes && text_label_parse(cell) >= 0)
        diag_hint(diag, "`classes` of the data set says how many there are");
    else
        diag_hint(diag, "labels: [negative, positive] names the classes of labels that "
                        "are words; label: \"\" reads no labels");
    return STATUS_FORMAT;
}

Status text_labels_read(int32_t *labels, int64_t *classes, const TextRows *rows,
                        int column, const StringList *names, Diag *diag) {
    const int64_t most = *classes ? *classes : TEXT_CLASSES_MAX;
    int64_t largest = -1;
    for (int64_t i = 0; i < rows->count; i++) {
        size_t length;
        const int64_t row = rows->first + i;
        const char *cell = table_cell(rows->table, row, column, &length);
        const int64_t label =
            names->count ? class_names_find(names, cell) : text_label_parse(cell);
        if (label < 0 && names->count) return fail_name(rows, row, cell, names, diag);
        if (label < 0 || label >= most)
            return fail_number(rows, row, cell, *classes, diag);
        labels[i] = (int32_t)label;
        if (label > largest) largest = label;
    }
    if (*classes == 0) *classes = names->count ? names->count : largest + 1;
    return STATUS_OK;
}
