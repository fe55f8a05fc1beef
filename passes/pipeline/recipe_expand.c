/* Expansion of `repeat` blocks: bounds, ranges, one copy of the steps a round. */
#include "passes/pipeline/recipe_expand.h"

#include "passes/pipeline/recipe_keys.h"

#include <math.h>
#include <string.h>

/* Ends of ranges up to here keep whole numbers exact in double precision. */
#define RANGE_MAX 1e15

static const Field repeat_fields[] = {
    {.name = "times",
     .kind = FIELD_INT,
     .offset = FIELD_AT(RepeatKeys, times, int64_t),
     .min = 1,
     .max = RECIPE_STEPS_MAX,
     .required = true,
     .help = "number of rounds"},
    {.name = "passes",
     .kind = FIELD_TREE,
     .offset = FIELD_AT(RepeatKeys, passes, const Tree *),
     .choices = "list",
     .expect = "a list of steps",
     .required = true,
     .help = "list of the steps of a round; an option {from: a, to: b} is a + (b - a) t "
             "/ times in round t"},
    F_END,
};

static const RepeatKeys repeat_defaults = {0};

const Field *recipe_repeat_fields(void) {
    return repeat_fields;
}
const RepeatKeys *recipe_repeat_defaults(void) {
    return &repeat_defaults;
}

/* ---- ranges ---- */

static bool is_range(const Tree *value) {
    return value->kind == TREE_MAP && value->count == 2 && tree_get(value, "from") &&
           tree_get(value, "to");
}

static Status fail_half(Arena *arena, const Tree *value, Diag *diag) {
    Text keys = {0};
    for (const Tree *end = value->first; end; end = end->next)
        text_add(&keys, "%s%.40s", end == value->first ? "" : ", ", end->key);
    Status status =
        diag_fail(diag, STATUS_RECIPE, value->loc, tree_path(arena, value),
                  "expected the two ends {from: a, to: b}, found {%s}", keys.data);
    text_free(&keys);
    return status;
}

static double number_of(const Tree *end) {
    if (end->kind == TREE_INT) return (double)end->integer;
    return end->kind == TREE_FLOAT ? end->real : NAN;
}

/* Checks one end of a range. */
static Status check_end(Arena *arena, const Tree *end, Diag *diag) {
    if (fabs(number_of(end)) <= RANGE_MAX) return STATUS_OK;
    Text found = {0};
    tree_describe(&found, end);
    Status status =
        diag_fail(diag, STATUS_RECIPE, end->loc, tree_path(arena, end),
                  "expected a number between -1e15 and 1e15, found %s", found.data);
    text_free(&found);
    return status;
}

/* Whether a value is left open, for a search. */
static bool is_open(const Tree *value) {
    return value->kind == TREE_MAP &&
           (tree_get(value, "choose") || tree_get(value, "between"));
}

/* Checks that neither a step nor one of its options is left open. */
static Status check_open(Arena *arena, const Tree *step, Diag *diag) {
    const Tree *open = is_open(step) ? step : NULL;
    for (const Tree *entry = step->kind == TREE_MAP ? step->first : NULL; entry && !open;
         entry = entry->next)
        for (const Tree *option = entry->kind == TREE_MAP ? entry->first : NULL;
             option && !open; option = option->next)
            if (is_open(option)) open = option;
    if (!open) return STATUS_OK;
    const Status status =
        diag_fail(diag, STATUS_RECIPE, open->loc, tree_path(arena, open),
                  "expected one value, found {%s: ...}",
                  tree_get(open, "choose") ? "choose" : "between");
    diag_hint(diag, "`compress search` finds values for it");
    return status;
}

/* Checks all ranges among the options of a step that is written once (`rounds` 0), where
 * none may stand, or repeated. */
static Status check_ranges(Arena *arena, const Tree *step, int rounds, Diag *diag) {
    Status status = STATUS_OK;
    if (step->kind != TREE_MAP) return status;
    TRY(check_open(arena, step, diag));
    for (const Tree *entry = step->first; entry; entry = entry->next) {
        const Tree *option = entry->kind == TREE_MAP ? entry->first : NULL;
        for (; option; option = option->next) {
            if (option->kind != TREE_MAP) continue;
            if (!is_range(option)) {
                /* one end, or keys that are none beside it, is meant as a range */
                if (tree_get(option, "from") || tree_get(option, "to"))
                    status = fail_half(arena, option, diag);
                continue;
            }
            if (rounds == 0)
                status =
                    diag_fail(diag, STATUS_RECIPE, option->loc, tree_path(arena, option),
                              "expected one value: {from: ..., to: ...} is for steps "
                              "of a `repeat`");
            for (const Tree *end = option->first; end && rounds > 0; end = end->next)
                if (check_end(arena, end, diag) != STATUS_OK) status = STATUS_RECIPE;
        }
    }
    return status;
}

/* The number that a range stands for in a round: exactly the end in the last one. */
static Tree *range_value(Arena *arena, const Tree *range, int round, int rounds) {
    const Tree *from = tree_get(range, "from"), *to = tree_get(range, "to");
    const double a = number_of(from), b = number_of(to);
    const double value = round == rounds ? b : a + (b - a) * round / rounds;
    const bool whole = from->kind == TREE_INT && to->kind == TREE_INT;
    Tree *number = tree_new(arena, whole ? TREE_INT : TREE_FLOAT, range->loc);
    if (whole)
        number->integer = llround(value);
    else
        number->real = value;
    return number;
}

/* ---- rounds ---- */

typedef struct Expander {
    StepItems *out;
    Arena *arena;
    Diag *diag;
} Expander;

/* Memory that a copy of a value takes, about. */
static int64_t tree_bytes(const Tree *tree) {
    int64_t bytes = (int64_t)sizeof *tree + 16;
    if (tree->key) bytes += (int64_t)strlen(tree->key);
    if (tree->kind == TREE_STRING) bytes += (int64_t)strlen(tree->string);
    if (tree->kind != TREE_LIST && tree->kind != TREE_MAP) return bytes;
    for (const Tree *child = tree->first; child; child = child->next)
        bytes += tree_bytes(child);
    return bytes;
}

/* Copy of a value that stands `depth` levels below its step; options are at 2. Strings
 * are shared. */
static Tree *copy_round(Arena *arena, const Tree *tree, int depth, int round,
                        int rounds) {
    if (depth == 2 && tree->key && is_range(tree))
        return range_value(arena, tree, round, rounds);
    Tree *copy = tree_new(arena, tree->kind, tree->loc);
    if (tree->kind != TREE_LIST && tree->kind != TREE_MAP) {
        *copy = *tree;
        return copy;
    }
    for (const Tree *child = tree->first; child; child = child->next)
        tree_append(arena, copy, child->key, child->key_loc,
                    copy_round(arena, child, depth + 1, round, rounds));
    return copy;
}

static void add_item(Expander *e, StepItem item) {
    StepItems *out = e->out;
    if (out->count == out->capacity) {
        const int capacity = out->capacity ? 2 * out->capacity : 16;
        StepItem *items = ARENA_ARRAY(e->arena, StepItem, (size_t)capacity);
        if (out->count > 0) memcpy(items, out->items, (size_t)out->count * sizeof *items);
        out->items = items;
        out->capacity = capacity;
    }
    out->items[out->count++] = item;
}

/* Writes out one round. Ranges are checked once; the binder leaves out the later rounds
 * of a step that failed. */
static void add_round(Expander *e, Tree *list, const Tree *passes, int round,
                      int rounds) {
    Arena *arena = e->arena;
    Tree *map = tree_new(arena, TREE_MAP, passes->loc);
    Tree *steps = tree_new(arena, TREE_LIST, passes->loc);
    tree_append(arena, list, NULL, LOC_NONE, map);
    tree_append(arena, map, "passes", passes->key_loc, steps);
    for (const Tree *step = passes->first; step; step = step->next) {
        StepItem item = {.round = round, .rounds = rounds, .stride = passes->count};
        if (round == 1)
            item.failed = check_ranges(arena, step, rounds, e->diag) != STATUS_OK;
        Tree *copy = copy_round(arena, step, 0, round, rounds);
        tree_append(arena, steps, NULL, LOC_NONE, copy);
        item.tree = copy;
        add_item(e, item);
    }
}

/* Checks that the rounds stay within the bounds of a recipe. */
static Status check_bounds(Expander *e, const Tree *repeat, const RepeatKeys *keys) {
    const int64_t steps = e->out->count + keys->times * keys->passes->count;
    const int64_t bytes = e->out->bytes + keys->times * tree_bytes(keys->passes);
    const char *path = tree_path(e->arena, repeat);
    if (steps > RECIPE_STEPS_MAX)
        return diag_fail(e->diag, STATUS_RECIPE, repeat->loc, path,
                         "expected at most %d steps in all rounds, found %lld",
                         RECIPE_STEPS_MAX, (long long)steps);
    if (bytes > RECIPE_BYTES_MAX)
        return diag_fail(e->diag, STATUS_RECIPE, repeat->loc, path,
                         "expected rounds that take at most %lld bytes as text, found "
                         "about %lld",
                         (long long)RECIPE_BYTES_MAX, (long long)bytes);
    e->out->bytes = bytes;
    return STATUS_OK;
}

/* Whether an entry of `passes` is a block. */
static bool is_repeat(const Tree *step) {
    return tree_get(step, "repeat") != NULL;
}

/* Checks that a block holds plain steps, at least one. */
static Status check_steps(Expander *e, const Tree *passes) {
    Arena *arena = e->arena;
    if (passes->count == 0)
        return diag_fail(e->diag, STATUS_RECIPE, passes->loc, tree_path(arena, passes),
                         "expected a list of steps, found an empty list");
    Status status = STATUS_OK;
    for (const Tree *step = passes->first; step; step = step->next) {
        if (!is_repeat(step)) continue;
        const Tree *inner = tree_get(step, "repeat");
        status = diag_fail(e->diag, STATUS_RECIPE, inner->key_loc, tree_path(arena, step),
                           "expected a pass, found a `repeat` inside of another");
    }
    return status;
}

/* Writes out a block. One whose bounds or number of rounds are wrong has one round, so
 * that the mistakes in its steps are found too. */
static void add_repeat(Expander *e, const Tree *step) {
    const Tree *repeat = tree_get(step, "repeat");
    RepeatKeys keys = repeat_defaults;
    for (const Tree *entry = step->first; entry; entry = entry->next) {
        if (strcmp(entry->key, "repeat") == 0) continue;
        diag_fail(e->diag, STATUS_RECIPE, entry->key_loc, tree_path(e->arena, entry),
                  "expected nothing beside `repeat`, found \"%s\"", entry->key);
        diag_hint(e->diag, "`label` and `allow_unchanged` stand beside the passes of a "
                           "round");
    }
    Status status =
        fields_bind(repeat_fields, repeat, &keys, e->arena, STATUS_RECIPE, e->diag);
    if (!keys.passes || check_steps(e, keys.passes) != STATUS_OK) return;
    if (status == STATUS_OK) status = check_bounds(e, repeat, &keys);
    const int rounds = status == STATUS_OK ? (int)keys.times : 1;
    /* An empty list at step.repeat takes the rounds' copies, so that their paths read
     * passes[2].repeat[3].passes[1]. The step does not know of it. */
    Tree *list = tree_new(e->arena, TREE_LIST, repeat->loc);
    list->key = repeat->key;
    list->key_loc = repeat->key_loc;
    list->parent = (Tree *)(uintptr_t)step; /* only followed upwards */
    for (int round = 1; round <= rounds; round++)
        add_round(e, list, keys.passes, round, rounds);
}

void recipe_expand(StepItems *out, Arena *arena, const Tree *passes, Diag *diag) {
    Expander e = {out, arena, diag};
    *out = (StepItems){0};
    for (const Tree *step = passes->first; step; step = step->next) {
        if (is_repeat(step)) {
            add_repeat(&e, step);
            continue;
        }
        StepItem item = {.tree = step};
        item.failed = check_ranges(arena, step, 0, diag) != STATUS_OK;
        add_item(&e, item);
    }
    if (out->count <= RECIPE_STEPS_MAX) return;
    diag_fail(diag, STATUS_RECIPE, passes->loc, tree_path(arena, passes),
              "expected at most %d steps, found %d", RECIPE_STEPS_MAX, out->count);
}
