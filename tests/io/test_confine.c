/* Confinement: what a process cannot do any more, and what it still can. Each test
 * confines a child, which answers by its exit code. */
#include "io_test.h"

#include "io/files/confine.h"
#include "io/files/outfile.h"
#include "io/files/sandbox.h"
#include "ir/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

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

/* Numbers of calls that older headers lack, the same on all processors. */
enum {
    CALL_PIDFD_SEND_SIGNAL = 424,
    CALL_FSCONFIG = 431,
    CALL_FSPICK = 433,
    CALL_OPENAT2 = 437,
    CALL_PROCESS_MADVISE = 440,
    CALL_MOUNT_SETATTR = 442,
    CALL_FCHMODAT2 = 452,
    CALL_SETXATTRAT = 463,
    CALL_REMOVEXATTRAT = 466,
    CALL_FILE_SETATTR = 469
};

/* A system call and its arguments. */
typedef struct Attempt {
    long call, arguments[6];
} Attempt;

/* A file outside, open for reading, and a watch on nothing yet: both were opened before
 * the child was confined. */
static int theirs, watch;

#define AT(text) (long)(text)

/* What a reader that was taken over would do next. Gives the place of an attempt that was
 * not refused, counted from 1. */
static int no_calls(void) {
    const long parent = getppid(), owner = getuid(), group = getgid();
    const struct rlimit limit = {1, 1};
    const unsigned long processors = 1;
    const struct {
        uint64_t value;
        uint32_t size, flags;
    } attribute = {AT("a"), 1, 0};
    const uint64_t zeros[4] = {0};
    const Attempt attempts[] = {
        {CALL_FCHMODAT2, {theirs, AT(""), 0777, AT_EMPTY_PATH}},
        {CALL_FCHMODAT2, {AT_FDCWD, AT(outside), 0777}},
        {SYS_fchmod, {theirs, 0777}},
        {SYS_fchmodat, {AT_FDCWD, AT(outside), 0777}},
        {SYS_fchown, {theirs, owner, group}},
        {SYS_fsetxattr, {theirs, AT("user.a"), AT("a"), 1}},
        {SYS_fremovexattr, {theirs, AT("user.kept")}},
        {CALL_SETXATTRAT,
         {theirs, AT(""), AT_EMPTY_PATH, AT("user.a"), AT(&attribute), sizeof attribute}},
        {CALL_REMOVEXATTRAT, {theirs, AT(""), AT_EMPTY_PATH, AT("user.kept")}},
        {CALL_FILE_SETATTR, {AT_FDCWD, AT(outside), AT(zeros), sizeof zeros}},
        {SYS_utimensat, {theirs}},
        {SYS_ioctl, {theirs, AT(FS_IOC_SETFLAGS), AT(zeros)}},
        {SYS_ioctl, {0, TIOCSTI, AT("a")}},
        {SYS_fcntl, {theirs, F_SETOWN, parent}},
        {SYS_setpriority, {PRIO_PROCESS, parent, 19}},
        {SYS_sched_setaffinity, {parent, sizeof processors, AT(&processors)}},
        {SYS_prlimit64, {parent, RLIMIT_CORE, AT(&limit)}},
        {CALL_PIDFD_SEND_SIGNAL, {theirs, SIGTERM}},
        {CALL_PROCESS_MADVISE, {theirs}},
        {SYS_ptrace, {16, parent}}, /* PTRACE_ATTACH */
        {SYS_prctl, {PR_SET_CHILD_SUBREAPER, 1}},
        {SYS_clone, {CLONE_NEWUSER | SIGCHLD}},
        {SYS_clone3, {AT(zeros), sizeof zeros}},
        {SYS_unshare, {CLONE_NEWUSER}},
        {SYS_shmget, {IPC_PRIVATE, 4096, 0600}},
        {SYS_inotify_init1, {0}},
        {SYS_inotify_add_watch, {watch, AT(outside), IN_ALL_EVENTS}},
        {SYS_socketpair, {AF_UNIX, SOCK_STREAM, 0, AT(zeros)}},
        {CALL_FSCONFIG, {theirs}},
        {CALL_FSPICK, {AT_FDCWD, AT("/")}},
        {CALL_MOUNT_SETATTR, {AT_FDCWD, AT("/"), 0, AT(zeros), sizeof zeros}},
        {CALL_OPENAT2, {AT_FDCWD, AT(inside), AT(zeros), 24}},
        {SYS_symlinkat, {AT("/etc"), AT_FDCWD, AT("link")}},
    };
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
        const long *a = attempts[i].arguments;
        if (SANITIZED && attempts[i].call == SYS_ptrace) continue;
        if (syscall(attempts[i].call, a[0], a[1], a[2], a[3], a[4], a[5]) >= 0 ||
            (errno != EPERM && errno != ENOSYS))
            return (int)i + 1;
    }
    return 0;
}

static void *thread_says(void *said) {
    *(int *)said = open_says(outside, "theirs", O_RDONLY);
    return NULL;
}

/* What the program needs of the calls that are let through for some arguments alone. */
static int own_calls(void) {
    pthread_t thread;
    int said = 0;
    if (pthread_create(&thread, NULL, thread_says, &said) != 0) return 1;
    if (pthread_join(thread, NULL) != 0 || said != EACCES) return 2;
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0) return 3;
    limit.rlim_cur = 0;
    if (setrlimit(RLIMIT_CORE, &limit) != 0) return 4;
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (fcntl(theirs, F_OFD_SETLK, &whole) != 0) return 5;
    struct winsize size;
    if (ioctl(theirs, TIOCGWINSZ, &size) == 0 || errno != ENOTTY) return 6;
    return isatty(theirs) || errno != ENOTTY ? 7 : 0;
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

/* A mode, an attribute, a priority and a limit are what they were. */
static void test_calls(void **state) {
    (void)state;
    need_landlock();
    char path[400];
    struct stat before, after;
    struct rlimit core, limit;
    snprintf(path, sizeof path, "%s/theirs", outside);
    theirs = open(path, O_RDONLY);
    watch = inotify_init1(0);
    const bool kept = fsetxattr(theirs, "user.kept", "a", 1, 0) == 0;
    const int priority = getpriority(PRIO_PROCESS, 0);
    assert_int_equal(fstat(theirs, &before), 0);
    assert_int_equal(getrlimit(RLIMIT_CORE, &core), 0);

    assert_int_equal(confined(no_calls, true), 0);
    assert_int_equal(confined(own_calls, false), 0);

    assert_int_equal(fstat(theirs, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_ctim.tv_sec, before.st_ctim.tv_sec);
    assert_int_equal(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
    assert_int_equal(fgetxattr(theirs, "user.kept", NULL, 0), kept ? 1 : -1);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), priority);
    assert_int_equal(getrlimit(RLIMIT_CORE, &limit), 0);
    assert_int_equal(limit.rlim_cur, core.rlim_cur);
    close(watch);
    close(theirs);
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
        cmocka_unit_test(test_reads),  cmocka_unit_test(test_writes),
        cmocka_unit_test(test_reach),  cmocka_unit_test(test_calls),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
