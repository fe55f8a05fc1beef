/* JSON: what ends parsing other than the text. */
#include "io_test.h"

#include "io/files/json.h"

#include <sys/resource.h>
#include <sys/wait.h>

/* AddressSanitizer needs all of the address space. */
#ifdef __SANITIZE_ADDRESS__
enum { CAN_STARVE = false };
#else
enum { CAN_STARVE = true };
#endif

/* Parses a long list with little memory left; the exit code tells how that ended. */
static void parse_starved(const char *text) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    Tree *tree;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    if (!file || fscanf(file, "%lu", &pages) != 1) _exit(99);
    fclose(file);
    const rlim_t most = pages * 4096 + ((rlim_t)3 << 20);
    const struct rlimit limit = {most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(99);
    _exit((int)json_parse(&tree, arena, "list", text, strlen(text), diag));
}

/* Memory that runs out is no fault of the text. */
static void out_of_memory(void **state) {
    (void)state;
    if (!CAN_STARVE) skip();
    enum { ITEMS = 200000 };
    char *text = malloc(2 * ITEMS + 1);
    for (int i = 0; i < ITEMS; i++) memcpy(text + 2 * i, i ? ",1" : "[1", 2);
    memcpy(text + 2 * ITEMS - 2, " ]", 3);
    int status;
    const pid_t child = fork();
    if (child == 0) parse_starved(text);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), STATUS_MEMORY);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
