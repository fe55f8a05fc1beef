/* What the tables of compositions are made of: models, the recipe text of every pass, and
 * chains of passes. */
#ifndef COMPRESS_TESTS_SUPPORT_COMPOSITION_DATA_H
#define COMPRESS_TESTS_SUPPORT_COMPOSITION_DATA_H

#include <stdbool.h>
#include <stddef.h>

/* ---- models ---- */

/* Of the first three every pair of passes is run, of all of them chains. */
typedef enum KindName {
    CLASSIFIES,
    PREDICTS,
    SEES,
    SHARES,
    TWO_TOKENS,
    STAGES,
    KINDS
} KindName;

typedef struct Kind {
    const char *title; /* of its table; NULL without */
    const char *name;  /* in the table of chains */
    bool images;
    const char *config;
} Kind;

#define FAMILY(type, architecture)                                                       \
    "{model_type: " type ", architectures: [" architecture "],\n"                        \
    " hidden_size: 16, num_hidden_layers: 4, num_attention_heads: 4,\n"                  \
    " intermediate_size: 32, hidden_act: gelu, num_labels: 3,\n"                         \
    " initializer_range: 0.2, hidden_dropout_prob: 0.1,\n"
#define WORDS  " vocab_size: 104, max_position_embeddings: 16, type_vocab_size: 2}\n"
#define IMAGES " image_size: 8, patch_size: 4, num_channels: 1}\n"

static const Kind KIND[KINDS] = {
    [CLASSIFIES] = {"BERT that classifies sentences", "BERT, classes", false,
                    FAMILY("bert", "BertForSequenceClassification") WORDS},
    [PREDICTS] = {"BERT that predicts masked words", "BERT, words", false,
                  FAMILY("bert", "BertForMaskedLM") WORDS},
    [SEES] = {"ViT that classifies images", "ViT", true,
              FAMILY("vit", "ViTForImageClassification") IMAGES},
    [SHARES] = {NULL, "ALBERT, classes", false,
                FAMILY("albert",
                       "AlbertForSequenceClassification") " embedding_size: 12,\n" WORDS},
    [TWO_TOKENS] = {NULL, "DeiT", true,
                    FAMILY("deit", "DeiTForImageClassificationWithTeacher") IMAGES},
    [STAGES] = {NULL, "Swin", true,
                "{model_type: swin, architectures: [SwinForImageClassification],\n"
                " embed_dim: 8, depths: [2, 2], num_heads: [2, 4], window_size: 3,\n"
                " mlp_ratio: 2, image_size: 8, patch_size: 1, num_channels: 1,\n"
                " num_labels: 3, initializer_range: 0.2, hidden_dropout_prob: 0.1}\n"}};

/* ---- passes ---- */

/* Options of a pass: `first`, and `again` where it has just run. */
typedef struct Row {
    const char *pass, *first, *again;
    const char *needs; /* step in front of a pair that does not start with it; or NULL */
} Row;

static const Row ROWS[] = {
    {"weight_multiplex", "{group: 2, position: none}",
     "{group: 4, mixing: none, position: none}", NULL},
    {"distill", "{data: d, steps: 1, batch_size: 4, cosine: 1}",
     "{data: d, steps: 1, batch_size: 4, preset: cost_eff, label: 1}", NULL},
    {"finetune", "{data: d, steps: 1, batch_size: 4}",
     "{data: d, steps: 1, batch_size: 4, optimizer: sgd}", NULL},
    {"evaluate", "{data: d, limit: 8}", "{data: d, limit: 8, batch_size: 3}", NULL},
    {"gate", "{max_flops: 1T}", "{max_parameters: 1T}", NULL},
    {"diagnose", "{data: d, limit: 8}", "{data: d, limit: 8, cka: false}", NULL},
    {"remove_layer", "{keep: [1, 2, 3]}", "{drop: [0]}", NULL},
    {"remove_block", "{block: ffn, drop: [0]}", "{block: attention, drop: [1]}", NULL},
    {"remove_attention", "{}", "{}", NULL},
    {"fold_token_type", "{}", "{}", NULL},
    {"factor_embedding", "{rank: 8}", "{rank: 4}", NULL},
    {"factor_linear", "{rank: 4}", "{rank: 2}", NULL},
    {"merge_factors", "{all: true}", "{all: true}", "factor_linear: {rank: 4}"},
    {"importance", "{data: d, limit: 8, batch_size: 4}", "{score: magnitude}", NULL},
    {"prune", "{parameters: 0.9, ranking: per_layer, least_heads: 4, score: magnitude}",
     "{parameters: 0.9, ranking: per_layer, least_heads: 4, score: magnitude}", NULL},
    {"prune_heads", "{keep: 3, score: magnitude}", "{keep: 2, score: magnitude}", NULL},
    {"prune_ffn", "{keep: 20, score: magnitude}", "{keep: 10, score: magnitude}", NULL},
    {"snapshot", "{name: a}", "{name: b}", NULL},
    {"add_exits", "{}", "{}", NULL},
    {"calibrate_exits", "{data: d, limit: 8, flops: 0.9}",
     "{data: d, limit: 8, drop: 100, criterion: patience}", "add_exits: {}"},
    {"reset_weights", "{}", "{}", NULL},
    {"attention_to_t2r", "{feature_size: 3}", "{feature_size: 3}", NULL},
    {"merge_t2r", "{}", "{}", "attention_to_t2r: {feature_size: 3}"},
    {"estimate_posterior", "{data: d, steps: 2, samples: 2, batch_size: 4}",
     "{data: d, steps: 2, samples: 2, batch_size: 4, covariance: kron}", NULL},
    {"cast", "{dtype: f16}", "{dtype: bf16}", NULL},
    {"quantize", "{dtype: int8}", "{dtype: int4, group: 32}", NULL},
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

/* Options that hold in place of a row's, for a kind of model (or KINDS: any) and behind a
 * pass (or NULL: any). The first that fits is taken. */
typedef struct Special {
    KindName kind;
    const char *after, *pass, *options;
} Special;

static const Special SPECIALS[] = {
    {KINDS, "remove_layer", "weight_multiplex", "{groups: [1, 2], position: none}"},
    {SEES, "weight_multiplex", "weight_multiplex",
     "{group: 4, mixing: none, position: none}"},
    {SEES, NULL, "weight_multiplex", "{pooling: mean, mlp_transform: conv}"},
    {KINDS, "snapshot", "distill",
     "{data: d, steps: 1, batch_size: 4, teacher: \"snapshot:a\"}"},
    {PREDICTS, "distill", "distill",
     "{data: d, steps: 1, batch_size: 4, preset: distilbert, attention: 1}"},
    {KINDS, "importance", "prune_heads", "{keep: 3, score: stored}"},
    {KINDS, "importance", "prune_ffn", "{keep: 20, score: stored}"},
};
enum { SPECIAL_COUNT = sizeof SPECIALS / sizeof *SPECIALS };

/* Structural passes with options of other kinds, among themselves: what each pass leaves
 * of layers, heads, sharing, exits and maps differs from what its row above leaves. The
 * first ones are those rows' own options, so that every variant meets them too. */
static const Row VARIANTS[] = {
    {"weight_multiplex", "{group: 2, position: none}", NULL, NULL},
    {"remove_layer", "{drop: [0]}", NULL, NULL},
    {"prune_heads", "{keep: 3, score: magnitude}", "{keep: 2, score: magnitude}", NULL},
    {"prune_ffn", "{keep: 20, score: magnitude}", "{keep: 10, score: magnitude}", NULL},
    {"add_exits", "{}", NULL, NULL},
    {"attention_to_t2r", "{feature_size: 3}", NULL, NULL},
    {"weight_multiplex", "{groups: [1, 3], init: first, mixing: none, position: none}",
     "{groups: [2, 2], init: first, mixing: none, position: none}", NULL},
    {"weight_multiplex", "{groups: [2, 2], mixing_bias: true, position: none}",
     "{groups: [1, 3], mixing_bias: true, position: none}", NULL},
    {"remove_layer", "{count: 2}", "{count: 1}", NULL},
    {"remove_layer", "{drop: [1, 3], prior: random}", "{drop: [1], prior: random}", NULL},
    {"remove_block", "{block: attention, drop: [1]}", "{block: attention, drop: [2]}",
     NULL},
    {"remove_block", "{block: ffn, drop_count: 2}", "{block: ffn, drop_count: 1}", NULL},
    {"prune", "{flops: 0.8, allow_empty: true, score: random}",
     "{flops: 0.9, allow_empty: true, score: random}", NULL},
    {"prune_heads",
     "{ranking: global, keep_total: 6, allow_empty: true, score: magnitude}",
     "{ranking: global, keep_total: 4, allow_empty: true, score: magnitude}", NULL},
    {"prune_heads", "{keep_ratio: 0.5, score: random, prior: random}",
     "{keep: 1, score: random, prior: random}", NULL},
    {"prune_ffn", "{ranking: global, keep_ratio: 0.5, score: magnitude}",
     "{ranking: global, keep_ratio: 0.25, score: magnitude}", NULL},
    {"add_exits", "{layers: [2], head: pooler, final: replace}", NULL, NULL},
    {"add_exits", "{layers: [1, 3], head: linear, token: mean, init: copy}", NULL, NULL},
    {"attention_to_t2r", "{keep_every: 2, feature: elu1}", "{layers: [1], feature: elu1}",
     NULL},
    {"attention_to_t2r",
     "{layers: [0, 1], feature_size: 5, share_qk: false, bias: false}",
     "{layers: [2], feature_size: 5}", NULL},
    {"attention_to_t2r", "{feature_size: 4, share_layers: true}", NULL, NULL},
    {"attention_to_t2r", "{keep_softmax: [0], feature: hedgehog}",
     "{layers: [0], feature: hedgehog}", NULL},
    {"factor_embedding", "{rank: 3}", "{rank: 2}", NULL},
    {"factor_linear", "{rank: 5, roles: [ffn_in, ffn_out, out]}", "{rank: 3}", NULL},
};
enum { VARIANT_COUNT = sizeof VARIANTS / sizeof *VARIANTS };

/* ---- chains ---- */

typedef struct Chain {
    KindName kind;
    const char *steps; /* one a line */
    bool unsure;       /* a plan lacks the numbers to know what the run gives */
} Chain;

#define TRAIN "data: d, steps: 1, batch_size: 4"

static const Chain CHAINS[] = {
    /* The papers' orders. */
    {SEES,
     "weight_multiplex: {init: lsq, pooling: mean, mlp_transform: norm_conv}\n"
     "distill: {" TRAIN ", preset: minivit}\n",
     false},
    {STAGES,
     "weight_multiplex: {layers_left: [1, 1], mixing_bias: true, position: none,"
     " mlp_transform: norm_conv, kernel: 7}\n"
     "distill: {" TRAIN ", preset: minivit}\n",
     false},
    {CLASSIFIES,
     "add_exits\n"
     "finetune: {" TRAIN "}\n"
     "snapshot: {name: assistant}\n"
     "factor_embedding: {rank: 8}\n"
     "importance: {data: d}\n"
     "prune_heads: {keep: 2}\n"
     "prune_ffn: {keep: 16}\n"
     "distill: {" TRAIN ", preset: cost_eff, teacher: \"snapshot:assistant\"}\n"
     "calibrate_exits: {data: d, drop: 100}\n",
     false},
    {PREDICTS,
     "fold_token_type\n"
     "remove_layer: {count: 2}\n"
     "distill: {" TRAIN ", preset: distilbert}\n",
     false},
    /* Shared weights. */
    {CLASSIFIES,
     "weight_multiplex: {position: none}\n"
     "add_exits\n"
     "distill: {" TRAIN ", preset: minivit}\n",
     false},
    {CLASSIFIES,
     "importance: {data: d}\n"
     "weight_multiplex: {position: none}\n"
     "prune_heads: {keep: 2}\n"
     "remove_layer: {drop: [0]}\n"
     "prune_ffn: {keep: 16, score: magnitude}\n",
     false},
    {CLASSIFIES,
     "weight_multiplex: {position: none}\n"
     "weight_multiplex: {position: none}\n",
     false},
    {CLASSIFIES,
     "prune_heads: {ranking: global, keep_ratio: 0.5, score: random}\n"
     "weight_multiplex: {position: none}\n",
     false},
    {CLASSIFIES,
     "prune_ffn: {ranking: global, keep_ratio: 0.5, score: random}\n"
     "weight_multiplex: {position: none}\n",
     false},
    {CLASSIFIES, "weight_multiplex: {mlp_transform: conv, position: none}\n", false},
    {SHARES,
     "prune_heads: {keep: 2, score: magnitude}\n"
     "prune_ffn: {keep: 16, score: magnitude}\n"
     "factor_embedding: {rank: 6}\n"
     "weight_multiplex: {group: 4, position: none}\n"
     "remove_layer: {drop: [0]}\n"
     "add_exits\n",
     false},
    {SHARES, "weight_multiplex: {init: lsq, position: none}\n", false},
    {TWO_TOKENS,
     "add_exits\n"
     "weight_multiplex: {pooling: mean, mlp_transform: conv}\n"
     "prune_heads: {keep: 2, score: magnitude}\n"
     "distill: {" TRAIN "}\n",
     false},
    {STAGES,
     "weight_multiplex: {layers_left: [1, 1], mixing_bias: true, position: none}\n"
     "add_exits\n"
     "prune_heads: {keep_ratio: 0.5, score: magnitude}\n"
     "prune_ffn: {keep: 12, score: magnitude}\n"
     "remove_layer: {drop: [1]}\n"
     "distill: {" TRAIN ", match: origin}\n",
     false},
    {STAGES,
     "remove_layer: {drop: [0]}\n"
     "distill: {" TRAIN ", pairs: [encoder.0=encoder.0]}\n",
     false},
    /* Layers and heads that are gone. */
    {CLASSIFIES,
     "importance: {data: d}\n"
     "prune_heads: {keep: 3}\n"
     "prune_ffn: {keep: 20}\n"
     "prune_heads: {keep: 2}\n",
     false},
    {CLASSIFIES,
     "importance: {data: d}\n"
     "remove_layer: {drop: [1]}\n"
     "prune_heads: {keep: 3}\n",
     false},
    {CLASSIFIES,
     "prune_heads: {ranking: global, keep_total: 3, allow_empty: true, score: random}\n"
     "importance: {data: d}\n"
     "prune_ffn: {keep: 16}\n"
     "add_exits\n"
     "remove_layer: {drop: [0]}\n"
     "distill: {" TRAIN ", preset: cost_eff}\n",
     false},
    {CLASSIFIES,
     "prune_heads: {ranking: global, keep_total: 2, allow_empty: true, score: random}\n"
     "weight_multiplex: {position: none}\n",
     false},
    {CLASSIFIES,
     "prune_heads: {ranking: global, keep_total: 2, allow_empty: true, score: random}\n"
     "distill: {" TRAIN "}\n",
     false},
    {CLASSIFIES,
     "prune_heads: {keep: 2, score: magnitude}\n"
     "distill: {" TRAIN ", attention_form: map}\n",
     false},
    /* Posteriors. */
    {CLASSIFIES,
     "estimate_posterior: {data: d, steps: 3, batch_size: 4, samples: 3}\n"
     "remove_block: {block: ffn, drop: [1], prior: gaussian}\n"
     "prune_heads: {keep: 2, score: relevance, zero: value, prior: gaussian}\n"
     "remove_layer: {drop: [0], prior: gaussian}\n"
     "distill: {" TRAIN "}\n",
     false},
    {CLASSIFIES,
     "weight_multiplex: {position: none}\n"
     "estimate_posterior: {data: d, steps: 3, batch_size: 4, samples: 3}\n"
     "remove_layer: {drop: [0], prior: gaussian}\n",
     false},
    {CLASSIFIES,
     "remove_block: {block: ffn, drop: [1]}\n"
     "weight_multiplex: {position: none}\n",
     false},
    /* Exits. */
    {CLASSIFIES, "calibrate_exits: {data: d, drop: 100}\n", false},
    {CLASSIFIES,
     "add_exits\n"
     "calibrate_exits: {data: d, drop: 100}\n"
     "prune_ffn: {keep: 16, score: magnitude}\n"
     "evaluate: {data: d, exits: rule}\n",
     false},
    {CLASSIFIES,
     "add_exits\n"
     "calibrate_exits: {data: d, drop: 100}\n"
     "remove_layer: {drop: [1]}\n"
     "evaluate: {data: d, exits: rule}\n",
     false},
    {CLASSIFIES,
     "add_exits\n"
     "snapshot: {name: deep}\n"
     "remove_layer: {drop: [1]}\n"
     "distill: {" TRAIN ", teacher: \"snapshot:deep\"}\n",
     false},
    {PREDICTS, "importance: {data: d}\nprune_heads: {keep: 2}\nadd_exits\n", false},
    /* Factors. */
    {PREDICTS,
     "factor_embedding: {rank: 8}\n"
     "finetune: {" TRAIN "}\n"
     "factor_embedding: {energy: 0.9}\n"
     "evaluate: {data: d, metric: perplexity}\n",
     true},
    {CLASSIFIES, "factor_embedding: {rank: 8}\nfactor_embedding: {rank: 12}\n", false},
    {CLASSIFIES,
     "factor_linear: {rank: 6}\n"
     "importance: {data: d}\n"
     "prune_heads: {keep: 2}\n"
     "prune_ffn: {keep: 8}\n"
     "merge_factors\n"
     "distill: {" TRAIN "}\n",
     false},
    {STAGES,
     "factor_linear: {share: 0.5, ranking: each}\n"
     "distill: {" TRAIN "}\n"
     "factor_linear: {energy: 0.6}\n",
     true},
};
enum { CHAIN_COUNT = sizeof CHAINS / sizeof *CHAINS };

#endif
