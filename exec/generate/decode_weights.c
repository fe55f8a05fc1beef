/* Decoder: the weights, packed one after the other in the order steps read them. See
 * exec/generate/decode_internal.h. */
#include "exec/generate/decode_internal.h"

enum { ALIGNMENT = 64 };

static size_t weight_bytes(const DecodeWeight *weight) {
    return weight->packed
               ? matrix_bytes(&weight->matrix)
               : (size_t)tensor_count(&weight->storage->tensor) * sizeof(float);
}

static void fill_weight(DecodeWeight *weight, char *base) {
    const Tensor *tensor = &weight->storage->tensor;
    void *data = base + weight->at;
    if (weight->packed) {
        matrix_pack(&weight->matrix, tensor, weight->transposed, data);
        weight->matrix.data = data;
    } else {
        tensor_read_f32(tensor, 0, tensor_count(tensor), data);
    }
}

Status decode_pack(Decoder *decoder, Diag *diag) {
    size_t total = ALIGNMENT;
    for (DecodeWeight *w = decoder->first_weight; w; w = w->next) {
        w->at = total;
        w->bytes = weight_bytes(w);
        total += (w->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    TRY(buf_create(&decoder->weights, total, diag));
    char *base = (char *)(uintptr_t)buf_data(decoder->weights);
    for (DecodeWeight *w = decoder->first_weight; w; w = w->next) fill_weight(w, base);
    for (int s = 0; s < decoder->step_count; s++)
        for (int i = 0; i < decoder->steps[s].node->in_count; i++) {
            DecodeOperand *in = &decoder->steps[s].in[i];
            if (!in->weight) continue;
            in->fixed = in->weight->packed ? (const void *)&in->weight->matrix
                                           : base + in->weight->at;
        }
    return STATUS_OK;
}
