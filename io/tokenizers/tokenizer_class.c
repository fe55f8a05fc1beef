/* Tokenizer: see tokenizer_class.h. */
#include "io/tokenizers/tokenizer_class.h"

#include "io/files/json.h"

#include <stdlib.h>
#include <string.h>

#define BERT_NAMES                                                                       \
    { .pad = "[PAD]", .unk = "[UNK]", .cls = "[CLS]", .sep = "[SEP]", .mask = "[MASK]" }
#define ROBERTA_NAMES                                                                    \
    {                                                                                    \
        .pad = "<pad>", .unk = "<unk>", .cls = "<s>", .sep = "</s>", .mask = "<mask>",   \
        .bos = "<s>", .eos = "</s>"                                                      \
    }

static const TokenizerClass CLASSES[] = {
    {"Bert", " bert ", CLASS_WORDPIECE, AROUND_BERT, BERT_NAMES},
    {"DistilBert", " distilbert ", CLASS_WORDPIECE, AROUND_BERT, BERT_NAMES},
    {"Electra", " electra ", CLASS_WORDPIECE, AROUND_BERT, BERT_NAMES},
    {"MobileBert", " mobilebert ", CLASS_WORDPIECE, AROUND_BERT, BERT_NAMES},
    {"SqueezeBert", " squeezebert ", CLASS_WORDPIECE, AROUND_BERT, BERT_NAMES},
    {"ConvBert", " convbert ", CLASS_WORDPIECE, AROUND_BERT, BERT_NAMES},
    {"MPNet",
     " mpnet ",
     CLASS_WORDPIECE,
     AROUND_ROBERTA,
     {.pad = "<pad>", .unk = "[UNK]", .cls = "<s>", .sep = "</s>", .mask = "<mask>"}},
    {"GPT2", " gpt2 ", CLASS_MERGES, AROUND_FLAGS, {0}},
    {"Roberta", " roberta ", CLASS_MERGES, AROUND_ROBERTA, ROBERTA_NAMES},
    {"Bart", " bart ", CLASS_MERGES, AROUND_ROBERTA, ROBERTA_NAMES},
    {"Qwen2",
     " qwen2 qwen3 ",
     CLASS_MERGES,
     AROUND_FLAGS,
     {.unk = "<|endoftext|>", .pad = "<|endoftext|>", .eos = "<|endoftext|>"},
     .digits = true},
    {"T5",
     " t5 mt5 umt5 longt5 ",
     CLASS_PIECES,
     AROUND_END,
     {.pad = "<pad>", .unk = "<unk>", .eos = "</s>"},
     .extra_ids = true},
    {"XLMRoberta", " xlm-roberta xlm-roberta-xl ", CLASS_PIECES, AROUND_ROBERTA,
     ROBERTA_NAMES, .shifted = true},
    {"Llama",
     " llama mistral mixtral phi3 ",
     CLASS_PIECES,
     AROUND_FLAGS,
     {.unk = "<unk>", .bos = "<s>", .eos = "</s>"},
     .add_begin = true},
    {"Gemma",
     " gemma gemma2 ",
     CLASS_PIECES,
     AROUND_FLAGS,
     {.pad = "<pad>", .unk = "<unk>", .bos = "<bos>", .eos = "<eos>"},
     .add_begin = true},
    {"Marian",
     " marian ",
     CLASS_PIECES,
     AROUND_LAST,
     {.pad = "<pad>", .unk = "<unk>", .eos = "</s>"}},
};
enum { CLASS_COUNT = sizeof CLASSES / sizeof *CLASSES, TYPE_MAX = 64 };

/* --- which one --- */

static const TokenizerClass *find_name(const char *name) {
    for (int i = 0; i < CLASS_COUNT; i++) {
        const size_t length = strlen(CLASSES[i].name);
        if (strncmp(name, CLASSES[i].name, length) != 0) continue;
        if (strcmp(name + length, "Tokenizer") == 0) return &CLASSES[i];
        if (strcmp(name + length, "TokenizerFast") == 0) return &CLASSES[i];
    }
    return NULL;
}

static const TokenizerClass *find_type(const char *type) {
    char wanted[TYPE_MAX];
    if (snprintf(wanted, sizeof wanted, " %s ", type) >= TYPE_MAX) return NULL;
    for (int i = 0; i < CLASS_COUNT; i++)
        if (strstr(CLASSES[i].types, wanted)) return &CLASSES[i];
    return NULL;
}

static Status refuse(const Tree *value, const char *key, ClassFiles files, Diag *diag) {
    static const char *const BESIDE[] = {"a vocab.txt", "vocab.json and merges.txt",
                                         "a model of SentencePiece"};
    const bool named = strcmp(key, "tokenizer_class") == 0;
    Text known = {0};
    for (int i = 0; i < CLASS_COUNT; i++) {
        const TokenizerClass *class = &CLASSES[i];
        if (class->files != files) continue;
        if (named)
            text_add(&known, "%s%sTokenizer", known.length ? ", " : "", class->name);
        else
            text_add(&known, "%s%.*s", known.length ? ", " : "",
                     (int)strlen(class->types) - 2, class->types + 1);
    }
    diag_fail(diag, STATUS_FORMAT, value->loc, key,
              "expected %s beside %s, found '%.64s'", known.data, BESIDE[files],
              value->string);
    diag_hint(diag, "a tokenizer.json in the folder is read instead when it is there");
    text_free(&known);
    return STATUS_FORMAT;
}

Status class_find(const TokenizerClass **out, const Tree *config, Arena *scratch,
                  const Folder *folder, ClassFiles files, Diag *diag) {
    static const char NAME[] = "config.json", KEY[] = "tokenizer_class";
    const Tree *value;
    Tree *model = NULL;
    TRY(json_member(&value, config, KEY, TREE_STRING, "", diag));
    if (folder_has(folder, NAME))
        TRY(folder_read_json(&model, folder, scratch, NAME, VOCABULARY_BYTES_MAX, diag));
    if (!value) TRY(json_member(&value, model, KEY, TREE_STRING, "", diag));
    const bool named = value != NULL;
    if (!value) TRY(json_member(&value, model, "model_type", TREE_STRING, "", diag));
    *out = NULL;
    if (!value) return STATUS_OK;
    *out = named ? find_name(value->string) : find_type(value->string);
    if (*out && (*out)->files == files) return STATUS_OK;
    *out = NULL;
    /* a vocabulary is BERT's or GPT-2's where nothing else is said */
    if (!named && files != CLASS_PIECES) return STATUS_OK;
    return refuse(value, named ? KEY : "model_type", files, diag);
}

const TokenizerClass *class_gpt2(void) {
    return find_type("gpt2");
}

/* --- what it says --- */

void class_names(SpecialNames *names, const TokenizerClass *class) {
    if (!class) return;
    const struct {
        const char **name, *usual;
    } ALL[] = {{&names->pad, class->names.pad},  {&names->unk, class->names.unk},
               {&names->cls, class->names.cls},  {&names->sep, class->names.sep},
               {&names->bos, class->names.bos},  {&names->eos, class->names.eos},
               {&names->mask, class->names.mask}};
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
        if (!*ALL[i].name) *ALL[i].name = ALL[i].usual;
}

static Status need(int32_t id, const char *what, Loc at, Diag *diag) {
    if (id >= 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, at, what, "there is no such token");
}

/* Tokens before and behind each text, by the configuration's flags. */
static Status flags_template(Tokenizer *self, bool add_begin, const Tree *config, Loc at,
                             Diag *diag) {
    const int32_t bos = self->specials.bos, eos = self->specials.eos;
    bool begin, end;
    TRY(json_flag(&begin, config, "add_bos_token", add_begin, "", diag));
    TRY(json_flag(&end, config, "add_eos_token", false, "", diag));
    if (begin) TRY(need(bos, "add_bos_token", at, diag));
    if (end) TRY(need(eos, "add_eos_token", at, diag));
    template_flags(self, begin ? bos : -1, end ? eos : -1);
    return STATUS_OK;
}

Status class_template(Tokenizer *self, const TokenizerClass *class, const Tree *config,
                      Loc at, Diag *diag) {
    const SpecialIds *ids = &self->specials;
    template_plain(self);
    if (!class) return STATUS_OK;
    switch (class->around) {
    case AROUND_BERT:
        TRY(need(ids->cls, "cls_token", at, diag));
        TRY(need(ids->sep, "sep_token", at, diag));
        template_bert(self, ids->cls, ids->sep);
        return STATUS_OK;
    case AROUND_ROBERTA:
        TRY(need(ids->cls, "cls_token", at, diag));
        TRY(need(ids->sep, "sep_token", at, diag));
        template_roberta(self, ids->cls, ids->sep);
        return STATUS_OK;
    case AROUND_END:
    case AROUND_LAST: TRY(need(ids->eos, "eos_token", at, diag)); break;
    case AROUND_FLAGS: return flags_template(self, class->add_begin, config, at, diag);
    }
    template_flags(self, -1, ids->eos);
    for (int i = 0; i < self->pair.count; i++) self->pair.pieces[i].type = 0;
    if (class->around == AROUND_LAST)
        self->pair = (Template){{{PIECE_FIRST, 0}, {PIECE_SECOND, 0}, {ids->eos, 0}}, 3};
    return STATUS_OK;
}

Status class_added(AddedToken **out, int *count, Arena *arena, const Tree *config,
                   Diag *diag) {
    static const char WHERE[] = "added_tokens_decoder";
    const Tree *map;
    *count = 0;
    *out = NULL;
    TRY(json_member(&map, config, WHERE, TREE_MAP, "", diag));
    if (!map || map->count == 0) return STATUS_OK;
    if (map->count > ADDED_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, WHERE,
                         "expected at most %d, found %d", ADDED_MAX, map->count);
    *out = ARENA_ARRAY(arena, AddedToken, (size_t)map->count);
    for (const Tree *entry = map->first; entry; entry = entry->next) {
        char *end;
        const long id = strtol(entry->key, &end, 10);
        if (end == entry->key || *end || id < 0 || id >= TOKENS_MAX)
            return diag_fail(diag, STATUS_FORMAT, map->loc, WHERE,
                             "expected numbers from 0 to %d as keys, found '%.40s'",
                             TOKENS_MAX - 1, entry->key);
        AddedToken *token = &(*out)[(*count)++];
        TRY(added_flags_read(token, arena, entry, WHERE, diag));
        token->id = (int32_t)id;
    }
    return STATUS_OK;
}

/* Whether a token is there; an added one may stand in no table. */
static bool has_token(const Tokenizer *self, const char *text) {
    if (tokenizer_find(self, text) >= 0) return true;
    for (int32_t i = 0; i < tokenizer_size(self); i++)
        if (strcmp(self->vocabulary.tokens[i].text, text) == 0) return true;
    return false;
}

Status class_check_additional(const Tokenizer *self, const Tree *config, Diag *diag) {
    static const char KEY[] = "additional_special_tokens";
    const Tree *list;
    TRY(json_member(&list, config, KEY, TREE_LIST, "", diag));
    for (const Tree *item = list ? list->first : NULL; item; item = item->next) {
        const Tree *text = item->kind == TREE_MAP ? tree_get(item, "content") : item;
        if (text && text->kind == TREE_STRING && has_token(self, text->string)) continue;
        return diag_fail(diag, STATUS_FORMAT, list->loc, KEY,
                         "expected tokens of the vocabulary, found '%.64s'",
                         text && text->kind == TREE_STRING ? text->string : "no text");
    }
    return STATUS_OK;
}
