/* The program's name: see program.h. */
#include "cli/program.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char OWN[] = "compress";
static const char *name = OWN;

void program_take_name(const char *argument) {
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_.+";
    const char *slash = argument ? strrchr(argument, '/') : NULL;
    const char *base = slash ? slash + 1 : argument;
    if (base && *base && base[strspn(base, PLAIN)] == '\0') name = base;
}

const char *program_name(void) {
    return name;
}

/* Whether a command line may begin at `at`, and does so with the name. */
static bool begins_command(const char *text, const char *at) {
    const char *before = at;
    const char after = at[sizeof OWN - 1];
    if (after != ' ' && after != '`' && after != '\n' && after != '\0') return false;
    while (before > text && before[-1] == ' ') before--;
    if (before == text || before[-1] == '\n') return true;
    return before == at && strchr("`(", at[-1]);
}

void program_print(const char *text, FILE *out) {
    const char *from = text, *at = text;
    if (strcmp(name, OWN) == 0) {
        fputs(text, out);
        return;
    }
    while ((at = strstr(at, OWN))) {
        if (begins_command(text, at)) {
            fwrite(from, 1, (size_t)(at - from), out);
            fputs(name, out);
            from = at + sizeof OWN - 1;
        }
        at += sizeof OWN - 1;
    }
    fputs(from, out);
}

void program_tell(FILE *out, void (*print)(const void *what, FILE *out),
                  const void *what) {
    char *text = NULL;
    size_t length;
    FILE *memory = strcmp(name, OWN) == 0 ? NULL : open_memstream(&text, &length);
    print(what, memory ? memory : out);
    if (!memory) return;
    fclose(memory);
    program_print(text, out);
    free(text);
}
