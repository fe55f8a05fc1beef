/* Translates each line of standard input, and says what came out as JSON:
 *
 *     cc translate.c $(pkg-config --cflags --libs compress) -o translate
 *     ./translate marian.h5 '{tokenizer: ru.json, target_tokenizer: en.json}' <sentences
 */
#define _POSIX_C_SOURCE 200809L
#include <compress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 16 }; /* translated side by side */

static size_t read_lines(char **lines) {
    size_t count = 0, room = 0;
    char *line = NULL;
    while (count < LINES_MAX && getline(&line, &room, stdin) > 0) {
        line[strcspn(line, "\n")] = 0;
        lines[count++] = line;
        line = NULL;
        room = 0;
    }
    free(line);
    return count;
}

static CompressStatus translate(CompressContext *context,
                                CompressTranslator *translator) {
    char *lines[LINES_MAX], *json;
    CompressStatus status = COMPRESS_OK;
    size_t count;
    while (status == COMPRESS_OK && (count = read_lines(lines)) > 0) {
        status = compress_translate(context, translator, (const char *const *)lines,
                                    count, &json);
        if (status == COMPRESS_OK) puts(json);
        compress_free_text(json);
        for (size_t i = 0; i < count; i++) free(lines[i]);
    }
    return status;
}

int main(int argc, char **argv) {
    CompressContext *context;
    CompressModel *model = NULL;
    CompressTranslator *translator = NULL;
    if (argc < 2 || argc > 3) {
        fputs("usage: translate MODEL [OPTIONS]\n", stderr);
        return COMPRESS_USAGE;
    }
    CompressStatus status = compress_open(&context, 0);
    if (status != COMPRESS_OK) return status;
    status = compress_load(context, argv[1], &model);
    if (status == COMPRESS_OK)
        status = compress_prepare_translator(context, model, argv[2], &translator);
    compress_free_model(model);
    if (status == COMPRESS_OK) status = translate(context, translator);
    fputs(compress_messages(context), stderr);
    compress_free_translator(translator);
    compress_close(context);
    return status;
}
