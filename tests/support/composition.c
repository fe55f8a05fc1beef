/* Running steps on small models: see composition.h. */
#include "tests/support/composition.h"

#include "exec/ops.h"
#include "io/datasets/dataset.h"
#include "io/files/yaml.h"
#include "io/formats/modelfile.h"
#include "ir/irtext.h"
#include "ir/random.h"
#include "ir/verify.h"
#include "passes/pipeline/pipeline.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SENTENCES = 24, VALUES = 1 << 16 };

__attribute__((format(printf, 3, 4))) static void fault(Bench *bench, const char *steps,
                                                        const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = NULL;
    assert_true(vasprintf(&text, format, args) >= 0);
    va_end(args);
    fprintf(stderr, "%s  %s\n", steps, text);
    free(text);
    bench->faults++;
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

static Batches *sentences_open(Arena *arena, const char *path, bool masks) {
    Diag *diag = diag_create();
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
    diag_destroy(diag);
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

Bench bench_open(Arena *arena, KindName kind) {
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
    bench.data = sentences_open(arena, bench.path, kind == PREDICTS);
    return bench;
}

void bench_close(Bench *bench) {
    unlink(bench->path);
    batches_destroy(bench->data);
    model_destroy(bench->base);
}

/* ---- running steps ---- */

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
    RecipeInputs inputs = {bench->data, model_copy(model)};
    const PipelineOptions options = {
        .plan = plan, .threads = 1, .resources = inputs_resources(&inputs)};
    const char *yaml = recipe_of(arena, steps);
    Tree *document = NULL;
    Recipe recipe;
    assert_ok(yaml_parse(&document, arena, "steps", yaml, strlen(yaml), diag), diag);
    assert_ok(recipe_bind(&recipe, arena, document, "steps", ".", diag), diag);
    const Status status = pipeline_run(model, &recipe, &options, diag);
    if (status == STATUS_OK) check_hashes(model);
    model_destroy(inputs.model);
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

static void check_same_graph(Bench *bench, const Model *planned, const Model *run,
                             const char *steps) {
    char *a = graph_text(planned), *b = graph_text(run);
    size_t line = 0; /* the start of the first one that differs */
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n') line = i + 1;
    if (strcmp(a, b))
        fault(bench, steps, "the plan has: %.*s\n  the run has: %.*s",
              (int)strcspn(a + line, "\n"), a + line, (int)strcspn(b + line, "\n"),
              b + line);
    free(a);
    free(b);
}

static void check_finite(Bench *bench, Model *model, const char *steps) {
    double *values = calloc(VALUES, sizeof *values);
    for (int i = 0; i < model->graph->output_count; i++) {
        const char *name = model->graph->outputs[i].name;
        const int64_t count = configured_run(model, name, 0, values, VALUES);
        for (int64_t k = 0; k < count; k++)
            if (!isfinite(values[k])) fault(bench, steps, "not finite: output %s", name);
    }
    free(values);
}

/* The model as its file gives it back. */
static Model *reload(Bench *bench, Model *model, const char *steps, Diag *diag) {
    char before[HASH_TEXT_BYTES], after[HASH_TEXT_BYTES];
    Model *read = NULL;
    assert_ok(modelfile_write(model, bench->path, NULL, diag), diag);
    assert_ok(modelfile_read(&read, bench->path, ops_table(), true, diag), diag);
    model_hash(model, before);
    model_hash(read, after);
    if (strcmp(before, after)) fault(bench, steps, "the file gives another model");
    return read;
}

static void check_works(Bench *bench, Model *model, const char *steps, Diag *diag) {
    static const char train[] = "finetune: {data: d, steps: 1, batch_size: 4}\n";
    assert_ok(graph_verify(model->graph, STATUS_INTERNAL, diag), diag);
    check_finite(bench, model, steps);
    Model *read = reload(bench, model, steps, diag);
    if (model_properties(read) & MODEL_QUANTISED) /* training refuses them */
        assert_ok(run_steps(read, bench, "cast: {dtype: f32}\n", false, diag), diag);
    if (run_steps(read, bench, train, false, diag) != STATUS_OK) {
        diag_print(diag, stderr);
        fault(bench, steps, "cannot be trained");
    }
    model_destroy(read);
}

/* ---- outcomes ---- */

/* A message without the step in front of it: of "passes[0].PASS.OPTION: text" the option
 * and the text. */
static const char *after_step(const char *message) {
    if (strncmp(message, "passes[", 7) != 0) return message;
    const char *text = strstr(message, ": ") + 2, *option = text;
    while (option > message && option[-1] != '.') option--;
    return option > message ? option : text;
}

/* The first error, as "`pass`: message"; NULL when there is none. */
static const char *first_error(Arena *arena, const Diag *diag) {
    char *text = diag_text(diag);
    const char *message = strstr(text, "error: "), *step = strstr(text, "note: in step ");
    const char *reason = NULL;
    if (message && step) {
        message = after_step(message + strlen("error: "));
        step = strstr(step, ", ") + 2;
        reason = arena_printf(arena, "`%.*s`: %.*s", (int)strcspn(step, " \n"), step,
                              (int)strcspn(message, "\n"), message);
    }
    free(text);
    return reason;
}

/* Runs steps as a plan or in full: NULL, or why they are refused. */
static const char *try_steps(Arena *arena, Bench *bench, Model *model, const char *steps,
                             bool plan) {
    Diag *diag = diag_create();
    const Status status = run_steps(model, bench, steps, plan, diag);
    const char *reason = first_error(arena, diag);
    if (status != STATUS_OK && status != STATUS_MODEL && status != STATUS_RECIPE) {
        diag_print(diag, stderr);
        fault(bench, steps, "%s: exit code %d", plan ? "plan" : "run",
              status_exit_code(status));
    }
    if ((status != STATUS_OK) != (reason != NULL))
        fault(bench, steps, "exit code %d, reason: %s", status_exit_code(status),
              reason ? reason : "none");
    diag_destroy(diag);
    return reason;
}

PassEffects step_effects(Arena *arena, const char *step) {
    Diag *diag = diag_create();
    const char *yaml = recipe_of(arena, step);
    Tree *document = NULL;
    Recipe recipe;
    PassEffects effects = {0};
    assert_ok(yaml_parse(&document, arena, "step", yaml, strlen(yaml), diag), diag);
    /* What the recipe itself refuses (a snapshot of no name) needs nothing of a model. */
    if (recipe_bind(&recipe, arena, document, "step", ".", diag) == STATUS_OK) {
        const Step *last = &recipe.steps[recipe.step_count - 1];
        effects = pass_effects(last->pass, last->options);
    }
    diag_destroy(diag);
    return effects;
}

unsigned bench_properties(Arena *arena, Bench *bench, const char *steps) {
    Model *model = model_copy(bench->base);
    const char *refused = *steps ? try_steps(arena, bench, model, steps, false) : NULL;
    const unsigned properties = refused ? 0 : model_properties(model);
    model_destroy(model);
    return properties;
}

const char *bench_outcome(Arena *arena, Bench *bench, const char *steps, PlanTrust trust,
                          unsigned *left) {
    Model *planned = shapes_of(bench->base), *model = model_copy(bench->base);
    Diag *diag = diag_create();
    const char *plan = try_steps(arena, bench, planned, steps, true);
    const char *run = try_steps(arena, bench, model, steps, false);
    const bool agree = trust == PLAN_EXACT
                           ? !plan == !run && (!plan || !strcmp(plan, run))
                       : trust == PLAN_FINE ? !plan
                                            : !plan || run;
    if (!agree)
        fault(bench, steps, "the plan says: %s\n  the run says: %s", plan ? plan : "fine",
              run ? run : "fine");
    if (!run && !plan && trust == PLAN_EXACT)
        check_same_graph(bench, planned, model, steps);
    if (!run) check_works(bench, model, steps, diag);
    if (left) *left = model_properties(model);
    model_destroy(planned);
    model_destroy(model);
    diag_destroy(diag);
    return run;
}
