/* Native model file and sandbox: round trips, equal bytes, and files that are damaged. */
#include "io/files/file.h"
#include "io/files/sandbox.h"
#include "io/formats/modelfile.h"
#include "ir/irtext.h"
#include "ir/mapped.h"
#include "ir/quantised.h"
#include "ir/random.h"
#include "ir/sanitized.h"
#include "tests/support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MUTANTS = SANITIZED ? 1600 : 3200, PATH_BYTES = 512 };

/* --- a small table of ops of our own, and a model with every element type --- */

static Status infer_first(const Node *node, Type *out, Diag *diag) {
    (void)diag;
    *out = node->in[0]->type;
    return STATUS_OK;
}

static const Operand NO_OPERANDS[] = {{NULL}};
static const Operand TWO[] = {
    {"x", OPERAND_REQUIRED, ""}, {"y", OPERAND_REQUIRED, ""}, {NULL}};
static const Op INPUT = {.name = "input", .operands = NO_OPERANDS, .traits = OP_INPUT};
static const Op PARAM = {.name = "param", .operands = NO_OPERANDS, .traits = OP_PARAM};
static const Op SUM = {.name = "sum", .operands = TWO, .infer = infer_first};
static const Op *const LIST[] = {&INPUT, &PARAM, &SUM};
static const OpTable OPS = {LIST, 3};

typedef struct Spec {
    const char *name;
    DType dtype;
    int rank;
    int64_t dim[RANK_MAX];
} Spec;

static const Spec SPECS[] = {{"encoder.0.weight", DTYPE_F32, 2, {5, 3}},
                             {"a/b%c", DTYPE_F64, 1, {4}},
                             {"half", DTYPE_F16, 3, {2, 1, 3}},
                             {"brain", DTYPE_BF16, 1, {7}},
                             {"scalar", DTYPE_F32, 0, {0}},
                             {"ids", DTYPE_I64, 1, {3}},
                             {".", DTYPE_I32, 1, {2}},
                             {"quantised", DTYPE_I8, 1, {9}},
                             {"bytes", DTYPE_U8, 1, {6}},
                             {"mask", DTYPE_BOOL, 1, {3}},
                             {"empty", DTYPE_F32, 2, {0, 4}},
                             {"eight", DTYPE_Q8, 3, {3, 2, 5}},
                             {"four", DTYPE_Q4, 2, {3, 71}},
                             {"no rows", DTYPE_Q8, 2, {0, 4}}};

enum { SPEC_COUNT = sizeof SPECS / sizeof *SPECS };

static char folder[PATH_BYTES];

static const char *path_of(const char *name) {
    static char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void fill_quantised(Tensor *tensor, uint64_t key) {
    const int64_t width = quantised_width(tensor);
    float row[128];
    for (int64_t r = 0; r < quantised_rows(tensor); r++) {
        for (int64_t i = 0; i < width; i++)
            row[i] = (float)random_normal(key, (uint64_t)(r * width + i));
        quantised_round_row(tensor, r, row);
    }
}

/* Small finite values of any type: bit patterns that start with zeros. */
static void fill(Tensor *tensor, uint64_t key, Diag *diag) {
    void *data;
    assert_ok(tensor_writable(tensor, &data, diag), diag);
    if (dtype_is_quantised(tensor->dtype)) {
        fill_quantised(tensor, key);
        return;
    }
    size_t each = dtype_bytes(tensor->dtype), bytes = tensor_bytes(tensor);
    for (size_t i = 0; i < bytes; i++) {
        bool high = i % each == each - 1 && each > 1;
        uint64_t draw = random_u64(key, i);
        ((uint8_t *)data)[i] = (uint8_t)(high                          ? 0x3a
                                         : tensor->dtype == DTYPE_BOOL ? draw & 1
                                                                       : draw);
    }
}

/* The first three storages have Gaussians of the three forms: kron, low_rank, diagonal.
 */
static void add_gaussian(Arena *arena, Storage *storage, int i, Diag *diag) {
    static const GaussianForm forms[] = {GAUSSIAN_KRON, GAUSSIAN_LOW_RANK,
                                         GAUSSIAN_DIAGONAL};
    Gaussian *g =
        gaussian_create(arena, forms[i], i == 1 ? DTYPE_F64 : DTYPE_F32, &storage->tensor,
                        2, "0123456789abcdef0123456789abcdef");
    GaussianPart part[GAUSSIAN_PARTS_MAX];
    assert_ok(gaussian_allocate(g, diag), diag);
    const int count = gaussian_parts(g, part);
    for (int p = 0; p < count; p++)
        for (int64_t k = 0; k < tensor_count(part[p].tensor); k++)
            assert_ok(tensor_write_f64(part[p].tensor, k, 1, (double[]){0.5 + p}, diag),
                      diag);
    storage->gaussian = g;
}

static Model *model_make(Diag *diag) {
    Model *model = model_create(&OPS);
    Graph *graph = model->graph;
    Type type = {DTYPE_F32, 2, {DIM_N, 3}};
    Node *x = graph_input(graph, "x", &type);
    Node *last = NULL;
    for (int i = 0; i < SPEC_COUNT; i++) {
        const Spec *spec = &SPECS[i];
        Storage *storage;
        Tensor shape = tensor_shape(spec->dtype, spec->rank, spec->dim);
        if (spec->dtype == DTYPE_Q4) shape = q4_shape(spec->rank, spec->dim, 32, true);
        assert_ok(graph_add_storage(&storage, graph, spec->name, &shape, diag), diag);
        assert_ok(tensor_allocate(&storage->tensor, diag), diag);
        fill(&storage->tensor, (uint64_t)i + 1, diag);
        if (i < 3) add_gaussian(model->arena, storage, i, diag);
        last = graph_param(graph, storage);
    }
    Node *sum = graph_insert(graph, NULL, &SUM, (Node *[]){x, last}, 2);
    assert_ok(node_infer(sum, diag), diag);
    graph_set_output(graph, "y", sum);
    tree_put_string(model->arena, model->config, "model_type", "test");
    tree_put_int(model->arena, model->provenance, "seed", 7);
    model_put_asset(model, "vocab.txt", "", 0);
    model_put_asset(model, "tokenizer.json", "old", 3);
    model_put_asset(model, "tokenizer.json", "{\"a\": \"\0\"}", 10);
    return model;
}

/* --- files --- */

typedef struct Bytes {
    uint8_t *data;
    size_t length;
} Bytes;

static Bytes slurp(const char *path) {
    Bytes bytes = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    bytes.length = (size_t)ftell(file);
    rewind(file);
    bytes.data = malloc(bytes.length + 1);
    assert_int_equal(fread(bytes.data, 1, bytes.length, file), bytes.length);
    fclose(file);
    return bytes;
}

static void spill(const char *path, const void *data, size_t length) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, length), length);
    close(fd);
}

static bool bytes_equal(Bytes a, Bytes b) {
    return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

static int files_in_folder(void) {
    char command[PATH_BYTES + 64];
    int count = -1;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *pipe = popen(command, "r");
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Writes the model to `name` and gives its bytes. */
static Bytes written(const char *name) {
    Diag *diag = diag_create();
    Model *model = model_make(diag);
    size_t length = 0;
    assert_ok(modelfile_write(model, path_of(name), &length, diag), diag);
    Bytes bytes = slurp(path_of(name));
    assert_int_equal(bytes.length, length);
    model_destroy(model);
    diag_destroy(diag);
    return bytes;
}

/* --- tests --- */

static void test_round_trip(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = model_make(diag), *copy;
    char wanted[HASH_TEXT_BYTES], found[HASH_TEXT_BYTES];
    size_t length;
    assert_ok(modelfile_write(model, path_of("model.h5"), &length, diag), diag);
    assert_true(modelfile_probe(path_of("model.h5")));
    assert_int_equal(files_in_folder(), 1);
    for (int check = 0; check < 2; check++) {
        assert_ok(modelfile_read(&copy, path_of("model.h5"), &OPS, check, diag), diag);
        model_hash(model, wanted);
        model_hash(copy, found);
        assert_string_equal(wanted, found);
        assert_string_equal(tree_get(copy->config, "model_type")->string, "test");
        assert_int_equal(tree_get(copy->provenance, "seed")->integer, 7);
        assert_int_equal(copy->asset_count, 2);
        assert_null(model_asset(copy, "merges.txt"));
        assert_int_equal(model_asset(copy, "vocab.txt")->length, 0);
        const ModelAsset *asset = model_asset(copy, "tokenizer.json");
        assert_int_equal(asset->length, 10);
        assert_memory_equal(asset->data, "{\"a\": \"\0\"}", 10);
        assert_int_equal(copy->file_bytes, length);
        model_destroy(copy);
    }
    model_destroy(model);
    diag_destroy(diag);
}

static void test_equal_bytes(void **state) {
    (void)state;
    Bytes first = written("a.h5");
    pid_t child = fork();
    if (child == 0) {
        free(written("b.h5").data);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    Bytes second = slurp(path_of("b.h5")), third = written("b.h5");
    assert_true(bytes_equal(first, second));
    assert_true(bytes_equal(first, third));
    /* A model that was read writes the same bytes as the one that was made. */
    Diag *diag = diag_create();
    Model *model;
    assert_ok(modelfile_read(&model, path_of("a.h5"), &OPS, true, diag), diag);
    assert_ok(modelfile_write(model, path_of("b.h5"), NULL, diag), diag);
    Bytes fourth = slurp(path_of("b.h5"));
    assert_true(bytes_equal(first, fourth));
    model_destroy(model);
    /* So does one of which nothing was read yet: hashes are found while it is written. */
    assert_ok(modelfile_read(&model, path_of("a.h5"), &OPS, false, diag), diag);
    assert_true(tensor_is_unread(&model->graph->storages[0]->tensor));
    assert_ok(modelfile_write(model, path_of("b.h5"), NULL, diag), diag);
    Bytes fifth = slurp(path_of("b.h5"));
    assert_true(bytes_equal(first, fifth));
    model_destroy(model);
    diag_destroy(diag);
    free(first.data), free(second.data), free(third.data), free(fourth.data);
    free(fifth.data);
}

/* Bytes of a file that mean no quantised tensor, though they are what was hashed: such a
 * file is made by writing a tensor that breaks the rules; so is one with other shapes. */
static void test_bad_quantised(void **state) {
    (void)state;
    static const struct {
        const char *name, *message;
        size_t at;
        unsigned char byte;
    } BAD[] = {
        {"eight", "eight: row 1, column 2: expected a number from -127 to 127", 12, 0x80},
        {"eight", "eight: row 0, group 0: expected a finite scale", 64 + 3, 0xff},
        {"four", "four: row 0: expected zero bits behind its 71 numbers", 35, 0x77},
        {"four", "four: row 0, group 1: expected a zero point from 0 to 15", 192 + 1, 16},
    };
    Diag *diag = diag_create();
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Model *model = model_make(diag), *copy = NULL;
        Storage *storage = graph_storage(model->graph, BAD[i].name);
        char *data = (char *)(uintptr_t)tensor_data(&storage->tensor);
        data[BAD[i].at] = (char)BAD[i].byte;
        /* read back at once, so written with an error that names the storage */
        assert_int_equal(modelfile_write(model, path_of("bad.h5"), NULL, diag),
                         STATUS_FORMAT);
        char *text = diag_text(diag);
        assert_non_null(strstr(text, BAD[i].message));
        assert_null(copy);
        free(text);
        diag_clear(diag);
        model_destroy(model);
    }
    diag_destroy(diag);
}

static void test_h5dump(void **state) {
    (void)state;
    char command[2 * PATH_BYTES + 64], line[256];
    bool half = false, name = false, scales = false, zeros = false;
    if (system("command -v h5dump > /dev/null") != 0) skip();
    free(written("dump.h5").data);
    snprintf(command, sizeof command, "h5dump -H '%s' 2>&1", path_of("dump.h5"));
    FILE *pipe = popen(command, "r");
    while (fgets(line, sizeof line, pipe)) {
        half |= strstr(line, "16-bit little-endian floating-point") != NULL;
        name |= strstr(line, "DATASET \"a%2Fb%25c\"") != NULL;
        scales |= strstr(line, "GROUP \"scales\"") != NULL;
        zeros |= strstr(line, "GROUP \"zeros\"") != NULL;
    }
    assert_int_equal(pclose(pipe), 0);
    assert_true(half && name && scales && zeros);
}

/* Reads bytes as a model and checks the outcome: refused with a message, or equal to the
 * model whose hash is given. */
static void check_damaged(const void *data, size_t length, const char *hash) {
    Diag *diag = diag_create();
    Model *model = NULL;
    double start = seconds();
    spill(path_of("damaged.h5"), data, length);
    Status status = modelfile_read(&model, path_of("damaged.h5"), &OPS, true, diag);
    assert_true(seconds() - start < 12);
    if (status == STATUS_OK) {
        char found[HASH_TEXT_BYTES];
        assert_non_null(hash);
        model_hash(model, found);
        assert_string_equal(found, hash);
    } else {
        assert_int_equal(status, STATUS_FORMAT);
        assert_int_equal(diag_status(diag), STATUS_FORMAT);
        assert_null(model);
    }
    model_destroy(model);
    diag_destroy(diag);
}

static void mutate(Bytes mutant, uint64_t key) {
    int changes = 1 + (int)(random_u64(key, 0) % 3);
    for (int i = 0; i < changes; i++) {
        uint64_t draw = random_u64(key, 1 + 2 * (uint64_t)i);
        size_t at = (size_t)(random_u64(key, 2 + 2 * (uint64_t)i) % mutant.length);
        uint8_t *byte = mutant.data + at;
        switch (draw % 5) {
        case 0: *byte ^= (uint8_t)(1u << (draw >> 8) % 8); break;
        case 1: *byte = 0; break;
        case 2: *byte = 0xff; break;
        case 3: *byte = (uint8_t)(draw >> 16); break;
        default: memset(byte, (int)(draw >> 16) & 0xff, mutant.length - at < 8 ? 1 : 8);
        }
    }
}

static void test_mutants(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = model_make(diag);
    char hash[HASH_TEXT_BYTES];
    Bytes good = written("good.h5"), mutant = {malloc(good.length), good.length};
    model_hash(model, hash);
    for (uint64_t key = 1; key <= MUTANTS; key++) {
        memcpy(mutant.data, good.data, good.length);
        mutate(mutant, key);
        check_damaged(mutant.data, mutant.length, hash);
    }
    free(mutant.data), free(good.data);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_truncated(void **state) {
    (void)state;
    Bytes good = written("good.h5");
    for (size_t length = 0; length < good.length; length += length < 64 ? 1 : 97)
        check_damaged(good.data, length, NULL);
    good.data[good.length] = 0;
    check_damaged(good.data, good.length + 1, NULL);
    free(good.data);
}

static void test_swapped_weights(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = model_make(diag), *copy;
    const Tensor *weight = &graph_storage(model->graph, "encoder.0.weight")->tensor;
    Bytes good = written("good.h5");
    uint8_t *at =
        memmem(good.data, good.length, tensor_data(weight), tensor_bytes(weight));
    assert_non_null(at);
    uint8_t first = at[0];
    at[0] = at[1], at[1] = first;
    spill(path_of("swapped.h5"), good.data, good.length);
    assert_int_equal(modelfile_read(&copy, path_of("swapped.h5"), &OPS, true, diag),
                     STATUS_FORMAT);
    char *message = diag_text(diag);
    assert_non_null(strstr(message, "encoder.0.weight"));
    assert_non_null(strstr(message, "hash"));
    diag_clear(diag);
    assert_ok(modelfile_read(&copy, path_of("swapped.h5"), &OPS, false, diag), diag);
    model_destroy(copy), model_destroy(model);
    diag_destroy(diag);
    free(message), free(good.data);
}

static void test_not_writable(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = model_make(diag);
    int before = files_in_folder();
    assert_int_equal(modelfile_write(model, "/nonexistent/model.h5", NULL, diag),
                     STATUS_IO);
    diag_clear(diag);
    /* A full disk: no file may grow beyond 2 KiB. */
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old, small.rlim_cur = 2048;
    setrlimit(RLIMIT_FSIZE, &small);
    Status status = modelfile_write(model, path_of("full.h5"), NULL, diag);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, STATUS_IO);
    char *message = diag_text(diag);
    assert_non_null(strstr(message, "full.h5"));
    assert_int_equal(files_in_folder(), before);
    free(message);
    diag_clear(diag);
    tensor_release(&graph_storage(model->graph, "half")->tensor);
    assert_int_equal(modelfile_write(model, path_of("none.h5"), NULL, diag),
                     STATUS_MODEL);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_not_a_model(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model;
    assert_int_equal(modelfile_read(&model, path_of("missing.h5"), &OPS, true, diag),
                     STATUS_IO);
    assert_int_equal(modelfile_read(&model, folder, &OPS, true, diag), STATUS_IO);
    assert_false(modelfile_probe(folder));
    assert_false(modelfile_probe(path_of("missing.h5")));
    spill(path_of("empty.h5"), "", 0);
    assert_false(modelfile_probe(path_of("empty.h5")));
    check_damaged("", 0, NULL);
    check_damaged("hello", 5, NULL);
    diag_destroy(diag);
}

/* --- the sandbox itself --- */

static bool work_reply(void *state, Text *reply) {
    text_add(reply, "%s", (const char *)state);
    return true;
}

static bool work_fault(void *state, Text *reply) {
    text_add(reply, "%s", (const char *)state);
    return false;
}

static bool work_crash(void *state, Text *reply) {
    (void)state, (void)reply;
    raise(SIGSEGV);
    return true;
}

static bool work_ended(void *state, Text *reply) {
    (void)state, (void)reply;
    raise(SIGTERM);
    return true;
}

static bool work_hang(void *state, Text *reply) {
    volatile int *spin = state;
    (void)reply;
    while (*spin) continue;
    return true;
}

static bool work_sleep(void *state, Text *reply) {
    (void)state, (void)reply;
    pause();
    return true;
}

/* As the system does where memory runs out. */
static bool work_killed(void *state, Text *reply) {
    (void)state, (void)reply;
    raise(SIGKILL);
    return true;
}

/* Descriptors that are open, as letters: the standard streams and that of the reply. */
static bool work_list(void *state, Text *reply) {
    (void)state;
    for (int fd = 0; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0) text_add(reply, "%d ", fd);
    return true;
}

static bool work_exit(void *state, Text *reply) {
    (void)state, (void)reply;
    _exit(0);
}

static bool work_flood(void *state, Text *reply) {
    (void)state;
    for (int i = 0; i < 1000; i++) text_bytes(reply, "0123456789", 10);
    return true;
}

/* What a child can reach: letters for a file opened, a socket, a process, a write to
 * another descriptor. */
static bool work_reach(void *state, Text *reply) {
    const int fd = open(state, O_RDONLY), net = socket(AF_INET, SOCK_STREAM, 0);
    text_add(reply, "%s%s", fd >= 0 ? "o" : "", net >= 0 ? "s" : "");
    const pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) text_add(reply, "f");
    if (write(0, "x", 1) == 1) text_add(reply, "w");
    char *memory = malloc(64 << 20); /* what the work itself needs is still there */
    memset(memory, 1, 64 << 20);
    text_add(reply, "%s", memory[(64 << 20) - 1] == 1 ? "." : "");
    free(memory);
    return true;
}

/* Whether filters of system calls can be had: not under emulators and sanitizers. */
static bool has_filters(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != 0 && errno == EFAULT;
#endif
}

/* The child waits for what the caller does beside it. */
static bool work_wait(void *state, Text *reply) {
    const atomic_int *done = state;
    while (!atomic_load(done)) usleep(1000);
    text_add(reply, "%d", atomic_load(done));
    return true;
}

static void finish_beside(void *state) {
    atomic_store((atomic_int *)state, 7);
}

static void test_beside(void **state) {
    (void)state;
    const SandboxLimits limits = {2, 10, (size_t)64 << 20, 4096};
    atomic_int *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Text reply = {0};
    assert_true(done != MAP_FAILED);
    assert_int_equal(sandbox_run_beside(&reply, work_wait, finish_beside, done, &limits),
                     SANDBOX_DONE);
    assert_string_equal(reply.data, "7");
    text_free(&reply);
    munmap(done, sizeof *done);
}

static void test_closed(void **state) {
    (void)state;
    SandboxLimits limits = {2, 10, (size_t)256 << 20, 4096, .closed = true};
    char path[] = "/dev/null";
    Text reply = {0};
    if (!has_filters()) skip();
    assert_int_equal(sandbox_run(&reply, work_reach, path, &limits), SANDBOX_DONE);
    assert_string_equal(reply.data, ".");
    text_free(&reply);
    limits.closed = false;
    assert_int_equal(sandbox_run(&reply, work_reach, path, &limits), SANDBOX_DONE);
    assert_string_equal(reply.data, "osfw.");
    text_free(&reply);
}

static void test_sandbox(void **state) {
    (void)state;
    const SandboxLimits limits = {1, 2, (size_t)64 << 20, 4096};
    char word[] = "word";
    int spin = 1;
    Text reply = {0};
    assert_int_equal(sandbox_run(&reply, work_reply, word, &limits), SANDBOX_DONE);
    assert_string_equal(reply.data, "word");
    text_free(&reply);
    assert_int_equal(sandbox_run(&reply, work_fault, word, &limits), SANDBOX_FAULT);
    assert_string_equal(reply.data, "word");
    text_free(&reply);
    assert_int_equal(sandbox_run(&reply, work_crash, NULL, &limits), SANDBOX_DIED);
    assert_non_null(strstr(reply.data, "was ended by signal 11, "));
    text_free(&reply);
    assert_int_equal(sandbox_run(&reply, work_ended, NULL, &limits), SANDBOX_DIED);
    assert_non_null(strstr(reply.data, "was ended by signal 15, "));
    text_free(&reply);
    assert_int_equal(sandbox_run(&reply, work_hang, &spin, &limits), SANDBOX_LATE);
    assert_int_equal(sandbox_run(&reply, work_sleep, NULL, &limits), SANDBOX_LATE);
    assert_int_equal(sandbox_run(&reply, work_exit, NULL, &limits), SANDBOX_DIED);
    assert_string_equal(reply.data, "ended with exit code 0 and no whole reply");
    text_free(&reply);
    assert_int_equal(sandbox_run(&reply, work_flood, NULL, &limits), SANDBOX_DIED);
    assert_null(reply.data);
    assert_int_equal(sandbox_run(&reply, work_killed, NULL, &limits), SANDBOX_MEMORY);
    /* Less address space than was to be: a fault may come from that. */
    const SandboxLimits beyond = {1, 2, (size_t)1 << 50, 4096};
    assert_int_equal(sandbox_run(&reply, work_reply, word, &beyond), SANDBOX_DONE);
    text_free(&reply);
    assert_int_equal(sandbox_run(&reply, work_fault, word, &beyond), SANDBOX_MEMORY);
    assert_null(reply.data);
    Diag *diag = diag_create();
    assert_int_equal(sandbox_fail(SANDBOX_MEMORY, LOC_FILE("a.h5"), "read", diag),
                     STATUS_MEMORY);
    assert_int_equal(sandbox_fail(SANDBOX_DIED, LOC_FILE("a.h5"), "read", diag),
                     STATUS_OK);
    assert_int_equal(diag_errors(diag), 1);
    assert_int_equal(sandbox_fail(SANDBOX_LATE, LOC_FILE("a.h5"), "read", diag),
                     STATUS_FORMAT);
    assert_int_equal(diag_errors(diag), 2);
    assert_int_equal(sandbox_died(&reply, STATUS_FORMAT, LOC_FILE("a.h5"), "read", diag),
                     STATUS_FORMAT);
    assert_int_equal(diag_errors(diag), 3);
    diag_destroy(diag);
    assert_int_equal(sandbox_run(&reply, work_list, NULL, &limits), SANDBOX_DONE);
    assert_string_equal(reply.data, "0 1 2 3 ");
    text_free(&reply);
}

static int make_folder(void **state) {
    const char *base = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/modelfile.XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char command[PATH_BYTES + 64];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_equal_bytes),
        cmocka_unit_test(test_h5dump),          cmocka_unit_test(test_bad_quantised),
        cmocka_unit_test(test_mutants),         cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_swapped_weights), cmocka_unit_test(test_not_writable),
        cmocka_unit_test(test_not_a_model),     cmocka_unit_test(test_sandbox),
        cmocka_unit_test(test_closed),          cmocka_unit_test(test_beside)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
