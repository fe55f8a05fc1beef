/* Runs token numbers through a model and prints its first output:
 *
 *     cc outputs.c $(pkg-config --cflags --libs compress) -o outputs
 *     ./outputs llama.h5 2 7 5 3
 */
#include <compress.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS_MAX = 512 };

static void print_tensor(const CompressTensor *tensor) {
    const float *data = tensor->data;
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->dim[i];
    printf("%s:", tensor->name);
    for (int64_t i = 0; i < count; i++) printf(" %g", data[i]);
    printf("\n");
}

int main(int argc, char **argv) {
    CompressContext *context;
    CompressModel *model = NULL;
    CompressTensor *outputs = NULL;
    int32_t ids[TOKENS_MAX];
    size_t count = 0;
    if (argc < 3 || argc > 2 + TOKENS_MAX) {
        fputs("usage: outputs MODEL TOKEN...\n", stderr);
        return COMPRESS_USAGE;
    }
    for (int i = 2; i < argc; i++) ids[i - 2] = atoi(argv[i]);
    const CompressTensor input = {.name = "input_ids",
                                  .type = COMPRESS_I32,
                                  .rank = 2,
                                  .dim = {1, argc - 2},
                                  .data = ids};
    CompressStatus status = compress_open(&context, 0);
    if (status != COMPRESS_OK) return status;
    status = compress_load(context, argv[1], &model);
    if (status == COMPRESS_OK)
        status = compress_run(context, model, &input, 1, &outputs, &count);
    if (status == COMPRESS_OK && count > 0) print_tensor(&outputs[0]);
    fputs(compress_messages(context), stderr);
    compress_free_tensors(outputs);
    compress_free_model(model);
    compress_close(context);
    return status;
}
