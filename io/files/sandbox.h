/* Sandbox: a function run in a child process, so that a library that is not safe on
 * damaged files can crash, hang or corrupt its memory without harm. */
#ifndef COMPRESS_IO_FILES_SANDBOX_H
#define COMPRESS_IO_FILES_SANDBOX_H

#include "ir/status.h"
#include "ir/text.h"

#include <stdbool.h>

/* What the child may use; 0 = unlimited. */
typedef struct SandboxLimits {
    int cpu_seconds;  /* processor time */
    int wall_seconds; /* elapsed time */
    size_t memory;    /* bytes of address space beyond what the process has now */
    size_t reply;     /* bytes of the reply */
    bool closed; /* no system calls but for memory, time and the reply: the work opens no
                    file, makes no connection and starts no process, it reads what the
                    caller mapped. By seccomp; if the system, an emulator or a sanitizer
                    prevents that, only the other limits apply */
} SandboxLimits;

typedef enum SandboxEnd {
    SANDBOX_DONE,   /* the work returned true; the reply is what it appended */
    SANDBOX_FAULT,  /* the work returned false; the reply is its message */
    SANDBOX_DIED,   /* the child crashed, was ended, or sent an invalid reply; the reply
                       says how, for sandbox_died. No reply below */
    SANDBOX_LATE,   /* it ran into a limit of time */
    SANDBOX_MEMORY, /* one of these three for lack of memory: the process's own limit
                       leaves less address space than `memory`, the work says so, small
                       memory ran out (ir/arena.h), or the system killed the child, as it
                       does when memory runs out */
    SANDBOX_NONE /* no child could be started, or its reply could not be sent; errno says
                    why */
} SandboxEnd;

/* Work done in the child. It sees a copy of the caller's memory and appends its result
 * to `reply`. */
typedef bool (*SandboxWork)(void *state, Text *reply);

/* Runs `work(state, reply)` in a child and waits for it. The child has default signal
 * handlers (terminal interrupts and SIGXFSZ are ignored), standard streams at /dev/null,
 * no core dumps, no descriptors but these and the one for the reply, and dies with its
 * parent. The reply's bytes are as hostile as the file they were read from: check them.
 * The caller frees `reply` in every case. */
SandboxEnd sandbox_run(Text *reply, SandboxWork work, void *state,
                       const SandboxLimits *limits);

/* The same; the caller does `beside(state)`, which starts no process, while the child
 * works. */
SandboxEnd sandbox_run_beside(Text *reply, SandboxWork work, void (*beside)(void *state),
                              void *state, const SandboxLimits *limits);

/* Opens what is needed to measure the memory of later children, for a process that will
 * not be able to open it later; otherwise sandbox_run does it. */
void sandbox_prepare(void);

/* Reports, right after sandbox_run, a child that could not work, ran out of memory or
 * timed out: STATUS_MEMORY, STATUS_FORMAT for the last, or STATUS_IO for other causes.
 * `doing` is its task: "read". For other outcomes it reports nothing: STATUS_OK. */
Status sandbox_fail(SandboxEnd end, Loc at, const char *doing, Diag *diag);

/* Reports a child that died: how, and the possible cause. Returns `status`. */
Status sandbox_died(const Text *how, Status status, Loc at, const char *doing,
                    Diag *diag);

#endif
