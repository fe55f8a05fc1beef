/* Block types against blocks and numbers that llama.cpp's own library made of the same
 * input (tests/data/gguf/README.md), and against the bounds of their rounding. */
#include "io/formats/safetensors.h"
#include "io/gguf/blocks.h"
#include "tests/io/io_test.h"

#include <math.h>

enum { COUNT = 1024 };

static const char REFERENCE[] = "tests/data/gguf/blocks.safetensors";

typedef struct Reference {
    Diag *diag;
    Checkpoint *checkpoint;
    const float *input;
} Reference;

static int reference_read(void **state) {
    Reference *r = calloc(1, sizeof *r);
    r->diag = diag_create();
    expect_ok(r->diag, safetensors_read(&r->checkpoint, REFERENCE, r->diag));
    r->input = tensor_data(checkpoint_find(r->checkpoint, "input"));
    *state = r;
    return 0;
}

static int reference_free(void **state) {
    Reference *r = *state;
    checkpoint_destroy(r->checkpoint);
    diag_destroy(r->diag);
    free(r);
    return 0;
}

static const void *reference_data(const Reference *r, const char *name, size_t bytes) {
    const Tensor *tensor = checkpoint_find(r->checkpoint, name);
    assert_non_null(tensor);
    assert_int_equal(tensor_bytes(tensor), bytes);
    return tensor_data(tensor);
}

/* Every type that is read gives the numbers that llama.cpp reads from the same bytes. */
static void decodes_as_llama_cpp(void **state) {
    static const char *const NAMES[] = {"q4_0", "q4_1", "q5_0", "q5_1",
                                        "q8_0", "q4_k", "q5_k", "q6_k"};
    static float values[COUNT];
    const Reference *r = *state;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char name[32];
        const BlockType *type = block_type_by_name(NAMES[i]);
        assert_non_null(type);
        assert_ptr_equal(block_type_by_id(type->id), type);
        const size_t bytes = (size_t)(COUNT / type->values * type->bytes);
        snprintf(name, sizeof name, "%s.values", NAMES[i]);
        blocks_decode(type, reference_data(r, NAMES[i], bytes), values, COUNT);
        assert_memory_equal(values, reference_data(r, name, sizeof values),
                            sizeof values);
    }
}

/* Every type that is written gives the bytes that llama.cpp's reference gives. */
static void encodes_as_llama_cpp(void **state) {
    static const char *const NAMES[] = {"q4_0", "q8_0"};
    static unsigned char blocks[2 * COUNT];
    const Reference *r = *state;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const BlockType *type = block_type_by_name(NAMES[i]);
        const size_t bytes = (size_t)(COUNT / type->values * type->bytes);
        blocks_encode(type, r->input, blocks, COUNT);
        assert_memory_equal(blocks, reference_data(r, NAMES[i], bytes), bytes);
    }
}

/* |x - x'| is at most half a step, the scale's own rounding (2^-11 of it, or 2^-25)
 * aside; in q4_0 the side opposite to the largest number has one step less, so a whole
 * step there. */
static void rounds_within_half_a_step(void **state) {
    const Reference *r = *state;
    const BlockType *eight = block_type_by_name("q8_0");
    const BlockType *four = block_type_by_name("q4_0");
    for (int at = 0; at < COUNT; at += 32) {
        unsigned char block[34];
        float values[32], extreme = 0;
        const float *x = r->input + at;
        for (int i = 0; i < 32; i++)
            if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
        const float most = fabsf(extreme);
        const float slack = most * 0x1p-10f + 0x1p-18f;
        blocks_encode(eight, x, block, 32);
        blocks_decode(eight, block, values, 32);
        for (int i = 0; i < 32; i++)
            assert_true(fabsf(x[i] - values[i]) <= most / 127 / 2 + slack);
        blocks_encode(four, x, block, 32);
        blocks_decode(four, block, values, 32);
        for (int i = 0; i < 32; i++) {
            const bool clipped = x[i] * extreme < 0 && fabsf(x[i]) > most * 7.5f / 8;
            assert_true(fabsf(x[i] - values[i]) <= most / 8 / (clipped ? 1 : 2) + slack);
        }
    }
}

static void plain_types_are_exact(void **state) {
    static const char *const NAMES[] = {"f32", "f16", "bf16"};
    const float x[] = {0, -0.0f, 1, -1.5f, 0x1p-14f, 0.25f, 96, -0x1p-8f};
    (void)state;
    for (int i = 0; i < 3; i++) {
        unsigned char blocks[sizeof x];
        float back[sizeof x / sizeof *x];
        const BlockType *type = block_type_by_name(NAMES[i]);
        blocks_encode(type, x, blocks, 8);
        blocks_decode(type, blocks, back, 8);
        assert_memory_equal(back, x, sizeof x);
    }
    assert_null(block_type_by_id(4)); /* taken out of the format */
    assert_null(block_type_by_name("q9_9"));
    assert_null(block_type_by_name("iq4_xs")->decode);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decodes_as_llama_cpp, reference_read,
                                        reference_free),
        cmocka_unit_test_setup_teardown(encodes_as_llama_cpp, reference_read,
                                        reference_free),
        cmocka_unit_test_setup_teardown(rounds_within_half_a_step, reference_read,
                                        reference_free),
        cmocka_unit_test(plain_types_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
