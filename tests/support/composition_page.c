/* The tables of compositions: see composition.h. */
#include "exec/linalg/blas.h"
#include "ir/text.h"
#include "tests/support/check.h"
#include "tests/support/composition.h"

#include <stdlib.h>
#include <string.h>

#define PAGE "docs/composition.md"
#define END  "<!-- end of table -->\n"

enum { REASONS = 100 };

/* A table as it is made. */
typedef struct Table {
    Arena *arena;
    const char *reasons[REASONS]; /* footnotes */
    int reason_count;
    Text text;
} Table;

/* ---- pairs ---- */

static const char *options_of(KindName kind, const Row *row, const Row *before) {
    for (int i = 0; i < SPECIAL_COUNT; i++) {
        const Special *special = &SPECIALS[i];
        if ((special->kind == KINDS || special->kind == kind) &&
            (!special->after || (before && strcmp(special->after, before->pass) == 0)) &&
            strcmp(special->pass, row->pass) == 0)
            return special->options;
    }
    return row == before ? row->again : row->first;
}

/* What a pair needs in front of it. */
static const char *needs_of(Arena *arena, const Row *first, const Row *second) {
    const char *needs = first->needs ? first->needs : second->needs;
    if (!needs || strncmp(needs, first->pass, strcspn(needs, ":")) == 0) return "";
    return arena_printf(arena, "%s\n", needs);
}

static const char *pair_steps(Arena *arena, KindName kind, const Row *first,
                              const Row *second) {
    return arena_printf(arena, "%s%s: %s\n%s: %s\n", needs_of(arena, first, second),
                        first->pass, options_of(kind, first, NULL), second->pass,
                        options_of(kind, second, first));
}

/* Number of the footnote with this reason. */
static int reason_number(Table *table, const char *reason) {
    for (int i = 0; i < table->reason_count; i++)
        if (strcmp(table->reasons[i], reason) == 0) return i + 1;
    assert_true(table->reason_count < REASONS);
    table->reasons[table->reason_count++] = reason;
    return table->reason_count;
}

static void add_pair(Table *table, Bench *bench, const Row *first, const Row *second) {
    const char *steps = pair_steps(table->arena, bench->kind, first, second);
    const char *reason = bench_outcome(table->arena, bench, steps, false);
    if (reason)
        text_add(&table->text, " %d |", reason_number(table, reason));
    else
        text_add(&table->text, " yes |");
}

static void add_matrix(Table *table, Bench *bench) {
    Text *text = &table->text;
    text_add(text, "| first, then |");
    for (int i = 0; i < ROW_COUNT; i++) text_add(text, " %c |", 'A' + i);
    text_add(text, "\n|---|");
    for (int i = 0; i < ROW_COUNT; i++) text_add(text, "---|");
    for (int i = 0; i < ROW_COUNT; i++) {
        text_add(text, "\n| %c `%s` |", 'A' + i, ROWS[i].pass);
        for (int k = 0; k < ROW_COUNT; k++) add_pair(table, bench, &ROWS[i], &ROWS[k]);
    }
    text_add(text, "\n\n");
    for (int i = 0; i < table->reason_count; i++)
        text_add(text, "%d. %s\n", i + 1, table->reasons[i]);
}

/* ---- chains ---- */

static void add_chain(Table *table, Bench *bench, const Chain *chain) {
    Text *text = &table->text;
    const char *reason = bench_outcome(table->arena, bench, chain->steps, chain->unsure);
    text_add(text, "| %s | ", KIND[chain->kind].name);
    for (const char *step = chain->steps; *step; step += strcspn(step, "\n") + 1)
        text_add(text, "%s`%.*s`", step == chain->steps ? "" : ", ",
                 (int)strcspn(step, "\n"), step);
    text_add(text, " | %s |\n", reason ? reason : "yes");
}

/* ---- the page ---- */

static char *page_read(void) {
    Text text = {0};
    char block[4096];
    FILE *file = fopen(PAGE, "rb");
    if (!file) fail_msg("cannot read %s", PAGE);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        text_bytes(&text, block, n);
    fclose(file);
    return text.data;
}

/* Compares the page's table of this name with the one made, or puts this in its place. */
static void page_check(Table *table, const char *name) {
    const char *mark = arena_printf(table->arena, "<!-- table: %s -->\n", name);
    char *page = page_read(), *begin = strstr(page, mark);
    char *end = begin ? strstr(begin, END) : NULL;
    if (!end) fail_msg("%s: no place for the table %s", PAGE, name);
    begin += strlen(mark);
    const size_t length = (size_t)(end - begin);
    if (getenv("COMPRESS_REWRITE")) {
        FILE *file = fopen(PAGE, "wb");
        if (!file) fail_msg("cannot write %s", PAGE);
        fprintf(file, "%.*s%s%s", (int)(begin - page), page, table->text.data, end);
        assert_int_equal(fclose(file), 0);
    } else if (length != table->text.length ||
               memcmp(begin, table->text.data, length) != 0) {
        fprintf(stderr, "%s\n", table->text.data);
        fail_msg("%s has another table %s", PAGE, name);
    }
    free(page);
}

static void table_close(Table *table) {
    text_free(&table->text);
    arena_destroy(table->arena);
}

void composition_pairs(KindName kind) {
    blas_init();
    Table table = {.arena = arena_create()};
    Bench bench = bench_open(table.arena, kind);
    add_matrix(&table, &bench);
    bench_close(&bench);
    assert_int_equal(bench.faults, 0);
    page_check(&table, KIND[kind].title);
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
    page_check(&table, "chains");
    table_close(&table);
}
