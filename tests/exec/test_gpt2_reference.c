/* GPT-2 against PyTorch's outputs and gradients (tests/data/reference/README.md says how
 * they were computed). */
#include "tests/exec/decoder_fixture.h"

/* The gradients with those of c_attn cut into three, as the model has its weights. */
static Checkpoint *split_gradients(const Case *c, const Checkpoint *whole) {
    static const char *const PARTS[] = {"q", "k", "v"};
    Arena *arena = arena_create();
    Checkpoint *split = ARENA_NEW(arena, Checkpoint);
    split->arena = arena;
    split->path = whole->path;
    split->tensors = ARENA_ARRAY(split->arena, NamedTensor, 3 * (size_t)whole->count);
    for (int i = 0; i < whole->count; i++) {
        const NamedTensor *from = &whole->tensors[i];
        const char *at = strstr(from->name, "c_attn.");
        if (!at) {
            split->tensors[split->count++] =
                (NamedTensor){from->name, tensor_retain(&from->tensor)};
            continue;
        }
        Tensor shape = from->tensor;
        const int64_t width = shape.dim[shape.rank - 1] /= 3;
        for (int p = 0; p < 3; p++) {
            NamedTensor *to = &split->tensors[split->count++];
            void *data = NULL;
            to->name = arena_printf(split->arena, "%.*s%s.%s", (int)(at - from->name),
                                    from->name, PARTS[p], at + strlen("c_attn."));
            assert_ok(
                tensor_create(&to->tensor, DTYPE_F32, shape.rank, shape.dim, c->diag),
                c->diag);
            assert_ok(tensor_writable(&to->tensor, &data, c->diag), c->diag);
            for (int64_t e = 0; e < tensor_count(&shape); e++)
                tensor_read_f32(&from->tensor, (e / width * 3 + p) * width + e % width, 1,
                                (float *)data + e);
        }
    }
    return split;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name);
}

static void test_forward(void **state) {
    (void)state;
    Case c;
    case_open(&c, ROOT, "gpt2");
    check_forward(&c, 6);
    check_causal(&c, 5);
    case_close(&c);
}

static void test_gradients(void **state) {
    (void)state;
    Case c;
    Checkpoint *whole = NULL;
    case_open(&c, ROOT, "gpt2");
    assert_ok(safetensors_read(&whole, ROOT "gpt2/gradients.safetensors", c.diag),
              c.diag);
    Checkpoint *gradients = split_gradients(&c, whole);
    qsort(gradients->tensors, (size_t)gradients->count, sizeof(NamedTensor), by_name);
    check_gradients(&c, gradients);
    checkpoint_destroy(gradients);
    checkpoint_destroy(whole);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests_name("gpt2 reference", tests, NULL, NULL);
}
