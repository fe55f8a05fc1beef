/* Stock architectures: see stock.h.
 *
 * Both graphs are walked from the outputs to the inputs, node beside node. Where they
 * differ, plain words are looked for first, in terms of layers, heads and units; if there
 * are none, the first node that differs is told. */
#include "io/formats/stock.h"

#include "io/formats/hf.h"
#include "io/formats/model_config.h"
#include "ir/rewrite.h"

#include <string.h>

/* The attribute of a linear layer whose matrix is [inputs, outputs]. */
static const char TURNED[] = "transposed";

/* ---- graphs side by side ---- */

typedef struct Comparison {
    Graph *built, *graph;
    Node **twin; /* of each node of `built` by its number: that of `graph`; or NULL */
    const Node **claimed; /* of each node of `graph`: the leaf of `built` that it is twin
                             of */
    bool may_copy;
    const Node *worst; /* the first node of `built` that differs, NULL = none does */
    Text reason;       /* in what */
} Comparison;

/* "decoder.3 q (linear)". */
static void add_place(Text *text, const Node *node) {
    if (node->stack) text_add(text, "%s", node->stack);
    if (node->layer >= 0) text_add(text, ".%d", node->layer);
    text_add(text, "%s%s (%s)", node->stack ? " " : "", role_name(node->role),
             node->op->name);
}

/* Keeps the difference that stands first in the graph. */
static void differ(Comparison *c, const Node *node, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void differ(Comparison *c, const Node *node, const char *fmt, ...) {
    if (c->worst && c->worst->id <= node->id) return;
    va_list args;
    text_free(&c->reason);
    c->worst = node;
    va_start(args, fmt);
    text_add_list(&c->reason, fmt, args);
    va_end(args);
}

/* The node whose value it is outside of training. */
static Node *skip_idle(Node *node) {
    while (node && node_has_trait(node, OP_PASS_VALUE)) node = node->in[0];
    return node;
}

/* Sets a node of `built` beside one of the model, both read by `reader` (of `built`). */
static void pair(Comparison *c, const Node *reader, Node *node, Node *other) {
    node = skip_idle(node);
    other = skip_idle(other);
    if (!node && !other) return;
    if (!node || !other) {
        differ(c, reader, "it has %s operand that the architecture %s",
               node ? "not an" : "an", node ? "has" : "has not");
        return;
    }
    Node **twin = &c->twin[node->id];
    if (*twin && *twin != other)
        differ(c, node, "the architecture has one %s here, and the model two",
               node->storage ? "weight" : "value");
    *twin = other;
}

static bool is_linear(const Node *node) {
    return strcmp(node->op->name, "linear") == 0;
}

/* The first attribute in which two nodes of an op differ. How a linear layer's stored
 * matrix is turned is a matter of the matrix. */
static void compare_attrs(Comparison *c, const Node *node, const Node *other) {
    const bool stored = is_linear(node) && node->in[1]->storage;
    for (const Field *field = node->op->fields; field && field->name; field++) {
        if (stored && strcmp(field->name, TURNED) == 0) continue;
        Text want = {0}, have = {0};
        field_print_value(&want, field, node->attrs);
        field_print_value(&have, field, other->attrs);
        if (want.length != have.length || strcmp(want.data, have.data) != 0)
            differ(c, node, "expected %s=%s, found %s", field->name, want.data,
                   have.data);
        text_free(&want);
        text_free(&have);
    }
}

/* Whether a leaf is stored the other way round in the model: linear layers alone read it,
 * turned where the architecture has them not turned, or the reverse. */
static bool is_other_way(Comparison *c, const Node *leaf) {
    int other_way = 0, same_way = 0;
    for (const Node *node = c->built->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++) {
            const Node *twin = c->twin[node->id];
            if (node->in[i] != leaf || !twin || twin->op != node->op) continue;
            if (is_linear(node) && i == 1 &&
                node_flag(node, TURNED) != node_flag(twin, TURNED))
                other_way++;
            else
                same_way++;
        }
    if (other_way && same_way)
        differ(c, leaf, "some read '%s' turned and others do not", leaf->storage->name);
    return other_way > 0 && leaf->type.rank == 2;
}

static void compare_leaves(Comparison *c, const Node *leaf, const Node *other) {
    char want[SHAPE_TEXT_BYTES], have[SHAPE_TEXT_BYTES];
    if (!leaf->storage || !other->storage) {
        if (leaf->storage || other->storage || strcmp(leaf->name, other->name) != 0)
            differ(c, leaf, "expected %s, found %s",
                   leaf->storage ? leaf->storage->name : leaf->name,
                   other->storage ? other->storage->name : other->name);
        return;
    }
    Type type = other->type;
    if (is_other_way(c, leaf) && type.rank == 2) {
        type.dim[0] = other->type.dim[1];
        type.dim[1] = other->type.dim[0];
    }
    if (!type_equal(&leaf->type, &type))
        differ(c, leaf, "'%s' has the shape %s, and the architecture's '%s' %s",
               other->storage->name, shape_text(have, type.rank, type.dim),
               leaf->storage->name, shape_text(want, leaf->type.rank, leaf->type.dim));
    const Node *first = c->claimed[other->id];
    if (first && !c->may_copy)
        differ(c, leaf, "'%s' stands for both '%s' and '%s'", other->storage->name,
               leaf->storage->name, first->storage->name);
    if (first && is_other_way(c, first) != is_other_way(c, leaf))
        differ(c, leaf, "'%s' is turned for one of '%s' and '%s'", other->storage->name,
               leaf->storage->name, first->storage->name);
    c->claimed[other->id] = leaf;
}

/* Compares two nodes and sets their operands beside each other. */
static void compare_nodes(Comparison *c, const Node *node, const Node *other) {
    if (node_is_leaf(node) != node_is_leaf(other) || node->op != other->op) {
        differ(c, node, "the model has %s there", other->op->name);
        return;
    }
    if (node_is_leaf(node)) {
        compare_leaves(c, node, other);
        return;
    }
    compare_attrs(c, node, other);
    const int most = node->in_count > other->in_count ? node->in_count : other->in_count;
    for (int i = 0; i < most; i++)
        pair(c, node, i < node->in_count ? node->in[i] : NULL,
             i < other->in_count ? other->in[i] : NULL);
}

static void compare_graphs(Comparison *c) {
    for (int i = 0; i < c->graph->output_count; i++) {
        const Output *output = &c->graph->outputs[i];
        Node *node = graph_output(c->built, output->name);
        if (node)
            pair(c, node, node, output->node);
        else
            differ(c, c->built->last, "the model has an output '%s'", output->name);
    }
    for (const Node *node = c->built->last; node; node = node->prev)
        if (c->twin[node->id]) compare_nodes(c, node, c->twin[node->id]);
    for (const Node *leaf = c->built->first; leaf && !c->worst; leaf = leaf->next)
        if (leaf->storage && !c->twin[leaf->id])
            differ(c, leaf, "the model has no '%s'", leaf->storage->name);
}

/* ---- in plain words ---- */

/* The first layer of a stack that has another number than the first of its stage, which
 * has tokens of the same width. */
typedef struct Uneven {
    const char *what; /* what is counted: "heads" */
    int layer, first;
    int64_t count, expected;
} Uneven;

typedef enum Measure { HEADS, KEY_HEADS, HEAD_WIDTH, UNITS, MEASURES } Measure;

static int64_t measure_layer(const Graph *graph, const char *stack, int layer,
                             Measure measure) {
    if (measure == UNITS) return node_width(graph_find(graph, stack, layer, ROLE_FFN_IN));
    const Node *attention = graph_find(graph, stack, layer, ROLE_ATTENTION);
    const int64_t heads = attention ? node_heads(attention) : 0;
    if (heads < 1) return 0;
    if (measure == HEADS) return heads;
    if (measure == KEY_HEADS) return node_key_heads(attention);
    return node_head_width(attention);
}

static bool find_uneven(Uneven *out, const Graph *graph, const char *stack) {
    static const char *const NAMES[MEASURES] = {
        "heads", "heads of keys and values", "numbers in a head", "feed-forward units"};
    const int layers = graph_layer_count(graph, stack);
    for (int layer = 0, first = 0; layer < layers; layer++) {
        if (graph_layer_stage(graph, stack, layer) !=
            graph_layer_stage(graph, stack, first))
            first = layer;
        for (int m = 0; m < MEASURES; m++) {
            const int64_t count = measure_layer(graph, stack, layer, (Measure)m);
            const int64_t expected = measure_layer(graph, stack, first, (Measure)m);
            *out = (Uneven){NAMES[m], layer, first, count, expected};
            if (count != expected) return true;
        }
    }
    return false;
}

/* What a node has that no stock architecture has; NULL = nothing. */
static const char *foreign_part(const Node *node) {
    if (strcmp(node->op->name, "linear_attention") == 0) return "has linear attention";
    if (strcmp(node->op->name, "attention") == 0 &&
        (node_operand(node, "mix_before") || node_operand(node, "mix_after")))
        return "mixes its heads";
    return NULL;
}

bool stock_explain(Text *why, const Graph *graph) {
    static const char *const STACKS[] = {STACK_ENCODER, STACK_DECODER};
    for (int i = 0; i < graph->output_count; i++)
        if (strncmp(graph->outputs[i].name, "exit.", 5) == 0) {
            text_add(why, "it has early exits");
            return true;
        }
    for (const Node *node = graph->first; node; node = node->next) {
        const char *part = foreign_part(node);
        if (part && node->stack && node->layer >= 0)
            text_add(why, "layer %d of the %s %s", node->layer, node->stack, part);
        else if (part)
            text_add(why, "a node in no layer %s", part);
        if (part) return true;
        if (node->role == ROLE_EMBED_PROJECTION) {
            text_add(why, "its word embedding is factored");
            return true;
        }
        if (node->role == ROLE_BRIDGE) {
            text_add(why, "it has linear maps in place of layers");
            return true;
        }
        if (node->role == ROLE_FACTOR) {
            text_add(why, "projections of it are two factors each");
            return true;
        }
    }
    for (int s = 0; s < 2; s++) {
        Uneven uneven;
        if (!find_uneven(&uneven, graph, STACKS[s])) continue;
        text_add(why, "layer %d of the %s has %lld %s, layer %d has %lld", uneven.layer,
                 STACKS[s], (long long)uneven.count, uneven.what, uneven.first,
                 (long long)uneven.expected);
        return true;
    }
    return false;
}

/* Heads that no longer make up the width of a layer, in an architecture where they must.
 */
static bool explain_heads(Text *why, const Graph *graph, const Graph *built) {
    static const char *const STACKS[] = {STACK_ENCODER, STACK_DECODER};
    for (int s = 0; s < 2; s++) {
        const int64_t heads = measure_layer(graph, STACKS[s], 0, HEADS);
        const int64_t width = measure_layer(graph, STACKS[s], 0, HEAD_WIDTH);
        const int64_t built_heads = built ? measure_layer(built, STACKS[s], 0, HEADS) : 0;
        const int64_t built_width =
            built ? measure_layer(built, STACKS[s], 0, HEAD_WIDTH) : 0;
        const Node *out = graph_find(graph, STACKS[s], 0, ROLE_OUT);
        if (!heads || !out || (heads == built_heads && width == built_width) ||
            heads * width == node_width(out))
            continue;
        text_add(why,
                 "each layer of the %s has %lld heads of %lld numbers, which do not make "
                 "up its width of %lld",
                 STACKS[s], (long long)heads, (long long)width,
                 (long long)node_width(out));
        return true;
    }
    return false;
}

/* Two layers that share weights where the architecture has one for each. */
static bool explain_sharing(Text *why, const Comparison *c) {
    for (const Node *leaf = c->built->first; leaf; leaf = leaf->next) {
        const Node *other = leaf->storage ? c->twin[leaf->id] : NULL;
        if (!other || !other->storage || c->claimed[other->id] == leaf) continue;
        text_add(why, "parts of it share weights: '%s' stands for both '%s' and '%s'",
                 other->storage->name, leaf->storage->name,
                 c->claimed[other->id]->storage->name);
        return true;
    }
    return false;
}

static Status fail_match(const Stock *stock, const Text *why, Diag *diag) {
    diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
              "expected a model that is a %s as transformers knows it: %s",
              stock->family->model_type, why->data);
    return STATUS_MODEL;
}

/* ---- the configuration ---- */

/* Whether the predictions read the table of words; false too without one of the two. */
static bool is_tied(const Graph *graph) {
    const Node *logits = skip_idle(graph_output(graph, OUTPUT_LOGITS));
    for (const Node *node = graph->first; logits && node; node = node->next)
        if (node->role == ROLE_EMBED && node->in_count > 1 && logits->in_count > 1 &&
            node->in[1] && node->in[1]->storage && node->in[1] == logits->in[1])
            return true;
    return false;
}

/* Builds the graph of the configuration. Outputs that the family may lack go where the
 * model lacks them. */
static Status build_stock(Stock *stock, const Model *model, Diag *diag) {
    TRY(hf_build(&stock->built, stock->config, model->graph->ops, diag));
    const OptionalOutput *optional = stock->family->optional;
    for (; optional && optional->output; optional++)
        if (!graph_output(model->graph, optional->output) &&
            graph_output(stock->built->graph, optional->output))
            graph_remove_output(stock->built->graph, optional->output);
    graph_remove_dead(stock->built->graph);
    return STATUS_OK;
}

/* The configuration and its graph; where heads are tied otherwise than it says, with that
 * key. */
static Status build_as_is(Stock *stock, Arena *arena, const Model *model, Diag *diag) {
    static const char TIED[] = "tie_word_embeddings";
    stock->config = model_config_now(arena, model);
    TRY(build_stock(stock, model, diag));
    const bool tied = is_tied(model->graph);
    if (tied == is_tied(stock->built->graph)) return STATUS_OK;
    Tree *config = tree_copy(arena, stock->config);
    tree_put_bool(arena, config, TIED, tied);
    stock->config = config;
    model_destroy(stock->built);
    stock->built = NULL;
    return build_stock(stock, model, diag);
}

/* ---- matching ---- */

/* Looks up what each storage that was built is in the model, and counts the copies. */
static void take_weights(Stock *stock, Arena *arena, Comparison *c) {
    const Graph *built = stock->built->graph;
    stock->weights = ARENA_ARRAY(arena, const Storage *, (size_t)built->storage_count);
    stock->turned = ARENA_ARRAY(arena, bool, (size_t)built->storage_count);
    for (const Node *leaf = built->first; leaf; leaf = leaf->next) {
        if (!leaf->storage) continue;
        const Node *twin = c->twin[leaf->id];
        for (int i = 0; i < built->storage_count; i++) {
            if (built->storages[i] != leaf->storage) continue;
            stock->weights[i] = twin->storage;
            stock->turned[i] = is_other_way(c, leaf);
            stock->turns += stock->turned[i];
        }
        if (c->claimed[twin->id] == leaf) continue;
        stock->copies++;
        stock->copied_bytes += (int64_t)tensor_bytes(&twin->storage->tensor);
    }
}

static Status compare(Stock *stock, Arena *arena, const Model *model, bool may_copy,
                      Diag *diag) {
    Graph *const graph = model->graph, *const built = stock->built->graph;
    Comparison c = {.built = built, .graph = graph, .may_copy = may_copy};
    c.twin = ARENA_ARRAY(arena, Node *, (size_t)graph_number(built) + 1);
    c.claimed = ARENA_ARRAY(arena, const Node *, (size_t)graph_number(graph) + 1);
    Status status = STATUS_OK;
    compare_graphs(&c);
    if (!c.worst) {
        take_weights(stock, arena, &c);
    } else {
        Text why = {0};
        if (!stock_explain(&why, graph) && !explain_heads(&why, graph, built) &&
            (may_copy || !explain_sharing(&why, &c))) {
            text_add(&why, "at ");
            add_place(&why, c.worst);
            text_add(&why, " %s", c.reason.data);
        }
        status = fail_match(stock, &why, diag);
        text_free(&why);
    }
    text_free(&c.reason);
    return status;
}

/* The model has no such configuration: in plain words, or in those of the builder. */
static Status fail_config(const Stock *stock, const Model *model, Diag *faults,
                          Diag *diag) {
    Text why = {0};
    Status status = STATUS_MODEL;
    bool types = true; /* a family that has token types has them always */
    for (const SizeKey *size = stock->family->sizes; size && size->key; size++) {
        const Tree *count = tree_get(stock->config, size->key);
        if (size->kind == SIZE_TYPES && count && count->kind == TREE_INT)
            types = count->integer > 0;
    }
    if (!types) text_add(&why, "it has no token types");
    if (!types || stock_explain(&why, model->graph) ||
        explain_heads(&why, model->graph, NULL))
        fail_match(stock, &why, diag);
    else
        status = diag_take(diag, faults);
    text_free(&why);
    return status;
}

/* What the family builds beyond the architecture of its name. */
static Status check_own_keys(const Stock *stock, const Tree *config, Diag *diag) {
    const OwnKey *own = stock->family->own_keys;
    for (; own && own->key; own++) {
        const Tree *value = tree_get_nonnull(config, own->key);
        Text found = {0}, why = {0};
        if (value) tree_print_json(&found, value, 0);
        const bool usual = !value || strcmp(found.data, own->usual) == 0;
        if (!usual) {
            text_add(&why,
                     "its configuration has %s: %s, which transformers does not "
                     "follow",
                     own->key, found.data);
            fail_match(stock, &why, diag);
        }
        text_free(&found);
        text_free(&why);
        if (!usual) return STATUS_MODEL;
    }
    return STATUS_OK;
}

Status stock_match(Stock *out, Arena *arena, const Model *model, bool may_copy,
                   Diag *diag) {
    const Tree *type = tree_get_nonnull(model->config, "model_type");
    const bool named = type && type->kind == TREE_STRING;
    *out = (Stock){.family = named ? family_find(type->string) : NULL};
    if (!out->family || !out->family->classes)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a model of an architecture that transformers has, "
                         "found %s%.60s%s",
                         named ? "'" : "none", named ? type->string : "",
                         named ? "'" : "");
    TRY(check_own_keys(out, model->config, diag));
    Diag *faults = diag_create();
    Status status = build_as_is(out, arena, model, faults);
    if (status != STATUS_OK)
        status = fail_config(out, model, faults, diag);
    else
        status = compare(out, arena, model, may_copy, diag);
    diag_destroy(faults);
    if (status != STATUS_OK) stock_release(out);
    return status;
}

void stock_release(Stock *stock) {
    model_destroy(stock->built);
    stock->built = NULL;
}
