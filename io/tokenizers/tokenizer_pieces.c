/* Tokenizer: reading a model of SentencePiece, with what the class of the tokenizer adds.
 *
 * Texts become pieces as SentencePiece makes them; the special tokens, which it never
 * finds in a text, are looked for before, as Hugging Face's library does. */
#include "io/tokenizers/tokenizer_class.h"
#include "io/tokenizers/tokenizer_readers.h"

#include "io/tokenizers/sentencepiece.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { EXTRA_IDS = 100, EXTRA_IDS_MAX = 10000, FAIRSEQ_SPECIALS = 4 };

typedef struct PiecesReading {
    Tokenizer *self;
    Arena *scratch;
    const Folder *folder;
    Loc at;
    Diag *diag;
    const TokenizerClass *class; /* NULL = SentencePiece alone */
    const Tree *config;          /* tokenizer_config.json, NULL = none */
    SpecialNames names;
    PieceModel pieces;
    int32_t *numbers; /* [pieces.count] of their tokens, -1 = none */
    AddedToken *listed, *added;
    int listed_count, added_count;
} PiecesReading;

/* --- tokens and their numbers --- */

/* Puts a token at the next number. */
static Status put_next(const PiecesReading *r, Tree *vocab, const char *text) {
    if (tree_get(vocab, text))
        return diag_fail(r->diag, STATUS_FORMAT, r->at, "pieces",
                         "expected pieces that differ, found '%.64s' again", text);
    tree_put_int(r->scratch, vocab, text, vocab->count);
    return STATUS_OK;
}

/* T5's tokens for what is to be filled in, the last one first. */
static Status put_extra_ids(const PiecesReading *r, Tree *vocab) {
    const Tree *value;
    TRY(json_member(&value, r->config, "extra_ids", TREE_INT, "", r->diag));
    const int64_t count = value ? value->integer : EXTRA_IDS;
    if (count < 0 || count > EXTRA_IDS_MAX)
        return diag_fail(r->diag, STATUS_FORMAT, value->loc, "extra_ids",
                         "expected 0 to %d, found %lld", EXTRA_IDS_MAX, (long long)count);
    for (int64_t i = count - 1; i >= 0; i--) {
        const char *text = arena_printf(r->scratch, "<extra_id_%lld>", (long long)i);
        if (!tree_get(vocab, text)) TRY(put_next(r, vocab, text));
    }
    return STATUS_OK;
}

/* fairseq's numbers: four special tokens of its own, the pieces but for the first three,
 * and the mask. */
static Status put_shifted(const PiecesReading *r, Tree *vocab) {
    static const char *const SPECIALS[FAIRSEQ_SPECIALS] = {"<s>", "<pad>", "</s>",
                                                           "<unk>"};
    for (int i = 0; i < FAIRSEQ_SPECIALS; i++) TRY(put_next(r, vocab, SPECIALS[i]));
    for (int32_t i = FAIRSEQ_SPECIALS - 1; i < r->pieces.count; i++)
        TRY(put_next(r, vocab, r->pieces.texts[i].text));
    return put_next(r, vocab, "<mask>");
}

/* The vocabulary as a map: the file vocab.json, or what the class makes of the pieces. */
static Status make_vocab(const PiecesReading *r, const char *vocab_file, Tree **out) {
    Tree *vocab = tree_new(r->scratch, TREE_MAP, r->at);
    *out = vocab;
    if (vocab_file) {
        TRY(folder_read_json(out, r->folder, r->scratch, vocab_file, VOCABULARY_BYTES_MAX,
                             r->diag));
        if ((*out)->kind == TREE_MAP) return STATUS_OK;
        return diag_fail(r->diag, STATUS_FORMAT, (*out)->loc, NULL,
                         "expected a map, found %s", tree_kind_name((*out)->kind));
    }
    if (r->class && r->class->shifted) return put_shifted(r, vocab);
    for (int32_t i = 0; i < r->pieces.count; i++)
        TRY(put_next(r, vocab, r->pieces.texts[i].text));
    return r->class && r->class->extra_ids ? put_extra_ids(r, vocab) : STATUS_OK;
}

/* Whether a token is one by how it is spelt: T5's for what is to be filled in, and the
 * language that Marian is to write, ">>fra<<". */
static bool is_special(const TokenizerClass *class, const char *text) {
    if (class->extra_ids) return strncmp(text, "<extra_id_", 10) == 0;
    return class->around == AROUND_LAST && strncmp(text, ">>", 2) == 0 &&
           text_ends_with(text, "<<");
}

/* Marks the tokens that are special: by name, by spelling, or as pieces that are never
 * found in a text. */
static bool *mark_special(const PiecesReading *r) {
    const Vocabulary *vocabulary = &r->self->vocabulary;
    const SpecialNames *names = &r->names;
    const char *const all[] = {names->pad,  names->unk, names->cls, names->sep,
                               names->mask, names->bos, names->eos};
    bool *special = ARENA_ARRAY(r->scratch, bool, (size_t)vocabulary->capacity);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int32_t id =
            all[i] ? vocabulary_find(vocabulary, all[i], strlen(all[i])) : -1;
        if (id >= 0) special[id] = true;
    }
    for (int32_t i = 0; i < r->pieces.count; i++)
        if (r->numbers[i] >= 0 &&
            (r->pieces.types[i] == PIECE_CONTROL || r->pieces.types[i] == PIECE_UNKNOWN))
            special[r->numbers[i]] = true;
    for (int32_t i = 0; i < vocabulary->capacity; i++)
        if (r->class && is_special(r->class, vocabulary->tokens[i].text))
            special[i] = true;
    return special;
}

/* The tokens that are looked for in texts: those the configuration lists, and the special
 * ones. */
static void collect_added(PiecesReading *r) {
    const Vocabulary *vocabulary = &r->self->vocabulary;
    const char *mask = r->class && r->class->shifted ? r->names.mask : NULL;
    bool *special = mark_special(r);
    size_t most = (size_t)r->listed_count;
    for (int32_t i = 0; i < vocabulary->capacity; i++) most += special[i];
    AddedToken *added = ARENA_ARRAY(r->self->arena, AddedToken, most);
    int count = 0;
    for (int i = 0; i < r->listed_count; i++) {
        special[r->listed[i].id] = false;
        added[count] = r->listed[i];
        added[count++].normalized = false; /* SentencePiece sees what is between them */
    }
    for (int32_t i = 0; i < vocabulary->capacity; i++) {
        const char *text = vocabulary->tokens[i].text;
        if (special[i])
            added[count++] = (AddedToken){.content = text,
                                          .id = i,
                                          .special = true,
                                          .lstrip = mask && strcmp(text, mask) == 0};
    }
    r->added = added;
    r->added_count = count;
}

static Status place_tokens(PiecesReading *r, const char *vocab_file) {
    static const char EXTRA[] = "added_tokens.json";
    Tokenizer *self = r->self;
    const PieceModel *pieces = &r->pieces;
    Tree *vocab;
    TRY(make_vocab(r, vocab_file, &vocab));
    TRY(class_added(&r->listed, &r->listed_count, self->arena, r->config, r->diag));
    if (folder_has(r->folder, EXTRA) && r->listed_count == 0)
        return diag_fail(r->diag, STATUS_FORMAT,
                         LOC_FILE(folder_file(r->folder, self->arena, EXTRA)), NULL,
                         "further tokens are read from the added_tokens_decoder of "
                         "tokenizer_config.json alone");
    TRY(tokenizer_place(self, vocab, r->listed, r->listed_count, r->at, "pieces",
                        r->diag));
    r->numbers = ARENA_ARRAY(self->arena, int32_t, (size_t)pieces->count);
    for (int32_t i = 0; i < pieces->count; i++)
        r->numbers[i] = vocabulary_find(&self->vocabulary, pieces->texts[i].text,
                                        pieces->texts[i].length);
    collect_added(r);
    return tokenizer_add(self, r->added, r->added_count, r->at, r->diag);
}

/* --- models --- */

static int32_t find_unknown(const PiecesReading *r) {
    for (int32_t i = 0; i < r->pieces.count; i++)
        if (r->pieces.types[i] == PIECE_UNKNOWN) return r->numbers[i];
    return -1;
}

static Status set_unigram(const PiecesReading *r) {
    const PieceModel *pieces = &r->pieces;
    Unigram *unigram = &r->self->unigram;
    bool *left_out = ARENA_ARRAY(r->scratch, bool, (size_t)pieces->count);
    float least = FLT_MAX, most = FLT_MIN; /* SentencePiece starts so, too */
    const int32_t unknown = find_unknown(r);
    for (int32_t i = 0; i < pieces->count; i++) {
        left_out[i] =
            pieces->types[i] != PIECE_NORMAL && pieces->types[i] != PIECE_USER_DEFINED;
        if (!left_out[i] && r->numbers[i] < 0 && unknown < 0)
            return diag_fail(r->diag, STATUS_FORMAT, r->at, "pieces",
                             "'%.64s' is not in the vocabulary, which has no unknown "
                             "token",
                             pieces->texts[i].text);
        if (pieces->types[i] != PIECE_NORMAL) continue;
        least = fminf(least, (float)pieces->scores[i]);
        most = fmaxf(most, (float)pieces->scores[i]);
    }
    for (int32_t i = 0; i < pieces->count; i++)
        if (pieces->types[i] == PIECE_USER_DEFINED)
            pieces->scores[i] = (double)((float)pieces->texts[i].length * most) - 0.1;
    *unigram = (Unigram){.vocabulary = &r->self->vocabulary,
                         .texts = pieces->texts,
                         .scores = pieces->scores,
                         .numbers = r->numbers,
                         .pieces = pieces->count,
                         .unknown = unknown,
                         .unknown_score = (double)(least - (float)UNIGRAM_PENALTY),
                         .byte_fallback = pieces->byte_fallback,
                         .single = true};
    unigram_bytes(unigram);
    return unigram_build(unigram, r->self->arena, left_out, r->at, "pieces", r->diag);
}

static Status set_bpe(const PiecesReading *r) {
    const PieceModel *pieces = &r->pieces;
    Tokenizer *self = r->self;
    Bpe *bpe = &self->bpe;
    bool *joined = ARENA_ARRAY(r->scratch, bool, (size_t)pieces->count);
    for (int32_t i = 0; i < pieces->count; i++) {
        joined[i] = pieces->types[i] == PIECE_NORMAL;
        if (r->numbers[i] != i)
            return diag_fail(r->diag, STATUS_FORMAT, r->at, "trainer_spec.model_type",
                             "bpe is not supported where tokens have other numbers than "
                             "the pieces");
    }
    bpe->byte_fallback = pieces->byte_fallback;
    bpe->fuse_unknown = true;
    bpe->unknown = find_unknown(r);
    TRY(bpe_add_splits(bpe, self->arena, &self->vocabulary, pieces->scores, joined,
                       pieces->count, r->at, "pieces", r->diag));
    return bpe_bytes(bpe, r->at, r->diag);
}

/* Pieces that are found as they are: the map leaves them, and merges stop at them. */
static Status set_user_defined(const PiecesReading *r, PieceRules *rules) {
    Tokenizer *self = r->self;
    const PieceModel *pieces = &r->pieces;
    AddedToken *kept = ARENA_ARRAY(self->arena, AddedToken, (size_t)pieces->count);
    AddedSet *set = ARENA_NEW(self->arena, AddedSet);
    static const Normalizer NOTHING = {0};
    int count = 0;
    for (int32_t i = 0; i < pieces->count; i++)
        if (pieces->types[i] == PIECE_USER_DEFINED && r->numbers[i] >= 0)
            kept[count++] = (AddedToken){.content = pieces->texts[i].text,
                                         .id = r->numbers[i],
                                         .normalized = true};
    if (count == 0) return STATUS_OK;
    TRY(added_collect(set, self->arena, kept, count, &NOTHING, r->at, r->diag));
    rules->kept = &set->vocabulary;
    if (pieces->algorithm == PIECES_BPE) self->normalized = *set;
    return STATUS_OK;
}

/* --- settings --- */

static Status set_normalizer(const PiecesReading *r) {
    const PieceModel *pieces = &r->pieces;
    NormalizeStep *step = &r->self->normalizer.steps[0];
    bool legacy, prefix;
    TRY(json_flag(&legacy, r->config, "legacy", true, "", r->diag));
    TRY(json_flag(&prefix, r->config, "add_prefix_space", true, "", r->diag));
    *step = (NormalizeStep){.kind = NORMALIZE_PIECES,
                            .pieces = {.map = pieces->map,
                                       .has_map = pieces->has_map,
                                       .prefix = pieces->dummy_prefix && prefix,
                                       .first_only = !legacy,
                                       .trim = pieces->trim}};
    r->self->normalizer.count = 1;
    return set_user_defined(r, &step->pieces);
}

/* Marks are spaces, bytes are joined, and what space stands in front goes. */
static void set_decoder(const PiecesReading *r) {
    DecodeRules *rules = &r->self->decode;
    Arena *arena = r->self->arena;
    rules->steps[rules->count++] =
        (DecodeStep){.kind = DECODE_REPLACE,
                     .regex = regex_literal(arena, PIECE_MARK, strlen(PIECE_MARK)),
                     .to = {" ", 1}};
    if (r->pieces.byte_fallback)
        rules->steps[rules->count++] = (DecodeStep){.kind = DECODE_BYTE_FALLBACK};
    rules->strip = (Token){" ", 1};
    rules->most = r->pieces.trim ? INT_MAX : r->pieces.dummy_prefix;
}

/* Settings of transformers that would change the tokens. */
static Status check_config(const PiecesReading *r) {
    const Tree *arguments, *languages;
    bool lower;
    TRY(json_member(&arguments, r->config, "sp_model_kwargs", TREE_MAP, "", r->diag));
    TRY(json_flag(&lower, r->config, "do_lower_case", false, "", r->diag));
    TRY(json_member(&languages, r->config, "supported_language_codes", TREE_LIST, "",
                    r->diag));
    const char *key = arguments && arguments->count > 0 ? "sp_model_kwargs" : NULL;
    if (lower) key = "do_lower_case";
    if (languages && languages->count > 0) key = "supported_language_codes";
    if (!key) return STATUS_OK;
    diag_fail(r->diag, STATUS_FORMAT, r->config->loc, key,
              "not supported beside a model of SentencePiece");
    diag_hint(r->diag, "a tokenizer.json in the folder is read instead when it is there");
    return STATUS_FORMAT;
}

static Status read_pieces(PiecesReading *r, const char *name) {
    Tokenizer *self = r->self;
    char *bytes;
    size_t length;
    static const char VOCAB[] = "vocab.json", MARIAN[] = "Marian";
    TRY(class_find(&r->class, r->config, r->scratch, r->folder, CLASS_PIECES, r->diag));
    const bool marian = r->class && strcmp(r->class->name, MARIAN) == 0;
    class_names(&r->names, r->class);
    TRY(check_config(r));
    TRY(folder_read(&bytes, &length, r->folder, r->scratch, name, VOCABULARY_BYTES_MAX,
                    r->diag));
    TRY(pieces_parse(&r->pieces, self->arena, bytes, length, r->at, r->diag));
    TRY(place_tokens(r, marian ? VOCAB : NULL));
    self->kind = r->pieces.algorithm == PIECES_BPE ? MODEL_BPE : MODEL_UNIGRAM;
    TRY(self->kind == MODEL_BPE ? set_bpe(r) : set_unigram(r));
    TRY(set_normalizer(r));
    set_decoder(r);
    TRY(specials_find_some(self, &r->names, r->folder, r->at, r->diag));
    TRY(class_check_additional(self, r->config, r->diag));
    return class_template(self, r->class, r->config, r->at, r->diag);
}

Status tokenizer_read_pieces(Tokenizer *self, Arena *scratch, const Folder *folder,
                             const char *name, Diag *diag) {
    Tree *config;
    PiecesReading r = {.self = self,
                       .scratch = scratch,
                       .folder = folder,
                       .at = LOC_FILE(folder_file(folder, self->arena, name)),
                       .diag = diag};
    TRY(config_read(&config, &r.names, scratch, folder, diag));
    r.config = config;
    return read_pieces(&r, name);
}
