/* Sandbox: fork, limits, a filter of system calls, and one framed reply through a pipe.
 */
#include "io/files/sandbox.h"
#include "io/files/calls.h"
#include "ir/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Precedes the reply in the pipe; a child that dies early never sends all of it. */
typedef struct Frame {
    uint32_t magic, ok;
    uint64_t length;
} Frame;

/* What the child finds out before it works, in memory that it shares with the parent. */
typedef struct Shared {
    bool tight;  /* there is less address space left than SandboxLimits.memory */
    bool memory; /* there was too little memory for the work */
    bool late;   /* the work took all processor time that it may */
    int cause;   /* errno's value of what kept it from working or replying, 0 = nothing */
    int crash;   /* the signal of a crash, 0 = none */
} Shared;

#define FRAME_MAGIC 0x53424f58u

/* --- the child's side --- */

static void signals_reset(void) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int sig = 1; sig < NSIG; sig++) sigaction(sig, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGINT, &action, NULL); /* the parent decides what an interrupt means */
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL); /* writes fail with EFBIG instead */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void limit_set(int resource, rlim_t value) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) return;
    if (value < limit.rlim_cur || limit.rlim_cur == RLIM_INFINITY) limit.rlim_cur = value;
    setrlimit(resource, &limit);
}

/* /proc/self/statm of the process that opened it, whose children begin with the same
 * address space; 0 = not open. */
static int statm;

void sandbox_prepare(void) {
    if (statm == 0) statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

/* Bytes of address space in use now, 0 when unknown. */
static size_t address_space(void) {
    char line[64] = "";
    sandbox_prepare();
    if (statm < 0 || pread(statm, line, sizeof line - 1, 0) <= 0) return 0;
    return strtoul(line, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Whether so much address space is there, by taking it. */
static bool has_room(size_t bytes) {
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, bytes);
    return true;
}

static bool write_all(int fd, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Leaves the standard streams, at /dev/null, and `fd`, which becomes 3. */
static bool descriptors_close(int fd) {
    const int reply = fcntl(fd, F_DUPFD, 4); /* out of the way of the others */
    const int opened = reply < 0 ? -1 : open("/dev/null", O_RDWR);
    const int null = opened < 0 ? -1 : fcntl(opened, F_DUPFD, 4);
    if (null < 0 || dup2(reply, 3) < 0) return false;
    for (int i = 0; i < 3; i++)
        if (dup2(null, i) < 0) return false;
    close_range(4, ~0u, 0); /* where the kernel is older than 5.9 they stay */
    return true;
}

/* Ends a child that cannot work, or whose work nobody will see. */
_Noreturn static void child_give_up(Shared *shared) {
    shared->cause = errno;
    _exit(1);
}

/* A library that crashes after memory ran out, or goes round for ever, does so because of
 * that, unless another call has failed since. */
static Shared *crash_shared;

static void on_crash(int number) {
    /* errno is the thread's own. NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c) */
    crash_shared->memory = errno == ENOMEM;
    crash_shared->late = number == SIGXCPU;
    crash_shared->crash = number;
    _exit(1);
}

static void child_run(int fd, pid_t parent, Shared *shared, SandboxWork work, void *state,
                      const SandboxLimits *limits) {
    const size_t used = address_space();
    signals_reset();
    crash_shared = shared;
    signal(SIGSEGV, on_crash);
    signal(SIGABRT, on_crash);
    signal(SIGXCPU, on_crash);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (limits->memory) shared->tight = !has_room(limits->memory);
    limit_set(RLIMIT_CORE, 0);
    if (!descriptors_close(fd)) child_give_up(shared);
    fd = 3;
    /* AddressSanitizer reserves terabytes of address space. */
    if (limits->memory && used && !SANITIZED) limit_set(RLIMIT_AS, used + limits->memory);
    rlim_t cpu = (rlim_t)limits->cpu_seconds * (SANITIZED ? 4 : 1);
    if (cpu) limit_set(RLIMIT_CPU, cpu);
    if (limits->wall_seconds) alarm((unsigned)limits->wall_seconds);
    prctl(PR_SET_DUMPABLE, 0);
    if (limits->closed) calls_keep_reply(fd);
    Text reply = {0};
    errno = 0;
    bool ok = work(state, &reply);
    shared->memory = !ok && errno == ENOMEM;
    Frame frame = {FRAME_MAGIC, ok, reply.length};
    bool sent = write_all(fd, &frame, sizeof frame) &&
                write_all(fd, reply.data ? reply.data : "", reply.length);
    if (!sent) child_give_up(shared);
    _exit(0);
}

/* --- the parent's side --- */

static int64_t clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How the parent's reading of the reply ended early. */
typedef struct ReplyEnd {
    bool closed; /* by the child, before its reply was whole */
    bool late;   /* nothing came within the time */
    int cause;   /* errno's value of what kept the parent from reading it, 0 = nothing */
} ReplyEnd;

/* Reads exactly `bytes`; false at end of file, error or deadline (0 = none). */
static bool read_all(int fd, void *data, size_t bytes, int64_t deadline, ReplyEnd *how) {
    char *at = data;
    while (bytes > 0) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left = deadline ? deadline - clock_ms() : -1;
        const bool over = deadline && left <= 0; /* what is there already counts */
        int ready = poll(&wait, 1, over ? 0 : (int)left);
        how->late = over && ready == 0;
        if (how->late) return false;
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        ssize_t n = ready > 0 ? read(fd, at, bytes) : -1;
        if (n < 0 && errno == EINTR) continue;
        how->closed = ready > 0 && n == 0;
        if (n < 0) how->cause = errno;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static SandboxEnd reply_read(Text *reply, int fd, const SandboxLimits *limits,
                             ReplyEnd *how) {
    int64_t wall = limits->wall_seconds;
    int64_t deadline = wall ? clock_ms() + wall * 1000 + 1000 : 0;
    Frame frame;
    if (!read_all(fd, &frame, sizeof frame, deadline, how)) return SANDBOX_DIED;
    if (frame.magic != FRAME_MAGIC || frame.ok > 1) return SANDBOX_DIED;
    if (limits->reply && frame.length > limits->reply) return SANDBOX_DIED;
    char chunk[1 << 14];
    for (uint64_t left = frame.length; left > 0;) {
        size_t n = left < sizeof chunk ? (size_t)left : sizeof chunk;
        if (!read_all(fd, chunk, n, deadline, how)) return SANDBOX_DIED;
        text_bytes(reply, chunk, n);
        left -= n;
    }
    return frame.ok ? SANDBOX_DONE : SANDBOX_FAULT;
}

/* gcc's AddressSanitizer does not hold the locks of its memory while a process forks: one
 * that a thread holds, just started, would be held in the child for ever. Lets threads
 * come to rest; all else does without, as libc holds its own. */
static void settle_threads(void) {
    enum { NANOSECONDS = 5 * 1000 * 1000 };
    if (SANITIZED) nanosleep(&(struct timespec){.tv_nsec = NANOSECONDS}, NULL);
}

/* Forks with all signals blocked, so that no handler of the parent runs in the child. */
static pid_t child_start(const int pipe_fd[2], Shared *shared, SandboxWork work,
                         void *state, const SandboxLimits *limits) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t parent = getpid();
    settle_threads();
    pid_t child = fork();
    int fork_errno = errno;
    if (child == 0) {
        close(pipe_fd[0]);
        child_run(pipe_fd[1], parent, shared, work, state, limits);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = fork_errno;
    return child;
}

/* How a child ended that had not sent all of its reply. */
typedef struct ChildEnd {
    bool memory; /* killed by the system, or by its own choice (ir/arena.h) */
    bool late;   /* by its alarm */
    int signal;  /* that ended it, 0 = none */
    int code;    /* its exit code, if it ended by itself */
} ChildEnd;

/* Ends the child, `running` where it may still be: it was late, or has sent all of its
 * reply. */
static ChildEnd child_end(pid_t child, bool running) {
    int how = 0;
    if (running) kill(child, SIGKILL);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) continue;
    if (running) return (ChildEnd){0};
    const int signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    const bool chosen =
        WIFEXITED(how) && WEXITSTATUS(how) == status_exit_code(STATUS_MEMORY);
    return (ChildEnd){.memory = signal == SIGKILL || chosen,
                      .late = signal == SIGALRM,
                      .signal = signal,
                      .code = WIFEXITED(how) ? WEXITSTATUS(how) : 0};
}

/* Says how a child died: by a signal, by itself, or with what is no reply. */
static void say_death(Text *reply, const ChildEnd *ended, int crash, bool closed) {
    const int signal = ended->signal ? ended->signal : crash;
    text_free(reply);
    if (signal)
        text_add(reply, "was ended by signal %d, %s", signal, strsignal(signal));
    else if (closed)
        text_add(reply, "ended with exit code %d and no whole reply", ended->code);
}

static SandboxEnd sandbox_child(Text *reply, const int pipe_fd[2], Shared *shared,
                                SandboxWork work, void (*beside)(void *state),
                                void *state, const SandboxLimits *limits) {
    const pid_t child = child_start(pipe_fd, shared, work, state, limits);
    int failure = errno;
    close(pipe_fd[1]);
    SandboxEnd end = SANDBOX_NONE;
    if (child > 0) {
        ReplyEnd how = {0};
        if (beside) beside(state);
        end = reply_read(reply, pipe_fd[0], limits, &how);
        const ChildEnd ended = child_end(child, !how.closed);
        const bool late = ended.late || how.late || shared->late;
        failure = how.cause ? how.cause : shared->cause;
        if (end == SANDBOX_DIED)
            end = ended.memory   ? SANDBOX_MEMORY
                  : failure != 0 ? SANDBOX_NONE
                  : late         ? SANDBOX_LATE
                                 : SANDBOX_DIED;
        if (end != SANDBOX_DONE && (shared->tight || shared->memory))
            end = SANDBOX_MEMORY;
        if (end == SANDBOX_DIED) say_death(reply, &ended, shared->crash, how.closed);
    }
    close(pipe_fd[0]);
    errno = failure;
    return end;
}

SandboxEnd sandbox_run(Text *reply, SandboxWork work, void *state,
                       const SandboxLimits *limits) {
    return sandbox_run_beside(reply, work, NULL, state, limits);
}

SandboxEnd sandbox_run_beside(Text *reply, SandboxWork work, void (*beside)(void *state),
                              void *state, const SandboxLimits *limits) {
    int pipe_fd[2];
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return SANDBOX_NONE;
    SandboxEnd end = SANDBOX_NONE;
    if (pipe2(pipe_fd, O_CLOEXEC) == 0)
        end = sandbox_child(reply, pipe_fd, shared, work, beside, state, limits);
    const int failure = errno;
    munmap(shared, sizeof *shared);
    if (end != SANDBOX_DONE && end != SANDBOX_FAULT && end != SANDBOX_DIED)
        text_free(reply);
    errno = failure;
    return end;
}

Status sandbox_fail(SandboxEnd end, Loc at, const char *doing, Diag *diag) {
    const int cause = errno;
    if (end == SANDBOX_MEMORY) {
        diag_fail(diag, STATUS_MEMORY, at, NULL,
                  "out of memory in the process that was to %s the file", doing);
        diag_hint(diag, "`ulimit -v` or the memory of the machine is too small for it");
        return STATUS_MEMORY;
    }
    if (end == SANDBOX_LATE) {
        diag_fail(diag, STATUS_FORMAT, at, NULL,
                  "the process that was to %s the file had not done so when its time was "
                  "over",
                  doing);
        diag_hint(diag, "the file is damaged, or other work left the process no time");
        return STATUS_FORMAT;
    }
    if (end != SANDBOX_NONE) return STATUS_OK;
    const bool memory = cause == ENOMEM || cause == EAGAIN;
    return diag_fail(diag, memory ? STATUS_MEMORY : STATUS_IO, at, NULL,
                     "cannot run a process to %s the file: %s", doing, strerror(cause));
}

Status sandbox_died(const Text *how, Status status, Loc at, const char *doing,
                    Diag *diag) {
    diag_fail(diag, status, at, NULL, "the process that was to %s the file %s", doing,
              how->data ? how->data : "sent no reply that can be read");
    diag_hint(diag, "the file is damaged, or something else ended the process, as "
                    "valgrind does, which takes more than the process may have");
    return status;
}
