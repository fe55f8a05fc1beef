/* Metrics: the numbers that evaluate's gates check. */
#ifndef COMPRESS_PASSES_EVALUATE_METRIC_H
#define COMPRESS_PASSES_EVALUATE_METRIC_H

#define METRIC_NAMES                                                                     \
    "auto|accuracy|f1|f1_micro|f1_macro|precision|recall|mcc|loss|perplexity|"           \
    "bits_per_character|bleu|mse|pearson|spearman|exact_match|average_precision|"        \
    "recall_at_1|recall_at_10|mrr|cosine|choice_accuracy|"                               \
    "choice_accuracy_normalized|ending_perplexity"
typedef enum Metric {
    METRIC_AUTO,        /* the default for the model's task */
    METRIC_ACCURACY,    /* percent */
    METRIC_F1,          /* percent; two classes: of class 1; more: mean over classes; of
                           entities, of the tokens of an answer: what its judge says */
    METRIC_F1_MICRO,    /* percent; of all labels' decisions together */
    METRIC_F1_MACRO,    /* percent; mean over labels */
    METRIC_PRECISION,   /* percent */
    METRIC_RECALL,      /* percent */
    METRIC_MCC,         /* Matthews correlation, -1 to 1 */
    METRIC_LOSS,        /* mean of the loss against labels: of cross-entropy, nats */
    METRIC_PERPLEXITY,  /* e^loss */
    METRIC_BITS,        /* loss / (ln 2 * characters of a label) */
    METRIC_BLEU,        /* for translations, 0 to 100 */
    METRIC_MSE,         /* mean squared error */
    METRIC_PEARSON,     /* correlation, -1 to 1 */
    METRIC_SPEARMAN,    /* of ranks, -1 to 1 */
    METRIC_EXACT_MATCH, /* percent of answers, or of endings whose tokens are all the
                           likeliest */
    METRIC_AVERAGE_PRECISION, /* percent */
    METRIC_RECALL_1,          /* percent of queries with their match ranked first */
    METRIC_RECALL_10,         /* among the first ten */
    METRIC_MRR,               /* mean reciprocal rank of the first match, 0 to 1 */
    METRIC_COSINE,            /* mean, between two models' embeddings of a text */
    METRIC_CHOICE,            /* percent of texts whose right ending is the likeliest */
    METRIC_CHOICE_NORMALIZED, /* the same by likelihood to the power 1 / bytes */
    METRIC_ENDING,            /* e^mean loss of a right ending, summed over its tokens */
    METRIC_COUNT
} Metric;

/* Those from 0 to 100, and those that are at most 1. */
#define METRICS_TO_100                                                                   \
    (1u << METRIC_ACCURACY | 1u << METRIC_F1 | 1u << METRIC_F1_MICRO |                   \
     1u << METRIC_F1_MACRO | 1u << METRIC_PRECISION | 1u << METRIC_RECALL |              \
     1u << METRIC_BLEU | 1u << METRIC_EXACT_MATCH | 1u << METRIC_AVERAGE_PRECISION |     \
     1u << METRIC_RECALL_1 | 1u << METRIC_RECALL_10 | 1u << METRIC_CHOICE |              \
     1u << METRIC_CHOICE_NORMALIZED)
#define METRICS_TO_1                                                                     \
    (1u << METRIC_MCC | 1u << METRIC_PEARSON | 1u << METRIC_SPEARMAN |                   \
     1u << METRIC_MRR | 1u << METRIC_COSINE)

/* Those for which less is better. */
#define METRICS_OF_LOSS                                                                  \
    (1u << METRIC_LOSS | 1u << METRIC_PERPLEXITY | 1u << METRIC_BITS |                   \
     1u << METRIC_MSE | 1u << METRIC_ENDING)

#endif
