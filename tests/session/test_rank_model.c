/* The model of ranks against its closed forms. */
#include "session/bench/network.h"
#include "tests/support/check.h"

static const RankWork WORK = {.compute = 8, .gradient = 4e8, .update = 0.5, .shards = 64};
static const RankCluster CLUSTER = {
    .threads = 4, .efficiency = 0.8, .bandwidth = 1e9, .latency = 1e-3, .hidden = 0};

/* One rank computes and updates, and sends nothing. */
static void one_rank(void **state) {
    (void)state;
    const RankTime time = rank_time(&WORK, &CLUSTER, 1);
    assert_float_equal(time.compute, 8 / 3.2, 1e-12);
    assert_float_equal(time.bytes, 0, 0);
    assert_float_equal(time.exposed + time.meetings, 0, 0);
    assert_float_equal(time.step, 2.5 + 0.5, 1e-12);
    assert_float_equal(rank_efficiency(&WORK, &CLUSTER, 1), 1, 1e-15);
}

/* 2 (R - 1) / R of the gradient, and never twice of it. */
static void bytes(void **state) {
    (void)state;
    assert_float_equal(rank_time(&WORK, &CLUSTER, 2).bytes, 4e8, 1e-3);
    assert_float_equal(rank_time(&WORK, &CLUSTER, 4).bytes, 6e8, 1e-3);
    for (int64_t ranks = 1; ranks < 5000; ranks *= 3)
        assert_true(rank_time(&WORK, &CLUSTER, ranks).bytes < 2 * WORK.gradient);
}

/* Four ranks: compute 2.5 / 4, wire 0.6 s, two rounds of messages twice, an update of a
 * quarter. */
static void four_ranks(void **state) {
    (void)state;
    RankCluster cluster = CLUSTER;
    RankTime time = rank_time(&WORK, &cluster, 4);
    assert_float_equal(time.compute, 0.625, 1e-12);
    assert_float_equal(time.wire, 0.6, 1e-12);
    assert_float_equal(time.meetings, 4e-3, 1e-15);
    assert_float_equal(time.step, 0.625 + 0.6 + 0.004 + 0.125, 1e-12);
    assert_float_equal(rank_efficiency(&WORK, &cluster, 4), 3 / (4 * 1.354), 1e-12);
    cluster.hidden = 0.5; /* 0.3125 s of the wire are hidden */
    assert_float_equal(rank_time(&WORK, &cluster, 4).exposed, 0.6 - 0.3125, 1e-12);
    cluster.hidden = 1;
    assert_float_equal(rank_time(&WORK, &cluster, 4).exposed, 0, 0);
}

/* The rank with the most shards is waited for; ranks beyond the shards compute nothing.
 */
static void uneven(void **state) {
    (void)state;
    RankWork work = WORK;
    work.shards = 3;
    assert_float_equal(rank_time(&work, &CLUSTER, 2).compute, 2.5 * 2 / 3, 1e-12);
    assert_float_equal(rank_time(&work, &CLUSTER, 3).compute, 2.5 / 3, 1e-12);
    assert_float_equal(rank_time(&work, &CLUSTER, 64).compute, 2.5 / 3, 1e-12);
}

static void networks(void **state) {
    (void)state;
    static const char *const WRONG[] = {"25G",      "25G,",   ",20us",    "25G,20",
                                        "25Q,20us", "0,20us", "-1G,20us", "25G,20us,",
                                        "",         "nan,1s", "inf,1s",   "G,us"};
    RankCluster cluster = {0};
    Diag *diag = diag_create();
    assert_int_equal(rank_network(&cluster, "25G,20us", diag), STATUS_OK);
    assert_float_equal(cluster.bandwidth, 25e9 / 8, 1e-3);
    assert_float_equal(cluster.latency, 20e-6, 1e-18);
    assert_int_equal(rank_network(&cluster, "1e9,0.5ms", diag), STATUS_OK);
    assert_float_equal(cluster.bandwidth, 1e9 / 8, 1e-3);
    assert_float_equal(cluster.latency, 5e-4, 1e-18);
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        assert_int_equal(rank_network(&cluster, WRONG[i], diag), STATUS_USAGE);
    diag_destroy(diag);
}

/* Four ranks agree in two rounds there and back; bytes go half at each rate. */
static void fitted(void **state) {
    (void)state;
    RankCluster cluster = {0};
    Machine machine = {.ranks = 4};
    assert_false(network_fit(&cluster, &machine));
    machine.alone[RATE_AGREE].median = 8e-6;
    machine.alone[RATE_GATHER].median = 3e9;
    machine.alone[RATE_SUM].median = 1e9;
    assert_true(network_fit(&cluster, &machine));
    assert_float_equal(cluster.latency, 2e-6, 1e-18);
    assert_float_equal(cluster.bandwidth, 1.5e9, 1);
    machine.ranks = 1;
    assert_false(network_fit(&cluster, &machine));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),   cmocka_unit_test(bytes),
        cmocka_unit_test(four_ranks), cmocka_unit_test(uneven),
        cmocka_unit_test(networks),   cmocka_unit_test(fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
