/* main of a fuzz target where no fuzzer drives it: gives it every file that the command
 * line names, whole, and then cut in the middle. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) return -1;
    const long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    const size_t got = data && size >= 0 ? fread(data, 1, (size_t)size, file) : 0;
    fclose(file);
    if (!data || size < 0 || got != (size_t)size) return free(data), -1;
    LLVMFuzzerTestOneInput(data, got);
    LLVMFuzzerTestOneInput(data, got / 2);
    free(data);
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (replay_file(argv[i]) != 0) return perror(argv[i]), 1;
    printf("%d inputs\n", argc - 1);
    return argc > 1 ? 0 : 1;
}
