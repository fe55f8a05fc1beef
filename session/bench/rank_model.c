/* Rank model: see session/bench/rank_model.h. */
#include "session/bench/rank_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

RankTime rank_time(const RankWork *work, const RankCluster *cluster, int64_t ranks) {
    const int64_t own = (work->shards + ranks - 1) / ranks;
    const double threads = (double)cluster->threads * cluster->efficiency;
    const double share = (double)own / (double)work->shards;
    RankTime time = {.compute = work->compute * share / threads,
                     .update = work->update / (double)ranks};
    time.bytes = 2 * (double)(ranks - 1) / (double)ranks * work->gradient;
    time.wire = time.bytes / cluster->bandwidth;
    time.exposed = fmax(0, time.wire - cluster->hidden * time.compute);
    time.meetings = 2 * cluster->latency * ceil(log2((double)ranks));
    time.step = time.compute + time.exposed + time.meetings + time.update;
    return time;
}

double rank_efficiency(const RankWork *work, const RankCluster *cluster, int64_t ranks) {
    return rank_time(work, cluster, 1).step /
           ((double)ranks * rank_time(work, cluster, ranks).step);
}

/* ---- "25G,20us" ---- */

typedef struct Unit {
    const char *name;
    double factor;
} Unit;

/* A number above 0 with one of the units, up to `end`; 0 = something else. */
static double read_quantity(const char *text, const char *end, const Unit *units) {
    char *rest;
    const double number = strtod(text, &rest);
    const size_t length = (size_t)(end - rest);
    if (rest == text || rest > end || !(number > 0) || !isfinite(number)) return 0;
    for (; units->name; units++)
        if (strlen(units->name) == length && strncmp(units->name, rest, length) == 0)
            return number * units->factor;
    return 0;
}

Status rank_network(RankCluster *out, const char *text, Diag *diag) {
    static const Unit RATES[] = {{"", 1},    {"k", 1e3},  {"M", 1e6},
                                 {"G", 1e9}, {"T", 1e12}, {NULL, 0}};
    static const Unit TIMES[] = {
        {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
    const char *comma = strchr(text, ',');
    if (comma) {
        out->bandwidth = read_quantity(text, comma, RATES) / 8;
        out->latency = read_quantity(comma + 1, text + strlen(text), TIMES);
    }
    if (comma && out->bandwidth > 0 && out->latency > 0) return STATUS_OK;
    diag_fail(diag, STATUS_USAGE, LOC_NONE, "--network",
              "expected bits a second and the time of a message, found \"%s\"", text);
    diag_hint(diag, "as in 25G,20us");
    return STATUS_USAGE;
}
