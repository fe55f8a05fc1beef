/* quantize: weights of linear layers and embeddings as whole numbers of 8 or 4 bits. The
 * numbers are chosen in rounding.c, and smoothing is in smooth.c. */
#include "exec/linalg/gemm.h"
#include "ir/quantised.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/linears.h"
#include "passes/oneshot/drift.h"
#include "passes/quantize/rounding.h"
#include "passes/quantize/smooth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum QuantizeType { QUANTIZE_INT8, QUANTIZE_INT4 } QuantizeType;
typedef enum QuantizeMethod { QUANTIZE_NEAREST, QUANTIZE_GPTQ } QuantizeMethod;
typedef enum QuantizeActs { QUANTIZE_ACT_FLOAT, QUANTIZE_ACT_INT8 } QuantizeActs;
typedef enum QuantizeTables { TABLES_INT8, TABLES_SAME, TABLES_FLOAT } QuantizeTables;

typedef struct QuantizeOptions {
    int dtype;
    int64_t group;
    bool asymmetric;
    int method;
    int activations;
    double smooth;
    int embeddings;
    StringList only, skip;
    bool follow;
    CalibrationOptions calibration;
} QuantizeOptions;

/* Not given. */
#define SMOOTH_NONE (-1.0)

static const Field fields[] = {
    F_CHOICE(QuantizeOptions, dtype, "int8|int4",
             "whole numbers of 8 bits with a scale for each row, or of 4 bits with one "
             "for each group along a row",
             .required = true),
    F_INT(QuantizeOptions, group, 32, 128, "int4: weights of a group: 32, 64 or 128"),
    F_BOOL(QuantizeOptions, asymmetric, "int4: groups have zero points"),
    F_CHOICE(QuantizeOptions, method, "nearest|gptq",
             "nearest numbers, or columns one after the other on calibration data"),
    F_BOOL(QuantizeOptions, follow,
           "gptq: layers also make up for what rounding the layers before them has "
           "changed"),
    F_CHOICE(
        QuantizeOptions, activations, "float|int8",
        "int8: linear layers round what they read as well, and multiply whole numbers"),
    F_REAL(QuantizeOptions, smooth, 0, 1,
           "move this part of the activations' ranges into the weights, where a norm "
           "can take it up"),
    F_CHOICE(QuantizeOptions, embeddings, "int8|same|float",
             "embeddings and what shares their weights: 8 bits a number, as all others, "
             "or as they are"),
    F_STRINGS(QuantizeOptions, only, "storages: names, * is any text"),
    F_STRINGS(QuantizeOptions, skip, "storages that stay as they are"),
    F_CALIBRATION(QuantizeOptions, calibration),
    F_END,
};

static const char *everything[] = {"*"};
static const QuantizeOptions defaults = {.group = 64,
                                         .smooth = SMOOTH_NONE,
                                         .only = {everything, 1},
                                         .calibration = CALIBRATION_DEFAULTS};

static bool needs_data(const QuantizeOptions *options) {
    return options->method == QUANTIZE_GPTQ || options->smooth >= 0;
}

static Status quantize_check(const void *opaque, const StepSource *source, Diag *diag) {
    const QuantizeOptions *options = opaque;
    bool known = false;
    for (int g = 0; g < QUANTISED_GROUPS; g++)
        known |= options->group == QUANTISED_GROUP[g];
    if (!known)
        return option_fail(source, "group", STATUS_RECIPE, diag,
                           "expected groups of 32, 64 or 128 weights, found %lld",
                           (long long)options->group);
    if (options->dtype == QUANTIZE_INT8 && options->group != defaults.group)
        return option_fail(source, "group", STATUS_RECIPE, diag,
                           "expected dtype: int4 with it: int8 has a scale for each row");
    if (options->dtype == QUANTIZE_INT8 && options->asymmetric)
        return option_fail(source, "asymmetric", STATUS_RECIPE, diag,
                           "expected false with int8, which is symmetric: zero points "
                           "are for int4");
    if (options->smooth >= 0 && options->activations != QUANTIZE_ACT_INT8)
        return option_fail(source, "smooth", STATUS_RECIPE, diag,
                           "smoothing is for activations of 8 bits: expected "
                           "\"activations: int8\" beside it");
    if (needs_data(options) && !options->calibration.data)
        return option_fail(source, "method|smooth", STATUS_RECIPE, diag,
                           "expected \"data\", a data set to calibrate with");
    if (!needs_data(options) && options->calibration.data)
        return option_fail(source, "data", STATUS_RECIPE, diag,
                           "nothing is calibrated: expected \"method: gptq\" or "
                           "\"smooth\" beside it");
    if (options->follow && options->method != QUANTIZE_GPTQ)
        return option_fail(source, "follow", STATUS_RECIPE, diag,
                           "expected method: gptq with it");
    const CalibrationOptions *calibration = &options->calibration;
    if (!calibration->data && calibration->samples != defaults.calibration.samples)
        return option_fail(source, "samples", STATUS_RECIPE, diag, "needs data");
    if (!calibration->data && calibration->damp != defaults.calibration.damp)
        return option_fail(source, "damp", STATUS_RECIPE, diag, "needs data");
    return STATUS_OK;
}

/* State of one run. */
typedef struct Quantizer {
    PassContext *ctx;
    Graph *graph;
    const QuantizeOptions *options;
    Tensor type;   /* what weights become, without a shape; */
    Tensor tables; /* embeddings */
    Node **chosen; /* leaves, in order of their first users */
    bool *done;    /* by chosen leaf */
    int count;
    Calibration *calibration;
    Before before; /* with `follow`, else calibration NULL */
    Tree *errors;
    const char *worst;
    double largest;
    int64_t parameters, rounded; /* rounded: linear layers that round what they read */
} Quantizer;

/* ---- which weights ---- */

static bool reads_weight(const Node *node, const Node *leaf) {
    return (node_is(node, &op_linear) || node_is(node, &op_embedding)) &&
           node->in[1] == leaf;
}

static bool has_lookup(const Graph *graph, const Node *leaf) {
    for (const Node *node = graph->first; node; node = node->next)
        if (node_is(node, &op_embedding) && node->in[1] == leaf) return true;
    return false;
}

/* What a leaf becomes, without data. */
static Tensor type_of(const Quantizer *z, const Node *leaf) {
    const Tensor *tensor = storage_tensor(leaf->storage);
    return tensor_shape_like(has_lookup(z->graph, leaf) ? &z->tables : &z->type,
                             tensor->rank, tensor->dim);
}

static bool is_wanted(const Quantizer *z, const Node *leaf) {
    const QuantizeOptions *options = z->options;
    if (!leaf || !leaf->storage || leaf->type.rank < 2) return false;
    const Tensor *tensor = storage_tensor(leaf->storage);
    const Tensor shape = type_of(z, leaf);
    return dtype_is_real(tensor->dtype) && tensor_count(tensor) > 0 &&
           !tensor_same_form(tensor, &shape) &&
           name_matches_any(&options->only, leaf->storage->name) &&
           !name_matches_any(&options->skip, leaf->storage->name) &&
           (options->embeddings != TABLES_FLOAT || !has_lookup(z->graph, leaf));
}

static int find_chosen(const Quantizer *z, const Node *leaf) {
    for (int i = 0; i < z->count; i++)
        if (z->chosen[i] == leaf) return i;
    return -1;
}

static Status choose(Quantizer *z, Diag *diag) {
    Arena *arena = z->ctx->arena;
    z->chosen = ARENA_ARRAY(arena, Node *, (size_t)z->graph->storage_count + 1);
    z->done = ARENA_ARRAY(arena, bool, (size_t)z->graph->storage_count + 1);
    for (const Node *node = z->graph->first; node; node = node->next) {
        if (!node_is(node, &op_linear) && !node_is(node, &op_embedding)) continue;
        if (is_wanted(z, node->in[1]) && find_chosen(z, node->in[1]) < 0)
            z->chosen[z->count++] = node->in[1];
    }
    if (z->count == 0)
        return step_fail_option(z->ctx, "only|skip|embeddings", diag,
                                "no linear layer or embedding has weights of such a name "
                                "that are not of this type already");
    step_warn_unmatched(z->ctx, z->graph, "only", &z->options->only, diag);
    step_warn_unmatched(z->ctx, z->graph, "skip", &z->options->skip, diag);
    return STATUS_OK;
}

/* Whether all who read a leaf are linear layers that have it as [inputs, outputs]. */
static bool is_turned(const Quantizer *z, const Node *leaf) {
    int readers = 0;
    for (const Node *node = z->graph->first; node; node = node->next)
        readers +=
            node_is(node, &op_linear) && node->in[1] == leaf && linear_is_turned(node);
    return readers == graph_use_count(z->graph, leaf);
}

/* Stores what linear layers read as [inputs, outputs] (GPT-2) the other way round: a row,
 * which has a scale of its own, is one of outputs then. */
static Status turn_rows(Quantizer *z, Diag *diag) {
    for (int i = 0; i < z->count; i++) {
        Node *leaf = z->chosen[i];
        if (leaf->type.rank != 2 || !is_turned(z, leaf)) continue;
        TRY(storage_turn(z->graph, leaf, STORAGE_ALL_USERS, diag));
        for (Node *node = z->graph->first; node; node = node->next)
            if (reads_weight(node, leaf))
                TRY(node_set(z->graph, node, diag, "transposed=false"));
    }
    return STATUS_OK;
}

/* ---- rounding them ---- */

static void note_error(Quantizer *z, const Storage *storage, RoundingError error) {
    const double relative = error.whole > 0 ? sqrt(error.off / error.whole) : 0;
    tree_put_real(z->ctx->arena, z->errors, storage->name, relative);
    if (z->worst && relative <= z->largest) return;
    z->worst = storage->name;
    z->largest = relative;
}

/* Numbers of 4 bits have scales of 16 bits, which end: what lies beyond would be cut off.
 */
static Status check_range(const Quantizer *z, const Storage *storage, Diag *diag) {
    enum { PIECE = 1024 };
    const Tensor *from = storage_tensor(storage);
    const int64_t count = tensor_count(from);
    const float most = 7 * 65504.0F;
    float piece[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t n = count - at < PIECE ? count - at : PIECE;
        tensor_read_f32(from, at, n, piece);
        for (int64_t i = 0; i < n; i++) {
            if (fabsf(piece[i]) <= most) continue;
            step_fail(
                z->ctx, diag,
                "%s: weight %lld is %.9g: expected at most %.9g, 7 times the largest "
                "scale of numbers of 4 bits",
                storage->name, (long long)(at + i), (double)piece[i], (double)most);
            diag_hint(diag, "int8 has no such end; or leave it out with `skip`");
            return STATUS_MODEL;
        }
    }
    return STATUS_OK;
}

/* `factor` and `aim`: see round_gptq; without a factor to the nearest. */
static Status round_leaf(Quantizer *z, int chosen, const Tensor *aim,
                         const GptqFactor *factor, Diag *diag) {
    Storage *storage = z->chosen[chosen]->storage;
    const Tensor *from = storage_tensor(storage);
    Tensor to = type_of(z, z->chosen[chosen]);
    z->done[chosen] = true;
    z->parameters += tensor_count(from);
    if (storage_has_data(storage)) {
        const int64_t bad = tensor_find_nonfinite(from);
        if (bad >= 0)
            return step_fail(z->ctx, diag, "%s: weight %lld is not finite", storage->name,
                             (long long)bad);
        if (to.dtype == DTYPE_Q4) TRY(check_range(z, storage, diag));
        TRY(tensor_allocate(&to, diag));
        note_error(z, storage,
                   factor ? round_gptq(&to, from, aim, factor, z->ctx->threads)
                          : round_nearest(&to, from, z->ctx->threads));
    }
    storage_set_values(storage, to);
    return STATUS_OK;
}

/* ---- on calibration data ---- */

/* Whether a leaf's columns are the inputs of all who read it, so that a Gram matrix tells
 * what they are worth: rows that are looked up have none. */
static bool has_inputs(const Quantizer *z, const Node *leaf) {
    for (const Node *node = z->graph->first; node; node = node->next)
        if (reads_weight(node, leaf) &&
            (node_is(node, &op_embedding) || linear_is_turned(node)))
            return false;
    return true;
}

/* The different values that readers of a leaf multiply with it. */
static int inputs_of(const Quantizer *z, const Node *leaf, Node **inputs) {
    int count = 0;
    for (Node *node = z->graph->first; node; node = node->next) {
        if (!reads_weight(node, leaf)) continue;
        bool known = false;
        for (int i = 0; i < count; i++) known |= inputs[i] == node->in[0];
        if (!known) inputs[count++] = node->in[0];
    }
    return count;
}

static bool same_inputs(Node *const *a, int count_a, Node *const *b, int count_b) {
    return count_a == count_b && memcmp(a, b, (size_t)count_a * sizeof(Node *)) == 0;
}

/* The residual sum that a leaf's only reader writes to; NULL when there is none. */
static Node *find_sum(const Quantizer *z, const Node *leaf) {
    Node *reader = NULL;
    for (Node *node = z->graph->first; node; node = node->next) {
        if (!reads_weight(node, leaf)) continue;
        if (reader) return NULL;
        reader = node;
    }
    Node *value = drift_value(z->graph, reader);
    return value == reader ? NULL : value;
}

/* Rounds a leaf towards weights that make up for a drift: that of the sum behind them, or
 * of their inputs, which they then make one of outputs. */
static Status round_following(Quantizer *z, int chosen, const Drift *drift,
                              bool of_inputs, const GptqFactor *factor, Diag *diag) {
    const Tensor *from = storage_tensor(z->chosen[chosen]->storage);
    const int64_t K = drift->inputs, M = tensor_count(from) / K;
    Tensor aim = tensor_shape(DTYPE_F32, from->rank, from->dim);
    TRY(tensor_allocate(&aim, diag));
    float *weights = (float *)(uintptr_t)tensor_data(&aim);
    double *w = memory_alloc((size_t)(M * K), sizeof *w);
    double *cross = memory_alloc((size_t)(M * K), sizeof *cross);
    tensor_read_f32(from, 0, M * K, weights);
    tensor_read_f64(from, 0, M * K, w);
    if (of_inputs) gemm_f64(false, false, M, K, K, 1, w, K, drift->cross, K, 0, cross, K);
    Status status =
        gptq_follow(weights, M, of_inputs ? cross : drift->cross, factor, diag);
    if (status == STATUS_OK) status = round_leaf(z, chosen, &aim, factor, diag);
    free(w);
    free(cross);
    tensor_release(&aim);
    return status;
}

/* The inputs of leaves that are rounded by one factor, and what is known of them. */
typedef struct Inputs {
    Node **values;
    int count;
    Gram gram;
    Drift drift; /* nothing in it where nothing is followed */
    Node *sum;   /* whose drift it is; NULL = that of the inputs */
    GptqFactor *factor;
} Inputs;

/* Weights that several layers share have no one sum to follow. */
static Status gather(Quantizer *z, Inputs *in, const Node *leaf, Diag *diag) {
    if (!z->before.calibration || in->count > 1) {
        TRY(calibration_gram_of_all(z->calibration, in->values, in->count, &in->gram,
                                    diag));
    } else {
        Node *x = in->values[0];
        in->sum = find_sum(z, leaf);
        TRY(drift_gather(&in->drift, &in->gram, z->calibration, x, in->sum ? in->sum : x,
                         &z->before, diag));
    }
    calibration_warn_rows(z->calibration, in->gram.rows, in->gram.width, diag);
    gram_damp(&in->gram, z->options->calibration.damp);
    return gptq_factor(&in->factor, &in->gram, leaf->storage->name, diag);
}

/* Rounds those of the leaves from `chosen` on that have these inputs; where a sum is
 * followed that one alone. */
static Status round_readers(Quantizer *z, const Inputs *in, int chosen, Diag *diag) {
    const bool follow = in->drift.cross;
    Node **others = memory_alloc((size_t)z->graph->node_count + 1, sizeof *others);
    Status status = STATUS_OK;
    for (int i = chosen; i < z->count && status == STATUS_OK; i++) {
        const Node *leaf = z->chosen[i];
        if (z->done[i] || !has_inputs(z, leaf)) continue;
        if (i > chosen && follow && (in->sum || find_sum(z, leaf))) continue;
        const int count = inputs_of(z, leaf, others);
        if (!same_inputs(in->values, in->count, others, count)) continue;
        status = follow ? round_following(z, i, &in->drift, !in->sum, in->factor, diag)
                        : round_leaf(z, i, NULL, in->factor, diag);
    }
    free(others);
    return status;
}

/* Rounds a leaf and all others with the same inputs by one factor. */
static Status round_with_inputs(Quantizer *z, int chosen, Diag *diag) {
    Inputs in = {0};
    in.values = memory_alloc((size_t)z->graph->node_count + 1, sizeof *in.values);
    in.count = inputs_of(z, z->chosen[chosen], in.values);
    Status status = gather(z, &in, z->chosen[chosen], diag);
    if (status == STATUS_OK) status = round_readers(z, &in, chosen, diag);
    gptq_factor_free(in.factor);
    gram_destroy(&in.gram);
    drift_free(&in.drift);
    free(in.values);
    return status;
}

/* All values that are calibrated for. */
static Status open_calibration(Quantizer *z, Diag *diag) {
    Node **inputs = memory_alloc((size_t)z->graph->node_count + 1, sizeof *inputs);
    int count = 0;
    for (Node *node = z->graph->first; node; node = node->next)
        if (node_is(node, &op_linear) && find_chosen(z, node->in[1]) >= 0)
            inputs[count++] = node->in[0];
    const Status status = calibration_open(&z->calibration, z->ctx, z->graph, inputs,
                                           count, &z->options->calibration, diag);
    free(inputs);
    if (status == STATUS_OK && z->calibration)
        calibration_record(z->calibration, z->ctx->record);
    return status;
}

/* The model as it is before anything is rounded, at what is followed of it. */
static Status open_before(Quantizer *z, Diag *diag) {
    Node **values = memory_alloc((size_t)z->graph->node_count + 1, sizeof *values);
    int count = 0;
    for (Node *node = z->graph->first; node; node = node->next)
        if (node_is(node, &op_linear) && find_chosen(z, node->in[1]) >= 0)
            values[count++] = node->in[0];
    const Status status = before_open(&z->before, z->ctx, z->graph, values, count,
                                      &z->options->calibration, diag);
    free(values);
    return status;
}

/* Who rounds first what is looked up makes the values that come behind it others. */
static Status round_all(Quantizer *z, Diag *diag) {
    const bool columns = z->options->method == QUANTIZE_GPTQ && z->calibration;
    for (int i = 0; i < z->count; i++)
        if (!columns || !has_inputs(z, z->chosen[i]))
            TRY(round_leaf(z, i, NULL, NULL, diag));
    for (int i = 0; i < z->count; i++)
        if (!z->done[i]) TRY(round_with_inputs(z, i, diag));
    return STATUS_OK;
}

/* Linear layers of weights that are quantised now round what they read. */
static Status round_activations(Quantizer *z, Diag *diag) {
    for (Node *node = z->graph->first; node; node = node->next) {
        if (!node_is(node, &op_linear) || linear_is_turned(node) ||
            find_chosen(z, node->in[1]) < 0)
            continue;
        TRY(node_set(z->graph, node, diag, "act=i8"));
        z->rounded++;
    }
    return STATUS_OK;
}

static Status quantize_all(Quantizer *z, Diag *diag) {
    const QuantizeOptions *options = z->options;
    if (options->smooth >= 0) {
        SmoothReport report = {0};
        TRY(smooth_activations(&report, z->ctx, z->graph, z->calibration, z->chosen,
                               z->count, options->smooth, diag));
        tree_put_int(z->ctx->arena, z->ctx->record, "smoothed", report.norms);
    }
    if (options->follow && z->calibration) TRY(open_before(z, diag));
    TRY(round_all(z, diag));
    return options->activations == QUANTIZE_ACT_INT8 ? round_activations(z, diag)
                                                     : STATUS_OK;
}

static Status quantize_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    const QuantizeOptions *options = opaque;
    const bool int4 = options->dtype == QUANTIZE_INT4;
    Quantizer z = {.ctx = ctx, .graph = model->graph, .options = options};
    z.type = (Tensor){.dtype = int4 ? DTYPE_Q4 : DTYPE_Q8,
                      .group = int4 ? options->group : 0,
                      .zeros = int4 && options->asymmetric};
    z.tables = options->embeddings == TABLES_SAME ? z.type : (Tensor){.dtype = DTYPE_Q8};
    const int64_t before = (int64_t)graph_parameter_bytes(model->graph);
    TRY(choose(&z, diag));
    TRY(turn_rows(&z, diag));
    if (needs_data(options)) TRY(open_calibration(&z, diag));
    z.errors = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
    const Status status = quantize_all(&z, diag);
    if (z.before.graph) before_close(&z.before);
    calibration_close(z.calibration);
    TRY(status);
    tree_put_int(ctx->arena, ctx->record, "storages", z.count);
    tree_put_int(ctx->arena, ctx->record, "parameters", z.parameters);
    tree_put_int(ctx->arena, ctx->record, "bytes_before", before);
    tree_put_int(ctx->arena, ctx->record, "bytes_after",
                 (int64_t)graph_parameter_bytes(model->graph));
    if (z.rounded) tree_put_int(ctx->arena, ctx->record, "rounded_inputs", z.rounded);
    if (ctx->plan || !z.worst) return STATUS_OK;
    tree_put_real(ctx->arena, ctx->record, "largest_error", z.largest);
    tree_put_string(ctx->arena, ctx->record, "worst_storage", z.worst);
    tree_append(ctx->arena, ctx->record, "errors", LOC_NONE, z.errors);
    return STATUS_OK;
}

const Pass pass_quantize = {
    .name = "quantize",
    .summary = "round weights to 8 or 4 bits",
    .paper = "GPTQ (Frantar et al., ICLR 2023), SmoothQuant (Xiao et al., ICML 2023)",
    .fields = fields,
    .options_size = sizeof(QuantizeOptions),
    .defaults = &defaults,
    .data_options = "data",
    .exactness = PASS_LOSSY,
    .effects = {.gives = MODEL_QUANTISED},
    .check = quantize_check,
    .run = quantize_run,
};
