/* factor_embedding: the word embedding becomes a narrow table and a projection.
 *
 *     embedding(ids, E)           ->  linear(embedding(ids, W1), W2)
 *     linear(h, E)   (tied head)  ->  linear(linear(h, W2, transposed), W1)
 *
 * Where the model has the right-hand side already, its W1 W2 is truncated again and the
 * nodes stay. The numbers are in factor_embedding_table.c. */
#include "passes/embedding/factor_embedding_table.h"
#include "passes/embedding/word_counts.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/tall.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/linears.h"
#include "passes/measure.h"

#include <math.h>

typedef struct FactorOptions {
    int64_t rank;
    double energy;
    double parameters, bytes; /* budgets: see measure_bound */
    bool allow_growth;
    int weight; /* WEIGHT_ */
    const char *data;
    double alpha;
} FactorOptions;

enum { WEIGHT_NONE, WEIGHT_FREQUENCY };

#define F FactorOptions
static const Field fields[] = {
    F_INT(F, rank, 1, 100000000, "columns of the new table"),
    F_REAL(
        F, energy, 1e-9, 1,
        "instead of rank: the least rank that keeps this share of the squared singular "
        "values"),
    F_BOUND(
        F, parameters, parameters, FIELD_COUNTS,
        "instead of rank: the largest whose factors have no more parameters; up to 1: "
        "a share of the embedding's"),
    F_BOUND(F, bytes, bytes, FIELD_BYTES,
            "instead of rank: the largest whose factors take no more bytes; up to 1: a "
            "share of the embedding's"),
    F_BOOL(
        F, allow_growth,
        "take ranks whose factors have more parameters than the table, with a warning"),
    F_CHOICE(F, weight, "none|frequency",
             "what the rows of the table count: all the same, or the more the oftener "
             "their word is in data"),
    F_STRING(F, data, "weight: frequency: data set whose words are counted",
             .nullable = true),
    F_REAL(F, alpha, 0, 4,
           "weight: frequency: squared errors of a word's row count (1 + its number in "
           "the data)^alpha"),
    F_END,
};

static const F defaults = {.alpha = 0.5};

/* Options that give the rank. */
#define FACTOR_WAYS "rank|energy|parameters|bytes"

/* Rows may differ by this part of their norm when a factoring counts as exact. */
#define EXACT_ROW 1e-6

/* What is factored. */
typedef struct Factor {
    PassContext *ctx;
    Graph *graph;
    const F *options;
    Node *table;          /* leaf: E, or W1 of a factored embedding */
    Node *projection;     /* leaf: W2 of a factored embedding, else NULL */
    int lookups, heads;   /* embedding nodes and tied linear nodes that read the table */
    StorageUsers readers; /* all of them, in graph order */
    int64_t rows, width;  /* of E */
    int64_t before;       /* parameters of the embedding */
    int64_t rank;         /* that is asked for; 0 = by energy */
    int64_t most;         /* largest rank that makes sense */
    int64_t even;         /* largest rank that is not growth */
    double *weights;      /* by row; NULL = all the same */
    Tensor scaled;        /* rows times the roots of their weights */
    Tensor scaled_left;   /* and what comes of them */
} Factor;

/* ---- what there is ---- */

static bool is_lookup(const Node *node, const Node *table) {
    return node_is(node, &op_embedding) && node->in[1] == table;
}

/* Whether a node is linear(x, table): a head tied to the embedding. */
static bool is_tied(const Node *node, const Node *table) {
    return node_is(node, &op_linear) && node->in[1] == table && node->in[0] != table &&
           !linear_is_turned(node);
}

/* The table that the nodes with role embed look words up in. */
static Status find_table(Factor *f, Diag *diag) {
    const Node *node = graph_find(f->graph, NULL, -1, ROLE_EMBED);
    if (!node) return step_fail(f->ctx, diag, "expected a model with a word embedding");
    for (; node; node = graph_find_next(f->graph, node, NULL, -1, ROLE_EMBED)) {
        if (!node_is(node, &op_embedding))
            return step_fail(f->ctx, diag,
                             "expected a model with a word embedding, found one that "
                             "embeds by op %s",
                             node->op->name);
        if (!node->in[1]->storage)
            return step_fail(f->ctx, diag,
                             "expected a word embedding whose table is a parameter");
        if (f->table && f->table != node->in[1])
            return step_fail(f->ctx, diag,
                             "expected one word embedding, found \"%s\" and \"%s\"",
                             f->table->storage->name, node->in[1]->storage->name);
        f->table = node->in[1];
    }
    return STATUS_OK;
}

static Status check_users(Factor *f, Diag *diag) {
    const size_t most = (size_t)graph_use_count(f->graph, f->table);
    Node **readers = ARENA_ARRAY(f->ctx->arena, Node *, most);
    for (Node *n = f->graph->first; n; n = n->next) {
        const bool lookup = is_lookup(n, f->table), tied = is_tied(n, f->table);
        if (lookup || tied) readers[f->readers.count++] = n;
        f->lookups += lookup;
        f->heads += tied;
        bool other = false; /* reads the table in a way that factors do not serve */
        for (int i = 0; i < n->in_count && !lookup && !tied; i++)
            other |= n->in[i] == f->table;
        if (!other) continue;
        char layer[16] = "";
        if (n->layer >= 0) snprintf(layer, sizeof layer, ".%d", n->layer);
        return step_fail(f->ctx, diag,
                         "\"%s\" cannot be factored: it is read by op %s (%s%s, role "
                         "%s), not only by embeddings and tied heads",
                         f->table->storage->name, n->op->name,
                         n->stack ? n->stack : "no stack", layer, role_name(n->role));
    }
    for (int i = 0; i < f->graph->output_count; i++)
        if (f->graph->outputs[i].node == f->table)
            return step_fail(f->ctx, diag,
                             "\"%s\" cannot be factored: it is output \"%s\"",
                             f->table->storage->name, f->graph->outputs[i].name);
    f->readers.nodes = readers;
    return STATUS_OK;
}

/* ---- factored embeddings ---- */

/* The projection linear(lookup, W2), with no other part to play, that alone reads a
 * lookup; NULL when there is no such node. */
static const Node *find_projection(const Graph *graph, const Node *lookup) {
    if (graph_use_count(graph, lookup) != 1) return NULL;
    for (const Node *n = lookup->next; n; n = n->next) {
        if (!node_is(n, &op_linear) || n->in[0] != lookup) continue;
        const Node *factor = n->in[1];
        const bool plain = n->role == ROLE_NONE || n->role == ROLE_EMBED_PROJECTION;
        if (factor->storage && factor->type.rank == 2 && factor != lookup->in[1] &&
            !linear_is_turned(n) && plain)
            return n;
    }
    return NULL;
}

/* Whether a tied head reads what comes back through the projection, and only it does. */
static bool comes_back(const Graph *graph, const Node *head, const Node *projection) {
    const Node *back = head->in[0];
    return node_is(back, &op_linear) && back->in[1] == projection &&
           linear_is_turned(back) && !node_operand(back, "bias") &&
           graph_use_count(graph, back) == 1;
}

/* The leaf W2 when every reader of the table goes through it and nobody else reads it. */
static Node *find_factor(const Factor *f) {
    Node *found = NULL;
    for (const Node *n = f->graph->first; n; n = n->next) {
        if (!is_lookup(n, f->table)) continue;
        const Node *projection = find_projection(f->graph, n);
        if (!projection || (found && projection->in[1] != found)) return NULL;
        found = projection->in[1];
    }
    for (const Node *n = f->graph->first; n; n = n->next)
        if (is_tied(n, f->table) && !comes_back(f->graph, n, found)) return NULL;
    return graph_use_count(f->graph, found) == f->lookups + f->heads ? found : NULL;
}

/* ---- ranks ---- */

static Status measure_table(Factor *f, Diag *diag) {
    const int64_t *dim = f->table->type.dim;
    f->rows = dim[0];
    f->width = f->projection ? f->projection->type.dim[0] : dim[1];
    f->most = dim[0] < dim[1] ? dim[0] : dim[1];
    if (f->most > f->width) f->most = f->width;
    const int64_t whole[] = {f->rows,
                             f->width}; /* of factors: larger than what is there */
    if (f->most < 1 || f->width > SYMMETRIC_WIDTH_MAX ||
        !shape_size(DTYPE_F64, 2, whole, NULL, NULL))
        return step_fail(f->ctx, diag,
                         "expected an embedding of 1 to %d columns and at least 1 row "
                         "that fits in memory, found %lld x %lld",
                         SYMMETRIC_WIDTH_MAX, (long long)f->rows, (long long)f->width);
    f->even = f->rows * f->width / (f->rows + f->width);
    f->before = f->projection ? (f->rows + f->width) * dim[1] : f->rows * f->width;
    return STATUS_OK;
}

static double break_even(const Factor *f) {
    return (double)(f->rows * f->width) / (double)(f->rows + f->width);
}

static int64_t factor_count(const Factor *f, int64_t rank) {
    return (f->rows + f->width) * rank;
}

/* The rank that is given, or the largest within the budget; 0 = by energy. */
static Status choose_rank(Factor *f, Diag *diag) {
    const F *options = f->options;
    const int64_t each = factor_count(f, 1);
    double budget = 0; /* in parameters */
    f->rank = options->rank;
    if (options->parameters > 0)
        budget = measure_bound(options->parameters, (double)f->before);
    if (options->bytes > 0) { /* factors are float32 whatever the table is */
        double whole = (double)tensor_stored_bytes(storage_tensor(f->table->storage));
        if (f->projection)
            whole += (double)tensor_stored_bytes(storage_tensor(f->projection->storage));
        budget = measure_bound(options->bytes, whole) / sizeof(float);
    }
    if (budget <= 0) return STATUS_OK;
    f->rank = budget / (double)each < (double)f->most ? (int64_t)(budget / (double)each)
                                                      : f->most;
    if (f->rank >= 1) return STATUS_OK;
    return step_fail_option(f->ctx, "parameters|bytes", diag,
                            "expected room for rank 1, which has %lld parameters (%lld "
                            "bytes), found room for %.0f",
                            (long long)each, (long long)(each * (int64_t)sizeof(float)),
                            budget);
}

/* Refuses a rank that makes the model larger, or warns about it: once, as a recipe is
 * planned before it runs. */
static Status check_growth(const Factor *f, int64_t rank, Diag *diag) {
    if (rank <= f->even) return STATUS_OK;
    const char *text = arena_printf(
        f->ctx->arena,
        "rank %lld is above the break-even rank %.2f of an embedding of %lld x %lld: the "
        "factors have %lld parameters, the table %lld",
        (long long)rank, break_even(f), (long long)f->rows, (long long)f->width,
        (long long)factor_count(f, rank), (long long)(f->rows * f->width));
    if (f->options->allow_growth) {
        const bool news = f->ctx->plan || !f->rank;
        if (news) option_warn(&f->ctx->source, FACTOR_WAYS, diag, "%s", text);
        return STATUS_OK;
    }
    step_fail_option(f->ctx, FACTOR_WAYS, diag, "%s", text);
    if (f->even > 0)
        diag_hint(diag, "choose %sa rank of at most %lld, or add `allow_growth: true`",
                  f->rank ? "" : "less energy, ", (long long)f->even);
    return STATUS_MODEL;
}

/* Energy needs the weights: a plan takes the largest rank that could come of it. */
static Status guess_rank(const Factor *f, int64_t *rank, Diag *diag) {
    const bool bounded = !f->options->allow_growth && f->even < f->most;
    *rank = bounded && f->even > 0 ? f->even : f->most;
    if (!f->options->allow_growth) TRY(check_growth(f, *rank, diag));
    option_warn(&f->ctx->source, "energy", diag,
                "planned without weights, with the largest rank that can come of "
                "it, %lld; parameters and bytes after this step are upper bounds%s",
                (long long)*rank,
                bounded ? ", and the run is refused where the energy wants a larger rank"
                        : "");
    tree_put_bool(f->ctx->arena, f->ctx->record, "approximate", true);
    f->ctx->guessed = true;
    return STATUS_OK;
}

/* ---- weights of rows ---- */

/* Counts the words that the lookups read, and makes weights of that. */
static Status weigh(Factor *f, Diag *diag) {
    const F *options = f->options;
    Node **lookups = ARENA_ARRAY(f->ctx->arena, Node *, (size_t)f->lookups);
    Batches *data = NULL;
    int count = 0;
    if (options->weight != WEIGHT_FREQUENCY) return STATUS_OK;
    for (Node *n = f->graph->first; n; n = n->next)
        if (is_lookup(n, f->table)) lookups[count++] = n;
    for (int i = 0; i < count; i++)
        if (!node_is_input(lookups[i]->in[0]))
            return step_fail_option(f->ctx, "weight", diag,
                                    "expected words that an input of the model names, "
                                    "found some that op %s computes",
                                    lookups[i]->in[0]->op->name);
    const DataUse use = {.graph = f->graph, .roots = lookups, .root_count = count};
    TRY(step_data(f->ctx, options->data, &use, &data, diag));
    if (f->ctx->plan || !data) return STATUS_OK;
    double *weights = ARENA_ARRAY(f->ctx->arena, double, (size_t)f->rows);
    double all = 0, seen = 0;
    for (int i = 0; i < count; i++)
        TRY(word_counts_add(weights, f->rows, data, lookups[i]->in[0]->name,
                            f->ctx->watch, diag));
    for (int64_t v = 0; v < f->rows; v++) {
        all += weights[v];
        seen += weights[v] > 0;
        weights[v] = pow(1 + weights[v], options->alpha);
    }
    tree_put_real(f->ctx->arena, f->ctx->record, "words_counted", all);
    tree_put_int(f->ctx->arena, f->ctx->record, "rows_seen", (int64_t)seen);
    f->weights = weights;
    return STATUS_OK;
}

/* The rows of a table times the roots of their weights, the largest of which is 1. */
static Status scale_rows(Factor *f, const Tensor *table, Diag *diag) {
    void *data = NULL;
    double most = 0;
    for (int64_t v = 0; v < f->rows; v++) most = fmax(most, f->weights[v]);
    TRY(tensor_create(&f->scaled, DTYPE_F32, 2, table->dim, diag));
    TRY(tensor_writable(&f->scaled, &data, diag));
    for (int64_t v = 0; v < f->rows; v++) {
        float *row = (float *)data + v * f->width;
        const float root = (float)sqrt(f->weights[v] / most);
        tensor_read_f32(table, v * f->width, f->width, row);
        for (int64_t h = 0; h < f->width; h++) row[h] *= root;
    }
    return STATUS_OK;
}

/* Puts the rows themselves, seen by the directions that were found, in place of the
 * scaled ones: of a rank's directions no other rows are nearer. */
static Status take_rows(Factor *f, Tsvd *found, const Tensor *table, Diag *diag) {
    const int64_t rank = found->right.dim[0];
    Tensor left = {0};
    void *data = NULL;
    TRY(tensor_create(&left, DTYPE_F32, 2, (int64_t[]){f->rows, rank}, diag));
    Status status = tensor_writable(&left, &data, diag);
    if (status == STATUS_OK)
        status = tall_project(data, table, tensor_data(&found->right), rank,
                              f->ctx->threads, diag);
    if (status != STATUS_OK) {
        tensor_release(&left);
        return status;
    }
    f->scaled_left = found->left;
    found->left = left;
    return STATUS_OK;
}

/* ---- rewriting ---- */

/* Puts the factors into the graph; takes over the tensors. */
static Status apply(Factor *f, Tensor left, Tensor right, Diag *diag) {
    if (f->projection) {
        /* nobody else reads W2 (find_factor) */
        Status status = storage_replace(f->graph, f->table, f->readers, left, 1, diag);
        if (status == STATUS_OK)
            status = storage_replace(f->graph, f->projection, STORAGE_ALL_USERS, right, 1,
                                     diag);
        else
            tensor_release(&right);
        return status == STATUS_OK ? graph_infer(f->graph, diag) : status;
    }
    TRY(storage_factor(
        &f->projection, f->graph, f->table, f->readers, left, right,
        weight_name_with(f->graph->arena, f->table->storage->name, "_projection"), diag));
    for (int i = 0; i < f->readers.count; i++) {
        /* a lookup's result goes through W2, what a head reads comes back through it */
        Node *reader = f->readers.nodes[i], *added = NULL;
        const bool lookup = is_lookup(reader, f->table);
        Node *const in[] = {lookup ? reader : reader->in[0], f->projection};
        if (lookup) TRY(node_infer(reader, diag));
        TRY(node_add(&added, f->graph, lookup ? reader->next : reader, &op_linear, in, 2,
                     diag, lookup ? NULL : "transposed=true"));
        node_place(f->graph, added, reader->stack, reader->layer, ROLE_EMBED_PROJECTION);
        if (lookup)
            graph_replace_uses(f->graph, reader, added);
        else
            reader->in[0] = added;
    }
    return graph_infer(f->graph, diag);
}

/* ---- with weights ---- */

/* Checks, measures and puts in place what a decomposition gave. */
static Status use_factors(Factor *f, const Tensor *table, const Tsvd *found,
                          int64_t *rank, Diag *diag) {
    FactorError error;
    Tensor right = {0};
    *rank = found->right.dim[0];
    if (!f->rank) TRY(check_growth(f, *rank, diag));
    TRY(factor_transpose(&right, &found->right, diag));
    const Status status =
        factor_measure(&error, table, &found->left, &right, f->ctx->threads, diag);
    if (status != STATUS_OK) {
        tensor_release(&right);
        return status;
    }
    Arena *arena = f->ctx->arena;
    double lost = error.relative; /* of what the decomposition keeps as much as it can */
    if (f->weights) {
        FactorError weighted;
        const Status measured = factor_measure(&weighted, &f->scaled, &f->scaled_left,
                                               &right, f->ctx->threads, diag);
        if (measured != STATUS_OK) {
            tensor_release(&right);
            return measured;
        }
        tree_put_real(arena, f->ctx->record, "weighted_error", weighted.relative);
        lost = weighted.relative;
    }
    tree_put_real(arena, f->ctx->record, "error", error.absolute);
    tree_put_real(arena, f->ctx->record, "relative_error", error.relative);
    tree_put_real(arena, f->ctx->record, "energy", 1 - lost * lost);
    f->ctx->exact = error.row <= EXACT_ROW;
    return apply(f, tensor_retain(&found->left), right, diag);
}

/* Decomposes the table, or its scaled rows. */
static Status decompose(Factor *f, Tsvd *found, const Tensor *table, Diag *diag) {
    const int threads = f->ctx->threads;
    if (f->weights) TRY(scale_rows(f, table, diag));
    const Tensor *rows = f->weights ? &f->scaled : table;
    TRY(f->rank
            ? tsvd(found, rows, f->rank, threads, diag)
            : factor_by_energy(found, rows, f->options->energy, f->most, threads, diag));
    if (!f->weights) return STATUS_OK;
    const Status status = take_rows(f, found, table, diag);
    if (status != STATUS_OK) tsvd_release(found);
    return status;
}

static Status factor_weights(Factor *f, int64_t *rank, Diag *diag) {
    const Tensor *stored = storage_tensor(f->table->storage);
    Tensor table = {0};
    Tsvd found;
    if (f->projection)
        TRY(factor_multiply(&table, stored, storage_tensor(f->projection->storage),
                            f->ctx->threads, diag));
    else
        table = tensor_retain(stored);
    Status status = decompose(f, &found, &table, diag);
    if (status == STATUS_MODEL) diag_note(diag, "in \"%s\"", f->table->storage->name);
    if (status == STATUS_OK) {
        status = use_factors(f, &table, &found, rank, diag);
        tsvd_release(&found);
    }
    tensor_release(&table);
    tensor_release(&f->scaled);
    tensor_release(&f->scaled_left);
    return status;
}

static Status factor_shapes(Factor *f, int64_t *rank, Diag *diag) {
    *rank = f->rank;
    if (*rank == 0) TRY(guess_rank(f, rank, diag));
    f->ctx->unsure = f->projection && *rank == f->table->type.dim[1];
    return apply(f, tensor_shape(DTYPE_F32, 2, (int64_t[]){f->rows, *rank}),
                 tensor_shape(DTYPE_F32, 2, (int64_t[]){f->width, *rank}), diag);
}

/* ---- the pass ---- */

static void record_shape(const Factor *f, int64_t rank) {
    Arena *arena = f->ctx->arena;
    Tree *record = f->ctx->record;
    const double after = (double)factor_count(f, rank);
    tree_put_int(arena, record, "rows", f->rows);
    tree_put_int(arena, record, "width", f->width);
    tree_put_int(arena, record, "rank", rank);
    tree_put_real(arena, record, "break_even", break_even(f));
    tree_put_int(arena, record, "parameters_before", f->before);
    tree_put_int(arena, record, "parameters_after", factor_count(f, rank));
    tree_put_real(arena, record, "parameters_share", after / (double)f->before);
    tree_put_int(arena, record, "tied_heads", f->heads);
}

static Status factor_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    Factor f = {.ctx = ctx, .graph = model->graph, .options = opaque};
    TRY(find_table(&f, diag));
    TRY(check_users(&f, diag));
    f.projection = find_factor(&f);
    TRY(measure_table(&f, diag));
    TRY(choose_rank(&f, diag));
    int64_t rank = f.rank;
    if (rank > f.most)
        return step_fail_option(
            ctx, "rank", diag,
            "expected at most %lld for an embedding of %lld x %lld%s, found %lld",
            (long long)f.most, (long long)f.rows, (long long)f.width,
            f.projection ? " that is factored already" : "", (long long)rank);
    if (rank) TRY(check_growth(&f, rank, diag));
    TRY(weigh(&f, diag));
    TRY(storage_has_data(f.table->storage) ? factor_weights(&f, &rank, diag)
                                           : factor_shapes(&f, &rank, diag));
    record_shape(&f, rank);
    return STATUS_OK;
}

static Status factor_check(const void *opaque, const StepSource *source, Diag *diag) {
    const F *options = opaque;
    const int ways = (options->rank > 0) + (options->energy > 0) +
                     (options->parameters > 0) + (options->bytes > 0);
    if (ways != 1)
        return option_fail(source, FACTOR_WAYS, STATUS_RECIPE, diag,
                           "expected one of rank, energy, parameters and bytes, found %s",
                           ways ? "several" : "none");
    const bool weighted = options->weight == WEIGHT_FREQUENCY;
    if (weighted && !options->data)
        return option_fail(source, "weight", STATUS_RECIPE, diag,
                           "expected data with it, a data set whose words are counted");
    if (!weighted && (options->data || options->alpha != defaults.alpha))
        return option_fail(source, "data|alpha", STATUS_RECIPE, diag,
                           "needs weight: frequency");
    return STATUS_OK;
}

const Pass pass_factor_embedding = {
    .name = "factor_embedding",
    .summary = "factor the word embedding into a narrow table and a projection",
    .paper = "COST-EFF (EMNLP 2022), section 3.2",
    .fields = fields,
    .options_size = sizeof(F),
    .defaults = &defaults,
    .data_options = "data",
    .exactness = PASS_LOSSY,
    .effects = {.needs = MODEL_WORD_EMBEDDING, .gives = MODEL_FACTORED_EMBEDDING},
    .check = factor_check,
    .run = factor_run,
};
