/* Hypotheses: see exec/generate/hypotheses.h.
 *
 * Steps without a state take all rows in one call; those with one, or that depend on the
 * position, take rows one by one unless they have a kernel for several. With several
 * threads the units of steps are shared out; kernels for several rows and light steps are
 * the first thread's work. Threads meet before and after a step that they share. */
#include "exec/generate/hypotheses.h"

#include "exec/generate/step_graph.h"
#include "exec/run/run.h"
#include "exec/run/team.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 }; /* bytes */

/* Where a step's value and states lie, in units of the rows there is room for. */
typedef struct RowStep {
    int64_t at;                   /* of the value, in floats of a row */
    size_t state_bytes, state_at; /* of a slot */
} RowStep;

struct Seq2Seq {
    StepGraph *graph;
    Seq2SeqOptions options;
    RowStep *steps;
    int64_t row_floats; /* of all values of a row */
    size_t state_bytes; /* of a slot */
    Params *params;
    PlanCache *plans; /* of the encoder; NULL = steps read nothing of the source */
    int64_t source_limit;
};

/* Memory of a step that is prepared for each sentence. */
typedef struct PreparedStep {
    size_t bytes, at; /* of a sentence; of the first one */
} PreparedStep;

struct Hypotheses {
    const Seq2Seq *model;
    int64_t sentences, source; /* source: padded length */
    Workspace *workspace;      /* of the encoder */
    const void **source_data;  /* by value of the source */

    /* rows of the next step */
    int64_t rows, position;
    int32_t *token, *ones;
    int64_t *sentence, *slot;
    void **state; /* of the step at hand, for kernels of several rows */

    int64_t rows_room, source_room;
    Buf *values, *states, *prepared;
    PreparedStep *prepared_steps;

    int threads;
    Team *team;     /* NULL = one thread */
    Buf *scratch;   /* of all threads */
    int64_t floats; /* of it, of one thread */
};

static size_t round_up(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static char *bytes_of(const Buf *buf) {
    return (char *)(uintptr_t)buf_data(buf);
}

/* ---- the model ---- */

static Status check_inputs(const Graph *graph, Diag *diag) {
    static const char *const NAMES[] = {"input_ids", "attention_mask"};
    const Type want = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_S}};
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->name || !node_is_leaf(node) || node->storage) continue;
        if (strncmp(node->name, "decoder_", 8) == 0) continue; /* the step graph does */
        const bool known =
            strcmp(node->name, NAMES[0]) == 0 || strcmp(node->name, NAMES[1]) == 0;
        if (known && type_equal(&node->type, &want)) continue;
        return diag_fail(diag, STATUS_MODEL, node->loc, node->name,
                         "expected a model whose inputs of the source are input_ids and "
                         "attention_mask i32[N, S]");
    }
    return STATUS_OK;
}

/* Places of values, which take memory in turn, and of states, which do not. */
static void place_steps(Seq2Seq *model) {
    const StepGraph *g = model->graph;
    ValuePool pool = value_pool_open(g->arena, g);
    model->steps = ARENA_ARRAY(g->arena, RowStep, (size_t)g->step_count);
    for (int s = 0; s < g->step_count; s++) {
        const TokenStep *step = &g->steps[s];
        RowStep *row = &model->steps[s];
        row->at = value_pool_take(&pool, g->values[s].width, s, g->values[s].last + 1);
        if (!step->kernel->state_bytes) continue;
        row->state_at = model->state_bytes;
        row->state_bytes =
            round_up(step->kernel->state_bytes(step->node, model->options.max_length));
        model->state_bytes += row->state_bytes;
    }
    model->row_floats = pool.floats;
}

/* Plans of what steps read of the source. */
static Status open_encoder(Seq2Seq *model, Diag *diag) {
    const StepGraph *g = model->graph;
    const PlanOptions options = {.precision = PRECISION_F32,
                                 .results = g->source_values,
                                 .result_count = g->source_count};
    const Fetch one = {.source = 1};
    Plan *plan = NULL;
    if (g->source_count == 0) return STATUS_OK;
    model->plans = plan_cache_create(g->graph, NULL, &options, PLAN_CACHE_BYTES);
    TRY(plan_cache_get(model->plans, 1, &one, &plan, diag));
    const Node *ids = graph_find_input(g->graph, "input_ids");
    if (ids) model->source_limit = plan_index_limit(plan, ids);
    plan_destroy(plan);
    return params_create_packed(&model->params, g->graph, 1, diag); /* or a few */
}

Status seq2seq_check(Graph *graph, int64_t max_length, Diag *diag) {
    const StepGraphOptions steps = {.capacity = max_length, .has_source = true};
    TRY(step_graph_check(graph, &steps, diag));
    return check_inputs(graph, diag);
}

Status seq2seq_create(Seq2Seq **out, Graph *graph, const Seq2SeqOptions *options,
                      Diag *diag) {
    if (options->max_length < 1 || options->slots < 1)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "a translator without room for tokens");
    Seq2Seq *model = memory_alloc(1, sizeof *model);
    model->options = *options;
    const StepGraphOptions steps = {
        .capacity = options->max_length, .weights = options->weights, .has_source = true};
    Status status = step_graph_create(&model->graph, graph, &steps, diag);
    if (status == STATUS_OK) status = check_inputs(graph, diag);
    if (status == STATUS_OK) {
        place_steps(model);
        status = open_encoder(model, diag);
    }
    if (status == STATUS_OK)
        *out = model;
    else
        seq2seq_destroy(model);
    return status;
}

void seq2seq_destroy(Seq2Seq *model) {
    if (!model) return;
    params_destroy(model->params);
    plan_cache_destroy(model->plans);
    step_graph_destroy(model->graph);
    free(model);
}

const Seq2SeqOptions *seq2seq_options(const Seq2Seq *model) {
    return &model->options;
}

int64_t seq2seq_vocabulary(const Seq2Seq *model) {
    return step_graph_vocabulary(model->graph);
}

int64_t seq2seq_target_limit(const Seq2Seq *model) {
    return model->graph->index_limit;
}

int64_t seq2seq_source_limit(const Seq2Seq *model) {
    return model->source_limit;
}

/* ---- memory ---- */

Status hypotheses_create(Hypotheses **out, const Seq2Seq *model, Diag *diag) {
    const StepGraph *g = model->graph;
    Hypotheses *h = memory_alloc(1, sizeof *h);
    h->model = model;
    h->source_data = memory_alloc((size_t)g->source_count + 1, sizeof *h->source_data);
    h->prepared_steps = memory_alloc((size_t)g->step_count, sizeof *h->prepared_steps);
    const Status status = workspace_create(&h->workspace, diag);
    if (status == STATUS_OK)
        *out = h;
    else
        hypotheses_destroy(h);
    return status;
}

static void free_rows(Hypotheses *h) {
    free(h->token);
    free(h->ones);
    free(h->sentence);
    free(h->slot);
    free(h->state);
}

void hypotheses_destroy(Hypotheses *h) {
    if (!h) return;
    team_destroy(h->team);
    free_rows(h);
    free(h->source_data);
    free(h->prepared_steps);
    buf_release(h->values);
    buf_release(h->states);
    buf_release(h->prepared);
    buf_release(h->scratch);
    workspace_destroy(h->workspace);
    free(h);
}

const Seq2Seq *hypotheses_model(const Hypotheses *h) {
    return h->model;
}

static Status renew(Buf **buf, size_t bytes, Diag *diag) {
    buf_release(*buf);
    *buf = NULL;
    return buf_create(buf, bytes + ALIGNMENT, diag);
}

static Status reserve_rows(Hypotheses *h, int64_t rows, Diag *diag) {
    const Seq2Seq *model = h->model;
    const size_t count = (size_t)rows;
    free_rows(h);
    h->token = memory_alloc(count, sizeof *h->token);
    h->ones = memory_alloc(count, sizeof *h->ones);
    h->sentence = memory_alloc(count, sizeof *h->sentence);
    h->slot = memory_alloc(count, sizeof *h->slot);
    h->state = memory_alloc(count, sizeof *h->state);
    for (int64_t i = 0; i < rows; i++) h->ones[i] = 1;
    h->rows_room = rows;
    TRY(renew(&h->values, count * (size_t)model->row_floats * sizeof(float), diag));
    return renew(&h->states, count * model->state_bytes, diag);
}

/* What steps prepare for each sentence; sets where it lies. */
static Status reserve_prepared(Hypotheses *h, int64_t sentences, Diag *diag) {
    const StepGraph *g = h->model->graph;
    size_t total = 0;
    for (int s = 0; s < g->step_count; s++) {
        const TokenStep *step = &g->steps[s];
        PreparedStep *prepared = &h->prepared_steps[s];
        if (!step->kernel->source_bytes) continue;
        prepared->bytes =
            round_up(step->kernel->source_bytes(step->node, h->source_room));
        prepared->at = total;
        total += prepared->bytes * (size_t)sentences;
    }
    return renew(&h->prepared, total, diag);
}

/* Memory only grows: calls with fewer or shorter sentences use what is there. */
static Status reserve(Hypotheses *h, int64_t sentences, int64_t source, int threads,
                      Diag *diag) {
    const int64_t rows = sentences * h->model->options.slots;
    const bool more = rows > h->rows_room;
    if (more) TRY(reserve_rows(h, rows, diag));
    if (more || source > h->source_room) {
        if (source > h->source_room) h->source_room = source;
        TRY(reserve_prepared(h, h->rows_room / h->model->options.slots, diag));
    }
    if (!more && threads == h->threads) return STATUS_OK;
    h->floats = step_graph_scratch(h->model->graph, h->rows_room);
    h->floats = (int64_t)(round_up((size_t)h->floats * sizeof(float)) / sizeof(float));
    TRY(renew(&h->scratch, (size_t)threads * (size_t)h->floats * sizeof(float), diag));
    if (threads == h->threads) return STATUS_OK;
    team_destroy(h->team);
    h->team = NULL;
    h->threads = 0;
    if (threads > 1) TRY(team_create(&h->team, threads, diag));
    h->threads = threads;
    return STATUS_OK;
}

/* ---- one step ---- */

static char *state_of(const Hypotheses *h, int s, int64_t slot) {
    const RowStep *row = &h->model->steps[s];
    return bytes_of(h->states) + row->state_at * (size_t)h->rows_room +
           row->state_bytes * (size_t)slot;
}

static float *value_of(const Hypotheses *h, int value) {
    return buf_floats(h->values) + h->model->steps[value].at * h->rows_room;
}

/* An operand from row `row` on; values of the source from the first sentence on. */
static const void *row_operand(const Hypotheses *h, const TokenOperand *in, int64_t row) {
    switch (in->from) {
    case FROM_VALUE: return value_of(h, in->index) + row * in->width;
    case FROM_SOURCE: return h->source_data[in->index];
    case FROM_IDS: return h->token + row;
    case FROM_MASK: return h->ones + row;
    default: return in->data; /* weights, or nothing */
    }
}

/* Step s for `count` rows from `row` on; `in` has room for its operands. */
static StepCall row_call(const Hypotheses *h, int s, int me, const void **in, int64_t row,
                         int64_t count) {
    const StepGraph *g = h->model->graph;
    const TokenStep *step = &g->steps[s];
    for (int i = 0; i < step->node->in_count; i++)
        in[i] = row_operand(h, &step->in[i], row);
    return (StepCall){.node = step->node,
                      .attrs = step->node->attrs,
                      .in = in,
                      .out = value_of(h, s) + row * g->values[s].width,
                      .position = h->position,
                      .count = count,
                      .capacity = h->model->options.max_length,
                      .scratch = buf_floats(h->scratch) + me * h->floats};
}

static StepRows step_rows_of(const Hypotheses *h, int s) {
    const PreparedStep *prepared = &h->prepared_steps[s];
    return (StepRows){.state = h->state,
                      .sentence = h->sentence,
                      .source = h->source,
                      .prepared = bytes_of(h->prepared) + prepared->at,
                      .prepared_bytes = prepared->bytes};
}

/* Units first .. last - 1 of step s, for all rows. */
static void run_step(const Hypotheses *h, int s, int me, int64_t first, int64_t last) {
    const StepKernel *kernel = h->model->graph->steps[s].kernel;
    const void *in[STEP_OPERANDS_MAX];
    if (kernel->run_rows) {
        for (int64_t r = 0; r < h->rows && kernel->state_bytes; r++)
            h->state[r] = state_of(h, s, h->slot[r]);
        const StepCall call = row_call(h, s, me, in, 0, h->rows);
        const StepRows rows = step_rows_of(h, s);
        kernel->run_rows(&call, &rows);
        return;
    }
    const bool together = !kernel->state_bytes && !kernel->position;
    const int64_t count = together ? h->rows : 1;
    for (int64_t r = 0; r < h->rows; r += count) {
        StepCall call = row_call(h, s, me, in, r, count);
        if (kernel->state_bytes) call.state = state_of(h, s, h->slot[r]);
        kernel->run(&call, first, last);
    }
}

static void run_token(void *self, int me) {
    const Hypotheses *h = self;
    const StepGraph *g = h->model->graph;
    bool before = false; /* whether the step before was shared */
    for (int s = 0; s < g->step_count; s++) {
        const TokenStep *step = &g->steps[s];
        const int64_t units = step->units > 0 ? step->units : 1;
        /* Kernels for several rows have no units. */
        const bool shared = h->threads > 1 && step->units > 1 &&
                            !step->kernel->run_rows && step->kernel->share != STEP_LIGHT;
        if (shared || before) team_meet(h->team);
        before = shared;
        if (!shared && me > 0) continue;
        const int64_t first = shared ? units * me / h->threads : 0;
        const int64_t last = shared ? units * (me + 1) / h->threads : units;
        if (first < last) run_step(h, s, me, first, last);
    }
}

int64_t hypotheses_sentences(const Hypotheses *h) {
    return h->sentences;
}

void hypotheses_clear(Hypotheses *h) {
    h->rows = 0;
}

int64_t hypotheses_add(Hypotheses *h, int32_t token, int64_t sentence, int64_t slot) {
    h->token[h->rows] = token;
    h->sentence[h->rows] = sentence;
    h->slot[h->rows] = slot;
    return h->rows++;
}

void hypotheses_step(Hypotheses *h) {
    if (h->team)
        team_run(h->team, run_token, h);
    else
        run_token(h, 0);
    h->position++;
}

const float *hypotheses_logits(const Hypotheses *h, int64_t row) {
    return value_of(h, h->model->graph->logits_value) +
           row * step_graph_vocabulary(h->model->graph);
}

void hypotheses_copy(Hypotheses *h, int64_t from, int64_t to) {
    for (int s = 0; s < h->model->graph->step_count; s++)
        if (h->model->steps[s].state_bytes > 0)
            memcpy(state_of(h, s, to), state_of(h, s, from),
                   h->model->steps[s].state_bytes);
}

/* ---- the source ---- */

static void feed(const Hypotheses *h, const char *name, const int32_t *from) {
    int32_t *to = workspace_input(h->workspace, name);
    if (to) memcpy(to, from, (size_t)(h->sentences * h->source) * sizeof *to);
}

/* Runs the encoder, then what steps prepare for each sentence. */
static Status encode(Hypotheses *h, const Sentences *sentences, Diag *diag) {
    const Seq2Seq *model = h->model;
    const StepGraph *g = model->graph;
    const Fetch what = {.source = h->source};
    const void *in[STEP_OPERANDS_MAX];
    TRY(workspace_bind_cached(h->workspace, model->plans, h->sentences, &what,
                              model->params, diag));
    feed(h, "input_ids", sentences->ids);
    feed(h, "attention_mask", sentences->mask);
    run_forward(h->workspace, (RunMode){0});
    for (int i = 0; i < g->source_count; i++)
        h->source_data[i] = workspace_value(h->workspace, g->source_values[i]);
    for (int s = 0; s < g->step_count; s++) {
        if (!g->steps[s].kernel->prepare) continue;
        const StepCall call = row_call(h, s, 0, in, 0, h->sentences);
        const StepRows rows = step_rows_of(h, s);
        g->steps[s].kernel->prepare(&call, &rows);
    }
    return STATUS_OK;
}

Status hypotheses_start(Hypotheses *h, const Sentences *sentences, int threads,
                        Diag *diag) {
    TRY(reserve(h, sentences->count, sentences->tokens, threads, diag));
    h->sentences = sentences->count;
    h->source = sentences->tokens;
    h->rows = h->position = 0;
    return h->model->plans ? encode(h, sentences, diag) : STATUS_OK;
}
