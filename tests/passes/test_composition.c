/* Passes compose: every ordered pair of passes, and chains of more, work on small models
 * or are refused with a reason. docs/composition.md has the outcomes as tables, which
 * COMPRESS_REWRITE=1 writes anew.
 *
 * What works: the plan on shapes alone leaves the graph that the run leaves (lineages
 * aside), the model verifies, runs forward to finite numbers, is the same after it was
 * written and read, and can then be trained. What is refused does not fit the model or
 * the recipe, and the plan says the same. */
#include "exec/blas.h"
#include "exec/ops.h"
#include "io/dataset.h"
#include "io/modelfile.h"
#include "io/yaml.h"
#include "ir/irtext.h"
#include "ir/random.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
#include "tests/passes/composition_fixture.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE  "docs/composition.md"
#define BEGIN "<!-- tables: COMPRESS_REWRITE=1 build/tests/passes_test_composition -->\n"
#define END   "<!-- end of tables -->\n"

enum { SENTENCES = 24, REASONS = 100, VALUES = 1 << 16 };

/* A model of one kind, with data for it. */
typedef struct Bench {
    KindName kind;
    Model *base;
    Batches *data;
    const char *path; /* where models are written */
} Bench;

/* The tables as they are made. */
typedef struct Tables {
    Arena *arena;
    Bench benches[KINDS];
    const char *reasons[REASONS]; /* footnotes */
    int reason_count;
    Text text;
} Tables;

/* What was found wrong so far; the test goes on and fails at its end. */
static int faults;

__attribute__((format(printf, 2, 3))) static void fault(const char *steps,
                                                        const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = NULL;
    assert_true(vasprintf(&text, format, args) >= 0);
    va_end(args);
    print_error("%s", steps);
    fprintf(stderr, "  %s\n", text);
    free(text);
    faults++;
}

/* ---- data ---- */

/* Sentences of 2 to 9 words; every second is "yes". */
static void sentences_write(FILE *file) {
    static const char *const words[] = {"the", "sat",   "on",     "mat",
                                        "un",  "naive", "resume", "cafe"};
    fputs("sentence\tlabel\n", file);
    for (int i = 0; i < SENTENCES; i++) {
        for (int w = 0; w < 2 + i % 8; w++)
            fprintf(file, "%s ", words[random_u64(1, (uint64_t)(i * 16 + w)) % 8]);
        fprintf(file, "\t%s\n", i % 2 ? "yes" : "no");
    }
}

static Batches *sentences_open(Arena *arena, const char *path, bool masks, Diag *diag) {
    const DataFormat *format;
    void *options;
    Batches *data = NULL;
    Tree *spec;
    char *vocabulary = realpath("tests/data/text/vocab.txt", NULL);
    const char *yaml = arena_printf(
        arena,
        "{format: text, path: %s, table: tsv, tokenizer: %s, labels: ['no', 'yes'],\n"
        " max_length: 16, mask_share: %s}",
        path, vocabulary, masks ? "0.3" : "0");
    free(vocabulary);
    assert_ok(yaml_parse(&spec, arena, "data", yaml, strlen(yaml), diag), diag);
    assert_ok(dataset_bind(&format, &options, arena, spec, ".", diag), diag);
    assert_ok(dataset_open(&data, format, options, LOC_FILE("data"), diag), diag);
    return data;
}

static const char *temporary(Arena *arena) {
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(arena, "%s/composition.XXXXXX", base ? base : "/tmp");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return path;
}

static Bench bench_open(Arena *arena, KindName kind, Diag *diag) {
    Bench bench = {.kind = kind,
                   .base = configured_model(KIND[kind].config, 5),
                   .path = temporary(arena)};
    if (KIND[kind].images) {
        bench.data = toy_batches();
        return bench;
    }
    FILE *file = fopen(bench.path, "w");
    sentences_write(file);
    assert_int_equal(fclose(file), 0);
    bench.data = sentences_open(arena, bench.path, kind == PREDICTS, diag);
    return bench;
}

static void bench_close(Bench *bench) {
    unlink(bench->path);
    batches_destroy(bench->data);
    model_destroy(bench->base);
}

/* ---- running steps ---- */

/* What a pipeline asks for. */
typedef struct World {
    const Bench *bench;
    Model *input;
} World;

static Status give_data(void *self, const char *name, Loc at, Batches **out, Diag *diag) {
    (void)name, (void)at, (void)diag;
    *out = ((World *)self)->bench->data;
    return STATUS_OK;
}

static Status give_model(void *self, const char *path, Loc at, Model **out, Diag *diag) {
    (void)path, (void)at, (void)diag;
    *out = ((World *)self)->input;
    return STATUS_OK;
}

static Model *shapes_of(const Model *model) {
    Model *copy = model_copy(model);
    for (int i = 0; i < copy->graph->storage_count; i++) {
        Tensor *tensor = &copy->graph->storages[i]->tensor;
        const Tensor shape = tensor_shape(tensor->dtype, tensor->rank, tensor->dim);
        tensor_release(tensor);
        *tensor = shape;
    }
    return copy;
}

/* The steps' recipe. Steps are written one a line. */
static const char *recipe_of(Arena *arena, const char *steps) {
    const char *yaml = "version: 1\nseed: 2\ndata: {d: {format: text}}\npasses:\n";
    for (size_t length; *steps; steps += length + 1) {
        length = strcspn(steps, "\n");
        yaml = arena_printf(arena, "%s  - %.*s\n", yaml, (int)length, steps);
    }
    return yaml;
}

/* Runs or plans steps on a model. */
static Status run_steps(Model *model, const Bench *bench, const char *steps, bool plan,
                        Diag *diag) {
    Arena *arena = arena_create();
    World world = {bench, model_copy(model)};
    const PipelineOptions options = {.plan = plan,
                                     .threads = 1,
                                     .self = &world,
                                     .data = give_data,
                                     .model = give_model};
    const char *yaml = recipe_of(arena, steps);
    Tree *document = NULL;
    Recipe recipe;
    assert_ok(yaml_parse(&document, arena, "steps", yaml, strlen(yaml), diag), diag);
    assert_ok(recipe_bind(&recipe, arena, document, "steps", ".", diag), diag);
    const Status status = pipeline_run(model, &recipe, &options, diag);
    model_destroy(world.input);
    arena_destroy(arena);
    return status;
}

/* ---- what must hold of steps that work ---- */

/* Graph as text without lineages: a plan does not know which units stay. */
static char *graph_text(const Model *model) {
    Text text = {0};
    graph_print(&text, model->graph);
    char *to = text.data;
    for (const char *from = text.data; *from; *to++ = *from++)
        if (strncmp(from, " kept ", 6) == 0) from += strcspn(from, "\n");
    *to = 0;
    return text.data;
}

static void check_same_graph(const Model *planned, const Model *run, const char *steps) {
    char *a = graph_text(planned), *b = graph_text(run);
    size_t line = 0; /* the start of the first one that differs */
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n') line = i + 1;
    if (strcmp(a, b))
        fault(steps, "the plan has: %.*s\n  the run has: %.*s",
              (int)strcspn(a + line, "\n"), a + line, (int)strcspn(b + line, "\n"),
              b + line);
    free(a);
    free(b);
}

static void check_finite(Model *model, const char *steps) {
    double *values = calloc(VALUES, sizeof *values);
    for (int i = 0; i < model->graph->output_count; i++) {
        const char *name = model->graph->outputs[i].name;
        const int64_t count = configured_run(model, name, 0, values, VALUES);
        for (int64_t k = 0; k < count; k++)
            if (!isfinite(values[k])) fault(steps, "not finite: output %s", name);
    }
    free(values);
}

/* The model as its file gives it back. */
static Model *reload(Model *model, const Bench *bench, const char *steps, Diag *diag) {
    char before[HASH_TEXT_BYTES], after[HASH_TEXT_BYTES];
    Model *read = NULL;
    assert_ok(modelfile_write(model, bench->path, NULL, diag), diag);
    assert_ok(modelfile_read(&read, bench->path, ops_table(), true, diag), diag);
    model_hash(model, before);
    model_hash(read, after);
    if (strcmp(before, after)) fault(steps, "the file gives another model");
    return read;
}

static void check_works(Model *model, const Bench *bench, const char *steps, Diag *diag) {
    static const char train[] = "finetune: {data: d, steps: 1, batch_size: 4}\n";
    assert_ok(graph_verify(model->graph, STATUS_INTERNAL, diag), diag);
    check_finite(model, steps);
    Model *read = reload(model, bench, steps, diag);
    if (run_steps(read, bench, train, false, diag) != STATUS_OK) {
        diag_print(diag, stderr);
        fault(steps, "cannot be trained");
    }
    model_destroy(read);
}

/* ---- outcomes ---- */

/* The first error, as "`pass`: message"; NULL when there is none. */
static const char *first_error(Arena *arena, const Diag *diag) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    diag_print(diag, out);
    fclose(out);
    const char *message = strstr(text, "error: "), *step = strstr(text, "note: in step ");
    const char *reason = NULL;
    if (message && step) {
        message += strlen("error: ");
        if (strncmp(message, "passes[", 7) == 0) message = strstr(message, ": ") + 2;
        step = strstr(step, ", ") + 2;
        reason = arena_printf(arena, "`%.*s`: %.*s", (int)strcspn(step, " \n"), step,
                              (int)strcspn(message, "\n"), message);
    }
    free(text);
    return reason;
}

/* Runs steps as a plan or in full: NULL, or why they are refused. */
static const char *try_steps(Arena *arena, Model *model, const Bench *bench,
                             const char *steps, bool plan) {
    Diag *diag = diag_create();
    const Status status = run_steps(model, bench, steps, plan, diag);
    const char *reason = first_error(arena, diag);
    if (status != STATUS_OK && status != STATUS_MODEL && status != STATUS_RECIPE) {
        diag_print(diag, stderr);
        fault(steps, "%s: exit code %d", plan ? "plan" : "run", status_exit_code(status));
    }
    if ((status != STATUS_OK) != (reason != NULL))
        fault(steps, "exit code %d, reason: %s", status_exit_code(status),
              reason ? reason : "none");
    diag_destroy(diag);
    return reason;
}

/* NULL when the steps work, else why they are refused. `unsure`: the plan may differ. */
static const char *outcome(Arena *arena, const Bench *bench, const char *steps,
                           bool unsure) {
    Model *planned = shapes_of(bench->base), *model = model_copy(bench->base);
    Diag *diag = diag_create();
    const char *plan = try_steps(arena, planned, bench, steps, true);
    const char *run = try_steps(arena, model, bench, steps, false);
    if (unsure ? plan != NULL : !plan != !run || (plan && strcmp(plan, run) != 0))
        fault(steps, "the plan says: %s\n  the run says: %s", plan ? plan : "fine",
              run ? run : "fine");
    if (!run && !plan && !unsure) check_same_graph(planned, model, steps);
    if (!run) check_works(model, bench, steps, diag);
    model_destroy(planned);
    model_destroy(model);
    diag_destroy(diag);
    return run;
}

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
static int reason_number(Tables *tables, const char *reason) {
    for (int i = 0; i < tables->reason_count; i++)
        if (strcmp(tables->reasons[i], reason) == 0) return i + 1;
    assert_true(tables->reason_count < REASONS);
    tables->reasons[tables->reason_count++] = reason;
    return tables->reason_count;
}

static void add_pair(Tables *tables, const Bench *bench, const Row *first,
                     const Row *second) {
    const char *steps = pair_steps(tables->arena, bench->kind, first, second);
    const char *reason = outcome(tables->arena, bench, steps, false);
    if (reason)
        text_add(&tables->text, " %d |", reason_number(tables, reason));
    else
        text_add(&tables->text, " yes |");
}

static void add_matrix(Tables *tables, const Bench *bench) {
    Text *text = &tables->text;
    text_add(text, "\n### %s\n\n| first, then |", KIND[bench->kind].title);
    for (int i = 0; i < ROW_COUNT; i++) text_add(text, " %c |", 'A' + i);
    text_add(text, "\n|---|");
    for (int i = 0; i < ROW_COUNT; i++) text_add(text, "---|");
    for (int i = 0; i < ROW_COUNT; i++) {
        text_add(text, "\n| %c `%s` |", 'A' + i, ROWS[i].pass);
        for (int k = 0; k < ROW_COUNT; k++) add_pair(tables, bench, &ROWS[i], &ROWS[k]);
    }
    text_add(text, "\n");
}

static void add_reasons(Tables *tables) {
    text_add(&tables->text, "\n### Reasons\n\n");
    for (int i = 0; i < tables->reason_count; i++)
        text_add(&tables->text, "%d. %s\n", i + 1, tables->reasons[i]);
}

/* ---- chains ---- */

static void add_chain(Tables *tables, const Chain *chain) {
    Text *text = &tables->text;
    const char *reason = outcome(tables->arena, &tables->benches[chain->kind],
                                 chain->steps, chain->unsure);
    text_add(text, "| %s | ", KIND[chain->kind].name);
    for (const char *step = chain->steps; *step; step += strcspn(step, "\n") + 1)
        text_add(text, "%s`%.*s`", step == chain->steps ? "" : ", ",
                 (int)strcspn(step, "\n"), step);
    text_add(text, " | %s |\n", reason ? reason : "yes");
}

static void add_chains(Tables *tables) {
    text_add(&tables->text,
             "\n## Chains\n\n| model | steps | outcome |\n|---|---|---|\n");
    for (int i = 0; i < CHAIN_COUNT; i++) add_chain(tables, &CHAINS[i]);
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

/* Compares the page's tables with the ones made, or puts these in their place. */
static void page_check(const Text *tables) {
    char *page = page_read(), *begin = strstr(page, BEGIN), *end = strstr(page, END);
    if (!begin || !end) fail_msg("%s: no place for the tables", PAGE);
    begin += strlen(BEGIN);
    const size_t length = (size_t)(end - begin);
    if (getenv("COMPRESS_REWRITE")) {
        FILE *file = fopen(PAGE, "wb");
        if (!file) fail_msg("cannot write %s", PAGE);
        fprintf(file, "%.*s%s%s", (int)(begin - page), page, tables->data, end);
        assert_int_equal(fclose(file), 0);
    } else if (length != tables->length || memcmp(begin, tables->data, length) != 0) {
        fprintf(stderr, "%s\n", tables->data);
        fail_msg("%s has other tables", PAGE);
    }
    free(page);
}

static void test_tables(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Tables tables = {.arena = arena_create()};
    for (KindName kind = 0; kind < KINDS; kind++)
        tables.benches[kind] = bench_open(tables.arena, kind, diag);
    for (KindName kind = 0; kind <= LAST_OF_PAIRS; kind++)
        add_matrix(&tables, &tables.benches[kind]);
    add_reasons(&tables);
    add_chains(&tables);
    for (KindName kind = 0; kind < KINDS; kind++) bench_close(&tables.benches[kind]);
    assert_int_equal(faults, 0);
    page_check(&tables.text);
    text_free(&tables.text);
    arena_destroy(tables.arena);
    diag_destroy(diag);
}

/* Every pass has a row, in the order of passes.def. */
static void test_complete(void **state) {
    (void)state;
    const Pass *const *pass = pass_list();
    for (int i = 0; i < ROW_COUNT || pass[i]; i++)
        if (i == ROW_COUNT || !pass[i] || strcmp(pass[i]->name, ROWS[i].pass) != 0)
            fail_msg("composition_fixture.h: expected a row of %s, found %s",
                     pass[i] ? pass[i]->name : "nothing",
                     i < ROW_COUNT ? ROWS[i].pass : "nothing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_tables),
    };
    blas_init();
    return cmocka_run_group_tests_name("composition", tests, NULL, NULL);
}
