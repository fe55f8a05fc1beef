/* Corpus text: see corpus_text.h. */
#include "io/datasets/corpus_text.h"

#include "io/files/file.h"
#include "io/files/folder.h"
#include "io/files/json.h"
#include "io/files/path.h"
#include "io/files/text_start.h"
#include "io/tokenizers/unicode.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

enum {
    WORD_BYTES = 1024,     /* how far the end of a word is looked for, */
    LINE_BYTES = 64 << 20, /* and that of a line */
};

typedef struct CorpusFile {
    const char *path;
    Buf *map;
    const char *data;
    int64_t bytes, start; /* start: bytes of the files before it */
    bool is_lines;        /* JSON Lines */
} CorpusFile;

struct CorpusText {
    Arena *arena; /* holds this struct */
    CorpusFile *files;
    int count;
    const char *field, *separator;
    int64_t begin, end; /* of the part, in bytes over all files */
    bool skip_damaged;
    atomic_bool *warned; /* of what is left out */
};

/* ---- words and lines ---- */

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static bool is_inside(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* The first word that starts at `at` or behind it. */
static int64_t word_start(const char *text, int64_t at, int64_t end) {
    if (at <= 0 || at >= end || is_space(text[at - 1])) return at < end ? at : end;
    const int64_t last = end - at > WORD_BYTES ? at + WORD_BYTES : end;
    for (int64_t i = at; i < last; i++)
        if (is_space(text[i])) return i + 1;
    if (last == end) return end;
    while (at < end && is_inside(text[at])) at++;
    return at;
}

/* The end of a piece from `from` on that is to end at `at`: behind a space, else between
 * two characters; behind `from` in any case. */
static int64_t piece_end(const char *text, int64_t from, int64_t at, int64_t end) {
    if (at >= end) return end;
    const int64_t first = at - from > WORD_BYTES ? at - WORD_BYTES : from;
    for (int64_t i = at; i > first; i--)
        if (is_space(text[i - 1])) return i;
    while (at < end && is_inside(text[at])) at++;
    return at;
}

/* Whether the line that starts at `at` is the separator; where the next one starts. */
static bool is_separator(const CorpusText *corpus, const CorpusFile *file, int64_t at,
                         int64_t *next) {
    const int64_t length = (int64_t)strlen(corpus->separator);
    if (file->bytes - at < length ||
        memcmp(file->data + at, corpus->separator, (size_t)length) != 0)
        return false;
    at += length;
    if (at < file->bytes && file->data[at] == '\r') at++;
    if (at < file->bytes && file->data[at] != '\n') return false;
    *next = at < file->bytes ? at + 1 : at;
    return true;
}

/* Whether a line starts at `at`. */
static bool is_line(const CorpusFile *file, int64_t at) {
    return at == 0 || file->data[at - 1] == '\n';
}

/* The end of the line that `at` is in; -1 = too far away. */
static int64_t line_end(const CorpusFile *file, int64_t at) {
    const int64_t left = file->bytes - at, most = left < LINE_BYTES ? left : LINE_BYTES;
    const char *stop = memchr(file->data + at, '\n', (size_t)most);
    return stop ? stop - file->data : most == left ? file->bytes : -1;
}

/* ---- places ---- */

/* A byte of the corpus as one of a file. */
static CorpusPlace place_of(const CorpusText *corpus, int64_t at) {
    int file = 0;
    while (file < corpus->count - 1 && corpus->files[file + 1].start <= at) file++;
    return (CorpusPlace){.file = file, .byte = at - corpus->files[file].start};
}

/* Where the part ends in a file. */
static int64_t stop_of(const CorpusText *corpus, const CorpusFile *file) {
    const int64_t stop = corpus->end - file->start;
    return stop < file->bytes ? stop : file->bytes;
}

/* Moves a place that is behind its file's last byte on to the next file of the part, or
 * the part's beginning; false where it did that. */
static bool stay(const CorpusText *corpus, CorpusPlace *place) {
    const CorpusFile *file = &corpus->files[place->file];
    if (place->byte < stop_of(corpus, file)) return true;
    const int64_t next = file->start + file->bytes;
    *place = place_of(corpus, next < corpus->end ? next : corpus->begin);
    return false;
}

/* ---- documents of text ---- */

/* Whether a document begins at a byte of a file. */
static bool begins_at(const CorpusText *corpus, const CorpusFile *file, int64_t at) {
    const int64_t mark = (int64_t)utf8_mark_length(file->data, (size_t)file->bytes);
    if (at <= mark) return true;
    if (!corpus->separator || !is_line(file, at)) return false;
    const int64_t length = (int64_t)strlen(corpus->separator);
    for (int64_t end = at - 1; end >= at - 2; end--) { /* \n or \r\n behind it */
        int64_t next;
        if (end >= length && is_line(file, end - length) &&
            is_separator(corpus, file, end - length, &next) && next == at)
            return true;
    }
    return false;
}

/* The first separator that starts in [from, end); end = none. */
static int64_t find_separator(const CorpusText *corpus, const CorpusFile *file,
                              int64_t from, int64_t end, int64_t *next) {
    for (int64_t at = from; corpus->separator && at < end;) {
        if (is_line(file, at) && is_separator(corpus, file, at, next)) return at;
        const char *stop = memchr(file->data + at, '\n', (size_t)(end - at));
        at = stop ? stop + 1 - file->data : end;
    }
    return end;
}

static void next_of_text(CorpusPiece *piece, CorpusPlace *place, const CorpusText *corpus,
                         int64_t bytes) {
    const CorpusFile *file = &corpus->files[place->file];
    const int64_t stop = stop_of(corpus, file);
    int64_t from = place->byte;
    *piece = (CorpusPiece){.begins = begins_at(corpus, file, from)};
    if (from == 0) from = (int64_t)utf8_mark_length(file->data, (size_t)stop);
    const int64_t wanted = bytes < stop - from ? from + bytes : stop;
    const int64_t limit = piece_end(file->data, from, wanted, stop);
    place->byte = limit;
    const int64_t end = find_separator(corpus, file, from, limit, &place->byte);
    piece->ends = end < limit || end == stop;
    piece->text = (TextSpan){file->data + from, (size_t)(end - from)};
}

/* ---- what is damaged ---- */

static void warn_of_damage(const CorpusText *corpus, const CorpusFile *file, int64_t byte,
                           Diag *diag) {
    if (atomic_exchange(corpus->warned, true)) return;
    diag_warn(diag, LOC_FILE(file->path), NULL,
              "damaged text is left out, the first at byte %" PRId64, byte);
}

/* Fails with a hint at how to go on. */
static Status fail_damaged(Status status, Diag *diag) {
    diag_hint(diag,
              "`on_error: skip` of the data set leaves such places out, and changes "
              "nothing of what was read before");
    return status;
}

/* Bytes of a text in front of the first that is no UTF-8, or a NUL. */
static size_t sound_bytes(TextSpan text) {
    const size_t good = utf8_check(text.text, text.length);
    const char *zero = memchr(text.text, 0, good);
    return zero ? (size_t)(zero - text.text) : good;
}

/* Whether a character that is sound begins at a byte of a text. */
static bool begins_character(TextSpan text, size_t at) {
    const size_t left = text.length - at;
    return sound_bytes((TextSpan){text.text + at, left < UTF8_MAX ? left : UTF8_MAX}) > 0;
}

/* ---- lines of JSON ---- */

static Status fail_line(const CorpusFile *file, int64_t at, Diag *diag) {
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                     "expected lines of at most %d MiB, that of byte %" PRId64
                     " has more",
                     LINE_BYTES >> 20, at);
}

static bool is_blank(TextSpan line) {
    for (size_t i = 0; i < line.length; i++)
        if (!is_space(line.text[i])) return false;
    return true;
}

/* Fails at a line that is no JSON, whose number is counted for that. */
static Status fail_json(const CorpusFile *file, TextSpan line, Arena *arena, Diag *diag) {
    Tree *object;
    int number = 1;
    for (const char *at = file->data; (at = memchr(at, '\n', (size_t)(line.text - at)));
         at++)
        number++;
    return fail_damaged(
        json_parse_line(&object, arena, file->path, number, line.text, line.length, diag),
        diag);
}

/* The text of the line [from, end), in the arena; none of an empty line, and of a damaged
 * one that is left out. */
static Status parse_line(TextSpan *out, const CorpusText *corpus, const CorpusFile *file,
                         int64_t from, int64_t end, Arena *arena, Diag *diag) {
    Tree *object = NULL;
    const TextSpan line = {file->data + from, (size_t)(end - from)};
    *out = (TextSpan){"", 0};
    if (is_blank(line)) return STATUS_OK;
    Diag *aside = diag_create();
    const Status status =
        json_parse_line(&object, arena, file->path, 0, line.text, line.length, aside);
    if (status != STATUS_FORMAT) diag_take(diag, aside);
    diag_destroy(aside);
    if (status != STATUS_OK && status != STATUS_FORMAT) return status;
    const bool is_map = status == STATUS_OK && object->kind == TREE_MAP;
    const Tree *text = is_map ? tree_get(object, corpus->field) : NULL;
    if (text && text->kind == TREE_STRING) {
        *out = (TextSpan){text->string, strlen(text->string)};
        return STATUS_OK;
    }
    if (corpus->skip_damaged) {
        warn_of_damage(corpus, file, from, diag);
        return STATUS_OK;
    }
    if (status == STATUS_FORMAT) return fail_json(file, line, arena, diag);
    return fail_damaged(diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path),
                                  corpus->field,
                                  "expected an object with a text of this key in the "
                                  "line at byte %" PRId64,
                                  from),
                        diag);
}

static Status next_of_lines(CorpusPiece *piece, CorpusPlace *place,
                            const CorpusText *corpus, int64_t bytes, Arena *arena,
                            Diag *diag) {
    const CorpusFile *file = &corpus->files[place->file];
    const int64_t end = line_end(file, place->byte);
    TextSpan text;
    if (end < 0) return fail_line(file, place->byte, diag);
    TRY(parse_line(&text, corpus, file, place->byte, end, arena, diag));
    const int64_t length = (int64_t)text.length;
    const int64_t from = place->within < length ? place->within : length;
    const int64_t wanted = bytes < length - from ? from + bytes : length;
    const int64_t stop = piece_end(text.text, from, wanted, length);
    *piece = (CorpusPiece){{text.text + from, (size_t)(stop - from)},
                           .begins = from == 0,
                           .ends = stop == length};
    place->within = piece->ends ? 0 : stop;
    if (piece->ends) place->byte = end < file->bytes ? end + 1 : end;
    return STATUS_OK;
}

/* ---- reading ---- */

/* Checks a piece of the text that starts at `at`. Of one that is damaged what is in front
 * of that is left where such is skipped, and the place is behind it. */
static Status check_piece(CorpusPiece *piece, CorpusPlace *place,
                          const CorpusText *corpus, const CorpusPlace *at, Diag *diag) {
    const CorpusFile *file = &corpus->files[at->file];
    const TextSpan text = piece->text;
    const size_t good = sound_bytes(text);
    if (good == text.length) return STATUS_OK;
    const int64_t byte =
        file->is_lines ? at->byte : text.text - file->data + (int64_t)good;
    if (!corpus->skip_damaged)
        return fail_damaged(diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                                      "expected text in UTF-8 without NUL, byte %" PRId64
                                      " is none",
                                      byte),
                            diag);
    warn_of_damage(corpus, file, byte, diag);
    size_t next = good + 1;
    while (next < text.length && !begins_character(text, next)) next++;
    piece->text.length = good;
    piece->cut = true;
    if (file->is_lines) return STATUS_OK;
    piece->ends = piece->ends && next == text.length;
    if (next < text.length)
        *place = (CorpusPlace){.file = at->file,
                               .byte = text.text - file->data + (int64_t)next};
    return STATUS_OK;
}

Status corpus_text_next(CorpusPiece *piece, CorpusPlace *place, const CorpusText *corpus,
                        int64_t bytes, Arena *arena, Diag *diag) {
    for (int moves = 0; moves <= 2 * corpus->count + 2;) {
        if (!stay(corpus, place)) {
            moves++;
            continue;
        }
        const CorpusPlace at = *place;
        if (corpus->files[at.file].is_lines)
            TRY(next_of_lines(piece, place, corpus, bytes, arena, diag));
        else
            next_of_text(piece, place, corpus, bytes);
        if (piece->text.length > 0) TRY(check_piece(piece, place, corpus, &at, diag));
        if (piece->text.length > 0) return STATUS_OK;
    }
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(corpus->files[0].path), NULL,
                     "expected text, the corpus has none in its part");
}

Status corpus_text_seek(CorpusPlace *place, const CorpusText *corpus, int64_t at,
                        Arena *arena, Diag *diag) {
    *place = place_of(corpus, corpus->begin + at);
    const CorpusFile *file = &corpus->files[place->file];
    if (!file->is_lines) {
        place->byte = word_start(file->data, place->byte, stop_of(corpus, file));
        return STATUS_OK;
    }
    const int64_t byte = place->byte;
    const int64_t least = byte > LINE_BYTES ? byte - LINE_BYTES : 0;
    const char *before = memrchr(file->data + least, '\n', (size_t)(byte - least));
    if (!before && least > 0) return fail_line(file, byte, diag);
    place->byte = before ? before + 1 - file->data : 0;
    const int64_t end = line_end(file, byte);
    if (end < 0) return fail_line(file, byte, diag);
    TextSpan text;
    TRY(parse_line(&text, corpus, file, place->byte, end, arena, diag));
    const double share = (double)(byte - place->byte) / (double)(end - place->byte + 1);
    const int64_t length = (int64_t)text.length;
    place->within = word_start(text.text, (int64_t)(share * (double)length), length);
    return STATUS_OK;
}

const char *corpus_text_file(const CorpusText *corpus, const CorpusPlace *place) {
    return corpus->files[place->file].path;
}

int64_t corpus_text_bytes(const CorpusText *corpus) {
    return corpus->end - corpus->begin;
}

/* ---- opening ---- */

static Status add_file(CorpusText *corpus, const char *path, int64_t *bytes, Diag *diag) {
    CorpusFile *file = &corpus->files[corpus->count];
    *file = (CorpusFile){.path = arena_strdup(corpus->arena, path), .start = *bytes};
    TRY(file_map(&file->map, path, diag));
    file->data = buf_data(file->map);
    file->bytes = (int64_t)buf_bytes(file->map);
    file->is_lines = path_is_json_lines(path);
    *bytes += file->bytes;
    corpus->count++;
    return text_start_check(file->path, file->data, (size_t)file->bytes, diag);
}

static Status add_files(CorpusText *corpus, const char *path, int64_t *bytes,
                        Diag *diag) {
    const char **names;
    int64_t count;
    if (!path_is_folder(path)) {
        corpus->files = ARENA_NEW(corpus->arena, CorpusFile);
        return add_file(corpus, path, bytes, diag);
    }
    TRY(folder_names(&names, &count, corpus->arena, path, diag));
    corpus->files = ARENA_ARRAY(corpus->arena, CorpusFile, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        if (path_has_ending(names[i], ".txt") || path_is_json_lines(names[i]))
            TRY(add_file(corpus, path_join(corpus->arena, path, names[i]), bytes, diag));
    if (corpus->count > 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                     "expected files .txt or .jsonl in the folder, found none");
}

/* The byte at a share of all, moved on to where a line begins, or in texts without lines
 * a word. */
static Status share_byte(int64_t *out, const CorpusText *corpus, double share,
                         int64_t bytes, Diag *diag) {
    *out = share < 1 ? (int64_t)(share * (double)bytes) : bytes;
    if (*out == 0 || *out == bytes) return STATUS_OK;
    const CorpusPlace place = place_of(corpus, *out);
    const CorpusFile *file = &corpus->files[place.file];
    if (is_line(file, place.byte)) return STATUS_OK;
    int64_t at = line_end(file, place.byte);
    if (at < 0 && file->is_lines) return fail_line(file, place.byte, diag);
    if (at < 0)
        at = word_start(file->data, place.byte, file->bytes);
    else if (at < file->bytes)
        at++;
    *out = file->start + at;
    return STATUS_OK;
}

static Status fill(CorpusText *corpus, const char *path, const CorpusRules *rules,
                   Diag *diag) {
    int64_t bytes = 0;
    corpus->field = arena_strdup(corpus->arena, rules->field);
    corpus->skip_damaged = rules->skip_damaged;
    corpus->warned = ARENA_NEW(corpus->arena, atomic_bool);
    if (rules->separator && *rules->separator)
        corpus->separator = arena_strdup(corpus->arena, rules->separator);
    TRY(add_files(corpus, path, &bytes, diag));
    TRY(share_byte(&corpus->begin, corpus, rules->from, bytes, diag));
    TRY(share_byte(&corpus->end, corpus, rules->to, bytes, diag));
    if (corpus->begin < corpus->end) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                     "expected text between %g and %g of the corpus, found none",
                     rules->from, rules->to);
}

Status corpus_text_open(CorpusText **out, const char *path, const CorpusRules *rules,
                        Diag *diag) {
    Arena *arena = arena_create();
    CorpusText *corpus = ARENA_NEW(arena, CorpusText);
    corpus->arena = arena;
    const Status status = fill(corpus, path, rules, diag);
    if (status == STATUS_OK)
        *out = corpus;
    else
        corpus_text_close(corpus);
    return status;
}

void corpus_text_close(CorpusText *corpus) {
    if (!corpus) return;
    for (int i = 0; i < corpus->count; i++) buf_release(corpus->files[i].map);
    arena_destroy(corpus->arena);
}
