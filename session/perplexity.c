/* Perplexity: see perplexity.h. */
#include "session/perplexity.h"

#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "exec/run/forward.h"
#include "exec/run/reserve.h"
#include "io/datasets/last_words.h"
#include "io/datasets/text_windows.h"
#include "io/files/file.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/unicode.h"
#include "ir/memory_array.h"
#include "ir/model_parts.h"
#include "ir/rewrite.h"
#include "passes/evaluate/evaluate_tally.h"
#include "passes/nodes.h"
#include "session/labelled_rows.h"
#include "session/user_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of logits of one run, but for one sample's, and most samples. */
#define LOGITS_BYTES ((int64_t)64 << 20)
#define RUN_SAMPLES  16

typedef struct Measuring {
    Perplexity *out;
    const PerplexityOptions *options;
    const Model *model;
    const char *name; /* the model's */
    Arena *arena;
    Tokenizer *tokenizer;
    int32_t *tokens; /* of the text, `first` included */
    Batches *data;
    Graph *graph;  /* a copy, whose head sees the tokens that count */
    Node *logits;  /* [N, M, V], or [N, T, V] where it sees all */
    bool gathered; /* the former */
    Tally tally;
    RowScore *scores; /* of the rows of one run */
    int64_t capacity;
} Measuring;

/* ---- windows ---- */

/* Tokens that the model was made for, as it or its configuration says; 0 = not known. */
static int64_t find_context(const Model *model) {
    static const char *const KEYS[] = {"max_position_embeddings", "n_positions"};
    const int64_t positions = graph_positions(model->graph);
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS && positions == 0; i++) {
        const Tree *value = tree_get_nonnull(model->config, KEYS[i]);
        if (value && value->kind == TREE_INT && value->integer > 0) return value->integer;
    }
    return positions;
}

static Status choose_length(Measuring *m, Diag *diag) {
    const PerplexityOptions *o = m->options;
    const int64_t positions = graph_positions(m->model->graph);
    const int64_t context = find_context(m->model);
    int64_t length = o->length;
    if (length == 0) length = context > 0 ? context : PERPLEXITY_LENGTH;
    if (o->length == 0 && length > PERPLEXITY_LENGTH) length = PERPLEXITY_LENGTH;
    if (positions > 0 && length > positions)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--length: expected at most %lld, the model's table of "
                         "positions, found %lld",
                         (long long)positions, (long long)length);
    if (context > 0 && length > context)
        diag_warn(diag, LOC_NONE, "--length",
                  "%lld tokens are more than the %lld of the model's configuration",
                  (long long)length, (long long)context);
    m->out->length = length;
    return STATUS_OK;
}

static Status choose_stride(Measuring *m, Diag *diag) {
    const int64_t length = m->out->length, stride = m->options->stride;
    m->out->stride = stride ? stride : (length + 1) / 2;
    if (m->out->stride <= length) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "--stride: expected at most %lld, the tokens of a window, found "
                     "%lld",
                     (long long)length, (long long)stride);
}

/* Reads the text's tokens, behind that for the beginning. */
static Status read_tokens(Measuring *m, Diag *diag) {
    char *text;
    size_t length;
    Encoding encoding = {0};
    Perplexity *out = m->out;
    const char *path = m->options->text;
    TRY(file_read(&text, &length, m->arena, path, PERPLEXITY_BYTES_MAX, diag));
    TRY(utf8_check_file(path, text, length, diag));
    const size_t mark = utf8_mark_length(text, length);
    const TextSpan span = {text + mark, length - mark};
    const Status status =
        tokenizer_encode_plain(m->tokenizer, &encoding, span, LOC_FILE(path), diag);
    const bool begins = out->first >= 0;
    out->bytes = (int64_t)span.length;
    out->tokens = (int64_t)encoding.length;
    m->tokens = ARENA_ARRAY(m->arena, int32_t, encoding.length + 1);
    if (begins) m->tokens[0] = out->first;
    if (encoding.length > 0)
        memcpy(m->tokens + begins, encoding.ids, encoding.length * sizeof *m->tokens);
    encoding_free(&encoding);
    TRY(status);
    if (out->tokens + begins >= 2) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                     "expected a text of two tokens or more, found %lld",
                     (long long)out->tokens);
}

static Status open_data(Measuring *m, Diag *diag) {
    const PerplexityOptions *o = m->options;
    Perplexity *out = m->out;
    out->first = tokenizer_begin(m->tokenizer);
    TRY(choose_length(m, diag));
    if (o->last_word && o->stride)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "--stride: expected none with --last-word");
    if (o->last_word)
        return last_words_open(&m->data, o->text, m->tokenizer, out->length, "--length",
                               diag);
    TRY(choose_stride(m, diag));
    TRY(read_tokens(m, diag));
    m->data = text_windows_create(o->text, m->tokens, out->tokens + (out->first >= 0),
                                  out->length, out->stride);
    return STATUS_OK;
}

/* ---- the model ---- */

static Status open_model(Measuring *m, Diag *diag) {
    const Task task = graph_task(m->model->graph);
    m->graph = graph_copy(m->arena, m->model->graph);
    m->logits = graph_output(m->graph, OUTPUT_LOGITS);
    if (task != TASK_NEXT_TOKEN || !m->logits || m->logits->type.rank != 3)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(m->name), NULL,
                         "expected a model that predicts the next token, found task %s",
                         task_name(task));
    return labelled_rows_gather(&m->gathered, m->graph, m->logits, diag);
}

static Status add_token(Measuring *m, const RowScore *score, int32_t label, Diag *diag) {
    if (label >= m->tally.classes)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(m->name), NULL,
                         "expected token numbers below %lld, the model's, found %d",
                         (long long)m->tally.classes, (int)label);
    if (score->bad >= 0)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(m->name), NULL,
                         "expected finite logits, found another one for token %lld",
                         (long long)score->bad);
    tally_add(&m->tally, score, label);
    return STATUS_OK;
}

/* Rows of logits of a sample padded to so many tokens. */
static int64_t row_count(const Measuring *m, const Batches *data, int64_t tokens) {
    return m->gathered ? batches_masked(data, tokens) : tokens;
}

/* A part of the samples, and who measures them. */
typedef struct Part {
    Measuring *m;
    Batches *data;
    int labels; /* the column */
} Part;

/* ForwardSink. */
static Status add_samples(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    const Part *part = self;
    Measuring *m = part->m;
    const int32_t *labels = columns[part->labels];
    const int64_t each = row_count(m, part->data, what->tokens), count = what->n * each;
    if (count > m->capacity) {
        free(m->scores);
        TRY(MEMORY_ARRAY(&m->scores, (size_t)count, "the scores of tokens", diag));
        m->capacity = count;
    }
    tally_score(m->scores, values[0], labels, count, m->tally.classes,
                m->options->threads);
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t right = m->tally.correct, rows = m->tally.rows;
        for (int64_t at = i * each; at < (i + 1) * each; at++)
            if (labels[at] != INDEX_SKIP)
                TRY(add_token(m, &m->scores[at], labels[at], diag));
        m->out->exact += m->tally.correct - right == m->tally.rows - rows;
    }
    return STATUS_OK;
}

/* Runs the model on samples [first, first + count). */
static Status run_samples(Measuring *m, int64_t first, int64_t count, const Watch *watch,
                          Diag *diag) {
    Part part = {.m = m, .data = m->data};
    if (m->gathered) TRY(labelled_rows_create(&part.data, m->data, first, count, diag));
    part.labels = batches_column(part.data, DATA_LABELS);
    const int64_t bytes = row_count(m, part.data, part.data->max_tokens) *
                          m->tally.classes * (int64_t)sizeof(float);
    int64_t samples = bytes > 0 ? LOGITS_BYTES / bytes : 1;
    if (samples < 1) samples = 1;
    if (samples > RUN_SAMPLES) samples = RUN_SAMPLES;
    const Status status =
        forward_batches(m->graph, &m->logits, 1, part.data, 0, samples,
                        m->options->threads, watch, add_samples, &part, diag);
    if (m->gathered) batches_destroy(part.data);
    return status;
}

static Status run_model(Measuring *m, Diag *diag) {
    Perplexity *out = m->out;
    const Watch *watch = m->options->watch;
    const double start = ticker_seconds();
    int64_t first = 0;
    tally_open(&m->tally, m->arena, m->logits->type.dim[2], true);
    blas_init();
    TRY(threads_reserve(m->options->threads, diag));
    /* The first window predicts more than the others, which share one number of rows. */
    if (m->gathered && m->data->count > 1 && out->stride > 0 &&
        out->stride < out->length) {
        const Watch quiet = {.self = watch ? watch->self : NULL,
                             .cancelled = watch ? watch->cancelled : NULL};
        TRY(run_samples(m, first++, 1, &quiet, diag));
    }
    TRY(run_samples(m, first, m->data->count - first, watch, diag));
    out->seconds = ticker_seconds() - start;
    out->samples = m->data->count;
    out->predicted = m->tally.rows;
    out->loss = m->tally.loss;
    out->likeliest = m->tally.correct;
    return STATUS_OK;
}

static Status measure(Measuring *m, Diag *diag) {
    TRY(open_model(m, diag));
    TRY(user_tokenizer_read(&m->tokenizer, m->options->tokenizer, m->model, m->name,
                            diag));
    TRY(vocabulary_check(m->model, "the model", vocabulary_of(m->tokenizer, m->arena),
                         "tokenizer", LOC_NONE, diag));
    TRY(open_data(m, diag));
    return run_model(m, diag);
}

Status perplexity_measure(Perplexity *out, const Model *model, const char *name,
                          const PerplexityOptions *options, Diag *diag) {
    *out = (Perplexity){.first = -1};
    Measuring m = {.out = out,
                   .options = options,
                   .model = model,
                   .name = name,
                   .arena = arena_create()};
    const Status status = measure(&m, diag);
    batches_destroy(m.data);
    free(m.scores);
    if (m.graph) graph_release(m.graph);
    tokenizer_destroy(m.tokenizer);
    arena_destroy(m.arena);
    return status;
}

/* ---- what it says ---- */

double perplexity_of_tokens(const Perplexity *it) {
    return exp(it->loss / (double)it->predicted);
}

double perplexity_of_words(const Perplexity *it) {
    return exp(it->loss / (double)it->samples);
}

double perplexity_bits_per_byte(const Perplexity *it) {
    return it->loss / M_LN2 / (double)it->predicted * (double)it->tokens /
           (double)it->bytes;
}
