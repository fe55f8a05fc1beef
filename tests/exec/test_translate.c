/* Translation with caches against searches written naively over forward runs of the whole
 * graph: greedy, beam, lookahead, exhaustive; padding, threads, and what is refused. */
#include "exec/generate/translate.h"

#include "exec/ops.h"
#include "tests/exec/decode_fixture.h"
#include "tests/support/starved.h"

#include <float.h>

enum { END = 1, START = 0, FIRST = 4, MOST = 7, S = 6, WORD_COUNT = 11 };

static const int32_t SOURCE[3][S] = {
    {4, 5, 6, 2, 9, 1}, {7, 1, 0, 0, 0, 0}, {3, 3, 8, 1, 0, 0}};
static const int LENGTHS[3] = {6, 2, 4};

static const char MARIAN[] =
    "{model_type: marian, vocab_size: 11, d_model: 20, encoder_layers: 2,\n"
    " decoder_layers: 2, encoder_attention_heads: 4, decoder_attention_heads: 2,\n"
    " encoder_ffn_dim: 24, decoder_ffn_dim: 28, activation_function: relu, %s}\n";
static const char BART[] =
    "{model_type: bart, vocab_size: 11, d_model: 20, encoder_layers: 2,\n"
    " decoder_layers: 2, encoder_attention_heads: 4, decoder_attention_heads: 2,\n"
    " encoder_ffn_dim: 24, decoder_ffn_dim: 28, max_position_embeddings: 9, %s}\n";
static const char T5[] =
    "{model_type: t5, vocab_size: 11, d_model: 20, num_layers: 2, num_heads: 3, d_kv: 6,\n"
    " d_ff: 24, relative_attention_num_buckets: 5, relative_attention_max_distance: 6,\n"
    " %s}\n";
static const char RECURRENT[] =
    "{model_type: rnn_attention, source_vocab_size: 11, target_vocab_size: 11,\n"
    " embedding_size: 12, encoder_size: 18, decoder_size: 14, alignment_size: 10, %s}\n";

static bool forced; /* the first token is FIRST, at no cost */

static const struct {
    const char *yaml, *keys;
    int64_t window; /* of the decoder's linear attention; 0 = it has softmax attention */
    bool mixed;     /* heads of the decoder's attentions */
} MODELS[] = {{MARIAN, "scale_embedding: true"},
              {MARIAN, "normalize_before: true, share_encoder_decoder_embeddings: false"},
              {MARIAN, "norm: branch, normalize_embedding: true"},
              {BART, "scale_embedding: true"},
              {T5, "feed_forward_proj: relu"},
              {T5, "feed_forward_proj: gated-gelu, tie_word_embeddings: false"},
              {RECURRENT, "context: additive"},
              {RECURRENT, "context: mean"},
              {RECURRENT, "decoder_input: state"},
              {RECURRENT, "decoder_input: state, context: mean"},
              {MARIAN, "scale_embedding: true", 2},
              {MARIAN, "normalize_before: true", 0, true},
              {T5, "feed_forward_proj: relu", 0, true}};
enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS };

static Model *model_open(int m) {
    char yaml[512];
    snprintf(yaml, sizeof yaml, MODELS[m].yaml, MODELS[m].keys);
    Model *model = configured_model(yaml, 5);
    for (int layer = 0; MODELS[m].window && layer < 2; layer++) {
        linearize(model, layer, 5, "hedgehog");
        add_window(model, layer, MODELS[m].window);
    }
    for (int layer = 0; MODELS[m].mixed && layer < 2; layer++) {
        mix_heads_of(model, graph_find(model->graph, "decoder", layer, ROLE_ATTENTION),
                     true, layer == 0);
        mix_heads_of(model,
                     graph_find(model->graph, "decoder", layer, ROLE_CROSS_ATTENTION),
                     layer == 1, true);
    }
    draw_weights(model, MODELS[m].yaml == RECURRENT ? 0.8 : 0.35);
    return model;
}

/* ---- naive searches ---- */

/* Log-probabilities of the next token after a prefix, by a run of the whole graph in
 * double on one sentence without padding. */
static void naive_logs(Model *model, int sentence, const int32_t *prefix, int64_t length,
                       double *logs) {
    Runner r;
    Node *logits = graph_output(model->graph, "logits");
    const int64_t T = length + 1;
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = 1,
                                        [DIM_INDEX(DIM_T)] = T,
                                        [DIM_INDEX(DIM_S)] = LENGTHS[sentence]};
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &logits, 1);
    int32_t *ids = workspace_input(r.workspace, "input_ids");
    int32_t *mask = workspace_input(r.workspace, "attention_mask");
    int32_t *target = workspace_input(r.workspace, "decoder_input_ids");
    int32_t *target_mask = workspace_input(r.workspace, "decoder_attention_mask");
    for (int i = 0; i < LENGTHS[sentence]; i++) {
        ids[i] = SOURCE[sentence][i];
        mask[i] = 1;
    }
    for (int64_t t = 0; t < T; t++) {
        if (target) target[t] = t ? prefix[t - 1] : START;
        if (target_mask) target_mask[t] = 1;
    }
    runner_run(&r);
    const double *row =
        (const double *)workspace_value(r.workspace, logits) + length * WORD_COUNT;
    double most = row[0], total = 0;
    for (int w = 1; w < WORD_COUNT; w++) most = fmax(most, row[w]);
    for (int w = 0; w < WORD_COUNT; w++) total += exp(row[w] - most);
    for (int w = 0; w < WORD_COUNT; w++)
        logs[w] = w == START ? -INFINITY : row[w] - most - log(total);
    for (int w = 0; forced && length == 0 && w < WORD_COUNT; w++)
        logs[w] = w == FIRST ? 0 : -INFINITY;
    runner_close(&r);
}

typedef struct Found {
    int32_t tokens[MOST];
    int64_t length;
    double score;
    bool ended;
} Found;

typedef struct Live {
    int32_t tokens[MOST];
    double sum;
} Live;

typedef struct Way {
    Live live;
    int32_t token;
} Way;

static int by_sum(const void *a, const void *b) {
    const Way *x = a, *y = b;
    return (x->live.sum < y->live.sum) - (x->live.sum > y->live.sum);
}

static void note(Found *best, const Live *live, int64_t length, double score, bool end) {
    if (score <= best->score) return;
    *best = (Found){.length = length, .score = score, .ended = end};
    memcpy(best->tokens, live->tokens, (size_t)length * sizeof(int32_t));
}

/* Beam search as exec/generate/translate.h defines it. */
static Found naive_beam(Model *model, int sentence, const Search *search) {
    enum { BEAM_MAX = 8 };
    Live live[BEAM_MAX] = {{{0}, 0}};
    Way ways[BEAM_MAX * WORD_COUNT];
    Found best = {.score = -INFINITY};
    int64_t count = 1, ended = 0;
    const double p = search->length_penalty;
    for (int64_t length = 0; length < MOST; length++) {
        int way_count = 0;
        double logs[WORD_COUNT];
        for (int64_t h = 0; h < count; h++) {
            naive_logs(model, sentence, live[h].tokens, length, logs);
            for (int w = 0; w < WORD_COUNT; w++) {
                ways[way_count] = (Way){live[h], w};
                ways[way_count].live.tokens[length] = w;
                ways[way_count++].live.sum += logs[w];
            }
        }
        qsort(ways, (size_t)way_count, sizeof *ways, by_sum);
        count = 0;
        for (int i = 0; i < 2 * search->beam && i < way_count; i++) {
            if (count == search->beam || ways[i].live.sum == -INFINITY) break;
            if (ways[i].token != END) {
                live[count++] = ways[i].live;
            } else if (i < search->beam) {
                ended++;
                note(&best, &ways[i].live, length,
                     ways[i].live.sum / pow((double)length + 1, p), true);
            }
        }
        bool done = ended >= search->beam;
        for (int64_t h = 0; h < count && !search->early_stopping && search->beam > 1; h++)
            done &= fmax(live[h].sum / pow(MOST, p),
                         live[h].sum / pow((double)length + 2, p)) <= best.score;
        if (done) return best;
    }
    for (int64_t h = 0; h < count; h++)
        note(&best, &live[h], MOST, live[h].sum / pow(MOST, p), false);
    return best;
}

/* The first token of the best pair, over all pairs. */
static Found naive_lookahead(Model *model, int sentence) {
    Found found = {.ended = false};
    while (found.length < MOST) {
        double first[WORD_COUNT], second[WORD_COUNT], most = -INFINITY;
        int32_t best = 0;
        naive_logs(model, sentence, found.tokens, found.length, first);
        for (int w = 0; w < WORD_COUNT; w++) {
            double sum = first[w];
            found.tokens[found.length] = w;
            const bool pair = w != END && found.length + 1 < MOST;
            if (pair && w != START) {
                naive_logs(model, sentence, found.tokens, found.length + 1, second);
                double next = -INFINITY;
                for (int v = 0; v < WORD_COUNT; v++) next = fmax(next, second[v]);
                sum += next;
            }
            if (sum > most) most = sum, best = w;
        }
        found.score += first[best];
        found.ended = best == END;
        if (found.ended) break;
        found.tokens[found.length++] = best;
    }
    return found;
}

/* The best of all sequences. */
static void exhaust(Model *model, int sentence, Live *live, int64_t length, int64_t most,
                    double p, Found *best) {
    double logs[WORD_COUNT];
    if (length == most) {
        note(best, live, length, live->sum / pow((double)length, p), false);
        return;
    }
    naive_logs(model, sentence, live->tokens, length, logs);
    for (int w = 0; w < WORD_COUNT; w++) {
        if (w == START) continue;
        Live next = *live;
        next.tokens[length] = w;
        next.sum += logs[w];
        if (w == END)
            note(best, live, length, next.sum / pow((double)length + 1, p), true);
        else
            exhaust(model, sentence, &next, length + 1, most, p, best);
    }
}

/* ---- translating ---- */

typedef struct Result {
    Translation all[3];
    int32_t tokens[3][MOST];
} Result;

static Status translate(Result *result, Model *model, const Search *search, int first,
                        int count, int threads, int64_t most, int64_t hypotheses,
                        Diag *diag) {
    Translator *t = NULL;
    int32_t ids[3][S], mask[3][S];
    const TranslatorOptions options = {
        .max_length = most, .hypotheses = hypotheses, .threads = threads};
    for (int i = 0; i < count; i++) {
        memcpy(ids[i], SOURCE[first + i], sizeof ids[i]);
        for (int k = 0; k < S; k++) mask[i][k] = k < LENGTHS[first + i];
        result->all[i] = (Translation){.tokens = result->tokens[i]};
    }
    TRY(translator_create(&t, model->graph, &options, diag));
    const Sentences sentences = {&ids[0][0], &mask[0][0], count, S};
    Status status = translator_run(t, &sentences, search, result->all, diag);
    if (status == STATUS_OK) /* again, in memory that has been used */
        status = translator_run(t, &sentences, search, result->all, diag);
    translator_destroy(t);
    return status;
}

static void translate_all(Result *result, Model *model, const Search *search,
                          int64_t most) {
    Diag *diag = diag_create();
    assert_ok(translate(result, model, search, 0, 3, 1, most, search->beam, diag), diag);
    diag_destroy(diag);
}

static void check_found(Model *model, const Translation *got, const Found *want, int m) {
    if (got->length != want->length || got->ended != want->ended ||
        memcmp(got->tokens, want->tokens, (size_t)got->length * sizeof(int32_t)) != 0)
        fail_msg("model %d: another translation, score %g against %g", m, got->score,
                 want->score);
    /* a sum of logarithms, each of which comes from a run of the graph */
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = 1,
                                        [DIM_INDEX(DIM_T)] = got->length + 1,
                                        [DIM_INDEX(DIM_S)] = S};
    const double terms =
        rounding_terms(model->graph, graph_output(model->graph, "logits"), sizes) *
        (double)(got->length + 1);
    assert_within(got->score, want->score,
                  rounding_tolerance(PRECISION_F32, terms, 1 + fabs(want->score)));
}

static Search search_of(SearchKind kind, int64_t beam, double penalty, bool early) {
    return (Search){.kind = kind,
                    .beam = beam,
                    .length_penalty = penalty,
                    .early_stopping = early,
                    .start = START,
                    .end = END,
                    .forced = forced,
                    .first = FIRST};
}

static void check_beam(Search search) {
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = model_open(m);
        Result got;
        translate_all(&got, model, &search, MOST);
        for (int i = 0; i < 3; i++) {
            const Found want = naive_beam(model, i, &search);
            check_found(model, &got.all[i], &want, m);
        }
        model_destroy(model);
    }
}

static void test_greedy(void **state) {
    (void)state;
    check_beam(search_of(SEARCH_BEAM, 1, 1, true));
}

static void test_beam(void **state) {
    (void)state;
    check_beam(search_of(SEARCH_BEAM, 3, 1, false));
    check_beam(search_of(SEARCH_BEAM, 4, 0.6, true));
    check_beam(search_of(SEARCH_BEAM, 2, 0, false));
}

/* Translations that begin with a token whatever the model says. */
static void test_forced(void **state) {
    (void)state;
    forced = true;
    check_beam(search_of(SEARCH_BEAM, 1, 1, true));
    check_beam(search_of(SEARCH_BEAM, 3, 1, false));
    forced = false;
}

static void test_lookahead(void **state) {
    (void)state;
    const Search search = search_of(SEARCH_LOOKAHEAD, WORD_COUNT, 0, false);
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = model_open(m);
        Result got;
        translate_all(&got, model, &search, MOST);
        for (int i = 0; i < 3; i++) {
            const Found want = naive_lookahead(model, i);
            check_found(model, &got.all[i], &want, m);
        }
        model_destroy(model);
    }
}

/* A beam that holds everything finds the best of all sequences. */
static void test_exhaustive(void **state) {
    (void)state;
    enum { LENGTH = 3, ALL = (WORD_COUNT - 2) * (WORD_COUNT - 2) * (WORD_COUNT - 2) };
    for (int m = 0; m < MODEL_COUNT; m += 3) {
        Model *model = model_open(m);
        for (int early = 0; early < 2; early++) {
            const Search search = search_of(SEARCH_BEAM, ALL, early ? 1 : 0.5, false);
            Result got;
            translate_all(&got, model, &search, LENGTH);
            for (int i = 0; i < 3; i += 2) {
                Found best = {.score = -INFINITY};
                Live none = {{0}, 0};
                exhaust(model, i, &none, 0, LENGTH, search.length_penalty, &best);
                check_found(model, &got.all[i], &best, m);
            }
        }
        model_destroy(model);
    }
}

/* One search gives other translations than another, else the tests above say little. */
static void test_differ(void **state) {
    (void)state;
    int differ[2] = {0, 0}, ended = 0;
    const Search searches[] = {search_of(SEARCH_BEAM, 1, 1, true),
                               search_of(SEARCH_BEAM, 4, 1, false),
                               search_of(SEARCH_LOOKAHEAD, 8, 0, false)};
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = model_open(m);
        Result greedy;
        translate_all(&greedy, model, &searches[0], MOST);
        for (int k = 0; k < 2; k++) {
            Result other;
            translate_all(&other, model, &searches[k + 1], MOST);
            for (int i = 0; i < 3; i++)
                differ[k] += greedy.all[i].length != other.all[i].length ||
                             memcmp(greedy.tokens[i], other.tokens[i],
                                    (size_t)greedy.all[i].length * 4) != 0;
        }
        for (int i = 0; i < 3; i++) ended += greedy.all[i].ended;
        model_destroy(model);
    }
    assert_true(differ[0] > 2 && differ[1] > 2);
    assert_true(ended > 2 && ended < 3 * MODEL_COUNT);
}

/* Sentences alone and together, with any number of threads and room for more. */
static void test_together(void **state) {
    (void)state;
    Diag *diag = diag_create();
    const Search search = search_of(SEARCH_BEAM, 3, 1, false);
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = model_open(m);
        Result together;
        translate_all(&together, model, &search, MOST);
        for (int i = 0; i < 3; i++) {
            Result alone;
            assert_ok(translate(&alone, model, &search, i, 1, 1, MOST, 5, diag), diag);
            assert_int_equal(alone.all[0].length, together.all[i].length);
            assert_memory_equal(alone.tokens[0], together.tokens[i],
                                (size_t)alone.all[0].length * sizeof(int32_t));
        }
        for (int threads = 2; threads < 5; threads++) {
            Result shared;
            assert_ok(translate(&shared, model, &search, 0, 3, threads, MOST, 3, diag),
                      diag);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(shared.all[i].length, together.all[i].length);
                assert_memory_equal(shared.tokens[i], together.tokens[i],
                                    (size_t)shared.all[i].length * sizeof(int32_t));
            }
        }
        model_destroy(model);
    }
    diag_destroy(diag);
}

/* One sentence: threads share its steps, and the bytes are those of one thread. */
static void test_threads(void **state) {
    (void)state;
    Diag *diag = diag_create();
    const Search searches[] = {search_of(SEARCH_BEAM, 1, 1, true),
                               search_of(SEARCH_BEAM, 4, 1, false),
                               search_of(SEARCH_LOOKAHEAD, 8, 0, false)};
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = model_open(m);
        for (int k = 0; k < 3; k++)
            for (int threads = 2; threads < 6; threads++) {
                Result one, many;
                assert_ok(translate(&one, model, &searches[k], 1, 1, 1, MOST, 8, diag),
                          diag);
                assert_ok(
                    translate(&many, model, &searches[k], 1, 1, threads, MOST, 8, diag),
                    diag);
                assert_int_equal(many.all[0].length, one.all[0].length);
                assert_memory_equal(many.tokens[0], one.tokens[0],
                                    (size_t)one.all[0].length * sizeof(int32_t));
                assert_memory_equal(&many.all[0].score, &one.all[0].score,
                                    sizeof one.all[0].score);
            }
        model_destroy(model);
    }
    diag_destroy(diag);
}

/* Every thread has something to do, whatever the number of sentences. */
static void test_threads_used(void **state) {
    (void)state;
    Model *model = model_open(0);
    Diag *diag = diag_create();
    Translator *t = NULL;
    const TranslatorOptions options = {.max_length = MOST, .hypotheses = 2, .threads = 6};
    assert_ok(translator_create(&t, model->graph, &options, diag), diag);
    assert_int_equal(translator_threads(t, 1), 6);
    assert_int_equal(translator_threads(t, 2), 6);
    assert_int_equal(translator_threads(t, 4), 4); /* parts of one thread each */
    assert_int_equal(translator_threads(t, 100), 6);
    translator_destroy(t);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- logits that are not finite ---- */

/* Makes a row of a weight as large as there are numbers. */
static void overflow_row(const Model *model, const char *name, int64_t row) {
    Diag *diag = diag_create();
    Storage *storage = graph_storage(model->graph, name);
    void *data;
    assert_non_null(storage);
    const int64_t width = storage->tensor.dim[1];
    assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
    for (int64_t i = 0; i < width; i++) ((float *)data)[row * width + i] = FLT_MAX;
    diag_destroy(diag);
}

/* Only the last sentence has a word that overflows: it has no translation, those beside
 * it are what they were, at any number of threads. */
static void test_one_not_finite(void **state) {
    (void)state;
    enum { MODEL = 1, ODD = 2, WORD = 3 };
    const Search searches[] = {search_of(SEARCH_BEAM, 1, 1, true),
                               search_of(SEARCH_BEAM, 3, 1, false),
                               search_of(SEARCH_LOOKAHEAD, 3, 0, false)};
    Diag *diag = diag_create();
    Model *sound = model_open(MODEL), *model = model_open(MODEL);
    overflow_row(model, "model.encoder.embed_tokens.weight", WORD);
    for (int k = 0; k < 3; k++)
        for (int threads = 1; threads < 4; threads++) {
            Result want, got;
            translate_all(&want, sound, &searches[k], MOST);
            assert_ok(translate(&got, model, &searches[k], 0, 3, threads, MOST, 3, diag),
                      diag);
            assert_int_equal(got.all[ODD].odd, 1);
            assert_int_equal(got.all[ODD].length, 0);
            for (int i = 0; i < ODD; i++) {
                assert_int_equal(got.all[i].odd, 0);
                assert_int_equal(got.all[i].length, want.all[i].length);
                assert_memory_equal(got.tokens[i], want.tokens[i],
                                    (size_t)got.all[i].length * sizeof(int32_t));
            }
        }
    model_destroy(model);
    model_destroy(sound);
    diag_destroy(diag);
}

/* The third position overflows: what has not ended before has no third token, whose
 * logits lookahead sees one token earlier. */
static void test_third_not_finite(void **state) {
    (void)state;
    enum { MODEL = 3, THIRD = 2 };
    const Search searches[] = {search_of(SEARCH_BEAM, 1, 1, true),
                               search_of(SEARCH_BEAM, 4, 1, false),
                               search_of(SEARCH_LOOKAHEAD, 4, 0, false)};
    Model *model = model_open(MODEL);
    overflow_row(model, "model.decoder.embed_positions.weight", THIRD + 2);
    for (int k = 0; k < 3; k++) {
        int odd = 0;
        Result got;
        translate_all(&got, model, &searches[k], MOST);
        for (int i = 0; i < 3; i++) {
            assert_true(got.all[i].odd == THIRD + 1 ||
                        (got.all[i].odd == 0 && got.all[i].ended));
            odd += got.all[i].odd > 0;
        }
        assert_true(odd > 0);
    }
    model_destroy(model);
}

/* A recurrent model has one state at any length, so the tokens are what there is no
 * memory for. */
static void test_no_memory(void **state) {
    (void)state;
    if (!can_starve()) skip();
    Model *model = model_open(6);
    const SearchKind kinds[] = {SEARCH_BEAM, SEARCH_LOOKAHEAD};
    assert_ptr_equal(MODELS[6].yaml, RECURRENT);
    for (int k = 0; k < 2; k++) {
        Result result;
        Diag *diag = diag_create();
        const Search search = search_of(kinds[k], 2, 1, false);
        assert_int_equal(
            translate(&result, model, &search, 0, 3, 1, (int64_t)1 << 50, 2, diag),
            STATUS_MEMORY);
        assert_int_equal(diag_errors(diag), 1);
        char *said = diag_text(diag);
        assert_non_null(strstr(said, "error: hypotheses of translations: no memory for"));
        free(said);
        diag_destroy(diag);
    }
    model_destroy(model);
}

static void test_vocabulary(void **state) {
    (void)state;
    Model *model = model_open(0);
    Search search = search_of(SEARCH_BEAM, 2, 1, true);
    search.vocabulary = 4;
    Result result;
    translate_all(&result, model, &search, MOST);
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < result.all[i].length; k++)
            assert_true(result.tokens[i][k] == 2 || result.tokens[i][k] == 3);
    model_destroy(model);
}

static void refuse(Model *model, const Search *search, const char *part) {
    Result result;
    Diag *diag = diag_create();
    assert_int_equal(translate(&result, model, search, 0, 3, 1, MOST, 2, diag),
                     STATUS_MODEL);
    char *text = diag_text(diag);
    if (!strstr(text, part)) fail_msg("no '%s' in: %s", part, text);
    free(text);
    diag_destroy(diag);
}

static void test_refused(void **state) {
    (void)state;
    Model *model = model_open(3), *other = gpt2_model();
    Search search = search_of(SEARCH_BEAM, 3, 1, true);
    refuse(model, &search, "beam: expected 1 to 2, found 3");
    search = search_of(SEARCH_BEAM, 2, 1, true);
    search.start = WORD_COUNT;
    refuse(model, &search, "start: expected a token from 0 to 10, found 11");
    search = search_of(SEARCH_BEAM, 2, 1, true);
    search.end = -1;
    refuse(model, &search, "end: expected a token from 0 to 10, found -1");
    search = search_of(SEARCH_BEAM, 2, 1, true);
    refuse(other, &search, "decoder_input_ids");
    assert_true(translator_fits(model->graph));
    assert_false(translator_fits(other->graph));
    model_destroy(other);
    model_destroy(model);
    model = configured_model("{model_type: rnn_attention, source_vocab_size: 9,\n"
                             " target_vocab_size: 11, embedding_size: 4,\n"
                             " encoder_size: 4, decoder_size: 4}\n",
                             1);
    refuse(model, &search, "input_ids: expected tokens from 0 to 8, found 9");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),           cmocka_unit_test(test_beam),
        cmocka_unit_test(test_forced),           cmocka_unit_test(test_lookahead),
        cmocka_unit_test(test_exhaustive),       cmocka_unit_test(test_differ),
        cmocka_unit_test(test_together),         cmocka_unit_test(test_threads),
        cmocka_unit_test(test_threads_used),     cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_one_not_finite),
        cmocka_unit_test(test_third_not_finite), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
