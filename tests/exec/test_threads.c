/* Quotas of control groups, from made-up /proc and /sys. */
#include "exec/run/parallel.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct File {
    const char *path, *text;
} File;

typedef struct Case {
    const char *name;
    double quota;
    File files[6];
} Case;

#define GROUPS "/proc/self/cgroup"
#define MOUNT  "/sys/fs/cgroup"

static const Case CASES[] = {
    {"nothing there", INFINITY, {{0}}},
    {"no limit", INFINITY, {{GROUPS, "0::/\n"}, {MOUNT "/cpu.max", "max 100000\n"}}},
    {"a container, version 2",
     1.5,
     {{GROUPS, "0::/\n"}, {MOUNT "/cpu.max", "150000 100000\n"}}},
    {"a group above has less",
     2,
     {{GROUPS, "0::/a.slice/b.scope\n"},
      {MOUNT "/a.slice/cpu.max", "100000 50000\n"},
      {MOUNT "/a.slice/b.scope/cpu.max", "max 100000\n"}}},
    {"version 1",
     0.5,
     {{GROUPS, "5:memory:/x\n4:cpu,cpuacct:/job\n"},
      {MOUNT "/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n"},
      {MOUNT "/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}}},
    {"version 1 under its short name, seen from outside",
     3,
     {{GROUPS, "4:cpuacct,cpu:/docker/12ab\n"},
      {MOUNT "/cpu/cpu.cfs_quota_us", "300000\n"},
      {MOUNT "/cpu/cpu.cfs_period_us", "100000\n"}}},
    {"version 1 without a limit",
     INFINITY,
     {{GROUPS, "4:cpu:/\n"},
      {MOUNT "/cpu/cpu.cfs_quota_us", "-1\n"},
      {MOUNT "/cpu/cpu.cfs_period_us", "100000\n"}}},
    {"another controller's files",
     INFINITY,
     {{GROUPS, "4:cpuset:/\n"}, {MOUNT "/cpuset/cpu.cfs_quota_us", "100000\n"}}},
    {"both versions",
     4,
     {{GROUPS, "4:cpu:/\n0::/\n"},
      {MOUNT "/cpu/cpu.cfs_quota_us", "-1\n"},
      {MOUNT "/unified/cpu.max", "400000 100000\n"}}},
    {"not a number", INFINITY, {{GROUPS, "0::/\n"}, {MOUNT "/cpu.max", "\n"}}},
};

static void write_file(const char *root, const File *file) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, file->path);
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(file->text, stream);
    fclose(stream);
}

static void test_quotas(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char root[] = "/tmp/compress-threads-XXXXXX", command[128];
        assert_non_null(mkdtemp(root));
        for (int f = 0; f < 6 && CASES[i].files[f].path; f++)
            write_file(root, &CASES[i].files[f]);
        const double found = threads_quota(root);
        snprintf(command, sizeof command, "rm -r %s", root);
        assert_int_equal(system(command), 0);
        if (found != CASES[i].quota)
            fail_msg("%s: expected %g, found %g", CASES[i].name, CASES[i].quota, found);
    }
}

static void test_available(void **state) {
    (void)state;
    assert_true(threads_available() >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_available),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
