/* Lines of text files. */
#include "io/files/lines.h"

#include "io/files/file.h"
#include "io/files/text_start.h"
#include "io/tokenizers/unicode.h"

#include <string.h>

static bool is_blank(TextSpan line) {
    for (size_t i = 0; i < line.length; i++)
        if (!memchr(" \t\r", line.text[i], 3)) return false;
    return true;
}

Status lines_read(Line **out, int *count, int *all, Arena *arena, const char *path,
                  size_t limit, Diag *diag) {
    char *text;
    size_t length, lines = 1;
    int number = 0;
    TRY(file_read(&text, &length, arena, path, limit, diag));
    TRY(text_start_check(path, text, length, diag));
    const char *stop = text + length;
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    *out = ARENA_ARRAY(arena, Line, lines);
    *count = 0;
    for (const char *end, *at = text + utf8_mark_length(text, length); at < stop;
         at = end + 1) {
        end = memchr(at, '\n', (size_t)(stop - at));
        if (!end) end = stop;
        TextSpan line = {at, (size_t)(end - at)};
        if (line.length > 0 && end[-1] == '\r') line.length--;
        number++;
        if (!is_blank(line)) (*out)[(*count)++] = (Line){line, {path, number, 1}};
    }
    if (all) *all = number;
    return STATUS_OK;
}
