/* compress bench: how fast this machine does what runs are made of. */
#include "cli/bench.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "exec/linalg/bf16.h"
#include "exec/linalg/blas.h"
#include "exec/processor.h"
#include "exec/run/ranks.h"

#include <math.h>
#include <string.h>

/* Others' share of the processors from which on times are not to be trusted. */
#define OTHERS_WARNED 0.05

/* ---- the table ---- */

/* A rate in its unit, three digits. */
static const char *rate_text(Arena *arena, const Rate *rate, const RateRow *row) {
    const double value = rate->median / row->divisor;
    if (rate->count == 0) return "-";
    const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return arena_printf(arena, "%.*f", digits, value);
}

/* Width of the middle half of measurements as a share of the median: the larger one. */
static const char *spread_text(Arena *arena, const Rate *alone, const Rate *together) {
    double widest = 0;
    const Rate *rates[] = {alone, together};
    for (int i = 0; i < 2; i++)
        if (rates[i]->count > 0)
            widest = fmax(widest, (rates[i]->high - rates[i]->low) / rates[i]->median);
    return arena_printf(arena, "%.1f %%", 100 * widest);
}

/* A row; with one thread there is nothing to compare it with. */
static void machine_row(TextTable *table, const Machine *machine, RateKind kind,
                        const char *group) {
    Arena *arena = table->arena;
    const RateRow *row = rate_row(kind);
    const Rate *alone = &machine->alone[kind], *all = &machine->together[kind];
    const bool both = alone->count > 0 && all->count > 0;
    table_add(table, "%s", group);
    table_add(table, "%s", row->what);
    table_add(table, "%s", row->unit);
    table_add(table, "%s", rate_text(arena, alone, row));
    if (machine->threads > 1) {
        table_add(table, "%s", rate_text(arena, all, row));
        if (both)
            table_add(table, "%.2f", all->median / alone->median);
        else
            table_add(table, "-");
    }
    table_add(table, "%s", spread_text(arena, alone, all));
}

static void print_heading(const Machine *machine) {
    if (machine->ranks > 1) printf("%d ranks, of each: ", machine->ranks);
    printf("%d thread%s, %d processors, kernels of %s, OpenBLAS of %s, bf16 by %s\n",
           machine->threads, machine->threads > 1 ? "s" : "", machine->processors,
           processor_name(processor_level()), blas_core(), bf16_products());
}

static void print_machine(Arena *arena, const Machine *machine) {
    const bool several = machine->threads > 1;
    TextTable table = table_create(arena, several ? "lllrrrr" : "lllrr");
    const char *const heads[] = {"", "what", "unit", "1 thread"};
    for (int i = 0; i < 4; i++) table_add(&table, "%s", heads[i]);
    if (several) table_add(&table, "%d threads", machine->threads);
    if (several) table_add(&table, "times");
    table_add(&table, "spread");
    const char *group = "";
    for (RateKind kind = 0; kind < RATE_KINDS; kind++) {
        if (machine->alone[kind].count + machine->together[kind].count == 0) continue;
        const char *own = rate_row(kind)->group;
        machine_row(&table, machine, kind, strcmp(own, group) == 0 ? "" : own);
        group = own;
    }
    print_heading(machine);
    table_print(&table, 0, stdout);
    if (machine->bytes > 0)
        printf("disk: files of %s\n", text_size(arena, (int64_t)machine->bytes));
}

/* ---- JSON ---- */

static void put_rate(Arena *arena, Tree *map, const char *key, const Rate *rate) {
    if (rate->count == 0) return;
    Tree *values = tree_put_map(arena, map, key);
    tree_put_real(arena, values, "median", rate->median);
    tree_put_real(arena, values, "low", rate->low);
    tree_put_real(arena, values, "high", rate->high);
    tree_put_int(arena, values, "count", rate->count);
}

static Tree *machine_tree(Arena *arena, const Machine *machine) {
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, map, "threads", machine->threads);
    tree_put_int(arena, map, "processors", machine->processors);
    tree_put_int(arena, map, "ranks", machine->ranks);
    tree_put_string(arena, map, "kernels", processor_name(processor_level()));
    tree_put_string(arena, map, "openblas", blas_core());
    tree_put_string(arena, map, "bf16", bf16_products());
    if (machine->others >= 0)
        tree_put_real(arena, map, "processors_of_others", machine->others);
    if (machine->bytes > 0)
        tree_put_int(arena, map, "disk_bytes", (int64_t)machine->bytes);
    Tree *rates = tree_put_map(arena, map, "rates");
    for (RateKind kind = 0; kind < RATE_KINDS; kind++) {
        Tree *row = tree_put_map(arena, rates, rate_row(kind)->key);
        put_rate(arena, row, "one_thread", &machine->alone[kind]);
        put_rate(arena, row, "all_threads", &machine->together[kind]);
    }
    return map;
}

static void print_json(const Tree *tree) {
    Text text = {0};
    tree_print_json(&text, tree, 2);
    puts(text.data);
    text_free(&text);
}

/* ---- the command ---- */

static void warn_of_others(const Machine *machine, Diag *diag) {
    if (machine->others < OTHERS_WARNED * machine->processors) return;
    diag_warn(diag, LOC_NONE, NULL,
              "other processes used %.1f of the %d processors meanwhile: rates are lower "
              "than they would be",
              machine->others, machine->processors);
}

static Status measure(const Cli *cli, Machine *machine, Diag *diag) {
    const Flags *flags = &cli->flags;
    Progress progress = progress_create(flags->quiet || ranks_number() > 0);
    const Watch watch = progress_watch(&progress);
    const MachineOptions options = {.threads = threads_choose(flags->threads),
                                    .seconds = flags->seconds > 0 ? flags->seconds : 45,
                                    .folder = flags->folder ? flags->folder : ".",
                                    .arena = cli->arena,
                                    .watch = &watch};
    progress_begin(&progress, 0, 0, "bench");
    const Status status = machine_measure(machine, &options, diag);
    progress_clear(&progress);
    return status;
}

/* Without a recipe there is nothing that these would change. */
static Status check_flags(const Flags *flags, Diag *diag) {
    const bool lost =
        flags->model || flags->set.count > 0 || flags->env.count > 0 || flags->no_data;
    if (flags->recipe || !lost) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                     "expected --recipe FILE with --model, --set, --env or --no-data");
}

/* Measures, and tells what that means for the recipe, if there is one. */
static Status bench(const Cli *cli, Forecast *forecast, Diag *diag) {
    Machine machine;
    TRY(check_flags(&cli->flags, diag));
    TRY(ranks_agree(forecast_open(forecast, cli, diag), diag));
    TRY(measure(cli, &machine, diag));
    if (ranks_number() > 0) return STATUS_OK; /* rank 0 tells what it found */
    warn_of_others(&machine, diag);
    if (cli->flags.json) {
        Tree *tree = machine_tree(cli->arena, &machine);
        forecast_put(forecast, &machine, cli->arena, tree);
        print_json(tree);
        return STATUS_OK;
    }
    print_machine(cli->arena, &machine);
    forecast_print(forecast, &machine, cli->arena);
    return STATUS_OK;
}

Status command_bench(const Cli *cli, Diag *diag) {
    Forecast forecast = {0};
    const Status status = bench(cli, &forecast, diag);
    forecast_close(&forecast);
    return status;
}
