/* Params: weights in the precision they are computed in. See exec/run/params.h. */
#include "exec/run/params.h"

#include "exec/linalg/products.h"
#include "exec/plan/weight_layout.h"
#include "exec/run/rounded.h"
#include "ir/mapped.h"
#include "ir/resident.h"

#include <stdatomic.h>
#include <stdlib.h>

/* One storage: where its weights are, and the reference that keeps them there. */
typedef struct Slot {
    const Storage *storage;
    Tensor held;
    const void *data;
    int64_t offset;
    PackedForms forms; /* in which packed products read it */
    bool later;        /* not packed: products do it, from the floats at `data` */
    bool stored;       /* or from the numbers as they are stored: there are no floats */
    Matrix packed[PACKED_FORMS];
    Buf *packed_data[PACKED_FORMS];
    OnednnMatrix *onednn;
} Slot;

/* What weights are made ready for. */
typedef enum ParamsUse {
    PARAMS_PLAIN,
    PARAMS_TRAIN,
    PARAMS_PACKED,
    PARAMS_STORED
} ParamsUse;

struct Params {
    atomic_int references;
    Precision precision;
    Slot *slots;
    int count;
    Buf *flat; /* with `train` */
    Rounded *rounded;
    int64_t gradient_count;
    size_t room_bytes;
};

/* To doubles, or to integers of 32 bits, which must hold them. */
static Status convert(Tensor *out, const Storage *storage, DType dtype, Diag *diag) {
    const Tensor *in = &storage->tensor;
    TRY(tensor_create(out, dtype, in->rank, in->dim, diag));
    void *data = NULL;
    TRY(tensor_writable(out, &data, diag));
    const int64_t count = tensor_count(in);
    if (dtype == DTYPE_F64) tensor_read_f64(in, 0, count, data);
    for (int64_t i = 0; dtype == DTYPE_I32 && i < count; i++) {
        double value;
        tensor_read_f64(in, i, 1, &value);
        if (!(value >= INT32_MIN && value <= INT32_MAX))
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, storage->name,
                             "element %lld: expected an integer of 32 bits, found %.17g",
                             (long long)i, value);
        ((int32_t *)data)[i] = (int32_t)value;
    }
    return STATUS_OK;
}

/* Whether a tensor's bytes are what kernels read. */
static bool is_in_place(const Tensor *tensor, DType dtype) {
    return tensor->dtype == dtype &&
           (uintptr_t)tensor_data(tensor) % dtype_bytes(dtype) == 0;
}

/* The storage's weights as kernels read them: shared when they are so already. */
static Status hold_storage(Slot *slot, Precision precision, Diag *diag) {
    const Tensor *tensor = &slot->storage->tensor;
    DType dtype = precision == PRECISION_F64 ? DTYPE_F64 : DTYPE_F32;
    if (!dtype_is_real(tensor->dtype)) dtype = DTYPE_I32;
    Status status = STATUS_OK;
    if (is_in_place(tensor, dtype))
        slot->held = tensor_retain(tensor);
    else if (dtype == DTYPE_F32)
        status = tensor_to_f32(&slot->held, tensor, diag);
    else
        status = convert(&slot->held, slot->storage, dtype, diag);
    slot->data = tensor_data(&slot->held);
    return status;
}

/* Bytes of weights that are not in mapped files. */
static size_t own_bytes(const Graph *graph) {
    size_t bytes = 0;
    for (int i = 0; i < graph->storage_count; i++)
        if (!buf_is_file(graph->storages[i]->tensor.buf))
            bytes += tensor_bytes(&graph->storages[i]->tensor);
    return bytes;
}

/* In which forms the storage is read, and whether packing is left to products. Rows that
 * are rounded have no scratch for that. */
static void choose_forms(Slot *slot, const Graph *graph, int64_t runs) {
    const Tensor *tensor = &slot->storage->tensor;
    const bool cheap = runs == PARAMS_ALWAYS || buf_is_file(tensor->buf) ||
                       own_bytes(graph) <= PARAMS_COPY_BYTES;
    slot->forms = packed_forms(graph, slot->storage);
    slot->later =
        !(cheap && runs >= PARAMS_OFTEN) && is_in_place(tensor, DTYPE_F32) &&
        (slot->forms & (PACKED_IN(PACKED_WEIGHTS) | PACKED_IN(PACKED_TURNED))) &&
        !(slot->forms & PACKED_IN(PACKED_WHOLE));
}

/* Whether a storage is of half the bytes of floats and read by products and look-ups
 * alone, which can take the numbers as they are stored. */
static bool is_half(const Graph *graph, const Storage *storage) {
    const DType dtype = storage->tensor.dtype;
    const PackedForms forms = packed_forms(graph, storage);
    return (dtype == DTYPE_F16 || dtype == DTYPE_BF16) && forms != 0 &&
           !(forms & ~(PACKED_IN(PACKED_WEIGHTS) | PACKED_ROWS));
}

/* Leaves such a storage as it is. */
static void choose_stored(Slot *slot, const Graph *graph) {
    slot->stored = is_half(graph, slot->storage);
    if (slot->stored) slot->forms = packed_forms(graph, slot->storage);
    slot->later = slot->forms & PACKED_IN(PACKED_WEIGHTS);
}

/* Packs the storage's weights in every form that somebody reads. */
static Status pack_storage(Params *params, Slot *slot, Diag *diag) {
    const Tensor *tensor = &slot->storage->tensor;
    for (int form = 0; form < PACKED_FORMS; form++) {
        if (!(slot->forms & PACKED_IN(form))) continue;
        Matrix *matrix = &slot->packed[form];
        *matrix = packed_matrix(tensor, form);
        const size_t room = matrix_room_bytes(matrix->columns) * (slot->stored ? 2 : 1);
        if (slot->later && room > params->room_bytes) params->room_bytes = room;
        if (slot->later) continue;
        TRY(buf_create(&slot->packed_data[form], matrix_bytes(matrix), diag));
        void *data = (void *)(uintptr_t)buf_data(slot->packed_data[form]);
        matrix_pack(matrix, tensor, form == PACKED_TURNED, data);
        matrix->data = data;
    }
    if (slot->forms && !slot->later && !slot->data && !(slot->forms & PACKED_ROWS))
        buf_drop_pages(tensor->buf, tensor->offset, tensor_bytes(tensor));
    return STATUS_OK;
}

/* Whether oneDNN multiplies with operand `operand` of a node. */
static bool reads_onednn(const Node *node, int operand) {
    if (node->op != &op_linear || operand != 1 || !products_onednn()) return false;
    const LinearAttrs *attrs = node->attrs;
    return !attrs->transposed && attrs->act == LINEAR_ACT_FLOAT && !attrs->round;
}

/* Packs the storage's floats where linears multiply with them by oneDNN. */
static Status pack_onednn(Slot *slot, const Graph *graph, Diag *diag) {
    const Tensor *tensor = &slot->held;
    bool read = false;
    if (!slot->data || tensor->dtype != DTYPE_F32 || !products_onednn()) return STATUS_OK;
    for (const Node *node = graph->first; node && !read; node = node->next)
        read = node->in_count > 1 && node->in[1] &&
               node->in[1]->storage == slot->storage && reads_onednn(node, 1);
    const int64_t rows = tensor->rank > 0 ? tensor->dim[0] : 0;
    return read ? onednn_pack(&slot->onednn, ONEDNN_F32, false, rows,
                              tensor_count(tensor) / rows, slot->data, diag)
                : STATUS_OK;
}

/* Moves the trainable storages into one array and makes their tensors views of it. */
static Status gather(Params *params, Graph *graph, Diag *diag) {
    const size_t bytes = (size_t)params->gradient_count * sizeof(float);
    TRY(buf_create(&params->flat, bytes, diag));
    float *flat = params_flat(params);
    for (int i = 0; i < graph->storage_count; i++) {
        if (params->slots[i].offset < 0) continue;
        Tensor *tensor = &graph->storages[i]->tensor;
        Tensor view = tensor_shape(DTYPE_F32, tensor->rank, tensor->dim);
        view.buf = buf_retain(params->flat);
        view.offset = (size_t)params->slots[i].offset * sizeof(float);
        tensor_read_f32(tensor, 0, tensor_count(tensor), flat + params->slots[i].offset);
        tensor_release(tensor);
        *tensor = view;
    }
    return STATUS_OK;
}

static Status params_fill(Params *params, Graph *graph, ParamsUse use, int64_t runs,
                          Diag *diag) {
    const bool train = use == PARAMS_TRAIN;
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        if (!storage->tensor.buf && tensor_count(&storage->tensor) > 0)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, storage->name,
                             "expected weights to run the model, found a shape only");
    }
    int64_t *offset = memory_alloc((size_t)graph->storage_count + 1, sizeof *offset);
    params->gradient_count = params_layout(graph, offset);
    for (int i = 0; i < graph->storage_count; i++)
        params->slots[i] = (Slot){.storage = graph->storages[i], .offset = offset[i]};
    free(offset);
    if (train && params->precision != PRECISION_F32)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "weights are trained in single precision only");
    params->count = graph->storage_count;
    if (train) TRY(gather(params, graph, diag));
    for (int i = 0; i < params->count; i++) {
        Slot *slot = &params->slots[i];
        if (use == PARAMS_PACKED) choose_forms(slot, graph, runs);
        if (use == PARAMS_STORED) choose_stored(slot, graph);
        const bool read = !slot->forms || slot->later || (slot->forms & PACKED_FLOATS);
        if (read && !slot->stored) TRY(hold_storage(slot, params->precision, diag));
        TRY(pack_storage(params, slot, diag));
        if (use == PARAMS_PACKED) TRY(pack_onednn(slot, graph, diag));
    }
    return STATUS_OK;
}

static Status create(Params **out, Graph *graph, Precision precision, ParamsUse use,
                     int64_t runs, Diag *diag) {
    Params *params = memory_alloc(1, sizeof *params);
    atomic_init(&params->references, 1);
    params->precision = precision;
    params->slots = memory_alloc((size_t)graph->storage_count + 1, sizeof *params->slots);
    Status status = params_fill(params, graph, use, runs, diag);
    if (status == STATUS_OK)
        *out = params;
    else
        params_destroy(params);
    return status;
}

Status params_create(Params **out, Graph *graph, Precision precision, bool train,
                     Diag *diag) {
    return create(out, graph, precision, train ? PARAMS_TRAIN : PARAMS_PLAIN, 0, diag);
}

Status params_create_packed(Params **out, Graph *graph, int64_t runs, Diag *diag) {
    return create(out, graph, PRECISION_F32, PARAMS_PACKED, runs, diag);
}

Status params_create_stored(Params **out, Graph *graph, Diag *diag) {
    return create(out, graph, PRECISION_F32, PARAMS_STORED, 0, diag);
}

size_t params_stored_bytes(const Graph *graph, const Storage *storage) {
    return is_half(graph, storage)
               ? 0
               : (size_t)tensor_count(&storage->tensor) * sizeof(float);
}

size_t params_room_bytes(const Params *params) {
    return params->room_bytes;
}

int64_t params_packed_bytes(const Graph *graph) {
    size_t bytes = 0;
    for (const Node *leaf = graph->first; leaf; leaf = leaf->next) {
        const Storage *storage = leaf->storage;
        if (!storage) continue;
        const Tensor *tensor = &storage->tensor;
        const PackedForms forms = packed_forms(graph, storage);
        const bool whole = dtype_is_quantised(tensor->dtype);
        for (int form = 0; form < PACKED_FORMS; form++)
            if (whole && (forms & PACKED_IN(form))) {
                const Matrix matrix = packed_matrix(tensor, form);
                bytes += matrix_bytes(&matrix);
            }
        if (whole && (forms & PACKED_ROWS)) bytes += tensor_bytes(tensor);
        if (!whole || !forms || (forms & PACKED_FLOATS))
            bytes += (size_t)tensor_count(tensor) * sizeof(float);
    }
    return (int64_t)bytes;
}

size_t params_copied_bytes(const Graph *graph) {
    size_t floats = 0;
    for (int i = 0; i < graph->storage_count; i++)
        if (graph->storages[i]->tensor.dtype == DTYPE_F32)
            floats += tensor_bytes(&graph->storages[i]->tensor);
    const size_t all = (size_t)params_packed_bytes(graph);
    return (all > floats ? all - floats : 0) +
           (floats < PARAMS_COPY_BYTES ? floats : PARAMS_COPY_BYTES);
}

/* Kernels have read these weights by their address, which nobody counts. */
static void give_back(const Tensor *held) {
    if (held->buf && resident_bounded())
        buf_drop_pages(held->buf, held->offset, tensor_bytes(held));
}

Params *params_retain(const Params *params) {
    Params *shared = (Params *)(uintptr_t)params; /* only the count changes */
    atomic_fetch_add_explicit(&shared->references, 1, memory_order_relaxed);
    return shared;
}

void params_destroy(Params *params) {
    if (!params) return;
    if (atomic_fetch_sub_explicit(&params->references, 1, memory_order_acq_rel) > 1)
        return;
    for (int i = 0; i < params->count; i++) {
        give_back(&params->slots[i].held);
        tensor_release(&params->slots[i].held);
        for (int form = 0; form < PACKED_FORMS; form++)
            buf_release(params->slots[i].packed_data[form]);
        onednn_free(params->slots[i].onednn);
    }
    buf_release(params->flat);
    rounded_destroy(params->rounded);
    free(params->slots);
    free(params);
}

static const Slot *find_slot(const Params *params, const Storage *storage) {
    for (int i = 0; i < params->count; i++)
        if (params->slots[i].storage == storage) return &params->slots[i];
    return NULL;
}

const void *params_data(const Params *params, const Storage *storage) {
    const Slot *slot = find_slot(params, storage);
    return slot ? slot->data : NULL;
}

const Matrix *params_packed(const Params *params, const Node *node, int operand) {
    const Node *in = node->in[operand];
    const Slot *slot = in && in->storage ? find_slot(params, in->storage) : NULL;
    const int form = slot ? packed_form_of(node, operand) : -1;
    return form >= 0 && (slot->forms & PACKED_IN(form)) ? &slot->packed[form] : NULL;
}

const OnednnMatrix *params_onednn(const Params *params, const Node *node, int operand) {
    const Node *in = node->in[operand];
    const Slot *slot = in && in->storage ? find_slot(params, in->storage) : NULL;
    return slot && slot->onednn && reads_onednn(node, operand) ? slot->onednn : NULL;
}

Status params_open_rounded(Params *params, const Plan *plan, Diag *diag) {
    return rounded_create(&params->rounded, plan, diag);
}

void params_round(Params *params, int threads) {
    if (params->rounded) rounded_update(params->rounded, params, threads);
}

const struct Bf16Matrix *params_rounded(const Params *params, const Storage *storage) {
    return rounded_find(params->rounded, storage);
}

float *params_flat(Params *params) {
    return params->flat ? (float *)(uintptr_t)buf_data(params->flat) : NULL;
}

int64_t params_flat_count(const Params *params) {
    return params->flat ? params->gradient_count : 0;
}

int64_t params_offset(const Params *params, const Storage *storage) {
    const Slot *slot = find_slot(params, storage);
    return slot ? slot->offset : -1;
}

int64_t params_gradient_count(const Params *params) {
    return params->gradient_count;
}

Precision params_precision(const Params *params) {
    return params->precision;
}
