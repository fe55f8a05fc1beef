/* Formulas of cases: see formula.h.
 *
 * A recursive-descent parser evaluates as it reads. Every value carries a bound on the
 * error that float32 arithmetic makes when it is computed so. */
#include "tests/support/formula.h"

#include "ir/storage.h"
#include "passes/measure.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"

#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON (1.0 / (1 << 24))

enum { NAME_BYTES = 200, OUTPUT_MOST = 1 << 16 };

typedef struct Value {
    int rank;
    int64_t dim[RANK_MAX];
    int64_t count;
    double *v, *error; /* elements, and how far float32 arithmetic may be off */
} Value;

typedef struct Formula {
    Arena *arena;
    Model *model, *was;
    const char *line, *at; /* the line, and the place in it */
    const Value *like;     /* whose shape index, row and column have */
} Formula;

__attribute__((noreturn, format(printf, 2, 3))) static void
wrong(const Formula *f, const char *format, ...) {
    char text[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail_msg("formula: %.*s\n    %s, before: %.40s", (int)strcspn(f->line, "\n"), f->line,
             text, f->at);
    abort(); /* fail_msg does not return, but is not declared so */
}

/* ---- values ---- */

static Value value_new(Formula *f, int rank, const int64_t *dim) {
    Value value = {.rank = rank, .count = 1};
    for (int i = 0; i < rank; i++) value.count *= value.dim[i] = dim[i];
    value.v = ARENA_ARRAY(f->arena, double, (size_t)value.count + 1);
    value.error = ARENA_ARRAY(f->arena, double, (size_t)value.count + 1);
    return value;
}

static Value number_value(Formula *f, double number) {
    Value value = value_new(f, 0, NULL);
    value.v[0] = number;
    return value;
}

static Value tensor_value(Formula *f, const Tensor *tensor) {
    Value value = value_new(f, tensor->rank, tensor->dim);
    if (!tensor_data(tensor)) wrong(f, "the weights have no data");
    tensor_read_f64(tensor, 0, value.count, value.v);
    return value;
}

static double combine_one(char sign, double x, double y) {
    switch (sign) {
    case '+': return x + y;
    case '-': return x - y;
    case '*': return x * y;
    default: return x / y;
    }
}

/* x SIGN y; one of them is repeated when its count divides the other's. */
static Value combine(Formula *f, char sign, const Value *x, const Value *y) {
    const Value *large = x->count >= y->count ? x : y;
    const Value *small = large == x ? y : x;
    if (large->count % small->count) wrong(f, "shapes do not fit");
    Value out = value_new(f, large->rank, large->dim);
    for (int64_t i = 0; i < out.count; i++) {
        const int64_t a = i % x->count, b = i % y->count;
        const double v = combine_one(sign, x->v[a], y->v[b]);
        double error = x->error[a] + y->error[b];
        if (sign == '*')
            error = fabs(x->v[a]) * y->error[b] + fabs(y->v[b]) * x->error[a];
        if (sign == '/') error = (x->error[a] + fabs(v) * y->error[b]) / fabs(y->v[b]);
        out.v[i] = v;
        out.error[i] = error + EPSILON * fabs(v);
    }
    return out;
}

static double gelu(double x) {
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double relu(double x) {
    return x > 0 ? x : 0;
}

/* Functions of one element, with a bound on the slope near x. */
static const struct {
    const char *name;
    double (*call)(double x);
} ELEMENT_FUNCTIONS[] = {{"abs", fabs},  {"sqrt", sqrt}, {"exp", exp},  {"log", log},
                         {"tanh", tanh}, {"relu", relu}, {"gelu", gelu}};

static Value map_elements(Formula *f, double (*call)(double), const Value *x) {
    Value out = value_new(f, x->rank, x->dim);
    for (int64_t i = 0; i < x->count; i++) {
        const double v = call(x->v[i]), e = x->error[i];
        const double up = fabs(call(x->v[i] + e) - v), down = fabs(call(x->v[i] - e) - v);
        out.v[i] = v;
        out.error[i] = fmax(up, down) + 4 * EPSILON * fabs(v);
    }
    return out;
}

/* Sums, extremes and counts of all elements. */
static Value reduce(Formula *f, const char *name, const Value *x) {
    Value out = value_new(f, 0, NULL);
    const double n = (double)x->count;
    double sum = 0, squares = 0, most = -INFINITY, least = INFINITY, zeros = 0;
    for (int64_t i = 0; i < x->count; i++) {
        const double v = x->v[i];
        sum += v;
        squares += v * v;
        most = fmax(most, v);
        least = fmin(least, v);
        zeros += v == 0;
        out.error[0] += x->error[i] + (n + 1) * EPSILON * fabs(v);
    }
    double spread = 0;
    for (int64_t i = 0; i < x->count; i++) spread += pow(x->v[i] - sum / n, 2);
    const struct {
        const char *name;
        double v;
    } all[] = {{"sum", sum},   {"mean", sum / n},      {"variance", spread / n},
               {"min", least}, {"max", most},          {"zeros", zeros},
               {"count", n},   {"norm", sqrt(squares)}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name)) continue;
        out.v[0] = all[i].v;
        if (strcmp(name, "sum")) out.error[0] /= n;
        return out;
    }
    wrong(f, "there is no function %s", name);
}

static Value matrix_product(Formula *f, const Value *x, const Value *y) {
    if (x->rank != 2 || y->rank < 1 || y->rank > 2 || x->dim[1] != y->dim[0])
        wrong(f, "the matrices do not fit");
    const int64_t rows = x->dim[0], inner = x->dim[1];
    const int64_t columns = y->rank == 2 ? y->dim[1] : 1;
    Value out = value_new(f, y->rank, (int64_t[]){rows, columns});
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t k = 0; k < inner; k++) {
                const int64_t a = i * inner + k, b = k * columns + j;
                const double v = x->v[a] * y->v[b];
                out.v[i * columns + j] += v;
                out.error[i * columns + j] += fabs(x->v[a]) * y->error[b] +
                                              fabs(y->v[b]) * x->error[a] +
                                              (double)(inner + 1) * EPSILON * fabs(v);
            }
    return out;
}

static Value transposed(Formula *f, const Value *x) {
    if (x->rank != 2) wrong(f, "t needs a matrix");
    Value out = value_new(f, 2, (int64_t[]){x->dim[1], x->dim[0]});
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t to = i % x->dim[1] * x->dim[0] + i / x->dim[1];
        out.v[to] = x->v[i];
        out.error[to] = x->error[i];
    }
    return out;
}

static Value kept_entries(Formula *f, const Value *x, const Value *axis,
                          const Value *entries) {
    const int a = (int)axis->v[0];
    if (a < 0 || a >= x->rank) wrong(f, "there is no such axis");
    int64_t dim[RANK_MAX], inner = 1;
    memcpy(dim, x->dim, sizeof dim);
    dim[a] = entries->count;
    for (int i = a + 1; i < x->rank; i++) inner *= x->dim[i];
    Value out = value_new(f, x->rank, dim);
    for (int64_t i = 0; i < out.count; i++) {
        const int64_t entry = (int64_t)entries->v[i / inner % dim[a]];
        if (entry < 0 || entry >= x->dim[a]) wrong(f, "there is no entry %d", (int)entry);
        const int64_t from = (i / inner / dim[a] * x->dim[a] + entry) * inner + i % inner;
        out.v[i] = x->v[from];
        out.error[i] = x->error[from];
    }
    return out;
}

static Value joined(Formula *f, const Value *x, const Value *y) {
    int64_t dim[RANK_MAX] = {1};
    memcpy(dim, x->dim, sizeof dim);
    const int64_t row = x->rank > 1 ? x->count / x->dim[0] : 1;
    dim[0] = (x->count + y->count) / row;
    Value out = value_new(f, x->rank > 0 ? x->rank : 1, dim);
    for (int64_t i = 0; i < out.count; i++) {
        const bool first = i < x->count;
        out.v[i] = first ? x->v[i] : y->v[i - x->count];
        out.error[i] = first ? x->error[i] : y->error[i - x->count];
    }
    return out;
}

static Value softmax_rows(Formula *f, const Value *x) {
    Value out = map_elements(f, exp, x);
    const int64_t row = x->rank > 0 ? x->dim[x->rank - 1] : 1;
    for (int64_t i = 0; i < x->count; i += row) {
        double sum = 0;
        for (int64_t k = 0; k < row; k++) sum += out.v[i + k];
        for (int64_t k = 0; k < row; k++) {
            out.v[i + k] /= sum;
            out.error[i + k] = (double)(row + 4) * EPSILON;
        }
    }
    return out;
}

static Value as_matrix(Formula *f, const Value *x, const Value *rows,
                       const Value *columns) {
    Value out = *x;
    out.rank = 2;
    out.dim[0] = (int64_t)rows->v[0];
    out.dim[1] = (int64_t)columns->v[0];
    if (out.dim[0] * out.dim[1] != x->count) wrong(f, "the matrix has another size");
    return out;
}

static Value shaped_like(Formula *f, const Value *x, const Value *like) {
    if (x->count != like->count) wrong(f, "the shapes have other numbers of elements");
    Value out = *x;
    out.rank = like->rank;
    memcpy(out.dim, like->dim, sizeof out.dim);
    return out;
}

/* ---- what a model has ---- */

/* Splits "encoder.0.q" in place: the stack stays in `name`; the layer is -1 for none. */
static void split_place(char *name, int *layer, const char **last) {
    char *dot = strrchr(name, '.');
    *layer = -1;
    *last = NULL;
    if (dot) {
        *dot = 0;
        *last = dot + 1;
    }
    dot = strrchr(name, '.');
    if (dot && isdigit((unsigned char)dot[1])) {
        *layer = atoi(dot + 1);
        *dot = 0;
    }
}

/* Storage that a name of weights means. */
static Storage *named_storage(Formula *f, Model *model, const char *name) {
    char copy[NAME_BYTES];
    snprintf(copy, sizeof copy, "%s", name);
    if (*name == '@') {
        Storage *storage = graph_storage(model->graph, name + 1);
        if (!storage) wrong(f, "there is no storage %s", name + 1);
        return storage;
    }
    char *operand = strrchr(copy, '.');
    if (!operand) wrong(f, "there is no %s", name);
    *operand++ = 0;
    int layer;
    const char *role;
    split_place(copy, &layer, &role);
    const Role which = role ? role_parse(role) : ROLE_COUNT;
    const Node *node =
        which < ROLE_COUNT ? graph_find(model->graph, copy, layer, which) : NULL;
    const int index = node ? op_operand_index(node->op, operand) : -1;
    if (index < 0 || !node_has(node, index) || !node->in[index]->storage)
        wrong(f, "there are no weights %s", name);
    return node->in[index]->storage;
}

static double count_uses(const Model *model, const Storage *storage) {
    double uses = 0;
    for (const Node *node = model->graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            uses += node->in[i] && node->in[i]->storage == storage;
    return uses;
}

static Value model_output(Formula *f, Model *model, const char *name) {
    double *values = ARENA_ARRAY(f->arena, double, OUTPUT_MOST);
    if (!graph_output(model->graph, name)) wrong(f, "there is no output %s", name);
    const int64_t count = configured_run(model, name, 0, values, OUTPUT_MOST);
    Value out = value_new(f, 1, &count);
    memcpy(out.v, values, (size_t)count * sizeof *values);
    return out;
}

/* Heads of the attention, or units of the feed-forward block, of a layer. */
static double layer_size(Formula *f, const Model *model, const char *place, Role role) {
    char name[NAME_BYTES];
    int layer;
    const char *last;
    snprintf(name, sizeof name, "%.*s.", NAME_BYTES - 2, place);
    split_place(name, &layer, &last);
    const Node *node = graph_find(model->graph, name, layer, role);
    if (!node) return 0;
    if (role == ROLE_FFN_IN) return (double)node->type.dim[node->type.rank - 1];
    Text attrs = {0};
    fields_print(&attrs, node->op->fields, node->attrs, NULL);
    const char *heads = attrs.data ? strstr(attrs.data, "heads=") : NULL;
    if (!heads) wrong(f, "%s has no heads", place);
    const double count = atof(heads + strlen("heads="));
    text_free(&attrs);
    return count;
}

static Value recorded(Formula *f, const Model *model, const char *name) {
    const Tree *tree = model->provenance;
    const char *path = name + strcspn(name, ".");
    if (strncmp(name, "record", 6) == 0) {
        const Tree *steps = tree_get(tree, "steps");
        const int step = atoi(name + 6);
        const Tree *one = steps ? (step ? steps->first : steps->last) : NULL;
        for (int i = 1; one && i < step; i++) one = one->next;
        tree = tree_get(one, "record");
    }
    while (tree && *path == '.') {
        char key[NAME_BYTES];
        const int length = (int)strcspn(++path, ".");
        snprintf(key, sizeof key, "%.*s", length, path);
        path += length;
        if (tree->kind == TREE_LIST) {
            const Tree *item = tree->first;
            for (int i = atoi(key); item && i > 0; i--) item = item->next;
            tree = item;
        } else {
            tree = tree_get(tree, key);
        }
    }
    if (!tree) {
        Text all = {0};
        tree_print_json(&all, model->provenance, 0);
        wrong(f, "there is no %s in %s", name, all.data);
    }
    if (tree->kind == TREE_LIST) {
        const int64_t count = tree->count;
        Value list = value_new(f, 1, &count);
        int64_t i = 0;
        for (const Tree *item = tree->first; item; item = item->next)
            list.v[i++] = item->kind == TREE_INT ? (double)item->integer : item->real;
        return list;
    }
    switch (tree->kind) {
    case TREE_BOOL: return number_value(f, tree->boolean);
    case TREE_INT: return number_value(f, (double)tree->integer);
    case TREE_FLOAT: return number_value(f, tree->real);
    default: wrong(f, "%s is no number", name);
    }
}

static Value measured(Formula *f, Model *model, const char *name, bool *known) {
    Measure measure = {0};
    *known = true;
    if (strcmp(name, "nodes") == 0) {
        double nodes = 0;
        for (const Node *n = model->graph->first; n; n = n->next)
            nodes += !node_is_leaf(n);
        return number_value(f, nodes);
    }
    if (strcmp(name, "storages") == 0)
        return number_value(f, model->graph->storage_count);
    if (strcmp(name, "gaussians") == 0)
        return number_value(f, graph_gaussian_count(model->graph));
    *known = strcmp(name, "parameters") == 0 || strcmp(name, "bytes") == 0 ||
             strcmp(name, "flops") == 0;
    Diag *diag = diag_create();
    if (*known) assert_ok(model_measure(&measure, model, diag), diag);
    diag_destroy(diag);
    return number_value(f, *name == 'p'   ? (double)measure.parameters
                           : *name == 'b' ? (double)measure.bytes
                                          : measure.flops);
}

static Value coordinate(Formula *f, const char *name) {
    if (!f->like) wrong(f, "%s has no shape here", name);
    Value out = value_new(f, f->like->rank, f->like->dim);
    const int64_t row = out.rank > 0 ? out.dim[out.rank - 1] : 1;
    for (int64_t i = 0; i < out.count; i++)
        out.v[i] = (double)(*name == 'i' ? i : *name == 'r' ? i / row : i % row);
    return out;
}

static Value gaussian_value(Formula *f, const Storage *storage, bool mean) {
    Value out = value_new(f, storage->tensor.rank, storage->tensor.dim);
    if (!storage->gaussian) wrong(f, "%s has no Gaussian", storage->name);
    (mean ? gaussian_mean_f64 : gaussian_variance_f64)(storage->gaussian, 0, out.count,
                                                       out.v);
    return out;
}

/* ---- parsing ---- */

static Value parse_sum(Formula *f);

static void skip_spaces(Formula *f) {
    while (*f->at == ' ') f->at++;
}

static bool accept(Formula *f, const char *what) {
    skip_spaces(f);
    if (strncmp(f->at, what, strlen(what))) return false;
    f->at += strlen(what);
    return true;
}

static void expect(Formula *f, const char *what) {
    if (!accept(f, what)) wrong(f, "expected %s", what);
}

/* Reads a name; an '@' in front lets it have any character of storages' names. */
static void parse_name(Formula *f, char name[NAME_BYTES]) {
    skip_spaces(f);
    size_t length = 0;
    const bool storage = *f->at == '@';
    while (isalnum((unsigned char)f->at[length]) || f->at[length] == '_' ||
           f->at[length] == '.' ||
           (storage && f->at[length] && strchr("@-*?", f->at[length])))
        length++;
    if (length == 0 || length >= NAME_BYTES) wrong(f, "expected a name");
    snprintf(name, NAME_BYTES, "%.*s", (int)length, f->at);
    f->at += length;
}

/* What stands between '[' and ']': numbers, ranges, or vectors. */
static Value parse_list(Formula *f) {
    Value list = value_new(f, 1, (int64_t[]){0});
    int64_t rows = 0;
    bool nested = false;
    do {
        Value next = parse_sum(f);
        nested |= next.rank == 1;
        if (accept(f, "..")) {
            const Value last = parse_sum(f);
            const int64_t count = (int64_t)(last.v[0] - next.v[0]) + 1;
            const double first = next.v[0];
            next = value_new(f, 1, &count);
            for (int64_t i = 0; i < count; i++) next.v[i] = first + (double)i;
            nested = false;
        }
        list = rows++
                   ? joined(f, &list, &next)
                   : shaped_like(
                         f, &next,
                         &(Value){.rank = 1, .dim = {next.count}, .count = next.count});
    } while (accept(f, ","));
    expect(f, "]");
    if (nested && rows > 0)
        list = shaped_like(
            f, &list,
            &(Value){.rank = 2, .dim = {rows, list.count / rows}, .count = list.count});
    return list;
}

/* Functions of a model, whose argument is a name. False when there is no such function.
 */
static bool parse_model_function(Formula *f, Model *model, const char *name, Value *out) {
    static const char *const NAMES[] = {
        "layers", "heads",     "width",         "uses",
        "output", "deviation", "gaussian_mean", "gaussian_variance"};
    char argument[NAME_BYTES];
    bool known = false;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        known |= strcmp(name, NAMES[i]) == 0;
    if (!known) return false;
    parse_name(f, argument);
    expect(f, ")");
    switch (name[0]) {
    case 'l': *out = number_value(f, graph_layer_count(model->graph, argument)); break;
    case 'h':
        *out = number_value(f, layer_size(f, model, argument, ROLE_ATTENTION));
        break;
    case 'w': *out = number_value(f, layer_size(f, model, argument, ROLE_FFN_IN)); break;
    case 'u':
        *out = number_value(f, count_uses(model, named_storage(f, model, argument)));
        break;
    case 'o': *out = model_output(f, model, argument); break;
    case 'd': {
        const Value now = model_output(f, model, argument);
        const Value then = model_output(f, f->was, argument);
        if (now.count != then.count) wrong(f, "the output has another size");
        *out = value_new(f, 0, NULL);
        for (int64_t i = 0; i < now.count; i++)
            out->v[0] = fmax(out->v[0], fabs(now.v[i] - then.v[i]));
        break;
    }
    default: *out = gaussian_value(f, named_storage(f, model, argument), name[9] == 'm');
    }
    return true;
}

static Value parse_call(Formula *f, Model *model, const char *name) {
    Value argument[3], out;
    if (parse_model_function(f, model, name, &out)) return out;
    int count = 0;
    do argument[count++] = parse_sum(f);
    while (count < 3 && accept(f, ","));
    expect(f, ")");
    for (size_t i = 0; i < sizeof ELEMENT_FUNCTIONS / sizeof *ELEMENT_FUNCTIONS; i++)
        if (strcmp(name, ELEMENT_FUNCTIONS[i].name) == 0)
            return map_elements(f, ELEMENT_FUNCTIONS[i].call, &argument[0]);
    if (strcmp(name, "t") == 0) return transposed(f, &argument[0]);
    if (strcmp(name, "softmax") == 0) return softmax_rows(f, &argument[0]);
    if (count == 1) return reduce(f, name, &argument[0]);
    if (strcmp(name, "product") == 0)
        return matrix_product(f, &argument[0], &argument[1]);
    if (strcmp(name, "join") == 0) return joined(f, &argument[0], &argument[1]);
    if (strcmp(name, "matrix") == 0 && count == 3)
        return as_matrix(f, &argument[0], &argument[1], &argument[2]);
    if (strcmp(name, "keep") == 0 && count == 3)
        return kept_entries(f, &argument[0], &argument[1], &argument[2]);
    wrong(f, "there is no function %s of %d arguments", name, count);
}

static Value parse_named(Formula *f) {
    char name[NAME_BYTES];
    bool known;
    Model *model = f->model;
    parse_name(f, name);
    if (strcmp(name, "was") == 0) {
        model = f->was;
        parse_name(f, name);
    }
    if (accept(f, "(")) return parse_call(f, model, name);
    if (strcmp(name, "index") == 0 || strcmp(name, "row") == 0 ||
        strcmp(name, "column") == 0)
        return coordinate(f, name);
    if (strncmp(name, "record", 6) == 0 || strncmp(name, "stored.", 7) == 0)
        return recorded(f, model, name);
    Value value = measured(f, model, name, &known);
    return known ? value : tensor_value(f, &named_storage(f, model, name)->tensor);
}

static Value parse_factor(Formula *f) {
    skip_spaces(f);
    if (accept(f, "-")) {
        Value value = parse_factor(f), zero = number_value(f, 0);
        return combine(f, '-', &zero, &value);
    }
    if (accept(f, "(")) {
        Value value = parse_sum(f);
        expect(f, ")");
        return value;
    }
    if (accept(f, "[")) return parse_list(f);
    if (!isdigit((unsigned char)*f->at)) return parse_named(f);
    char *end;
    const size_t whole = strspn(f->at, "0123456789");
    if (strncmp(f->at + whole, "..", 2) == 0) { /* the begin of a range */
        const double first = atof(f->at);
        f->at += whole;
        return number_value(f, first);
    }
    const double number = strtod(f->at, &end);
    f->at = end;
    return number_value(f, number);
}

static Value parse_product(Formula *f) {
    Value value = parse_factor(f);
    for (;;) {
        skip_spaces(f);
        const char sign = *f->at;
        if (sign != '*' && sign != '/') return value;
        f->at++;
        const Value next = parse_factor(f);
        value = combine(f, sign, &value, &next);
    }
}

static Value parse_sum(Formula *f) {
    Value value = parse_product(f);
    for (;;) {
        skip_spaces(f);
        const char sign = *f->at;
        if (sign != '+' && sign != '-') return value;
        f->at++;
        const Value next = parse_product(f);
        value = combine(f, sign, &value, &next);
    }
}

static bool line_end(Formula *f) {
    skip_spaces(f);
    return *f->at == 0 || *f->at == '\n' || *f->at == '#';
}

/* ---- lines ---- */

static void next_line(const char **lines) {
    *lines += strcspn(*lines, "\n");
    *lines += **lines == '\n';
}

static void assign(Formula *f, Storage *storage) {
    Diag *diag = diag_create();
    Tensor tensor = {0};
    const Value like = {.rank = storage->tensor.rank, .count = 1};
    Value shape = like;
    memcpy(shape.dim, storage->tensor.dim, sizeof shape.dim);
    for (int i = 0; i < shape.rank; i++) shape.count *= shape.dim[i];
    f->like = &shape;
    const Value value = parse_sum(f);
    if (!line_end(f)) wrong(f, "expected the end of the line");
    if (shape.count % value.count) wrong(f, "the shapes do not fit");
    assert_ok(tensor_create(&tensor, DTYPE_F32, shape.rank, shape.dim, diag), diag);
    float *data = NULL;
    assert_ok(tensor_writable(&tensor, (void **)&data, diag), diag);
    for (int64_t i = 0; i < shape.count; i++) data[i] = (float)value.v[i % value.count];
    tensor_release(&storage->tensor);
    storage->tensor = tensor;
    diag_destroy(diag);
}

void formula_assign(Model *model, const char *lines) {
    for (; *lines; next_line(&lines)) {
        Formula f = {arena_create(), model, model, lines, lines, NULL};
        char name[NAME_BYTES];
        if (!line_end(&f)) {
            parse_name(&f, name);
            expect(&f, "=");
            const char *right = f.at;
            int count = 0;
            for (int i = 0; *name == '@' && i < model->graph->storage_count; i++) {
                Storage *storage = model->graph->storages[i];
                if (fnmatch(name + 1, storage->name, 0)) continue;
                f.at = right;
                assign(&f, storage);
                count++;
            }
            if (*name != '@')
                assign(&f, named_storage(&f, model, name));
            else if (count == 0)
                wrong(&f, "no storage is called %s", name);
        }
        arena_destroy(f.arena);
    }
}

/* Whether left RELATION right holds for all elements; `worst` gets the index of the first
 * that does not. */
static bool holds(const char *relation, const Value *left, const Value *right,
                  double within, int64_t *worst) {
    for (*worst = 0; *worst < left->count; ++*worst) {
        const int64_t k = *worst % right->count;
        const double l = left->v[*worst], r = right->v[k];
        const double bound =
            within >= 0 ? within
                        : left->error[*worst] + right->error[k] + EPSILON * fabs(r);
        const bool fine = *relation == '~'   ? fabs(l - r) <= bound
                          : *relation == '=' ? l == r
                          : *relation == '<' ? (relation[1] ? l <= r : l < r)
                                             : (relation[1] ? l >= r : l > r);
        if (!fine) return false;
    }
    return true;
}

static bool check_line(Formula *f) {
    static const char *const RELATIONS[] = {"<=", ">=", "=", "~", "<", ">"};
    const char *relation = NULL;
    const Value left = parse_sum(f);
    for (size_t i = 0; !relation && i < sizeof RELATIONS / sizeof *RELATIONS; i++)
        if (accept(f, RELATIONS[i])) relation = RELATIONS[i];
    if (!relation) wrong(f, "expected a relation");
    f->like = &left;
    const Value right = parse_sum(f);
    const double within = accept(f, "within") ? parse_sum(f).v[0] : -1;
    if (!line_end(f)) wrong(f, "expected the end of the line");
    const bool fits =
        right.count == 1 ||
        (left.count == right.count && left.rank == right.rank &&
         !memcmp(left.dim, right.dim, (size_t)left.rank * sizeof *left.dim));
    int64_t worst = 0;
    if (fits && holds(relation, &left, &right, within, &worst)) return true;
    const int length = (int)strcspn(f->line, "\n");
    if (!fits)
        print_error("does not hold: %.*s\n    %d values against %d\n", length, f->line,
                    (int)left.count, (int)right.count);
    else
        print_error(
            "does not hold: %.*s\n    value %d: %.17g against %.17g, bound %.3g\n",
            length, f->line, (int)worst, left.v[worst], right.v[worst % right.count],
            within >= 0 ? within : right.error[worst % right.count]);
    return false;
}

int formula_check(Model *model, Model *was, const char *lines) {
    int faults = 0;
    for (; *lines; next_line(&lines)) {
        Formula f = {arena_create(), model, was, lines, lines, NULL};
        if (!line_end(&f)) faults += !check_line(&f);
        arena_destroy(f.arena);
    }
    return faults;
}
