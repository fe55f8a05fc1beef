/* Verifier: graphs broken by hand, one way at a time, and weights. */
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "tests/ir/toy_graph.h"

#include <math.h>

/* Verifier: each case breaks the graph in one way. */

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
static void break_lineage(Fixture *f) {
    static const IndexRange ranges[] = {{4, 5}, {6, 7}};
    f->b->kept[0] = (Lineage){ranges, 2};
}
static void break_lineage_size(Fixture *f) {
    static const IndexRange range = {0, INT64_MAX};
    f->w->kept[1] = (Lineage){&range, 1};
}
static void break_lineage_axis(Fixture *f) {
    static const IndexRange range = {0, 3};
    f->b->kept[1] = (Lineage){&range, 1};
}
static void break_output(Fixture *f) {
    f->graph->outputs[0].node = NULL;
}
static void break_output_twice(Fixture *f) {
    graph_set_output(f->graph, "other", f->y);
    f->graph->outputs[1].name = "logits";
}
static void break_role(Fixture *f) {
    f->s->role = (Role)999;
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
    {break_utf8, "error: $\\xff"
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
    {break_lineage, "error: storage 'b': the indices kept of axis 0 do not increase\n"},
    {break_lineage_size, "error: storage 'w': axis 1 has 4 entries, its lineage "
                         "9223372036854775807\n"},
    {break_lineage_axis, "error: storage 'b' has 1 axes, its lineage axis 1\n"},
    {break_output, "error: output 'logits' is not a node of the graph\n"},
    {break_output_twice, "error: two outputs are named 'logits'\n"},
    {break_role, "error: %4 add: no role has number 999\n"},
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_verify, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verify_weights, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
