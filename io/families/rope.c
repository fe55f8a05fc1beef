/* Rope: see rope.h. The meaning of the keys is that of transformers' modeling_rope_utils,
 * the formulas are in ir/rotary_angles.c. */
#include "io/families/rope.h"

#include <math.h>
#include <string.h>

static const char SCALING[] = "rope_scaling", PARAMETERS[] = "rope_parameters";

/* One of the maps, and the name that messages call it by. */
typedef struct RopeMap {
    const char *name;
    const Tree *map;
} RopeMap;

static void rope_fail(Builder *b, const char *map, const char *key, const Tree *value,
                      const char *expected) {
    if (b->status != STATUS_OK) return;
    const char *name = key ? arena_printf(b->model->arena, "%s.%s", map, key) : map;
    b->status =
        diag_fail(b->diag, STATUS_MODEL, value->loc, name, "expected %s", expected);
    if (value->kind == TREE_STRING) diag_note(b->diag, "found '%.60s'", value->string);
}

/* A number of a map; without it `fallback`, or a failure where that is NULL. */
static double rope_number(Builder *b, const RopeMap *m, const char *key,
                          const double *fallback, double min) {
    const double most = 1e12;
    const Tree *value = tree_get_nonnull(m->map, key);
    if (!value && fallback) return *fallback;
    double number;
    if (tree_number(value, &number) && number >= min && number <= most) return number;
    rope_fail(b, m->name, key, value ? value : m->map,
              arena_printf(b->model->arena, "a number from %g to %g", min, most));
    return fallback ? *fallback : fmax(min, 1);
}

/* ---- kinds ---- */

/* The kind that a map names, "default" where it names none. */
static const char *rope_type(Builder *b, const RopeMap *m) {
    if (!m->map || b->status != STATUS_OK) return "default";
    const Tree *type = tree_get_nonnull(m->map, "rope_type");
    if (!type) type = tree_get_nonnull(m->map, "type");
    if (m->map->kind == TREE_MAP && !type) return "default";
    if (m->map->kind == TREE_MAP && type->kind == TREE_STRING) return type->string;
    rope_fail(b, m->name, NULL, m->map, "null or a map with a rope_type");
    return "default";
}

static bool rope_kind(Builder *b, const RopeMap *m, bool scales, RotaryScaling *out) {
    static const char *const NAMES[] = {"default", "linear", "llama3", "yarn"};
    const char *type = rope_type(b, m);
    for (int i = 0; i < (scales ? 4 : 1); i++)
        if (strcmp(type, NAMES[i]) == 0) {
            *out = (RotaryScaling)i;
            return i > 0;
        }
    rope_fail(b, m->name, NULL, m->map,
              scales ? "null or rope_type: default, linear, llama3 or yarn"
                     : "null or rope_type: default, the only kind there is");
    if (b->status != STATUS_OK) diag_note(b->diag, "found '%.60s'", type);
    return false;
}

/* Keys of a map that its kind does not know. */
static void warn_unread(Builder *b, const RopeMap *m, RotaryScaling kind) {
    static const char *const KEYS[] = {
        "rope_type",        "type",
        "rope_theta",       "partial_rotary_factor",
        "factor",           "original_max_position_embeddings",
        "low_freq_factor",  "high_freq_factor",
        "attention_factor", "beta_fast",
        "beta_slow",        "mscale",
        "mscale_all_dim",   "truncate"};
    const int known[] = {4, 6, 8, sizeof KEYS / sizeof *KEYS};
    for (const Tree *key = m->map->first; key; key = key->next) {
        bool found = key->kind == TREE_NULL;
        for (int i = 0; i < known[kind] && !found; i++) {
            const bool llama3 = i == 6 || i == 7;
            found = strcmp(KEYS[i], key->key) == 0 && !(llama3 && kind == ROTARY_YARN);
        }
        if (!found && b->status == STATUS_OK)
            diag_warn(b->diag, key->key_loc, key->key, "nothing reads this key of %s",
                      m->name);
    }
}

/* ---- scaling ---- */

/* What YaRN multiplies queries and keys by; `weight` is of the logarithm. */
static double yarn_scale(double factor, double weight) {
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static void read_yarn(Builder *b, const RopeMap *m, Rope *rope) {
    const double fast = 32, slow = 1, none = 0;
    const double factor = rope->angles.factor;
    const double mscale = rope_number(b, m, "mscale", &none, 0);
    const double all = rope_number(b, m, "mscale_all_dim", &none, 0);
    const double usual = mscale > 0 && all > 0
                             ? yarn_scale(factor, mscale) / yarn_scale(factor, all)
                             : yarn_scale(factor, 1);
    rope->amplitude = rope_number(b, m, "attention_factor", &usual, 1e-6);
    rope->angles.fast = rope_number(b, m, "beta_fast", &fast, 1e-6);
    rope->angles.slow = rope_number(b, m, "beta_slow", &slow, 1e-6);
    const Tree *truncate = tree_get_nonnull(m->map, "truncate");
    rope->angles.whole = true;
    if (truncate && truncate->kind != TREE_BOOL)
        rope_fail(b, m->name, "truncate", truncate, "true or false");
    else if (truncate)
        rope->angles.whole = truncate->boolean;
    if (rope->angles.theta <= 1 && b->status == STATUS_OK)
        rope_fail(b, m->name, NULL, m->map, "a rope_theta above 1 with yarn");
}

static void read_scaling(Builder *b, const RopeMap *m, Rope *rope, double positions) {
    RotaryAngles *a = &rope->angles;
    const Tree *original = tree_get_nonnull(m->map, "original_max_position_embeddings");
    if (a->scaling != ROTARY_LINEAR)
        a->original = rope_number(b, m, "original_max_position_embeddings",
                                  a->scaling == ROTARY_YARN ? &positions : NULL, 1);
    const double ratio = positions / a->original;
    const bool follows = a->scaling == ROTARY_YARN && original && ratio > 0;
    a->factor = rope_number(b, m, "factor", follows ? &ratio : NULL, 1e-6);
    if (a->scaling == ROTARY_YARN) read_yarn(b, m, rope);
    if (a->scaling == ROTARY_LLAMA3) {
        a->slow = rope_number(b, m, "low_freq_factor", NULL, 1e-6);
        a->fast = rope_number(b, m, "high_freq_factor", NULL, 1e-6);
    }
    if (a->fast <= a->slow && b->status == STATUS_OK)
        rope_fail(b, m->name, NULL, m->map,
                  a->scaling == ROTARY_YARN ? "beta_fast above beta_slow"
                                            : "high_freq_factor above low_freq_factor");
}

/* ---- the whole ---- */

static double read_theta(Builder *b, const RopeMap *parameters) {
    const double usual = 10000,
                 theta = build_config_real(b, "rope_theta", &usual, 1, 1e12);
    if (!parameters->map || parameters->map->kind != TREE_MAP) return theta;
    return rope_number(b, parameters, "rope_theta", &theta, 1);
}

/* Numbers of a head that are turned, rounded down as transformers does. */
static int64_t read_turned(Builder *b, RopeKind kind, const RopeMap *parameters,
                           int64_t width) {
    static const char KEY[] = "partial_rotary_factor";
    const double all = 1;
    double share = build_config_real(b, KEY, &all, 0, 1);
    if (parameters->map && parameters->map->kind == TREE_MAP)
        share = rope_number(b, parameters, KEY, &share, 0);
    if (share == 1 || b->status != STATUS_OK) return 0;
    const int64_t turned = (int64_t)((double)width * share);
    if (kind.partial && turned >= 2 && turned <= width && turned % 2 == 0) return turned;
    const bool own = tree_get_nonnull(b->model->config, KEY) != NULL;
    b->status = diag_fail(
        b->diag, STATUS_MODEL,
        own ? build_config_loc(b, KEY) : build_config_loc(b, PARAMETERS),
        own ? KEY : "rope_parameters.partial_rotary_factor", "%s",
        kind.partial ? "expected a share of the heads that is an even number of numbers"
                     : "expected 1: rotary positions turn whole heads");
    return 0;
}

Rope rope_read(Builder *b, RopeKind kind, int64_t width, int64_t positions) {
    Rope rope = {
        .amplitude = 1,
        .angles = {.factor = 1, .original = 4096, .slow = 1, .fast = 32, .whole = true}};
    const RopeMap scaling = {SCALING, build_config_value(b, SCALING)};
    const RopeMap parameters = {PARAMETERS, build_config_value(b, PARAMETERS)};
    RotaryScaling one = ROTARY_PLAIN, two = ROTARY_PLAIN;
    const bool scaled = rope_kind(b, &scaling, kind.scales, &one);
    const bool stretched = rope_kind(b, &parameters, kind.scales, &two);
    if (scaled && stretched)
        rope_fail(b, SCALING, NULL, scaling.map, "null beside rope_parameters");
    if (b->status != STATUS_OK) return rope;
    rope.angles.theta = read_theta(b, &parameters);
    rope.angles.scaling = scaled ? one : two;
    if (scaled || stretched)
        read_scaling(b, scaled ? &scaling : &parameters, &rope, (double)positions);
    rope.turned = read_turned(b, kind, &parameters, width);
    if (scaling.map && scaling.map->kind == TREE_MAP) warn_unread(b, &scaling, one);
    if (parameters.map && parameters.map->kind == TREE_MAP)
        warn_unread(b, &parameters, two);
    return rope;
}

Node *rope_turn(Builder *b, const Rope *rope, Role role, Node *x, int64_t heads) {
    static const char *const NAMES[] = {"none", "linear", "llama3", "yarn"};
    const RotaryAngles *a = &rope->angles;
    Node *const in[4] = {x};
    if (a->scaling == ROTARY_PLAIN)
        return build_op(b, "rotary", role, in, "heads=%lld theta=%.17g turned=%lld",
                        (long long)heads, a->theta, (long long)rope->turned);
    return build_op(b, "rotary", role, in,
                    "heads=%lld theta=%.17g turned=%lld scaling=%s factor=%.17g "
                    "original=%.17g slow=%.17g fast=%.17g whole=%s amplitude=%.17g",
                    (long long)heads, a->theta, (long long)rope->turned,
                    NAMES[a->scaling], a->factor, a->original, a->slow, a->fast,
                    a->whole ? "true" : "false", rope->amplitude);
}
