/* Lifting weights: stored tensors become storages, in the layout of our ops and under
 * names that say where they belong. See lift_weights.h. */
#include "io/onnx/lift/lift_weights.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { CHAIN_MAX = 16 };

/* ---- which tensor it is ---- */

NetValue *stored_matrix(NetValue *value, bool *turned) {
    *turned = false;
    for (int i = 0; i < CHAIN_MAX; i++) {
        value = value_behind(value);
        NetNode *node = value->producer;
        if (!node) break;
        int rank;
        const int64_t *perm = net_ints(node, "perm", &rank);
        const Array *x = node->in_count && node->in[0] ? node->in[0]->probe[0] : NULL;
        const bool turn = net_is(node, "Transpose") && x && x->rank == 2 &&
                          (!perm || (rank == 2 && perm[0] == 1));
        if (!turn) return NULL;
        *turned = !*turned;
        value = node->in[0];
    }
    return value->stored && value->stored->n_dims == 2 ? value : NULL;
}

/* ---- names ---- */

/* Whether a name was made by a program that numbers what it makes. */
static bool is_numbered(const char *name) {
    if (strstr(name, "::") || strchr(name, '/') || strstr(name, "_output_")) return true;
    const size_t digits = strspn(name, "0123456789");
    return !name[digits] || !strchr(name, '.');
}

/* A node's name as a path of modules: "/encoder/layer.0/query/MatMul" without its last
 * part is "encoder.layer.0.query". NULL when it is not such a name. */
static const char *node_module(const Lift *lift, const NetNode *node) {
    const char *last = strrchr(node->name, '/');
    if (!last || last == node->name) return NULL;
    const char *from = node->name + (*node->name == '/');
    char *module = arena_strndup(lift->arena, from, (size_t)(last - from));
    for (char *c = module; *c; c++)
        if (*c == '/') *c = '.';
    return module;
}

/* The name of a projection's matrix: its own, or that of its bias or node with "weight"
 * at the end. */
static const char *matrix_name(const Lift *lift, const Projection *projection) {
    const char *own = projection->weight->name, *module;
    static const char TURNED[] = ".transposed"; /* our exporter's */
    const int stem = (int)(strlen(own) - strlen(TURNED));
    if (text_ends_with(own, TURNED)) return arena_printf(lift->arena, "%.*s", stem, own);
    if (!is_numbered(own)) return own;
    const NetValue *bias = projection->bias;
    if (bias && !is_numbered(bias->name) && text_ends_with(bias->name, ".bias"))
        return arena_printf(lift->arena, "%.*sweight", (int)strlen(bias->name) - 4,
                            bias->name);
    module = node_module(lift, projection->node);
    return module ? arena_printf(lift->arena, "%s.weight", module) : own;
}

/* ---- storages ---- */

/* A view of the stored bytes, or a copy where they are not aligned or in a list. */
static bool stored_tensor(Lift *lift, const NetValue *value, int rank, const int64_t *dim,
                          Tensor *out, Diag *diag) {
    const OnnxTensor *stored = value->stored;
    DType dtype = DTYPE_F32;
    Buf *map;
    const char *bytes = net_bytes(lift->net, stored, &map);
    const int32_t type = stored->data_type;
    const bool kept =
        bytes && (type == ONNX_F32 || type == ONNX_F16 || type == ONNX_BF16);
    if (kept) onnx_dtype(type, &dtype);
    *out = tensor_shape(dtype, rank, dim);
    if (kept && net_view(out, lift->net, stored)) return true;
    void *data;
    if (tensor_create(out, dtype, rank, dim, diag) != STATUS_OK ||
        tensor_writable(out, &data, diag) != STATUS_OK)
        return false;
    if (kept) return memcpy(data, bytes, tensor_bytes(out)), true;
    ArrayPool pool = {arena_create(), INT64_MAX};
    const Array *array = array_stored(&pool, lift->net, stored);
    for (int64_t i = 0; array && array->data && i < array->count; i++)
        ((float *)data)[i] = (float)array->data[i];
    const bool good = array && array->data;
    arena_destroy(pool.arena);
    return good;
}

/* Numbers that were computed from constants. */
static bool computed_tensor(const Array *array, int rank, const int64_t *dim, Tensor *out,
                            Diag *diag) {
    void *data;
    if (!array || !array->data || tensor_create(out, DTYPE_F32, rank, dim, diag) ||
        tensor_writable(out, &data, diag) != STATUS_OK)
        return false;
    for (int64_t i = 0; i < array->count; i++) ((float *)data)[i] = (float)array->data[i];
    return true;
}

static Node *find_leaf(const Lift *lift, const LiftLeaf *wanted) {
    for (int i = 0; i < lift->leaf_count; i++) {
        const LiftLeaf *leaf = &lift->leaves[i];
        if (leaf->source == wanted->source && leaf->turned == wanted->turned &&
            leaf->hash == wanted->hash && leaf->rank == wanted->rank)
            return leaf->leaf;
    }
    return NULL;
}

/* Makes a storage of a tensor, whose reference is taken over. */
static Node *add_leaf(Lift *lift, const LiftLeaf *like, const char *name,
                      Tensor *tensor) {
    Storage *storage;
    Diag *diag = diag_create();
    const Tensor shape = tensor_shape(tensor->dtype, tensor->rank, tensor->dim);
    const Status status = graph_add_storage(
        &storage, lift->graph, graph_fresh_name(lift->graph, name), &shape, diag);
    diag_destroy(diag);
    if (status != STATUS_OK) {
        tensor_release(tensor);
        return lift_stop(lift, NULL, "a weight without a usable name");
    }
    storage->tensor = *tensor;
    const bool vector = tensor->rank == 1;
    storage->init = (Init){vector ? INIT_ZEROS : INIT_TRUNC_NORMAL, 0.02};
    if (vector && text_ends_with(name, "weight")) storage->init.kind = INIT_ONES;
    if (!dtype_is_real(tensor->dtype)) storage->init.kind = INIT_ZEROS;
    Node *leaf = graph_param(lift->graph, storage);
    if (lift->leaf_count == lift->leaf_capacity) {
        lift->leaf_capacity = lift->leaf_capacity ? 2 * lift->leaf_capacity : 64;
        lift->leaves =
            memory_grow(lift->leaves, (size_t)lift->leaf_capacity, sizeof *lift->leaves);
    }
    lift->leaves[lift->leaf_count] = *like;
    lift->leaves[lift->leaf_count++].leaf = leaf;
    return leaf;
}

Node *lift_leaf(Lift *lift, const NetValue *value, Tensor *tensor) {
    const LiftLeaf like = {.source = value, .rank = tensor->rank};
    return add_leaf(lift, &like, value->name, tensor);
}

Node *lift_stored(Lift *lift, NetValue *value, int rank, const int64_t *dim) {
    NetValue *source = value_behind(value);
    const Array *shape = value->probe[0];
    if (rank < 0) rank = shape->rank, dim = shape->dim;
    const LiftLeaf wanted = {.source = source, .rank = rank};
    Node *leaf = find_leaf(lift, &wanted);
    if (leaf) return leaf;
    if (rank > RANK_MAX || !shape_size(DTYPE_F32, rank, dim, NULL, NULL))
        return lift_stop(lift, value->producer, "a weight of too many dimensions");
    Tensor tensor = {0};
    Diag *diag = diag_create();
    const bool good = source->stored
                          ? stored_tensor(lift, source, rank, dim, &tensor, diag)
                          : computed_tensor(shape, rank, dim, &tensor, diag);
    diag_destroy(diag);
    if (good) return add_leaf(lift, &wanted, source->name, &tensor);
    tensor_release(&tensor);
    return lift_stop(lift, value->producer, "its numbers are too many to be computed");
}

/* ---- projections ---- */

/* The matrix that an operand is; vectors go with it as a bias. */
static bool is_vector(const NetValue *value, int64_t width) {
    const Array *shape = value ? value->probe[0] : NULL;
    return shape && value_is_constant(value) && shape->count == width &&
           shape->rank > 0 && shape->dim[shape->rank - 1] == width &&
           !array_is_integer(shape);
}

bool match_matrix_product(NetNode *node, bool gemm, Projection *out) {
    bool turned;
    NetValue *x = node->in_count > 1 ? node->in[0] : NULL;
    if (!x || !node->in[1] || value_is_known(x)) return false;
    NetValue *weight = stored_matrix(node->in[1], &turned);
    if (!weight || net_int(node, "transA", 0) || net_real(node, "alpha", 1) != 1)
        return false;
    if (net_int(node, "transB", 0)) turned = !turned;
    *out = (Projection){node, x, weight, turned, NULL};
    if (!gemm || node->in_count < 3 || !node->in[2]) return true;
    const int64_t width = weight->stored->dims[turned ? 0 : 1];
    out->bias = value_behind(node->in[2]);
    return net_real(node, "beta", 1) == 1 && is_vector(out->bias, width);
}

/* The projection that a node alone is. */
static bool match_product_node(NetNode *node, Projection *out) {
    if (net_is(node, "Gemm")) return match_matrix_product(node, true, out);
    return (net_is(node, "MatMul") || net_is(node, "com.microsoft.FusedMatMul")) &&
           match_matrix_product(node, false, out);
}

bool match_projection(const Lift *lift, NetValue *value, Projection *out) {
    NetNode *node = value->producer;
    (void)lift;
    if (!node) return false;
    if (match_product_node(node, out)) return true;
    if (!net_is(node, "Add") || node->in_count != 2) return false;
    for (int i = 0; i < 2; i++) {
        NetValue *product = node->in[i], *bias = node->in[1 - i];
        if (!product || !bias || !product->producer) continue;
        if (!match_product_node(value_behind(product)->producer, out) || out->bias)
            continue;
        if (!is_vector(bias, out->weight->stored->dims[out->rows_are_outputs ? 0 : 1]))
            continue;
        out->bias = value_behind(bias);
        return true;
    }
    return false;
}

/* Copies outputs `columns` of a matrix [rows, width] to [count, rows], or when `turned`
 * is false to [rows, count]. */
static void copy_columns(char *to, const char *from, size_t each, int64_t rows,
                         int64_t width, const int64_t *columns, int64_t count,
                         bool turned) {
    for (int64_t r0 = 0; r0 < rows; r0 += 32)
        for (int64_t c = 0; c < count; c++) {
            const int64_t column = columns ? columns[c] : c;
            const int64_t end = r0 + 32 < rows ? r0 + 32 : rows;
            for (int64_t r = r0; r < end; r++)
                memcpy(to + (size_t)(turned ? c * rows + r : r * count + c) * each,
                       from + (size_t)(r * width + column) * each, each);
        }
}

/* Copies rows of a matrix or elements of a vector. */
static void copy_chosen(char *to, const char *from, size_t row, const int64_t *columns,
                        int64_t count) {
    for (int64_t i = 0; i < count; i++)
        memcpy(to + (size_t)i * row, from + (size_t)columns[i] * row, row);
}

static int64_t hash_columns(const int64_t *columns, int64_t count) {
    uint64_t hash = 1469598103934665603u;
    for (int64_t i = 0; columns && i < count; i++)
        hash = (hash ^ (uint64_t)columns[i]) * 1099511628211u;
    return columns ? (int64_t)(hash | 1) : 0;
}

/* "x.attn.c_attn.weight" is queries, keys and values: a part of it gets a name that says
 * which; others get the number of their first output. */
static const char *part_name(const Lift *lift, const char *name, const int64_t *columns,
                             int64_t count, int64_t width) {
    const char *dot = strrchr(name, '.');
    const char *c_attn = strstr(name, ".c_attn.");
    if (!columns || !dot) return name;
    const int64_t third = width / 3 > 0 ? columns[0] / (width / 3) : 0;
    const bool thirds = count * 3 == width && columns[0] % count == 0 && third < 3;
    const char *part = thirds ? (const char *const[]){"q", "k", "v"}[third]
                              : arena_printf(lift->arena, "%lld", (long long)columns[0]);
    if (thirds && c_attn)
        return arena_printf(lift->arena, "%.*s.%s%s", (int)(c_attn - name), name, part,
                            dot);
    return arena_printf(lift->arena, "%.*s.%s%s", (int)(dot - name), name, part, dot);
}

/* The projection of patches is a convolution: its matrix [D, C p p] has the shape [D, C,
 * p, p]. */
static void shape_filters(Tensor *tensor, const Node *x) {
    if (strcmp(x->op->name, "patches") != 0 || tensor->rank != 2) return;
    const int64_t size = node_integer(x, "size"), channels = x->in[0]->type.dim[1];
    if (tensor->dim[1] != channels * size * size) return;
    tensor->rank = 4;
    tensor->dim[1] = channels;
    tensor->dim[2] = tensor->dim[3] = size;
}

static Node *projection_matrix(Lift *lift, const Projection *p, const Node *x,
                               const int64_t *columns, int64_t count, bool keep) {
    const LiftLeaf wanted = {.source = p->weight,
                             .turned = !p->rows_are_outputs && !keep,
                             .hash = hash_columns(columns, count),
                             .rank = 2};
    const int64_t *stored = p->weight->stored->dims;
    const int64_t in = stored[p->rows_are_outputs], all = stored[!p->rows_are_outputs];
    if (!columns) count = all;
    Node *leaf = find_leaf(lift, &wanted);
    if (leaf) return leaf;
    const char *name = part_name(lift, matrix_name(lift, p), columns, count, all);
    Tensor whole = {0}, out = {0};
    Diag *diag = diag_create();
    void *data = NULL;
    const int64_t turned[2] = {count, in}, kept[2] = {in, count};
    bool good = stored_tensor(lift, p->weight, 2, stored, &whole, diag);
    if (good && !columns && !wanted.turned) {
        diag_destroy(diag);
        shape_filters(&whole, x);
        return add_leaf(lift, &wanted, name, &whole);
    }
    good = good &&
           tensor_create(&out, whole.dtype, 2, keep ? kept : turned, diag) == STATUS_OK &&
           tensor_writable(&out, &data, diag) == STATUS_OK;
    diag_destroy(diag);
    const size_t each = dtype_bytes(whole.dtype);
    if (good && p->rows_are_outputs)
        copy_chosen(data, tensor_data(&whole), each * (size_t)in, columns, count);
    else if (good)
        copy_columns(data, tensor_data(&whole), each, in, all, columns, count, !keep);
    tensor_release(&whole);
    if (!keep) shape_filters(&out, x);
    if (good) return add_leaf(lift, &wanted, name, &out);
    tensor_release(&out);
    return lift_stop(lift, p->node, "not enough memory for its matrix");
}

static Node *projection_bias(Lift *lift, const Projection *p, const int64_t *columns,
                             int64_t count) {
    const LiftLeaf wanted = {
        .source = p->bias, .hash = hash_columns(columns, count), .rank = 1};
    const int64_t all = p->bias->probe[0]->count;
    if (!columns) return lift_stored(lift, p->bias, 1, &all);
    Node *leaf = find_leaf(lift, &wanted);
    if (leaf) return leaf;
    Node *whole = lift_stored(lift, p->bias, 1, &all); /* goes when nobody uses it */
    if (!whole) return NULL;
    Tensor out = {0};
    void *data = NULL;
    Diag *diag = diag_create();
    const Tensor *from = &whole->storage->tensor;
    const bool good = tensor_create(&out, from->dtype, 1, &count, diag) == STATUS_OK &&
                      tensor_writable(&out, &data, diag) == STATUS_OK;
    diag_destroy(diag);
    if (!good) return lift_stop(lift, p->node, "not enough memory for its bias");
    copy_chosen(data, tensor_data(from), dtype_bytes(from->dtype), columns, count);
    return add_leaf(lift, &wanted, part_name(lift, p->bias->name, columns, count, all),
                    &out);
}

Node *lift_projection(Lift *lift, const Projection *p, const int64_t *columns,
                      int64_t count) {
    /* A module keeps its matrix [in, out], as those of GPT-2 do: exporters name what they
     * have transposed otherwise than the modules do. */
    const bool keep = !p->rows_are_outputs && !is_numbered(p->weight->name) &&
                      text_ends_with(p->weight->name, ".weight");
    Node *in[3] = {lift_value(lift, p->x)};
    if (!in[0]) return NULL;
    in[1] = projection_matrix(lift, p, in[0], columns, count, keep);
    if (in[1] && p->bias) in[2] = projection_bias(lift, p, columns, count);
    if (!in[1] || (p->bias && !in[2])) return NULL;
    return lift_op(lift, p->node, "linear", in, p->bias ? 3 : 2,
                   keep ? "transposed=true" : NULL);
}
