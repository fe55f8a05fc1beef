/* Comparing the weights of two models: those read by nodes in the same place. */
#ifndef COMPRESS_SESSION_COMPARE_COMPARE_STORAGES_H
#define COMPRESS_SESSION_COMPARE_COMPARE_STORAGES_H

#include "session/compare/compare_nodes.h"

typedef enum StorageChange {
    STORAGE_EQUAL,   /* every value */
    STORAGE_CLOSE,   /* values within the tolerance */
    STORAGE_CHANGED, /* values, or the type that they are stored in */
    STORAGE_CUT,     /* B has some of A's entries: `kept` says which */
    STORAGE_OTHER,   /* shapes differ and no entries are known to be the same */
    STORAGE_REMOVED, /* A's alone */
    STORAGE_ADDED,   /* B's alone */
    STORAGE_CHANGE_COUNT
} StorageChange;

/* "equal", "close", "changed", "cut", "other", "removed", "added". */
const char *storage_change_name(StorageChange change);

typedef struct StoragePair {
    const Storage *a, *b; /* one may be NULL */
    const NodePair
        *at; /* the first nodes that read it; NULL if only its name is the same */
    const char *where; /* the same as text: "encoder.0.q weight" */
    StorageChange change;
    int merged;      /* weights of A that are this one of B: above 1 they became shared */
    int split;       /* weights of B that are this one of A: above 1 they were shared */
    bool measured;   /* both have values that could be compared: */
    double relative; /* |a - b| / |a| (Frobenius), over the entries that both have */
    double largest;  /* largest absolute difference */
    Lineage kept[RANK_MAX]; /* by axis: A's entries that B has; none = all */
    bool by_values;         /* found by comparing entries, not from lineages */
    int64_t heads;          /* if kept[0] is whole heads: how many A has, */
    Lineage kept_heads;     /* and which of them B has */
} StoragePair;

typedef struct StorageComparison {
    StoragePair
        *pairs; /* in the order of the nodes; then those that no pair of nodes reads */
    int count;
    int counts[STORAGE_CHANGE_COUNT];
    int retyped;  /* stored in another type */
    int reshared; /* pairs in which one side is shared and the other is not */
} StorageComparison;

/* Compares storages by the nodes that read them, the others by name. Values are compared
 * if both models have them, as doubles; errors up to `tolerance` count as close.
 * Everything is in the arena. Fails with STATUS_MEMORY. */
Status compare_storages(StorageComparison *out, Arena *arena, const NodeComparison *nodes,
                        const Model *a, const Model *b, double tolerance, Diag *diag);

#endif
