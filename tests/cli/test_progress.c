/* Lines of progress: the time that is left follows from what was done since the step told
 * first, not from what an earlier run had done; a line is cut between characters. */
#include "cli/progress.h"
#include "cli/terminal.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a step says that began with `first` of 1000 done, when it has done `done` ten
 * seconds later; static. */
static const char *line_after(int64_t first, int64_t done) {
    static char text[256];
    FILE *file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    Progress progress = progress_create(false);
    progress.live = false;
    progress_begin(&progress, 0, 1, "distill");
    progress_update(&progress, first, 1000, "");
    progress.start -= 10;
    progress.first_time -= 10;
    progress.heartbeat = 0;
    progress_update(&progress, done, 1000, "");
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

/* Half of what there was to do took ten seconds and the test's own time. */
static void time_left(void **state) {
    (void)state;
    static const int64_t FIRST[] = {0, 900}, DONE[] = {500, 950};
    for (int i = 0; i < 2; i++) {
        const char *line = strchr(line_after(FIRST[i], DONE[i]), '\n');
        double percent = 0, left = 0;
        assert_non_null(line);
        assert_int_equal(
            sscanf(line, "\n[1/1] distill %lf%%, %lf s left", &percent, &left), 2);
        assert_float_equal(percent, (double)DONE[i] / 10, 0);
        assert_true(left >= 10 && left < 40);
    }
    /* Nothing was done yet: nobody knows. */
    assert_string_equal(line_after(900, 900), "[1/1] distill ...\n[1/1] distill  90%\n");
}

static void cut_between_characters(void **state) {
    (void)state;
    assert_int_equal(terminal_fit("abc", 2), 2);
    assert_int_equal(terminal_fit("abc", 4), 3);
    assert_int_equal(terminal_fit("\xc3\xa9\xe2\x82\xac!", 1), 2);
    assert_int_equal(terminal_fit("\xc3\xa9\xe2\x82\xac!", 2), 5);
    assert_int_equal(terminal_fit("", 3), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_left),
                                       cmocka_unit_test(cut_between_characters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
