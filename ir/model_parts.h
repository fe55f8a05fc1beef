/* Model parts: what a model is for, and the names by which its parts are known.
 *
 * A family declares them when it builds a graph, passes select by them, and they are
 * saved with the model. All code takes these names from here. */
#ifndef COMPRESS_IR_MODEL_PARTS_H
#define COMPRESS_IR_MODEL_PARTS_H

#include <stdbool.h>

/* What a model's predictions are. N samples, T tokens, V tokens in the vocabulary. */
typedef enum Task {
    TASK_NONE,         /* none of those known here */
    TASK_CLASSIFY,     /* logits [N, classes]: one class per sample */
    TASK_MULTI_LABEL,  /* logits [N, labels]: each label is present or not */
    TASK_REGRESS,      /* logits [N, values]: numbers */
    TASK_FILL_IN,      /* logits [N, T, V]: the tokens that were masked (masked LM) */
    TASK_NEXT_TOKEN,   /* logits [N, T, V]: the next token after every token */
    TASK_TRANSLATE,    /* the same for the target of an encoder-decoder model */
    TASK_LABEL_TOKENS, /* logits [N, T, classes]: one class per token */
    TASK_FIND_SPAN,    /* logits [N, T, 2]: the first and the last token of an answer */
    TASK_CHOOSE,       /* logits [N, 1]: one of a group of samples (Batches.group) */
    TASK_EMBED, /* one vector per sample: output "embedding"; without that output, only
                   hidden states */
    TASK_COUNT
} Task;

/* Printed name ("fill_in"), and the reverse; TASK_COUNT if unknown. */
const char *task_name(Task task);
Task task_find(const char *name);

/* Whether the predictions are tokens of a vocabulary; and whether every token is
 * predicted only from those before it. */
bool task_predicts_tokens(Task task);
bool task_predicts_next(Task task);

/* Stacks: where nodes are (Node.stack). */
#define STACK_EMBEDDINGS         "embeddings"
#define STACK_DECODER_EMBEDDINGS "decoder_embeddings"
#define STACK_ENCODER            "encoder"
#define STACK_DECODER            "decoder"
#define STACK_HEAD               "head"
#define STACK_EXITS              "exits" /* one layer for each exit: passes/exits/exits.h */

/* Outputs. */
#define OUTPUT_LOGITS         "logits"
#define OUTPUT_STATES         "last_hidden_state" /* of the main stack, [N, T, width] */
#define OUTPUT_ENCODER_STATES "encoder_last_hidden_state"
#define OUTPUT_POOLER         "pooler_output" /* [N, width] */
#define OUTPUT_EMBEDDING      "embedding"     /* of a text or image, [N, width] */

/* Inputs. */
#define INPUT_PIXELS      "pixel_values"
#define INPUT_IDS         "input_ids"
#define INPUT_MASK        "attention_mask"
#define INPUT_TYPES       "token_type_ids"
#define INPUT_TARGET_IDS  "decoder_input_ids"
#define INPUT_TARGET_MASK "decoder_attention_mask"

/* Whether an input of this name is a mask of tokens: 1 for tokens that count, 0 for
 * padding. An omitted mask is all ones: there is no padding. */
bool input_is_mask(const char *name);

#endif
