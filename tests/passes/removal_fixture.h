/* Small models of every family, the entries whose zeros make a part of them the identity,
 * found by roles, and what the models compute. */
#ifndef COMPRESS_TESTS_PASSES_REMOVAL_FIXTURE_H
#define COMPRESS_TESTS_PASSES_REMOVAL_FIXTURE_H

#include "exec/ops.h"
#include "ir/random.h"
#include "passes/block.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 4096 };

typedef enum NormPlace { NORM_PRE, NORM_POST, NORM_BRANCH } NormPlace;

typedef struct Family {
    const char *name, *stack, *config;
    NormPlace place;
    bool cross; /* its layers attend to another stack */
} Family;

#define MARIAN(norm)                                                                     \
    "{model_type: marian, architectures: [MarianMTModel], d_model: 8, norm: " norm ",\n" \
    " encoder_layers: 3, decoder_layers: 3, encoder_attention_heads: 2,\n"               \
    " decoder_attention_heads: 2, encoder_ffn_dim: 12, decoder_ffn_dim: 12,\n"           \
    " vocab_size: 12, normalize_embedding: true, activation_function: relu}\n"

#define T5(feed_forward)                                                                 \
    "{model_type: t5, d_model: 8, d_kv: 4, num_heads: 2, d_ff: 12, num_layers: 3,\n"     \
    " vocab_size: 12, feed_forward_proj: " feed_forward "}\n"

/* Norms after the sum have a small eps: they then leave normalised values as they are. */
static const Family FAMILIES[] = {
    {"vit", "encoder",
     "{model_type: vit, architectures: [ViTForImageClassification], hidden_size: 8,\n"
     " num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 12,\n"
     " hidden_act: gelu, image_size: 4, patch_size: 2, num_channels: 1, num_labels: 3}\n",
     NORM_PRE, false},
    {"dinov2", "encoder",
     "{model_type: dinov2, architectures: [Dinov2ForImageClassification],\n"
     " hidden_size: 8, num_hidden_layers: 3, num_attention_heads: 2, mlp_ratio: 1.5,\n"
     " image_size: 4, patch_size: 2, num_channels: 1, num_labels: 3}\n",
     NORM_PRE, false},
    {"bert", "encoder",
     "{model_type: bert, architectures: [BertForSequenceClassification], hidden_size: 8,\n"
     " num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 12,\n"
     " hidden_act: gelu, vocab_size: 12, max_position_embeddings: 6, num_labels: 3}\n",
     NORM_POST, false},
    {"gpt2", "decoder",
     "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 3,\n"
     " n_head: 2, n_inner: 12, vocab_size: 12, n_positions: 8}\n",
     NORM_PRE, false},
    {"llama", "decoder",
     "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 8,\n"
     " num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 12,\n"
     " vocab_size: 12}\n",
     NORM_PRE, false},
    {"t5, encoder", "encoder", T5("relu"), NORM_PRE, false},
    {"t5, decoder", "decoder", T5("gated-gelu"), NORM_PRE, true},
    {"marian, norm post, encoder", "encoder", MARIAN("post"), NORM_POST, false},
    {"marian, norm post, decoder", "decoder", MARIAN("post"), NORM_POST, true},
    {"marian, norm pre, encoder", "encoder", MARIAN("pre"), NORM_PRE, false},
    {"marian, norm pre, decoder", "decoder", MARIAN("pre"), NORM_PRE, true},
    {"marian, norm branch, encoder", "encoder", MARIAN("branch"), NORM_BRANCH, false},
    {"marian, norm branch, decoder", "decoder", MARIAN("branch"), NORM_BRANCH, true},
};
enum { FAMILY_COUNT = sizeof FAMILIES / sizeof *FAMILIES, LAYERS = 3, HEAD_WIDTH = 4 };

/* A recurrent translation model with additive attention. */
#define RECURRENT(input)                                                                 \
    "{model_type: rnn_attention, source_vocab_size: 12, target_vocab_size: 12,\n"        \
    " embedding_size: 5, encoder_size: 6, decoder_size: 7, alignment_size: 4,\n"         \
    " decoder_input: " input "}\n"

static const Family RECURRENTS[] = {
    {"rnn_attention, token", "decoder", RECURRENT("token"), NORM_PRE, false},
    {"rnn_attention, state", "decoder", RECURRENT("state"), NORM_PRE, false},
};
enum { RECURRENT_COUNT = 2 };

/* Choices of `zero` of remove_attention: all, score, projections. */
enum { ZERO_COUNT = 3 };

static inline Storage *storage_at(const Model *model, const char *stack, int layer,
                                  Role role, const char *operand) {
    const Node *node = graph_find(model->graph, stack, layer, role);
    if (!node) fail_msg("no %s in %s.%d", role_name(role), stack, layer);
    const Node *leaf = node_operand(node, operand);
    return leaf ? leaf->storage : NULL;
}

/* ---- entries that are set ---- */

typedef struct Entry {
    const char *storage;
    int64_t at;
    double value;
} Entry;

enum { ENTRIES = 2048 };
typedef struct Entries {
    Entry items[ENTRIES];
    int count;
} Entries;

/* Entries [first, first + count) of an axis (all of the storage for -1). */
static inline void add_entries(Entries *out, const Storage *storage, int axis,
                               int64_t first, int64_t count, double value) {
    if (!storage) return;
    const Tensor *tensor = &storage->tensor;
    const int64_t columns = tensor->rank > 1 ? tensor->dim[1] : 1;
    for (int64_t e = 0; e < tensor_count(tensor); e++) {
        const int64_t i = axis == 0 ? e / columns : e % columns;
        if (axis >= 0 && (i < first || i >= first + count)) continue;
        if (out->count == ENTRIES) fail_msg("too many entries");
        out->items[out->count++] = (Entry){storage->name, e, value};
    }
}

static inline bool is_rms(const Node *node) {
    return strcmp(node->op->name, "rms_norm") == 0;
}

static inline void add_norm(Entries *out, const Model *model, const Family *f, int layer,
                            Role role) {
    const Node *norm = graph_find(model->graph, f->stack, layer, role);
    assert_non_null(norm);
    if (f->place == NORM_POST)
        add_entries(out, storage_at(model, f->stack, layer, role, "weight"), -1, 0, 0, 1);
    if (f->place != NORM_PRE && !is_rms(norm))
        add_entries(out, storage_at(model, f->stack, layer, role, "bias"), -1, 0, 0, 0);
}

/* What makes one block of a layer the identity. */
static inline void add_block(Entries *out, const Model *model, const Family *f, int layer,
                             BlockKind kind) {
    static const Role last[] = {ROLE_OUT, ROLE_CROSS_OUT, ROLE_FFN_OUT};
    static const Role norm[] = {ROLE_NORM1, ROLE_NORM_CROSS, ROLE_NORM2};
    add_entries(out, storage_at(model, f->stack, layer, last[kind], "weight"), -1, 0, 0,
                0);
    add_entries(out, storage_at(model, f->stack, layer, last[kind], "bias"), -1, 0, 0, 0);
    add_norm(out, model, f, layer, norm[kind]);
}

static inline void add_layer(Entries *out, const Model *model, const Family *f,
                             int layer) {
    add_block(out, model, f, layer, BLOCK_ATTENTION);
    if (f->cross) add_block(out, model, f, layer, BLOCK_CROSS_ATTENTION);
    add_block(out, model, f, layer, BLOCK_FFN);
}

/* The axis of a projection's weight that belongs to what it reads, or to what it gives.
 */
static inline int axis_of(const Model *model, const Family *f, int layer, Role role,
                          bool reads) {
    const Node *node = graph_find(model->graph, f->stack, layer, role);
    return reads != ((const LinearAttrs *)node->attrs)->transposed;
}

/* A head's columns of its projection, or its values; of self- or cross-attention. */
static inline void add_one_head(Entries *out, const Model *model, const Family *f,
                                int layer, int head, bool value, bool cross) {
    static const Role roles[2][2] = {{ROLE_OUT, ROLE_V}, {ROLE_CROSS_OUT, ROLE_CROSS_V}};
    const Role role = roles[cross][value];
    add_entries(out, storage_at(model, f->stack, layer, role, "weight"),
                axis_of(model, f, layer, role, !value), head * HEAD_WIDTH, HEAD_WIDTH, 0);
    if (value)
        add_entries(out, storage_at(model, f->stack, layer, role, "bias"), 0,
                    head * HEAD_WIDTH, HEAD_WIDTH, 0);
}

/* That head of every attention of a layer. */
static inline void add_head(Entries *out, const Model *model, const Family *f, int layer,
                            int head, bool value) {
    add_one_head(out, model, f, layer, head, value, false);
    if (f->cross) add_one_head(out, model, f, layer, head, value, true);
}

static inline void add_alignment(Entries *out, const Model *model, int zero) {
    static const char *const names[] = {
        "attention.score.weight", "attention.memory.weight", "attention.state.weight"};
    for (int i = 0; i < 3; i++)
        if (zero == 0 || (zero == 1) == (i == 0))
            add_entries(out, graph_storage(model->graph, names[i]), -1, 0, 0, 0);
}

/* ---- models ---- */

/* Writes elements of a storage as float32. */
static inline float *writable(Storage *storage) {
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
    assert_int_equal(storage->tensor.dtype, DTYPE_F32);
    diag_destroy(diag);
    return data;
}

/* A model of a family whose weights, biases and norms are all disturbed. */
static inline Model *draw_model(const Family *f, uint64_t seed) {
    Model *model = configured_model(f->config, seed);
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        const uint64_t key = random_key_name(seed, storage->name);
        float *w = writable(storage);
        for (int64_t e = 0; e < tensor_count(&storage->tensor); e++)
            w[e] += (float)(0.3 * random_normal(key, (uint64_t)e));
    }
    return model;
}

/* Multiplies what a projection reads of entries [first, first + count), or gives to them.
 */
static inline void scale_units(Model *model, const Family *f, int layer, Role role,
                               bool reads, int64_t first, int64_t count, float by) {
    Storage *storage = storage_at(model, f->stack, layer, role, "weight");
    const int axis = axis_of(model, f, layer, role, reads);
    const int64_t columns = storage->tensor.dim[1];
    float *w = writable(storage);
    for (int64_t e = 0; e < tensor_count(&storage->tensor); e++) {
        const int64_t i = axis == 0 ? e / columns : e % columns;
        if (i >= first && i < first + count) w[e] *= by;
    }
}

/* Makes a head of every attention the one of the smallest magnitude. */
static inline void shrink_head(Model *model, const Family *f, int head, float by) {
    for (int layer = 0; layer < LAYERS; layer++) {
        const int64_t first = head * HEAD_WIDTH;
        scale_units(model, f, layer, ROLE_OUT, true, first, HEAD_WIDTH, by);
        if (f->cross)
            scale_units(model, f, layer, ROLE_CROSS_OUT, true, first, HEAD_WIDTH, by);
    }
}

#define NORM_EPS 1e-12

/* All norms at gain 1 and shift 0, with a tiny eps. A norm of what a norm gave, which is
 * where one more or less stands after sums, then divides by sqrt(1 + NORM_EPS), and by
 * sqrt(v + NORM_EPS) / sqrt(v) a row of variance v: NORMS_DIFFER for ten norms of rows of
 * variances above 0.01. */
#define NORMS_DIFFER (10 * NORM_EPS / 0.01)
static inline void set_norms(Model *model) {
    for (Node *node = model->graph->first; node; node = node->next) {
        if (strcmp(node->op->name, "layer_norm") != 0) continue;
        float *gain = writable(node->in[1]->storage),
              *shift = writable(node->in[2]->storage);
        for (int64_t i = 0; i < node->in[1]->type.dim[0]; i++) gain[i] = 1, shift[i] = 0;
        ((LayerNormAttrs *)node->attrs)->eps = NORM_EPS;
    }
}

static inline void set_entries(Model *model, const Entries *entries) {
    for (int i = 0; i < entries->count; i++) {
        const Entry *entry = &entries->items[i];
        writable(graph_storage(model->graph, entry->storage))[entry->at] =
            (float)entry->value;
    }
}

/* ---- what they compute ---- */

/* The largest difference of any output that both have; *rounding, if not NULL, is what
 * the rounding of double in their chains may be. */
static inline double difference(Model *a, Model *b, double *rounding) {
    static double x[VALUES], y[VALUES];
    double largest = 0;
    if (rounding) *rounding = 0;
    for (int o = 0; o < a->graph->output_count; o++) {
        const char *name = a->graph->outputs[o].name;
        if (!graph_output(b->graph, name)) continue;
        const int64_t count = configured_run(a, name, 0, x, VALUES);
        assert_int_equal(configured_run(b, name, 0, y, VALUES), count);
        for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(x[i] - y[i]));
        if (rounding)
            *rounding = fmax(*rounding,
                             rounding_tolerance(PRECISION_F64, configured_terms(a, name),
                                                largest_value(x, count)));
    }
    return largest;
}

#endif
