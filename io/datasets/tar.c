/* Tar: see tar.h. */
#include "io/datasets/tar.h"

#include "io/files/text_start.h"
#include "ir/mapped.h"
#include "ir/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BLOCK = 512, NAME_MOST = 4096, EXTENDED_MOST = 1 << 20 };

/* Pages are given back whenever so much of an archive was passed. */
#define DROP_BYTES ((size_t)16 << 20)

/* Fields of a header: where they start, and their bytes. */
enum { NAME = 0, NAME_BYTES = 100, SIZE = 124, NUMBER_BYTES = 12, SUM = 148 };
enum { SUM_BYTES = 8, KIND = 156, MAGIC = 257, PREFIX = 345, PREFIX_BYTES = 155 };

/* A walk through an archive. */
typedef struct Tar {
    const Buf *archive;
    const uint8_t *data;
    const char *path;
    size_t bytes, at;         /* at: of the header that is read */
    char name[NAME_MOST + 1]; /* of the file, from its header or from those before it */
    bool named;               /* a header before it says the name */
    bool sized;               /* and the size */
    size_t size;              /* in that case */
} Tar;

static bool ends_in(const char *name, const char *ending) {
    const size_t length = strlen(name), own = strlen(ending);
    return length > own && strcasecmp(name + length - own, ending) == 0;
}

bool tar_is_named(const char *name) {
    return ends_in(name, ".tar");
}

bool tar_is_packed(const char *name) {
    static const char *const ENDINGS[] = {".tar.gz", ".tgz", ".tar.zst", ".tar.xz",
                                          ".tar.bz2"};
    for (size_t i = 0; i < sizeof ENDINGS / sizeof *ENDINGS; i++)
        if (ends_in(name, ENDINGS[i])) return true;
    return false;
}

static Status damaged(const Tar *tar, const char *what, Diag *diag) {
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(tar->path), NULL,
                     "damaged tar archive: %s, at byte %zu", what, tar->at);
}

/* ---- fields of headers ---- */

/* A number in octal digits, or in GNU's form in binary where the first bit is set. */
static bool read_number(const uint8_t *field, int length, uint64_t *out) {
    uint64_t value = 0;
    int i = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80) return false; /* negative, or far beyond any file */
        for (i = 1; i < length; i++) {
            if (value >> 55) return false;
            value = value << 8 | field[i];
        }
        *out = value;
        return true;
    }
    while (i < length && field[i] == ' ') i++;
    const int first = i;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');
    const bool ended = i == length || field[i] == ' ' || field[i] == 0;
    *out = value;
    return ended && (i > first || field[0] == 0);
}

/* Whether the header's sum is right; old programs took bytes for signed ones. */
static bool sum_holds(const uint8_t *header) {
    uint64_t declared;
    int64_t plain = 0, with_signs = 0;
    if (!read_number(header + SUM, SUM_BYTES, &declared)) return false;
    for (int i = 0; i < BLOCK; i++) {
        const bool own = i >= SUM && i < SUM + SUM_BYTES;
        plain += own ? ' ' : header[i];
        with_signs += own ? ' ' : (int8_t)header[i];
    }
    return (int64_t)declared == plain || (int64_t)declared == with_signs;
}

static bool is_zero(const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i]) return false;
    return true;
}

/* The name of a header that none before it names, with its prefix. */
static void read_name(Tar *tar, const uint8_t *header) {
    const bool posix = memcmp(header + MAGIC, "ustar\0", 6) == 0;
    const char *prefix = (const char *)header + PREFIX, *name = (const char *)header;
    const int before = posix ? (int)strnlen(prefix, PREFIX_BYTES) : 0;
    snprintf(tar->name, sizeof tar->name, "%.*s%s%.*s", before, prefix, before ? "/" : "",
             (int)strnlen(name, NAME_BYTES), name);
}

/* ---- headers that say more of the next one ---- */

static Status take_name(Tar *tar, const uint8_t *text, size_t length, Diag *diag) {
    if (length > NAME_MOST) return damaged(tar, "a name of more than 4096 bytes", diag);
    memcpy(tar->name, text, length);
    tar->name[length] = 0;
    tar->named = true;
    return STATUS_OK;
}

/* One `key=value` of a pax header. */
static Status take_record(Tar *tar, const uint8_t *record, size_t length, Diag *diag) {
    const uint8_t *equals = memchr(record, '=', length);
    if (!equals) return damaged(tar, "a record without '='", diag);
    const size_t key = (size_t)(equals - record), value = length - key - 1;
    if (key == 4 && memcmp(record, "path", 4) == 0)
        return take_name(tar, equals + 1, value, diag);
    if (key >= 11 && memcmp(record, "GNU.sparse.", 11) == 0)
        return damaged(tar, "sparse files are not read", diag);
    if (key != 4 || memcmp(record, "size", 4) != 0) return STATUS_OK;
    size_t size = 0;
    for (size_t i = 0; i < value; i++) {
        const uint8_t digit = equals[1 + i];
        if (digit < '0' || digit > '9' || size > SIZE_MAX / 100)
            return damaged(tar, "a size that is no number", diag);
        size = 10 * size + (size_t)(digit - '0');
    }
    tar->size = size;
    tar->sized = true;
    return STATUS_OK;
}

/* Records "LENGTH key=value\n", whose length counts all of it. */
static Status take_records(Tar *tar, const uint8_t *text, size_t bytes, Diag *diag) {
    for (size_t at = 0; at < bytes;) {
        size_t length = 0, i = at;
        for (; i < bytes && text[i] >= '0' && text[i] <= '9' && length < bytes; i++)
            length = 10 * length + (size_t)(text[i] - '0');
        const size_t left = bytes - at, digits = i - at + 1;
        if (i == bytes || text[i] != ' ' || length <= digits || length > left ||
            text[at + length - 1] != '\n')
            return damaged(tar, "a record of another length than it says", diag);
        TRY(take_record(tar, text + i + 1, length - digits - 1, diag));
        at += length;
    }
    return STATUS_OK;
}

/* ---- the walk ---- */

/* Takes one member, whose bytes lie at `offset`. */
static Status take_member(Tar *tar, char kind, size_t offset, size_t bytes,
                          TarVisit *visit, void *self, Diag *diag) {
    const uint8_t *data = tar->data + offset;
    const bool extends = kind == 'x' || kind == 'g' || kind == 'L' || kind == 'K';
    if (extends && bytes > EXTENDED_MOST)
        return damaged(tar, "a header of more than 1 MiB", diag);
    if (kind == 'x') return take_records(tar, data, bytes, diag);
    if (kind == 'L')
        return take_name(tar, data, strnlen((const char *)data, bytes), diag);
    if (extends) return STATUS_OK; /* of all files, or of where a link leads */
    if (kind == 'S') return damaged(tar, "sparse files are not read", diag);
    const char *name = tar->name;
    while (name[0] == '.' && name[1] == '/') name += 2;
    const TarFile file = {name, offset, bytes};
    const size_t length = strlen(name);
    const bool folder = length > 0 && name[length - 1] == '/'; /* in the oldest form */
    tar->named = tar->sized = false;
    const bool regular = (kind == '0' || kind == 0 || kind == '7') && !folder;
    return regular ? visit(self, &file, diag) : STATUS_OK;
}

/* Reads the header at tar->at, takes its member and goes on to the next header. */
static Status take_header(Tar *tar, TarVisit *visit, void *self, Diag *diag) {
    const uint8_t *header = tar->data + tar->at;
    const char kind = (char)header[KIND];
    const bool empty = kind >= '1' && kind <= '6'; /* links, devices, folders */
    const size_t offset = tar->at + BLOCK, left = tar->bytes - offset;
    uint64_t bytes;
    if (!sum_holds(header))
        return damaged(tar, tar->at ? "a header's sum is wrong" : "no tar header", diag);
    if (!read_number(header + SIZE, NUMBER_BYTES, &bytes))
        return damaged(tar, "a size that is no number", diag);
    const bool extends = kind == 'x' || kind == 'g' || kind == 'L' || kind == 'K';
    if (!extends && tar->sized) bytes = tar->size;
    if (!extends && !tar->named) read_name(tar, header);
    if (empty) bytes = 0;
    if (bytes > left) return damaged(tar, "a file ends behind the archive", diag);
    TRY(take_member(tar, kind, offset, (size_t)bytes, visit, self, diag));
    const size_t whole = ((size_t)bytes + BLOCK - 1) / BLOCK * BLOCK;
    tar->at = whole > left ? tar->bytes : offset + whole;
    return STATUS_OK;
}

/* Says what a file is that is no plain archive. */
static Status check_plain(const Tar *tar, Diag *diag) {
    const Packing *packing = packing_of(tar->data, tar->bytes);
    if (!packing) return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(tar->path), NULL,
              "expected a tar archive, found one compressed by %s", packing->name);
    diag_hint(diag,
              "unpack it (`%s`): images in it are compressed already, and files "
              "are found in place only in plain archives",
              packing->unpack);
    return STATUS_FORMAT;
}

Status tar_visit(const Buf *archive, const char *path, TarVisit *visit, void *self,
                 Diag *diag) {
    Tar tar = {.archive = archive,
               .data = buf_data(archive),
               .path = path,
               .bytes = buf_bytes(archive)};
    size_t dropped = 0;
    if (tar.bytes == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a tar archive, found an empty file");
    TRY(check_plain(&tar, diag));
    while (tar.bytes - tar.at >= BLOCK && !is_zero(tar.data + tar.at, BLOCK)) {
        TRY(take_header(&tar, visit, self, diag));
        if (tar.at - dropped < DROP_BYTES) continue;
        buf_drop_pages(archive, dropped, tar.at - dropped);
        dropped = tar.at;
    }
    if (tar.bytes - tar.at < BLOCK)
        return damaged(&tar, "it ends without zeros, as one that was cut off", diag);
    if (!is_zero(tar.data + tar.at, tar.bytes - tar.at))
        return damaged(&tar, "something follows behind its end", diag);
    buf_drop_pages(archive, dropped, tar.bytes - dropped);
    return STATUS_OK;
}
