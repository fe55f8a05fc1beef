/* The state of a search: its options, its candidates, and the results. */
#ifndef COMPRESS_SESSION_SEARCH_SEARCH_STATE_H
#define COMPRESS_SESSION_SEARCH_SEARCH_STATE_H

#include "session/search/search_space.h"
#include "session/search/trial.h"
#include "session/session.h"

/* Trials that run at the same time: a rung of the first generation, or children. */
typedef struct SearchRound {
    int number, of; /* of all rounds, from 0 */
    int generation; /* from 1, which is drawn */
    double share;   /* of the training */
    int trials;
} SearchRound;

/* Options. Strings are borrowed; NULL and 0 = not given. */
typedef struct SearchOptions {
    const char *recipe;  /* with ranges */
    StringList sets;     /* "key=value": changes of it */
    StringList env;      /* variables that it may name, as in SessionOptions */
    StringList plugins;  /* plug-ins that are loaded, for trials */
    const char *folder;  /* for everything that the search writes; created */
    const char *program; /* `compress` itself, for trials */
    const char *metric;  /* instead of that of the last evaluate step */
    double max_flops, max_parameters; /* shares of the input model's */
    double max_drop;    /* drop of the metric from the input model; NaN = any */
    int64_t candidates; /* number drawn; 0 = as many as `minutes` allow, or 18 */
    double minutes;
    int64_t rungs;       /* rounds of halving: 1 = all candidates run in full; 0 = 3 */
    int64_t generations; /* 1 = no children; 0 = 8, and 1 where rungs is 1 */
    int64_t jobs, threads, seed;
    const Watch *watch;
    /* Called when a round of trials begins. May be NULL. */
    void *self;
    void (*round_begin)(void *self, const SearchRound *round);
} SearchOptions;

/* Most candidates of a search. */
#define CANDIDATES_MAX 10000

/* One recipe of the space. */
typedef struct Candidate {
    int number;     /* from 1 */
    uint64_t index; /* in the space */
    SearchChoice *choices;
    Tree *passes;             /* without ranges */
    double flops, parameters; /* planned; shares of the input model's */
    bool guessed;             /* the plan estimated them */
    int generation;           /* 1 = drawn; later ones are children */
    int rung;                 /* the last in which it ran, from 0 */
    TrialResult result;       /* there */
    const char *folder;       /* of all its files */
    const char *recipe;       /* file of the full recipe */
    const char *output,
        *log;    /* files of the model, NULL before the last rung, and of the output */
    double drop; /* of the metric, against the input model's; NaN = not known */
    bool over;   /* the result exceeds the budgets, which the plan had estimated */
    bool fits;   /* ran in full, and drops no more than allowed */
    bool front;  /* not beaten by any other that ran in full */
} Candidate;

typedef struct Search {
    SearchOptions options;
    Arena *arena; /* owned */
    Tree *document;
    SearchSpace space;
    Session sized;        /* a planned candidate with its data sets */
    TrialResult baseline; /* of the input model */
    const char *metric;   /* of the values; NULL = not known */
    bool falls;           /* less of it is better */
    Candidate *candidates;
    int count;
    int64_t drawn; /* from the space and children: all that were planned */
    int rungs, generations;
    const Candidate *best; /* NULL = nothing fits */
} Search;

#endif
