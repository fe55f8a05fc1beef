/* What `compress bench` predicts about a recipe; private to the command. */
#ifndef COMPRESS_CLI_BENCH_H
#define COMPRESS_CLI_BENCH_H

#include "cli/command.h"
#include "session/bench/machine.h"
#include "session/bench/rank_model.h"
#include "session/session.h"

/* A planned recipe, and the cluster to predict it for; ranks 0 = none. Without
 * --network, the cluster's network is as measured between the ranks of the job. */
typedef struct Forecast {
    const Machine *machine;
    Session session;
    RankCluster cluster;
    int64_t ranks;
} Forecast;

/* Checks the flags that describe a cluster and plans the recipe; nothing is measured
 * yet. To be closed whatever it returns. Fails with STATUS_USAGE and as session_plan
 * does. */
Status forecast_open(Forecast *forecast, const Cli *cli, Diag *diag);
void forecast_close(Forecast *forecast);

/* Prints the predictions, by the rates of `machine`. */
void forecast_print(Forecast *forecast, const Machine *machine, Arena *arena);

/* The same as a map: "steps", and with a cluster "on_ranks". */
void forecast_put(Forecast *forecast, const Machine *machine, Arena *arena, Tree *map);

#endif
