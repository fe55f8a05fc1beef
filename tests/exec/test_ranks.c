/* Ranks: what collectives bring, at any number of ranks; that a failure reaches all of
 * them, wherever they are. The program is one of the ranks; CTest starts it with 1, 2, 3,
 * 4 and 8 of them where the build has MPI, and else alone. With the argument "leave" the
 * last rank ends before the others. */
#include "exec/run/ranks.h"
#include "ir/arena.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

enum { LARGE = 3 << 19 }; /* more than a piece of what goes over the wire at once */

/* The byte at place `i` of what `who` brings. */
static unsigned char pattern(int who, size_t i) {
    return (unsigned char)(who * 31 + (int)(i % 251) + 7);
}

static void fill(unsigned char *data, size_t bytes, int who) {
    for (size_t i = 0; i < bytes; i++) data[i] = pattern(who, i);
}

static void check(const unsigned char *data, size_t bytes, int who) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != pattern(who, i))
            fail_msg("byte %zu of what rank %d brought", i, who);
}

static void ranges_are_contiguous(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 1000, (int64_t)1 << 40};
    for (int i = 0; i < 8; i++) {
        int64_t at = 0, least = sizes[i], most = 0;
        for (int r = 0; r < ranks_count(); r++) {
            int64_t first, last;
            ranks_range(sizes[i], r, &first, &last);
            assert_int_equal(first, at);
            at = last;
            if (last - first < least) least = last - first;
            if (last - first > most) most = last - first;
        }
        assert_int_equal(at, sizes[i]);
        assert_true(most - least <= 1);
    }
}

static void broadcasts_come_to_all(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 1000, (size_t)4 * LARGE};
    Diag *diag = diag_create();
    for (int i = 0; i < 4; i++)
        for (int root = 0; root < ranks_count(); root++) {
            unsigned char *data = memory_alloc(sizes[i] + 1, 1);
            if (root == ranks_number()) fill(data, sizes[i], root);
            assert_ok(ranks_broadcast(data, sizes[i], root, diag), diag);
            check(data, sizes[i], root);
            assert_int_equal(data[sizes[i]], 0);
            free(data);
        }
    diag_destroy(diag);
}

static void gather(int64_t items, size_t bytes) {
    int64_t first, last;
    Diag *diag = diag_create();
    unsigned char *all = memory_alloc((size_t)items * bytes + 1, 1);
    ranks_range(items, ranks_number(), &first, &last);
    fill(all + (size_t)first * bytes, (size_t)(last - first) * bytes, ranks_number());
    assert_ok(ranks_gather(all, items, bytes, diag), diag);
    for (int r = 0; r < ranks_count(); r++) {
        ranks_range(items, r, &first, &last);
        check(all + (size_t)first * bytes, (size_t)(last - first) * bytes, r);
    }
    assert_int_equal(all[(size_t)items * bytes], 0);
    free(all);
    diag_destroy(diag);
}

static void gathers_have_every_part(void **state) {
    (void)state;
    const int64_t items[] = {0, 1, 2, 3, 5, 8, 1001, 100000};
    for (int i = 0; i < 8; i++) gather(items[i], 1), gather(items[i], 24);
    gather(LARGE, 8);
}

/* Parts of 0, 1, 2, ... times `unit` bytes, the last one's being empty. */
static void gather_uneven(size_t unit) {
    size_t bytes[64] = {0}, total = 0, at = 0;
    Diag *diag = diag_create();
    for (int r = 0; r + 1 < ranks_count(); r++) total += bytes[r] = unit * (size_t)r;
    unsigned char *all = memory_alloc(total + 1, 1);
    for (int r = 0; r < ranks_number(); r++) at += bytes[r];
    fill(all + at, bytes[ranks_number()], ranks_number());
    assert_ok(ranks_gather_parts(all, bytes, diag), diag);
    at = 0;
    for (int r = 0; r < ranks_count(); at += bytes[r++]) check(all + at, bytes[r], r);
    free(all);
    diag_destroy(diag);
}

static void gathers_have_uneven_parts(void **state) {
    (void)state;
    gather_uneven(0);
    gather_uneven(3);
    gather_uneven(100003);
}

/* Bytes of message k from one rank to another. */
static size_t message_bytes(int from, int to, int k, size_t unit) {
    return (size_t)((from * 3 + to + k) % 4) * unit;
}

enum { MESSAGES = 2 };

static int messages(RanksMessage *list, bool receive, size_t unit) {
    int count = 0;
    for (int r = 0; r < ranks_count(); r++)
        for (int k = 0; k < MESSAGES && r != ranks_number(); k++) {
            const int from = receive ? r : ranks_number();
            const int to = receive ? ranks_number() : r;
            RanksMessage *m = &list[count++];
            *m = (RanksMessage){.rank = r, .bytes = message_bytes(from, to, k, unit)};
            m->data = memory_alloc(m->bytes + 1, 1);
            if (!receive) fill(m->data, m->bytes, from + to + k);
        }
    return count;
}

static void exchange(size_t unit) {
    RanksMessage send[MESSAGES * 64], receive[MESSAGES * 64];
    Diag *diag = diag_create();
    const int sends = messages(send, false, unit), count = messages(receive, true, unit);
    const RanksTraffic before = ranks_traffic();
    uint64_t sent = 0;
    assert_ok(ranks_exchange(send, sends, receive, count, diag), diag);
    for (int i = 0; i < count; i++) {
        const int who = receive[i].rank + ranks_number() + i % MESSAGES;
        check(receive[i].data, receive[i].bytes, who);
        sent += send[i].bytes;
        free(send[i].data);
        free(receive[i].data);
    }
    assert_true(ranks_traffic().bytes - before.bytes == sent);
    diag_destroy(diag);
}

static void messages_arrive_in_order(void **state) {
    (void)state;
    exchange(0);
    exchange(17);
    exchange(ranks_count() > 4 ? LARGE / 4 : 2 * LARGE);
}

static void a_ring_sends_no_more_than_it_must(void **state) {
    (void)state;
    const uint64_t before = ranks_traffic().bytes;
    const int64_t items = (int64_t)ranks_count() * 100000;
    gather(items, 1);
    assert_int_equal(ranks_traffic().bytes - before, items - items / ranks_count());
}

/* All stop at the same place, and may still talk. */
static void an_interruption_reaches_all(void **state) {
    (void)state;
    const bool stopped = ranks_number() == ranks_count() - 1;
    unsigned char data[100] = {0};
    Diag *diag = diag_create();
    const Status status = stopped ? ranks_agree(STATUS_INTERRUPTED, diag)
                                  : ranks_gather(data, 100, 1, diag);
    assert_int_equal(status, STATUS_INTERRUPTED);
    assert_int_equal(diag_errors(diag), 0);
    if (ranks_number() == 0) fill(data, sizeof data, 5);
    assert_ok(ranks_broadcast(data, sizeof data, 0, diag), diag);
    check(data, sizeof data, 5);
    diag_destroy(diag);
}

static Status fail_here(Diag *diag) {
    const Loc at = {"in.yaml", 3, 4};
    diag_fail(diag, STATUS_FORMAT, at, "data", "found rank %d", ranks_number());
    diag_note(diag, "a note");
    diag_hint(diag, "mend it");
    return STATUS_FORMAT;
}

/* The two last ranks fail; the lower one's message comes to all, once. */
static void a_failure_reaches_all(void **state) {
    (void)state;
    const int ranks = ranks_count(), lowest = ranks > 2 ? ranks - 2 : ranks - 1;
    unsigned char data[64] = {0};
    char expected[200];
    Diag *diag = diag_create();
    const Status status = ranks_number() >= lowest
                              ? ranks_agree(fail_here(diag), diag)
                              : ranks_broadcast(data, sizeof data, 0, diag);
    assert_int_equal(status, STATUS_FORMAT);
    char prefix[20] = "";
    if (ranks_number() < lowest) snprintf(prefix, sizeof prefix, "rank %d: ", lowest);
    snprintf(expected, sizeof expected,
             "in.yaml:3:4: error: data: %sfound rank %d\n    note: a note\n"
             "    hint: mend it\n",
             prefix, lowest);
    char *text = diag_text(diag);
    if (ranks_number() <= lowest) assert_string_equal(text, expected);
    free(text);
    /* nobody waits for anybody from here on */
    if (ranks > 1 && ranks_number() != 1)
        assert_int_equal(ranks_gather(data, 64, 1, diag), STATUS_FORMAT);
    if (ranks > 1 && ranks_number() == 1)
        assert_int_equal(ranks_agree(STATUS_OK, diag), STATUS_FORMAT);
    diag_destroy(diag);
}

/* The last rank ends while the others talk. */
static void who_needs_a_rank_that_has_left_is_told(void **state) {
    (void)state;
    unsigned char data[8] = {0};
    Diag *diag = diag_create();
    if (ranks_number() < ranks_count() - 1) {
        assert_int_equal(ranks_broadcast(data, sizeof data, 0, diag), STATUS_INTERNAL);
        char *text = diag_text(diag);
        assert_string_equal(text,
                            "error: another rank has ended before its work was done\n");
        free(text);
    }
    diag_destroy(diag);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_contiguous),
        cmocka_unit_test(broadcasts_come_to_all),
        cmocka_unit_test(gathers_have_every_part),
        cmocka_unit_test(gathers_have_uneven_parts),
        cmocka_unit_test(messages_arrive_in_order),
        cmocka_unit_test(a_ring_sends_no_more_than_it_must),
        cmocka_unit_test(an_interruption_reaches_all),
        cmocka_unit_test(a_failure_reaches_all), /* the last: no talking after it */
    };
    const struct CMUnitTest leaving[] = {
        cmocka_unit_test(who_needs_a_rank_that_has_left_is_told),
    };
    Diag *diag = diag_create();
    const Status status = ranks_open(diag);
    diag_print(diag, stderr);
    diag_destroy(diag);
    if (status != STATUS_OK) return status_exit_code(status);
    const bool leave = argc > 1 && strcmp(argv[1], "leave") == 0;
    const int failed = leave ? cmocka_run_group_tests(leaving, NULL, NULL)
                             : cmocka_run_group_tests(tests, NULL, NULL);
    if (failed > 0) ranks_abort(1); /* the others may wait for this one */
    ranks_close();
    return 0;
}
