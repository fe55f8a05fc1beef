/* The library: a model's outputs for tensors. */
#include "exec/run/params.h"
#include "exec/run/reserve.h"
#include "session/file_batches.h"
#include "session/library_runner.h"

#include <stdlib.h>
#include <string.h>

/* ---- tensors of the caller ---- */

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

/* A model that was made ready to leave at its exits, by the first call that wanted it. */
typedef struct RunnerExits {
    Arena *arena; /* NULL = nothing is there */
    Model *model; /* a copy */
    EarlyRun found;
    Dynamic *ready;       /* NULL = it is not */
    pthread_mutex_t lock; /* during a call */
} RunnerExits;

struct CompressRunner {
    Model *model; /* a copy */
    Node **nodes; /* its outputs */

    /* one for each of the most calls that there were at once, with the same weights */
    const Forward *first; /* NULL = it is not ready */
    Forward **idle;       /* those that no call has */
    int idle_count, count;
    Tokenizer *tokenizer; /* of predictions; NULL = not read yet */
    char *tokenizer_path; /* "" = the model's own */
    pthread_mutex_t lock; /* of these */

    RunnerExits exits;
};

static void exits_clear(RunnerExits *exits) {
    dynamic_close(exits->ready);
    model_destroy(exits->model);
    arena_destroy(exits->arena);
    exits->ready = NULL;
    exits->model = NULL;
    exits->arena = NULL;
}

static void runner_close(CompressRunner *runner) {
    for (int i = 0; i < runner->idle_count; i++) forward_close(runner->idle[i]);
    free(runner->idle);
    free(runner->nodes);
    tokenizer_destroy(runner->tokenizer);
    free(runner->tokenizer_path);
    exits_clear(&runner->exits);
    model_destroy(runner->model);
    pthread_mutex_destroy(&runner->exits.lock);
    pthread_mutex_destroy(&runner->lock);
}

static void runner_open(CompressRunner *runner, Model *model) {
    *runner = (CompressRunner){.model = model_copy(model)};
    pthread_mutex_init(&runner->lock, NULL);
    pthread_mutex_init(&runner->exits.lock, NULL);
    const Graph *graph = runner->model->graph;
    runner->nodes = memory_alloc((size_t)graph->output_count + 1, sizeof *runner->nodes);
    for (int i = 0; i < graph->output_count; i++)
        runner->nodes[i] = graph->outputs[i].node;
}

static void give_forward(CompressRunner *runner, Forward *forward) {
    pthread_mutex_lock(&runner->lock);
    runner->idle[runner->idle_count++] = forward;
    pthread_mutex_unlock(&runner->lock);
}

/* Makes it ready for about so many runs of the graph, unless it is. */
static Status runner_make_ready(CompressRunner *runner, int64_t runs, Diag *diag) {
    Graph *graph = runner->model->graph;
    Forward *forward = NULL;
    if (runner->first) return STATUS_OK;
    TRY(forward_open(&forward, graph, runner->nodes, graph->output_count, runs, diag));
    runner->first = forward;
    runner->count = 1;
    runner->idle = memory_alloc(1, sizeof *runner->idle);
    give_forward(runner, forward);
    return STATUS_OK;
}

/* One that no other call has, until it is given back. */
static Forward *take_forward(CompressRunner *runner) {
    Forward *forward;
    pthread_mutex_lock(&runner->lock);
    if (runner->idle_count > 0) {
        forward = runner->idle[--runner->idle_count];
    } else {
        forward = forward_beside(runner->first);
        runner->count++;
        runner->idle =
            memory_grow(runner->idle, (size_t)runner->count, sizeof *runner->idle);
    }
    pthread_mutex_unlock(&runner->lock);
    return forward;
}

static Status compute(const LibraryCall *call, CompressRunner *runner,
                      GraphResults *results, const Batches *data) {
    Forward *forward = take_forward(runner);
    const Status status = graph_results_compute_by(
        results, forward, data, call->context->threads, &call->watch, call->diag);
    give_forward(runner, forward);
    return status;
}

Status runner_compute(GraphResults *results, const LibraryCall *call,
                      CompressRunner *runner, const Checkpoint *inputs) {
    const Graph *graph = runner->model->graph;
    Batches *data = NULL;
    int64_t sizes[DIM_SYMBOLS];
    TRY(file_batches_create(&data, call->arena, graph, inputs, true, sizes, call->diag));
    *results = graph_results_create(call->arena, graph->output_count);
    Status status = STATUS_OK;
    for (int i = 0; i < graph->output_count && status == STATUS_OK; i++)
        status = graph_results_add(results, graph->outputs[i].name,
                                   graph->outputs[i].node, sizes, call->diag);
    if (status == STATUS_OK) status = threads_reserve(call->context->threads, call->diag);
    if (status == STATUS_OK)
        status = runner_make_ready(
            runner, (data->count + RESULTS_SAMPLES - 1) / RESULTS_SAMPLES, call->diag);
    if (status == STATUS_OK) status = compute(call, runner, results, data);
    batches_destroy(data);
    return status;
}

/* Makes the exits ready, unless they are. */
static Status exits_make_ready(CompressRunner *runner, Diag *diag) {
    RunnerExits *exits = &runner->exits;
    if (exits->ready) return STATUS_OK;
    exits_clear(exits);
    exits->arena = arena_create();
    exits->model = model_copy(runner->model);
    TRY(early_find(&exits->found, exits->arena, exits->model, "the model", "leave_early",
                   diag));
    return early_open(&exits->ready, &exits->found, exits->model->graph, PARAMS_ALWAYS,
                      diag);
}

static Status leave_early(EarlyRun *run, const LibraryCall *call, CompressRunner *runner,
                          const Batches *data) {
    TRY(exits_make_ready(runner, call->diag));
    TRY(threads_reserve(call->context->threads, call->diag));
    *run = runner->exits.found;
    return early_run(run, runner->exits.ready, data, call->context->threads, &call->watch,
                     call->diag);
}

Status runner_leave_early(EarlyRun *run, const LibraryCall *call, CompressRunner *runner,
                          const Checkpoint *inputs) {
    Batches *data = NULL;
    int64_t sizes[DIM_SYMBOLS];
    TRY(file_batches_create(&data, call->arena, runner->model->graph, inputs, true, sizes,
                            call->diag));
    pthread_mutex_lock(&runner->exits.lock);
    const Status status = leave_early(run, call, runner, data);
    pthread_mutex_unlock(&runner->exits.lock);
    batches_destroy(data);
    return status;
}

const Model *runner_model(const CompressRunner *runner) {
    return runner->model;
}

Tokenizer *runner_tokenizer(CompressRunner *runner, const char **path) {
    pthread_mutex_lock(&runner->lock);
    Tokenizer *tokenizer = runner->tokenizer;
    if (path) *path = runner->tokenizer_path;
    pthread_mutex_unlock(&runner->lock);
    return tokenizer;
}

void runner_keep_tokenizer(CompressRunner *runner, Tokenizer *tokenizer,
                           const char *path) {
    const size_t length = strlen(path) + 1;
    pthread_mutex_lock(&runner->lock);
    runner->tokenizer = tokenizer;
    runner->tokenizer_path = memcpy(memory_alloc(length, 1), path, length);
    pthread_mutex_unlock(&runner->lock);
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

static Status run_inputs(const LibraryCall *call, CompressRunner *runner,
                         const CompressTensor *inputs, int count,
                         CompressTensor **outputs, size_t *output_count) {
    GraphResults results = {0};
    Checkpoint *given = checkpoint_create("inputs", count);
    Status status = wrap_inputs(given, inputs, (size_t)count, call->diag);
    if (status == STATUS_OK) status = runner_compute(&results, call, runner, given);
    if (status == STATUS_OK)
        status = give_results(&results, outputs, output_count, call->diag);
    graph_results_release(&results);
    checkpoint_destroy(given);
    return status;
}

CompressStatus compress_run(CompressContext *context, const CompressModel *model,
                            const CompressTensor *inputs, size_t count,
                            CompressTensor **outputs, size_t *output_count) {
    LibraryCall call;
    CompressRunner runner;
    if (outputs) *outputs = NULL;
    if (output_count) *output_count = 0;
    if (!library_begin(&call, context, LIBRARY_COMPUTES)) return COMPRESS_USAGE;
    Status status =
        check_run(&call, model, "model", inputs, count, outputs, output_count);
    if (status != STATUS_OK) return library_end(&call, status);
    runner_open(&runner, model->model);
    status = run_inputs(&call, &runner, inputs, (int)count, outputs, output_count);
    runner_close(&runner);
    return library_end(&call, status);
}

static void runner_free(CompressRunner *runner) {
    runner_close(runner);
    free(runner);
}

CompressStatus compress_prepare(CompressContext *context, const CompressModel *model,
                                CompressRunner **out) {
    LibraryCall call;
    if (out) *out = NULL;
    if (!library_begin(&call, context, LIBRARY_COMPUTES)) return COMPRESS_USAGE;
    Status status = library_need(&call, model, "model");
    if (status == STATUS_OK) status = library_need(&call, out, "out");
    if (status != STATUS_OK) return library_end(&call, status);
    CompressRunner *runner = memory_alloc(1, sizeof *runner);
    runner_open(runner, model->model);
    status = runner_make_ready(runner, PARAMS_ALWAYS, call.diag);
    if (status == STATUS_OK)
        *out = runner;
    else
        runner_free(runner);
    return library_end(&call, status);
}

CompressStatus compress_run_prepared(CompressContext *context, CompressRunner *runner,
                                     const CompressTensor *inputs, size_t count,
                                     CompressTensor **outputs, size_t *output_count) {
    LibraryCall call;
    if (outputs) *outputs = NULL;
    if (output_count) *output_count = 0;
    if (!library_begin(&call, context, LIBRARY_COMPUTES)) return COMPRESS_USAGE;
    Status status =
        check_run(&call, runner, "runner", inputs, count, outputs, output_count);
    if (status == STATUS_OK)
        status = run_inputs(&call, runner, inputs, (int)count, outputs, output_count);
    return library_end(&call, status);
}

void compress_free_runner(CompressRunner *runner) {
    if (runner && !library_in_call()) runner_free(runner);
}

void compress_free_tensors(CompressTensor *tensors) {
    free(tensors);
}
