/* From sentences in a file to a trained classifier: text data set, batches of similar
 * length, finetune and evaluate through the pipeline. */
#include "io/datasets/dataset.h"
#include "io/files/yaml.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SENTENCES = 40 };

static const char BERT[] =
    "{model_type: bert, architectures: [BertForSequenceClassification],\n"
    " hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,\n"
    " intermediate_size: 32, hidden_act: gelu, vocab_size: 104,\n"
    " max_position_embeddings: 16, type_vocab_size: 2, num_labels: 2,\n"
    " hidden_dropout_prob: 0, attention_probs_dropout_prob: 0,\n"
    " initializer_range: 0.2}\n";

static const char RECIPE[] =
    "version: 1\n"
    "seed: 3\n"
    "data: {train: {format: text}}\n"
    "passes:\n"
    "  - finetune: {data: train, epochs: 20, batch_size: 4, lr: 0.005}\n"
    "  - evaluate: {data: train, min: 90}\n";

/* Sentences of 1 to 9 words; those with "cat" in them are "yes". */
static void sentences_write(FILE *file) {
    static const char *const WORDS[] = {"the", "sat",   "on",     "mat",
                                        "un",  "naive", "resume", "cafe"};
    fputs("sentence\tlabel\n", file);
    for (int i = 0; i < SENTENCES; i++) {
        const int words = 1 + i % 9, cat = i % 2 ? (i / 2) % words : -1;
        for (int w = 0; w < words; w++) {
            const uint64_t draw = random_u64(1, (uint64_t)(i * 16 + w));
            fprintf(file, "%s%s", w ? " " : "", w == cat ? "cat" : WORDS[draw % 8]);
        }
        fprintf(file, "\t%s\n", i % 2 ? "yes" : "no");
    }
}

/* What the file at `path` holds, as a data set. */
static Batches *sentences_open(const char *path, Arena *arena, Diag *diag) {
    const DataFormat *format;
    void *options;
    Batches *data = NULL;
    Tree *spec;
    char *vocabulary = realpath("tests/data/text/vocab.txt", NULL);
    const char *yaml = arena_printf(
        arena, "{format: text, path: %s, tokenizer: %s, labels: ['no', 'yes']}", path,
        vocabulary);
    free(vocabulary);
    assert_ok(yaml_parse(&spec, arena, "data", yaml, strlen(yaml), diag), diag);
    assert_ok(dataset_bind(&format, &options, arena, spec, ".", diag), diag);
    assert_ok(dataset_open(&data, format, options, LOC_FILE("data"), diag), diag);
    return data;
}

static Batches *sentences(Arena *arena, Diag *diag) {
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(arena, "%s/sentences.XXXXXX", base ? base : "/tmp");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    sentences_write(file);
    assert_int_equal(fclose(file), 0);
    Batches *data = sentences_open(path, arena, diag);
    unlink(path);
    return data;
}

/* A model trained with so many threads; the recipe's gate held. */
static Model *trained(int threads) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = configured_model(BERT, 7);
    Batches *data = sentences(arena, diag);
    assert_int_equal(data->count, SENTENCES);
    assert_int_equal(data->classes, 2);
    assert_int_equal(data->max_tokens, 11);
    assert_ok(
        run_with_inputs(&(RecipeInputs){data, NULL}, model, RECIPE, false, threads, diag),
        diag);
    batches_destroy(data);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

static void test_learns_a_word(void **state) {
    (void)state;
    Model *one = trained(1), *two = trained(2);
    const Graph *a = one->graph, *b = two->graph;
    assert_int_equal(a->storage_count, b->storage_count);
    for (int i = 0; i < a->storage_count; i++) {
        const Tensor *x = &a->storages[i]->tensor, *y = &b->storages[i]->tensor;
        assert_int_equal(tensor_count(x), tensor_count(y));
        assert_memory_equal(tensor_data(x), tensor_data(y),
                            (size_t)tensor_count(x) * dtype_bytes(x->dtype));
    }
    model_destroy(one);
    model_destroy(two);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_learns_a_word)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
