/* Pages of reports: any JSON as the report of a run becomes HTML, Markdown, pictures and
 * tables, in which nothing of it is more than text. */
#include "io/files/json.h"
#include "session/page/html.h"
#include "session/page/markdown.h"
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <string.h>

/* Every '<' of a page begins an element of ours, or ends one. */
static void check_elements(const Text *text) {
    static const char *const ours[] = {
        "a",       "b",       "body",  "circle", "code",     "dd",         "desc",
        "details", "div",     "dl",    "dt",     "fieldset", "figcaption", "figure",
        "footer",  "g",       "h1",    "h2",     "h3",       "head",       "header",
        "html",    "i",       "input", "label",  "legend",   "li",         "link",
        "main",    "meta",    "nav",   "p",      "path",     "pre",        "rect",
        "section", "small",   "span",  "style",  "summary",  "svg",        "table",
        "tbody",   "td",      "text",  "th",     "thead",    "title",      "tr",
        "ul",      "!doctype"};
    for (const char *at = strchr(text->data, '<'); at; at = strchr(at + 1, '<')) {
        const char *name = at + 1 + (at[1] == '/');
        size_t length = 0;
        int known = 0;
        while (isalnum((unsigned char)name[length]) || name[length] == '!') length++;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            known |= strlen(ours[i]) == length && strncmp(ours[i], name, length) == 0;
        fuzz_expect(known, "elements of ours alone");
    }
}

static void check_page(Arena *arena, const Tree *document) {
    Run runs[2];
    Figures *figures = ARENA_NEW(arena, Figures);
    Text text = {0};
    run_of_report(&runs[0], arena, "fuzz.json", document);
    run_of_report(&runs[1], arena, "again.json", document);
    for (int count = 1; count <= 2; count++) {
        figures_make(figures, arena, runs, count);
        html_page(&text, figures);
        fuzz_expect(utf8_is_valid(text.data), "UTF-8");
        check_elements(&text);
        text_free(&text);
        markdown_page(&text, arena, runs, count);
        fuzz_expect(utf8_is_valid(text.data), "UTF-8");
        text_free(&text);
    }
    for (int i = 0; i < figures->count; i++) {
        figure_file(&text, &figures->items[i]);
        check_elements(&text);
        fuzz_expect(!strstr(text.data, "=\"nan") && !strstr(text.data, "=\"inf"),
                    "numbers");
        text_free(&text);
        figure_csv(&text, &figures->items[i]);
        text_free(&text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Tree *document;
    if (json_parse(&document, arena, "fuzz.json", (const char *)data, size, diag) ==
        STATUS_OK)
        check_page(arena, document);
    arena_destroy(arena);
    diag_destroy(diag);
    return 0;
}
