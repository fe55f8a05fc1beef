/* Says what a model makes of each line of standard input, as JSON:
 *
 *     cc classify.c $(pkg-config --cflags --libs compress) -o classify
 *     echo "to be or not to be" | ./classify bert.h5 '{tokenizer: vocab.txt}'
 */
#define _POSIX_C_SOURCE 200809L
#include <compress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MAX = 16 };

/* Reads up to SAMPLES_MAX lines. */
static size_t read_lines(CompressSample *samples) {
    size_t count = 0, room = 0;
    char *line = NULL;
    while (count < SAMPLES_MAX && getline(&line, &room, stdin) > 0) {
        line[strcspn(line, "\n")] = 0;
        samples[count++] = (CompressSample){.text = line};
        line = NULL;
        room = 0;
    }
    free(line);
    return count;
}

static CompressStatus answer(CompressContext *context, CompressRunner *runner,
                             const char *options) {
    CompressSample samples[SAMPLES_MAX];
    CompressStatus status = COMPRESS_OK;
    size_t count;
    while (status == COMPRESS_OK && (count = read_lines(samples)) > 0) {
        char *json;
        status = compress_predict(context, runner, samples, count, options, &json);
        if (status == COMPRESS_OK) puts(json);
        compress_free_text(json);
        for (size_t i = 0; i < count; i++) free((char *)samples[i].text);
    }
    return status;
}

int main(int argc, char **argv) {
    CompressContext *context;
    CompressModel *model = NULL;
    CompressRunner *runner = NULL;
    if (argc < 2 || argc > 3) {
        fputs("usage: classify MODEL [OPTIONS]\n", stderr);
        return COMPRESS_USAGE;
    }
    CompressStatus status = compress_open(&context, 0);
    if (status != COMPRESS_OK) return status;
    status = compress_load(context, argv[1], &model);
    if (status == COMPRESS_OK) status = compress_prepare(context, model, &runner);
    compress_free_model(model);
    if (status == COMPRESS_OK) status = answer(context, runner, argv[2]);
    fputs(compress_messages(context), stderr);
    compress_free_runner(runner);
    compress_close(context);
    return status;
}
