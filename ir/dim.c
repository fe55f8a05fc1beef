/* Dim: see dim.h.
 *
 * A product is -(factor * 256 + powers), two bits of `powers` for each symbol; factors
 * are above 0, so that products lie below all symbols. */
#include "ir/dim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SYMBOLS[DIM_SYMBOLS + 1] = "NTSM";

enum { POWER_MAX = 3, PRODUCT = 256 };
static const int64_t FACTOR_MAX = INT64_MAX / PRODUCT - 1;

typedef struct Factors {
    int64_t number;
    int power[DIM_SYMBOLS];
} Factors;

static bool take_apart(int64_t dim, Factors *out) {
    *out = (Factors){.number = dim >= 0 ? dim : 1};
    if (dim >= 0) return true;
    if (dim_is_symbol(dim)) return out->power[DIM_INDEX(dim)] = 1, true;
    if (dim > -PRODUCT || dim < -INT64_MAX) return false;
    out->number = -dim / PRODUCT;
    for (int i = 0; i < DIM_SYMBOLS; i++)
        out->power[i] = (int)(-dim % PRODUCT >> 2 * i & POWER_MAX);
    return true;
}

/* A product has one form: numbers and symbols alone are no products. */
static int64_t put_together(const Factors *f) {
    int64_t powers = 0;
    int symbols = 0, last = 0;
    for (int i = 0; i < DIM_SYMBOLS; i++) {
        powers |= (int64_t)f->power[i] << 2 * i;
        symbols += f->power[i];
        if (f->power[i]) last = i;
    }
    if (symbols == 0 || f->number == 0) return f->number;
    if (symbols == 1 && f->number == 1) return -1 - last;
    return -(f->number * PRODUCT + powers);
}

int64_t dim_number(int64_t dim) {
    Factors f;
    return take_apart(dim, &f) ? f.number : 1;
}

int dim_power(int64_t dim, int64_t symbol) {
    Factors f;
    return take_apart(dim, &f) ? f.power[DIM_INDEX(symbol)] : 0;
}

bool dim_times(int64_t a, int64_t b, int64_t *out) {
    Factors x, y;
    if (!take_apart(a, &x) || !take_apart(b, &y)) return false;
    if (__builtin_mul_overflow(x.number, y.number, &x.number)) return false;
    bool number = true;
    for (int i = 0; i < DIM_SYMBOLS; i++) {
        x.power[i] += y.power[i];
        if (x.power[i] > POWER_MAX) return false;
        number = number && x.power[i] == 0;
    }
    if (!number && x.number > FACTOR_MAX) return false;
    *out = put_together(&x);
    return true;
}

bool dims_product(int rank, const int64_t *dim, int64_t *out) {
    *out = 1;
    for (int i = 0; i < rank; i++)
        if (!dim_times(*out, dim[i], out)) return false;
    return true;
}

bool dim_bind(int64_t dim, const int64_t sizes[DIM_SYMBOLS], int64_t *out) {
    Factors f;
    if (!take_apart(dim, &f)) return false;
    for (int i = 0; i < DIM_SYMBOLS; i++)
        for (int k = 0; k < f.power[i]; k++)
            if (sizes[i] <= 0 || __builtin_mul_overflow(f.number, sizes[i], &f.number))
                return false;
    *out = f.number;
    return true;
}

bool dim_replace(int64_t dim, const int64_t sizes[DIM_SYMBOLS], int64_t *out) {
    Factors f;
    if (!take_apart(dim, &f)) return false;
    *out = f.number;
    for (int i = 0; i < DIM_SYMBOLS; i++)
        for (int k = 0; k < f.power[i]; k++)
            if (!dim_times(*out, sizes[i] > 0 ? sizes[i] : -1 - i, out)) return false;
    return true;
}

const char *dim_text(char out[DIM_TEXT_BYTES], int64_t dim) {
    Factors f;
    size_t at = 0;
    if (!take_apart(dim, &f)) return strcpy(out, "?");
    if (dim >= 0 || f.number != 1)
        at = (size_t)snprintf(out, DIM_TEXT_BYTES, "%lld", (long long)f.number);
    for (int i = 0; i < DIM_SYMBOLS; i++)
        for (int k = 0; k < f.power[i]; k++) {
            if (at) out[at++] = '*';
            out[at++] = SYMBOLS[i];
        }
    out[at] = '\0';
    return out;
}

const char *dims_text(char out[DIMS_TEXT_BYTES], int rank, const int64_t *dim) {
    char text[DIM_TEXT_BYTES];
    char *at = out;
    *at = '\0';
    for (int i = 0; i < rank && i < RANK_MAX; i++)
        at += snprintf(at, DIM_TEXT_BYTES + 2, "%s%s", i ? ", " : "",
                       dim_text(text, dim[i]));
    return out;
}

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " ");
}

/* A number or symbol at `*at`, which is moved behind it. */
static bool parse_factor(const char **at, int64_t *out) {
    const char *symbol = **at ? strchr(SYMBOLS, **at) : NULL;
    const size_t digits = strspn(*at, "0123456789");
    if (symbol) {
        *out = -1 - (symbol - SYMBOLS);
        *at = skip_blanks(*at + 1);
        return true;
    }
    if (digits == 0 || digits > 18) return false;
    *out = strtoll(*at, NULL, 10);
    *at = skip_blanks(*at + digits);
    return true;
}

bool dims_parse(const char *text, int *rank, int64_t dim[RANK_MAX]) {
    const char *at = skip_blanks(text);
    *rank = 0;
    if (!*at) return true;
    for (;;) {
        int64_t factor, product = 1;
        for (bool more = true; more; at = more ? skip_blanks(at + 1) : at) {
            if (!parse_factor(&at, &factor) || !dim_times(product, factor, &product))
                return false;
            more = *at == '*';
        }
        if (*rank == RANK_MAX) return false;
        dim[(*rank)++] = product;
        if (!*at) return true;
        if (*at != ',') return false;
        at = skip_blanks(at + 1);
    }
}
