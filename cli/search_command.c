/* compress search: the recipes of a space that are worth the most for what they cost. */
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "io/files/file.h"
#include "io/files/yaml.h"
#include "session/page/figure.h"
#include "session/page/markup.h"
#include "session/search/generations.h"
#include "session/search/search.h"

#include <math.h>
#include <string.h>

/* Columns of the table for choices, beside those for results. */
enum { CHOICE_COLUMNS = 5 };

/* One search from flags to tables. */
typedef struct SearchRun {
    Arena *arena;
    Progress progress;
    bool begun; /* a round's line is open */
} SearchRun;

static void begin_round(void *self, const SearchRound *round) {
    SearchRun *run = self;
    if (run->begun) progress_end(&run->progress, "done");
    run->begun = true;
    progress_begin(&run->progress, round->number, round->of,
                   round->generation > 1
                       ? arena_printf(run->arena, "%d children, generation %d",
                                      round->trials, round->generation)
                       : arena_printf(run->arena, "%d recipes, %.3g of the training",
                                      round->trials, round->share));
}

/* Last part of a path, which tells the option: "keep " of "passes[2].prune_ffn.keep"; ""
 * where steps are chosen. */
static const char *option_of(Arena *arena, const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? arena_printf(arena, "%s ", dot + 1) : "";
}

/* What a candidate chose, in one line: "remove_layer: {count: 1}, keep 96, lr 0.0003". */
static const char *choices_line(Arena *arena, const Candidate *candidate) {
    Text text = {0};
    for (const SearchChoice *c = candidate->choices; c; c = c->next) {
        Text value = {0};
        yaml_print_line(&value, c->value);
        text_add(&text, "%s%s%s", text.length ? ", " : "", option_of(arena, c->path),
                 c->value->kind == TREE_NULL ? "none" : value.data);
        text_free(&value);
    }
    const char *line = arena_strdup(arena, text.data ? text.data : "");
    text_free(&text);
    return line;
}

static const char *status_name(const Search *search, const Candidate *candidate) {
    const TrialStatus status = candidate->result.status;
    if (status == TRIAL_GATE) return "gate";
    if (status == TRIAL_FAILED) return "failed";
    if (candidate->over) return "above budget";
    if (candidate->rung < search->rungs - 1) return "left early";
    if (candidate == search->best) return "best";
    return candidate->front ? "front" : "";
}

/* ---- the table ---- */

static void add_row(TextTable *table, const Search *search, const Candidate *candidate) {
    const TrialResult *result = &candidate->result;
    table_add(table, "%d", candidate->number);
    table_add(table, "%.3f", result->flops / search->baseline.flops);
    table_add(table, "%.3f",
              (double)result->parameters / (double)search->baseline.parameters);
    table_add(table, "%.4g", result->value);
    table_add(table, "%.3g", candidate->drop);
    table_add(table, "%s", status_name(search, candidate));
    table_add(table, "%s", choices_line(search->arena, candidate));
}

/* Candidates that ran whole, the lightest first. */
static const Candidate **whole_runs(const Search *search, int *count) {
    const Candidate **list =
        ARENA_ARRAY(search->arena, const Candidate *, (size_t)search->count + 1);
    *count = 0;
    for (int i = 0; i < search->count; i++) {
        const Candidate *candidate = &search->candidates[i];
        if (candidate->rung < search->rungs - 1 || candidate->result.status != TRIAL_DONE)
            continue;
        int at = (*count)++;
        for (; at > 0 && list[at - 1]->result.flops > candidate->result.flops; at--)
            list[at] = list[at - 1];
        list[at] = candidate;
    }
    return list;
}

static void print_table(const Search *search) {
    const char *heads[] = {"recipe", "FLOPs", "parameters", "", "drop", "", "choices"};
    TextTable table = table_create(search->arena, "rrrrrll");
    int count;
    const Candidate **runs = whole_runs(search, &count);
    heads[3] = search->metric;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_add(&table, "%s", heads[i]);
    const char *input[] = {"input", "1.000", "1.000"};
    for (int i = 0; i < 3; i++) table_add(&table, "%s", input[i]);
    table_add(&table, "%.4g", search->baseline.value);
    for (int i = 0; i < 3; i++) table_add(&table, "%s", i == 0 ? "0" : "");
    for (int i = 0; i < count; i++) add_row(&table, search, runs[i]);
    table_print(&table, 0, stdout);
}

/* ---- files ---- */

/* All candidates, also those that left early, as a table for other programs. */
static Status write_csv(const Search *search, Diag *diag) {
    const char *path = path_join(search->arena, search->options.folder, "trials.csv");
    Text csv = {0};
    text_add(&csv,
             "recipe,generation,rung,status,flops,parameters,%s,drop,seconds,choices\n",
             search->metric);
    for (int i = 0; i < search->count; i++) {
        const Candidate *c = &search->candidates[i];
        text_add(&csv, "%d,%d,%d,%s,%.6g,%.6g,%.9g,%.9g,%.3f,", c->number, c->generation,
                 c->rung + 1, status_name(search, c), c->flops, c->parameters,
                 c->result.value, c->drop, c->result.seconds);
        markup_field(&csv, choices_line(search->arena, c));
        text_add(&csv, "\n");
    }
    const Status status = file_write(path, csv.data, csv.length, diag);
    text_free(&csv);
    return status;
}

/* Draws what the candidates cost and are worth: those that ran whole, the front among
 * them, and the input model. */
static Status write_picture(const Search *search, Diag *diag) {
    Arena *arena = search->arena;
    int count, front = 0;
    const Candidate **runs = whole_runs(search, &count);
    double *x = ARENA_ARRAY(arena, double, 2 * (size_t)count + 1);
    double *y = ARENA_ARRAY(arena, double, 2 * (size_t)count + 1);
    const char **notes = ARENA_ARRAY(arena, const char *, 2 * (size_t)count + 1);
    for (int i = 0; i < 2 * count; i++) { /* all, then the front again */
        const Candidate *candidate = runs[i % count];
        if (i >= count && !candidate->front) continue;
        const int at = i < count ? i : count + front++;
        x[at] = candidate->result.flops / search->baseline.flops;
        y[at] = candidate->result.value;
        notes[at] = arena_printf(arena, "recipe %d: %s", candidate->number,
                                 choices_line(arena, candidate));
    }
    const double whole = 1;
    const char *input_note = "the model that all recipes start from";
    const ChartSeries series[] = {
        {"recipes", x, y, notes, count, 1, CHART_POINTS, 0},
        {"front", x + count, y + count, notes + count, front, 0,
         CHART_LINE | CHART_POINTS, 0},
        {"input", &whole, &search->baseline.value, &input_note, 1, 2, CHART_POINTS, 0}};
    const Chart chart = {.title = "Recipes of the search",
                         .x_title = "share of the FLOPs",
                         .y_title = search->metric,
                         .series = series,
                         .count = 3};
    const Figure figure = {
        .group = FIGURES_TRADE, .slug = "front", .title = chart.title, .chart = &chart};
    Text svg = {0};
    figure_file(&svg, &figure);
    const char *path = path_join(arena, search->options.folder, "front.svg");
    const Status status = file_write(path, svg.data, svg.length, diag);
    text_free(&svg);
    return status;
}

/* Why there is no best. */
static Status fail_best(const Search *search, Diag *diag) {
    const char *recipe = search->options.recipe;
    const double max_drop = search->options.max_drop;
    int over = 0;
    for (int i = 0; i < search->count; i++) over += search->candidates[i].over;
    if (over > 0 && over == search->count)
        diag_fail(
            diag, STATUS_GATE, LOC_FILE(recipe), NULL,
            "no recipe of the search came out within the budget, by which their plans "
            "guessed");
    else if (isnan(max_drop))
        diag_fail(diag, STATUS_GATE, LOC_FILE(recipe), NULL,
                  "no recipe of the search ran to its end%s",
                  over > 0 ? " within the budget" : "");
    else
        diag_fail(diag, STATUS_GATE, LOC_FILE(recipe), NULL,
                  "no recipe of the search drops at most %g%s", max_drop,
                  over > 0 ? " within the budget" : "");
    diag_hint(diag, "widen the ranges, search longer, or allow %s",
              isnan(max_drop) ? "more" : "a larger drop");
    return STATUS_GATE;
}

/* Writes what is kept of a search, and says where. */
static Status tell_result(const Search *search, Diag *diag) {
    const Candidate *best = search->best;
    const char *folder = search->options.folder;
    print_table(search);
    TRY(write_csv(search, diag));
    TRY(write_picture(search, diag));
    printf("%lld recipes planned, %d of them run, all in %s\n", (long long)search->drawn,
           search->count, path_join(search->arena, folder, "trials.csv"));
    if (!best) return fail_best(search, diag);
    const char *path = path_join(search->arena, folder, "best.yaml");
    const char *comment = arena_printf(
        search->arena, "Found by compress search: %s %.4g at %.3f of the FLOPs.",
        search->metric, best->result.value, best->result.flops / search->baseline.flops);
    TRY(search_write_recipe(search, best, path, comment, diag));
    printf("best: %s, model %s\n", path, best->output);
    return STATUS_OK;
}

static Status run_search(SearchRun *run, Search *search, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    const Watch watch = progress_watch(&run->progress);
    const SearchOptions options = {.recipe = flags->recipe,
                                   .sets = flags->set,
                                   .env = flags->env,
                                   .plugins = flags->plugin,
                                   .folder = flags->folder,
                                   .program = "/proc/self/exe",
                                   .metric = flags->metric,
                                   .max_flops = flags->max_flops,
                                   .max_parameters = flags->max_parameters,
                                   .max_drop = flags->max_drop,
                                   .candidates = flags->candidates,
                                   .minutes = flags->minutes,
                                   .rungs = flags->rungs,
                                   .generations = flags->generations,
                                   .jobs = flags->jobs,
                                   .threads = flags->threads,
                                   .seed = flags->seed,
                                   .watch = &watch,
                                   .self = run,
                                   .round_begin = begin_round};
    if (!flags->recipe || !flags->folder) {
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                  "expected --recipe FILE and --folder FOLDER");
        diag_hint(diag, "`compress search --help` shows the usage");
        return STATUS_USAGE;
    }
    TRY(search_open(search, &options, diag));
    const Status status = search_run(search, diag);
    if (status == STATUS_OK && run->begun) progress_end(&run->progress, "done");
    progress_clear(&run->progress);
    TRY(status);
    return tell_result(search, diag);
}

Status command_search(const Cli *cli, Diag *diag) {
    Search search = {0};
    SearchRun run = {.arena = cli->arena, .progress = progress_create(cli->flags.quiet)};
    diag_on_warning(diag, progress_warn, &run.progress);
    const Status status = run_search(&run, &search, cli, diag);
    diag_on_warning(diag, progress_warn, NULL);
    if (search.arena) search_close(&search);
    return status;
}
