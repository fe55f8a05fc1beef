/* Lifting what moves, joins or chooses tokens: patches of images, windows, tokens in
 * front, one token, means. Known by where elements go. See lift_tokens.h. */
#include "io/onnx/lift/lift_tokens.h"

#include "io/onnx/lift/lift_attention.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/probe.h"

#include <math.h>
#include <string.h>

/* ---- patches ---- */

/* Whether a Conv cuts an image into squares that do not overlap. */
static bool is_patch_conv(const NetNode *node, int64_t *size) {
    int count = 0;
    if (!net_is(node, "Conv") || !node->in[1] || !node->in[1]->probe[0]) return false;
    const Array *w = node->in[1]->probe[0];
    const int64_t *strides = net_ints(node, "strides", &count);
    if (w->rank != 4 || w->dim[2] != w->dim[3] || !strides || count != 2) return false;
    const int64_t *pads = net_ints(node, "pads", &count);
    for (int i = 0; pads && i < count; i++)
        if (pads[i] != 0) return false;
    *size = w->dim[2];
    return strides[0] == *size && strides[1] == *size && net_int(node, "group", 1) == 1;
}

/* Pixels of a Conv, [N, D, h, w], as tokens [N, h w, D]. */
static bool is_pixels_as_tokens(const Trace *trace) {
    const Array *x = trace->source->probe[0], *index = trace->index[0];
    if (x->rank != 4) return false;
    const int64_t width = x->dim[1], pixels = x->dim[2] * x->dim[3];
    for (int64_t i = 0; i < index->count; i++) {
        const int64_t n = i / (width * pixels), p = i / width % pixels, d = i % width;
        if (index->data[i] != (double)((n * width + d) * pixels + p + 1)) return false;
    }
    return trace->scale == 1;
}

/* Whether tokens are the squares of an image, channel by channel. */
static bool is_squares(const Trace *trace, int64_t size) {
    const Array *x = trace->source->probe[0], *index = trace->index[0];
    const int64_t rows = x->dim[2] / size, columns = x->dim[3] / size;
    const int64_t square = size * size, width = x->dim[1] * square;
    if (rows * columns < 1 || index->count != x->count || x->dim[2] % size) return false;
    for (int64_t i = 0; i < index->count; i++) {
        const int64_t n = i / (width * rows * columns), p = i / width % (rows * columns);
        const int64_t c = i % width / square, at = i % square;
        const int64_t row = p / columns * size + at / size,
                      column = p % columns * size + at % size;
        const int64_t from = ((n * x->dim[1] + c) * x->dim[2] + row) * x->dim[3] + column;
        if (index->data[i] != (double)(from + 1)) return false;
    }
    return trace->scale == 1;
}

/* Squares of an image that no filter has read yet. */
static Node *match_squares(Lift *lift, NetValue *value, const Trace *trace) {
    const Array *x = trace->source->probe[0], *y = trace->index[0];
    if (x->rank != 4 || y->rank < 2 || x->dim[1] < 1) return NULL;
    const int64_t width = y->dim[y->rank - 1];
    const int64_t size = (int64_t)llround(sqrt((double)(width / x->dim[1])));
    if (size < 1 || size * size * x->dim[1] != width || !is_squares(trace, size))
        return NULL;
    Node *image = lift_value(lift, trace->source);
    return image ? lift_op(lift, value->producer, "patches", &image, 1, "size=%lld",
                           (long long)size)
                 : NULL;
}

static Node *match_patches(Lift *lift, NetValue *value, const Trace *trace) {
    NetNode *conv = trace->source->producer;
    int64_t size;
    if (trace->source->input) return match_squares(lift, value, trace);
    if (!conv || !is_patch_conv(conv, &size) || !is_pixels_as_tokens(trace)) return NULL;
    Node *image = lift_value(lift, conv->in[0]);
    if (!image) return NULL;
    Node *in[3] = {
        lift_op(lift, conv, "patches", &image, 1, "size=%lld", (long long)size),
        lift_stored(lift, conv->in[1], -1, NULL)};
    if (!in[0] || !in[1]) return NULL;
    const bool bias = conv->in_count > 2 && conv->in[2];
    if (bias && !(in[2] = lift_stored(lift, conv->in[2], -1, NULL))) return NULL;
    return lift_op(lift, conv, "linear", in, bias ? 3 : 2, NULL);
}

/* ---- grids ---- */

/* A grid of tokens and how windows lie on it. */
typedef struct Grid {
    int64_t rows, columns, window, shift;
} Grid;

static int64_t whole_windows(int64_t n, int64_t window) {
    return (n + window - 1) / window * window;
}

/* Token of the grid that stands at place `at` of the tokens by windows; -1 = padding. */
static int64_t window_cell(const Grid *g, int64_t at) {
    const int64_t full_h = whole_windows(g->rows, g->window),
                  full_w = whole_windows(g->columns, g->window);
    const int64_t inside = at % (g->window * g->window), w = at / (g->window * g->window);
    int64_t row = w / (full_w / g->window) * g->window + inside / g->window,
            column = w % (full_w / g->window) * g->window + inside % g->window;
    row = (row + g->shift) % full_h;
    column = (column + g->shift) % full_w;
    return row < g->rows && column < g->columns ? row * g->columns + column : -1;
}

/* Whether elements go from tokens to windows (or with `back` from windows to tokens). */
static bool is_windowed(const Array *index, const Grid *g, int64_t width, bool back) {
    const int64_t tokens = g->rows * g->columns,
                  padded = whole_windows(g->rows, g->window) *
                           whole_windows(g->columns, g->window);
    const int64_t to = back ? tokens : padded, from = back ? padded : tokens;
    if (index->count % (to * width) != 0) return false;
    for (int64_t n = 0; n < index->count / (to * width); n++)
        for (int64_t at = 0; at < padded; at++) {
            const int64_t cell = window_cell(g, at);
            if (back && cell < 0) continue;
            const int64_t target = back ? cell : at, source = back ? at : cell;
            for (int64_t c = 0; c < width; c++) {
                const double want =
                    source < 0 ? 0 : (double)((n * from + source) * width + c + 1);
                if (index->data[(n * to + target) * width + c] != want) return false;
            }
        }
    return true;
}

static Node *lift_window(Lift *lift, const Trace *trace, const Grid *g, bool back) {
    const NetNode *node = trace->source->producer;
    Node *x = lift_value(lift, trace->source);
    return x ? lift_op(lift, node, back ? "window_reverse" : "window_partition", &x, 1,
                       "grid_h=%lld grid_w=%lld window=%lld shift=%lld",
                       (long long)g->rows, (long long)g->columns, (long long)g->window,
                       (long long)g->shift)
             : NULL;
}

/* Tries the grids of `tokens` tokens with windows of one size. */
static Node *try_grids(Lift *lift, const Trace *trace, int64_t tokens, int64_t window,
                       int64_t width, bool back) {
    const Array *to = trace->index[0], *from = trace->source->probe[0];
    const int64_t padded = (back ? from : to)->count / width / probe_samples(0);
    for (int64_t rows = 1; rows <= tokens; rows++) {
        if (tokens % rows != 0 ||
            whole_windows(rows, window) * whole_windows(tokens / rows, window) != padded)
            continue;
        for (int64_t shift = 0; shift < window; shift++) {
            const Grid g = {rows, tokens / rows, window, shift};
            if (is_windowed(trace->index[0], &g, width, back))
                return lift_window(lift, trace, &g, back);
        }
    }
    return NULL;
}

/* Whether a value is attention's, projected: its windows are put back, not cut. */
static bool is_behind_attention(Lift *lift, const Trace *trace) {
    const Node *x = lift_value(lift, trace->source);
    for (int i = 0; i < 4 && x; i++) {
        if (strcmp(x->op->name, "attention") == 0) return true;
        x = x->in_count > 0 ? x->in[0] : NULL;
    }
    return false;
}

/* One window that is the whole grid: nothing moves, but exporters write the cut. */
static Node *match_one_window(Lift *lift, const Trace *trace) {
    const Array *index = trace->index[0];
    if (trace->turned < 5 || index->rank < 3) return NULL;
    const int64_t width = index->dim[index->rank - 1],
                  tokens = index->count / width / probe_samples(0);
    const int64_t window = (int64_t)llround(sqrt((double)tokens));
    if (window * window != tokens) return NULL;
    const Grid g = {window, window, window, 0};
    return lift_window(lift, trace, &g, is_behind_attention(lift, trace));
}

enum { WINDOW_MAX = 64 };

/* Tokens cut into windows, or put back: tries the sizes that windows may have. As many
 * windows as a window has rows is the same both ways. */
static Node *match_windows(Lift *lift, const Trace *trace) {
    const Array *to = trace->index[0], *from = trace->source->probe[0];
    if (to->rank < 3 || from->rank < 3 || trace->turned < 5) return NULL;
    const int64_t width = to->dim[to->rank - 1], samples = probe_samples(0);
    if (width != from->dim[from->rank - 1]) return NULL;
    const bool behind = is_behind_attention(lift, trace);
    for (int i = 0; i < 2; i++) {
        const bool back = behind ? i == 0 : i == 1;
        const int64_t tokens = (back ? to : from)->count / width / samples,
                      padded = (back ? from : to)->count / width / samples;
        for (int64_t window = 2; window <= WINDOW_MAX; window++) {
            if (padded % (window * window) != 0) continue;
            Node *found = try_grids(lift, trace, tokens, window, width, back);
            if (found) return found;
        }
    }
    return NULL;
}

/* Every 2 x 2 tokens side by side: (0, 0), (1, 0), (0, 1), (1, 1). */
static bool is_merged(const Array *index, int64_t rows, int64_t columns, int64_t width) {
    const int64_t half_h = (rows + 1) / 2, half_w = (columns + 1) / 2;
    const int64_t each = half_h * half_w * 4 * width;
    if (index->count % each != 0) return false;
    for (int64_t i = 0; i < index->count; i++) {
        const int64_t n = i / each, at = i % each / (4 * width), part = i / width % 4;
        const int64_t row = at / half_w * 2 + part % 2,
                      column = at % half_w * 2 + part / 2;
        const bool inside = row < rows && column < columns;
        const double want =
            inside
                ? (double)(((n * rows + row) * columns + column) * width + i % width + 1)
                : 0;
        if (index->data[i] != want) return false;
    }
    return true;
}

static Node *match_merging(Lift *lift, const Trace *trace) {
    const Array *to = trace->index[0], *from = trace->source->probe[0];
    if (from->rank < 3 || to->rank < 3) return NULL;
    const int64_t width = from->dim[from->rank - 1],
                  tokens = from->count / width / probe_samples(0);
    if (to->dim[to->rank - 1] != 4 * width) return NULL;
    for (int64_t rows = 1; rows <= tokens; rows++) {
        if (tokens % rows != 0 || !is_merged(to, rows, tokens / rows, width)) continue;
        Node *x = lift_value(lift, trace->source);
        return x ? lift_op(lift, trace->source->producer, "patch_merging", &x, 1,
                           "grid_h=%lld grid_w=%lld", (long long)rows,
                           (long long)(tokens / rows))
                 : NULL;
    }
    return NULL;
}

/* ---- tokens that are chosen ---- */

/* Tokens `first`, first + 1, ... of each sample, `count` of them, in both probes. */
static bool is_token_range(const Trace *trace, int probe, int64_t width, int64_t *first,
                           int64_t *count, int64_t *tokens) {
    const Array *index = trace->index[probe], *x = trace->source->probe[probe];
    const int64_t samples = probe_samples(probe);
    const bool turned = trace->source->tokens_first;
    if (x->rank != 3 || x->dim[turned] != samples ||
        index->count % (samples * width) != 0)
        return false;
    *tokens = x->dim[!turned];
    *count = index->count / (samples * width);
    *first = (int64_t)(index->data[0] - 1) / width;
    for (int64_t i = 0; i < index->count; i++) {
        const int64_t n = i / (*count * width), t = i / width % *count;
        if (index->data[i] !=
            (double)((n * *tokens + *first + t) * width + i % width + 1))
            return false;
    }
    return true;
}

static Node *match_chosen(Lift *lift, const Trace *trace) {
    int64_t first[NET_PROBES], count[NET_PROBES], tokens[NET_PROBES];
    const Array *x = trace->source->probe[0];
    const NetNode *node = trace->source->producer;
    const int64_t width = x->rank == 3 ? x->dim[2] : 0;
    if (width < 1 || trace->index[0]->count < 1) return NULL;
    for (int p = 0; p < NET_PROBES; p++)
        if (!is_token_range(trace, p, width, &first[p], &count[p], &tokens[p]))
            return NULL;
    if (first[0] != first[1]) return NULL;
    const bool one = count[0] == 1 && count[1] == 1;
    const bool rest = first[0] > 0 && count[0] == tokens[0] - first[0] &&
                      count[1] == tokens[1] - first[1];
    if (!one && !rest) return NULL;
    Node *in[1] = {lift_value(lift, trace->source)};
    if (!in[0]) return NULL;
    if (one)
        return lift_op(lift, node, "select_token", in, 1, "index=%lld",
                       (long long)first[0]);
    return lift_op(lift, node, "slice_tokens", in, 1, "from=%lld", (long long)first[0]);
}

/* Some columns of a projection. */
static Node *match_columns(Lift *lift, const Trace *trace) {
    const Array *index = trace->index[0], *x = trace->source->probe[0];
    Projection projection;
    if (index->rank < 1 || x->rank < 1) return NULL;
    const int64_t width = index->dim[index->rank - 1], all = x->dim[x->rank - 1];
    if (width < 1 || width >= all || index->count % width != 0 ||
        !match_projection(lift, value_behind(trace->source), &projection))
        return NULL;
    for (int64_t i = 0; i < index->count; i++) {
        const double column = index->data[i % width];
        if (column < 1 || column > (double)all ||
            index->data[i] != (double)(i / width * all) + column)
            return NULL;
    }
    int64_t *columns = ARENA_ARRAY(trace->arena, int64_t, (size_t)width);
    for (int64_t j = 0; j < width; j++) columns[j] = (int64_t)index->data[j] - 1;
    return lift_projection(lift, &projection, columns, width);
}

/* ---- tokens in front ---- */

/* The stored token that a part is for every sample, NULL when it is none. */
static NetValue *stored_token(const Net *net, NetValue *part, int64_t width) {
    Trace trace;
    if (!trace_value(&trace, net, part, true)) return NULL;
    const Array *index = trace.index[0];
    bool good = trace.scale == 1 && trace.source->probe[0]->count == width;
    for (int64_t i = 0; i < index->count && good; i++)
        good = index->data[i] == (double)(i % width + 1);
    trace_free(&trace);
    return good ? trace.source : NULL;
}

static Node *match_prepended(Lift *lift, NetNode *node) {
    const Array *shape = node->out[0]->probe[0];
    const int last = node->in_count - 1;
    const int64_t axis = net_int(node, "axis", 0);
    if (shape->rank != 3 || last < 1 || (axis != 1 && axis != -2)) return NULL;
    const int64_t width = shape->dim[2], dim[3] = {1, 1, width};
    for (int i = 0; i < last; i++)
        if (!node->in[i] || node->in[i]->probe[0]->dim[1] != 1 ||
            !stored_token(lift->net, node->in[i], width))
            return NULL;
    Node *x = lift_value(lift, node->in[last]);
    for (int i = last - 1; i >= 0 && x; i--) {
        NetValue *token = stored_token(lift->net, node->in[i], width);
        Node *in[2] = {x, lift_stored(lift, token, 3, dim)};
        x = in[1] ? lift_op(lift, node, "prepend_token", in, 2, NULL) : NULL;
    }
    return x;
}

/* ---- all that moves ---- */

static Node *match_traced(Lift *lift, NetValue *value, const Trace *trace) {
    Node *found = match_attention(lift, value, trace);
    if (found || trace->scale != 1) return found;
    if ((found = match_patches(lift, value, trace))) return found;
    if (trace_is_plain(trace)) {
        found = match_one_window(lift, trace);
        return found ? found : lift_value(lift, trace->source);
    }
    if ((found = match_chosen(lift, trace))) return found;
    if ((found = match_columns(lift, trace))) return found;
    if ((found = match_merging(lift, trace))) return found;
    return match_windows(lift, trace);
}

Node *match_moved(Lift *lift, NetValue *value) {
    NetNode *node = value->producer;
    Trace trace;
    if (net_is(node, "Concat")) {
        Node *found = match_prepended(lift, node);
        if (found) return found;
    }
    if (!trace_value(&trace, lift->net, value, false)) return NULL;
    Node *found = trace.source == value ? NULL : match_traced(lift, value, &trace);
    trace_free(&trace);
    return found;
}

/* ---- means ---- */

/* Whether the operand of a mean over dimension `axis` has tokens there. */
Node *match_pool(Lift *lift, NetNode *node) {
    Trace trace;
    int count = 0;
    NetValue *x = node->in_count > 0 ? node->in[0] : NULL;
    const bool global = net_is(node, "GlobalAveragePool");
    if (!x || !x->probe[0] || x->probe[0]->rank != 3) return NULL;
    if (!global && !net_is(node, "ReduceMean")) return NULL;
    const int64_t *axes = net_ints(node, "axes", &count);
    double axis = global ? 2 : axes && count == 1 ? (double)axes[0] : 0;
    if (node->in_count > 1 && node->in[1] && !value_scalar(node->in[1], &axis))
        return NULL;
    if (axis < 0) axis += 3;
    if (axis < !x->tokens_first || !trace_value(&trace, lift->net, x, false)) return NULL;
    /* the mean over the tokens of [N, T, D], or of its transpose */
    const Array *index = trace.index[0], *from = trace.source->probe[0];
    bool good = from->rank == 3 && trace.scale == 1;
    const int64_t width = good ? from->dim[2] : 1, tokens = good ? from->dim[1] : 1;
    if (x->tokens_first) good = good && axis == 0 && trace_is_plain(&trace);
    for (int64_t i = 0; i < index->count && good && !x->tokens_first; i++) {
        const int64_t n = i / (width * tokens);
        const int64_t t = axis == 1 ? i / width % tokens : i % tokens,
                      c = axis == 1 ? i % width : i / tokens % width;
        good = index->data[i] == (double)((n * tokens + t) * width + c + 1);
    }
    NetValue *source = trace.source;
    trace_free(&trace);
    Node *in[1] = {good ? lift_value(lift, source) : NULL};
    return in[0] ? lift_op(lift, node, "mean_tokens", in, 1, NULL) : NULL;
}
