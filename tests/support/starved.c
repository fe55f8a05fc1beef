/* Running out of memory on purpose: see starved.h. */
#include "tests/support/starved.h"

#include "ir/sanitized.h"
#include "tests/support/check.h"
#include "tests/support/thread_sanitized.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ONE_ERROR = 100, OTHERWISE = 99 }; /* exit codes, the first plus the status */

bool can_starve(void) {
    return !SANITIZED && !THREAD_SANITIZED;
}

static void call_starved(size_t room, Status (*call)(void *self, Diag *diag),
                         void *self) {
    unsigned long pages = 0;
    Diag *diag = diag_create();
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) _exit(OTHERWISE);
    fclose(file);
    const rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + room;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) != 0) _exit(OTHERWISE);
    const Status status = call(self, diag);
    if (status == STATUS_OK || diag_errors(diag) == 1) _exit(ONE_ERROR + (int)status);
    diag_print(diag, stderr);
    _exit(OTHERWISE);
}

void assert_starves(size_t room, Status (*call)(void *self, Diag *diag), void *self) {
    int how;
    const pid_t child = fork();
    if (child == 0) call_starved(room, call, self);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), ONE_ERROR + (int)STATUS_MEMORY);
}
