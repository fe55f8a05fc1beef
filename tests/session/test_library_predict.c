/* What a model says of texts and images by the library: classes against the softmax of
 * the logits of token numbers found by hand, every kind of prediction, tokens, and
 * misuse. */
#include "io/files/json.h"
#include "tests/session/library_fixture.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define AUTHORS      "recipes/models/bert_authors.h5"
#define AUTHOR_WORDS "{tokenizer: recipes/data/authors/vocab.txt}"
#define TEST_WORDS   "{tokenizer: tests/data/text/vocab.txt}"

/* A model made ready, and what it said last. */
typedef struct Ready {
    CompressContext *context;
    CompressModel *model;
    CompressRunner *runner;
    Arena *arena;
    const Tree *said; /* NULL = it failed */
} Ready;

static void ready_model(Ready *ready, CompressModel *model) {
    ready->model = model;
    ready->arena = arena_create();
    assert_int_equal(compress_prepare(ready->context, model, &ready->runner),
                     COMPRESS_OK);
}

static void ready_open(Ready *ready, const char *path) {
    CompressModel *model;
    assert_int_equal(compress_open(&ready->context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(ready->context, path, &model), COMPRESS_OK);
    ready_model(ready, model);
}

/* A BERT with drawn weights, of a head that keys of its configuration say. */
static void ready_open_head(Ready *ready, const char *keys) {
    CompressModel *model;
    char set[512];
    const char *const sets[] = {set, "passes=[]", "data={}", "output=null"};
    snprintf(set, sizeof set,
             "model={model_type: bert, vocab_size: 104, hidden_size: 32, "
             "num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 64, "
             "max_position_embeddings: 32, num_labels: 3, %s}",
             keys);
    assert_int_equal(compress_open(&ready->context, 2), COMPRESS_OK);
    if (compress_run_recipe(ready->context, "recipes/oneshot_bert.yaml", sets, 4, &model,
                            NULL) != COMPRESS_OK)
        fail_msg("%s", compress_messages(ready->context));
    ready_model(ready, model);
}

static void ready_close(Ready *ready) {
    compress_free_runner(ready->runner);
    compress_free_model(ready->model);
    compress_close(ready->context);
    arena_destroy(ready->arena);
}

static CompressStatus predict(Ready *ready, const CompressSample *samples, size_t count,
                              const char *options) {
    char *json;
    Diag *diag = diag_create();
    Tree *tree = NULL;
    const CompressStatus status =
        compress_predict(ready->context, ready->runner, samples, count, options, &json);
    assert_int_equal(json != NULL, status == COMPRESS_OK);
    if (json)
        assert_ok(json_parse(&tree, ready->arena, "json", json, strlen(json), diag),
                  diag);
    ready->said = tree;
    compress_free_text(json);
    diag_destroy(diag);
    return status;
}

static void assert_predicts(Ready *ready, const CompressSample *samples, size_t count,
                            const char *options) {
    if (predict(ready, samples, count, options) != COMPRESS_OK)
        fail_msg("%s", compress_messages(ready->context));
    assert_int_equal(ready->said->kind, TREE_LIST);
    assert_int_equal(ready->said->count, count);
}

static void assert_refused(Ready *ready, const CompressSample *samples, size_t count,
                           const char *options, CompressStatus status,
                           const char *words) {
    const Use use = {ready->context, ready->model};
    assert_int_equal(predict(ready, samples, count, options), status);
    assert_said(&use, words);
}

/* ---- classes ---- */

/* Logits of one sample of four tokens, an output of compress_run. */
static void logits_of(const Ready *ready, const char *name, const int32_t *ids,
                      const int32_t *types, float *logits) {
    const CompressTensor inputs[] = {{"input_ids", COMPRESS_I32, 2, {1, 4}, ids},
                                     {"token_type_ids", COMPRESS_I32, 2, {1, 4}, types}};
    CompressTensor *outputs;
    size_t count;
    bool found = false;
    assert_int_equal(
        compress_run(ready->context, ready->model, inputs, 2, &outputs, &count),
        COMPRESS_OK);
    for (size_t i = 0; i < count; i++)
        if (strcmp(outputs[i].name, name) == 0) {
            memcpy(logits, outputs[i].data, 3 * sizeof *logits);
            found = true;
        }
    assert_true(found);
    compress_free_tensors(outputs);
}

static void assert_class(const Tree *map, const float *logits,
                         const char *const labels[3]) {
    double sum = 0;
    int best = 0;
    for (int c = 0; c < 3; c++) {
        sum += exp((double)logits[c]);
        if (logits[c] > logits[best]) best = c;
    }
    const Tree *score = tree_get(map, "scores")->first;
    for (int c = 0; c < 3; c++, score = score->next)
        assert_float_equal(score->real, exp((double)logits[c]) / sum, 1e-6);
    assert_string_equal(tree_get(map, "label")->string, labels[best]);
    assert_float_equal(tree_get(map, "score")->real, exp((double)logits[best]) / sum,
                       1e-6);
}

/* "to be" is [CLS] to be [SEP]; of a pair the second text has types of its own. Lines of
 * the vocabulary count from 0. */
static void test_classes(void **state) {
    static const int32_t IDS[] = {2, 91, 112, 3}, PAIR[] = {2, 136, 3, 3};
    static const int32_t TYPES[] = {0, 0, 0, 0}, PAIR_TYPES[] = {0, 0, 0, 1};
    static const char *const LABELS[] = {"LABEL_0", "LABEL_1", "LABEL_2"};
    const CompressSample texts[] = {{.text = "to be"}, {.text = "time", .pair = ""}};
    Ready ready;
    float logits[3];
    (void)state;
    ready_open(&ready, AUTHORS);
    assert_predicts(&ready, texts, 2, AUTHOR_WORDS);
    const Tree *map = ready.said->first;
    assert_string_equal(tree_get(map, "input")->string, "to be");
    assert_null(tree_get(map, "input_pair"));
    logits_of(&ready, "logits", IDS, TYPES, logits);
    assert_class(map, logits, LABELS);
    map = map->next;
    assert_string_equal(tree_get(map, "input_pair")->string, "");
    logits_of(&ready, "logits", PAIR, PAIR_TYPES, logits);
    assert_class(map, logits, LABELS);
    /* the tokenizer stays */
    assert_predicts(&ready, texts, 1, NULL);
    assert_refused(&ready, texts, 1, TEST_WORDS, COMPRESS_USAGE,
                   "error: tokenizer: expected that of the runner's first texts, "
                   "recipes/data/authors/vocab.txt, found tests/data/text/vocab.txt");
    ready_close(&ready);
}

/* ---- other kinds ---- */

static const CompressSample WORDS_TEXT = {.text = "a rose, is"};

static void test_words(void **state) {
    static const char *const WANT[] = {"a", "rose", ",", "is"};
    Ready ready;
    int count = 0;
    (void)state;
    ready_open_head(&ready, "architectures: [BertForTokenClassification]");
    assert_predicts(&ready, &WORDS_TEXT, 1, TEST_WORDS);
    for (const Tree *word = tree_get(ready.said->first, "words")->first; word;
         word = word->next, count++) {
        assert_string_equal(tree_get(word, "word")->string, WANT[count]);
        assert_memory_equal(tree_get(word, "label")->string, "LABEL_", strlen("LABEL_"));
    }
    assert_int_equal(count, 4);
    ready_close(&ready);
}

static void test_answers(void **state) {
    const CompressSample pair = {.text = "a rose", .pair = "is a rose is a rose"};
    Ready ready;
    (void)state;
    ready_open_head(&ready, "architectures: [BertForQuestionAnswering]");
    assert_predicts(&ready, &pair, 1, TEST_WORDS);
    assert_non_null(strstr(pair.pair, tree_get(ready.said->first, "answer")->string));
    assert_refused(&ready, &WORDS_TEXT, 1, NULL, COMPRESS_USAGE,
                   "samples[0]: error: expected a pair");
    ready_close(&ready);
}

static void test_labels(void **state) {
    Ready ready;
    (void)state;
    ready_open_head(&ready, "problem_type: multi_label_classification, "
                            "architectures: [BertForSequenceClassification]");
    assert_predicts(&ready, &WORDS_TEXT, 1, TEST_WORDS);
    int above = 0;
    for (const Tree *s = tree_get(ready.said->first, "scores")->first; s; s = s->next)
        above += s->real >= 0.5;
    assert_int_equal(tree_get(ready.said->first, "scores")->count, 3);
    assert_int_equal(tree_get(ready.said->first, "labels")->count, above);
    ready_close(&ready);
}

#define PNG "tests/fuzz/seeds/image/rgb.png"

static void test_images(void **state) {
    const CompressSample images[] = {{.image = PNG}, {.image = PNG}};
    const CompressSample mixed[] = {{.image = PNG}, WORDS_TEXT};
    char folder[] = "/tmp/predict_XXXXXX", options[128], path[64];
    Ready ready;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/preprocessor_config.json", folder);
    snprintf(options, sizeof options, "{preprocessor: %s}", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"size\": {\"height\": 32, \"width\": 32}, \"image_mean\": [0.5, 0.5, 0.5],"
          "\"image_std\": [0.5, 0.5, 0.5]}",
          file);
    fclose(file);
    ready_open(&ready, "tests/data/reference/vit");
    assert_predicts(&ready, images, 2, options);
    assert_string_equal(tree_get(ready.said->first, "input")->string, PNG);
    assert_float_equal(tree_get(ready.said->first, "score")->real,
                       tree_get(ready.said->last, "score")->real, 0);
    assert_refused(&ready, mixed, 2, options, COMPRESS_USAGE,
                   "samples[1]: error: expected a text, or an image");
    assert_refused(&ready, &WORDS_TEXT, 1, TEST_WORDS, COMPRESS_MODEL,
                   "error: input_ids: the model has no such input");
    assert_refused(&ready, images, 1, NULL, COMPRESS_USAGE, "preprocessor");
    ready_close(&ready);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(folder), 0);
}

/* ---- threads ---- */

typedef struct Caller {
    CompressRunner *runner;
    char *json;
} Caller;

static void *call(void *self) {
    Caller *caller = self;
    const CompressSample texts[] = {{.text = "to be or not to be"}, {.text = "the time"}};
    CompressContext *context;
    if (compress_open(&context, 1) != COMPRESS_OK) return NULL;
    (void)compress_predict(context, caller->runner, texts, 2, AUTHOR_WORDS,
                           &caller->json);
    compress_close(context);
    return NULL;
}

/* The first texts of a runner, of several threads at once. */
static void test_threads(void **state) {
    enum { CALLERS = 4 };
    Ready ready;
    Caller callers[CALLERS];
    pthread_t threads[CALLERS];
    (void)state;
    ready_open(&ready, AUTHORS);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (Caller){.runner = ready.runner};
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_non_null(callers[i].json);
        assert_string_equal(callers[i].json, callers[0].json);
    }
    for (int i = 0; i < CALLERS; i++) compress_free_text(callers[i].json);
    ready_close(&ready);
}

/* ---- misuse ---- */

static void test_refused(void **state) {
    const CompressSample none = {0}, both = {.text = "a", .image = "a.png"},
                         bytes = {.text = "\xff"};
    Ready ready;
    char *json;
    (void)state;
    ready_open(&ready, AUTHORS);
    assert_refused(&ready, &WORDS_TEXT, 1, NULL, COMPRESS_USAGE,
                   "error: tokenizer: expected the path of one");
    assert_refused(&ready, NULL, 1, NULL, COMPRESS_USAGE,
                   "error: samples: expected one, found NULL");
    assert_refused(&ready, &WORDS_TEXT, 0, NULL, COMPRESS_USAGE,
                   "error: count: expected 1 to 1073741823 samples, found 0");
    assert_refused(&ready, &none, 1, NULL, COMPRESS_USAGE, "expected a text");
    assert_refused(&ready, &both, 1, NULL, COMPRESS_USAGE, "expected a text");
    assert_refused(&ready, &bytes, 1, AUTHOR_WORDS, COMPRESS_FORMAT, "samples[0]");
    assert_refused(&ready, &WORDS_TEXT, 1, "{threads: 3}", COMPRESS_USAGE,
                   "error: threads: unknown key");
    assert_int_equal(compress_predict(ready.context, NULL, &WORDS_TEXT, 1, NULL, &json),
                     COMPRESS_USAGE);
    assert_null(json);
    assert_int_equal(
        compress_predict(ready.context, ready.runner, &WORDS_TEXT, 1, NULL, NULL),
        COMPRESS_USAGE);
    assert_int_equal(compress_predict(NULL, ready.runner, &WORDS_TEXT, 1, NULL, &json),
                     COMPRESS_USAGE);
    ready_close(&ready);
}

/* A language model says nothing of texts as a whole. */
static void test_no_predictions(void **state) {
    Ready ready;
    (void)state;
    ready_open(&ready, LLAMA);
    assert_refused(&ready, &WORDS_TEXT, 1, "{" WORDS "}", COMPRESS_MODEL,
                   "expected a model that tells classes");
    ready_close(&ready);
}

/* ---- early exits ---- */

#define EARLY_WORDS "{tokenizer: recipes/data/authors/vocab.txt, leave_early: true}"

/* Gives the model exits, and the rule that `target` asks for. */
static void add_exits(Ready *ready, const char *target) {
    char passes[512];
    CompressModel *model = ready->model;
    snprintf(
        passes, sizeof passes,
        "data: {test: {format: text, path: recipes/data/authors/test.tsv, limit: "
        "48, tokenizer: recipes/data/authors/vocab.txt, labels: [shakespeare, wells, "
        "tatoeba]}}\npasses: [add_exits: {init: copy}, calibrate_exits: {data: test, "
        "%s}]\n",
        target);
    if (compress_apply(ready->context, model, passes, NULL) != COMPRESS_OK)
        fail_msg("%s", compress_messages(ready->context));
    compress_free_runner(ready->runner);
    assert_int_equal(compress_prepare(ready->context, model, &ready->runner),
                     COMPRESS_OK);
}

/* The layer that "to be" leaves behind, whose logits its scores are of. */
static int64_t expect_exit(Ready *ready) {
    static const int32_t IDS[] = {2, 91, 112, 3}, TYPES[] = {0, 0, 0, 0};
    static const char *const LABELS[] = {"shakespeare", "wells", "tatoeba"};
    const CompressSample text = {.text = "to be"};
    char output[16];
    float logits[3];
    assert_predicts(ready, &text, 1, EARLY_WORDS);
    const int64_t layer = tree_get(ready->said->first, "exit_layer")->integer;
    snprintf(output, sizeof output, layer < 6 ? "exit.%d" : "logits", (int)layer);
    logits_of(ready, output, IDS, TYPES, logits);
    assert_class(ready->said->first, logits, LABELS);
    return layer;
}

static void test_leave_early(void **state) {
    const CompressSample text = {.text = "to be"};
    Ready ready;
    (void)state;
    ready_open(&ready, AUTHORS);
    assert_refused(&ready, &text, 1, EARLY_WORDS, COMPRESS_MODEL,
                   "the model: error: leave_early: the model has no early exits");
    add_exits(&ready, "accuracy: 0");
    for (int run = 0; run < 2; run++) assert_int_equal(expect_exit(&ready), 1);
    assert_predicts(&ready, &text, 1, AUTHOR_WORDS);
    assert_null(tree_get(ready.said->first, "exit_layer"));
    ready_close(&ready);
    ready_open(&ready, AUTHORS);
    add_exits(&ready, "drop: 0");
    assert_true(expect_exit(&ready) > 1);
    ready_close(&ready);
}

/* ---- tokens ---- */

/* Checks what compress_tokenize gives, on one line. */
static void assert_tokens(const Ready *ready, const CompressSample *texts, size_t count,
                          const char *options, const char *wanted) {
    char *json;
    if (compress_tokenize(ready->context, ready->model, texts, count, options, &json) !=
        COMPRESS_OK)
        fail_msg("%s", compress_messages(ready->context));
    Text line = {0};
    for (const char *at = json; *at; at++) /* but its layout */
        if (!strchr(" \n", *at)) text_bytes(&line, at, 1);
    assert_string_equal(line.data, wanted);
    text_free(&line);
    compress_free_text(json);
}

/* The numbers that test_classes finds by hand, and what is no text of the model's. */
static void test_tokens(void **state) {
    const CompressSample texts[] = {{.text = "to be"}, {.text = "time", .pair = ""}},
                         image = {.image = "a.png"}, bytes = {.text = "\xff"};
    Ready ready;
    char *json;
    (void)state;
    ready_open(&ready, AUTHORS);
    assert_tokens(&ready, texts, 2, AUTHOR_WORDS,
                  "[{\"input_ids\":[2,91,112,3],\"tokens\":[\"[CLS]\",\"to\",\"be\","
                  "\"[SEP]\"]},{\"input_ids\":[2,136,3,3],\"token_type_ids\":[0,0,0,1],"
                  "\"tokens\":[\"[CLS]\",\"time\",\"[SEP]\",\"[SEP]\"]}]");
    const Use use = {ready.context, ready.model};
    assert_int_equal(compress_tokenize(use.context, use.model, texts, 1, NULL, &json),
                     COMPRESS_USAGE);
    assert_said(&use, "error: tokenizer: expected the path of one");
    assert_null(json);
    assert_int_equal(
        compress_tokenize(use.context, use.model, &image, 1, AUTHOR_WORDS, &json),
        COMPRESS_USAGE);
    assert_said(&use, "samples[0]: error: expected a text, found an image");
    assert_int_equal(
        compress_tokenize(use.context, use.model, &bytes, 1, AUTHOR_WORDS, &json),
        COMPRESS_FORMAT);
    assert_int_equal(
        compress_tokenize(use.context, use.model, texts, 1, "{preprocessor: a}", &json),
        COMPRESS_USAGE);
    assert_int_equal(compress_tokenize(use.context, NULL, texts, 1, NULL, &json),
                     COMPRESS_USAGE);
    assert_int_equal(compress_tokenize(use.context, use.model, texts, 1, NULL, NULL),
                     COMPRESS_USAGE);
    ready_close(&ready);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes), cmocka_unit_test(test_words),
        cmocka_unit_test(test_answers), cmocka_unit_test(test_labels),
        cmocka_unit_test(test_images),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_no_predictions),
        cmocka_unit_test(test_tokens),  cmocka_unit_test(test_leave_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
