/* A small graph that the tests of graphs and of the verifier start from. */
#ifndef COMPRESS_TESTS_IR_TOY_GRAPH_H
#define COMPRESS_TESTS_IR_TOY_GRAPH_H

#include "ir/irtext.h"
#include "ir/model.h"
#include "tests/ir/toy_ops.h"
#include "tests/support/check.h"

#include <stdlib.h>

/* The graph:
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

static inline Storage *add_storage(Fixture *f, const char *name, int rank, int64_t d0,
                                   int64_t d1) {
    Storage *storage = NULL;
    Tensor shape = tensor_shape(DTYPE_F32, rank, (int64_t[]){d0, d1});
    assert_ok(graph_add_storage(&storage, f->graph, name, &shape, f->diag), f->diag);
    return storage;
}

static inline Node *insert(Fixture *f, Node *anchor, const Op *op, int count,
                           Node *const *in) {
    Node *node = graph_insert(f->graph, anchor, op, in, count);
    assert_ok(node_infer(node, f->diag), f->diag);
    return node;
}

#define INSERT(f, anchor, op, ...)                                                       \
    insert((f), (anchor), (op), sizeof((Node *[]){__VA_ARGS__}) / sizeof(Node *),        \
           (Node *[]){__VA_ARGS__})

static inline int setup(void **state) {
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

static inline int teardown(void **state) {
    Fixture *f = *state;
    model_destroy(f->model);
    diag_destroy(f->diag);
    free(f);
    return 0;
}

/* Checks what the list of diagnostics prints, and empties it. */
static inline void check_message(Diag *diag, const char *expected) {
    char *text = diag_text(diag);
    assert_string_equal(text, expected);
    free(text);
    diag_clear(diag);
}

static inline void check_text(Graph *graph, const char *expected) {
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

#endif
