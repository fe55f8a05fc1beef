/* Pages of runs, written: see page.h. */
#include "session/page/page.h"

#include "io/files/file.h"
#include "io/files/outfolder.h"
#include "session/output_files.h"
#include "session/page/html.h"
#include "session/page/markdown.h"
#include "session/page/summary.h"

#include <string.h>

typedef enum PageForm { PAGE_HTML, PAGE_MARKDOWN, PAGE_FOLDER } PageForm;

/* The form that a path asks for; NULL asks for Markdown. */
static Status find_form(PageForm *form, const char *output, Diag *diag) {
    *form = PAGE_MARKDOWN;
    if (!output || text_ends_with(output, ".md")) return STATUS_OK;
    *form = PAGE_HTML;
    if (text_ends_with(output, ".html") || text_ends_with(output, ".htm"))
        return STATUS_OK;
    *form = PAGE_FOLDER;
    if (text_ends_with(output, "/")) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--output",
                     "expected a path that ends in .html, .md or / (a folder), found "
                     "\"%s\"",
                     output);
}

/* Files of a folder of pictures, which may be replaced. */
static bool is_picture_file(const char *name) {
    return text_ends_with(name, ".svg") || text_ends_with(name, ".csv") ||
           strcmp(name, "index.html") == 0 || strcmp(name, "report.md") == 0;
}

static Status write_text(const char *path, const Text *text, Diag *diag) {
    return file_write(path, text->data ? text->data : "", text->length, diag);
}

/* Writes a file of the folder and frees its text. */
static Status write_in(const char *folder, Arena *arena, const char *name, Text *text,
                       Diag *diag) {
    const Status status = write_text(path_join(arena, folder, name), text, diag);
    text_free(text);
    return status;
}

static Status write_files(const char *folder, const Figures *figures, Diag *diag) {
    Arena *arena = figures->arena;
    Text text = {0};
    html_page(&text, figures);
    TRY(write_in(folder, arena, "index.html", &text, diag));
    markdown_page(&text, arena, figures->runs, figures->run_count);
    TRY(write_in(folder, arena, "report.md", &text, diag));
    for (int i = 0; i < figures->count; i++) {
        const Figure *figure = &figures->items[i];
        figure_file(&text, figure);
        TRY(write_in(folder, arena, arena_printf(arena, "%s.svg", figure->slug), &text,
                     diag));
        figure_csv(&text, figure);
        TRY(write_in(folder, arena, arena_printf(arena, "%s.csv", figure->slug), &text,
                     diag));
    }
    return STATUS_OK;
}

static Status write_folder(const char *path, const Figures *figures, Diag *diag) {
    OutFolder *folder = NULL;
    const char *temporary = NULL;
    TRY(outfolder_open(&folder, &temporary, path, is_picture_file, diag));
    return outfolder_end(folder, write_files(temporary, figures, diag), diag);
}

static Status write_form(PageForm form, const Figures *figures, const char *output,
                         Text *said, Diag *diag) {
    Text text = {0};
    Status status = STATUS_OK;
    if (form == PAGE_FOLDER) {
        status = write_folder(output, figures, diag);
    } else if (!output) {
        markdown_page(said, figures->arena, figures->runs, figures->run_count);
        return STATUS_OK;
    } else {
        if (form == PAGE_HTML)
            html_page(&text, figures);
        else
            markdown_page(&text, figures->arena, figures->runs, figures->run_count);
        status = write_text(output, &text, diag);
    }
    text_free(&text);
    if (status == STATUS_OK)
        text_add(said, "wrote %s: %d %s, %d pictures\n", output, figures->run_count,
                 summary_noun(figures->runs, figures->run_count),
                 form == PAGE_MARKDOWN ? 0 : figures->count);
    return status;
}

Status page_make(const char *const *files, int count, const char *output, Text *text,
                 Diag *diag) {
    Arena *arena = arena_create();
    PageForm form = PAGE_MARKDOWN;
    Run *runs = ARENA_ARRAY(arena, Run, (size_t)count + 1);
    Figures *figures = ARENA_NEW(arena, Figures);
    Status status = find_form(&form, output, diag);
    if (status == STATUS_OK && form != PAGE_FOLDER)
        status = output_check(arena, "--output", output, diag);
    if (status == STATUS_OK) status = runs_read(runs, arena, files, count, diag);
    if (status == STATUS_OK) {
        figures_make(figures, arena, runs, count);
        status = write_form(form, figures, output, text, diag);
    }
    arena_destroy(arena);
    return status;
}
