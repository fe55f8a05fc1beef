/* Plans that compute layers again before their backward calls: the bytes of gradients and
 * results are those of plans that keep everything, in less memory. */
#include "passes/training/label_loss.h"
#include "tests/exec/planned_run.h"
#include "tests/support/configured.h"

enum { SAMPLES = 3, TOKENS = 12, SOURCE = 10 };

static const char *const MODELS[] = {
    "{model_type: bert, architectures: [BertForSequenceClassification], hidden_size: 16,\n"
    " num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 32,\n"
    " vocab_size: 24, max_position_embeddings: 16, num_labels: 3,\n"
    " initializer_range: 0.3, hidden_dropout_prob: 0.2,\n"
    " attention_probs_dropout_prob: 0.1}",
    "{model_type: vit, architectures: [ViTForImageClassification], hidden_size: 16,\n"
    " num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 32,\n"
    " image_size: 12, patch_size: 3, num_channels: 1, num_labels: 3,\n"
    " initializer_range: 0.3, hidden_dropout_prob: 0.2}",
    "{model_type: swin, architectures: [SwinForImageClassification], embed_dim: 8,\n"
    " depths: [2, 2], num_heads: [2, 4], window_size: 4, mlp_ratio: 2, image_size: 8,\n"
    " patch_size: 1, num_channels: 1, num_labels: 3, initializer_range: 0.2,\n"
    " hidden_dropout_prob: 0.2, drop_path_rate: 0.1}",
    "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 16,\n"
    " num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2,\n"
    " intermediate_size: 32, vocab_size: 24, max_position_embeddings: 16,\n"
    " initializer_range: 0.3}",
    "{model_type: t5, vocab_size: 24, d_model: 16, num_layers: 3, num_heads: 2, d_kv: 8,\n"
    " d_ff: 32, num_decoder_layers: 3, relative_attention_num_buckets: 8,\n"
    " feed_forward_proj: gated-gelu, dropout_rate: 0.2}",
};
enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS };

/* ---- runs ---- */

static PlanOptions options_of(Node *loss, Node *const *results, int count) {
    PlanOptions options = {
        .loss = loss, .results = results, .result_count = count, .sizes = {SAMPLES}};
    options.sizes[DIM_INDEX(DIM_T)] = TOKENS;
    options.sizes[DIM_INDEX(DIM_S)] = SOURCE;
    return options;
}

/* Two training runs one after the other: gradients add up over micro-batches. */
static Run run_plan(Graph *graph, const PlanOptions *options, Diag *diag) {
    Run run = run_open(graph, options, true, diag);
    if (options->bf16) params_round(run.params, 1);
    for (int64_t micro = 0; micro < 2; micro++) {
        const RunMode mode = {.training = true, .key = 5, .first = micro * SAMPLES};
        run_fill(&run);
        run_forward(run.workspace, mode);
        run_backward(run.workspace, mode, 0.5, run.gradients);
    }
    return run;
}

static int count_again(const Plan *plan) {
    int count = 0;
    for (int i = 0; i < plan->node_count; i++) count += plan->nodes[i].again >= 0;
    return count;
}

/* Whether it takes less memory. */
static bool check_same(Graph *graph, PlanOptions options, bool bf16, Diag *diag) {
    options.bf16 = bf16;
    Run kept = run_plan(graph, &options, diag);
    options.recompute = true;
    Run again = run_plan(graph, &options, diag);
    assert_memory_equal(kept.gradients, again.gradients,
                        (size_t)kept.count * sizeof(float));
    const float *loss = workspace_value(kept.workspace, options.loss);
    assert_true(*loss == *(const float *)workspace_value(again.workspace, options.loss));
    for (int i = 0; i < options.result_count; i++) {
        const PlanNode *node =
            &kept.plan->nodes[plan_find(kept.plan, options.results[i])];
        assert_memory_equal(workspace_value(kept.workspace, node->node),
                            workspace_value(again.workspace, node->node),
                            (size_t)node->count * sizeof(float));
    }
    bool moved = false;
    for (int64_t i = 0; i < kept.count; i++)
        moved = moved || ((const float *)kept.gradients)[i] != 0;
    assert_true(moved);
    assert_int_equal(count_again(kept.plan), 0);
    assert_true(plan_flops_again(kept.plan) == 0);
    assert_true(count_again(again.plan) > 0);
    assert_in_range(plan_flops_again(again.plan), 1, plan_flops(again.plan));
    assert_true(plan_workspace_bytes(again.plan) <= plan_workspace_bytes(kept.plan));
    const bool less = plan_workspace_bytes(again.plan) < plan_workspace_bytes(kept.plan);
    run_close(&kept);
    run_close(&again);
    return less;
}

static void test_models(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Diag *diag = diag_create();
        Model *model = configured_model(MODELS[m], 3);
        Graph *graph = model->graph;
        Node *loss = NULL;
        assert_ok(label_loss_add(&loss, graph, graph_output(graph, "logits"),
                                 &(LabelLossOptions){0}, diag),
                  diag);
        graph_number(graph);
        assert_true(check_same(graph, options_of(loss, NULL, 0), false, diag));
        assert_true(check_same(graph, options_of(loss, NULL, 0), true, diag));
        /* what a layer computes in its midst may be asked for */
        Node *results[] = {graph_find(graph, NULL, 1, ROLE_ATTENTION),
                           graph_find(graph, NULL, 0, ROLE_FFN_IN)};
        assert_non_null(results[0]);
        assert_non_null(results[1]);
        check_same(graph, options_of(loss, results, 2), false, diag);
        model_destroy(model);
        diag_destroy(diag);
    }
}

/* Whatever the number of layers, one of them is in memory, and what they hand on. */
static void test_growth(void **state) {
    (void)state;
    size_t bytes[2][3];
    for (int layers = 0; layers < 3; layers++) {
        char config[600];
        snprintf(config, sizeof config,
                 "{model_type: bert, architectures: [BertForSequenceClassification],\n"
                 " hidden_size: 16, num_hidden_layers: %d, num_attention_heads: 2,\n"
                 " intermediate_size: 64, vocab_size: 24, max_position_embeddings: 16,\n"
                 " num_labels: 3, hidden_dropout_prob: 0.1}",
                 4 + 4 * layers);
        Diag *diag = diag_create();
        Model *model = configured_model(config, 3);
        Node *loss = NULL;
        assert_ok(label_loss_add(&loss, model->graph,
                                 graph_output(model->graph, "logits"),
                                 &(LabelLossOptions){0}, diag),
                  diag);
        for (int again = 0; again < 2; again++) {
            PlanOptions options = options_of(loss, NULL, 0);
            options.recompute = again;
            Plan *plan = NULL;
            assert_ok(plan_create(&plan, model->graph, &options, diag), diag);
            bytes[again][layers] = plan_workspace_bytes(plan);
            plan_destroy(plan);
        }
        model_destroy(model);
        diag_destroy(diag);
    }
    /* Four layers more are four values [N, T, 16] more: the norm at the end of each, with
     * its statistics. */
    const size_t value = SAMPLES * TOKENS * 16 * sizeof(float);
    const size_t more = bytes[1][2] - bytes[1][1];
    assert_int_equal(more, bytes[1][1] - bytes[1][0]);
    assert_in_range(more, 4 * value, 5 * value);
    assert_true(bytes[0][2] - bytes[0][1] > 8 * more);
}

/* Frozen layers have no backward calls and are not computed again; nor is the last layer,
 * whose backward calls follow at once. */
static void test_frozen(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(MODELS[0], 3);
    Graph *graph = model->graph;
    Node *loss = NULL;
    assert_ok(label_loss_add(&loss, graph, graph_output(graph, "logits"),
                             &(LabelLossOptions){0}, diag),
              diag);
    for (int i = 0; i < graph->storage_count; i++)
        graph->storages[i]->frozen = !strstr(graph->storages[i]->name, "layer.2") &&
                                     !strstr(graph->storages[i]->name, "layer.3") &&
                                     !strstr(graph->storages[i]->name, "classifier");
    PlanOptions options = options_of(loss, NULL, 0);
    check_same(graph, options, false, diag);
    options.recompute = true;
    Plan *plan = NULL;
    assert_ok(plan_create(&plan, graph, &options, diag), diag);
    for (int i = 0; i < plan->node_count; i++)
        if (plan->nodes[i].again >= 0) assert_int_equal(plan->nodes[i].node->layer, 2);
    plan_destroy(plan);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_frozen),
    };
    return cmocka_run_group_tests_name("recompute", tests, NULL, NULL);
}
