/* Shards: see exec/train/shards.h. */
#include "exec/train/shards.h"

#include "exec/plan/weight_layout.h"
#include "exec/run/feed.h"
#include "exec/run/lanes.h"
#include "exec/run/ranks.h"
#include "exec/run/rounded.h"
#include "exec/train/coupling.h"
#include "exec/train/gradient_exchange.h"
#include "exec/train/gradient_pool.h"

#include <stdlib.h>
#include <string.h>

/* A micro-batch is chosen so that its largest value has about this many bytes (half of a
 * second-level cache), but matrix products have at least this many rows. */
#define MICRO_BYTES ((int64_t)512 << 10)
#define MICRO_ROWS  ((int64_t)256)

/* Where nobody says how many shards there are: two, which two threads run at once without
 * waiting for each other; but one where a gradient has more bytes than this. Such weights
 * have products that are large enough to be shared, and adding gradients costs. */
#define SHARDS_USUAL ((int64_t)2)
#define SHARDS_LARGE ((int64_t)128 << 20)

/* One lane's means of running samples. */
typedef struct ShardLane {
    Workspace *workspace;
    Feed feed;
    double *rows; /* RunMode.rows of the micro-batch it runs */
} ShardLane;

struct Shards {
    ShardsOptions options;
    int64_t count, micro; /* shards; samples of a full micro-batch */
    ShardRange own;       /* the shards that this rank runs */
    int64_t group;        /* samples that no cut takes apart */
    PlanCache *plans;
    Plan *largest; /* retained */
    Lanes *lanes;
    ShardLane *memory; /* by lane */
    double *losses; /* by shard: sums of the loss and the parts, each sample counting 1 */
    double *counts; /* by shard: rows that count, by counted node */
    GradientPool *pool; /* gradients of this rank's shards */
    float *sum;         /* of the gradients of all ranks, in the first of the pool */
    GradientExchange *exchange; /* NULL = there is one rank */
    Params *params;
    MiniBatch batch; /* the current one */

    /* losses that are means over rows which are counted before a mini-batch runs */
    const Node **counted;
    int counted_count;
    double
        *rows; /* by Node.id: rows of the mini-batch that count; below 0 = not counted */
    int id_count; /* length of rows */

    Coupling *coupling; /* losses over all samples of a mini-batch; NULL = none */
    bool coupled;       /* they were computed for the current one, which is cut */
};

/* ---- sizes and plans ---- */

/* Samples of shard s when `count` samples are cut into shards: the first shards, as many
 * as there are groups left over, have one group more than the others. */
static int64_t shard_samples(const Shards *shards, int64_t count, int64_t s) {
    const int64_t groups = count / shards->group;
    return (groups / shards->count + (s < groups % shards->count)) * shards->group;
}

static int64_t shard_first(const Shards *shards, int64_t count, int64_t s) {
    const int64_t groups = count / shards->group, rest = groups % shards->count;
    return (groups / shards->count * s + (s < rest ? s : rest)) * shards->group;
}

/* Shards that this rank runs. */
static int64_t own_count(const Shards *shards) {
    return shards->own.end - shards->own.first;
}

/* Bytes of the largest value of one sample, and rows of matrices it brings. */
static void measure_sample(const Plan *plan, int64_t *bytes, int64_t *rows) {
    *bytes = *rows = 1;
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (node->forward < 0 || node->type.rank == 0) continue;
        const int64_t size = node->count * (int64_t)sizeof(float);
        const int64_t height = node->count / node->type.dim[node->type.rank - 1];
        if (size > *bytes) *bytes = size;
        if (height > *rows) *rows = height;
    }
}

static Status choose_micro(Shards *shards, Diag *diag) {
    const int64_t shard = shard_samples(shards, shards->options.batch, 0);
    shards->micro = shards->options.micro_batch;
    if (shards->micro == 0) {
        Plan *single = NULL;
        int64_t bytes, rows;
        TRY(plan_cache_get(shards->plans, 1, NULL, &single, diag));
        measure_sample(single, &bytes, &rows);
        plan_destroy(single);
        const int64_t fitting = MICRO_BYTES / bytes;
        const int64_t filling = (MICRO_ROWS + rows - 1) / rows;
        const int64_t most = fitting > filling ? fitting : filling;
        const int64_t runs = (shard + most - 1) / most;
        shards->micro = (shard + runs - 1) / runs; /* runs of about equal size */
    }
    shards->micro = (shards->micro + shards->group - 1) / shards->group * shards->group;
    if (shards->micro > shard) shards->micro = shard;
    return STATUS_OK;
}

/* Plans for `count` samples (0 = none), sequences being as long as they can be. */
static Status plan_longest(Shards *shards, int64_t count, Diag *diag) {
    const Batches *data = shards->options.data;
    const Fetch longest = {.tokens = data && data->length ? data->max_tokens : 0,
                           .source = data && data->source_length ? data->max_source : 0};
    Plan *plan = NULL;
    if (count == 0) return STATUS_OK;
    TRY(plan_cache_get(shards->plans, count, &longest, &plan, diag));
    if (!shards->largest ||
        plan_workspace_bytes(plan) > plan_workspace_bytes(shards->largest)) {
        plan_destroy(shards->largest);
        shards->largest = plan_retain(plan);
    }
    plan_destroy(plan);
    return STATUS_OK;
}

/* The first and the last shard of a mini-batch have all the numbers of samples there are.
 */
static Status plan_batch(Shards *shards, int64_t count, Diag *diag) {
    const int64_t sizes[] = {shard_samples(shards, count, 0),
                             shard_samples(shards, count, shards->count - 1)};
    for (int i = 0; i < 2; i++) {
        if (sizes[i] >= shards->micro) TRY(plan_longest(shards, shards->micro, diag));
        TRY(plan_longest(shards, sizes[i] % shards->micro, diag));
    }
    return STATUS_OK;
}

static Status shards_plan_all(Shards *shards, Diag *diag) {
    const ShardsOptions *o = &shards->options;
    PlanOptions options = {.precision = PRECISION_F32,
                           .bf16 = o->bf16,
                           .recompute = o->recompute,
                           .loss = o->loss,
                           .results = o->parts,
                           .result_count = o->part_count};
    memcpy(options.sizes, o->sizes, sizeof options.sizes);
    shards->plans = plan_cache_create(o->graph, o->data, &options, PLAN_CACHE_BYTES);
    TRY(choose_micro(shards, diag));
    TRY(plan_batch(shards, o->batch, diag));
    return plan_batch(shards, o->samples % o->batch, diag);
}

static int64_t choose_count(const ShardsOptions *options) {
    const int64_t elements = params_layout(options->graph, NULL);
    if (options->shards > 0) return options->shards;
    return elements * (int64_t)sizeof(float) > SHARDS_LARGE ? 1 : SHARDS_USUAL;
}

Status shards_create(Shards **out, const ShardsOptions *options, Diag *diag) {
    Shards *shards = memory_alloc(1, sizeof *shards);
    shards->options = *options;
    shards->group = batches_group(options->data);
    const int64_t groups = options->batch / shards->group;
    const int64_t count = choose_count(options);
    shards->count = count < groups ? count : groups;
    shards->own = gradient_exchange_range(shards->count, ranks_number());
    shards->lanes = lanes_create(options->threads, own_count(shards), options->watch);
    const Status status = shards_plan_all(shards, diag);
    if (status == STATUS_OK)
        *out = shards;
    else
        shards_destroy(shards);
    return status;
}

int64_t shards_threads(int64_t threads, int64_t shards, int rank) {
    const ShardRange range = gradient_exchange_range(shards, rank);
    return range.end > range.first ? lanes_used(threads, range.end - range.first) : 0;
}

int64_t shards_count(const Shards *shards) {
    return shards->count;
}

const Plan *shards_plan(const Shards *shards) {
    return shards->largest;
}

/* ---- memory ---- */

size_t shards_bytes(const Shards *shards, int64_t count) {
    const size_t lanes = (size_t)lanes_count(shards->lanes);
    const int more = lanes_threads(shards->options.threads, (int64_t)lanes) - 1;
    return plan_workspace_bytes(shards->largest) * lanes +
           workspace_share_bytes(shards->largest) * lanes * (size_t)more +
           (size_t)gradient_pool_count(&shards->own, (int)lanes, ranks_count() > 1) *
               (size_t)count * sizeof(float) +
           gradient_exchange_bytes(shards->count, count) +
           coupling_bytes(shards->largest, shards->options.batch) +
           (shards->options.bf16 ? rounded_bytes(shards->largest) : 0);
}

/* Numbers that a shard leaves: the loss and its parts. */
static size_t loss_count(const Shards *shards) {
    return (size_t)shards->options.part_count + 1;
}

/* Whether the rows of a node are known as soon as inputs are. */
static bool counts_ahead(const Plan *plan, const PlanNode *node) {
    const Operand *operand = node->op->operands;
    if (!node->op->count_rows) return false;
    for (int i = 0; operand[i].name; i++) {
        const int from = node->in[i].node;
        if (!(operand[i].flags & OPERAND_INTEGER) || from < 0) continue;
        if (!node_is_leaf(plan->nodes[from].node)) return false;
    }
    return true;
}

/* Losses, counts and gradients. */
static Status open_gradients(Shards *shards, int64_t first, Diag *diag) {
    const size_t count = (size_t)shards->count;
    const int64_t weights = params_gradient_count(shards->params);
    shards->losses = memory_alloc(count * loss_count(shards), sizeof *shards->losses);
    shards->counts =
        memory_alloc(count * (size_t)shards->counted_count + 1, sizeof *shards->counts);
    TRY(gradient_pool_create(&shards->pool, &shards->own, lanes_count(shards->lanes),
                             ranks_count() > 1, weights, first, diag));
    if (ranks_count() == 1) return STATUS_OK;
    shards->sum = gradient_pool_first(shards->pool);
    shards->exchange =
        gradient_exchange_create(shards->count, weights, lanes_count(shards->lanes),
                                 shards->options.threads, shards->largest);
    return STATUS_OK;
}

Status shards_open(Shards *shards, Params *params, int64_t first, Diag *diag) {
    const int lanes = lanes_count(shards->lanes);
    const Plan *plan = shards->largest;
    shards->params = params;
    TRY(lanes_share(shards->lanes, diag));
    if (shards->options.bf16) TRY(params_open_rounded(params, plan, diag));
    /* The losses whose rows are counted: the same nodes in all plans. */
    shards->id_count = plan->index_count;
    shards->counted = memory_alloc((size_t)plan->node_count + 1, sizeof *shards->counted);
    shards->rows = memory_alloc((size_t)plan->index_count + 1, sizeof *shards->rows);
    for (int i = 0; i < plan->index_count; i++) shards->rows[i] = -1;
    for (int i = 0; i < plan->node_count; i++)
        if (counts_ahead(plan, &plan->nodes[i]))
            shards->counted[shards->counted_count++] = plan->nodes[i].node;
    TRY(coupling_create(&shards->coupling, plan, shards->options.batch, diag));
    shards->memory = memory_alloc((size_t)lanes, sizeof *shards->memory);
    for (int i = 0; i < lanes; i++) {
        ShardLane *lane = &shards->memory[i];
        lane->rows = memory_alloc((size_t)shards->id_count + 1, sizeof *lane->rows);
        TRY(feed_open(&lane->feed, shards->options.data, shards->micro, diag));
        TRY(workspace_create(&lane->workspace, diag));
        workspace_share(lane->workspace, lanes_team(shards->lanes, i));
        /* the largest plan first, so that the workspace is allocated once */
        TRY(workspace_bind(lane->workspace, plan, params, diag));
    }
    return open_gradients(shards, first, diag);
}

void shards_destroy(Shards *shards) {
    if (!shards) return;
    for (int i = 0; shards->memory && i < lanes_count(shards->lanes); i++) {
        workspace_destroy(shards->memory[i].workspace);
        feed_close(&shards->memory[i].feed);
        free(shards->memory[i].rows);
    }
    free(shards->memory);
    free(shards->losses);
    free(shards->counts);
    gradient_pool_destroy(shards->pool);
    gradient_exchange_destroy(shards->exchange);
    free(shards->counted);
    free(shards->rows);
    coupling_destroy(shards->coupling);
    lanes_destroy(shards->lanes);
    plan_destroy(shards->largest);
    plan_cache_destroy(shards->plans);
    free(shards);
}

/* ---- micro-batches ---- */

/* One micro-batch of a shard: n samples from `first` on of the mini-batch, of a shard
 * that ends at `end`; n is 0 behind the last one. */
typedef struct Micro {
    Fetch what;
    int64_t first, end;
} Micro;

static Micro micro_from(const Shards *shards, int64_t first, int64_t end) {
    const MiniBatch *batch = &shards->batch;
    const int64_t left = end - first;
    Micro micro = {.what = {.index = batch->samples + first,
                            .n = left < shards->micro ? left : shards->micro,
                            .key = batch->augment,
                            .mask_key = batch->key},
                   .first = first,
                   .end = end};
    batches_pad(shards->options.data, &micro.what);
    return micro;
}

static Micro micro_first(const Shards *shards, int64_t s) {
    const int64_t count = shards->batch.count, first = shard_first(shards, count, s);
    return micro_from(shards, first, first + shard_samples(shards, count, s));
}

static Micro micro_next(const Shards *shards, const Micro *micro) {
    return micro_from(shards, micro->first + micro->what.n, micro->end);
}

static Status micro_bind(const Shards *shards, ShardLane *lane, const Micro *micro,
                         Diag *diag) {
    return workspace_bind_cached(lane->workspace, shards->plans, micro->what.n,
                                 &micro->what, shards->params, diag);
}

/* ---- ranks ---- */

/* Does `work` for this rank's shards, by number among them. A rank without shards asks
 * the watch, too. */
static Status run_own(Shards *shards, LaneWork *work, Diag *diag) {
    TRY(lanes_run(shards->lanes, own_count(shards), work, shards, diag));
    const bool stopped = shards->exchange && lanes_cancelled(shards->lanes, 0);
    return stopped ? STATUS_INTERRUPTED : STATUS_OK;
}

/* Gives all ranks `bytes` for each shard of `all`, where what each did alone is well. */
static Status share(const Shards *shards, Status mine, void *all, size_t bytes,
                    Diag *diag) {
    return mine == STATUS_OK ? ranks_gather(all, shards->count, bytes, diag)
                             : ranks_agree(mine, diag);
}

/* ---- rows that count ---- */

static Status count_shard(void *self, int64_t item, int i, Diag *diag) {
    Shards *shards = self;
    ShardLane *lane = &shards->memory[i];
    const int64_t s = shards->own.first + item;
    double *rows = shards->counts + s * shards->counted_count;
    for (int k = 0; k < shards->counted_count; k++) rows[k] = 0;
    for (Micro m = micro_first(shards, s); m.what.n > 0; m = micro_next(shards, &m)) {
        TRY(micro_bind(shards, lane, &m, diag));
        TRY(feed_fetch_integers(&lane->feed, lane->workspace, &m.what, diag));
        for (int k = 0; k < shards->counted_count; k++)
            rows[k] += workspace_count_rows(lane->workspace, shards->counted[k]);
    }
    return STATUS_OK;
}

static Status count_rows(Shards *shards, Diag *diag) {
    if (shards->counted_count == 0) return STATUS_OK;
    const int64_t counted = shards->counted_count;
    const Status mine = run_own(shards, count_shard, diag);
    TRY(share(shards, mine, shards->counts, (size_t)counted * sizeof *shards->counts,
              diag));
    for (int64_t k = 0; k < counted; k++) {
        double sum = 0;
        for (int64_t s = 0; s < shards->count; s++)
            sum += shards->counts[s * counted + k];
        shards->rows[shards->counted[k]->id] = sum;
    }
    return STATUS_OK;
}

/* ---- losses over all samples ---- */

static Status couple_shard(void *self, int64_t item, int i, Diag *diag) {
    Shards *shards = self;
    const int64_t s = shards->own.first + item;
    ShardLane *lane = &shards->memory[i];
    for (Micro m = micro_first(shards, s); m.what.n > 0; m = micro_next(shards, &m)) {
        const RunMode mode = {
            .training = true, .key = shards->batch.key, .first = m.first};
        if (lanes_cancelled(shards->lanes, i)) return STATUS_INTERRUPTED;
        TRY(micro_bind(shards, lane, &m, diag));
        TRY(feed_fetch(&lane->feed, lane->workspace, &m.what, diag));
        run_forward(lane->workspace, mode);
        coupling_take(shards->coupling, lane->workspace, m.first, m.what.n);
    }
    return STATUS_OK;
}

/* Gives all ranks what the losses read of the samples of each. */
static Status gather_coupled(Shards *shards, Diag *diag) {
    const int64_t count = shards->batch.count;
    if (!shards->exchange) return STATUS_OK;
    int64_t *samples = memory_alloc((size_t)ranks_count(), sizeof *samples);
    for (int r = 0; r < ranks_count(); r++) {
        const ShardRange range = gradient_exchange_range(shards->count, r);
        samples[r] = shard_first(shards, count, range.end) -
                     shard_first(shards, count, range.first);
    }
    const Status status = coupling_gather(shards->coupling, samples, diag);
    free(samples);
    return status;
}

static Status couple_samples(Shards *shards, Diag *diag) {
    const int64_t count = shards->batch.count;
    shards->coupled = shards->coupling && micro_first(shards, 0).what.n < count;
    if (!shards->coupled) return STATUS_OK;
    const Status mine = run_own(shards, couple_shard, diag);
    TRY(mine == STATUS_OK ? gather_coupled(shards, diag) : ranks_agree(mine, diag));
    return coupling_run(shards->coupling, count, diag);
}

/* ---- running ---- */

/* Who hears of the backward run of a micro-batch: those that send gradients while it goes
 * on, where it is the shard's last one. */
static RunWatch micro_watch(const Shards *shards, int i, int64_t s, const Micro *micro) {
    if (!shards->exchange || micro_next(shards, micro).what.n > 0) return (RunWatch){0};
    return gradient_exchange_follow(shards->exchange, i, s,
                                    workspace_plan(shards->memory[i].workspace),
                                    lanes_team(shards->lanes, i));
}

static Status run_micro(const Shards *shards, int i, int64_t s, const Micro *micro,
                        float *gradient, Diag *diag) {
    const ShardsOptions *options = &shards->options;
    ShardLane *lane = &shards->memory[i];
    Workspace *workspace = lane->workspace;
    const int64_t n = micro->what.n;
    const double share = (double)n / (double)shards->batch.count;
    double *loss = shards->losses + s * (int64_t)loss_count(shards);
    const bool counted = shards->counted_count > 0; /* else no loss needs rows */
    for (int k = 0; counted && k < shards->id_count; k++)
        lane->rows[k] = shards->rows[k] * share; /* below 0 stays so */
    RunMode mode = {.training = true,
                    .key = shards->batch.key,
                    .first = micro->first,
                    .rows = counted ? lane->rows : NULL,
                    .coupled =
                        shards->coupled ? coupling_result(shards->coupling) : NULL};
    TRY(micro_bind(shards, lane, micro, diag));
    TRY(feed_fetch(&lane->feed, workspace, &micro->what, diag));
    run_forward(workspace, mode);
    for (int k = 0; k <= options->part_count; k++) {
        const Node *node = k == 0 ? options->loss : options->parts[k - 1];
        const float *value = workspace_value(workspace, node);
        loss[k] += (double)n * (double)*value;
    }
    mode.watch = micro_watch(shards, i, s, micro);
    run_backward(workspace, mode, share, gradient);
    return STATUS_OK;
}

static Status run_shard(void *self, int64_t item, int lane, Diag *diag) {
    Shards *shards = self;
    const int64_t s = shards->own.first + item;
    const size_t losses = loss_count(shards);
    float *gradient =
        gradient_pool_take(shards->pool, lane, s, lanes_team(shards->lanes, lane));
    memset(shards->losses + s * (int64_t)losses, 0, losses * sizeof *shards->losses);
    for (Micro m = micro_first(shards, s); m.what.n > 0; m = micro_next(shards, &m)) {
        if (lanes_cancelled(shards->lanes, lane)) return STATUS_INTERRUPTED;
        TRY(run_micro(shards, lane, s, &m, gradient, diag));
    }
    return STATUS_OK;
}

/* Runs all shards. Their gradients are exchanged while they run, and to the end whatever
 * comes of that: the others count on it. */
static Status run_shards(Shards *shards, Diag *diag) {
    GradientExchange *exchange = shards->exchange;
    if (!exchange) return run_own(shards, run_shard, diag);
    TRY(gradient_exchange_begin(exchange, gradient_pool_gradients(shards->pool),
                                shards->sum, diag));
    const Status mine = run_own(shards, run_shard, diag);
    const Status exchanged = gradient_exchange_finish(exchange, diag);
    return exchanged == STATUS_OK ? mine : exchanged;
}

Status shards_run(Shards *shards, const MiniBatch *batch, double *losses, Diag *diag) {
    shards->batch = *batch;
    params_round(shards->params, shards->options.threads);
    TRY(count_rows(shards, diag));
    TRY(couple_samples(shards, diag));
    gradient_pool_begin(shards->pool);
    const int64_t parts = (int64_t)loss_count(shards);
    const Status mine = run_shards(shards, diag);
    TRY(share(shards, mine, shards->losses, (size_t)parts * sizeof *losses, diag));
    for (int64_t i = 0; i < parts; i++) {
        double sum = 0;
        for (int64_t s = 0; s < shards->count; s++) sum += shards->losses[s * parts + i];
        losses[i] = sum / (double)batch->count;
    }
    return STATUS_OK;
}

float *const *shards_gradients(Shards *shards, int64_t *count) {
    *count = shards->exchange ? 1 : shards->count;
    return shards->exchange ? &shards->sum : gradient_pool_gradients(shards->pool);
}

void shards_progress(Shards *shards, int64_t done, int64_t total, double loss) {
    lanes_progress(shards->lanes, done, total, loss);
}
