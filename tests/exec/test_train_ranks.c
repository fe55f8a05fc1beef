/* Training over ranks: the bytes of one rank, an end that all ranks hear of. The program
 * is one of the ranks; CTest starts it with several of them where the build has MPI, and
 * else alone. What one rank would come to it finds before it joins the others. With the
 * argument "fail" one rank's samples are wrong. */
#include "exec/run/ranks.h"
#include "exec/train/optimizer.h"
#include "tests/exec/keeper_fixture.h"
#include "tests/exec/prior_fixture.h"
#include "tests/exec/token_fixture.h"

/* Weights of several blocks, so that every rank owns some; and of several rounds of an
 * exchange among 4 ranks. */
enum { BROAD = 2500, LARGE = 50000 };

static const int64_t SHARDS[] = {1, 2, 3, 5, 8};
enum { SHARD_CASES = sizeof SHARDS / sizeof SHARDS[0] };

/* ---- what is trained ---- */

/* The classifier of train_fixture.h with more hidden numbers. */
static void broad_open(Fixture *f, int64_t hidden) {
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    toy_open(&f->toy);
    const Type features = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, WIDTH}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *x = graph_input(f->graph, "x", &features);
    Node *labels = graph_input(f->graph, "labels", &classes);
    Node *h = linear(f, x, "in.weight", "in.bias", hidden, WIDTH);
    h = make(f, "activation", &h, 1, "fn=tanh");
    h = make(f, "dropout", &h, 1, "rate=0.3");
    f->logits = linear(f, h, "out.weight", "out.bias", CLASSES, hidden);
    Node *in[] = {f->logits, labels};
    f->parts[0] = make(f, "cross_entropy", in, 2, NULL);
    f->parts[1] = make(f, "cross_entropy", in, 2, "smoothing=0.1");
    f->loss = make(f, "weighted_sum", f->parts, 2, "weights=[0.75, 0.25]");
}

static void open_adamw(Model *m, TrainOptions *options) {
    broad_open(&m->f, BROAD);
    options->augment = true;
}

static void open_sgd(Model *m, TrainOptions *options) {
    broad_open(&m->f, BROAD);
    options->optimizer = 1;
    options->micro_batch = 3;
}

static void open_halved(Model *m, TrainOptions *options) {
    open_adamw(m, options);
    options->moments = MOMENTS_BF16;
}

static void open_average(Model *m, TrainOptions *options) {
    broad_open(&m->f, BROAD);
    options->ema = 0.9;
    m->f.toy.batches.group = 4;
}

/* What is measured on a development set: a number that goes up and down. */
static Status read_meter(void *self, double *value, Diag *diag) {
    const Graph *graph = *(Graph **)self;
    float w;
    (void)diag;
    tensor_read_f32(&graph_storage(graph, "out.weight")->tensor, 0, 1, &w);
    *value = cos(300 * (double)w);
    return STATUS_OK;
}

static void open_best(Model *m, TrainOptions *options) {
    open_average(m, options);
    options->dev = "toy";
    options->dev_every = 1;
    options->keep = KEEP_BEST;
}

static void open_large(Model *m, TrainOptions *options) {
    broad_open(&m->f, LARGE);
    options->steps = 1; /* and no state in between */
    options->batch_size = 8;
}

static void open_prior(Model *m, TrainOptions *options) {
    broad_open(&m->f, BROAD);
    put_gaussian(&m->f, "in.weight", 1, 0.05);
    put_gaussian(&m->f, "out.bias", 5, 0.05);
    options->objective = OBJECTIVE_MAP;
}

static void open_variational(Model *m, TrainOptions *options) {
    open_prior(m, options);
    options->objective = OBJECTIVE_VARIATIONAL;
    options->ema = 0.9;
}

/* Losses that compare samples, those of all ranks. */
static void open_coupled(Model *m, TrainOptions *options) {
    Fixture *f = &m->f;
    broad_open(f, BROAD);
    Node *x = graph_find_input(f->graph, "x");
    f->parts[0] = make(f, "contrastive", &f->logits, 1, "scale=2.0 symmetric=true");
    f->parts[1] = make(f, "similarity_mse", (Node *[]){f->logits, x}, 2, NULL);
    f->loss = make(f, "weighted_sum", f->parts, 2, "weights=[1.0, 3.0]");
    options->micro_batch = 4;
}

/* Losses over rows, which are counted in all ranks. */
static void open_tokens(Model *m, TrainOptions *options) {
    tokens_model(m, false);
    options->batch_size = 9;
}

typedef struct Case {
    const char *name;
    void (*open)(Model *, TrainOptions *);
} Case;

static const Case CASES[] = {
    {"adamw", open_adamw},     {"sgd", open_sgd},       {"average", open_average},
    {"best", open_best},       {"prior", open_prior},   {"variational", open_variational},
    {"coupled", open_coupled}, {"tokens", open_tokens}, {"large", open_large},
    {"halved", open_halved},
};
enum { CASE_COUNT = sizeof CASES / sizeof CASES[0] };

static TrainOptions usual_options(int64_t shards) {
    TrainOptions options = train_defaults;
    options.epochs = 2;
    options.batch_size = 32; /* the last batch of an epoch has 4 */
    options.shards = shards;
    options.lr = 0.02;
    return options;
}

static const Batches *data_of(const Model *m) {
    return m->data.batches.fetch ? &m->data.batches : &m->f.toy.batches;
}

static Status run(Model *m, const TrainOptions *options, int threads, const Watch *watch,
                  TrainReport *report) {
    Fixture *f = &m->f;
    return train(f->graph, f->loss, f->parts, 2, data_of(m), options, 7, threads, watch,
                 f->arena, report, f->diag);
}

/* ---- what comes of it ---- */

typedef struct Outcome {
    float *values; /* weights, and variances of Gaussians */
    int64_t count;
    double first_loss, last_loss, parts[2], norm, prior;
} Outcome;

static void copy_outcome(Outcome *out, const Graph *graph, const TrainReport *report) {
    *out = (Outcome){.first_loss = report->first_loss,
                     .last_loss = report->last_loss,
                     .parts = {report->part_loss[0], report->part_loss[1]},
                     .norm = report->largest_norm,
                     .prior = report->last_prior};
    for (int i = 0; i < graph->storage_count; i++)
        out->count += tensor_count(&graph->storages[i]->tensor);
    out->values = memory_alloc(2 * (size_t)out->count, sizeof *out->values);
    copy_weights(graph, out->values);
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        const int64_t count = tensor_count(&storage->tensor);
        if (!storage->gaussian) continue;
        gaussian_variance_f32(storage->gaussian, 0, count, out->values + out->count);
        out->count += count;
    }
}

/* `memory` keeps the states, and may have one to go on from; NULL = nobody does. */
static void train_case(const Case *which, int64_t shards, int threads, Memory *memory,
                       Outcome *out) {
    Model *m = memory_alloc(1, sizeof *m);
    TrainReport report;
    TrainOptions options = usual_options(shards);
    const TrainKeeper keeper = keeper_of(memory);
    const TrainMeasure meter = {.self = &m->f.graph, .measure = read_meter};
    if (memory) options.keeper = &keeper;
    which->open(m, &options);
    if (options.dev) options.measure = &meter;
    assert_ok(run(m, &options, threads, NULL, &report), m->f.diag);
    copy_outcome(out, m->f.graph, &report);
    model_close(&m->f);
    free(m);
}

/* What comes of one rank and one thread, and the states it leaves. */
static Outcome alone[CASE_COUNT][SHARD_CASES];
static Memory kept_alone[CASE_COUNT];

enum { KEPT_SHARDS = 3 }; /* SHARDS[] whose states are compared */

static void train_alone(void) {
    for (int c = 0; c < CASE_COUNT; c++)
        for (int s = 0; s < SHARD_CASES; s++) {
            Memory *memory = s == KEPT_SHARDS ? &kept_alone[c] : NULL;
            train_case(&CASES[c], SHARDS[s], 1, memory, &alone[c][s]);
        }
}

static void check_case(const Case *which, int64_t shards, int threads, Memory *memory,
                       const Outcome *want) {
    Outcome got;
    train_case(which, shards, threads, memory, &got);
    assert_int_equal(got.count, want->count);
    if (memcmp(got.values, want->values, (size_t)got.count * sizeof(float)) != 0)
        fail_msg("%s, %d shards, %d threads: not the bytes of one rank", which->name,
                 (int)shards, threads);
    assert_true(got.first_loss == want->first_loss && got.last_loss == want->last_loss);
    assert_memory_equal(got.parts, want->parts, sizeof got.parts);
    assert_true(got.norm == want->norm && got.prior == want->prior);
    free(got.values);
}

static void bytes_are_those_of_one_rank(void **state) {
    (void)state;
    for (int c = 0; c < CASE_COUNT; c++)
        for (int s = 0; s < SHARD_CASES; s++)
            check_case(&CASES[c], SHARDS[s], 1 + (c + s) % 2, NULL, &alone[c][s]);
}

/* ---- states ---- */

static void check_state(const TrainState *got, const TrainState *want) {
    Text numbers = {0}, expected = {0};
    assert_int_equal(got->tensor_count, want->tensor_count);
    for (int i = 0; i < want->tensor_count; i++) {
        const TrainTensor *a = &got->tensors[i], *b = &want->tensors[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(tensor_bytes(&a->tensor), tensor_bytes(&b->tensor));
        if (memcmp(tensor_data(&a->tensor), tensor_data(&b->tensor),
                   tensor_bytes(&b->tensor)) != 0)
            fail_msg("%s is not as one rank has it", b->name);
    }
    tree_print_json(&numbers, got->numbers, 0);
    tree_print_json(&expected, want->numbers, 0);
    assert_string_equal(numbers.data, expected.data);
    text_free(&numbers);
    text_free(&expected);
}

/* Rank 0 is given the whole state, the others nothing: one rank may go on from it. */
static void states_are_those_of_one_rank(void **state) {
    (void)state;
    for (int c = 0; c < CASE_COUNT; c++) {
        Memory memory = {0};
        const Memory *want = &kept_alone[c];
        check_case(&CASES[c], SHARDS[KEPT_SHARDS], 1, &memory, &alone[c][KEPT_SHARDS]);
        assert_true(want->saves > 0);
        assert_int_equal(memory.saves, ranks_number() == 0 ? want->saves : 0);
        for (int i = 0; i <= STEPS_MOST && ranks_number() == 0; i++)
            if (want->states[i]) check_state(memory.states[i], want->states[i]);
        memory_close(&memory);
    }
}

/* Ranks go on from a state that one rank has left. */
static void states_of_one_rank_are_taken_up(void **state) {
    (void)state;
    for (int c = 0; c < CASE_COUNT; c++) {
        Memory *memory = &kept_alone[c];
        memory->from = memory->saves / 2;
        if (memory->from > 0)
            check_case(&CASES[c], SHARDS[KEPT_SHARDS], 1, memory, &alone[c][KEPT_SHARDS]);
    }
}

/* One gradient is left in each rank: a step sends the least, and a few numbers. */
static void a_step_sends_no_more_than_it_must(void **state) {
    (void)state;
    const uint64_t ranks = (uint64_t)ranks_count(), before = ranks_traffic().bytes;
    const uint64_t weights = LARGE * (WIDTH + 1 + CLASSES) + CLASSES;
    Model *m = memory_alloc(1, sizeof *m);
    TrainReport report;
    TrainOptions options = usual_options(4 * ranks_count());
    open_large(m, &options);
    options.batch_size = 4 * ranks_count();
    assert_ok(run(m, &options, 1, NULL, &report), m->f.diag);
    const uint64_t sent = ranks_traffic().bytes - before;
    const uint64_t least = 2 * (ranks - 1) * weights * sizeof(float) / ranks;
    const uint64_t part = 8192 * sizeof(float); /* parts are whole blocks */
    assert_true(sent + 2 * part >= least && sent <= least + 2 * part + 4096);
    model_close(&m->f);
    free(m);
}

/* A rank has the moments of what it owns alone. */
static void moments_are_divided(void **state) {
    (void)state;
    enum { MOMENTS = 2, BLOCK = 8192 };
    const size_t weights = LARGE * (WIDTH + 1 + CLASSES) + CLASSES;
    const size_t whole = MOMENTS * weights * sizeof(float);
    const size_t each = whole / (size_t)ranks_count();
    Model *m = memory_alloc(1, sizeof *m);
    TrainOptions options = usual_options(1);
    open_large(m, &options);
    const size_t bytes = optimizer_bytes(m->f.graph, &options);
    const size_t blocks = 2 * MOMENTS * BLOCK * sizeof(float); /* parts are whole ones */
    assert_in_range(bytes, each - blocks, each + blocks);
    model_close(&m->f);
    free(m);
}

/* ---- ends ---- */

/* Wants the work to stop when it is asked for the second time. */
static bool stop_later(void *self) {
    int *asked = self;
    return (*asked)++ > 0;
}

static bool go_on(void *self) {
    (void)self;
    return false;
}

/* The last rank, which has no shard where there are several, is told to stop: all do so
 * after the same step, with the same weights. */
static void an_interruption_stops_all_after_one_step(void **state) {
    (void)state;
    const bool last = ranks_number() == ranks_count() - 1;
    int asked = 0;
    const Watch watch = {.self = &asked, .cancelled = last ? stop_later : go_on};
    Model *m = memory_alloc(1, sizeof *m);
    TrainReport report;
    TrainOptions options = usual_options(1);
    options.steps = 1000000000;
    open_tokens(m, &options);
    assert_int_equal(run(m, &options, 1, &watch, &report), STATUS_INTERRUPTED);
    assert_int_equal(diag_errors(m->f.diag), 1);

    /* what rank 0 has comes to all, and is what they have */
    float weights[WEIGHTS] = {0}, first[WEIGHTS];
    char *text = diag_text(m->f.diag), told[200] = "";
    snprintf(told, sizeof told, "%s", text);
    copy_weights(m->f.graph, weights);
    memcpy(first, weights, sizeof first);
    assert_ok(ranks_broadcast(told, sizeof told, 0, m->f.diag), m->f.diag);
    assert_ok(ranks_broadcast(first, sizeof first, 0, m->f.diag), m->f.diag);
    assert_string_equal(text, told);
    assert_non_null(strstr(text, "training stopped after "));
    assert_null(strstr(text, "after 0 of"));
    assert_memory_equal(weights, first, sizeof first);
    free(text);
    model_close(&m->f);
    free(m);
}

/* A sample that cannot be used, in one rank's shard: all fail as one rank does. */
static void a_failure_reaches_all(void **state) {
    (void)state;
    Model *m = memory_alloc(1, sizeof *m);
    TrainReport report;
    TrainOptions options = usual_options(8);
    open_adamw(m, &options);
    options.batch_size = SAMPLES;
    m->f.toy.bad_label = 73;
    assert_int_equal(run(m, &options, 1, NULL, &report), STATUS_MODEL);
    char *text = diag_text(m->f.diag);
    assert_non_null(strstr(text, "sample 73"));
    assert_non_null(strstr(text, "0 to 2, found 9"));
    assert_int_equal(diag_errors(m->f.diag), 1);
    free(text);
    model_close(&m->f);
    free(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_one_rank),
        cmocka_unit_test(states_are_those_of_one_rank),
        cmocka_unit_test(states_of_one_rank_are_taken_up),
        cmocka_unit_test(a_step_sends_no_more_than_it_must),
        cmocka_unit_test(moments_are_divided),
        cmocka_unit_test(an_interruption_stops_all_after_one_step),
    };
    const struct CMUnitTest failing[] = {cmocka_unit_test(a_failure_reaches_all)};
    const bool fail = argc > 1 && strcmp(argv[1], "fail") == 0;
    Diag *diag = diag_create();
    if (!fail) train_alone();
    const Status status = ranks_open(diag);
    diag_print(diag, stderr);
    diag_destroy(diag);
    if (status != STATUS_OK) return status_exit_code(status);
    const int failed = fail ? cmocka_run_group_tests(failing, NULL, NULL)
                            : cmocka_run_group_tests(tests, NULL, NULL);
    if (failed > 0) ranks_abort(1); /* the others may wait for this one */
    for (int c = 0; c < CASE_COUNT; c++) {
        for (int s = 0; s < SHARD_CASES; s++) free(alone[c][s].values);
        memory_close(&kept_alone[c]);
    }
    ranks_close();
    return 0;
}
