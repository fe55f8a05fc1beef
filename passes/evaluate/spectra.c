/* Singular values of matrices: see spectra.h. */
#include "passes/evaluate/spectra.h"

#include "exec/linalg/blas.h"
#include "exec/run/ticker.h"
#include "ir/storage.h"
#include "passes/fault.h"

#include <math.h>
#include <stdlib.h>

/* What is being recorded. */
typedef struct Spectra {
    PassContext *ctx;
    Tree *list;
    bool *seen; /* by Node.id of a leaf */
    int64_t left_out;
    Ticker ticker;
} Spectra;

/* Fewest of the values, largest first, whose squares add up to a share of all. */
static int64_t rank_of(const double *sigma, int64_t count, double share) {
    double all = 0, sum = 0;
    for (int64_t i = count - 1; i >= 0; i--) all += sigma[i] * sigma[i];
    int64_t rank = 0;
    while (rank < count && sum < share * all) {
        sum += sigma[rank] * sigma[rank];
        rank++;
    }
    return rank;
}

static void record_matrix(const Spectra *s, const Node *user, const Storage *storage,
                          const double *sigma, int64_t count) {
    Arena *arena = s->ctx->arena;
    const Tensor *tensor = storage_tensor(storage);
    Tree *map = tree_add_map(arena, s->list);
    const char *place = user->layer < 0
                            ? user->stack
                            : arena_printf(arena, "%s.%d", user->stack, user->layer);
    tree_put_string(arena, map, "place", place);
    tree_put_string(arena, map, "role",
                    user->role ? role_name(user->role) : user->op->name);
    tree_put_string(arena, map, "storage", storage->name);
    tree_put_int(arena, map, "rows", tensor->dim[0]);
    tree_put_int(arena, map, "columns", tensor->dim[1]);
    tree_put_int(arena, map, "rank90", rank_of(sigma, count, 0.90));
    tree_put_int(arena, map, "rank99", rank_of(sigma, count, 0.99));
    Tree *list = tree_put_list(arena, map, "sigma");
    const int64_t kept = count < SPECTRUM_VALUES ? count : SPECTRUM_VALUES;
    for (int64_t i = 0; i < kept; i++) {
        const double place_of =
            kept > 1 ? (double)i * (double)(count - 1) / (double)(kept - 1) : 0;
        tree_add_real(arena, list, sigma[llround(place_of)]);
    }
}

static Status measure_matrix(Spectra *s, const Node *user, const Storage *storage,
                             Diag *diag) {
    const Tensor *tensor = storage_tensor(storage);
    const int64_t rows = tensor->dim[0], columns = tensor->dim[1];
    const int64_t count = rows < columns ? rows : columns;
    if (count > SPECTRUM_SIDE || rows > INT32_MAX || columns > INT32_MAX) {
        s->left_out++;
        return STATUS_OK;
    }
    double *values = malloc((size_t)(rows * columns) * sizeof *values);
    double *sigma = malloc((size_t)count * sizeof *sigma);
    int info = -1;
    if (values && sigma) {
        tensor_read_f64(tensor, 0, rows * columns, values);
        info = singular_values_f64(rows, columns, values, sigma);
    }
    if (info == 0) record_matrix(s, user, storage, sigma, count);
    free(values);
    free(sigma);
    if (info == 0) return STATUS_OK;
    if (info > 0)
        return step_fail(s->ctx, diag, "the singular values of '%s' do not converge",
                         storage->name);
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "no memory for the singular values of '%s'", storage->name);
}

/* Whether a node's matrices are a map from one width to another, or a table of such rows:
 * those that mix heads or hold positions are not. */
static bool has_maps(const Node *node) {
    return node->stack && (node_has_trait(node, OP_PROJECTION) ||
                           node->role == ROLE_EMBED || node->role == ROLE_RECURRENCE);
}

/* Whether a leaf is a matrix that is still to be measured. */
static bool is_wanted(const Spectra *s, const Node *leaf) {
    if (!leaf || !leaf->storage || s->seen[leaf->id]) return false;
    const Tensor *tensor = storage_tensor(leaf->storage);
    return tensor->rank == 2 && tensor->dim[0] > 1 && tensor->dim[1] > 1;
}

Status spectra_record(PassContext *ctx, Graph *graph, Diag *diag) {
    const int total = graph_number(graph);
    Spectra s = {.ctx = ctx,
                 .list = tree_put_list(ctx->arena, ctx->record, "spectra"),
                 .seen = ARENA_ARRAY(ctx->arena, bool, (size_t)total + 1),
                 .ticker = {.watch = ctx->watch}};
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count && has_maps(node); i++) {
            if (!is_wanted(&s, node->in[i])) continue;
            s.seen[node->in[i]->id] = true;
            TRY(ticker_go_on(&s.ticker, diag));
            ticker_progress(&s.ticker, node->id, total, NAN, false);
            TRY(measure_matrix(&s, node, node->in[i]->storage, diag));
        }
    if (s.left_out) tree_put_int(ctx->arena, ctx->record, "spectra_left_out", s.left_out);
    return STATUS_OK;
}
