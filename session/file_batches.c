/* Named tensors of a file as samples. */
#include "session/file_batches.h"

#include "ir/model_parts.h"

#include <string.h>

/* Values converted at a time. */
#define CHUNK 1024

/* The samples; tensors[i] belongs to columns[i], NULL = all zeros. Lives in an arena. */
typedef struct FileBatches {
    Batches batches;
    const Tensor **tensors;
} FileBatches;

static bool is_integer(DType dtype) {
    return !dtype_is_real(dtype);
}

/* Checks the shape and collects the sizes of symbols (0 = not known yet). */
static Status check_shape(const char *file, const Node *input, const Tensor *tensor,
                          int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    const Type *type = &input->type;
    char found[SHAPE_TEXT_BYTES], symbol[DIM_TEXT_BYTES];
    shape_text(found, tensor->rank, tensor->dim);
    bool fits = tensor->rank == type->rank && type->rank > 0 && type->dim[0] == DIM_N;
    for (int d = 0; d < type->rank && fits; d++) {
        int64_t dim = type->dim[d];
        if (dim >= 0 && dim != tensor->dim[d]) fits = false;
        if (dim >= 0 || !fits) continue;
        int64_t *size = &sizes[DIM_INDEX(dim)];
        if (*size == 0) *size = tensor->dim[d];
        if (*size <= 0)
            return diag_fail(diag, STATUS_MODEL, LOC_FILE(file), input->name,
                             "expected at least one value, found shape %s", found);
        if (*size != tensor->dim[d])
            return diag_fail(diag, STATUS_MODEL, LOC_FILE(file), input->name,
                             "expected %s = %lld as in other places, found shape %s",
                             dim_text(symbol, dim), (long long)*size, found);
    }
    if (fits) return STATUS_OK;
    Text text = {0};
    type_print(&text, type);
    Status status = diag_fail(diag, STATUS_MODEL, LOC_FILE(file), input->name,
                              "expected %s, found shape %s", text.data, found);
    text_free(&text);
    return status;
}

/* Checks the values: finite, and integers that fit into 32 bits. */
static Status check_values(const char *file, const Node *input, const Tensor *tensor,
                           Diag *diag) {
    int64_t bad = tensor_find_nonfinite(tensor);
    if (bad >= 0)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(file), input->name,
                         "expected finite values, element %lld is not", (long long)bad);
    if (!is_integer(tensor->dtype)) return STATUS_OK;
    double chunk[CHUNK];
    int64_t count = tensor_count(tensor);
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t n = count - first < CHUNK ? count - first : CHUNK;
        tensor_read_f64(tensor, first, n, chunk);
        for (int64_t i = 0; i < n; i++)
            if (chunk[i] < INT32_MIN || chunk[i] > INT32_MAX)
                return diag_fail(diag, STATUS_MODEL, LOC_FILE(file), input->name,
                                 "expected integers of 32 bits, element %lld is %.0f",
                                 (long long)(first + i), chunk[i]);
    }
    return STATUS_OK;
}

static void read_integers(const Tensor *tensor, int64_t first, int64_t count,
                          int32_t *out) {
    double chunk[CHUNK];
    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t n = count - done < CHUNK ? count - done : CHUNK;
        tensor_read_f64(tensor, first + done, n, chunk);
        for (int64_t i = 0; i < n; i++) out[done + i] = (int32_t)chunk[i];
    }
}

/* Batches.fetch. */
static Status fetch(const Batches *batches, const Fetch *what, void *const *dst,
                    Diag *diag) {
    const int64_t *index = what->index;
    const int64_t n = what->n;
    const FileBatches *data = (const FileBatches *)batches;
    (void)diag;
    for (int c = 0; c < batches->column_count; c++) {
        const Tensor *tensor = data->tensors[c];
        const int64_t per = type_count(&batches->columns[c].type);
        if (!tensor && dst[c]) memset(dst[c], 0, (size_t)(n * per) * sizeof(int32_t));
        for (int64_t i = 0; i < n && tensor && dst[c]; i++) {
            if (batches->columns[c].type.dtype == DTYPE_I32)
                read_integers(tensor, index[i] * per, per, (int32_t *)dst[c] + i * per);
            else
                tensor_read_f32(tensor, index[i] * per, per, (float *)dst[c] + i * per);
        }
    }
    return STATUS_OK;
}

static void destroy(Batches *batches) {
    (void)batches;
}

/* Binds one input to its tensor. */
static Status bind_input(FileBatches *data, Column *column, const Node *input,
                         const Checkpoint *inputs, int64_t sizes[DIM_SYMBOLS],
                         Diag *diag) {
    const Tensor *tensor = checkpoint_find(inputs, input->name);
    if (!tensor)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(inputs->path), input->name,
                         "expected a tensor for the model's input \"%s\", found none",
                         input->name);
    const bool wanted = is_integer(input->type.dtype);
    if (wanted != is_integer(tensor->dtype))
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(inputs->path), input->name,
                         "expected %s, found %s", wanted ? "integers" : "real numbers",
                         dtype_name(tensor->dtype));
    TRY(check_shape(inputs->path, input, tensor, sizes, diag));
    TRY(check_values(inputs->path, input, tensor, diag));
    column->name = input->name;
    column->type.dtype = input->type.dtype;
    column->type.rank = tensor->rank - 1;
    for (int d = 1; d < tensor->rank; d++) column->type.dim[d - 1] = tensor->dim[d];
    data->tensors[data->batches.column_count++] = tensor;
    return STATUS_OK;
}

/* Token types that were left out, of which all are 0. */
static void bind_zeros(FileBatches *data, Column *column, const Node *input,
                       const int64_t sizes[DIM_SYMBOLS]) {
    const Type *type = &input->type;
    column->name = input->name;
    column->type.dtype = type->dtype;
    column->type.rank = type->rank - 1;
    for (int d = 1; d < type->rank; d++) {
        const int64_t dim = type->dim[d];
        column->type.dim[d - 1] = dim >= 0 ? dim : sizes[DIM_INDEX(dim)];
    }
    data->tensors[data->batches.column_count++] = NULL;
}

/* Whether a name is that of an input of some model. */
static bool is_known_input(const char *name) {
    static const char *const KNOWN[] = {
        INPUT_PIXELS,     INPUT_IDS,         INPUT_TYPES,    INPUT_MASK,
        INPUT_TARGET_IDS, INPUT_TARGET_MASK, "position_ids", "inputs_embeds"};
    bool known = strstr(name, "mask") != NULL;
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN && !known; i++)
        known = strcmp(name, KNOWN[i]) == 0;
    return known;
}

/* Checks that a tensor is no input that the model would have to take and does not, nor
 * one whose name was misspelt: the nearest input has no tensor. */
static Status check_name(const Graph *graph, const Checkpoint *inputs, const char *name,
                         bool strict, Diag *diag) {
    if (graph_find_input(graph, name)) return STATUS_OK;
    Arena *arena = arena_create();
    Text names = {0};
    int count = 0;
    const char **items = ARENA_ARRAY(arena, const char *, (size_t)graph->node_count + 1);
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->name) continue;
        text_add(&names, "%s%s", count ? ", " : "", node->name);
        items[count++] = node->name;
    }
    const char *near = name_nearest(name, items, count);
    const bool misspelt = near && !checkpoint_find(inputs, near);
    const bool wrong = strict || misspelt || is_known_input(name);
    if (wrong)
        diag_fail(diag, STATUS_MODEL, LOC_FILE(inputs->path), name,
                  "the model has no input of this name; its inputs are %s",
                  names.data ? names.data : "none");
    if (misspelt) diag_hint(diag, "did you mean \"%s\"?", near);
    text_free(&names);
    arena_destroy(arena);
    return wrong ? STATUS_MODEL : STATUS_OK;
}

Status file_batches_create(Batches **out, Arena *arena, const Graph *graph,
                           const Checkpoint *inputs, bool strict,
                           int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    FileBatches *data = ARENA_NEW(arena, FileBatches);
    Column *columns = ARENA_ARRAY(arena, Column, (size_t)graph->node_count + 1);
    data->tensors = ARENA_ARRAY(arena, const Tensor *, (size_t)graph->node_count + 1);
    data->batches = (Batches){
        .name = inputs->path, .columns = columns, .fetch = fetch, .destroy = destroy};
    for (int i = 0; i < DIM_SYMBOLS; i++) sizes[i] = 0;
    for (int i = 0; i < inputs->count; i++)
        TRY(check_name(graph, inputs, inputs->tensors[i].name, strict, diag));
    const Node *types = NULL; /* that were left out */
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->name) continue;
        const bool given = checkpoint_find(inputs, node->name) != NULL;
        if (!given && strcmp(node->name, INPUT_TYPES) == 0) types = node;
        if (!given && (input_is_mask(node->name) || types == node)) continue;
        TRY(bind_input(data, &columns[data->batches.column_count], node, inputs, sizes,
                       diag));
    }
    if (types) bind_zeros(data, &columns[data->batches.column_count], types, sizes);
    data->batches.count = sizes[DIM_INDEX(DIM_N)];
    if (data->batches.count == 0)
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(inputs->path), NULL,
                         "expected a model with inputs, found none");
    *out = &data->batches;
    return STATUS_OK;
}
