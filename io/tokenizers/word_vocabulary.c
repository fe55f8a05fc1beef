/* Word vocabulary: see word_vocabulary.h. All words are collected, sorted and counted. */
#include "io/tokenizers/word_vocabulary.h"

#include "io/datasets/data_table.h"
#include "io/files/file.h"
#include "io/tokenizers/unicode.h"
#include "io/tokenizers/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIALS = 4 };
static const char *const SPECIAL[SPECIALS] = {"<pad>", "<unk>", "<s>", "</s>"};

/* An occurrence, or what many have in common: `count` of them. */
typedef struct Word {
    size_t at; /* in the spelling */
    uint32_t length;
    int64_t count;
} Word;

typedef struct Builder {
    const WordVocabularyOptions *options;
    Text spelling; /* of all occurrences */
    Text lower;
    Word *words;
    size_t count, capacity;
    WordVocabularyReport *report;
} Builder;

/* --- collecting --- */

static void word_add(Builder *self, const char *word, size_t length) {
    bool special = false;
    for (int i = 0; i < SPECIALS && !special; i++)
        special = strlen(SPECIAL[i]) == length && memcmp(SPECIAL[i], word, length) == 0;
    self->report->words++;
    if (length > TOKEN_BYTES_MAX || special) return;
    if (self->count == self->capacity) {
        self->capacity = self->capacity ? 2 * self->capacity : 4096;
        self->words = memory_grow(self->words, self->capacity, sizeof *self->words);
    }
    self->words[self->count++] = (Word){self->spelling.length, (uint32_t)length, 1};
    text_bytes(&self->spelling, word, length);
}

static void text_collect(Builder *self, const char *text, size_t length) {
    if (self->options->lowercase && length > 0) {
        self->lower.length = 0;
        utf8_lower(&self->lower, text, length);
        text = self->lower.data;
        length = self->lower.length;
    }
    size_t begin = 0, end = 0;
    for (; word_next(self->options->split, text, length, &begin, &end); begin = end)
        word_add(self, text + begin, end - begin);
    self->report->texts++;
}

static Status column_collect(Builder *self, const Table *table, const char *name,
                             Diag *diag) {
    int column;
    TRY(table_column(&column, table, name, LOC_NONE, "column", diag));
    for (int64_t row = 0; row < table_rows(table); row++) {
        size_t length;
        const char *text = table_cell(table, row, column, &length);
        text_collect(self, text, length);
    }
    return STATUS_OK;
}

static Status file_collect(Builder *self, Diag *diag) {
    static const char *const LINE = "text";
    const StringList *columns = &self->options->columns;
    const bool lines = columns->count == 0;
    const TableOptions options = {.format = lines ? TABLE_LINES : TABLE_BY_NAME,
                                  .names = &LINE,
                                  .name_count = lines};
    Table *table;
    TRY(table_read(&table, self->options->path, &options, diag));
    Status status = lines ? column_collect(self, table, LINE, diag) : STATUS_OK;
    for (int i = 0; i < columns->count && status == STATUS_OK; i++)
        status = column_collect(self, table, columns->items[i], diag);
    table_destroy(table);
    if (status == STATUS_OK && self->count == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(self->options->path), NULL,
                         "expected texts, found no words");
    return status;
}

/* --- counting --- */

static int compare_spelling(const void *a, const void *b, void *spelling) {
    const Word *x = a, *y = b;
    const char *text = spelling;
    const size_t both = x->length < y->length ? x->length : y->length;
    const int order = memcmp(text + x->at, text + y->at, both);
    if (order) return order;
    return (x->length > y->length) - (x->length < y->length);
}

static int compare_count(const void *a, const void *b, void *spelling) {
    const Word *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return compare_spelling(a, b, spelling);
}

/* Leaves every word once, with its count, the most frequent first. */
static void words_count(Builder *self) {
    char *spelling = self->spelling.data;
    size_t different = 0;
    qsort_r(self->words, self->count, sizeof *self->words, compare_spelling, spelling);
    for (size_t i = 0; i < self->count; i++) {
        Word *last = self->words + different - 1;
        if (different > 0 && compare_spelling(last, &self->words[i], spelling) == 0)
            last->count++;
        else
            self->words[different++] = self->words[i];
    }
    self->count = different;
    self->report->different = (int64_t)different;
    qsort_r(self->words, different, sizeof *self->words, compare_count, spelling);
}

/* Words that become tokens. */
static size_t words_choose(Builder *self) {
    const WordVocabularyOptions *options = self->options;
    const int64_t limit = options->max_size > 0 ? options->max_size : TOKENS_MAX;
    const size_t most = limit > SPECIALS ? (size_t)limit - SPECIALS : 0;
    size_t chosen = 0;
    for (; chosen < self->count && chosen < most; chosen++) {
        if (self->words[chosen].count < options->min_count) break;
        self->report->covered += self->words[chosen].count;
    }
    self->report->size = SPECIALS + (int64_t)chosen;
    return chosen;
}

/* --- writing --- */

static void print_added(Text *out) {
    text_add(out, "  \"added_tokens\": [");
    for (int i = 0; i < SPECIALS; i++) {
        text_add(out, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", i);
        text_quoted(out, SPECIAL[i]);
        text_add(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                      "\"normalized\": false, \"special\": true}");
    }
    text_add(out, "],\n");
}

static void print_rules(Text *out, const WordVocabularyOptions *options) {
    text_add(out, "  \"normalizer\": %s,\n  \"pre_tokenizer\": ",
             options->lowercase ? "{\"type\": \"Lowercase\"}" : "null");
    switch (options->split) {
    case SPLIT_SPACES: text_add(out, "{\"type\": \"WhitespaceSplit\"}"); break;
    case SPLIT_PUNCTUATION: text_add(out, "{\"type\": \"BertPreTokenizer\"}"); break;
    case SPLIT_WORDS:
        text_add(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        text_quoted(out, WORDS_REGEX);
        text_add(out, "},\n    \"behavior\": \"Removed\", \"invert\": true}");
    }
    text_add(out, ",\n  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
                  "    \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},\n"
                  "      {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}],\n"
                  "    \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},\n"
                  "      {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}},\n"
                  "      {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 1}}],\n"
                  "    \"special_tokens\": {\"</s>\": {\"id\": \"</s>\", \"ids\": [3], "
                  "\"tokens\": [\"</s>\"]}}},\n  \"decoder\": null,\n");
}

static void print_vocabulary(Text *out, const Builder *self, size_t chosen) {
    char word[TOKEN_BYTES_MAX + 1];
    text_add(out, "  \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"<unk>\", "
                  "\"vocab\": {");
    for (int i = 0; i < SPECIALS; i++) {
        text_add(out, "%s\n    ", i ? "," : "");
        text_quoted(out, SPECIAL[i]);
        text_add(out, ": %d", i);
    }
    for (size_t i = 0; i < chosen; i++) {
        memcpy(word, self->spelling.data + self->words[i].at, self->words[i].length);
        word[self->words[i].length] = 0;
        text_add(out, ",\n    ");
        text_quoted(out, word);
        text_add(out, ": %zu", SPECIALS + i);
    }
    text_add(out, "}}\n}\n");
}

static Status builder_run(Builder *self, const char *output, Diag *diag) {
    TRY(file_collect(self, diag));
    words_count(self);
    const size_t chosen = words_choose(self);
    if (chosen == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(self->options->path), NULL,
                         "expected words that occur at least %lld times, the most "
                         "frequent one occurs %lld times",
                         (long long)self->options->min_count,
                         (long long)self->words[0].count);
    Text out = {0};
    text_add(&out,
             "{\n  \"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n");
    print_added(&out);
    print_rules(&out, self->options);
    print_vocabulary(&out, self, chosen);
    const Status status = file_write(output, out.data, out.length, diag);
    text_free(&out);
    return status;
}

Status word_vocabulary_write(WordVocabularyReport *report, const char *output,
                             const WordVocabularyOptions *options, Diag *diag) {
    *report = (WordVocabularyReport){0};
    Builder self = {.options = options, .report = report};
    const Status status = builder_run(&self, output, diag);
    text_free(&self.spelling);
    text_free(&self.lower);
    free(self.words);
    return status;
}
