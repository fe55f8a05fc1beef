/* Tokenizer: reading the decoder of tokenizer.json, which says how tokens become text. */
#include "io/tokenizers/tokenizer_readers.h"

#include <string.h>

static const char WHERE[] = "decoder";

typedef struct DecoderReading {
    Tokenizer *self;
    bool fused; /* what follows concerns the text as a whole */
} DecoderReading;

static const struct {
    const char *type;
    DecodeKind kind;
} STEPS[] = {{"Replace", DECODE_REPLACE},
             {"ByteFallback", DECODE_BYTE_FALLBACK},
             {"ByteLevel", DECODE_BYTE_LEVEL},
             {"Metaspace", DECODE_METASPACE},
             {"WordPiece", DECODE_WORDPIECE}};

/* Reads the members of a step of the kind that it has. */
static Status read_members(DecodeStep *step, Arena *arena, const Tree *map,
                           const char *where, Diag *diag) {
    MarkScheme scheme;
    switch (step->kind) {
    case DECODE_REPLACE:
        return json_replace(&step->regex, &step->to, arena, map, where, diag);
    case DECODE_METASPACE:
        TRY(metaspace_read(&step->from, &scheme, arena, map, where, diag));
        step->strip = scheme != MARK_NEVER;
        return STATUS_OK;
    case DECODE_WORDPIECE:
        TRY(json_flag(&step->cleanup, map, "cleanup", true, where, diag));
        return json_token(&step->from, arena, map, "prefix", where, diag);
    case DECODE_BYTE_FALLBACK:
    case DECODE_BYTE_LEVEL:
    case DECODE_SPACED: break;
    }
    return STATUS_OK;
}

/* Strip: characters off the start of the whole text. */
static Status read_strip(DecoderReading *reading, const Tree *map, const char *where,
                         Diag *diag) {
    DecodeRules *rules = &reading->self->decode;
    const Tree *start, *stop;
    TRY(json_member(&start, map, "start", TREE_INT, where, diag));
    TRY(json_member(&stop, map, "stop", TREE_INT, where, diag));
    TRY(json_token(&rules->strip, reading->self->arena, map, "content", where, diag));
    if (!reading->fused || rules->most > 0)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected one Strip, behind Fuse");
    if ((stop && stop->integer != 0) || !start || start->integer < 0 ||
        start->integer > INT16_MAX ||
        utf8_count(rules->strip.text, rules->strip.length) != 1)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected a character, start 0 to %d and stop 0", INT16_MAX);
    rules->most = (int)start->integer;
    return STATUS_OK;
}

static Status read_step(void *user, const Tree *map, const char *type, const char *where,
                        Diag *diag) {
    DecoderReading *reading = user;
    DecodeRules *rules = &reading->self->decode;
    if (strcmp(type, "Strip") == 0) return read_strip(reading, map, where, diag);
    if (strcmp(type, "Fuse") == 0) {
        reading->fused = true;
        return STATUS_OK;
    }
    if (reading->fused || rules->count == DECODE_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected at most %d steps, and only Strip behind Fuse, found "
                         "'%.64s'",
                         DECODE_MAX, type);
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++)
        if (strcmp(type, STEPS[i].type) == 0) {
            DecodeStep *step = &rules->steps[rules->count++];
            step->kind = STEPS[i].kind;
            return read_members(step, reading->self->arena, map, where, diag);
        }
    return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                     "expected a decoder that is supported, found '%.64s'", type);
}

/* What a tokenizer without a decoder does; Hugging Face's puts spaces between all tokens,
 * also where that is of no use. */
static void decoder_suggest(Tokenizer *self) {
    DecodeRules *rules = &self->decode;
    if (self->kind == MODEL_CHARACTERS) return;
    DecodeStep *step = &rules->steps[rules->count++];
    const Prefix *prefix = &self->wordpiece.continued;
    *step = (DecodeStep){.kind = DECODE_SPACED};
    if (self->kind == MODEL_WORDPIECE)
        *step = (DecodeStep){.kind = DECODE_WORDPIECE,
                             .from = {prefix->text, prefix->length},
                             .cleanup = true};
    else if (self->bpe.byte_level)
        step->kind = DECODE_BYTE_LEVEL;
}

Status decoder_read(Tokenizer *self, const Tree *root, Diag *diag) {
    const Tree *map;
    DecoderReading reading = {.self = self};
    TRY(json_member(&map, root, WHERE, TREE_MAP, "", diag));
    if (!map) decoder_suggest(self);
    return json_steps(map, WHERE, "decoders", read_step, &reading, diag);
}
