/* Products of matrices whose strides no int holds: rows 2^31 elements and more apart, in
 * memory that is reserved and hardly touched. */
#include "tests/support/check.h"

#include "exec/linalg/gemm.h"

#include <stdbool.h>
#include <sys/mman.h>

enum { SIDE = 3 };
#define FAR  (((int64_t)1 << 32) + 5) /* as an int: 5, and no error */
#define ROOM (SIDE * (size_t)FAR * sizeof(double))

static void *reserve(void) {
    void *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

/* C = 2 op(A) op(B) + 3 C of small whole numbers, so that sums are exact. `far` says
 * whose rows stand apart: 1 = A's, 2 = B's, 4 = C's. */
#define CHECK(name, gemm, REAL)                                                          \
    static void name(void *const room[3], bool trans_a, bool trans_b, int m, int far) {  \
        REAL *a = room[0], *b = room[1], *c = room[2];                                   \
        const int64_t lda = far & 1 ? FAR : SIDE, ldb = far & 2 ? FAR : SIDE,            \
                      ldc = far & 4 ? FAR : SIDE;                                        \
        for (int i = 0; i < SIDE; i++)                                                   \
            for (int k = 0; k < SIDE; k++) {                                             \
                a[i * lda + k] = (REAL)(1 + i - 2 * k);                                  \
                b[i * ldb + k] = (REAL)(3 * i + k - 4);                                  \
                c[i * ldc + k] = (REAL)(i + k);                                          \
            }                                                                            \
        gemm(trans_a, trans_b, m, SIDE, SIDE, 2, a, lda, b, ldb, 3, c, ldc);             \
        for (int i = 0; i < SIDE; i++)                                                   \
            for (int j = 0; j < SIDE; j++) {                                             \
                int sum = 0;                                                             \
                for (int k = 0; k < SIDE; k++)                                           \
                    sum += (trans_a ? 1 + k - 2 * i : 1 + i - 2 * k) *                   \
                           (trans_b ? 3 * j + k - 4 : 3 * k + j - 4);                    \
                const int expected = i < m ? 2 * sum + 3 * (i + j) : i + j;              \
                assert_int_equal((int)c[i * ldc + j], expected);                         \
            }                                                                            \
    }
CHECK(check_f32, gemm_f32, float)
CHECK(check_f64, gemm_f64, double)

static void test_far_rows(void **state) {
    (void)state;
    void *room[3];
    for (int i = 0; i < 3; i++)
        if (!(room[i] = reserve())) skip(); /* `ulimit -v`, or no overcommitment */
    for (int far = 0; far < 8; far++)
        for (int trans = 0; trans < 4; trans++)
            for (int m = 1; m <= SIDE; m += SIDE - 1) {
                check_f32(room, trans & 1, trans & 2, m, far);
                check_f64(room, trans & 1, trans & 2, m, far);
            }
    for (int i = 0; i < 3; i++) munmap(room[i], ROOM);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_far_rows)};
    return cmocka_run_group_tests_name("blas: sizes", tests, NULL, NULL);
}
