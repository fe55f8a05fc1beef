/* The tables of compositions: see composition.h. */
#include "exec/linalg/blas.h"
#include "ir/text.h"
#include "tests/support/check.h"
#include "tests/support/composition.h"
#include "tests/support/page.h"
#include "tests/support/thinned.h"

#include <stdlib.h>
#include <string.h>

#define PAGE "docs/composition.md"

enum { REASONS = 100 };

/* A table as it is made. */
typedef struct Table {
    Arena *arena;
    const char *reasons[REASONS]; /* footnotes */
    int reason_count;
    Text text;
} Table;

/* ---- pairs ---- */

int composition_passes(void) {
    const Pass *const *pass = pass_list();
    for (int i = 0; i < ROW_COUNT || pass[i]; i++)
        if (i == ROW_COUNT || !pass[i] || strcmp(pass[i]->name, ROWS[i].pass) != 0)
            fail_msg("ROWS of tests/support/composition_data.h: expected a row of %s as "
                     "number %d, found %s: rows are in the order of passes/passes.def",
                     pass[i] ? pass[i]->name : "no pass", i + 1,
                     i < ROW_COUNT ? ROWS[i].pass : "none");
    return ROW_COUNT;
}

static const char *options_of(KindName kind, const Row *row, const Row *before) {
    for (int i = 0; i < SPECIAL_COUNT; i++) {
        const Special *special = &SPECIALS[i];
        if ((special->kind == KINDS || special->kind == kind) &&
            (!special->after || (before && strcmp(special->after, before->pass) == 0)) &&
            strcmp(special->pass, row->pass) == 0)
            return special->options;
    }
    return before && strcmp(row->pass, before->pass) == 0 ? row->again : row->first;
}

/* The line of a pass behind another one or NULL. */
static const char *step_of(Arena *arena, KindName kind, const Row *row,
                           const Row *before) {
    const char *options = options_of(kind, row, before);
    return options ? arena_printf(arena, "%s: %s\n", row->pass, options)
                   : arena_printf(arena, "{%s: %s, allow_unchanged: true}\n", row->pass,
                                  row->first);
}

/* What a pair needs in front of it. */
static const char *needs_of(Arena *arena, const Row *first, const Row *second) {
    const char *needs = first->needs ? first->needs : second->needs;
    if (!needs || strncmp(needs, first->pass, strcspn(needs, ":")) == 0) return "";
    return arena_printf(arena, "%s\n", needs);
}

const char *composition_steps(Arena *arena, KindName kind, int pass) {
    const Row row = ROWS[pass];
    return arena_printf(arena, "%s%s", needs_of(arena, &row, &row),
                        step_of(arena, kind, &row, NULL));
}

const char *composition_pass(int pass) {
    return ROWS[pass].pass;
}

/* Number of the footnote with this reason. */
static int reason_number(Table *table, const char *reason) {
    for (int i = 0; i < table->reason_count; i++)
        if (strcmp(table->reasons[i], reason) == 0) return i + 1;
    assert_true(table->reason_count < REASONS);
    table->reasons[table->reason_count++] = reason;
    return table->reason_count;
}

/* Who refuses a pair must be who declares to need what the model has not, or to refuse
 * what it has; who works gives and takes no more than it declares. */
static void check_declared(Bench *bench, const char *steps, const char *reason,
                           const char *pass, PassEffects effects, unsigned before,
                           unsigned after) {
    const unsigned missing = effects.needs & ~before, surplus = effects.refuses & before;
    const unsigned gained = after & ~before & ~effects.gives;
    const unsigned lost = before & ~after & ~effects.takes;
    Text text = {0};
    if (reason && !missing && !surplus)
        text_add(&text, "%s declares no need that is not met, but: %s", pass, reason);
    if (!reason && (missing || surplus)) {
        text_add(&text, "%s works, but declares to need ", pass);
        properties_print(&text, missing);
        text_add(&text, " and to refuse ");
        properties_print(&text, surplus);
    }
    if (!reason && (gained || lost)) {
        text_add(&text, "%s does not declare to give ", pass);
        properties_print(&text, gained);
        text_add(&text, " and to take ");
        properties_print(&text, lost);
        text_add(&text, ": .effects of its record says so (passes/properties.h)");
    }
    if (text.length) {
        print_error("%s  %s\n", steps, text.data);
        bench->faults++;
    }
    text_free(&text);
}

static void add_variant_pair(Table *table, Bench *bench, const Row *first,
                             const Row *second) {
    const char *options =
        first == second && second->again ? second->again : second->first;
    const char *steps = arena_printf(table->arena, "%s: %s\n%s: %s\n", first->pass,
                                     first->first, second->pass, options);
    const bool chooses = strstr(first->first, "global") || strstr(options, "global");
    const char *reason = bench_outcome(table->arena, bench, steps,
                                       chooses ? PLAN_OTHER_NUMBERS : PLAN_EXACT, NULL);
    if (reason)
        text_add(&table->text, " %d |", reason_number(table, reason));
    else
        text_add(&table->text, " yes |");
}

static void add_variants(Table *table, Bench *bench) {
    Text *text = &table->text;
    text_add(text, "| first, then |");
    for (int i = 0; i < VARIANT_COUNT; i++) text_add(text, " %c |", 'A' + i);
    text_add(text, "\n|---|");
    for (int i = 0; i < VARIANT_COUNT; i++) text_add(text, "---|");
    for (int i = 0; i < VARIANT_COUNT; i++) {
        text_add(text, "\n| %c `%s: %s` |", 'A' + i, VARIANTS[i].pass, VARIANTS[i].first);
        for (int k = 0; k < VARIANT_COUNT; k++)
            if (!thinned_out(i, k))
                add_variant_pair(table, bench, &VARIANTS[i], &VARIANTS[k]);
    }
    text_add(text, "\n\n");
    for (int i = 0; i < table->reason_count; i++)
        text_add(text, "%d. %s\n", i + 1, table->reasons[i]);
}

static void add_pair(Table *table, Bench *bench, const Row *first, const Row *second) {
    Arena *arena = table->arena;
    const char *before = arena_printf(arena, "%s%s", needs_of(arena, first, second),
                                      step_of(arena, bench->kind, first, NULL));
    const char *step = step_of(arena, bench->kind, second, first);
    const char *steps = arena_printf(arena, "%s%s", before, step);
    unsigned left = 0;
    const char *reason = bench_outcome(arena, bench, steps, PLAN_EXACT, &left);
    const unsigned found = bench_properties(arena, bench, before);
    if (found)
        check_declared(bench, steps, reason, second->pass, step_effects(arena, step),
                       found, left);
    if (reason)
        text_add(&table->text, " %d |", reason_number(table, reason));
    else
        text_add(&table->text, " yes |");
}

static void add_matrix(Table *table, Bench *bench) {
    Text *text = &table->text;
    const int count = composition_passes();
    char labels[52][4];
    assert_true(count <= 52);
    text_add(text, "| first, then |");
    for (int i = 0; i < count; i++) {
        snprintf(labels[i], sizeof labels[i], "%s%c", i < 26 ? "" : "A", 'A' + i % 26);
        text_add(text, " %s |", labels[i]);
    }
    text_add(text, "\n|---|");
    for (int i = 0; i < count; i++) text_add(text, "---|");
    for (int i = 0; i < count; i++) {
        text_add(text, "\n| %s `%s` |", labels[i], ROWS[i].pass);
        for (int k = 0; k < count; k++)
            if (!thinned_out(i, k)) add_pair(table, bench, &ROWS[i], &ROWS[k]);
    }
    text_add(text, "\n\n");
    for (int i = 0; i < table->reason_count; i++)
        text_add(text, "%d. %s\n", i + 1, table->reasons[i]);
}

/* ---- chains ---- */

static void add_chain(Table *table, Bench *bench, const Chain *chain) {
    Text *text = &table->text;
    const char *reason = bench_outcome(table->arena, bench, chain->steps,
                                       chain->unsure ? PLAN_FINE : PLAN_EXACT, NULL);
    text_add(text, "| %s | ", KIND[chain->kind].name);
    for (const char *step = chain->steps; *step; step += strcspn(step, "\n") + 1)
        text_add(text, "%s`%.*s`", step == chain->steps ? "" : ", ",
                 (int)strcspn(step, "\n"), step);
    text_add(text, " | %s |\n", reason ? reason : "yes");
}

/* ---- the page ---- */

static void table_close(Table *table) {
    text_free(&table->text);
    arena_destroy(table->arena);
}

void composition_effects(void) {
    Table table = {.arena = arena_create()};
    Text *text = &table.text;
    text_add(text, "| pass | needs | refuses | gives | takes |\n|---|---|---|---|---|\n");
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        const PassEffects effects = pass_effects(*pass, (*pass)->defaults);
        const unsigned columns[] = {effects.needs, effects.refuses, effects.gives,
                                    effects.takes};
        text_add(text, "| `%s` |", (*pass)->name);
        for (int i = 0; i < 4; i++) {
            text_add(text, " ");
            properties_print(text, columns[i]);
            text_add(text, " |");
        }
        text_add(text, "\n");
    }
    page_check_table(PAGE, "effects", &table.text);
    table_close(&table);
}

void composition_pairs(KindName kind) {
    blas_init();
    Table table = {.arena = arena_create()};
    Bench bench = bench_open(table.arena, kind);
    add_matrix(&table, &bench);
    bench_close(&bench);
    assert_int_equal(bench.faults, 0);
    if (!SANITIZED) page_check_table(PAGE, KIND[kind].title, &table.text);
    table_close(&table);
}

void composition_variants(KindName kind) {
    blas_init();
    Table table = {.arena = arena_create()};
    Bench bench = bench_open(table.arena, kind);
    add_variants(&table, &bench);
    bench_close(&bench);
    assert_int_equal(bench.faults, 0);
    if (!SANITIZED) page_check_table(PAGE, "options", &table.text);
    table_close(&table);
}

void composition_chains(void) {
    blas_init();
    Table table = {.arena = arena_create()};
    Bench benches[KINDS];
    int faults = 0;
    for (int kind = 0; kind < (int)KINDS; kind++)
        benches[kind] = bench_open(table.arena, (KindName)kind);
    text_add(&table.text, "| model | steps | outcome |\n|---|---|---|\n");
    for (int i = 0; i < CHAIN_COUNT; i++)
        add_chain(&table, &benches[CHAINS[i].kind], &CHAINS[i]);
    for (int kind = 0; kind < (int)KINDS; kind++) {
        faults += benches[kind].faults;
        bench_close(&benches[kind]);
    }
    assert_int_equal(faults, 0);
    page_check_table(PAGE, "chains", &table.text);
    table_close(&table);
}
