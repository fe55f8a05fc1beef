/* IR text: the lineage at the end of a param's line, `kept 0=[0-63, 70] 1=[0-3]`. */
#include "ir/irtext_parser.h"

#include <string.h>

/* Reads decimal digits of text[0..length). False when there are others or none, or when
 * the number does not fit. */
static bool read_index(const char *text, size_t length, int64_t *out) {
    int64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text[i] - '0', &value))
            return false;
    }
    *out = value;
    return length > 0;
}

/* Reads `first` or `first-last`. */
static Status parse_range(Parser *p, IndexRange *out) {
    char word[LEX_NAME_BYTES];
    const Loc loc = lex_loc(&p->lexer);
    TRY(lex_word(&p->lexer, "an index or a range", word));
    const char *dash = strchr(word, '-');
    const size_t length = dash ? (size_t)(dash - word) : strlen(word);
    bool good = read_index(word, length, &out->first);
    out->last = out->first;
    if (dash) good = good && read_index(dash + 1, strlen(dash + 1), &out->last);
    if (good && out->last >= out->first) return STATUS_OK;
    return PARSER_FAIL(p, loc, "expected an index or a range like 0-63, found '%.60s'",
                       word);
}

/* Number of commas up to the closing bracket of this line, and one. */
static size_t count_ranges(const Lexer *lexer) {
    size_t count = 1;
    for (const char *c = lexer->at; c < lexer->end && *c != ']' && *c != '\n'; c++)
        count += *c == ',';
    return count;
}

static Status parse_ranges(Parser *p, Lineage *out) {
    Lexer *lexer = &p->lexer;
    TRY(lex_expect(lexer, '['));
    const size_t most = count_ranges(lexer);
    IndexRange *ranges = ARENA_ARRAY(p->graph->arena, IndexRange, most);
    int count = 0;
    do {
        if (count > 0) TRY(lex_expect(lexer, ','));
        const Loc loc = lex_loc(lexer);
        TRY(parse_range(p, &ranges[count]));
        if (count > 0 && ranges[count].first <= ranges[count - 1].last)
            return PARSER_FAIL(p, loc, "the indices must increase, found %lld after %lld",
                               (long long)ranges[count].first,
                               (long long)ranges[count - 1].last);
        /* Ranges that touch are one, so that printing gives one text. */
        if (count > 0 && ranges[count].first == ranges[count - 1].last + 1)
            ranges[count - 1].last = ranges[count].last;
        else
            count++;
        if (lex_peek(lexer) != ',' && lex_peek(lexer) != ']')
            return lex_fail(lexer, "',' or ']'");
    } while (!lex_accept(lexer, ']'));
    *out = (Lineage){ranges, count};
    return STATUS_OK;
}

static Status parse_axis(Parser *p, Storage *storage) {
    Lexer *lexer = &p->lexer;
    const Tensor *tensor = &storage->tensor;
    const Loc loc = lex_loc(lexer);
    int64_t axis;
    TRY(lex_integer(lexer, "an axis", 0, INT64_MAX, &axis));
    if (axis >= tensor->rank)
        return PARSER_FAIL(p, loc, "'@%.60s' has %d axes, found axis %lld", storage->name,
                           tensor->rank, (long long)axis);
    if (storage->kept[axis].count > 0)
        return PARSER_FAIL(p, loc, "axis %lld is given twice", (long long)axis);
    TRY(lex_expect(lexer, '='));
    Lineage kept = {0};
    TRY(parse_ranges(p, &kept));
    if (lineage_size(&kept) != tensor->dim[axis])
        return PARSER_FAIL(p, loc, "axis %lld keeps %lld indices, its dimension is %lld",
                           (long long)axis, (long long)lineage_size(&kept),
                           (long long)tensor->dim[axis]);
    storage->kept[axis] = kept;
    return STATUS_OK;
}

Status parser_lineage(Parser *p, Storage *storage) {
    do TRY(parse_axis(p, storage));
    while (lex_peek(&p->lexer) >= '0' && lex_peek(&p->lexer) <= '9');
    return STATUS_OK;
}
