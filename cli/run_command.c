/* compress run: a model's outputs for named inputs, texts or images; compress tokenize.
 */
#include "cli/command.h"
#include "cli/prediction_lines.h"
#include "cli/progress.h"
#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "exec/run/reserve.h"
#include "io/files/path.h"
#include "io/formats/load.h"
#include "ir/model_parts.h"
#include "ir/rewrite.h"
#include "session/early_exits.h"
#include "session/file_batches.h"
#include "session/graph_results.h"
#include "session/output_files.h"
#include "session/session.h"
#include "session/user_inputs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One execution. */
typedef struct Execution {
    Arena *arena;
    Model *model;
    Checkpoint *inputs;
    const char **samples; /* texts or paths that the inputs are of, NULL = of neither */
    UserTexts texts;      /* none = of others */
    Tokenizer *tokenizer; /* of texts; else NULL */
    Batches *data;
    int64_t sizes[DIM_SYMBOLS];
    GraphResults results;
} Execution;

/* The value that feeds a layer: the first operand from outside of its first node. */
static Node *layer_input(const Graph *graph, const char *stack, int layer) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->stack || node->layer != layer || strcmp(node->stack, stack) != 0)
            continue;
        for (int i = 0; i < node->in_count; i++) {
            Node *in = node->in[i];
            if (in && !in->storage && in->layer != layer) return in;
        }
        return NULL;
    }
    return NULL;
}

/* Adds the hidden states of one stack; a recurrence has none but its outputs. */
static Status add_hidden_states(Execution *run, const char *stack, Diag *diag) {
    const Graph *graph = run->model->graph;
    const bool alone =
        strcmp(stack, STACK_ENCODER) == 0 && graph_layer_count(graph, STACK_DECODER) == 0;
    const char *prefix = alone ? "" : arena_printf(run->arena, "%s_", stack);
    const int layers =
        graph_layer_output(graph, stack, 0) ? graph_layer_count(graph, stack) : 0;
    for (int i = 0; i <= layers && layers > 0; i++) {
        Node *node = i == 0 ? layer_input(graph, stack, 0)
                            : graph_layer_output(graph, stack, i - 1);
        if (!node) continue;
        const char *name = arena_printf(run->arena, "%shidden_states.%d", prefix, i);
        TRY(graph_results_add(&run->results, name, node, run->sizes, diag));
    }
    return STATUS_OK;
}

/* Whether a stack begins at `node`: no earlier node has its name. */
static bool begins_stack(const Graph *graph, const Node *node) {
    if (!node->stack) return false;
    for (const Node *earlier = graph->first; earlier != node; earlier = earlier->next)
        if (earlier->stack && strcmp(earlier->stack, node->stack) == 0) return false;
    return true;
}

static Status choose_results(Execution *run, bool hidden, Diag *diag) {
    Graph *graph = run->model->graph;
    run->results =
        graph_results_create(run->arena, graph->output_count + graph->node_count + 1);
    for (int i = 0; i < graph->output_count; i++)
        TRY(graph_results_add(&run->results, graph->outputs[i].name,
                              graph->outputs[i].node, run->sizes, diag));
    for (const Node *node = graph->first; node && hidden; node = node->next)
        if (begins_stack(graph, node)) TRY(add_hidden_states(run, node->stack, diag));
    return STATUS_OK;
}

static Status execute_early(EarlyRun *early, const Execution *run, int threads,
                            const Watch *watch, Diag *diag) {
    Dynamic *ready = NULL;
    const int64_t batches = (run->data->count + EARLY_SAMPLES - 1) / EARLY_SAMPLES;
    Status status = early_open(&ready, early, run->model->graph, batches, diag);
    if (status == STATUS_OK)
        status = early_run(early, ready, run->data, threads, watch, diag);
    dynamic_close(ready);
    return status;
}

/* All outputs, or with `early` what its exits give. */
static Status execute(Execution *run, EarlyRun *early, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    const int threads = threads_choose(flags->threads);
    Graph *graph = run->model->graph;
    Progress progress = progress_create(flags->quiet);
    progress_begin(&progress, 0, 0, "run");
    Watch watch = progress_watch(&progress);
    diag_on_warning(diag, progress_warn, &progress);
    blas_init();
    Status status = threads_reserve(threads, diag);
    if (status == STATUS_OK)
        status = early ? execute_early(early, run, threads, &watch, diag)
                       : graph_results_compute(&run->results, graph, run->data, threads,
                                               &watch, diag);
    progress_clear(&progress);
    diag_on_warning(diag, progress_warn, NULL);
    return status;
}

/* Warns of results that hold NaN or Inf; with --finite they are an error. */
static Status check_finite(const NamedTensor *tensors, int count, const Flags *flags,
                           Diag *diag) {
    Status status = STATUS_OK;
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = &tensors[i].tensor;
        const int64_t at = tensor_find_nonfinite(tensor);
        if (at < 0) continue;
        const int64_t sample = at / (tensor_count(tensor) / tensor->dim[0]) + 1;
        if (flags->finite)
            status = diag_fail(diag, STATUS_MODEL, LOC_NONE, tensors[i].name,
                               "expected finite numbers, found others, first in sample "
                               "%" PRId64,
                               sample);
        else
            diag_warn(diag, LOC_NONE, tensors[i].name,
                      "not all numbers are finite, first in sample %" PRId64, sample);
    }
    return status;
}

/* Writes the results, or prints what is predicted of texts and images. `exits`: the
 * layers behind which samples left, NULL = all ran. */
static Status write_results(const Execution *run, const NamedTensor *tensors, int count,
                            const int32_t *exits, const Flags *flags, Diag *diag) {
    const char *path = flags->output;
    TRY(check_finite(tensors, count, flags, diag));
    for (int i = 0; i < count && !path; i++)
        if (strcmp(tensors[i].name, OUTPUT_LOGITS) == 0 ||
            strcmp(tensors[i].name, OUTPUT_EMBEDDING) == 0) {
            Predictions predictions = {.model = run->model,
                                       .logits = &tensors[i].tensor,
                                       .samples = run->samples,
                                       .texts = &run->texts,
                                       .tokenizer = run->tokenizer,
                                       .exits = exits};
            return prediction_lines_print(run->arena, &predictions, flags->json, diag);
        }
    TRY(safetensors_write(path, tensors, count, diag));
    for (int i = 0; i < count; i++) {
        char shape[SHAPE_TEXT_BYTES];
        const Tensor *tensor = &tensors[i].tensor;
        printf("%s %s\n", tensors[i].name, shape_text(shape, tensor->rank, tensor->dim));
    }
    return STATUS_OK;
}

/* The texts of --text or --jsonl. */
static Status read_texts(UserTexts *out, const Cli *cli, Diag *diag) {
    if (cli->flags.jsonl) return user_texts_read(out, cli->arena, cli->flags.jsonl, diag);
    user_texts_of(out, cli->arena, &cli->flags.text);
    return STATUS_OK;
}

static Status read_text_inputs(Execution *run, const Cli *cli, Diag *diag) {
    UserTexts *texts = &run->texts;
    TRY(read_texts(texts, cli, diag));
    TRY(user_tokenizer_read(&run->tokenizer, cli->flags.tokenizer, run->model,
                            cli->args[0], diag));
    TRY(user_inputs_of_texts(&run->inputs, texts, run->tokenizer, run->model, diag));
    run->samples = ARENA_ARRAY(run->arena, const char *, (size_t)texts->count);
    for (int i = 0; i < texts->count; i++) run->samples[i] = texts->items[i].first.text;
    return STATUS_OK;
}

/* What the model is run on, of whichever kind was given. */
static Status read_inputs(Execution *run, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    if (flags->input) return safetensors_read(&run->inputs, flags->input, diag);
    if (flags->image.count == 0) return read_text_inputs(run, cli, diag);
    run->samples = flags->image.items;
    return user_inputs_of_images(&run->inputs, &flags->image, flags->preprocessor,
                                 run->model, diag);
}

/* Checks that one kind of input was given, and somewhere to write the results to. */
static Status check_flags(const Flags *flags, Diag *diag) {
    const int kinds = (flags->input != NULL) + (flags->text.count > 0) +
                      (flags->jsonl != NULL) + (flags->image.count > 0);
    if (kinds != 1)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         kinds == 0
                             ? "expected --input FILE, --text TEXT, --jsonl FILE or "
                               "--image FILE"
                             : "expected one of --input, --text, --jsonl and "
                               "--image, found several");
    if (flags->input && !flags->output)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "expected --output FILE");
    if (flags->json && flags->output)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --json or --output, found both: numbers go to a file, "
                         "or what they say is printed");
    if (flags->leave_early && flags->hidden_states)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --leave-early or --hidden-states, found both: layers "
                         "behind an exit are not run");
    return STATUS_OK;
}

/* Warns of an output whose name says that it holds something else. */
static void warn_of_ending(const char *path, Diag *diag) {
    static const char *const ENDINGS[] = {".json", ".jsonl", ".ndjson", ".csv",
                                          ".tsv",  ".txt",   ".npz",    ".npy"};
    for (size_t i = 0; path && i < sizeof ENDINGS / sizeof *ENDINGS; i++)
        if (text_ends_with(path, ENDINGS[i]))
            diag_warn(diag, LOC_NONE, "--output",
                      "%s becomes a file of safetensors; --json prints predictions as "
                      "lines of JSON",
                      path);
}

/* Checks the place of the results: it is none of what is read. */
static Status check_output(Arena *arena, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    const char *items[] = {cli->args[0], flags->input, flags->jsonl, flags->tokenizer};
    const StringList read = {items, sizeof items / sizeof *items};
    TRY(output_check(arena, "--output", flags->output, diag));
    if (!flags->force) {
        TRY(output_replace_check("--output", flags->output, OUTPUT_TENSORS, &flags->image,
                                 diag));
        TRY(output_replace_check("--output", flags->output, OUTPUT_TENSORS, &read, diag));
    }
    warn_of_ending(flags->output, diag);
    return STATUS_OK;
}

/* Fails as the model gives nothing that people read; says what makes it do so. */
static Status fail_unprinted(const Graph *graph, Diag *diag) {
    diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
              "expected --output FILE: what the model gives is not printed");
    if (graph_task(graph) == TASK_NEXT_TOKEN)
        diag_hint(diag, "`compress generate` goes on with a text");
    else if (graph_output(graph, "last_hidden_state"))
        diag_hint(diag, "a recipe's `model: {path: ..., pooling: mean}` makes it embed "
                        "texts, which is printed");
    return STATUS_USAGE;
}

static Status open_model(Execution *run, EarlyRun *early, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    TRY(check_flags(flags, diag));
    TRY(check_output(run->arena, cli, diag));
    TRY(model_load(&run->model, cli->args[0], ops_table(), true, diag));
    if (early)
        TRY(early_find(early, run->arena, run->model, cli->args[0], "--leave-early",
                       diag));
    const Task task = graph_task(run->model->graph);
    const char *output = predictions_output(task);
    if (!flags->output && !(output && graph_output(run->model->graph, output)))
        return fail_unprinted(run->model->graph, diag);
    if (!flags->output && task == TASK_LABEL_TOKENS && flags->image.count > 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --text or --jsonl: the model labels words");
    TRY(read_inputs(run, cli, diag));
    TRY(file_batches_create(&run->data, run->arena, run->model->graph, run->inputs, false,
                            run->sizes, diag));
    /* The sizes of the data take the place of all symbols but N. */
    int64_t sizes[DIM_SYMBOLS];
    memcpy(sizes, run->sizes, sizeof sizes);
    sizes[DIM_INDEX(DIM_N)] = 0;
    return graph_bind(run->model->graph, sizes, diag);
}

static Status run_model(Execution *run, const Cli *cli, Diag *diag) {
    TRY(open_model(run, NULL, cli, diag));
    TRY(choose_results(run, cli->flags.hidden_states, diag));
    TRY(execute(run, NULL, cli, diag));
    return write_results(run, run->results.tensors, run->results.count, NULL, &cli->flags,
                         diag);
}

static Status run_early(Execution *run, const Cli *cli, Diag *diag) {
    EarlyRun early = {0};
    Status status = open_model(run, &early, cli, diag);
    if (status == STATUS_OK) status = execute(run, &early, cli, diag);
    if (status == STATUS_OK)
        status = write_results(run, early.results, 2,
                               tensor_data(&early.results[1].tensor), &cli->flags, diag);
    if (status == STATUS_OK && !cli->flags.quiet)
        fprintf(stderr, "mean depth %.2f of %d\n", early_mean_depth(&early),
                early.exits.items[early.exits.count - 1].layer);
    early_release(&early);
    return status;
}

Status command_run(const Cli *cli, Diag *diag) {
    Execution run = {.arena = cli->arena};
    Status status =
        cli->flags.leave_early ? run_early(&run, cli, diag) : run_model(&run, cli, diag);
    graph_results_release(&run.results);
    batches_destroy(run.data);
    tokenizer_destroy(run.tokenizer);
    checkpoint_destroy(run.inputs);
    model_destroy(run.model);
    return status;
}

/* ---- compress tokenize ---- */

/* Reads a tokenizer's own file or folder, or that of a model. */
static Status open_tokenizer(Tokenizer **out, const char *path, Diag *diag) {
    static const char *const ENDINGS[] = {".json", ".txt", ".model", ".spm"};
    bool file = false;
    for (size_t i = 0; i < sizeof ENDINGS / sizeof *ENDINGS; i++)
        file |= text_ends_with(path, ENDINGS[i]);
    Model *model;
    if (file || path_is_folder(path)) return tokenizer_read(out, path, diag);
    TRY(model_load(&model, path, ops_table(), false, diag));
    const Status status = user_tokenizer_read(out, NULL, model, path, diag);
    model_destroy(model);
    return status;
}

/* One line of JSON for each text. */
static Status print_tokens(const UserTexts *texts, const Tokenizer *tokenizer,
                           Diag *diag) {
    Status status = STATUS_OK;
    for (int i = 0; i < texts->count && status == STATUS_OK; i++) {
        Arena *arena = arena_create();
        Text line = {0};
        Tree *tokens;
        status = user_text_tokens(&tokens, arena, &texts->items[i], tokenizer, diag);
        if (status == STATUS_OK) {
            tree_print_json(&line, tokens, 0);
            puts(line.data);
        }
        text_free(&line);
        arena_destroy(arena);
    }
    return status;
}

Status command_tokenize(const Cli *cli, Diag *diag) {
    Tokenizer *tokenizer;
    UserTexts texts;
    if ((cli->flags.text.count > 0) == (cli->flags.jsonl != NULL))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --text TEXT or --jsonl FILE");
    TRY(read_texts(&texts, cli, diag));
    TRY(open_tokenizer(&tokenizer, cli->args[0], diag));
    const Status status = print_tokens(&texts, tokenizer, diag);
    tokenizer_destroy(tokenizer);
    return status;
}
