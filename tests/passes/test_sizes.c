/* Models with one dimension of 2^31 and more, and mini-batches beyond it, as shapes:
 * sizes are those of the closed form, or what does not fit is refused; nothing wraps. */
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include "exec/ops.h"
#include "exec/plan/plan_build.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "ir/irtext.h"
#include "passes/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWO_31 ((int64_t)1 << 31)

/* An embedding, two linear layers and a head. */
typedef struct Sizes {
    int64_t words, width, units, labels;
} Sizes;

/* The graph, in the arena. */
static Status build(Graph **out, Arena *arena, const Sizes *s, Diag *diag) {
    const long long V = s->words, W = s->width, U = s->units, L = s->labels;
    const char *text =
        arena_printf(arena,
                     "ir 1\ninput input_ids : i32[N, T]\n"
                     "param @words : f32[%lld, %lld]\nparam @up : f32[%lld, %lld]\n"
                     "param @down : f32[%lld, %lld]\nparam @head : f32[%lld, %lld]\n"
                     "%%1 = embedding($input_ids, @words) : f32[N, T, %lld]\n"
                     "%%2 = linear(%%1, @up) : f32[N, T, %lld]\n"
                     "%%3 = linear(%%2, @down) : f32[N, T, %lld]\n"
                     "%%4 = linear(%%3, @head) : f32[N, T, %lld]\n"
                     "output logits = %%4\n",
                     V, W, U, W, W, U, L, W, W, U, W, L);
    return graph_parse(out, arena, ops_table(), "sizes", text, strlen(text), diag);
}

/* Parameters of it, in a type that holds them: all of these are whole numbers of fewer
 * than 64 bits times a power of 2. */
static long double expected(const Sizes *s) {
    const long double w = s->width;
    return w * s->words + 2 * w * s->units + w * s->labels;
}

static void check_model(const Sizes *s, int *built, int *refused) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Graph *graph = NULL;
    Measure measure;
    Status status = build(&graph, arena, s, diag);
    if (status == STATUS_OK)
        status = model_measure(&measure, &(Model){.arena = arena, .graph = graph}, diag);
    if (status == STATUS_OK) {
        assert_true((long double)measure.parameters == expected(s));
        assert_true((long double)measure.bytes == 4 * expected(s));
        /* 128 tokens, a product and a sum each; rows that are looked up are none. */
        assert_true(measure.flops >=
                    256 * (double)(expected(s) - (long double)s->width * s->words));
        assert_true((long double)measure.peak_bytes >= 4 * expected(s));
        (*built)++;
    } else {
        if (expected(s) < 0x1p50L) {
            diag_print(diag, stderr);
            fail_msg("refused");
        }
        assert_int_equal(diag_errors(diag), 1);
        assert_true(status == STATUS_FORMAT || status == STATUS_MODEL);
        (*refused)++;
    }
    if (graph) graph_release(graph);
    arena_destroy(arena);
    diag_destroy(diag);
}

static void test_models(void **state) {
    (void)state;
    static const int64_t large[] = {TWO_31 - 1, TWO_31,           TWO_31 + 1,
                                    TWO_31 * 4, (int64_t)1 << 40, (int64_t)1 << 60,
                                    INT64_MAX};
    int built = 0, refused = 0;
    for (int which = 0; which < 4; which++)
        for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
            Sizes s = {100, 8, 16, 2};
            *(int64_t *[]){&s.words, &s.width, &s.units, &s.labels}[which] = large[i];
            check_model(&s, &built, &refused);
        }
    /* Each storage fits; all of them do not. */
    check_model(&(Sizes){.words = 1,
                         .width = (int64_t)1 << 30,
                         .units = (int64_t)1 << 30,
                         .labels = (int64_t)1 << 30},
                &built, &refused);
    assert_int_equal(built, 20);
    assert_int_equal(refused, 9);
}

/* What a configuration asks for beyond what it may is refused at its key. */
static void test_configurations(void **state) {
    (void)state;
    static const char *const keys[] = {"vocab_size", "hidden_size", "intermediate_size",
                                       "num_labels", "max_position_embeddings"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Tree *config = NULL;
        Model *model = NULL;
        const char *yaml =
            "{model_type: bert, architectures: [BertForSequenceClassification],\n"
            " num_hidden_layers: 1, num_attention_heads: 2";
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            yaml = arena_printf(arena, "%s, %s: %s", yaml, keys[k],
                                k == i ? "2147483648" : "8");
        yaml = arena_printf(arena, "%s}", yaml);
        assert_ok(yaml_parse(&config, arena, "sizes", yaml, strlen(yaml), diag), diag);
        assert_int_equal(hf_build(&model, config, ops_table(), diag), STATUS_MODEL);
        char *text = diag_text(diag);
        if (!strstr(text, keys[i])) fail_msg("%s: %s", keys[i], text);
        free(text);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* Workspaces of plans grow with the samples, until none can be. */
static void test_batches(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    Node *result = model->graph->outputs[0].node;
    size_t least = 0;
    bool refused = false;
    for (int64_t n = TWO_31 - 1; n > 0 && n <= (int64_t)1 << 62; n = 2 * n + 1) {
        Plan *plan = NULL;
        PlanOptions options = {
            .precision = PRECISION_F32, .results = &result, .result_count = 1};
        options.sizes[DIM_INDEX(DIM_N)] = n;
        const Status status = plan_create(&plan, model->graph, &options, diag);
        if (status == STATUS_OK) {
            assert_false(refused);
            assert_true(plan_workspace_bytes(plan) > least);
            assert_true((long double)plan_workspace_bytes(plan) >= 4.0L * 16 * 5 * n);
            least = plan_workspace_bytes(plan);
        } else {
            assert_int_equal(status, STATUS_MODEL);
            char *text = diag_text(diag);
            assert_non_null(strstr(text, "large"));
            free(text);
            refused = true;
        }
        plan_destroy(plan);
        diag_clear(diag);
        if (n > INT64_MAX / 2 - 1) break;
    }
    assert_true(least > 0 && refused);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_configurations),
                                       cmocka_unit_test(test_batches)};
    return cmocka_run_group_tests_name("sizes", tests, NULL, NULL);
}
