/* Parts of a model as graphs of ONNX: see onnx_graph.h. */
#include "io/onnx/write/onnx_graph.h"

#include "io/onnx/write/onnx_exits.h"

#include <string.h>

/* ---- options ---- */

const Field ONNX_FIELDS[] = {
    F_CHOICE(
        OnnxOptions, exits, "outputs|nested|none",
        "early exits: outputs of their own; one If in the other, by the model's rule "
        "for leaving; or left out"),
    F_CHOICE(
        OnnxOptions, activations, "dynamic|rows",
        "values of 8 bits in front of products: rounded all alike, which onnxruntime "
        "has an operator for, or each row by its own scale, as this program does"),
    F_CHOICE(OnnxOptions, bytes, "unsigned|signed",
             "weights of 8 bits in products with such values: without a sign, for exact "
             "sums in onnxruntime on every processor; or with it, twice as fast where "
             "there is VNNI and wrong where not"),
    F_BOOL(
        OnnxOptions, cache,
        "decoders take the states of the tokens before and hand out the next ones, which "
        "dtype f16 makes float16, too"),
    F_INT(OnnxOptions, external_above, 0, 2000000000,
          "bytes from which weights stand in a file beside"),
    F_END,
};

const OnnxOptions ONNX_DEFAULTS = {.cache = true, .external_above = 2000000000};

/* ---- inputs and outputs ---- */

/* Name of a symbolic dimension in a model. */
static const char *dim_name(const Graph *graph, int64_t dim) {
    const bool source = graph_find_input(graph, INPUT_TARGET_IDS) != NULL;
    switch (dim) {
    case DIM_N: return ONNX_BATCH;
    case DIM_T: return source ? "decoder_" ONNX_SEQUENCE : ONNX_SEQUENCE;
    case DIM_S: return ONNX_SOURCE;
    case DIM_M: return ONNX_MASKED;
    default: return NULL;
    }
}

static void names_of(const Graph *graph, const Type *type, const char *names[RANK_MAX]) {
    for (int i = 0; i < type->rank; i++) names[i] = dim_name(graph, type->dim[i]);
}

/* Declares an input under `name` as the value of a node. */
static void declare_input(OnnxExport *x, const Node *node, const char *name) {
    const char *names[RANK_MAX];
    names_of(x->graph, &node->type, names);
    const bool real = node->type.dtype == DTYPE_F32;
    onnx_input(x->b, name, real ? ONNX_F32 : ONNX_I64, node->type.dim, names,
               node->type.rank);
    x->values[node->id] = arena_strdup(x->b->arena, name);
    if (real && x->b->real != ONNX_F32)
        x->values[node->id] = onnx_cast(x->b, x->values[node->id], x->b->real);
}

/* Makes a node's value, `value`, the output `name`. */
static void declare_output(OnnxExport *x, const Node *node, const char *value,
                           const char *name) {
    OnnxBuild *b = x->b;
    const char *names[RANK_MAX];
    names_of(x->graph, &node->type, names);
    if (b->real != ONNX_F32) {
        onnx_rename(b, onnx_cast(b, value, ONNX_F32), name);
    } else {
        const char *renamed = onnx_rename(b, value, name);
        if (renamed == value)
            onnx_rename(b, ONNX_NODE(b, "Identity", value), name);
        else
            x->values[node->id] = renamed;
    }
    onnx_output(b, name, ONNX_F32, node->type.dim, names, node->type.rank);
}

/* ---- what is exported ---- */

static bool *flags_of(Arena *arena, const Graph *graph) {
    return ARENA_ARRAY(arena, bool, (size_t)graph->node_count + 1);
}

/* Storages of which every needed user is a linear that wants the transpose. */
static bool *find_whole(Arena *arena, const Graph *graph, const bool *needed) {
    bool *whole = ARENA_ARRAY(arena, bool, (size_t)graph->storage_count + 1);
    for (int i = 0; i < graph->storage_count; i++) whole[i] = true;
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; needed[node->id] && i < node->in_count; i++) {
            const Storage *storage = onnx_storage(node, i);
            const bool linear = strcmp(node->op->name, "linear") == 0 && i == 1 &&
                                !node_flag(node, "transposed");
            for (int j = 0; storage && !linear && j < graph->storage_count; j++)
                if (graph->storages[j] == storage) whole[j] = false;
        }
    return whole;
}

/* Exporters of sentence-transformers call it so. */
static const char *onnx_output_name(const char *name) {
    return strcmp(name, OUTPUT_EMBEDDING) == 0 ? ONNX_EMBEDDING : name;
}

/* Whether an output goes into a file: with logits, the states before them do not. */
static bool is_wanted(const Graph *graph, const Output *output,
                      const OnnxOptions *options) {
    if (strncmp(output->name, "exit.", 5) == 0)
        return options->exits == ONNX_EXITS_OUTPUTS;
    return strcmp(output->name, OUTPUT_LOGITS) == 0 ||
           !graph_output(graph, OUTPUT_LOGITS);
}

/* What works on any dimensions may look at all tokens: no state of its is known. */
bool onnx_is_cached(const Graph *graph, const OnnxOptions *options) {
    for (const Node *node = graph->first; node; node = node->next)
        if (node_has_trait(node, OP_TENSOR)) return false;
    return options->cache && graph_task(graph) == TASK_NEXT_TOKEN &&
           graph_find_input(graph, INPUT_IDS);
}

/* Whether a node keeps keys and values of the tokens that are written. */
static bool keeps_keys(const Node *node) {
    return strcmp(node->op->name, "attention") == 0 && node_flag(node, "causal") &&
           node->in[1]->type.dim[1] == DIM_T;
}

/* Whether a node has a state of its own in a decoder with states. */
static bool has_state(const Node *node) {
    return keeps_keys(node) || strcmp(node->op->name, "lstm") == 0 ||
           strcmp(node->op->name, "attention_lstm") == 0 ||
           (strcmp(node->op->name, "linear_attention") == 0 && node_flag(node, "causal"));
}

Status onnx_check_states(const Graph *graph, Diag *diag) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (!has_state(node)) continue;
        bool alone = node->layer >= 0;
        for (const Node *other = graph->first; other != node; other = other->next)
            alone = alone && !(has_state(other) && other->layer == node->layer);
        if (alone) continue;
        diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                  "%s: expected a layer of its own, by which its state is known to "
                  "whoever runs the file",
                  node->op->name);
        diag_hint(diag, "`cache: false` writes the model without states");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

int onnx_length_layer(const Graph *graph) {
    for (const Node *node = graph->first; node; node = node->next)
        if (keeps_keys(node)) return -1;
    return graph_layer_count(graph, graph_main_stack(graph));
}

/* Whether what a decoder computes depends on which tokens before count: LSTMs know no
 * padding in front of a text. */
static bool heeds_padding(const Graph *graph) {
    for (const Node *node = graph->first; node; node = node->next)
        if (node_has_trait(node, OP_ATTENTION) ||
            strcmp(node->op->name, "add_position") == 0)
            return true;
    return false;
}

/* Where no layer keeps keys, an empty one tells how many tokens there were. */
static void add_length(OnnxExport *x, const char *name, const char *ids) {
    OnnxBuild *b = x->b;
    const int64_t dim[] = {0, 1, 0, 0};
    const char *const before[] = {ONNX_BATCH, NULL, ONNX_PAST, NULL};
    const char *const after[] = {ONNX_BATCH, NULL, ONNX_TOTAL, NULL};
    const char *past = onnx_state_in(
        x, arena_printf(b->arena, "past_key_values.%s", name), dim, before, 4);
    const char *batch = onnx_dim(b, ids, 0), *length = onnx_length(x, DIM_T);
    const char *shape =
        ONNX_NODE(b, "Concat", batch, ONNX_VECTOR(b, 1), length, ONNX_VECTOR(b, 0));
    onnx_set_int(b, "axis", 0);
    const char *more = ONNX_NODE(b, "Expand", onnx_real(b, 0), shape);
    onnx_state_out(x, arena_printf(b->arena, "present.%s", name),
                   onnx_concat(b, 2, past, more), dim, after, 4);
}

/* ---- the whole model ---- */

static void export_whole(OnnxExport *x, const Model *model, const OnnxOptions *options) {
    const Graph *graph = x->graph;
    Arena *arena = x->b->arena;
    bool *needed = flags_of(arena, graph);
    for (int i = 0; i < graph->output_count; i++)
        if (is_wanted(graph, &graph->outputs[i], options) ||
            options->exits == ONNX_EXITS_NESTED)
            onnx_mark(graph->outputs[i].node, needed);
    x->whole = find_whole(arena, graph, needed);
    for (const Node *node = graph->first; node; node = node->next)
        if (node_is_input(node) && needed[node->id]) declare_input(x, node, node->name);
    if (options->exits == ONNX_EXITS_NESTED) {
        const Node *logits = graph_output(graph, OUTPUT_LOGITS);
        declare_output(x, logits, onnx_export_exits(x, model), OUTPUT_LOGITS);
        return;
    }
    x->cached = onnx_is_cached(graph, options);
    if (x->cached && heeds_padding(graph)) {
        const char *const names[] = {ONNX_BATCH, ONNX_TOTAL};
        onnx_input(x->b, INPUT_MASK, ONNX_I64, NULL, names, 2);
        x->key_mask = INPUT_MASK;
    }
    for (const Node *node = graph->first; node; node = node->next) {
        if (!needed[node->id] || node->storage) continue;
        if (!node_is_leaf(node)) onnx_export_node(x, node);
        for (int i = 0; i < graph->output_count; i++)
            if (graph->outputs[i].node == node &&
                is_wanted(graph, &graph->outputs[i], options))
                declare_output(x, node, x->values[node->id],
                               onnx_output_name(graph->outputs[i].name));
    }
    if (x->cached && !x->key_states)
        add_length(x, arena_printf(arena, "%d.key", onnx_length_layer(graph)), INPUT_IDS);
}

/* ---- encoder and decoder ---- */

static void export_encoder(OnnxExport *x) {
    const Graph *graph = x->graph;
    const Node *states = graph_output(graph, OUTPUT_ENCODER_STATES);
    bool *needed = flags_of(x->b->arena, graph);
    onnx_mark(states, needed);
    x->whole = find_whole(x->b->arena, graph, needed);
    for (const Node *node = graph->first; node; node = node->next)
        if (node_is_input(node) && needed[node->id]) declare_input(x, node, node->name);
    for (const Node *node = graph->first; node; node = node->next)
        if (needed[node->id] && !node_is_leaf(node)) onnx_export_node(x, node);
    declare_output(x, states, x->values[states->id], OUTPUT_STATES);
}

/* Whether a node's value follows from the source alone: from no input of the target. */
static bool *find_source(Arena *arena, const Graph *graph) {
    bool *source = flags_of(arena, graph);
    for (const Node *node = graph->first; node; node = node->next) {
        source[node->id] = !node_is_input(node) || (strcmp(node->name, INPUT_IDS) == 0 ||
                                                    strcmp(node->name, INPUT_MASK) == 0);
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && !source[node->in[i]->id]) source[node->id] = false;
    }
    return source;
}

static void export_below(OnnxExport *x, const Node *node) {
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && !node_is_leaf(node->in[i]) && !x->values[node->in[i]->id])
            export_below(x, node->in[i]);
    onnx_export_node(x, node);
}

/* Keys and values of the source for a cross-attention: those that come in, or else they
 * are computed, once for a text. */
static void export_cross(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b, *then = onnx_build_inside(b), *other = onnx_build_inside(b);
    static const char *const WHAT[] = {"key", "value"};
    const char *given[2], *shape_names[] = {ONNX_BATCH, NULL, ONNX_SOURCE, NULL};
    const int64_t groups = node_key_heads(node);
    int64_t dim[2][4];
    for (int i = 0; i < 2; i++) {
        const int64_t width = node->in[1 + i]->type.dim[2] / groups;
        memcpy(dim[i], ONNX_I64S(0, groups, 0, width), sizeof dim[i]);
        given[i] = onnx_state_in(
            x,
            arena_printf(b->arena, "past_key_values.%d.encoder.%s", node->layer, WHAT[i]),
            dim[i], shape_names, 4);
        onnx_output(then, ONNX_NODE(then, "Identity", given[i]), b->real, NULL, NULL, -1);
        const Node *from = node->in[1 + i];
        const char **before =
            ARENA_ARRAY(b->arena, const char *, (size_t)x->graph->node_count + 1);
        memcpy(before, x->values, ((size_t)x->graph->node_count + 1) * sizeof *before);
        x->b = other;
        export_below(x, from);
        const char *heads = onnx_split_heads(other, x->values[from->id], groups, width);
        onnx_output(other, heads, b->real, NULL, NULL, -1);
        x->b = b;
        memcpy(x->values, before, ((size_t)x->graph->node_count + 1) * sizeof *before);
    }
    const char *key = ONNX_NODE(b, "If", x->use_cache), *value = onnx_more(b);
    onnx_set_body(b, "then_branch", then);
    onnx_set_body(b, "else_branch", other);
    const char *made[] = {key, value};
    for (int i = 0; i < 2; i++)
        x->cross[i] = onnx_state_out(
            x, arena_printf(b->arena, "present.%d.encoder.%s", node->layer, WHAT[i]),
            made[i], dim[i], shape_names, 4);
}

static void declare_decoder(OnnxExport *x, const bool *needed) {
    const Graph *graph = x->graph;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is_input(node) || !needed[node->id]) continue;
        if (strcmp(node->name, INPUT_TARGET_IDS) == 0)
            declare_input(x, node, INPUT_IDS);
        else if (strcmp(node->name, INPUT_MASK) == 0)
            declare_input(x, node, "encoder_attention_mask");
        else if (strcmp(node->name, INPUT_TARGET_MASK) == 0 && !x->cached)
            declare_input(x, node, INPUT_TARGET_MASK);
    }
    declare_input(x, graph_output(graph, OUTPUT_ENCODER_STATES), "encoder_hidden_states");
    if (!x->cached) return;
    const char *const one[] = {NULL};
    onnx_input(x->b, "use_cache_branch", ONNX_BOOL, ONNX_I64S(1), one, 1);
    x->use_cache = "use_cache_branch";
}

/* The first layer's keys; where no layer keeps keys, those of no bytes. */
static const char *first_key(Arena *arena, const Graph *graph) {
    for (const Node *node = graph->first; node; node = node->next)
        if (keeps_keys(node))
            return arena_printf(arena, "past_key_values.%d.decoder.key", node->layer);
    return "past_key_values.0.decoder.key";
}

static void export_decoder(OnnxExport *x, const OnnxOptions *options) {
    const Graph *graph = x->graph;
    Arena *arena = x->b->arena;
    bool *needed = flags_of(arena, graph);
    const Node *states = graph_output(graph, OUTPUT_ENCODER_STATES);
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    needed[states->id] = true;
    onnx_mark(logits, needed);
    x->whole = find_whole(arena, graph, needed);
    x->cached = options->cache;
    x->first_key = first_key(arena, graph);
    declare_decoder(x, needed);
    const bool *source = find_source(arena, graph);
    for (const Node *node = graph->first; node; node = node->next) {
        if (!needed[node->id] || node_is_leaf(node) || source[node->id]) continue;
        const bool cross = x->cached && strcmp(node->op->name, "attention") == 0 &&
                           source[node->in[1]->id] && source[node->in[2]->id];
        x->cross[0] = x->cross[1] = NULL;
        if (cross) export_cross(x, node);
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && source[node->in[i]->id] && !node_is_leaf(node->in[i]) &&
                !x->values[node->in[i]->id] && !(cross && (i == 1 || i == 2)))
                export_below(x, node->in[i]);
        onnx_export_node(x, node);
    }
    declare_output(x, logits, x->values[logits->id], OUTPUT_LOGITS);
    if (x->cached && !x->key_states) add_length(x, "0.decoder.key", INPUT_IDS);
}

void onnx_export_part(OnnxExport *x, const Model *model, OnnxPart part,
                      const OnnxOptions *options) {
    switch (part) {
    case ONNX_WHOLE: export_whole(x, model, options); break;
    case ONNX_ENCODER: export_encoder(x); break;
    case ONNX_DECODER: export_decoder(x, options); break;
    }
}
