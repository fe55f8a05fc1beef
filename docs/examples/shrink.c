/* Loads a model, lets a pass make it smaller, and saves it:
 *
 *     cc shrink.c $(pkg-config --cflags --libs compress) -o shrink
 *     ./shrink bert/ bert.h5
 */
#include <compress.h>
#include <stdio.h>

int main(int argc, char **argv) {
    CompressContext *context;
    CompressModel *model = NULL;
    if (argc != 3) {
        fputs("usage: shrink MODEL OUTPUT\n", stderr);
        return COMPRESS_USAGE;
    }
    CompressStatus status = compress_open(&context, 0);
    if (status != COMPRESS_OK) return status;
    status = compress_load(context, argv[1], &model);
    if (status == COMPRESS_OK)
        status = compress_apply(context, model, "[quantize: {dtype: int8}]", NULL);
    if (status == COMPRESS_OK) status = compress_save(context, model, argv[2], NULL);
    fputs(compress_messages(context), stderr);
    compress_free_model(model);
    compress_close(context);
    return status;
}
