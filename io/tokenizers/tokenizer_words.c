/* Tokenizer: pre-tokenizers. Every step hands the pieces it makes to the next one. */
#include "io/tokenizers/tokenizer_words.h"

#include "io/tokenizers/tokenizer_members.h"
#include "io/tokenizers/tokenizer_normalize.h"
#include "io/tokenizers/unicode.h"

#include <string.h>

/* --- doing it --- */

typedef struct WordCutter {
    const WordRules *rules;
    const WordModel *model;
    WordScratch *scratch;
    IdList *ids;
    UnknownChars *unknown;
} WordCutter;

static bool cut(const WordCutter *self, int step, TextSpan text, bool first);

/* A text cut in two kinds of stretches, which come one after another, and the word that
 * is not handed on yet because it may grow. */
typedef struct Splitting {
    const WordCutter *cutter;
    int step;
    TextSpan text;
    bool first;
    bool waits, matched; /* a word waits; the last stretch was a match */
    size_t begin, end;   /* of the word that waits */
} Splitting;

static bool hand_on(Splitting *self) {
    const TextSpan word = {self->text.text + self->begin, self->end - self->begin};
    if (!self->waits) return true;
    self->waits = false;
    return cut(self->cutter, self->step + 1, word, self->first && self->begin == 0);
}

/* Whether a stretch goes with the one before it. Of matches side by side only the first
 * goes with what is before, and only the last with what is behind: so does the library
 * whose tokens these are. */
static bool goes_along(const Splitting *self, SplitBehavior behavior, bool match) {
    switch (behavior) {
    case SPLIT_CONTIGUOUS: return self->waits && match == self->matched;
    case SPLIT_PREVIOUS: return self->waits && match && !self->matched;
    case SPLIT_NEXT: return self->waits && !match && self->matched;
    case SPLIT_ISOLATED:
    case SPLIT_REMOVED: break;
    }
    return false;
}

/* Takes the next stretch; one between matches may be empty and is none then. */
static bool take_stretch(Splitting *self, size_t begin, size_t end, bool found) {
    const WordStep *rule = &self->cutter->rules->steps[self->step];
    const bool match = found != rule->invert;
    if (begin == end && !found) return true;
    if (rule->behavior == SPLIT_REMOVED && match) return hand_on(self);
    if (!goes_along(self, rule->behavior, match)) {
        if (!hand_on(self)) return false;
        self->begin = begin;
    }
    self->waits = true;
    self->matched = match;
    self->end = end;
    return true;
}

static bool cut_split(const WordCutter *cutter, int step, TextSpan text, bool first) {
    Splitting self = {.cutter = cutter, .step = step, .text = text, .first = first};
    const Regex *regex = cutter->rules->steps[step].regex;
    RegexScratch *scratch = &cutter->scratch->regex;
    RegexPlace place = {0};
    size_t begin, end, done = 0;
    while (regex_next(regex, scratch, text, &place, &begin, &end)) {
        if (!take_stretch(&self, done, begin, false)) return false;
        if (!take_stretch(&self, begin, end, true)) return false;
        done = end;
    }
    if (scratch->gave_up || !take_stretch(&self, done, text.length, false)) return false;
    return hand_on(&self);
}

static bool cut_digits(const WordCutter *self, int step, TextSpan text, bool first) {
    bool alone = self->rules->steps[step].alone;
    for (size_t i = 0, end, bytes; i < text.length; i = end) {
        const bool digit = char_is_number(utf8_decode(text.text + i, &bytes));
        end = i + bytes;
        /* characters that are all digits, or none of them */
        while (!(digit && alone) && end < text.length &&
               char_is_number(utf8_decode(text.text + end, &bytes)) == digit)
            end += bytes;
        TextSpan word = {text.text + i, end - i};
        if (!cut(self, step + 1, word, first && i == 0)) return false;
    }
    return true;
}

/* The text with a mark for every space, and one in front if need be. */
static bool mark_spaces(const WordStep *step, Text *out, TextSpan text, bool first) {
    const Token *mark = &step->mark;
    bool marked =
        text.text[0] == ' ' ||
        (text.length >= mark->length && memcmp(text.text, mark->text, mark->length) == 0);
    out->length = 0;
    if (text.length > NORMALIZED_BYTES / (mark->length + 1)) return false;
    if (!marked && (step->scheme == MARK_ALWAYS || (step->scheme == MARK_FIRST && first)))
        text_bytes(out, mark->text, mark->length);
    for (size_t i = 0, end; i < text.length; i = end) {
        const char *space = memchr(text.text + i, ' ', text.length - i);
        end = space ? (size_t)(space - text.text) : text.length;
        text_bytes(out, text.text + i, end - i);
        if (space) text_bytes(out, mark->text, mark->length), end++;
    }
    return true;
}

static bool cut_metaspace(const WordCutter *self, int step, TextSpan text, bool first) {
    const WordStep *rule = &self->rules->steps[step];
    const Token *mark = &rule->mark;
    Text *marked = &self->scratch->texts[step];
    if (!mark_spaces(rule, marked, text, first)) return false;
    for (size_t i = 0, end; i < marked->length; i = end) {
        size_t from = i + 1 < marked->length ? i + 1 : marked->length;
        const char *next = rule->split
                               ? memmem(marked->data + from, marked->length - from,
                                        mark->text, mark->length)
                               : NULL;
        end = next ? (size_t)(next - marked->data) : marked->length;
        TextSpan word = {marked->data + i, end - i};
        if (!cut(self, step + 1, word, first && i == 0)) return false;
    }
    return true;
}

static bool cut_bytes(const WordCutter *self, int step, TextSpan text, bool first) {
    const WordStep *rule = &self->rules->steps[step];
    Text *spaced = &self->scratch->texts[step];
    if (rule->space_in_front && text.text[0] != ' ') {
        spaced->length = 0;
        text_bytes(spaced, " ", 1);
        text_bytes(spaced, text.text, text.length);
        text = (TextSpan){spaced->data, spaced->length};
    }
    return rule->regex ? cut_split(self, step, text, first)
                       : cut(self, step + 1, text, first);
}

static bool cut_found(const WordCutter *self, int step, TextSpan text, bool first) {
    const WordSplit split = self->rules->steps[step].found;
    size_t begin = 0, end = 0;
    for (; word_next(split, text.text, text.length, &begin, &end); begin = end) {
        const TextSpan word = {text.text + begin, end - begin};
        if (!cut(self, step + 1, word, first && begin == 0)) return false;
    }
    return true;
}

static void split_word(const WordCutter *self, TextSpan word) {
    const WordModel *model = self->model;
    if (model->unigram)
        unigram_split(model->unigram, &self->scratch->unigram, word.text, word.length,
                      self->ids, self->unknown);
    else
        bpe_split(model->bpe, &self->scratch->bpe, word.text, word.length, self->ids,
                  self->unknown);
}

static bool cut(const WordCutter *self, int step, TextSpan text, bool first) {
    if (text.length == 0) return true;
    if (step == self->rules->count) {
        split_word(self, text);
        return true;
    }
    switch (self->rules->steps[step].kind) {
    case WORDS_SPLIT: return cut_split(self, step, text, first);
    case WORDS_DIGITS: return cut_digits(self, step, text, first);
    case WORDS_METASPACE: return cut_metaspace(self, step, text, first);
    case WORDS_FOUND: return cut_found(self, step, text, first);
    case WORDS_BYTES: return cut_bytes(self, step, text, first);
    }
    return true;
}

bool words_split(const WordRules *rules, const WordModel *model, WordScratch *scratch,
                 TextSpan text, bool first, IdList *ids, UnknownChars *unknown) {
    const WordCutter self = {rules, model, scratch, ids, unknown};
    return cut(&self, 0, text, first);
}

void word_scratch_free(WordScratch *scratch) {
    for (int i = 0; i < WORD_STEPS_MAX; i++) text_free(&scratch->texts[i]);
    regex_scratch_free(&scratch->regex);
    bpe_scratch_free(&scratch->bpe);
    unigram_scratch_free(&scratch->unigram);
    *scratch = (WordScratch){0};
}

/* --- reading --- */

Status metaspace_read(Token *mark, MarkScheme *scheme, Arena *arena, const Tree *map,
                      const char *where, Diag *diag) {
    static const char *const NAMES[] = {"always", "first", "never"};
    const Tree *name;
    bool prefix;
    TRY(json_token(mark, arena, map, "replacement", where, diag));
    TRY(json_member(&name, map, "prepend_scheme", TREE_STRING, where, diag));
    TRY(json_flag(&prefix, map, "add_prefix_space", true, where, diag));
    *scheme = prefix ? MARK_ALWAYS : MARK_NEVER; /* how older files say it */
    for (int i = 0; name && i < 3; i++)
        if (strcmp(name->string, NAMES[i]) == 0) {
            *scheme = (MarkScheme)i;
            return STATUS_OK;
        }
    if (!name) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                     "expected prepend_scheme always, first or never, found '%.64s'",
                     name->string);
}

static Status read_split(WordStep *step, Arena *arena, const Tree *map, const char *where,
                         Diag *diag) {
    static const char *const NAMES[] = {"Isolated", "Removed", "Contiguous",
                                        "MergedWithPrevious", "MergedWithNext"};
    enum { COUNT = sizeof NAMES / sizeof *NAMES };
    const Tree *behavior;
    int at = 0;
    TRY(json_pattern(&step->regex, arena, map, where, diag));
    TRY(json_member(&behavior, map, "behavior", TREE_STRING, where, diag));
    TRY(json_flag(&step->invert, map, "invert", false, where, diag));
    while (behavior && at < COUNT && strcmp(behavior->string, NAMES[at]) != 0) at++;
    step->behavior = (SplitBehavior)at;
    if (behavior && at < COUNT) return STATUS_OK;
    return diag_fail(
        diag, STATUS_FORMAT, map->loc, where,
        "expected behavior Isolated, Removed, Contiguous, MergedWithPrevious "
        "or MergedWithNext, found '%.64s'",
        behavior ? behavior->string : "none");
}

static const struct {
    const char *type;
    WordKind kind;
    WordSplit found; /* of WORDS_FOUND */
} STEPS[] = {{"ByteLevel", WORDS_BYTES},
             {"Metaspace", WORDS_METASPACE},
             {"Digits", WORDS_DIGITS},
             {"Split", WORDS_SPLIT},
             {"WhitespaceSplit", WORDS_FOUND, SPLIT_SPACES},
             {"BertPreTokenizer", WORDS_FOUND, SPLIT_PUNCTUATION}};

/* Reads the members of a step of the kind that it has. */
static Status read_members(WordStep *step, Arena *arena, const Tree *map,
                           const char *where, Diag *diag) {
    bool *space = &step->space_in_front, regex;
    switch (step->kind) {
    case WORDS_BYTES:
        TRY(json_flag(space, map, "add_prefix_space", true, where, diag));
        TRY(json_flag(&regex, map, "use_regex", true, where, diag));
        if (!regex) return STATUS_OK;
        return regex_compile(&step->regex, arena, REGEX_GPT2, map->loc, where, diag);
    case WORDS_METASPACE:
        TRY(json_flag(&step->split, map, "split", true, where, diag));
        return metaspace_read(&step->mark, &step->scheme, arena, map, where, diag);
    case WORDS_DIGITS:
        return json_flag(&step->alone, map, "individual_digits", false, where, diag);
    case WORDS_FOUND: return STATUS_OK;
    case WORDS_SPLIT: break;
    }
    return read_split(step, arena, map, where, diag);
}

typedef struct WordsReading {
    WordRules *rules;
    Arena *arena;
    bool byte_level;
} WordsReading;

static Status read_step(void *user, const Tree *map, const char *type, const char *where,
                        Diag *diag) {
    WordsReading *reading = user;
    WordRules *rules = reading->rules;
    if (rules->count == WORD_STEPS_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected at most %d steps", WORD_STEPS_MAX);
    if (reading->byte_level)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected nothing after ByteLevel, found '%.64s'", type);
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        if (strcmp(type, STEPS[i].type) != 0) continue;
        WordStep *step = &rules->steps[rules->count++];
        step->kind = STEPS[i].kind;
        step->found = STEPS[i].found;
        TRY(read_members(step, reading->arena, map, where, diag));
        reading->byte_level = step->kind == WORDS_BYTES;
        return STATUS_OK;
    }
    return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                     "expected ByteLevel, Metaspace, Digits, Split, WhitespaceSplit or "
                     "BertPreTokenizer, found '%.64s'",
                     type);
}

Status words_read(WordRules *rules, bool *byte_level, Arena *arena, const Tree *root,
                  Diag *diag) {
    static const char WHERE[] = "pre_tokenizer";
    const Tree *map;
    WordsReading reading = {.rules = rules, .arena = arena};
    TRY(json_member(&map, root, WHERE, TREE_MAP, "", diag));
    TRY(json_steps(map, WHERE, "pretokenizers", read_step, &reading, diag));
    *byte_level = reading.byte_level;
    return STATUS_OK;
}
