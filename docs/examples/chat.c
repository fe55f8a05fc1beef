/* Goes on with what is typed, line after line, and shows words as they are made:
 *
 *     cc chat.c $(pkg-config --cflags --libs compress) -o chat
 *     ./chat llama.h5 '{tokenizer: tokenizer.json, context: 512}'
 *
 * Each line is added to the text so far, of which the writer reads only what is new.
 */
#include <compress.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 1 << 16, LINE_MAX_BYTES = 1024 };

/* The text so far: what was typed and what was made. */
static char text[TEXT_MAX];

static int show(void *self, const char *piece) {
    (void)self;
    fputs(piece, stdout);
    fflush(stdout);
    if (strlen(text) + strlen(piece) + 1 > sizeof text) return 1;
    strcat(text, piece);
    return 0;
}

static CompressStatus converse(CompressContext *context, CompressWriter *writer) {
    char line[LINE_MAX_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        if (strlen(text) + strlen(line) + 1 > sizeof text) break;
        strcat(text, line);
        const CompressStatus status = compress_write(
            context, writer, text, "{max_tokens: 40, stop: [\"\\n\"]}", show, NULL, NULL);
        if (status != COMPRESS_OK) return status;
        show(NULL, "\n");
    }
    return COMPRESS_OK;
}

int main(int argc, char **argv) {
    CompressContext *context;
    CompressModel *model = NULL;
    CompressWriter *writer = NULL;
    if (argc != 3) {
        fputs("usage: chat MODEL '{tokenizer: FILE, context: N}'\n", stderr);
        return COMPRESS_USAGE;
    }
    CompressStatus status = compress_open(&context, 0);
    if (status != COMPRESS_OK) return status;
    status = compress_load(context, argv[1], &model);
    if (status == COMPRESS_OK)
        status = compress_prepare_writer(context, model, argv[2], &writer);
    compress_free_model(model);
    if (status == COMPRESS_OK) status = converse(context, writer);
    fputs(compress_messages(context), stderr);
    compress_free_writer(writer);
    compress_close(context);
    return status;
}
