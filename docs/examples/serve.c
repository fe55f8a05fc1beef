/* Answers requests on several threads at once, over one copy of the weights:
 *
 *     cc serve.c $(pkg-config --cflags --libs compress) -pthread -o serve
 *     printf '2 7 5 3\n2 4 9\n' | ./serve llama.h5 2
 *
 * Each line of the input has the token numbers of a text; each line of the output the
 * number of such a line and the last value of the model's first output. Whoever is done
 * takes the next line.
 */
#include <compress.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS_MAX = 64, TOKENS_MAX = 512, LINE_BYTES = 1 << 13 };

/* What the threads share. */
static CompressRunner *runner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of input and output */
static int lines;

/* The next line's token numbers; returns its number, 0 at the end. */
static int next_line(int32_t *ids, int64_t *count) {
    char line[LINE_BYTES], *at = line, *end;
    pthread_mutex_lock(&lock);
    const int number = fgets(line, sizeof line, stdin) ? ++lines : 0;
    pthread_mutex_unlock(&lock);
    *count = 0;
    while (number > 0 && *count < TOKENS_MAX) {
        const long id = strtol(at, &end, 10);
        if (end == at) break;
        ids[(*count)++] = (int32_t)id;
        at = end;
    }
    return number;
}

static void print_last(int number, const CompressTensor *tensor) {
    int64_t values = 1;
    for (int i = 0; i < tensor->rank; i++) values *= tensor->dim[i];
    pthread_mutex_lock(&lock);
    printf("%d %s %g\n", number, tensor->name, ((const float *)tensor->data)[values - 1]);
    pthread_mutex_unlock(&lock);
}

/* One thread: a context of its own, which computes on this thread alone. */
static void *answer(void *self) {
    CompressContext *context;
    CompressTensor *outputs;
    size_t count;
    int32_t ids[TOKENS_MAX];
    CompressTensor input = {
        .name = "input_ids", .type = COMPRESS_I32, .rank = 2, .dim = {1}, .data = ids};
    if (compress_open(&context, 1) != COMPRESS_OK) return self;
    for (int number; (number = next_line(ids, &input.dim[1])) > 0;) {
        if (compress_run_prepared(context, runner, &input, 1, &outputs, &count) ==
                COMPRESS_OK &&
            count > 0)
            print_last(number, &outputs[0]);
        else
            fprintf(stderr, "line %d: %s", number, compress_messages(context));
        compress_free_tensors(outputs);
    }
    compress_close(context);
    return NULL;
}

static void answer_all(int threads) {
    pthread_t started[THREADS_MAX];
    int count = 0;
    while (count < threads - 1 &&
           pthread_create(&started[count], NULL, answer, NULL) == 0)
        count++;
    answer(NULL);
    for (int i = 0; i < count; i++) pthread_join(started[i], NULL);
}

int main(int argc, char **argv) {
    CompressContext *context;
    CompressModel *model = NULL;
    const int threads = argc == 3 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > THREADS_MAX) {
        fputs("usage: serve MODEL THREADS <LINES\n", stderr);
        return COMPRESS_USAGE;
    }
    CompressStatus status = compress_open(&context, 0);
    if (status != COMPRESS_OK) return status;
    status = compress_load(context, argv[1], &model);
    if (status == COMPRESS_OK) status = compress_prepare(context, model, &runner);
    compress_free_model(model);
    if (status == COMPRESS_OK) answer_all(threads);
    fputs(compress_messages(context), stderr);
    compress_free_runner(runner);
    compress_close(context);
    return status;
}
