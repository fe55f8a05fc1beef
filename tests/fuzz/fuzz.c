/* What fuzz targets share: see fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include "io/datasets/dataset.h"
#include "io/files/yaml.h"
#include "ir/op.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *fuzz_folder(void) {
    static const char *chosen;
    if (!chosen) chosen = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    return chosen;
}

void fuzz_put(const char *path, const void *data, size_t size) {
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_expect(file >= 0 && write(file, data, size) == (ssize_t)size && close(file) == 0,
                "the input's file was written");
}

void fuzz_file(FuzzPath *out, const char *ending, const uint8_t *data, size_t size) {
    snprintf(out->path, sizeof out->path, "%s/compress-fuzz-%ld%s", fuzz_folder(),
             (long)getpid(), ending);
    fuzz_put(out->path, data, size);
}

void fuzz_remove(const FuzzPath *file) {
    unlink(file->path);
}

void fuzz_expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "expected: %s\n", what);
    abort();
}

void fuzz_told(Status status, const Diag *diag) {
    fuzz_expect(diag_errors(diag) == (status != STATUS_OK) && diag_status(diag) == status,
                "one error tells why the reader failed");
}

/* The counters that clang's -fsanitize=fuzzer counts in, by the linker's names. */
extern uint8_t __start___sancov_cntrs[] __attribute__((weak));
extern uint8_t __stop___sancov_cntrs[] __attribute__((weak));

/* Whole pages alone: what else lies on the first and the last stays each process's own.
 */
void fuzz_share_coverage(void) {
    if (!__start___sancov_cntrs) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint8_t *first =
        __start___sancov_cntrs + (-(uintptr_t)__start___sancov_cntrs & (page - 1));
    const size_t bytes = (size_t)(__stop___sancov_cntrs - first) / page * page;
    void *shared = mmap(first, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fuzz_expect(shared == first, "counters that children share");
}

/* Of messages that begin so: an input's own words may hold the rest. */
static void refuse_exit(void *self, const DiagEntry *entry) {
    static const char START[] = "the process that was to ";
    (void)self;
    if (strncmp(entry->message, START, sizeof START - 1) == 0 &&
        strstr(entry->message, "ended with exit code"))
        fuzz_expect(0, entry->message);
}

void fuzz_no_exit(const Diag *diag) {
    diag_visit(diag, refuse_exit, NULL);
}

enum { PIECE = 1024 };

void fuzz_checkpoint(const Checkpoint *checkpoint) {
    float piece[PIECE];
    for (int i = 0; i < checkpoint->count; i++) {
        const Tensor *tensor = &checkpoint->tensors[i].tensor;
        const int64_t count = tensor_count(tensor);
        fuzz_expect(checkpoint_find(checkpoint, checkpoint->tensors[i].name) == tensor,
                    "a tensor is found by its name");
        if (!dtype_is_real(tensor->dtype)) continue;
        for (int64_t first = 0; first < count; first += PIECE)
            tensor_read_f32(tensor, first, count - first < PIECE ? count - first : PIECE,
                            piece);
    }
}

enum { COLUMNS_MAX = 8, SAMPLES = 64 };

static void fetch_one(const Batches *set, int64_t sample, int64_t tokens, Diag *diag) {
    Fetch what = {.index = &sample, .n = 1};
    void *to[COLUMNS_MAX] = {NULL};
    batches_pad(set, &what);
    int64_t sizes[DIM_SYMBOLS] = {0};
    sizes[DIM_INDEX(DIM_N)] = 1;
    sizes[DIM_INDEX(DIM_T)] = what.tokens;
    sizes[DIM_INDEX(DIM_S)] = what.source;
    sizes[DIM_INDEX(DIM_M)] = batches_masked(set, what.tokens);
    fuzz_expect(what.tokens <= tokens && what.source <= tokens, "samples that fit");
    for (int c = 0; c < set->column_count; c++) {
        Type type;
        fuzz_expect(type_bind(&set->columns[c].type, sizes, &type), "a column has sizes");
        to[c] = malloc(((size_t)type_count(&type) + 1) * sizeof(float));
    }
    fuzz_expect(set->fetch(set, &what, to, diag) == STATUS_OK, "a sample is there");
    for (int c = 0; c < set->column_count; c++) free(to[c]);
}

void fuzz_data_set(const char *entry, int64_t tokens) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    const DataFormat *format;
    Tree *spec;
    void *options;
    Batches *set;
    fuzz_expect(yaml_parse(&spec, arena, "entry", entry, strlen(entry), diag) ==
                        STATUS_OK &&
                    dataset_bind(&format, &options, arena, spec, ".", diag) == STATUS_OK,
                "options that hold");
    const Status status = dataset_open(&set, format, options, LOC_NONE, diag);
    if (status == STATUS_OK) {
        fuzz_expect(set->count > 0 && set->column_count <= COLUMNS_MAX, "samples");
        for (int64_t i = 0; i < set->count && i < SAMPLES; i++)
            fetch_one(set, i, tokens, diag);
        batches_destroy(set);
    } else {
        fuzz_told(status, diag);
        fuzz_no_exit(diag);
    }
    arena_destroy(arena);
    diag_destroy(diag);
}
