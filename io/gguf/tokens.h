/* Tokens: a tokenizer in GGUF's keys (`tokenizer.ggml.*`), and its conversion from and
 * to tokenizer.json.
 *
 * Three kinds: `llama`, byte-pair encoding over SentencePiece's pieces, with merges in
 * order of scores; `gpt2`, byte-level byte-pair encoding with its merges and the name of
 * the expression that cuts texts into words; `bert`, WordPiece. */
#ifndef COMPRESS_IO_GGUF_TOKENS_H
#define COMPRESS_IO_GGUF_TOKENS_H

#include "io/gguf/gguf.h"
#include "ir/model.h"

/* What a token is, by its number in a file. */
typedef enum TokenType {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
} TokenType;

/* Tokens with a meaning. */
typedef enum TokenUse {
    USE_BOS,
    USE_EOS,
    USE_UNK,
    USE_PAD,
    USE_SEP,
    USE_CLS,
    USE_MASK,
    TOKEN_USES
} TokenUse;

typedef struct Tokens {
    const char *model;  /* "llama", "gpt2", "bert"; NULL = there is no tokenizer */
    const char *pre;    /* for gpt2: how texts are cut into words: "gpt-2" */
    const char **texts; /* [count]; as in tokenizer.json */
    double *scores;     /* [count]; of llama */
    int64_t *types;     /* [count] TokenType */
    int64_t count;
    const char **merges; /* of gpt2, "a b" */
    int64_t merge_count;
    int64_t use[TOKEN_USES];   /* numbers; -1 = none */
    bool add_bos, add_eos;     /* around every text */
    bool add_space;            /* for llama: before every text */
    bool lowercase;            /* of bert */
    const char *chat_template; /* NULL = none */
} Tokens;

/* The tokenizer among a model's assets, filled up with unused tokens to `rows`. Fails
 * with STATUS_MODEL, naming the component, if GGUF has no keys for it or llama.cpp would
 * cut texts differently; with STATUS_FORMAT for damaged JSON. */
Status tokens_of_model(Tokens *out, Arena *arena, const Model *model, int64_t rows,
                       Diag *diag);

/* The tree of a tokenizer.json equivalent to a model's vocab.txt, or its vocab.json and
 * merges.txt; NULL if it has neither. `config` is tokenizer_config.json, NULL = none.
 * Fails with STATUS_FORMAT for damaged JSON. */
Status tokens_of_vocabulary(Tree **out, Arena *arena, const Model *model,
                            const Tree *config, Diag *diag);

/* The same, as tokens, for a SentencePiece model among the assets (tokenizer.model ...);
 * out->count is the number of rows. `found` says whether there is one. Fails with
 * STATUS_MODEL if it is not of the kind `llama`, with STATUS_FORMAT if it is damaged.
 */
Status tokens_of_pieces(bool *found, Tokens *out, Arena *arena, const Model *model,
                        Diag *diag);

/* Appends the keys. */
void tokens_put(GgufWriter *writer, const Tokens *tokens);

/* The tokenizer of a file with `rows` tokens; model NULL if it has no known one, with a
 * warning that names what is not known. Fails with STATUS_FORMAT for keys of another
 * kind or length. */
Status tokens_of_file(Tokens *out, Arena *arena, const GgufFile *file, int64_t rows,
                      Diag *diag);

/* Adds tokenizer.json and tokenizer_config.json for these tokens to a model. */
Status tokens_to_assets(Model *model, const Tokens *tokens, Diag *diag);

/* Keys of a configuration that number the tokens: bos_token_id and the like. */
Tree *tokens_config(Arena *arena, const Tokens *tokens);

/* The expression that cuts texts into words before a `gpt2` tokenizer's merges, by its
 * name in llama.cpp; NULL = unknown. */
typedef struct WordCut {
    const char *name;
    const char *pattern; /* of a pre_tokenizer Split; NULL = ByteLevel's own */
    bool digits;         /* every digit is a word */
} WordCut;
const WordCut *word_cut_by_name(const char *name);

#endif
