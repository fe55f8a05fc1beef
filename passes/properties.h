/* Properties of models: what passes need and leave, in terms that apply to any graph.
 *
 * A pass declares them in its record (Pass.effects). The pipeline checks them before the
 * pass runs; docs/composition.md is written from them, and the tests of every ordered
 * pair of passes compare the declarations with what the models show and what each pass
 * refuses. */
#ifndef COMPRESS_PASSES_PROPERTIES_H
#define COMPRESS_PASSES_PROPERTIES_H

#include "ir/model.h"

typedef enum ModelProperty {
    MODEL_CLASSIFIER = 1 << 0,         /* logits [N, classes] */
    MODEL_EXITS = 1 << 1,              /* early exits */
    MODEL_EXIT_RULE = 1 << 2,          /* a stored rule for leaving at them */
    MODEL_SOFTMAX_ATTENTION = 1 << 3,  /* in some layer */
    MODEL_LINEAR_ATTENTION = 1 << 4,   /* in some layer */
    MODEL_ADDITIVE_ATTENTION = 1 << 5, /* of a recurrent decoder */
    MODEL_FEATURE_MAPS = 1 << 6,       /* that could be merged into projections */
    MODEL_MIXED_HEADS = 1 << 7,        /* matrices between heads, around the softmax */
    MODEL_SHARED_LAYERS = 1 << 8,      /* a storage that several layers read */
    MODEL_WHOLE_LAYERS = 1 << 9,       /* attention and a feed-forward block in each layer
                                          of the main stack, or in none */
    MODEL_EQUAL_WIDTHS = 1 << 10,      /* and queries and values of equal width */
    MODEL_WORD_EMBEDDING = 1 << 11,    /* that looks words up */
    MODEL_FACTORED_EMBEDDING = 1 << 12, /* in a narrow table, followed by a projection */
    MODEL_TOKEN_TYPES = 1 << 13,
    MODEL_IMPORTANCE = 1 << 14,       /* stored scores of heads and units */
    MODEL_FACTORED_LINEARS = 1 << 15, /* projections of two matrices each */
    MODEL_QUANTISED = 1 << 16         /* weights of 8 or 4 bits */
} ModelProperty;
enum { MODEL_PROPERTIES = 17 };

/* What a pass needs of a model and may do to it, as ORs of ModelProperty. */
typedef struct PassEffects {
    unsigned needs;   /* the model must have all of these */
    unsigned refuses; /* and none of these */
    unsigned gives;   /* what a model may have afterwards that it did not have before */
    unsigned takes;   /* what it may have lost */
} PassEffects;

/* The properties that a model has. */
unsigned model_properties(const Model *model);

/* Whether a node is a feature map with a matrix or a scale: otherwise it is only its
 * function, and there is nothing to merge. */
bool node_is_mergeable(const Node *node);

/* The name of one property, in words: "early exits". */
const char *property_name(ModelProperty property);

/* Appends the names of properties, "a, b"; "-" for none. */
void properties_print(Text *text, unsigned properties);

#endif
