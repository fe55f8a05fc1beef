/* ONNX graphs that are made here: those of onnxruntime's fusions are the ops that they
 * stand for; damaged ones are refused with one message. */
#include "onnx_file.h"
#include "onnx_scratch.h"

#include "io/onnx/onnx_read.h"
#include "io/onnx/write/onnx_build.h"
#include "tests/support/configured.h"
#include "tests/support/reference.h"

#include <math.h>

/* ---- graphs made here ---- */

/* A model of one graph, written to the file as it is. */
static void put_graph(OnnxBuild *b) {
    OnnxModel model = ONNX__MODEL_PROTO__INIT;
    OnnxOpset opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[1] = {&opset};
    opset.has_version = model.has_ir_version = true;
    opset.version = 17;
    opset.domain = (char *)"";
    model.ir_version = 8;
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = onnx_build_graph(b, "test");
    put_messages(&model, path);
}

static const char *weights(OnnxBuild *b, int rows, int columns, double shift) {
    static float values[1024];
    const int64_t dim[2] = {rows > 0 ? rows : columns, columns};
    const int count = rows > 0 ? rows * columns : columns;
    for (int i = 0; i < count; i++)
        values[i] = (float)sin((double)i * 1.7 + shift + (double)columns);
    return onnx_f32s(b, values, dim, rows > 0 ? 2 : 1);
}

static void set_domain(OnnxBuild *b) {
    OnnxNode *node = b->nodes.items[b->nodes.count - 1];
    node->domain = (char *)"com.microsoft";
}

#define FUSED(b, ...) fused_node((b), ONNX_NODE(b, __VA_ARGS__))

static const char *fused_node(OnnxBuild *b, const char *value) {
    set_domain(b);
    return value;
}

static void declare_tokens(OnnxBuild *b, const char *name) {
    onnx_input(b, name, ONNX_I64, (const int64_t[]){0, 0},
               (const char *const[]){"batch", "tokens"}, 2);
}

static void declare_states(OnnxBuild *b, const char *name, int64_t width) {
    onnx_output(b, name, ONNX_F32, (const int64_t[]){0, 0, width},
                (const char *const[]){"batch", "tokens", NULL}, 3);
}

/* The graph of a model without weights' names, which are made up by content. */
static void expect_ops(const Model *model, const char *const *ops) {
    int at = 0;
    for (const Node *node = model->graph->first; node; node = node->next) {
        if (node_is_leaf(node)) continue;
        if (!ops[at] || strcmp(node->op->name, ops[at]) != 0)
            fail_msg("node %d: %s, expected %s", at, node->op->name,
                     ops[at] ? ops[at] : "no more");
        at++;
    }
    assert_null(ops[at]);
}

/* A post-norm layer as onnxruntime writes it. */
static void test_fused_layer(void **state) {
    static const char *const OPS[] = {
        "embedding", "embedding",  "add",    "add_position", "layer_norm",
        "linear",    "linear",     "linear", "attention",    "linear",
        "add",       "layer_norm", "linear", "activation",   "linear",
        "add",       "layer_norm", NULL};
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b = onnx_build_create(arena, ONNX_F32);
    declare_tokens(b, "input_ids");
    declare_tokens(b, "token_type_ids");
    declare_tokens(b, "attention_mask");
    const char *mask = onnx_cast(b, "attention_mask", ONNX_I32);
    const char *x = FUSED(b, "EmbedLayerNormalization", "input_ids", "token_type_ids",
                          weights(b, 12, 8, 0), weights(b, 6, 8, 1), weights(b, 2, 8, 2),
                          weights(b, 0, 8, 3), weights(b, 0, 8, 4));
    const char *y =
        FUSED(b, "Attention", x, weights(b, 8, 24, 5), weights(b, 0, 24, 6), mask);
    onnx_set_int(b, "num_heads", 2);
    y = ONNX_NODE(b, "MatMul", y, weights(b, 8, 8, 7));
    x = FUSED(b, "SkipLayerNormalization", y, x, weights(b, 0, 8, 8), weights(b, 0, 8, 9),
              weights(b, 0, 8, 10));
    y = ONNX_NODE(b, "MatMul", x, weights(b, 8, 16, 11));
    y = FUSED(b, "BiasGelu", y, weights(b, 0, 16, 12));
    y = ONNX_NODE(b, "MatMul", y, weights(b, 16, 8, 13));
    x = FUSED(b, "SkipLayerNormalization", y, x, weights(b, 0, 8, 14),
              weights(b, 0, 8, 15), weights(b, 0, 8, 16));
    onnx_rename(b, x, "last_hidden_state");
    declare_states(b, "last_hidden_state", 8);
    put_graph(b);
    Model *model = load_model(path);
    expect_ops(model, OPS);
    const Node *attention = graph_find(model->graph, "encoder", 0, ROLE_ATTENTION);
    assert_non_null(attention);
    assert_int_equal(node_integer(attention, "heads"), 2);
    assert_non_null(node_operand(attention, "mask"));
    for (int role = ROLE_Q; role <= ROLE_V; role++)
        assert_non_null(graph_find(model->graph, "encoder", 0, (Role)role));
    assert_non_null(graph_find(model->graph, "encoder", 0, ROLE_NORM2));
    assert_string_equal(tree_get(model->config, "model_type")->string, "bert");
    model_destroy(model);
    arena_destroy(arena);
}

/* ---- what is refused ---- */

static void expect_refused(const char *message) {
    Diag *diag = diag_create();
    Model *model = NULL;
    const Status status = model_load(&model, path, ops_table(), true, diag);
    char *said = diag_text(diag);
    if (status == STATUS_OK) fail_msg("read, expected: %s", message);
    if (!strstr(said, message)) fail_msg("expected '%s' in: %s", message, said);
    free(said);
    diag_destroy(diag);
}

/* A graph with one node that nothing stands against yet. */
static OnnxBuild *begin(Arena *arena) {
    OnnxBuild *b = onnx_build_create(arena, ONNX_F32);
    declare_tokens(b, "input_ids");
    return b;
}

static void test_refused_operators(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b = begin(arena);
    const char *x = onnx_gather(b, weights(b, 5, 4, 0), "input_ids", 0);
    onnx_rename(b, ONNX_NODE(b, "Frobnicate", x), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("(Frobnicate): this operator is not known");
    b = begin(arena);
    x = onnx_gather(b, weights(b, 5, 4, 0), "input_ids", 0);
    onnx_rename(b, ONNX_NODE(b, "IsInf", x), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("(IsInf): no op of ours does this");
    b = onnx_build_create(arena, ONNX_F32);
    onnx_input(b, "input_ids", ONNX_I64, (const int64_t[]){1, 6},
               (const char *const[]){NULL, NULL}, 2);
    x = onnx_gather(b, weights(b, 5, 4, 0), "input_ids", 0);
    onnx_rename(b, ONNX_NODE(b, "IsInf", x), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("the file fixes how many samples there are");
    arena_destroy(arena);
}

/* What a GroupQueryAttention is made to ask for. */
typedef struct Asked {
    const char *option; /* is 1 */
    bool turns;         /* by tables that are `bent` or not */
    bool bent;
    double over;         /* angles are over this; 0 = as they are */
    const char *more[3]; /* operands 10, 11, 12 */
    int64_t groups;
} Asked;

/* Cosines or sines of 5 positions, of base 100 or, bent, of none. */
static const char *angles(OnnxBuild *b, bool cosine, const Asked *asked) {
    float values[5 * 4];
    for (int i = 0; i < 20; i++) {
        const int position = asked->bent ? i / 4 * (i / 4) : i / 4;
        const double angle = position * pow(100, -(double)(i % 4) / 4) /
                             (asked->over > 0 ? asked->over : 1);
        values[i] = (float)(cosine ? cos(angle) : sin(angle));
    }
    return onnx_f32s(b, values, (const int64_t[]){5, 4}, 2);
}

static void put_grouped(Arena *arena, const Asked *asked) {
    OnnxBuild *b = begin(arena);
    declare_tokens(b, "attention_mask");
    const char *x = onnx_gather(b, weights(b, 5, 16, 0), "input_ids", 0), *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = ONNX_NODE(b, "MatMul", x, weights(b, 16, 16, i));
    const char *last = ONNX_NODE(b, "ReduceSum", "attention_mask", ONNX_VECTOR(b, 1));
    onnx_set_int(b, "keepdims", 0);
    last = onnx_cast(b, ONNX_NODE(b, "Sub", last, ONNX_VECTOR(b, 1)), ONNX_I32);
    const char *total = ONNX_NODE(b, "Shape", "input_ids");
    total = onnx_cast(b, onnx_gather(b, total, ONNX_VECTOR(b, 1), 0), ONNX_I32);
    const char *cosine = asked->turns ? angles(b, true, asked) : "",
               *sine = asked->turns ? angles(b, false, asked) : "", *more[3];
    for (int i = 0; i < 3; i++) more[i] = asked->more[i] ? asked->more[i] : "";
    x = FUSED(b, "GroupQueryAttention", part[0], part[1], part[2], "", "", last, total,
              cosine, sine, "", more[0], more[1], more[2]);
    onnx_set_int(b, "num_heads", 2);
    onnx_set_int(b, "kv_num_heads", asked->groups ? asked->groups : 2);
    if (asked->turns) onnx_set_int(b, "do_rotary", 1);
    if (asked->option) onnx_set_int(b, asked->option, 1);
    x = ONNX_NODE(b, "MatMul", ONNX_NODE(b, "Relu", x), weights(b, 16, 16, 3));
    onnx_rename(b, x, "y");
    declare_states(b, "y", 16);
    put_graph(b);
}

/* Tables are angles of a base, as they are or over a factor. */
static void test_table_angles(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (int over = 0; over <= 4; over += 4) {
        put_grouped(arena, &(Asked){.turns = true, .over = over});
        Model *model = load_model(path);
        int found = 0;
        for (const Node *node = model->graph->first; node; node = node->next) {
            if (strcmp(node->op->name, "rotary") != 0) continue;
            found++;
            assert_true(node_real(node, "theta") == 100);
            assert_true(node_chooses(node, "scaling", over ? "linear" : "none"));
            assert_true(node_real(node, "factor") == (over ? over : 1));
        }
        assert_int_equal(found, 2);
        model_destroy(model);
    }
    arena_destroy(arena);
}

/* What no attention of ours does is refused by its name. */
static void test_refused_attention(void **state) {
    static const struct {
        Asked asked;
        const char *message;
    } CASES[] = {
        {{.option = "smooth_softmax"}, "smooth_softmax: no attention has one"},
        {{.option = "rotary_interleaved", .turns = true}, "rotary_interleaved: pairs"},
        {{.option = "do_rotary"}, "do_rotary: expected tables"},
        {{.turns = true, .bent = true}, "its tables are not angles that are known"},
        {{.more = {"input_ids"}}, "attention_bias: no attention of decoders has one"},
        {{.more = {NULL, "input_ids"}}, "head_sink: no attention has one"},
        {{.more = {NULL, NULL, "input_ids"}}, "keys and values in few bits"},
        {{.groups = 3}, "num_heads and kv_num_heads do not fit"}};
    (void)state;
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        put_grouped(arena, &CASES[i].asked);
        expect_refused(CASES[i].message);
    }
    arena_destroy(arena);
}

/* Rows of a table by the ids of `samples` texts of `tokens` tokens. */
static const char *begin_fixed(OnnxBuild **out, Arena *arena, int64_t samples,
                               int64_t tokens) {
    OnnxBuild *b = *out = onnx_build_create(arena, ONNX_F32);
    onnx_input(b, "input_ids", ONNX_I64, (const int64_t[]){samples, tokens},
               (const char *const[]){NULL, NULL}, 2);
    return onnx_gather(b, weights(b, 5, 4, 0), "input_ids", 0);
}

static void end_fixed(OnnxBuild *b, const char *y) {
    onnx_rename(b, y, "y");
    declare_states(b, "y", 4);
    put_graph(b);
}

static const char *numbers(OnnxBuild *b, int count, const int64_t *dim, int rank,
                           bool same) {
    static float values[1024];
    for (int i = 0; i < count; i++) values[i] = same ? (float)(i % 4) : (float)i;
    return onnx_f32s(b, values, dim, rank);
}

/* Opens the model for three samples of two tokens, 0 to 4 and 0 again, and holds its
 * states against what they should be: `expected` of row i / 4 and channel i % 4. */
static void check_fixed(double (*expected)(int i)) {
    Model *model = load_model(path);
    const Type want = {DTYPE_F32, 3, {DIM_N, DIM_T, 4}};
    assert_true(type_equal(&model->graph->outputs[0].node->type, &want));
    Runner r;
    Node *node = model->graph->outputs[0].node;
    runner_open_sizes(&r, model->graph, (const int64_t[DIM_SYMBOLS]){3, 2, 1, 1},
                      PRECISION_F32, NULL, &node, 1);
    int32_t *ids = workspace_input(r.workspace, INPUT_IDS);
    for (int i = 0; i < 6; i++) ids[i] = i % 5;
    runner_run(&r);
    const float *got = workspace_value(r.workspace, node);
    for (int i = 0; i < 24; i++)
        if (!(fabs(got[i] - expected(i)) <= 1e-5))
            fail_msg("y[%d]: %g, not %g", i, got[i], expected(i));
    runner_close(&r);
    model_destroy(model);
}

/* What weights() puts into channel c of the word of row i / 4. */
static double word_weight(int i, int c) {
    return sin((i / 4 % 5 * 4 + c) * 1.7 + 4);
}

static double fixed_size(int i) {
    const int c = i % 4, t = i / 4 % 2;
    return fmax(sin(word_weight(i, c)) * c - (t * 4 + c), c);
}

/* Tables cut to the file's tokens, rows for each of its samples, a shape. */
static void test_fixed_sizes(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b;
    const char *x = begin_fixed(&b, arena, 2, 6);
    x = ONNX_NODE(b, "Sin", ONNX_RESHAPE(b, x, 2, 6, 2, 2));
    x = ONNX_NODE(b, "Mul", ONNX_RESHAPE(b, x, 12, 4),
                  numbers(b, 4, (const int64_t[]){4}, 1, true));
    x = ONNX_NODE(b, "Sub", ONNX_RESHAPE(b, x, 2, 6, 4),
                  numbers(b, 24, (const int64_t[]){1, 6, 4}, 3, false));
    x = ONNX_NODE(b, "Max", x, numbers(b, 8, (const int64_t[]){2, 1, 4}, 3, true));
    end_fixed(b, x);
    check_fixed(fixed_size);
    arena_destroy(arena);
}

static double fixed_turned(int i) {
    double y = word_weight(i, i % 4);
    for (int c = 0; c < 4; c++) y -= word_weight(i, c);
    return y;
}

/* Numbers [tokens, samples] of one sample: a 1 behind the tokens is the samples, not a
 * part of the tokens before it. */
static void test_fixed_turned(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b;
    const char *x = begin_fixed(&b, arena, 1, 6);
    x = ONNX_TRANSPOSE(b, x, 1, 0, 2);
    const char *sum = ONNX_NODE(b, "ReduceSum", x, ONNX_VECTOR(b, 2));
    onnx_set_int(b, "keepdims", 0);
    sum = ONNX_RESHAPE(b, sum, 6, 1);
    x = ONNX_NODE(b, "Sub", x, onnx_unsqueeze(b, sum, 2));
    end_fixed(b, ONNX_TRANSPOSE(b, x, 1, 0, 2));
    check_fixed(fixed_turned);
    arena_destroy(arena);
}

/* What cannot be opened: samples that meet, tokens that weights count, a row for each
 * sample that is its own, fewer tokens than the probes have. */
static void test_refused_sizes(void **state) {
    (void)state;
    static const char FIXED[] = "the file fixes how many samples there are";
    Arena *arena = arena_create();
    OnnxBuild *b;
    const char *x = begin_fixed(&b, arena, 1, 6);
    x = ONNX_NODE(b, "Cos", x);
    x = ONNX_NODE(b, "Softmax", ONNX_TRANSPOSE(b, x, 1, 2, 0));
    end_fixed(b, ONNX_TRANSPOSE(b, x, 2, 0, 1));
    expect_refused("(Softmax): it is over samples, which stay apart");
    x = begin_fixed(&b, arena, 1, 6);
    end_fixed(b, ONNX_NODE(b, "MatMul", ONNX_RESHAPE(b, x, 1, 24), weights(b, 24, 4, 1)));
    expect_refused(FIXED);
    x = begin_fixed(&b, arena, 2, 6);
    end_fixed(
        b, ONNX_NODE(b, "Add", x, numbers(b, 8, (const int64_t[]){2, 1, 4}, 3, false)));
    expect_refused(FIXED);
    x = begin_fixed(&b, arena, 1, 4);
    end_fixed(b, ONNX_NODE(b, "Add", ONNX_RESHAPE(b, x, 1, 4, 4),
                           numbers(b, 16, (const int64_t[]){1, 4, 4}, 3, false)));
    expect_refused(FIXED);
    arena_destroy(arena);
}

static void test_refused_names(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b = begin(arena); /* a cycle */
    const char *x = ONNX_NODE(b, "Add", "z", "input_ids");
    onnx_rename(b, ONNX_NODE(b, "Relu", x), "z");
    declare_states(b, "z", 4);
    put_graph(b);
    expect_refused("it depends on itself");
    b = begin(arena); /* a weight that is missing */
    onnx_rename(b, ONNX_NODE(b, "Add", "input_ids", "lost"), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("gives its operand 'lost'");
    b = begin(arena); /* one name twice */
    onnx_rename(b, ONNX_NODE(b, "Relu", "input_ids"), "y");
    onnx_rename(b, ONNX_NODE(b, "Neg", "input_ids"), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("two values have this name");
    b = begin(arena); /* an output of nobody */
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("no node gives this output");
    arena_destroy(arena);
}

/* An If whose branch does not name its result. */
static void test_refused_branch(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxAttribute bodies[2] = {ONNX__ATTRIBUTE_PROTO__INIT, ONNX__ATTRIBUTE_PROTO__INIT};
    OnnxAttribute *list[2] = {&bodies[0], &bodies[1]};
    OnnxValue nameless = ONNX__VALUE_INFO_PROTO__INIT, *results[1] = {&nameless};
    OnnxGraph branch = ONNX__GRAPH_PROTO__INIT;
    OnnxBuild *b = begin(arena);
    onnx_input(b, "use_cache_branch", ONNX_BOOL, (const int64_t[]){1},
               (const char *const[]){NULL}, 1);
    onnx_rename(b, ONNX_NODE(b, "If", "use_cache_branch"), "y");
    declare_states(b, "y", 4);
    branch.n_output = 1;
    branch.output = results;
    for (int i = 0; i < 2; i++) {
        bodies[i].name = (char *)(i ? "else_branch" : "then_branch");
        bodies[i].g = &branch;
    }
    OnnxNode *choice = b->nodes.items[b->nodes.count - 1];
    choice->n_attribute = 2;
    choice->attribute = list;
    put_graph(b);
    expect_refused("a branch's result without a name");
    arena_destroy(arena);
}

/* An input that is a map: its message has other fields than a tensor's. */
static void test_refused_input(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b = begin(arena);
    Onnx__TypeProto__Map map = ONNX__TYPE_PROTO__MAP__INIT;
    OnnxType type = ONNX__TYPE_PROTO__INIT, of = ONNX__TYPE_PROTO__INIT;
    map.has_key_type = true;
    map.key_type = ONNX_I64;
    map.value_type = &of;
    type.value_case = ONNX__TYPE_PROTO__VALUE_MAP_TYPE;
    type.map_type = &map;
    OnnxValue *input = b->inputs.items[0];
    input->type = &type;
    onnx_rename(b, ONNX_NODE(b, "Relu", "input_ids"), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("expected an input that is a tensor with a shape");
    arena_destroy(arena);
}

/* A graph whose one weight is changed before it is written. */
static void put_weight(Arena *arena, void (*change)(OnnxTensor *tensor)) {
    OnnxBuild *b = begin(arena);
    const char *table = weights(b, 5, 4, 0);
    onnx_rename(b, onnx_gather(b, table, "input_ids", 0), "y");
    declare_states(b, "y", 4);
    for (int i = 0; i < b->constants.count; i++) {
        OnnxTensor *tensor = b->constants.items[i];
        if (strcmp(tensor->name, table) == 0) change(tensor);
    }
    put_graph(b);
}

static void make_huge(OnnxTensor *tensor) {
    tensor->dims[0] = tensor->dims[1] = INT64_MAX / 2;
}

static void make_negative(OnnxTensor *tensor) {
    tensor->dims[0] = -5;
}

static void make_short(OnnxTensor *tensor) {
    tensor->raw_data.len -= 4;
}

static void make_text(OnnxTensor *tensor) {
    tensor->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__STRING;
}

/* External data: location, offset and length. */
static OnnxEntry entries[3];
static OnnxEntry *entry_list[3] = {&entries[0], &entries[1], &entries[2]};

static void make_external(OnnxTensor *tensor, const char *location, const char *offset,
                          const char *length) {
    const char *const keys[] = {"location", "offset", "length"};
    const char *const values[] = {location, offset, length};
    for (int i = 0; i < 3; i++) {
        entries[i] = (OnnxEntry)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
        entries[i].key = (char *)keys[i];
        entries[i].value = (char *)values[i];
    }
    tensor->has_data_location = true;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    tensor->has_raw_data = false;
    tensor->n_external_data = 3;
    tensor->external_data = entry_list;
}

static void make_outside(OnnxTensor *tensor) {
    make_external(tensor, "../../etc/passwd", "0", "80");
}

static void make_absolute(OnnxTensor *tensor) {
    make_external(tensor, "/etc/passwd", "0", "80");
}

static void make_past_end(OnnxTensor *tensor) {
    make_external(tensor, "model.data", "72", "80");
}

static void make_odd_length(OnnxTensor *tensor) {
    make_external(tensor, "model.data", "0", "79");
}

static void make_beside(OnnxTensor *tensor) {
    make_external(tensor, "model.data", "16", "80");
}

static void test_refused_weights(void **state) {
    (void)state;
    static const struct {
        void (*change)(OnnxTensor *tensor);
        const char *message;
    } CASES[] = {{make_huge, "whose product fits"},
                 {make_negative, "of at least 0"},
                 {make_short, "its shape asks for 80 bytes, found 76"},
                 {make_text, "expected a tensor of numbers"},
                 {make_outside, "expected external data in the model's folder"},
                 {make_absolute, "expected external data in the model's folder"},
                 {make_past_end, "expected 80 bytes from byte 72"},
                 {make_odd_length, "a length of 80 bytes"}};
    Arena *arena = arena_create();
    char data[300], zeros[100] = {0};
    snprintf(data, sizeof data, "%s/model.data", folder);
    put_file(data, zeros, sizeof zeros);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        put_weight(arena, CASES[i].change);
        expect_refused(CASES[i].message);
    }
    put_weight(arena, make_beside);
    Model *model = load_model(path); /* weights that lie where they should */
    assert_int_equal(graph_parameter_count(model->graph), 20);
    model_destroy(model);
    arena_destroy(arena);
}

/* Flipped bytes give a model or a message. */
static void test_flipped_bytes(void **state) {
    (void)state;
    Model *model = configured_bert(1, 1);
    Diag *diag = diag_create();
    Written written = {0};
    Buf *map;
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, false, &ONNX_DEFAULTS,
                                    &written, diag));
    expect_ok(diag, file_map(&map, path, diag));
    const size_t length = buf_bytes(map);
    unsigned char *bytes = memory_alloc(length, 1);
    memcpy(bytes, buf_data(map), length);
    buf_release(map);
    uint32_t seed = 1;
    for (int i = 0; i < 1500; i++) {
        seed = seed * 1664525u + 1013904223u;
        const size_t at = seed % length;
        const unsigned char old = bytes[at];
        bytes[at] ^= (unsigned char)(1u << (seed >> 29));
        put_file(path, bytes, length);
        bytes[at] = old;
        Model *back = NULL;
        diag_clear(diag);
        if (onnx_read(&back, path, ops_table(), diag) == STATUS_OK)
            model_destroy(back);
        else
            assert_true(diag_errors(diag) > 0);
    }
    free(bytes);
    diag_destroy(diag);
    model_destroy(model);
}

/* A matrix of 8 bits that two nodes dequantise: by the same scale, one f32 tensor; the
 * second of two scales is refused, or a file could ask for any number of copies. */
static void test_shared_weight(void **state) {
    (void)state;
    static const float SCALES[] = {0.5F, 0.25F};
    Arena *arena = arena_create();
    for (int scales = 1; scales <= 2; scales++) {
        OnnxBuild *b = begin(arena);
        const char *table = weights(b, 5, 4, 0), *rows[2];
        OnnxTensor *tensor = b->constants.items[b->constants.count - 1];
        assert_string_equal(tensor->name, table);
        tensor->data_type = ONNX_I8;
        tensor->raw_data.len = 20;
        for (int i = 0; i < 2; i++) {
            const char *scale = onnx_f32s(b, &SCALES[i % scales], NULL, 0);
            const char *real = ONNX_NODE(b, "DequantizeLinear", table, scale);
            rows[i] = onnx_gather(b, real, "input_ids", 0);
        }
        onnx_rename(b, ONNX_NODE(b, "Add", rows[0], rows[1]), "y");
        declare_states(b, "y", 4);
        put_graph(b);
        if (scales == 1) {
            Model *model = load_model(path);
            assert_int_equal(graph_parameter_count(model->graph), 20);
            model_destroy(model);
        } else {
            expect_refused("(DequantizeLinear)");
        }
    }
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fused_layer, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_operators, enter, leave),
        cmocka_unit_test_setup_teardown(test_fixed_sizes, enter, leave),
        cmocka_unit_test_setup_teardown(test_fixed_turned, enter, leave),
        cmocka_unit_test_setup_teardown(test_table_angles, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_attention, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_sizes, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_names, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_branch, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_input, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_weights, enter, leave),
        cmocka_unit_test_setup_teardown(test_shared_weight, enter, leave),
        cmocka_unit_test_setup_teardown(test_flipped_bytes, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
