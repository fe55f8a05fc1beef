/* Builder: access to the configuration that remembers the first failure. */
#include "io/families/build.h"

#include <string.h>

/* Who wants to know which keys are asked for. A family is built in one call, far below
 * the caller that asks. */
static _Thread_local ConfigKeys *watcher;

void build_watch_config(ConfigKeys *keys) {
    watcher = keys;
}

static void note_key(ConfigKeys *keys, const char *key) {
    for (int i = 0; i < keys->count; i++)
        if (strcmp(keys->names[i], key) == 0) return;
    if (keys->count == keys->capacity) {
        const int capacity = keys->capacity ? 2 * keys->capacity : 32;
        const char **names = ARENA_ARRAY(keys->arena, const char *, (size_t)capacity);
        if (keys->count > 0)
            memcpy(names, keys->names, (size_t)keys->count * sizeof *names);
        keys->names = names;
        keys->capacity = capacity;
    }
    keys->names[keys->count++] = arena_strdup(keys->arena, key);
}

const Tree *build_config_value(const Builder *b, const char *key) {
    if (watcher) note_key(watcher, key);
    return tree_get_nonnull(b->model->config, key);
}

Loc build_config_loc(const Builder *b, const char *key) {
    const Tree *value = tree_get(b->model->config, key);
    return value ? value->loc : b->model->config->loc;
}

/* Reports a value that is not what was expected. `value` NULL: the key is missing. */
static void config_fail(Builder *b, const char *key, const Tree *value,
                        const char *expected) {
    const Tree *config = b->model->config;
    if (b->status != STATUS_OK) return;
    if (!value) {
        b->status = diag_fail(b->diag, STATUS_MODEL, config->loc, key,
                              "missing: expected %s", expected);
        return;
    }
    Text found = {0};
    tree_print_json(&found, value, 0);
    b->status = diag_fail(b->diag, STATUS_MODEL, value->loc, key,
                          "expected %s, found %.60s", expected, found.data);
    text_free(&found);
}

int64_t build_config_int(Builder *b, const char *key, const int64_t *fallback,
                         int64_t min, int64_t max) {
    const Tree *value = build_config_value(b, key);
    if (!value && fallback) return *fallback;
    if (value && value->kind == TREE_INT && value->integer >= min &&
        value->integer <= max)
        return value->integer;
    config_fail(b, key, value,
                arena_printf(b->model->arena, "an integer from %lld to %lld",
                             (long long)min, (long long)max));
    return min;
}

double build_config_real(Builder *b, const char *key, const double *fallback, double min,
                         double max) {
    const Tree *value = build_config_value(b, key);
    if (!value && fallback) return *fallback;
    bool number = value && (value->kind == TREE_FLOAT || value->kind == TREE_INT);
    double real = !number                     ? min
                  : value->kind == TREE_FLOAT ? value->real
                                              : (double)value->integer;
    if (number && real >= min && real <= max) return real;
    config_fail(b, key, value,
                arena_printf(b->model->arena, "a number from %g to %g", min, max));
    return min;
}

bool build_config_bool(Builder *b, const char *key, bool fallback) {
    const Tree *value = build_config_value(b, key);
    if (!value) return fallback;
    if (value->kind == TREE_BOOL) return value->boolean;
    config_fail(b, key, value, "true or false");
    return fallback;
}

const char *build_config_string(Builder *b, const char *key, const char *fallback) {
    const Tree *value = build_config_value(b, key);
    if (!value && fallback) return fallback;
    if (value && value->kind == TREE_STRING) return value->string;
    config_fail(b, key, value, "a string");
    return "";
}

void build_config_require(Builder *b, const char *key, bool fallback, bool value) {
    if (build_config_bool(b, key, fallback) != value && b->status == STATUS_OK)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                      "expected %s, the only kind there is", value ? "true" : "false");
}

int64_t build_config_labels(Builder *b) {
    const int64_t max = 1 << 24;
    const Tree *labels = build_config_value(b, "id2label");
    int64_t count = 2;
    if (labels && (labels->kind != TREE_MAP || labels->count == 0))
        config_fail(b, "id2label", labels, "a map with at least one label");
    else if (labels)
        count = labels->count;
    return build_config_int(b, "num_labels", &count, 1, max);
}

const char *build_config_activation(Builder *b, const char *key, const char *fallback) {
    static const char *const NAMES[][2] = {
        {"gelu", "gelu"}, {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
        {"relu", "relu"}, {"silu", "silu"},          {"swish", "silu"}};
    const char *name = build_config_string(b, key, fallback);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i][0]) == 0) return NAMES[i][1];
    if (b->status == STATUS_OK)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                              "expected gelu, gelu_new, gelu_pytorch_tanh, relu, silu or "
                              "swish, found '%.60s'",
                              name);
    return "gelu";
}

double build_config_dropout(Builder *b, const char *key, double fallback) {
    return build_config_real(b, key, &fallback, 0, 0.99);
}

void build_config_attention_dropout(Builder *b, const char *key) {
    if (build_config_dropout(b, key, 0) > 0 && b->status == STATUS_OK)
        diag_warn(b->diag, build_config_loc(b, key), key,
                  "dropout of attention probabilities is left out");
}

void build_config_heads(Builder *b, const char *key, int64_t heads, const char *width_key,
                        int64_t width) {
    if (b->status == STATUS_OK && width % heads != 0)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                              "expected a divisor of %s %lld, found %lld", width_key,
                              (long long)width, (long long)heads);
}

static void unknown_architecture(Builder *b, const Tree *found,
                                 const char *const *known) {
    Text names = {0};
    for (int i = 0; known[i]; i++) text_add(&names, "%s%s", i ? ", " : "", known[i]);
    if (b->status == STATUS_OK)
        b->status = diag_fail(b->diag, STATUS_MODEL, found->loc, "architectures",
                              "expected a list with one of %s", names.data);
    if (found->kind == TREE_LIST && found->first && found->first->kind == TREE_STRING) {
        const char *class = found->first->string;
        diag_note(b->diag, "found '%.100s'", class);
        if (strstr(class, "ForTokenClassification"))
            diag_hint(b->diag, "token classifiers are not read: no pass trains or "
                               "evaluates them yet");
    }
    text_free(&names);
}

const char *build_config_architecture(Builder *b, const char *const *known) {
    const Tree *list = build_config_value(b, "architectures");
    if (!list) return known[0];
    const Tree *first = list->kind == TREE_LIST ? list->first : NULL;
    for (int i = 0; first && first->kind == TREE_STRING && known[i]; i++)
        if (strcmp(first->string, known[i]) == 0) return known[i];
    unknown_architecture(b, list, known);
    return known[0];
}
