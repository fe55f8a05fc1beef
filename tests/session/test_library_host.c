/* The library in hosts that are not as it expects: without threads, with paths
 * that are no text. */
#include "ir/sanitized.h"
#include "ir/text.h"
#include "tests/session/library_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/* OpenBLAS's, which the host uses as well. */
void openblas_set_num_threads(int threads);
int openblas_get_num_threads(void);

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
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_path_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
