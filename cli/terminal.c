/* Lines for people: see terminal.h. */
#include "cli/terminal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_LEAST = 40, COLUMNS_MOST = 200, COLUMNS_UNKNOWN = 80 };

/* Columns that are known, 0 = none are. */
static int known_columns(FILE *out) {
    struct winsize size;
    const char *given = getenv("COLUMNS");
    const int wanted = given ? atoi(given) : 0;
    if (wanted > 0) return wanted;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int terminal_columns(FILE *out) {
    const int known = known_columns(out);
    const int columns = known > 0 ? known : COLUMNS_UNKNOWN;
    return columns < COLUMNS_LEAST  ? COLUMNS_LEAST
           : columns > COLUMNS_MOST ? COLUMNS_MOST
                                    : columns;
}

/* Columns of the first `length` bytes of UTF-8. */
static int width_of(const char *text, size_t length) {
    int width = 0;
    for (size_t i = 0; i < length; i++) width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

int terminal_fit(const char *text, int columns) {
    int bytes = 0;
    for (int width = 0; text[bytes]; bytes++) {
        width += width_of(text + bytes, 1);
        if (width > columns) break;
    }
    return bytes;
}

void terminal_wrap(FILE *out, const char *words, int used, int indent, int columns) {
    bool first = true; /* of its line */
    for (const char *word = words + strspn(words, " "); *word;) {
        const size_t length = strcspn(word, " ");
        const int width = width_of(word, length);
        if (!first && used + 1 + width > columns) {
            fprintf(out, "\n%*s", indent, "");
            used = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)length, word);
        used += width + !first;
        first = false;
        word += length + strspn(word + length, " ");
    }
    fputc('\n', out);
}

void terminal_print(FILE *out, const char *lines) {
    enum { DEEPER = 6 };
    const int columns = known_columns(out) > 0 ? terminal_columns(out) : 0;
    for (const char *line = lines; *line;) {
        const size_t length = strcspn(line, "\n");
        const size_t lead = strspn(line, " ");
        const char *end = line + length, *rest = line;
        int room = columns;
        while (columns > 0 && width_of(rest, (size_t)(end - rest)) > room) {
            const char *cut = rest + (rest == line ? lead : 0), *best = NULL;
            for (; cut < end && width_of(rest, (size_t)(cut - rest)) <= room; cut++)
                if (*cut == ' ') best = cut;
            if (!best) break;
            fprintf(out, "%.*s\n%*s", (int)(best - rest), rest, (int)lead + DEEPER, "");
            rest = best + strspn(best, " ");
            room = columns - (int)lead - DEEPER;
        }
        fprintf(out, "%.*s", (int)(end - rest), rest);
        line = end;
        if (*line == '\n') fputc(*line++, out);
    }
}

Status terminal_flush(FILE *out, Diag *diag) {
    if (fflush(out) == 0 && !ferror(out)) return STATUS_OK;
    return diag_fail(diag, STATUS_IO, LOC_NONE, NULL,
                     "cannot write to standard output: %s", strerror(errno));
}
