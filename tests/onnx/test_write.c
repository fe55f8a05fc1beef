/* ONNX files that are written: what the standard asks of a graph, names of inputs and
 * outputs, the operators of small models one by one. Values are compared with those of
 * onnxruntime by tests/consumers/. */
#include "onnx_file.h"
#include "onnx_scratch.h"

#include "tests/support/configured.h"

static void write_model(Model *model, const OnnxOptions *options, bool half) {
    Diag *diag = diag_create();
    Written written = {0};
    expect_ok(diag, onnx_check(model, options, diag));
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, true, half, options,
                                    &written, diag));
    assert_true(written.bytes > 0 && written.files >= 1);
    diag_destroy(diag);
}

/* Writes a model, reads the file again and holds it against the standard. */
static void write_and_check(ReadBack *out, Model *model, const OnnxOptions *options,
                            bool half) {
    write_model(model, options, half);
    read_back(out, path);
    check_file(out->file.model);
}

/* Names, types and dimensions of a graph's inputs (NULL = any) and outputs. */
static void expect_values(const OnnxGraph *graph, const char *inputs,
                          const char *outputs) {
    Text in = {0}, out = {0};
    list_values(&in, graph->input, graph->n_input);
    list_values(&out, graph->output, graph->n_output);
    if (inputs) assert_string_equal(in.data, inputs);
    assert_string_equal(out.data, outputs);
    text_free(&in), text_free(&out);
}

static void test_families(void **state) {
    static const char *const NAMES[] = {
        "bert",        "bert_mlm", "distilbert", "gpt2", "llama",    "marian", "swin",
        "swin_padded", "vit",      "deit",       "t5",   "t5_gated", "bart",   "dinov2"};
    (void)state;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        for (int half = 0; half < 2; half++)
            for (int cache = 0; cache < 2; cache++) {
                OnnxOptions options = ONNX_DEFAULTS;
                Model *model = load_reference(NAMES[i]);
                ReadBack file;
                options.cache = cache;
                write_and_check(&file, model, &options, half);
                read_back_end(&file);
                model_destroy(model);
            }
}

/* Names, types and dimensions of inputs and outputs, as Hugging Face's exporter has them.
 */
static void expect_interface(const char *name, bool cache, const char *inputs,
                             const char *outputs) {
    OnnxOptions options = ONNX_DEFAULTS;
    Model *model = load_reference(name);
    ReadBack file;
    options.cache = cache;
    write_and_check(&file, model, &options, false);
    expect_values(file.file.model->graph, inputs, outputs);
    read_back_end(&file);
    model_destroy(model);
}

static void test_interfaces(void **state) {
    (void)state;
    expect_interface("bert", true,
                     "input_ids:7[batch_size,sequence_length] "
                     "attention_mask:7[batch_size,sequence_length] "
                     "token_type_ids:7[batch_size,sequence_length]",
                     "logits:1[batch_size,3]");
    expect_interface("vit", true, "pixel_values:1[batch_size,3,32,32]",
                     "logits:1[batch_size,7]");
    expect_interface("gpt2", false, "input_ids:7[batch_size,sequence_length]",
                     "logits:1[batch_size,sequence_length,53]");
    expect_interface("marian", true,
                     "input_ids:7[batch_size,encoder_sequence_length] "
                     "attention_mask:7[batch_size,encoder_sequence_length] "
                     "decoder_input_ids:7[batch_size,decoder_sequence_length] "
                     "decoder_attention_mask:7[batch_size,decoder_sequence_length]",
                     "logits:1[batch_size,decoder_sequence_length,48]");
}

/* A table of biases by bucket that layers share is looked up once, with states and
 * without. */
static void test_buckets(void **state) {
    (void)state;
    const char *const text =
        "ir 1\n"
        "input input_ids : i32[N, T]\n"
        "param @e : f32[11, 8] init normal(0.1)\n"
        "param @b : f32[6, 2] init normal(0.1)\n"
        "%1 = embedding($input_ids, @e) : f32[N, T, 8] at embeddings as embed\n"
        "%2 = attention(%1, %1, %1, rel_bias=@b) {heads=2 causal=true buckets=6 "
        "distance=7} : f32[N, T, 8] at decoder.0 as attention\n"
        "%3 = attention(%2, %2, %2, rel_bias=@b) {heads=2 causal=true buckets=6 "
        "distance=7} : f32[N, T, 8] at decoder.1 as attention\n"
        "%4 = linear(%3, @e) : f32[N, T, 11] at head as logits\n"
        "output logits = %4\n";
    for (int cache = 0; cache < 2; cache++) {
        OnnxOptions options = ONNX_DEFAULTS;
        options.cache = cache;
        Model *model = parsed_model(text, 1);
        ReadBack file;
        write_and_check(&file, model, &options, false);
        const OnnxGraph *graph = file.file.model->graph;
        int looked_up = 0;
        for (size_t i = 0; i < graph->n_node; i++)
            looked_up += strcmp(graph->node[i]->op_type, "Gather") == 0 &&
                         strcmp(graph->node[i]->input[0], "b") == 0;
        assert_int_equal(looked_up, 1);
        read_back_end(&file);
        model_destroy(model);
    }
}

static void test_cache(void **state) {
    (void)state;
    const char *const text =
        "ir 1\n"
        "input input_ids : i32[N, T]\n"
        "param @e : f32[11, 8] init normal(0.1)\n"
        "param @w : f32[4, 8] init normal(0.1)\n"
        "%1 = embedding($input_ids, @e) : f32[N, T, 8] at embeddings as embed\n"
        "%2 = linear(%1, @w) : f32[N, T, 4] at decoder.0 as k\n"
        "%3 = attention(%1, %2, %2) {heads=4 kv_heads=2 causal=true} : f32[N, T, 8] at "
        "decoder.0 as attention\n"
        "%4 = linear(%3, @e) : f32[N, T, 11] at head as logits\n"
        "output logits = %4\n";
    Model *model = parsed_model(text, 1);
    ReadBack file;
    write_and_check(&file, model, &ONNX_DEFAULTS, true); /* states are float16, too */
    expect_values(file.file.model->graph,
                  "input_ids:7[batch_size,sequence_length] "
                  "attention_mask:7[batch_size,total_sequence_length] "
                  "past_key_values.0.key:10[batch_size,2,past_sequence_length,2] "
                  "past_key_values.0.value:10[batch_size,2,past_sequence_length,2]",
                  "present.0.key:10[batch_size,2,total_sequence_length,2] "
                  "present.0.value:10[batch_size,2,total_sequence_length,2] "
                  "logits:1[batch_size,sequence_length,11]");
    read_back_end(&file);
    write_and_check(&file, model, &ONNX_DEFAULTS, false);
    const OnnxGraph *graph = file.file.model->graph;
    expect_values(graph,
                  "input_ids:7[batch_size,sequence_length] "
                  "attention_mask:7[batch_size,total_sequence_length] "
                  "past_key_values.0.key:1[batch_size,2,past_sequence_length,2] "
                  "past_key_values.0.value:1[batch_size,2,past_sequence_length,2]",
                  "present.0.key:1[batch_size,2,total_sequence_length,2] "
                  "present.0.value:1[batch_size,2,total_sequence_length,2] "
                  "logits:1[batch_size,sequence_length,11]");
    /* The embedding is the head, too: one initialiser, as it is stored. */
    int tables = 0;
    for (size_t i = 0; i < graph->n_initializer; i++)
        tables += graph->initializer[i]->name[0] == 'e';
    assert_int_equal(tables, 1);
    read_back_end(&file);
    model_destroy(model);
}

/* The operators of a small encoder layer, in their order. */
static void test_operators(void **state) {
    (void)state;
    const char *const text =
        "ir 1\n"
        "input x : f32[N, T, 8]\n"
        "input attention_mask : i32[N, T]\n"
        "param @w : f32[8, 8] init normal(0.1)\n"
        "param @b : f32[8]\n"
        "%1 = linear($x, @w, bias=@b) : f32[N, T, 8] at encoder.0 as q\n"
        "%2 = attention(%1, %1, %1, mask=$attention_mask) {heads=2} : f32[N, T, 8] at "
        "encoder.0 as attention\n"
        "%3 = dropout(%2) : f32[N, T, 8] at encoder.0\n"
        "%4 = add($x, %3) : f32[N, T, 8] at encoder.0 as residual1\n"
        "%5 = layer_norm(%4, @b, @b) : f32[N, T, 8] at encoder.0 as norm1\n"
        "%6 = activation(%5) : f32[N, T, 8] at encoder.0 as ffn_act\n"
        "output last_hidden_state = %6\n";
    const char *const expected =
        "MatMul Add Reshape Transpose Reshape Transpose Reshape Transpose MatMul Div "
        "Unsqueeze Unsqueeze Cast Sub Mul Add Softmax MatMul Transpose Reshape Add "
        "LayerNormalization Div Erf Add Mul Mul";
    Model *model = parsed_model(text, 1);
    Text found = {0};
    ReadBack file;
    write_and_check(&file, model, &ONNX_DEFAULTS, false);
    const OnnxGraph *graph = file.file.model->graph;
    for (size_t i = 0; i < graph->n_node; i++)
        text_add(&found, "%s%s", i ? " " : "", graph->node[i]->op_type);
    assert_string_equal(found.data, expected);
    assert_string_equal(graph->node[0]->name, "/encoder.0/q/MatMul_0");
    assert_string_equal(graph->node[0]->input[1], "w.transposed");
    text_free(&found);
    read_back_end(&file);
    model_destroy(model);
}

/* Every op on tensors of any shape. */
static void test_tensors(void **state) {
    (void)state;
    Model *model = parsed_model(TENSORS_TEXT, 1);
    ReadBack file;
    for (int half = 0; half < 2; half++) {
        write_and_check(&file, model, &ONNX_DEFAULTS, half);
        const OnnxGraph *graph = file.file.model->graph;
        expect_values(graph,
                      "attention_mask:7[batch_size,sequence_length] "
                      "x:1[batch_size,sequence_length,6]",
                      "a:1[batch_size,sequence_length,4] "
                      "b:1[batch_size,sequence_length,2] "
                      "c:1[batch_size,sequence_length,9] "
                      "f:1[batch_size,sequence_length,1] d:1[batch_size,2] "
                      "e:1[batch_size,2,sequence_length,2]");
        assert_int_equal(count_ops(graph, "CumSum"), 1);
        assert_int_equal(count_ops(graph, "Slice"), 4);
        read_back_end(&file);
    }
    model_destroy(model);
}

/* Weights beside the file: the same bytes, at places that the file tells. */
static void test_external(void **state) {
    (void)state;
    OnnxOptions options = ONNX_DEFAULTS;
    Model *model = load_reference("bert");
    char beside[320];
    ReadBack inside, outside;
    snprintf(beside, sizeof beside, "%s_data", path);
    write_model(model, &options, false);
    read_back(&inside, path);
    options.external_above = 1000;
    write_model(model, &options, false);
    read_back(&outside, path);
    check_file(outside.file.model);
    Diag *diag = diag_create();
    Buf *data;
    expect_ok(diag, file_map(&data, beside, diag));
    const OnnxGraph *a = inside.file.model->graph, *b = outside.file.model->graph;
    int external = 0;
    assert_int_equal(a->n_initializer, b->n_initializer);
    for (size_t i = 0; i < a->n_initializer; i++) {
        const OnnxTensor *from = a->initializer[i], *to = b->initializer[i];
        assert_string_equal(from->name, to->name);
        if (!to->n_external_data) continue;
        external++;
        assert_int_equal(to->n_external_data, 3);
        assert_string_equal(to->external_data[0]->value, "model.onnx_data");
        const size_t at = strtoul(to->external_data[1]->value, NULL, 10);
        assert_int_equal(strtoul(to->external_data[2]->value, NULL, 10),
                         from->raw_data.len);
        assert_int_equal(at % 4096, 0);
        assert_true(at + from->raw_data.len <= buf_bytes(data));
        assert_memory_equal((const char *)buf_data(data) + at, from->raw_data.data,
                            from->raw_data.len);
    }
    assert_int_equal(external, model->graph->storage_count);
    buf_release(data);
    read_back_end(&inside);
    read_back_end(&outside);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_refused(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model =
        parsed_model("ir 1\n"
                     "input x : f32[N, 8]\n"
                     "input labels : i32[N]\n"
                     "%1 = cross_entropy($x, $labels) : f32[] at head as loss\n"
                     "output loss = %1\n",
                     1);
    expect_error(diag, onnx_check(model, &ONNX_DEFAULTS, diag), STATUS_MODEL,
                 "this op has no form in ONNX");
    model_destroy(model);
    diag_destroy(diag);
}

/* Early exits: outputs of their own; or one If in the other, by the rule that the model
 * has for them, with nothing behind an exit outside of its If. */
static const char EXITS[] = "ir 1\n"
                            "input x : f32[N, 8]\n"
                            "param @w : f32[8, 8] init normal(0.5)\n"
                            "param @h : f32[3, 8] init normal(0.5)\n"
                            "%1 = linear($x, @w) : f32[N, 8] at encoder.0 as ffn_out\n"
                            "%2 = linear(%1, @h) : f32[N, 3] at exits.0 as head\n"
                            "%3 = linear(%1, @w) : f32[N, 8] at encoder.1 as ffn_out\n"
                            "%4 = linear(%3, @h) : f32[N, 3] at exits.1 as head\n"
                            "%5 = linear(%3, @w) : f32[N, 8] at encoder.2 as ffn_out\n"
                            "%6 = linear(%5, @h) : f32[N, 3] at head as logits\n"
                            "output exit.1 = %2\n"
                            "output exit.2 = %4\n"
                            "output logits = %6\n";

static void test_exits(void **state) {
    (void)state;
    static const int PRODUCTS[] = {
        [ONNX_EXITS_OUTPUTS] = 6, [ONNX_EXITS_NESTED] = 2, [ONNX_EXITS_NONE] = 4};
    static const size_t OUTPUTS[] = {
        [ONNX_EXITS_OUTPUTS] = 3, [ONNX_EXITS_NESTED] = 1, [ONNX_EXITS_NONE] = 1};
    Diag *diag = diag_create();
    OnnxOptions options = ONNX_DEFAULTS;
    Model *model = parsed_model(EXITS, 1);
    options.exits = ONNX_EXITS_NESTED;
    expect_error(diag, onnx_check(model, &options, diag), STATUS_MODEL,
                 "expected a rule for leaving by entropy");
    Tree *rule = tree_put_map(model->arena, model->provenance, "exits");
    tree_put_string(model->arena, rule, "criterion", "entropy");
    Tree *thresholds = tree_put_map(model->arena, rule, "thresholds");
    tree_put_real(model->arena, thresholds, "exit.1", 0.25);
    expect_error(diag, onnx_check(model, &options, diag), STATUS_MODEL, "entropy");
    tree_put_int(model->arena, thresholds, "exit.2", 1);
    for (int exits = ONNX_EXITS_OUTPUTS; exits <= ONNX_EXITS_NONE; exits++) {
        ReadBack file;
        options.exits = exits;
        write_model(model, &options, false);
        read_back(&file, path);
        const OnnxGraph *graph = file.file.model->graph;
        int outside = 0;
        check_file(file.file.model);
        for (size_t i = 0; i < graph->n_node; i++)
            outside += strcmp(graph->node[i]->op_type, "MatMul") == 0;
        assert_int_equal(outside, PRODUCTS[exits]);
        assert_int_equal(count_ops(graph, "If"), exits == ONNX_EXITS_NESTED ? 2 : 0);
        assert_int_equal(graph->n_output, OUTPUTS[exits]);
        read_back_end(&file);
    }
    model_destroy(model);
    diag_destroy(diag);
}

/* Encoder and decoder of a translation model: the states of the source are computed in an
 * If, once for a text. */
static void test_parts(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = load_reference("marian");
    Written written = {0};
    ReadBack file;
    Text in = {0};
    expect_ok(diag, onnx_file_write(model, ONNX_ENCODER, path, false, false,
                                    &ONNX_DEFAULTS, &written, diag));
    read_back(&file, path);
    check_file(file.file.model);
    assert_int_equal(file.file.model->graph->n_input, 2);
    assert_string_equal(file.file.model->graph->output[0]->name, "last_hidden_state");
    read_back_end(&file);
    for (int cache = 0; cache < 2; cache++) {
        OnnxOptions options = ONNX_DEFAULTS;
        options.cache = cache;
        expect_ok(diag, onnx_file_write(model, ONNX_DECODER, path, false, false, &options,
                                        &written, diag));
        read_back(&file, path);
        check_file(file.file.model);
        const OnnxGraph *graph = file.file.model->graph;
        assert_int_equal(count_ops(graph, "If"), cache ? 2 : 0);
        assert_int_equal(graph->n_output, cache ? 1 + 2 * 4 : 1);
        if (cache) list_values(&in, graph->input, graph->n_input);
        read_back_end(&file);
    }
    assert_non_null(strstr(in.data, "encoder_hidden_states:1[batch_size,"
                                    "encoder_sequence_length,32]"));
    assert_non_null(strstr(in.data, "use_cache_branch:9[1]"));
    assert_non_null(strstr(in.data, "past_key_values.1.encoder.value:1[batch_size,4,"
                                    "encoder_sequence_length,8]"));
    assert_non_null(strstr(in.data, "past_key_values.1.decoder.key:1[batch_size,4,"
                                    "past_sequence_length,8]"));
    text_free(&in);
    model_destroy(model);
    diag_destroy(diag);
}

/* Linear attention: a state of constant size, and keys of no bytes that tell the length.
 */
static void test_recurrent(void **state) {
    (void)state;
    const char *const text =
        "ir 1\n"
        "input input_ids : i32[N, T]\n"
        "param @e : f32[11, 8] init normal(0.1)\n"
        "param @f : f32[2, 3, 4] init normal(0.1)\n"
        "%1 = embedding($input_ids, @e) : f32[N, T, 8] at embeddings as embed\n"
        "%2 = feature_map(%1, weight=@f) {heads=2} : f32[N, T, 6] at decoder.0 as "
        "feature_q\n"
        "%3 = linear_attention(%2, %2, %1) {heads=2 causal=true} : f32[N, T, 8] at "
        "decoder.0 as attention\n"
        "%4 = linear(%3, @e) : f32[N, T, 11] at head as logits\n"
        "output logits = %4\n";
    Model *model = parsed_model(text, 1);
    ReadBack file;
    write_and_check(&file, model, &ONNX_DEFAULTS, true); /* states are float16, too */
    expect_values(file.file.model->graph,
                  "input_ids:7[batch_size,sequence_length] "
                  "attention_mask:7[batch_size,total_sequence_length] "
                  "past_recurrent.0:10[batch_size,2,3,5] "
                  "past_key_values.1.key:10[batch_size,1,past_sequence_length,0]",
                  "present_recurrent.0:10[batch_size,2,3,5] "
                  "logits:1[batch_size,sequence_length,11] "
                  "present.1.key:10[batch_size,1,total_sequence_length,0]");
    read_back_end(&file);
    write_and_check(&file, model, &ONNX_DEFAULTS, false);
    const OnnxGraph *graph = file.file.model->graph;
    expect_values(graph,
                  "input_ids:7[batch_size,sequence_length] "
                  "attention_mask:7[batch_size,total_sequence_length] "
                  "past_recurrent.0:1[batch_size,2,3,5] "
                  "past_key_values.1.key:1[batch_size,1,"
                  "past_sequence_length,0]",
                  "present_recurrent.0:1[batch_size,2,3,5] "
                  "logits:1[batch_size,sequence_length,11] "
                  "present.1.key:1[batch_size,1,"
                  "total_sequence_length,0]");
    read_back_end(&file);
    model_destroy(model);
}

/* A near window has the last tokens' keys, features and values beside the state, in a
 * ring of constant size: 2 heads of 4 + 3 + (4 + 1) numbers and whether the token counts.
 */
static void test_window(void **state) {
    (void)state;
    const char *const text =
        "ir 1\n"
        "input input_ids : i32[N, T]\n"
        "param @e : f32[11, 8] init normal(0.1)\n"
        "param @f : f32[2, 3, 4] init normal(0.1)\n"
        "param @g : f32[2] init zeros\n"
        "param @h : f32[2] init ones\n"
        "%1 = embedding($input_ids, @e) : f32[N, T, 8] at embeddings as embed\n"
        "%2 = feature_map(%1, weight=@f) {heads=2} : f32[N, T, 6] at decoder.0 as "
        "feature_q\n"
        "%3 = linear_attention(%2, %2, %1, near_q=%1, near_k=%1, gate=@g, slope=@h) "
        "{heads=2 "
        "causal=true window=7} : f32[N, T, 8] at decoder.0 as attention\n"
        "%4 = linear(%3, @e) : f32[N, T, 11] at head as logits\n"
        "output logits = %4\n";
    Model *model = parsed_model(text, 1);
    for (int half = 0; half < 2; half++) {
        ReadBack file;
        write_and_check(&file, model, &ONNX_DEFAULTS, half);
        char in[400], out[400];
        const int type = half ? 10 : 1;
        snprintf(
            in, sizeof in,
            "input_ids:7[batch_size,sequence_length] "
            "attention_mask:7[batch_size,total_sequence_length] "
            "past_conv.0:%d[batch_size,2,7,13] past_recurrent.0:%d[batch_size,2,3,5] "
            "past_key_values.1.key:%d[batch_size,1,past_sequence_length,0]",
            type, type, type);
        snprintf(out, sizeof out,
                 "present_conv.0:%d[batch_size,2,7,13] "
                 "present_recurrent.0:%d[batch_size,2,3,5] "
                 "logits:1[batch_size,sequence_length,11] "
                 "present.1.key:%d[batch_size,1,total_sequence_length,0]",
                 type, type, type);
        expect_values(file.file.model->graph, in, out);
        read_back_end(&file);
    }
    model_destroy(model);
}

/* Outputs that nothing computes: an input, and what dropout leaves of it. */
static void test_identity(void **state) {
    (void)state;
    Model *model = parsed_model("ir 1\n"
                                "input x : f32[N, 8]\n"
                                "%1 = dropout($x) : f32[N, 8] at head\n"
                                "output a = $x\n"
                                "output b = %1\n",
                                1);
    for (int half = 0; half < 2; half++) {
        ReadBack file;
        write_and_check(&file, model, &ONNX_DEFAULTS, half);
        assert_int_equal(file.file.model->graph->n_output, 2);
        read_back_end(&file);
    }
    model_destroy(model);
}

/* States are known by their layers. */
static void test_layers(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = parsed_model(
        "ir 1\n"
        "input input_ids : i32[N, T]\n"
        "param @e : f32[11, 8] init normal(0.1)\n"
        "%1 = embedding($input_ids, @e) : f32[N, T, 8] at embeddings as embed\n"
        "%2 = attention(%1, %1, %1) {causal=true} : f32[N, T, 8] at decoder.0\n"
        "%3 = attention(%2, %2, %2) {causal=true} : f32[N, T, 8] at decoder.0\n"
        "%4 = linear(%3, @e) : f32[N, T, 11] at head as logits\n"
        "output logits = %4\n",
        1);
    OnnxOptions options = ONNX_DEFAULTS;
    expect_error(diag, onnx_check(model, &options, diag), STATUS_MODEL,
                 "expected a layer of its own");
    options.cache = false;
    write_model(model, &options, false);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_families, enter, leave),
        cmocka_unit_test_setup_teardown(test_interfaces, enter, leave),
        cmocka_unit_test_setup_teardown(test_cache, enter, leave),
        cmocka_unit_test_setup_teardown(test_buckets, enter, leave),
        cmocka_unit_test_setup_teardown(test_tensors, enter, leave),
        cmocka_unit_test_setup_teardown(test_operators, enter, leave),
        cmocka_unit_test_setup_teardown(test_external, enter, leave),
        cmocka_unit_test_setup_teardown(test_exits, enter, leave),
        cmocka_unit_test_setup_teardown(test_parts, enter, leave),
        cmocka_unit_test_setup_teardown(test_recurrent, enter, leave),
        cmocka_unit_test_setup_teardown(test_window, enter, leave),
        cmocka_unit_test_setup_teardown(test_identity, enter, leave),
        cmocka_unit_test_setup_teardown(test_layers, enter, leave),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
