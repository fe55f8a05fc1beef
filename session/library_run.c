/* The library: a model's outputs for tensors, and texts that a language model makes. */
#include "exec/generate/decode.h"
#include "exec/generate/sample.h"
#include "exec/run/params.h"
#include "exec/run/reserve.h"
#include "session/file_batches.h"
#include "session/graph_results.h"
#include "session/library.h"
#include "session/made_text.h"
#include "session/prompt.h"
#include "session/user_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- outputs for tensors ---- */

static const DType dtypes[] = {DTYPE_F32, DTYPE_I32, DTYPE_I64};
_Static_assert(COMPRESS_RANK_MAX == RANK_MAX, "the largest rank");
enum { INPUTS_MAX = 10000 }; /* more than a graph has */

/* Checks a tensor of the caller and wraps its data. */
static Status wrap_input(NamedTensor *out, const CompressTensor *input, Diag *diag) {
    int64_t count;
    size_t bytes;
    if (!input->name)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected an input's name, found none");
    if ((unsigned)input->type >= sizeof dtypes / sizeof *dtypes || input->rank < 0 ||
        input->rank > RANK_MAX ||
        !shape_size(dtypes[input->type], input->rank, input->dim, &count, &bytes) ||
        (count > 0 && !input->data))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, input->name,
                         "expected a type, a rank of at most %d, dimensions and data",
                         RANK_MAX);
    out->name = input->name;
    out->tensor = tensor_shape(dtypes[input->type], input->rank, input->dim);
    out->tensor.buf = buf_wrap(input->data, bytes, NULL);
    return STATUS_OK;
}

static Status wrap_inputs(Checkpoint *out, const CompressTensor *inputs, size_t count,
                          Diag *diag) {
    for (size_t i = 0; i < count; i++) {
        if (inputs[i].name && checkpoint_find(out, inputs[i].name))
            return diag_fail(diag, STATUS_USAGE, LOC_NONE, inputs[i].name,
                             "expected one input of this name, found several");
        TRY(wrap_input(&out->tensors[out->count], &inputs[i], diag));
        out->count++;
        checkpoint_sort(out);
    }
    return STATUS_OK;
}

/* The results as tensors of the caller, in one piece of memory. */
static Status give_results(const GraphResults *results, CompressTensor **outputs,
                           size_t *count, Diag *diag) {
    size_t bytes = (size_t)results->count * sizeof **outputs;
    for (int i = 0; i < results->count; i++)
        bytes += tensor_bytes(&results->tensors[i].tensor) +
                 strlen(results->tensors[i].name) + 1 + sizeof(float);
    char *memory = malloc(bytes + 1);
    if (!memory)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "expected %zu bytes for the outputs", bytes);
    CompressTensor *tensor = *outputs = (CompressTensor *)memory;
    float *data = (float *)(tensor + results->count);
    for (int i = 0; i < results->count; i++, tensor++) {
        const Tensor *result = &results->tensors[i].tensor;
        *tensor =
            (CompressTensor){.type = COMPRESS_F32, .rank = result->rank, .data = data};
        memcpy(tensor->dim, result->dim, sizeof tensor->dim);
        memcpy(data, tensor_data(result), tensor_bytes(result));
        data += tensor_count(result);
    }
    char *name = (char *)data;
    for (int i = 0; i < results->count; i++) {
        (*outputs)[i].name = strcpy(name, results->tensors[i].name);
        name += strlen(name) + 1;
    }
    *count = (size_t)results->count;
    return STATUS_OK;
}

/* ---- runners ---- */

struct CompressRunner {
    Model *model; /* a copy */
    Node **nodes; /* its outputs */
    Forward *forward;
};

static void runner_close(CompressRunner *runner) {
    forward_close(runner->forward);
    free(runner->nodes);
    model_destroy(runner->model);
}

/* For about so many runs of the graph. */
static Status runner_open(CompressRunner *runner, const LibraryCall *call, Model *model,
                          int64_t runs) {
    *runner = (CompressRunner){.model = model_copy(model)};
    Graph *graph = runner->model->graph;
    runner->nodes = memory_alloc((size_t)graph->output_count + 1, sizeof *runner->nodes);
    for (int i = 0; i < graph->output_count; i++)
        runner->nodes[i] = graph->outputs[i].node;
    return forward_open(&runner->forward, graph, runner->nodes, graph->output_count, runs,
                        call->diag);
}

/* Computes all outputs, which must be real, for samples. */
static Status run_samples(const LibraryCall *call, const CompressRunner *runner,
                          const Checkpoint *inputs, GraphResults *results) {
    const Graph *graph = runner->model->graph;
    Batches *data = NULL;
    int64_t sizes[DIM_SYMBOLS];
    TRY(file_batches_create(&data, call->arena, graph, inputs, sizes, call->diag));
    *results = graph_results_create(call->arena, graph->output_count);
    Status status = STATUS_OK;
    for (int i = 0; i < graph->output_count && status == STATUS_OK; i++)
        status = graph_results_add(results, graph->outputs[i].name,
                                   graph->outputs[i].node, sizes, call->diag);
    if (status == STATUS_OK) status = threads_reserve(call->context->threads, call->diag);
    if (status == STATUS_OK)
        status =
            graph_results_compute_by(results, runner->forward, data,
                                     call->context->threads, &call->watch, call->diag);
    batches_destroy(data);
    return status;
}

static Status check_run(const LibraryCall *call, const void *model, const char *name,
                        const CompressTensor *inputs, size_t count,
                        CompressTensor **outputs, const size_t *output_count) {
    TRY(library_need(call, model, name));
    TRY(library_need(call, outputs, "outputs"));
    TRY(library_need(call, output_count, "output_count"));
    if (count > 0) TRY(library_need(call, inputs, "inputs"));
    if (count <= INPUTS_MAX) return STATUS_OK;
    return diag_fail(call->diag, STATUS_USAGE, LOC_NONE, "count",
                     "expected at most %d inputs, found %zu", INPUTS_MAX, count);
}

static Status run_inputs(const LibraryCall *call, const CompressRunner *runner,
                         const CompressTensor *inputs, int count,
                         CompressTensor **outputs, size_t *output_count) {
    GraphResults results = {0};
    Checkpoint *given = checkpoint_create("inputs", count);
    Status status = wrap_inputs(given, inputs, (size_t)count, call->diag);
    if (status == STATUS_OK) status = run_samples(call, runner, given, &results);
    if (status == STATUS_OK)
        status = give_results(&results, outputs, output_count, call->diag);
    graph_results_release(&results);
    checkpoint_destroy(given);
    return status;
}

/* Runs of the graph that so many inputs come to, if their first dimension is samples. */
static int64_t runs_of(const CompressTensor *inputs, size_t count) {
    const bool known = count > 0 && inputs[0].rank > 0 && inputs[0].dim[0] > 0;
    return known ? (inputs[0].dim[0] - 1) / RESULTS_SAMPLES + 1 : 1;
}

CompressStatus compress_run(CompressContext *context, const CompressModel *model,
                            const CompressTensor *inputs, size_t count,
                            CompressTensor **outputs, size_t *output_count) {
    LibraryCall call;
    CompressRunner runner = {0};
    if (outputs) *outputs = NULL;
    if (output_count) *output_count = 0;
    if (!library_begin(&call, context)) return COMPRESS_USAGE;
    Status status =
        check_run(&call, model, "model", inputs, count, outputs, output_count);
    if (status == STATUS_OK)
        status = runner_open(&runner, &call, model->model, runs_of(inputs, count));
    if (status == STATUS_OK)
        status = run_inputs(&call, &runner, inputs, (int)count, outputs, output_count);
    runner_close(&runner);
    return library_end(&call, status);
}

CompressStatus compress_prepare(CompressContext *context, const CompressModel *model,
                                CompressRunner **out) {
    LibraryCall call;
    if (out) *out = NULL;
    if (!library_begin(&call, context)) return COMPRESS_USAGE;
    Status status = library_need(&call, model, "model");
    if (status == STATUS_OK) status = library_need(&call, out, "out");
    if (status != STATUS_OK) return library_end(&call, status);
    CompressRunner *runner = memory_alloc(1, sizeof *runner);
    status = runner_open(runner, &call, model->model, PARAMS_OFTEN);
    if (status == STATUS_OK)
        *out = runner;
    else
        compress_free_runner(runner);
    return library_end(&call, status);
}

CompressStatus compress_run_prepared(CompressContext *context, CompressRunner *runner,
                                     const CompressTensor *inputs, size_t count,
                                     CompressTensor **outputs, size_t *output_count) {
    LibraryCall call;
    if (outputs) *outputs = NULL;
    if (output_count) *output_count = 0;
    if (!library_begin(&call, context)) return COMPRESS_USAGE;
    Status status =
        check_run(&call, runner, "runner", inputs, count, outputs, output_count);
    if (status == STATUS_OK)
        status = run_inputs(&call, runner, inputs, (int)count, outputs, output_count);
    return library_end(&call, status);
}

void compress_free_runner(CompressRunner *runner) {
    if (!runner) return;
    runner_close(runner);
    free(runner);
}

void compress_free_tensors(CompressTensor *tensors) {
    free(tensors);
}

/* ---- texts ---- */

typedef struct GenerateKeys {
    int64_t max_tokens, top_k, seed;
    double temperature, top_p, min_p, repetition_penalty;
    const char *tokenizer;
} GenerateKeys;

static const Field generate_fields[] = {
    F_INT(GenerateKeys, max_tokens, 1, 10000000, "most tokens to make"),
    F_REAL(GenerateKeys, temperature, 0, 1000, "divides the logits; 0: the likeliest"),
    F_INT(GenerateKeys, top_k, 0, 10000000, "of the most likely ones only; 0 = all"),
    F_REAL(GenerateKeys, top_p, 1e-9, 1, "of the least set that reaches this"),
    F_REAL(GenerateKeys, min_p, 0, 1, "of those at least this times the likeliest"),
    F_REAL(GenerateKeys, repetition_penalty, 1e-9, 1000, "of tokens that were there"),
    F_INT(GenerateKeys, seed, 0, 1000000000000, "of what is drawn"),
    F_STRING(GenerateKeys, tokenizer, "path of the tokenizer", .nullable = true),
    F_END,
};

typedef struct Writing {
    LibraryCall *call;
    GenerateKeys keys;
    Tokenizer *tokenizer;
    Decoder *decoder;
    Sampler *sampler;
    MadeText text;
    int32_t *prompt;
    int64_t prompt_count;
} Writing;

static Status open_writing(Writing *w, Model *model, const char *prompt) {
    LibraryCall *call = w->call;
    Diag *diag = call->diag;
    TRY(user_tokenizer_read(&w->tokenizer, w->keys.tokenizer, model, "the model", diag));
    TRY(prompt_tokens(&w->prompt, &w->prompt_count, call->arena, w->tokenizer,
                      (TextSpan){prompt, strlen(prompt)}, LOC_FILE("prompt"), diag));
    TRY(prompt_check_positions(model, w->prompt_count, w->keys.max_tokens, diag));
    const DecodeOptions options = {.capacity = w->prompt_count + w->keys.max_tokens,
                                   .threads = call->context->threads,
                                   .watch = &call->watch};
    TRY(decoder_create(&w->decoder, model->graph, &options, diag));
    return prompt_check_vocabulary(model, decoder_vocabulary(w->decoder), w->tokenizer,
                                   diag);
}

/* Makes tokens until the text ends. */
static Status write_tokens(Writing *w) {
    LibraryCall *call = w->call;
    const GenerateKeys *keys = &w->keys;
    const Sampling sampling = {.temperature = keys->temperature,
                               .top_k = keys->top_k,
                               .top_p = keys->top_p,
                               .min_p = keys->min_p,
                               .repetition_penalty = keys->repetition_penalty,
                               .seed = (uint64_t)keys->seed};
    const int32_t end = tokenizer_specials(w->tokenizer)->eos;
    w->sampler = sampler_create(decoder_vocabulary(w->decoder));
    sampler_start(w->sampler, &sampling);
    sampler_see(w->sampler, w->prompt, w->prompt_count);
    Ticker ticker = {.watch = &call->watch};
    for (int64_t made = 0; made < keys->max_tokens; made++) {
        ticker_progress(&ticker, made, keys->max_tokens, NAN, false);
        TRY(ticker_go_on(&ticker, call->diag));
        const int32_t token = sampler_draw(w->sampler, decoder_logits(w->decoder),
                                           decoder_position(w->decoder));
        if (token == end) break;
        sampler_see(w->sampler, &token, 1);
        TRY(made_text_add(&w->text, token, call->diag));
        if (made + 1 < keys->max_tokens) TRY(decoder_step(w->decoder, token, call->diag));
    }
    made_text_finish(&w->text);
    return STATUS_OK;
}

static Status write_text(Writing *w, Model *model, const char *prompt,
                         const char *options) {
    static const StringList no_stops;
    LibraryCall *call = w->call;
    Tree *map;
    w->keys = (GenerateKeys){.max_tokens = 128, .top_p = 1, .repetition_penalty = 1};
    TRY(library_options(&map, call, "options", options));
    TRY(fields_bind(generate_fields, map, &w->keys, call->arena, STATUS_USAGE,
                    call->diag));
    TRY(open_writing(w, model, prompt));
    TRY(decoder_append(w->decoder, w->prompt, w->prompt_count, call->diag));
    TRY(made_text_start(&w->text, w->tokenizer, &no_stops, w->prompt, w->prompt_count,
                        call->diag));
    return write_tokens(w);
}

CompressStatus compress_generate(CompressContext *context, const CompressModel *model,
                                 const char *prompt, const char *options, char **text) {
    LibraryCall call;
    Writing w = {.call = &call};
    if (text) *text = NULL;
    if (!library_begin(&call, context)) return COMPRESS_USAGE;
    Status status = library_need(&call, model, "model");
    if (status == STATUS_OK) status = library_need(&call, text, "text");
    if (status != STATUS_OK) return library_end(&call, status);
    Model *copy = model_copy(model->model);
    status = write_text(&w, copy, prompt ? prompt : "", options);
    if (status == STATUS_OK) *text = strdup(w.text.made.data ? w.text.made.data : "");
    if (status == STATUS_OK && !*text)
        status = diag_fail(call.diag, STATUS_MEMORY, LOC_NONE, NULL,
                           "expected memory for the text");
    made_text_free(&w.text);
    sampler_destroy(w.sampler);
    decoder_destroy(w.decoder);
    tokenizer_destroy(w.tokenizer);
    model_destroy(copy);
    return library_end(&call, status);
}
