/* ONNX files that are read: what our exporter writes of every family comes back as the
 * model that it was, whether decoders have states or not, and PyTorch's exports compute
 * what PyTorch does. */
#include "onnx_file.h"
#include "onnx_scratch.h"

#include "io/formats/hf.h"
#include "io/onnx/onnx_read.h"
#include "io/onnx/write/onnx_build.h"
#include "ir/irtext.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "tests/support/configured.h"
#include "tests/support/graph_changes.h"
#include "tests/support/onnx_notes.h"
#include "tests/support/reference.h"

#include <math.h>

/* ---- what was written comes back ---- */

/* Nodes that do nothing outside of training are not in a file. */
static void drop_dropout(Model *model) {
    Node *next;
    for (Node *node = model->graph->first; node; node = next) {
        next = node->next;
        if (strcmp(node->op->name, "dropout") != 0) continue;
        graph_replace_uses(model->graph, node, node->in[0]);
        graph_erase(model->graph, node);
    }
}

static void expect_same_weights(const Graph *before, const Graph *after) {
    assert_int_equal(before->storage_count, after->storage_count);
    for (int i = 0; i < before->storage_count; i++) {
        const Storage *a = before->storages[i], *b = graph_storage(after, a->name);
        if (!b) fail_msg("no storage '%s'", a->name);
        assert_true(tensor_same_shape(&a->tensor, &b->tensor));
        assert_int_equal(a->tensor.dtype, b->tensor.dtype);
        assert_memory_equal(tensor_data(&a->tensor), tensor_data(&b->tensor),
                            tensor_bytes(&a->tensor));
    }
}

static void expect_same_outputs(Model *before, Model *after) {
    static double a[1 << 16], b[1 << 16];
    for (int i = 0; i < before->graph->output_count; i++) {
        const char *name = before->graph->outputs[i].name;
        if (!graph_output(after->graph, name)) fail_msg("no output '%s'", name);
        const int64_t count = configured_run(before, name, 1, a, 1 << 16);
        assert_int_equal(configured_run(after, name, 1, b, 1 << 16), count);
        for (int64_t k = 0; k < count; k++)
            if (a[k] != b[k]) fail_msg("%s[%d]: %g, was %g", name, (int)k, b[k], a[k]);
    }
}

/* Writes a model: as one file, or as an encoder's and a decoder's. */
static void write_parts(Model *model, const OnnxOptions *options, bool two) {
    Diag *diag = diag_create();
    Written written = {0};
    char encoder[300];
    snprintf(path, sizeof path, "%s/%s.onnx", folder, two ? "decoder_model" : "model");
    snprintf(encoder, sizeof encoder, "%s/encoder_model.onnx", folder);
    expect_ok(diag, onnx_file_write(model, two ? ONNX_DECODER : ONNX_WHOLE, path, false,
                                    false, options, &written, diag));
    if (two)
        expect_ok(diag, onnx_file_write(model, ONNX_ENCODER, encoder, false, false,
                                        options, &written, diag));
    diag_destroy(diag);
    forget_notes(path);
    if (two) forget_notes(encoder);
}

/* What was written comes back node by node, without notes. */
static void expect_back_from(Model *model, const char *name, const OnnxOptions *options,
                             bool two) {
    Text changes = {0};
    write_parts(model, options, two);
    Model *back = load_model(path);
    drop_dropout(model);
    /* files do not say how weights are drawn */
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *kept = graph_storage(back->graph, model->graph->storages[i]->name);
        if (kept) kept->init = model->graph->storages[i]->init;
    }
    graph_changes(&changes, model->graph, back->graph);
    if (changes.length > 0) fail_msg("%s: %s", name, changes.data);
    text_free(&changes);
    expect_same_weights(model->graph, back->graph);
    expect_same_outputs(model, back);
    const Tree *type = tree_get(model->config, "model_type");
    if (type)
        assert_string_equal(tree_get(back->config, "model_type")->string, type->string);
    assert_int_equal(graph_task(back->graph), graph_task(model->graph));
    model_destroy(back);
}

static void expect_back(Model *model, const char *name, const OnnxOptions *options) {
    expect_back_from(model, name, options, false);
}

static void test_families(void **state) {
    static const char *const NAMES[] = {"bert",        "bert_mlm", "distilbert",
                                        "gpt2",        "llama",    "swin",
                                        "swin_padded", "vit",      "deit"};
    (void)state;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        for (int cache = 0; cache < 2; cache++) {
            Model *model = load_reference(NAMES[i]);
            OnnxOptions options = ONNX_DEFAULTS;
            options.cache = cache;
            expect_back(model, NAMES[i], &options);
            model_destroy(model);
        }
}

/* A window that slides along the tokens is seen whatever its size: probes have few
 * tokens, comparisons of positions tell. Caps are seen, too. */
static void test_windows(void **state) {
    static const struct {
        const char *yaml;
        bool whole; /* places and configuration come back as well */
    } MODELS[] = {
        {"model_type: mistral, sliding_window: 3", true},
        {"model_type: mistral, sliding_window: 4096", true},
        {"model_type: qwen2", true},
        {"model_type: qwen2, use_sliding_window: true, max_window_layers: 1,\n"
         " sliding_window: 300",
         false},
        {"model_type: gemma2, head_dim: 4, query_pre_attn_scalar: 16,\n"
         " sliding_window: 1000",
         false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        for (int cache = 0; cache < 2; cache++) {
            char yaml[600];
            OnnxOptions options = ONNX_DEFAULTS;
            snprintf(yaml, sizeof yaml,
                     "{%s, hidden_size: 16, num_hidden_layers: 2,\n"
                     " num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 13,\n"
                     " intermediate_size: 20, initializer_range: 0.3}",
                     MODELS[i].yaml);
            Model *model = configured_model(yaml, 1);
            options.cache = cache;
            if (MODELS[i].whole) expect_back(model, MODELS[i].yaml, &options);
            write_parts(model, &options, false);
            Model *back = load_model(path);
            expect_same_outputs(model, back);
            for (int layer = 0; layer < 2; layer++) {
                const Node *node =
                    graph_find(back->graph, STACK_DECODER, layer, ROLE_ATTENTION);
                const Node *was =
                    graph_find(model->graph, STACK_DECODER, layer, ROLE_ATTENTION);
                assert_int_equal(node_integer(node, "reach"), node_integer(was, "reach"));
                assert_true(node_real(node, "cap") == node_real(was, "cap"));
            }
            model_destroy(back);
            model_destroy(model);
        }
}

/* So do classifiers of words, with their class and as many labels. */
static void test_token_classifiers(void **state) {
    static const char *const CLASSES[] = {
        "model_type: bert, architectures: [BertForTokenClassification]",
        "model_type: distilbert, architectures: [DistilBertForTokenClassification]"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char yaml[500];
        snprintf(yaml, sizeof yaml,
                 "{%s, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2,\n"
                 " intermediate_size: 12, vocab_size: 12, max_position_embeddings: 6,\n"
                 " dim: 8, n_layers: 2, n_heads: 2, hidden_dim: 12, type_vocab_size: 2,\n"
                 " num_labels: 5}",
                 CLASSES[i]);
        Model *model = configured_model(yaml, 1);
        assert_int_equal(graph_task(model->graph), TASK_LABEL_TOKENS);
        expect_back(model, CLASSES[i], &ONNX_DEFAULTS);
        Model *back = load_model(path);
        const Tree *class = tree_get(back->config, "architectures");
        assert_non_null(strstr(CLASSES[i], class->first->string));
        assert_int_equal(tree_get(back->config, "num_labels")->integer, 5);
        model_destroy(back);
        model_destroy(model);
    }
}

/* Encoder-decoders come back from one file and from two. */
static void test_translators(void **state) {
    static const char *const KEYS[] = {
        "scale_embedding: true", "normalize_before: true, normalize_embedding: true",
        "norm: branch, add_final_layer_norm: true, tie_word_embeddings: false",
        "share_encoder_decoder_embeddings: false, decoder_vocab_size: 14"};
    (void)state;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        for (int way = 0; way < 3; way++) {
            char yaml[600];
            OnnxOptions options = ONNX_DEFAULTS;
            snprintf(yaml, sizeof yaml,
                     "{model_type: marian, architectures: [MarianMTModel], d_model: 12,\n"
                     " encoder_layers: 2, decoder_layers: 3,\n"
                     " encoder_attention_heads: 3, decoder_attention_heads: 2,\n"
                     " encoder_ffn_dim: 20, decoder_ffn_dim: 16, vocab_size: 13,\n"
                     " activation_function: silu, init_std: 0.3, %s}",
                     KEYS[i]);
            Model *model = configured_model(yaml, 1);
            options.cache = way == 2;
            expect_back_from(model, KEYS[i], &options, way > 0);
            model_destroy(model);
        }
}

/* The configuration that is told from a graph builds that graph. */
static void test_configuration(void **state) {
    (void)state;
    static const char YAML[] =
        "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 16,\n"
        " num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,\n"
        " head_dim: 6, intermediate_size: 24, vocab_size: 12, rope_theta: 5000.0,\n"
        " rms_norm_eps: 0.00002, tie_word_embeddings: true, initializer_range: 0.2}\n";
    Model *model = configured_model(YAML, 3);
    expect_back(model, "llama with few key heads", &ONNX_DEFAULTS);
    Model *back = load_model(path), *built;
    Diag *diag = diag_create();
    Text changes = {0};
    expect_ok(diag, hf_build(&built, back->config, ops_table(), diag));
    graph_changes(&changes, back->graph, built->graph);
    assert_null(strstr(changes.data ? changes.data : "", "attention ="));
    assert_int_equal(graph_parameter_count(built->graph),
                     graph_parameter_count(back->graph));
    text_free(&changes);
    diag_destroy(diag);
    model_destroy(built);
    model_destroy(back);
    model_destroy(model);
}

/* Numbers that no result depends on stand in no file, and come back by its notes. */
static void test_unseen(void **state) {
    (void)state;
    Model *model = configured_bert(1, 1);
    Graph *graph = model->graph;
    Node *attention = graph_find(graph, STACK_ENCODER, 0, ROLE_ATTENTION), *mix, *bias;
    const int64_t heads = node_integer(attention, "heads");
    Diag *diag = diag_create();
    Written written = {0};
    expect_ok(diag, storage_create(&mix, graph, "mix", (Init){INIT_IDENTITY, 0}, 2,
                                   (int64_t[]){heads, heads}, diag));
    expect_ok(diag, storage_create(&bias, graph, "bias", (Init){INIT_NORMAL, 0.3}, 1,
                                   &heads, diag));
    node_set_operand(graph, attention, "mix_before", mix);
    node_set_operand(graph, attention, "mix_before_bias", bias);
    expect_ok(diag, model_init_weights(model, 2, diag));
    assert_true(((const float *)tensor_data(&bias->storage->tensor))[0] != 0);
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, false, &ONNX_DEFAULTS,
                                    &written, diag));
    Model *back = load_model(path);
    expect_same_weights(graph, back->graph);
    expect_same_outputs(model, back);
    model_destroy(back);
    diag_destroy(diag);
    model_destroy(model);
}

/* Notes of a graph that a tool has changed are not believed: the graph is. */
static void test_changed_graph(void **state) {
    (void)state;
    Model *model = configured_bert(1, 1);
    Diag *diag = diag_create();
    Written written = {0};
    ReadBack whole;
    double found[2];
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, false, &ONNX_DEFAULTS,
                                    &written, diag));
    for (int changed = 0; changed < 2; changed++) {
        Model *back = load_model(path);
        found[changed] =
            node_real(graph_find(back->graph, STACK_ENCODER, 0, ROLE_NORM1), "eps");
        assert_true(changed || tree_get(back->config, "initializer_range"));
        model_destroy(back);
        read_back(&whole, path);
        for (size_t i = 0; i < whole.file.model->graph->n_node; i++) {
            OnnxNode *node = whole.file.model->graph->node[i];
            for (size_t k = 0; k < node->n_attribute; k++)
                if (strcmp(node->attribute[k]->name, "epsilon") == 0)
                    node->attribute[k]->f = 0.25F;
        }
        put_messages(whole.file.model, path);
        read_back_end(&whole);
    }
    assert_true(found[0] < 1e-4);
    assert_true(found[1] == 0.25);
    diag_destroy(diag);
    model_destroy(model);
}

/* ---- PyTorch's exports ---- */

/* Compares an output with what was recorded: within the rounding of its chain, or within
 * the `bound` that stands beside it. */
static void compare_output(const char *name, const char *output, const char *type,
                           int layers) {
    char file[100];
    Checkpoint *reference;
    Diag *diag = diag_create();
    snprintf(path, sizeof path, "tests/data/onnx/%s.onnx", name);
    snprintf(file, sizeof file, "tests/data/onnx/%s.safetensors", name);
    Model *model = load_model(path);
    expect_ok(diag, safetensors_read(&reference, file, diag));
    if (type) assert_string_equal(tree_get(model->config, "model_type")->string, type);
    assert_int_equal(graph_layer_count(model->graph, graph_main_stack(model->graph)),
                     layers);
    Runner r;
    const Tensor *ids = checkpoint_find(reference, INPUT_IDS);
    const Tensor *source = checkpoint_find(reference, INPUT_TARGET_IDS) ? ids : NULL;
    int64_t sizes[DIM_SYMBOLS] = {3, 1, 1, 1};
    if (source) sizes[DIM_INDEX(DIM_S)] = source->dim[1];
    if (source) ids = checkpoint_find(reference, INPUT_TARGET_IDS);
    if (ids) sizes[DIM_INDEX(DIM_T)] = ids->dim[1];
    Node *node = graph_output(model->graph, output);
    assert_non_null(node);
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F32, NULL, &node, 1);
    if (workspace_input(r.workspace, INPUT_TARGET_MASK)) /* all ones */
        for (int64_t i = 0; i < sizes[0] * ids->dim[1]; i++)
            ((int32_t *)workspace_input(r.workspace, INPUT_TARGET_MASK))[i] = 1;
    for (int i = 0; i < reference->count; i++) {
        const char *input = reference->tensors[i].name;
        if (workspace_input(r.workspace, input))
            reference_feed(r.workspace, reference, input, input);
    }
    runner_run(&r);
    const Tensor *bound = checkpoint_find(reference, "bound");
    const Tensor *wanted = checkpoint_find(reference, output);
    const float *got = workspace_value(r.workspace, node);
    if (!bound) runner_compare(&r, reference, output, node);
    for (int64_t i = 0; bound && i < tensor_count(wanted); i++)
        if (!(fabsf(got[i] - ((const float *)tensor_data(wanted))[i]) <=
              *(const float *)tensor_data(bound)))
            fail_msg("%s[%d]: %g", name, (int)i, (double)got[i]);
    runner_close(&r);
    checkpoint_destroy(reference);
    model_destroy(model);
    diag_destroy(diag);
}

static void check_export(const char *name, const char *type, int layers) {
    compare_output(name, OUTPUT_LOGITS, type, layers);
}

/* Outputs of PyTorch itself (tests/data/onnx/README.md). */
static void test_exports(void **state) {
    (void)state;
    check_export("bert", "bert", 2);
    check_export("bert_sdpa", "bert", 2);
    check_export("distilbert", "distilbert", 2);
    check_export("gpt2", "gpt2", 2);
    check_export("llama", "llama", 2);
    check_export("vit_timm", "vit", 2);
    check_export("swin", "swin", 4);
}

/* PyTorch's own layers, with tokens before samples, and the two files of an
 * encoder-decoder model (tests/data/onnx/torch). */
static void test_torch_layers(void **state) {
    (void)state;
    check_export("torch/norm_last", "distilbert", 1);
    check_export("torch/norm_first", NULL, 1);
    check_export("torch/image", "vit", 1);
    check_export("torch/decoder_model", "marian", 1);
    check_export("torch/roberta", "roberta", 2);
    check_export("torch/modernbert", "modernbert", 4);
}

/* Files for one or two samples of 8 tokens compute what PyTorch does for three of 5
 * (tests/data/onnx/fixed). */
static void test_fixed_sizes(void **state) {
    (void)state;
    check_export("fixed/norm_last", "distilbert", 1);
    check_export("fixed/roberta", "roberta", 2);
    check_export("fixed/image", "vit", 1);
    check_export("fixed/decoder_model", "marian", 1);
}

/* Outputs of onnxruntime for its own operators and for quantised matrices
 * (tests/data/onnx/microsoft). */
static void test_microsoft(void **state) {
    (void)state;
    compare_output("microsoft/fused_bert", OUTPUT_STATES, "bert", 2);
    compare_output("microsoft/fused_causal", OUTPUT_LOGITS, NULL, 1);
    compare_output("microsoft/dense", OUTPUT_LOGITS, NULL, 0);
    compare_output("microsoft/weights_only", OUTPUT_STATES, NULL, 0);
    compare_output("microsoft/rounded", OUTPUT_STATES, NULL, 0);
    compare_output("microsoft/grouped_llama", OUTPUT_LOGITS, "qwen2", 2);
    compare_output("microsoft/grouped_near", OUTPUT_LOGITS, "llama", 2);
    compare_output("microsoft/few_bits", OUTPUT_STATES, NULL, 0);
    compare_output("microsoft/normed_heads", OUTPUT_LOGITS, "qwen3", 1);
    compare_output("microsoft/masked_heads", OUTPUT_LOGITS, NULL, 1);
}

/* Angles that are stretched are told from their tables, and stand in the configuration.
 */
static void test_stretched_angles(void **state) {
    (void)state;
    Model *model = load_model("tests/data/onnx/microsoft/grouped_llama.onnx");
    const Tree *scaling = tree_get(model->config, "rope_scaling");
    assert_true(tree_get(model->config, "rope_theta")->real == 20);
    assert_string_equal(tree_get(scaling, "rope_type")->string, "llama3");
    assert_true(tree_get(scaling, "factor")->real == 8);
    assert_true(tree_get(scaling, "high_freq_factor")->real == 4);
    assert_int_equal(tree_get(scaling, "original_max_position_embeddings")->integer, 64);
    model_destroy(model);
}

/* Copies a file of the data to the scratch folder. */
static void copy_data(const char *name) {
    char from[100], to[300];
    Diag *diag = diag_create();
    Buf *map;
    snprintf(from, sizeof from, "tests/data/onnx/torch/%s", name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    expect_ok(diag, file_map(&map, from, diag));
    put_file(to, buf_data(map), buf_bytes(map));
    buf_release(map);
    diag_destroy(diag);
}

/* A decoder as Hugging Face's exporter merges it: all of the graph in the branches of one
 * If by use_cache_branch, whose results have the branches' own names. */
static void put_merged(void) {
    ReadBack decoder;
    read_back(&decoder, "tests/data/onnx/torch/decoder_model.onnx");
    OnnxGraph *graph = decoder.file.model->graph, branch = *graph;
    OnnxAttribute bodies[2] = {ONNX__ATTRIBUTE_PROTO__INIT, ONNX__ATTRIBUTE_PROTO__INIT};
    OnnxAttribute *list[2] = {&bodies[0], &bodies[1]};
    OnnxNode choice = ONNX__NODE_PROTO__INIT, *choices[1] = {&choice};
    OnnxValue cache = ONNX__VALUE_INFO_PROTO__INIT, *inputs[8] = {&cache};
    char *condition = (char *)"use_cache_branch", *logits = (char *)"logits";
    OnnxType type = ONNX__TYPE_PROTO__INIT;
    OnnxTensorType tensor = ONNX__TYPE_PROTO__TENSOR__INIT;
    OnnxShape shape = ONNX__TENSOR_SHAPE_PROTO__INIT;
    OnnxDim one = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT, *dims[1] = {&one};
    branch.n_input = branch.n_initializer = 0;
    for (int i = 0; i < 2; i++) {
        bodies[i].name = (char *)(i ? "else_branch" : "then_branch");
        bodies[i].has_type = true;
        bodies[i].type = (Onnx__AttributeProto__AttributeType)ONNX_ATTRIBUTE_GRAPH;
        bodies[i].g = &branch;
    }
    choice.op_type = (char *)"If";
    choice.n_input = choice.n_output = 1;
    choice.input = &condition;
    choice.output = &logits;
    choice.n_attribute = 2;
    choice.attribute = list;
    one.value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    one.dim_value = 1;
    shape.n_dim = 1;
    shape.dim = dims;
    tensor.has_elem_type = true;
    tensor.elem_type = ONNX_BOOL;
    tensor.shape = &shape;
    type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type.tensor_type = &tensor;
    cache.name = condition;
    cache.type = &type;
    for (size_t i = 0; i < graph->n_input; i++) inputs[i + 1] = graph->input[i];
    OnnxGraph merged = *graph;
    merged.n_input++;
    merged.input = inputs;
    merged.n_node = 1;
    merged.node = choices;
    decoder.file.model->graph = &merged;
    snprintf(path, sizeof path, "%s/decoder_model_merged.onnx", folder);
    put_messages(decoder.file.model, path);
    read_back_end(&decoder);
}

static void test_merged(void **state) {
    Text changes = {0};
    (void)state;
    copy_data("encoder_model.onnx");
    put_merged();
    Model *merged = load_model(path);
    snprintf(path, sizeof path, "tests/data/onnx/torch/decoder_model.onnx");
    Model *model = load_model(path);
    graph_changes(&changes, model->graph, merged->graph);
    if (changes.length > 0) fail_msg("%s", changes.data);
    expect_same_weights(model->graph, merged->graph);
    model_destroy(merged);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_families, enter, leave),
        cmocka_unit_test_setup_teardown(test_token_classifiers, enter, leave),
        cmocka_unit_test_setup_teardown(test_windows, enter, leave),
        cmocka_unit_test_setup_teardown(test_translators, enter, leave),
        cmocka_unit_test_setup_teardown(test_configuration, enter, leave),
        cmocka_unit_test_setup_teardown(test_unseen, enter, leave),
        cmocka_unit_test_setup_teardown(test_changed_graph, enter, leave),
        cmocka_unit_test_setup_teardown(test_exports, enter, leave),
        cmocka_unit_test_setup_teardown(test_torch_layers, enter, leave),
        cmocka_unit_test_setup_teardown(test_fixed_sizes, enter, leave),
        cmocka_unit_test_setup_teardown(test_merged, enter, leave),
        cmocka_unit_test_setup_teardown(test_microsoft, enter, leave),
        cmocka_unit_test_setup_teardown(test_stretched_angles, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
