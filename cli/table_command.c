/* compress table: reports of runs as rows, aligned, as CSV or as Markdown. */
#include "cli/command.h"
#include "cli/text_table.h"
#include "session/page/markup.h"
#include "session/report/report_table.h"

#include <math.h>
#include <string.h>

/* Values of --format. */
typedef enum TableFormat { FORMAT_TEXT, FORMAT_CSV, FORMAT_MARKDOWN } TableFormat;

/* A cell for people: numbers with units, and nothing as "-". */
static const char *cell_text(Arena *arena, const ReportColumn *column,
                             const ReportCell *cell) {
    if (!cell->text) return "-";
    if (!cell->is_number) return cell->text;
    switch (column->unit) {
    case UNIT_NONE: return cell->text;
    case UNIT_COUNT:
        return cell->number > -9e15 && cell->number < 9e15
                   ? text_grouped(arena, (int64_t)cell->number)
                   : cell->text;
    case UNIT_FLOPS: return text_flops(arena, cell->number);
    case UNIT_METRIC:
        return arena_printf(arena, fabs(cell->number) < 1e7 ? "%.4f" : "%.4g",
                            cell->number);
    case UNIT_SECONDS:
        return arena_printf(arena, fabs(cell->number) < 1e7 ? "%.2f" : "%.4g",
                            cell->number);
    }
    return cell->text;
}

static void print_text(Arena *arena, const ReportTable *it) {
    char *align = ARENA_ARRAY(arena, char, (size_t)it->column_count + 1);
    for (int c = 0; c < it->column_count; c++)
        align[c] = it->columns[c].numbers ? 'r' : 'l';
    TextTable table = table_create(arena, align);
    for (int c = 0; c < it->column_count; c++)
        table_add(&table, "%s", it->columns[c].name);
    for (int i = 0; i < it->rows * it->column_count; i++)
        table_add(&table, "%s",
                  cell_text(arena, &it->columns[i % it->column_count], &it->cells[i]));
    table_print(&table, 0, stdout);
}

/* CSV (RFC 4180); numbers as they stand in the reports, so that they can be computed
 * with. */
static void print_csv(const ReportTable *it) {
    Text csv = {0};
    for (int c = 0; c < it->column_count; c++) {
        if (c > 0) text_add(&csv, ",");
        markup_field(&csv, it->columns[c].name);
    }
    text_add(&csv, "\n");
    for (int i = 0; i < it->rows * it->column_count; i++) {
        const ReportCell *cell = &it->cells[i];
        const bool last = i % it->column_count == it->column_count - 1;
        if (cell->text && cell->is_number)
            text_add(&csv, "%s", cell->text);
        else if (cell->text)
            markup_field(&csv, cell->text);
        text_add(&csv, last ? "\n" : ",");
    }
    fputs(csv.data, stdout);
    text_free(&csv);
}

/* A cell of a Markdown table: what would end it or begin something else is escaped. */
static void print_markdown_cell(Arena *arena, const char *text) {
    char *clean = text_clean(arena_strdup(arena, text));
    for (; *clean; clean++) {
        if (strchr("|\\`*_<>[]", *clean)) putchar('\\');
        putchar(*clean);
    }
}

static void print_markdown(Arena *arena, const ReportTable *it) {
    for (int c = 0; c < it->column_count; c++) {
        fputs("| ", stdout);
        print_markdown_cell(arena, it->columns[c].name);
        putchar(' ');
    }
    puts("|");
    for (int c = 0; c < it->column_count; c++)
        fputs(it->columns[c].numbers ? "|--:" : "|---", stdout);
    puts("|");
    for (int i = 0; i < it->rows * it->column_count; i++) {
        fputs("| ", stdout);
        print_markdown_cell(
            arena, cell_text(arena, &it->columns[i % it->column_count], &it->cells[i]));
        putchar(' ');
        if (i % it->column_count == it->column_count - 1) puts("|");
    }
}

Status command_table(const Cli *cli, Diag *diag) {
    const StringList paths = {cli->args, cli->arg_count};
    const ReportTableOptions options = {cli->flags.columns, cli->flags.sort};
    Tree **reports;
    ReportTable *table = ARENA_NEW(cli->arena, ReportTable);
    TRY(reports_read(&reports, cli->arena, &paths, diag));
    TRY(report_table_make(table, cli->arena, &paths, reports, &options, diag));
    switch ((TableFormat)cli->flags.format) {
    case FORMAT_TEXT: print_text(cli->arena, table); break;
    case FORMAT_CSV: print_csv(table); break;
    case FORMAT_MARKDOWN: print_markdown(cli->arena, table); break;
    }
    return STATUS_OK;
}
