/* What passes declare to need and to leave against models that have been through them:
 * tests/support/composition.h holds every pair of passes against it, this test that
 * nothing is declared which no model shows. */
#include "exec/linalg/blas.h"
#include "tests/support/check.h"
#include "tests/support/composition.h"

#include <string.h>

static void test_page(void **state) {
    (void)state;
    composition_effects();
}

/* What each pass gave to some model or took from it, with the properties that decide
 * where it works. */
typedef struct Seen {
    unsigned gained, lost;
    int works;
} Seen;

static void look(Arena *arena, Seen *seen, Bench *bench, const char *before,
                 const char *steps) {
    const unsigned was = bench_properties(arena, bench, before);
    const unsigned is = bench_properties(arena, bench, steps);
    if (!was || !is) return;
    seen->gained |= is & ~was;
    seen->lost |= was & ~is;
    seen->works++;
}

/* Chains that show what a pass alone does not. */
static const struct {
    KindName kind;
    const char *pass, *before, *step;
} MORE[] = {
    {CLASSIFIES, "remove_layer", "weight_multiplex: {position: none}\n",
     "remove_layer: {drop: [1, 3]}\n"},
    {CLASSIFIES, "remove_layer", "remove_block: {block: ffn, drop: [0]}\n",
     "remove_layer: {drop: [0]}\n"},
    {CLASSIFIES, "remove_layer",
     "add_exits: {}\ncalibrate_exits: {data: d, limit: 8, drop: 100}\n",
     "remove_layer: {drop: [0]}\n"},
    {CLASSIFIES, "remove_block", "remove_block: {block: ffn, drop: [0]}\n",
     "remove_block: {block: attention, drop: [0]}\n"},
    {CLASSIFIES, "remove_block",
     "add_exits: {}\ncalibrate_exits: {data: d, limit: 8, drop: 100}\n"
     "remove_block: {block: ffn, drop: [0]}\n",
     "remove_block: {block: attention, drop: [0]}\n"},
    {CLASSIFIES, "cast", "quantize: {dtype: int8}\n", "cast: {dtype: f32}\n"},
};

/* A pass as its row has it behind one that leaves whole numbers. */
static void look_behind_quantize(Arena *arena, Seen *seen, Bench *bench,
                                 const char *steps) {
    const char *before = "quantize: {dtype: int8}\n";
    look(arena, seen, bench, before, arena_printf(arena, "%s%s", before, steps));
}

static void test_declared_is_seen(void **state) {
    (void)state;
    blas_init();
    Arena *arena = arena_create();
    const int count = composition_passes();
    Seen *seen = ARENA_ARRAY(arena, Seen, (size_t)count);
    for (int kind = 0; kind < (int)KINDS; kind++) {
        Bench bench = bench_open(arena, (KindName)kind);
        for (int i = 0; i < count; i++) {
            const char *steps = composition_steps(arena, bench.kind, i);
            const char *last =
                strrchr(arena_strndup(arena, steps, strlen(steps) - 1), '\n');
            const char *before =
                last ? arena_strndup(arena, steps, strlen(steps) - strlen(last)) : "";
            look(arena, &seen[i], &bench, before, steps);
            if (pass_find(composition_pass(i))->effects.takes & MODEL_QUANTISED)
                look_behind_quantize(arena, &seen[i], &bench, steps);
            for (size_t m = 0; m < sizeof MORE / sizeof *MORE; m++)
                if ((int)MORE[m].kind == kind &&
                    strcmp(MORE[m].pass, composition_pass(i)) == 0)
                    look(arena, &seen[i], &bench, MORE[m].before,
                         arena_printf(arena, "%s%s", MORE[m].before, MORE[m].step));
        }
        bench_close(&bench);
    }
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        const Pass *pass = pass_find(composition_pass(i));
        const unsigned gives = pass->effects.gives & ~seen[i].gained;
        const unsigned takes = pass->effects.takes & ~seen[i].lost;
        if (!seen[i].works || (!gives && !takes)) continue;
        Text text = {0};
        properties_print(&text, gives);
        text_add(&text, " given; taken: ");
        properties_print(&text, takes);
        print_error(
            "%s: declared and never seen: %s; a chain in MORE shows it, or .effects "
            "of its record leaves it out\n",
            pass->name, text.data);
        text_free(&text);
        wrong++;
    }
    arena_destroy(arena);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_declared_is_seen),
    };
    return cmocka_run_group_tests_name("effects", tests, NULL, NULL);
}
