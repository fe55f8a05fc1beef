/* What stays in memory of mapped files, by the kernel's count (mincore does not tell: it
 * counts the page cache; the pages of a mapping are in /proc/self/smaps). */
#include "ir/mapped.h"
#include "ir/resident.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { TENSORS = 16, TENSOR_MIB = 4 };

/* Bytes of the mapping that begins at an address that are in memory. */
static size_t resident_of(const void *data) {
    char line[256], start[32];
    size_t kib = 0;
    bool found = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)data);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, start, strlen(start)) == 0) found = true;
        if (found && sscanf(line, "Rss: %zu kB", &kib) == 1) break;
    }
    fclose(file);
    assert_true(found);
    return kib * 1024;
}

static void unmap(void *data, size_t bytes) {
    munmap(data, bytes);
}

/* A file of TENSORS tensors of 4 MiB, the i-th full of bytes i + 1. */
static Buf *map_file(void) {
    char path[] = "/tmp/resident_XXXXXX";
    const int fd = mkstemp(path);
    char *block = malloc(TENSOR_MIB * MIB);
    assert_true(fd >= 0 && block);
    unlink(path);
    for (int i = 0; i < TENSORS; i++) {
        memset(block, i + 1, TENSOR_MIB * MIB);
        assert_int_equal(write(fd, block, TENSOR_MIB * MIB), TENSOR_MIB * MIB);
    }
    free(block);
    const size_t bytes = TENSORS * TENSOR_MIB * MIB;
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(data != MAP_FAILED);
    close(fd);
    return buf_wrap_file(data, bytes, unmap);
}

static Tensor tensor_of(Buf *buf, int i) {
    Tensor tensor = tensor_shape(DTYPE_U8, 1, (int64_t[]){TENSOR_MIB * MIB});
    tensor.buf = buf;
    tensor.offset = (size_t)i * TENSOR_MIB * MIB;
    return tensor;
}

/* Reads every byte of every tensor, whole or in chunks. */
static void read_all(Buf *buf, int64_t chunk) {
    float *values = malloc((size_t)chunk * sizeof *values);
    for (int i = 0; i < TENSORS; i++) {
        const Tensor tensor = tensor_of(buf, i);
        for (int64_t at = 0; at < tensor_count(&tensor); at += chunk) {
            tensor_read_f32(&tensor, at, chunk, values);
            assert_true(values[0] == (float)(i + 1) &&
                        values[chunk - 1] == (float)(i + 1));
        }
    }
    free(values);
}

static void test_mapped(void **state) {
    Buf *buf = map_file();
    (void)state;
    read_all(buf, 1024);
    assert_int_equal(resident_of(buf_data(buf)), TENSORS * TENSOR_MIB * MIB);
    resident_bound(8 * MIB, NULL);
    read_all(buf, 1024);
    assert_in_range(resident_of(buf_data(buf)), 0, 8 * MIB + 2 * MIB);
    read_all(buf, TENSOR_MIB * MIB);
    assert_in_range(resident_of(buf_data(buf)), 0, (8 + 2 * TENSOR_MIB) * MIB);
    resident_bound(0, NULL);
    read_all(buf, 1024);
    assert_int_equal(resident_of(buf_data(buf)), TENSORS * TENSOR_MIB * MIB);
    buf_release(buf);
}

/* Keeps the list of mappings busy until told to end. */
static void *add_and_remove(void *end) {
    char bytes[64];
    while (!atomic_load((atomic_bool *)end)) {
        resident_add(bytes, sizeof bytes);
        resident_remove(bytes);
    }
    return NULL;
}

/* Pages are given back in time whatever other threads do with mappings meanwhile. */
static void test_busy(void **state) {
    Buf *buf = map_file();
    pthread_t other;
    atomic_bool end = false;
    (void)state;
    resident_bound(8 * MIB, NULL);
    assert_int_equal(pthread_create(&other, NULL, add_and_remove, &end), 0);
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < TENSORS; i++) {
            const Tensor tensor = tensor_of(buf, i);
            float values[1024];
            for (int64_t at = 0; at < tensor_count(&tensor); at += 1024)
                tensor_read_f32(&tensor, at, 1024, values);
            assert_in_range(resident_of(buf_data(buf)), 0, 8 * MIB + 2 * MIB);
        }
    atomic_store(&end, true);
    pthread_join(other, NULL);
    resident_bound(0, NULL);
    buf_release(buf);
}

/* Owned tensors beyond the bound lie in files, and keep what is written to them. */
static void test_spilled(void **state) {
    Diag *diag = diag_create();
    Tensor tensors[TENSORS];
    size_t resident = 0;
    (void)state;
    resident_bound(8 * MIB, "/tmp");
    for (int i = 0; i < TENSORS; i++) {
        void *data;
        assert_ok(
            tensor_create(&tensors[i], DTYPE_U8, 1, (int64_t[]){TENSOR_MIB * MIB}, diag),
            diag);
        assert_int_equal(buf_is_file(tensors[i].buf), i >= 2);
        assert_ok(tensor_writable(&tensors[i], &data, diag), diag);
        memset(data, i + 1, TENSOR_MIB * MIB);
    }
    for (int i = 2; i < TENSORS; i++) resident += resident_of(tensor_data(&tensors[i]));
    assert_in_range(resident, 0, (8 + 2 * TENSOR_MIB) * MIB);
    for (int i = 0; i < TENSORS; i++) {
        const unsigned char *data = tensor_data(&tensors[i]);
        for (size_t at = 0; at < TENSOR_MIB * MIB; at += 4095)
            assert_int_equal(data[at], i + 1);
        tensor_release(&tensors[i]);
    }
    resident_bound(0, NULL);
    diag_destroy(diag);
}

static void test_no_room(void **state) {
    Diag *diag = diag_create();
    Tensor tensor;
    (void)state;
    resident_bound(1 * MIB, "/nowhere");
    assert_int_equal(tensor_create(&tensor, DTYPE_U8, 1, (int64_t[]){4 * MIB}, diag),
                     STATUS_MEMORY);
    char *text = diag_text(diag);
    assert_non_null(strstr(text, "cannot keep 4194304 bytes (4.0 MiB) in a file in "
                                 "/nowhere: No such file or directory"));
    free(text);
    resident_bound(0, NULL);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mapped), cmocka_unit_test(test_busy),
        cmocka_unit_test(test_spilled), cmocka_unit_test(test_no_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
