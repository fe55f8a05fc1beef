/* Signal handlers. A handler can only talk to the program through globals, the four
 * below. */
#include "cli/signals.h"

#include "exec/run/ranks.h"
#include "io/files/file.h"
#include "io/files/guard.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEADLINE_SECONDS = 60 };

static volatile sig_atomic_t interrupts;
static volatile sig_atomic_t asked; /* somebody asks whether there was one */
static volatile sig_atomic_t owner; /* process that installed the handlers */
static volatile sig_atomic_t other; /* one of several ranks, and not the first */

bool signals_interrupted(void *self) {
    (void)self;
    asked = 1;
    return interrupts > 0;
}

bool signals_interrupted_before(void) {
    asked = 0; /* before looking: a signal in between ends the program itself */
    return interrupts > 0;
}

/* Ends the program, without the files that it was writing. Of ranks the first tells. */
_Noreturn static void end_now(const char *message) {
    outfile_abandon_all();
    if (!other && write(STDERR_FILENO, message, strlen(message)) < 0) _exit(1);
    _exit(status_exit_code(STATUS_INTERRUPTED));
}

static void on_deadline(int number) {
    (void)number;
    if (getpid() == (pid_t)owner) end_now("interrupted: no orderly end in a minute\n");
}

static void on_interrupt(int number) {
    /* In a child process a signal has its usual effect: outputs belong to the parent. */
    if (getpid() != (pid_t)owner) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    interrupts = interrupts + 1;
    if (interrupts < 2 && asked)
        alarm(DEADLINE_SECONDS);
    else
        end_now(asked ? "" : "interrupted\n");
}

static void install(int number, void (*handler)(int)) {
    struct sigaction old, action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &old) != 0 || old.sa_handler == SIG_IGN) return;
    sigaction(number, &action, NULL);
}

void signals_install(void) {
    atexit(outfile_abandon_all);
    owner = (sig_atomic_t)getpid();
    other = ranks_launched_number() > 0;
    install(SIGINT, on_interrupt);
    install(SIGTERM, on_interrupt);
    install(SIGHUP, on_interrupt);
    install(SIGALRM, on_deadline);
    guard_install();
    signal(SIGXFSZ, SIG_IGN); /* writes beyond `ulimit -f` fail, as on a full disk */
}

void signals_ignore_pipe(void) {
    signal(SIGPIPE, SIG_IGN);
}

void signals_end(void) {
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}
