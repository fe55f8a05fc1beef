/* Densify: see densify.h. */
#include "io/formats/densify.h"

#include "ir/half.h"
#include "ir/memory_array.h"
#include "ir/rewrite.h"
#include "ir/storage.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is factored ---- */

static bool is_op(const Node *node, const char *name) {
    return node && strcmp(node->op->name, name) == 0;
}

/* x times the matrix `weight`, transposed or not, and nothing else. */
static bool is_product(const Node *node, const Node *weight, bool transposed) {
    return is_op(node, "linear") && node->in[1] == weight && !node_has(node, 2) &&
           node_flag(node, "transposed") == transposed;
}

/* Whether a node reads table W1 [rows, r] in a way that the dense table can serve: it
 * looks rows up that W2 then widens, or it is a head on what W2 has narrowed. `*second`
 * is W2, the same for all. */
static bool serves(const Graph *graph, const Node *node, const Node *table,
                   Node **second) {
    const bool lookup = is_op(node, "embedding");
    const Node *product = lookup ? graph_only_reader(graph, node) : node->in[0];
    if (!product || !is_op(product, "linear") || !product->in[1]->storage ||
        product->role != ROLE_EMBED_PROJECTION)
        return false;
    if (!*second) *second = product->in[1];
    if (lookup) return node->in[1] == table && is_product(product, *second, false);
    return is_op(node, "linear") && node->in[1] == table &&
           !node_flag(node, "transposed") && is_product(product, *second, true);
}

/* W2 of a table, NULL when it is not factored, or not only that. */
static Node *find_second(const Graph *graph, const Node *table) {
    Node *second = NULL;
    if (!table->storage || table->type.rank != 2) return NULL;
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] == table && !serves(graph, node, table, &second)) return NULL;
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i].node == table) return NULL;
    return second;
}

/* ---- products ---- */

static void store_row(void *data, DType dtype, int64_t at, const double *row,
                      int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)row[i];
        if (dtype == DTYPE_F16)
            ((uint16_t *)data)[at + i] = f16_from_float(value);
        else if (dtype == DTYPE_BF16)
            ((uint16_t *)data)[at + i] = bf16_from_float(value);
        else
            ((float *)data)[at + i] = value;
    }
}

/* left [rows, r] times inner [r, width], row by row, as elements of `dtype`. */
static Status multiply_rows(void *data, DType dtype, const Storage *left,
                            const double *inner, int64_t width, Diag *diag) {
    const int64_t *dim = storage_tensor(left)->dim;
    const int64_t rows = dim[0], rank = dim[1];
    double *factor = NULL, *sum = NULL;
    Status status = MEMORY_ARRAY(&factor, (size_t)rank, left->name, diag);
    if (status == STATUS_OK) status = MEMORY_ARRAY(&sum, (size_t)width, left->name, diag);
    for (int64_t r = 0; r < rows && status == STATUS_OK; r++) {
        tensor_read_f64(storage_tensor(left), r * rank, rank, factor);
        memset(sum, 0, (size_t)width * sizeof *sum);
        for (int64_t k = 0; k < rank; k++)
            for (int64_t c = 0; c < width; c++)
                sum[c] += factor[k] * inner[k * width + c];
        store_row(data, dtype, r * width, sum, width);
    }
    free(factor);
    free(sum);
    return status;
}

/* left [rows, r] times right [r, width], or the transpose of right [width, r], in the
 * type of `like`. */
static Status multiply(Tensor *out, const Storage *left, const Storage *right,
                       bool transposed, const Storage *like, Diag *diag) {
    const int64_t rows = storage_tensor(left)->dim[0];
    const int64_t width = storage_tensor(right)->dim[!transposed];
    const DType stored = storage_tensor(like)->dtype;
    const DType dtype = stored == DTYPE_F16 || stored == DTYPE_BF16 ? stored : DTYPE_F32;
    void *data;
    double *inner; /* a row is contiguous */
    TRY(storage_blank(out, &data, like, dtype, 2, (int64_t[]){rows, width}, diag));
    if (!data) return STATUS_OK;
    Status status = storage_read_f64(&inner, right, transposed, diag);
    if (status == STATUS_OK)
        status = multiply_rows(data, dtype, left, inner, width, diag);
    free(inner);
    if (status != STATUS_OK) tensor_release(out);
    return status;
}

/* ---- the graph ---- */

/* Puts the dense table in place of W1 and takes the products with W2 out. */
static Status unfactor(Graph *graph, Node *table, const Node *second, Diag *diag) {
    Tensor dense;
    TRY(multiply(&dense, table->storage, second->storage, true, table->storage, diag));
    TRY(storage_replace(graph, table, STORAGE_ALL_USERS, dense, 1, diag));
    for (Node *node = graph->first; node; node = node->next) {
        if (node->in_count < 2 || node->in[1] != table) continue;
        if (is_op(node, "embedding"))
            graph_replace_uses(graph, graph_only_reader(graph, node), node);
        else
            node->in[0] = node->in[0]->in[0];
    }
    graph_remove_dead(graph);
    return graph_infer(graph, diag);
}

/* The first factor of a projection that is two; NULL = it is one matrix. */
static Node *find_first(const Graph *graph, const Node *node) {
    Node *first = node->in_count > 0 ? node->in[0] : NULL;
    const bool paired = is_op(node, "linear") && is_op(first, "linear") &&
                        first->role == ROLE_FACTOR && first->in[1]->storage &&
                        node->in[1]->storage && node->in[1]->type.rank == 2 &&
                        is_product(first, first->in[1], node_flag(node, "transposed"));
    return paired && graph_only_reader(graph, first) == node ? first : NULL;
}

/* The first factor's weights of a projection's, which all that read either have; NULL =
 * there is none such. */
static Node *find_outer(const Graph *graph, const Node *weight) {
    Node *outer = NULL;
    int users = 0;
    for (const Node *node = graph->first; weight->storage && node; node = node->next) {
        if (node->in_count < 2 || node->in[1] != weight) continue;
        const Node *first = find_first(graph, node);
        if (!first || (outer && first->in[1] != outer)) return NULL;
        outer = first->in[1];
        users++;
    }
    const bool whole = outer && graph_use_count(graph, weight) == users &&
                       graph_use_count(graph, outer) == users;
    return whole ? outer : NULL;
}

/* Puts the product in place of a projection's second factor and takes the first out. */
static Status unfactor_linear(Graph *graph, Node *weight, const Node *outer, Diag *diag) {
    Tensor dense;
    bool turned = false;
    for (const Node *node = graph->first; node; node = node->next)
        if (node->in_count > 1 && node->in[1] == weight)
            turned = node_flag(node, "transposed");
    const Storage *second = weight->storage, *first = outer->storage;
    TRY(multiply(&dense, turned ? first : second, turned ? second : first, false,
                 weight->storage, diag));
    TRY(storage_join(graph, weight, STORAGE_ALL_USERS, turned ? 0 : 1, outer, dense,
                     diag));
    for (Node *node = graph->first; node; node = node->next)
        if (node->in_count > 1 && node->in[1] == weight) node->in[0] = node->in[0]->in[0];
    graph_remove_dead(graph);
    return graph_infer(graph, diag);
}

Status model_densify(Model *model, DenseReport *report, Diag *diag) {
    Graph *graph = model->graph;
    const int64_t before = graph_parameter_count(graph);
    *report = (DenseReport){0};
    for (Node *leaf = graph->first; leaf; leaf = leaf->next) {
        const Node *second = find_second(graph, leaf);
        if (!second) continue;
        TRY(unfactor(graph, leaf, second, diag));
        report->factors++;
    }
    for (Node *leaf = graph->first; leaf; leaf = leaf->next) {
        const Node *outer = find_outer(graph, leaf);
        if (!outer) continue;
        TRY(unfactor_linear(graph, leaf, outer, diag));
        report->linears++;
    }
    report->parameters = graph_parameter_count(graph) - before;
    return STATUS_OK;
}
