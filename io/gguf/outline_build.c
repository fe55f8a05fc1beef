/* Outlines: the graph of one, and whether it is that of a model. See outline.h. */
#include "io/gguf/outline.h"

#include "io/formats/hf.h"
#include "ir/rewrite.h"
#include "ir/storage.h"

#include <stdlib.h>
#include <string.h>

/* Whether all layers are alike, so that one number says what each of them has. */
static bool is_uniform(const Outline *outline) {
    for (int i = 0; i < outline->layers; i++) {
        const OutlineLayer *layer = &outline->layer[i], *first = outline->layer;
        if (layer->heads != first->heads || layer->kv_heads != first->kv_heads ||
            layer->units != first->units || !layer->heads || !layer->units)
            return false;
    }
    return true;
}

const char *outline_architecture(const Outline *outline) {
    if (outline->kind == OUTLINE_GPT2) return "gpt2";
    if (outline->kind == OUTLINE_BERT) return "bert";
    if (outline->kind == OUTLINE_QWEN2) return "qwen2";
    if (outline->kind == OUTLINE_QWEN3) return "qwen3";
    return is_uniform(outline) ? "llama" : "deci";
}

/* ---- configuration ---- */

/* Most heads and units of any layer: what all layers are built with before they are cut.
 */
static OutlineLayer find_largest(const Outline *outline) {
    OutlineLayer largest = {1, 1, 1, false, false};
    for (int i = 0; i < outline->layers; i++) {
        const OutlineLayer *layer = &outline->layer[i];
        if (layer->heads > largest.heads) largest.heads = layer->heads;
        if (layer->units > largest.units) largest.units = layer->units;
    }
    largest.kv_heads = largest.heads; /* which divide them in every layer's own way */
    return is_uniform(outline) ? outline->layer[0] : largest;
}

static void config_llama(Arena *arena, Tree *config, const Outline *outline,
                         const OutlineLayer *layer) {
    tree_put_int(arena, config, "hidden_size", outline->width);
    tree_put_int(arena, config, "num_hidden_layers", outline->layers);
    tree_put_int(arena, config, "num_attention_heads", layer->heads);
    tree_put_int(arena, config, "num_key_value_heads", layer->kv_heads);
    if (layer->heads * outline->head_width != outline->width ||
        outline->kind == OUTLINE_QWEN3) /* else 128 */
        tree_put_int(arena, config, "head_dim", outline->head_width);
    tree_put_int(arena, config, "intermediate_size", layer->units);
    tree_put_int(arena, config, "max_position_embeddings", outline->positions);
    tree_put_string(arena, config, "hidden_act", "silu");
    tree_put_real(arena, config, "rms_norm_eps", outline->eps);
    tree_put_real(arena, config, "rope_theta", outline->theta);
    if (outline->kind == OUTLINE_QWEN2) return; /* which has biases of its own */
    tree_put_bool(arena, config, "attention_bias", outline->attention_bias);
    tree_put_bool(arena, config, "mlp_bias", outline->units_bias);
}

static void config_gpt2(Arena *arena, Tree *config, const Outline *outline,
                        const OutlineLayer *layer) {
    static const char *const RATES[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
    tree_put_int(arena, config, "n_embd", outline->width);
    tree_put_int(arena, config, "n_layer", outline->layers);
    tree_put_int(arena, config, "n_head", layer->heads);
    tree_put_int(arena, config, "n_inner", layer->units);
    tree_put_int(arena, config, "n_positions", outline->positions);
    tree_put_string(arena, config, "activation_function", "gelu_new");
    tree_put_real(arena, config, "layer_norm_epsilon", outline->eps);
    for (int i = 0; i < 3; i++) tree_put_real(arena, config, RATES[i], 0);
}

static void config_bert(Arena *arena, Tree *config, const Outline *outline,
                        const OutlineLayer *layer) {
    const int64_t types = outline->types;
    tree_put_int(arena, config, "hidden_size", outline->width);
    tree_put_int(arena, config, "num_hidden_layers", outline->layers);
    tree_put_int(arena, config, "num_attention_heads", layer->heads);
    tree_put_int(arena, config, "intermediate_size", layer->units);
    tree_put_int(arena, config, "max_position_embeddings", outline->positions);
    tree_put_int(arena, config, "type_vocab_size", types ? types : 1);
    tree_put_string(arena, config, "hidden_act", "gelu");
    tree_put_real(arena, config, "layer_norm_eps", outline->eps);
    tree_put_real(arena, config, "hidden_dropout_prob", 0);
    tree_put_real(arena, config, "attention_probs_dropout_prob", 0);
}

/* The configuration of a model whose layers are all as the largest one. */
static Tree *make_config(Arena *arena, const Outline *outline, const Tree *tokens) {
    static const char *const TYPES[] = {"llama", "gpt2", "bert", "qwen2", "qwen3"};
    static const char *const CLASSES[] = {"LlamaForCausalLM", "GPT2LMHeadModel",
                                          "BertModel", "Qwen2ForCausalLM",
                                          "Qwen3ForCausalLM"};
    const bool classifies = outline->labels > 0;
    const OutlineLayer layer = find_largest(outline);
    Tree *config = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_add_string(arena, tree_put_list(arena, config, "architectures"),
                    classifies ? "BertForSequenceClassification"
                               : CLASSES[outline->kind]);
    tree_put_string(arena, config, "model_type", TYPES[outline->kind]);
    tree_put_int(arena, config, "vocab_size", outline->vocabulary);
    if (outline_is_gated(outline))
        config_llama(arena, config, outline, &layer);
    else if (outline->kind == OUTLINE_GPT2)
        config_gpt2(arena, config, outline, &layer);
    else
        config_bert(arena, config, outline, &layer);
    if (outline->kind != OUTLINE_BERT)
        tree_put_bool(arena, config, "tie_word_embeddings", outline->tied);
    for (const Tree *key = tokens ? tokens->first : NULL; key; key = key->next)
        tree_put(arena, config, key->key, tree_copy(arena, key));
    if (classifies && !tree_get(config, "id2label"))
        tree_put_int(arena, config, "num_labels", outline->labels);
    return config;
}

/* ---- cutting ---- */

/* Keeps the first `count` entries of an axis of a node's operand, which are then all that
 * there ever were. */
static Status cut_axis(Graph *graph, Node *node, const char *operand, int axis,
                       int64_t count, Diag *diag) {
    Node *leaf = node_operand(node, operand);
    if (!leaf || leaf->type.dim[axis] == count) return STATUS_OK;
    int64_t *keep = memory_alloc((size_t)count, sizeof *keep);
    for (int64_t i = 0; i < count; i++) keep[i] = i;
    const Status status =
        storage_keep(graph, leaf, STORAGE_USER(node), axis, keep, count, diag);
    free(keep);
    if (status == STATUS_OK) storage_forget_lineage(leaf->storage, axis);
    return status;
}

/* Cuts what a projection gives, or (`inputs`) what it takes. */
static Status cut_projection(Graph *graph, int layer, Role role, bool inputs,
                             int64_t count, Diag *diag) {
    Node *node = graph_find(graph, STACK_DECODER, layer, role);
    if (inputs) return cut_axis(graph, node, "weight", 1, count, diag);
    TRY(cut_axis(graph, node, "weight", 0, count, diag));
    return cut_axis(graph, node, "bias", 0, count, diag);
}

static Status cut_attention(Graph *graph, int i, const OutlineLayer *layer, int64_t width,
                            Diag *diag) {
    const long long heads = layer->heads, kv_heads = layer->kv_heads;
    TRY(cut_projection(graph, i, ROLE_Q, false, heads * width, diag));
    TRY(cut_projection(graph, i, ROLE_K, false, kv_heads * width, diag));
    TRY(cut_projection(graph, i, ROLE_V, false, kv_heads * width, diag));
    TRY(cut_projection(graph, i, ROLE_OUT, true, heads * width, diag));
    TRY(node_set(graph, graph_find(graph, STACK_DECODER, i, ROLE_ROTARY_Q), diag,
                 "heads=%lld", heads));
    TRY(node_set(graph, graph_find(graph, STACK_DECODER, i, ROLE_ROTARY_K), diag,
                 "heads=%lld", kv_heads));
    return node_set(graph, graph_find(graph, STACK_DECODER, i, ROLE_ATTENTION), diag,
                    "heads=%lld kv_heads=%lld", heads, kv_heads == heads ? 0 : kv_heads);
}

/* Takes a block out: its residual sum is what it was added to. */
static void remove_block(Graph *graph, int layer, Role residual) {
    Node *sum = graph_find(graph, STACK_DECODER, layer, residual);
    graph_replace_uses(graph, sum, sum->in[0]);
}

static Status cut_layers(Graph *graph, const Outline *outline, bool whole, Diag *diag) {
    for (int i = 0; i < outline->layers; i++) {
        const OutlineLayer *layer = &outline->layer[i];
        const bool attends = layer->heads > 0 && (whole || !layer->empty_attention);
        const bool feeds = layer->units > 0 && (whole || !layer->empty_units);
        if (attends)
            TRY(cut_attention(graph, i, layer, outline->head_width, diag));
        else
            remove_block(graph, i, ROLE_RESIDUAL1);
        if (feeds) {
            TRY(cut_projection(graph, i, ROLE_FFN_GATE, false, layer->units, diag));
            TRY(cut_projection(graph, i, ROLE_FFN_IN, false, layer->units, diag));
            TRY(cut_projection(graph, i, ROLE_FFN_OUT, true, layer->units, diag));
        } else {
            remove_block(graph, i, ROLE_RESIDUAL2);
        }
    }
    graph_remove_dead(graph);
    return graph_infer(graph, diag);
}

/* What BERT models may lack: the pooler, and token types. */
static void cut_bert(Graph *graph, const Outline *outline) {
    Node *sum = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_TOKEN_TYPE);
    if (!outline->pooled) graph_remove_output(graph, OUTPUT_POOLER);
    if (!outline->types && sum) graph_replace_uses(graph, sum, sum->in[0]);
    graph_remove_dead(graph);
}

Status outline_build(Model **out, const Outline *outline, bool whole, const Tree *tokens,
                     const OpTable *ops, Diag *diag) {
    Model *model;
    Arena *arena = arena_create();
    Status status = hf_build(&model, make_config(arena, outline, tokens), ops, diag);
    arena_destroy(arena);
    if (status != STATUS_OK) return status;
    if (outline->kind == OUTLINE_BERT)
        cut_bert(model->graph, outline);
    else if (outline->kind == OUTLINE_LLAMA)
        status = cut_layers(model->graph, outline, whole, diag);
    if (status == STATUS_OK)
        *out = model;
    else
        model_destroy(model);
    return status;
}

/* ---- matching ---- */

typedef struct Match {
    Graph *built, *graph;
    Node **twin;             /* in `graph`, of each node of `built` by its number */
    const Storage **weights; /* of each storage of `built` */
    const Outline *outline;
    Diag *diag;
} Match;

/* The node whose value a node gives outside of training. */
static Node *skip_idle(Node *node) {
    while (node_has_trait(node, OP_PASS_VALUE)) node = node->in[0];
    return node;
}

/* "decoder.3 q (linear)". */
static Status differ(const Match *m, const Node *node, const char *what,
                     const char *expected, const char *found) {
    Text place = {0};
    if (node->stack) text_add(&place, "%s", node->stack);
    if (node->layer >= 0) text_add(&place, ".%d", node->layer);
    diag_fail(m->diag, STATUS_MODEL, LOC_NONE, place.length ? place.data : NULL,
              "%s (%s): expected %s%s, found %s", role_name(node->role), node->op->name,
              what, expected, found);
    text_free(&place);
    return STATUS_MODEL;
}

/* Whether one linear reads as [out, in] what the other reads as [in, out]: quantised
 * weights are turned so that their rows are outputs. */
static bool is_turned(const Node *node, const Node *other) {
    return strcmp(node->op->name, "linear") == 0 && node_flag(node, "transposed") &&
           !node_flag(other, "transposed");
}

static Status match_leaf(const Match *m, const Node *node, const Node *other,
                         bool turned) {
    if (!node->storage || !other->storage) {
        if (!node->storage && !other->storage && strcmp(node->name, other->name) == 0)
            return STATUS_OK;
        return differ(m, other, "", node->storage ? "weights" : node->name,
                      other->storage ? "weights" : other->name);
    }
    Type type = node->type;
    if (turned) {
        type.dim[0] = node->type.dim[1];
        type.dim[1] = node->type.dim[0];
    }
    if (!type_equal(&type, &other->type)) {
        char want[SHAPE_TEXT_BYTES], have[SHAPE_TEXT_BYTES];
        diag_fail(m->diag, STATUS_MODEL, LOC_NONE, other->storage->name,
                  "expected the shape %s, found %s",
                  shape_text(want, type.rank, type.dim),
                  shape_text(have, other->type.rank, other->type.dim));
        return STATUS_MODEL;
    }
    for (int i = 0; i < m->built->storage_count; i++)
        if (m->built->storages[i] == node->storage) m->weights[i] = other->storage;
    return STATUS_OK;
}

static Status match_attributes(const Match *m, const Node *node, const Node *other) {
    Text want = {0}, have = {0};
    Status status = STATUS_OK;
    /* Whether values are rounded is llama.cpp's to choose, by the type of the weights. */
    if (strcmp(node->op->name, "linear") == 0 &&
        (is_turned(node, other) ||
         node_flag(node, "transposed") == node_flag(other, "transposed")))
        return STATUS_OK;
    if (node->op->fields) {
        fields_print(&want, node->op->fields, node->attrs, node->op->defaults);
        fields_print(&have, other->op->fields, other->attrs, other->op->defaults);
    }
    const char *a = want.length ? want.data : "defaults";
    const char *b = have.length ? have.data : "defaults";
    if (strcmp(a, b) != 0) status = differ(m, other, "", a, b);
    text_free(&want);
    text_free(&have);
    return status;
}

/* The weight of a linear that is turned; it has no other reader. */
static Status match_turned(const Match *m, const Node *node, const Node *other) {
    m->twin[node->id] = (Node *)other;
    return match_leaf(m, node, other, true);
}

/* Operands first, so that the first difference in the order of computing is told. */
static Status match_nodes(const Match *m, Node *node, Node *other) {
    node = skip_idle(node);
    other = skip_idle(other);
    if (!node && !other) return STATUS_OK;
    if (!node || !other)
        return differ(m, node ? node : other, "", node ? "it" : "nothing",
                      node ? "nothing" : "it");
    Node **twin = &m->twin[node->id];
    if (*twin == other) return STATUS_OK;
    if (*twin) return differ(m, other, "one value", "", "two");
    *twin = other;
    if (node->op != other->op)
        return differ(m, other, "", node->op->name, other->op->name);
    if (node_is_leaf(node)) return match_leaf(m, node, other, false);
    const int most = node->in_count > other->in_count ? node->in_count : other->in_count;
    for (int i = 0; i < most; i++) {
        Node *a = i < node->in_count ? node->in[i] : NULL;
        Node *b = i < other->in_count ? other->in[i] : NULL;
        if (i == 1 && a && b && is_turned(node, other))
            TRY(match_turned(m, a, b));
        else
            TRY(match_nodes(m, a, b));
    }
    return match_attributes(m, node, other);
}

Status outline_match(const Storage ***weights, Arena *arena, Graph *built, Graph *graph,
                     Diag *diag) {
    Match m = {.built = built, .graph = graph, .diag = diag};
    m.twin = ARENA_ARRAY(arena, Node *, (size_t)graph_number(built) + 1);
    m.weights = ARENA_ARRAY(arena, const Storage *, (size_t)built->storage_count + 1);
    for (int i = 0; i < graph->output_count; i++) {
        const Output *output = &graph->outputs[i];
        Node *node = graph_output(built, output->name);
        if (strcmp(output->name, OUTPUT_EMBEDDING) == 0) continue; /* a key tells it */
        if (!node)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, output->name,
                             "the architecture has no such output");
        TRY(match_nodes(&m, node, output->node));
    }
    *weights = m.weights;
    return STATUS_OK;
}
