/* main of a fuzz target where no fuzzer drives it: gives it every file that the command
 * line names, whole, then cut in the middle, and then damaged in many ways. Which ways is
 * drawn from a fixed seed, so every run goes the same way, as far as it gets: a test
 * makes 3000 of them or what fits in a second, FUZZ_SECONDS sets another time alone. */
#include "tests/fuzz/fuzz.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 3000, BYTES_MAX = 1 << 15, EDITS_MAX = 4 };

typedef struct Input {
    uint8_t *data;
    size_t size;
} Input;

static int read_input(Input *out, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) return -1;
    const long size = ftell(file);
    rewind(file);
    out->data = malloc(size > 0 ? (size_t)size : 1);
    out->size = out->data && size >= 0 ? fread(out->data, 1, (size_t)size, file) : 0;
    fclose(file);
    return out->data && size >= 0 && out->size == (size_t)size ? 0 : -1;
}

/* SplitMix64 (Steele, Lea and Flood 2014); a number below `limit`. */
static size_t draw(uint64_t *state, size_t limit) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return (size_t)((z ^ z >> 31) % limit);
}

/* One edit of data[0 .. size): a bit, a byte that means something to many formats, bytes
 * copied from elsewhere, or an end cut off. Returns the size afterwards. */
static size_t edit(uint8_t *data, size_t size, uint64_t *state) {
    static const uint8_t ODD[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '[', '-', '9', '\n'};
    const size_t at = draw(state, size);
    size_t length = 1 + draw(state, 16);
    const size_t from = draw(state, size);
    switch (draw(state, 4)) {
    case 0: data[at] ^= (uint8_t)(1U << draw(state, 8)); break;
    case 1: data[at] = ODD[draw(state, sizeof ODD)]; break;
    case 2:
        if (length > size - at) length = size - at;
        if (length > size - from) length = size - from;
        memmove(data + at, data + from, length);
        break;
    default: return at > size / 2 ? at : size;
    }
    return size;
}

/* Gives the target the input with some edits; a copy of its exact size, so that the
 * sanitizers see a read past the end. */
static void run_damaged(const Input *input, uint64_t *state) {
    size_t size = input->size;
    uint8_t *data = malloc(size);
    fuzz_expect(data != NULL, "there is memory");
    memcpy(data, input->data, size);
    for (size_t edits = 1 + draw(state, EDITS_MAX); edits > 0 && size > 0; edits--)
        size = edit(data, size, state);
    uint8_t *exact = realloc(data, size > 0 ? size : 1);
    LLVMFuzzerTestOneInput(exact ? exact : data, size);
    free(exact ? exact : data);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    const char *limit = getenv("FUZZ_SECONDS");
    const double seconds = limit ? strtod(limit, NULL) : 1;
    const long rounds = limit ? LONG_MAX : ROUNDS;
    const int count = argc - 1;
    if (count == 0) return 1;
    Input *inputs = calloc((size_t)count, sizeof *inputs);
    fuzz_expect(inputs != NULL, "there is memory");
    for (int i = 0; i < count; i++) {
        if (read_input(&inputs[i], argv[i + 1]) != 0) return perror(argv[i + 1]), 1;
        LLVMFuzzerTestOneInput(inputs[i].data, inputs[i].size);
        LLVMFuzzerTestOneInput(inputs[i].data, inputs[i].size / 2);
    }
    long damaged = 0;
    uint64_t state = 1;
    const double start = seconds_now();
    for (long round = 0; round < rounds && seconds_now() - start < seconds; round++) {
        const Input *input = &inputs[round % count];
        if (input->size == 0 || input->size > BYTES_MAX) continue;
        run_damaged(input, &state);
        damaged++;
    }
    for (int i = 0; i < count; i++) free(inputs[i].data);
    free(inputs);
    printf("%d inputs, %ld damaged\n", count, damaged);
    return 0;
}
