/* safetensors: round trips, hostile files, mutations, shards. */
#include "io_test.h"

#include "io/files/file.h"
#include "io/files/guard.h"
#include "io/formats/safetensors.h"
#include "io/formats/shards.h"
#include "ir/mapped.h"
#include "ir/random.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[256], path[300];

/* Element types that files of this format have: all but the quantised ones. */
enum { DENSE_TYPES = DTYPE_Q8 };

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

/* Bytes of a file with this header and `data` zero bytes, the length field included. */
static char *make_file(const char *header, size_t data, size_t *bytes) {
    size_t length = strlen(header);
    char *file = calloc(1, 8 + length + data);
    for (int i = 0; i < 8; i++) file[i] = (char)(length >> 8 * i);
    memcpy(file + 8, header, length);
    *bytes = 8 + length + data;
    return file;
}

static void put_model(const char *name, const char *header, size_t data) {
    char full[600];
    size_t bytes;
    char *file = make_file(header, data, &bytes);
    snprintf(full, sizeof full, "%s/%s", folder, name);
    put_file(full, file, bytes);
    free(file);
}

/* Reads `path`, expecting one error that holds `part`. */
static void expect_bad(const char *part) {
    Diag *diag = diag_create();
    Checkpoint *checkpoint;
    expect_error(diag, safetensors_read(&checkpoint, path, diag), STATUS_FORMAT, part);
    diag_destroy(diag);
}

#define T(name, dtype, shape, begin, end)                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin \
    "," end "]}"

static const char GOOD[] =
    "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "F32", "[2]", "0",
                                               "8") ","                      //
    T("a", "F16", "[2,1]", "8", "12") "," T("s", "U8", "[]", "12", "13") "," //
    T("e", "I64", "[0,3]", "13", "13") "}";

static const struct {
    const char *header;
    size_t data;
    const char *message;
} HOSTILE[] = {
    {"[]", 0, "starts with '{'"},
    {"\"x\"", 0, "starts with '{'"},
    {" {}", 0, "starts with '{'"},
    {"", 4, "starts with '{'"},
    {"{", 0, "invalid JSON"},
    {"{} x", 0, "end of file expected"},
    {"{}", 1, "1 bytes after the last tensor"},
    {"{\"\xff\":1}", 0, "unable to decode byte 0xff"},
    {"{\"a\\u0000b\":1}", 0, "NUL"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: expected a map of strings"},
    {"{\"__metadata__\":[]}", 0, "__metadata__: expected a map of strings"},
    {"{\"a\":1}", 0, "a: expected a map of dtype"},
    {"{\"a\":{}}", 0, "a: expected a map of dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "expected a map of dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
     "nothing else"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "expected a map"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1,
     "expected a map"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":7}}", 1, "expected a map"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{}}}", 1, "expected a map"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, "duplicate object key"},
    {"{" T("a", "U8", "[1]", "0", "1") "," T("a", "U8", "[1]", "1", "2") "}", 2,
     "duplicate object key"},
    {"{" T("a", "F8_E4M3", "[1]", "0", "1") "}", 1, "unknown dtype 'F8_E4M3'"},
    {"{" T("a", "f32", "[1]", "0", "4") "}", 4, "unknown dtype 'f32'"},
    {"{" T("a", "U8", "[-1]", "0", "1") "}", 1, "integers >= 0"},
    {"{" T("a", "U8", "[1.0]", "0", "1") "}", 1, "integers >= 0"},
    {"{" T("a", "U8", "[\"1\"]", "0", "1") "}", 1, "integers >= 0"},
    {"{" T("a", "U8", "[[1]]", "0", "1") "}", 1, "integers >= 0"},
    {"{" T("a", "U8", "[1,1,1,1,1,1,1]", "0", "1") "}", 1,
     "at most 6 dimensions, found 7"},
    {"{" T("a", "U8", "[99999999999999999999]", "0", "1") "}", 1, "too big"},
    {"{" T("a", "F32", "[9223372036854775807]", "0", "4") "}", 4, "too large"},
    {"{" T("a", "U8", "[4294967296,4294967296]", "0", "0") "}", 0, "too large"},
    {"{" T("a", "F64", "[4611686018427387904,2]", "0", "0") "}", 0, "too large"},
    {"{" T("a", "F32", "[2]", "0", "4") "}", 4, "f32[2] needs 8 bytes, found 4"},
    {"{" T("a", "F32", "[]", "0", "8") "}", 8, "f32[] needs 4 bytes, found 8"},
    {"{" T("a", "F32", "[0]", "0", "4") "}", 4, "needs 0 bytes, found 4"},
    {"{" T("a", "U8", "[1]", "1", "0") "}", 1, "found [1, 0]"},
    {"{" T("a", "U8", "[1]", "-1", "0") "}", 1, "found [-1, 0]"},
    {"{" T("a", "U8", "[2]", "0", "2") "}", 1, "a range within 0 and 1"},
    {"{" T("a", "U8", "[1]", "9223372036854775806", "9223372036854775807") "}", 1,
     "a range within 0 and 1"},
    {"{" T("a", "U8", "[1]", "0", "18446744073709551617") "}", 1, "too big"},
    {"{" T("a", "U8", "[1]", "0.0", "1") "}", 1, "expected two integers"},
    {"{" T("a", "U8", "[1]", "0", "1,2") "}", 1, "expected two integers"},
    {"{" T("a", "U8", "[1]", "1", "2") "}", 2, "expected to start at 0, found 1"},
    {"{" T("a", "U8", "[1]", "0", "1") "," T("b", "U8", "[1]", "2", "3") "}", 3,
     "b: data_offsets: expected to start at 1, found 2"},
    {"{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "1", "3") "}", 3,
     "b: data_offsets: expected to start at 2, found 1"},
    {"{" T("a", "U8", "[1]", "0", "1") "," T("b", "U8", "[1]", "0", "1") "}", 1,
     "must not overlap"},
    {"{" T("a", "U8", "[1]", "0", "1") "," T("b", "U8", "[0]", "0",
                                             "0") "," T("c", "U8", "[0]", "2", "2") "}",
     2, "c: data_offsets"},
    {"{" T("a", "U8", "[1]", "0", "1") "}", 3, "2 bytes after the last tensor"},
    {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0,
     "nested deeper than 64"},
};

static void hostile_headers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof HOSTILE / sizeof *HOSTILE; i++) {
        put_model("model.safetensors", HOSTILE[i].header, HOSTILE[i].data);
        expect_bad(HOSTILE[i].message);
    }
}

static void hostile_lengths(void **state) {
    (void)state;
    static const struct {
        unsigned char length[8];
        const char *message;
    } LENGTHS[] = {{{0}, "starts with '{'"},
                   {{255}, "beyond the file"},
                   {{3}, "beyond the file"},
                   {{1}, "invalid JSON"},
                   {{0, 0xe1, 0xf5, 5}, "beyond the file"},
                   {{1, 0xe1, 0xf5, 5}, "at most 100000000 bytes, found 100000001"},
                   {{2, 0, 0, 0, 0, 0, 0, 128}, "at most 100000000 bytes"},
                   {{255, 255, 255, 255, 255, 255, 255, 255}, "at most 100000000 bytes"}};
    char file[10] = "\0\0\0\0\0\0\0\0{}";
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        memcpy(file, LENGTHS[i].length, 8);
        put_file(path, file, sizeof file);
        expect_bad(LENGTHS[i].message);
    }
    put_file(path, "\x04\0\0\0\0\0\0\0{}\0\0", 12);
    expect_bad("invalid JSON");
    put_file(path, "\x89HDF\r\n\x1a\n", 8);
    expect_bad("at most 100000000 bytes");
}

static void good_file(void **state) {
    (void)state;
    put_model("model.safetensors", GOOD, 13);
    Diag *diag = diag_create();
    Checkpoint *checkpoint;
    expect_ok(diag, safetensors_read(&checkpoint, path, diag));
    assert_int_equal(checkpoint->count, 4);
    assert_string_equal(checkpoint->tensors[0].name, "a");
    assert_int_equal(checkpoint_find(checkpoint, "a")->dtype, DTYPE_F16);
    assert_int_equal(checkpoint_find(checkpoint, "s")->rank, 0);
    assert_int_equal(tensor_count(checkpoint_find(checkpoint, "e")), 0);
    assert_null(checkpoint_find(checkpoint, "format"));
    Tensor kept = tensor_retain(checkpoint_find(checkpoint, "b"));
    checkpoint_destroy(checkpoint);
    assert_true(((const float *)tensor_data(&kept))[1] == 0);
    tensor_release(&kept);
    put_model("model.safetensors", "{}    ", 0);
    expect_ok(diag, safetensors_read(&checkpoint, path, diag));
    assert_int_equal(checkpoint->count, 0);
    checkpoint_destroy(checkpoint);
    diag_destroy(diag);
}

static void truncations(void **state) {
    (void)state;
    size_t bytes;
    char *file = make_file(GOOD, 13, &bytes);
    for (size_t n = 0; n < bytes; n++) {
        put_file(path, file, n);
        expect_bad("error: ");
    }
    free(file);
}

/* Touches every byte of every tensor, so that a sanitizer sees what is out of bounds. */
static void touch(const Checkpoint *checkpoint) {
    unsigned sum = 0;
    for (int i = 0; i < checkpoint->count; i++) {
        const Tensor *tensor = &checkpoint->tensors[i].tensor;
        const unsigned char *data = tensor_data(tensor);
        size_t bytes = tensor_bytes(tensor);
        assert_true(tensor->offset + bytes <= buf_bytes(tensor->buf));
        for (size_t b = 0; b < bytes; b++) sum += data[b];
    }
    assert_true(sum < UINT32_MAX);
}

/* One to four changes: a bit, a byte, a digit, a removal, a repetition. */
static size_t mutate(char *file, size_t bytes, uint64_t key) {
    int changes = 1 + (int)(random_u64(key, 0) % 4);
    for (int i = 0; i < changes; i++) {
        uint64_t r = random_u64(key, (uint64_t)i + 1);
        size_t at = (size_t)((r >> 8) % bytes);
        switch (r % 5) {
        case 0: file[at] ^= (char)(1 << (r >> 40) % 8); break;
        case 1: file[at] = (char)(r >> 40); break;
        case 2: file[at] = (char)('0' + (r >> 40) % 10); break;
        case 3: memmove(file + at, file + at + 1, --bytes - at); break;
        default: memmove(file + at + 1, file + at, bytes++ - at); break;
        }
    }
    return bytes;
}

static void mutations(void **state) {
    (void)state;
    Diag *diag = diag_create();
    size_t bytes;
    char *good = make_file(GOOD, 13, &bytes), *file = malloc(bytes + 8);
    for (uint64_t i = 0; i < 5000; i++) {
        memcpy(file, good, bytes);
        put_file(path, file, mutate(file, bytes, i));
        Checkpoint *checkpoint;
        Status status = safetensors_read(&checkpoint, path, diag);
        if (status == STATUS_OK) {
            touch(checkpoint);
            checkpoint_destroy(checkpoint);
        } else {
            expect_error(diag, status, STATUS_FORMAT, "error: ");
        }
    }
    free(file);
    free(good);
    diag_destroy(diag);
}

static Tensor make_tensor(DType dtype, int rank, const int64_t *dim, int fill) {
    Diag *diag = diag_create();
    Tensor tensor;
    void *data;
    expect_ok(diag, tensor_create(&tensor, dtype, rank, dim, diag));
    expect_ok(diag, tensor_writable(&tensor, &data, diag));
    memset(data, fill, tensor_bytes(&tensor));
    diag_destroy(diag);
    return tensor;
}

/* Odd sizes: tensors after the first are not aligned in the file. */
static void round_trip(void **state) {
    (void)state;
    const int64_t dim[] = {3, 1, 5};
    NamedTensor tensors[DENSE_TYPES];
    const char *names[] = {"z\"\\\n", "y", "x", "w", "v", "\xd0\x96", "t", "s", "r"};
    for (int i = 0; i < DENSE_TYPES; i++) {
        DType dtype = (DType)(DENSE_TYPES - 1 - i);
        tensors[i] = (NamedTensor){names[i], make_tensor(dtype, i % 4, dim, i + 1)};
    }
    Diag *diag = diag_create();
    Checkpoint *checkpoint;
    expect_ok(diag, safetensors_write(path, tensors, DENSE_TYPES, diag));
    expect_ok(diag, safetensors_read(&checkpoint, path, diag));
    assert_int_equal(checkpoint->count, DENSE_TYPES);
    for (int i = 0; i < DENSE_TYPES; i++) {
        const Tensor *want = &tensors[i].tensor;
        const Tensor *have = checkpoint_find(checkpoint, names[i]);
        assert_non_null(have);
        assert_int_equal((uintptr_t)tensor_data(have) % dtype_bytes(have->dtype), 0);
        assert_int_equal(have->dtype, want->dtype);
        assert_int_equal(have->rank, want->rank);
        assert_memory_equal(tensor_data(have), tensor_data(want), tensor_bytes(want));
    }
    checkpoint_destroy(checkpoint);
    NamedTensor bare = {"bare", tensor_shape(DTYPE_F32, 1, dim)};
    expect_error(diag, safetensors_write(path, &bare, 1, diag), STATUS_MODEL, "no data");
    NamedTensor twice[2] = {tensors[0], tensors[0]};
    expect_error(diag, safetensors_write(path, twice, 2, diag), STATUS_FORMAT,
                 "duplicate");
    assert_int_equal(scratch_count(folder), 1);
    for (int i = 0; i < DENSE_TYPES; i++) tensor_release(&tensors[i].tensor);
    diag_destroy(diag);
}

/* What a seal finds, and what it puts into the metadata. */
typedef struct SealCase {
    const Tensor *tensor; /* of a mapped file: its hash is kept when the seal is put */
    Tree *metadata;
    Arena *arena;
    const char *value;
} SealCase;

static Status put_seal(void *self, Diag *diag) {
    const SealCase *c = self;
    const Tensor *tensor = c->tensor;
    const size_t bytes = tensor_bytes(tensor);
    assert_non_null(buf_digest(tensor->buf, tensor->offset, bytes));
    assert_true(buf_known_finite(tensor->buf, tensor->offset, bytes, tensor->dtype));
    if (!c->value) return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL, "no value");
    tree_put_string(c->arena, c->metadata, "seal", c->value);
    return STATUS_OK;
}

static void expect_seal(const char *file, const char *value) {
    Diag *diag = diag_create();
    Checkpoint *back;
    expect_ok(diag, safetensors_read(&back, file, diag));
    assert_string_equal(tree_get(back->metadata, "seal")->string, value);
    checkpoint_destroy(back);
    diag_destroy(diag);
}

/* Metadata that are known when all is written; a seal that fails or does not fit leaves
 * the old file. */
static void sealed(void **state) {
    (void)state;
    char copy[600];
    const int64_t dim[] = {1500000}; /* a piece of 4 MiB and a rest */
    NamedTensor whole = {"whole", make_tensor(DTYPE_F32, 1, dim, 1)};
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Checkpoint *file;
    SealCase c = {.arena = arena, .value = "1234"};
    const SafetensorsSeal seal = {put_seal, &c};
    c.metadata = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, c.metadata, "seal", "0000");
    snprintf(copy, sizeof copy, "%s/copy", folder);
    expect_ok(diag, safetensors_write(path, &whole, 1, diag));
    expect_ok(diag, safetensors_read(&file, path, diag));
    c.tensor = &file->tensors[0].tensor;
#define WRITE() safetensors_write_sealed(copy, file->tensors, 1, c.metadata, &seal, diag)
    expect_ok(diag, WRITE());
    expect_seal(copy, "1234");
    c.value = "beyond the padding";
    expect_error(diag, WRITE(), STATUS_INTERNAL, "when it is sealed");
    c.value = NULL;
    expect_error(diag, WRITE(), STATUS_MODEL, "no value");
    expect_seal(copy, "1234");
    checkpoint_destroy(file);
    assert_int_equal(scratch_count(folder), 2);
    tensor_release(&whole.tensor);
    arena_destroy(arena);
    diag_destroy(diag);
}

/* A write that fails half way leaves the old file and nothing else. */
static void full_disk(void **state) {
    (void)state;
    const int64_t dim[] = {100000};
    NamedTensor big = {"big", make_tensor(DTYPE_F32, 1, dim, 1)};
    put_text(path, "old");
    struct rlimit old, tight;
    getrlimit(RLIMIT_FSIZE, &old);
    tight = old;
    tight.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    Diag *diag = diag_create();
    setrlimit(RLIMIT_FSIZE, &tight);
    Status status = safetensors_write(path, &big, 1, diag);
    setrlimit(RLIMIT_FSIZE, &old);
    char message[600];
    snprintf(message, sizeof message, "%s: error: cannot write: File too large", path);
    expect_error(diag, status, STATUS_IO, message);
    assert_int_equal(scratch_count(folder), 1);
    tensor_release(&big.tensor);
    diag_destroy(diag);
}

static void not_files(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Checkpoint *checkpoint;
    char fifo[600];
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    expect_error(diag, safetensors_read(&checkpoint, fifo, diag), STATUS_IO, "a pipe");
    expect_error(diag, safetensors_read(&checkpoint, folder, diag), STATUS_IO,
                 "a folder");
    expect_error(diag, safetensors_read(&checkpoint, "/dev/zero", diag), STATUS_IO,
                 "a device");
    expect_error(diag, safetensors_read(&checkpoint, "/nowhere", diag), STATUS_IO,
                 "cannot open");
    diag_destroy(diag);
}

/* A mapped file that is cut ends the program with one message, and what it was writing
 * is removed. */
static void cut_while_mapped(void **state) {
    (void)state;
    int ends[2], status;
    char text[600] = "", other[600];
    snprintf(other, sizeof other, "%s/other", folder);
    put_model("model.safetensors", "{" T("a", "U8", "[100000]", "0", "100000") "}",
              100000);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        Checkpoint *checkpoint;
        OutFile *file;
        Diag *diag = diag_create();
        dup2(ends[1], STDERR_FILENO);
        guard_install();
        if (outfile_open(&file, NULL, other, diag) ||
            safetensors_read(&checkpoint, path, diag) || truncate(path, 9))
            _exit(99);
        touch(checkpoint);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), status_exit_code(STATUS_IO));
    assert_non_null(strstr(text, "model.safetensors: error: the file became shorter"));
    assert_int_equal(scratch_count(folder), 1);
}

/* Puts an index with this weight_map beside the shards and reads the folder. */
static Status read_index(Checkpoint **out, const char *text, Diag *diag) {
    char full[600];
    snprintf(full, sizeof full, "%s/model.safetensors.index.json", folder);
    put_text(full, text);
    return checkpoint_read(out, folder, diag);
}

static void shards(void **state) {
    (void)state;
    static const char *const BAD[][2] = {
        {"[]", "weight_map: expected a map"},
        {"{\"weight_map\":{}}", "weight_map: expected a map"},
        {"{\"weight_map\":[1]}", "weight_map: expected a map"},
        {"{\"weight_map\":{\"a\":1}}", "a: expected a file name, found integer"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "expected a plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "expected a plain file name"},
        {"{\"weight_map\":{\"a\":\"d/../../x\"}}", "expected a plain file name"},
        {"{\"weight_map\":{\"a\":\"..\\\\x\"}}", "expected a plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "expected a plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "expected a plain file name"},
        {"{\"weight_map\":{\"a\":\"link\"}}", "a link that leads out"},
        {"{\"weight_map\":{\"a\":\"1\",\"b\":\"1\"}}",
         "b: expected in 1, which lacks it"},
        {"{\"weight_map\":{\"a\":\"1\",\"c\":\"2\"}}",
         "b: the index says that this tensor "
         "is nowhere"},
        {"{\"weight_map\":{\"a\":\"1\",\"b\":\"1\",\"c\":\"2\"}}",
         "b: the index says that this tensor is in 1"},
        {"{\"weight_map\":{\"a\":\"1\"},\"weight_map\":{}}", "duplicate object key"},
    };
    put_model("1", "{" T("a", "U8", "[1]", "0", "1") "}", 1);
    put_model("2",
              "{" T("b", "U8", "[1]", "0", "1") "," T("c", "U8", "[1]", "1", "2") "}", 2);
    char link[600];
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    Diag *diag = diag_create();
    Checkpoint *checkpoint;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        expect_error(diag, read_index(&checkpoint, BAD[i][0], diag), STATUS_FORMAT,
                     BAD[i][1]);
    expect_error(diag, read_index(&checkpoint, "{\"weight_map\":{\"a\":\"none\"}}", diag),
                 STATUS_IO, "none: error: cannot open");
    const char *good =
        "{\"metadata\":{},\"weight_map\":{\"c\":\"2\",\"a\":\"1\",\"b\":\"2\"}}";
    expect_ok(diag, read_index(&checkpoint, good, diag));
    assert_int_equal(checkpoint->count, 3);
    assert_string_equal(checkpoint->tensors[2].name, "c");
    checkpoint_destroy(checkpoint);
    scratch_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    expect_error(diag, checkpoint_read(&checkpoint, folder, diag), STATUS_IO,
                 "found neither");
    diag_destroy(diag);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(good_file), TEST(hostile_headers),  TEST(hostile_lengths), TEST(truncations),
        TEST(mutations), TEST(round_trip),       TEST(full_disk),       TEST(not_files),
        TEST(shards),    TEST(cut_while_mapped), TEST(sealed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
