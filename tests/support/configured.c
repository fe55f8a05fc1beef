/* Models from a configuration as text: see configured.h. */
#include "tests/support/configured.h"

#include "exec/ops.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "ir/irtext.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <string.h>

enum { SAMPLES = 2, TOKENS = 5, SOURCE = 4 };

Model *configured_model(const char *yaml, uint64_t seed) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = NULL;
    Model *model = NULL;
    assert_ok(yaml_parse(&config, arena, "config", yaml, strlen(yaml), diag), diag);
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    assert_ok(model_init_weights(model, seed, diag), diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

Model *parsed_model(const char *text, uint64_t seed) {
    Diag *diag = diag_create();
    Model *model = model_create(ops_table());
    assert_ok(graph_parse(&model->graph, model->arena, ops_table(), "text", text,
                          strlen(text), diag),
              diag);
    assert_ok(model_init_weights(model, seed, diag), diag);
    diag_destroy(diag);
    return model;
}

Model *configured_vit(int layers, uint64_t seed) {
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "{model_type: vit, architectures: [ViTForImageClassification],\n"
             " hidden_size: 8, num_hidden_layers: %d, num_attention_heads: 2,\n"
             " intermediate_size: 16, hidden_act: gelu, image_size: 4, patch_size: 2,\n"
             " num_channels: 1, num_labels: 3, initializer_range: 0.3}\n",
             layers);
    return configured_model(yaml, seed);
}

Model *configured_bert(int layers, uint64_t seed) {
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "{model_type: bert, architectures: [BertForSequenceClassification],\n"
             " hidden_size: 8, num_hidden_layers: %d, num_attention_heads: 2,\n"
             " intermediate_size: 16, hidden_act: gelu, vocab_size: 12,\n"
             " max_position_embeddings: 6, type_vocab_size: 2, num_labels: 3,\n"
             " initializer_range: 0.3}\n",
             layers);
    return configured_model(yaml, seed);
}

static void fill_integers(const char *name, int type, int64_t count, int64_t row,
                          int32_t *out) {
    for (int64_t i = 0; i < count; i++) {
        const bool last = i % row == row - 1 && i / row % 2 == 1;
        out[i] = (int32_t)((i * 7 + 3) % 12);
        if (strstr(name, "attention_mask")) out[i] = !last;
        if (strcmp(name, "token_type_ids") == 0) out[i] = type;
    }
}

static void fill_input(const Node *input, const int64_t sizes[DIM_SYMBOLS], int type,
                       void *data) {
    Type bound;
    if (!data || !type_bind(&input->type, sizes, &bound)) return;
    const int64_t count = type_count(&bound);
    if (bound.dtype == DTYPE_I32) {
        fill_integers(input->name, type, count, bound.dim[bound.rank - 1], data);
        return;
    }
    const uint64_t key = random_key_name(1, input->name);
    for (int64_t i = 0; i < count; i++)
        ((double *)data)[i] = random_normal(key, (uint64_t)i);
}

static const int64_t SIZES[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = SAMPLES,
                                           [DIM_INDEX(DIM_T)] = TOKENS,
                                           [DIM_INDEX(DIM_S)] = SOURCE};

double configured_terms(Model *model, const char *name) {
    return rounding_terms(model->graph, graph_output(model->graph, name), SIZES);
}

int64_t configured_run(Model *model, const char *name, int type, double *out,
                       int64_t most) {
    Node *result = graph_output(model->graph, name);
    assert_non_null(result);
    Runner r;
    runner_open_sizes(&r, model->graph, SIZES, PRECISION_F64, NULL, &result, 1);
    for (Node *node = model->graph->first; node; node = node->next)
        if (node->name)
            fill_input(node, SIZES, type, workspace_input(r.workspace, node->name));
    runner_run(&r);
    Type bound;
    assert_true(type_bind(&result->type, SIZES, &bound));
    const int64_t count = type_count(&bound);
    assert_true(count <= most);
    memcpy(out, workspace_value(r.workspace, result), (size_t)count * sizeof *out);
    runner_close(&r);
    return count;
}
