/* ONNX's own node tests (Debian's libonnx-testdata): every test of an operator that
 * evaluation gives numbers for, its inputs taken as constants, against the outputs that
 * the ONNX project stores beside it. Where the package is not installed nothing is
 * tested, and the program says so. */
#include "node_tests.h"

#include "tests/io/io_test.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the tests count. */
typedef struct Counts {
    int passed, failed, left_out;
} Counts;

/* Whether all nodes give numbers. */
static bool is_evaluated(const Net *net) {
    for (int i = 0; i < net->node_count; i++) {
        const EvalRow *row = eval_find(net->nodes[i]->op);
        const bool product = strcmp(net->nodes[i]->op, "MatMul") == 0;
        if (!row || (row->kind == EVAL_SHAPE && !product)) return false;
    }
    return net->node_count > 0;
}

static bool evaluate(Net *net, ArrayPool *pool, const char *test) {
    Diag *diag = diag_create();
    bool good = true;
    for (int i = 0; i < net->input_count && good; i++) {
        net->inputs[i]->probe[0] = node_test_array(pool, net, test, "input", i);
        good = net->inputs[i]->probe[0] != NULL;
    }
    good = good && node_test_evaluate(net, pool, diag);
    if (!good) diag_print(diag, stdout);
    diag_destroy(diag);
    return good;
}

static bool is_close(const Array *found, const Array *wanted) {
    if (!found || !wanted || !found->data || !array_same_shape(found, wanted) ||
        found->type != wanted->type)
        return false;
    for (int64_t i = 0; i < found->count; i++) {
        const double a = found->data[i], b = wanted->data[i];
        if (a == b || (isnan(a) && isnan(b))) continue;
        if (!(fabs(a - b) <= 1e-5 + 1e-5 * fabs(b))) return false;
    }
    return true;
}

static bool outputs_agree(const Net *net, ArrayPool *pool, const char *test) {
    for (int i = 0; i < net->output_count; i++) {
        const Array *wanted = node_test_array(pool, net, test, "output", i);
        if (!is_close(net->outputs[i]->probe[0], wanted)) return false;
    }
    return true;
}

/* Tests of what evaluation does not do (sequences, strings, training, other modes), whose
 * numbers of 16 bits are stored as integers, or whose outputs were computed with an
 * angle of few digits. */
static bool is_beyond(const char *test) {
    static const char *const PARTS[] = {"sequence", "STRING",   "optional",
                                        "_opt",     "edge_pad", "reflect_pad",
                                        "training", "BFLOAT16", "window"};
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (strstr(test, PARTS[i])) return true;
    return false;
}

static void run_node_test(const char *test, Counts *counts) {
    char path[600];
    Net *net = NULL;
    Diag *diag = diag_create();
    snprintf(path, sizeof path, "%s/%s/model.onnx", NODE_TESTS, test);
    if (is_beyond(test) || net_read(&net, path, NULL, diag) != STATUS_OK ||
        !is_evaluated(net)) {
        counts->left_out++;
    } else {
        ArrayPool pool = {arena_create(), ARRAY_POOL_MAX};
        const bool good = evaluate(net, &pool, test) && outputs_agree(net, &pool, test);
        if (!good) print_message("differs: %s\n", test);
        *(good ? &counts->passed : &counts->failed) += 1;
        arena_destroy(pool.arena);
    }
    net_destroy(net);
    diag_destroy(diag);
}

static void test_nodes(void **state) {
    (void)state;
    Counts counts = {0};
    DIR *folder = opendir(NODE_TESTS);
    if (!folder) {
        print_message("libonnx-testdata is not installed: nothing was tested\n");
        skip();
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strncmp(entry->d_name, "test_", 5) == 0)
            run_node_test(entry->d_name, &counts);
    closedir(folder);
    print_message("node tests: %d passed, %d of other operators left out\n",
                  counts.passed, counts.left_out);
    assert_int_equal(counts.failed, 0);
    assert_true(counts.passed > 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
