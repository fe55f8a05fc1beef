/* Questions about texts whose answers are parts of the texts, in SQuAD's form (Rajpurkar
 * et al., 2016 and 2018):
 *
 *     {"data": [{"paragraphs": [{"context": TEXT, "qas": [{"id": ID, "question": TEXT,
 *       "answers": [{"text": TEXT, "answer_start": CHARACTER}], "is_impossible":
 * false}]}]}]}
 *
 * A sample is a question and a window of a text, as a pair. Texts that are too long give
 * several windows, of which each begins `stride` tokens behind the one before (Devlin et
 * al., 2019). A window without the answer points at token 0.
 *
 * Texts are cut into words, at white space and around everything that is neither letter
 * nor digit nor mark, and each word into tokens for itself: that gives every token its
 * place in the text, and the tokens of BERT and its relatives. */
#include "io/datasets/dataset.h"
#include "io/datasets/squad.h"
#include "io/datasets/unknown_tokens.h"
#include "io/files/json.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/unicode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 30)

typedef struct SpanOptions {
    const char *path, *tokenizer;
    int64_t max_length, question_length, answer_length, stride, limit, offset;
} SpanOptions;

enum { COLUMN_IDS, COLUMN_MASK, COLUMN_TYPES, COLUMN_FIRST, COLUMN_LAST, COLUMNS };

static const Column SPAN_COLUMNS[COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {DIM_T}}},
    {"attention_mask", {DTYPE_I32, 1, {DIM_T}}},
    {"token_type_ids", {DTYPE_I32, 1, {DIM_T}}},
    {DATA_SPAN_FIRST, {DTYPE_I32, 0, {0}}},
    {DATA_SPAN_LAST, {DTYPE_I32, 0, {0}}},
};

/* The tokens of a text, and where in it each begins and ends (bytes). */
typedef struct SpanText {
    TextSpan text;
    int32_t *ids;
    int64_t *begin, *end;
    int64_t count, capacity;
} SpanText;

typedef struct Question {
    int64_t text; /* of which of the texts */
    int32_t *ids;
    int64_t id_count;
    const char **right;
    int right_count;
    int64_t first, last; /* tokens of the text; -1 = it holds no answer */
} Question;

typedef struct SpanSample {
    int64_t question, from, count; /* tokens of its text */
} SpanSample;

typedef struct SpanData {
    Batches base;
    Answers answers;
    Arena *arena; /* holds this struct */
    SpanText *texts;
    Question *questions;
    SpanSample *samples;
    int64_t text_count, text_capacity, question_capacity, sample_capacity;
    int32_t pad, cls, sep;
    bool two_separators; /* between question and text, as RoBERTa has it */
} SpanData;

/* ---- fetching ---- */

/* Tokens in front of the text: special ones and the question. */
static int64_t tokens_before(const SpanData *data, const SpanSample *sample) {
    return 2 + data->questions[sample->question].id_count + data->two_separators;
}

static int64_t span_length(const Batches *self, int64_t index) {
    const SpanData *data = (const SpanData *)self;
    const SpanSample *sample = &data->samples[index];
    return tokens_before(data, sample) + sample->count + 1;
}

/* Where the answer begins and ends in a sample; 0 where it does not stand there whole. */
static void span_place(const SpanData *data, const SpanSample *sample, int32_t place[2]) {
    const Question *question = &data->questions[sample->question];
    const int64_t before = tokens_before(data, sample) - sample->from;
    place[0] = place[1] = 0;
    if (question->first < sample->from || question->last >= sample->from + sample->count)
        return;
    place[0] = (int32_t)(question->first + before);
    place[1] = (int32_t)(question->last + before);
}

static void sample_write(const SpanData *data, const SpanSample *sample, int64_t tokens,
                         int32_t *ids, int32_t *mask, int32_t *types) {
    const Question *question = &data->questions[sample->question];
    const int64_t before = tokens_before(data, sample),
                  length = before + sample->count + 1;
    int64_t at = 0;
    ids[at++] = data->cls;
    for (int64_t i = 0; i < question->id_count; i++) ids[at++] = question->ids[i];
    while (at < before) ids[at++] = data->sep;
    for (int64_t i = 0; i < sample->count; i++)
        ids[at++] = data->texts[question->text].ids[sample->from + i];
    ids[at] = data->sep;
    for (int64_t i = 0; i < tokens; i++) {
        if (i >= length) ids[i] = data->pad;
        mask[i] = i < length;
        types[i] = !data->two_separators && i >= before && i < length;
    }
}

static Status span_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    const SpanData *data = (const SpanData *)self;
    const int64_t tokens = what->tokens;
    for (int64_t i = 0; i < what->n; i++) {
        int32_t place[2];
        TRY(dataset_check_tokens(self, what->index[i], tokens, diag));
        const SpanSample *sample = &data->samples[what->index[i]];
        sample_write(data, sample, tokens, (int32_t *)dst[COLUMN_IDS] + i * tokens,
                     (int32_t *)dst[COLUMN_MASK] + i * tokens,
                     (int32_t *)dst[COLUMN_TYPES] + i * tokens);
        span_place(data, sample, place);
        ((int32_t *)dst[COLUMN_FIRST])[i] = place[0];
        ((int32_t *)dst[COLUMN_LAST])[i] = place[1];
    }
    return STATUS_OK;
}

static void span_destroy(Batches *self) {
    SpanData *data = (SpanData *)self;
    for (int64_t i = 0; i < data->text_count; i++) {
        free(data->texts[i].ids);
        free(data->texts[i].begin);
        free(data->texts[i].end);
    }
    for (int64_t i = 0; i < data->answers.questions; i++) free(data->questions[i].ids);
    free(data->texts);
    free(data->questions);
    free(data->samples);
    arena_destroy(data->arena);
}

/* ---- answers ---- */

static int64_t answer_question(const Batches *self, int64_t sample) {
    return ((const SpanData *)self)->samples[sample].question;
}

static void answer_tokens(const Batches *self, int64_t sample, int64_t *first,
                          int64_t *end) {
    const SpanData *data = (const SpanData *)self;
    *first = tokens_before(data, &data->samples[sample]);
    *end = *first + data->samples[sample].count;
}

static const char *answer_text(const Batches *self, int64_t index, int64_t first,
                               int64_t last, size_t *length) {
    const SpanData *data = (const SpanData *)self;
    const SpanSample *sample = &data->samples[index];
    const SpanText *text = &data->texts[data->questions[sample->question].text];
    const int64_t shift = sample->from - tokens_before(data, sample);
    const int64_t begin = text->begin[first + shift];
    *length = (size_t)(text->end[last + shift] - begin);
    return text->text.text + begin;
}

static bool answer_answerable(const Batches *self, int64_t question) {
    return ((const SpanData *)self)->questions[question].right_count > 0;
}

static void answer_compare(const Batches *self, int64_t index, const char *answer,
                           size_t length, double *exact, double *f1) {
    const Question *question = &((const SpanData *)self)->questions[index];
    const TextSpan given = {answer, length};
    *exact = *f1 = 0;
    if (question->right_count == 0) squad_compare(given, (TextSpan){"", 0}, exact, f1);
    for (int i = 0; i < question->right_count; i++) {
        double same, share;
        const TextSpan right = {question->right[i], strlen(question->right[i])};
        squad_compare(given, right, &same, &share);
        if (same > *exact) *exact = same;
        if (share > *f1) *f1 = share;
    }
}

/* ---- texts ---- */

static bool is_part_of_word(uint32_t c) {
    return char_is_letter(c) || char_is_number(c) || char_is_nonspacing(c);
}

/* The next word of a text from *at on: [*begin, *end), and *at behind it, where `from` is
 * where its white space began. False at the end. */
static bool next_word(TextSpan text, size_t *at, size_t *from, size_t *begin,
                      size_t *end) {
    size_t bytes = 0;
    *from = *begin = *at;
    while (*begin < text.length && char_is_space(utf8_decode(text.text + *begin, &bytes)))
        *begin += bytes;
    if (*begin >= text.length) return false;
    const bool word = is_part_of_word(utf8_decode(text.text + *begin, &bytes));
    *end = *begin + bytes;
    while (word && *end < text.length &&
           is_part_of_word(utf8_decode(text.text + *end, &bytes)))
        *end += bytes;
    *at = *end;
    return true;
}

static void text_add_tokens(SpanText *text, const Encoding *tokens, size_t begin,
                            size_t end) {
    const int64_t count = text->count + (int64_t)tokens->length;
    if (count > text->capacity) {
        text->capacity = 2 * count;
        text->ids = memory_grow(text->ids, (size_t)text->capacity, sizeof *text->ids);
        text->begin =
            memory_grow(text->begin, (size_t)text->capacity, sizeof *text->begin);
        text->end = memory_grow(text->end, (size_t)text->capacity, sizeof *text->end);
    }
    for (size_t i = 0; i < tokens->length; i++) {
        text->ids[text->count] = tokens->ids[i];
        text->begin[text->count] = (int64_t)begin;
        text->end[text->count++] = (int64_t)end;
    }
}

/* The tokens of a text, word by word; *same tells whether the text as a whole has the
 * same ones. */
static Status text_encode(SpanText *text, const Tokenizer *tokenizer, bool *same, Loc at,
                          Diag *diag) {
    Encoding tokens = {0};
    size_t next = 0, from, begin, end;
    Status status = STATUS_OK;
    while (status == STATUS_OK && next_word(text->text, &next, &from, &begin, &end)) {
        const TextSpan word = {text->text.text + from, end - from};
        status = tokenizer_encode_plain(tokenizer, &tokens, word, at, diag);
        if (status == STATUS_OK) text_add_tokens(text, &tokens, begin, end);
    }
    if (status == STATUS_OK)
        status = tokenizer_encode_plain(tokenizer, &tokens, text->text, at, diag);
    *same = status == STATUS_OK && tokens.length == (size_t)text->count &&
            (tokens.length == 0 ||
             memcmp(tokens.ids, text->ids, tokens.length * sizeof *tokens.ids) == 0);
    encoding_free(&tokens);
    return status;
}

/* ---- reading ---- */

typedef struct Reader {
    SpanData *data;
    const SpanOptions *options;
    const Tokenizer *tokenizer;
    Loc at;             /* the data set in the recipe */
    int64_t other, cut; /* texts that have other tokens as a whole; questions cut short */
    Diag *diag;
} Reader;

/* A member of a kind; fails naming the question or the key where it is missing. */
static Status member(const Reader *r, const Tree *map, const char *key, TreeKind kind,
                     const Tree **out) {
    *out = map->kind == TREE_MAP ? tree_get_nonnull(map, key) : NULL;
    if (*out && (*out)->kind == kind) return STATUS_OK;
    const Tree *id = map->kind == TREE_MAP ? tree_get_nonnull(map, "id") : NULL;
    diag_fail(r->diag, STATUS_FORMAT, LOC_FILE(r->options->path), key,
              "expected %s, found %s", tree_kind_name(kind),
              *out ? tree_kind_name((*out)->kind) : "none");
    if (id && id->kind == TREE_STRING)
        diag_note(r->diag, "question \"%.60s\"", id->string);
    diag_hint(r->diag, "SQuAD's form: {\"data\": [{\"paragraphs\": [{\"context\": ..., "
                       "\"qas\": [...]}]}]}");
    return STATUS_FORMAT;
}

/* The byte at which a character begins; `length` behind the last one, SIZE_MAX further
 * out. */
static size_t byte_of(TextSpan text, int64_t character) {
    size_t at = 0, bytes;
    for (; character > 0 && at < text.length; character--) {
        utf8_decode(text.text + at, &bytes);
        at += bytes;
    }
    return character == 0 ? at : SIZE_MAX;
}

/* Finds the tokens that hold an answer of these words. */
static Status find_answer(const Reader *r, Question *question, const Tree *answer,
                          const char *words, const char *id) {
    const SpanText *text = &r->data->texts[question->text];
    const Tree *start;
    TRY(member(r, answer, "answer_start", TREE_INT, &start));
    const size_t length = strlen(words);
    const size_t begin =
        start->integer < 0 ? SIZE_MAX : byte_of(text->text, start->integer);
    if (begin == SIZE_MAX || length > text->text.length - begin ||
        memcmp(text->text.text + begin, words, length) != 0)
        return diag_fail(
            r->diag, STATUS_FORMAT, LOC_FILE(r->options->path), "answer_start",
            "question \"%.60s\": expected the answer \"%.60s\" at character %lld of "
            "its context, found another text there",
            id, words, (long long)start->integer);
    for (int64_t t = 0; t < text->count; t++) {
        if (text->begin[t] >= (int64_t)(begin + length)) break;
        if (text->end[t] <= (int64_t)begin) continue;
        if (question->first < 0) question->first = t;
        question->last = t;
    }
    return STATUS_OK;
}

static Status read_answers(Reader *r, Question *question, const Tree *qa,
                           const char *id) {
    const Tree *impossible = tree_get_nonnull(qa, "is_impossible"), *answers;
    if (impossible && impossible->kind == TREE_BOOL && impossible->boolean)
        return STATUS_OK;
    TRY(member(r, qa, "answers", TREE_LIST, &answers));
    question->right = ARENA_ARRAY(r->data->arena, const char *, (size_t)answers->count);
    for (const Tree *answer = answers->first; answer; answer = answer->next) {
        const Tree *words;
        TRY(member(r, answer, "text", TREE_STRING, &words));
        question->right[question->right_count++] =
            arena_strdup(r->data->arena, words->string);
        if (answer == answers->first)
            TRY(find_answer(r, question, answer, words->string, id));
    }
    return STATUS_OK;
}

static Status read_question(Reader *r, const Tree *qa, int64_t text) {
    SpanData *data = r->data;
    const Tree *words, *id = tree_get_nonnull(qa, "id");
    TRY(member(r, qa, "question", TREE_STRING, &words));
    if (data->answers.questions == data->question_capacity) {
        data->question_capacity = 2 * data->question_capacity + 64;
        data->questions = memory_grow(data->questions, (size_t)data->question_capacity,
                                      sizeof *data->questions);
    }
    Question *question = &data->questions[data->answers.questions++];
    *question = (Question){.text = text, .first = -1, .last = -1};
    Encoding tokens = {0};
    Status status = tokenizer_encode_plain(
        r->tokenizer, &tokens, (TextSpan){words->string, strlen(words->string)},
        LOC_FILE(r->options->path), r->diag);
    const int64_t most = r->options->question_length;
    const int64_t count = (int64_t)tokens.length < most ? (int64_t)tokens.length : most;
    r->cut += (int64_t)tokens.length > most;
    question->ids = memory_alloc((size_t)count + 1, sizeof *question->ids);
    question->id_count = count;
    if (count > 0) memcpy(question->ids, tokens.ids, (size_t)count * sizeof *tokens.ids);
    encoding_free(&tokens);
    TRY(status);
    return read_answers(r, question, qa,
                        id && id->kind == TREE_STRING ? id->string : words->string);
}

static Status read_paragraph(Reader *r, const Tree *paragraph) {
    SpanData *data = r->data;
    const Tree *context, *list;
    bool same;
    TRY(member(r, paragraph, "context", TREE_STRING, &context));
    TRY(member(r, paragraph, "qas", TREE_LIST, &list));
    if (data->text_count == data->text_capacity) {
        data->text_capacity = 2 * data->text_capacity + 64;
        data->texts =
            memory_grow(data->texts, (size_t)data->text_capacity, sizeof *data->texts);
    }
    SpanText *text = &data->texts[data->text_count++];
    const char *copy = arena_strdup(data->arena, context->string);
    *text = (SpanText){.text = {copy, strlen(copy)}};
    TRY(text_encode(text, r->tokenizer, &same, LOC_FILE(r->options->path), r->diag));
    r->other += !same;
    for (const Tree *qa = list->first; qa; qa = qa->next)
        TRY(read_question(r, qa, data->text_count - 1));
    return STATUS_OK;
}

static Status read_file(Reader *r) {
    Arena *arena = arena_create();
    Tree *root;
    const Tree *list = NULL;
    Status status = json_read(&root, arena, r->options->path, FILE_BYTES_MAX, r->diag);
    if (status == STATUS_OK) status = member(r, root, "data", TREE_LIST, &list);
    const Tree *article = status == STATUS_OK ? list->first : NULL;
    for (; article && status == STATUS_OK; article = article->next) {
        status = member(r, article, "paragraphs", TREE_LIST, &list);
        const Tree *paragraph = status == STATUS_OK ? list->first : NULL;
        for (; paragraph && status == STATUS_OK; paragraph = paragraph->next)
            status = read_paragraph(r, paragraph);
    }
    arena_destroy(arena);
    return status;
}

/* ---- samples ---- */

static void add_sample(SpanData *data, SpanSample sample) {
    if (data->base.count == data->sample_capacity) {
        data->sample_capacity = 2 * data->sample_capacity + 64;
        data->samples = memory_grow(data->samples, (size_t)data->sample_capacity,
                                    sizeof *data->samples);
    }
    data->samples[data->base.count++] = sample;
    const int64_t length = span_length(&data->base, data->base.count - 1);
    if (length > data->base.max_tokens) data->base.max_tokens = length;
}

/* The windows of the questions from `offset` on, at most `limit` of them (0 = all). */
static Status cut_windows(Reader *r) {
    SpanData *data = r->data;
    const SpanOptions *o = r->options;
    int64_t count;
    TRY(dataset_slice(&count, data->answers.questions, o->offset, o->limit, o->path,
                      r->at, r->diag));
    for (int64_t q = o->offset; q < o->offset + count; q++) {
        const Question *question = &data->questions[q];
        const int64_t tokens = data->texts[question->text].count;
        SpanSample sample = {.question = q};
        const int64_t room = o->max_length - tokens_before(data, &sample) - 1;
        const int64_t stride = o->stride < room ? o->stride : room;
        for (int64_t from = 0;; from += stride) {
            sample.from = from;
            sample.count = tokens - from < room ? tokens - from : room;
            add_sample(data, sample);
            if (from + sample.count >= tokens) break;
        }
    }
    return STATUS_OK;
}

/* ---- opening ---- */

static Status use_tokenizer(SpanData *data, const SpanOptions *o,
                            const Tokenizer *tokenizer, Loc at, Diag *diag) {
    const SpecialIds *special = tokenizer_specials(tokenizer);
    const size_t around = tokenizer_overhead(tokenizer, true);
    data->cls = special->cls;
    data->sep = special->sep;
    data->pad = special->pad;
    data->two_separators = around == 4;
    if (data->cls < 0 || data->sep < 0 || data->pad < 0 || around < 3 || around > 4)
        return diag_fail(diag, STATUS_RECIPE, at, "tokenizer",
                         "expected one for pairs of texts, with tokens for padding and "
                         "around both texts as BERT's or RoBERTa's, found %s",
                         o->tokenizer);
    if (o->max_length > o->question_length + 4) return STATUS_OK;
    return diag_fail(
        diag, STATUS_RECIPE, at, "max_length",
        "expected more than question_length and four special tokens, %" PRId64
        ", found %" PRId64,
        o->question_length + 4, o->max_length);
}

static void warn_unknown(const Reader *r) {
    UnknownTokens unknown;
    unknown_tokens_start(&unknown, r->tokenizer);
    for (int64_t i = 0; i < r->data->text_count; i++)
        for (int64_t t = 0; t < r->data->texts[i].count; t++)
            unknown_tokens_see(&unknown, r->data->texts[i].ids[t]);
    unknown_tokens_warn(&unknown, r->options->path, r->options->tokenizer, r->at,
                        r->diag);
}

static void warn_reading(const Reader *r) {
    warn_unknown(r);
    if (r->other > 0)
        diag_warn(r->diag, r->at, "tokenizer",
                  "%" PRId64 " of %" PRId64
                  " texts have other tokens word by word, as they "
                  "are read here, than as a whole",
                  r->other, r->data->text_count);
    if (r->cut > 0)
        diag_warn(r->diag, r->at, "question_length",
                  "%" PRId64 " questions have more tokens and are cut", r->cut);
}

static Status span_fill(SpanData *data, const SpanOptions *o, const Tokenizer *tokenizer,
                        Loc at, Diag *diag) {
    Reader reader = {
        .data = data, .options = o, .tokenizer = tokenizer, .at = at, .diag = diag};
    TRY(use_tokenizer(data, o, tokenizer, at, diag));
    TRY(read_file(&reader));
    TRY(cut_windows(&reader));
    warn_reading(&reader);
    data->base.vocabulary = vocabulary_of(tokenizer, data->arena);
    return STATUS_OK;
}

static Status span_open(Batches **out, const void *options, Loc at, Diag *diag) {
    const SpanOptions *chosen = options;
    Tokenizer *tokenizer;
    TRY(tokenizer_read(&tokenizer, chosen->tokenizer, diag));
    Arena *arena = arena_create();
    SpanData *data = ARENA_NEW(arena, SpanData);
    data->arena = arena;
    data->answers = (Answers){.longest = chosen->answer_length,
                              .question = answer_question,
                              .tokens = answer_tokens,
                              .text = answer_text,
                              .answerable = answer_answerable,
                              .compare = answer_compare};
    data->base = (Batches){.name = arena_strdup(arena, chosen->path),
                           .columns = SPAN_COLUMNS,
                           .column_count = COLUMNS,
                           .length = span_length,
                           .answers = &data->answers,
                           .fetch = span_fetch,
                           .destroy = span_destroy};
    const Status status = span_fill(data, chosen, tokenizer, at, diag);
    tokenizer_destroy(tokenizer);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        span_destroy(&data->base);
    return status;
}

static const Field SPAN_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(SpanOptions, path, const char *),
     .required = true,
     .help = "JSON file in SQuAD's form"},
    {.name = "tokenizer",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(SpanOptions, tokenizer, const char *),
     .required = true,
     .help = "tokenizer.json, vocab.txt, or a folder with one"},
    F_INT(SpanOptions, max_length, 8, 65536,
          "most tokens of a sample: question, a window of the text, special ones"),
    F_INT(SpanOptions, question_length, 1, 65536,
          "most tokens of a question; the rest is cut"),
    F_INT(SpanOptions, answer_length, 1, 65536,
          "most tokens of an answer that is predicted"),
    F_INT(SpanOptions, stride, 1, 65536,
          "tokens from the start of a window to that of the next"),
    F_INT(SpanOptions, limit, 0, 1e12, "use this many questions; 0 = all"),
    F_INT(SpanOptions, offset, 0, 1e12, "leave out this many questions at the start"),
    F_END};

static const SpanOptions SPAN_DEFAULTS = {
    .max_length = 384, .question_length = 64, .answer_length = 30, .stride = 128};

const DataFormat format_spans = {
    .name = "spans",
    .summary = "questions whose answers are parts of texts, in SQuAD's JSON",
    .fields = SPAN_FIELDS,
    .paths = "path|tokenizer",
    .options_size = sizeof(SpanOptions),
    .defaults = &SPAN_DEFAULTS,
    .open = span_open,
};
