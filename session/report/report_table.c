/* Reports as rows: which columns there are, and what stands in each cell. */
#include "session/report/report_table.h"

#include "io/files/path.h"
#include "ir/name_map.h"
#include "passes/evaluate/metric.h"
#include "session/report/report_read.h"

#include <stdlib.h>
#include <string.h>

/* Most values of a recipe that are looked at. */
#define PATHS_MAX 4096

/* Keys of a recipe that say where results go, not how they come about. */
static const char *const NO_OPTIONS[] = {"name", "output", "threads"};

Status reports_read(Tree ***out, Arena *arena, const StringList *paths, Diag *diag) {
    *out = ARENA_ARRAY(arena, Tree *, (size_t)paths->count + 1);
    Status first = STATUS_OK;
    for (int i = 0; i < paths->count; i++) {
        const Status status = report_read(&(*out)[i], arena, paths->items[i], diag);
        if (first == STATUS_OK) first = status;
    }
    return first;
}

/* ---- cells ---- */

/* A value as it stands; lists and maps in JSON, NULL and null as nothing. */
static ReportCell cell_of(Arena *arena, const Tree *value) {
    ReportCell cell = {0};
    Text text = {0};
    if (!value || value->kind == TREE_NULL) return cell;
    cell.is_number = tree_number(value, &cell.number);
    if (value->kind == TREE_STRING)
        text_add(&text, "%s", value->string);
    else
        tree_print_json(&text, value, 0);
    cell.text = arena_strdup(arena, text.data ? text.data : "");
    text_free(&text);
    return cell;
}

static ReportCell cell_number(Arena *arena, double number) {
    Text text = {0};
    if (number == (double)(int64_t)number && number > -1e15 && number < 1e15)
        text_add(&text, "%lld", (long long)number);
    else
        text_real(&text, number);
    const ReportCell cell = {arena_strdup(arena, text.data), true, number};
    text_free(&text);
    return cell;
}

/* Name of a report: its file's, without folder and ending. */
static const char *report_name(Arena *arena, const char *path) {
    const char *name = path_base(arena, path);
    const size_t length = strlen(name);
    return length > 5 && text_ends_with(name, ".json")
               ? arena_strndup(arena, name, length - 5)
               : name;
}

/* A size of what came out: of the last step that has it; else what a gate of the plan
 * found; else of the input, where the run was done. */
static const Tree *last_size(const Tree *report, const char *key) {
    const Tree *steps = tree_get(report, "steps"), *gate = tree_get(report, "gate");
    const Tree *size = NULL;
    if (steps && steps->kind == TREE_LIST)
        for (const Tree *step = steps->first; step; step = step->next)
            if (tree_get(step, key)) size = tree_get(step, key);
    if (!size && tree_is_string(tree_get(gate, "metric"), key))
        return tree_get(gate, "found");
    if (size || !tree_is_string(tree_get(report, "status"), "done")) return size;
    return tree_get(tree_get(report, "input"), key);
}

/* Sum of a number over the members of a list; nothing where none has one. */
static ReportCell sum_of(Arena *arena, const Tree *list, const char *key) {
    double sum = 0, value;
    bool any = false;
    if (!list || list->kind != TREE_LIST) return (ReportCell){0};
    for (const Tree *item = list->first; item; item = item->next) {
        if (!tree_number(tree_get(item, key), &value)) continue;
        sum += value;
        any = true;
    }
    return any ? cell_number(arena, sum) : (ReportCell){0};
}

/* A value of the first member of a list: of several outputs, which hold the same model,
 * the first one counts. */
static ReportCell first_of(Arena *arena, const Tree *list, const char *key) {
    const bool any = list && list->kind == TREE_LIST && list->first;
    return any ? cell_of(arena, tree_get(list->first, key)) : (ReportCell){0};
}

static const char *string_of(const Tree *value) {
    return value && value->kind == TREE_STRING ? value->string : NULL;
}

/* Data set that an evaluate step measured on, NULL when it is no such step. */
static const char *measured_on(const Tree *step) {
    const char *pass = string_of(tree_get(step, "pass"));
    return pass && strcmp(pass, "evaluate") == 0
               ? string_of(tree_get(tree_get(step, "record"), "data"))
               : NULL;
}

/* A metric on a data set (NULL = any) as the last step measured it; the one of a gate
 * that failed counts as well. */
static ReportCell metric_cell(Arena *arena, const Tree *report, const char *metric,
                              const char *data) {
    const Tree *steps = tree_get(report, "steps"), *found = NULL;
    const Tree *gate = tree_get(report, "gate");
    const char *gated = string_of(tree_get(gate, "metric"));
    if (steps && steps->kind == TREE_LIST)
        for (const Tree *step = steps->first; step; step = step->next) {
            const char *on = measured_on(step);
            double value;
            if (!on || (data && strcmp(on, data) != 0)) continue;
            const Tree *measured = tree_get(tree_get(step, "record"), metric);
            if (tree_number(measured, &value)) found = measured;
        }
    if (gated && strcmp(gated, metric) == 0 && tree_get(gate, "found") && !found)
        found = tree_get(gate, "found");
    return cell_of(arena, found);
}

/* The value at a path of keys and of places in lists, NULL when there is none. */
static const Tree *value_at(Arena *arena, const Tree *tree, const char *path) {
    while (tree && *path) {
        const size_t length = strcspn(path, ".");
        const char *key = arena_strndup(arena, path, length);
        if (tree->kind == TREE_LIST) {
            char *end;
            unsigned long place = strtoul(key, &end, 10);
            const Tree *child = *end || !*key ? NULL : tree->first;
            while (child && place-- > 0) child = child->next;
            tree = child;
        } else {
            tree = tree_get(tree, key);
        }
        path += length + (path[length] == '.');
    }
    return tree;
}

/* ---- options that differ ---- */

/* The recipe of a report: resolved, else the options of its steps. */
static const Tree *recipe_of(const Tree *report) {
    const Tree *resolved = tree_get(tree_get(report, "recipe"), "resolved");
    return resolved ? resolved : tree_get(report, "steps");
}

/* Names of the passes in order, "distill\nevaluate\n": what reports of one recipe have in
 * common, as far as they came. */
static const char *passes_of(Arena *arena, const Tree *report) {
    const Tree *resolved = tree_get(tree_get(report, "recipe"), "resolved");
    const Tree *list =
        tree_get(resolved ? resolved : report, resolved ? "passes" : "steps");
    Text text = {0};
    if (list && list->kind == TREE_LIST)
        for (const Tree *step = list->first; step; step = step->next) {
            const char *name = !resolved ? string_of(tree_get(step, "pass"))
                               : step->kind == TREE_STRING ? step->string
                               : step->first               ? step->first->key
                                                           : NULL;
            text_add(&text, "%s\n", name ? name : "");
        }
    const char *copy = arena_strdup(arena, text.data ? text.data : "");
    text_free(&text);
    return copy;
}

static bool one_recipe(Arena *arena, Tree *const *reports, int count) {
    const char *first = count > 0 ? passes_of(arena, reports[0]) : "";
    bool same = count > 1;
    for (int i = 1; i < count && same; i++)
        same = strcmp(passes_of(arena, reports[i]), first) == 0;
    return same;
}

/* Paths of the values of a recipe. */
typedef struct PathList {
    Arena *arena;
    NameMap seen;
    const char **items;
    int count, capacity;
} PathList;

static void add_path(PathList *list, const char *path) {
    if (list->count == PATHS_MAX || !name_map_add(&list->seen, path, list)) return;
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 64;
        const char **items =
            ARENA_ARRAY(list->arena, const char *, (size_t)list->capacity);
        if (list->count > 0)
            memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
    }
    list->items[list->count++] = path;
}

/* Whether a key, below steps of a report without a recipe, is no option. */
static bool is_result(const Tree *parent, const char *key) {
    return tree_get(parent, "pass") && strcmp(key, "options") != 0;
}

static void add_paths(PathList *list, const char *prefix, const Tree *tree) {
    int i = 0;
    const bool of_maps =
        tree->kind == TREE_LIST && tree->first && tree->first->kind == TREE_MAP;
    if (tree->kind != TREE_MAP && !of_maps) {
        add_path(list, prefix);
        return;
    }
    for (const Tree *child = tree->first; child && list->count < PATHS_MAX;
         child = child->next, i++) {
        const char *dot = *prefix ? "." : "";
        bool skip = child->key && is_result(tree, child->key);
        for (size_t k = 0; !*prefix && k < sizeof NO_OPTIONS / sizeof *NO_OPTIONS; k++)
            skip |= child->key && strcmp(child->key, NO_OPTIONS[k]) == 0;
        if (skip) continue;
        const char *path =
            child->key ? arena_printf(list->arena, "%s%s%s", prefix, dot, child->key)
                       : arena_printf(list->arena, "%s%s%d", prefix, dot, i);
        add_paths(list, path, child);
    }
}

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Whether a value is not the same in all reports. */
static bool value_differs(Arena *arena, Tree *const *reports, int count,
                          const char *path) {
    const char *first = cell_of(arena, value_at(arena, recipe_of(reports[0]), path)).text;
    for (int i = 1; i < count; i++)
        if (!same_text(cell_of(arena, value_at(arena, recipe_of(reports[i]), path)).text,
                       first))
            return true;
    return false;
}

/* ---- columns ---- */

/* Where the cells of a column come from. */
typedef struct ColumnSource {
    const char *metric, *data; /* a metric; data NULL = any */
    const char *option;        /* path in the recipe */
    const char *path;          /* path in the report */
} ColumnSource;

typedef struct TableMaker {
    Arena *arena;
    ReportTable *out;
    const StringList *paths;
    Tree *const *reports;
    int count;
    ColumnSource sources[REPORT_COLUMNS];
    bool full; /* there were more columns than there is room for */
} TableMaker;

static void add_column(TableMaker *m, const char *name, ReportUnit unit,
                       ColumnSource source) {
    ReportTable *out = m->out;
    if (out->column_count == REPORT_COLUMNS) {
        m->full = true;
        return;
    }
    m->sources[out->column_count] = source;
    out->columns[out->column_count++] = (ReportColumn){.name = name, .unit = unit};
}

static const struct {
    const char *name;
    ReportUnit unit;
} FIXED[] = {{"report", UNIT_NONE},      {"recipe", UNIT_NONE},    {"status", UNIT_NONE},
             {"parameters", UNIT_COUNT}, {"bytes", UNIT_COUNT},    {"flops", UNIT_FLOPS},
             {"file_bytes", UNIT_COUNT}, {"seconds", UNIT_SECONDS}};

static ReportUnit fixed_unit(const char *name, bool *found) {
    for (size_t i = 0; i < sizeof FIXED / sizeof *FIXED; i++) {
        *found = strcmp(FIXED[i].name, name) == 0;
        if (*found) return FIXED[i].unit;
    }
    return UNIT_NONE;
}

static ReportCell fixed_cell(const TableMaker *m, const char *name, int row) {
    Arena *arena = m->arena;
    const Tree *report = m->reports[row], *seconds = tree_get(report, "seconds");
    double value;
    if (strcmp(name, "report") == 0)
        return (ReportCell){.text = report_name(arena, m->paths->items[row])};
    if (strcmp(name, "recipe") == 0) {
        const Tree *recipe = tree_get(report, "recipe"), *own = tree_get(recipe, "name");
        return cell_of(arena, own ? own : tree_get(recipe, "path"));
    }
    if (strcmp(name, "status") == 0) return cell_of(arena, tree_get(report, "status"));
    if (strcmp(name, "file_bytes") == 0)
        return first_of(arena, tree_get(tree_get(report, "output"), "files"), "bytes");
    if (strcmp(name, "seconds") == 0)
        return tree_number(seconds, &value)
                   ? cell_of(arena, seconds)
                   : sum_of(arena, tree_get(report, "steps"), "seconds");
    return cell_of(arena, last_size(report, name));
}

static ReportCell column_cell(const TableMaker *m, int column, int row) {
    const ColumnSource *source = &m->sources[column];
    const Tree *report = m->reports[row];
    if (source->metric)
        return metric_cell(m->arena, report, source->metric, source->data);
    if (source->option)
        return cell_of(m->arena, value_at(m->arena, recipe_of(report), source->option));
    if (source->path) return cell_of(m->arena, value_at(m->arena, report, source->path));
    return fixed_cell(m, m->out->columns[column].name, row);
}

/* ---- the usual columns ---- */

/* The end of a path that no other one has: "epochs", "distill.epochs". */
static const char *short_name(const PathList *list, const char *path) {
    const char *start = path + strlen(path);
    while (start > path) {
        bool unique = true;
        do start--;
        while (start > path && start[-1] != '.');
        for (int i = 0; i < list->count && unique; i++) {
            const size_t length = strlen(list->items[i]), own = strlen(start);
            unique = list->items[i] == path || length < own ||
                     strcmp(list->items[i] + length - own, start) != 0 ||
                     (length > own && list->items[i][length - own - 1] != '.');
        }
        if (unique) return start;
    }
    return path;
}

static void add_options(TableMaker *m) {
    PathList all = {.arena = m->arena, .seen = {.arena = m->arena}};
    PathList differ = {.arena = m->arena, .seen = {.arena = m->arena}};
    if (!one_recipe(m->arena, m->reports, m->count)) return;
    for (int i = 0; i < m->count; i++)
        if (recipe_of(m->reports[i])) add_paths(&all, "", recipe_of(m->reports[i]));
    for (int i = 0; i < all.count; i++)
        if (value_differs(m->arena, m->reports, m->count, all.items[i]))
            add_path(&differ, all.items[i]);
    for (int i = 0; i < differ.count; i++)
        add_column(m, short_name(&differ, differ.items[i]), UNIT_NONE,
                   (ColumnSource){.option = differ.items[i]});
}

/* Whether a name is one of METRIC_NAMES, which begin with "auto". */
static bool is_metric(const char *name) {
    const Field field = {.choices = METRIC_NAMES};
    for (int i = METRIC_AUTO + 1; i < METRIC_COUNT; i++) {
        int length;
        const char *own = field_choice_name(&field, i, &length);
        if (strlen(name) == (size_t)length && strncmp(own, name, (size_t)length) == 0)
            return true;
    }
    return false;
}

/* The metric that an evaluate step is about: the one it asks for, else the first that its
 * record has. */
static const char *metric_of(Arena *arena, const Tree *step) {
    const Field field = {.choices = METRIC_NAMES};
    const char *asked = string_of(tree_get(tree_get(step, "options"), "metric"));
    if (asked && is_metric(asked)) return asked;
    for (int i = METRIC_AUTO + 1; i < METRIC_COUNT; i++) {
        int length;
        const char *own = field_choice_name(&field, i, &length);
        const char *name = arena_strndup(arena, own, (size_t)length);
        double value;
        if (tree_number(tree_get(tree_get(step, "record"), name), &value)) return name;
    }
    return NULL;
}

/* Metrics with their data sets, each once. */
typedef struct MetricList {
    const char *metric[REPORT_COLUMNS], *data[REPORT_COLUMNS];
    int count;
} MetricList;

static void add_metric(MetricList *list, const char *metric, const char *data) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->metric[i], metric) == 0 &&
            (!data || !list->data[i] || strcmp(list->data[i], data) == 0)) {
            if (!list->data[i]) list->data[i] = data;
            return;
        }
    if (list->count == REPORT_COLUMNS) return;
    list->metric[list->count] = metric;
    list->data[list->count++] = data;
}

static void find_metrics(MetricList *list, Arena *arena, const Tree *report) {
    const Tree *steps = tree_get(report, "steps");
    const char *gated = string_of(tree_get(tree_get(report, "gate"), "metric"));
    if (steps && steps->kind == TREE_LIST)
        for (const Tree *step = steps->first; step; step = step->next) {
            const char *data = measured_on(step);
            const char *metric = data ? metric_of(arena, step) : NULL;
            if (metric) add_metric(list, metric, data);
        }
    if (gated && is_metric(gated)) add_metric(list, gated, NULL);
}

/* Whether some report has measured a metric on another data set than `data`; NULL = on
 * one that nobody knows, beside which there is no other. */
static bool is_of_several(const TableMaker *m, const char *metric, const char *data) {
    double value;
    for (int i = 0; i < m->count; i++) {
        const Tree *steps = tree_get(m->reports[i], "steps");
        if (!steps || steps->kind != TREE_LIST) continue;
        for (const Tree *step = steps->first; step; step = step->next) {
            const char *on = measured_on(step);
            if (on && data && strcmp(on, data) != 0 &&
                tree_number(tree_get(tree_get(step, "record"), metric), &value))
                return true;
        }
    }
    return false;
}

/* One column for each; with its data set where the metric is of several. */
static void add_metrics(TableMaker *m) {
    MetricList list = {0};
    for (int i = 0; i < m->count; i++) find_metrics(&list, m->arena, m->reports[i]);
    for (int i = 0; i < list.count; i++) {
        const bool several = is_of_several(m, list.metric[i], list.data[i]);
        const char *name =
            several ? arena_printf(m->arena, "%s (%s)", list.metric[i], list.data[i])
                    : list.metric[i];
        add_column(m, name, UNIT_METRIC,
                   (ColumnSource){.metric = list.metric[i], .data = list.data[i]});
    }
}

static void add_usual(TableMaker *m) {
    add_column(m, "report", UNIT_NONE, (ColumnSource){0});
    add_options(m);
    for (size_t i = 2; i + 1 < sizeof FIXED / sizeof *FIXED; i++)
        add_column(m, FIXED[i].name, FIXED[i].unit, (ColumnSource){0});
    add_metrics(m);
    add_column(m, "seconds", UNIT_SECONDS, (ColumnSource){0});
}

/* ---- columns by name ---- */

/* Fails, with the nearest of the usual names as a hint. */
static Status unknown_column(const TableMaker *m, const char *name, Diag *diag) {
    ReportTable usual = {0};
    TableMaker other = *m;
    const char *names[REPORT_COLUMNS];
    other.out = &usual;
    usual.column_count = 0;
    add_usual(&other);
    for (int i = 0; i < usual.column_count; i++) names[i] = usual.columns[i].name;
    Status status = diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                              "no report has a column \"%s\"", name);
    name_hint(diag, name, names, usual.column_count,
              "columns are those of the table, metrics, and keys of the report or of its "
              "recipe, as in passes.0.distill.epochs");
    return status;
}

/* The column that a name stands for, found in the usual ones first. */
static Status name_column(TableMaker *m, const TableMaker *usual, const char *name,
                          Diag *diag) {
    bool fixed;
    const ReportUnit unit = fixed_unit(name, &fixed);
    for (int i = 0; i < usual->out->column_count; i++)
        if (strcmp(usual->out->columns[i].name, name) == 0) {
            add_column(m, name, usual->out->columns[i].unit, usual->sources[i]);
            return STATUS_OK;
        }
    if (fixed) {
        add_column(m, name, unit, (ColumnSource){0});
        return STATUS_OK;
    }
    const ColumnSource sources[] = {{.metric = name}, {.path = name}, {.option = name}};
    for (size_t s = 0; s < 3; s++)
        for (int i = 0; i < m->count; i++) {
            const Tree *report = m->reports[i];
            const bool there =
                s == 0   ? metric_cell(m->arena, report, name, NULL).text != NULL
                : s == 1 ? value_at(m->arena, report, name) != NULL
                         : value_at(m->arena, recipe_of(report), name) != NULL;
            if (!there) continue;
            add_column(m, name, s == 0 ? UNIT_METRIC : UNIT_NONE, sources[s]);
            return STATUS_OK;
        }
    return unknown_column(m, name, diag);
}

static Status name_columns(TableMaker *m, const char *names, Diag *diag) {
    ReportTable table = {0};
    TableMaker *usual = ARENA_NEW(m->arena, TableMaker);
    *usual = *m;
    usual->out = &table;
    add_usual(usual);
    for (const char *at = names; *at;) {
        const size_t length = strcspn(at, ",");
        const char *name = arena_strndup(m->arena, at, length);
        if (!*name)
            return diag_fail(
                diag, STATUS_USAGE, LOC_NONE, "--columns",
                "expected names of columns separated by commas, found \"%s\"", names);
        TRY(name_column(m, usual, name, diag));
        at += length + (at[length] == ',');
    }
    return STATUS_OK;
}

/* ---- rows ---- */

/* A row with what it is sorted by. */
typedef struct SortRow {
    ReportCell key;
    int row;
    bool largest_first;
} SortRow;

/* Numbers before texts, nothing last; equal ones as they were. */
static int compare_rows(const void *a, const void *b) {
    const SortRow *x = a, *y = b;
    const int kind_x = !x->key.text ? 2 : !x->key.is_number;
    const int kind_y = !y->key.text ? 2 : !y->key.is_number;
    int order = 0;
    if (kind_x != kind_y) return kind_x - kind_y;
    if (kind_x == 0)
        order = (x->key.number > y->key.number) - (x->key.number < y->key.number);
    else if (kind_x == 1)
        order = strcmp(x->key.text, y->key.text);
    if (order == 0) return x->row - y->row;
    return x->largest_first ? -order : order;
}

/* Puts the order of the rows into `order`. */
static Status sort_rows(const TableMaker *m, int *order, const char *by, Diag *diag) {
    const bool largest_first = by && *by == '-';
    SortRow *rows = ARENA_ARRAY(m->arena, SortRow, (size_t)m->count + 1);
    TableMaker *keys = ARENA_NEW(m->arena, TableMaker);
    ReportTable table = {0};
    *keys = *m;
    keys->out = &table;
    if (by) TRY(name_columns(keys, by + largest_first, diag));
    if (by && table.column_count != 1)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--sort",
                         "expected the name of one column, found \"%s\"", by);
    for (int i = 0; i < m->count; i++)
        rows[i] =
            (SortRow){by ? column_cell(keys, 0, i) : (ReportCell){0}, i, largest_first};
    if (by) qsort(rows, (size_t)m->count, sizeof *rows, compare_rows);
    for (int i = 0; i < m->count; i++) order[i] = rows[i].row;
    return STATUS_OK;
}

Status report_table_make(ReportTable *out, Arena *arena, const StringList *paths,
                         Tree *const *reports, const ReportTableOptions *options,
                         Diag *diag) {
    TableMaker *m = ARENA_NEW(arena, TableMaker);
    int *order = ARENA_ARRAY(arena, int, (size_t)paths->count + 1);
    *out = (ReportTable){.rows = paths->count};
    *m = (TableMaker){.arena = arena,
                      .out = out,
                      .paths = paths,
                      .reports = reports,
                      .count = paths->count};
    if (options->columns)
        TRY(name_columns(m, options->columns, diag));
    else
        add_usual(m);
    if (m->full)
        diag_warn(diag, LOC_NONE, NULL,
                  "there are more than %d columns: choose with --columns",
                  REPORT_COLUMNS);
    TRY(sort_rows(m, order, options->sort, diag));
    out->cells =
        ARENA_ARRAY(arena, ReportCell, (size_t)out->rows * (size_t)out->column_count + 1);
    for (int c = 0; c < out->column_count; c++) {
        out->columns[c].numbers = true;
        for (int r = 0; r < out->rows; r++) {
            const ReportCell cell = column_cell(m, c, order[r]);
            out->cells[r * out->column_count + c] = cell;
            out->columns[c].numbers &= !cell.text || cell.is_number;
        }
    }
    return STATUS_OK;
}
