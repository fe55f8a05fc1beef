/* Search space: ranges in a recipe's passes, numbered like the digits of a number of
 * mixed bases, the first range of the document the lowest. */
#include "session/search/search_space.h"

#include "ir/field.h"
#include "ir/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values that a range of reals is divided into. */
enum { REAL_VALUES = 33 };

/* Ends of ranges up to here keep whole numbers exact in double precision. */
#define END_MAX 1e15

#define SCALE_NAMES "linear|log"

/* A range of numbers as it is written. */
typedef struct RangeKeys {
    const Tree *between; /* a list of two */
    int64_t step;        /* 0 = not given */
    int scale;
} RangeKeys;

static const Field range_fields[] = {
    F_TREE(RangeKeys, between, "list", "the two ends", .expect = "the two ends [a, b]"),
    F_INT(RangeKeys, step, 1, 1e15, "between whole numbers"),
    F_CHOICE(RangeKeys, scale, SCALE_NAMES, "how real numbers are spread"),
    F_END,
};

static bool is_choose(const Tree *value) {
    return value->kind == TREE_MAP && value->count == 1 && tree_get(value, "choose");
}

static bool is_between(const Tree *value) {
    return value->kind == TREE_MAP && tree_get(value, "between");
}

static bool is_branch(const Tree *value) {
    return value->kind == TREE_MAP || value->kind == TREE_LIST;
}

static uint64_t times(uint64_t a, uint64_t b) {
    return a != 0 && b > SEARCH_SPACE_MAX / a ? SEARCH_SPACE_MAX : a * b;
}

static uint64_t plus(uint64_t a, uint64_t b) {
    return a + b > SEARCH_SPACE_MAX ? SEARCH_SPACE_MAX : a + b;
}

/* ---- ranges of numbers ---- */

typedef struct Range {
    double low, high, step; /* step 0 = reals */
    bool log;
} Range;

static Status fail_at(Arena *arena, const Tree *value, const char *what, Diag *diag) {
    Text found = {0};
    tree_describe(&found, value);
    const Status status =
        diag_fail(diag, STATUS_RECIPE, value->loc, tree_path(arena, value),
                  "expected %s, found %s", what, found.data);
    text_free(&found);
    return status;
}

static Status read_end(double *out, const Tree *end, Arena *arena, Diag *diag) {
    if (tree_number(end, out) && fabs(*out) <= END_MAX) return STATUS_OK;
    return fail_at(arena, end, "a number between -1e15 and 1e15", diag);
}

/* Reads {between: [low, high], step, scale}. */
static Status read_range(Range *out, const Tree *value, Arena *arena, Diag *diag) {
    RangeKeys keys = {0};
    TRY(fields_bind(range_fields, value, &keys, arena, STATUS_RECIPE, diag));
    if (keys.between->count != 2)
        return fail_at(arena, keys.between, "the two ends [a, b]", diag);
    const Tree *low = keys.between->first, *high = low->next;
    TRY(read_end(&out->low, low, arena, diag));
    TRY(read_end(&out->high, high, arena, diag));
    const bool whole = low->kind == TREE_INT && high->kind == TREE_INT;
    out->step = whole ? (double)(keys.step ? keys.step : 1) : 0;
    out->log = keys.scale != 0;
    if (out->low >= out->high)
        return fail_at(arena, high, "an end above the first", diag);
    if (out->log && (whole || out->low <= 0))
        return fail_at(arena, tree_get(value, "scale"),
                       "a scale between real numbers above 0 alone", diag);
    if (keys.step && !whole)
        return fail_at(arena, tree_get(value, "step"),
                       "a step between whole numbers alone", diag);
    return STATUS_OK;
}

static uint64_t range_size(const Range *range) {
    if (range->step == 0) return REAL_VALUES;
    return (uint64_t)floor((range->high - range->low) / range->step) + 1;
}

static Tree *range_value(const Range *range, Arena *arena, const Tree *at,
                         uint64_t index) {
    const bool whole = range->step > 0;
    Tree *value = tree_new(arena, whole ? TREE_INT : TREE_FLOAT, at->loc);
    const double share = (double)index / (REAL_VALUES - 1);
    if (whole)
        value->integer = llround(range->low + (double)index * range->step);
    else if (range->log)
        value->real = range->low * pow(range->high / range->low, share);
    else
        value->real = range->low + (range->high - range->low) * share;
    if (whole) return value;
    /* Three digits are enough of a number that was drawn, and are easier to read. */
    char digits[32];
    snprintf(digits, sizeof digits, "%.3g", value->real);
    value->real = strtod(digits, NULL);
    return value;
}

/* ---- counting ---- */

typedef struct Counter {
    Arena *arena;
    Diag *diag;
    int ranges;
} Counter;

/* Reports what stands beside a `choose`, if anything: --set may have put it there. */
static Status check_alone(Counter *c, const Tree *value) {
    const Tree *other = value->first;
    while (other && strcmp(other->key, "choose") == 0) other = other->next;
    if (!other) return STATUS_OK;
    diag_fail(c->diag, STATUS_RECIPE, other->key_loc, tree_path(c->arena, other),
              "expected nothing beside `choose`, found \"%s\"", other->key);
    diag_hint(c->diag, "a step has its options, `label` and `allow_unchanged` inside of "
                       "the choice");
    return STATUS_RECIPE;
}

/* Recipes that a value stands for; 0 when a range in it is wrong, which is reported. */
static uint64_t count_value(Counter *c, const Tree *value) {
    if (is_between(value)) {
        Range range;
        c->ranges++;
        const Status status = read_range(&range, value, c->arena, c->diag);
        return status == STATUS_OK ? range_size(&range) : 0;
    }
    if (value->kind == TREE_MAP && tree_get(value, "choose")) {
        const Tree *choices = tree_get(value, "choose");
        uint64_t sum = 0;
        c->ranges++;
        if (check_alone(c, value) != STATUS_OK) return 0;
        if (choices->kind != TREE_LIST || choices->count < 2) {
            fail_at(c->arena, choices, "a list of at least two values", c->diag);
            return 0;
        }
        for (const Tree *choice = choices->first; choice; choice = choice->next)
            sum = plus(sum, count_value(c, choice));
        return sum;
    }
    uint64_t product = 1;
    for (const Tree *child = is_branch(value) ? value->first : NULL; child;
         child = child->next)
        product = times(product, count_value(c, child));
    return product;
}

/* Lists the sizes of the ranges in a value in the order of the document. */
static void list_sizes(SearchSpace *space, Counter *c, const Tree *value) {
    if (is_between(value) || is_choose(value))
        space->sizes[space->genes++] = count_value(c, value);
    else if (is_branch(value))
        for (const Tree *child = value->first; child; child = child->next)
            list_sizes(space, c, child);
}

Status search_space_bind(SearchSpace *out, Arena *arena, const Tree *passes, Diag *diag) {
    Counter c = {.arena = arena, .diag = diag};
    const int before = diag_errors(diag);
    *out = (SearchSpace){.passes = passes, .size = count_value(&c, passes)};
    out->ranges = c.ranges;
    if (diag_errors(diag) > before) return STATUS_RECIPE;
    out->sizes = ARENA_ARRAY(arena, uint64_t, (size_t)out->ranges + 1);
    list_sizes(out, &c, passes);
    return STATUS_OK;
}

/* ---- one recipe ---- */

typedef struct Chooser {
    Arena *arena;
    Counter count;
    uint64_t index; /* digits that are not used yet */
    SearchChoice **end;
} Chooser;

static void note_choice(Chooser *c, const Tree *range, const Tree *value) {
    if (!c->end) return;
    SearchChoice *choice = ARENA_NEW(c->arena, SearchChoice);
    *choice = (SearchChoice){tree_path(c->arena, range), value, NULL};
    *c->end = choice;
    c->end = &choice->next;
}

static Tree *choose_value(Chooser *c, const Tree *value);

static Tree *choose_between(Chooser *c, const Tree *value) {
    Range range = {0};
    Diag *none = diag_create();
    (void)read_range(&range, value, c->arena, none); /* checked by search_space_bind */
    diag_destroy(none);
    const uint64_t size = range_size(&range);
    Tree *chosen = range_value(&range, c->arena, value, c->index % size);
    c->index /= size;
    note_choice(c, value, chosen);
    return chosen;
}

/* One of a list: the digit says which, and what is left of it which of the recipes that
 * this one stands for. */
static Tree *choose_one(Chooser *c, const Tree *value) {
    uint64_t all = 0;
    for (const Tree *choice = value->first->first; choice; choice = choice->next)
        all = plus(all, count_value(&c->count, choice));
    uint64_t digit = c->index % all;
    const uint64_t rest = c->index / all;
    const Tree *choice = value->first->first;
    for (uint64_t size; (size = count_value(&c->count, choice)) <= digit;
         choice = choice->next)
        digit -= size;
    /* What is chosen within it is told with it. */
    SearchChoice **end = c->end;
    c->end = NULL;
    c->index = digit;
    Tree *chosen = choose_value(c, choice);
    c->index = rest;
    c->end = end;
    note_choice(c, value, chosen);
    return chosen;
}

/* Appends a value to a list: where it is a choice among steps, none of them or all. */
static void append_chosen(Chooser *c, Tree *list, const Tree *child) {
    Tree *chosen = choose_value(c, child);
    if (!is_choose(child) || chosen->kind != TREE_LIST) {
        if (!is_choose(child) || chosen->kind != TREE_NULL)
            tree_append(c->arena, list, NULL, LOC_NONE, chosen);
        return;
    }
    for (const Tree *step = chosen->first; step; step = step->next)
        tree_append(c->arena, list, NULL, LOC_NONE, tree_copy(c->arena, step));
}

static Tree *choose_value(Chooser *c, const Tree *value) {
    if (is_between(value)) return choose_between(c, value);
    if (is_choose(value)) return choose_one(c, value);
    if (!is_branch(value)) return tree_copy(c->arena, value);
    Tree *copy = tree_new(c->arena, value->kind, value->loc);
    for (const Tree *child = value->first; child; child = child->next) {
        if (value->kind == TREE_LIST)
            append_chosen(c, copy, child);
        else
            tree_append(c->arena, copy, child->key, child->key_loc,
                        choose_value(c, child));
    }
    return copy;
}

Tree *search_space_recipe(const SearchSpace *space, Arena *arena, uint64_t index,
                          SearchChoice **choices) {
    Diag *none = diag_create();
    Chooser c = {.arena = arena,
                 .count = {.arena = arena, .diag = none},
                 .index = index,
                 .end = choices};
    if (choices) *choices = NULL;
    Tree *passes = choose_value(&c, space->passes);
    diag_destroy(none);
    return passes;
}

/* ---- drawing ---- */

/* Largest spaces that are put in order whole. */
#define PERMUTED_MAX 1000000

static bool holds(const uint64_t *indices, int64_t count, uint64_t index) {
    for (int64_t i = 0; i < count; i++)
        if (indices[i] == index) return true;
    return false;
}

int64_t search_space_draw(const SearchSpace *space, uint64_t key, uint64_t *indices,
                          int64_t count) {
    if (space->size > PERMUTED_MAX) {
        uint64_t draw = 0;
        for (int64_t n = 0; n < count;) {
            const uint64_t index = random_u64(key, draw++) % space->size;
            if (!holds(indices, n, index)) indices[n++] = index;
        }
        return count;
    }
    const int64_t size = (int64_t)space->size;
    int64_t *order = memory_alloc((size_t)size, sizeof *order);
    random_permutation(key, order, size);
    if (count > size) count = size;
    for (int64_t i = 0; i < count; i++) indices[i] = (uint64_t)order[i];
    free(order);
    return count;
}

/* ---- children ---- */

/* Another value of a range of `size` (2 or more) than `gene`: a neighbour, or any. */
static uint64_t mutate(uint64_t key, uint64_t gene, uint64_t size) {
    const uint64_t kind = random_u64(key, 0) % 4;
    if (kind == 0 && gene > 0) return gene - 1;
    if (kind == 1 && gene + 1 < size) return gene + 1;
    return (gene + 1 + random_u64(key, 1) % (size - 1)) % size;
}

uint64_t search_space_child(const SearchSpace *space, uint64_t key, uint64_t mother,
                            uint64_t father) {
    uint64_t child = 0, base = 1;
    for (int i = 0; i < space->genes; i++) {
        const uint64_t own = random_key(key, (uint64_t)i), size = space->sizes[i];
        /* Of a space with more recipes than numbers the last ranges stay together. */
        if (base > SEARCH_SPACE_MAX / size) return child + mother * base;
        uint64_t gene = (random_u64(own, 0) % 2 ? mother : father) % size;
        if (size > 1 && random_u64(own, 1) % (uint64_t)space->genes == 0)
            gene = mutate(random_key(own, 2), gene, size);
        child += gene * base;
        base *= size;
        mother /= size;
        father /= size;
    }
    return child;
}
