/* A model as one ONNX file: see onnx_file.h. */
#include "io/onnx/write/onnx_file.h"

#include "io/onnx/onnx_form.h"
#include "io/onnx/onnx_notes.h"
#include "io/onnx/write/onnx_exits.h"

#include <stdlib.h>
#include <string.h>

enum { OPSET = 17, IR_VERSION = 8, EXTERNAL_ALIGN = 4096 };

/* ---- what can be written ---- */

static Status fail_node(const Node *node, Diag *diag, const char *what) {
    Text place = {0};
    text_add(&place, "%s", node->stack ? node->stack : "no stack");
    if (node->layer >= 0) text_add(&place, ".%d", node->layer);
    const Status status = diag_fail(diag, STATUS_MODEL, node->loc, NULL, "%s at %s: %s",
                                    node->op->name, place.data, what);
    text_free(&place);
    diag_hint(diag, "the native file (.h5) holds every model");
    return status;
}

/* Operands that a function takes from storages: all of this op's weights but values. */
static Status check_weights(const Node *node, Diag *diag) {
    static const char *const NAMES[] = {"rnn", "lstm", "attention_lstm", "feature_map"};
    const int first = strcmp(node->op->name, "attention") == 0 ? 6 : 1;
    bool named = first > 1;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        named = named || strcmp(NAMES[i], node->op->name) == 0;
    for (int i = 0; strstr(node->op->name, "lstm") && i < node->in_count; i++)
        if (node_has(node, i) && node->in[i]->storage &&
            dtype_is_quantised(node->in[i]->storage->tensor.dtype))
            return fail_node(node, diag,
                             "expected weights of gates as real numbers, found quantised "
                             "ones, which `cast: {dtype: f32}` makes such");
    for (int i = first; named && i < node->in_count; i++) {
        const Operand *operand = &node->op->operands[i];
        const bool value =
            (operand->flags & OPERAND_INTEGER) || strcmp(operand->name, "x") == 0;
        if (node_has(node, i) && !node->in[i]->storage && !value)
            return fail_node(node, diag,
                             "expected weights for ONNX, found computed ones");
    }
    return STATUS_OK;
}

const OnnxOptions *onnx_options(const WriteOptions *options) {
    return options->options ? options->options : &ONNX_DEFAULTS;
}

bool onnx_in_half(const WriteOptions *options) {
    return options->dtype && strcmp(options->dtype, "f16") == 0;
}

Status onnx_check(const Model *model, const OnnxOptions *options, Diag *diag) {
    const Graph *graph = model->graph;
    for (const Node *node = graph->first; node; node = node->next) {
        if (node_is_leaf(node)) continue;
        if (!onnx_op_find(node->op->name))
            return fail_node(node, diag, "this op has no form in ONNX");
        TRY(check_weights(node, diag));
    }
    if (onnx_is_cached(graph, options)) TRY(onnx_check_states(graph, diag));
    return options->exits == ONNX_EXITS_NESTED ? onnx_exits_check(model, diag)
                                               : STATUS_OK;
}

/* ---- files ---- */

static void set_entry(Arena *arena, OnnxTensor *tensor, const char *key,
                      const char *value) {
    OnnxEntry *entry = ARENA_NEW(arena, OnnxEntry);
    *entry = (OnnxEntry)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    entry->key = arena_strdup(arena, key);
    entry->value = arena_strdup(arena, value);
    tensor->external_data[tensor->n_external_data++] = entry;
}

/* Appends all weights to the file beside, one at a time, and adds their hashes to
 * `hashes`. */
static Status write_external(OnnxBuild *b, Text *hashes, OutFile *file, Written *written,
                             Diag *diag) {
    static const uint8_t ZEROS[EXTERNAL_ALIGN];
    size_t at = 0;
    for (int i = 0; i < b->weights.count; i++) {
        const OnnxWeight *weight = b->weights.items[i];
        OnnxTensor *tensor = weight->tensor;
        const uint8_t *bytes;
        char hash[HASH_TEXT_BYTES];
        Buf *made;
        const size_t length = onnx_form_length(&weight->storage->tensor, weight->form);
        const size_t gap = (EXTERNAL_ALIGN - at % EXTERNAL_ALIGN) % EXTERNAL_ALIGN;
        TRY(onnx_form_bytes(&bytes, &made, &weight->storage->tensor, weight->form, diag));
        Status status = outfile_write(file, ZEROS, gap, diag);
        if (status == STATUS_OK) status = outfile_write(file, bytes, length, diag);
        bytes_hash(bytes, length, hash);
        text_add(hashes, "%s %zu\n", hash, length);
        buf_release(made);
        TRY(status);
        at += gap;
        tensor->has_raw_data = false;
        tensor->has_data_location = true;
        tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
        tensor->external_data = ARENA_ARRAY(b->arena, OnnxEntry *, 3);
        set_entry(b->arena, tensor, "location", ""); /* by name_external */
        set_entry(b->arena, tensor, "offset", arena_printf(b->arena, "%zu", at));
        set_entry(b->arena, tensor, "length", arena_printf(b->arena, "%zu", length));
        at += length;
    }
    written->bytes += (int64_t)at;
    written->files++;
    return STATUS_OK;
}

/* What the file beside is called, by the hashes of what is in it; all weights name it. */
static const char *name_external(OnnxBuild *b, const char *path, bool in_folder,
                                 const Text *hashes) {
    char hash[HASH_TEXT_BYTES];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    bytes_hash(hashes->data, hashes->length, hash);
    const char *name = in_folder ? arena_printf(b->arena, "%s" ONNX_BESIDE, base)
                                 : arena_printf(b->arena, "%s" ONNX_BESIDE "-%.*s", base,
                                                BESIDE_DIGITS, hash);
    for (int i = 0; i < b->weights.count; i++) {
        const OnnxWeight *weight = b->weights.items[i];
        weight->tensor->external_data[0]->value = arena_strdup(b->arena, name);
    }
    return name;
}

static OnnxOpset *opset_of(Arena *arena, const char *domain, int64_t version) {
    OnnxOpset *opset = ARENA_NEW(arena, OnnxOpset);
    *opset = (OnnxOpset)ONNX__OPERATOR_SET_ID_PROTO__INIT;
    opset->has_version = true;
    opset->version = version;
    opset->domain = arena_strdup(arena, domain);
    return opset;
}

static Status model_of(OnnxModel **out, OnnxBuild *b, const Model *of, OnnxPart part,
                       Diag *diag) {
    OnnxModel *model = ARENA_NEW(b->arena, OnnxModel);
    *model = (OnnxModel)ONNX__MODEL_PROTO__INIT;
    model->has_ir_version = true;
    model->ir_version = IR_VERSION;
    model->opset_import = ARENA_ARRAY(b->arena, OnnxOpset *, 2);
    model->opset_import[model->n_opset_import++] = opset_of(b->arena, "", OPSET);
    if (b->microsoft)
        model->opset_import[model->n_opset_import++] =
            opset_of(b->arena, "com.microsoft", 1);
    model->producer_name = arena_strdup(b->arena, "compress");
    model->graph = onnx_build_graph(b, "main_graph");
    *out = model;
    return onnx_notes_put(model, b, of, part, diag);
}

/* Writes the messages to a file that is not in place yet. */
static Status write_messages(OutFile **file, const OnnxModel *model, const char *path,
                             Written *written, Diag *diag) {
    TRY(outfile_open(file, NULL, path, diag));
    const Status status = onnx_write(model, *file, diag);
    written->bytes += (int64_t)onnx_bytes(model);
    written->files++;
    if (status == STATUS_OK) return STATUS_OK;
    outfile_abandon(*file);
    return status;
}

/* What files beside a path begin with. */
static const char *stem_of(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    return arena_printf(arena, "%s" ONNX_BESIDE, slash ? slash + 1 : path);
}

static Status write_file(OnnxBuild *b, const OnnxModel *model, const char *path,
                         Written *written, Diag *diag) {
    OutFile *file;
    TRY(write_messages(&file, model, path, written, diag));
    return outfile_commit_pair(NULL, NULL, file, stem_of(b->arena, path), diag);
}

/* The file with its weights in it. */
static Status write_inside(OnnxBuild *b, const Model *model, OnnxPart part,
                           const char *path, Written *written, Diag *diag) {
    Buf **made = memory_alloc((size_t)b->weights.count + 1, sizeof *made);
    memset(made, 0, ((size_t)b->weights.count + 1) * sizeof *made);
    Status status = STATUS_OK;
    for (int i = 0; i < b->weights.count; i++) {
        const OnnxWeight *weight = b->weights.items[i];
        const uint8_t *bytes;
        status = onnx_form_bytes(&bytes, &made[i], &weight->storage->tensor, weight->form,
                                 diag);
        if (status != STATUS_OK) break;
        weight->tensor->raw_data.data = (uint8_t *)bytes;
        weight->tensor->raw_data.len =
            onnx_form_length(&weight->storage->tensor, weight->form);
    }
    OnnxModel *file = NULL;
    if (status == STATUS_OK) status = model_of(&file, b, model, part, diag);
    if (status == STATUS_OK) status = write_file(b, file, path, written, diag);
    for (int i = 0; i < b->weights.count; i++) buf_release(made[i]);
    free(made);
    return status;
}

/* The file with its weights beside it. */
static Status write_beside(OnnxBuild *b, const Model *model, OnnxPart part,
                           const char *path, bool in_folder, Written *written,
                           Diag *diag) {
    OutFile *weights, *file;
    OnnxModel *message;
    Text hashes = {0};
    const char *name = NULL;
    TRY(outfile_open(&weights, NULL, arena_printf(b->arena, "%s" ONNX_BESIDE, path),
                     diag));
    Status status = write_external(b, &hashes, weights, written, diag);
    if (status == STATUS_OK) name = name_external(b, path, in_folder, &hashes);
    text_free(&hashes);
    if (status == STATUS_OK) status = model_of(&message, b, model, part, diag);
    if (status == STATUS_OK) status = write_messages(&file, message, path, written, diag);
    if (status == STATUS_OK)
        return outfile_commit_pair(weights, name, file, stem_of(b->arena, path), diag);
    outfile_abandon(weights);
    return status;
}

Status onnx_file_write(Model *model, OnnxPart part, const char *path, bool in_folder,
                       bool half, const OnnxOptions *options, Written *written,
                       Diag *diag) {
    Arena *arena = arena_create();
    OnnxExport x = {.graph = model->graph,
                    .by_rows = options->activations == ONNX_ACTIVATIONS_ROWS,
                    .with_sign = options->bytes == ONNX_BYTES_SIGNED};
    graph_number(model->graph);
    x.b = onnx_build_create(arena, half ? ONNX_F16 : ONNX_F32);
    x.values = ARENA_ARRAY(arena, const char *, (size_t)model->graph->node_count + 1);
    onnx_export_part(&x, model, part, options);
    size_t bytes = 0;
    for (int i = 0; i < x.b->weights.count; i++) {
        const OnnxWeight *weight = x.b->weights.items[i];
        bytes += onnx_form_length(&weight->storage->tensor, weight->form);
    }
    const Status status =
        bytes > (size_t)options->external_above
            ? write_beside(x.b, model, part, path, in_folder, written, diag)
            : write_inside(x.b, model, part, path, written, diag);
    arena_destroy(arena);
    return status;
}
