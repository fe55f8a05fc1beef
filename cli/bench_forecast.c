/* What `compress bench` foretells of a recipe: see cli/bench.h. */
#include "cli/bench.h"

#include "cli/text_table.h"
#include "exec/run/ranks.h"
#include "session/bench/network.h"
#include "session/bench/step_time.h"

#include <math.h>

/* ---- the flags ---- */

static Status fail_flag(const char *flag, const char *needs, Diag *diag) {
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, flag, "needs %s", needs);
}

/* --ranks with what it needs. */
static Status bind_cluster(Forecast *forecast, const Flags *flags, Diag *diag) {
    forecast->ranks = flags->ranks;
    forecast->cluster.threads = flags->threads_each ? flags->threads_each : 1;
    if (flags->ranks && !flags->network && ranks_count() == 1)
        return fail_flag("--ranks",
                         "--network, as in --network 25G,20us, or ranks to measure it",
                         diag);
    return flags->network ? rank_network(&forecast->cluster, flags->network, diag)
                          : STATUS_OK;
}

Status forecast_open(Forecast *forecast, const Cli *cli, Diag *diag) {
    const Flags *flags = &cli->flags;
    const SessionOptions options = {.recipe = flags->recipe,
                                    .sets = flags->set,
                                    .env = flags->env,
                                    .model = flags->model,
                                    .threads = flags->threads,
                                    .without_data = flags->no_data};
    *forecast = (Forecast){0};
    TRY(bind_cluster(forecast, flags, diag));
    if (!flags->recipe)
        return flags->ranks ? fail_flag("--ranks", "--recipe", diag) : STATUS_OK;
    TRY(session_open(&forecast->session, &options, diag));
    TRY(session_load(&forecast->session, false, diag));
    return session_plan(&forecast->session, diag);
}

void forecast_close(Forecast *forecast) {
    session_close(&forecast->session);
}

/* ---- steps ---- */

/* "12.3 ms", three digits; seconds from 1 on. */
static const char *short_time(Arena *arena, double seconds) {
    const char *unit = seconds >= 1 ? "s" : seconds >= 1e-3 ? "ms" : "us";
    const double value = seconds * (seconds >= 1 ? 1 : seconds >= 1e-3 ? 1e3 : 1e6);
    const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return arena_printf(arena, "%.*f %s", digits, value, unit);
}

static double time_of_one(const StepTime *time) {
    return time->products + time->memory + time->update;
}

static void add_share(TextTable *table, double part, double whole) {
    table_add(table, "%.0f %%", 100 * part / whole);
}

static void step_row(TextTable *table, const Session *session, int index,
                     const StepTime *time) {
    Arena *arena = table->arena;
    const double one = time_of_one(time);
    table_add(table, "%d %s", index + 1,
              step_title(arena, &session->recipe.steps[index]));
    if (one <= 0) {
        for (int i = 0; i < 7; i++) table_add(table, "-");
        return;
    }
    table_add(table, "%s %s", time->times ? text_grouped(arena, time->times) : "?",
              time->trains ? "steps" : "samples");
    table_add(table, "%s", short_time(arena, one));
    table_add(table, "%s",
              time->times ? text_seconds(arena, step_time_seconds(time)) : "?");
    table_add(table, "%s", step_bound_name(step_time_bound(time)));
    add_share(table, time->products, one);
    add_share(table, time->memory, one);
    add_share(table, time->update, one);
}

static void print_steps(const Forecast *forecast, Arena *arena) {
    static const char *const heads[] = {"step",     "work",     "each",   "all",
                                        "bound by", "products", "memory", "update"};
    const Session *session = &forecast->session;
    TextTable table = table_create(arena, "lrrrlrrr");
    double sum = 0;
    for (int i = 0; i < 8; i++) table_add(&table, "%s", heads[i]);
    for (int i = 0; i < session->planned.count; i++) {
        const StepTime time = step_time(forecast->machine, session, i);
        step_row(&table, session, i, &time);
        sum += step_time_seconds(&time);
    }
    printf("\n%s, foretold:\n", session->recipe.path);
    table_print(&table, 0, stdout);
    printf("all steps: %s\n", text_seconds(arena, sum));
}

/* ---- ranks ---- */

/* The step whose training takes the longest; -1 = none trains. */
static int longest_training(const Forecast *forecast) {
    const Session *session = &forecast->session;
    double longest = -1;
    int found = -1;
    for (int i = 0; i < session->planned.count; i++) {
        const StepTime time = step_time(forecast->machine, session, i);
        const double seconds = time_of_one(&time) * fmax(1, (double)time.times);
        if (!time.trains || seconds <= longest) continue;
        longest = seconds;
        found = i;
    }
    return found;
}

/* What the model asks of the machine, of step `index`: with one thread of it, and how
 * much of its threads works where all do. */
static RankWork rank_work(Forecast *forecast, int index) {
    const Session *session = &forecast->session;
    const StepResult *planned = &session->planned.steps[index].result;
    Machine alone = *forecast->machine;
    alone.threads = 1;
    const StepTime all = step_time(forecast->machine, session, index);
    const StepTime one = step_time(&alone, session, index);
    const double work = one.products + one.memory, spread = all.products + all.memory;
    forecast->cluster.efficiency =
        forecast->cluster.threads > 1 ? fmin(1, work / (all.threads * spread)) : 1;
    if (forecast->cluster.bandwidth == 0)
        network_fit(&forecast->cluster, forecast->machine);
    return (RankWork){.compute = work,
                      .gradient = (double)planned->train_work.weights * sizeof(float),
                      .update = all.update,
                      .shards = planned->train_shards};
}

static void rank_row(TextTable *table, const RankWork *work, const RankCluster *cluster,
                     int64_t ranks) {
    Arena *arena = table->arena;
    const RankTime time = rank_time(work, cluster, ranks);
    table_add(table, "%s", text_grouped(arena, ranks));
    table_add(table, "%s", text_grouped(arena, ranks * cluster->threads));
    table_add(table, "%s", short_time(arena, time.step));
    table_add(table, "%s", short_time(arena, time.compute));
    table_add(table, "%s", short_time(arena, time.exposed));
    table_add(table, "%s", short_time(arena, time.meetings));
    table_add(table, "%s", short_time(arena, time.update));
    table_add(table, "%s", text_size(arena, (int64_t)time.bytes));
    table_add(table, "%.2f", rank_efficiency(work, cluster, ranks));
}

/* 1, 2, 4, ... and the number asked for. */
static int64_t next_ranks(int64_t ranks, int64_t most) {
    return ranks < most && 2 * ranks > most ? most : 2 * ranks;
}

static void print_ranks(Forecast *forecast, Arena *arena) {
    static const char *const heads[] = {"ranks",   "threads",      "step",
                                        "compute", "wire",         "meet",
                                        "update",  "sent by each", "efficiency"};
    const int index = longest_training(forecast);
    TextTable table = table_create(arena, "rrrrrrrrr");
    if (index < 0) {
        printf("no step trains: ranks are foretold for training alone\n");
        return;
    }
    const RankWork work = rank_work(forecast, index);
    for (int i = 0; i < 9; i++) table_add(&table, "%s", heads[i]);
    for (int64_t r = 1; r <= forecast->ranks; r = next_ranks(r, forecast->ranks))
        rank_row(&table, &work, &forecast->cluster, r);
    printf(
        "\nan optimiser step of %d %s on ranks, foretold: shards %lld, threads of a rank "
        "at %.0f %%\n",
        index + 1, step_title(arena, &forecast->session.recipe.steps[index]),
        (long long)work.shards, 100 * forecast->cluster.efficiency);
    table_print(&table, 0, stdout);
}

void forecast_print(Forecast *forecast, const Machine *machine, Arena *arena) {
    forecast->machine = machine;
    if (!forecast->session.bound) return;
    print_steps(forecast, arena);
    if (forecast->ranks) print_ranks(forecast, arena);
}

/* ---- JSON ---- */

static void put_step(Arena *arena, Tree *map, const Step *step, const StepTime *time) {
    tree_put_string(arena, map, "pass", step->pass->name);
    if (time_of_one(time) <= 0) return;
    tree_put_string(arena, map, "unit", time->trains ? "step" : "sample");
    if (time->times) tree_put_int(arena, map, "times", time->times);
    tree_put_int(arena, map, "threads", time->threads);
    tree_put_real(arena, map, "products", time->products);
    tree_put_real(arena, map, "memory", time->memory);
    tree_put_real(arena, map, "update", time->update);
    tree_put_string(arena, map, "bound", step_bound_name(step_time_bound(time)));
    if (time->times) tree_put_real(arena, map, "seconds", step_time_seconds(time));
}

static void put_rank(Arena *arena, Tree *map, const RankWork *work,
                     const RankCluster *cluster, int64_t ranks) {
    const RankTime time = rank_time(work, cluster, ranks);
    tree_put_int(arena, map, "ranks", ranks);
    tree_put_int(arena, map, "threads", ranks * cluster->threads);
    tree_put_real(arena, map, "step", time.step);
    tree_put_real(arena, map, "compute", time.compute);
    tree_put_real(arena, map, "wire", time.wire);
    tree_put_real(arena, map, "exposed", time.exposed);
    tree_put_real(arena, map, "meetings", time.meetings);
    tree_put_real(arena, map, "update", time.update);
    tree_put_real(arena, map, "bytes", time.bytes);
    tree_put_real(arena, map, "efficiency", rank_efficiency(work, cluster, ranks));
}

void forecast_put(Forecast *forecast, const Machine *machine, Arena *arena, Tree *map) {
    const Session *session = &forecast->session;
    forecast->machine = machine;
    if (!session->bound) return;
    Tree *steps = tree_put_list(arena, map, "steps");
    for (int i = 0; i < session->planned.count; i++) {
        const StepTime time = step_time(machine, session, i);
        put_step(arena, tree_add_map(arena, steps), &session->recipe.steps[i], &time);
    }
    const int index = forecast->ranks ? longest_training(forecast) : -1;
    if (index < 0) return;
    const RankWork work = rank_work(forecast, index);
    Tree *rows = tree_put_list(arena, map, "on_ranks");
    for (int64_t r = 1; r <= forecast->ranks; r = next_ranks(r, forecast->ranks))
        put_rank(arena, tree_add_map(arena, rows), &work, &forecast->cluster, r);
}
