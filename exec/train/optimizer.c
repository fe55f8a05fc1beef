/* Optimizer: see exec/train/optimizer.h.
 *
 * AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019):
 * m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w = w (1 - rate decay)
 * - rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps).
 * SGD: m = momentum m + g; w = w (1 - rate decay) - rate m. */
#include "exec/train/optimizer.h"

#include "exec/loops/loops.h"
#include "exec/plan/weight_layout.h"
#include "exec/run/parallel.h"
#include "exec/run/ranks.h"
#include "exec/train/gradient_tree.h"
#include "exec/train/prior.h"
#include "exec/train/rank_parts.h"
#include "ir/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A range of what is trained and how: the weights of a storage, or its log variances,
 * which stand behind all weights. */
typedef struct Segment {
    const Storage *storage;
    bool variances;         /* log variances */
    const PriorPart *prior; /* of weights; NULL = none */
    int64_t first, last;    /* last is exclusive */
    double factor, decay;
} Segment;

/* What a block of weights adds. */
typedef struct BlockSum {
    double square; /* to the square of the gradient's norm */
    double added;  /* by its priors, to the objective */
} BlockSum;

struct Optimizer {
    const TrainOptions *options;
    Segment *segments;
    int segment_count;
    int64_t weight_count, count;     /* elements: weights; all that is trained */
    int64_t own_blocks;              /* those that this rank owns: rank_parts.h */
    float *weights, *average, *best; /* [count]; NULL = not used */
    void *first, *second;            /* moments, of own blocks; NULL = not used */
    bool has_best;                   /* `best` holds weights */
    Buf *state;
    Prior *prior;
    BlockSum *sums; /* by block of weights */
};

/* ---- setting up ---- */

/* A prior takes the place of weight decay. */
static void add_segment(Optimizer *optimizer, const Params *params,
                        const Storage *storage, const PriorPart *part) {
    const TrainOptions *options = optimizer->options;
    const bool decays = storage->tensor.rank >= 2 && !part &&
                        !name_matches_any(&options->no_decay, storage->name);
    Segment *segment = &optimizer->segments[optimizer->segment_count++];
    segment->storage = storage;
    segment->prior = part;
    segment->first = params_offset(params, storage);
    segment->last = segment->first + tensor_count(&storage->tensor);
    segment->factor = train_group_factor(options, storage->name);
    segment->decay = decays ? options->weight_decay : 0;
}

/* Segments of the log variances, behind those of the weights. */
static void add_deviations(Optimizer *optimizer) {
    const int weights = prior_deviations(optimizer->prior) ? optimizer->segment_count : 0;
    for (int i = 0; i < weights; i++) {
        const Segment *of = &optimizer->segments[i];
        if (!of->prior) continue;
        Segment *segment = &optimizer->segments[optimizer->segment_count++];
        segment->storage = of->storage;
        segment->variances = true;
        segment->first = prior_log_variances(optimizer->prior, of->prior);
        segment->last = segment->first + of->prior->count;
        segment->factor = of->factor * optimizer->options->variance_lr;
    }
}

/* Whether a backward call of the plan adds to the storage's gradient. */
static bool has_gradient(const Plan *plan, const Storage *storage) {
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *user = &plan->nodes[i];
        for (int j = 0; user->backward >= 0 && j < user->in_count; j++)
            if (user->in[j].write != GRADIENT_NONE &&
                plan->nodes[user->in[j].node].node->storage == storage)
                return true;
    }
    return false;
}

static Status fail_nothing(Diag *diag) {
    diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
              "nothing to train: the loss depends on no weights that are not frozen");
    diag_hint(diag, "check the options freeze and only");
    return STATUS_MODEL;
}

Status optimizer_check_plan(const Graph *graph, const Plan *plan, Diag *diag) {
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        if (!storage->frozen && has_gradient(plan, storage)) return STATUS_OK;
    }
    return fail_nothing(diag);
}

static Status add_segments(Optimizer *optimizer, const Graph *graph, const Plan *plan,
                           const Params *params, Diag *diag) {
    size_t count = 2 * (size_t)graph->storage_count + 1;
    optimizer->segments = memory_alloc(count, sizeof *optimizer->segments);
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        const PriorPart *part = prior_part(optimizer->prior, storage);
        if (part || (params_offset(params, storage) >= 0 && has_gradient(plan, storage)))
            add_segment(optimizer, params, storage, part);
    }
    add_deviations(optimizer);
    return optimizer->segment_count > 0 ? STATUS_OK : fail_nothing(diag);
}

static int moment_count(const TrainOptions *options) {
    if (options->optimizer == OPTIMIZER_ADAMW) return 2;
    return options->momentum > 0 ? 1 : 0;
}

static DType moment_dtype(const TrainOptions *options) {
    return options->moments == MOMENTS_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

/* Bytes of a moment in this rank, whole cache lines; one where it owns none, so that it
 * has an array. */
static size_t moment_bytes(const TrainOptions *options, int64_t count) {
    const size_t line = 64, own = (size_t)rank_part_count(count);
    const size_t bytes = own * dtype_bytes(moment_dtype(options));
    return own > 0 ? (bytes + line - 1) / line * line : line;
}

static size_t state_bytes(const TrainOptions *options, int64_t count) {
    const int arrays = (options->ema > 0) + (options->keep == KEEP_BEST);
    return (size_t)(count * arrays) * sizeof(float) +
           moment_bytes(options, count) * (size_t)moment_count(options);
}

size_t optimizer_bytes(const Graph *graph, const TrainOptions *options) {
    const int64_t count = params_layout(graph, NULL);
    return state_bytes(options, count + prior_room(graph, options)) +
           prior_bytes(graph, options);
}

static Status add_state(Optimizer *optimizer, Diag *diag) {
    const TrainOptions *options = optimizer->options;
    const size_t bytes = state_bytes(options, optimizer->count);
    if (bytes == 0) return STATUS_OK;
    TRY(buf_create(&optimizer->state, bytes, diag));
    char *next = (char *)(uintptr_t)buf_data(optimizer->state);
    const int moments = moment_count(options);
    const size_t room = moment_bytes(options, optimizer->count);
    const size_t all = (size_t)optimizer->count * sizeof(float);
    if (moments > 0) optimizer->first = next, next += room;
    if (moments > 1) optimizer->second = next, next += room;
    if (options->keep == KEEP_BEST) optimizer->best = (float *)next, next += all;
    if (options->ema > 0) optimizer->average = (float *)next;
    /* Weights that are not trained stay what they are in these, too. */
    if (optimizer->best) memcpy(optimizer->best, optimizer->weights, all);
    if (optimizer->average) memcpy(optimizer->average, optimizer->weights, all);
    return STATUS_OK;
}

Status optimizer_create(Optimizer **out, Graph *graph, const Plan *plan, Params *params,
                        const TrainOptions *options, int64_t samples, Diag *diag) {
    Optimizer *optimizer = memory_alloc(1, sizeof *optimizer);
    optimizer->options = options;
    Status status =
        prior_create(&optimizer->prior, graph, params, options, samples, diag);
    if (status == STATUS_OK) {
        float *values = optimizer->prior ? prior_values(optimizer->prior) : NULL;
        optimizer->weight_count = params_flat_count(params);
        optimizer->count = optimizer->weight_count + prior_deviations(optimizer->prior);
        optimizer->weights = values ? values : params_flat(params);
        const size_t blocks = (size_t)gradient_blocks(optimizer->weight_count) + 1;
        optimizer->sums = memory_alloc(blocks, sizeof *optimizer->sums);
        optimizer->own_blocks = rank_part_blocks(optimizer->count);
        status = add_segments(optimizer, graph, plan, params, diag);
    }
    if (status == STATUS_OK) status = add_state(optimizer, diag);
    if (status == STATUS_OK)
        *out = optimizer;
    else
        optimizer_destroy(optimizer);
    return status;
}

void optimizer_destroy(Optimizer *optimizer) {
    if (!optimizer) return;
    buf_release(optimizer->state);
    free(optimizer->segments);
    free(optimizer->sums);
    prior_destroy(optimizer->prior);
    free(optimizer);
}

int64_t optimizer_count(const Optimizer *optimizer) {
    return optimizer->count;
}

void optimizer_describe(const Optimizer *optimizer, Arena *arena, int *with,
                        StringList *without) {
    const int count = optimizer->prior ? optimizer->segment_count : 0;
    *with = 0;
    *without = (StringList){.items = ARENA_ARRAY(arena, const char *, (size_t)count)};
    for (int i = 0; i < count; i++) {
        const Segment *segment = &optimizer->segments[i];
        if (segment->variances) break;
        if (segment->prior)
            ++*with;
        else
            without->items[without->count++] =
                arena_printf(arena, "%s", segment->storage->name);
    }
}

void optimizer_draw(Optimizer *optimizer, uint64_t key, int threads) {
    prior_draw(optimizer->prior, key, threads);
}

/* ---- ranges ---- */

/* First segment that ends after `at`. */
static int find_segment(const Optimizer *optimizer, int64_t at) {
    int low = 0, high = optimizer->segment_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (optimizer->segments[middle].last > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* A segment's elements within a block. */
typedef struct Range {
    const Segment *segment;
    int64_t first, n;
} Range;

/* Range of segment number *i within [first, end), and the next number; false behind the
 * last segment that has elements there. */
static bool next_range(const Optimizer *optimizer, int *i, int64_t first, int64_t end,
                       Range *out) {
    if (*i >= optimizer->segment_count) return false;
    const Segment *segment = &optimizer->segments[(*i)++];
    if (segment->first >= end) return false;
    const int64_t from = segment->first > first ? segment->first : first;
    const int64_t to = segment->last < end ? segment->last : end;
    *out = (Range){segment, from, to - from};
    return true;
}

/* ---- sum of the shards ---- */

typedef struct SumJob {
    Optimizer *optimizer;
    float *const *gradients;
    int64_t shards;
    bool own; /* the blocks that this rank owns; else all */
} SumJob;

static int64_t block_end(int64_t first, int64_t count) {
    return first + GRADIENT_BLOCK < count ? first + GRADIENT_BLOCK : count;
}

/* Completes the gradient of a block with its priors. */
static void add_priors(const Optimizer *o, float *gradient, int64_t first, int64_t end,
                       double *added, double *square) {
    Range range;
    for (int i = find_segment(o, first); next_range(o, &i, first, end, &range);) {
        const PriorPart *part = range.segment->prior;
        if (!part) continue;
        *added += prior_add(o->prior, part, gradient, range.first, range.n);
        if (prior_deviations(o->prior) == 0) continue;
        const float *rho = gradient + prior_log_variances(o->prior, part);
        *square += loops_here()->sum_squares(rho + (range.first - part->first), range.n);
    }
}

static void sum_block(void *self, int64_t i, int worker) {
    (void)worker;
    const SumJob *job = self;
    Optimizer *o = job->optimizer;
    const int64_t block = job->own ? rank_part_block(o->weight_count, i) : i;
    const int64_t first = block * GRADIENT_BLOCK, end = block_end(first, o->weight_count);
    const int64_t n = end - first;
    gradient_tree_add(&(ShardRange){0, job->shards, job->shards}, job->gradients, first,
                      n);
    double added = 0, square = 0;
    if (o->prior) add_priors(o, job->gradients[0], first, end, &added, &square);
    square += loops_here()->sum_squares(job->gradients[0] + first, n);
    o->sums[block] = (BlockSum){.square = square, .added = added};
}

Status optimizer_sum(Optimizer *optimizer, float *const *gradients, int64_t shards,
                     int threads, double *norm, Diag *diag) {
    const int64_t count = optimizer->weight_count, blocks = gradient_blocks(count);
    SumJob job = {.optimizer = optimizer, .gradients = gradients, .shards = shards};
    /* The gradients of log variances, which others may own, come of those of weights. */
    job.own = prior_deviations(optimizer->prior) == 0;
    if (!job.own) TRY(rank_parts_gather(gradients[0], count, diag));
    parallel_for(job.own ? rank_part_blocks(count) : blocks, threads, sum_block, &job);
    if (job.own)
        TRY(rank_parts_gather_blocks(optimizer->sums, count, sizeof *optimizer->sums,
                                     diag));
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += optimizer->sums[i].square;
    *norm = sqrt(sum);
    return STATUS_OK;
}

double optimizer_prior(const Optimizer *optimizer) {
    double sum = 0;
    for (int64_t i = 0; i < gradient_blocks(optimizer->weight_count); i++)
        sum += optimizer->sums[i].added;
    return sum;
}

/* ---- step ---- */

typedef struct StepJob {
    Optimizer *optimizer;
    const float *gradient;
    double scale, rate;
    double correct1, correct2; /* AdamW: 1 - beta^t */
    uint32_t key;              /* of what rounds moments */
    float average_decay;
} StepJob;

static Update segment_update(const StepJob *job, const Segment *segment) {
    const TrainOptions *options = job->optimizer->options;
    const double rate = job->rate * segment->factor;
    Update u = {.scale = (float)job->scale,
                .shrink = (float)(1 - rate * segment->decay),
                .rate = (float)rate};
    if (options->optimizer == OPTIMIZER_ADAMW) {
        u.rate = (float)(rate / job->correct1);
        u.root = (float)(1 / sqrt(job->correct2));
        u.beta1 = (float)options->beta1;
        u.beta2 = (float)options->beta2;
        u.eps = (float)options->eps;
    } else {
        u.beta1 = (float)options->momentum;
    }
    return u;
}

/* Of weights from `first` on, whose moments are from `at` on. */
static void step_range(const StepJob *job, const Segment *segment, int64_t first,
                       int64_t n, int64_t at) {
    Optimizer *o = job->optimizer;
    const Update u = segment_update(job, segment);
    const Loops *loops = loops_here();
    float *w = o->weights + first;
    const float *g = job->gradient + first;
    const uint32_t element = (uint32_t)first; /* its lower bits are as good */
    if (!o->first) {
        loops->update_plain(w, g, n, &u);
    } else if (o->options->moments == MOMENTS_BF16) {
        uint16_t *m = (uint16_t *)o->first + at, *v = o->second;
        if (v)
            loops->update_adamw_bf16(w, g, m, v + at, n, &u, job->key, element);
        else
            loops->update_momentum_bf16(w, g, m, n, &u, job->key, element);
    } else {
        float *m = (float *)o->first + at, *v = o->second;
        if (v)
            loops->update_adamw(w, g, m, v + at, n, &u);
        else
            loops->update_momentum(w, g, m, n, &u);
    }
}

static void step_block(void *self, int64_t i, int worker) {
    (void)worker;
    const StepJob *job = self;
    const Optimizer *optimizer = job->optimizer;
    const int64_t first = rank_part_block(optimizer->count, i) * GRADIENT_BLOCK;
    const int64_t end = block_end(first, optimizer->count);
    const int64_t moments = i * GRADIENT_BLOCK;
    Range range;
    for (int k = find_segment(optimizer, first);
         next_range(optimizer, &k, first, end, &range);)
        step_range(job, range.segment, range.first, range.n,
                   moments + range.first - first);
}

/* Averages the weights of a block, which may be another rank's. */
static void average_block(void *self, int64_t block, int worker) {
    (void)worker;
    const StepJob *job = self;
    const Optimizer *o = job->optimizer;
    const int64_t first = block * GRADIENT_BLOCK, end = block_end(first, o->count);
    Range range;
    for (int i = find_segment(o, first); next_range(o, &i, first, end, &range);)
        loops_here()->update_average(o->average + range.first, o->weights + range.first,
                                     range.n, job->average_decay);
}

Status optimizer_step(Optimizer *optimizer, const float *gradient, double scale,
                      double rate, int64_t step, uint64_t key, int threads, Diag *diag) {
    const TrainOptions *options = optimizer->options;
    const double time = (double)(step + 1), start = (1 + time) / (10 + time);
    StepJob job = {
        .optimizer = optimizer,
        .gradient = gradient,
        .scale = scale,
        .rate = rate,
        .correct1 = 1 - pow(options->beta1, time),
        .correct2 = 1 - pow(options->beta2, time),
        .key = (uint32_t)random_key_name(key, "moments"),
        .average_decay = (float)(options->ema < start ? options->ema : start),
    };
    parallel_for(optimizer->own_blocks, threads, step_block, &job);
    TRY(rank_parts_gather(optimizer->weights, optimizer->count, diag));
    if (optimizer->average)
        parallel_for(gradient_blocks(optimizer->count), threads, average_block, &job);
    return STATUS_OK;
}

/* ---- the state ---- */

/* An array of the optimiser's and what names begin with of its parts by storage: where
 * they belong to weights, and to log variances. */
typedef struct StateArray {
    const char *weights, *variances;
    void *data; /* NULL = not used */
    DType dtype;
    bool moment, squares; /* a moment holds what the rank owns alone */
} StateArray;

enum { STATE_ARRAYS = 5 };

static void state_arrays(const Optimizer *o, bool best, StateArray out[STATE_ARRAYS]) {
    const DType moment = moment_dtype(o->options), real = DTYPE_F32;
    const StateArray arrays[STATE_ARRAYS] = {
        {"weight/", "log_variance/", o->weights, real, false, false},
        {"first/", "log_variance_first/", o->first, moment, true, false},
        {"second/", "log_variance_second/", o->second, moment, true, true},
        {"average/", "log_variance_average/", o->average, real, false, false},
        {"best/", "log_variance_best/", best ? o->best : NULL, real, false, false}};
    memcpy(out, arrays, sizeof arrays);
}

static const char *state_prefix(const StateArray *array, const Segment *segment) {
    return segment->variances ? array->variances : array->weights;
}

/* All elements of an array, to be released; *out is NULL in a rank that does not have
 * them. */
static Status whole_array(Buf **out, const Optimizer *optimizer, const StateArray *array,
                          Diag *diag) {
    const size_t size = dtype_bytes(array->dtype);
    const size_t bytes = (size_t)optimizer->count * size;
    Status status = STATUS_OK;
    *out = NULL;
    if (!array->moment || ranks_count() == 1) {
        *out = buf_wrap(array->data, bytes, NULL);
        return STATUS_OK;
    }
    if (ranks_number() == 0) status = buf_create(out, bytes, diag);
    TRY(ranks_agree(status, diag));
    void *all = *out ? (void *)(uintptr_t)buf_data(*out) : NULL;
    status = rank_parts_collect(all, array->data, optimizer->count, size, diag);
    if (status == STATUS_OK) return STATUS_OK;
    buf_release(*out);
    *out = NULL;
    return status;
}

static void save_segments(const Optimizer *optimizer, const StateArray *array, Buf *whole,
                          TrainState *state) {
    for (int i = 0; i < optimizer->segment_count; i++) {
        const Segment *segment = &optimizer->segments[i];
        const Tensor *like = &segment->storage->tensor;
        Tensor tensor = tensor_shape(array->dtype, like->rank, like->dim);
        tensor.buf = buf_retain(whole);
        tensor.offset = (size_t)segment->first * dtype_bytes(array->dtype);
        train_state_add(state, state_prefix(array, segment), segment->storage->name,
                        tensor);
    }
}

Status optimizer_save(const Optimizer *optimizer, TrainState *state, Diag *diag) {
    StateArray arrays[STATE_ARRAYS];
    state_arrays(optimizer, optimizer->has_best, arrays);
    for (int a = 0; a < STATE_ARRAYS; a++) {
        Buf *whole;
        if (!arrays[a].data) continue;
        TRY(whole_array(&whole, optimizer, &arrays[a], diag));
        if (whole) save_segments(optimizer, &arrays[a], whole, state);
        buf_release(whole);
    }
    return STATUS_OK;
}

/* A second moment is a mean of squares. */
static Status check_squares(const Tensor *tensor, const char *name, Diag *diag) {
    for (int64_t i = 0; i < tensor_count(tensor); i++) {
        float square;
        tensor_read_f32(tensor, i, 1, &square);
        if (square < 0)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "the state of the training has a negative second moment of "
                             "'%s', element %lld",
                             name, (long long)i);
    }
    return STATUS_OK;
}

/* The tensors of all arrays and segments, in order. */
static Status find_state(const Optimizer *optimizer, const StateArray *arrays,
                         TrainState *state, const Tensor **found, Diag *diag) {
    for (int a = 0; a < STATE_ARRAYS; a++)
        for (int i = 0; arrays[a].data && i < optimizer->segment_count; i++, found++) {
            const Segment *segment = &optimizer->segments[i];
            const Tensor *like = &segment->storage->tensor;
            TRY(train_state_find(found, state, state_prefix(&arrays[a], segment),
                                 segment->storage->name, arrays[a].dtype, like->rank,
                                 like->dim, diag));
            if (arrays[a].squares)
                TRY(check_squares(*found, segment->storage->name, diag));
        }
    return train_state_all_found(state, diag);
}

/* Copies what a segment has in elements [first, end), of `size` bytes each, from a tensor
 * to where the first of them is. */
static void load_range(const Segment *segment, const Tensor *from, int64_t first,
                       int64_t end, char *data, size_t size) {
    const int64_t start = segment->first > first ? segment->first : first;
    const int64_t last = segment->last < end ? segment->last : end;
    if (start >= last) return;
    memcpy(data + (size_t)(start - first) * size,
           (const char *)tensor_data(from) + (size_t)(start - segment->first) * size,
           (size_t)(last - start) * size);
}

/* Of a moment what this rank owns. */
static void load_segment(const Optimizer *o, const StateArray *array,
                         const Segment *segment, const Tensor *from) {
    char *data = array->data;
    const size_t size = dtype_bytes(array->dtype);
    if (!array->moment) load_range(segment, from, 0, o->count, data, size);
    for (int64_t i = 0; array->moment && i < o->own_blocks; i++) {
        const int64_t first = rank_part_block(o->count, i) * GRADIENT_BLOCK;
        load_range(segment, from, first, block_end(first, o->count),
                   data + (size_t)(i * GRADIENT_BLOCK) * size, size);
    }
}

Status optimizer_load(Optimizer *optimizer, TrainState *state, bool best, Diag *diag) {
    StateArray arrays[STATE_ARRAYS];
    state_arrays(optimizer, best, arrays);
    const size_t most = STATE_ARRAYS * (size_t)optimizer->segment_count;
    const Tensor **found = memory_alloc(most, sizeof *found);
    const Status status = find_state(optimizer, arrays, state, found, diag);
    const Tensor **next = found;
    for (int a = 0; status == STATUS_OK && a < STATE_ARRAYS; a++)
        for (int i = 0; arrays[a].data && i < optimizer->segment_count; i++, next++)
            load_segment(optimizer, &arrays[a], &optimizer->segments[i], *next);
    free(found);
    if (status != STATUS_OK) return status;
    optimizer->has_best = best;
    optimizer_restore_means(optimizer);
    return STATUS_OK;
}

/* ---- which weights go out ---- */

static void swap_average(Optimizer *optimizer) {
    float *w = optimizer->weights, *average = optimizer->average;
    for (int64_t i = 0; average && i < optimizer->count; i++) {
        const float kept = w[i];
        w[i] = average[i];
        average[i] = kept;
    }
    optimizer_restore_means(optimizer);
}

void optimizer_show(Optimizer *optimizer) {
    swap_average(optimizer);
}

void optimizer_hide(Optimizer *optimizer) {
    swap_average(optimizer);
}

void optimizer_keep_best(Optimizer *optimizer) {
    memcpy(optimizer->best, optimizer->weights, (size_t)optimizer->count * sizeof(float));
    optimizer->has_best = true;
}

void optimizer_restore_means(Optimizer *optimizer) {
    prior_restore_means(optimizer->prior);
}

Status optimizer_finish(Optimizer *optimizer, Diag *diag) {
    const float *out = optimizer->has_best ? optimizer->best : optimizer->average;
    if (out) memcpy(optimizer->weights, out, (size_t)optimizer->count * sizeof(float));
    optimizer_restore_means(optimizer);
    return prior_finish(optimizer->prior, diag);
}
