/* Rank model: predicts how long an optimiser step takes on R ranks with T threads each.
 *
 *     step     = compute + exposed + meetings + update
 *     compute  = C ceil(S / R) / S / (T e)
 *     wire     = 2 (R - 1) / R  G / B
 *     exposed  = max(0, wire - hidden), hidden = h compute
 *     meetings = 2 L ceil(log2 R)
 *     update   = U / R
 *
 * with C the seconds of a mini-batch's runs on one thread, S the shards it is cut into,
 * e the share of a rank's threads that work (1 = all), G the bytes of a gradient, of
 * which each rank sends and gets its share twice (reduce-scatter, then all-gather of
 * weights: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009), B
 * bytes a second of one rank's network, L the seconds of a message, h the share of the
 * computing during which gradients can be sent, and U the seconds of the optimiser on
 * one rank. For R = 1 there is neither wire nor meeting. */
#ifndef COMPRESS_SESSION_BENCH_RANK_MODEL_H
#define COMPRESS_SESSION_BENCH_RANK_MODEL_H

#include "ir/status.h"

#include <stdint.h>

/* Facts from a recipe and a machine. */
typedef struct RankWork {
    double compute;  /* C */
    double gradient; /* G */
    double update;   /* U */
    int64_t shards;  /* S */
} RankWork;

/* Properties of the cluster. */
typedef struct RankCluster {
    int64_t threads;   /* T, of each rank */
    double efficiency; /* e */
    double bandwidth;  /* B */
    double latency;    /* L */
    double hidden;     /* h */
} RankCluster;

/* Seconds of an optimiser step, and bytes that each rank sends. */
typedef struct RankTime {
    double compute, wire, exposed, meetings, update, step, bytes;
} RankTime;

/* The time on `ranks` ranks, at least 1. */
RankTime rank_time(const RankWork *work, const RankCluster *cluster, int64_t ranks);

/* Efficiency of `ranks` ranks compared with one rank of as many threads: 1 = full. */
double rank_efficiency(const RankWork *work, const RankCluster *cluster, int64_t ranks);

/* Reads a network as "25G,20us": bits a second with k, M, G or T, and the time of a
 * message in s, ms, us or ns. Fails with STATUS_USAGE. */
Status rank_network(RankCluster *out, const char *text, Diag *diag);

#endif
