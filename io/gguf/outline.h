/* Outline: what a GGUF file says about a model besides its numbers, and the graph built
 * from that.
 *
 * Five kinds of models are known: Llama (architectures `llama` and, if layers differ or
 * lack a block, `deci`), Qwen2 and Qwen3, GPT-2 and BERT. An outline comes from a file's
 * keys or from a graph, and builds the graph of our family; so a model can be written
 * exactly when the graph of its outline equals its own. */
#ifndef COMPRESS_IO_GGUF_OUTLINE_H
#define COMPRESS_IO_GGUF_OUTLINE_H

#include "io/gguf/gguf.h"
#include "ir/model.h"

typedef enum OutlineKind {
    OUTLINE_LLAMA,
    OUTLINE_GPT2,
    OUTLINE_BERT,
    OUTLINE_QWEN2,
    OUTLINE_QWEN3
} OutlineKind;

/* Sizes of a layer's blocks; 0 = it has no such block. */
typedef struct OutlineLayer {
    int64_t heads, kv_heads, units;
    /* llama.cpp requires the block there, so the file has one of these sizes whose
     * weights are zeros, which adds nothing; the model has none. */
    bool empty_attention, empty_units;
} OutlineLayer;

typedef struct Outline {
    OutlineKind kind;
    int64_t vocabulary, width, positions;
    int64_t head_width;
    int64_t types;  /* BERT: token types, 0 = none */
    int64_t labels; /* BERT: classes, 0 = no classifier */
    OutlineLayer *layer;
    int layers;
    double eps, theta;
    bool tied;           /* predictions use the table of tokens */
    bool attention_bias; /* Llama: its projections have biases */
    bool units_bias;     /* Llama: those of the feed-forward block */
    bool pooled;         /* BERT: a projection of the first token */
    int pooling;         /* BERT: llama_pooling_type of an embedding; 0 = none */
    bool normalized;     /* BERT: it has length 1 */
} Outline;

/* Whether it is Llama or one of its relatives. */
static inline bool outline_is_gated(const Outline *outline) {
    return outline->kind != OUTLINE_GPT2 && outline->kind != OUTLINE_BERT;
}

/* Name of the architecture that the outline is written as. */
const char *outline_architecture(const Outline *outline);

/* Outline of a file, its layers in the arena. Names and shapes of tensors decide what
 * keys do not say (biases, tied heads). Fails with STATUS_MODEL for an architecture or a
 * key that implies an unsupported model, with STATUS_FORMAT for keys that are missing,
 * of another kind or out of range. */
Status outline_of_file(Outline *out, Arena *arena, const GgufFile *file, Diag *diag);

/* Outline of a graph, as far as it can be determined; outline_match finds out whether
 * the graph really matches it. Fails with STATUS_MODEL if the graph is of none of the
 * kinds, or has layers that its architecture has no keys for. */
Status outline_of_graph(Outline *out, Arena *arena, const Model *model, Diag *diag);

/* Appends the keys of the outline, without the tokenizer's. */
void outline_put(GgufWriter *writer, Arena *arena, const Outline *outline);

/* The model of an outline, shapes only: a configuration that a family builds, then cut
 * to what each layer has. With `whole`, empty blocks are kept. `tokens` (NULL = none) is
 * a map of further keys for the configuration. */
Status outline_build(Model **out, const Outline *outline, bool whole, const Tree *tokens,
                     const OpTable *ops, Diag *diag);

/* Compares graph `built` with the graph of a model: they must be the same from the
 * outputs on, ignoring names of storages, places, and nodes that do nothing outside
 * training. weights[i] receives the model's storage for storage i of `built`, NULL if
 * the model has no output that needs it. Fails with STATUS_MODEL, naming the first node
 * that differs. */
Status outline_match(const Storage ***weights, Arena *arena, Graph *built, Graph *graph,
                     Diag *diag);

/* ---- tensors ---- */

/* How the rows of a tensor follow from a storage. */
typedef enum TensorOrder {
    ORDER_SAME,
    ORDER_PAIRS,     /* of each head: row j, then j + d/2, as llama.cpp turns them */
    ORDER_TRANSPOSED /* the storage is [in, out] */
} TensorOrder;

enum { SLOT_PARTS = 3 };

/* A tensor of a file, and the storages of the outline's graph whose rows it holds, one
 * after another. */
typedef struct TensorSlot {
    const char *name;
    const char *storage[SLOT_PARTS]; /* names; all of the same shape */
    int parts;
    TensorOrder order;
    int64_t heads; /* of ORDER_PAIRS */
    bool plain;    /* of llama.cpp's own to be f32: added to other values as it is */
    Type type;     /* of one part, as the graph has it */
} TensorSlot;

/* Tensors of the whole graph that outline_build returned, in the order of files. */
void outline_slots(TensorSlot **out, int *count, Arena *arena, const Outline *outline,
                   const Graph *whole);

#endif
