/* ONNX files that are read: what our exporter writes of every family comes back as the
 * model that it was, whether decoders have states or not; graphs of onnxruntime's fusions
 * are the ops that they stand for; damaged files are refused with one message. */
#include "onnx_file.h"

#include "io/formats/hf.h"
#include "io/onnx/onnx_build.h"
#include "io/onnx/onnx_read.h"
#include "ir/irtext.h"
#include "ir/rewrite.h"
#include "tests/support/configured.h"
#include "tests/support/graph_changes.h"
#include "tests/support/onnx_notes.h"
#include "tests/support/reference.h"

#include <math.h>

static char folder[256], path[300];

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

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

static Model *read_model(void) {
    Diag *diag = diag_create();
    Model *model;
    expect_ok(diag, model_load(&model, path, ops_table(), true, diag));
    diag_destroy(diag);
    return model;
}

/* Writes a model: as one file, or as an encoder's and a decoder's. */
static void write_parts(Model *model, const OnnxOptions *options, bool two) {
    Diag *diag = diag_create();
    Written written = {0};
    char encoder[300];
    snprintf(path, sizeof path, "%s/%s.onnx", folder, two ? "decoder_model" : "model");
    snprintf(encoder, sizeof encoder, "%s/encoder_model.onnx", folder);
    expect_ok(diag, onnx_file_write(model, two ? ONNX_DECODER : ONNX_WHOLE, path, false,
                                    options, &written, diag));
    if (two)
        expect_ok(diag, onnx_file_write(model, ONNX_ENCODER, encoder, false, options,
                                        &written, diag));
    diag_destroy(diag);
    forget_notes(path);
    if (two) forget_notes(encoder);
}

/* What was written comes back node by node, without notes. */
static void expect_back_from(Model *model, const char *name, const OnnxOptions *options,
                             bool two) {
    Text changes = {0};
    write_parts(model, options, two);
    Model *back = read_model();
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
            char from[100];
            Diag *diag = diag_create();
            Model *model;
            OnnxOptions options = ONNX_DEFAULTS;
            snprintf(from, sizeof from, "tests/data/reference/%s", NAMES[i]);
            expect_ok(diag, model_load(&model, from, ops_table(), true, diag));
            diag_destroy(diag);
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
            Model *back = read_model();
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
        Model *back = read_model();
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
    Model *back = read_model(), *built;
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

/* Notes of a graph that a tool has changed are not believed: the graph is. */
static void test_changed_graph(void **state) {
    (void)state;
    Model *model = configured_bert(1, 1);
    Diag *diag = diag_create();
    Written written = {0};
    Buf *map;
    OnnxFile parsed;
    OutFile *out;
    double found[2];
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, &ONNX_DEFAULTS,
                                    &written, diag));
    for (int changed = 0; changed < 2; changed++) {
        Model *back = read_model();
        found[changed] =
            node_real(graph_find(back->graph, STACK_ENCODER, 0, ROLE_NORM1), "eps");
        assert_true(changed || tree_get(back->config, "initializer_range"));
        model_destroy(back);
        expect_ok(diag, file_map(&map, path, diag));
        expect_ok(diag, onnx_parse(&parsed, buf_data(map), buf_bytes(map), LOC_FILE(path),
                                   diag));
        for (size_t i = 0; i < parsed.model->graph->n_node; i++) {
            OnnxNode *node = parsed.model->graph->node[i];
            for (size_t k = 0; k < node->n_attribute; k++)
                if (strcmp(node->attribute[k]->name, "epsilon") == 0)
                    node->attribute[k]->f = 0.25F;
        }
        expect_ok(diag, outfile_open(&out, NULL, path, diag));
        expect_ok(diag, onnx_write(parsed.model, out, diag));
        expect_ok(diag, outfile_commit(out, diag));
        onnx_release(&parsed);
        buf_release(map);
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
    Model *model = read_model();
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

/* Outputs of onnxruntime for its own operators and for quantised matrices
 * (tests/data/onnx/microsoft). */
static void test_microsoft(void **state) {
    (void)state;
    compare_output("microsoft/fused_bert", OUTPUT_STATES, "bert", 2);
    compare_output("microsoft/fused_causal", OUTPUT_LOGITS, NULL, 1);
    compare_output("microsoft/dense", OUTPUT_LOGITS, NULL, 0);
    compare_output("microsoft/weights_only", OUTPUT_STATES, NULL, 0);
    compare_output("microsoft/rounded", OUTPUT_STATES, NULL, 0);
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
    Diag *diag = diag_create();
    Buf *map;
    OnnxFile parsed;
    OutFile *out;
    expect_ok(diag, file_map(&map, "tests/data/onnx/torch/decoder_model.onnx", diag));
    expect_ok(diag, onnx_parse(&parsed, buf_data(map), buf_bytes(map), LOC_NONE, diag));
    OnnxGraph *graph = parsed.model->graph, branch = *graph;
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
    parsed.model->graph = &merged;
    snprintf(path, sizeof path, "%s/decoder_model_merged.onnx", folder);
    expect_ok(diag, outfile_open(&out, NULL, path, diag));
    expect_ok(diag, onnx_write(parsed.model, out, diag));
    expect_ok(diag, outfile_commit(out, diag));
    onnx_release(&parsed);
    buf_release(map);
    diag_destroy(diag);
}

static void test_merged(void **state) {
    Text changes = {0};
    (void)state;
    copy_data("encoder_model.onnx");
    put_merged();
    Model *merged = read_model();
    snprintf(path, sizeof path, "tests/data/onnx/torch/decoder_model.onnx");
    Model *model = read_model();
    graph_changes(&changes, model->graph, merged->graph);
    if (changes.length > 0) fail_msg("%s", changes.data);
    expect_same_weights(model->graph, merged->graph);
    model_destroy(merged);
    model_destroy(model);
}

/* ---- graphs made here ---- */

/* A model of one graph, written to the file as it is. */
static void put_graph(OnnxBuild *b) {
    Diag *diag = diag_create();
    OnnxModel model = ONNX__MODEL_PROTO__INIT;
    OnnxOpset opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[1] = {&opset};
    OutFile *file;
    opset.has_version = model.has_ir_version = true;
    opset.version = 17;
    opset.domain = (char *)"";
    model.ir_version = 8;
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = onnx_build_graph(b, "test");
    expect_ok(diag, outfile_open(&file, NULL, path, diag));
    expect_ok(diag, onnx_write(&model, file, diag));
    expect_ok(diag, outfile_commit(file, diag));
    diag_destroy(diag);
}

static const char *weights(OnnxBuild *b, int rows, int columns, double shift) {
    static float values[1024];
    const int64_t dim[2] = {rows > 0 ? rows : columns, columns};
    const int count = rows > 0 ? rows * columns : columns;
    for (int i = 0; i < count; i++)
        values[i] = (float)sin((double)i * 1.7 + shift + (double)columns);
    return onnx_f32s(b, values, dim, rows > 0 ? 2 : 1);
}

static void set_domain(OnnxBuild *b) {
    OnnxNode *node = b->nodes.items[b->nodes.count - 1];
    node->domain = (char *)"com.microsoft";
}

#define FUSED(b, ...) fused_node((b), ONNX_NODE(b, __VA_ARGS__))

static const char *fused_node(OnnxBuild *b, const char *value) {
    set_domain(b);
    return value;
}

static void declare_tokens(OnnxBuild *b, const char *name) {
    onnx_input(b, name, ONNX_I64, (const int64_t[]){0, 0},
               (const char *const[]){"batch", "tokens"}, 2);
}

static void declare_states(OnnxBuild *b, const char *name, int64_t width) {
    onnx_output(b, name, ONNX_F32, (const int64_t[]){0, 0, width},
                (const char *const[]){"batch", "tokens", NULL}, 3);
}

/* The graph of a model without weights' names, which are made up by content. */
static void expect_ops(const Model *model, const char *const *ops) {
    int at = 0;
    for (const Node *node = model->graph->first; node; node = node->next) {
        if (node_is_leaf(node)) continue;
        if (!ops[at] || strcmp(node->op->name, ops[at]) != 0)
            fail_msg("node %d: %s, expected %s", at, node->op->name,
                     ops[at] ? ops[at] : "no more");
        at++;
    }
    assert_null(ops[at]);
}

/* A post-norm layer as onnxruntime writes it. */
static void test_fused_layer(void **state) {
    static const char *const OPS[] = {
        "embedding", "embedding",  "add",    "add_position", "layer_norm",
        "linear",    "linear",     "linear", "attention",    "linear",
        "add",       "layer_norm", "linear", "activation",   "linear",
        "add",       "layer_norm", NULL};
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b = onnx_build_create(arena, ONNX_F32);
    declare_tokens(b, "input_ids");
    declare_tokens(b, "token_type_ids");
    declare_tokens(b, "attention_mask");
    const char *mask = onnx_cast(b, "attention_mask", ONNX_I32);
    const char *x = FUSED(b, "EmbedLayerNormalization", "input_ids", "token_type_ids",
                          weights(b, 12, 8, 0), weights(b, 6, 8, 1), weights(b, 2, 8, 2),
                          weights(b, 0, 8, 3), weights(b, 0, 8, 4));
    const char *y =
        FUSED(b, "Attention", x, weights(b, 8, 24, 5), weights(b, 0, 24, 6), mask);
    onnx_set_int(b, "num_heads", 2);
    y = ONNX_NODE(b, "MatMul", y, weights(b, 8, 8, 7));
    x = FUSED(b, "SkipLayerNormalization", y, x, weights(b, 0, 8, 8), weights(b, 0, 8, 9),
              weights(b, 0, 8, 10));
    y = ONNX_NODE(b, "MatMul", x, weights(b, 8, 16, 11));
    y = FUSED(b, "BiasGelu", y, weights(b, 0, 16, 12));
    y = ONNX_NODE(b, "MatMul", y, weights(b, 16, 8, 13));
    x = FUSED(b, "SkipLayerNormalization", y, x, weights(b, 0, 8, 14),
              weights(b, 0, 8, 15), weights(b, 0, 8, 16));
    onnx_rename(b, x, "last_hidden_state");
    declare_states(b, "last_hidden_state", 8);
    put_graph(b);
    Model *model = read_model();
    expect_ops(model, OPS);
    const Node *attention = graph_find(model->graph, "encoder", 0, ROLE_ATTENTION);
    assert_non_null(attention);
    assert_int_equal(node_integer(attention, "heads"), 2);
    assert_non_null(node_operand(attention, "mask"));
    for (int role = ROLE_Q; role <= ROLE_V; role++)
        assert_non_null(graph_find(model->graph, "encoder", 0, (Role)role));
    assert_non_null(graph_find(model->graph, "encoder", 0, ROLE_NORM2));
    assert_string_equal(tree_get(model->config, "model_type")->string, "bert");
    model_destroy(model);
    arena_destroy(arena);
}

/* ---- what is refused ---- */

static void expect_refused(const char *message) {
    Diag *diag = diag_create();
    Model *model = NULL;
    const Status status = model_load(&model, path, ops_table(), true, diag);
    char *said = diag_text(diag);
    if (status == STATUS_OK) fail_msg("read, expected: %s", message);
    if (!strstr(said, message)) fail_msg("expected '%s' in: %s", message, said);
    free(said);
    diag_destroy(diag);
}

/* A graph with one node that nothing stands against yet. */
static OnnxBuild *begin(Arena *arena) {
    OnnxBuild *b = onnx_build_create(arena, ONNX_F32);
    declare_tokens(b, "input_ids");
    return b;
}

static void test_refused_operators(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b = begin(arena);
    const char *x = onnx_gather(b, weights(b, 5, 4, 0), "input_ids", 0);
    onnx_rename(b, ONNX_NODE(b, "Frobnicate", x), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("(Frobnicate): this operator is not known");
    b = begin(arena);
    x = onnx_gather(b, weights(b, 5, 4, 0), "input_ids", 0);
    onnx_rename(b, ONNX_NODE(b, "IsInf", x), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("(IsInf): no op of ours does this");
    b = onnx_build_create(arena, ONNX_F32);
    onnx_input(b, "input_ids", ONNX_I64, (const int64_t[]){1, 6},
               (const char *const[]){NULL, NULL}, 2);
    x = onnx_gather(b, weights(b, 5, 4, 0), "input_ids", 0);
    onnx_rename(b, ONNX_NODE(b, "IsInf", x), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("the file fixes how many samples there are");
    arena_destroy(arena);
}

static void test_refused_names(void **state) {
    (void)state;
    Arena *arena = arena_create();
    OnnxBuild *b = begin(arena); /* a cycle */
    const char *x = ONNX_NODE(b, "Add", "z", "input_ids");
    onnx_rename(b, ONNX_NODE(b, "Relu", x), "z");
    declare_states(b, "z", 4);
    put_graph(b);
    expect_refused("it depends on itself");
    b = begin(arena); /* a weight that is missing */
    onnx_rename(b, ONNX_NODE(b, "Add", "input_ids", "lost"), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("gives its operand 'lost'");
    b = begin(arena); /* one name twice */
    onnx_rename(b, ONNX_NODE(b, "Relu", "input_ids"), "y");
    onnx_rename(b, ONNX_NODE(b, "Neg", "input_ids"), "y");
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("two values have this name");
    b = begin(arena); /* an output of nobody */
    declare_states(b, "y", 4);
    put_graph(b);
    expect_refused("no node gives this output");
    arena_destroy(arena);
}

/* A graph whose one weight is changed before it is written. */
static void put_weight(Arena *arena, void (*change)(OnnxTensor *tensor)) {
    OnnxBuild *b = begin(arena);
    const char *table = weights(b, 5, 4, 0);
    onnx_rename(b, onnx_gather(b, table, "input_ids", 0), "y");
    declare_states(b, "y", 4);
    for (int i = 0; i < b->constants.count; i++) {
        OnnxTensor *tensor = b->constants.items[i];
        if (strcmp(tensor->name, table) == 0) change(tensor);
    }
    put_graph(b);
}

static void make_huge(OnnxTensor *tensor) {
    tensor->dims[0] = tensor->dims[1] = INT64_MAX / 2;
}

static void make_negative(OnnxTensor *tensor) {
    tensor->dims[0] = -5;
}

static void make_short(OnnxTensor *tensor) {
    tensor->raw_data.len -= 4;
}

static void make_text(OnnxTensor *tensor) {
    tensor->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__STRING;
}

/* External data: location, offset and length. */
static OnnxEntry entries[3];
static OnnxEntry *entry_list[3] = {&entries[0], &entries[1], &entries[2]};

static void make_external(OnnxTensor *tensor, const char *location, const char *offset,
                          const char *length) {
    const char *const keys[] = {"location", "offset", "length"};
    const char *const values[] = {location, offset, length};
    for (int i = 0; i < 3; i++) {
        entries[i] = (OnnxEntry)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
        entries[i].key = (char *)keys[i];
        entries[i].value = (char *)values[i];
    }
    tensor->has_data_location = true;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    tensor->has_raw_data = false;
    tensor->n_external_data = 3;
    tensor->external_data = entry_list;
}

static void make_outside(OnnxTensor *tensor) {
    make_external(tensor, "../../etc/passwd", "0", "80");
}

static void make_absolute(OnnxTensor *tensor) {
    make_external(tensor, "/etc/passwd", "0", "80");
}

static void make_past_end(OnnxTensor *tensor) {
    make_external(tensor, "model.data", "72", "80");
}

static void make_odd_length(OnnxTensor *tensor) {
    make_external(tensor, "model.data", "0", "79");
}

static void make_beside(OnnxTensor *tensor) {
    make_external(tensor, "model.data", "16", "80");
}

static void test_refused_weights(void **state) {
    (void)state;
    static const struct {
        void (*change)(OnnxTensor *tensor);
        const char *message;
    } CASES[] = {{make_huge, "whose product fits"},
                 {make_negative, "of at least 0"},
                 {make_short, "its shape asks for 80 bytes, found 76"},
                 {make_text, "expected a tensor of numbers"},
                 {make_outside, "expected external data in the model's folder"},
                 {make_absolute, "expected external data in the model's folder"},
                 {make_past_end, "expected 80 bytes from byte 72"},
                 {make_odd_length, "a length of 80 bytes"}};
    Arena *arena = arena_create();
    char data[300], zeros[100] = {0};
    snprintf(data, sizeof data, "%s/model.data", folder);
    put_file(data, zeros, sizeof zeros);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        put_weight(arena, CASES[i].change);
        expect_refused(CASES[i].message);
    }
    put_weight(arena, make_beside);
    Model *model = read_model(); /* weights that lie where they should */
    assert_int_equal(graph_parameter_count(model->graph), 20);
    model_destroy(model);
    arena_destroy(arena);
}

/* Flipped bytes give a model or a message. */
static void test_flipped_bytes(void **state) {
    (void)state;
    Model *model = configured_bert(1, 1);
    Diag *diag = diag_create();
    Written written = {0};
    Buf *map;
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, &ONNX_DEFAULTS,
                                    &written, diag));
    expect_ok(diag, file_map(&map, path, diag));
    const size_t length = buf_bytes(map);
    unsigned char *bytes = memory_alloc(length, 1);
    memcpy(bytes, buf_data(map), length);
    buf_release(map);
    uint32_t seed = 1;
    for (int i = 0; i < 1500; i++) {
        seed = seed * 1664525u + 1013904223u;
        const size_t at = seed % length;
        const unsigned char old = bytes[at];
        bytes[at] ^= (unsigned char)(1u << (seed >> 29));
        put_file(path, bytes, length);
        bytes[at] = old;
        Model *back = NULL;
        diag_clear(diag);
        if (onnx_read(&back, path, ops_table(), diag) == STATUS_OK)
            model_destroy(back);
        else
            assert_true(diag_errors(diag) > 0);
    }
    free(bytes);
    diag_destroy(diag);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_families, enter, leave),
        cmocka_unit_test_setup_teardown(test_token_classifiers, enter, leave),
        cmocka_unit_test_setup_teardown(test_windows, enter, leave),
        cmocka_unit_test_setup_teardown(test_translators, enter, leave),
        cmocka_unit_test_setup_teardown(test_configuration, enter, leave),
        cmocka_unit_test_setup_teardown(test_changed_graph, enter, leave),
        cmocka_unit_test_setup_teardown(test_exports, enter, leave),
        cmocka_unit_test_setup_teardown(test_torch_layers, enter, leave),
        cmocka_unit_test_setup_teardown(test_merged, enter, leave),
        cmocka_unit_test_setup_teardown(test_microsoft, enter, leave),
        cmocka_unit_test_setup_teardown(test_fused_layer, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_operators, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_names, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused_weights, enter, leave),
        cmocka_unit_test_setup_teardown(test_flipped_bytes, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
