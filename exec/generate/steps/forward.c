/* Steps of ops whose rows have nothing to do with each other: their forward kernels, on
 * the rows there are. */
#include "exec/generate/step.h"

#include <string.h>

enum { OPERANDS_MAX = 4, AUX_ALIGNMENT = 16 };

/* ---- views ---- */

static void bind_view(View *view, const Type *type, int64_t tokens, const void *data) {
    *view = (View){.data = (void *)(uintptr_t)data, .rank = type->rank, .count = 1};
    for (int i = 0; i < type->rank; i++) {
        const int64_t dim = type->dim[i];
        view->dim[i] = dim == DIM_T ? tokens : dim == DIM_N ? 1 : dim;
        view->count *= view->dim[i];
    }
}

/* A forward call of the node over `tokens` tokens; without operands for questions. */
static void bind_call(Call *call, View *in, const Node *node, int64_t tokens,
                      const void *const *data) {
    *call =
        (Call){.node = node, .attrs = node->attrs, .in_count = node->in_count, .in = in};
    for (int i = 0; i < node->in_count && i < OPERANDS_MAX; i++)
        if (node->in[i])
            bind_view(&in[i], &node->in[i]->type, tokens, data ? data[i] : NULL);
    bind_view(&call->out, &node->type, tokens, NULL);
}

static const Kernel *own_kernel(const Node *node) {
    return kernel_of(&REAL_FN(kernel_table), node->op);
}

/* Floats of what the op keeps for its backward, which lies before its scratch. */
static int64_t aux_floats(const Kernel *kernel, const Call *call) {
    const size_t bytes = kernel->aux_bytes ? kernel->aux_bytes(call) : 0;
    const size_t floats = bytes / sizeof(float) + 1;
    return (int64_t)((floats + AUX_ALIGNMENT - 1) / AUX_ALIGNMENT * AUX_ALIGNMENT);
}

static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    (void)capacity;
    Call call;
    View in[OPERANDS_MAX] = {{0}};
    bind_call(&call, in, node, count, NULL);
    const Kernel *kernel = own_kernel(node);
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&call) : 0;
    return aux_floats(kernel, &call) + (int64_t)(bytes / sizeof(float)) + 1;
}

static void run_rows(const StepCall *step, int64_t first, int64_t last) {
    (void)first, (void)last;
    Call call;
    View in[OPERANDS_MAX] = {{0}};
    bind_call(&call, in, step->node, step->count, step->in);
    call.attrs = step->attrs;
    call.out.data = step->out;
    call.aux = step->scratch;
    call.scratch = step->scratch + aux_floats(own_kernel(step->node), &call);
    own_kernel(step->node)->forward(&call);
}

STEP_KERNEL(rows) = {
    .share = STEP_LIGHT,
    .scratch_floats = scratch_floats,
    .run = run_rows,
};

/* ---- element by element ---- */

static bool is_flat(const Node *node) {
    for (int i = 0; i < node->in_count; i++)
        if (!node->in[i] || !type_equal(&node->in[i]->type, &node->type)) return false;
    return true;
}

static int64_t elements(const Node *node) {
    return is_flat(node) ? step_width(&node->type) : 0;
}

/* Part of one row, or all of several. */
static void run_elements(const StepCall *step, int64_t first, int64_t last) {
    if (!is_flat(step->node)) {
        run_rows(step, first, last);
        return;
    }
    View in[OPERANDS_MAX] = {{0}};
    const int64_t count = (last - first) * step->count;
    const View all = {.rank = 1, .dim = {count}, .count = count};
    Call call = {.node = step->node,
                 .attrs = step->attrs,
                 .in_count = step->node->in_count,
                 .in = in,
                 .out = all};
    for (int i = 0; i < call.in_count; i++) {
        in[i] = all;
        in[i].data = (float *)(uintptr_t)step->in[i] + first;
    }
    call.out.data = step->out + first;
    own_kernel(step->node)->forward(&call);
}

STEP_KERNEL(elementwise) = {
    .share = STEP_LIGHT,
    .local = READS_IN(0) | READS_IN(1),
    .units = elements,
    .scratch_floats = scratch_floats,
    .run = run_elements,
};

STEP_KERNEL(alias) = {.share = STEP_ALIAS};

/* ---- rotary ---- */

static int64_t rotary_heads(const Node *node) {
    return ((const RotaryAttrs *)node->attrs)->heads;
}

/* A forward call of heads first .. last - 1 of one row, of `heads`, or of all of several
 * rows. */
static void bind_heads(Call *call, View *in, const StepCall *step, int64_t heads,
                       int64_t first, int64_t last) {
    bind_call(call, in, step->node, step->count, step->in);
    const int64_t head = call->out.dim[2] / heads, width = (last - first) * head;
    in[0].dim[2] = call->out.dim[2] = width;
    in[0].count = call->out.count = step->count * width;
    in[0].data = (float *)in[0].data + first * head;
    call->out.data = step->out + first * head;
}

static void run_rotary(const StepCall *step, int64_t first, int64_t last) {
    RotaryAttrs attrs = *(const RotaryAttrs *)step->attrs;
    Call call;
    View in[OPERANDS_MAX] = {{0}};
    bind_heads(&call, in, step, attrs.heads, first, last);
    attrs.heads = last - first;
    attrs.offset += step->position;
    call.attrs = &attrs;
    call.scratch = step->scratch;
    own_kernel(step->node)->forward(&call);
}

STEP_KERNEL(rotary) = {
    .share = STEP_UNITS,
    .local = READS_IN(0),
    .position = true,
    .units = rotary_heads,
    .scratch_floats = scratch_floats,
    .run = run_rotary,
};

/* ---- norms of heads ---- */

static int64_t norm_heads(const Node *node) {
    const int64_t heads = ((const RmsNormAttrs *)node->attrs)->heads;
    return heads > 1 ? heads : 0;
}

/* By heads as rotary; without them whole rows. */
static void run_norm(const StepCall *step, int64_t first, int64_t last) {
    RmsNormAttrs attrs = *(const RmsNormAttrs *)step->attrs;
    if (attrs.heads == 1) {
        run_rows(step, first, last);
        return;
    }
    Call call;
    View in[OPERANDS_MAX] = {{0}};
    bind_heads(&call, in, step, attrs.heads, first, last);
    attrs.heads = last - first;
    call.attrs = &attrs;
    call.aux = step->scratch;
    own_kernel(step->node)->forward(&call);
}

STEP_KERNEL(rms_norm) = {
    .share = STEP_LIGHT,
    .local = READS_IN(0),
    .units = norm_heads,
    .scratch_floats = scratch_floats,
    .run = run_norm,
};

/* ---- sinusoid ---- */

/* `samples` rows of `tokens` tokens each, from the call's position on. */
static void sinusoid_forward(const StepCall *step, int64_t samples, int64_t tokens) {
    AddSinusoidAttrs attrs = *(const AddSinusoidAttrs *)step->attrs;
    Call call;
    View in[OPERANDS_MAX] = {{0}};
    bind_call(&call, in, step->node, tokens, step->in);
    in[0].dim[0] = call.out.dim[0] = samples;
    in[0].count = call.out.count = samples * call.out.count;
    attrs.offset += step->position;
    call.attrs = &attrs;
    call.out.data = step->out;
    call.scratch = step->scratch;
    own_kernel(step->node)->forward(&call);
}

static void run_sinusoid(const StepCall *step, int64_t first, int64_t last) {
    (void)first, (void)last;
    sinusoid_forward(step, 1, step->count);
}

static void run_sinusoid_rows(const StepCall *step, const StepRows *rows) {
    (void)rows;
    sinusoid_forward(step, step->count, 1);
}

STEP_KERNEL(sinusoid) = {
    .share = STEP_LIGHT,
    .position = true,
    .scratch_floats = scratch_floats,
    .run = run_sinusoid,
    .run_rows = run_sinusoid_rows,
};
