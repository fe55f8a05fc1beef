/* patches(x[N, C, H, W]) -> [N, H/p * W/p, C*p*p].
 *
 * Row (i, j) of sample n holds x[n, c, i*p + u, j*p + v] at index (c*p + u)*p + v. The
 * backward pass is the same permutation the other way: every pixel lies in one patch. */
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "images [N, C, H, W]"},
                                   {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_INT(PatchesAttrs, size, 1, 65536, "height and width of a patch"), F_END};

static const PatchesAttrs DEFAULTS = {.size = 16};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const int64_t p = ((const PatchesAttrs *)node->attrs)->size;
    TRY(infer_rank(node, 0, 4, 4, diag));
    for (int i = 1; i < 4; i++) TRY(infer_known(node, 0, i, diag));
    const int64_t *x = node->in[0]->type.dim;
    if (p < 1) return infer_fail_attr(node, "size", diag, "a number above 0");
    for (int i = 2; i < 4; i++)
        if (x[i] % p != 0)
            return infer_fail(node, 0, diag,
                              "a multiple of the patch size %lld as dimension %d",
                              (long long)p, i);
    int64_t count, width;
    if (!dim_multiply(x[2] / p, x[3] / p, &count) || !dim_multiply(x[1], p, &width) ||
        !dim_multiply(width, p, &width))
        return infer_fail(node, 0, diag, "a smaller image");
    *out = real_type(3, (const int64_t[]){x[0], count, width});
    return STATUS_OK;
}

/* Calls `row(image, patch, p, accumulate)` for every line of p pixels of every patch. */
static void walk(const Call *call, const View *x, REAL *image, REAL *patch,
                 void (*row)(REAL *, REAL *, int64_t, bool), bool accumulate) {
    const int64_t p = ((const PatchesAttrs *)call->attrs)->size;
    const int64_t C = x->dim[1], H = x->dim[2], W = x->dim[3];
    for (int64_t n = 0; n < x->dim[0]; n++, image += C * H * W)
        for (int64_t line = 0; line < C * H; line++) {
            const int64_t c = line / H, i = line % H / p, u = line % H % p;
            for (int64_t j = 0; j < W / p; j++)
                row(image + line * W + j * p,
                    patch + (((n * (H / p) + i) * (W / p) + j) * C + c) * p * p + u * p,
                    p, accumulate);
        }
}

static void to_patch(REAL *image, REAL *patch, int64_t p, bool accumulate) {
    put_row(patch, image, p, accumulate);
}

static void to_image(REAL *image, REAL *patch, int64_t p, bool accumulate) {
    put_row(image, patch, p, accumulate);
}

static void forward(const Call *call) {
    walk(call, &call->in[0], call->in[0].data, call->out.data, to_patch, false);
}

static void backward(const Call *call) {
    const View *d_x = &call->d_in[0];
    if (!d_x->data) return;
    walk(call, &call->in[0], d_x->data, call->d_out.data, to_image, d_x->accumulate);
}

OP_RECORD(patches) = {
    OP_ID(patches),
    .summary = "non-overlapping size x size patches, each flattened channel by channel",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(PatchesAttrs),
    .defaults = &DEFAULTS,
    .infer = infer,
};

KERNEL(patches) = {
    .forward = forward,
    .backward = backward,
};
