/* Tokenizer: the classes of Hugging Face's folders, which determine what no file says in
 * folders without a tokenizer.json: special tokens, what goes around a text, and how it
 * is cut. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_CLASS_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_CLASS_H

#include "io/tokenizers/tokenizer_build.h"

/* The files that a class works on. */
typedef enum ClassFiles {
    CLASS_WORDPIECE, /* vocab.txt */
    CLASS_MERGES,    /* vocab.json and merges.txt */
    CLASS_PIECES     /* a model of SentencePiece */
} ClassFiles;

/* What goes around a text: the class token or the beginning, the separator or the end. */
typedef enum ClassTemplate {
    AROUND_BERT,    /* [CLS] A [SEP], [CLS] A [SEP] B [SEP] */
    AROUND_ROBERTA, /* <s> A </s>, <s> A </s> </s> B </s> */
    AROUND_END,     /* A </s>, A </s> B </s> */
    AROUND_LAST,    /* A </s>, A B </s> */
    AROUND_FLAGS    /* if add_bos_token and add_eos_token say so */
} ClassTemplate;

typedef struct TokenizerClass {
    const char *name; /* tokenizer_class, without its ending Tokenizer or TokenizerFast */
    const char *types; /* the model_types of such models, between spaces */
    ClassFiles files;
    ClassTemplate around;
    SpecialNames names; /* if the configuration gives none */
    bool add_begin;     /* for AROUND_FLAGS, if the configuration does not say */
    bool shifted;       /* pieces are numbered as in fairseq */
    bool extra_ids;     /* T5's <extra_id_0> ... after the pieces */
    bool digits;        /* words are cut as in Qwen 2 */
} TokenizerClass;

/* The class that tokenizer_config.json names (`config`, NULL = none), else the one of the
 * model that the config.json of the folder describes; NULL if neither says, or if an
 * unknown model has a plain vocabulary. Fails with STATUS_FORMAT, naming it, for a class
 * that is not known for these files. */
Status class_find(const TokenizerClass **out, const Tree *config, Arena *scratch,
                  const Folder *folder, ClassFiles files, Diag *diag);

/* GPT-2's, the default for a vocabulary with merges. */
const TokenizerClass *class_gpt2(void);

/* Fills in missing names with those of a class, which may be NULL. */
void class_names(SpecialNames *names, const TokenizerClass *class);

/* Sets the templates; the special tokens must have their numbers. Fails with
 * STATUS_FORMAT if a needed one has none. */
Status class_template(Tokenizer *self, const TokenizerClass *class, const Tree *config,
                      Loc at, Diag *diag);

/* The tokens that tokenizer_config.json lists by number (added_tokens_decoder); in the
 * arena. Fails with STATUS_FORMAT. */
Status class_added(AddedToken **out, int *count, Arena *arena, const Tree *config,
                   Diag *diag);

/* Fails with STATUS_FORMAT for an additional_special_tokens of tokenizer_config.json
 * (NULL = none) that the tokenizer lacks: it would be an extra token. */
Status class_check_additional(const Tokenizer *self, const Tree *config, Diag *diag);

#endif
