/* Lifting what works on rows by themselves: embeddings, norms, activations, sums and
 * products. See lift_rows.h. */
#include "io/onnx/lift/lift_rows.h"

#include "io/onnx/lift/lift_counted.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/eval.h"
#include "io/onnx/net/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- embeddings ---- */

Node *match_embedding(Lift *lift, NetNode *node) {
    bool turned;
    if (node->in_count != 2 || !node->in[0] || !node->in[1]) return NULL;
    NetValue *table = stored_matrix(node->in[0], &turned), *ids = node->in[1];
    if (!table || turned || net_int(node, "axis", 0) != 0 || value_is_known(ids))
        return NULL;
    Node *in[2] = {lift_value(lift, ids), lift_stored(lift, table, -1, NULL)};
    return in[0] && in[1] ? lift_op(lift, node, "embedding", in, 2, NULL) : NULL;
}

/* ---- norms ---- */

static int64_t row_width(const NetValue *value) {
    const Array *shape = value->probe[0];
    return shape && shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
}

/* Tokens of rows [..., T, width] or [T, 1, width]. */
static int64_t row_tokens(const Array *rows) {
    const int64_t tokens = rows->rank >= 2 ? rows->dim[rows->rank - 2] : 1;
    return tokens == 1 && rows->rank == 3 ? rows->dim[0] : tokens;
}

/* The stored vector to which 1 is added in a value; NULL when that is none. */
static NetValue *vector_beside_one(NetValue *value) {
    const NetNode *sum = value_behind(value)->producer;
    double number;
    if (!net_is(sum, "Add") || sum->in_count != 2 || !sum->in[0] || !sum->in[1])
        return NULL;
    for (int i = 0; i < 2; i++)
        if (value_scalar(sum->in[i], &number) && number == 1 &&
            value_behind(sum->in[1 - i])->stored)
            return sum->in[1 - i];
    return NULL;
}

Node *lift_norm(Lift *lift, const NetNode *node, bool mean, Node *x, NetValue *weight,
                NetValue *bias, double eps) {
    const int64_t width = weight->probe[0]->count;
    NetValue *unit = mean ? NULL : vector_beside_one(weight);
    Node *in[3] = {x, lift_stored(lift, unit ? unit : weight, 1, &width)};
    if (!x || !in[1]) return NULL;
    if (bias && !(in[2] = lift_stored(lift, bias, 1, &width))) return NULL;
    return lift_op(lift, node, mean ? "layer_norm" : "rms_norm", in, bias ? 3 : 2,
                   "eps=%s%s", short_decimal(lift, eps), unit ? " unit_offset=true" : "");
}

/* What a cone holds beside its nodes, as far as norms have it. */
typedef struct NormParts {
    NetValue *vector[2];
    int vectors;
    double eps;
} NormParts;

static void norm_parts(const Cone *cone, int64_t width, NormParts *parts) {
    double number;
    *parts = (NormParts){.eps = 0};
    for (int n = 0; n < cone->nodes; n++)
        for (int i = 0; i < cone->node[n]->in_count; i++) {
            NetValue *value = cone->node[n]->in[i];
            if (!value || !value_is_known(value)) continue;
            if (value_scalar(value, &number)) {
                const bool small = number > 0 && number <= 0.01;
                if (small && net_is(cone->node[n], "Add")) parts->eps = number;
            } else if (value->probe[0]->count == width && parts->vectors < 2) {
                parts->vector[parts->vectors++] = value_behind(value);
            } else {
                parts->vectors = 3; /* something else */
            }
        }
}

/* A row like those of a norm: of the size of its epsilon first, then of usual size. */
static void fill_row(Array *row, double size) {
    for (int64_t i = 0; i < row->count; i++)
        row->data[i] =
            size * (sin((double)(3 * i + 1)) + 0.25 * cos((double)(i * i)) + 0.3);
}

static bool is_norm_of(const Array *x, const Array *y, bool centred, const double *w,
                       const double *b, double eps) {
    double mean = 0, square = 0;
    const double n = (double)x->count;
    for (int64_t i = 0; i < x->count; i++) mean += centred ? x->data[i] / n : 0;
    for (int64_t i = 0; i < x->count; i++)
        square += (x->data[i] - mean) * (x->data[i] - mean) / n;
    for (int64_t i = 0; i < x->count; i++) {
        const double normed = (x->data[i] - mean) / sqrt(square + eps) * w[i];
        const double wanted = normed + (b ? b[i] : 0);
        if (!(fabs(y->data[i] - wanted) <= 1e-4 * (1 + fabs(normed) + fabs(wanted))))
            return false;
    }
    return true;
}

/* Whether a cone is the norm of its source with these vectors; with `mean` a layer norm.
 */
static bool cone_is_norm(const Cone *cone, int64_t width, bool mean,
                         const NetValue *weight, const NetValue *bias, double eps) {
    int64_t dim[NET_RANK_MAX];
    const Array *shape = cone->source->probe[0];
    ArrayPool pool = {arena_create(), ARRAY_COUNT_MAX};
    for (int d = 0; d < shape->rank; d++) dim[d] = d == shape->rank - 1 ? width : 1;
    bool good = true;
    for (int i = 0; i < 2 && good; i++) {
        Array *x = array_create(&pool, ONNX_F32, shape->rank, dim, true);
        good = x && x->data;
        if (good) fill_row(x, i == 0 ? sqrt(eps) : 1);
        const Array *y = good ? cone_apply(cone, &pool, x) : NULL;
        good = y && y->count == width &&
               is_norm_of(x, y, mean, weight->probe[0]->data,
                          bias ? bias->probe[0]->data : NULL, eps);
    }
    arena_destroy(pool.arena);
    return good;
}

static Node *match_cone_norm(Lift *lift, const Cone *cone) {
    NormParts parts;
    const int64_t width = row_width(cone->source);
    const NetNode *node = cone->root->producer;
    if (width < 2 || row_width(cone->root) != width) return NULL;
    norm_parts(cone, width, &parts);
    if (parts.eps <= 0 || parts.vectors < 1 || parts.vectors > 2) return NULL;
    for (int i = 0; i < 2; i++) { /* which vector is the weight, or whether means count */
        const bool both = parts.vectors == 2, mean = both || i == 1;
        NetValue *weight = parts.vector[both ? i : 0],
                 *bias = both ? parts.vector[1 - i] : NULL;
        if (!cone_is_norm(cone, width, mean, weight, bias, parts.eps)) continue;
        return lift_norm(lift, node, mean, lift_value(lift, cone->source), weight, bias,
                         parts.eps);
    }
    return NULL;
}

Node *match_norm(Lift *lift, NetValue *value) {
    const NetNode *node = value->producer;
    bool vector = false;
    for (int i = 0; i < node->in_count && !vector; i++)
        vector = node->in[i] && value_is_constant(node->in[i]) &&
                 node->in[i]->probe[0]->count == row_width(value) && row_width(value) > 1;
    if (!vector || (!net_is(node, "Add") && !net_is(node, "Mul"))) return NULL;
    Cone cone = {.net = lift->net, .root = value};
    while (cone_grow(&cone, CONE_ROWS)) {
        Node *found = match_cone_norm(lift, &cone);
        if (found) return found;
    }
    return NULL;
}

/* ---- activations ---- */

static double act_gelu(double x) {
    return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}

static double act_gelu_tanh(double x) {
    return 0.5 * x * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
}

static double act_relu(double x) {
    return x > 0 ? x : 0;
}

static double act_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double act_silu(double x) {
    return x * act_sigmoid(x);
}

/* Names as the activation op has them. */
static const struct {
    const char *name;
    double (*fn)(double x);
} ACTIVATIONS[] = {{"gelu", act_gelu}, {"gelu_tanh", act_gelu_tanh}, {"relu", act_relu},
                   {"tanh", tanh},     {"sigmoid", act_sigmoid},     {"silu", act_silu}};

enum { SAMPLE_POINTS = 49 };

/* Name of the function that a cone applies to each element, NULL when it is none. */
static const char *cone_function(const Cone *cone) {
    const char *found = NULL;
    int64_t dim[NET_RANK_MAX];
    const Array *shape = cone->source->probe[0];
    for (int d = 0; d < shape->rank; d++)
        dim[d] = d == shape->rank - 1 ? SAMPLE_POINTS : 1;
    ArrayPool pool = {arena_create(), 1 << 16};
    Array *x = array_create(&pool, ONNX_F32, shape->rank, dim, true);
    for (int64_t i = 0; x && x->data && i < x->count; i++)
        x->data[i] = (double)(i - SAMPLE_POINTS / 2) / 4;
    const Array *y = x && x->data && shape->rank > 0 ? cone_apply(cone, &pool, x) : NULL;
    for (size_t k = 0; y && !found && k < sizeof ACTIVATIONS / sizeof *ACTIVATIONS; k++) {
        bool same = y->count == x->count;
        for (int64_t i = 0; same && i < x->count; i++)
            same = fabs(y->data[i] - ACTIVATIONS[k].fn(x->data[i])) <= 2e-5;
        if (same) found = ACTIVATIONS[k].name;
    }
    arena_destroy(pool.arena);
    return found;
}

Node *match_activation(Lift *lift, NetValue *value) {
    Cone cone = {.net = lift->net, .root = value};
    while (cone_grow(&cone, CONE_ELEMENTS)) {
        if (!array_same_shape(cone.source->probe[0], value->probe[0])) continue;
        const char *name = cone_function(&cone);
        if (!name) continue;
        Node *in[1] = {lift_value(lift, cone.source)};
        return in[0] ? lift_op(lift, value->producer, "activation", in, 1, "fn=%s", name)
                     : NULL;
    }
    return NULL;
}

Node *match_softmax(Lift *lift, NetNode *node) {
    NetValue *x = node->in_count == 1 ? node->in[0] : NULL;
    if (!x || !x->probe[0]) return NULL;
    const int rank = x->probe[0]->rank;
    const int64_t axis = net_int(node, "axis", lift->net->opset >= 13 ? -1 : 1);
    if (axis != -1 && axis != rank - 1) return NULL;
    Node *in[1] = {lift_value(lift, x)};
    return in[0] ? lift_op(lift, node, "softmax", in, 1, NULL) : NULL;
}

/* ---- sums ---- */

/* Rows of a table, the same for every sample: which row stands at token `t`? -1 = the
 * value is not made so. The first dimension may be the samples. */
static bool rows_of_table(const Trace *trace, int probe, int64_t width, int64_t *first,
                          int64_t *step) {
    const Array *index = trace->index[probe];
    const int64_t tokens = row_tokens(index);
    if (index->rank < 1 || index->dim[index->rank - 1] != width || tokens < 1)
        return false;
    const int64_t rows = index->count / width;
    *first = (int64_t)(index->data[0] - 1) / width;
    *step = tokens > 1 ? (int64_t)(index->data[width] - 1) / width - *first : 0;
    /* positions counted along the mask stand still behind its end */
    const bool masked =
        (index->depends & DEPENDS_MASK) && rows == tokens * probe_samples(probe);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) {
            if (masked && !probe_mask(tokens, r / tokens, r % tokens)) break;
            const int64_t row = *first + r % tokens * *step;
            if (index->data[r * width + c] != (double)(row * width + c + 1)) return false;
        }
    return true;
}

/* x + rows of a table by position, or one row of it everywhere. */
static Node *add_table_rows(Lift *lift, const NetNode *node, Node *x, NetValue *rows) {
    Trace trace;
    int64_t first[NET_PROBES], step[NET_PROBES], width = row_width(rows);
    if (!trace_value(&trace, lift->net, rows, true)) return NULL;
    NetValue *table = trace.source;
    bool good =
        trace.scale == 1 && table->stored->n_dims >= 2 && row_width(table) == width;
    for (int p = 0; p < NET_PROBES && good; p++)
        good = rows_of_table(&trace, p, width, &first[p], &step[p]) &&
               first[p] == first[0] && step[p] == step[0];
    const bool grows = trace.index[0]->count != trace.index[1]->count;
    trace_free(&trace);
    if (!good || (step[0] != 0 && step[0] != 1)) return NULL;
    if (step[0] == 1 && grows) {
        const int64_t dim[2] = {table->probe[0]->count / width, width};
        Node *in[2] = {x, lift_stored(lift, table, 2, dim)};
        return in[1] ? lift_op(lift, node, "add_position", in, 2, "offset=%lld",
                               (long long)first[0])
                     : NULL;
    }
    return NULL;
}

const char *short_decimal(const Lift *lift, double x) {
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if ((float)strtod(text, NULL) == (float)x) break;
    }
    return arena_strdup(lift->arena, text);
}

const char *short_factor(const Lift *lift, double x) {
    const double square = round(x * x), over = round(1 / x), root = round(1 / (x * x));
    const double exact[] = {sqrt(square), 1 / over, 1 / sqrt(root)};
    for (int i = 0; i < 3 && x > 0; i++)
        if (isfinite(exact[i]) && (float)exact[i] == (float)x)
            return arena_printf(lift->arena, "%.17g", exact[i]);
    return short_decimal(lift, x);
}

double round_digits(double x) {
    char text[32];
    snprintf(text, sizeof text, "%.3g", x);
    const double rounded = strtod(text, NULL);
    return fabs(rounded - x) <= 1e-3 * fabs(x) ? rounded : x;
}

/* x + sines and cosines of the position, by Vaswani et al. (2017) with halves apart. */
static bool is_sinusoid(const NetValue *value, double *theta) {
    const Array *a = value->probe[1];
    if (a->rank < 2 || a->dim[a->rank - 1] % 2 || a->dim[a->rank - 1] < 4) return false;
    const int64_t width = a->dim[a->rank - 1], tokens = row_tokens(a);
    if (tokens < 2 || a->count % (tokens * width) != 0) return false;
    const double turn = asin(fmin(1, fabs(a->data[width + 1]))); /* theta^(-2/D) */
    *theta = pow(turn, -(double)width / 2);
    if (!(*theta > 1 && *theta < 1e9)) return false;
    *theta = round_digits(*theta);
    for (int64_t i = 0; i < a->count; i++) {
        const int64_t t = i / width % tokens, c = i % width, j = c % (width / 2);
        const double angle = (double)t * pow(*theta, -2.0 * (double)j / (double)width);
        if (!(fabs(a->data[i] - (c < width / 2 ? sin(angle) : cos(angle))) <= 1e-4))
            return false;
    }
    return true;
}

/* x + numbers that do not depend on the number of tokens: a stored table, or a vector. */
static Node *add_stored(Lift *lift, const NetNode *node, Node *x, NetValue *value) {
    const Array *shape = value->probe[0];
    int64_t dim[RANK_MAX];
    if (!value_is_constant(value) || !array_same_shape(shape, value->probe[1]) ||
        shape->rank > x->type.rank || x->type.rank > RANK_MAX)
        return NULL;
    const int before = x->type.rank - shape->rank;
    for (int d = 0; d < x->type.rank; d++)
        dim[d] = d < before ? 1 : shape->dim[d - before];
    Node *in[2] = {x, lift_stored(lift, value, x->type.rank, dim)};
    return in[1] ? lift_op(lift, node, "add", in, 2, NULL) : NULL;
}

/* The first row of a value whose rows are all the same, as a value of one row. */
static Node *add_same_rows(Lift *lift, const NetNode *node, Node *x, NetValue *value) {
    const Array *rows = value->probe[0];
    const int64_t width = row_width(value), rank = x->type.rank;
    if (width < 1 || rows->depends || rank < 1 || rank > RANK_MAX) return NULL;
    for (int64_t i = width; i < rows->count; i++)
        if (rows->data[i] != rows->data[i % width]) return NULL;
    int64_t dim[RANK_MAX];
    for (int d = 0; d < rank; d++) dim[d] = d == rank - 1 ? width : 1;
    Array *row = array_create(lift->pool, ONNX_F32, (int)rank, dim, true);
    if (!row || !row->data) return NULL;
    memcpy(row->data, rows->data, (size_t)width * sizeof *row->data);
    NetValue *alone = ARENA_NEW(lift->net->arena, NetValue);
    *alone = (NetValue){.name = value->name, .producer = value->producer};
    alone->probe[0] = alone->probe[1] = row;
    Node *in[2] = {x, lift_stored(lift, alone, (int)rank, dim)};
    return in[1] ? lift_op(lift, node, "add", in, 2, NULL) : NULL;
}

static Node *add_known(Lift *lift, const NetNode *node, NetValue *x_value,
                       NetValue *known) {
    double theta;
    Node *x = lift_value(lift, x_value), *found;
    if (!x) return NULL;
    if (value_is_known(known) && is_sinusoid(known, &theta)) /* stored ones as well */
        return lift_op(lift, node, "add_sinusoid", &x, 1, "theta=%s",
                       short_decimal(lift, theta));
    if ((found = add_table_rows(lift, node, x, known))) return found;
    if ((found = add_stored(lift, node, x, known))) return found;
    return value_is_known(known) ? add_same_rows(lift, node, x, known) : NULL;
}

/* Whether a value is rows of stored tables alone, however many they are. */
static bool is_of_tables(const NetValue *value, const Net *net) {
    Trace trace;
    if (value_is_known(value) || value_is_constant(value)) return true;
    const NetNode *node = value->producer;
    const EvalRow *row = node ? eval_find(node->op) : NULL;
    if (!row || row->kind != EVAL_MOVES) return false;
    const bool found = trace_value(&trace, net, (NetValue *)value, true);
    if (found) trace_free(&trace);
    return found;
}

static Node *add_two(Lift *lift, const NetNode *node, Node *a, Node *b) {
    if (!a || !b) return NULL;
    for (int d = 0; a->type.rank == b->type.rank && d < a->type.rank; d++)
        if (a->type.dim[d] == 1 && b->type.dim[d] != 1) {
            Node *wide = b; /* the op repeats its second operand */
            b = a;
            a = wide;
            break;
        }
    return lift_op(lift, node, "add", (Node *[]){a, b}, 2, NULL);
}

Node *lift_sum(Lift *lift, const NetNode *node, NetValue *a, NetValue *b) {
    NetValue *both[2] = {a, b};
    for (int i = 0; i < 2; i++)
        if (is_of_tables(both[i], lift->net))
            return add_known(lift, node, both[1 - i], both[i]);
    for (int i = 0; i < 2; i++) {
        Node *found = lift_counted_rows(lift, node, both[1 - i], both[i]);
        if (found) return found;
    }
    Node *x = lift_value(lift, a);
    return x ? add_two(lift, node, x, lift_value(lift, b)) : NULL;
}

Node *match_sum(Lift *lift, NetNode *node) {
    if (node->in_count != 2 || !node->in[0] || !node->in[1]) return NULL;
    return lift_sum(lift, node, node->in[0], node->in[1]);
}

/* ---- products ---- */

Node *match_product(Lift *lift, NetNode *node) {
    double by;
    const bool divided = net_is(node, "Div");
    if (node->in_count != 2 || !node->in[0] || !node->in[1]) return NULL;
    for (int i = divided; i < 2; i++) {
        if (!value_scalar(node->in[i], &by)) continue;
        Node *x = lift_value(lift, node->in[1 - i]);
        return x ? lift_op(lift, node, "scale", &x, 1, "by=%s",
                           short_factor(lift, divided ? 1 / by : by))
                 : NULL;
    }
    if (divided || value_is_known(node->in[0]) || value_is_known(node->in[1]))
        return NULL;
    Node *in[2] = {lift_value(lift, node->in[0])};
    if (in[0]) in[1] = lift_value(lift, node->in[1]);
    return in[1] ? lift_op(lift, node, "multiply", in, 2, NULL) : NULL;
}
