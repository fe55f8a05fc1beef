/* Least-squares merge with per-layer column scales: see multiplex.h.
 *
 * The projections that read one norm (Q, K, V; or the first MLP matrix) are stacked into
 * A_l [rows, width] for each layer l. Column c of the shared matrix and the scales s_l,c
 * minimise sum_l ||A_l[:, c] - s_l,c W[:, c]||^2: a best rank-one approximation, so s is
 * the leading eigenvector of the L x L Gram matrix of the columns, found by power
 * iteration from nearly equal scales, and W[:, c] = sum_l s_l A_l[:, c] / sum_l s_l^2.
 * Scales are normalised to mean 1 where their mean is not small, and multiply layer l's
 * norm gain and bias: (g x + b) column c times s = the norm with g s and b s. Identical
 * layers give s = 1 and W equal to each. */
#include "passes/multiplex/multiplex.h"

#include <math.h>
#include <stdlib.h>

enum { LAYERS_MAX = 256 }; /* of a group */

/* Matrices of one norm's readers: matrix[l * per_layer + r] is role r in layer l. */
typedef struct Stack {
    int layers, per_layer;
    int64_t width;
    Tensor *matrix; /* float32, owned */
    float **data;
    Tensor *gain, *bias;       /* per layer, float32, owned; the norm's */
    float **gains, **biases;   /* their numbers */
    double *gram, *scale;      /* layers x layers, layers */
    double *residual, *square; /* per layer: ||A_l - W diag(s_l)||^2 and ||A_l||^2 */
} Stack;

static void stack_release(Stack *s) {
    for (int i = 0; i < s->layers * s->per_layer; i++) tensor_release(&s->matrix[i]);
    for (int l = 0; l < s->layers; l++) {
        tensor_release(&s->gain[l]);
        tensor_release(&s->bias[l]);
    }
}

/* A float32 copy of a leaf's weights, and in *data its numbers, to be written: NULL when
 * there are none (planning). */
static Status take(Tensor *out, float **data, const Node *leaf, Diag *diag) {
    void *writable = NULL;
    TRY(tensor_to_f32(out, storage_tensor(leaf->storage), diag));
    if (out->buf) TRY(tensor_writable(out, &writable, diag));
    *data = writable;
    return STATUS_OK;
}

/* Checks that a layer has a norm of its own that its `roles`, and nothing else, read:
 * what is scaled there must meet the shared matrices alone. */
static Status check_norm(const Multiplex *m, int layer, Role norm, const Role *roles,
                         int count, Diag *diag) {
    const char *name = m->options->stack;
    const Node *n = node_find(m->graph, name, layer, norm, &op_layer_norm);
    for (int i = 1; i <= 2; i++)
        if (!n || !node_has(n, i) || !n->in[i]->storage ||
            graph_use_count(m->graph, n->in[i]) != 1)
            return step_fail_option(
                m->ctx, "init", diag,
                "lsq expects layer %d to have a norm \"%s\" of its own", layer,
                role_name(norm));
    const Node *read = NULL; /* by all of them */
    for (int r = 0; r < count; r++) {
        const Node *linear = graph_find(m->graph, name, layer, roles[r]);
        if (r == 0) read = linear->in[0];
        /* Cutting into windows moves tokens and leaves channels, which are scaled, alone.
         */
        const bool windows = node_is(read, &op_window_partition);
        if (linear->in[0] != read || (windows ? read->in[0] : read) != n)
            return step_fail_option(m->ctx, "init", diag,
                                    "lsq expects \"%s\" of layer %d to read its norm",
                                    role_name(roles[r]), layer);
        if (((const LinearAttrs *)linear->attrs)->transposed)
            return step_fail_option(m->ctx, "init", diag,
                                    "lsq expects the weight of \"%s\" of layer %d as "
                                    "[out, in], found it transposed",
                                    role_name(roles[r]), layer);
    }
    if (graph_use_count(m->graph, read) == count &&
        (read == n || graph_use_count(m->graph, n) == 1))
        return STATUS_OK;
    return step_fail_option(m->ctx, "init", diag,
                            "lsq expects \"%s\" of layer %d to have no other readers",
                            role_name(norm), layer);
}

static Status stack_load(Stack *s, Multiplex *m, int first, Role norm, const Role *roles,
                         Diag *diag) {
    const char *name = m->options->stack;
    for (int l = 0; l < s->layers; l++) {
        Node *n = graph_find(m->graph, name, first + l, norm);
        TRY(take(&s->gain[l], &s->gains[l], n->in[1], diag));
        TRY(take(&s->bias[l], &s->biases[l], n->in[2], diag));
        for (int r = 0; r < s->per_layer; r++) {
            Node *linear = graph_find(m->graph, name, first + l, roles[r]);
            const int at = l * s->per_layer + r;
            TRY(take(&s->matrix[at], &s->data[at], linear->in[1], diag));
        }
    }
    return STATUS_OK;
}

/* Inner product of column c of layers a and b over all stacked matrices. */
static double column_dot(const Stack *s, int a, int b, int64_t c) {
    double sum = 0;
    for (int r = 0; r < s->per_layer; r++) {
        const float *x = s->data[a * s->per_layer + r],
                    *y = s->data[b * s->per_layer + r];
        const int64_t rows = s->matrix[r].dim[0];
        for (int64_t i = 0; i < rows; i++)
            sum += (double)x[i * s->width + c] * y[i * s->width + c];
    }
    return sum;
}

/* One step of the power iteration: scale <- Gram matrix * scale, normalised to mean 1
 * where that is possible. False when the product is 0. */
static bool step_scales(Stack *s) {
    const int n = s->layers;
    double next[LAYERS_MAX], norm = 0, mean = 0;
    for (int a = 0; a < n; a++) {
        next[a] = 0;
        for (int b = 0; b < n; b++) next[a] += s->gram[a * n + b] * s->scale[b];
        norm += next[a] * next[a];
        mean += next[a] / n;
    }
    const double rms = sqrt(norm / n);
    const double by = fabs(mean) > 0.1 * rms ? mean : rms;
    for (int a = 0; a < n; a++) s->scale[a] = by != 0 ? next[a] / by : 1;
    return by != 0;
}

/* Writes the shared column into every layer's matrix and the scales into the norms, and
 * adds up what that costs each layer. */
static void apply_column(Stack *s, int64_t c) {
    double squares = 0;
    for (int l = 0; l < s->layers; l++) squares += s->scale[l] * s->scale[l];
    for (int r = 0; r < s->per_layer; r++) {
        for (int64_t i = 0; i < s->matrix[r].dim[0]; i++) {
            const int64_t at = i * s->width + c;
            double sum = 0;
            for (int l = 0; l < s->layers; l++)
                sum += s->scale[l] * s->data[l * s->per_layer + r][at];
            const double shared = sum / squares;
            for (int l = 0; l < s->layers; l++) {
                float *element = &s->data[l * s->per_layer + r][at];
                const double error = *element - s->scale[l] * shared;
                s->residual[l] += error * error;
                s->square[l] += (double)*element * *element;
                *element = (float)shared;
            }
        }
    }
    for (int l = 0; l < s->layers; l++) {
        s->gains[l][c] = (float)(s->gains[l][c] * s->scale[l]);
        s->biases[l][c] = (float)(s->biases[l][c] * s->scale[l]);
    }
}

/* For every column the leading eigenvector of the Gram matrix, into s->scale: ones for
 * columns of zeros. The iteration starts a little beside equal scales, since columns that
 * cancel out are orthogonal to those. */
static void solve_columns(Stack *s) {
    for (int64_t c = 0; c < s->width; c++) {
        for (int a = 0; a < s->layers; a++)
            for (int b = 0; b <= a; b++)
                s->gram[a * s->layers + b] = s->gram[b * s->layers + a] =
                    column_dot(s, a, b, c);
        for (int l = 0; l < s->layers; l++) s->scale[l] = 1 + 1e-3 * l;
        for (int step = 0; step < 100 && step_scales(s); step++) continue;
        apply_column(s, c);
    }
}

/* Gives each norm what it became, and the projections of a role one matrix. Scaled
 * columns and solved norms are no averages: what was known of them goes. */
static Status stack_store(const Stack *s, Multiplex *m, int first, Role norm,
                          const Role *roles, Diag *diag) {
    const char *name = m->options->stack;
    Node **nodes = ARENA_ARRAY(m->ctx->arena, Node *, (size_t)s->layers);
    for (int l = 0; l < s->layers; l++) {
        Node *n = graph_find(m->graph, name, first + l, norm);
        const StorageUsers user = STORAGE_USER(n);
        TRY(storage_replace(m->graph, n->in[1], user, tensor_retain(&s->gain[l]), -1,
                            diag));
        TRY(storage_replace(m->graph, n->in[2], user, tensor_retain(&s->bias[l]), -1,
                            diag));
    }
    for (int r = 0; r < s->per_layer; r++) {
        for (int l = 0; l < s->layers; l++)
            nodes[l] = graph_find(m->graph, name, first + l, roles[r]);
        TRY(storage_merge_into(m->graph, (StorageUsers){nodes, s->layers}, "weight",
                               tensor_retain(&s->matrix[r]), diag));
    }
    return STATUS_OK;
}

Status multiplex_lsq(Multiplex *m, int first, int count, Role norm, const Role *roles,
                     int per_layer, Diag *diag) {
    if (count > LAYERS_MAX)
        return step_fail_option(m->ctx, "init", diag,
                                "lsq takes groups of at most %d layers", LAYERS_MAX);
    for (int l = 0; l < count; l++)
        TRY(check_norm(m, first + l, norm, roles, per_layer, diag));
    const Type *matrix =
        &graph_find(m->graph, m->options->stack, first, roles[0])->in[1]->type;
    Arena *arena = arena_create();
    const size_t n = (size_t)count, matrices = n * (size_t)per_layer;
    Stack s = {.layers = count,
               .per_layer = per_layer,
               .width = matrix->dim[1],
               .matrix = ARENA_ARRAY(arena, Tensor, matrices),
               .data = ARENA_ARRAY(arena, float *, matrices),
               .gain = ARENA_ARRAY(arena, Tensor, n),
               .bias = ARENA_ARRAY(arena, Tensor, n),
               .gains = ARENA_ARRAY(arena, float *, n),
               .biases = ARENA_ARRAY(arena, float *, n),
               .gram = ARENA_ARRAY(arena, double, n *n),
               .scale = ARENA_ARRAY(arena, double, n),
               .residual = ARENA_ARRAY(arena, double, n),
               .square = ARENA_ARRAY(arena, double, n)};
    Status status = stack_load(&s, m, first, norm, roles, diag);
    if (status == STATUS_OK && s.data[0]) solve_columns(&s);
    if (status == STATUS_OK) status = stack_store(&s, m, first, norm, roles, diag);
    for (int l = 0; l < count; l++)
        if (s.residual[l] > m->deviation * m->deviation * s.square[l])
            m->deviation = sqrt(s.residual[l] / s.square[l]);
    stack_release(&s);
    arena_destroy(arena);
    return status;
}
