/* GGUF: writing the container. See gguf.h. */
#include "io/gguf/gguf.h"

#include "io/files/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32, CHUNK_BYTES = 1 << 20 };

/* A tensor to be written, and where its rows come from. */
typedef struct Entry {
    const char *name;
    const BlockType *type;
    int rank;
    int64_t dim[2];
    GgufRow *row; /* NULL: */
    GgufBlocks *blocks;
    const void *source;
} Entry;

struct GgufWriter {
    Text pairs, infos;
    int64_t pair_count;
    Entry *entries;
    int64_t count, capacity;
    uint64_t offset; /* of the next tensor, from the start of the data */
};

GgufWriter *gguf_create(void) {
    return memory_alloc(1, sizeof(GgufWriter));
}

void gguf_abandon(GgufWriter *writer) {
    if (!writer) return;
    text_free(&writer->pairs);
    text_free(&writer->infos);
    free(writer->entries);
    free(writer);
}

/* ---- pairs ---- */

static void add_bits(Text *text, uint64_t bits, int bytes) {
    char data[8];
    for (int i = 0; i < bytes; i++) data[i] = (char)(bits >> (8 * i));
    text_bytes(text, data, (size_t)bytes);
}

static void add_string(Text *text, const char *string) {
    const size_t length = strlen(string);
    add_bits(text, length, 8);
    text_bytes(text, string, length);
}

static void add_real(Text *text, double value) {
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    add_bits(text, bits, 4);
}

/* Key and kind; of an array its length too. */
static Text *begin_pair(GgufWriter *writer, const char *key, GgufKind kind,
                        int64_t count) {
    Text *text = &writer->pairs;
    writer->pair_count++;
    add_string(text, key);
    if (count >= 0) add_bits(text, GGUF_ARRAY, 4);
    add_bits(text, kind, 4);
    if (count >= 0) add_bits(text, (uint64_t)count, 8);
    return text;
}

void gguf_put_integer(GgufWriter *writer, const char *key, int64_t value) {
    add_bits(begin_pair(writer, key, GGUF_U32, -1), (uint64_t)value, 4);
}

void gguf_put_real(GgufWriter *writer, const char *key, double value) {
    add_real(begin_pair(writer, key, GGUF_F32, -1), value);
}

void gguf_put_flag(GgufWriter *writer, const char *key, bool value) {
    add_bits(begin_pair(writer, key, GGUF_BOOL, -1), value, 1);
}

void gguf_put_text(GgufWriter *writer, const char *key, const char *value) {
    add_string(begin_pair(writer, key, GGUF_STRING, -1), value);
}

void gguf_put_integers(GgufWriter *writer, const char *key, const int64_t *values,
                       int64_t count) {
    Text *text = begin_pair(writer, key, GGUF_I32, count);
    for (int64_t i = 0; i < count; i++) add_bits(text, (uint64_t)values[i], 4);
}

void gguf_put_reals(GgufWriter *writer, const char *key, const double *values,
                    int64_t count) {
    Text *text = begin_pair(writer, key, GGUF_F32, count);
    for (int64_t i = 0; i < count; i++) add_real(text, values[i]);
}

void gguf_put_texts(GgufWriter *writer, const char *key, const char *const *values,
                    int64_t count) {
    Text *text = begin_pair(writer, key, GGUF_STRING, count);
    for (int64_t i = 0; i < count; i++) add_string(text, values[i]);
}

/* ---- tensors ---- */

static int64_t row_bytes(const Entry *entry) {
    return entry->dim[entry->rank - 1] / entry->type->values * entry->type->bytes;
}

static int64_t row_count(const Entry *entry) {
    return entry->rank == 2 ? entry->dim[0] : 1;
}

static uint64_t entry_padding(const Entry *entry) {
    const uint64_t bytes = (uint64_t)(row_bytes(entry) * row_count(entry));
    return (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
}

static void add_entry(GgufWriter *writer, const Entry *given) {
    const char *name = given->name;
    const BlockType *type = given->type;
    const int rank = given->rank;
    const int64_t *dim = given->dim;
    if (writer->count == writer->capacity) {
        writer->capacity = writer->capacity ? 2 * writer->capacity : 64;
        writer->entries =
            memory_grow(writer->entries, (size_t)writer->capacity, sizeof(Entry));
    }
    Entry *entry = &writer->entries[writer->count++];
    *entry = *given;
    add_string(&writer->infos, name);
    add_bits(&writer->infos, (uint64_t)rank, 4);
    for (int i = rank - 1; i >= 0; i--) add_bits(&writer->infos, (uint64_t)dim[i], 8);
    add_bits(&writer->infos, type->id, 4);
    add_bits(&writer->infos, writer->offset, 8);
    writer->offset += (uint64_t)(row_bytes(entry) * row_count(entry));
    writer->offset += entry_padding(entry);
}

void gguf_put_tensor(GgufWriter *writer, const char *name, const BlockType *type,
                     int rank, const int64_t *dim, GgufRow *row, const void *source) {
    Entry entry = {
        .name = name, .type = type, .rank = rank, .row = row, .source = source};
    memcpy(entry.dim, dim, (size_t)rank * sizeof *dim);
    add_entry(writer, &entry);
}

void gguf_put_blocks(GgufWriter *writer, const char *name, const BlockType *type,
                     const int64_t *dim, GgufBlocks *row, const void *source) {
    add_entry(writer, &(Entry){.name = name,
                               .type = type,
                               .rank = 2,
                               .dim = {dim[0], dim[1]},
                               .blocks = row,
                               .source = source});
}

static Status check_row(const Entry *entry, const float *values, int64_t row,
                        const char *path, Diag *diag) {
    const int64_t width = entry->dim[entry->rank - 1];
    for (int64_t i = 0; i < width; i++) {
        if (fabsf(values[i]) <= entry->type->most) continue;
        diag_fail(diag, STATUS_MODEL, LOC_FILE(path), entry->name,
                  "expected numbers of at most %g, which %s holds, found %g at [%lld, "
                  "%lld]",
                  entry->type->most, entry->type->name, (double)values[i], (long long)row,
                  (long long)i);
        if (isfinite(values[i])) diag_hint(diag, "write with `dtype: f32` or bf16");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

static Status encode_row(const Entry *entry, int64_t row, float *values,
                         unsigned char *blocks, const char *path, Diag *diag) {
    if (entry->blocks) {
        entry->blocks(entry->source, row, blocks);
        return STATUS_OK;
    }
    entry->row(entry->source, row, values);
    TRY(check_row(entry, values, row, path, diag));
    blocks_encode(entry->type, values, blocks, entry->dim[entry->rank - 1]);
    return STATUS_OK;
}

/* Encodes rows, as many at a time as fit a chunk. */
static Status write_tensor(const Entry *entry, OutFile *file, const char *path,
                           Diag *diag) {
    static const char zeros[ALIGNMENT];
    const int64_t width = entry->dim[entry->rank - 1], bytes = row_bytes(entry);
    const int64_t rows = row_count(entry);
    const int64_t most = bytes < CHUNK_BYTES ? CHUNK_BYTES / bytes : 1;
    const int64_t batch = most < rows ? most : rows;
    float *values = memory_alloc((size_t)width, sizeof *values);
    unsigned char *blocks = memory_alloc((size_t)batch, (size_t)bytes);
    Status status = STATUS_OK;
    for (int64_t first = 0; first < rows && status == STATUS_OK; first += batch) {
        const int64_t end = first + batch < rows ? first + batch : rows;
        for (int64_t r = first; r < end && status == STATUS_OK; r++)
            status =
                encode_row(entry, r, values, blocks + (r - first) * bytes, path, diag);
        if (status == STATUS_OK)
            status = outfile_write(file, blocks, (size_t)((end - first) * bytes), diag);
    }
    free(values);
    free(blocks);
    if (status != STATUS_OK) return status;
    return outfile_write(file, zeros, entry_padding(entry), diag);
}

static Status write_file(GgufWriter *writer, OutFile *file, const char *path,
                         int64_t *bytes, Diag *diag) {
    static const char zeros[ALIGNMENT];
    Text head = {0};
    text_bytes(&head, "GGUF", 4);
    add_bits(&head, VERSION, 4);
    add_bits(&head, (uint64_t)writer->count, 8);
    add_bits(&head, (uint64_t)writer->pair_count, 8);
    text_bytes(&head, writer->pairs.data, writer->pairs.length);
    text_bytes(&head, writer->infos.data, writer->infos.length);
    text_bytes(&head, zeros, (ALIGNMENT - head.length % ALIGNMENT) % ALIGNMENT);
    if (bytes) *bytes = (int64_t)head.length + (int64_t)writer->offset;
    const Status status = outfile_write(file, head.data, head.length, diag);
    text_free(&head);
    if (status != STATUS_OK) return status;
    for (int64_t i = 0; i < writer->count; i++)
        TRY(write_tensor(&writer->entries[i], file, path, diag));
    return STATUS_OK;
}

Status gguf_write(GgufWriter *writer, const char *path, int64_t *bytes, Diag *diag) {
    OutFile *file = NULL;
    Status status = outfile_open(&file, NULL, path, diag);
    if (status == STATUS_OK) {
        status = write_file(writer, file, path, bytes, diag);
        if (status == STATUS_OK)
            status = outfile_commit(file, diag);
        else
            outfile_abandon(file);
    }
    gguf_abandon(writer);
    return status;
}
