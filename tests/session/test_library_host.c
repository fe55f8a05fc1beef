/* The library in hosts that are not as it expects: with floating-point environments of
 * their own, without threads, with callbacks that free what is in use, with paths that
 * are no text. */
#include "ir/sanitized.h"
#include "ir/text.h"
#include "tests/session/library_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* OpenBLAS's, which the host uses as well. */
void openblas_set_num_threads(int threads);
int openblas_get_num_threads(void);

#define PRUNE "[prune_ffn: {keep_ratio: 0.5, score: magnitude}]"

/* ---- floats ---- */

/* What a host has set, and how often a callback found it. */
typedef struct Floats {
    int rounding, traps; /* traps: exceptions that end the program */
    int found, others;
} Floats;

/* Not every processor traps. */
static void floats_set(Floats *floats) {
    fesetround(floats->rounding);
    feenableexcept(floats->traps);
    floats->traps = fegetexcept();
}

static bool floats_are(const Floats *floats) {
    return fegetround() == floats->rounding && fegetexcept() == floats->traps;
}

static void look_at_progress(void *self, int64_t done, int64_t total, const char *text) {
    Floats *floats = self;
    (void)done, (void)total, (void)text;
    ++*(floats_are(floats) ? &floats->found : &floats->others);
}

static int look(void *self) {
    look_at_progress(self, 0, 0, "");
    return 0;
}

static int look_at_piece(void *self, const char *text) {
    look_at_progress(self, 0, 0, text);
    return 0;
}

/* All that a host may do with a model, into a file. */
static void work_into(const char *path, Floats *floats) {
    CompressWriter *writer;
    CompressModel *language, *again;
    Use use;
    use_open(&use);
    compress_watch(use.context, floats, look_at_progress, look);
    assert_int_equal(compress_apply(use.context, use.model, PRUNE, NULL), COMPRESS_OK);
    assert_int_equal(compress_save(use.context, use.model, path, NULL), COMPRESS_OK);
    assert_int_equal(compress_load(use.context, path, &again), COMPRESS_OK);
    assert_int_equal(compress_load(use.context, LLAMA, &language), COMPRESS_OK);
    assert_int_equal(
        compress_prepare_writer(use.context, language, "{" WORDS "}", &writer),
        COMPRESS_OK);
    assert_int_equal(compress_write(use.context, writer, "the king", "{max_tokens: 5}",
                                    look_at_piece, floats, NULL),
                     COMPRESS_OK);
    compress_free_writer(writer);
    compress_free_model(language);
    compress_free_model(again);
    use_close(&use);
}

static void assert_same_bytes(const char *a, const char *b) {
    char command[160];
    snprintf(command, sizeof command, "cmp %s %s", a, b);
    assert_int_equal(system(command), 0);
}

/* However the host rounds and whatever it has trap: the same bytes, and in callbacks and
 * behind calls it is as it was. */
static void test_floats(void **state) {
    static const Floats HOSTS[] = {{FE_TONEAREST, 0, 0, 0},
                                   {FE_UPWARD, 0, 0, 0},
                                   {FE_TOWARDZERO, FE_ALL_EXCEPT, 0, 0}};
    char folder[] = "/tmp/library_XXXXXX", plain[64], path[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(plain, sizeof plain, "%s/plain.safetensors", folder);
    snprintf(path, sizeof path, "%s/other.safetensors", folder);
    for (size_t i = 0; i < sizeof HOSTS / sizeof *HOSTS; i++) {
        Floats floats = HOSTS[i];
        floats_set(&floats);
        work_into(i == 0 ? plain : path, &floats);
        const bool kept = floats_are(&floats);
        fesetenv(FE_DFL_ENV);
        assert_true(kept);
        assert_true(floats.found > 2);
        assert_int_equal(floats.others, 0);
        if (i > 0) assert_same_bytes(path, plain);
    }
    unlink(plain);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- threads ---- */

#if !SANITIZED && !THREAD_SANITIZED

static atomic_bool no_threads;

/* The system's, for all of the program, OpenBLAS as well. */
__attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
               void *self) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (atomic_load(&no_threads)) return EAGAIN;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attributes, body, self);
}

/* Files of HDF5 are read by a child, at whose fork OpenBLAS ends its threads: it does not
 * want them back with the call, and the host keeps their number. */
static void test_no_threads(void **state) {
    enum { HOST_THREADS = 3 };
    CompressContext *context;
    (void)state;
    openblas_set_num_threads(HOST_THREADS);
    assert_int_equal(compress_open(&context, 1), COMPRESS_OK);
    atomic_store(&no_threads, true);
    for (int i = 0; i < 2; i++) {
        CompressModel *model;
        assert_int_equal(compress_load(context, LLAMA, &model), COMPRESS_OK);
        assert_int_equal(openblas_get_num_threads(), HOST_THREADS);
        compress_free_model(model);
    }
    atomic_store(&no_threads, false);
    compress_close(context);
}

#else

static void test_no_threads(void **state) {
    (void)state;
    skip(); /* a sanitizer has a pthread_create of its own */
}

#endif

/* ---- JSON ---- */

static int host_live; /* blocks of jansson's that the host gave and has not got back */

static void *host_alloc(size_t bytes) {
    host_live++;
    return malloc(bytes);
}

static void host_free(void *block) {
    host_live -= block != NULL;
    free(block);
}

/* A host that has jansson's memory from functions of its own keeps them. */
static void test_json_memory(void **state) {
    CompressContext *context;
    CompressModel *model;
    json_malloc_t alloc;
    json_free_t give_back;
    (void)state;
    json_set_alloc_funcs(host_alloc, host_free);
    json_t *value = json_pack("{s: [i, i]}", "key", 1, 2);
    assert_int_equal(compress_open(&context, 1), COMPRESS_OK);
    assert_int_equal(compress_load(context, BERT, &model), COMPRESS_OK); /* config.json */
    json_get_alloc_funcs(&alloc, &give_back);
    assert_true(alloc == host_alloc && give_back == host_free);
    json_decref(value);
    assert_int_equal(host_live, 0);
    json_set_alloc_funcs(malloc, free);
    compress_free_model(model);
    compress_close(context);
}

/* ---- callbacks ---- */

/* What a callback frees that the call, or the host behind it, still uses. */
typedef struct Freed {
    Use use;
    CompressRunner *runner;
    CompressWriter *writer;
    int times;
} Freed;

static void free_at_progress(void *self, int64_t done, int64_t total, const char *text) {
    Freed *freed = self;
    CompressContext *another;
    (void)done, (void)total, (void)text;
    compress_free_writer(freed->writer);
    compress_free_runner(freed->runner);
    compress_free_model(freed->use.model);
    compress_close(freed->use.context);
    assert_int_equal(compress_open(&another, 1), COMPRESS_USAGE);
    assert_null(another);
    freed->times++;
}

static int free_when_asked(void *self) {
    free_at_progress(self, 0, 0, "");
    return 0;
}

static int free_at_piece(void *self, const char *text) {
    free_at_progress(self, 0, 0, text);
    return 0;
}

/* Calls that need one each of what is freed, and work. */
static void use_all(Freed *freed) {
    static const int32_t IDS[17 * 3];
    const CompressTensor input = {"input_ids", COMPRESS_I32, 2, {17, 3}, IDS};
    CompressTensor *outputs;
    size_t count;
    const Use use = freed->use;
    assert_int_equal(
        compress_run_prepared(use.context, freed->runner, &input, 1, &outputs, &count),
        COMPRESS_OK);
    compress_free_tensors(outputs);
    assert_int_equal(compress_write(use.context, freed->writer, "the king",
                                    "{max_tokens: 5}", free_at_piece, freed, NULL),
                     COMPRESS_OK);
    assert_int_equal(compress_apply(use.context, use.model, PRUNE, NULL), COMPRESS_OK);
    assert_string_equal(compress_messages(use.context), "");
}

static void test_freed_in_callbacks(void **state) {
    Freed freed = {.times = 0};
    CompressContext *const *context = &freed.use.context;
    (void)state;
    assert_int_equal(compress_open(&freed.use.context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(*context, LLAMA, &freed.use.model), COMPRESS_OK);
    assert_int_equal(compress_prepare(*context, freed.use.model, &freed.runner),
                     COMPRESS_OK);
    assert_int_equal(
        compress_prepare_writer(*context, freed.use.model, "{" WORDS "}", &freed.writer),
        COMPRESS_OK);
    compress_watch(*context, &freed, NULL, free_when_asked);
    use_all(&freed);
    compress_watch(*context, &freed, free_at_progress, NULL);
    use_all(&freed);
    assert_true(freed.times > 4);
    compress_free_writer(freed.writer);
    compress_free_runner(freed.runner);
    use_close(&freed.use);
}

/* ---- messages ---- */

/* A path may be any bytes; a message is UTF-8. */
static void test_path_of_bytes(void **state) {
    CompressContext *context;
    CompressModel *model;
    (void)state;
    assert_int_equal(compress_open(&context, 1), COMPRESS_OK);
    assert_int_equal(compress_load(context, "/tmp/n\xff\xc3\xa9/x.h5", &model),
                     COMPRESS_IO);
    assert_true(utf8_is_valid(compress_messages(context)));
    assert_said(&(Use){.context = context}, "/tmp/n\\xff\xc3\xa9/x.h5");
    compress_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats),        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_json_memory),   cmocka_unit_test(test_freed_in_callbacks),
        cmocka_unit_test(test_path_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
