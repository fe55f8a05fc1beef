/* GGUF as a format of models: reading. See gguf_model.h. */
#include "io/gguf/gguf_model.h"

#include "io/families/sentence.h"
#include "io/gguf/outline.h"
#include "io/gguf/tokens.h"

#include <stdlib.h>
#include <string.h>

typedef struct Import {
    Arena *arena;
    GgufFile *file;
    Outline outline;
    Tokens tokens;
    Model *whole, *model; /* with and without empty blocks */
    bool *used;           /* of each tensor of the file */
    int decoded;          /* tensors that became f32 */
    Text decoded_types;   /* their types: "q4_k, q6_k" */
    Diag *diag;
} Import;

#define FAIL(i, name, ...)                                                               \
    diag_fail((i)->diag, STATUS_FORMAT, LOC_FILE((i)->file->path), name, __VA_ARGS__)

/* The same numbers in memory; COUNT = none. */
static DType plain_dtype(const BlockType *type) {
    DType dtype;
    if (type->values > 1 || !dtype_parse(type->name, &dtype)) return DTYPE_COUNT;
    const bool known = dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
    const uint16_t one = 1; /* files are little-endian */
    return known && *(const unsigned char *)&one ? dtype : DTYPE_COUNT;
}

/* ---- rows ---- */

/* A tensor whose rows are taken one by one. */
typedef struct RowReader {
    const Import *import;
    const GgufTensor *tensor;
    DType dtype; /* of what is read */
    size_t bytes;
    float *buffer; /* a row, where it is decoded */
} RowReader;

static const void *read_row(const RowReader *r, int64_t row) {
    const unsigned char *data = buf_data(r->import->file->buf);
    if (!r->buffer) return data + r->tensor->offset + (size_t)row * r->bytes;
    gguf_rows(r->import->file, r->tensor, row, 1, r->buffer);
    return r->buffer;
}

/* Copies the rows of one part to where the storage has them. A vector is a matrix of one
 * row in the file, and of one column here. */
static void copy_part(const RowReader *r, const TensorSlot *slot, int part, char *out) {
    const size_t size = dtype_bytes(r->dtype);
    const bool vector = slot->type.rank == 1;
    const bool transposed = slot->order == ORDER_TRANSPOSED && !vector;
    const int64_t rows = slot->type.dim[transposed];
    const int64_t width = vector ? 1 : slot->type.dim[!transposed];
    const int64_t head = slot->heads ? slot->type.dim[0] / slot->heads : 1;
    for (int64_t row = 0; row < rows; row++) {
        const char *in =
            vector ? (const char *)read_row(r, 0) + (part * rows + row) * (int64_t)size
                   : read_row(r, part * rows + row);
        const int64_t at = row % head;
        const int64_t to =
            slot->order == ORDER_PAIRS ? row - at + at % 2 * (head / 2) + at / 2 : row;
        for (int64_t i = 0; transposed && i < width; i++)
            memcpy(out + (size_t)(i * rows + to) * size, in + (size_t)i * size, size);
        if (!transposed)
            memcpy(out + (size_t)(to * width) * size, in, (size_t)width * size);
    }
}

/* ---- binding ---- */

static Status bind_part(Import *import, const RowReader *reader, const TensorSlot *slot,
                        int part, Storage *storage) {
    const GgufTensor *tensor = reader->tensor;
    if (!reader->buffer && slot->order == ORDER_SAME && slot->parts == 1) {
        storage->tensor =
            tensor_shape(reader->dtype, storage->tensor.rank, storage->tensor.dim);
        storage->tensor.buf = buf_retain(import->file->buf);
        storage->tensor.offset = tensor->offset;
        return STATUS_OK;
    }
    void *data;
    Tensor values;
    TRY(tensor_create(&values, reader->dtype, storage->tensor.rank, storage->tensor.dim,
                      import->diag));
    storage->tensor = values;
    TRY(tensor_writable(&storage->tensor, &data, import->diag));
    copy_part(reader, slot, part, data);
    return STATUS_OK;
}

static Status check_shape(const Import *import, const TensorSlot *slot,
                          const GgufTensor *tensor) {
    const bool transposed = slot->order == ORDER_TRANSPOSED && slot->type.rank == 2;
    int64_t dim[2] = {slot->type.dim[transposed] * slot->parts,
                      slot->type.dim[!transposed]};
    char want[SHAPE_TEXT_BYTES], have[SHAPE_TEXT_BYTES];
    if (tensor->rank == slot->type.rank && tensor->dim[0] == dim[0] &&
        (tensor->rank == 1 || tensor->dim[1] == dim[1]))
        return STATUS_OK;
    return FAIL(import, tensor->name, "expected the shape %s, found %s",
                shape_text(want, slot->type.rank, dim),
                shape_text(have, tensor->rank, tensor->dim));
}

static Status bind_slot(Import *import, const TensorSlot *slot) {
    Graph *graph = import->model->graph;
    const GgufTensor *tensor = gguf_find_tensor(import->file, slot->name);
    if (!tensor) return FAIL(import, slot->name, "the file lacks this tensor");
    import->used[tensor - import->file->tensors] = true;
    TRY(check_shape(import, slot, tensor));
    if (!tensor->type->decode)
        return diag_fail(import->diag, STATUS_MODEL, LOC_FILE(import->file->path),
                         tensor->name, "numbers of type %s are not known",
                         tensor->type->name);
    if (!graph_storage(graph, slot->storage[0])) return STATUS_OK; /* an empty block */
    const DType dtype = plain_dtype(tensor->type);
    RowReader reader = {import, tensor, dtype};
    const int64_t width = tensor->dim[tensor->rank - 1];
    if (dtype == DTYPE_COUNT) {
        reader.dtype = DTYPE_F32;
        reader.buffer = memory_alloc((size_t)width, sizeof *reader.buffer);
        Text *types = &import->decoded_types;
        if (import->decoded++ == 0 || !strstr(types->data, tensor->type->name))
            text_add(types, "%s%s", types->length ? ", " : "", tensor->type->name);
    }
    reader.bytes = (size_t)width * dtype_bytes(reader.dtype);
    Status status = STATUS_OK;
    for (int part = 0; part < slot->parts && status == STATUS_OK; part++)
        status = bind_part(import, &reader, slot, part,
                           graph_storage(graph, slot->storage[part]));
    free(reader.buffer);
    return status;
}

static Status bind_weights(Import *import) {
    const GgufFile *file = import->file;
    TensorSlot *slots;
    int count;
    outline_slots(&slots, &count, import->arena, &import->outline, import->whole->graph);
    import->used = ARENA_ARRAY(import->arena, bool, (size_t)file->tensor_count);
    for (int i = 0; i < count; i++) TRY(bind_slot(import, &slots[i]));
    for (int64_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name;
        const bool tied = import->outline.tied && strcmp(name, "output.weight") == 0;
        if (!import->used[i] && !tied)
            return diag_fail(import->diag, STATUS_MODEL, LOC_FILE(file->path), name,
                             "the model has no place for this tensor");
    }
    return STATUS_OK;
}

/* ---- the model ---- */

/* Names of classes, of which a file may have them. */
static void take_labels(const Import *import, Tree *config) {
    const GgufPair *pair = gguf_find(import->file, "bert.classifier.output_labels");
    if (!import->outline.labels || !pair || pair->kind != GGUF_STRING ||
        pair->count != import->outline.labels)
        return;
    Tree *labels = tree_put_map(import->arena, config, "id2label");
    for (int64_t i = 0; i < pair->count; i++) {
        char key[24];
        const TextSpan span = pair->strings[i];
        const char *label = arena_strndup(import->arena, span.text, span.length);
        snprintf(key, sizeof key, "%lld", (long long)i);
        tree_put_string(import->arena, labels, key, utf8_is_valid(label) ? label : key);
    }
}

static bool is_text(const GgufPair *pair, const char *text) {
    return pair && !pair->array && pair->kind == GGUF_STRING &&
           pair->strings[0].length == strlen(text) &&
           memcmp(pair->strings[0].text, text, strlen(text)) == 0;
}

/* How a BERT without a classifier makes an embedding of its tokens. */
static Status take_embedding(const Import *import, Tree *config) {
    static const char *const POOLING[] = {"mean", "first", "last"};
    const GgufPair *type = gguf_find(import->file, "bert.pooling_type");
    const GgufPair *own = gguf_find(import->file, GGUF_EMBEDDING);
    int64_t pooling = 0;
    if (import->outline.kind != OUTLINE_BERT || import->outline.labels) return STATUS_OK;
    if (type && !type->array) gguf_integer(type, 0, &pooling);
    const bool none = is_text(own, GGUF_EMBEDDING_NONE);
    const bool plain = is_text(own, GGUF_EMBEDDING_PLAIN);
    if (own && !none && !plain && !is_text(own, GGUF_EMBEDDING_NORMALIZED))
        return diag_fail(import->diag, STATUS_FORMAT, LOC_FILE(import->file->path),
                         GGUF_EMBEDDING, "expected %s, %s or %s", GGUF_EMBEDDING_NONE,
                         GGUF_EMBEDDING_PLAIN, GGUF_EMBEDDING_NORMALIZED);
    if (none || pooling < 1 || pooling > 3) return STATUS_OK;
    tree_put_string(import->arena, config, SENTENCE_POOLING, POOLING[pooling - 1]);
    tree_put_bool(import->arena, config, SENTENCE_NORMALIZE, !plain);
    return STATUS_OK;
}

static Status import_model(Import *import, const OpTable *ops) {
    const GgufFile *file = import->file;
    const Outline *outline = &import->outline;
    Diag *diag = import->diag;
    TRY(outline_of_file(&import->outline, import->arena, file, diag));
    TRY(tokens_of_file(&import->tokens, import->arena, file, outline->vocabulary, diag));
    Tree *config = tokens_config(import->arena, &import->tokens);
    take_labels(import, config);
    TRY(take_embedding(import, config));
    TRY(outline_build(&import->model, outline, false, config, ops, diag));
    TRY(outline_build(&import->whole, outline, true, config, ops, diag));
    TRY(bind_weights(import));
    if (import->decoded)
        diag_warn(diag, LOC_FILE(file->path), NULL, "%d tensor%s became f32: %s",
                  import->decoded, import->decoded == 1 ? "" : "s",
                  import->decoded_types.data);
    import->model->file_bytes = (int64_t)buf_bytes(file->buf);
    return tokens_to_assets(import->model, &import->tokens, diag);
}

Status gguf_read_model(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag) {
    Import import = {.arena = arena_create(), .diag = diag};
    (void)options, (void)check;
    Status status = gguf_read(&import.file, path, diag);
    if (status == STATUS_OK) status = import_model(&import, ops);
    if (status == STATUS_OK) {
        *out = import.model;
    } else {
        diag_place(diag, LOC_FILE(path), NULL);
        model_destroy(import.model);
    }
    model_destroy(import.whole);
    text_free(&import.decoded_types);
    gguf_destroy(import.file);
    arena_destroy(import.arena);
    return status;
}
