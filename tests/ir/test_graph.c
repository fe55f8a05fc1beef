/* Graphs: building, counting, rewriting, importing, copying, verifying, models. */
#include "ir/irtext.h"
#include "ir/model.h"
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "tests/ir/toy_ops.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The graph most tests start from:
 *
 *     h = linear(x, w, bias=b); s = add(h, h); y = linear(s, w); output logits = y
 */
typedef struct Fixture {
    Model *model;
    Graph *graph;
    Diag *diag;
    Storage *w, *b;
    Node *x, *h, *s, *y;
} Fixture;

static const Type INPUT_TYPE = {DTYPE_F32, 2, {DIM_N, 4}};

static Storage *add_storage(Fixture *f, const char *name, int rank, int64_t d0,
                            int64_t d1) {
    Storage *storage = NULL;
    Tensor shape = tensor_shape(DTYPE_F32, rank, (int64_t[]){d0, d1});
    assert_ok(graph_add_storage(&storage, f->graph, name, &shape, f->diag), f->diag);
    return storage;
}

static Node *insert(Fixture *f, Node *anchor, const Op *op, int count, Node *const *in) {
    Node *node = graph_insert(f->graph, anchor, op, in, count);
    assert_ok(node_infer(node, f->diag), f->diag);
    return node;
}

#define INSERT(f, anchor, op, ...)                                                       \
    insert((f), (anchor), (op), sizeof((Node *[]){__VA_ARGS__}) / sizeof(Node *),        \
           (Node *[]){__VA_ARGS__})

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    *state = f;
    f->model = model_create(&TOY_OPS);
    f->graph = f->model->graph;
    f->diag = diag_create();
    f->w = add_storage(f, "w", 2, 4, 4);
    f->b = add_storage(f, "b", 1, 4, 0);
    f->x = graph_input(f->graph, "x", &INPUT_TYPE);
    f->h = INSERT(f, NULL, &TOY_LINEAR, f->x, graph_param(f->graph, f->w),
                  graph_param(f->graph, f->b));
    f->s = INSERT(f, NULL, &TOY_ADD, f->h, f->h);
    f->y = INSERT(f, NULL, &TOY_LINEAR, f->s, graph_param(f->graph, f->w));
    graph_set_output(f->graph, "logits", f->y);
    node_place(f->graph, f->h, "encoder", 0, ROLE_Q);
    node_place(f->graph, f->y, "encoder", 1, ROLE_Q);
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    model_destroy(f->model);
    diag_destroy(f->diag);
    free(f);
    return 0;
}

/* Checks what the list of diagnostics prints, and empties it. */
static void check_message(Diag *diag, const char *expected) {
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    diag_print(diag, out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    diag_clear(diag);
}

static void check_text(Graph *graph, const char *expected) {
    Text text = {0};
    graph_print(&text, graph);
    assert_string_equal(text.data, expected);
    text_free(&text);
}

#define BASE_LEAVES "ir 1\ninput x : f32[N, 4]\nparam @w : f32[4, 4]\nparam @b : f32[4]\n"
#define BASE_TEXT                                                                        \
    BASE_LEAVES "%3 = linear($x, @w, bias=@b) : f32[N, 4] at encoder.0 as q\n"           \
                "%4 = add(%3, %3) : f32[N, 4]\n"                                         \
                "%5 = linear(%4, @w) : f32[N, 4] at encoder.1 as q\n"                    \
                "output logits = %5\n"

static void test_build(void **state) {
    Fixture *f = *state;
    assert_ok(graph_verify(f->graph, STATUS_INTERNAL, f->diag), f->diag);
    check_text(f->graph, BASE_TEXT);
    assert_int_equal(f->graph->node_count, 6);
    assert_int_equal(f->y->in_count, 3);
    assert_null(node_operand(f->y, "bias"));
    assert_ptr_equal(node_operand(f->h, "bias")->storage, f->b);
    node_set_operand(f->graph, f->y, "bias", graph_param(f->graph, f->b));
    assert_ptr_equal(node_operand(f->y, "bias"), node_operand(f->h, "bias"));
    node_set_operand(f->graph, f->h, "bias", NULL);
    assert_null(node_operand(f->h, "bias"));
    assert_ptr_equal(graph_find_input(f->graph, "x"), f->x);
    assert_null(graph_find_input(f->graph, "y"));
    assert_ptr_equal(graph_output(f->graph, "logits"), f->y);
    graph_set_output(f->graph, "hidden", f->h);
    graph_remove_output(f->graph, "logits");
    assert_null(graph_output(f->graph, "logits"));
    assert_ptr_equal(graph_output(f->graph, "hidden"), f->h);
    assert_string_equal(graph_fresh_name(f->graph, "w"), "w.2");
    assert_string_equal(graph_fresh_name(f->graph, "v"), "v");
}

static void test_leaf_order(void **state) {
    Fixture *f = *state;
    add_storage(f, "z", 1, 1, 0);
    graph_input(f->graph, "late", &INPUT_TYPE);
    graph_param(f->graph, graph_storage(f->graph, "z"));
    assert_ok(graph_verify(f->graph, STATUS_INTERNAL, f->diag), f->diag);
    const char *order[] = {"x", "late", "w", "b", "z"};
    const Node *n = f->graph->first;
    for (int i = 0; i < 5; i++, n = n->next)
        assert_string_equal(n->storage ? n->storage->name : n->name, order[i]);
}

static void test_counts(void **state) {
    Fixture *f = *state;
    assert_int_equal(graph_parameter_count(f->graph), 20);
    assert_int_equal(graph_parameter_bytes(f->graph), 80);
    assert_ptr_equal(graph_param(f->graph, f->w), f->h->in[1]);
    assert_int_equal(graph_use_count(f->graph, f->h->in[1]), 2);
    assert_int_equal(graph_use_count(f->graph, f->h), 2);
    assert_int_equal(graph_use_count(f->graph, f->y), 1);
    assert_int_equal(graph_layer_count(f->graph, "encoder"), 2);
    assert_int_equal(graph_layer_count(f->graph, "decoder"), 0);
    assert_ptr_equal(graph_find(f->graph, "encoder", 1, ROLE_Q), f->y);
    assert_ptr_equal(graph_find(f->graph, NULL, -1, ROLE_Q), f->h);
    assert_ptr_equal(graph_find_next(f->graph, f->h, NULL, -1, ROLE_Q), f->y);
    assert_null(graph_find_next(f->graph, f->y, NULL, -1, ROLE_Q));
    assert_null(graph_find(f->graph, "decoder", -1, ROLE_Q));
    for (int i = 0; i < ROLE_COUNT; i++)
        assert_int_equal(role_parse(role_name((Role)i)), i);
    assert_int_equal(role_parse("nothing"), ROLE_COUNT);
}

static void test_add_storage_fails(void **state) {
    Fixture *f = *state;
    Storage *storage;
    Tensor shape = tensor_shape(DTYPE_F32, 1, (int64_t[]){4});
    assert_int_equal(graph_add_storage(&storage, f->graph, "w", &shape, f->diag),
                     STATUS_MODEL);
    check_message(f->diag, "error: the graph has a storage named 'w' already\n");
    shape.dim[0] = -4;
    assert_int_equal(graph_add_storage(&storage, f->graph, "v", &shape, f->diag),
                     STATUS_MODEL);
    check_message(f->diag, "error: storage 'v': impossible shape [-4]\n");
    assert_int_equal(graph_add_storage(&storage, f->graph, "", &shape, f->diag),
                     STATUS_MODEL);
    check_message(f->diag, "error: a storage's name must have 1 to 512 bytes of UTF-8, "
                           "found \"\"\n");
}

static void test_node_set(void **state) {
    Fixture *f = *state;
    Node *k = INSERT(f, NULL, &TOY_KNOBS, f->y);
    const KnobsAttrs *attrs = k->attrs;
    assert_int_equal(attrs->size, 4);
    assert_ok(
        node_set(f->graph, k, f->diag, "size=%d fn=gelu axes=[1, 2] label=\"a b\"", 7),
        f->diag);
    assert_int_equal(attrs->size, 7);
    assert_int_equal(attrs->fn, 1);
    assert_int_equal(attrs->axes.count, 2);
    assert_string_equal(attrs->label, "a b");
    assert_true(attrs->rate == 0.5);
    assert_int_equal(node_set(f->graph, k, f->diag, "size=101"), STATUS_MODEL);
    check_message(f->diag,
                  "error: size: expected integer between 1 and 100, found integer 101\n"
                  "    note: in the attributes of knobs: size=101\n");
    assert_int_equal(node_set(f->graph, k, f->diag, "size 3"), STATUS_MODEL);
    assert_int_equal(diag_status(f->diag), STATUS_MODEL);
    check_message(f->diag, "error: expected '=', found '3'\n"
                           "    note: in the attributes of knobs: size 3\n");
    assert_int_equal(node_set(f->graph, f->y, f->diag, "size=3"), STATUS_MODEL);
    diag_clear(f->diag);
}

static void test_variadic(void **state) {
    Fixture *f = *state;
    Node *sum = INSERT(f, NULL, &TOY_SUM, f->h, f->s, f->y);
    assert_int_equal(sum->in_count, 3);
    assert_ptr_equal(node_operand(sum, "x"), f->h);
    node_set_operand(f->graph, sum, "x", f->s);
    assert_ptr_equal(sum->in[0], f->s);
    Node *blend = INSERT(f, NULL, &TOY_BLEND, NULL, f->h);
    assert_int_equal(blend->in_count, 2);
    node_set_operand(f->graph, blend, "x", NULL);
    assert_int_equal(blend->in_count, 1);
    assert_int_equal(node_infer(blend, f->diag), STATUS_MODEL);
    check_message(f->diag, "error: blend: expected at least 2 operands, found 1\n");
    node_set_operand(f->graph, blend, "x", f->y);
    assert_ok(graph_verify(f->graph, STATUS_INTERNAL, f->diag), f->diag);
}

static void test_rewrite(void **state) {
    Fixture *f = *state;
    Node *wrap = INSERT(f, f->s, &TOY_KNOBS, f->h);
    graph_replace_uses(f->graph, f->h, wrap);
    assert_ptr_equal(wrap->in[0], f->h);
    assert_ptr_equal(f->s->in[0], wrap);
    assert_ptr_equal(f->s->in[1], wrap);
    assert_ok(graph_verify(f->graph, STATUS_INTERNAL, f->diag), f->diag);
    graph_move_before(f->graph, wrap, NULL);
    assert_int_equal(graph_verify(f->graph, STATUS_INTERNAL, f->diag), STATUS_INTERNAL);
    check_message(f->diag, "error: %4 add: operand 0 is not a node above it\n");
    graph_move_before(f->graph, wrap, f->s);
    assert_ok(graph_infer(f->graph, f->diag), f->diag);
    graph_replace_uses(f->graph, wrap, f->h);
    graph_erase(f->graph, wrap);
    graph_replace_uses(f->graph, f->y, f->y);
    check_text(f->graph, BASE_TEXT);
}

static void test_remove_dead(void **state) {
    Fixture *f = *state;
    Storage *z = add_storage(f, "z", 2, 4, 4);
    assert_ok(model_init_weights(f->model, 1, f->diag), f->diag);
    INSERT(f, NULL, &TOY_LINEAR, f->y, graph_param(f->graph, z));
    graph_input(f->graph, "unused", &INPUT_TYPE);
    assert_int_equal(graph_remove_dead(f->graph), 2);
    assert_null(graph_storage(f->graph, "z"));
    assert_non_null(graph_find_input(f->graph, "unused"));
    assert_ok(graph_verify(f->graph, STATUS_INTERNAL, f->diag), f->diag);
    assert_int_equal(graph_remove_dead(f->graph), 0);
    graph_remove_output(f->graph, "logits");
    assert_int_equal(graph_remove_dead(f->graph), 5);
    assert_int_equal(f->graph->storage_count, 0);
}

static void test_import(void **state) {
    Fixture *f = *state;
    f->w->frozen = true;
    f->w->init = (Init){INIT_NORMAL, 0.02};
    assert_ok(model_init_weights(f->model, 1, f->diag), f->diag);
    Model *other = model_create(&TOY_OPS);
    Node *map[6] = {0};
    assert_ok(graph_import(other->graph, f->graph, "teacher.", map, f->diag), f->diag);
    graph_set_output(other->graph, "logits", map[f->y->id]);
    assert_ok(graph_verify(other->graph, STATUS_INTERNAL, f->diag), f->diag);
    check_text(other->graph,
               "ir 1\ninput x : f32[N, 4]\n"
               "param @teacher.w : f32[4, 4] init normal(0.02) frozen\n"
               "param @teacher.b : f32[4]\n"
               "%3 = linear($x, @teacher.w, bias=@teacher.b) : f32[N, 4] at "
               "teacher.encoder.0 as q\n"
               "%4 = add(%3, %3) : f32[N, 4]\n"
               "%5 = linear(%4, @teacher.w) : f32[N, 4] at teacher.encoder.1 as q\n"
               "output logits = %5\n");
    assert_ptr_equal(tensor_data(&graph_storage(other->graph, "teacher.w")->tensor),
                     tensor_data(&f->w->tensor));
    assert_int_equal(graph_import(other->graph, f->graph, "teacher.", map, f->diag),
                     STATUS_MODEL);
    check_message(f->diag, "error: the graph has a storage named 'teacher.w' already\n");
    graph_find_input(other->graph, "x")->type.dim[1] = 5;
    assert_int_equal(graph_import(other->graph, f->graph, "b.", map, f->diag),
                     STATUS_MODEL);
    check_message(f->diag, "error: input 'x' is f32[N, 5], the imported graph expects "
                           "f32[N, 4]\n");
    model_destroy(other);
}

static void test_copy(void **state) {
    Fixture *f = *state;
    Node *k = INSERT(f, NULL, &TOY_KNOBS, f->y);
    assert_ok(node_set(f->graph, k, f->diag,
                       "label=\"x\" axes=[3] points=[0.5] tags=[\"t\"] "
                       "extra={\"k\": [1, null]}"),
              f->diag);
    assert_ok(model_init_weights(f->model, 1, f->diag), f->diag);
    Text text = {0};
    graph_print(&text, f->graph);
    Model *copy = model_copy(f->model);
    char hash[HASH_TEXT_BYTES], copied[HASH_TEXT_BYTES];
    model_hash(f->model, hash);
    void *data;
    Tensor *twin = &graph_storage(copy->graph, "w")->tensor;
    assert_ptr_equal(tensor_data(twin), tensor_data(&f->w->tensor));
    ((KnobsAttrs *)k->attrs)->axes.items[0] = 9;
    model_destroy(f->model);
    f->model = copy;
    check_text(copy->graph, text.data);
    text_free(&text);
    assert_ok(graph_verify(copy->graph, STATUS_INTERNAL, f->diag), f->diag);
    model_hash(copy, copied);
    assert_string_equal(hash, copied);
    assert_ok(tensor_writable(twin, &data, f->diag), f->diag);
    ((float *)data)[3] += 1;
    model_hash(copy, copied);
    assert_string_not_equal(hash, copied);
}

/* Verifier: each case breaks the graph in one way; `undo` is not needed, the fixture is
 * built anew. */

static void break_link(Fixture *f) {
    f->s->prev = f->x;
}
static void break_count(Fixture *f) {
    f->graph->node_count--;
}
static void break_last(Fixture *f) {
    f->graph->last = f->s;
}
static void break_cycle(Fixture *f) {
    f->y->next = f->s;
}
static void break_missing(Fixture *f) {
    f->h->in[1] = NULL;
}
static void break_forward(Fixture *f) {
    f->h->in[0] = f->y;
}
static void break_foreign(Fixture *f) {
    f->h->in[0] = graph_input(graph_create(f->graph->arena, &TOY_OPS), "x", &INPUT_TYPE);
    f->h->in[0]->id = 0;
}
static void break_arity(Fixture *f) {
    f->s->in_count = 1;
}
static void break_type(Fixture *f) {
    f->s->type.dim[1] = 5;
}
static void break_dtype(Fixture *f) {
    f->x->type.dtype = DTYPE_F16;
}
static void break_rank(Fixture *f) {
    f->s->type.rank = RANK_MAX + 1;
}
static void break_infer(Fixture *f) {
    f->x->type.dim[1] = 5;
}
static void break_integer(Fixture *f) {
    f->x->type.dtype = DTYPE_I32;
}
static void break_attrs(Fixture *f) {
    Node *k = INSERT(f, NULL, &TOY_KNOBS, f->y);
    ((KnobsAttrs *)k->attrs)->size = 0;
}
static void break_real(Fixture *f) {
    Node *k = INSERT(f, NULL, &TOY_KNOBS, f->y);
    ((KnobsAttrs *)k->attrs)->rate = NAN;
}
static void break_choice(Fixture *f) {
    Node *k = INSERT(f, NULL, &TOY_KNOBS, f->y);
    ((KnobsAttrs *)k->attrs)->fn = 3;
}
static void break_input_name(Fixture *f) {
    f->x->name = "";
}
static void break_input_twice(Fixture *f) {
    graph_input(f->graph, "x", &INPUT_TYPE);
}
static void break_utf8(Fixture *f) {
    f->x->name = "\xff";
}
static void break_leaf_order(Fixture *f) {
    graph_move_before(f->graph, f->h->in[1], f->s);
}
static void break_input_order(Fixture *f) {
    graph_move_before(f->graph, f->x, f->h);
}
static void break_leaf_place(Fixture *f) {
    f->x->role = ROLE_Q;
}
static void break_storage_shape(Fixture *f) {
    f->b->tensor.dim[0] = 3;
}
static void break_storage_size(Fixture *f) {
    f->b->tensor.dim[0] = INT64_MAX;
}
static void break_storage_twice(Fixture *f) {
    f->graph->storages[1] = f->w;
}
static void break_storage_list(Fixture *f) {
    f->graph->storage_count = 1;
}
static void break_storage_leaf(Fixture *f) {
    f->h->in[2]->storage = f->w;
}
static void break_unnamed(Fixture *f) {
    add_storage(f, "z", 1, 1, 0);
}
static void break_init(Fixture *f) {
    f->b->init.kind = INIT_IDENTITY;
}
static void break_std(Fixture *f) {
    f->b->init = (Init){INIT_NORMAL, -1};
}
static void break_output(Fixture *f) {
    f->graph->outputs[0].node = NULL;
}
static void break_output_twice(Fixture *f) {
    graph_set_output(f->graph, "other", f->y);
    f->graph->outputs[1].name = "logits";
}
static void break_role(Fixture *f) {
    f->s->role = ROLE_COUNT;
}
static void break_layer(Fixture *f) {
    f->s->layer = 0;
}
static void break_stack(Fixture *f) {
    f->s->stack = "encoder.3";
}
static void break_negative_layer(Fixture *f) {
    f->h->layer = -2;
}

static const struct {
    void (*breaks)(Fixture *f);
    const char *message;
} BROKEN[] = {
    {break_link, "error: node 4 is not linked to the one before it\n"},
    {break_count, "error: the list has more than the 5 nodes it counts\n"},
    {break_last, "error: the list does not end in its last node\n"},
    {break_cycle, "error: the list has more than the 6 nodes it counts\n"},
    {break_missing, "error: linear: operand 'weight' is missing\n"
                    "    note: in %3 linear\n"},
    {break_forward, "error: %3 linear: operand 0 is not a node above it\n"},
    {break_foreign, "error: %3 linear: operand 0 is not a node above it\n"},
    {break_arity, "error: add: expected 2 operands, found 1\n"
                  "    note: in %4 add\n"},
    {break_type, "error: %4 add: the node is f32[N, 5], its operands give f32[N, 4]\n"},
    {break_dtype, "error: $x: a value is f32 or i32, found f16\n"},
    {break_rank, "error: %4 add: a value has rank 0 to 6, found 7\n"},
    {break_infer, "error: linear: x and weight do not fit\n"
                  "    note: in %3 linear\n"},
    {break_integer, "error: linear: operand 'x' must be f32, found i32\n"
                    "    note: in %3 linear\n"},
    {break_attrs, "error: size: %6 knobs: expected integer between 1 and 100, found 0\n"},
    {break_real, "error: rate: %6 knobs: expected number between -1 and 1, found nan\n"},
    {break_choice,
     "error: fn: %6 knobs: expected one of relu, gelu, tanh, found choice number 3\n"},
    {break_input_name, "error: $: an input's name must have 1 to 512 bytes of UTF-8\n"},
    {break_input_twice, "error: $x: another input has the same name\n"},
    {break_utf8, "error: $\xff"
                 ": an input's name must have 1 to 512 bytes of UTF-8\n"},
    {break_leaf_order, "error: %2 linear: operand 1 is not a node above it\n"},
    {break_input_order,
     "error: $x: stands after a param; inputs come first, then params\n"},
    {break_leaf_place, "error: $x: a leaf has no place, found role q\n"},
    {break_storage_shape, "error: @b: the leaf is f32[4], its storage f32[3]\n"},
    {break_storage_size, "error: storage 'b' has an impossible shape\n"},
    {break_storage_twice, "error: storage 'w' is listed twice\n"},
    {break_storage_list, "error: @b: the graph does not list its storage\n"},
    {break_storage_leaf, "error: @w: two leaves name the same storage\n"},
    {break_unnamed, "error: no leaf names storage 'z'\n"},
    {break_init, "error: @b: the identity needs a square matrix, found [4]\n"},
    {break_std, "error: @b: the standard deviation must be at least 0, found -1\n"},
    {break_output, "error: output 'logits' is not a node of the graph\n"},
    {break_output_twice, "error: two outputs are named 'logits'\n"},
    {break_role, "error: %4 add: no role has number 28\n"},
    {break_layer, "error: %4 add: layer 0 of no stack\n"},
    {break_stack, "error: %4 add: stack 'encoder.3' reads as a layer\n"},
    {break_negative_layer, "error: %3 linear: a layer is -1 to 999999, found -2\n"},
};

static void test_verify(void **state) {
    for (size_t i = 0; i < sizeof BROKEN / sizeof *BROKEN; i++) {
        teardown(state);
        setup(state);
        Fixture *f = *state;
        BROKEN[i].breaks(f);
        assert_int_equal(graph_verify(f->graph, STATUS_INTERNAL, f->diag),
                         STATUS_INTERNAL);
        check_message(f->diag, BROKEN[i].message);
    }
}

static void test_verify_weights(void **state) {
    Fixture *f = *state;
    assert_int_equal(graph_verify_weights(f->graph, f->diag), STATUS_MODEL);
    check_message(f->diag, "error: storage 'w' has no weights\n");
    assert_ok(model_init_weights(f->model, 1, f->diag), f->diag);
    assert_ok(graph_verify_weights(f->graph, f->diag), f->diag);
    void *data;
    assert_ok(tensor_writable(&f->b->tensor, &data, f->diag), f->diag);
    ((float *)data)[2] = INFINITY;
    assert_int_equal(graph_verify_weights(f->graph, f->diag), STATUS_MODEL);
    check_message(f->diag, "error: storage 'b' is not finite: element 2\n");
}

static void test_init_weights(void **state) {
    Fixture *f = *state;
    static const DType DTYPES[] = {DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16};
    double first[4][16], ones[16];
    for (int i = 0; i < 4; i++) {
        f->w->tensor.dtype = DTYPES[i];
        f->w->init = (Init){INIT_TRUNC_NORMAL, 0.5};
        assert_ok(model_init_weights(f->model, 7, f->diag), f->diag);
        tensor_read_f64(&f->w->tensor, 0, 16, first[i]);
        for (int j = 0; j < 16; j++)
            assert_true(fabs(first[i][j] - first[0][j]) < 0.01 && first[i][j] != 0);
        for (int j = 0; j < 16; j++) assert_true(fabs(first[i][j]) <= 1);
        f->w->init = (Init){INIT_ONES, 0};
        graph_release(f->graph);
        assert_null(f->w->tensor.buf);
        assert_ok(model_init_weights(f->model, 7, f->diag), f->diag);
        tensor_read_f64(&f->w->tensor, 0, 16, ones);
        for (int j = 0; j < 16; j++) assert_true(ones[j] == 1);
        graph_release(f->graph);
    }
    f->w->init = (Init){INIT_IDENTITY, 0};
    assert_ok(model_init_weights(f->model, 7, f->diag), f->diag);
    tensor_read_f64(&f->w->tensor, 0, 16, ones);
    for (int j = 0; j < 16; j++) assert_true(ones[j] == (j % 5 == 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_build, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leaf_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_add_storage_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_node_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_variadic, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rewrite, setup, teardown),
        cmocka_unit_test_setup_teardown(test_remove_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_import, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verify, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verify_weights, setup, teardown),
        cmocka_unit_test_setup_teardown(test_init_weights, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
