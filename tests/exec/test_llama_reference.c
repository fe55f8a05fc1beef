/* Llama against values computed from the formulas with rotary positions as complex
 * products (tests/data/reference/README.md), and a released model where COMPRESS_DATA
 * names the folder that has it. */
#include "tests/exec/decoder_fixture.h"

static void test_forward(void **state) {
    (void)state;
    Case c;
    case_open(&c, ROOT, "llama");
    check_forward(&c, 6);
    check_causal(&c, 7);
    case_close(&c);
}

static void test_gradients(void **state) {
    (void)state;
    Case c;
    Checkpoint *gradients = NULL;
    case_open(&c, ROOT, "llama");
    assert_ok(safetensors_read(&gradients, ROOT "llama/gradients.safetensors", c.diag),
              c.diag);
    check_gradients(&c, gradients);
    checkpoint_destroy(gradients);
    case_close(&c);
}

/* The logits of one token against a row of the reference. */
static void check_logits(Case *c, const char *name, int64_t token) {
    Node *logits = graph_output(c->model->graph, "logits");
    Runner r;
    runner_open_sizes(&r, c->model->graph, c->sizes, PRECISION_F32, NULL, &logits, 1);
    reference_feed(r.workspace, c->reference, "input_ids", "input_ids");
    runner_run(&r);
    const float *values = workspace_value(r.workspace, logits);
    reference_compare(c->reference, name, values + token * logits->type.dim[2],
                      PRECISION_F32, runner_terms(&r, logits), 0);
    runner_close(&r);
}

static void test_stories(void **state) {
    (void)state;
    const char *data = getenv("COMPRESS_DATA");
    char root[PATH_BYTES - 64], config[PATH_BYTES];
    snprintf(root, sizeof root, "%s/models/", data ? data : "");
    snprintf(config, sizeof config, "%sstories15M/config.json", root);
    FILE *file = data ? fopen(config, "rb") : NULL;
    if (!file) {
        print_message("left out: COMPRESS_DATA has no models/stories15M\n");
        skip();
    }
    fclose(file);
    Case c;
    case_open(&c, root, "stories15M");
    c.before_norm = true;
    check_forward(&c, 7);
    check_logits(&c, "logits_at_8", 8);
    check_logits(&c, "logits_last", c.sizes[DIM_INDEX(DIM_T)] - 1);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_stories),
    };
    return cmocka_run_group_tests_name("llama reference", tests, NULL, NULL);
}
