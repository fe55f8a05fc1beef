/* Gzip: zlib's inflate over a mapped file. The only file that includes zlib.h.
 *
 * Not zlib's gzread: it takes whatever follows the last member for nothing and leaves it
 * out without a word, where a file with a rest is a damaged one here. */
#include "io/datasets/gzip.h"
#include "io/files/file.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

struct GzipFile {
    char *path;
    Arena *arena;
    Buf *map;
    const uint8_t *data;
    size_t bytes, next;     /* next: first byte not yet consumed */
    bool compressed, ended; /* ended: the last member is complete */
    z_stream stream;
};

static bool is_gzip(const uint8_t *data, size_t bytes) {
    return bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

Status gzip_open(GzipFile **out, const char *path, Diag *diag) {
    Buf *map;
    *out = NULL;
    TRY(file_map(&map, path, diag));
    Arena *arena = arena_create();
    GzipFile *file = ARENA_NEW(arena, GzipFile);
    file->arena = arena;
    file->path = arena_strdup(arena, path);
    file->map = map;
    file->data = buf_data(map);
    file->bytes = buf_bytes(map);
    file->compressed = is_gzip(file->data, file->bytes);
    if (file->compressed && inflateInit2(&file->stream, 15 + 16) != Z_OK) {
        file->compressed = false;
        gzip_close(file);
        return diag_fail(diag, STATUS_MEMORY, LOC_FILE(path), NULL,
                         "no memory to inflate the file");
    }
    *out = file;
    return STATUS_OK;
}

uint64_t gzip_limit(const GzipFile *file) {
    if (!file->compressed) return file->bytes - file->next;
    return ((uint64_t)64 << 20) + 128 * (uint64_t)file->bytes;
}

static Status damaged(const GzipFile *file, Diag *diag) {
    const char *why = file->stream.msg ? file->stream.msg : "invalid data";
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                     "damaged gzip data: %s", why);
}

/* At the end of a member: starts the next one, or notes the end of the file. */
static Status next_member(GzipFile *file, Diag *diag) {
    if (file->next == file->bytes) {
        file->ended = true;
        return STATUS_OK;
    }
    if (!is_gzip(file->data + file->next, file->bytes - file->next))
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                         "%zu bytes follow the end of the gzip data",
                         file->bytes - file->next);
    if (inflateReset(&file->stream) != Z_OK) return damaged(file, diag);
    return STATUS_OK;
}

/* Inflates up to `bytes` (less than 2^30) and says how many came; 0 is the end. */
static Status inflate_some(GzipFile *file, void *data, size_t bytes, size_t *got,
                           Diag *diag) {
    z_stream *stream = &file->stream;
    stream->next_out = data;
    stream->avail_out = (uInt)bytes;
    while (stream->avail_out == (uInt)bytes && !file->ended) {
        size_t left = file->bytes - file->next;
        uInt input = (uInt)(left < (1u << 30) ? left : (1u << 30));
        stream->next_in = (Bytef *)(uintptr_t)(file->data + file->next);
        stream->avail_in = input;
        int result = inflate(stream, Z_NO_FLUSH);
        file->next += input - stream->avail_in;
        if (result == Z_MEM_ERROR)
            return diag_fail(diag, STATUS_MEMORY, LOC_FILE(file->path), NULL,
                             "no memory to inflate the file");
        if (result == Z_BUF_ERROR && file->next == file->bytes)
            return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                             "the gzip data ends early");
        if (result != Z_OK && result != Z_STREAM_END) return damaged(file, diag);
        if (result == Z_STREAM_END) TRY(next_member(file, diag));
    }
    *got = bytes - stream->avail_out;
    return STATUS_OK;
}

static Status copy_some(GzipFile *file, void *data, size_t bytes, size_t *got,
                        Diag *diag) {
    if (file->compressed) return inflate_some(file, data, bytes, got, diag);
    size_t left = file->bytes - file->next;
    *got = bytes < left ? bytes : left;
    if (*got) memcpy(data, file->data + file->next, *got);
    file->next += *got;
    return STATUS_OK;
}

Status gzip_read(GzipFile *file, void *data, uint64_t bytes, const char *what,
                 Diag *diag) {
    uint8_t scratch[1 << 14];
    uint64_t done = 0;
    while (done < bytes) {
        size_t most = data ? 1u << 24 : sizeof scratch, got = 0;
        size_t want = bytes - done < most ? (size_t)(bytes - done) : most;
        TRY(copy_some(file, data ? (uint8_t *)data + done : scratch, want, &got, diag));
        if (got == 0)
            return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                             "the file ends after %" PRIu64 " of %" PRIu64 " bytes of %s",
                             done, bytes, what);
        done += got;
    }
    return STATUS_OK;
}

Status gzip_finish(GzipFile *file, Diag *diag) {
    uint8_t byte;
    size_t got = 0;
    TRY(copy_some(file, &byte, 1, &got, diag));
    if (got)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                         "more bytes follow than the header declares");
    return STATUS_OK;
}

void gzip_close(GzipFile *file) {
    if (!file) return;
    if (file->compressed) inflateEnd(&file->stream);
    buf_release(file->map);
    arena_destroy(file->arena);
}

/* zlib counts in 32 bits: both sides are handed over piece by piece. */
Status deflate_read(void *to, size_t bytes, const void *from, size_t packed,
                    const char *path, const char *name, Diag *diag) {
    enum { PIECE = 1 << 30 };
    z_stream stream = {0};
    size_t taken = 0, given = 0;
    int result = Z_OK;
    uint8_t beyond; /* one byte more than there should be */
    if (inflateInit2(&stream, -15) != Z_OK)
        return diag_fail(diag, STATUS_MEMORY, LOC_FILE(path), name,
                         "no memory to inflate it");
    while (result == Z_OK) {
        const size_t left = packed - taken, room = bytes - given;
        const uInt in = (uInt)(left < PIECE ? left : PIECE),
                   out = (uInt)(room == 0      ? 1
                                : room < PIECE ? room
                                               : PIECE);
        stream.next_in = (Bytef *)((uintptr_t)from + taken);
        stream.avail_in = in;
        stream.next_out = room == 0 ? &beyond : (uint8_t *)to + given;
        stream.avail_out = out;
        result = inflate(&stream, Z_NO_FLUSH);
        taken += in - stream.avail_in;
        given += out - stream.avail_out;
        if (given > bytes) break;
    }
    inflateEnd(&stream);
    if (result == Z_MEM_ERROR)
        return diag_fail(diag, STATUS_MEMORY, LOC_FILE(path), name,
                         "no memory to inflate it");
    if (result != Z_STREAM_END || given != bytes || taken != packed)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), name,
                         "its compressed data is damaged, or not of %zu bytes", bytes);
    return STATUS_OK;
}
