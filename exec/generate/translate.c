/* Translator: see exec/generate/translate.h; how it is put together in
 * exec/generate/translate_internal.h.
 */
#include "exec/generate/translate_internal.h"

#include "exec/run/parallel.h"

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
    t->plans = (PlanCache){.graph = decoder->graph,
                           .options = {.precision = PRECISION_F32,
                                       .results = decoder->source_values,
                                       .result_count = decoder->source_count}};
    if (decoder->source_count == 0) return STATUS_OK;
    const Fetch one = {.source = 1};
    TRY(plan_cache_need(&t->plans, 1, &one, diag));
    const Node *ids = graph_find_input(decoder->graph, "input_ids");
    if (ids) t->source_limit = plan_index_limit(plan_cache_find(&t->plans, 1, &one), ids);
    return params_create(&t->params, decoder->graph, PRECISION_F32, false, diag);
}

static Status open_lanes(Translator *t, Diag *diag) {
    t->lanes = memory_alloc((size_t)t->options.threads, sizeof *t->lanes);
    for (int i = 0; i < t->options.threads; i++) {
        Lane *lane = &t->lanes[i];
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
    for (int i = 0; t->lanes && i < t->options.threads; i++) lane_close(&t->lanes[i]);
    free(t->lanes);
    params_destroy(t->params);
    plan_cache_close(&t->plans);
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
    Diag **diags; /* by lane */
} Run;

static void run_lane(void *self, int64_t i, int worker) {
    (void)worker; /* lane i has memory of its own */
    const Run *run = self;
    Lane *lane = &run->translator->lanes[i];
    lane->status = lane_encode(lane, run->sentences, run->diags[i]);
    if (lane->status == STATUS_OK)
        lane_search(lane, &run->search, run->out + lane->first);
}

/* Shares the sentences out; makes what lanes need. */
static Status share_out(const Run *run, int lanes, Diag *diag) {
    Translator *t = run->translator;
    const int64_t count = run->sentences->count;
    const Fetch what = {.source = run->sentences->tokens};
    TRY(lanes_reserve(t, (count + lanes - 1) / lanes, what.source, diag));
    for (int i = 0; i < lanes; i++) {
        Lane *lane = &t->lanes[i];
        lane->first = count * i / lanes;
        lane->sentences = count * (i + 1) / lanes - lane->first;
        lane->source = what.source;
        if (t->decoder->source_count > 0)
            TRY(plan_cache_need(&t->plans, lane->sentences, &what, diag));
    }
    return STATUS_OK;
}

static Status run_lanes(Run *run, int lanes, Diag *diag) {
    Status status = share_out(run, lanes, diag);
    if (status != STATUS_OK) return status;
    run->diags = memory_alloc((size_t)lanes, sizeof(Diag *));
    for (int i = 0; i < lanes; i++) run->diags[i] = diag_create();
    parallel_for(lanes, lanes, run_lane, run);
    for (int i = 0; i < lanes; i++) {
        const Status found = run->translator->lanes[i].status;
        if (found != STATUS_OK && status == STATUS_OK)
            status = diag_fail(diag, found, LOC_NONE, NULL, "the encoder could not run");
        diag_destroy(run->diags[i]);
    }
    free(run->diags);
    return status;
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
    const int64_t lanes =
        sentences->count < t->options.threads ? sentences->count : t->options.threads;
    return run_lanes(&run, (int)lanes, diag);
}
