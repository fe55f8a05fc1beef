/* SentencePiece: see sentencepiece.h. */
#include "io/tokenizers/sentencepiece.h"

#include "io/tokenizers/unicode.h"

#include <math.h>
#include <string.h>

const char *const PIECES_FILES[] = {"spiece.model", "sentencepiece.bpe.model",
                                    "tokenizer.model", PIECES_SOURCE, NULL};

/* --- protocol buffers --- */

enum { WIRE_VARINT, WIRE_8_BYTES, WIRE_MESSAGE, WIRE_4_BYTES = 5 };

/* What is left of a message. */
typedef struct Wire {
    const unsigned char *at, *end;
} Wire;

/* One field: a number, or bytes. */
typedef struct WireField {
    uint32_t number, type;
    uint64_t value;
    Wire bytes;
} WireField;

static bool wire_varint(Wire *wire, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        const unsigned char byte = *wire->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Takes the next field; false when it is damaged. */
static bool wire_next(Wire *wire, WireField *out) {
    uint64_t tag, length = 0;
    if (!wire_varint(wire, &tag) || tag >> 3 > UINT32_MAX) return false;
    *out = (WireField){.number = (uint32_t)(tag >> 3), .type = tag & 7};
    switch (out->type) {
    case WIRE_VARINT: return wire_varint(wire, &out->value);
    case WIRE_8_BYTES: length = 8; break;
    case WIRE_4_BYTES: length = 4; break;
    case WIRE_MESSAGE:
        if (!wire_varint(wire, &length)) return false;
        break;
    default: return false; /* groups are of no use any more */
    }
    if (length > (uint64_t)(wire->end - wire->at)) return false;
    out->bytes = (Wire){wire->at, wire->at + length};
    wire->at += length;
    return true;
}

/* --- messages --- */

enum {
    MODEL_PIECES = 1, /* fields of ModelProto, */
    MODEL_TRAINER = 2,
    MODEL_NORMALIZER = 3,
    MODEL_DENORMALIZER = 5,
    PIECE_TEXT = 1, /* of a SentencePiece, */
    PIECE_SCORE = 2,
    PIECE_TYPE = 3,
    TRAINER_ALGORITHM = 3, /* of TrainerSpec, */
    TRAINER_SUFFIX = 24,
    TRAINER_BYTE_FALLBACK = 35,
    NORMALIZER_MAP = 2, /* of NormalizerSpec */
    NORMALIZER_PREFIX = 3,
    NORMALIZER_TRIM = 4,
    NORMALIZER_ESCAPE = 5
};

typedef struct PieceReader {
    PieceModel *out;
    Arena *arena;
    Loc at;
    Diag *diag;
} PieceReader;

static Status fail_damaged(const PieceReader *r, const char *key) {
    return diag_fail(r->diag, STATUS_FORMAT, r->at, key,
                     "expected a model of SentencePiece, found a damaged message");
}

static Status read_piece(const PieceReader *r, Wire wire, int32_t index) {
    PieceModel *out = r->out;
    float score = 0;
    WireField field = {0};
    Wire text = {0};
    uint64_t type = PIECE_NORMAL;
    while (wire.at < wire.end) {
        if (!wire_next(&wire, &field)) return fail_damaged(r, "pieces");
        if (field.number == PIECE_TEXT) text = field.bytes;
        if (field.number == PIECE_TYPE) type = field.value;
        if (field.number != PIECE_SCORE || field.type != WIRE_4_BYTES) continue;
        const unsigned char *p = field.bytes.at;
        const uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8 |
                              (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        memcpy(&score, &bits, sizeof score);
    }
    const size_t length = (size_t)(text.end - text.at);
    const char *bytes = (const char *)text.at;
    if (length == 0 || length > TOKEN_BYTES_MAX || memchr(bytes, 0, length) ||
        utf8_check(bytes, length) < length || type < PIECE_NORMAL || type > PIECE_BYTE ||
        !isfinite(score))
        return diag_fail(r->diag, STATUS_FORMAT, r->at, "pieces",
                         "piece %d: expected 1 to %d bytes of UTF-8 without NUL, a "
                         "finite score and a type that is known",
                         (int)index, TOKEN_BYTES_MAX);
    out->texts[index] = (Token){arena_strndup(r->arena, bytes, length), (uint32_t)length};
    out->scores[index] = (double)score;
    out->types[index] = (uint8_t)type;
    return STATUS_OK;
}

static Status read_trainer(const PieceReader *r, Wire wire) {
    WireField field;
    static const char *const NAMES[] = {"none", "unigram", "bpe", "word", "char"};
    while (wire.at < wire.end) {
        if (!wire_next(&wire, &field)) return fail_damaged(r, "trainer_spec");
        if (field.number == TRAINER_BYTE_FALLBACK) r->out->byte_fallback = field.value;
        if (field.number == TRAINER_SUFFIX && field.value)
            return diag_fail(r->diag, STATUS_FORMAT, r->at,
                             "trainer_spec.treat_whitespace_as_suffix",
                             "true is not supported");
        if (field.number != TRAINER_ALGORITHM) continue;
        if (field.value != PIECES_UNIGRAM && field.value != PIECES_BPE)
            return diag_fail(r->diag, STATUS_FORMAT, r->at, "trainer_spec.model_type",
                             "expected unigram or bpe, found %s",
                             field.value <= 4 ? NAMES[field.value] : "another one");
        r->out->algorithm = (PieceAlgorithm)field.value;
    }
    return STATUS_OK;
}

static Status read_normalizer(const PieceReader *r, Wire wire) {
    static const char MAP[] = "normalizer_spec.precompiled_charsmap";
    PieceModel *out = r->out;
    WireField field;
    while (wire.at < wire.end) {
        if (!wire_next(&wire, &field)) return fail_damaged(r, "normalizer_spec");
        if (field.number == NORMALIZER_PREFIX) out->dummy_prefix = field.value;
        if (field.number == NORMALIZER_TRIM) out->trim = field.value;
        if (field.number == NORMALIZER_ESCAPE && !field.value)
            return diag_fail(r->diag, STATUS_FORMAT, r->at,
                             "normalizer_spec.escape_whitespaces",
                             "false is not supported");
        const size_t length = (size_t)(field.bytes.end - field.bytes.at);
        if (field.number != NORMALIZER_MAP || length == 0) continue;
        out->has_map = true;
        TRY(charsmap_parse(&out->map, r->arena, field.bytes.at, length, r->at, MAP,
                           r->diag));
    }
    return STATUS_OK;
}

/* A map of the way back to text; there is a message without one in many files. */
static Status check_denormalizer(const PieceReader *r, Wire wire) {
    WireField field;
    while (wire.at < wire.end) {
        if (!wire_next(&wire, &field)) return fail_damaged(r, "denormalizer_spec");
        if (field.number == NORMALIZER_MAP && field.bytes.at < field.bytes.end)
            return diag_fail(r->diag, STATUS_FORMAT, r->at, "denormalizer_spec",
                             "a map of characters is not supported there");
    }
    return STATUS_OK;
}

/* Counts the pieces, so that there is room for them. */
static Status count_pieces(const PieceReader *r, Wire wire, int32_t *count) {
    WireField field;
    *count = 0;
    while (wire.at < wire.end) {
        if (!wire_next(&wire, &field)) return fail_damaged(r, NULL);
        *count += field.number == MODEL_PIECES && field.type == WIRE_MESSAGE;
        if (*count > TOKENS_MAX) break;
    }
    if (*count > 0 && *count <= TOKENS_MAX) return STATUS_OK;
    return diag_fail(r->diag, STATUS_FORMAT, r->at, "pieces",
                     "expected 1 to %d, found %s", TOKENS_MAX, *count ? "more" : "none");
}

Status pieces_parse(PieceModel *out, Arena *arena, const void *bytes, size_t length,
                    Loc at, Diag *diag) {
    const PieceReader r = {out, arena, at, diag};
    Wire wire = {bytes, (const unsigned char *)bytes + length};
    WireField field;
    *out = (PieceModel){.algorithm = PIECES_UNIGRAM, .dummy_prefix = true, .trim = true};
    TRY(count_pieces(&r, wire, &out->count));
    out->texts = ARENA_ARRAY(arena, Token, (size_t)out->count);
    out->scores = ARENA_ARRAY(arena, double, (size_t)out->count);
    out->types = ARENA_ARRAY(arena, uint8_t, (size_t)out->count);
    for (int32_t index = 0; wire.at < wire.end;) {
        wire_next(&wire, &field); /* read once already */
        if (field.type != WIRE_MESSAGE) continue;
        switch (field.number) {
        case MODEL_PIECES: TRY(read_piece(&r, field.bytes, index++)); break;
        case MODEL_TRAINER: TRY(read_trainer(&r, field.bytes)); break;
        case MODEL_NORMALIZER: TRY(read_normalizer(&r, field.bytes)); break;
        case MODEL_DENORMALIZER: TRY(check_denormalizer(&r, field.bytes)); break;
        default: break;
        }
    }
    for (int32_t i = 0; i < out->count; i++)
        if (out->types[i] == PIECE_UNUSED && out->algorithm == PIECES_BPE)
            return diag_fail(diag, STATUS_FORMAT, at, "pieces",
                             "piece %d: unused pieces are not supported with bpe",
                             (int)i);
    return STATUS_OK;
}
