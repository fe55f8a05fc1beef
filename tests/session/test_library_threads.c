/* The library called by several threads at once: that calls run side by side where the
 * header says so and alone where it says so, and give what they give one by one. */
#include "ir/sanitized.h"
#include "tests/session/library_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* What threads find is asserted by the test's own. */
static atomic_int wrong;

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);              \
            atomic_fetch_add(&wrong, 1);                                                 \
        }                                                                                \
    } while (0)

static void run_threads(int count, void *(*body)(void *self), void *const *selves) {
    enum { MOST = 8 };
    pthread_t threads[MOST];
    assert_true(count <= MOST);
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, selves[i]), 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
}

/* Waits for what another thread does; false = not within a minute. */
static bool wait_for(sem_t *done) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    return sem_timedwait(done, &until) == 0;
}

/* ---- samples ---- */

enum { SAMPLES = 70, TOKENS = 12, SHAPES = 4 };

static const int64_t shapes[SHAPES][2] = {{1, 5}, {2, 8}, {SAMPLES, TOKENS}, {3, 3}};

/* Outputs for samples of a shape, of a runner or, where that is NULL, of the model. */
static CompressStatus compute(const Use *use, CompressRunner *runner, int shape,
                              CompressTensor **outputs, size_t *count) {
    static const int32_t zeros[SAMPLES * TOKENS];
    int32_t ids[SAMPLES * TOKENS];
    for (int i = 0; i < SAMPLES * TOKENS; i++) ids[i] = 1 + i * 7 % 20;
    CompressTensor inputs[] = {{"input_ids", COMPRESS_I32, 2, {0}, ids},
                               {"token_type_ids", COMPRESS_I32, 2, {0}, zeros}};
    for (int i = 0; i < 2; i++)
        memcpy(inputs[i].dim, shapes[shape], sizeof shapes[shape]);
    return runner ? compress_run_prepared(use->context, runner, inputs, 2, outputs, count)
                  : compress_run(use->context, use->model, inputs, 2, outputs, count);
}

static bool same_outputs(const CompressTensor *a, const CompressTensor *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = (size_t)value_count(&a[i]) * sizeof(float);
        if (memcmp(a[i].dim, b[i].dim, sizeof a[i].dim) != 0 ||
            memcmp(a[i].data, b[i].data, bytes) != 0)
            return false;
    }
    return count > 0;
}

/* A runner, and what the model gives for each shape. */
typedef struct Runs {
    Use use;
    CompressRunner *runner;
    CompressTensor *want[SHAPES];
    size_t count[SHAPES];
} Runs;

static void runs_open(Runs *runs) {
    use_open(&runs->use);
    for (int i = 0; i < SHAPES; i++)
        assert_int_equal(compute(&runs->use, NULL, i, &runs->want[i], &runs->count[i]),
                         COMPRESS_OK);
    assert_int_equal(compress_prepare(runs->use.context, runs->use.model, &runs->runner),
                     COMPRESS_OK);
}

static void runs_close(Runs *runs) {
    for (int i = 0; i < SHAPES; i++) compress_free_tensors(runs->want[i]);
    compress_free_runner(runs->runner);
    use_close(&runs->use);
}

/* One run of a thread with its own context. */
static void expect_run(const Runs *runs, CompressContext *context, int shape,
                       bool ready) {
    const Use use = {context, runs->use.model};
    CompressTensor *got;
    size_t count = 0;
    EXPECT(compute(&use, ready ? runs->runner : NULL, shape, &got, &count) ==
           COMPRESS_OK);
    EXPECT(count == runs->count[shape] && same_outputs(got, runs->want[shape], count));
    compress_free_tensors(got);
}

typedef struct Runner {
    const Runs *runs;
    int number;
    CompressContext *context; /* NULL = one of its own */
} Runner;

static void *run_often(void *self) {
    enum { TIMES = 12 };
    const Runner *me = self;
    CompressContext *context = me->context;
    if (!context) EXPECT(compress_open(&context, 1 + me->number % 2) == COMPRESS_OK);
    for (int i = 0; i < TIMES; i++)
        expect_run(me->runs, context, (i + me->number) % SHAPES, i % 4 > 0);
    if (!me->context) compress_close(context);
    return NULL;
}

/* One runner and one model, read by all; then one context, too. */
static void test_one_runner(void **state) {
    enum { THREADS = 4 };
    Runs runs;
    (void)state;
    runs_open(&runs);
    for (int shared = 0; shared < 2; shared++) {
        Runner runners[THREADS];
        void *selves[THREADS];
        for (int i = 0; i < THREADS; i++) {
            runners[i] = (Runner){&runs, i, shared ? runs.use.context : NULL};
            selves[i] = &runners[i];
        }
        run_threads(THREADS, run_often, selves);
    }
    runs_close(&runs);
}

/* ---- side by side, and alone ---- */

/* Two calls, of which the first does not go on before the second says so. */
typedef struct Pair {
    const Runs *runs;
    sem_t begun, entering, done;
    void (*second)(const struct Pair *pair, CompressContext *context);
    bool alone;         /* the second must wait for the first */
    atomic_bool waited; /* the first did so, until the second was done or for a while */
    atomic_bool ended;  /* the second */
} Pair;

/* Asked once, at the beginning of the first call; a call from here is refused. */
static int wait_within(void *self) {
    Pair *pair = self;
    CompressModel *model;
    if (atomic_exchange(&pair->waited, true)) return 0;
    EXPECT(compress_load(pair->runs->use.context, BERT, &model) == COMPRESS_USAGE);
    sem_post(&pair->begun);
    if (pair->alone) { /* it would be done many times over */
        EXPECT(wait_for(&pair->entering));
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        EXPECT(!atomic_load(&pair->ended));
    } else {
        EXPECT(wait_for(&pair->done));
    }
    return 0;
}

static void *call_first(void *self) {
    Pair *pair = self;
    CompressContext *context;
    EXPECT(compress_open(&context, 2) == COMPRESS_OK);
    compress_watch(context, pair, NULL, wait_within);
    expect_run(pair->runs, context, 2, true);
    EXPECT(atomic_load(&pair->waited));
    compress_close(context);
    return NULL;
}

static void *call_second(void *self) {
    Pair *pair = self;
    CompressContext *context;
    EXPECT(compress_open(&context, 2) == COMPRESS_OK);
    EXPECT(wait_for(&pair->begun));
    sem_post(&pair->entering);
    pair->second(pair, context);
    atomic_store(&pair->ended, true);
    sem_post(&pair->done);
    compress_close(context);
    return NULL;
}

static void run_pair(const Runs *runs,
                     void (*second)(const Pair *pair, CompressContext *context),
                     bool alone) {
    Pair pair = {.runs = runs, .second = second, .alone = alone};
    void *selves[] = {&pair, &pair};
    pthread_t first;
    sem_init(&pair.begun, 0, 0);
    sem_init(&pair.entering, 0, 0);
    sem_init(&pair.done, 0, 0);
    assert_int_equal(pthread_create(&first, NULL, call_first, &pair), 0);
    run_threads(1, call_second, selves);
    pthread_join(first, NULL);
    assert_int_equal(atomic_load(&wrong), 0);
    sem_destroy(&pair.begun);
    sem_destroy(&pair.entering);
    sem_destroy(&pair.done);
}

static void run_ready(const Pair *pair, CompressContext *context) {
    expect_run(pair->runs, context, 2, true);
}

static void run_unready(const Pair *pair, CompressContext *context) {
    expect_run(pair->runs, context, 1, false);
}

/* A model is loaded, looked at, made ready and saved. */
static void replace_model(const Pair *pair, CompressContext *context) {
    CompressModel *model;
    CompressRunner *runner;
    char *json, path[64];
    (void)pair;
    snprintf(path, sizeof path, "/tmp/library-threads-%d.safetensors", (int)getpid());
    EXPECT(compress_load(context, BERT, &model) == COMPRESS_OK);
    EXPECT(compress_inspect(context, model, &json) == COMPRESS_OK);
    EXPECT(compress_prepare(context, model, &runner) == COMPRESS_OK);
    EXPECT(compress_save(context, model, path, NULL) == COMPRESS_OK);
    remove(path);
    compress_free_text(json);
    compress_free_runner(runner);
    compress_free_model(model);
}

static void apply_passes(const Pair *pair, CompressContext *context) {
    CompressModel *copy = compress_copy(pair->runs->use.model);
    EXPECT(compress_apply(context, copy, "[remove_layer: {count: 1}]", NULL) ==
           COMPRESS_OK);
    compress_free_model(copy);
}

static void test_side_by_side(void **state) {
    Runs runs;
    (void)state;
    runs_open(&runs);
    run_pair(&runs, run_ready, false);
    run_pair(&runs, run_unready, false);
    run_pair(&runs, replace_model, false);
    run_pair(&runs, apply_passes, true);
    runs_close(&runs);
}

/* ---- children ---- */

typedef struct Reading {
    const Runs *runs;
    atomic_bool ended;
} Reading;

static void *run_until(void *self) {
    Reading *reading = self;
    CompressContext *context;
    EXPECT(compress_open(&context, 2) == COMPRESS_OK);
    while (!atomic_load(&reading->ended)) expect_run(reading->runs, context, 2, true);
    compress_close(context);
    return NULL;
}

/* Files of HDF5 are written and read by children, of a process whose other threads
 * compute. */
static void *save_and_load(void *self) {
    enum { TIMES = 5 };
    Reading *reading = self;
    CompressContext *context;
    CompressModel *model;
    char path[64];
    snprintf(path, sizeof path, "/tmp/library-threads-%d.h5", (int)getpid());
    EXPECT(compress_open(&context, 2) == COMPRESS_OK);
    for (int i = 0; i < TIMES; i++) {
        EXPECT(compress_save(context, reading->runs->use.model, path, NULL) ==
               COMPRESS_OK);
        EXPECT(compress_load(context, path, &model) == COMPRESS_OK);
        compress_free_model(model);
    }
    remove(path);
    atomic_store(&reading->ended, true);
    compress_close(context);
    return NULL;
}

static void test_children(void **state) {
    Runs runs;
    pthread_t others[2];
    (void)state;
    if (SANITIZED || THREAD_SANITIZED) skip(); /* their allocators hold locks at a fork */
    runs_open(&runs);
    Reading reading = {.runs = &runs};
    void *selves[] = {&reading};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&others[i], NULL, run_until, &reading), 0);
    run_threads(1, save_and_load, selves);
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
    runs_close(&runs);
}

/* ---- texts ---- */

#define HOW     "max_tokens: 20, temperature: 0.8, seed: 3"
#define OPTIONS "{" HOW "}"

enum { TEXTS = 4, TURNS = 3 };

static const char *const beginnings[TEXTS] = {"the king", "when he", "what", "my lord"};

typedef struct Talk {
    CompressWriter *writer; /* to be copied */
    const char *beginning;
    char want[TURNS][512];
    int threads;
} Talk;

/* A conversation with a writer of its own. */
static void *talk(void *self) {
    const Talk *me = self;
    CompressContext *context;
    CompressWriter *writer;
    char text[1024], *more;
    EXPECT(compress_open(&context, me->threads) == COMPRESS_OK);
    EXPECT(compress_copy_writer(context, me->writer, &writer) == COMPRESS_OK);
    strcpy(text, me->beginning);
    for (int turn = 0; turn < TURNS; turn++) {
        EXPECT(compress_write(context, writer, text, OPTIONS, NULL, NULL, &more) ==
               COMPRESS_OK);
        EXPECT(more && strcmp(more, me->want[turn]) == 0);
        if (more) strcat(text, more);
        compress_free_text(more);
    }
    compress_free_writer(writer);
    compress_close(context);
    return NULL;
}

/* All with the same writer, on one thread or two. */
static void *write_alone(void *self) {
    const Talk *me = self;
    CompressContext *context;
    char *text;
    EXPECT(compress_open(&context, me->threads) == COMPRESS_OK);
    EXPECT(compress_write(context, me->writer, me->beginning, OPTIONS, NULL, NULL,
                          &text) == COMPRESS_OK);
    EXPECT(text && strcmp(text, me->want[0]) == 0);
    compress_free_text(text);
    compress_close(context);
    return NULL;
}

static void test_writers(void **state) {
    CompressContext *context;
    CompressModel *model;
    CompressWriter *writer;
    Talk talks[TEXTS];
    void *selves[TEXTS];
    (void)state;
    assert_int_equal(compress_open(&context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(context, LLAMA, &model), COMPRESS_OK);
    assert_int_equal(
        compress_prepare_writer(context, model, "{" WORDS ", context: 120}", &writer),
        COMPRESS_OK);
    for (int i = 0; i < TEXTS; i++) {
        char text[1024];
        talks[i] = (Talk){writer, beginnings[i], {""}, 1 + i % 2};
        selves[i] = &talks[i];
        strcpy(text, beginnings[i]);
        for (int turn = 0; turn < TURNS; turn++) {
            char *more;
            assert_int_equal(
                compress_generate(context, model, text, "{" WORDS ", " HOW "}", &more),
                COMPRESS_OK);
            assert_true(strlen(more) < sizeof talks[i].want[turn]);
            strcpy(talks[i].want[turn], more);
            strcat(text, more);
            compress_free_text(more);
        }
    }
    compress_free_model(model);
    run_threads(TEXTS, talk, selves);
    run_threads(TEXTS, write_alone, selves);
    CompressWriter *last;
    assert_int_equal(compress_copy_writer(context, NULL, &last), COMPRESS_USAGE);
    assert_int_equal(compress_copy_writer(context, writer, NULL), COMPRESS_USAGE);
    assert_int_equal(compress_copy_writer(context, writer, &last), COMPRESS_OK);
    compress_free_writer(writer);
    char *text;
    assert_int_equal(
        compress_write(context, last, beginnings[0], OPTIONS, NULL, NULL, &text),
        COMPRESS_OK);
    assert_string_equal(text, talks[0].want[0]);
    compress_free_text(text);
    compress_free_writer(last);
    compress_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_runner),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_children),
        cmocka_unit_test(test_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
