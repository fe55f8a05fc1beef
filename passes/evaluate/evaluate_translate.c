/* evaluate: models that translate. Sources are translated and compared with the
 * references of the data set. */
#include "passes/evaluate/evaluation.h"

#include "exec/generate/translate.h"
#include "exec/run/ticker.h"
#include "ir/memory_array.h"
#include "passes/evaluate/bleu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BEAM_MAX = 1024, LENGTH_MAX = 65536 };

static const Field FIELDS[] = {
    F_CHOICE(DecodeKeys, search, SEARCH_NAMES, "how the next token is searched for"),
    F_INT(DecodeKeys, beam, 1, BEAM_MAX, "hypotheses that go on; 1 = greedy"),
    F_INT(DecodeKeys, max_length, 1, LENGTH_MAX, "most tokens of a translation"),
    F_REAL(DecodeKeys, length_penalty, 0, 100,
           "scores are sums of log-probabilities over length^length_penalty"),
    F_BOOL(DecodeKeys, early_stopping, "stop when so many as the beam have ended"),
    F_CHOICE(DecodeKeys, tokenize, BLEU_TOKENIZE_NAMES, "tokens of BLEU"),
    F_CHOICE(DecodeKeys, smooth, BLEU_SMOOTH_NAMES, "orders without a match"),
    F_END,
};

Status evaluate_decode_keys(DecodeKeys *keys, const Tree *decode, Arena *arena,
                            Diag *diag) {
    *keys = (DecodeKeys){.beam = 4, .max_length = 64, .length_penalty = 1};
    return fields_bind(FIELDS, decode, keys, arena, STATUS_RECIPE, diag);
}

const char *evaluate_decode_text(const Tree *decode, Arena *arena) {
    DecodeKeys keys;
    Text text = {0};
    Diag *aside = diag_create();
    if (evaluate_decode_keys(&keys, decode, arena, aside) == STATUS_OK)
        fields_print(&text, FIELDS, &keys, NULL);
    else
        tree_print_json(&text, decode, 0);
    const char *copy = arena_strndup(arena, text.data, text.length);
    diag_destroy(aside);
    text_free(&text);
    return copy;
}

/* ---- the model ---- */

Status evaluate_check_translation(Evaluation *e, Diag *diag) {
    TRY(evaluate_decode_keys(&e->decode, e->options->decode, e->ctx->arena, diag));
    if (translator_fits(e->model->graph))
        return translator_check(e->model->graph, e->decode.max_length, diag);
    Status status = step_fail(e->ctx, diag, "the model translates nothing");
    diag_hint(diag, "bleu and decode are for encoder-decoder models, with an input "
                    "decoder_input_ids");
    return status;
}

/* A token that the configuration numbers must be the data set's. */
static Status check_token(const Evaluation *e, const char *key, int32_t token,
                          Diag *diag) {
    const Tree *number = tree_get(e->model->config, key);
    if (!number || number->kind != TREE_INT || number->integer == token) return STATUS_OK;
    return step_fail(e->ctx, diag,
                     "data set \"%s\": expected token %lld, the model's %s, found %d",
                     e->options->data, (long long)number->integer, key, (int)token);
}

static Status check_data(const Evaluation *e, Diag *diag) {
    const Translations *t = e->data->translations;
    if (!t) {
        Status status = step_fail(e->ctx, diag, "data set \"%s\" has no translations",
                                  e->options->data);
        diag_hint(diag, "bleu and decode are for data sets of format translation");
        return status;
    }
    TRY(check_token(e, "decoder_start_token_id", t->start, diag));
    return check_token(e, "eos_token_id", t->end, diag);
}

/* ---- translating ---- */

typedef struct TranslationRun {
    Evaluation *e;
    Translator *translator;
    Search search;
    int64_t *order, total, batch;
    int32_t *tokens;  /* [batch, max_length] */
    Translation *out; /* [batch] */
    Bleu bleu;
    int64_t made, unfinished;
    Text text;
} TranslationRun;

/* Sources of a batch are about equally long, the longest first. */
static int compare_lengths(const void *a, const void *b, void *self) {
    const Batches *data = self;
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    const int64_t p = data->source_length(data, x), q = data->source_length(data, y);
    if (p != q) return p > q ? -1 : 1;
    return x < y ? -1 : x > y;
}

static Status compare(TranslationRun *t, int64_t sample, const Translation *translation,
                      Diag *diag) {
    const Batches *data = t->e->data;
    if (translation->odd)
        return step_fail(t->e->ctx, diag,
                         "sample %lld: expected finite logits, found others at token "
                         "%lld of the translation",
                         (long long)sample, (long long)translation->odd);
    t->text.length = 0;
    text_bytes(&t->text, "", 1);
    t->text.length = 0;
    TRY(data->translations->spell(data, &t->text, translation->tokens,
                                  translation->length, diag));
    bleu_add(&t->bleu, (BleuTokenize)t->e->decode.tokenize, t->text.data,
             data->translations->reference(data, sample));
    t->made += translation->length;
    t->unfinished += !translation->ended;
    return STATUS_OK;
}

/* Fetches and translates the samples of `what`. */
static Status translate(TranslationRun *t, const Fetch *what, void **columns,
                        Diag *diag) {
    const Batches *data = t->e->data;
    const int64_t most = t->e->decode.max_length;
    TRY(data->fetch(data, what, columns, diag));
    const Sentences sentences = {.ids = columns[batches_column(data, "input_ids")],
                                 .mask = columns[batches_column(data, "attention_mask")],
                                 .count = what->n,
                                 .tokens = what->source};
    for (int64_t i = 0; i < what->n; i++) t->out[i].tokens = t->tokens + i * most;
    TRY(translator_run(t->translator, &sentences, &t->search, t->out, diag));
    for (int64_t i = 0; i < what->n; i++)
        TRY(compare(t, what->index[i], &t->out[i], diag));
    return STATUS_OK;
}

static Status run_batch(TranslationRun *t, int64_t first, int64_t n, Diag *diag) {
    const Batches *data = t->e->data;
    Fetch what = {.index = t->order + first, .n = n};
    batches_pad(data, &what);
    void **columns = memory_alloc((size_t)data->column_count, sizeof *columns);
    static const char *const NAMES[] = {"input_ids", "attention_mask"};
    for (int i = 0; i < 2; i++)
        columns[batches_column(data, NAMES[i])] =
            memory_alloc((size_t)(n * what.source), sizeof(int32_t));
    const Status status = translate(t, &what, columns, diag);
    for (int i = 0; i < data->column_count; i++) free(columns[i]);
    free(columns);
    return status;
}

static Status run_all(TranslationRun *t, Diag *diag) {
    Ticker ticker = {.watch = t->e->ctx->watch};
    const int64_t batch = t->batch;
    for (int64_t first = 0, n; first < t->total; first += n) {
        n = t->total - first < batch ? t->total - first : batch;
        if (ticker_cancelled(&ticker))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld sentences", (long long)first,
                             (long long)t->total);
        TRY(run_batch(t, first, n, diag));
        ticker_progress(&ticker, first + n, t->total, NAN, first + n == t->total);
    }
    return STATUS_OK;
}

/* ---- results ---- */

/* sacreBLEU's signature, without its version. */
static const char *signature(const Evaluation *e) {
    int tokenize, smooth;
    const DecodeKeys *keys = &e->decode;
    const char *t =
        field_choice_name(field_find(FIELDS, "tokenize"), keys->tokenize, &tokenize);
    const char *s =
        field_choice_name(field_find(FIELDS, "smooth"), keys->smooth, &smooth);
    return arena_printf(e->ctx->arena, "nrefs:1|case:%s|eff:no|tok:%.*s|smooth:%.*s",
                        e->data->translations->lowercase ? "lc" : "mixed", tokenize, t,
                        smooth, s);
}

static void record(TranslationRun *t, double seconds) {
    Evaluation *e = t->e;
    Arena *arena = e->ctx->arena;
    Tree *map = e->ctx->record;
    const BleuScore score = bleu_score(&t->bleu, (BleuSmooth)e->decode.smooth);
    e->bleu = score.score;
    tree_put_real(arena, map, "bleu", score.score);
    Tree *orders = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int n = 0; n < BLEU_ORDERS; n++)
        tree_add_real(arena, orders, score.precision[n]);
    tree_append(arena, map, "bleu_precisions", LOC_NONE, orders);
    tree_put_real(arena, map, "brevity_penalty", score.penalty);
    tree_put_string(arena, map, "bleu_signature", signature(e));
    tree_put_int(arena, map, "translated_tokens", t->made);
    tree_put_int(arena, map, "unfinished_translations", t->unfinished);
    if (e->ctx->times && seconds > 0)
        tree_put_real(arena, e->ctx->times, "translations_per_second",
                      (double)t->total / seconds);
}

/* What every translation begins with, where the configuration says so. */
static void force_first(Search *search, const Tree *config) {
    const Tree *first = tree_get(config, "forced_bos_token_id");
    search->forced = first && first->kind == TREE_INT;
    if (search->forced)
        search->first = first->integer >= 0 && first->integer <= INT32_MAX
                            ? (int32_t)first->integer
                            : -1;
}

static Status run_translations(TranslationRun *t, Diag *diag) {
    Evaluation *e = t->e;
    const double start = ticker_seconds();
    const Translations *data = e->data->translations;
    t->search = (Search){.kind = (SearchKind)e->decode.search,
                         .beam = e->decode.beam,
                         .length_penalty = e->decode.length_penalty,
                         .early_stopping = e->decode.early_stopping,
                         .start = data->start,
                         .end = data->end,
                         .vocabulary = e->data->classes};
    force_first(&t->search, e->model->config);
    t->total = evaluation_samples(e);
    t->order = memory_alloc((size_t)t->total, sizeof *t->order);
    for (int64_t i = 0; i < t->total; i++) t->order[i] = i;
    qsort_r(t->order, (size_t)t->total, sizeof *t->order, compare_lengths, e->data);
    t->batch = e->options->batch_size < t->total ? e->options->batch_size : t->total;
    TRY(memory_array(&t->tokens, (size_t)t->batch,
                     (size_t)e->decode.max_length * sizeof *t->tokens, "translations",
                     diag));
    t->out = memory_alloc((size_t)t->batch, sizeof *t->out);
    const TranslatorOptions options = {.max_length = e->decode.max_length,
                                       .hypotheses = e->decode.beam,
                                       .threads =
                                           e->ctx->threads > 0 ? e->ctx->threads : 1};
    TRY(translator_create(&t->translator, e->model->graph, &options, diag));
    TRY(run_all(t, diag));
    record(t, ticker_seconds() - start);
    return STATUS_OK;
}

Status evaluate_translations(Evaluation *e, Diag *diag) {
    TranslationRun t = {.e = e};
    TRY(check_data(e, diag));
    if (e->ctx->plan) return STATUS_OK;
    const Status status = run_translations(&t, diag);
    translator_destroy(t.translator);
    text_free(&t.text);
    free(t.order);
    free(t.tokens);
    free(t.out);
    return status;
}
