/* The store of finished steps: what is put in is found again, equal, by any number of
 * programs at a time; what is damaged or half there is left out and replaced; the oldest
 * use goes first; what cannot be written is an error and leaves nothing. */
#include "session/reuse/step_store.h"

#include "exec/ops.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A store in a folder of its own. */
typedef struct Place {
    char folder[64];
    StepStore *store;
    Diag *diag;
} Place;

static Place place_open(int64_t limit) {
    Place place = {.folder = "/tmp/store_XXXXXX", .diag = diag_create()};
    assert_non_null(mkdtemp(place.folder));
    assert_ok(step_store_open(&place.store, place.folder, limit, true, place.diag),
              place.diag);
    return place;
}

static void place_close(Place *place) {
    char line[128];
    step_store_close(place->store);
    snprintf(line, sizeof line, "rm -rf '%s'", place->folder);
    assert_int_equal(system(line), 0);
    diag_destroy(place->diag);
}

/* A key or state by number: 32 digits. */
static const char *hash_of(int number, char out[HASH_TEXT_BYTES]) {
    snprintf(out, HASH_TEXT_BYTES, "%032d", number);
    return out;
}

/* The entry of a number; what it says follows from the number. */
static StepEntry entry_of(Arena *arena, int number) {
    StepEntry entry = {.changed = true, .seconds = number};
    Tree *record = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_real(arena, record, "third", number / 3.0);
    entry.record = record;
    entry.times = tree_new(arena, TREE_MAP, LOC_NONE);
    entry.warnings = tree_new(arena, TREE_LIST, LOC_NONE);
    entry.measure.parameters = number;
    hash_of(number, entry.state);
    return entry;
}

static Status put(Place *place, int number) {
    Arena *arena = arena_create();
    char key[HASH_TEXT_BYTES];
    StepEntry entry = entry_of(arena, number);
    const Status status = step_store_put(place->store, hash_of(number, key), entry.record,
                                         &entry, place->diag);
    arena_destroy(arena);
    return status;
}

/* Whether the entry is there; if so, it is right. */
static bool has(Place *place, int number) {
    Arena *arena = arena_create();
    char key[HASH_TEXT_BYTES];
    StepEntry entry;
    const Tree *parts = NULL;
    const bool found = step_store_find(place->store, hash_of(number, key), arena, &entry,
                                       &parts, place->diag);
    if (found) {
        double third = 0;
        assert_true(tree_number(tree_get(entry.record, "third"), &third));
        assert_true(third == number / 3.0); /* all digits of it */
        assert_true(tree_number(tree_get(parts, "third"), &third));
        assert_true(third == number / 3.0);
        assert_int_equal(entry.measure.parameters, number);
        assert_true(entry.changed);
    }
    arena_destroy(arena);
    return found;
}

static void path_of(const Place *place, const char *part, const char *name,
                    const char *ending, char out[256]) {
    snprintf(out, 256, "%s/%s/%s%s", place->folder, part, name, ending);
}

/* Number of files in a part of the store, temporary ones included. */
static int files_in(const Place *place, const char *part) {
    char path[256];
    path_of(place, part, "", "", path);
    DIR *folder = opendir(path);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (folder) closedir(folder);
    return count;
}

static void test_entries(void **state) {
    (void)state;
    Place place = place_open(0);
    assert_false(has(&place, 1));
    assert_ok(put(&place, 1), place.diag);
    assert_ok(put(&place, 1), place.diag); /* there already */
    assert_true(has(&place, 1));
    assert_false(has(&place, 2));
    assert_int_equal(files_in(&place, "steps"), 1);
    assert_int_equal(diag_warning_count(place.diag), 0);
    place_close(&place);
}

static void test_models(void **state) {
    (void)state;
    Place place = place_open(0);
    Model *model = toy_vit(1);
    char name[HASH_TEXT_BYTES], again[HASH_TEXT_BYTES];
    tree_put_real(model->arena, model->provenance, "recipe", 1);
    tree_put_real(model->arena, model->provenance, "importance", 0.1);
    model_state_hash(model, name);
    assert_null(step_store_model(place.store, name, ops_table(), place.diag));
    assert_ok(step_store_put_model(place.store, name, model, place.diag), place.diag);
    Model *found = step_store_model(place.store, name, ops_table(), place.diag);
    assert_non_null(found);
    model_state_hash(found, again);
    assert_string_equal(again, name);
    assert_int_equal(tree_get(found->provenance, "recipe")->kind, TREE_NULL);
    assert_int_equal(diag_warning_count(place.diag), 0);
    model_destroy(found);
    model_destroy(model);
    place_close(&place);
}

/* Every part of a model's state counts, the run's notes do not. */
static void test_state(void **state) {
    (void)state;
    char one[HASH_TEXT_BYTES], two[HASH_TEXT_BYTES];
    Model *model = toy_vit(1);
    Arena *arena = model->arena;
    model_state_hash(model, one);
    model_put_asset(model, "tokenizer.json", "{}", 2);
    model_state_hash(model, two);
    assert_string_not_equal(one, two);
    model_put_asset(model, "tokenizer.json", "[]", 2);
    model_state_hash(model, one);
    assert_string_not_equal(one, two);
    tree_put_int(arena, model->config, "something", 1);
    model_state_hash(model, two);
    assert_string_not_equal(one, two);
    tree_put_map(arena, model->provenance, "exits");
    model_state_hash(model, one);
    assert_string_not_equal(one, two);
    tree_put_int(arena, model->provenance, "steps", 1);
    model_state_hash(model, one);
    tree_put_int(arena, model->provenance, "steps", 2);
    model_state_hash(model, two);
    assert_string_equal(one, two);
    void *data = NULL;
    Diag *diag = diag_create();
    assert_ok(tensor_writable(&model->graph->storages[0]->tensor, &data, diag), diag);
    ((float *)data)[0] += 1;
    model_state_hash(model, one);
    assert_string_not_equal(one, two);
    diag_destroy(diag);
    model_destroy(model);
}

/* Every byte of an entry and of a model counts: a changed one is left out with a warning
 * and written anew. */
static void test_damaged(void **state) {
    (void)state;
    Place place = place_open(0);
    Model *model = toy_vit(1);
    char name[HASH_TEXT_BYTES], key[HASH_TEXT_BYTES], path[256];
    model_state_hash(model, name);
    for (int at = 0;; at += 7) {
        assert_ok(put(&place, 5), place.diag);
        path_of(&place, "steps", hash_of(5, key), ".json", path);
        const int file = open(path, O_RDWR);
        char byte;
        if (pread(file, &byte, 1, at) == 0) { /* the end */
            close(file);
            break;
        }
        byte ^= 1;
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
        close(file);
        diag_clear(place.diag);
        assert_false(has(&place, 5));
        assert_int_equal(diag_warning_count(place.diag), 1);
        assert_int_equal(diag_errors(place.diag), 0);
    }
    for (int part = 1; part < 8; part++) {
        struct stat info;
        assert_ok(step_store_put_model(place.store, name, model, place.diag), place.diag);
        path_of(&place, "models", name, ".h5", path);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, info.st_size * part / 8), 0);
        diag_clear(place.diag);
        assert_null(step_store_model(place.store, name, ops_table(), place.diag));
        assert_int_equal(diag_warning_count(place.diag), 1);
    }
    /* a sound model under another's name */
    char other[HASH_TEXT_BYTES];
    assert_ok(step_store_put_model(place.store, hash_of(9, other), model, place.diag),
              place.diag);
    assert_null(step_store_model(place.store, other, ops_table(), place.diag));
    model_destroy(model);
    place_close(&place);
}

/* What was used the longest time ago goes first; being found is a use. */
static void test_eviction(void **state) {
    (void)state;
    Place place = place_open(0);
    char path[256], key[HASH_TEXT_BYTES];
    struct stat info;
    for (int i = 1; i <= 4; i++) {
        assert_ok(put(&place, i), place.diag);
        const struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        path_of(&place, "steps", hash_of(i, key), ".json", path);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        assert_int_equal(stat(path, &info), 0);
    }
    step_store_evict(place.store); /* no limit */
    assert_int_equal(files_in(&place, "steps"), 4);
    assert_true(has(&place, 1));
    place.store->limit = 3 * info.st_size + info.st_size / 2;
    step_store_evict(place.store);
    assert_false(has(&place, 2));
    place.store->limit = 1 * info.st_size + info.st_size / 2;
    step_store_evict(place.store);
    assert_int_equal(files_in(&place, "steps"), 1);
    assert_true(has(&place, 1));
    place_close(&place);
}

/* Files of other names stay, whatever the limit; unfinished ones of long ago go. */
static void test_others_files(void **state) {
    (void)state;
    static const char *const names[] = {"mine.h5", "0123.json", ".hidden",
                                        ".00000000000000000000000000000001.json.7.tmp"};
    Place place = place_open(1);
    char path[256];
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_ok(put(&place, 1), place.diag);
    for (int i = 0; i < 4; i++) {
        path_of(&place, "steps", names[i], "", path);
        close(open(path, O_CREAT | O_WRONLY, 0666));
        assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    step_store_evict(place.store);
    assert_int_equal(files_in(&place, "steps"), 3);
    step_store_clear(place.store);
    assert_int_equal(files_in(&place, "steps"), 3);
    place_close(&place);
}

/* Several programs put, find and remove the same entries and models at a time: what is
 * found is right, and nobody is told of damage. */
static void work_beside_others(Place *place, int worker) {
    enum { ROUNDS = 60, KEYS = 6 };
    Model *model = toy_vit(1);
    char name[HASH_TEXT_BYTES];
    model_state_hash(model, name);
    for (int round = 0; round < ROUNDS; round++) {
        const int number = 1 + (round * 5 + worker) % KEYS;
        assert_ok(put(place, number), place->diag);
        has(place, number % KEYS + 1);
        if (round % 10 == worker % 10) {
            assert_ok(step_store_put_model(place->store, name, model, place->diag),
                      place->diag);
            Model *found = step_store_model(place->store, name, ops_table(), place->diag);
            model_destroy(found); /* may be gone again */
        }
        step_store_evict(place->store);
    }
    if (diag_warning_count(place->diag) > 0) diag_print(place->diag, stderr);
    _exit(diag_warning_count(place->diag) > 0);
}

static void test_beside_others(void **state) {
    (void)state;
    enum { WORKERS = 4 };
    Place place = place_open(60000);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        if ((workers[i] = fork()) == 0) work_beside_others(&place, i);
    for (int i = 0; i < WORKERS; i++) {
        int status = 1;
        assert_int_equal(waitpid(workers[i], &status, 0), workers[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    place_close(&place);
}

/* A full disk: an error, and no file, whole or half. */
static void test_full_disk(void **state) {
    (void)state;
    Place place = place_open(0);
    Model *model = toy_vit(1);
    char name[HASH_TEXT_BYTES];
    struct rlimit was, small = {.rlim_cur = 200};
    model_state_hash(model, name);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status entry = put(&place, 1);
    const Status put_model = step_store_put_model(place.store, name, model, place.diag);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(entry, STATUS_IO);
    assert_int_equal(put_model, STATUS_IO);
    assert_int_equal(files_in(&place, "steps"), 0);
    assert_int_equal(files_in(&place, "models"), 0);
    model_destroy(model);
    place_close(&place);
}

/* A folder that may only be read serves what it has. Root may write everywhere. */
static void test_read_only(void **state) {
    (void)state;
    Place place = place_open(0);
    char path[256];
    assert_ok(put(&place, 1), place.diag);
    path_of(&place, "steps", "", "", path);
    assert_int_equal(chmod(path, 0555), 0);
    assert_true(has(&place, 1));
    if (geteuid() != 0) assert_int_equal(put(&place, 2), STATUS_IO);
    assert_int_equal(chmod(path, 0755), 0);
    place_close(&place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),       cmocka_unit_test(test_models),
        cmocka_unit_test(test_state),         cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_eviction),      cmocka_unit_test(test_others_files),
        cmocka_unit_test(test_beside_others), cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_read_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
