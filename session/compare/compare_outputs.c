/* Running two models on the same inputs and comparing what comes out. */
#include "session/compare/compare_outputs.h"

#include "exec/linalg/blas.h"
#include "exec/plan/plan_build.h"
#include "exec/run/reserve.h"
#include "io/formats/safetensors.h"
#include "ir/model_parts.h"
#include "ir/random.h"
#include "ir/rewrite.h"
#include "passes/nodes.h"
#include "session/file_batches.h"
#include "session/graph_results.h"
#include "session/user_inputs.h"

#include <math.h>
#include <string.h>

/* Samples, tokens and masked positions that are drawn, where models leave them open. */
#define DRAWN_SAMPLES 4
#define DRAWN_TOKENS  16
#define DRAWN_MASKED  4

/* One of the two models while it is run. */
typedef struct Side {
    const Graph *open; /* whose sizes are open */
    Model *model;      /* a copy, whose graph is bound to the sizes of the inputs */
    const char *path;
    Checkpoint *inputs;
    Tokenizer *tokenizer;
    Batches *data;
    GraphResults results;
} Side;

/* ---- inputs that are drawn ---- */

static Status side_plan(Plan **out, const Side *side, const int64_t sizes[DIM_SYMBOLS],
                        Node **results, Diag *diag) {
    Graph *graph = side->model->graph;
    PlanOptions options = {.precision = PRECISION_F32, .results = results};
    memcpy(options.sizes, sizes, sizeof options.sizes);
    for (int i = 0; i < graph->output_count; i++) results[i] = graph->outputs[i].node;
    options.result_count = graph->output_count;
    return plan_create(out, graph, &options, diag);
}

/* Sizes that both models can be run with. */
static void choose_sizes(Side sides[2], Arena *arena, int64_t sizes[DIM_SYMBOLS]) {
    sizes[DIM_INDEX(DIM_N)] = DRAWN_SAMPLES;
    sizes[DIM_INDEX(DIM_T)] = sizes[DIM_INDEX(DIM_S)] = DRAWN_TOKENS;
    sizes[DIM_INDEX(DIM_M)] = DRAWN_MASKED;
    for (int s = 0; s < 2; s++) {
        Graph *graph = sides[s].model->graph;
        Node **results = ARENA_ARRAY(arena, Node *, (size_t)graph->output_count + 1);
        for (int i = 0; i < graph->output_count; i++) results[i] = graph->outputs[i].node;
        plan_fit_sizes(graph, results, graph->output_count, sizes);
    }
}

/* Draws one input: numbers by its name and place alone, so that both models get the
 * same. Integers lie in [0, below). */
static Status draw_input(Tensor *out, const Node *input, const Type *type, int64_t below,
                         uint64_t seed, Diag *diag) {
    const uint64_t key = random_key_name(seed, input->name);
    void *data;
    TRY(tensor_create(out, type->dtype, type->rank, type->dim, diag));
    TRY(tensor_writable(out, &data, diag));
    const int64_t count = tensor_count(out);
    const bool fixed =
        input_is_mask(input->name) || strcmp(input->name, INPUT_TYPES) == 0;
    for (int64_t i = 0; i < count; i++) {
        if (type->dtype == DTYPE_F32)
            ((float *)data)[i] = (float)random_normal(key, (uint64_t)i);
        else if (fixed || below <= 0)
            ((int32_t *)data)[i] = input_is_mask(input->name);
        else
            ((int32_t *)data)[i] =
                (int32_t)(random_u64(key, (uint64_t)i) % (uint64_t)below);
    }
    return STATUS_OK;
}

/* The smaller limit of the indices that two models take as an input of this name. */
static int64_t input_limit(Plan *const plans[2], const Side sides[2], const char *name) {
    int64_t limit = 0;
    for (int s = 0; s < 2; s++) {
        const Node *input = graph_find_input(sides[s].model->graph, name);
        const int64_t own = input && plan_find(plans[s], input) >= 0
                                ? plan_index_limit(plans[s], input)
                                : 0;
        if (own > 0 && (limit == 0 || own < limit)) limit = own;
    }
    return limit;
}

static Status draw_inputs(Side *side, const Side sides[2], Plan *const plans[2],
                          const int64_t sizes[DIM_SYMBOLS], uint64_t seed, Diag *diag) {
    const Graph *graph = side->model->graph;
    int count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += node_is_input(node);
    side->inputs = checkpoint_create("drawn inputs", count + 1);
    for (const Node *node = graph->first; node; node = node->next) {
        Type type;
        if (!node_is_input(node)) continue;
        if (!type_bind(&node->type, sizes, &type))
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, node->name,
                             "the input cannot be drawn: its size is not known");
        NamedTensor *named = &side->inputs->tensors[side->inputs->count];
        named->name = node->name;
        TRY(draw_input(&named->tensor, node, &type, input_limit(plans, sides, node->name),
                       seed, diag));
        side->inputs->count++;
    }
    checkpoint_sort(side->inputs);
    return STATUS_OK;
}

static Status draw_both(Side sides[2], Arena *arena, uint64_t seed, Diag *diag) {
    Plan *plans[2] = {NULL, NULL};
    int64_t sizes[DIM_SYMBOLS];
    Status status = STATUS_OK;
    choose_sizes(sides, arena, sizes);
    for (int s = 0; s < 2 && status == STATUS_OK; s++) {
        const size_t outputs = (size_t)sides[s].model->graph->output_count;
        status = side_plan(&plans[s], &sides[s], sizes,
                           ARENA_ARRAY(arena, Node *, outputs + 1), diag);
    }
    for (int s = 0; s < 2 && status == STATUS_OK; s++)
        status = draw_inputs(&sides[s], sides, plans, sizes, seed, diag);
    for (int s = 0; s < 2; s++) plan_destroy(plans[s]);
    return status;
}

/* ---- inputs that are given ---- */

/* The tensors of a file without those that the other model takes and this one does not.
 */
static Status read_file(Side *side, const Side *other, const char *path, Diag *diag) {
    Checkpoint *file;
    TRY(safetensors_read(&file, path, diag));
    side->inputs = checkpoint_create(path, file->count + 1);
    for (int i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        if (!graph_find_input(side->model->graph, name) &&
            graph_find_input(other->model->graph, name))
            continue;
        side->inputs->tensors[side->inputs->count++] =
            (NamedTensor){arena_strdup(side->inputs->arena, name),
                          tensor_retain(&file->tensors[i].tensor)};
    }
    checkpoint_destroy(file);
    return STATUS_OK;
}

static Status read_given(Side *side, const Side *other, Arena *arena,
                         const CompareInputs *inputs, Diag *diag) {
    UserTexts texts;
    if (inputs->file) return read_file(side, other, inputs->file, diag);
    if (inputs->images.count > 0)
        return user_inputs_of_images(&side->inputs, &inputs->images, inputs->preprocessor,
                                     side->model, diag);
    if (inputs->jsonl)
        TRY(user_texts_read(&texts, arena, inputs->jsonl, diag));
    else
        user_texts_of(&texts, arena, &inputs->texts);
    TRY(user_tokenizer_read(&side->tokenizer, inputs->tokenizer, side->model, side->path,
                            diag));
    return user_inputs_of_texts(&side->inputs, &texts, side->tokenizer, side->model,
                                diag);
}

/* ---- running ---- */

static bool has_rows(const Node *node) {
    return node->type.dtype == DTYPE_F32 && node->type.rank > 0 &&
           node->type.dim[0] == DIM_N;
}

/* Computes the outputs that `other` has as well. */
static Status run_side(Side *side, const Side *other, Arena *arena, int threads,
                       const Watch *watch, Diag *diag) {
    Graph *graph = side->model->graph;
    int64_t sizes[DIM_SYMBOLS] = {0}, bound[DIM_SYMBOLS];
    TRY(file_batches_create(&side->data, arena, graph, side->inputs, false, sizes, diag));
    memcpy(bound, sizes, sizeof bound);
    bound[DIM_INDEX(DIM_N)] = 0;
    TRY(graph_bind(graph, bound, diag));
    side->results = graph_results_create(arena, graph->output_count);
    for (int i = 0; i < graph->output_count; i++) {
        const Output *output = &graph->outputs[i];
        const Node *match = graph_output(other->model->graph, output->name);
        if (match && has_rows(output->node) && has_rows(match))
            TRY(graph_results_add(&side->results, output->name, output->node, sizes,
                                  diag));
    }
    if (side->results.count == 0) return STATUS_OK;
    return graph_results_compute(&side->results, graph, side->data, threads, watch, diag);
}

/* ---- comparing ---- */

static const Tensor *result_of(const Side *side, const char *name) {
    for (int i = 0; i < side->results.count; i++)
        if (strcmp(side->results.tensors[i].name, name) == 0)
            return &side->results.tensors[i].tensor;
    return NULL;
}

/* -1 in a row with a NaN, which has no largest number. */
static int64_t largest_index(const float *row, int64_t width) {
    int64_t best = 0;
    for (int64_t i = 0; i < width; i++) {
        if (isnan(row[i])) return -1;
        if (row[i] > row[best]) best = i;
    }
    return best;
}

/* Whether an output's rows are scores of classes, one of which is the largest. */
static bool is_scores(const char *name, const Tensor *tensor) {
    return tensor->rank >= 2 && tensor->dim[tensor->rank - 1] > 1 &&
           (strcmp(name, OUTPUT_LOGITS) == 0 || strncmp(name, "exit.", 5) == 0);
}

/* The mask of an output [N, tokens, K], by row: 0 where a token fills a sample up. NULL =
 * all count. Open sizes tell a decoder's tokens from an encoder's. */
static const int32_t *mask_of(const Side *side, const char *name, const Tensor *output) {
    const Node *mask = node_tokens_mask(side->open, graph_output(side->open, name));
    const Tensor *given = mask ? checkpoint_find(side->inputs, mask->name) : NULL;
    const bool fits = given && given->dtype == DTYPE_I32 && given->rank == 2 &&
                      given->dim[0] == output->dim[0] && given->dim[1] == output->dim[1];
    return fits ? tensor_data(given) : NULL;
}

/* Adds the row of width numbers at x and y to the sums of squares of x and of x - y. */
static void compare_row(OutputPair *pair, const float *x, const float *y, int64_t width,
                        double *squares, double *error) {
    for (int64_t i = 0; i < width; i++) {
        const bool same = memcmp(&x[i], &y[i], sizeof *x) == 0; /* also no numbers */
        const double difference = same ? 0 : fabs((double)x[i] - (double)y[i]);
        *squares += (double)x[i] * (double)x[i];
        *error += difference * difference;
        if (!(difference <= pair->largest)) pair->largest = difference;
    }
}

static void compare_values(OutputPair *pair, const Tensor *a, const Tensor *b,
                           const int32_t *mask) {
    const float *x = tensor_data(a), *y = tensor_data(b);
    const int64_t width = a->dim[a->rank - 1],
                  rows = width > 0 ? tensor_count(a) / width : 0;
    double squares = 0, error = 0;
    int64_t same = 0, counted = 0;
    for (int64_t row = 0; row < rows; row++, x += width, y += width) {
        if (mask && !mask[row]) continue;
        compare_row(pair, x, y, width, &squares, &error);
        const int64_t largest = largest_index(x, width);
        same += largest >= 0 && largest == largest_index(y, width);
        counted++;
    }
    pair->relative = error == 0 ? 0 : sqrt(error) / sqrt(squares);
    if (is_scores(pair->name, a) && counted > 0)
        pair->agreement = (double)same / (double)counted;
}

static void compare_one(OutputPair *pair, Arena *arena, const char *name,
                        const Side sides[2], double tolerance) {
    char one[SHAPE_TEXT_BYTES], two[SHAPE_TEXT_BYTES];
    const Tensor *a = result_of(&sides[0], name), *b = result_of(&sides[1], name);
    *pair = (OutputPair){.name = name, .agreement = -1, .differs = true};
    if (!graph_output(sides[0].model->graph, name)) {
        pair->reason = "B alone has it";
    } else if (!graph_output(sides[1].model->graph, name)) {
        pair->reason = "A alone has it";
    } else if (!a || !b) {
        pair->reason = "it has no row for each sample";
    } else if (!tensor_same_shape(a, b)) {
        shape_text(one, a->rank, a->dim);
        shape_text(two, b->rank, b->dim);
        pair->reason = arena_printf(arena, "shape %s, %s", one, two);
    } else {
        compare_values(pair, a, b, mask_of(&sides[0], name, a));
        pair->differs = !(pair->relative <= tolerance);
    }
}

static void compare_all(OutputComparison *out, Arena *arena, const Side sides[2],
                        double tolerance) {
    const Graph *graphs[] = {sides[0].model->graph, sides[1].model->graph};
    out->pairs = ARENA_ARRAY(arena, OutputPair,
                             (size_t)graphs[0]->output_count +
                                 (size_t)graphs[1]->output_count + 1);
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < graphs[s]->output_count; i++) {
            const char *name = arena_strdup(arena, graphs[s]->outputs[i].name);
            if (s == 1 && graph_output(graphs[0], name)) continue;
            OutputPair *pair = &out->pairs[out->count++];
            compare_one(pair, arena, name, sides, tolerance);
            out->differing += pair->differs;
        }
}

static Status prepare(OutputComparison *out, Side sides[2], Arena *arena,
                      const CompareInputs *inputs, Diag *diag) {
    if (inputs->file || inputs->jsonl)
        out->inputs = inputs->file ? inputs->file : inputs->jsonl;
    else if (inputs->texts.count > 0)
        out->inputs = arena_printf(arena, "%d text%s", inputs->texts.count,
                                   inputs->texts.count > 1 ? "s" : "");
    else if (inputs->images.count > 0)
        out->inputs = arena_printf(arena, "%d image%s", inputs->images.count,
                                   inputs->images.count > 1 ? "s" : "");
    else
        out->inputs = arena_printf(arena, "%d samples drawn from seed %llu",
                                   DRAWN_SAMPLES, (unsigned long long)inputs->seed);
    if (!inputs->file && !inputs->jsonl && inputs->texts.count == 0 &&
        inputs->images.count == 0)
        return draw_both(sides, arena, inputs->seed, diag);
    TRY(read_given(&sides[0], &sides[1], arena, inputs, diag));
    return read_given(&sides[1], &sides[0], arena, inputs, diag);
}

Status compare_outputs(OutputComparison *out, Arena *arena, const CompareInputs *inputs,
                       const Model *const models[2], const char *const paths[2],
                       double tolerance, int threads, const Watch *watch, Diag *diag) {
    Side sides[2];
    for (int s = 0; s < 2; s++)
        sides[s] = (Side){
            .open = models[s]->graph, .model = model_copy(models[s]), .path = paths[s]};
    *out = (OutputComparison){0};
    blas_init();
    Status status = threads_reserve(threads, diag);
    if (status == STATUS_OK) status = prepare(out, sides, arena, inputs, diag);
    for (int s = 0; s < 2 && status == STATUS_OK; s++) {
        status = run_side(&sides[s], &sides[!s], arena, threads, watch, diag);
        if (status != STATUS_OK) diag_place(diag, LOC_FILE(paths[s]), NULL);
    }
    if (status == STATUS_OK) compare_all(out, arena, sides, tolerance);
    for (int s = 0; s < 2; s++) {
        graph_results_release(&sides[s].results);
        batches_destroy(sides[s].data);
        tokenizer_destroy(sides[s].tokenizer);
        checkpoint_destroy(sides[s].inputs);
        model_destroy(sides[s].model);
    }
    return status;
}
