/* Every table of fields there is, row by row: what a row does not allow is refused by the
 * binder, at its place and under its path; what it allows is taken, and neither the
 * checks behind the binder nor opening a data set end in anything but a status.
 *
 * What a row allows is told here from its properties, apart from the binder. */
#include "exec/ops.h"
#include "io/datasets/dataset.h"
#include "passes/pass.h"
#include "passes/pipeline/recipe_keys.h"
#include "tests/support/check.h"
#include "tests/support/odd_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One table, and what comes behind the binder. */
typedef struct Table Table;
struct Table {
    const char *name;
    const Field *fields;
    const void *defaults; /* NULL = zeros */
    size_t size;
    void (*follow)(const Table *table, const Tree *map, void *bound, Diag *diag);
    const void *owner; /* the Pass or DataFormat */
};

typedef struct Sweep {
    int tries, taken, refused, tables, rows;
} Sweep;

static const Loc AT = {"sweep.yaml", 7, 11};

/* ---- what a row allows ---- */

static bool in_range(const Field *field, double value) {
    return (field->min == 0 && field->max == 0) ||
           (value >= field->min && value <= field->max);
}

static bool names_it(const char *names, const char *name) {
    char copy[1024];
    assert_true(strlen(names) < sizeof copy);
    strcpy(copy, names);
    for (char *rest = copy, *one; (one = strsep(&rest, "|"));)
        if (strcmp(one, name) == 0) return true;
    return false;
}

static bool allows_scalar(const Field *field, FieldKind kind, const Tree *value) {
    switch (kind) {
    case FIELD_BOOL: return value->kind == TREE_BOOL;
    case FIELD_INT:
        return value->kind == TREE_INT && in_range(field, (double)value->integer);
    case FIELD_REAL:
        if (value->kind == TREE_INT) return in_range(field, (double)value->integer);
        return value->kind == TREE_FLOAT && isfinite(value->real) &&
               in_range(field, value->real);
    case FIELD_STRING:
        if (field->number && value->kind == TREE_INT) return value->integer >= 0;
        return value->kind == TREE_STRING && (field->empty || *value->string);
    default: return false;
    }
}

static bool allows_list(const Field *field, const Tree *value) {
    const FieldKind item = field->kind == FIELD_INTS    ? FIELD_INT
                           : field->kind == FIELD_REALS ? FIELD_REAL
                                                        : FIELD_STRING;
    if (value->kind != TREE_LIST) return false;
    if (value->count == 0 && field->required && !field->empty) return false;
    for (const Tree *child = value->first; child; child = child->next)
        if (!allows_scalar(field, item, child)) return false;
    return true;
}

static bool allows(const Field *field, const Tree *value, const void *defaults) {
    if (value->kind == TREE_NULL)
        return field->nullable || field_is_absent(field, defaults);
    switch (field->kind) {
    case FIELD_CHOICE:
        if (value->kind == TREE_BOOL)
            return names_it(field->choices, value->boolean ? "true" : "false");
        return value->kind == TREE_STRING && names_it(field->choices, value->string);
    case FIELD_INTS:
    case FIELD_REALS:
    case FIELD_STRINGS: return allows_list(field, value);
    case FIELD_TREE:
        if (!field->choices) return true;
        if (!names_it(field->choices, tree_kind_name(value->kind))) return false;
        return value->kind != TREE_STRING || *value->string || field->empty;
    default: return allows_scalar(field, field->kind, value);
    }
}

/* ---- a value of a row ---- */

static Tree *of_kind(Arena *arena, TreeKind kind) {
    Tree *tree = tree_new(arena, kind, AT);
    if (kind == TREE_STRING) tree->string = "x";
    return tree;
}

/* Some value that a required row takes. */
static Tree *some_value(Arena *arena, const Field *field) {
    Tree *value = of_kind(arena, TREE_INT), *list = of_kind(arena, TREE_LIST);
    switch (field->kind) {
    case FIELD_BOOL: return of_kind(arena, TREE_BOOL);
    case FIELD_INTS:
    case FIELD_INT:
    case FIELD_REALS:
    case FIELD_REAL:
        value->integer = in_range(field, 1) ? 1 : (int64_t)ceil(field->min);
        break;
    case FIELD_CHOICE:
        value = of_kind(arena, TREE_STRING);
        value->string =
            arena_strndup(arena, field->choices, strcspn(field->choices, "|"));
        break;
    case FIELD_TREE:
        if (field->choices && names_it(field->choices, "map"))
            return of_kind(arena, TREE_MAP);
        if (field->choices && names_it(field->choices, "list")) return list;
        value = of_kind(arena, TREE_STRING);
        break;
    default: value = of_kind(arena, TREE_STRING);
    }
    if (field->kind != FIELD_INTS && field->kind != FIELD_REALS &&
        field->kind != FIELD_STRINGS)
        return value;
    tree_append(arena, list, NULL, LOC_NONE, value);
    return list;
}

/* `passes: [{TABLE: {...}}]` with all required rows but `without`; returns the inner map.
 */
static Tree *make_map(Arena *arena, const Table *table, const Field *without) {
    Tree *root = of_kind(arena, TREE_MAP), *step = of_kind(arena, TREE_MAP),
         *map = of_kind(arena, TREE_MAP), *list = of_kind(arena, TREE_LIST);
    tree_append(arena, root, "passes", AT, list);
    tree_append(arena, list, NULL, AT, step);
    tree_append(arena, step, table->name, AT, map);
    for (const Field *field = table->fields; field->name; field++)
        if (field->required && field != without)
            tree_append(arena, map, field->name, AT, some_value(arena, field));
    return map;
}

/* ---- tries ---- */

/* Checks what was said: one message (a list: one for each item), at the place, under the
 * path, with what was expected. */
static void check_messages(const Diag *diag, const char *path, bool list) {
    char *text = diag_text(diag), want[512];
    snprintf(want, sizeof want, "%s:%d:%d: error: %s", AT.file, AT.line, AT.column, path);
    if (strncmp(text, want, strlen(want)) != 0)
        fail_msg("expected %s, found %s", want, text);
    if (!strstr(text, "expected ") && !strstr(text, "unknown key") &&
        !strstr(text, " needs "))
        fail_msg("says too little: %s", text);
    if (!list && diag_errors(diag) != 1) fail_msg("says too much: %s", text);
    free(text);
}

/* Binds the map to new defaults; `allowed`: what should become of the one at `path`. */
static void try_map(Sweep *sweep, const Table *table, const Tree *map, const char *path,
                    bool allowed, bool list, Arena *arena) {
    Diag *diag = diag_create();
    char *bound = arena_alloc(arena, table->size + 1);
    if (table->defaults) memcpy(bound, table->defaults, table->size);
    const Status status =
        fields_bind(table->fields, map, bound, arena, STATUS_RECIPE, diag);
    sweep->tries++;
    if (allowed != (status == STATUS_OK)) {
        char *text = diag_text(diag);
        fail_msg("%s: expected it to be %s: %s", path, allowed ? "taken" : "refused",
                 text);
    }
    if (!allowed) {
        assert_int_equal(status, STATUS_RECIPE);
        check_messages(diag, path, list);
        sweep->refused++;
    } else {
        assert_int_equal(diag_errors(diag), 0);
        if (table->follow) table->follow(table, map, bound, diag);
        sweep->taken++;
    }
    diag_destroy(diag);
}

static void try_value(Sweep *sweep, const Table *table, const Field *field, Tree *value,
                      Arena *arena) {
    char *zeros = arena_alloc(arena, table->size + 1);
    const void *defaults = table->defaults ? table->defaults : zeros;
    Tree *map = make_map(arena, table, field);
    tree_append(arena, map, field->name, AT, value);
    try_map(sweep, table, map, tree_path(arena, value), allows(field, value, defaults),
            value->kind == TREE_LIST, arena);
}

static Tree *of_number(Arena *arena, const Field *field, double value) {
    const bool integer = field->kind == FIELD_INT || field->kind == FIELD_INTS;
    const bool list = field->kind == FIELD_INTS || field->kind == FIELD_REALS;
    Tree *tree = of_kind(arena, integer ? TREE_INT : TREE_FLOAT);
    Tree *around = of_kind(arena, TREE_LIST);
    if (integer)
        tree->integer = (int64_t)value;
    else
        tree->real = value;
    if (!list) return tree;
    tree_append(arena, around, NULL, LOC_NONE, tree);
    return around;
}

/* The bounds, and what is just beyond them. */
static void try_bounds(Sweep *sweep, const Table *table, const Field *field,
                       Arena *arena) {
    const bool integer = field->kind == FIELD_INT || field->kind == FIELD_INTS;
    const bool number =
        integer || field->kind == FIELD_REAL || field->kind == FIELD_REALS;
    if (!number || (field->min == 0 && field->max == 0)) return;
    const double bounds[] = {field->min, field->max};
    for (int i = 0; i < 2; i++) {
        if (fabs(bounds[i]) > (integer ? 9e15 : 1e300)) continue;
        const double out = i ? INFINITY : -INFINITY;
        const double beyond =
            integer ? bounds[i] + (i ? 1 : -1) : nextafter(bounds[i], out);
        try_value(sweep, table, field, of_number(arena, field, bounds[i]), arena);
        try_value(sweep, table, field, of_number(arena, field, beyond), arena);
    }
}

static void try_keys(Sweep *sweep, const Table *table, Arena *arena) {
    Tree *map = make_map(arena, table, NULL), *odd = of_kind(arena, TREE_INT);
    try_map(sweep, table, map, "", true, false, arena);
    tree_append(arena, map, "no_such_key", AT, odd);
    try_map(sweep, table, map, tree_path(arena, odd), false, false, arena);
    for (const Field *field = table->fields; field->name; field++) {
        if (!field->required) continue;
        map = make_map(arena, table, field);
        const char *path =
            arena_printf(arena, "%s.%s", tree_path(arena, map), field->name);
        try_map(sweep, table, map, path, false, false, arena);
    }
}

/* What the table's own values print as binds again to the same: records hold null for
 * what is not given. */
static void try_round_trip(Sweep *sweep, const Table *table, Arena *arena) {
    char *values = arena_alloc(arena, table->size + 1);
    if (table->defaults) memcpy(values, table->defaults, table->size);
    Tree *map = fields_to_tree(arena, table->fields, values);
    for (const Field *field = table->fields; field->name; field++) {
        if (!field->required) continue;
        Tree *value = tree_get(map, field->name);
        Tree *some = some_value(arena, field);
        swap_value(value, some);
    }
    Diag *diag = diag_create();
    assert_ok(fields_bind(table->fields, map, values, arena, STATUS_RECIPE, diag), diag);
    diag_destroy(diag);
    sweep->tries++;
    sweep->taken++;
}

static void sweep_table(Sweep *sweep, const Table *table) {
    sweep->tables++;
    for (const Field *field = table->fields; field->name; field++) {
        Arena *arena = arena_create();
        sweep->rows++;
        assert_non_null(field->help);
        for (int i = 0; i < ODD_VALUES; i++)
            try_value(sweep, table, field, odd_value(arena, i, AT), arena);
        try_bounds(sweep, table, field, arena);
        arena_destroy(arena);
    }
    Arena *arena = arena_create();
    try_keys(sweep, table, arena);
    try_round_trip(sweep, table, arena);
    arena_destroy(arena);
}

static void report(const char *what, const Sweep *sweep) {
    print_message("%s: %d tables, %d rows, %d tries: %d refused, %d taken\n", what,
                  sweep->tables, sweep->rows, sweep->tries, sweep->refused, sweep->taken);
}

/* ---- the tables ---- */

static void test_ops(void **state) {
    (void)state;
    Sweep sweep = {0};
    const OpTable *ops = ops_table();
    for (int i = 0; i < ops->count; i++) {
        const Op *op = ops->ops[i];
        if (!op->fields) continue;
        const Table table = {.name = op->name,
                             .fields = op->fields,
                             .defaults = op->defaults,
                             .size = op->attrs_size};
        sweep_table(&sweep, &table);
    }
    report("attributes of ops", &sweep);
    assert_true(sweep.tables > 10);
}

/* The pass's own check of what was bound: whatever it says points at the recipe. */
static void follow_pass(const Table *table, const Tree *map, void *bound, Diag *diag) {
    const Pass *pass = table->owner;
    const StepSource source = {.at = AT, .key = "passes[0]", .options = map};
    if (!pass->check) return;
    const Status status = pass->check(bound, &source, diag);
    assert_true(status == STATUS_OK || status == STATUS_RECIPE);
    if (status != STATUS_OK) check_messages(diag, "", true);
}

static void test_passes(void **state) {
    (void)state;
    Sweep sweep = {0};
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        if (!(*pass)->fields) continue;
        const Table table = {.name = (*pass)->name,
                             .fields = (*pass)->fields,
                             .defaults = (*pass)->defaults,
                             .size = (*pass)->options_size,
                             .follow = follow_pass,
                             .owner = *pass};
        sweep_table(&sweep, &table);
    }
    report("options of passes", &sweep);
    assert_true(sweep.tables > 15);
}

/* The whole entry with `format`; then it is opened, which fails at the files. */
static void follow_format(const Table *table, const Tree *map, void *bound, Diag *diag) {
    const DataFormat *format = table->owner;
    Arena *arena = arena_create();
    Tree *entry = tree_copy(arena, map), *name = of_kind(arena, TREE_STRING);
    const DataFormat *found;
    Batches *data = NULL;
    void *options;
    (void)bound;
    name->string = format->name;
    tree_append(arena, entry, "format", AT, name);
    Status status = dataset_bind(&found, &options, arena, entry, "/nowhere", diag);
    if (status == STATUS_OK) {
        assert_ptr_equal(found, format);
        status = dataset_open(&data, format, options, AT, diag);
        assert_int_not_equal(status, STATUS_OK);
    }
    assert_int_not_equal(status, STATUS_INTERNAL);
    assert_true(diag_errors(diag) > 0);
    assert_null(data);
    arena_destroy(arena);
}

static void test_formats(void **state) {
    (void)state;
    Sweep sweep = {0};
    for (const DataFormat *const *format = dataformat_list(); *format; format++) {
        const Table table = {.name = (*format)->name,
                             .fields = (*format)->fields,
                             .defaults = (*format)->defaults,
                             .size = (*format)->options_size,
                             .follow = follow_format,
                             .owner = *format};
        sweep_table(&sweep, &table);
    }
    report("options of data formats", &sweep);
    assert_true(sweep.tables >= 8);
}

static void test_recipe_keys(void **state) {
    (void)state;
    Sweep sweep = {0};
    const Table tables[] = {
        {.name = "recipe",
         .fields = recipe_fields(),
         .defaults = recipe_key_defaults(),
         .size = sizeof(RecipeKeys)},
        {.name = "step",
         .fields = recipe_step_fields(),
         .defaults = recipe_step_defaults(),
         .size = sizeof(StepKeys)},
        {.name = "repeat",
         .fields = recipe_repeat_fields(),
         .defaults = recipe_repeat_defaults(),
         .size = sizeof(RepeatKeys)},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        sweep_table(&sweep, &tables[i]);
    report("keys of recipes", &sweep);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_recipe_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
