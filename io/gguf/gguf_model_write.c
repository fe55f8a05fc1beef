/* GGUF as a format of models: checking and writing. See gguf_model.h. */
#include "io/gguf/gguf_model.h"

#include "io/formats/stock.h"
#include "io/gguf/few_bits.h"
#include "io/gguf/outline.h"
#include "io/gguf/tokens.h"
#include "ir/class_name.h"
#include "ir/mapped.h"
#include "ir/resident.h"

#include <string.h>

static const int POOLING_NUMBER[] = {1, 2, 3, 0};
enum { POOLING_RANK = 4 };

/* Where the rows of a tensor come from. */
typedef struct Source {
    const TensorSlot *slot;
    const Storage *part[SLOT_PARTS]; /* NULL: zeros, of an empty block */
    bool transposed[SLOT_PARTS];     /* it is [in, out] */
} Source;

/* A model on its way out. */
typedef struct Export {
    Arena *arena;
    Outline outline;
    Tokens tokens;
    const Graph *graph;      /* the model's */
    Model *whole, *built;    /* with and without empty blocks; shapes only */
    const Storage **weights; /* of `built`'s, in the model */
    TensorSlot *slots;
    int count;
    Diag *diag;
} Export;

static Status export_open(Export *e, const Model *model) {
    Diag *diag = e->diag;
    e->graph = model->graph;
    TRY(outline_of_graph(&e->outline, e->arena, model, diag));
    TRY(outline_build(&e->built, &e->outline, false, NULL, model->graph->ops, diag));
    TRY(outline_match(&e->weights, e->arena, e->built->graph, model->graph, diag));
    TRY(outline_build(&e->whole, &e->outline, true, NULL, model->graph->ops, diag));
    outline_slots(&e->slots, &e->count, e->arena, &e->outline, e->whole->graph);
    return tokens_of_model(&e->tokens, e->arena, model, e->outline.vocabulary, diag);
}

static void export_close(Export *e) {
    model_destroy(e->whole);
    model_destroy(e->built);
    arena_destroy(e->arena);
}

static Status check_model(const Model *model, const WriteOptions *options, Diag *diag) {
    Export e = {.arena = arena_create(), .diag = diag};
    (void)options;
    const Status status = export_open(&e, model);
    export_close(&e);
    if (status == STATUS_MODEL) {
        Text why = {0};
        if (stock_explain(&why, model->graph)) diag_note(diag, "%s", why.data);
        text_free(&why);
        diag_note(diag, "GGUF holds models that llama.cpp runs as llama, deci, qwen2, "
                        "qwen3, gpt2 or bert");
        diag_hint(diag, "write ONNX (.onnx), which takes every graph, or the native file "
                        "(.h5)");
    }
    return status;
}

/* ---- rows ---- */

/* Row of the storage that comes as row `row` of the part in the file. */
static int64_t source_row(const TensorSlot *slot, int64_t row) {
    if (slot->order != ORDER_PAIRS) return row;
    const int64_t width = slot->type.dim[0] / slot->heads, at = row % width;
    return row - at + at % 2 * (width / 2) + at / 2;
}

/* Rows of one part in the file. */
static int64_t part_rows(const TensorSlot *slot) {
    return slot->type.dim[slot->order == ORDER_TRANSPOSED && slot->type.rank == 2];
}

static void read_matrix_row(const Source *source, int64_t row, float *out) {
    const TensorSlot *slot = source->slot;
    const int64_t rows = part_rows(slot), in = source_row(slot, row % rows);
    const bool transposed = source->transposed[row / rows];
    const int64_t width = slot->type.dim[slot->order != ORDER_TRANSPOSED];
    const Storage *storage = source->part[row / rows];
    if (!storage)
        memset(out, 0, (size_t)width * sizeof *out);
    else if (!transposed)
        tensor_read_f32(&storage->tensor, in * width, width, out);
    for (int64_t i = 0; storage && transposed && i < width; i++)
        tensor_read_f32(&storage->tensor, i * rows + in, 1, out + i);
}

static void read_vector(const Source *source, float *out) {
    const TensorSlot *slot = source->slot;
    const int64_t rows = part_rows(slot);
    for (int part = 0; part < slot->parts; part++, out += rows)
        for (int64_t i = 0; i < rows; i++) {
            const Storage *storage = source->part[part];
            out[i] = 0;
            if (storage)
                tensor_read_f32(&storage->tensor, source_row(slot, i), 1, out + i);
        }
}

static void read_row(const void *opaque, int64_t row, float *out) {
    const Source *source = opaque;
    if (source->slot->type.rank == 1)
        read_vector(source, out);
    else
        read_matrix_row(source, row, out);
}

/* A row of storages that are kept alike, as it stands. */
static void read_blocks(const void *opaque, int64_t row, unsigned char *out) {
    const Source *source = opaque;
    const int64_t rows = part_rows(source->slot);
    const int64_t in = source_row(source->slot, row % rows);
    const Tensor *tensor = &source->part[row / rows]->tensor;
    if (dtype_is_quantised(tensor->dtype)) {
        few_bits_row(tensor, in, out);
        return;
    }
    const size_t bytes = (size_t)tensor->dim[1] * dtype_bytes(tensor->dtype);
    const void *from = tensor_piece(tensor, (size_t)in * bytes, 0);
    resident_use(from, bytes);
    memcpy(out, from, bytes);
}

/* ---- tensors ---- */

/* The model's storage for one of the whole graph; NULL = of an empty block. */
static const Storage *find_weights(const Export *e, const char *name) {
    const Graph *built = e->built->graph;
    for (int i = 0; i < built->storage_count; i++)
        if (strcmp(built->storages[i]->name, name) == 0) return e->weights[i];
    return NULL;
}

/* Whether the linears that read a storage want it as it is, [out, in]. */
static bool is_turned(const Graph *graph, const Storage *storage) {
    for (const Node *node = graph->first; node; node = node->next)
        if (node->in_count > 1 && node->in[1] && node->in[1]->storage == storage &&
            strcmp(node->op->name, "linear") == 0 && !node_flag(node, "transposed"))
            return true;
    return false;
}

/* What a storage is kept as; NULL = one of zeros. */
static const BlockType *stored_type(const Storage *storage) {
    const DType dtype = storage ? storage->tensor.dtype : DTYPE_F32;
    const bool half = dtype == DTYPE_F16 || dtype == DTYPE_BF16;
    return block_type_by_name(half ? dtype_name(dtype) : "f32");
}

/* The type that a storage's rows are of as they stand; NULL = none. */
static const BlockType *type_of_rows(const Storage *storage) {
    const Tensor *tensor = &storage->tensor;
    if (!dtype_is_quantised(tensor->dtype))
        return tensor->dtype == DTYPE_F64 ? NULL : stored_type(storage);
    const BlockType *type = few_bits_type(tensor);
    return type && (!tensor->buf || few_bits_fit(tensor)) ? type : NULL;
}

/* The type that the rows of all storages of a source are of; NULL = of several, or of
 * none. */
static const BlockType *kept_blocks(const Source *source) {
    const TensorSlot *slot = source->slot;
    const BlockType *type = NULL;
    if (slot->type.rank == 1 || slot->plain) return NULL;
    for (int i = 0; i < slot->parts; i++) {
        const Storage *storage = source->part[i];
        const BlockType *own = storage ? type_of_rows(storage) : NULL;
        if (!own || (type && own != type) || source->transposed[i]) return NULL;
        type = own;
    }
    return type;
}

/* Type by the option; "keep" = as the weights are. Vectors, and tables that llama.cpp
 * adds as they are, stay f32; rows that are not whole blocks become f16; predictions have
 * 8 bits at least, as llama.cpp's own quantisation sees to. */
static const BlockType *choose_type(const Export *e, const Source *source,
                                    const char *dtype, int64_t width, int *uneven) {
    const TensorSlot *slot = source->slot;
    if (slot->type.rank == 1 || slot->plain) return block_type_by_name("f32");
    if (strcmp(dtype, "keep") == 0) {
        const Storage *storage = source->part[0];
        const BlockType *blocks = kept_blocks(source);
        const bool few = storage && dtype_is_quantised(storage->tensor.dtype);
        if (blocks || !few) return blocks ? blocks : stored_type(storage);
        ++*uneven;
        return block_type_by_name("f16");
    }
    const bool tied = e->outline.kind != OUTLINE_BERT && e->outline.tied;
    const char *predictions = tied ? "token_embd.weight" : "output.weight";
    if (strcmp(dtype, "q4_0") == 0 && strcmp(slot->name, predictions) == 0)
        dtype = "q8_0";
    const BlockType *type = block_type_by_name(dtype);
    if (width % type->values == 0) return type;
    ++*uneven;
    return block_type_by_name("f16");
}

/* Where a slot's rows come from, and how long they are. */
static Source source_of(const Export *e, const TensorSlot *slot, int64_t *width) {
    Source source = {.slot = slot};
    for (int i = 0; i < slot->parts; i++) {
        source.part[i] = find_weights(e, slot->storage[i]);
        source.transposed[i] = slot->order == ORDER_TRANSPOSED && source.part[i] &&
                               !is_turned(e->graph, source.part[i]);
    }
    *width = slot->type.rank == 2 ? slot->type.dim[slot->order != ORDER_TRANSPOSED]
                                  : part_rows(slot) * slot->parts;
    return source;
}

static void put_tensors(const Export *e, GgufWriter *writer, const char *dtype,
                        int *uneven) {
    for (int i = 0; i < e->count; i++) {
        const TensorSlot *slot = &e->slots[i];
        const int rank = slot->type.rank;
        int64_t width;
        Source *source = ARENA_NEW(e->arena, Source);
        *source = source_of(e, slot, &width);
        const int64_t dim[] = {rank == 2 ? part_rows(slot) * slot->parts : width, width};
        const BlockType *type = choose_type(e, source, dtype, width, uneven);
        if (kept_blocks(source) == type)
            gguf_put_blocks(writer, slot->name, type, dim, read_blocks, source);
        else
            gguf_put_tensor(writer, slot->name, type, rank, dim, read_row, source);
    }
}

/* What a matrix is kept as; NULL for all that is f32 always. */
static const BlockType *slot_type(const Export *e, const TensorSlot *slot) {
    int64_t width;
    int uneven = 0;
    if (slot->type.rank == 1 || slot->plain) return NULL;
    const Source source = source_of(e, slot, &width);
    return choose_type(e, &source, "keep", width, &uneven);
}

/* The type that most matrices are kept as. */
static const BlockType *most_type(const Export *e) {
    const BlockType *most = block_type_by_name("f32");
    const BlockType **own = ARENA_ARRAY(e->arena, const BlockType *, (size_t)e->count);
    int64_t best = 0;
    for (int i = 0; i < e->count; i++) own[i] = slot_type(e, &e->slots[i]);
    for (int i = 0; i < e->count; i++) {
        int64_t same = 0;
        for (int j = 0; own[i] && j < e->count; j++)
            if (own[j] == own[i]) same++;
        if (same > best) {
            best = same;
            most = own[i];
        }
    }
    return most;
}

/* ---- keys ---- */

/* Names of classes in their order, as the configuration has them. */
static void put_labels(const Export *e, GgufWriter *writer, const Model *model) {
    const int64_t count = e->outline.labels;
    if (!count || count > 1 << 20) return;
    const char **labels = ARENA_ARRAY(e->arena, const char *, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        labels[i] = class_name(model->config, i, e->arena);
    gguf_put_texts(writer, "bert.classifier.output_labels", labels, count);
}

static void put_keys(const Export *e, GgufWriter *writer, const Model *model,
                     const char *dtype, const GgufOptions *options) {
    const bool keep = strcmp(dtype, "keep") == 0;
    const BlockType *type = keep ? most_type(e) : block_type_by_name(dtype);
    const Tree *name = tree_get_nonnull(model->config, "_name_or_path");
    gguf_put_text(writer, "general.architecture", outline_architecture(&e->outline));
    gguf_put_text(writer, "general.type", "model");
    if (name && name->kind == TREE_STRING)
        gguf_put_text(writer, "general.name", name->string);
    gguf_put_integer(writer, "general.file_type", type->file_type);
    if (type->values > 1) gguf_put_integer(writer, "general.quantization_version", 2);
    outline_put(writer, e->arena, &e->outline);
    if (e->outline.kind == OUTLINE_BERT) {
        gguf_put_integer(writer, "bert.pooling_type",
                         e->outline.labels    ? POOLING_RANK
                         : e->outline.pooling ? e->outline.pooling
                                              : POOLING_NUMBER[options->pooling]);
        put_labels(e, writer, model);
        if (!e->outline.labels)
            gguf_put_text(writer, GGUF_EMBEDDING,
                          !e->outline.pooling     ? GGUF_EMBEDDING_NONE
                          : e->outline.normalized ? GGUF_EMBEDDING_NORMALIZED
                                                  : GGUF_EMBEDDING_PLAIN);
    }
    tokens_put(writer, &e->tokens);
}

static Status write_export(Export *e, Model *model, const char *path,
                           const WriteOptions *options, Written *written) {
    const GgufOptions *own = options->options ? options->options : &gguf_options;
    const char *dtype = options->dtype ? options->dtype : "keep";
    int uneven = 0;
    TRY(export_open(e, model));
    if (!e->tokens.model)
        diag_warn(e->diag, LOC_FILE(path), NULL,
                  "the model has no tokenizer, so the file has none");
    else if (!e->tokens.lowercase)
        diag_warn(e->diag, LOC_FILE(path), NULL,
                  "llama.cpp makes all texts for BERT lower case, this tokenizer does "
                  "not");
    GgufWriter *writer = gguf_create();
    put_keys(e, writer, model, dtype, own);
    put_tensors(e, writer, dtype, &uneven);
    if (uneven)
        diag_warn(e->diag, LOC_FILE(path), NULL,
                  "%d matri%s f16 in place of %s, whose blocks do not fit their width",
                  uneven, uneven == 1 ? "x is" : "ces are",
                  strcmp(dtype, "keep") == 0 ? "few bits" : dtype);
    written->files = 1;
    return gguf_write(writer, path, &written->bytes, e->diag);
}

static Status write_model(Model *model, const char *path, const WriteOptions *options,
                          Written *written, Diag *diag) {
    Export e = {.arena = arena_create(), .diag = diag};
    const Status status = write_export(&e, model, path, options, written);
    export_close(&e);
    return status;
}

/* ---- the record ---- */

static const Field FIELDS[] = {
    F_CHOICE(
        GgufOptions, pooling, "mean|cls|last|none",
        "of BERT without a classifier and without an embedding of its own: how llama.cpp "
        "makes one vector of a text"),
    F_END};

const GgufOptions gguf_options = {0};

const ModelFormat model_format_gguf = {
    .name = "gguf",
    .what = "a GGUF file",
    .ending = ".gguf",
    .summary = "Llama, GPT-2 and BERT for llama.cpp and its kin",
    .probe = gguf_probe,
    .read = gguf_read_model,
    .fields = FIELDS,
    .options_size = sizeof(GgufOptions),
    .defaults = &gguf_options,
    .dtypes = "keep|f32|f16|bf16|q8_0|q4_0",
    .check = check_model,
    .write = write_model};
