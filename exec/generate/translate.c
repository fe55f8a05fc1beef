/* Translator: see exec/generate/translate.h; how it is put together in
 * exec/generate/translate_internal.h.
 */
#include "exec/generate/translate_internal.h"

#include <stdlib.h>
#include <string.h>

bool translator_fits(const Graph *graph) {
    return graph_find_input(graph, "decoder_input_ids") != NULL;
}

int64_t translator_vocabulary(const Translator *t) {
    return t->decoder->values[t->decoder->logits_value].width;
}

/* ---- making ---- */

/* Places of values, which take memory in turn, and of states. */
static void place_steps(Translator *t) {
    Decoder *decoder = t->decoder;
    const int count = decoder->step_count;
    Pool pool = pool_open(decoder->arena, decoder->value_count);
    t->steps = ARENA_ARRAY(decoder->arena, TranslateStep, (size_t)count + 1);
    for (int s = 0; s < count; s++) {
        const DecodeStep *step = &decoder->steps[s];
        const DecodeValue *value = &decoder->values[step->value];
        TranslateStep *more = &t->steps[s]; /* step s makes value s */
        more->at = pool_take(&pool, value->width, s, value->last + 1);
        if (!step->kernel->state_bytes) continue;
        const size_t bytes = step->kernel->state_bytes(step->node, t->options.max_length);
        more->state_at = t->state_bytes;
        more->state_bytes = (bytes + 63) / 64 * 64;
        t->state_bytes += more->state_bytes;
    }
    t->row_floats = pool.floats;
}

static Status check_inputs(const Graph *graph, Diag *diag) {
    static const char *const NAMES[] = {"input_ids", "attention_mask"};
    const Type want = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_S}};
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->name || !node_is_leaf(node) || node->storage) continue;
        if (strncmp(node->name, "decoder_", 8) == 0) continue; /* by decode_collect */
        const bool known =
            strcmp(node->name, NAMES[0]) == 0 || strcmp(node->name, NAMES[1]) == 0;
        if (known && type_equal(&node->type, &want)) continue;
        return diag_fail(diag, STATUS_MODEL, node->loc, node->name,
                         "expected a model whose inputs of the source are input_ids and "
                         "attention_mask i32[N, S]");
    }
    return STATUS_OK;
}

/* Plans of what steps read of the source. */
static Status open_encoder(Translator *t, Diag *diag) {
    Decoder *decoder = t->decoder;
    const PlanOptions options = {.precision = PRECISION_F32,
                                 .results = decoder->source_values,
                                 .result_count = decoder->source_count};
    if (decoder->source_count == 0) return STATUS_OK;
    t->plans = plan_cache_create(decoder->graph, NULL, &options, PLAN_CACHE_BYTES);
    const Fetch one = {.source = 1};
    Plan *plan = NULL;
    TRY(plan_cache_get(t->plans, 1, &one, &plan, diag));
    const Node *ids = graph_find_input(decoder->graph, "input_ids");
    if (ids) t->source_limit = plan_index_limit(plan, ids);
    plan_destroy(plan);
    return params_create(&t->params, decoder->graph, PRECISION_F32, false, diag);
}

static Status open_lanes(Translator *t, Diag *diag) {
    t->lanes = lanes_create(t->options.threads, t->options.threads, NULL);
    t->memory = memory_alloc((size_t)lanes_count(t->lanes), sizeof *t->memory);
    for (int i = 0; i < lanes_count(t->lanes); i++) {
        TranslateLane *lane = &t->memory[i];
        lane->translator = t;
        lane->source_data =
            memory_alloc((size_t)t->decoder->source_count + 1, sizeof(void *));
        TRY(workspace_create(&lane->workspace, diag));
    }
    return STATUS_OK;
}

static Status translator_fill(Translator *t, Graph *graph, Diag *diag) {
    const TranslatorOptions *options = &t->options;
    if (options->max_length < 1 || options->hypotheses < 1 || options->threads < 1)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "a translator without room for tokens");
    Decoder *decoder = t->decoder = memory_alloc(1, sizeof *decoder);
    decoder->arena = arena_create();
    decoder->graph = graph;
    decoder->has_source = true;
    decoder->options = (DecodeOptions){
        .capacity = options->max_length, .threads = 1, .weights = options->weights};
    TRY(decode_collect(decoder, diag));
    TRY(check_inputs(graph, diag));
    TRY(decode_pack(decoder, diag));
    place_steps(t);
    TRY(open_encoder(t, diag));
    return open_lanes(t, diag);
}

Status translator_create(Translator **out, Graph *graph, const TranslatorOptions *options,
                         Diag *diag) {
    Translator *t = memory_alloc(1, sizeof *t);
    t->options = *options;
    const Status status = translator_fill(t, graph, diag);
    if (status == STATUS_OK)
        *out = t;
    else
        translator_destroy(t);
    return status;
}

void translator_destroy(Translator *t) {
    if (!t) return;
    for (int i = 0; t->memory && i < lanes_count(t->lanes); i++)
        lane_close(&t->memory[i]);
    free(t->memory);
    lanes_destroy(t->lanes);
    params_destroy(t->params);
    plan_cache_destroy(t->plans);
    decoder_destroy(t->decoder);
    free(t);
}

/* ---- running ---- */

static Status check_ids(const Translator *t, const Sentences *sentences, Diag *diag) {
    const int64_t count = sentences->count * sentences->tokens;
    for (int64_t i = 0; i < count && t->source_limit > 0; i++)
        if (sentences->ids[i] < 0 || sentences->ids[i] >= t->source_limit) {
            diag_fail(diag, STATUS_MODEL, LOC_NONE, "input_ids",
                      "expected tokens from 0 to %lld, found %d",
                      (long long)t->source_limit - 1, (int)sentences->ids[i]);
            diag_hint(diag, "the tokenizer or data may belong to another model");
            return STATUS_MODEL;
        }
    return STATUS_OK;
}

static Status check_search(const Translator *t, const Search *search, Diag *diag) {
    const int64_t words = translator_vocabulary(t), limit = t->decoder->index_limit;
    if (search->beam < 1 || search->beam > t->options.hypotheses)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, "beam",
                         "expected 1 to %lld, found %lld",
                         (long long)t->options.hypotheses, (long long)search->beam);
    if (limit > 0 && (search->start < 0 || search->start >= limit))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, "start",
                         "expected a token from 0 to %lld, found %d",
                         (long long)limit - 1, (int)search->start);
    if (search->end >= 0 && search->end < words) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, "end",
                     "expected a token from 0 to %lld, found %d", (long long)words - 1,
                     (int)search->end);
}

/* A run at hand. */
typedef struct Run {
    Translator *translator;
    const Sentences *sentences;
    Search search;
    Translation *out;
} Run;

static Status run_lane(void *self, int64_t i, int lane_number, Diag *diag) {
    const Run *run = self;
    TranslateLane *lane = &run->translator->memory[i];
    (void)lane_number; /* no more items than lanes: item i is lane i's */
    TRY(lane_encode(lane, run->sentences, diag));
    lane_search(lane, &run->search, run->out + lane->first);
    return STATUS_OK;
}

/* Shares the sentences out, one part for each lane, and runs them. */
static Status run_lanes(Run *run, Diag *diag) {
    Translator *t = run->translator;
    const int64_t count = run->sentences->count, source = run->sentences->tokens;
    const int64_t most = lanes_count(t->lanes), parts = count < most ? count : most;
    TRY(translate_reserve(t, (count + parts - 1) / parts, source, diag));
    for (int64_t i = 0; i < parts; i++) {
        TranslateLane *lane = &t->memory[i];
        lane->first = count * i / parts;
        lane->sentences = count * (i + 1) / parts - lane->first;
        lane->source = source;
    }
    return lanes_run(t->lanes, parts, run_lane, run, diag);
}

Status translator_run(Translator *t, const Sentences *sentences, const Search *search,
                      Translation *out, Diag *diag) {
    const int64_t words = translator_vocabulary(t);
    if (sentences->count == 0) return STATUS_OK;
    TRY(check_search(t, search, diag));
    TRY(check_ids(t, sentences, diag));
    Run run = {.translator = t, .sentences = sentences, .search = *search, .out = out};
    const int64_t limit = t->decoder->index_limit;
    if (search->vocabulary <= 0 || search->vocabulary > words)
        run.search.vocabulary = words;
    if (limit > 0 && run.search.vocabulary > limit) run.search.vocabulary = limit;
    return run_lanes(&run, diag);
}
