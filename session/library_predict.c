/* The library: what a model says of texts and images, and the tokens of texts. */
#include "session/library_runner.h"
#include "session/predictions.h"

#include <limits.h>
#include <string.h>

typedef struct PredictKeys {
    const char *tokenizer, *preprocessor;
    bool leave_early;
} PredictKeys;

static const Field predict_fields[] = {
    F_STRING(PredictKeys, tokenizer, "path of the tokenizer", .nullable = true),
    F_STRING(PredictKeys, preprocessor, "path of a preprocessor_config.json",
             .nullable = true),
    F_BOOL(PredictKeys, leave_early, "samples leave at an exit by the model's rule"),
    F_END};

static const Field tokenize_fields[] = {
    F_STRING(PredictKeys, tokenizer, "path of the tokenizer", .nullable = true), F_END};

typedef struct Predicting {
    LibraryCall *call;
    CompressRunner *runner; /* NULL where texts become tokens alone */
    PredictKeys keys;
    StringList samples; /* as they were given */
    UserTexts texts;    /* none = of images */
    Tokenizer *tokenizer;
    Checkpoint *inputs;
    GraphResults results;
} Predicting;

/* ---- samples ---- */

static bool is_image(const CompressSample *sample) {
    return sample->image != NULL;
}

/* Checks that all samples are of one kind, and notes how they were given. */
static Status take_samples(Predicting *p, const CompressSample *samples, int count) {
    Arena *arena = p->call->arena;
    const char **items = ARENA_ARRAY(arena, const char *, (size_t)count);
    UserText *texts = ARENA_ARRAY(arena, UserText, (size_t)count);
    const bool images = is_image(&samples[0]);
    for (int i = 0; i < count; i++) {
        const CompressSample *s = &samples[i];
        const Loc at = LOC_FILE(arena_printf(arena, "samples[%d]", i));
        if (is_image(s) != images || !s->text != images || (images && s->pair))
            return diag_fail(p->call->diag, STATUS_USAGE, at, NULL,
                             "expected a text, or an image, as all samples of a call");
        items[i] = images ? s->image : s->text;
        texts[i] = (UserText){.pair = s->pair != NULL, .at = at};
        if (s->text) texts[i].first = (TextSpan){s->text, strlen(s->text)};
        if (s->pair) texts[i].second = (TextSpan){s->pair, strlen(s->pair)};
    }
    p->samples = (StringList){items, count};
    if (!images) p->texts = (UserTexts){texts, count};
    return STATUS_OK;
}

/* What the caller gave; `fields` are the options' keys. */
static Status take_arguments(Predicting *p, const Field *fields,
                             const CompressSample *samples, size_t count,
                             const char *options) {
    Tree *map;
    if (count == 0 || count > INT_MAX / 2)
        return diag_fail(p->call->diag, STATUS_USAGE, LOC_NONE, "count",
                         "expected 1 to %d samples, found %zu", INT_MAX / 2, count);
    TRY(library_need(p->call, samples, "samples"));
    TRY(library_options(&map, p->call, "options", options));
    TRY(fields_bind(fields, map, &p->keys, p->call->arena, STATUS_USAGE, p->call->diag));
    return take_samples(p, samples, (int)count);
}

/* The runner's tokenizer, which the first call with texts reads. */
static Status find_tokenizer(Predicting *p) {
    const char *wanted = p->keys.tokenizer, *kept;
    p->tokenizer = runner_tokenizer(p->runner, &kept);
    if (p->tokenizer && wanted && strcmp(wanted, kept) != 0)
        return diag_fail(p->call->diag, STATUS_USAGE, LOC_NONE, "tokenizer",
                         "expected that of the runner's first texts, %s, found %s",
                         *kept ? kept : "the model's", wanted);
    if (p->tokenizer) return STATUS_OK;
    TRY(user_tokenizer_read(&p->tokenizer, wanted, runner_model(p->runner), "the model",
                            p->call->diag));
    runner_keep_tokenizer(p->runner, p->tokenizer, wanted ? wanted : "");
    return STATUS_OK;
}

static Status make_inputs(Predicting *p) {
    const Model *model = runner_model(p->runner);
    Diag *diag = p->call->diag;
    if (p->texts.count == 0)
        return user_inputs_of_images(&p->inputs, &p->samples, p->keys.preprocessor, model,
                                     diag);
    TRY(find_tokenizer(p));
    return user_inputs_of_texts(&p->inputs, &p->texts, p->tokenizer, model, diag);
}

/* ---- predictions ---- */

/* Checks that the model's outputs are predictions; gives the name of the one. */
static Status find_output(const char **name, const Predicting *p) {
    const Graph *graph = runner_model(p->runner)->graph;
    *name = predictions_output(graph_task(graph));
    if (*name && graph_output(graph, *name)) return STATUS_OK;
    return diag_fail(
        p->call->diag, STATUS_MODEL, LOC_NONE, NULL,
        "expected a model that tells classes, labels, values, words, answers "
        "or embeddings; the outputs of others are had by compress_run");
}

/* `exits`: the layers behind which samples left, NULL = all ran. */
static Status tell(const Predicting *p, const Tensor *output, const int32_t *exits,
                   char **json) {
    Arena *arena = p->call->arena;
    Predictions predictions = {.model = runner_model(p->runner),
                               .logits = output,
                               .samples = p->samples.items,
                               .texts = &p->texts,
                               .tokenizer = p->tokenizer,
                               .exits = exits};
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    TRY(predictions_prepare(&predictions, arena, p->call->diag));
    for (int i = 0; i < p->samples.count; i++) {
        Tree *map;
        TRY(prediction_of(&map, &predictions, i, arena, p->call->diag));
        tree_append(arena, list, NULL, LOC_NONE, map);
    }
    *json = library_json(list);
    return STATUS_OK;
}

static Status predict_early(const Predicting *p, char **json) {
    EarlyRun run = {0};
    Status status = runner_leave_early(&run, p->call, p->runner, p->inputs);
    if (status == STATUS_OK)
        status =
            tell(p, &run.results[0].tensor, tensor_data(&run.results[1].tensor), json);
    early_release(&run);
    return status;
}

static Status predict(Predicting *p, const char *output, char **json) {
    TRY(make_inputs(p));
    library_compute(p->call);
    if (p->keys.leave_early) return predict_early(p, json);
    TRY(runner_compute(&p->results, p->call, p->runner, p->inputs));
    const Tensor *found = NULL;
    for (int i = 0; i < p->results.count; i++)
        if (strcmp(p->results.tensors[i].name, output) == 0)
            found = &p->results.tensors[i].tensor;
    return tell(p, found, NULL, json);
}

static Status predict_samples(Predicting *p, const CompressSample *samples, size_t count,
                              const char *options, char **json) {
    const char *output;
    TRY(library_need(p->call, p->runner, "runner"));
    TRY(library_need(p->call, json, "json"));
    TRY(find_output(&output, p));
    TRY(take_arguments(p, predict_fields, samples, count, options));
    return predict(p, output, json);
}

CompressStatus compress_predict(CompressContext *context, CompressRunner *runner,
                                const CompressSample *samples, size_t count,
                                const char *options, char **json) {
    LibraryCall call;
    const bool files = !runner || !runner_tokenizer(runner, NULL) ||
                       (samples && count > 0 && is_image(&samples[0]));
    if (json) *json = NULL;
    if (!library_begin(&call, context, files ? LIBRARY_FILES : LIBRARY_COMPUTES))
        return COMPRESS_USAGE;
    Predicting p = {.call = &call, .runner = runner};
    const Status status = predict_samples(&p, samples, count, options, json);
    graph_results_release(&p.results);
    checkpoint_destroy(p.inputs);
    return library_end(&call, status);
}

/* ---- tokens ---- */

static Status tell_tokens(const Predicting *p, char **json) {
    Arena *arena = p->call->arena;
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < p->texts.count; i++) {
        Tree *map;
        TRY(user_text_tokens(&map, arena, &p->texts.items[i], p->tokenizer,
                             p->call->diag));
        tree_append(arena, list, NULL, LOC_NONE, map);
    }
    *json = library_json(list);
    return STATUS_OK;
}

static Status tokenize(Predicting *p, const CompressModel *model,
                       const CompressSample *samples, size_t count, const char *options,
                       char **json) {
    TRY(library_need(p->call, model, "model"));
    TRY(library_need(p->call, json, "json"));
    TRY(take_arguments(p, tokenize_fields, samples, count, options));
    if (p->texts.count == 0)
        return diag_fail(p->call->diag, STATUS_USAGE, LOC_FILE("samples[0]"), NULL,
                         "expected a text, found an image");
    TRY(user_tokenizer_read(&p->tokenizer, p->keys.tokenizer, model->model, "the model",
                            p->call->diag));
    library_compute(p->call);
    return tell_tokens(p, json);
}

CompressStatus compress_tokenize(CompressContext *context, const CompressModel *model,
                                 const CompressSample *texts, size_t count,
                                 const char *options, char **json) {
    LibraryCall call;
    if (json) *json = NULL;
    if (!library_begin(&call, context, LIBRARY_FILES)) return COMPRESS_USAGE;
    Predicting p = {.call = &call};
    const Status status = tokenize(&p, model, texts, count, options, json);
    tokenizer_destroy(p.tokenizer);
    return library_end(&call, status);
}
