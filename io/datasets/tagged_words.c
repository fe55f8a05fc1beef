/* Tagged words: see tagged_words.h. */
#include "io/datasets/tagged_words.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"
#include "io/tokenizers/unicode.h"
#include "ir/arena.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char DOCSTART[] = "-DOCSTART-";

/* ---- what the readers fill in ---- */

static size_t text_keep(TaggedWords *out, const char *text, size_t length) {
    const size_t at = out->text.length;
    text_bytes(&out->text, text, length);
    text_bytes(&out->text, "", 1);
    return at;
}

static void word_add(TaggedWords *out, TextSpan word, TextSpan tag) {
    if (out->words == out->word_room) {
        out->word_room = 2 * out->word_room + 1024;
        out->word = memory_grow(out->word, (size_t)out->word_room, sizeof *out->word);
        out->tag = memory_grow(out->tag, (size_t)out->word_room, sizeof *out->tag);
    }
    out->word[out->words] = text_keep(out, word.text, word.length);
    out->tag[out->words++] = text_keep(out, tag.text, tag.length);
}

/* Ends the sentence that began on a line, unless it has no words. */
static void sentence_end(TaggedWords *out, int64_t line) {
    if (out->sentence_room < out->sentences + 2) {
        const bool first = !out->first;
        out->sentence_room = 2 * out->sentence_room + 256;
        const size_t room = (size_t)out->sentence_room;
        out->first = memory_grow(out->first, room, sizeof *out->first);
        out->line = memory_grow(out->line, room, sizeof *out->line);
        if (first) out->first[0] = 0;
    }
    if (out->words == out->first[out->sentences]) return;
    out->line[out->sentences++] = line > INT_MAX ? 0 : (int)line;
    out->first[out->sentences] = out->words;
}

static Loc line_loc(const TaggedWords *out, int64_t line) {
    return (Loc){out->path, line > INT_MAX ? 0 : (int)line, 0};
}

/* ---- CoNLL ---- */

/* A column's number; -1 for the last. */
static Status column_number(int64_t *out, const char *name, int64_t otherwise,
                            const char *key, Loc at, Diag *diag) {
    char *end = NULL;
    *out = otherwise;
    if (!name || !*name) return STATUS_OK;
    *out = *name >= '0' && *name <= '9' ? strtoll(name, &end, 10) : -1;
    if (*out >= 0 && *out < 4096 && !*end) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, key,
                     "expected the number of a column, from 0, found '%.64s'", name);
}

/* The columns of a line, `last` among them; returns how many there are. */
static int64_t line_columns(TextSpan line, int64_t word, int64_t tag, TextSpan *of_word,
                            TextSpan *of_tag) {
    int64_t count = 0;
    const char *at = line.text, *end = at + line.length;
    for (;; count++) {
        while (at < end && strchr(" \t\r", *at)) at++;
        if (at == end) return count;
        const char *begin = at;
        while (at < end && !strchr(" \t\r", *at)) at++;
        const TextSpan column = {begin, (size_t)(at - begin)};
        if (count == word) *of_word = column;
        if (tag < 0 || count == tag) *of_tag = column;
    }
}

static Status conll_read(TaggedWords *out, const char *text, size_t length, int64_t word,
                         int64_t tag, bool tagged, Diag *diag) {
    const char *end = text + length;
    int64_t line = 1, begun = 1;
    const int64_t least = (word > tag ? word : tag) + 1;
    for (; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const TextSpan span = {text, (size_t)((newline ? newline : end) - text)};
        TextSpan of_word = {"", 0}, of_tag = {"", 0};
        const int64_t count = line_columns(span, word, tag, &of_word, &of_tag);
        const bool doc = span.length >= sizeof DOCSTART - 1 &&
                         memcmp(span.text, DOCSTART, sizeof DOCSTART - 1) == 0;
        text += span.length + 1;
        if (count == 0 || doc) {
            sentence_end(out, begun);
            begun = line + 1;
            continue;
        }
        if (count < least || (tagged && tag < 0 && count < 2))
            return diag_fail(diag, STATUS_FORMAT, line_loc(out, line), NULL,
                             "expected at least %" PRId64 " columns, found %" PRId64,
                             tagged && tag < 0 && least < 2 ? 2 : least, count);
        word_add(out, of_word, tagged ? of_tag : (TextSpan){"", 0});
    }
    sentence_end(out, begun);
    return STATUS_OK;
}

/* ---- JSON Lines ---- */

static Status list_of(const Tree **out, const Tree *object, const char *key, Diag *diag) {
    const Tree *list = object->kind == TREE_MAP ? tree_get(object, key) : NULL;
    *out = list;
    if (list && list->kind == TREE_LIST) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, object->loc, key, "expected a list, found %s",
                     list ? tree_kind_name(list->kind) : "none");
}

static Status json_sentence(TaggedWords *out, const Tree *object, const char *word,
                            const char *tag, Diag *diag) {
    const Tree *words, *tags = NULL;
    TRY(list_of(&words, object, word, diag));
    if (*tag) TRY(list_of(&tags, object, tag, diag));
    if (tags && tags->count != words->count)
        return diag_fail(diag, STATUS_FORMAT, object->loc, tag,
                         "expected %d labels, one for each of '%.64s', found %d",
                         words->count, word, tags->count);
    const Tree *label = tags ? tags->first : NULL;
    for (const Tree *item = words->first; item; item = item->next) {
        char number[32] = "";
        const bool integer = label && label->kind == TREE_INT;
        if (item->kind != TREE_STRING ||
            (label && label->kind != TREE_STRING && !integer))
            return diag_fail(
                diag, STATUS_FORMAT, object->loc, item->kind != TREE_STRING ? word : tag,
                "expected texts%s, found %s",
                item->kind != TREE_STRING ? "" : " or integers",
                tree_kind_name(item->kind != TREE_STRING ? item->kind : label->kind));
        if (integer) snprintf(number, sizeof number, "%" PRId64, label->integer);
        const char *as_text = !label || integer ? number : label->string;
        out->numbers |= integer;
        word_add(out, (TextSpan){item->string, strlen(item->string)},
                 (TextSpan){as_text, strlen(as_text)});
        label = label ? label->next : NULL;
    }
    return STATUS_OK;
}

static Status jsonl_read(TaggedWords *out, const char *text, size_t length,
                         const char *word, const char *tag, Diag *diag) {
    const char *end = text + length;
    for (int64_t line = 1; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t bytes = (size_t)((newline ? newline : end) - text);
        if (strspn(text, " \t\r") < bytes) {
            Arena *scratch = arena_create();
            Tree *object;
            Status status = json_parse_line(&object, scratch, out->path,
                                            line_loc(out, line).line, text, bytes, diag);
            if (status == STATUS_OK) status = json_sentence(out, object, word, tag, diag);
            arena_destroy(scratch);
            TRY(status);
            sentence_end(out, line);
        }
        text += bytes + 1;
    }
    return STATUS_OK;
}

/* ---- both ---- */

static bool is_json(const char *path, TaggedFormat format) {
    if (format != TAGGED_BY_NAME) return format == TAGGED_JSONL;
    return path_is_json_lines(path) || path_has_ending(path, ".json");
}

static Status read_with(TaggedWords *out, const TaggedColumns *columns, Arena *arena,
                        Loc at, Diag *diag) {
    char *text;
    size_t length;
    int64_t word = 0, tag = 0;
    const bool tagged = !columns->tag || *columns->tag;
    const bool json = is_json(out->path, columns->format);
    if (!json) TRY(column_number(&word, columns->word, 0, "word", at, diag));
    if (!json) TRY(column_number(&tag, columns->tag, -1, "label", at, diag));
    TRY(file_read(&text, &length, arena, out->path, UINT32_MAX, diag));
    TRY(utf8_check_file(out->path, text, length, diag));
    const size_t mark = utf8_mark_length(text, length);
    TRY(json ? jsonl_read(out, text + mark, length - mark,
                          columns->word ? columns->word : "tokens",
                          columns->tag ? columns->tag : "ner_tags", diag)
             : conll_read(out, text + mark, length - mark, word, tag, tagged, diag));
    if (out->words > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(out->path), NULL,
                     "expected sentences of words, found none");
}

Status tagged_words_read(TaggedWords *out, const char *path, const TaggedColumns *columns,
                         Loc at, Diag *diag) {
    Arena *arena = arena_create();
    *out = (TaggedWords){.path = path};
    const Status status = read_with(out, columns, arena, at, diag);
    arena_destroy(arena);
    return status;
}

TextSpan tagged_word(const TaggedWords *words, int64_t i) {
    const char *text = words->text.data + words->word[i];
    return (TextSpan){text, strlen(text)};
}

const char *tagged_tag(const TaggedWords *words, int64_t i) {
    return words->text.data + words->tag[i];
}

Loc tagged_loc(const TaggedWords *words, int64_t sentence) {
    return (Loc){words->path, words->line[sentence], 0};
}

void tagged_words_free(TaggedWords *words) {
    text_free(&words->text);
    free(words->word);
    free(words->tag);
    free(words->first);
    free(words->line);
    *words = (TaggedWords){0};
}
