/* Search space: a recipe in which some values are left open.
 *
 *     passes:
 *       - choose:
 *           - remove_layer: {count: {choose: [1, 2, 3]}}
 *           - null                                        # no step at all
 *       - prune_ffn: {keep: {between: [64, 256], step: 32}}
 *       - distill: {data: train, lr: {between: [1.0e-4, 1.0e-3], scale: log}}
 *
 * `choose` stands for one of a list, and may stand for a whole step, or several (a list);
 * null among the steps is none. `between` stands for a number between two: whole where
 * both ends are, in steps of 1 or of `step`; else one of 33 that divide the range evenly,
 * with `scale: log` their logarithms. Choices may hold ranges themselves. */
#ifndef COMPRESS_SESSION_SEARCH_SEARCH_SPACE_H
#define COMPRESS_SESSION_SEARCH_SEARCH_SPACE_H

#include "ir/tree.h"

typedef struct SearchSpace {
    const Tree *passes; /* the recipe's, with ranges; borrowed */
    uint64_t size;      /* number of recipes; SEARCH_SPACE_MAX = that many or more */
    int ranges;         /* written in it, each once */
    uint64_t *sizes;    /* values of each range that is not within another's choice */
    int genes;          /* number of these */
} SearchSpace;

#define SEARCH_SPACE_MAX (UINT64_C(1) << 62)

/* Checks all ranges in the list `passes` of a recipe and counts the recipes that they
 * represent. All errors are reported. Fails with STATUS_RECIPE. */
Status search_space_bind(SearchSpace *out, Arena *arena, const Tree *passes, Diag *diag);

/* One value that was chosen. */
typedef struct SearchChoice {
    const char *path; /* of the range: "passes[2].prune_ffn.keep" */
    const Tree *value;
    struct SearchChoice *next;
} SearchChoice;

/* Recipe `index` (below the size) of the space: its passes, without ranges, and if
 * `choices` is given what was chosen, in the order of the document, ranges within a
 * choice as part of it; in the arena. Values keep their places. */
Tree *search_space_recipe(const SearchSpace *space, Arena *arena, uint64_t index,
                          SearchChoice **choices);

/* Fills `indices` with up to `count` different recipes of the space in random order and
 * returns how many there are: all of them if the space has no more. */
int64_t search_space_draw(const SearchSpace *space, uint64_t key, uint64_t *indices,
                          int64_t count);

/* A child of two recipes (a genetic algorithm: Holland, 1975): each range that is not
 * within another's choice has the value of one parent or the other with equal
 * probability; with n ranges about one in n then changes its value, half of these to a
 * neighbour. It may be a parent, or any recipe seen before. `key` seeds its random
 * numbers.
 */
uint64_t search_space_child(const SearchSpace *space, uint64_t key, uint64_t mother,
                            uint64_t father);

#endif
