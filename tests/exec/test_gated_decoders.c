/* Decoders in Llama's form against values computed from the formulas
 * (tests/data/reference/README.md): windows, caps, norms, stretched rotary positions, in
 * two configurations of each family. */
#include "tests/exec/decoder_fixture.h"

static const char *const FOLDERS[] = {
    "mistral",      "mistral_wide", "qwen2",      "qwen2_yarn",  "qwen3",
    "qwen3_window", "gemma",        "gemma_bias", "gemma2",      "gemma2_plain",
    "llama_yarn",   "llama_v5",     "phi3",       "phi3_partial"};
enum { FOLDER_COUNT = sizeof FOLDERS / sizeof *FOLDERS };

/* Hidden states, the last block's output, logits; the loss is compared with the
 * gradients.
 */
static void test_forward(void **state) {
    (void)state;
    for (int i = 0; i < FOLDER_COUNT; i++) {
        Case c;
        case_open(&c, ROOT, FOLDERS[i]);
        print_message("%s\n", FOLDERS[i]);
        check_forward(&c, graph_layer_count(c.model->graph, "decoder") + 3);
        check_causal(&c, 6);
        case_close(&c);
    }
}

static void test_gradients(void **state) {
    (void)state;
    for (int i = 0; i < FOLDER_COUNT; i++) {
        char path[PATH_BYTES];
        Case c;
        Checkpoint *gradients = NULL;
        case_open(&c, ROOT, FOLDERS[i]);
        snprintf(path, sizeof path, ROOT "%s/gradients.safetensors", FOLDERS[i]);
        assert_ok(safetensors_read(&gradients, path, c.diag), c.diag);
        check_gradients(&c, gradients);
        checkpoint_destroy(gradients);
        case_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests_name("gated decoders", tests, NULL, NULL);
}
