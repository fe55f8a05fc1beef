/* The container of GGUF files: what is written is read back, and whatever a file claims,
 * reading it ends with one error or none. */
#include "io/gguf/gguf.h"

#include "io/files/file.h"
#include "tests/io/io_test.h"

typedef struct Fixture {
    char folder[256], path[300];
    Arena *arena;
    Diag *diag;
} Fixture;

static int fixture_make(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    scratch_make(f->folder);
    snprintf(f->path, sizeof f->path, "%s/a.gguf", f->folder);
    f->arena = arena_create();
    f->diag = diag_create();
    *state = f;
    return 0;
}

static int fixture_free(void **state) {
    Fixture *f = *state;
    scratch_remove(f->folder);
    diag_destroy(f->diag);
    arena_destroy(f->arena);
    free(f);
    return 0;
}

/* Row r of a matrix of 32 columns: r + column / 100. */
static void count_row(const void *source, int64_t row, float *out) {
    (void)source;
    for (int i = 0; i < 32; i++) out[i] = (float)row + (float)i / 100;
}

static void huge_row(const void *source, int64_t row, float *out) {
    (void)source, (void)row;
    for (int i = 0; i < 32; i++) out[i] = 1e5f;
}

static void write_sample(Fixture *f) {
    GgufWriter *writer = gguf_create();
    int64_t bytes;
    size_t length;
    char *data;
    gguf_put_text(writer, "general.architecture", "sample");
    gguf_put_integer(writer, "sample.count", 7);
    gguf_put_real(writer, "sample.rate", 0.5);
    gguf_put_flag(writer, "sample.flag", true);
    gguf_put_integers(writer, "sample.list", (const int64_t[]){1, -2, 3}, 3);
    gguf_put_reals(writer, "sample.reals", (const double[]){1.5, -2}, 2);
    gguf_put_texts(writer, "sample.words", (const char *const[]){"a", "", "b c"}, 3);
    gguf_put_tensor(writer, "b", block_type_by_name("f32"), 2, (const int64_t[]){3, 32},
                    count_row, NULL);
    gguf_put_tensor(writer, "a", block_type_by_name("q8_0"), 1, (const int64_t[]){32},
                    count_row, NULL);
    expect_ok(f->diag, gguf_write(writer, f->path, &bytes, f->diag));
    expect_ok(f->diag, file_read(&data, &length, f->arena, f->path, 1 << 20, f->diag));
    assert_int_equal(bytes, length);
}

static void reads_back_what_was_written(void **state) {
    Fixture *f = *state;
    GgufFile *file;
    int64_t integer;
    double real;
    float row[32], wanted[32];
    write_sample(f);
    assert_true(gguf_probe(f->path));
    expect_ok(f->diag, gguf_read(&file, f->path, f->diag));
    assert_int_equal(file->pair_count, 7);
    assert_true(gguf_integer(gguf_find(file, "sample.count"), 0, &integer));
    assert_int_equal(integer, 7);
    assert_true(gguf_integer(gguf_find(file, "sample.list"), 1, &integer));
    assert_int_equal(integer, -2);
    assert_true(gguf_real(gguf_find(file, "sample.reals"), 1, &real));
    assert_true(real == -2);
    assert_false(gguf_integer(gguf_find(file, "sample.rate"), 0, &integer));
    assert_false(gguf_real(gguf_find(file, "sample.words"), 0, &real));
    const GgufPair *words = gguf_find(file, "sample.words");
    assert_int_equal(words->count, 3);
    assert_int_equal(words->strings[2].length, 3);
    assert_memory_equal(words->strings[2].text, "b c", 3);
    const GgufTensor *b = gguf_find_tensor(file, "b");
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->dim[0], 3);
    assert_int_equal(b->offset % 32, 0);
    gguf_rows(file, b, 2, 1, row);
    count_row(NULL, 2, wanted);
    assert_memory_equal(row, wanted, sizeof row);
    assert_null(gguf_find(file, "sample.other"));
    assert_null(gguf_find_tensor(file, "c"));
    gguf_destroy(file);
}

static void refuses_numbers_that_do_not_fit(void **state) {
    Fixture *f = *state;
    GgufWriter *writer = gguf_create();
    gguf_put_tensor(writer, "a", block_type_by_name("f16"), 1, (const int64_t[]){32},
                    huge_row, NULL);
    expect_error(f->diag, gguf_write(writer, f->path, NULL, f->diag), STATUS_MODEL,
                 "at most 65504, which f16 holds, found 100000 at [0, 0]");
    assert_int_equal(scratch_count(f->folder), 0);
}

/* ---- hostile files ---- */

/* Reads a file with these bytes; `part` NULL = whatever it is, at most one error. */
static void read_bytes(Fixture *f, const void *data, size_t length, const char *part) {
    GgufFile *file;
    put_file(f->path, data, length);
    const Status status = gguf_read(&file, f->path, f->diag);
    if (part) {
        expect_error(f->diag, status, STATUS_FORMAT, part);
        return;
    }
    assert_int_equal(diag_errors(f->diag), status == STATUS_OK ? 0 : 1);
    if (status == STATUS_OK) {
        for (int64_t i = 0; i < file->tensor_count; i++) {
            const GgufTensor *tensor = &file->tensors[i];
            const int64_t width = tensor->dim[tensor->rank - 1];
            if (!tensor->type->decode || width > 4096) continue;
            float row[4096];
            gguf_rows(file, tensor, 0, 1, row);
        }
        gguf_destroy(file);
    }
    diag_clear(f->diag);
}

static char *sample_bytes(Fixture *f, size_t *length) {
    char *data;
    write_sample(f);
    expect_ok(f->diag, file_read(&data, length, f->arena, f->path, 1 << 20, f->diag));
    return data;
}

static void every_start_of_a_file_is_refused(void **state) {
    Fixture *f = *state;
    size_t length;
    char *data = sample_bytes(f, &length);
    for (size_t n = 0; n + 32 < length; n++) {
        GgufFile *file;
        put_file(f->path, data, n);
        assert_int_equal(gguf_read(&file, f->path, f->diag), STATUS_FORMAT);
        assert_int_equal(diag_errors(f->diag), 1);
        diag_clear(f->diag);
    }
}

static void flipped_bytes_do_no_harm(void **state) {
    Fixture *f = *state;
    size_t length;
    uint64_t random = 1;
    char *data = sample_bytes(f, &length);
    for (int i = 0; i < 5000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t at = (size_t)(random >> 33) % length;
        const char old = data[at];
        data[at] = (char)(random >> 20);
        read_bytes(f, data, length, NULL);
        data[at] = old;
    }
}

/* A file in pieces, for lies. */
static void add_number(Text *text, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        const char byte = (char)(value >> (8 * i));
        text_bytes(text, &byte, 1);
    }
}

static void add_name(Text *text, const char *name) {
    add_number(text, strlen(name), 8);
    text_bytes(text, name, strlen(name));
}

static void begin_file(Text *text, uint64_t tensors, uint64_t pairs) {
    text_bytes(text, "GGUF", 4);
    add_number(text, 3, 4);
    add_number(text, tensors, 8);
    add_number(text, pairs, 8);
}

static void expect_lie(Fixture *f, Text *text, const char *part) {
    read_bytes(f, text->data, text->length, part);
    text_free(text);
}

static void add_tensor(Text *text, const char *name, int rank, const uint64_t *dim,
                       uint64_t type, uint64_t offset) {
    add_name(text, name);
    add_number(text, (uint64_t)rank, 4);
    for (int i = 0; i < rank; i++) add_number(text, dim[i], 8);
    add_number(text, type, 4);
    add_number(text, offset, 8);
}

static void lying_heads_are_refused(void **state) {
    Fixture *f = *state;
    Text text = {0};
    text_bytes(&text, "GGUF", 4);
    add_number(&text, 0x03000000, 4);
    add_number(&text, 0, 8);
    add_number(&text, 0, 8);
    expect_lie(f, &text, "found another order of bytes");
    begin_file(&text, UINT64_MAX, 0);
    expect_lie(f, &text, "number of tensors: expected at most 0");
    begin_file(&text, 0, UINT64_MAX / 2);
    expect_lie(f, &text, "number of keys: expected at most 0");
    read_bytes(f, "GGML", 4, "expected a GGUF file");
}

static void lying_pairs_are_refused(void **state) {
    Fixture *f = *state;
    Text text = {0};
    begin_file(&text, 0, 1);
    add_number(&text, UINT64_MAX - 3, 8);
    add_number(&text, 0, 8);
    add_number(&text, 0, 8);
    expect_lie(f, &text, "expected 18446744073709551612 more bytes");
    begin_file(&text, 0, 1);
    add_name(&text, "key");
    add_number(&text, 13, 4);
    add_number(&text, 0, 8);
    expect_lie(f, &text, "key: expected a kind of value from 0 to 12, found 13");
    begin_file(&text, 0, 1);
    add_name(&text, "key");
    add_number(&text, GGUF_ARRAY, 4);
    add_number(&text, GGUF_F64, 4);
    add_number(&text, UINT64_MAX / 8 + 2, 8);
    expect_lie(f, &text, "key: expected at most 0");
    begin_file(&text, 0, 1);
    add_name(&text, "key");
    add_number(&text, GGUF_ARRAY, 4);
    add_number(&text, GGUF_ARRAY, 4);
    add_number(&text, 1, 8);
    expect_lie(f, &text, "found one of arrays");
    begin_file(&text, 0, 2);
    for (int i = 0; i < 2; i++) {
        add_name(&text, "key");
        add_number(&text, GGUF_U64, 4);
        add_number(&text, 1, 8);
    }
    expect_lie(f, &text, "key: the key is there twice");
    begin_file(&text, 0, 1);
    add_name(&text, "k\xff");
    add_number(&text, 0, 8);
    expect_lie(f, &text, "expected a name in UTF-8");
}

static void lying_tensors_are_refused(void **state) {
    Fixture *f = *state;
    Text text = {0};
    begin_file(&text, 1, 0);
    add_tensor(&text, "t", 5, (const uint64_t[]){1, 1, 1, 1, 1}, 0, 0);
    expect_lie(f, &text, "t: expected 1 to 4 dimensions, found 5");
    begin_file(&text, 1, 0);
    add_tensor(&text, "t", 2, (const uint64_t[]){1ull << 32, 1ull << 32}, 0, 0);
    expect_lie(f, &text, "t: the shape is too large");
    begin_file(&text, 1, 0);
    add_tensor(&text, "t", 2, (const uint64_t[]){4, 0}, 0, 0);
    expect_lie(f, &text, "t: expected dimensions of at least 1, found 0");
    begin_file(&text, 1, 0);
    add_tensor(&text, "t", 1, (const uint64_t[]){33}, 8, 0);
    expect_lie(f, &text, "t: q8_0: expected rows of whole blocks of 32, found 33");
    begin_file(&text, 1, 0);
    add_tensor(&text, "t", 1, (const uint64_t[]){4}, 77, 0);
    expect_lie(f, &text, "t: type 77 of tensors is not known");
    begin_file(&text, 1, 0);
    add_tensor(&text, "t", 1, (const uint64_t[]){4}, 0, 8);
    expect_lie(f, &text, "t: expected an offset that 32 divides, found 8");
    begin_file(&text, 1, 0);
    add_tensor(&text, "t", 1, (const uint64_t[]){4}, 0, 1ull << 62);
    expect_lie(f, &text, "t: expected 16 bytes at 4611686018427387904");
    for (int second = 0; second < 2; second++) {
        begin_file(&text, 2, 0);
        add_tensor(&text, "t", 1, (const uint64_t[]){16}, 0, 0);
        add_tensor(&text, second ? "t" : "u", 1, (const uint64_t[]){8}, 0, 32u << second);
        add_number(&text, 0, 8);
        while (text.length < 256) add_number(&text, 0, 1);
        expect_lie(f, &text,
                   second ? "t: the tensor is there twice" : "u: overlaps with 't'");
    }
    begin_file(&text, 1, 1);
    add_name(&text, "general.alignment");
    add_number(&text, GGUF_U32, 4);
    add_number(&text, 24, 4);
    add_tensor(&text, "t", 1, (const uint64_t[]){4}, 0, 0);
    expect_lie(f, &text, "general.alignment: expected a power of two");
}

#define TEST(function)                                                                   \
    cmocka_unit_test_setup_teardown(function, fixture_make, fixture_free)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(reads_back_what_was_written),      TEST(refuses_numbers_that_do_not_fit),
        TEST(every_start_of_a_file_is_refused), TEST(flipped_bytes_do_no_harm),
        TEST(lying_heads_are_refused),          TEST(lying_pairs_are_refused),
        TEST(lying_tensors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
