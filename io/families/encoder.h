/* Text encoders: what BERT and its relatives have in common. Private to the families.
 *
 * Embeddings, then post-norm layers (norm1 after residual1, norm2 after residual2), then
 * one of the heads. Inputs: input_ids, attention_mask, and token_type_ids if the family
 * has them, all i32[N, T]. */
#ifndef COMPRESS_IO_FAMILIES_ENCODER_H
#define COMPRESS_IO_FAMILIES_ENCODER_H

#include "io/families/build.h"
#include "io/families/family.h"

/* Configuration keys of a family. */
typedef struct TextKeys {
    const char *width, *layers, *heads, *hidden, *act;
    const char *dropout, *attention_dropout, *head_dropout;
    const char *default_act;
    double default_head_dropout; /* below 0: as `dropout` */
} TextKeys;

/* Storage names of a family: layer i is "<layers>.<i><inside>.<part>". */
typedef struct TextNames {
    const char *layers, *inside;
    const char *q, *k, *v, *out, *norm1, *ffn_in, *ffn_out, *norm2;
} TextNames;

/* Number of buckets of biases by distance, and the distance at which the last one
 * begins. */
enum { TEXT_BUCKETS = 32, TEXT_DISTANCE = 128 };

/* Those of BERT, the names of its sizes, and Family.optional of its pooler: shared by
 * several relatives. */
extern const TextKeys text_bert_keys;
extern const TextNames text_bert_names;
extern const SizeKey text_bert_sizes[];
extern const OptionalOutput text_bert_optional[];

/* Family.follows for families whose layers may lack heads that transformers pruned. */
extern const char *const text_follows[];

typedef struct TextConfig {
    const TextNames *names;
    int64_t vocabulary, positions;
    int64_t types;   /* token types; 0 = the model has none */
    int64_t padding; /* id of tokens that positions, which begin after it, do not count
                        (RoBERTa); -1 = positions are 0, 1, ... */
    int64_t width, layers, heads, hidden; /* hidden: of the feed-forward block */
    int64_t embedding;                    /* width of the embeddings */
    int64_t groups;  /* of layers with the same weights, as in ALBERT */
    const char *act; /* as the activation op names it */
    double eps, dropout, head_dropout;
    bool ffn_dropout; /* dropout also after the feed-forward block */
    const Tree
        *pruned; /* map from layers to lists of heads that they lack; NULL = none */
    const char *distances; /* storage of the biases by distance that all layers add to
                              their scores, [TEXT_BUCKETS, heads] (MPNet); NULL = none */
} TextConfig;

/* Starts a builder on the model and reads what the families share; `types`, `padding`,
 * `embedding`, `groups` and `ffn_dropout` have their usual values. */
Builder text_begin(TextConfig *text, const TextKeys *keys, const TextNames *names,
                   Model *model, Diag *diag);

/* Reads the number of token types, for families that have them. */
void text_read_types(Builder *b, TextConfig *text);

/* Ids to tokens: word, token-type and position embeddings and their norm. */
Node *text_embed(Builder *b, const TextConfig *text);

/* All layers; the result is output `last_hidden_state`. */
Node *text_encode(Builder *b, const TextConfig *text, Node *x);

/* Storage names of the heads, and what differs between families. */
typedef struct TextHead {
    const char *dense, *norm, *decoder, *bias; /* of the masked-LM head */
    const char *act;             /* its activation; NULL = that of the layers */
    const char *pool, *pool_act; /* projection of the first token; NULL = none, no act */
    bool pool_is_trunk;          /* it belongs to the trunk, and its result is output
                                    pooler_output; else only to the classifiers of samples */
    const char
        *sample_act; /* samples are classified by classifier.dense, this activation
                        and classifier.out_proj; NULL = by the pooler and classifier */
    const char *choice_dropout; /* key of the dropout rate before the score of a choice;
                                   NULL = as for samples */
    bool plain_tokens; /* classifiers of tokens use the layers' dropout, not that for
                          samples */
    const char *span_dropout; /* key of the rate before span answers; NULL = no dropout */
} TextHead;

/* The heads of RoBERTa and their Family.heads; MPNet has the same. */
extern const TextHead text_roberta_head;
extern const char *const text_roberta_heads[];

/* The head of a class of transformers, by how its name ends: ...ForMaskedLM (projection,
 * activation, norm, and the word embeddings as decoder, or with `tie_word_embeddings:
 * false` one of its own), ForSequenceClassification, ForTokenClassification,
 * ForQuestionAnswering, ForMultipleChoice: output `logits`; or none. `x`: all tokens. */
void text_head(Builder *b, const TextConfig *text, const TextHead *head,
               const char *class, Node *x);

/* Saved position and type indices are left out; norms of early checkpoints say gamma and
 * beta. */
const char *text_rename(Arena *arena, const char *tensor);

/* Whether a tensor belongs to a head of any of these families. */
bool text_spare(const char *tensor);

#endif
