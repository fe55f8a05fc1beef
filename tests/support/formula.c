/* Formulas of cases: see formula.h. A recursive-descent parser evaluates as it reads. */
#include "tests/support/formula.h"

#include "tests/support/check.h"
#include "tests/support/formula_model.h"

#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    if (!accept(f, what)) formula_fail(f, "expected %s", what);
}

/* Reads a name; an '@' in front lets it have any character of storages' names. */
static void parse_name(Formula *f, char name[FORMULA_NAME_BYTES]) {
    skip_spaces(f);
    size_t length = 0;
    const bool storage = *f->at == '@';
    while (isalnum((unsigned char)f->at[length]) || f->at[length] == '_' ||
           f->at[length] == '.' ||
           (storage && f->at[length] && strchr("@-*?", f->at[length])))
        length++;
    if (length == 0 || length >= FORMULA_NAME_BYTES) formula_fail(f, "expected a name");
    snprintf(name, FORMULA_NAME_BYTES, "%.*s", (int)length, f->at);
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
                   ? value_join(f, &list, &next)
                   : value_like(
                         f, &next,
                         &(Value){.rank = 1, .dim = {next.count}, .count = next.count});
    } while (accept(f, ","));
    expect(f, "]");
    if (nested && rows > 0)
        list = value_like(
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
    char argument[FORMULA_NAME_BYTES];
    bool known = false;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        known |= strcmp(name, NAMES[i]) == 0;
    if (!known) return false;
    parse_name(f, argument);
    expect(f, ")");
    switch (name[0]) {
    case 'l': *out = value_number(f, graph_layer_count(model->graph, argument)); break;
    case 'h':
        *out = value_number(f, formula_layer_size(f, model, argument, ROLE_ATTENTION));
        break;
    case 'w':
        *out = value_number(f, formula_layer_size(f, model, argument, ROLE_FFN_IN));
        break;
    case 'u':
        *out = value_number(f, formula_uses(model, formula_storage(f, model, argument)));
        break;
    case 'o': *out = formula_output(f, model, argument); break;
    case 'd': {
        const Value now = formula_output(f, model, argument);
        const Value then = formula_output(f, f->was, argument);
        if (now.count != then.count) formula_fail(f, "the output has another size");
        *out = value_new(f, 0, NULL);
        for (int64_t i = 0; i < now.count; i++)
            out->v[0] = fmax(out->v[0], fabs(now.v[i] - then.v[i]));
        break;
    }
    default:
        *out = formula_gaussian(f, formula_storage(f, model, argument), name[9] == 'm');
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
    if (value_map_named(f, name, &argument[0], &out)) return out;
    if (strcmp(name, "t") == 0) return value_transpose(f, &argument[0]);
    if (strcmp(name, "softmax") == 0) return value_softmax(f, &argument[0]);
    if (count == 1) return value_reduce(f, name, &argument[0]);
    if (strcmp(name, "product") == 0) return value_product(f, &argument[0], &argument[1]);
    if (strcmp(name, "join") == 0) return value_join(f, &argument[0], &argument[1]);
    if (strcmp(name, "matrix") == 0 && count == 3)
        return value_matrix(f, &argument[0], &argument[1], &argument[2]);
    if (strcmp(name, "keep") == 0 && count == 3)
        return value_keep(f, &argument[0], &argument[1], &argument[2]);
    formula_fail(f, "there is no function %s of %d arguments", name, count);
}

static Value parse_named(Formula *f) {
    char name[FORMULA_NAME_BYTES];
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
        return formula_coordinate(f, name);
    if (strncmp(name, "record", 6) == 0 || strncmp(name, "stored.", 7) == 0)
        return formula_record(f, model, name);
    Value value = formula_measure(f, model, name, &known);
    return known ? value : value_tensor(f, &formula_storage(f, model, name)->tensor);
}

static Value parse_factor(Formula *f) {
    skip_spaces(f);
    if (accept(f, "-")) {
        Value value = parse_factor(f), zero = value_number(f, 0);
        return value_combine(f, '-', &zero, &value);
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
        return value_number(f, first);
    }
    const double number = strtod(f->at, &end);
    f->at = end;
    return value_number(f, number);
}

static Value parse_product(Formula *f) {
    Value value = parse_factor(f);
    for (;;) {
        skip_spaces(f);
        const char sign = *f->at;
        if (sign != '*' && sign != '/') return value;
        f->at++;
        const Value next = parse_factor(f);
        value = value_combine(f, sign, &value, &next);
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
        value = value_combine(f, sign, &value, &next);
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
    if (!line_end(f)) formula_fail(f, "expected the end of the line");
    if (shape.count % value.count) formula_fail(f, "the shapes do not fit");
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
        char name[FORMULA_NAME_BYTES];
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
                assign(&f, formula_storage(&f, model, name));
            else if (count == 0)
                formula_fail(&f, "no storage is called %s", name);
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
        const double bound = within >= 0 ? within
                                         : left->error[*worst] + right->error[k] +
                                               FORMULA_EPSILON * fabs(r);
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
    if (!relation) formula_fail(f, "expected a relation");
    f->like = &left;
    const Value right = parse_sum(f);
    const double within = accept(f, "within") ? parse_sum(f).v[0] : -1;
    if (!line_end(f)) formula_fail(f, "expected the end of the line");
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
