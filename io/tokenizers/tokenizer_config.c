/* Tokenizer: what the tokenizer_config.json beside a tokenizer.json changes of it, as
 * transformers does when it loads one. */
#include "io/tokenizers/tokenizer_class.h"
#include "io/tokenizers/tokenizer_readers.h"

#include <string.h>

/* Whether the configuration says a flag at all, which null does not. */
static bool says(const Tree *config, const char *key) {
    return tree_get_nonnull(config, key) != NULL;
}

static bool is_class(const Tree *config, const char *const *names) {
    const Tree *class = tree_get_nonnull(config, "tokenizer_class");
    if (!class || class->kind != TREE_STRING) return false;
    for (; *names; names++)
        if (strncmp(class->string, *names, strlen(*names)) == 0) return true;
    return false;
}

static Status refuse(const Tree *config, const char *key, const char *reason,
                     Diag *diag) {
    diag_fail(diag, STATUS_FORMAT, config->loc, key, "%s", reason);
    diag_hint(diag, "take the key out to read the tokenizer.json as it is");
    return STATUS_FORMAT;
}

Status config_tokens(AddedToken **out, int *count, Arena *arena, const Tree *config,
                     Diag *diag) {
    AddedToken *listed, *all;
    int listed_count, known = *count;
    bool split;
    TRY(json_flag(&split, config, "split_special_tokens", false, "", diag));
    if (split)
        return refuse(config, "split_special_tokens", "true is not supported", diag);
    TRY(class_added(&listed, &listed_count, arena, config, diag));
    if (listed_count == 0) return STATUS_OK;
    Vocabulary names;
    vocabulary_create(&names, arena, known);
    for (int i = 0; i < known; i++) {
        const char *text = (*out)[i].content;
        names.tokens[i] = (Token){text, (uint32_t)strlen(text)};
        if (names.tokens[i].length > TOKEN_BYTES_MAX ||
            vocabulary_add(&names, i) == VOCABULARY_FULL)
            return STATUS_OK; /* whoever reads the tokens will say what is wrong */
    }
    all = ARENA_ARRAY(arena, AddedToken, (size_t)(known + listed_count));
    for (int i = 0; i < known; i++) all[i] = (*out)[i];
    for (int i = 0; i < listed_count; i++)
        if (vocabulary_find(&names, listed[i].content, strlen(listed[i].content)) < 0)
            all[(*count)++] = listed[i];
    *out = all;
    return STATUS_OK;
}

/* --- text --- */

/* BERT's normalizer is set anew when one of its flags differs. */
static Status apply_bert(Tokenizer *self, const Tree *config, Diag *diag) {
    static const char *const PLAIN[] = {"PreTrainedTokenizer", NULL};
    bool lower, accents, chinese;
    if (!says(config, "do_lower_case") && !says(config, "strip_accents") &&
        !says(config, "tokenize_chinese_chars"))
        return STATUS_OK;
    TRY(json_flag(&lower, config, "do_lower_case", true, "", diag));
    TRY(json_flag(&accents, config, "strip_accents", lower, "", diag));
    TRY(json_flag(&chinese, config, "tokenize_chinese_chars", true, "", diag));
    if (is_class(config, PLAIN)) return STATUS_OK;
    for (int i = 0; i < self->normalizer.count; i++) {
        BertRules *rules = &self->normalizer.steps[i].rules;
        if (self->normalizer.steps[i].kind != NORMALIZE_BERT) continue;
        rules->lowercase = lower;
        rules->strip_accents = accents;
        rules->space_chinese = chinese;
    }
    return STATUS_OK;
}

/* A space in front of texts: of ByteLevel alone it can be set; what other kinds do must
 * be what is said. */
static Status apply_space(Tokenizer *self, const Tree *config, Diag *diag) {
    static const char KEY[] = "add_prefix_space";
    bool space, marked = false, marks = false;
    if (!says(config, KEY)) return STATUS_OK;
    TRY(json_flag(&space, config, KEY, false, "", diag));
    WordStep *steps = self->words.steps;
    if (self->words.count == 1 && steps[0].kind == WORDS_BYTES) {
        steps[0].space_in_front = space;
        return STATUS_OK;
    }
    for (int i = 0; i < self->normalizer.count; i++)
        if (self->normalizer.steps[i].kind == NORMALIZE_PREPEND) marks = marked = true;
    for (int i = 0; i < self->words.count; i++) {
        if (steps[i].kind != WORDS_METASPACE) continue;
        marks = true;
        marked = marked || steps[i].scheme != MARK_NEVER;
    }
    if (!marks || marked == space) return STATUS_OK;
    return refuse(config, KEY, "the tokenizer.json says otherwise", diag);
}

Status config_text(Tokenizer *self, const Tree *config, Diag *diag) {
    TRY(apply_bert(self, config, diag));
    return apply_space(self, config, diag);
}

/* --- templates --- */

static bool begins_with(const Template *template, int32_t id) {
    return template->count > 0 && template->pieces[0].id == id;
}

static bool ends_with(const Template *template, int32_t id) {
    return template->count > 0 && template->pieces[template->count - 1].id == id;
}

/* The token at the beginning and the one at the end: Llama's and Gemma's classes put them
 * as the configuration says, whatever the template; of others they must agree. */
Status config_template(Tokenizer *self, const Tree *config, Diag *diag) {
    static const char *const SET[] = {"Llama", "CodeLlama", "Gemma", NULL};
    static const char BEGIN[] = "add_bos_token", END[] = "add_eos_token";
    const SpecialIds *ids = &self->specials;
    const bool has_begin = ids->bos >= 0 && begins_with(&self->single, ids->bos);
    const bool has_end = ids->eos >= 0 && ends_with(&self->single, ids->eos);
    bool begin, end;
    TRY(class_check_additional(self, config, diag));
    TRY(json_flag(&begin, config, BEGIN, has_begin, "", diag));
    TRY(json_flag(&end, config, END, has_end, "", diag));
    if (begin == has_begin && end == has_end) return STATUS_OK;
    const char *key = begin == has_begin ? END : BEGIN;
    if (!is_class(config, SET))
        return refuse(config, key, "the template of tokenizer.json says otherwise", diag);
    if ((begin && ids->bos < 0) || (end && ids->eos < 0))
        return refuse(config, key, "there is no such token", diag);
    template_flags(self, begin ? ids->bos : -1, end ? ids->eos : -1);
    return STATUS_OK;
}
