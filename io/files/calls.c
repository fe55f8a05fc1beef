/* Filters of system calls. The only file that includes seccomp.h. */
#include "io/files/calls.h"
#include "ir/sanitized.h"

#include <errno.h>
#include <stddef.h>

#if HAVE_SECCOMP

#include <seccomp.h>

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

bool calls_drop_reach(void) {
    static const int CALLS[] = {
        /* the network, and whatever else has sockets */
        SCMP_SYS(socket), SCMP_SYS(connect), SCMP_SYS(bind), SCMP_SYS(listen),
        SCMP_SYS(accept), SCMP_SYS(accept4),
        /* other programs and processes */
        SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(process_vm_readv),
        SCMP_SYS(process_vm_writev), SCMP_SYS(pidfd_getfd), SCMP_SYS(pidfd_open),
        SCMP_SYS(kcmp), SCMP_SYS(setns), SCMP_SYS(unshare), SCMP_SYS(personality),
        /* the file system's shape, and files but by their paths */
        SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot),
        SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen),
        SCMP_SYS(open_by_handle_at), SCMP_SYS(swapon), SCMP_SYS(swapoff),
        /* owners, modes and attributes of files that are not open */
        SCMP_SYS(chmod), SCMP_SYS(fchmodat), SCMP_SYS(chown), SCMP_SYS(lchown),
        SCMP_SYS(fchownat), SCMP_SYS(setxattr), SCMP_SYS(lsetxattr),
        SCMP_SYS(removexattr), SCMP_SYS(lremovexattr), SCMP_SYS(utime), SCMP_SYS(utimes),
        SCMP_SYS(utimensat), SCMP_SYS(futimesat),
        /* the kernel */
        SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd),
        SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
        SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl), SCMP_SYS(init_module),
        SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
        SCMP_SYS(reboot), SCMP_SYS(ioperm), SCMP_SYS(iopl), SCMP_SYS(quotactl),
        SCMP_SYS(acct), SCMP_SYS(settimeofday), SCMP_SYS(clock_settime),
        SCMP_SYS(sethostname), SCMP_SYS(setdomainname)};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter) return false;
    bool done = true;
    for (size_t i = 0; i < COUNT(CALLS); i++)
        done = done && seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), CALLS[i], 0) == 0;
    if (!SANITIZED)
        done = done &&
               seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ptrace), 0) == 0;
    done = done && seccomp_load(filter) == 0;
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
