/* Confinement: what a process cannot do any more, and what it still can. Each test
 * confines a child, which answers by its exit code. */
#include "io_test.h"

#include "io/files/confine.h"
#include "io/files/outfile.h"
#include "io/files/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char folder[256], inside[300], outside[300];

static int enter(void **state) {
    (void)state;
    char path[400];
    scratch_make(folder);
    snprintf(inside, sizeof inside, "%s/inside", folder);
    snprintf(outside, sizeof outside, "%s/outside", folder);
    if (mkdir(inside, 0700) != 0 || mkdir(outside, 0700) != 0) return -1;
    snprintf(path, sizeof path, "%s/mine", inside);
    put_text(path, "mine");
    snprintf(path, sizeof path, "%s/theirs", outside);
    put_text(path, "theirs");
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

/* What open says of a file in a folder: 0 or errno. */
static int open_says(const char *in, const char *name, int flags) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", in, name);
    const int fd = open(path, flags, 0600);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

static int read_only(void) {
    if (open_says(inside, "mine", O_RDONLY) != 0) return 1;
    if (open_says(inside, "mine", O_RDWR) != EACCES) return 2;
    if (open_says(inside, "new", O_WRONLY | O_CREAT) != EACCES) return 3;
    if (open_says(outside, "theirs", O_RDONLY) != EACCES) return 4;
    if (open_says("/etc", "passwd", O_RDONLY) != EACCES) return 5;
    return open_says("/proc/self", "environ", O_RDONLY) == EACCES ? 0 : 6;
}

static int written(void) {
    char path[400];
    snprintf(path, sizeof path, "%s/model", inside);
    Diag *diag = diag_create();
    const Status status = file_write(path, "abc", 3, diag);
    diag_destroy(diag);
    if (status != STATUS_OK) return 1;
    if (open_says(inside, "model", O_RDONLY) != 0) return 2;
    if (open_says(outside, "theirs", O_WRONLY) != EACCES) return 3;
    snprintf(path, sizeof path, "%s/theirs", outside);
    return unlink(path) != 0 && errno == EACCES ? 0 : 4;
}

static int no_reach(void) {
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EPERM) return 1;
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EPERM) return 2;
    char *const words[] = {"true", NULL};
    if (execv("/bin/true", words) == 0 || errno != EPERM) return 3;
    if (chmod(outside, 0777) == 0 || errno != EPERM) return 4;
    return 0;
}

static bool work_open(void *state, Text *reply) {
    (void)state;
    text_add(reply, "%d", open_says(outside, "theirs", O_RDONLY));
    return true;
}

/* Children are confined too, and a sandbox still works. */
static int children(void) {
    const SandboxLimits limits = {.memory = (size_t)64 << 20};
    Text reply = {0};
    if (sandbox_run(&reply, work_open, NULL, &limits) != SANDBOX_DONE) return 1;
    const int says = atoi(reply.data);
    text_free(&reply);
    return says == EACCES ? 0 : 2;
}

/* What the confined child made of it; `writes`: whether it may write inside. */
static int confined(int (*ask)(void), bool writes) {
    const char *mine[] = {inside};
    const StringList paths = {mine, 1};
    const Confinement wanted = {.reads = writes ? (StringList){0} : paths,
                                .writes = writes ? paths : (StringList){0}};
    const pid_t child = fork();
    if (child == 0) {
        Diag *diag = diag_create();
        const Status status = confine(&wanted, diag);
        diag_destroy(diag);
        _exit(status == STATUS_OK ? ask() : 100);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

/* Kernels of containers may lack what a program is confined by. */
static void need_landlock(void) {
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) <
        1)
        skip();
}

static void test_reads(void **state) {
    (void)state;
    need_landlock();
    assert_int_equal(confined(read_only, false), 0);
}

static void test_writes(void **state) {
    (void)state;
    need_landlock();
    assert_int_equal(confined(written, true), 0);
}

static void test_reach(void **state) {
    (void)state;
    need_landlock();
    assert_int_equal(confined(no_reach, false), 0);
    assert_int_equal(confined(children, false), 0);
}

/* A process without room says so: more private memory than was left to it. */
static int no_room(void) {
    void *much = malloc((size_t)512 << 20);
    const int fault = much ? 1 : 0;
    free(much);
    return fault;
}

static void test_memory(void **state) {
    (void)state;
    need_landlock();
#ifndef __SANITIZE_ADDRESS__
    const pid_t child = fork();
    if (child == 0) {
        Diag *diag = diag_create();
        const Confinement wanted = {.memory = 256 << 20};
        const Status status = confine(&wanted, diag);
        diag_destroy(diag);
        _exit(status == STATUS_OK ? no_room() : 100);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
#else
    (void)no_room;
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
