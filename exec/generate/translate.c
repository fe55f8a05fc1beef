/* Translator: see exec/generate/translate.h. */
#include "exec/generate/translate.h"

#include "exec/run/lanes.h"

#include <stdlib.h>

struct Translator {
    Seq2Seq *model;
    int threads;
    Lanes *lanes;
    Hypotheses **hypotheses; /* by lane */
};

bool translator_fits(const Graph *graph) {
    return graph_find_input(graph, "decoder_input_ids") != NULL;
}

int64_t translator_vocabulary(const Translator *t) {
    return seq2seq_vocabulary(t->model);
}

/* ---- making ---- */

Status translator_check(Graph *graph, int64_t max_length, Diag *diag) {
    return seq2seq_check(graph, max_length, diag);
}

static Status translator_fill(Translator *t, Graph *graph,
                              const TranslatorOptions *options, Diag *diag) {
    const Seq2SeqOptions model = {.max_length = options->max_length,
                                  .slots = options->hypotheses,
                                  .weights = options->weights};
    TRY(seq2seq_create(&t->model, graph, &model, diag));
    t->lanes = lanes_create(t->threads, t->threads, NULL);
    const int count = lanes_count(t->lanes);
    t->hypotheses = memory_alloc((size_t)count, sizeof(Hypotheses *));
    for (int i = 0; i < count; i++)
        TRY(hypotheses_create(&t->hypotheses[i], t->model, diag));
    return STATUS_OK;
}

Status translator_create(Translator **out, Graph *graph, const TranslatorOptions *options,
                         Diag *diag) {
    Translator *t = memory_alloc(1, sizeof *t);
    t->threads = options->threads > 1 ? options->threads : 1;
    const Status status = translator_fill(t, graph, options, diag);
    if (status == STATUS_OK)
        *out = t;
    else
        translator_destroy(t);
    return status;
}

void translator_destroy(Translator *t) {
    if (!t) return;
    for (int i = 0; t->hypotheses && i < lanes_count(t->lanes); i++)
        hypotheses_destroy(t->hypotheses[i]);
    free(t->hypotheses);
    lanes_destroy(t->lanes);
    seq2seq_destroy(t->model);
    free(t);
}

/* ---- running ---- */

static Status check_ids(const Translator *t, const Sentences *sentences, Diag *diag) {
    const int64_t count = sentences->count * sentences->tokens;
    const int64_t limit = seq2seq_source_limit(t->model);
    for (int64_t i = 0; i < count && limit > 0; i++)
        if (sentences->ids[i] < 0 || sentences->ids[i] >= limit) {
            diag_fail(diag, STATUS_MODEL, LOC_NONE, "input_ids",
                      "expected tokens from 0 to %lld, found %d", (long long)limit - 1,
                      (int)sentences->ids[i]);
            diag_hint(diag, "the tokenizer or data may belong to another model");
            return STATUS_MODEL;
        }
    return STATUS_OK;
}

static Status check_token(const char *name, int32_t token, int64_t limit, Diag *diag) {
    if (token >= 0 && token < limit) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, name,
                     "expected a token from 0 to %lld, found %d", (long long)limit - 1,
                     (int)token);
}

static Status check_search(const Translator *t, const Search *search, Diag *diag) {
    const int64_t words = translator_vocabulary(t),
                  limit = seq2seq_target_limit(t->model);
    if (search->beam < 1 || search->beam > seq2seq_options(t->model)->slots)
        return diag_fail(
            diag, STATUS_MODEL, LOC_NONE, "beam", "expected 1 to %lld, found %lld",
            (long long)seq2seq_options(t->model)->slots, (long long)search->beam);
    if (search->forced) TRY(check_token("first", search->first, words, diag));
    if (limit > 0) TRY(check_token("start", search->start, limit, diag));
    return check_token("end", search->end, words, diag);
}

/* A call at hand: sentences in so many parts, each done by so many threads. */
typedef struct Translating {
    Translator *translator;
    const Sentences *sentences;
    int64_t parts;
    int threads;
    Search search;
    Translation *out;
} Translating;

/* With fewer sentences than threads the rest helps with the steps of each: as many with
 * every part, so that parts end at about the same time. */
static void share_out(Translating *run, int64_t sentences) {
    const int64_t threads = run->translator->threads;
    run->parts = sentences < threads ? sentences : threads;
    run->threads = (int)(threads / run->parts);
}

int translator_threads(const Translator *translator, int64_t sentences) {
    Translating run = {.translator = (Translator *)(uintptr_t)translator};
    if (sentences < 1) return 1;
    share_out(&run, sentences);
    return (int)run.parts * run.threads;
}

static Status run_part(void *self, int64_t part, int lane, Diag *diag) {
    const Translating *run = self;
    const Sentences *all = run->sentences;
    Hypotheses *h = run->translator->hypotheses[lane];
    const int64_t first = all->count * part / run->parts;
    const Sentences mine = {.ids = all->ids + first * all->tokens,
                            .mask = all->mask + first * all->tokens,
                            .count = all->count * (part + 1) / run->parts - first,
                            .tokens = all->tokens};
    TRY(hypotheses_start(h, &mine, run->threads, diag));
    return search_translations(h, &run->search, run->out + first, diag);
}

Status translator_run(Translator *t, const Sentences *sentences, const Search *search,
                      Translation *out, Diag *diag) {
    const int64_t words = translator_vocabulary(t),
                  limit = seq2seq_target_limit(t->model);
    if (sentences->count == 0) return STATUS_OK;
    TRY(check_search(t, search, diag));
    TRY(check_ids(t, sentences, diag));
    Translating run = {
        .translator = t, .sentences = sentences, .search = *search, .out = out};
    if (search->vocabulary <= 0 || search->vocabulary > words)
        run.search.vocabulary = words;
    if (limit > 0 && run.search.vocabulary > limit) run.search.vocabulary = limit;
    share_out(&run, sentences->count);
    return lanes_run(t->lanes, run.parts, run_part, &run, diag);
}
