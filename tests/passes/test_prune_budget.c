/* Budgets of pruning: never above, as close below as one unit allows, on every family;
 * the units that stay are those an enumeration finds. */
#include "passes/pruning/prune.h"
#include "tests/passes/prune_families.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/formula.h"
#include "tests/support/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- measuring by hand ---- */

enum { BLOCKS = 32, LEAST_UNITS = 5 };

/* Heads, or hidden units, that each block of a kind keeps. */
typedef struct Counts {
    int64_t units[PRUNE_KINDS][BLOCKS];
} Counts;

static double measure_of(Model *model, MeasureKind kind) {
    Measure measure;
    Diag *diag = diag_create();
    assert_ok(model_measure(&measure, model, diag), diag);
    diag_destroy(diag);
    return measure_get(&measure, kind);
}

static Status find(Prune *p, PassContext *ctx, Model *model, PruneKind kind,
                   PruneUnit unit, Diag *diag) {
    ctx->ops = model->graph->ops;
    ctx->model = model;
    ctx->plan = true;
    ctx->record = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
    return prune_find(p, ctx, model->graph, kind, unit, NULL, diag);
}

/* What a model costs when its blocks keep so many units, cut one kind after the other. */
static double cost_of(const Model *model, const Counts *counts, PruneUnit unit,
                      MeasureKind kind) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *copy = model_copy(model);
    PassContext ctx = {.arena = arena};
    for (int k = 0; k < PRUNE_KINDS; k++) {
        Prune p;
        assert_ok(find(&p, &ctx, copy, (PruneKind)k, unit, diag), diag);
        assert_true(p.block_count <= BLOCKS);
        for (int i = 0; i < p.block_count; i++) {
            PruneGroup *group = &p.groups[p.blocks[i].group];
            const int64_t size = group->parts.size;
            group->keep = ARENA_ARRAY(arena, int64_t, (size_t)group->parts.units);
            prune_keep_first(group, (counts->units[k][i] + size - 1) / size);
        }
        assert_ok(prune_cut(&p, diag), diag);
    }
    const double cost = measure_of(copy, kind);
    model_destroy(copy);
    diag_destroy(diag);
    arena_destroy(arena);
    return cost;
}

/* How many units the blocks have, as the pass recorded them. */
static Counts recorded_counts(const Tree *record, const char *key) {
    static const char *const names[] = {"heads", "ffn"};
    Counts counts = {0};
    for (int k = 0; k < PRUNE_KINDS; k++) {
        const Tree *list = tree_get(tree_get(record, names[k]), "blocks");
        int i = 0;
        for (const Tree *row = list ? list->first : NULL; row; row = row->next)
            counts.units[k][i++] = (int64_t)number(row, key);
    }
    return counts;
}

/* ---- every family ---- */

/* Whether no block that lost units could have kept one more. Blocks that share weights
 * lose theirs together, so all of the same `before` and `after` that share are asked
 * through the first of them alone: one more in all blocks of a group is what a unit is.
 */
static void expect_full(const Model *before, const Tree *record, PruneUnit unit,
                        MeasureKind kind, double bound, const char *what) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    PassContext ctx = {.arena = arena};
    Model *copy = model_copy(before);
    const Counts after = recorded_counts(record, "after");
    for (int k = 0; k < PRUNE_KINDS; k++) {
        Prune p = {0};
        assert_ok(find(&p, &ctx, copy, (PruneKind)k, unit, diag), diag);
        for (int g = 0; g < p.group_count; g++) {
            Counts more = after;
            bool can = false;
            for (int i = 0; i < p.block_count; i++) {
                if (p.blocks[i].group != g) continue;
                const PruneParts *parts = &p.blocks[i].parts;
                can = after.units[k][i] < parts->units * parts->size;
                more.units[k][i] += parts->size;
            }
            if (can && cost_of(before, &more, unit, kind) <= bound)
                fail_msg("%s: one more of %s would have fitted", what, p.blocks[0].place);
        }
    }
    model_destroy(copy);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* A budget for a part of what may go. */
static void try_budget(const char *config, PruneUnit unit, MeasureKind kind, double part,
                       const char *more) {
    Model *model = configured_model(config, 5), *before = model_copy(model);
    Model *planned = model_copy(model);
    Diag *diag = diag_create();
    char options[128], what[512];
    Counts fewest;
    for (int i = 0; i < BLOCKS; i++)
        fewest.units[PRUNE_HEADS][i] = 1, fewest.units[PRUNE_FFN][i] = LEAST_UNITS;
    const double whole = measure_of(model, kind),
                 least = cost_of(model, &fewest, unit, kind);
    const double bound = floor(least + part * (whole - least));
    snprintf(options, sizeof options, "{%s: %.0f%s%s}", measure_name(kind), bound, more,
             unit == UNIT_GROUP ? ", unit: group" : "");
    snprintf(what, sizeof what, "%s of %s", options, config);
    assert_ok(test_run_pass(model, "prune", options, false, diag), diag);
    const Tree *record = last_record(model);
    const double reached = measure_of(model, kind);
    if (reached > bound) fail_msg("%s: %g is above %g", what, reached, bound);
    char key[32];
    assert_true(number(record, measure_name(kind)) == reached);
    snprintf(key, sizeof key, "%s_share", measure_name(kind));
    assert_true(number(record, key) == reached / whole);
    const Counts after = recorded_counts(record, "after");
    assert_true(cost_of(before, &after, unit, kind) == reached);
    expect_full(before, record, unit, kind, bound, what);
    model_strip(planned);
    assert_ok(test_run_pass(planned, "prune", options, true, diag), diag);
    const double plan = measure_of(planned, kind);
    if (plan > bound) fail_msg("%s: the plan's %g is above %g", what, plan, bound);
    diag_destroy(diag);
    model_destroy(planned);
    model_destroy(before);
    model_destroy(model);
}

static void test_families(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        try_budget(FAMILIES[i], UNIT_GROUP, MEASURE_FLOPS, 0.1, ", score: magnitude");
        try_budget(FAMILIES[i], UNIT_GROUP, MEASURE_FLOPS, 0.73, ", score: random");
        try_budget(FAMILIES[i], UNIT_GROUP, MEASURE_PARAMETERS, 0.45,
                   ", score: magnitude");
        try_budget(FAMILIES[i], UNIT_GROUP, MEASURE_BYTES, 0.0,
                   ", score: random, least_units: 5");
        if (!strstr(FAMILIES[i], "num_key_value_heads: 2")) continue;
        try_budget(FAMILIES[i], UNIT_QUERY, MEASURE_FLOPS, 0.3, ", score: magnitude");
        try_budget(FAMILIES[i], UNIT_QUERY, MEASURE_PARAMETERS, 0.6, ", score: random");
    }
}

/* Mixing matrices, whose cost grows with the square of the heads; groups of layers that
 * share them; layers that may end empty. */
static void test_forms(void **state) {
    (void)state;
    static const char *const steps[][2] = {
        {"weight_multiplex", "{group: 3, position: none}"},
        {"weight_multiplex", "{groups: [1, 2], mixing_bias: true, position: none}"},
        {"attention_to_t2r", "{feature_size: 3}"},
        {"remove_block", "{block: ffn, drop: [0]}"},
        {"add_exits", "{}"},
        {"factor_embedding", "{rank: 3}"}};
    const char *config = FAMILIES[2];
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        Model *model = configured_model(config, 5);
        Diag *diag = diag_create();
        char yaml[512];
        snprintf(yaml, sizeof yaml,
                 "version: 1\nseed: 1\npasses:\n  - %s: %s\n"
                 "  - prune: {flops: 0.8, score: magnitude, allow_empty: true}\n",
                 steps[i][0], steps[i][1]);
        assert_ok(test_run_recipe(model, "test", yaml, false, 1, diag), diag);
        assert_true(number(last_record(model), "flops_share") <= 0.8);
        assert_true(number(last_record(model), "flops_share") > 0.7);
        assert_true(number(last_record(model), "flops") ==
                    measure_of(model, MEASURE_FLOPS));
        diag_destroy(diag);
        model_destroy(model);
    }
}

/* ---- which units ---- */

enum { LAYERS = 2, HEADS = 4, HIDDEN = 4, UNITS = LAYERS * (HEADS + HIDDEN) };
#define SMALL                                                                            \
    "{model_type: vit, architectures: [ViTForImageClassification], hidden_size: 8,\n"    \
    " num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 4,\n"             \
    " image_size: 4, patch_size: 2, num_channels: 1}"

/* A unit as the tests number them: heads of layer 0, of layer 1, then hidden units. */
typedef struct Unit {
    double score, cost;
    int block; /* 0 and 1: heads, 2 and 3: hidden units, of layers 0 and 1 */
} Unit;

/* Scores from importance, costs from one unit less in one block. */
static double read_units(const Model *model, Unit units[UNITS]) {
    static const char *const lists[] = {"heads", "ffn"};
    Counts all = {{{HEADS, HEADS}, {HIDDEN, HIDDEN}}};
    const double whole = cost_of(model, &all, UNIT_GROUP, MEASURE_FLOPS);
    for (int block = 0; block < 2 * LAYERS; block++) {
        Counts less = all;
        less.units[block / LAYERS][block % LAYERS]--;
        const double cost = whole - cost_of(model, &less, UNIT_GROUP, MEASURE_FLOPS);
        const Tree *list =
            tree_get(tree_get(model->provenance, "importance"), lists[block / LAYERS]);
        const Tree *entry = block % LAYERS ? list->first->next : list->first;
        const Tree *score = tree_get(entry, "scores")->first;
        for (int u = 0; u < HEADS; u++, score = score->next)
            units[block * HEADS + u] = (Unit){score->real, cost, block};
    }
    return whole;
}

/* Whether each block has a unit of a set. */
static bool is_alive(unsigned set) {
    for (int block = 0; block < 2 * LAYERS; block++)
        if (!(set >> block * HEADS & 15)) return false;
    return true;
}

static void sum_set(const Unit units[UNITS], unsigned set, double *score, double *cost) {
    *score = *cost = 0;
    for (int u = 0; u < UNITS; u++)
        if (set >> u & 1) *score += units[u].score, *cost += units[u].cost;
}

/* The largest score of any set of units that costs no more. */
static double best_score(const Unit units[UNITS], double cost) {
    double best = 0;
    for (unsigned set = 0; set < 1u << UNITS; set++) {
        double score, price;
        if (!is_alive(set)) continue;
        sum_set(units, set, &score, &price);
        if (price <= cost && score > best) best = score;
    }
    return best;
}

/* The units that a pruned model has, by the lineage of its weights. */
static unsigned kept_set(const Model *model) {
    static const char *const names[] = {"attention.output.dense.weight",
                                        "output.dense.weight"};
    static const int width[] = {2, 1};
    unsigned set = 0;
    for (int block = 0; block < 2 * LAYERS; block++) {
        char name[128];
        const int kind = block / LAYERS;
        snprintf(name, sizeof name, "vit.encoder.layer.%d.%s", block % LAYERS,
                 names[kind]);
        const Storage *storage = graph_storage(model->graph, name);
        assert_non_null(storage);
        const int64_t count = storage->tensor.dim[1] / width[kind];
        for (int64_t i = 0; i < count; i++) {
            const int64_t unit =
                count == HEADS
                    ? i
                    : lineage_index(&storage->kept[1], i * width[kind]) / width[kind];
            set |= 1u << (block * HEADS + (int)unit);
        }
    }
    return set;
}

/* The set by score over cost, found one at a time without sorting: the best of each block
 * first, then whatever is worth most and fits. */
static unsigned greedy_set(const Unit units[UNITS], double cost) {
    unsigned set = 0, seen = 0;
    for (int block = 0; block < 2 * LAYERS; block++) {
        int best = block * HEADS;
        for (int u = best; u < (block + 1) * HEADS; u++)
            if (units[u].score > units[best].score) best = u;
        set |= 1u << best;
    }
    for (seen = set; seen != (1u << UNITS) - 1;) {
        int best = -1;
        double score, price;
        for (int u = 0; u < UNITS; u++)
            if (!(seen >> u & 1) &&
                (best < 0 ||
                 units[u].score / units[u].cost > units[best].score / units[best].cost))
                best = u;
        seen |= 1u << best;
        sum_set(units, set | 1u << best, &score, &price);
        if (price <= cost) set |= 1u << best;
    }
    return set;
}

/* For budgets between the fewest units and all: the pass keeps what the search above
 * keeps; and where the budget is used up, no set of that cost has a larger score. */
static void test_enumeration(void **state) {
    (void)state;
    Model *model = configured_model(SMALL, 3);
    run_pass(model, "importance", "{score: random}");
    Unit units[UNITS];
    const double whole = read_units(model, units);
    double score, all;
    int used_up = 0;
    sum_set(units, (1u << UNITS) - 1, &score, &all);
    for (int step = 1; step < 24; step++) {
        const double least = 4 * units[0].cost;
        const double budget = floor(whole - all + least + (all - least) * step / 24);
        Model *copy = model_copy(model);
        char options[64];
        snprintf(options, sizeof options, "{flops: %.0f}", budget);
        run_pass(copy, "prune", options);
        const unsigned set = kept_set(copy),
                       wanted = greedy_set(units, budget - whole + all);
        if (set != wanted)
            fail_msg("budget %.0f: kept %x, expected %x", budget, set, wanted);
        double price;
        sum_set(units, set, &score, &price);
        assert_true(price + whole - all == measure_of(copy, MEASURE_FLOPS));
        /* a prefix of the order by worth is the best of its cost */
        double least_in = INFINITY, most_out = 0;
        for (int u = 0; u < UNITS; u++) {
            const double worth = units[u].score / units[u].cost;
            if (!(set >> u & 1)) most_out = fmax(most_out, worth);
            bool first = true;
            for (int v = units[u].block * HEADS; v < (units[u].block + 1) * HEADS; v++)
                first = first && units[v].score <= units[u].score;
            if ((set >> u & 1) && !first) least_in = fmin(least_in, worth);
        }
        if (most_out <= least_in) {
            used_up++;
            assert_true(score >= best_score(units, price) - 1e-9);
        }
        model_destroy(copy);
    }
    assert_true(used_up > 8);
    model_destroy(model);
}

/* ---- closed forms ---- */

/* The toy model whose only weights are those of layer 2, all 1. A head has 3 (8 16 + 8) +
 * 16 8 = 536 parameters, a unit 16 + 1 + 16 = 33; with one head and one unit in each of
 * the 4 layers 9347 - 4 536 - 4 31 33 = 3111 are left. */
static Model *one_layer(void) {
    Model *model = toy_vit(1);
    formula_assign(model, "@* = 0\n"
                          "encoder.2.out.weight = 1\n"
                          "encoder.2.ffn_in.weight = 1\n"
                          "encoder.2.ffn_out.weight = 1\n");
    run_pass(model, "importance", "{score: magnitude}");
    return model;
}

static void expect_pruned(const char *options, const char *formulas) {
    Model *model = one_layer(), *before = model_copy(model);
    run_pass(model, "prune", options);
    if (formula_check(model, before, formulas)) fail_msg("after prune: %s", options);
    model_destroy(before);
    model_destroy(model);
}

static void test_one_layer(void **state) {
    (void)state;
    /* room for all of layer 2 and nothing else */
    expect_pruned("{parameters: 4670}",
                  "parameters = 3111 + 536 + 31 * 33\n"
                  "record.parameters = 4670\nrecord.budget = 4670\n"
                  "record.parameters_share = 4670 / 9347\n"
                  "heads(encoder.2) = 2\nwidth(encoder.2) = 32\n"
                  "heads(encoder.1) = 1\nwidth(encoder.1) = 1\n"
                  "heads(encoder.3) = 1\nwidth(encoder.3) = 1\n"
                  "record.heads.units_after = 5\nrecord.ffn.units_after = 35\n");
    /* One parameter less: a head is worth 128 / 536, a unit 32 / 33, so the head stays
     * out, and 16 units that are worth nothing come in behind it. */
    expect_pruned("{parameters: 4669}", "parameters = 4670 - 536 + 16 * 33\n"
                                        "heads(encoder.2) = 1\nwidth(encoder.2) = 32\n"
                                        "heads(encoder.0) = 1\nwidth(encoder.0) = 17\n"
                                        "width(encoder.1) = 1\n");
    expect_pruned("{flops: 0.4, allow_empty: true}",
                  "heads(encoder.2) = 2\nwidth(encoder.2) = 32\n"
                  "record.heads.units_after < 5\n"
                  "flops <= 0.4 * was flops\nflops > 0.38 * was flops\n");
}

/* FLOPs that go with a head or a unit, counted by hand: 5 tokens, width 8, heads of 2. */
static void test_costs(void **state) {
    (void)state;
    Model *model = configured_model(SMALL, 3);
    run_pass(model, "importance", "{score: random}");
    Unit units[UNITS];
    read_units(model, units);
    /* a unit: two multiply-adds for each of 8 inputs and outputs, a bias, the function */
    assert_true(units[2 * HEADS].cost >= 5 * (2 * 8 + 2 * 8));
    assert_true(units[2 * HEADS].cost <= 5 * (2 * 8 + 2 * 8 + 1 + 20));
    /* a head: 2 of 8 outputs in three projections, 2 inputs in the fourth, and attention,
     * 5 x 5 scores of 2 multiply-adds, weights and their sums */
    assert_true(units[0].cost >= 5 * 2 * 4 * 2 * 8 + 2 * 2 * 5 * 5 * 2);
    assert_true(units[0].cost <=
                5 * 2 * 4 * 2 * 8 + 5 * 2 * 3 + 2 * 2 * 5 * 5 * 2 + 25 * 20);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_layer),   cmocka_unit_test(test_costs),
        cmocka_unit_test(test_enumeration), cmocka_unit_test(test_families),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests_name("prune budgets", tests, NULL, NULL);
}
