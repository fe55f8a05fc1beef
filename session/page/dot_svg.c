/* Graphviz's `dot`, run beside us: see session/page/dot.h. It is not linked: a model is
 * drawn seldom, and the library would bring two dozen others. */
#include "session/page/dot.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static Status fail_dot(Diag *diag, const char *what) {
    diag_fail(diag, STATUS_IO, LOC_NONE, NULL, "%s", what);
    diag_hint(diag,
              "`apt-get install graphviz`; `compress ir MODEL --dot` prints what it "
              "would draw");
    return STATUS_IO;
}

/* Runs `dot` from one open file to another and waits for it. */
static Status run_dot(FILE *from, FILE *to, Diag *diag) {
    char *const args[] = {"dot", "-Tsvg", NULL};
    posix_spawn_file_actions_t files;
    pid_t child;
    int state = 0;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fileno(from), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, fileno(to), STDOUT_FILENO);
    const int error = posix_spawnp(&child, "dot", &files, NULL, args, environ);
    posix_spawn_file_actions_destroy(&files);
    if (error)
        return fail_dot(diag,
                        error == ENOENT
                            ? "expected graphviz's program `dot` to draw, found none"
                            : "cannot run graphviz's program `dot`");
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return fail_dot(diag, "cannot wait for `dot`");
    if (WIFEXITED(state) && WEXITSTATUS(state) == 127)
        return fail_dot(diag, "expected graphviz's program `dot` to draw, found none");
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        return fail_dot(diag, "graphviz's program `dot` failed");
    return STATUS_OK;
}

static Status draw(Text *svg, const Text *dot, FILE *from, FILE *to, Diag *diag) {
    char chunk[65536];
    size_t got;
    if (!from || !to) return fail_dot(diag, "cannot make temporary files");
    if (fwrite(dot->data, 1, dot->length, from) != dot->length || fflush(from) != 0)
        return fail_dot(diag, "cannot write a temporary file");
    rewind(from);
    TRY(run_dot(from, to, diag));
    rewind(to);
    while ((got = fread(chunk, 1, sizeof chunk, to)) > 0) text_bytes(svg, chunk, got);
    return svg->length ? STATUS_OK
                       : fail_dot(diag, "graphviz's program `dot` drew nothing");
}

Status dot_svg(Text *svg, const Text *dot, Diag *diag) {
    FILE *from = tmpfile(), *to = tmpfile();
    const Status status = draw(svg, dot, from, to, diag);
    if (from) fclose(from);
    if (to) fclose(to);
    return status;
}
