/* Programs that tests start: see program.h. */
#include "tests/support/program.h"

#include "tests/support/check.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

size_t program_run(const char *const *words, const char *output) {
    pid_t child;
    int status;
    struct rusage used;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO,
                                     output ? output : "/dev/null",
                                     O_WRONLY | (output ? O_CREAT | O_TRUNC : 0), 0600);
    assert_int_equal(
        posix_spawn(&child, words[0], &actions, NULL, (char *const *)words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(wait4(child, &status, 0, &used), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return (size_t)used.ru_maxrss * 1024;
}
