/* Filters of system calls. The only file that includes seccomp.h. */
#include "io/files/calls.h"
#include "ir/sanitized.h"

#include <errno.h>
#include <stddef.h>

#if HAVE_SECCOMP

#include <asm/termbits.h> /* what TCGETS2 asks for */
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

bool calls_keep_reply(int reply) {
    static const int CALLS[] = {SCMP_SYS(brk),
                                SCMP_SYS(mmap),
                                SCMP_SYS(munmap),
                                SCMP_SYS(mremap),
                                SCMP_SYS(mprotect),
                                SCMP_SYS(madvise),
                                SCMP_SYS(futex),
                                SCMP_SYS(getrandom),
                                SCMP_SYS(clock_gettime),
                                SCMP_SYS(gettimeofday),
                                SCMP_SYS(rt_sigprocmask),
                                SCMP_SYS(rt_sigreturn),
                                SCMP_SYS(restart_syscall),
                                SCMP_SYS(getpid),
                                SCMP_SYS(gettid),
                                SCMP_SYS(tgkill),
                                SCMP_SYS(exit),
                                SCMP_SYS(exit_group)};
    if (SANITIZED) return false;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!filter) return false;
    bool done = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(write), 1,
                                 SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)reply)) == 0;
    for (size_t i = 0; i < COUNT(CALLS); i++)
        done = done && seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALLS[i], 0) == 0;
    done = done && seccomp_load(filter) == 0;
    seccomp_release(filter);
    return done;
}

/* ---- what a confined process needs ---- */

/* Whatever their arguments are. Which files may be opened, made and removed is for
 * Landlock to say; what is open already may be used. */
static const int ALLOWED[] = {
    /* memory of its own, and on which node of the machine OpenBLAS wishes it */
    SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mprotect),
    SCMP_SYS(madvise), SCMP_SYS(mbind), SCMP_SYS(memfd_create),
    /* threads and children */
    SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity), SCMP_SYS(getcpu), SCMP_SYS(arch_prctl), SCMP_SYS(wait4),
    SCMP_SYS(waitid), SCMP_SYS(exit), SCMP_SYS(exit_group),
    /* signals: to whom, Landlock says from Linux 6.12 on */
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack), SCMP_SYS(restart_syscall), SCMP_SYS(kill), SCMP_SYS(tgkill),
    SCMP_SYS(alarm), SCMP_SYS(setitimer),
    /* who it is, time, chance, limits, and what machine this is */
    SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(gettid), SCMP_SYS(getuid),
    SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(time),
    SCMP_SYS(gettimeofday), SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres),
    SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep), SCMP_SYS(times), SCMP_SYS(getrandom),
    SCMP_SYS(getrusage), SCMP_SYS(getrlimit), SCMP_SYS(setrlimit), SCMP_SYS(uname),
    SCMP_SYS(sysinfo),
    /* descriptors */
    SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(preadv), SCMP_SYS(write),
    SCMP_SYS(writev), SCMP_SYS(pwrite64), SCMP_SYS(pwritev), SCMP_SYS(lseek),
    SCMP_SYS(close), SCMP_SYS(close_range), SCMP_SYS(dup), SCMP_SYS(dup2), SCMP_SYS(dup3),
    SCMP_SYS(pipe), SCMP_SYS(pipe2), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(select),
    SCMP_SYS(pselect6), SCMP_SYS(flock), SCMP_SYS(ftruncate), SCMP_SYS(fallocate),
    SCMP_SYS(fsync), SCMP_SYS(fdatasync), SCMP_SYS(sync_file_range),
    SCMP_SYS(sync_file_range2), SCMP_SYS(fadvise64),
    /* files and folders by their paths */
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(stat), SCMP_SYS(fstat), SCMP_SYS(lstat),
    SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(statfs), SCMP_SYS(fstatfs),
    SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink),
    SCMP_SYS(readlinkat), SCMP_SYS(getdents), SCMP_SYS(getdents64), SCMP_SYS(getcwd),
    SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(unlink),
    SCMP_SYS(unlinkat), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
    /* a filter that is narrower still: calls_keep_reply's */
    SCMP_SYS(seccomp)};

/* Allowed where (argument & mask) == value. */
typedef struct Condition {
    int call;
    unsigned argument;
    uint32_t mask, value;
} Condition;

#define IS(call, argument, value)                                                        \
    { SCMP_SYS(call), argument, UINT32_MAX, (uint32_t)(value) }

/* New namespaces, in which a process has more rights than it had. */
#define NAMESPACES                                                                       \
    ((uint32_t)CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |             \
     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static const Condition CONDITIONS[] = {
    /* Threads and children. clone3, whose flags are in memory, where filters see nothing,
     * does not exist: the C library then takes this one. */
    {SCMP_SYS(clone), 0, NAMESPACES, 0},
    IS(prlimit64, 0, 0), /* its own limits */
    IS(prctl, 0, PR_SET_PDEATHSIG),
    IS(prctl, 0, PR_SET_DUMPABLE),
    IS(prctl, 0, PR_SET_NO_NEW_PRIVS),
#if SANITIZED /* the search for leaks, by a child that traces this process */
    IS(prctl, 0, PR_GET_DUMPABLE),
    IS(prctl, 0, PR_SET_PTRACER),
#endif
    /* whether it is a terminal, in two versions, and how wide it is */
    IS(ioctl, 1, TCGETS),
#ifdef TCGETS2
    IS(ioctl, 1, TCGETS2),
#endif
    IS(ioctl, 1, TIOCGWINSZ),
    IS(fcntl, 1, F_DUPFD),
    IS(fcntl, 1, F_DUPFD_CLOEXEC),
    IS(fcntl, 1, F_GETFD),
    IS(fcntl, 1, F_SETFD),
    IS(fcntl, 1, F_GETFL),
    /* locks, and leases, which tell whether another process has a file open */
    IS(fcntl, 1, F_GETLK),
    IS(fcntl, 1, F_SETLK),
    IS(fcntl, 1, F_SETLKW),
    IS(fcntl, 1, F_OFD_GETLK),
    IS(fcntl, 1, F_OFD_SETLK),
    IS(fcntl, 1, F_OFD_SETLKW),
    IS(fcntl, 1, F_SETSIG),
    IS(fcntl, 1, F_SETLEASE)};

/* ---- what is known to reach further ---- */

/* They fail with EPERM, which says why, where a library would otherwise look for another
 * way to the same end. */
static const int REFUSED[] = {
    /* the network, and whatever else has sockets */
    SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(connect), SCMP_SYS(bind),
    SCMP_SYS(listen), SCMP_SYS(accept), SCMP_SYS(accept4),
    /* other programs and processes */
    SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev), SCMP_SYS(pidfd_getfd), SCMP_SYS(pidfd_open),
    SCMP_SYS(kcmp), SCMP_SYS(setns), SCMP_SYS(unshare), SCMP_SYS(personality),
    SCMP_SYS(setpriority), SCMP_SYS(sched_setaffinity), SCMP_SYS(shmget),
    /* the file system's shape, what happens in it, and files but by their paths */
    SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot),
    SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen), SCMP_SYS(fsconfig),
    SCMP_SYS(fspick), SCMP_SYS(open_by_handle_at), SCMP_SYS(swapon), SCMP_SYS(swapoff),
    SCMP_SYS(inotify_add_watch),
    /* owners, modes, attributes and times of files, which Landlock leaves to all, and a
     * descriptor for reading is enough for */
    SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), SCMP_SYS(chown),
    SCMP_SYS(lchown), SCMP_SYS(fchown), SCMP_SYS(fchownat), SCMP_SYS(setxattr),
    SCMP_SYS(lsetxattr), SCMP_SYS(fsetxattr), SCMP_SYS(removexattr),
    SCMP_SYS(lremovexattr), SCMP_SYS(fremovexattr), SCMP_SYS(utime), SCMP_SYS(utimes),
    SCMP_SYS(utimensat), SCMP_SYS(futimesat),
    /* the kernel */
    SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
    SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl), SCMP_SYS(init_module),
    SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
    SCMP_SYS(reboot), SCMP_SYS(ioperm), SCMP_SYS(iopl), SCMP_SYS(quotactl),
    SCMP_SYS(acct), SCMP_SYS(settimeofday), SCMP_SYS(clock_settime),
    SCMP_SYS(sethostname), SCMP_SYS(setdomainname)};

/* ---- the filter ---- */

/* Calls that this processor's Linux does not have are negative numbers. */
static bool add_calls(scmp_filter_ctx filter, uint32_t action, const int *calls,
                      size_t count) {
    bool done = true;
    for (size_t i = 0; i < count && done; i++)
        done = calls[i] < 0 || seccomp_rule_add(filter, action, calls[i], 0) == 0;
    return done;
}

static bool add_conditions(scmp_filter_ctx filter) {
    bool done = true;
    for (size_t i = 0; i < COUNT(CONDITIONS) && done; i++) {
        const Condition *row = &CONDITIONS[i];
        const struct scmp_arg_cmp test =
            SCMP_CMP64(row->argument, SCMP_CMP_MASKED_EQ, row->mask, row->value);
        done = seccomp_rule_add(filter, SCMP_ACT_ALLOW, row->call, 1, test) == 0;
    }
    return done;
}

bool calls_drop_reach(void) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!filter) return false;
    const uint32_t refused = SCMP_ACT_ERRNO(EPERM);
    const uint32_t tracing = SANITIZED ? SCMP_ACT_ALLOW : refused;
    const bool done = add_calls(filter, SCMP_ACT_ALLOW, ALLOWED, COUNT(ALLOWED)) &&
                      add_calls(filter, refused, REFUSED, COUNT(REFUSED)) &&
                      add_conditions(filter) &&
                      seccomp_rule_add(filter, tracing, SCMP_SYS(ptrace), 0) == 0 &&
                      seccomp_load(filter) == 0;
    seccomp_release(filter);
    return done;
}

#else

bool calls_keep_reply(int reply) {
    (void)reply;
    return false;
}

bool calls_drop_reach(void) {
    return false;
}

#endif
