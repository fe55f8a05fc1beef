/* Editing storages: values, type of the leaf, lineage and Gaussian change together, with
 * and without values, and nobody feels an edit that it is not meant for. The toy graph
 * has two users of `w`: h = linear(x, w, bias=b) in encoder.0 and y in encoder.1. */
#include "ir/cast.h"
#include "ir/quantised.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "ir/verify.h"
#include "tests/ir/toy_graph.h"
#include "tests/support/starved.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 4, COUNT = SIDE * SIDE };

/* Gives a storage the values first, first + 1, ... and, of form `form`, a Gaussian with
 * them as means and variances (kron: identities). */
static void fill(Fixture *f, Storage *storage, double first, GaussianForm form) {
    double values[COUNT];
    const int64_t count = tensor_count(&storage->tensor);
    for (int64_t i = 0; i < count; i++) values[i] = first + (double)i;
    Tensor tensor;
    assert_ok(tensor_create(&tensor, DTYPE_F32, storage->tensor.rank, storage->tensor.dim,
                            f->diag),
              f->diag);
    assert_ok(tensor_write_f64(&tensor, 0, count, values, f->diag), f->diag);
    storage_set_values(storage, tensor);
    Gaussian *g =
        gaussian_create(f->graph->arena, form, DTYPE_F64, &storage->tensor, 2, "origin");
    assert_ok(gaussian_allocate(g, f->diag), f->diag);
    assert_ok(tensor_write_f64(&g->mean, 0, count, values, f->diag), f->diag);
    if (form != GAUSSIAN_KRON)
        assert_ok(tensor_write_f64(&g->diagonal, 0, count, values, f->diag), f->diag);
    storage_set_gaussian(storage, g);
}

/* Reads all values of a storage. */
static Status read_all(void *self, Diag *diag) {
    double *values;
    const Status status = storage_read_f64(&values, self, false, diag);
    free(values);
    return status;
}

static Status read_turned(void *self, Diag *diag) {
    double *values;
    const Status status = storage_read_f64(&values, self, true, diag);
    free(values);
    return status;
}

/* In order, and by columns. */
static void test_read(void **state) {
    Fixture *f = *state;
    double *values, *turned;
    fill(f, f->w, 3, GAUSSIAN_DIAGONAL);
    assert_ok(storage_read_f64(&values, f->w, false, f->diag), f->diag);
    assert_ok(storage_read_f64(&turned, f->w, true, f->diag), f->diag);
    for (int i = 0; i < COUNT; i++) {
        assert_true(values[i] == 3 + i);
        assert_true(turned[i % SIDE * SIDE + i / SIDE] == 3 + i);
    }
    free(values);
    free(turned);
}

static void test_read_starved(void **state) {
    Fixture *f = *state;
    if (!can_starve()) skip();
    Storage large = {.name = "large"};
    assert_ok(
        tensor_create(&large.tensor, DTYPE_F32, 2, (const int64_t[]){256, 1024}, f->diag),
        f->diag);
    assert_starves(1 << 20, read_all, &large);
    assert_starves(1 << 20, read_turned, &large);
    tensor_release(&large.tensor);
}

static double value_at(const Tensor *tensor, int64_t i) {
    double value;
    tensor_read_f64(tensor, i, 1, &value);
    return value;
}

static void check_sound(Fixture *f) {
    assert_ok(graph_infer(f->graph, f->diag), f->diag);
    assert_ok(graph_verify(f->graph, STATUS_INTERNAL, f->diag), f->diag);
}

/* Edits of quantised weights: rows stay what they are, columns of a q4 and a higher rank
 * make floats; planning and running give the same types. */
static void test_quantised(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->w);
    const int64_t keep[] = {0, 2};
    const Tensor shape[] = {q8_shape(2, f->w->tensor.dim),
                            q4_shape(2, f->w->tensor.dim, 32, true)};
    for (int form = 0; form < 2; form++) {
        for (int data = 0; data < 2; data++) {
            Tensor values = shape[form];
            if (data) assert_ok(tensor_allocate(&values, f->diag), f->diag);
            for (int row = 0; data && row < SIDE; row++)
                quantised_round_row(&values, row, (float[]){127, 4, -6, (float)row});
            storage_set_values(f->w, values);
            check_sound(f);
            Node *own = leaf;
            assert_ok(storage_separate(&own, f->graph, STORAGE_USER(f->y), f->diag),
                      f->diag);
            assert_true(tensor_same_form(&own->storage->tensor, &f->w->tensor));
            assert_ok(
                storage_keep(f->graph, own, STORAGE_USER(f->y), 0, keep, 2, f->diag),
                f->diag);
            assert_int_equal(own->storage->tensor.dtype, shape[form].dtype);
            assert_ok(
                storage_keep(f->graph, own, STORAGE_USER(f->y), 1, keep, 2, f->diag),
                f->diag);
            assert_int_equal(own->storage->tensor.dtype, form ? DTYPE_F32 : DTYPE_Q8);
            if (data && !form) {
                assert_true(value_at(&own->storage->tensor, 0) == 127);
                assert_true(value_at(&own->storage->tensor, 3) == -6);
            }
            f->y->in[1] = leaf;
        }
    }
    assert_ok(storage_raise_rank(f->graph, leaf, STORAGE_ALL_USERS, 3, f->diag), f->diag);
    assert_int_equal(f->w->tensor.dtype, DTYPE_F32);
    assert_int_equal(f->w->tensor.rank, 3);
}

/* Numbers and lineages change their axes, in every real type; the type of the leaf does
 * too, and what was known of the values goes. */
static void test_turned(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->w);
    const int64_t keep[] = {1, 3};
    const DType types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    fill(f, f->w, 0, GAUSSIAN_DIAGONAL);
    assert_ok(storage_keep(f->graph, leaf, STORAGE_ALL_USERS, 0, keep, 2, f->diag),
              f->diag);
    const Lineage kept = f->w->kept[0];
    assert_int_equal(kept.count, 2);
    for (size_t type = 0; type < sizeof types / sizeof *types; type++) {
        Tensor cast;
        assert_ok(tensor_cast(&cast, &f->w->tensor, types[type], "w", f->diag), f->diag);
        storage_set_values(f->w, cast);
        assert_ok(storage_turn(f->graph, leaf, STORAGE_ALL_USERS, f->diag), f->diag);
        assert_int_equal(f->w->tensor.dtype, types[type]);
        assert_int_equal(leaf->type.dim[0], SIDE);
        assert_int_equal(leaf->type.dim[1], 2);
        assert_memory_equal(&f->w->kept[1], &kept, sizeof kept);
        assert_null(f->w->gaussian);
        for (int64_t row = 0; row < 2; row++) /* rows 1 and 3 of 0, 1, 2, ... */
            for (int64_t column = 0; column < SIDE; column++)
                assert_true(value_at(&f->w->tensor, column * 2 + row) ==
                            (double)(keep[row] * SIDE + column));
        assert_ok(storage_turn(f->graph, leaf, STORAGE_ALL_USERS, f->diag), f->diag);
        assert_memory_equal(&f->w->kept[0], &kept, sizeof kept);
    }
}

/* An edit for one user of two is refused, and the message names both. */
static void test_refused(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->w);
    const int64_t keep[] = {0, 2};
    fill(f, f->w, 0, GAUSSIAN_DIAGONAL);
    assert_int_equal(
        storage_keep(f->graph, leaf, STORAGE_USER(f->h), 0, keep, 2, f->diag),
        STATUS_MODEL);
    check_message(f->diag,
                  "error: w: the weights cannot be changed for encoder.0 q (linear) "
                  "alone: encoder.1 q (linear) uses them too\n"
                  "    hint: weights are shared: change all that use them, or none\n");
    Tensor values = tensor_retain(&f->w->tensor);
    assert_int_equal(
        storage_replace(f->graph, leaf, STORAGE_USER(f->y), values, -1, f->diag),
        STATUS_MODEL);
    diag_clear(f->diag);
    graph_set_output(f->graph, "weights", leaf);
    const StorageUsers both = {(Node *[]){f->h, f->y}, 2};
    assert_int_equal(storage_raise_rank(f->graph, leaf, both, 3, f->diag), STATUS_MODEL);
    check_message(f->diag,
                  "error: w: the weights cannot be changed for encoder.0 q (linear) "
                  "alone: output weights uses them too\n"
                  "    hint: weights are shared: change all that use them, or none\n");
    assert_int_equal(f->w->tensor.dim[0], SIDE);
    assert_non_null(f->w->gaussian);
    assert_true(storage_used_by(f->graph, leaf, STORAGE_ALL_USERS));
    check_sound(f);
}

/* A user gets a copy with all that hangs on it, whose changes the other does not see. */
static void test_separate(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->w), *own = leaf;
    const int64_t keep[] = {1, 2, 3};
    fill(f, f->w, 0, GAUSSIAN_LOW_RANK);
    f->w->init = (Init){INIT_NORMAL, 0.5};
    f->w->frozen = true;
    assert_ok(storage_keep(f->graph, leaf, STORAGE_ALL_USERS, 0, (int64_t[]){0, 1, 2, 3},
                           SIDE, f->diag),
              f->diag);
    assert_ok(storage_separate(&own, f->graph, STORAGE_USER(f->y), f->diag), f->diag);
    assert_ptr_not_equal(own, leaf);
    assert_ptr_equal(f->y->in[1], own);
    assert_ptr_equal(f->h->in[1], leaf);
    assert_string_equal(own->storage->name, "w.2");
    assert_true(own->storage->frozen);
    assert_int_equal(own->storage->init.kind, INIT_NORMAL);
    assert_int_equal(own->storage->kept[0].count, 1);
    Node *again = own;
    assert_ok(storage_separate(&again, f->graph, STORAGE_USER(f->y), f->diag), f->diag);
    assert_ptr_equal(again, own);
    assert_ok(storage_keep(f->graph, own, STORAGE_USER(f->y), 0, keep, 3, f->diag),
              f->diag);
    assert_int_equal(own->type.dim[0], 3);
    assert_int_equal(lineage_index(&own->storage->kept[0], 0), 1);
    assert_true(value_at(&own->storage->tensor, 0) == SIDE);
    assert_true(value_at(&own->storage->gaussian->mean, 0) == SIDE);
    assert_true(gaussian_fits(own->storage->gaussian, &own->storage->tensor));
    assert_int_equal(f->w->tensor.dim[0], SIDE);
    assert_true(gaussian_fits(f->w->gaussian, &f->w->tensor));
    check_sound(f);
}

/* Without values the same edits work on shapes. */
static void test_shapes(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->w), *second = NULL;
    void *data = &data;
    Tensor blank;
    assert_false(storage_has_data(f->w));
    assert_ok(storage_blank(&blank, &data, f->w, DTYPE_F32, 2, f->w->tensor.dim, f->diag),
              f->diag);
    assert_null(data);
    assert_ok(storage_replace(f->graph, leaf, STORAGE_ALL_USERS, blank, -1, f->diag),
              f->diag);
    assert_ok(
        storage_keep(f->graph, leaf, STORAGE_ALL_USERS, 1, (int64_t[]){3}, 1, f->diag),
        f->diag);
    assert_int_equal(leaf->type.dim[1], 1);
    assert_int_equal(lineage_index(&f->w->kept[1], 0), 3);
    const Tensor left = tensor_shape(DTYPE_F32, 2, (int64_t[]){SIDE, 2});
    const Tensor right = tensor_shape(DTYPE_F32, 2, (int64_t[]){1, 2});
    assert_ok(storage_factor(&second, f->graph, leaf, STORAGE_ALL_USERS, left, right,
                             "right", f->diag),
              f->diag);
    assert_int_equal(leaf->type.dim[1], 2);
    assert_int_equal(second->type.dim[0], 1);
    assert_int_equal(lineage_index(&second->storage->kept[0], 0), 3);
    assert_int_equal(f->w->kept[1].count, 0);
    assert_int_equal(
        storage_replace(f->graph, leaf, STORAGE_ALL_USERS, right, -1, f->diag),
        STATUS_INTERNAL);
}

/* What pruning leaves of an axis without a lineage has none either, also where it goes
 * with a copy; counted anew it starts afresh. */
static void test_lost(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->w);
    const int64_t keep[] = {1, 2};
    storage_lose_lineage(f->w, 0);
    check_sound(f);
    for (int axis = 0; axis < 2; axis++)
        assert_ok(storage_keep(f->graph, leaf, STORAGE_ALL_USERS, axis, keep, 2, f->diag),
                  f->diag);
    assert_true(f->w->kept[0].lost);
    assert_int_equal(f->w->kept[0].count, 0);
    assert_int_equal(lineage_index(&f->w->kept[1], 0), 1);
    const Lineage copy = lineage_copy(f->graph->arena, &f->w->kept[0]);
    assert_true(copy.lost);
    storage_forget_lineage(f->w, 0);
    assert_ok(
        storage_keep(f->graph, leaf, STORAGE_ALL_USERS, 0, (int64_t[]){1}, 1, f->diag),
        f->diag);
    assert_int_equal(lineage_index(&f->w->kept[0], 0), 1);
}

/* A matrix as two, on either axis, and one again: lineages stay with their axes. */
static void test_split(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->w), *outer = NULL;
    for (int axis = 0; axis < 2; axis++) {
        int64_t kept[SIDE];
        if (axis == 0) { /* of both axes every entry but the first */
            for (int64_t i = 1; i < SIDE; i++) kept[i - 1] = i;
            for (int a = 0; a < 2; a++)
                assert_ok(storage_keep(f->graph, leaf, STORAGE_ALL_USERS, a, kept,
                                       SIDE - 1, f->diag),
                          f->diag);
        }
        int64_t b[] = {leaf->type.dim[0], leaf->type.dim[1]}, a[] = {2, 2};
        b[axis] = 2;
        a[axis] = SIDE - 1;
        assert_ok(storage_split(&outer, f->graph, leaf, STORAGE_ALL_USERS, axis,
                                tensor_shape(DTYPE_F32, 2, b),
                                tensor_shape(DTYPE_F32, 2, a), "w_factor", f->diag),
                  f->diag);
        assert_int_equal(leaf->type.dim[axis], 2);
        assert_int_equal(leaf->type.dim[!axis], SIDE - 1);
        assert_int_equal(outer->type.dim[axis], SIDE - 1);
        assert_int_equal(f->w->kept[axis].count, 0);
        assert_int_equal(lineage_index(&f->w->kept[!axis], 0), 1);
        assert_int_equal(lineage_index(&outer->storage->kept[axis], 0), 1);
        assert_int_equal(outer->storage->kept[!axis].count, 0);
        b[axis] = SIDE - 1;
        assert_ok(storage_join(f->graph, leaf, STORAGE_ALL_USERS, axis, outer,
                               tensor_shape(DTYPE_F32, 2, b), f->diag),
                  f->diag);
        assert_int_equal(lineage_index(&f->w->kept[axis], 0), 1);
        assert_int_equal(lineage_index(&f->w->kept[!axis], 0), 1);
    }
}

/* Computed values: what was known of the old ones goes, and is said to have gone. */
static void test_replace(void **state) {
    Fixture *f = *state;
    const char *first = NULL;
    fill(f, f->w, 0, GAUSSIAN_KRON);
    fill(f, f->b, 0, GAUSSIAN_DIAGONAL);
    assert_int_equal(graph_take_dropped(f->graph, &first), 0);
    Tensor values;
    assert_ok(tensor_create(&values, DTYPE_F32, 2, f->w->tensor.dim, f->diag), f->diag);
    assert_ok(storage_replace(f->graph, graph_param(f->graph, f->w), STORAGE_ALL_USERS,
                              values, -1, f->diag),
              f->diag);
    assert_null(f->w->gaussian);
    assert_int_equal(graph_take_dropped(f->graph, &first), 1);
    assert_string_equal(first, "w");
    assert_int_equal(graph_take_dropped(f->graph, &first), 0);
    storage_redraw(f->b); /* other values of the same parameters */
    assert_non_null(f->b->gaussian);
    assert_false(storage_has_data(f->b));
}

static void test_raise_rank(void **state) {
    Fixture *f = *state;
    Node *leaf = graph_param(f->graph, f->b);
    fill(f, f->b, 5, GAUSSIAN_LOW_RANK);
    assert_ok(storage_keep(f->graph, leaf, STORAGE_USER(f->h), 0, (int64_t[]){1, 3}, 2,
                           f->diag),
              f->diag);
    assert_ok(storage_raise_rank(f->graph, leaf, STORAGE_USER(f->h), 3, f->diag),
              f->diag);
    assert_int_equal(leaf->type.rank, 3);
    assert_int_equal(leaf->type.dim[0], 1);
    assert_int_equal(leaf->type.dim[2], 2);
    assert_int_equal(f->b->kept[0].count, 0);
    assert_int_equal(lineage_index(&f->b->kept[2], 1), 3);
    assert_true(gaussian_fits(f->b->gaussian, &f->b->tensor));
    assert_true(value_at(&f->b->gaussian->mean, 1) == 8);
}

/* Three users of the weights a, a and b become users of (a + a + b) / 3; a fourth one of
 * a keeps a. */
static void test_merge(void **state) {
    Fixture *f = *state;
    Storage *other = add_storage(f, "other", 2, SIDE, SIDE);
    fill(f, f->w, 0, GAUSSIAN_DIAGONAL);
    fill(f, other, 100, GAUSSIAN_DIAGONAL);
    Node *a = graph_param(f->graph, f->w), *b = graph_param(f->graph, other);
    Node *u = INSERT(f, NULL, &TOY_LINEAR, f->y, a);
    Node *v = INSERT(f, NULL, &TOY_LINEAR, u, b);
    graph_set_output(f->graph, "logits", v);
    const StorageUsers users = {(Node *[]){f->y, u, v}, 3};
    assert_ok(storage_merge(f->graph, users, "weight", f->diag), f->diag);
    assert_ptr_equal(f->h->in[1], a);
    for (int i = 0; i < 3; i++) assert_ptr_equal(users.nodes[i]->in[1], b);
    for (int64_t i = 0; i < COUNT; i++) {
        const double x = (double)i;
        assert_true(value_at(&f->w->tensor, i) == x);
        assert_true(value_at(&other->tensor, i) == (double)(float)((3 * x + 100) / 3));
    }
    assert_true(value_at(&f->w->gaussian->mean, 1) == 1);
    assert_null(other->gaussian); /* a counts twice: no average of independent ones */
    check_sound(f);
}

/* Two users of different weights: mean and a quarter of the summed variances. */
static void test_merge_gaussians(void **state) {
    Fixture *f = *state;
    Storage *other = add_storage(f, "other", 2, SIDE, SIDE);
    fill(f, f->w, 0, GAUSSIAN_DIAGONAL);
    fill(f, other, 100, GAUSSIAN_DIAGONAL);
    node_set_operand(f->graph, f->y, "weight", graph_param(f->graph, other));
    const StorageUsers users = {(Node *[]){f->h, f->y}, 2};
    assert_ok(storage_merge(f->graph, users, "weight", f->diag), f->diag);
    assert_ptr_equal(f->h->in[1]->storage, f->w);
    assert_ptr_equal(f->y->in[1]->storage, f->w);
    for (int64_t i = 0; i < COUNT; i++) {
        const double x = (double)i;
        assert_true(value_at(&f->w->tensor, i) == x + 50);
        assert_true(value_at(&f->w->gaussian->mean, i) == x + 50);
        assert_true(value_at(&f->w->gaussian->diagonal, i) == (2 * x + 100) / 4);
    }
    assert_ok(storage_merge(f->graph, users, "weight", f->diag),
              f->diag); /* one already */
    assert_true(value_at(&f->w->tensor, 1) == 51);
}

static void test_share(void **state) {
    Fixture *f = *state;
    Storage *other = add_storage(f, "other", 2, SIDE, SIDE);
    node_set_operand(f->graph, f->y, "weight", graph_param(f->graph, other));
    const StorageUsers users = {(Node *[]){f->h, f->y}, 2};
    storage_share(users, "weight");
    assert_ptr_equal(f->y->in[1]->storage, f->w);
    graph_remove_dead(f->graph);
    assert_int_equal(f->graph->storage_count, 2);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_refused),
        TEST(test_separate),
        TEST(test_shapes),
        TEST(test_replace),
        TEST(test_raise_rank),
        TEST(test_merge),
        TEST(test_merge_gaussians),
        TEST(test_share),
        TEST(test_quantised),
        TEST(test_split),
        TEST(test_turned),
        TEST(test_lost),
        TEST(test_read),
        TEST(test_read_starved),
    };
    return cmocka_run_group_tests_name("editing storages", tests, NULL, NULL);
}
