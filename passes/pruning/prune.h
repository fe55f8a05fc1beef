/* Structured pruning: what importance, prune_heads, prune_ffn and prune share.
 *
 * Shen et al., COST-EFF (EMNLP 2022), section 3.2: first-order Taylor importance of heads
 * and feed-forward units (Molchanov et al., ICLR 2017), which are then cut out of the
 * matrices.
 *
 * A block is one attention or one feed-forward block of a layer; its units are heads or
 * hidden units. A unit owns slices of the block's storages. Blocks that share a storage
 * form a group, which keeps the same units everywhere. */
#ifndef COMPRESS_PASSES_PRUNING_PRUNE_H
#define COMPRESS_PASSES_PRUNING_PRUNE_H

#include "passes/budget.h"
#include "passes/oneshot/calibration.h"
#include "passes/oneshot/reconstruct.h"
#include "passes/posterior/prior.h"

typedef enum PruneKind { PRUNE_HEADS, PRUNE_FFN } PruneKind;
enum { PRUNE_KINDS = 2 };

/* Where scores come from; the three after the first are also those that importance
 * measures. */
/* The unit that is removed from attention whose query heads share heads of keys and
 * values; if each has its own, all three are the same. */
typedef enum PruneUnit {
    UNIT_QUERY, /* a query head of every head of keys and values, all of which stay */
    UNIT_GROUP, /* a head of keys and values with all query heads that read it */
    UNIT_HEAD   /* each query head by itself: for scores, not for cutting */
} PruneUnit;

#define SCORE_NAMES "taylor|magnitude|random"
typedef enum PruneScore {
    SCORE_STORED,
    SCORE_TAYLOR,
    SCORE_MAGNITUDE,
    SCORE_RANDOM,
    SCORE_RELEVANCE,     /* of the posterior (relevance.h), only for pruning */
    SCORE_RECONSTRUCTION /* what the layer's outputs lose when the remaining units take
                            over (obs.h), only for pruning */
} PruneScore;

/* auto: global under a budget, else per_layer. */
enum { RANKING_AUTO, RANKING_PER_LAYER, RANKING_GLOBAL };

/* What is zero if a head does nothing: its columns of the output projection, or its
 * values. */
enum { ZERO_OUTPUT, ZERO_VALUE };

/* Options of the pruning passes; each offers those that it uses. */
typedef struct PruneOptions {
    int score;   /* PruneScore */
    int ranking; /* RANKING_ */
    int64_t keep, keep_total;
    double keep_ratio;
    BudgetOptions budget;
    int64_t least_heads, least_units; /* under a budget: of every layer; 0 = 1 */
    bool allow_empty;
    int prior; /* PriorKind */
    int zero;  /* ZERO_ */
    int unit;  /* UNIT_QUERY or UNIT_GROUP */
    bool reconstruct, follow;
    CalibrationOptions calibration;
    const char *stack;
} PruneOptions;

#define PRUNE_DEFAULTS .calibration = CALIBRATION_DEFAULTS

/* Rows of their tables. */
#define PRUNE_FIELD_SCORE                                                                \
    F_CHOICE(PruneOptions, score, "stored|" SCORE_NAMES "|relevance|reconstruction",     \
             "what is kept: the largest scores stored by importance (taylor: only if "   \
             "they are Taylor scores), of weights, random ones, what the posterior "     \
             "finds least plausible to be zero (see estimate_posterior), or what the "   \
             "others can take over least of (reconstruction, needs data)")
#define PRUNE_FIELD_RANKING(units)                                                       \
    F_CHOICE(PruneOptions, ranking, "auto|per_layer|global",                             \
             "compare " units " within each layer, of which the same number or share "   \
             "stays, or over all layers, which then keep different numbers; auto: "      \
             "global under a budget, else per_layer")
#define PRUNE_FIELD_RECONSTRUCT                                                          \
    F_BOOL(PruneOptions, reconstruct,                                                    \
           "the projection behind the units that go is changed so that those that stay " \
           "take over from them, by least squares on the data"),                         \
        F_BOOL(PruneOptions, follow,                                                     \
               "reconstruct: true: blocks also make up for what the blocks before them " \
               "have lost, so that the values behind them follow those of the model "    \
               "before the step; wants several times as many tokens as units"),          \
        F_CALIBRATION(PruneOptions, calibration)
#define PRUNE_FIELD_STACK                                                                \
    F_STRING(PruneOptions, stack, "only this stack of layers", .nullable = true)
#define PRUNE_FIELD_ZERO                                                                 \
    F_CHOICE(PruneOptions, zero, "output|value",                                         \
             "prior: gaussian, score: relevance: what is taken to be zero of a head "    \
             "that goes: what the output projection reads of it, or its values")
#define PRUNE_FIELD_UNIT                                                                 \
    F_CHOICE(PruneOptions, unit, "query|group",                                          \
             "where heads share keys and values: as many queries of each head of keys "  \
             "and values go, which stay, or such heads with all queries that read them")
#define PRUNE_FIELDS(units, least_member)                                                \
    PRUNE_FIELD_SCORE, PRUNE_FIELD_RANKING(units),                                       \
        F_INT(PruneOptions, keep, 1, 100000000, units " kept in every layer"),           \
        F_INT(PruneOptions, keep_total, 1, 1000000000,                                   \
              "ranking: global: " units " kept in all; shared ones count once"),         \
        F_REAL(PruneOptions, keep_ratio, 1e-9, 1,                                        \
               "share of the " units " kept, of each layer or of all"),                  \
        F_BUDGET(PruneOptions, budget, "budget in place of a number"),                   \
        {.name = "least",                                                                \
         .kind = FIELD_INT,                                                              \
         .offset = FIELD_AT(PruneOptions, least_member, int64_t),                        \
         .min = 1,                                                                       \
         .max = 100000000,                                                               \
         .help = "budget: " units " that every layer keeps, 1 when not given"},          \
        F_PRIOR(PruneOptions), PRUNE_FIELD_RECONSTRUCT, PRUNE_FIELD_STACK

/* Slices of a storage: part p of a block's units (PruneParts) owns entries [p * width, (p
 * + 1) * width) of the axis. */
typedef struct PruneSlot {
    Node *leaf;
    Node *owner; /* reads the leaf */
    int axis;
    int64_t width;
    bool reads; /* along the axis the matrix reads the units rather than producing them */
    bool value; /* of the projection that gives a head's values */
} PruneSlot;

/* Slots are at most 17 of projections and of attention, and two of each feature map. */
enum { PRUNE_HEADED = 16, PRUNE_SLOTS = 17 + 2 * PRUNE_HEADED };

/* The slots that scores are computed from: the projection that the block ends in, and
 * for feed-forward blocks also the one it starts with. */
enum { SLOT_OUT, SLOT_FFN_IN };

/* How the units of a block are composed. Parts lie one after another in the weights:
 * units x sets of them, set after set. A unit is one part of each set; scores decide
 * which one. */
typedef struct PruneParts {
    int64_t units;
    int64_t sets; /* 1, or with UNIT_QUERY the heads of keys and values */
    int64_t size; /* heads of a unit; 1 for feed-forward units */
} PruneParts;

typedef struct PruneBlock {
    const char *place; /* "encoder.3", for messages and records */
    const char *stack;
    int layer;
    Node *core; /* the attention node, or the projection ffn_in */
    Node *out;  /* the projection that the block ends in; SLOT_OUT is that of its first
                   factor if it has two */
    Node *gate; /* ffn_gate, in gated feed-forward blocks; else NULL */
    Node *headed[PRUNE_HEADED]; /* nodes with attribute `heads`: attention itself, norms,
                                   rotary positions, feature maps */
    int headed_count;
    PruneParts parts;
    int group;
    PruneSlot slots[PRUNE_SLOTS];
    int slot_count;
    double *scores; /* by part; NULL = not known (planning) */
    int64_t
        rows; /* of the calibration data, with the errors of `out` on them; 0 = none */
    FitErrors errors;
    bool few_rows, raised; /* fewer rows than `out` has inputs; see LinearFit */
} PruneBlock;

/* What a group keeps: increasing units. */
typedef struct PruneGroup {
    PruneParts parts;
    int64_t *unit;  /* by part: the unit that it belongs to */
    double *scores; /* by unit, summed over blocks and parts; NULL = not known */
    int64_t *keep;
    int64_t keep_count;
    double cost; /* under a budget: what one unit takes up, on average */
} PruneGroup;

typedef struct Prune {
    PassContext *ctx;
    Graph *graph;
    PruneKind kind;
    PruneUnit unit;
    const char *stack; /* NULL = all */
    PruneBlock *blocks;
    int block_count;
    PruneGroup *groups;
    int group_count;
    bool guessed; /* planning: it is not known which units stay */
} Prune;

/* "heads" or "feed-forward units". */
const char *prune_units(PruneKind kind);

/* Finds the blocks of a kind and their groups, in graph order; everything lives in the
 * context's arena. Fails with STATUS_MODEL when a block is not built as expected, a
 * storage has users that pruning would break, or blocks that share weights differ. */
Status prune_find(Prune *prune, PassContext *ctx, Graph *graph, PruneKind kind,
                  PruneUnit unit, const char *stack, Diag *diag);

/* Parts of a group or block. */
static inline int64_t prune_part_count(const PruneParts *parts) {
    return parts->units * parts->sets;
}

/* Which parts of a group stay, by what it keeps: kept[part]. */
void prune_mask(bool *kept, const PruneGroup *group);

/* The heads, or feed-forward units, that stay, increasing; in the arena. */
int64_t *prune_kept(Arena *arena, const PruneGroup *group, int64_t *count);

/* Finds by scores which parts make up a unit: in each set, the best part belongs to unit
 * 0, the next one to unit 1. Fills the units' scores, for which there must be room, with
 * the sums. */
void prune_rank_parts(PruneGroup *group, const double *part_scores);

/* Adds to sums[p] the sum over part p's slices in a slot of w * g (`absolute`: of |w g|),
 * g being the gradient of the same layout, 1 everywhere when NULL. */
void prune_sum(const PruneSlot *slot, const float *gradient, bool absolute, double *sums);

/* Fills the blocks' scores from a source other than importance: SCORE_MAGNITUDE (unknown
 * when planning) or SCORE_RANDOM. */
void prune_score(Prune *prune, PruneScore score);

/* Reads the scores that importance stored in the model's provenance. Fails with
 * STATUS_MODEL, with a hint, when no scores fit; when planning, they may be unknown. */
Status prune_read_scores(Prune *prune, const Model *model, bool taylor, Diag *diag);

/* A list with one map per block: stack, layer, units and scores; `arena` may be any. */
Tree *prune_scores_tree(const Prune *prune, Arena *arena);

/* Reduces the stored scores to the units that stay, so that they fit the pruned model;
 * drops them when they do not fit the model. Call before the graph is changed. */
Status prune_cut_scores(const Prune *prune, Model *model, Diag *diag);

/* Fills the scores, one for each group, with the relevance of a unit's zeros; unknown
 * when planning. Fails with STATUS_MODEL, with a hint, without a posterior. */
Status prune_relevance(Prune *prune, int zero, Diag *diag);

/* Conditions the Gaussians on zeros for the units that go, of all kinds together. Call
 * after the choice and before anything is cut. Fails with STATUS_MODEL. */
Status prune_condition(const Prune *prunes, int count, int zero, Diag *diag);

/* Whether a slot is the first in its group with this storage and axis. */
bool prune_is_first(const Prune *prune, const PruneBlock *block, const PruneSlot *slot);

/* Sums the scores of the blocks into their groups, which keep no units yet after that;
 * without scores the choice is a guess. Fails with STATUS_MODEL when a score is not
 * finite. */
Status prune_sum_scores(Prune *prune, Diag *diag);

/* Let a group keep its `count` best units (the first ones if the choice is a guess), and
 * always the first ones. The group's `keep` has room for all units. */
void prune_keep_best(Prune *prune, PruneGroup *group, int64_t count);
void prune_keep_first(PruneGroup *group, int64_t count);

/* Decides what every group keeps, by numbers of units. Fails with STATUS_MODEL when there
 * are too few. */
Status prune_choose(Prune *prune, const PruneOptions *options, Diag *diag);

/* Whether units of all layers are compared with each other. */
bool prune_is_global(const PruneOptions *options);

/* Decides what the groups of one or both kinds keep; the model is not changed. Units
 * with the largest ratio of score to cost stay, as many as the budget has room for, so
 * that no other unit would fit. model_measure of the model afterwards is never above the
 * budget. If scores are not known, or units are compared only within each layer, every
 * group keeps the same share, in the latter case to the unit. Records `budget` and what
 * is reached. Fails with STATUS_MODEL when even the fewest units are too many. */
Status prune_choose_budget(Prune *const *prunes, int count, const Model *model,
                           const PruneOptions *options, Diag *diag);

/* Whether the options need calibration data. */
bool prune_calibrates(const PruneOptions *options);

/* Opens the calibration set for the blocks of all kinds; *out stays NULL when planning.
 */
Status prune_calibrate(Calibration **out, Prune *prunes, int count,
                       const PruneOptions *options, Diag *diag);

/* Scores for score: reconstruction: what each removal adds to the error of its group's
 * outputs on the calibration data, the cheapest first, with all groups unchanged. */
Status prune_obs_scores(Prune *prunes, int count, Calibration *calibration,
                        const PruneOptions *options, Diag *diag);

/* Goes over the groups that lose units, in the order in which they run, each with the
 * outputs of the groups already treated: with score: reconstruction, chooses which of
 * its units stay (the number was chosen before); with `reconstruct`, lets these take
 * over, so that cutting the others changes nothing more, and with `follow` also make up
 * for the groups before. Notes the errors in the blocks. Without a calibration, when
 * planning, only the changed types are updated. */
Status prune_reconstruct(Prune *prunes, int count, Calibration *calibration,
                         const PruneOptions *options, Diag *diag);

/* Cuts everything that the groups do not keep out of the graph. */
Status prune_cut(Prune *prune, Diag *diag);

/* Checks the options of a pruning pass against each other. */
Status prune_check(const void *opaque, const StepSource *source, Diag *diag);

/* A complete pruning pass, for kinds first to last. */
Status prune_run(PassContext *ctx, Model *model, PruneKind first, PruneKind last,
                 const PruneOptions *options, Diag *diag);

/* Replaces an attention block that keeps no head by what it adds to the residual stream:
 * the bias of its output projection. Fails with STATUS_MODEL when the projection does not
 * end in a residual sum. */
Status prune_empty(Prune *prune, PruneBlock *block, Diag *diag);

#endif
