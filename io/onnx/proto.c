/* Protocol buffers of ONNX: see proto.h.
 *
 * protobuf-c alone would copy every weight, recurse as deep as a file asks it to and
 * allocate without a limit. So a file is read in two steps: its messages are copied
 * without their raw_data, of which only place and length are kept, while depth and
 * structure are checked; protobuf-c reads that copy with memory that has a limit. Then
 * raw_data is pointed at the file's own bytes. */
#include "io/onnx/proto.h"

#include "ir/arena.h"
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 100,             /* of messages in messages, as in Google's library */
    COPY_BYTES_MAX = 256 << 20,  /* of a file without its raw_data */
    MEMORY_BYTES_MIN = 16 << 20, /* allowed whatever a file's size ... */
    MEMORY_PER_BYTE = 24,        /* ... and for each byte of the copy */
    LENGTH_BYTES = 5,            /* of the longest length */
    CHUNK_BYTES = 1 << 16,
    WRITE_BYTES = 1 << 16,
    TENSOR_RAW_DATA = 9, /* number of the field */
};

/* Kinds of values on the wire: the low three bits of a tag. */
enum { WIRE_VARINT, WIRE_64_BITS, WIRE_LENGTH, WIRE_32_BITS = 5 };

/* ---- dtypes ---- */

static const int32_t DATA_TYPES[DTYPE_COUNT] = {
    [DTYPE_F32] = ONNX_F32,   [DTYPE_F64] = ONNX_F64, [DTYPE_F16] = ONNX_F16,
    [DTYPE_BF16] = ONNX_BF16, [DTYPE_I64] = ONNX_I64, [DTYPE_I32] = ONNX_I32,
    [DTYPE_I8] = ONNX_I8,     [DTYPE_U8] = ONNX_U8,   [DTYPE_BOOL] = ONNX_BOOL};

bool onnx_dtype(int32_t data_type, DType *out) {
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (DATA_TYPES[i] && DATA_TYPES[i] == data_type) return *out = (DType)i, true;
    return false;
}

int32_t onnx_data_type(DType dtype) {
    return DATA_TYPES[dtype];
}

/* ---- memory with a limit ---- */

typedef struct Chunk {
    struct Chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
} Chunk;

typedef struct OnnxMemory {
    ProtobufCAllocator allocator;
    Chunk *chunks;
    size_t left;
} OnnxMemory;

static void *memory_take(void *self, size_t bytes) {
    OnnxMemory *memory = self;
    if (bytes > memory->left) return NULL;
    bytes = (bytes + 15) / 16 * 16;
    Chunk *chunk = memory->chunks;
    if (!chunk || chunk->size - chunk->used < bytes) {
        const size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = malloc(sizeof *chunk + size);
        if (!chunk) return NULL;
        *chunk = (Chunk){.next = memory->chunks, .size = size};
        memory->chunks = chunk;
    }
    memory->left -= bytes < memory->left ? bytes : memory->left;
    chunk->used += bytes;
    return chunk->bytes + chunk->used - bytes;
}

/* Everything goes at once, with the file. */
static void memory_leave(void *self, void *data) {
    (void)self, (void)data;
}

/* ---- the copy without raw_data ---- */

/* What stands in the copy for raw_data. */
typedef struct RawPlace {
    const uint8_t *data;
    size_t length;
} RawPlace;

typedef struct Reader {
    const uint8_t *start;
    Text copy;
    Loc at;
    Diag *diag;
} Reader;

static Status damaged(const Reader *reader, const uint8_t *at, const char *what) {
    return diag_fail(reader->diag, STATUS_FORMAT, reader->at, NULL,
                     "expected an ONNX file, found %s at byte %zu", what,
                     (size_t)(at - reader->start));
}

static Status read_varint(const Reader *reader, const uint8_t **at, const uint8_t *end,
                          uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return STATUS_OK;
    }
    return damaged(reader, *at, "a number without an end");
}

static void add_varint(Text *copy, uint64_t value) {
    char bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7) bytes[count++] = (char)(value | 0x80);
    bytes[count++] = (char)value;
    text_bytes(copy, bytes, count);
}

static Status copy_message(Reader *reader, const ProtobufCMessageDescriptor *of,
                           const uint8_t *at, const uint8_t *end, int depth);

/* A message in a message: its length is known when it was copied, and gets as many bytes
 * as a length may have. */
static Status copy_nested(Reader *reader, const ProtobufCMessageDescriptor *of,
                          const uint8_t *at, const uint8_t *end, int depth) {
    const size_t before = reader->copy.length;
    text_bytes(&reader->copy, (const char[LENGTH_BYTES]){0}, LENGTH_BYTES);
    TRY(copy_message(reader, of, at, end, depth + 1));
    size_t length = reader->copy.length - before - LENGTH_BYTES;
    for (int i = 0; i < LENGTH_BYTES; i++, length >>= 7)
        reader->copy.data[before + (size_t)i] =
            (char)((length & 0x7f) | (i < LENGTH_BYTES - 1 ? 0x80 : 0));
    return STATUS_OK;
}

/* The value of a field whose tag was copied; [at, end) is all that may belong to it. */
static Status copy_length(Reader *reader, const ProtobufCMessageDescriptor *of,
                          const ProtobufCFieldDescriptor *field, const uint8_t *at,
                          const uint8_t *end, int depth) {
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return copy_nested(reader, field->descriptor, at, end, depth);
    const bool raw =
        of == &onnx__tensor_proto__descriptor && field->id == TENSOR_RAW_DATA;
    const RawPlace place = {at, (size_t)(end - at)};
    add_varint(&reader->copy, raw ? sizeof place : place.length);
    text_bytes(&reader->copy, raw ? (const char *)&place : (const char *)at,
               raw ? sizeof place : place.length);
    return STATUS_OK;
}

static Status copy_message(Reader *reader, const ProtobufCMessageDescriptor *of,
                           const uint8_t *at, const uint8_t *end, int depth) {
    if (depth > DEPTH_MAX) return damaged(reader, at, "messages nested too deep");
    while (at < end) {
        uint64_t tag, length = 0;
        TRY(read_varint(reader, &at, end, &tag));
        const ProtobufCFieldDescriptor *field =
            tag >> 3 > UINT32_MAX
                ? NULL
                : protobuf_c_message_descriptor_get_field(of, (unsigned)(tag >> 3));
        const uint8_t *value = at;
        const int wire = (int)(tag & 7);
        if (wire == WIRE_VARINT || wire == WIRE_LENGTH)
            TRY(read_varint(reader, &at, end, &length));
        else if (wire != WIRE_64_BITS && wire != WIRE_32_BITS)
            return damaged(reader, value, "a kind of value that there is not");
        if (wire != WIRE_VARINT) {
            if (wire != WIRE_LENGTH) length = wire == WIRE_64_BITS ? 8 : 4;
            if (length > (uint64_t)(end - at))
                return damaged(reader, value, "a length that goes beyond its end");
            at += length;
        }
        if (!field) continue;
        add_varint(&reader->copy, tag);
        if (wire == WIRE_LENGTH)
            TRY(copy_length(reader, of, field, at - length, at, depth));
        else
            text_bytes(&reader->copy, (const char *)value, (size_t)(at - value));
        if (reader->copy.length > COPY_BYTES_MAX)
            return damaged(reader, value, "more than 256 MiB beside raw_data");
    }
    return STATUS_OK;
}

/* Points the raw_data of all tensors below a message at the file. */
static void restore_raw(ProtobufCMessage *message) {
    if (message->descriptor == &onnx__tensor_proto__descriptor) {
        OnnxTensor *tensor = (OnnxTensor *)message;
        RawPlace place;
        if (tensor->has_raw_data) {
            memcpy(&place, tensor->raw_data.data, sizeof place);
            tensor->raw_data.data = (uint8_t *)place.data;
            tensor->raw_data.len = place.length;
        }
        return;
    }
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        char *base = (char *)message;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            const size_t count = *(const size_t *)(base + field->quantifier_offset);
            ProtobufCMessage **list = *(ProtobufCMessage ***)(base + field->offset);
            for (size_t j = 0; j < count; j++) restore_raw(list[j]);
        } else if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
                   *(const uint32_t *)(base + field->quantifier_offset) == field->id) {
            ProtobufCMessage *one = *(ProtobufCMessage **)(base + field->offset);
            if (one) restore_raw(one);
        }
    }
}

static Status parse_copy(OnnxFile *out, Reader *reader) {
    OnnxMemory *memory = memory_alloc(1, sizeof *memory);
    memory->allocator = (ProtobufCAllocator){memory_take, memory_leave, memory};
    memory->left = MEMORY_BYTES_MIN + reader->copy.length * MEMORY_PER_BYTE;
    *out = (OnnxFile){.memory = memory};
    out->model = onnx__model_proto__unpack(&memory->allocator, reader->copy.length,
                                           (const uint8_t *)reader->copy.data);
    if (!out->model || !out->model->graph) {
        const bool empty = out->model != NULL;
        onnx_release(out);
        return damaged(reader, reader->start,
                       empty ? "no graph" : "fields of other kinds than theirs");
    }
    restore_raw(&out->model->base);
    return STATUS_OK;
}

Status onnx_parse(OnnxFile *out, const void *data, size_t length, Loc at, Diag *diag) {
    Reader reader = {.start = data, .at = at, .diag = diag};
    Status status = copy_message(&reader, &onnx__model_proto__descriptor, reader.start,
                                 reader.start + length, 1);
    if (status == STATUS_OK) status = parse_copy(out, &reader);
    text_free(&reader.copy);
    return status;
}

void onnx_release(OnnxFile *file) {
    for (Chunk *chunk = file->memory ? file->memory->chunks : NULL, *next; chunk;
         chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(file->memory);
    *file = (OnnxFile){0};
}

/* ---- writing ---- */

/* protobuf-c hands on a few bytes at a time, raw_data as one piece. */
typedef struct Writer {
    ProtobufCBuffer base;
    OutFile *file;
    Status status;
    size_t held;
    uint8_t bytes[WRITE_BYTES];
    Diag *diag;
} Writer;

static void flush(Writer *writer) {
    if (writer->status == STATUS_OK && writer->held)
        writer->status =
            outfile_write(writer->file, writer->bytes, writer->held, writer->diag);
    writer->held = 0;
}

static void append(ProtobufCBuffer *base, size_t length, const uint8_t *data) {
    Writer *writer = (Writer *)base;
    if (length > WRITE_BYTES - writer->held) flush(writer);
    if (length <= WRITE_BYTES) {
        memcpy(writer->bytes + writer->held, data, length);
        writer->held += length;
    } else if (writer->status == STATUS_OK) {
        writer->status = outfile_write(writer->file, data, length, writer->diag);
    }
}

size_t onnx_bytes(const OnnxModel *model) {
    return onnx__model_proto__get_packed_size(model);
}

Status onnx_write(const OnnxModel *model, OutFile *file, Diag *diag) {
    Writer *writer = memory_alloc(1, sizeof *writer);
    writer->base.append = append;
    writer->file = file;
    writer->diag = diag;
    onnx__model_proto__pack_to_buffer(model, &writer->base);
    flush(writer);
    const Status status = writer->status;
    free(writer);
    return status;
}
