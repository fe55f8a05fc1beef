/* Gradients that leave a rank while backward runs go on: the bytes of the tree, most of
 * them sent before the run's end, and nobody waits for a rank whose shards failed. The
 * program is one of the ranks; CTest starts it with several of them where the build has
 * MPI, and else alone. */
#include "exec/plan/plan_build.h"
#include "exec/run/ranks.h"
#include "exec/train/gradient_exchange.h"
#include "exec/train/rank_parts.h"
#include "tests/exec/train_fixture.h"

enum { ROWS = 4, WIDE = 300, LAYERS = 4, SHARDS_MOST = 16 };

/* Layers of several blocks each, and what runs them. */
typedef struct Net {
    Fixture f;
    Plan *plan;
    Params *params;
    Workspace *workspace;
    int64_t count; /* elements of a gradient */
} Net;

static void net_open(Net *net) {
    Fixture *f = &net->f;
    char w[20], b[20];
    *net = (Net){.f = {.arena = arena_create(), .diag = diag_create()}};
    f->graph = graph_create(f->arena, ops_table());
    const Type features = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, WIDTH}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *h = graph_input(f->graph, "x", &features);
    Node *labels = graph_input(f->graph, "labels", &classes);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(w, sizeof w, "%d.weight", i);
        snprintf(b, sizeof b, "%d.bias", i);
        h = linear(f, h, w, b, WIDE, i == 0 ? WIDTH : WIDE);
        h = make(f, "activation", &h, 1, "fn=tanh");
    }
    f->logits = linear(f, h, "out.weight", "out.bias", CLASSES, WIDE);
    f->loss = make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, NULL);
    const PlanOptions options = {.sizes[DIM_INDEX(DIM_N)] = ROWS, .loss = f->loss};
    assert_ok(plan_create(&net->plan, f->graph, &options, f->diag), f->diag);
    assert_ok(params_create(&net->params, f->graph, PRECISION_F32, true, f->diag),
              f->diag);
    assert_ok(workspace_create(&net->workspace, f->diag), f->diag);
    assert_ok(workspace_bind(net->workspace, net->plan, net->params, f->diag), f->diag);
    net->count = params_gradient_count(net->params);
}

static void net_close(Net *net) {
    workspace_destroy(net->workspace);
    params_destroy(net->params);
    plan_destroy(net->plan);
    model_close(&net->f);
}

/* Adds the gradient of a shard to `gradient`. */
static void run_shard(Net *net, int64_t shard, RunWatch watch, float *gradient) {
    float *x = workspace_input(net->workspace, "x");
    int32_t *labels = workspace_input(net->workspace, "labels");
    const RunMode mode = {.training = true, .watch = watch};
    for (int64_t i = 0; i < ROWS * WIDTH; i++) x[i] = toy_feature(shard * ROWS, i);
    for (int64_t i = 0; i < ROWS; i++) labels[i] = toy_label(shard * ROWS + i);
    run_forward(net->workspace, mode);
    run_backward(net->workspace, mode, 1, gradient);
}

static void open_gradients(const Net *net, const ShardRange *range, float **gradients) {
    for (int64_t s = range->first; s < range->end; s++)
        gradients[s] = memory_alloc((size_t)net->count, sizeof(float));
}

static void close_gradients(const ShardRange *range, float **gradients) {
    for (int64_t s = range->first; s < range->end; s++) free(gradients[s]);
}

/* What one rank comes to that runs all shards; the caller frees it. */
static float *sum_alone(Net *net, int64_t shards) {
    const ShardRange all = {0, shards, shards};
    float *gradients[SHARDS_MOST] = {0};
    open_gradients(net, &all, gradients);
    for (int64_t s = 0; s < shards; s++) run_shard(net, s, (RunWatch){0}, gradients[s]);
    gradient_tree_add(&all, gradients, 0, net->count);
    close_gradients(&(ShardRange){1, shards, shards}, gradients);
    return gradients[0];
}

/* Hears of a run in front of an exchange, and what the exchange has sent after each call.
 */
typedef struct Listener {
    RunWatch to;
    uint64_t sent; /* bytes, so far */
    int calls;     /* after which something went */
} Listener;

static void listen(void *self, int time) {
    Listener *listener = self;
    listener->to.called(listener->to.self, time);
    const uint64_t sent = ranks_traffic().bytes;
    listener->calls += sent > listener->sent;
    listener->sent = sent;
}

/* Bytes that this rank sends of gradients. */
static uint64_t bytes_sent(const Net *net, const ShardRange *own) {
    uint64_t left = 0;
    const int64_t others = net->count - rank_part_count(net->count);
    for (int64_t s = own->first; s < own->end; s++) left += !gradient_tree_joins(own, s);
    return left * (uint64_t)others * sizeof(float);
}

static void check_parts(const Net *net, const float *got, const float *want) {
    for (int64_t b = 0; b < rank_bucket_count(net->count); b++) {
        int64_t first, last;
        rank_bucket_part(net->count, b, ranks_number(), &first, &last);
        const size_t bytes = (size_t)(last - first) * sizeof(float);
        if (memcmp(got + first, want + first, bytes) != 0)
            fail_msg("bucket %d is not what one rank comes to", (int)b);
    }
}

/* Exchanges the gradients of so many shards, twice; rank `idle` runs none of its own. */
static void exchange(Net *net, int64_t shards, int idle) {
    Diag *diag = net->f.diag;
    float *gradients[SHARDS_MOST] = {0}, *want = sum_alone(net, shards);
    float *empty = memory_alloc((size_t)net->count, sizeof *empty);
    const ShardRange own = gradient_exchange_range(shards, ranks_number());
    GradientExchange *x = gradient_exchange_create(shards, net->count, 1, 1, net->plan);
    open_gradients(net, &own, gradients);
    float *sum = own.end > own.first ? gradients[own.first] : empty;
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t s = own.first; s < own.end; s++)
            memset(gradients[s], 0, (size_t)net->count * sizeof(float));
        const uint64_t before = ranks_traffic().bytes;
        Listener listener = {.sent = before};
        assert_ok(gradient_exchange_begin(x, gradients, sum, diag), diag);
        for (int64_t s = own.first; s < own.end && idle != ranks_number(); s++) {
            listener.to = gradient_exchange_follow(x, 0, s, net->plan, NULL);
            run_shard(net, s, (RunWatch){listen, &listener}, gradients[s]);
        }
        const uint64_t sent = ranks_traffic().bytes - before;
        if (idle != ranks_number() && own.end > own.first) {
            assert_int_equal(sent, bytes_sent(net, &own));       /* all of it */
            if (sent > 0) assert_true(listener.calls >= LAYERS); /* a bit after each */
        } else {
            assert_int_equal(sent, 0);
        }
        assert_ok(gradient_exchange_finish(x, diag), diag);
        assert_int_equal(ranks_traffic().bytes - before, bytes_sent(net, &own));
        if (idle < 0) check_parts(net, sum, want);
    }
    gradient_exchange_destroy(x);
    close_gradients(&own, gradients);
    free(empty);
    free(want);
}

static const int64_t SHARDS[] = {1, 2, 3, 5, 8, SHARDS_MOST};

static void gradients_leave_while_backward_runs(void **state) {
    Net *net = *state;
    for (int i = 0; i < 6; i++) exchange(net, SHARDS[i], -1);
}

static void nobody_waits_for_a_rank_that_failed(void **state) {
    Net *net = *state;
    for (int i = 0; i < 6; i++) exchange(net, SHARDS[i], i % ranks_count());
}

/* Every element is some rank's, and no rank has a block more than another. */
static void all_is_owned_once(void **state) {
    const int64_t counts[] = {0, 1, GRADIENT_BLOCK, 5 * GRADIENT_BLOCK + 1,
                              1000 * GRADIENT_BLOCK - 3};
    (void)state;
    for (int i = 0; i < 5; i++) {
        int64_t at = 0, own = 0;
        for (int64_t b = 0; b < rank_bucket_count(counts[i]); b++)
            for (int r = 0; r < ranks_count(); r++) {
                int64_t first, last;
                rank_bucket_part(counts[i], b, r, &first, &last);
                assert_int_equal(first, at);
                assert_in_range(last - first, 0, rank_bucket_part_most(counts[i]));
                at = last;
                for (; r == ranks_number() && first < last; first += GRADIENT_BLOCK)
                    assert_int_equal(rank_part_block(counts[i], own++),
                                     first / GRADIENT_BLOCK);
            }
        assert_int_equal(at, counts[i]);
        assert_int_equal(own, rank_part_blocks(counts[i]));
        const int64_t blocks = gradient_blocks(counts[i]), ranks = ranks_count();
        assert_in_range(own, blocks / ranks, (blocks + ranks - 1) / ranks);
    }
}

/* Numbers of blocks come to all ranks, from those that own them. */
static void numbers_of_blocks_come_to_all(void **state) {
    enum { BLOCKS = 333 };
    const int64_t count = BLOCKS * GRADIENT_BLOCK - 1;
    double numbers[BLOCKS] = {0};
    Diag *diag = ((Net *)*state)->f.diag;
    for (int64_t i = 0; i < rank_part_blocks(count); i++)
        numbers[rank_part_block(count, i)] = 1.5 * (double)rank_part_block(count, i);
    if (ranks_count() > 1) assert_true(numbers[BLOCKS - 1] == 0 || numbers[1] == 0);
    assert_ok(rank_parts_gather_blocks(numbers, count, sizeof *numbers, diag), diag);
    for (int i = 0; i < BLOCKS; i++) assert_true(numbers[i] == 1.5 * i);
}

static int open_state(void **state) {
    net_open(*state = memory_alloc(1, sizeof(Net)));
    return 0;
}

static int close_state(void **state) {
    net_close(*state);
    free(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_leave_while_backward_runs),
        cmocka_unit_test(nobody_waits_for_a_rank_that_failed),
        cmocka_unit_test(all_is_owned_once),
        cmocka_unit_test(numbers_of_blocks_come_to_all),
    };
    Diag *diag = diag_create();
    const Status status = ranks_open(diag);
    diag_print(diag, stderr);
    diag_destroy(diag);
    if (status != STATUS_OK) return status_exit_code(status);
    const int failed = cmocka_run_group_tests(tests, open_state, close_state);
    if (failed > 0) ranks_abort(1); /* the others may wait for this one */
    ranks_close();
    return 0;
}
