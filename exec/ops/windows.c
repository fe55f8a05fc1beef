/* Ops that cut a grid of tokens into windows, put windows back and join neighbours (Liu
 * et al., Swin, 2021); they only move data.
 *
 * x[N, T, D] holds the tokens of a grid_h x grid_w grid row by row. The grid is padded
 * with zeros at the bottom and on the right to whole windows and turned by `shift`: cell
 * (i, j) of what is cut is cell (i + shift, j + shift) of the padded grid, indices taken
 * around its ends. A token of the grid has exactly one place in a window, so every
 * backward kernel is the other direction. */
#include "exec/ops/windows.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"

#include <string.h>

static const Operand TOKENS[] = {{"x", OPERAND_REQUIRED, "tokens of a grid [N, T, D]"},
                                 {NULL, 0, NULL}};
static const Operand WINDOWS[] = {{"x", OPERAND_REQUIRED, "tokens by windows [N, P, D]"},
                                  {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_INT(WindowAttrs, grid_h, 1, 1 << 20, "rows of the grid of tokens"),
    F_INT(WindowAttrs, grid_w, 1, 1 << 20, "columns of the grid of tokens"),
    F_INT(WindowAttrs, window, 1, 1 << 20, "rows and columns of a window"),
    F_INT(WindowAttrs, shift, 0, 1 << 20, "rows and columns that windows are moved by"),
    F_END};

static const WindowAttrs DEFAULTS = {.grid_h = 1, .grid_w = 1, .window = 1};

/* ---- the walk ---- */

/* A grid and how it is cut. */
typedef struct GridCut {
    int64_t height, width, window, shift;
    int64_t full_height, full_width; /* with the padding */
    bool by_column;                  /* order of the tokens within a window */
} GridCut;

static GridCut cut_grid(int64_t height, int64_t width, int64_t window, int64_t shift,
                        bool by_column) {
    return (GridCut){.height = height,
                     .width = width,
                     .window = window,
                     .shift = shift,
                     .full_height = windows_round_up(height, window),
                     .full_width = windows_round_up(width, window),
                     .by_column = by_column};
}

static GridCut cut_of(const WindowAttrs *a) {
    return cut_grid(a->grid_h, a->grid_w, a->window, a->shift, false);
}

/* Cell of the grid that stands at (row, column) of the turned grid; -1 = padding. */
static int64_t cell_at(const GridCut *cut, int64_t row, int64_t column) {
    row += cut->shift;
    column += cut->shift;
    if (row >= cut->full_height) row -= cut->full_height;
    if (column >= cut->full_width) column -= cut->full_width;
    return row < cut->height && column < cut->width ? row * cut->width + column : -1;
}

/* Moves one token of D elements; `grid` is NULL in the padding. */
typedef void Move(REAL *grid, REAL *windows, int64_t D, bool accumulate);

static void to_windows(REAL *grid, REAL *windows, int64_t D, bool accumulate) {
    if (grid)
        put_row(windows, grid, D, accumulate);
    else if (!accumulate)
        memset(windows, 0, (size_t)D * sizeof(REAL));
}

static void to_grid(REAL *grid, REAL *windows, int64_t D, bool accumulate) {
    if (grid) put_row(grid, windows, D, accumulate);
}

/* Moves the tokens of the window whose first one is (top, left) of the turned grid. */
static void walk_window(const GridCut *cut, int64_t top, int64_t left, int64_t D,
                        REAL *grid, REAL *windows, Move *move, bool accumulate) {
    for (int64_t i = 0; i < cut->window; i++)
        for (int64_t j = 0; j < cut->window; j++, windows += D) {
            const int64_t cell = cut->by_column ? cell_at(cut, top + j, left + i)
                                                : cell_at(cut, top + i, left + j);
            move(cell < 0 ? NULL : grid + cell * D, windows, D, accumulate);
        }
}

static void walk(const GridCut *cut, int64_t samples, int64_t D, REAL *grid,
                 REAL *windows, Move *move, bool accumulate) {
    const int64_t w = cut->window;
    for (int64_t n = 0; n < samples; n++, grid += cut->height * cut->width * D)
        for (int64_t top = 0; top < cut->height; top += w)
            for (int64_t left = 0; left < cut->width; left += w, windows += w * w * D)
                walk_window(cut, top, left, D, grid, windows, move, accumulate);
}

/* Cuts operand 0 into windows, and the way back for gradients. */
static void cut_forward(const Call *call, GridCut cut) {
    const View *x = &call->in[0];
    walk(&cut, x->dim[0], x->dim[2], x->data, call->out.data, to_windows, false);
}

static void cut_backward(const Call *call, GridCut cut) {
    const View *dx = &call->d_in[0];
    if (dx->data)
        walk(&cut, dx->dim[0], dx->dim[2], dx->data, call->d_out.data, to_grid,
             dx->accumulate);
}

/* ---- checks ---- */

/* Operand 0 is [N, from, D]; the result [N, to, times D]. */
static Status infer_tokens(const Node *node, int64_t from, int64_t to, int64_t times,
                           const char *why, Type *out, Diag *diag) {
    int64_t width;
    TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_known(node, 0, 2, diag));
    TRY(infer_dim(node, 0, 1, from, why, diag));
    const int64_t *x = node->in[0]->type.dim;
    if (!dim_multiply(x[2], times, &width))
        return infer_fail(node, 0, diag, "narrower tokens");
    *out = real_type(3, (const int64_t[]){x[0], to, width});
    return STATUS_OK;
}

static Status check_cut(const Node *node, int64_t *tokens, int64_t *padded, Diag *diag) {
    const WindowAttrs *a = node->attrs;
    if (a->shift < 0 || a->shift >= a->window)
        return infer_fail_attr(node, "shift", diag,
                               "from 0 to below window=%lld, found %lld",
                               (long long)a->window, (long long)a->shift);
    if (windows_tokens(a->grid_h, a->grid_w, a->window, padded) &&
        dim_multiply(a->grid_h, a->grid_w, tokens))
        return STATUS_OK;
    return infer_fail_attr(node, "grid_h, grid_w, window", diag,
                           "a grid and windows of at least 1 x 1, and not so large");
}

/* window_partition(x[N, T, D]) -> [N, P, D] */

static Status partition_infer(const Node *node, Type *out, Diag *diag) {
    int64_t tokens, padded;
    TRY(check_cut(node, &tokens, &padded, diag));
    return infer_tokens(node, tokens, padded, 1, "grid_h * grid_w", out, diag);
}

static void partition_forward(const Call *call) {
    cut_forward(call, cut_of(call->attrs));
}

static void partition_backward(const Call *call) {
    cut_backward(call, cut_of(call->attrs));
}

OP_RECORD(window_partition) = {
    OP_ID(window_partition),
    .summary = "a grid of tokens cut into windows, shifted and padded with zeros",
    .operands = TOKENS,
    .fields = FIELDS,
    .attrs_size = sizeof(WindowAttrs),
    .defaults = &DEFAULTS,
    .infer = partition_infer,
};

KERNEL(window_partition) = {
    .forward = partition_forward,
    .backward = partition_backward,
};

/* window_reverse(x[N, P, D]) -> [N, T, D] */

static Status reverse_infer(const Node *node, Type *out, Diag *diag) {
    int64_t tokens, padded;
    TRY(check_cut(node, &tokens, &padded, diag));
    return infer_tokens(node, padded, tokens, 1, "grid_h and grid_w in whole windows",
                        out, diag);
}

static void reverse_forward(const Call *call) {
    const GridCut cut = cut_of(call->attrs);
    walk(&cut, call->out.dim[0], call->out.dim[2], call->out.data, call->in[0].data,
         to_grid, false);
}

static void reverse_backward(const Call *call) {
    const GridCut cut = cut_of(call->attrs);
    const View *dx = &call->d_in[0];
    if (dx->data)
        walk(&cut, dx->dim[0], dx->dim[2], call->d_out.data, dx->data, to_windows,
             dx->accumulate);
}

OP_RECORD(window_reverse) = {
    OP_ID(window_reverse),
    .summary = "windows put back on the grid that window_partition cut, without padding",
    .operands = WINDOWS,
    .fields = FIELDS,
    .attrs_size = sizeof(WindowAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_PICKS_TOKENS,
    .infer = reverse_infer,
};

KERNEL(window_reverse) = {
    .forward = reverse_forward,
    .backward = reverse_backward,
};

/* patch_merging(x[N, T, D]) -> [N, T', 4 D]: windows of 2 x 2, by columns, whose tokens
 * stand side by side. */

static const Field MERGING_FIELDS[] = {
    F_INT(PatchMergingAttrs, grid_h, 1, 1 << 20, "rows of the grid of tokens"),
    F_INT(PatchMergingAttrs, grid_w, 1, 1 << 20, "columns of the grid of tokens"), F_END};

static const PatchMergingAttrs MERGING_DEFAULTS = {.grid_h = 1, .grid_w = 1};

static GridCut merging_of(const PatchMergingAttrs *a) {
    return cut_grid(a->grid_h, a->grid_w, 2, 0, true);
}

static Status merging_infer(const Node *node, Type *out, Diag *diag) {
    const PatchMergingAttrs *a = node->attrs;
    int64_t tokens, padded;
    if (!windows_tokens(a->grid_h, a->grid_w, 2, &padded) ||
        !dim_multiply(a->grid_h, a->grid_w, &tokens))
        return infer_fail_attr(node, "grid_h, grid_w", diag,
                               "a grid of at least 1 x 1, and not so large");
    return infer_tokens(node, tokens, padded / 4, 4, "grid_h * grid_w", out, diag);
}

static void merging_forward(const Call *call) {
    cut_forward(call, merging_of(call->attrs));
}

static void merging_backward(const Call *call) {
    cut_backward(call, merging_of(call->attrs));
}

OP_RECORD(patch_merging) = {
    OP_ID(patch_merging),
    .summary = "each 2 x 2 tokens of a grid side by side as one token",
    .operands = TOKENS,
    .fields = MERGING_FIELDS,
    .attrs_size = sizeof(PatchMergingAttrs),
    .defaults = &MERGING_DEFAULTS,
    .infer = merging_infer,
};

KERNEL(patch_merging) = {
    .forward = merging_forward,
    .backward = merging_backward,
};
