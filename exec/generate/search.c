/* Search: see exec/generate/search.h.
 *
 * All sentences go on together, token by token; each has up to `hypotheses`
 * live ones, in slots of its own. A hypothesis that goes on with several tokens leaves
 * its slot to the first of them, and its states are copied for the others. */
#include "exec/generate/search.h"

#include "exec/loops/loops.h"
#include "ir/arena.h"
#include "ir/memory_array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A hypothesis. */
typedef struct Hypothesis {
    int64_t slot, row;
    double sum; /* of log-probabilities */
    int32_t *tokens;
} Hypothesis;

/* A way to go on. */
typedef struct Continuation {
    int64_t from; /* live hypothesis */
    int32_t token;
    double sum;
} Continuation;

typedef struct Sentence {
    Hypothesis *live, *next; /* [beam] */
    int64_t live_count;
    Continuation *candidates; /* [2 beam] */
    int64_t candidate_count;
    int64_t ended; /* hypotheses */
    bool done;
    Translation *best;
} Sentence;

typedef struct Searching {
    Hypotheses *h;
    const Search *search;
    int64_t count;       /* of sentences */
    int64_t words, most; /* of the model; of a translation */
    int64_t slots;       /* of a sentence */
    Sentence *sentences;
    int64_t length;  /* tokens of the live hypotheses */
    int32_t *tokens; /* of all hypotheses */
    bool *taken;     /* [beam] slots */
} Searching;

/* ---- scores ---- */

/* log of the sum of exp over a row, of which -inf are nothing; NaN where one is NaN or
 * the largest is not finite. */
static double log_total(const float *logits, int64_t count) {
    const float most = loops_here()->largest_logit(logits, count);
    double total = 0;
    if (!isfinite(most)) return NAN;
    for (int64_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY) total += exp((double)logits[i] - most);
    return most + log(total);
}

static double score_of(const Search *search, double sum, int64_t length) {
    return sum / pow((double)length, search->length_penalty);
}

/* ---- candidates ---- */

/* Keeps the candidates sorted, the best first; of equal ones the first to come. */
static void offer(Sentence *sentence, int64_t most, Continuation candidate) {
    Continuation *list = sentence->candidates;
    int64_t i = sentence->candidate_count;
    if (i == most && !(candidate.sum > list[i - 1].sum)) return;
    if (i < most)
        sentence->candidate_count++;
    else
        i--;
    for (; i > 0 && candidate.sum > list[i - 1].sum; i--) list[i] = list[i - 1];
    list[i] = candidate;
}

/* The next token's logits are not finite: there is no translation. */
static void give_up(const Searching *s, Sentence *sentence) {
    sentence->best->odd = s->length + 1;
    sentence->done = true;
}

/* The likeliest ways to go on with a live hypothesis; false where that gave up. */
static bool offer_words(const Searching *s, Sentence *sentence, int64_t h, int64_t most) {
    const Search *search = s->search;
    const Hypothesis *from = &sentence->live[h];
    const float *logits = hypotheses_logits(s->h, from->row);
    if (search->forced && s->length == 0) {
        offer(sentence, most, (Continuation){h, search->first, from->sum});
        return true;
    }
    const double total = log_total(logits, s->words);
    if (isnan(total)) give_up(s, sentence);
    if (sentence->done) return false;
    for (int64_t w = 0; w < search->vocabulary; w++) {
        const double sum = from->sum + (double)logits[w] - total;
        if (w == search->start && w != search->end) continue;
        if (sum > -INFINITY) offer(sentence, most, (Continuation){h, (int32_t)w, sum});
    }
    return true;
}

/* ---- going on ---- */

/* Keeps a translation if it is the best so far; `end` is not among its tokens. */
static void keep(Sentence *sentence, const int32_t *tokens, int64_t length, double score,
                 bool ended) {
    Translation *best = sentence->best;
    if (best->length >= 0 && !(score > best->score)) return;
    for (int64_t i = 0; i < length; i++) best->tokens[i] = tokens[i];
    best->length = length;
    best->score = score;
    best->ended = ended;
}

/* A free slot of a sentence. */
static int64_t free_slot(const Searching *s, int64_t base) {
    for (int64_t i = 0; i < s->search->beam; i++)
        if (!s->taken[i]) return base + i;
    return base; /* there are as many as hypotheses */
}

/* Makes the chosen candidates the live hypotheses. */
static void go_on(Searching *s, int64_t index, const Continuation *chosen,
                  int64_t count) {
    Sentence *sentence = &s->sentences[index];
    const int64_t base = index * s->slots;
    memset(s->taken, 0, (size_t)s->search->beam * sizeof *s->taken);
    for (int64_t n = 0; n < count; n++)
        s->taken[sentence->live[chosen[n].from].slot - base] = true;
    for (int64_t n = 0; n < count; n++) {
        const int64_t parent = sentence->live[chosen[n].from].slot;
        bool first = true;
        for (int64_t k = 0; k < n && first; k++) first = chosen[k].from != chosen[n].from;
        const int64_t slot = first ? parent : free_slot(s, base);
        if (!first) hypotheses_copy(s->h, parent, slot);
        s->taken[slot - base] = true;
        const Hypothesis *from = &sentence->live[chosen[n].from];
        Hypothesis *to = &sentence->next[n];
        memcpy(to->tokens, from->tokens, (size_t)s->length * sizeof *to->tokens);
        to->tokens[s->length] = chosen[n].token;
        to->sum = chosen[n].sum;
        to->slot = slot;
    }
    Hypothesis *old = sentence->live;
    sentence->live = sentence->next;
    sentence->next = old;
    sentence->live_count = count;
}

/* Live hypotheses at the largest length are translations, too. */
static void finish(const Searching *s, Sentence *sentence) {
    for (int64_t h = 0; h < sentence->live_count; h++) {
        const Hypothesis *live = &sentence->live[h];
        keep(sentence, live->tokens, s->length, score_of(s->search, live->sum, s->length),
             false);
    }
    sentence->done = true;
}

/* ---- beam search ---- */

static bool is_done(const Searching *s, const Sentence *sentence) {
    const Search *search = s->search;
    if (sentence->live_count == 0) return true;
    if (search->beam == 1 || search->early_stopping)
        return sentence->ended >= search->beam;
    if (sentence->ended < search->beam) return false;
    /* Sums only fall, so the best score that a live hypothesis can still reach is that of
     * an end at once or at the largest length. */
    for (int64_t h = 0; h < sentence->live_count; h++) {
        const double sum = sentence->live[h].sum;
        if (score_of(search, sum, s->length + 1) > sentence->best->score ||
            score_of(search, sum, s->most) > sentence->best->score)
            return false;
    }
    return true;
}

/* One token of beam search. An end counts only among the `beam` best. */
static void search_beam(Searching *s, int64_t index) {
    Sentence *sentence = &s->sentences[index];
    const int64_t beam = s->search->beam;
    Continuation *list = sentence->candidates;
    int64_t count = 0;
    sentence->candidate_count = 0;
    for (int64_t h = 0; h < sentence->live_count; h++)
        if (!offer_words(s, sentence, h, 2 * beam)) return;
    for (int64_t i = 0; i < sentence->candidate_count && count < beam; i++) {
        if (list[i].token != s->search->end) {
            list[count++] = list[i];
        } else if (i < beam) {
            sentence->ended++;
            keep(sentence, sentence->live[list[i].from].tokens, s->length,
                 score_of(s->search, list[i].sum, s->length + 1), true);
        }
    }
    go_on(s, index, list, count);
    sentence->done = is_done(s, sentence);
}

/* ---- lookahead ---- */

/* The likeliest first tokens become rows of their own. An end among them is a pair by
 * itself and is kept aside, as a candidate of number -1. */
static void look_ahead(Searching *s, int64_t index) {
    Sentence *sentence = &s->sentences[index];
    sentence->candidate_count = 0;
    if (!offer_words(s, sentence, 0, s->search->beam)) return;
    int64_t count = 0;
    double end = -INFINITY;
    for (int64_t i = 0; i < sentence->candidate_count; i++)
        if (sentence->candidates[i].token == s->search->end)
            end = sentence->candidates[i].sum;
        else
            sentence->candidates[count++] = sentence->candidates[i];
    sentence->candidates[count] = (Continuation){.from = -1, .sum = end};
    sentence->best->length = s->length; /* of the translation, should it end here */
    memcpy(sentence->best->tokens, sentence->live[0].tokens,
           (size_t)s->length * sizeof *sentence->best->tokens);
    go_on(s, index, sentence->candidates, count);
}

/* The sum of the likeliest pair that begins with a hypothesis' last token; NaN as
 * log_total. */
static double pair_sum(const Searching *s, const Hypothesis *live) {
    const Search *search = s->search;
    const float *logits = hypotheses_logits(s->h, live->row);
    float second = -INFINITY;
    for (int64_t w = 0; w < search->vocabulary; w++)
        if (logits[w] > second && (w != search->start || w == search->end))
            second = logits[w];
    return live->sum + (double)second - log_total(logits, s->words);
}

/* Keeps the first token of the best pair; the others' slots are free again. */
static void choose_pair(Searching *s, int64_t index) {
    Sentence *sentence = &s->sentences[index];
    const Continuation *end = &sentence->candidates[sentence->live_count];
    int64_t best = -1;
    double most = end->sum;
    for (int64_t h = 0; h < sentence->live_count; h++) {
        const double sum = pair_sum(s, &sentence->live[h]);
        if (isnan(sum)) give_up(s, sentence);
        if (sum > most) {
            most = sum;
            best = h;
        }
    }
    if (sentence->done) return;
    if (best < 0) {
        sentence->done = true;
        sentence->best->ended = end->sum > -INFINITY;
        sentence->best->score = sentence->best->ended ? end->sum : 0;
        return;
    }
    const Hypothesis kept = sentence->live[best];
    sentence->live[best] = sentence->live[0];
    sentence->live[0] = kept;
    sentence->live_count = 1;
}

/* ---- all sentences ---- */

/* Rows of the live hypotheses of sentences that are not done; false when there is none.
 */
static bool fill_rows(Searching *s) {
    bool any = false;
    hypotheses_clear(s->h);
    for (int64_t i = 0; i < s->count; i++) {
        Sentence *sentence = &s->sentences[i];
        for (int64_t k = 0; k < sentence->live_count && !sentence->done; k++) {
            Hypothesis *live = &sentence->live[k];
            const int32_t token =
                s->length > 0 ? live->tokens[s->length - 1] : s->search->start;
            live->row = hypotheses_add(s->h, token, i, live->slot);
            any = true;
        }
    }
    return any;
}

static void run_beam(Searching *s) {
    for (; s->length < s->most && fill_rows(s); s->length++) {
        hypotheses_step(s->h);
        for (int64_t i = 0; i < s->count; i++)
            if (!s->sentences[i].done) search_beam(s, i);
    }
    for (int64_t i = 0; i < s->count; i++)
        if (!s->sentences[i].done) finish(s, &s->sentences[i]);
}

/* Each token's row is the one that looking ahead ran already. */
static void run_lookahead(Searching *s) {
    if (fill_rows(s)) hypotheses_step(s->h);
    int64_t left = s->count; /* of the sentences, those that are not done */
    while (s->length + 1 < s->most && left > 0) {
        for (int64_t i = 0; i < s->count; i++)
            if (!s->sentences[i].done) look_ahead(s, i);
        s->length++;
        if (fill_rows(s)) hypotheses_step(s->h);
        for (int64_t i = left = 0; i < s->count; i++) {
            if (!s->sentences[i].done) choose_pair(s, i);
            left += !s->sentences[i].done;
        }
    }
    const Search *search = s->search; /* there is no second token for the last one */
    const Search greedy = {.kind = SEARCH_BEAM,
                           .beam = 1,
                           .start = search->start,
                           .end = search->end,
                           .vocabulary = search->vocabulary,
                           .forced = search->forced,
                           .first = search->first};
    s->search = &greedy;
    for (int64_t i = 0; i < s->count; i++) {
        if (s->sentences[i].done) continue;
        s->sentences[i].best->length = -1;
        search_beam(s, i);
    }
    s->length++;
    for (int64_t i = 0; i < s->count; i++)
        if (!s->sentences[i].done) finish(s, &s->sentences[i]);
    s->search = search;
}

static void open_sentence(Searching *s, int64_t i, Translation *out) {
    const int64_t beam = s->search->beam;
    Sentence *sentence = &s->sentences[i];
    Hypothesis *all = memory_alloc((size_t)(2 * beam), sizeof *all);
    for (int64_t h = 0; h < 2 * beam; h++)
        all[h].tokens = s->tokens + (i * 2 * beam + h) * s->most;
    *sentence = (Sentence){.live = all,
                           .next = all + beam,
                           .live_count = 1,
                           .candidates =
                               memory_alloc((size_t)(2 * beam + 1), sizeof(Continuation)),
                           .best = out};
    all[0].slot = i * s->slots;
    out->length = -1;
    out->odd = 0;
}

Status search_translations(Hypotheses *h, const Search *search, Translation *out,
                           Diag *diag) {
    Searching s = {.h = h,
                   .search = search,
                   .count = hypotheses_sentences(h),
                   .words = seq2seq_vocabulary(hypotheses_model(h)),
                   .most = seq2seq_options(hypotheses_model(h))->max_length,
                   .slots = seq2seq_options(hypotheses_model(h))->slots};
    const size_t hypotheses = (size_t)(s.count * 2 * search->beam);
    TRY(memory_array(&s.tokens, (size_t)s.most, hypotheses * sizeof *s.tokens,
                     "hypotheses of translations", diag));
    s.taken = memory_alloc((size_t)search->beam, sizeof *s.taken);
    s.sentences = memory_alloc((size_t)s.count, sizeof *s.sentences);
    for (int64_t i = 0; i < s.count; i++) open_sentence(&s, i, &out[i]);
    if (search->kind == SEARCH_LOOKAHEAD)
        run_lookahead(&s);
    else
        run_beam(&s);
    for (int64_t i = 0; i < s.count; i++) {
        Sentence *sentence = &s.sentences[i];
        if (out[i].length < 0) { /* no token was possible */
            out[i].length = 0;
            out[i].score = -INFINITY;
            out[i].ended = false;
        }
        free(sentence->live < sentence->next ? sentence->live : sentence->next);
        free(sentence->candidates);
    }
    free(s.sentences);
    free(s.taken);
    free(s.tokens);
    return STATUS_OK;
}
