/* Data sets: the hash of their files follows their bytes and names, and not their place.
 */
#include "io/datasets/dataset_hash.h"
#include "tests/io/dataset_test.h"

static char last[HASH_TEXT_BYTES], hash[HASH_TEXT_BYTES];

/* Hashes an entry in the folder `within` the scratch folder. */
static Status hash_entry(const char *json, const char *within, Bench *bench) {
    const DataFormat *format;
    void *options;
    Tree *spec;
    const char *base = arena_printf(bench->arena, "%s/%s", folder, within);
    TRY(json_parse(&spec, bench->arena, "recipe", json, strlen(json), bench->diag));
    TRY(dataset_bind(&format, &options, bench->arena, spec, base, bench->diag));
    return dataset_hash(hash, format, options, bench->diag);
}

/* Hashes once more, and says whether it is what it was. */
static bool is_same(const char *json, const char *within) {
    Bench bench = bench_open();
    assert_ok(hash_entry(json, within, &bench), bench.diag);
    bench_close(&bench);
    const bool same = strcmp(hash, last) == 0;
    memcpy(last, hash, sizeof last);
    return same;
}

#define TEXTS                                                                            \
    "{\"format\": \"text\", \"path\": \"a.tsv\", \"tokenizer\": \"words\", \"sentence\": \"t\"}"

static void test_files(void **state) {
    (void)state;
    assert_int_equal(
        shell("mkdir -p here/words && cd here && printf 't\\nx\\n' > a.tsv && "
              "echo x > words/vocab.txt && cp -r . ../there"),
        0);
    assert_false(is_same(TEXTS, "here"));
    assert_true(is_same(TEXTS, "here"));
    assert_true(is_same(TEXTS, "there"));
    assert_int_equal(shell("echo weights > there/words/model.safetensors"), 0);
    assert_true(is_same(TEXTS, "there"));
    assert_int_equal(shell("echo '{}' > there/words/tokenizer_config.json"), 0);
    assert_false(is_same(TEXTS, "there"));
    assert_int_equal(shell("printf 't\\ny\\n' > there/a.tsv"), 0);
    assert_false(is_same(TEXTS, "there"));
    assert_int_equal(shell("touch there/a.tsv"), 0);
    assert_true(is_same(TEXTS, "there"));
}

/* A tokenizer named by its file is read with what lies beside it. */
static void test_beside(void **state) {
    (void)state;
    static const char entry[] = "{\"format\": \"language\", \"path\": \"a.txt\", "
                                "\"tokenizer\": \"words/vocab.txt\"}";
    assert_int_equal(shell("mkdir -p side/words && cd side && echo x > a.txt && "
                           "echo x > words/vocab.txt && echo x > words/other.txt"),
                     0);
    assert_false(is_same(entry, "side"));
    assert_int_equal(shell("echo y > side/words/other.txt"), 0);
    assert_true(is_same(entry, "side"));
    assert_int_equal(shell("echo '[]' > side/words/added_tokens.json"), 0);
    assert_false(is_same(entry, "side"));
}

static void test_folder(void **state) {
    (void)state;
    static const char entry[] = "{\"format\": \"images\", \"path\": \".\"}";
    assert_int_equal(shell("mkdir -p pets/cat pets/dog && echo 1 > pets/cat/1.png && "
                           "echo 2 > pets/dog/2.png && mkfifo pets/cat/pipe"),
                     0);
    assert_false(is_same(entry, "pets"));
    assert_true(is_same(entry, "pets"));
    assert_int_equal(shell("mv pets/cat/1.png pets/dog/1.png"), 0);
    assert_false(is_same(entry, "pets"));
    assert_int_equal(shell("mv pets/dog/1.png pets/cat/1.png"), 0);
    assert_false(is_same(entry, "pets"));
    assert_int_equal(shell("echo 3 > pets/dog/2.png"), 0);
    assert_false(is_same(entry, "pets"));
}

static void test_missing(void **state) {
    (void)state;
    Bench bench = bench_open();
    assert_int_equal(
        hash_entry("{\"format\": \"hdf5\", \"path\": \"no.h5\"}", ".", &bench),
        STATUS_IO);
    assert_non_null(strstr(message_of(&bench), "no.h5"));
    bench_close(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files), cmocka_unit_test(test_beside),
        cmocka_unit_test(test_folder), cmocka_unit_test(test_missing)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
