/* Operators that put elements elsewhere, and those that speak of shapes. See eval.h. */
#include "io/onnx/net/eval.h"

#include <string.h>

/* ---- the same elements in another shape ---- */

static bool view(EvalCall *call, int rank, const int64_t *dim) {
    Array *y = array_view(call->pool, call->in[0], rank, dim);
    if (!y) return eval_fault(call, "the new shape has another number of elements");
    call->out[0] = y;
    return true;
}

static bool run_reshape(EvalCall *call) {
    int64_t dim[NET_RANK_MAX], known = 1;
    int count, free_at = -1;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0];
    if (!call->in[1]->data) return true;
    if (!eval_integers(call, 1, "", dim, &count))
        return eval_fault(call, "rank too high");
    for (int i = 0; i < count; i++) {
        if (dim[i] == 0 && !net_int(call->node, "allowzero", 0)) {
            if (i >= x->rank) return eval_fault(call, "a 0 stands for no dimension");
            dim[i] = x->dim[i];
        }
        if (dim[i] < -1 || (dim[i] == -1 && free_at >= 0) ||
            (dim[i] > 0 && known > ((int64_t)1 << 40) / dim[i]))
            return eval_fault(call, "the new shape has another number of elements");
        if (dim[i] == -1)
            free_at = i;
        else
            known *= dim[i];
    }
    if (free_at >= 0) dim[free_at] = known > 0 ? x->count / known : 0;
    return view(call, count, dim);
}

static bool run_flatten(EvalCall *call) {
    int64_t dim[2] = {1, 1};
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    int64_t axis = net_int(call->node, "axis", 1);
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis > x->rank) return eval_fault(call, "no such axis");
    for (int i = 0; i < x->rank; i++) dim[i >= axis] *= x->dim[i];
    return view(call, 2, dim);
}

static bool run_squeeze(EvalCall *call) {
    int64_t axes[NET_RANK_MAX], dim[NET_RANK_MAX];
    bool gone[NET_RANK_MAX] = {false};
    int count, axis, rank = 0;
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    if (!eval_integers(call, 1, "axes", axes, &count)) return true;
    for (int i = 0; i < count; i++) {
        if (!eval_axis(axes[i], x->rank, &axis)) return eval_fault(call, "no such axis");
        gone[axis] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (count < 0 ? x->dim[i] != 1 : !gone[i]) dim[rank++] = x->dim[i];
    return view(call, rank, dim);
}

static bool run_unsqueeze(EvalCall *call) {
    int64_t axes[NET_RANK_MAX], dim[NET_RANK_MAX] = {0};
    int count, axis, from = 0;
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    if (!eval_integers(call, 1, "axes", axes, &count)) return true;
    const int rank = x->rank + (count > 0 ? count : 0);
    if (rank > NET_RANK_MAX) return eval_fault(call, "rank too high");
    for (int i = 0; i < count; i++) {
        if (!eval_axis(axes[i], rank, &axis) || dim[axis] == 1)
            return eval_fault(call, "no such axis");
        dim[axis] = 1;
    }
    for (int i = 0; i < rank; i++)
        if (dim[i] == 0) dim[i] = x->dim[from++];
    return view(call, rank, dim);
}

/* ---- elements that are chosen or repeated ---- */

/* Fills the result with the elements at `start` plus index times `step`. */
static void pick(Array *y, const Array *x, int64_t start, const int64_t *step) {
    int64_t index[NET_RANK_MAX] = {0};
    for (int64_t to = 0; to < y->count; to++) {
        int64_t from = start;
        for (int d = 0; d < y->rank; d++) from += index[d] * step[d];
        y->data[to] = x->data[from];
        array_next(y->rank, y->dim, index);
    }
}

static bool run_transpose(EvalCall *call) {
    int64_t dim[NET_RANK_MAX], step[NET_RANK_MAX];
    bool used[NET_RANK_MAX] = {false};
    int count;
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    const int64_t *perm = net_ints(call->node, "perm", &count);
    if (perm && count != x->rank) return eval_fault(call, "perm is of another rank");
    for (int i = 0; i < x->rank; i++) {
        const int64_t from = perm ? perm[i] : x->rank - 1 - i;
        if (from < 0 || from >= x->rank || used[from])
            return eval_fault(call, "perm is no permutation");
        used[from] = true;
        dim[i] = x->dim[from];
        step[i] = array_stride(x, (int)from);
    }
    Array *y = eval_result(call, 0, x->type, x->rank, dim, x->data != NULL);
    if (y && y->data) pick(y, x, 0, step);
    return y != NULL;
}

static bool run_expand(EvalCall *call) {
    int64_t dim[NET_RANK_MAX], step[NET_RANK_MAX];
    int count;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0];
    if (!call->in[1]->data) return true;
    if (!eval_integers(call, 1, "", dim, &count))
        return eval_fault(call, "rank too high");
    const int rank = count > x->rank ? count : x->rank;
    for (int i = rank - 1, a = x->rank - 1, b = count - 1; i >= 0; i--, a--, b--) {
        const int64_t own = a >= 0 ? x->dim[a] : 1, asked = b >= 0 ? dim[b] : 1;
        if (own != asked && own != 1 && asked != 1)
            return eval_fault(call, "its shapes do not go together");
        step[i] = own == 1 ? asked : own;
    }
    memcpy(dim, step, sizeof dim);
    Array *y = eval_result(call, 0, x->type, rank, dim, x->data != NULL);
    if (!y || !y->data) return y != NULL;
    array_broadcast(x, rank, step);
    pick(y, x, 0, step);
    return true;
}

static bool run_tile(EvalCall *call) {
    int64_t times[NET_RANK_MAX], dim[NET_RANK_MAX], index[NET_RANK_MAX] = {0};
    int count;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0];
    if (!call->in[1]->data) return true;
    if (!eval_integers(call, 1, "", times, &count) || count != x->rank)
        return eval_fault(call, "expected one number of repetitions for each dimension");
    for (int i = 0; i < x->rank; i++) {
        if (times[i] < 0 || times[i] > ARRAY_COUNT_MAX)
            return eval_fault(call, "too many repetitions");
        dim[i] = x->dim[i] * times[i];
    }
    Array *y = eval_result(call, 0, x->type, x->rank, dim, x->data != NULL);
    if (!y || !y->data) return y != NULL;
    for (int64_t to = 0; to < y->count; to++) {
        int64_t from = 0;
        for (int d = 0; d < x->rank; d++)
            from = from * x->dim[d] + (x->dim[d] ? index[d] % x->dim[d] : 0);
        y->data[to] = x->data[from];
        array_next(y->rank, dim, index);
    }
    return true;
}

/* One axis of a slice: where it starts, by what it goes, how many there are. */
static void slice_axis(int64_t size, int64_t start, int64_t end, int64_t step,
                       int64_t *first, int64_t *count) {
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    if (start < 0) start += size;
    if (end < 0) end += size;
    start = start < low + (step < 0) ? low + (step < 0) : start > high ? high : start;
    end = end < low ? low : end > size ? size : end;
    *first = start;
    const int64_t span = step > 0 ? end - start : start - end;
    const int64_t by = step > 0 ? step : -step;
    *count = span <= 0 ? 0 : (span - 1) / by + 1;
}

static bool run_slice(EvalCall *call) {
    int64_t start[NET_RANK_MAX], end[NET_RANK_MAX], axes[NET_RANK_MAX];
    int64_t steps[NET_RANK_MAX], dim[NET_RANK_MAX], step[NET_RANK_MAX], first = 0;
    int starts, ends, count, by, axis;
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    if (!eval_integers(call, 1, "starts", start, &starts) ||
        !eval_integers(call, 2, "ends", end, &ends) ||
        !eval_integers(call, 3, "axes", axes, &count) ||
        !eval_integers(call, 4, "", steps, &by))
        return true;
    if (starts < 0 || starts != ends || (count >= 0 && count != starts) ||
        (by >= 0 && by != starts) || starts > x->rank)
        return eval_fault(call, "expected a start and an end for each axis");
    memcpy(dim, x->dim, sizeof dim);
    for (int d = 0; d < x->rank; d++) step[d] = array_stride(x, d);
    for (int i = 0; i < starts; i++) {
        int64_t from = 0;
        if (!eval_axis(count >= 0 ? axes[i] : i, x->rank, &axis) ||
            (by >= 0 && steps[i] == 0))
            return eval_fault(call, "no such axis, or a step of 0");
        const int64_t each = by >= 0 ? steps[i] : 1;
        slice_axis(x->dim[axis], start[i], end[i], each, &from, &dim[axis]);
        first += from * array_stride(x, axis);
        step[axis] = array_stride(x, axis) * (dim[axis] > 1 ? each : 0);
    }
    Array *y = eval_result(call, 0, x->type, x->rank, dim, x->data != NULL);
    if (y && y->data) pick(y, x, first, step);
    return y != NULL;
}

/* Sizes of the parts, which are equal where none are given. */
static bool split_sizes(EvalCall *call, int64_t size, int64_t *parts) {
    int count = -1;
    const int most = call->node->out_count;
    const Array *list = eval_in(call, 1);
    const int64_t *old = net_ints(call->node, "split", &count);
    if (list && (!list->data || list->count != most)) return false;
    if (!list && old && count != most) return false;
    const int64_t each = (size + most - 1) / most;
    int64_t left = size;
    for (int i = 0; i < most; i++) {
        parts[i] = list          ? eval_integer(list->data[i])
                   : old         ? old[i]
                   : each < left ? each
                                 : left;
        if (parts[i] < 0 || parts[i] > left) return false;
        left -= parts[i];
    }
    return left == 0;
}

static bool run_split(EvalCall *call) {
    int64_t dim[NET_RANK_MAX], step[NET_RANK_MAX], first = 0;
    int axis;
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    if (!eval_axis(net_int(call->node, "axis", 0), x->rank, &axis))
        return eval_fault(call, "no such axis");
    int64_t *parts =
        ARENA_ARRAY(call->pool->arena, int64_t, (size_t)call->node->out_count);
    if (!split_sizes(call, x->dim[axis], parts))
        return eval_fault(call, "expected parts that are the axis together");
    memcpy(dim, x->dim, sizeof dim);
    for (int d = 0; d < x->rank; d++) step[d] = array_stride(x, d);
    for (int i = 0; i < call->node->out_count; i++) {
        dim[axis] = parts[i];
        Array *y = eval_result(call, i, x->type, x->rank, dim, x->data != NULL);
        if (!y) return false;
        if (y->data) pick(y, x, first, step);
        first += parts[i] * array_stride(x, axis);
    }
    return true;
}

/* Copies rows of `inner` elements: row `to` of the result from row `from`. */
static void copy_rows(Array *y, int64_t to, const Array *x, int64_t from, int64_t inner,
                      int64_t rows) {
    memcpy(y->data + to * inner, x->data + from * inner,
           (size_t)(inner * rows) * sizeof(double));
}

static bool run_concat(EvalCall *call) {
    int64_t dim[NET_RANK_MAX];
    int axis;
    if (!eval_has(call, call->in_count) || call->in_count < 1) return false;
    const Array *x = call->in[0];
    if (!eval_axis(net_int(call->node, "axis", 0), x->rank, &axis))
        return eval_fault(call, "no such axis");
    memcpy(dim, x->dim, sizeof dim);
    dim[axis] = 0;
    for (int i = 0; i < call->in_count; i++) {
        const Array *part = call->in[i];
        bool same = part->rank == x->rank;
        for (int d = 0; same && d < x->rank; d++)
            same = d == axis || part->dim[d] == x->dim[d];
        if (!same) return eval_fault(call, "its operands' shapes do not go together");
        dim[axis] += part->dim[axis];
    }
    Array *y = eval_result(call, 0, x->type, x->rank, dim, eval_knows(call));
    if (!y || !y->data || y->count == 0) return y != NULL;
    const int64_t inner = array_stride(x, axis), outer = y->count / (inner * dim[axis]);
    int64_t at = 0;
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < call->in_count; i++) {
            const int64_t rows = call->in[i]->dim[axis];
            copy_rows(y, at, call->in[i], o * rows, inner, rows);
            at += rows;
        }
    return true;
}

static bool run_gather(EvalCall *call) {
    int64_t dim[NET_RANK_MAX];
    int axis, rank = 0;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0], *at = call->in[1];
    if (!eval_axis(net_int(call->node, "axis", 0), x->rank, &axis) ||
        x->rank + at->rank - 1 > NET_RANK_MAX)
        return eval_fault(call, "no such axis");
    for (int d = 0; d < axis; d++) dim[rank++] = x->dim[d];
    for (int d = 0; d < at->rank; d++) dim[rank++] = at->dim[d];
    for (int d = axis + 1; d < x->rank; d++) dim[rank++] = x->dim[d];
    Array *y = eval_result(call, 0, x->type, rank, dim, eval_knows(call));
    if (!y || !y->data || y->count == 0) return y != NULL;
    const int64_t inner = array_stride(x, axis), size = x->dim[axis];
    const int64_t outer = y->count / (inner * at->count);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < at->count; i++) {
            int64_t row = eval_integer(at->data[i]);
            if (row < 0) row += size;
            if (row < 0 || row >= size) return eval_fault(call, "an index is too large");
            copy_rows(y, o * at->count + i, x, o * size + row, inner, 1);
        }
    return true;
}

static bool run_gather_elements(EvalCall *call) {
    int64_t index[NET_RANK_MAX] = {0};
    int axis;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0], *at = call->in[1];
    if (!eval_axis(net_int(call->node, "axis", 0), x->rank, &axis) || at->rank != x->rank)
        return eval_fault(call, "no such axis");
    for (int d = 0; d < x->rank; d++)
        if (d != axis && at->dim[d] > x->dim[d])
            return eval_fault(call, "its operands' shapes do not go together");
    Array *y = eval_result(call, 0, x->type, at->rank, at->dim, eval_knows(call));
    if (!y || !y->data) return y != NULL;
    for (int64_t to = 0; to < y->count; to++) {
        int64_t from = 0, row = eval_integer(at->data[to]);
        if (row < 0) row += x->dim[axis];
        if (row < 0 || row >= x->dim[axis])
            return eval_fault(call, "an index is too large");
        for (int d = 0; d < x->rank; d++)
            from += (d == axis ? row : index[d]) * array_stride(x, d);
        y->data[to] = x->data[from];
        array_next(y->rank, y->dim, index);
    }
    return true;
}

/* Row of a tensor that the `width` numbers at `at` name; -1 = there is none. */
static int64_t named_row(const Array *x, int64_t row, const double *at, int64_t first,
                         int64_t width) {
    for (int64_t k = 0; k < width; k++) {
        const int64_t size = x->dim[first + k];
        int64_t index = eval_integer(at[k]);
        if (index < 0) index += size;
        if (index < 0 || index >= size) return -1;
        row = row * size + index;
    }
    return row;
}

/* Element or block that the last dimension of the indices names, batch by batch. */
static bool run_gather_nd(EvalCall *call) {
    int64_t dim[NET_RANK_MAX];
    int rank = 0;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0], *at = call->in[1];
    const int64_t batch = net_int(call->node, "batch_dims", 0);
    const int64_t width = at->rank > 0 ? at->dim[at->rank - 1] : -1;
    if (batch < 0 || width < 0 || batch >= at->rank || batch + width > x->rank ||
        at->rank - 1 + x->rank - batch - width > NET_RANK_MAX)
        return eval_fault(call, "expected indices that fit the data");
    int64_t batches = 1, block = 1;
    for (int d = 0; d < at->rank - 1; d++) dim[rank++] = at->dim[d];
    for (int d = 0; d < batch; d++) {
        if (at->dim[d] != x->dim[d]) return eval_fault(call, "batches that differ");
        batches *= x->dim[d];
    }
    for (int d = (int)(batch + width); d < x->rank; d++) {
        dim[rank++] = x->dim[d];
        block *= x->dim[d];
    }
    Array *y = eval_result(call, 0, x->type, rank, dim, eval_knows(call));
    if (!y || !y->data || y->count == 0) return y != NULL;
    const int64_t rows = y->count / block, each = rows / batches;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = named_row(x, r / each, at->data + r * width, batch, width);
        if (from < 0) return eval_fault(call, "an index is too large");
        copy_rows(y, r, x, from, block, 1);
    }
    return true;
}

/* A copy with blocks replaced, or added to or multiplied, where the indices say. */
static bool run_scatter_nd(EvalCall *call) {
    if (!eval_has(call, 3) || call->in[1]->rank < 1) return false;
    const Array *x = call->in[0], *at = call->in[1], *from = call->in[2];
    const int64_t width = at->dim[at->rank - 1];
    if (width < 0 || width > x->rank)
        return eval_fault(call, "indices of too high a rank");
    Array *y = eval_result(call, 0, x->type, x->rank, x->dim, eval_knows(call));
    if (!y || !y->data) return y != NULL;
    const int64_t block = width > 0 ? array_stride(x, (int)width - 1) : x->count;
    const int64_t rows = width > 0 ? at->count / width : 1;
    if (from->count != rows * block)
        return eval_fault(call, "expected a block for each index");
    memcpy(y->data, x->data, (size_t)x->count * sizeof *x->data);
    const bool adds = net_string_is(call->node, "reduction", "add", "none"),
               multiplies = net_string_is(call->node, "reduction", "mul", "none");
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = named_row(x, 0, at->data + r * width, 0, width);
        if (row < 0) return eval_fault(call, "an index is too large");
        double *to = y->data + row * block;
        const double *with = from->data + r * block;
        for (int64_t i = 0; i < block; i++)
            to[i] = adds ? to[i] + with[i] : multiplies ? to[i] * with[i] : with[i];
    }
    return true;
}

static bool run_pad(EvalCall *call) {
    int64_t pads[2 * NET_RANK_MAX], dim[NET_RANK_MAX], index[NET_RANK_MAX] = {0};
    int count = 0;
    double value = net_real(call->node, "value", 0);
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0], *list = eval_in(call, 1), *fill = eval_in(call, 2);
    const int64_t *old = net_ints(call->node, "pads", &count);
    if (list) count = (int)(list->count <= 2 * NET_RANK_MAX ? list->count : -1);
    if (list && !list->data) return true;
    if (count != 2 * x->rank || eval_in(call, 3) || (fill && !array_scalar(fill, &value)))
        return eval_fault(call, "expected two numbers for each dimension");
    if (!net_string_is(call->node, "mode", "constant", "constant"))
        return eval_fault(call, "expected mode constant");
    for (int i = 0; i < count; i++) {
        pads[i] = list ? eval_integer(list->data[i]) : old[i];
        if (pads[i] < -ARRAY_COUNT_MAX || pads[i] > ARRAY_COUNT_MAX)
            return eval_fault(call, "too many zeros");
    }
    for (int d = 0; d < x->rank; d++) dim[d] = x->dim[d] + pads[d] + pads[x->rank + d];
    Array *y = eval_result(call, 0, x->type, x->rank, dim, x->data != NULL);
    if (!y || !y->data) return y != NULL;
    for (int64_t to = 0; to < y->count; to++) {
        int64_t from = 0;
        bool inside = true;
        for (int d = 0; d < x->rank; d++) {
            const int64_t at = index[d] - pads[d];
            inside &= at >= 0 && at < x->dim[d];
            from += at * array_stride(x, d);
        }
        y->data[to] = inside ? x->data[from] : value;
        array_next(y->rank, dim, index);
    }
    return true;
}

static bool run_trilu(EvalCall *call) {
    double k = 0;
    if (!eval_has(call, 1) || call->in[0]->rank < 2) return false;
    const Array *x = call->in[0];
    const bool upper = net_int(call->node, "upper", 1) != 0;
    if (eval_in(call, 1) && !array_scalar(call->in[1], &k)) return true;
    Array *y = eval_result(call, 0, x->type, x->rank, x->dim, x->data != NULL);
    if (!y || !y->data) return y != NULL;
    const int64_t columns = x->dim[x->rank - 1], rows = x->dim[x->rank - 2];
    for (int64_t i = 0; i < y->count; i++) {
        const double off = (double)(i % columns - i / columns % rows);
        y->data[i] = (upper ? off >= k : off <= k) ? x->data[i] : 0;
    }
    return true;
}

/* ---- shapes as numbers ---- */

static Array *vector(EvalCall *call, int32_t type, int64_t count) {
    return eval_result(call, 0, type, 1, &count, true);
}

static bool run_shape(EvalCall *call) {
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    int64_t start = net_int(call->node, "start", 0);
    int64_t end = net_int(call->node, "end", x->rank), first, count;
    slice_axis(x->rank, start, end, 1, &first, &count);
    Array *y = vector(call, ONNX_I64, count);
    if (!y || !y->data) return false;
    for (int64_t i = 0; i < count; i++) y->data[i] = (double)x->dim[first + i];
    return true;
}

static bool run_size(EvalCall *call) {
    if (!eval_has(call, 1)) return false;
    Array *y = eval_result(call, 0, ONNX_I64, 0, NULL, true);
    if (y && y->data) y->data[0] = (double)call->in[0]->count;
    return y != NULL;
}

static bool run_constant_of_shape(EvalCall *call) {
    int64_t dim[NET_RANK_MAX];
    int rank;
    double value = 0;
    int32_t type = ONNX_F32;
    if (!eval_has(call, 1)) return false;
    const OnnxAttribute *attribute = net_attribute(call->node, "value");
    if (!call->in[0]->data) return true;
    if (!eval_integers(call, 0, "", dim, &rank)) return eval_fault(call, "rank too high");
    if (attribute && attribute->t) {
        int64_t count;
        const OnnxTensor *t = attribute->t;
        const size_t bytes = net_element_bytes(t->data_type);
        if (!net_shape_count(t->dims, t->n_dims, &count) || count != 1 || !bytes ||
            (t->has_raw_data ? t->raw_data.len < bytes : !net_list_length(t)) ||
            t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
            return eval_fault(call, "expected a value that is one number");
        type = t->data_type;
        array_scalar(array_stored(call->pool, call->net, t), &value);
    }
    Array *y = eval_result(call, 0, type, rank, dim, true);
    if (!y) return false;
    for (int64_t i = 0; y->data && i < y->count; i++) y->data[i] = value;
    return true;
}

static bool run_range(EvalCall *call) {
    double start, limit, delta;
    if (!eval_has(call, 3)) return false;
    if (!eval_knows(call)) return true;
    if (!array_scalar(call->in[0], &start) || !array_scalar(call->in[1], &limit) ||
        !array_scalar(call->in[2], &delta) || delta == 0)
        return eval_fault(call, "expected three numbers, the last one not 0");
    const double steps = (limit - start) / delta;
    const int64_t count = steps > 0 ? eval_integer(steps) : 0;
    Array *y = vector(call, call->in[0]->type, count + (steps > (double)count));
    if (!y) return false;
    for (int64_t i = 0; y->data && i < y->count; i++)
        y->data[i] = start + (double)i * delta;
    return true;
}

/* A constant that is no tensor: numbers in an attribute. */
static bool run_constant(EvalCall *call) {
    const OnnxAttribute *a =
        call->node->proto->n_attribute == 1 ? call->node->proto->attribute[0] : NULL;
    if (!a || !a->name || strncmp(a->name, "value_string", 12) == 0)
        return eval_fault(call, "expected one attribute with numbers");
    const bool real = strncmp(a->name, "value_float", 11) == 0;
    const bool list =
        strcmp(a->name, "value_floats") == 0 || strcmp(a->name, "value_ints") == 0;
    const int64_t count = (int64_t)(real ? a->n_floats : a->n_ints);
    Array *y = eval_result(call, 0, real ? ONNX_F32 : ONNX_I64, list, &count, true);
    if (!y || !y->data) return y != NULL;
    if (!list) return y->data[0] = real ? (double)a->f : (double)a->i, true;
    for (int64_t i = 0; i < count; i++)
        y->data[i] = real ? (double)a->floats[i] : (double)a->ints[i];
    return true;
}

/* Outside of training, or at a ratio of 0, the value itself; the mask is all ones. */
static bool run_dropout(EvalCall *call) {
    double ratio = 0.5, training = 0;
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    if (eval_in(call, 1)) array_scalar(eval_in(call, 1), &ratio);
    if (eval_in(call, 2)) array_scalar(eval_in(call, 2), &training);
    if (training != 0 && ratio != 0) return eval_fault(call, "expected training_mode 0");
    call->out[0] = array_view(call->pool, x, x->rank, x->dim);
    if (call->node->out_count < 2) return true;
    Array *ones = eval_result(call, 1, ONNX_BOOL, x->rank, x->dim, true);
    for (int64_t i = 0; ones && ones->data && i < ones->count; i++) ones->data[i] = 1;
    return true;
}

#define MOVE(op, run)                                                                    \
    { op, run, EVAL_MOVES, NULL, NULL }
#define NUMBER(op, run)                                                                  \
    { op, run, EVAL_NUMBERS, NULL, NULL }

const EvalRow eval_move_rows[] = {MOVE("Reshape", run_reshape),
                                  MOVE("Flatten", run_flatten),
                                  MOVE("Squeeze", run_squeeze),
                                  MOVE("Unsqueeze", run_unsqueeze),
                                  MOVE("Transpose", run_transpose),
                                  MOVE("Expand", run_expand),
                                  MOVE("Tile", run_tile),
                                  MOVE("Slice", run_slice),
                                  MOVE("Split", run_split),
                                  MOVE("Concat", run_concat),
                                  MOVE("Gather", run_gather),
                                  MOVE("GatherElements", run_gather_elements),
                                  MOVE("GatherND", run_gather_nd),
                                  NUMBER("ScatterND", run_scatter_nd),
                                  MOVE("Pad", run_pad),
                                  MOVE("Dropout", run_dropout),
                                  NUMBER("Trilu", run_trilu),
                                  NUMBER("Shape", run_shape),
                                  NUMBER("Size", run_size),
                                  NUMBER("ConstantOfShape", run_constant_of_shape),
                                  NUMBER("Range", run_range),
                                  NUMBER("Constant", run_constant),
                                  {NULL, NULL, EVAL_SHAPE, NULL, NULL}};
