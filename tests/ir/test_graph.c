/* Graphs: building, counting, rewriting, importing, copying; weights of models. */
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "tests/ir/toy_graph.h"

#include <math.h>

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

/* Says that pruning left four columns of w. */
static void keep_some(Fixture *f) {
    const int64_t once[] = {1, 2, 3, 6, 7, 8}, twice[] = {1, 2, 4, 5};
    const Lineage none = {0};
    f->w->kept[1] = lineage_keep(f->graph->arena, &none, once, 6);
    f->w->kept[1] = lineage_keep(f->graph->arena, &f->w->kept[1], twice, 4);
    assert_int_equal(lineage_size(&f->w->kept[1]), 4);
    assert_int_equal(lineage_index(&f->w->kept[1], 2), 7);
    assert_int_equal(lineage_index(&none, 2), 2);
}

static void test_import(void **state) {
    Fixture *f = *state;
    f->w->frozen = true;
    f->w->init = (Init){INIT_NORMAL, 0.02};
    keep_some(f);
    assert_ok(model_init_weights(f->model, 1, f->diag), f->diag);
    Model *other = model_create(&TOY_OPS);
    Node *map[6] = {0};
    assert_ok(graph_import(other->graph, f->graph, "teacher.", map, f->diag), f->diag);
    graph_set_output(other->graph, "logits", map[f->y->id]);
    assert_ok(graph_verify(other->graph, STATUS_INTERNAL, f->diag), f->diag);
    check_text(other->graph,
               "ir 1\ninput x : f32[N, 4]\n"
               "param @teacher.w : f32[4, 4] init normal(0.02) kept 1=[2-3, 7-8] "
               "frozen\n"
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
    keep_some(f);
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
        cmocka_unit_test_setup_teardown(test_init_weights, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
