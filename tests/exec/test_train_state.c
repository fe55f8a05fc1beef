/* The state of training: a run that goes on from the state after any step ends in every
 * byte of one that was never stopped, and states that do not fit are refused. And what
 * measurements on a development set do. */
#include "exec/train/history.h"
#include "tests/exec/keeper_fixture.h"
#include "tests/exec/prior_fixture.h"

#include <unistd.h>

/* ---- kinds of runs ---- */

typedef enum Kind {
    PLAIN,
    GROUPS,  /* samples that belong together */
    LENGTHS, /* samples sorted by length within windows */
    COUPLED  /* losses that compare samples */
} Kind;

typedef struct Setup {
    const char *what;
    Kind kind;
    TrainOptions options;
} Setup;

/* What is measured: a number of the weights that goes up and down, and is none at times.
 */
static Status read_meter(void *self, double *value, Diag *diag) {
    const Graph *graph = *(Graph **)self;
    (void)diag;
    float w[2];
    tensor_read_f32(&graph_storage(graph, "out.weight")->tensor, 0, 2, w);
    *value = cos(60 * (double)w[0]) + (double)w[1];
    if (*value < -0.8) *value = NAN;
    return STATUS_OK;
}

static int64_t toy_length(const Batches *self, int64_t index) {
    (void)self;
    return 1 + index * 7 % 5;
}

static void open_kind(Fixture *f, const Setup *setup) {
    model_open(f, 0.3);
    if (setup->kind == GROUPS) f->toy.batches.group = 4;
    if (setup->kind == LENGTHS) f->toy.batches.length = toy_length;
    if (setup->kind == COUPLED) {
        Node *x = graph_find_input(f->graph, "x");
        f->parts[0] = make(f, "contrastive", &f->logits, 1, "scale=2.0");
        f->parts[1] = make(f, "similarity_mse", (Node *[]){f->logits, x}, 2, NULL);
        f->loss = make(f, "weighted_sum", f->parts, 2, "weights=[1.0, 3.0]");
    }
    if (setup->options.objective == OBJECTIVE_LIKELIHOOD) return;
    put_gaussian(f, "in.weight", 1, 0.05);
    put_gaussian(f, "out.bias", 5, 0.05);
}

/* Three epochs of four steps, the last of which has fewer samples. */
static TrainOptions usual_options(void) {
    TrainOptions options = train_defaults;
    options.epochs = 3;
    options.batch_size = 32;
    options.shards = 3;
    options.micro_batch = 4;
    options.lr = 0.02;
    options.augment = true;
    return options;
}

enum { SETUPS = 17, DEVELOPED = 10, ENDS_EARLY = 13, HALVED = 14 };

static void all_setups(Setup *setups) {
    static const char *groups[] = {"out.*=0.5"}, *freeze[] = {"in.bias"};
    static const char *const names[SETUPS] = {"adamw",   "momentum",    "sgd",    "ema",
                                              "map",     "variational", "groups", "rows",
                                              "lengths", "coupled"};
    for (int i = 0; i < SETUPS; i++)
        setups[i] = (Setup){.what = names[i], .options = usual_options()};
    setups[1].options.optimizer = setups[2].options.optimizer = OPTIMIZER_SGD;
    setups[2].options.momentum = 0;
    setups[3].options.ema = 0.9;
    setups[4].options.objective = OBJECTIVE_MAP;
    setups[5].options.objective = OBJECTIVE_VARIATIONAL;
    setups[5].options.ema = 0.8;
    setups[6].kind = GROUPS;
    setups[6].options.lr_groups = (StringList){groups, 1};
    setups[6].options.freeze = (StringList){freeze, 1};
    setups[7].options.log_every = 5; /* rows across epochs */
    setups[7].options.steps = 11;
    setups[8].kind = LENGTHS;
    setups[9].kind = COUPLED;
    for (int i = DEVELOPED; i <= ENDS_EARLY; i++) {
        setups[i].options.dev = "dev";
        setups[i].options.lr = 0.1;
    }
    setups[11].options.ema = setups[12].options.ema = 0.5;
    setups[11].options.keep = setups[12].options.keep = KEEP_BEST;
    setups[11].options.dev_every = 2;
    setups[12].options.dev_every = 1;
    setups[12].options.objective = OBJECTIVE_VARIATIONAL;
    setups[13].options.keep = KEEP_BEST;
    setups[13].options.dev_every = 1;
    setups[13].options.patience = 3;
    for (int i = HALVED; i < SETUPS; i++) setups[i].options.moments = MOMENTS_BF16;
    setups[15].options.optimizer = OPTIMIZER_SGD;
    setups[16].options.objective = OBJECTIVE_VARIATIONAL;
    setups[16].options.ema = 0.8;
}

/* ---- what comes of a run ---- */

typedef struct Outcome {
    float weights[WEIGHTS];
    float mean[HIDDEN * WIDTH], variance[HIDDEN * WIDTH];
    TrainReport report;
    Arena *arena;
} Outcome;

static void run_setup(const Setup *setup, Memory *memory, int threads, Outcome *out) {
    Fixture f;
    TrainOptions options = setup->options;
    const TrainKeeper keeper = keeper_of(memory);
    const TrainMeasure measure = {.self = &f.graph, .measure = read_meter};
    options.keeper = memory ? &keeper : NULL;
    options.measure = options.dev ? &measure : NULL;
    open_kind(&f, setup);
    memset(out, 0, sizeof *out);
    out->arena = arena_create();
    assert_ok(train(f.graph, f.loss, f.parts, 2, &f.toy.batches, &options, 7, threads,
                    NULL, out->arena, &out->report, f.diag),
              f.diag);
    copy_weights(f.graph, out->weights);
    const Gaussian *q = graph_storage(f.graph, "in.weight")->gaussian;
    if (q) gaussian_mean_f32(q, 0, HIDDEN * WIDTH, out->mean);
    if (q) gaussian_variance_f32(q, 0, HIDDEN * WIDTH, out->variance);
    model_close(&f);
}

static void expect_row(const TrainRow *a, const TrainRow *b) {
    assert_int_equal(a->step, b->step);
    assert_true(a->loss == b->loss && a->prior == b->prior);
    assert_true(a->gradient_norm == b->gradient_norm);
    assert_true(a->learning_rate == b->learning_rate);
    assert_true(a->parts[0] == b->parts[0] && a->parts[1] == b->parts[1]);
    assert_int_equal(a->measured, b->measured);
    assert_memory_equal(&a->value, &b->value, sizeof a->value); /* NaN too */
}

static void expect_same(const Outcome *a, const Outcome *b) {
    assert_memory_equal(a->weights, b->weights, sizeof a->weights);
    assert_memory_equal(a->mean, b->mean, sizeof a->mean);
    assert_memory_equal(a->variance, b->variance, sizeof a->variance);
    assert_int_equal(a->report.steps, b->report.steps);
    assert_true(a->report.first_loss == b->report.first_loss);
    assert_true(a->report.last_loss == b->report.last_loss);
    assert_true(a->report.first_prior == b->report.first_prior);
    assert_true(a->report.last_prior == b->report.last_prior);
    assert_true(a->report.largest_norm == b->report.largest_norm);
    for (int i = 0; i < 2; i++)
        assert_true(a->report.part_loss[i] == b->report.part_loss[i]);
    assert_int_equal(a->report.best_step, b->report.best_step);
    assert_true(a->report.best_value == b->report.best_value);
    assert_int_equal(a->report.row_count, b->report.row_count);
    for (int i = 0; i < a->report.row_count; i++)
        expect_row(&a->report.rows[i], &b->report.rows[i]);
}

/* From the state after every step, that after the last one included, by one thread and
 * by two. */
static void test_goes_on(void **state) {
    (void)state;
    Setup setups[SETUPS];
    all_setups(setups);
    for (int s = 0; s < SETUPS; s++) {
        Outcome whole, kept, rest;
        Memory memory = {0};
        run_setup(&setups[s], NULL, 1, &whole);
        run_setup(&setups[s], &memory, 2, &kept);
        expect_same(&whole, &kept);
        const int64_t steps = whole.report.steps;
        assert_int_equal(s == ENDS_EARLY, steps < whole.report.total);
        assert_int_equal(memory.saves, steps);
        for (int64_t from = 1; from <= steps; from++) {
            memory.from = from;
            memory.saves = 0;
            run_setup(&setups[s], &memory, 1 + (int)(from % 2), &rest);
            assert_int_equal(memory.saves, steps - from);
            expect_same(&whole, &rest);
            arena_destroy(rest.arena);
        }
        memory_close(&memory);
        arena_destroy(whole.arena);
        arena_destroy(kept.arena);
    }
}

/* ---- rows of the curve ---- */

typedef struct Rows {
    int64_t total, epoch, log_every;
    int count;
    int64_t first, second; /* steps of two rows */
} Rows;

static void test_rows(void **state) {
    (void)state;
    static const Rows ROWS[] = {
        {94, 94, 0, 20, 5, 10},        /* an epoch: 20 parts of 4 or 5 steps */
        {188, 94, 0, 20, 10, 19},      /* two: 10 parts each */
        {30 * 94, 94, 0, 30, 94, 188}, /* one row each */
        {7, 94, 0, 7, 1, 2},           /* every step */
        {50, 1000, 0, 20, 3, 5},       /* less than an epoch */
        {450 * 3, 3, 0, 150, 9, 18},   /* three epochs */
        {20, 6, 8, 3, 8, 16},          /* as asked for */
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const Rows *rows = &ROWS[i];
        const double loss = 1;
        Arena *arena = arena_create();
        TrainReport report;
        History *h = history_create(rows->total, rows->epoch, rows->log_every, 0);
        for (int64_t step = 0; step < rows->total; step++)
            history_add(h, &(HistoryStep){.step = step, .samples = 1, .losses = &loss});
        history_report(h, rows->total, arena, &report);
        assert_int_equal(report.row_count, rows->count);
        assert_int_equal(report.rows[0].step, rows->first);
        assert_int_equal(report.rows[1].step, rows->second);
        assert_int_equal(report.rows[rows->count - 1].step, rows->total);
        history_destroy(h);
        arena_destroy(arena);
    }
}

/* ---- what is measured ---- */

/* Measurements of a run: what the k-th one is to say, and what weights it saw. */
typedef struct Script {
    Graph *graph;
    const double *values;
    int count;
    float seen[STEPS_MOST][WEIGHTS];
} Script;

static Status read_script(void *self, double *value, Diag *diag) {
    Script *script = self;
    (void)diag;
    copy_weights(script->graph, script->seen[script->count]);
    *value = script->values[script->count++];
    return STATUS_OK;
}

static void run_script(Script *script, const TrainOptions *wanted, bool less,
                       const double *values, TrainReport *report, float *weights) {
    Fixture f;
    TrainOptions options = *wanted;
    const TrainMeasure measure = {script, less, read_script};
    model_open(&f, 0.3);
    *script = (Script){.graph = f.graph, .values = values};
    options.measure = &measure;
    assert_ok(run_training(&f, &options, 7, 2, report), f.diag);
    report->rows = NULL; /* of the fixture's arena */
    copy_weights(f.graph, weights);
    model_close(&f);
}

/* The best weights go out, as they were measured: the first of equal ones, the least of a
 * loss, the last ones where nothing was a number. */
static void test_best(void **state) {
    (void)state;
    static const double values[12] = {3, NAN, 5, 1, 5, 1, INFINITY, 2, 4, 3, 2, 1};
    static const double none[12] = {NAN, NAN, NAN, NAN, NAN, NAN,
                                    NAN, NAN, NAN, NAN, NAN, NAN};
    Script *script = memory_alloc(1, sizeof *script);
    TrainReport report;
    float weights[WEIGHTS];
    TrainOptions options = usual_options();
    options.dev_every = 1;
    options.keep = KEEP_BEST;
    for (int average = 0; average < 2; average++) {
        options.ema = average ? 0.9 : 0;
        run_script(script, &options, false, values, &report, weights);
        assert_int_equal(script->count, 12);
        assert_int_equal(report.best_step, 3);
        assert_true(report.best_value == 5);
        assert_memory_equal(weights, script->seen[2], sizeof weights);
        run_script(script, &options, true, values, &report, weights);
        assert_int_equal(report.best_step, 4);
        assert_memory_equal(weights, script->seen[3], sizeof weights);
        run_script(script, &options, false, none, &report, weights);
        assert_int_equal(report.best_step, 0);
        assert_memory_equal(weights, script->seen[11], sizeof weights);
    }
    options.keep = KEEP_LAST;
    run_script(script, &options, false, values, &report, weights);
    assert_int_equal(report.best_step, 3);
    assert_memory_equal(weights, script->seen[11], sizeof weights);
    free(script);
}

/* Measuring changes nothing of the training, and is done after the last step too. */
static void test_measuring_is_silent(void **state) {
    (void)state;
    static const double values[12] = {0};
    Script *script = memory_alloc(1, sizeof *script);
    TrainReport report;
    float weights[WEIGHTS], plain[WEIGHTS];
    TrainOptions options = usual_options();
    options.ema = 0.9;
    options.dev_every = 5;
    run_script(script, &options, false, values, &report, weights);
    assert_int_equal(script->count, 3); /* 5, 10, 12 */
    Fixture f;
    model_open(&f, 0.3);
    assert_ok(run_training(&f, &options, 7, 1, &report), f.diag);
    copy_weights(f.graph, plain);
    model_close(&f);
    assert_memory_equal(weights, plain, sizeof plain);
    options.dev_every = 0;
    run_script(script, &options, false, values, &report, weights);
    assert_int_equal(script->count, 3); /* epochs */
    free(script);
}

/* Three measurements in a row that are no better end the run. */
static void test_patience(void **state) {
    (void)state;
    static const double values[12] = {1, 0, 0, 2, 2, NAN, 2, 9, 9, 9, 9, 9};
    Script *script = memory_alloc(1, sizeof *script);
    TrainReport report;
    float weights[WEIGHTS];
    TrainOptions options = usual_options();
    options.dev_every = 1;
    options.patience = 3;
    run_script(script, &options, false, values, &report, weights);
    assert_int_equal(report.steps, 7);
    assert_int_equal(report.total, 12);
    assert_int_equal(report.best_step, 4);
    assert_int_equal(report.row_count, 7);
    assert_true(report.last_loss > 0);
    assert_memory_equal(weights, script->seen[6], sizeof weights);
    free(script);
}

/* ---- when it is kept ---- */

static bool never_due(void *self, int64_t done, int64_t total) {
    (void)self, (void)done, (void)total;
    return false;
}

enum { STOP_AT = 6 }; /* in the second epoch */

/* Waits for long enough after a step that the watch is asked before the next one. */
static Status wait_after(void *self, int64_t step, int64_t total, Diag *diag) {
    (void)total, (void)diag;
    *(int64_t *)self = step;
    if (step == STOP_AT) usleep(400000);
    return STATUS_OK;
}

static bool stopped(void *self) {
    return *(int64_t *)self >= STOP_AT;
}

/* A run that is interrupted keeps its state, and goes on from there. */
static void test_interrupted(void **state) {
    (void)state;
    Fixture f;
    Memory memory = {0};
    int64_t done = 0;
    const TrainHook hook = {.self = &done, .step = wait_after};
    const Watch watch = {.self = &done, .cancelled = stopped};
    TrainKeeper keeper = keeper_of(&memory);
    keeper.due = never_due;
    Setup setup = {.options = usual_options()};
    TrainOptions options = setup.options;
    options.keeper = &keeper;
    options.hook = &hook;
    TrainReport report;
    open_kind(&f, &setup);
    assert_int_equal(train(f.graph, f.loss, f.parts, 2, &f.toy.batches, &options, 7, 1,
                           &watch, f.arena, &report, f.diag),
                     STATUS_INTERRUPTED);
    model_close(&f);
    assert_int_equal(memory.saves, 1);
    Outcome whole, rest;
    memory.from = STOP_AT;
    run_setup(&setup, NULL, 1, &whole);
    run_setup(&setup, &memory, 2, &rest);
    expect_same(&whole, &rest);
    arena_destroy(whole.arena);
    arena_destroy(rest.arena);
    memory_close(&memory);
}

/* What read_meter says, but where it is interrupted: then no number. */
typedef struct Breaking {
    Graph *graph;
    int count, at;
} Breaking;

static Status read_breaking(void *self, double *value, Diag *diag) {
    Breaking *breaking = self;
    if (++breaking->count == breaking->at) /* as forward runs say it */
        return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
    return read_meter(&breaking->graph, value, diag);
}

static void interrupt_measuring(const Setup *setup) {
    Fixture f;
    Memory memory = {0};
    TrainReport report;
    Outcome whole, rest;
    TrainKeeper keeper = keeper_of(&memory);
    keeper.due = never_due;
    open_kind(&f, setup);
    Breaking breaking = {.graph = f.graph, .at = 3};
    const TrainMeasure measure = {.self = &breaking, .measure = read_breaking};
    TrainOptions options = setup->options;
    options.keeper = &keeper;
    options.measure = &measure;
    assert_int_equal(run_training(&f, &options, 7, 1, &report), STATUS_INTERRUPTED);
    assert_int_equal(diag_errors(f.diag), 1);
    model_close(&f);
    assert_int_equal(memory.saves, 1);
    assert_non_null(memory.states[6]);
    memory.from = 6;
    run_setup(setup, NULL, 1, &whole);
    run_setup(setup, &memory, 2, &rest);
    expect_same(&whole, &rest);
    arena_destroy(whole.arena);
    arena_destroy(rest.arena);
    memory_close(&memory);
}

/* A run that is interrupted while it measures goes on with that measurement, which ends a
 * row of the curve where no other row ends. */
static void test_measuring_interrupted(void **state) {
    (void)state;
    Setup setups[SETUPS];
    all_setups(setups);
    Setup *setup = &setups[ENDS_EARLY - 2];
    interrupt_measuring(setup);
    setup->options.log_every = 5;
    interrupt_measuring(setup);
}

/* The end is kept where the step goes on with another training, whatever is due. */
static void test_serial(void **state) {
    (void)state;
    Fixture f;
    Memory memory = {.serial = 2};
    TrainReport report;
    TrainKeeper keeper = keeper_of(&memory);
    keeper.due = never_due;
    Setup setup = {.options = usual_options()};
    setup.options.keeper = &keeper;
    setup.options.serial = 2;
    open_kind(&f, &setup);
    assert_ok(run_training(&f, &setup.options, 7, 1, &report), f.diag);
    assert_int_equal(memory.saves, 0);
    setup.options.more = true;
    assert_ok(run_training(&f, &setup.options, 7, 1, &report), f.diag);
    assert_int_equal(memory.saves, 1);
    assert_non_null(memory.states[12]);
    model_close(&f);
    memory_close(&memory);
}

/* ---- states of others ---- */

static Tensor *tensor_of(TrainState *state, const char *name) {
    for (int i = 0; i < state->tensor_count; i++)
        if (strcmp(state->tensors[i].name, name) == 0) return &state->tensors[i].tensor;
    fail_msg("no tensor %s", name);
    return NULL;
}

static void rename_tensor(TrainState *state) {
    state->tensors[2].name = "weight/of.another";
}
static void drop_tensor(TrainState *state) {
    tensor_release(&state->tensors[--state->tensor_count].tensor);
}
static void double_tensor(TrainState *state) {
    const Tensor again = tensor_retain(tensor_of(state, "weight/in.weight"));
    train_state_add(state, "weight/", "in.weight", again);
}
static void add_tensor(TrainState *state) {
    static const float more[2] = {1, 2};
    train_state_view(state, "average/", "in.weight", DTYPE_F32, 1, (int64_t[]){2}, more);
}
static void turn_shape(TrainState *state) {
    Tensor *tensor = tensor_of(state, "first/in.weight");
    tensor->dim[0] = WIDTH, tensor->dim[1] = HIDDEN;
}
static void other_rank(TrainState *state) {
    Tensor *tensor = tensor_of(state, "first/in.weight");
    tensor->rank = 1, tensor->dim[0] = WIDTH * HIDDEN;
}
static void other_dtype(TrainState *state) {
    tensor_of(state, "second/out.bias")->dtype = DTYPE_I32;
}
static void no_data(TrainState *state) {
    Tensor *tensor = tensor_of(state, "second/out.bias");
    buf_release(tensor->buf);
    tensor->buf = NULL;
}
static void short_data(TrainState *state) {
    tensor_of(state, "second/out.bias")->offset = 4;
}
static void write_float(TrainState *state, const char *name, float value) {
    ((float *)(uintptr_t)tensor_data(tensor_of(state, name)))[1] = value;
}
static void write_nan(TrainState *state) {
    write_float(state, "weight/out.bias", NAN);
}
static void negative_square(TrainState *state) {
    write_float(state, "second/out.bias", -1e-9f);
}
static void write_double(TrainState *state, const char *name, int at, double value) {
    ((double *)(uintptr_t)tensor_data(tensor_of(state, name)))[at] = value;
}
static void nan_sum(TrainState *state) {
    write_double(state, "history/sums", 3, NAN);
}
static void far_row(TrainState *state) {
    write_double(state, "history/curve", 0, 99);
}
static void half_row(TrainState *state) {
    write_double(state, "history/curve", 0, 0.5);
}
static void many_rows(TrainState *state) {
    tree_put_int(state->arena, state->numbers, "rows", 6);
}
static void endless_rows(TrainState *state) {
    tree_put_int(state->arena, state->numbers, "rows", INT64_MAX);
}
static void step_beyond(TrainState *state) {
    tree_put_int(state->arena, state->numbers, "step", 13);
}
static void step_zero(TrainState *state) {
    tree_put_int(state->arena, state->numbers, "step", 0);
}
static void step_text(TrainState *state) {
    tree_put_string(state->arena, state->numbers, "step", "7");
}
static void other_total(TrainState *state) {
    tree_put_int(state->arena, state->numbers, "total", 24);
}
static void other_serial(TrainState *state) {
    tree_put_int(state->arena, state->numbers, "serial", 1);
}
static void no_numbers(TrainState *state) {
    state->numbers = NULL;
}
static void nan_norm(TrainState *state) {
    tree_put_real(state->arena, state->numbers, "largest_norm", NAN);
}

typedef struct Wrong {
    void (*make)(TrainState *state);
    const char *message;
} Wrong;

static const Wrong WRONG[] = {
    {rename_tensor, "has no \"weight/in.weight\""},
    {drop_tensor, "has no \"second/out.bias\""},
    {double_tensor, "has \"weight/in.weight\", which this one has not"},
    {add_tensor, "has \"average/in.weight\", which this one has not"},
    {turn_shape, "\"first/in.weight\" in the state of the training: expected f32[16, 8], "
                 "found f32[8, 16]"},
    {other_rank, "expected f32[16, 8], found f32[128]"},
    {other_dtype, "expected f32[3], found i32[3]"},
    {no_data, "lacks the data of \"second/out.bias\""},
    {short_data, "lacks the data of \"second/out.bias\""},
    {write_nan,
     "\"weight/out.bias\" in the state of the training: element 1 is not finite"},
    {negative_square, "negative second moment of 'out.bias', element 1"},
    {nan_sum, "\"history/sums\" in the state of the training: element 3 is not finite"},
    {far_row, "expected rows whose steps rise up to 7"},
    {half_row, "expected rows whose steps rise up to 7"},
    {many_rows, "\"history/curve\" in the state of the training: expected f64[6, "},
    {endless_rows, "\"rows\" in the state of the training: expected 0 to 7"},
    {step_beyond, "\"step\" in the state of the training: expected 1 to 12, found 13"},
    {step_zero, "\"step\" in the state of the training: expected 1 to 12, found 0"},
    {step_text, "has no whole number \"step\""},
    {other_total, "expected 12 to 12, found 24"},
    {other_serial, "expected 0 to 0, found 1"},
    {no_numbers, "has no whole number \"serial\""},
    {nan_norm, "has no finite number \"largest_norm\""},
};

/* Each with one error that names what is wrong, the weights as they were. */
static void test_refused(void **state) {
    (void)state;
    Memory memory = {0};
    Outcome whole;
    Setup setup = {.options = usual_options()};
    run_setup(&setup, &memory, 1, &whole);
    memory.from = 7;
    const TrainKeeper keeper = keeper_of(&memory);
    setup.options.keeper = &keeper;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        Fixture f;
        TrainReport report;
        float before[WEIGHTS], after[WEIGHTS];
        memory.wrong = WRONG[i].make;
        open_kind(&f, &setup);
        copy_weights(f.graph, before);
        assert_int_equal(run_training(&f, &setup.options, 7, 1, &report), STATUS_MODEL);
        char *text = diag_text(f.diag);
        if (!strstr(text, WRONG[i].message) || diag_errors(f.diag) != 1)
            fail_msg("no \"%s\" in: %s", WRONG[i].message, text);
        free(text);
        copy_weights(f.graph, after);
        assert_memory_equal(before, after, sizeof before);
        model_close(&f);
    }
    arena_destroy(whole.arena);
    memory_close(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_measuring_is_silent),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_measuring_interrupted),
        cmocka_unit_test(test_serial),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
