/* Zip: see zip.h. */
#include "io/pytorch/zip.h"

#include "io/datasets/gzip.h"
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    COMMENT_MAX = 65535,
    NAME_MAX_BYTES = 512,
    ENTRIES_MAX = 1 << 20,
    ZIP64_FIELD = 1, /* of extra fields: sizes of 64 bits */
    METHOD_DEFLATE = 8,
    INFLATED_RATIO = 128, /* of a file to its entries, beside ... */
    INFLATED_MIN = 64 << 20,
    ALIGNMENT = 64 /* of entries in memory, as torch.save has them in files */
};

static const uint32_t LOCAL_SIGNATURE = 0x04034b50, CENTRAL_SIGNATURE = 0x02014b50,
                      END_SIGNATURE = 0x06054b50, LOCATOR_SIGNATURE = 0x07064b50,
                      END64_SIGNATURE = 0x06064b50, DESCRIPTOR_SIGNATURE = 0x08074b50,
                      ALL_ONES = 0xffffffff;

/* Bits of an entry's flags. */
enum { FLAG_ENCRYPTED = 1, FLAG_DESCRIPTOR = 8, FLAG_STRONG = 64 };

typedef struct ZipReader {
    const unsigned char *data;
    size_t bytes;
    Arena *arena;
    const char *path;
    Diag *diag;
    size_t directory, directory_end; /* the central directory */
    uint64_t count;
} ZipReader;

/* What the central directory says of an entry. */
typedef struct Central {
    const unsigned char *name;
    size_t name_bytes, extra_bytes, comment_bytes;
    uint16_t flags, method;
    uint32_t crc;
    uint64_t packed, bytes, header;
} Central;

#define FAIL(reader, name, ...)                                                          \
    diag_fail((reader)->diag, STATUS_FORMAT, LOC_FILE((reader)->path), name, __VA_ARGS__)

static uint16_t get16(const unsigned char *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const unsigned char *p) {
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const unsigned char *p) {
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

bool zip_probe(const void *data, size_t bytes) {
    return bytes >= 4 && get32(data) == LOCAL_SIGNATURE;
}

/* --- where the directory is --- */

/* The record at the file's end, which may be followed by a comment up to the end. */
static Status find_end(const ZipReader *reader, size_t *out) {
    const size_t bytes = reader->bytes;
    for (size_t back = END_BYTES; back <= bytes && back <= END_BYTES + COMMENT_MAX;
         back++) {
        const unsigned char *p = reader->data + bytes - back;
        if (get32(p) != END_SIGNATURE || get16(p + 20) != back - END_BYTES) continue;
        *out = bytes - back;
        return STATUS_OK;
    }
    FAIL(reader, NULL, "expected the directory of a zip archive at the end, found none");
    diag_hint(reader->diag, "the file may not be complete");
    return STATUS_FORMAT;
}

/* Checks that a number of 32 or 16 bits is that of 64 bits, or says that it is there. */
static bool agrees(uint64_t small, uint64_t ones, uint64_t large) {
    return small == large || small == ones;
}

/* The record of 64 bits, which stands right before its locator. */
static Status read_end64(ZipReader *reader, size_t end, uint64_t *offset,
                         uint64_t *length) {
    const unsigned char *p = reader->data + end, *locator = p - LOCATOR_BYTES;
    const uint64_t at = get64(locator + 8);
    const size_t last = end - LOCATOR_BYTES;
    if (get32(locator + 4) != 0 || get32(locator + 16) > 1 || last < END64_BYTES ||
        at > last - END64_BYTES || get32(reader->data + at) != END64_SIGNATURE)
        return FAIL(reader, NULL, "the locator of the ZIP64 directory leads nowhere");
    const unsigned char *record = reader->data + at;
    if (get64(record + 4) != last - at - 12 || get32(record + 16) != 0 ||
        get32(record + 20) != 0 || get64(record + 24) != get64(record + 32))
        return FAIL(reader, NULL, "the record of the ZIP64 directory is damaged");
    reader->count = get64(record + 32);
    *length = get64(record + 40);
    *offset = get64(record + 48);
    if (!agrees(get16(p + 10), 0xffff, reader->count) ||
        !agrees(get32(p + 12), ALL_ONES, *length) ||
        !agrees(get32(p + 16), ALL_ONES, *offset))
        return FAIL(reader, NULL, "the two records of the directory differ");
    reader->directory_end = (size_t)at;
    return STATUS_OK;
}

static Status find_directory(ZipReader *reader) {
    size_t end;
    TRY(find_end(reader, &end));
    const unsigned char *p = reader->data + end;
    uint64_t offset = get32(p + 16), length = get32(p + 12);
    reader->count = get16(p + 10);
    reader->directory_end = end;
    if (end >= LOCATOR_BYTES && get32(p - LOCATOR_BYTES) == LOCATOR_SIGNATURE)
        TRY(read_end64(reader, end, &offset, &length));
    if (get16(p + 4) != 0 || get16(p + 6) != 0)
        return FAIL(reader, NULL, "archives of several parts are not read");
    if (offset > reader->directory_end || length != reader->directory_end - offset)
        return FAIL(reader, NULL,
                    "expected the directory to end at byte %zu, found it at %llu with "
                    "%llu bytes",
                    reader->directory_end, (unsigned long long)offset,
                    (unsigned long long)length);
    if (reader->count > length / CENTRAL_BYTES || reader->count > ENTRIES_MAX)
        return FAIL(reader, NULL, "a directory of %llu bytes cannot hold %llu entries",
                    (unsigned long long)length, (unsigned long long)reader->count);
    reader->directory = (size_t)offset;
    return STATUS_OK;
}

/* --- entries --- */

/* Replaces numbers that are all ones by those of the ZIP64 field, which has them in the
 * order of the pointers; false when it lacks one. */
static bool read_zip64(const unsigned char *extra, size_t length,
                       uint64_t *const *numbers, int count) {
    int open = 0;
    for (int i = 0; i < count; i++) open += *numbers[i] == ALL_ONES;
    while (open > 0 && length >= 4) {
        const size_t bytes = get16(extra + 2);
        if (bytes > length - 4) return false;
        if (get16(extra) == ZIP64_FIELD) {
            const unsigned char *p = extra + 4;
            if (bytes < 8 * (size_t)open) return false;
            for (int i = 0; i < count; i++)
                if (*numbers[i] == ALL_ONES) *numbers[i] = get64(p), p += 8;
            return true;
        }
        extra += 4 + bytes;
        length -= 4 + bytes;
    }
    return open == 0;
}

/* Names are paths inside of the archive, as plain as torch.save has them. */
static Status check_name(const ZipReader *reader, const Central *central,
                         const char **out) {
    const char *text = (const char *)central->name;
    const size_t length = central->name_bytes;
    bool plain = length > 0 && length <= NAME_MAX_BYTES && text[0] != '/';
    for (size_t i = 0; i < length && plain; i++) {
        const unsigned char c = central->name[i];
        const bool begins = i == 0 || text[i - 1] == '/';
        const bool dots = begins && length - i >= 2 && text[i] == '.' &&
                          text[i + 1] == '.' && (length - i == 2 || text[i + 2] == '/');
        plain = c >= 0x20 && c != 0x7f && c != '\\' && c != ':' && !dots;
    }
    *out = arena_strndup(reader->arena, text, length);
    const bool readable = utf8_is_valid(*out);
    if (plain && readable) return STATUS_OK;
    Text name = {0};
    text_quoted(&name, readable ? *out : "?");
    FAIL(reader, NULL,
         "expected entries with plain paths inside of the archive, found %.100s",
         name.data);
    text_free(&name);
    return STATUS_FORMAT;
}

/* Reads a record of the directory and moves `at` behind it. */
static Status read_central(const ZipReader *reader, size_t *at, Central *out) {
    const unsigned char *p = reader->data + *at;
    const size_t left = reader->directory_end - *at;
    if (left < CENTRAL_BYTES || get32(p) != CENTRAL_SIGNATURE)
        return FAIL(reader, NULL, "expected an entry of the directory at byte %zu", *at);
    *out = (Central){.name = p + CENTRAL_BYTES,
                     .name_bytes = get16(p + 28),
                     .extra_bytes = get16(p + 30),
                     .comment_bytes = get16(p + 32),
                     .flags = get16(p + 8),
                     .method = get16(p + 10),
                     .crc = get32(p + 16),
                     .packed = get32(p + 20),
                     .bytes = get32(p + 24),
                     .header = get32(p + 42)};
    const size_t whole =
        CENTRAL_BYTES + out->name_bytes + out->extra_bytes + out->comment_bytes;
    if (whole > left)
        return FAIL(reader, NULL, "the entry at byte %zu goes beyond the directory", *at);
    uint64_t *const numbers[] = {&out->bytes, &out->packed, &out->header};
    if (!read_zip64(out->name + out->name_bytes, out->extra_bytes, numbers, 3))
        return FAIL(reader, NULL, "the entry at byte %zu lacks its sizes of 64 bits",
                    *at);
    *at += whole;
    return STATUS_OK;
}

/* Whether the descriptor behind the data, with or without a signature and with sizes of
 * 32 or 64 bits, says what the directory says; `end` moves behind it. */
static bool read_descriptor(const ZipReader *reader, const Central *central,
                            size_t *end) {
    const unsigned char *p = reader->data + *end;
    size_t left = reader->directory - *end, skipped = 0;
    if (left >= 4 && get32(p) == DESCRIPTOR_SIGNATURE) skipped = 4;
    p += skipped;
    left -= skipped;
    if (left < 12 || get32(p) != central->crc) return false;
    const bool wide =
        left >= 20 && get64(p + 4) == central->packed && get64(p + 12) == central->bytes;
    if (!wide && (get32(p + 4) != central->packed || get32(p + 8) != central->bytes))
        return false;
    *end += skipped + (wide ? 20 : 12);
    return true;
}

/* Whether a local header says the same as the directory. Sizes and checksum may stand
 * behind the data instead; they are zero, or all ones, then. */
static bool headers_agree(const unsigned char *p, const Central *central,
                          const unsigned char *extra) {
    uint64_t bytes = get32(p + 22), packed = get32(p + 18);
    const uint32_t crc = get32(p + 14);
    const bool later = central->flags & FLAG_DESCRIPTOR;
    uint64_t *const numbers[] = {&bytes, &packed};
    if (get16(p + 6) != central->flags || get16(p + 8) != central->method) return false;
    if (get16(p + 26) != central->name_bytes ||
        memcmp(p + LOCAL_BYTES, central->name, central->name_bytes) != 0)
        return false;
    if (later && crc == 0 && bytes == packed && (bytes == 0 || bytes == ALL_ONES))
        return true;
    return read_zip64(extra, get16(p + 28), numbers, 2) && crc == central->crc &&
           packed == central->packed && bytes == central->bytes;
}

/* Finds the data of an entry behind its local header. */
static Status find_data(const ZipReader *reader, const Central *central,
                        ZipEntry *entry) {
    const char *name = entry->name;
    const size_t most = reader->directory;
    if (central->header > most || most - central->header < LOCAL_BYTES)
        return FAIL(reader, name, "its header would lie outside of the archive");
    const unsigned char *p = reader->data + central->header;
    const size_t head = LOCAL_BYTES + (size_t)get16(p + 26) + get16(p + 28);
    if (get32(p) != LOCAL_SIGNATURE || head > most - central->header)
        return FAIL(reader, name, "expected its header at byte %llu, found none",
                    (unsigned long long)central->header);
    if (!headers_agree(p, central, p + LOCAL_BYTES + get16(p + 26)))
        return FAIL(reader, name, "its header and the directory differ");
    entry->header = (size_t)central->header;
    entry->offset = entry->header + head;
    if (central->packed > most - entry->offset)
        return FAIL(reader, name, "its %llu bytes go beyond the entries' %zu",
                    (unsigned long long)central->packed, most);
    entry->bytes = (size_t)central->bytes;
    entry->packed = (size_t)central->packed;
    entry->end = entry->offset + entry->packed;
    if (central->flags & FLAG_DESCRIPTOR &&
        !read_descriptor(reader, central, &entry->end))
        return FAIL(reader, name, "the record behind its data and the directory differ");
    return STATUS_OK;
}

static Status read_entry(const ZipReader *reader, const Central *central,
                         ZipEntry *entry) {
    *entry = (ZipEntry){.crc = central->crc};
    TRY(check_name(reader, central, &entry->name));
    if (central->flags & (FLAG_ENCRYPTED | FLAG_STRONG))
        return FAIL(reader, entry->name, "encrypted entries are not read");
    entry->deflated = central->method == METHOD_DEFLATE;
    if (central->method != 0 && !entry->deflated) {
        FAIL(reader, entry->name,
             "expected a stored or deflated entry, found compression method %d",
             central->method);
        diag_hint(reader->diag, "torch.save stores: save the file again with it");
        return STATUS_FORMAT;
    }
    if (!entry->deflated && central->packed != central->bytes)
        return FAIL(reader, entry->name, "a stored entry has two sizes: %llu and %llu",
                    (unsigned long long)central->packed,
                    (unsigned long long)central->bytes);
    return find_data(reader, central, entry);
}

static int entry_by_place(const void *a, const void *b) {
    const ZipEntry *x = a, *y = b;
    return (x->header > y->header) - (x->header < y->header);
}

static int entry_by_name(const void *a, const void *b) {
    return strcmp(((const ZipEntry *)a)->name, ((const ZipEntry *)b)->name);
}

/* No two entries share bytes or a name; leaves them sorted by name. */
static Status check_entries(const ZipReader *reader, const Zip *zip) {
    ZipEntry *entries = zip->entries;
    if (zip->count == 0) return FAIL(reader, NULL, "the archive is empty");
    qsort(entries, (size_t)zip->count, sizeof *entries, entry_by_place);
    for (int i = 1; i < zip->count; i++)
        if (entries[i].header < entries[i - 1].end)
            return FAIL(reader, entries[i].name, "the entry overlaps '%s'",
                        entries[i - 1].name);
    qsort(entries, (size_t)zip->count, sizeof *entries, entry_by_name);
    for (int i = 1; i < zip->count; i++)
        if (strcmp(entries[i].name, entries[i - 1].name) == 0)
            return FAIL(reader, entries[i].name, "two entries have this name");
    return STATUS_OK;
}

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Bytes that the entries take in memory; fails where they are too many. */
static Status measure_entries(const ZipReader *reader, const Zip *zip, size_t *out) {
    const uint64_t limit = INFLATED_MIN + INFLATED_RATIO * (uint64_t)reader->bytes;
    uint64_t total = 0;
    for (int i = 0; i < zip->count; i++) {
        const ZipEntry *entry = &zip->entries[i];
        if (entry->bytes <= limit) total += aligned(entry->bytes);
        if (entry->bytes > limit || total > limit)
            return FAIL(reader, entry->name,
                        "its compressed entries would take more than %llu bytes",
                        (unsigned long long)limit);
    }
    *out = (size_t)total;
    return STATUS_OK;
}

/* Puts all entries into a buffer in the file's place, as they were. */
static Status inflate_entries(const ZipReader *reader, Zip *zip, Buf **file) {
    size_t total = 0, at = 0;
    bool any = false;
    Buf *whole;
    for (int i = 0; i < zip->count; i++) any |= zip->entries[i].deflated;
    if (!any) return STATUS_OK;
    TRY(measure_entries(reader, zip, &total));
    TRY(buf_create(&whole, total, reader->diag));
    unsigned char *to = (unsigned char *)buf_data(whole);
    Status status = STATUS_OK;
    for (int i = 0; i < zip->count && status == STATUS_OK; i++) {
        ZipEntry *entry = &zip->entries[i];
        const unsigned char *from = reader->data + entry->offset;
        if (entry->deflated)
            status = deflate_read(to + at, entry->bytes, from, entry->packed,
                                  reader->path, entry->name, reader->diag);
        else if (entry->bytes > 0)
            memcpy(to + at, from, entry->bytes);
        if (status == STATUS_OK && entry->deflated &&
            zip_crc(to + at, entry->bytes) != entry->crc)
            status = FAIL(reader, entry->name, "its data does not match its checksum");
        entry->offset = at;
        at += aligned(entry->bytes);
    }
    buf_release(status == STATUS_OK ? *file : whole);
    if (status == STATUS_OK) *file = whole;
    return status;
}

Status zip_read(Zip *out, Arena *arena, Buf **file, const char *path, Diag *diag) {
    ZipReader reader = {.data = buf_data(*file),
                        .bytes = buf_bytes(*file),
                        .arena = arena,
                        .path = path,
                        .diag = diag};
    TRY(find_directory(&reader));
    *out = (Zip){.entries = ARENA_ARRAY(arena, ZipEntry, (size_t)reader.count)};
    size_t at = reader.directory;
    for (uint64_t i = 0; i < reader.count; i++) {
        Central central;
        TRY(read_central(&reader, &at, &central));
        TRY(read_entry(&reader, &central, &out->entries[out->count]));
        const bool folder = central.name[central.name_bytes - 1] == '/';
        out->count += !folder || central.bytes > 0;
    }
    if (at != reader.directory_end)
        return FAIL(&reader, NULL, "%zu bytes after the directory's last entry",
                    reader.directory_end - at);
    TRY(check_entries(&reader, out));
    return inflate_entries(&reader, out, file);
}

const ZipEntry *zip_find(const Zip *zip, const char *name) {
    const ZipEntry wanted = {.name = name};
    return bsearch(&wanted, zip->entries, (size_t)zip->count, sizeof wanted,
                   entry_by_name);
}

uint32_t zip_crc(const void *data, size_t bytes) {
    const unsigned char *p = data;
    uint32_t table[16], crc = ALL_ONES;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320 : 0);
    }
    for (size_t i = 0; i < bytes; i++) {
        crc = table[(crc ^ p[i]) & 15] ^ crc >> 4;
        crc = table[(crc ^ p[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}
