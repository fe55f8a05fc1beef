/* Builder: access to the configuration and node construction, both of which remember the
 * first failure. */
#include "io/families/build.h"

#include <stdarg.h>
#include <string.h>

/* ---- the configuration ---- */

/* Who wants to know which keys are asked for. A family is built in one call, far below
 * the caller that asks. */
static _Thread_local ConfigKeys *watcher;

void build_watch_config(ConfigKeys *keys) {
    watcher = keys;
}

static void note_key(ConfigKeys *keys, const char *key) {
    for (int i = 0; i < keys->count; i++)
        if (strcmp(keys->names[i], key) == 0) return;
    if (keys->count == keys->capacity) {
        const int capacity = keys->capacity ? 2 * keys->capacity : 32;
        const char **names = ARENA_ARRAY(keys->arena, const char *, (size_t)capacity);
        if (keys->count > 0)
            memcpy(names, keys->names, (size_t)keys->count * sizeof *names);
        keys->names = names;
        keys->capacity = capacity;
    }
    keys->names[keys->count++] = arena_strdup(keys->arena, key);
}

const Tree *build_config_value(const Builder *b, const char *key) {
    if (watcher) note_key(watcher, key);
    return tree_get_nonnull(b->model->config, key);
}

bool build_config_is_null(const Builder *b, const char *key) {
    return !build_config_value(b, key) && tree_get(b->model->config, key);
}

Loc build_config_loc(const Builder *b, const char *key) {
    const Tree *value = tree_get(b->model->config, key);
    return value ? value->loc : b->model->config->loc;
}

/* Reports a value that is not what was expected. `value` NULL: the key is missing. */
static void config_fail(Builder *b, const char *key, const Tree *value,
                        const char *expected) {
    const Tree *config = b->model->config;
    if (b->status != STATUS_OK) return;
    if (!value) {
        b->status = diag_fail(b->diag, STATUS_MODEL, config->loc, key,
                              "missing: expected %s", expected);
        return;
    }
    Text found = {0};
    tree_print_json(&found, value, 0);
    b->status = diag_fail(b->diag, STATUS_MODEL, value->loc, key,
                          "expected %s, found %.60s", expected, found.data);
    text_free(&found);
}

int64_t build_config_int(Builder *b, const char *key, const int64_t *fallback,
                         int64_t min, int64_t max) {
    const Tree *value = build_config_value(b, key);
    if (!value && fallback) return *fallback;
    if (value && value->kind == TREE_INT && value->integer >= min &&
        value->integer <= max)
        return value->integer;
    config_fail(b, key, value,
                arena_printf(b->model->arena, "an integer from %lld to %lld",
                             (long long)min, (long long)max));
    return min;
}

double build_config_real(Builder *b, const char *key, const double *fallback, double min,
                         double max) {
    const Tree *value = build_config_value(b, key);
    if (!value && fallback) return *fallback;
    double number;
    if (tree_number(value, &number) && number >= min && number <= max) return number;
    config_fail(b, key, value,
                arena_printf(b->model->arena, "a number from %g to %g", min, max));
    return min;
}

bool build_config_bool(Builder *b, const char *key, bool fallback) {
    const Tree *value = build_config_value(b, key);
    if (!value) return fallback;
    if (value->kind == TREE_BOOL) return value->boolean;
    config_fail(b, key, value, "true or false");
    return fallback;
}

const char *build_config_string(Builder *b, const char *key, const char *fallback) {
    const Tree *value = build_config_value(b, key);
    if (!value && fallback) return fallback;
    if (value && value->kind == TREE_STRING) return value->string;
    config_fail(b, key, value, "a string");
    return "";
}

void build_config_require(Builder *b, const char *key, bool fallback, bool value) {
    if (build_config_bool(b, key, fallback) != value && b->status == STATUS_OK)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                      "expected %s, the only kind there is", value ? "true" : "false");
}

int build_config_choice(Builder *b, const char *key, const char *const *names,
                        int usual) {
    const char *found = build_config_string(b, key, names[usual]);
    for (int i = 0; names[i]; i++)
        if (strcmp(found, names[i]) == 0) return i;
    if (b->status != STATUS_OK) return usual;
    Text list = {0};
    for (int i = 0; names[i]; i++)
        text_add(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
    b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                          "expected %s%s, found '%.60s'", list.data,
                          names[1] ? "" : ", the only kind there is", found);
    text_free(&list);
    return usual;
}

bool build_config_layer_types(Builder *b, bool *near, int64_t layers,
                              const char *needed) {
    static const char KEY[] = "layer_types";
    const Tree *list = build_config_value(b, KEY);
    if (!list || b->status != STATUS_OK) return false;
    const Tree *item = list->kind == TREE_LIST ? list->first : NULL;
    int64_t i = 0;
    for (; item && i < layers; item = item->next, i++) {
        const char *type = item->kind == TREE_STRING ? item->string : "";
        near[i] = strcmp(type, "sliding_attention") == 0;
        if (near[i] ? needed != NULL : strcmp(type, "full_attention") != 0) break;
    }
    if (list->kind == TREE_LIST && !item && i == layers) return true;
    b->status = diag_fail(b->diag, STATUS_MODEL, item ? item->loc : list->loc, KEY,
                          "expected full_attention%s for each of the %lld layers",
                          needed ? "" : " or sliding_attention", (long long)layers);
    if (item && item->kind == TREE_STRING)
        diag_note(b->diag, "found '%.60s'", item->string);
    if (item && i < layers && near[i])
        diag_hint(b->diag, "sliding_attention needs %s", needed);
    return true;
}

Task build_config_problem(Builder *b, int64_t labels) {
    static const char *const NAMES[] = {"single_label_classification",
                                        "multi_label_classification", "regression", NULL};
    static const Task TASKS[] = {TASK_CLASSIFY, TASK_MULTI_LABEL, TASK_REGRESS};
    return TASKS[build_config_choice(b, "problem_type", NAMES, labels == 1 ? 2 : 0)];
}

int64_t build_config_labels(Builder *b) {
    const int64_t max = 1 << 24;
    const Tree *labels = build_config_value(b, "id2label");
    int64_t count = 2;
    if (labels && (labels->kind != TREE_MAP || labels->count == 0))
        config_fail(b, "id2label", labels, "a map with at least one label");
    else if (labels)
        count = labels->count;
    return build_config_int(b, "num_labels", &count, 1, max);
}

const char *build_activation(Builder *b, const char *key, const char *name) {
    static const char *const NAMES[][2] = {
        {"gelu", "gelu"}, {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
        {"relu", "relu"}, {"silu", "silu"},          {"swish", "silu"}};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i][0]) == 0) return NAMES[i][1];
    if (b->status == STATUS_OK)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                              "expected gelu, gelu_new, gelu_pytorch_tanh, relu, silu or "
                              "swish, found '%.60s'",
                              name);
    return "gelu";
}

const char *build_config_activation(Builder *b, const char *key, const char *fallback) {
    return build_activation(b, key, build_config_string(b, key, fallback));
}

double build_config_dropout(Builder *b, const char *key, double fallback) {
    return build_config_real(b, key, &fallback, 0, 0.99);
}

void build_config_left_out(Builder *b, const char *key, const char *what) {
    if (build_config_dropout(b, key, 0) > 0 && b->status == STATUS_OK)
        model_leave_out(b->model, build_config_loc(b, key), key, what);
}

void build_config_attention_dropout(Builder *b, const char *key) {
    build_config_left_out(b, key, "dropout of attention probabilities");
}

void build_config_heads(Builder *b, const char *key, int64_t heads, const char *width_key,
                        int64_t width) {
    if (b->status == STATUS_OK && width % heads != 0)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                              "expected a divisor of %s %lld, found %lld", width_key,
                              (long long)width, (long long)heads);
}

static void unknown_architecture(Builder *b, const Tree *found,
                                 const char *const *known) {
    Text names = {0};
    for (int i = 0; known[i]; i++) text_add(&names, "%s%s", i ? ", " : "", known[i]);
    if (b->status == STATUS_OK)
        b->status = diag_fail(b->diag, STATUS_MODEL, found->loc, "architectures",
                              "expected a list with one of %s", names.data);
    if (found->kind == TREE_LIST && found->first && found->first->kind == TREE_STRING)
        diag_note(b->diag, "found '%.100s'", found->first->string);
    diag_hint(b->diag, "`model: {path: ..., architectures: [...]}` reads what another "
                       "class has of it");
    text_free(&names);
}

const char *build_config_architecture(Builder *b, const char *const *known) {
    const Tree *list = build_config_value(b, "architectures");
    if (!list) return known[0];
    const Tree *first = list->kind == TREE_LIST ? list->first : NULL;
    for (int i = 0; first && first->kind == TREE_STRING && known[i]; i++)
        if (strcmp(first->string, known[i]) == 0) return known[i];
    unknown_architecture(b, list, known);
    return known[0];
}

/* ---- nodes ---- */

/* Keeps a failure; true when it is one. */
static bool builder_failed(Builder *b, Status status) {
    if (b->status == STATUS_OK) b->status = status;
    return b->status != STATUS_OK;
}

/* What calls return after a failure: a node without meaning, but never NULL. */
static Node *dummy(const Builder *b) {
    return ARENA_NEW(b->model->arena, Node);
}

Node *build_input(Builder *b, const char *name, DType dtype, int rank,
                  const int64_t *dim) {
    if (b->status != STATUS_OK) return dummy(b);
    Type type = {.dtype = dtype, .rank = rank};
    memcpy(type.dim, dim, sizeof *dim * (size_t)rank);
    return graph_input(b->model->graph, name, &type);
}

Node *build_param(Builder *b, const char *name, InitKind init, int rank,
                  const int64_t *dim) {
    if (b->status != STATUS_OK) return dummy(b);
    const char *full = arena_printf(b->model->arena, "%s%s", b->prefix, name);
    if (!shape_size(DTYPE_F32, rank, dim, NULL, NULL)) {
        b->status = diag_fail(b->diag, STATUS_MODEL, b->model->config->loc, full,
                              "the configuration asks for a tensor that is too large");
        return dummy(b);
    }
    Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = graph_storage(b->model->graph, full);
    if (storage && storage->tensor.rank == rank &&
        memcmp(storage->tensor.dim, dim, sizeof *dim * (size_t)rank) == 0)
        return graph_param(b->model->graph, storage);
    Status status = graph_add_storage(&storage, b->model->graph, full, &shape, b->diag);
    if (builder_failed(b, status)) return dummy(b);
    bool drawn = init == INIT_NORMAL || init == INIT_TRUNC_NORMAL;
    storage->init = (Init){init, drawn ? b->std : 0};
    return graph_param(b->model->graph, storage);
}

/* A node of an op, not placed yet; NULL when there is no such op. */
static Node *insert(Builder *b, const char *name, Node *const *in, int count) {
    Graph *graph = b->model->graph;
    const Op *op = op_find(graph->ops, name);
    if (op) return graph_insert(graph, NULL, op, in, count);
    b->status = diag_fail(b->diag, STATUS_INTERNAL, LOC_NONE, NULL,
                          "the op table has no op '%s'", name);
    return NULL;
}

static Node *finish(Builder *b, Node *node, Role role) {
    if (builder_failed(b, node_infer(node, b->diag))) return dummy(b);
    return node_place(b->model->graph, node, b->stack, b->layer, role);
}

Node *build_op(Builder *b, const char *op, Role role, Node *const in[4],
               const char *attrs, ...) {
    if (b->status != STATUS_OK) return dummy(b);
    int count = 0;
    while (count < 4 && in[count]) count++;
    Node *node = insert(b, op, in, count);
    if (!node) return dummy(b);
    if (attrs) {
        char text[512];
        va_list args;
        va_start(args, attrs);
        vsnprintf(text, sizeof text, attrs, args);
        va_end(args);
        Status status = node_set(b->model->graph, node, b->diag, "%s", text);
        if (builder_failed(b, status)) return dummy(b);
    }
    return finish(b, node, role);
}

Node *build_op_list(Builder *b, const char *op, Role role, Node *const *in, int count) {
    if (b->status != STATUS_OK) return dummy(b);
    Node *node = insert(b, op, in, count);
    return node ? finish(b, node, role) : dummy(b);
}

void build_operand(Builder *b, Node *node, const char *name, Node *value) {
    if (b->status != STATUS_OK) return;
    node_set_operand(b->model->graph, node, name, value);
    builder_failed(b, node_infer(node, b->diag));
}

Node *build_linear(Builder *b, Role role, const char *name, Node *x, int64_t out,
                   bool bias) {
    if (b->status != STATUS_OK) return dummy(b);
    Arena *arena = b->model->arena;
    int64_t dim[] = {out, x->type.dim[x->type.rank - 1]};
    Node *in[4] = {x};
    in[1] =
        build_param(b, arena_printf(arena, "%s.weight", name), INIT_TRUNC_NORMAL, 2, dim);
    if (bias)
        in[2] = build_param(b, arena_printf(arena, "%s.bias", name), INIT_ZEROS, 1, dim);
    return build_op(b, "linear", role, in, NULL);
}

Node *build_layer_norm(Builder *b, Role role, const char *name, Node *x, double eps) {
    if (b->status != STATUS_OK) return dummy(b);
    Arena *arena = b->model->arena;
    const int64_t *dim = &x->type.dim[x->type.rank - 1];
    Node *weight =
        build_param(b, arena_printf(arena, "%s.weight", name), INIT_ONES, 1, dim);
    Node *bias = build_param(b, arena_printf(arena, "%s.bias", name), INIT_ZEROS, 1, dim);
    Node *const in[4] = {x, weight, bias};
    return build_op(b, "layer_norm", role, in, "eps=%.17g", eps);
}

Node *build_add(Builder *b, Role role, Node *x, Node *y) {
    Node *const in[4] = {x, y};
    return build_op(b, "add", role, in, NULL);
}

Node *build_dropout(Builder *b, double rate, Node *x) {
    Node *const in[4] = {x};
    if (rate <= 0) return x;
    return build_op(b, "dropout", ROLE_NONE, in, "rate=%.17g", rate);
}

void build_output(Builder *b, const char *name, Node *x) {
    if (b->status == STATUS_OK) graph_set_output(b->model->graph, name, x);
}

void build_logits(Builder *b, Task task, Node *x) {
    build_output(b, OUTPUT_LOGITS, x);
    b->model->graph->task = task;
}
