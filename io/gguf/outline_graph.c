/* Outlines of graphs. See outline.h. */
#include "io/gguf/outline.h"

#include <string.h>

/* Units of a feed-forward block that stands for none: one block of any 32-number type. */
enum { EMPTY_UNITS = 32 };
static const int64_t POSITIONS = 2048; /* where a configuration says nothing */

static Status refuse(Diag *diag, const char *key, const char *why) {
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, key, "%s", why);
}

static const Node *weight_of(const Node *node) {
    const Node *leaf = node && node->in_count > 1 ? node->in[1] : NULL;
    return leaf && leaf->storage ? leaf : NULL;
}

/* ---- layers ---- */

/* Layers that have a block, one after the other. */
static void measure_layers(Outline *out, Arena *arena, const Graph *graph,
                           const char *stack) {
    const int count = graph_layer_count(graph, stack);
    out->layer = ARENA_ARRAY(arena, OutlineLayer, (size_t)count + 1);
    for (int i = 0; i < count; i++) {
        const Node *attention = graph_find(graph, stack, i, ROLE_ATTENTION);
        const Node *in = graph_find(graph, stack, i, ROLE_FFN_IN);
        OutlineLayer layer = {0};
        if (attention) layer.heads = node_heads(attention);
        if (attention) layer.kv_heads = node_key_heads(attention);
        if (in) layer.units = node_width(in);
        if (attention && layer.heads && !out->head_width)
            out->head_width = node_head_width(attention);
        if (layer.heads || layer.units) out->layer[out->layers++] = layer;
    }
}

/* llama.cpp takes the width of heads from the first layer's, and does nothing in a layer
 * without feed-forward units, whatever attention it has (src/models/deci.cpp). */
static void fill_empty_blocks(Outline *out) {
    for (int i = 0; i < out->layers; i++) {
        OutlineLayer *layer = &out->layer[i];
        layer->empty_units = layer->units == 0;
        layer->empty_attention = i == 0 && layer->heads == 0;
        if (layer->empty_units) layer->units = EMPTY_UNITS;
        if (layer->empty_attention) layer->heads = layer->kv_heads = 1;
    }
}

/* GPT-2 and BERT have one number for all layers, and heads that make up the width. */
static Status check_layers(const Outline *out, const char *stack, Diag *diag) {
    const OutlineLayer *first = out->layer;
    for (int i = 0; i < out->layers; i++) {
        const OutlineLayer *layer = &out->layer[i];
        char place[64];
        snprintf(place, sizeof place, "%s.%d", stack, i);
        if (!layer->heads || !layer->units)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, place,
                             "expected attention and a feed-forward block, found no %s",
                             layer->heads ? "feed-forward block" : "attention");
        if (layer->heads != layer->kv_heads ||
            layer->heads * out->head_width != out->width)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, place,
                             "expected heads that make up the width %lld, found %lld of "
                             "%lld numbers",
                             (long long)out->width, (long long)layer->heads,
                             (long long)out->head_width);
        if (layer->units != first->units)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, place,
                             "expected %lld feed-forward units as in the first layer, "
                             "found %lld",
                             (long long)first->units, (long long)layer->units);
    }
    return STATUS_OK;
}

/* Relatives of Llama have one number for all layers. */
static Status check_alike(const Outline *out, Diag *diag) {
    const OutlineLayer *first = out->layer;
    for (int i = 0; i < out->layers; i++) {
        const OutlineLayer *layer = &out->layer[i];
        if (layer->heads && layer->units && layer->heads == first->heads &&
            layer->kv_heads == first->kv_heads && layer->units == first->units)
            continue;
        char place[64];
        snprintf(place, sizeof place, "%s.%d", STACK_DECODER, i);
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, place,
                         "expected heads and units as in the first layer");
    }
    return STATUS_OK;
}

/* ---- what is around them ---- */

/* The table of tokens, and its width, which is that of the layers. */
static Status measure_words(Outline *out, const Node **words, const Graph *graph,
                            Diag *diag) {
    const Node *embed = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_EMBED);
    *words = weight_of(embed);
    if (!*words || (*words)->type.rank != 2 || !graph_find_input(graph, INPUT_IDS))
        return refuse(diag, NULL, "expected a model of texts with a table of tokens");
    if (graph_find(graph, NULL, -1, ROLE_EMBED_PROJECTION))
        return refuse(diag, (*words)->storage->name,
                      "expected a table of tokens as wide as the model, found a factored "
                      "one");
    out->vocabulary = (*words)->type.dim[0];
    out->width = (*words)->type.dim[1];
    return STATUS_OK;
}

/* Rows of the table of positions; 0 without one. */
static int64_t measure_positions(const Graph *graph) {
    const Node *table = weight_of(graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_POSITION));
    return table && table->type.rank == 2 ? table->type.dim[0] : 0;
}

static bool has_bias(const Graph *graph, const char *stack, Role role) {
    const Node *node = graph_find(graph, stack, -1, role);
    return node && node->in_count > 2 && node->in[2];
}

static Status measure_decoder(Outline *out, const Model *model, const Node *words,
                              Diag *diag) {
    const Graph *graph = model->graph;
    const Node *norm = graph_find(graph, STACK_DECODER, -1, ROLE_FINAL_NORM);
    const Node *turn = graph_find(graph, STACK_DECODER, -1, ROLE_ROTARY_Q);
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    if (graph_task(graph) != TASK_NEXT_TOKEN || !norm || !weight_of(logits))
        return refuse(diag, NULL, "expected a model that predicts the next token");
    out->eps = node_real(norm, "eps");
    out->tied = weight_of(logits) == words;
    out->positions = measure_positions(graph);
    out->kind = out->positions ? OUTLINE_GPT2 : OUTLINE_LLAMA;
    if (out->kind == OUTLINE_GPT2) return check_layers(out, STACK_DECODER, diag);
    const Tree *positions = tree_get(model->config, "max_position_embeddings");
    out->positions = positions && positions->kind == TREE_INT && positions->integer > 0
                         ? positions->integer
                         : POSITIONS;
    out->theta = turn ? node_real(turn, "theta") : 10000;
    out->attention_bias = has_bias(graph, STACK_DECODER, ROLE_Q);
    out->units_bias = has_bias(graph, STACK_DECODER, ROLE_FFN_IN);
    if (graph_find(graph, STACK_DECODER, -1, ROLE_NORM_Q))
        out->kind = OUTLINE_QWEN3;
    else if (out->attention_bias && !has_bias(graph, STACK_DECODER, ROLE_OUT))
        out->kind = OUTLINE_QWEN2;
    if (out->kind != OUTLINE_LLAMA) return check_alike(out, diag);
    fill_empty_blocks(out);
    return STATUS_OK;
}

static bool is_normalized(const Graph *graph) {
    const Node *node = graph_output(graph, OUTPUT_EMBEDDING);
    return node && strcmp(node->op->name, "normalize") == 0;
}

/* How an embedding is made of tokens, as llama.cpp counts the ways (llama_pooling_type);
 * it normalises vectors whatever the file says. 0 = the model gives none. */
static int measure_pooling(const Graph *graph) {
    static const char *const OPS[] = {"mean_tokens", "select_token", "last_token"};
    const Node *node = graph_output(graph, OUTPUT_EMBEDDING);
    if (is_normalized(graph)) node = node->in[0];
    for (int i = 0; node && i < 3; i++)
        if (strcmp(node->op->name, OPS[i]) == 0) return i + 1;
    return 0;
}

/* llama.cpp's encoder reads positions 0, 1, ... from a table, and all tokens. */
static Status check_positions(const Graph *graph, Diag *diag) {
    const Node *position = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_POSITION);
    if (!position || !weight_of(position))
        return refuse(diag, NULL, "expected an encoder with a table of positions");
    if (node_has(position, 2))
        return refuse(diag, NULL,
                      "expected positions that count every token, found some that leave "
                      "padding out, as RoBERTa's");
    for (const Node *node = graph->first; node; node = node->next)
        if (node->role == ROLE_ATTENTION && node_operand(node, "rel_bias"))
            return refuse(diag, NULL,
                          "expected scores of queries and keys alone, found biases by "
                          "distance added to them");
    return STATUS_OK;
}

static Status measure_encoder(Outline *out, const Graph *graph, Diag *diag) {
    const Task task = graph_task(graph);
    const Node *norm = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_NORM0);
    const Node *sum = graph_find(graph, STACK_EMBEDDINGS, -1, ROLE_TOKEN_TYPE);
    const Node *types = sum && sum->in_count > 1 ? weight_of(sum->in[1]) : NULL;
    if ((task != TASK_EMBED && task != TASK_CLASSIFY) || !norm)
        return refuse(diag, NULL,
                      "expected hidden states or one class a text from an "
                      "encoder");
    TRY(check_positions(graph, diag));
    out->kind = OUTLINE_BERT;
    out->eps = node_real(norm, "eps");
    out->positions = measure_positions(graph);
    out->types = types ? types->type.dim[0] : 0;
    out->labels =
        task == TASK_CLASSIFY ? node_width(graph_output(graph, OUTPUT_LOGITS)) : 0;
    out->pooled = out->labels || graph_output(graph, OUTPUT_POOLER);
    out->pooling = measure_pooling(graph);
    out->normalized = is_normalized(graph);
    return check_layers(out, STACK_ENCODER, diag);
}

Status outline_of_graph(Outline *out, Arena *arena, const Model *model, Diag *diag) {
    const Graph *graph = model->graph;
    const bool encodes = graph_layer_count(graph, STACK_ENCODER) > 0;
    const bool decodes = graph_layer_count(graph, STACK_DECODER) > 0;
    const Node *words;
    *out = (Outline){0};
    if (graph_find(graph, NULL, -1, ROLE_FACTOR))
        return refuse(diag, NULL,
                      "expected projections of one matrix each, found some that are two "
                      "factors (the pass merge_factors with all: true multiplies them)");
    if (graph_find(graph, NULL, -1, ROLE_BRIDGE))
        return refuse(diag, NULL,
                      "expected layers alone, found linear maps in place of "
                      "some that were removed");
    if (encodes == decodes)
        return refuse(diag, NULL,
                      encodes ? "expected an encoder or a decoder, found both"
                              : "expected an encoder or a decoder");
    TRY(measure_words(out, &words, graph, diag));
    measure_layers(out, arena, graph, encodes ? STACK_ENCODER : STACK_DECODER);
    if (!out->layers || !out->head_width)
        return refuse(diag, NULL, "expected a layer with attention, found none");
    return encodes ? measure_encoder(out, graph, diag)
                   : measure_decoder(out, model, words, diag);
}
