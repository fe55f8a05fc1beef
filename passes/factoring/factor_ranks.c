/* Ranks of many matrices under one budget: see factoring.h. */
#include "passes/factoring/factoring.h"

#include <math.h>

/* Whether a site has a rank below what it costs as it is. */
static bool can_shrink(const FactorSite *site) {
    return !site->left && factor_even(site) >= 1;
}

static double total_cost(const Factoring *f) {
    double sum = 0;
    for (int i = 0; i < f->count; i++) sum += factor_cost(&f->sites[i]);
    return sum;
}

/* Rank 1 of every site. */
static void choose_least(Factoring *f) {
    for (int i = 0; i < f->count; i++) f->sites[i].rank = can_shrink(&f->sites[i]);
}

/* ---- the same share of each ---- */

static void choose_level(Factoring *f, double level) {
    for (int i = 0; i < f->count; i++) {
        FactorSite *site = &f->sites[i];
        if (!can_shrink(site)) continue;
        const int64_t rank = (int64_t)(level * site->whole / site->unit);
        site->rank = rank < 1 ? 1 : rank;
        if (rank > factor_even(site)) site->rank = 0;
    }
}

static void choose_evenly(Factoring *f, double bound) {
    double low = 0, high = 1;
    choose_level(f, high);
    if (total_cost(f) <= bound) return;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        choose_level(f, middle);
        if (total_cost(f) <= bound)
            low = middle;
        else
            high = middle;
    }
    choose_level(f, low);
}

/* ---- by singular values ---- */

/* The next step of a site: one rank more, or from the last rank that is worth it to all
 * that the weight has. Worth is what it adds of the squares over what it costs. */
typedef struct Offer {
    double worth, cost;
    int64_t rank;
} Offer;

static Offer next_offer(const FactorSite *site) {
    const int64_t rank = site->rank;
    Offer offer = {.rank = rank + 1, .cost = site->unit};
    double gain = rank < site->most ? site->squares[rank] : 0;
    if (rank == factor_even(site)) {
        offer = (Offer){.rank = 0, .cost = site->whole - (double)rank * site->unit};
        for (int64_t i = rank + 1; i < site->most; i++) gain += site->squares[i];
    }
    offer.worth = gain / offer.cost;
    return offer;
}

static void choose_by_worth(Factoring *f, double bound) {
    double used = total_cost(f);
    bool *closed = ARENA_ARRAY(f->ctx->arena, bool, (size_t)f->count + 1);
    for (;;) {
        int best = -1;
        Offer most = {0};
        for (int i = 0; i < f->count; i++) {
            const FactorSite *site = &f->sites[i];
            if (closed[i] || site->rank == 0) continue;
            const Offer offer = next_offer(site);
            if (best >= 0 && !(offer.worth > most.worth)) continue;
            best = i;
            most = offer;
        }
        if (best < 0) return;
        if (used + most.cost > bound) {
            closed[best] = true;
            continue;
        }
        f->sites[best].rank = most.rank;
        used += most.cost;
    }
}

double factor_choose(Factoring *f, double bound, bool each) {
    bool known = !each;
    for (int i = 0; i < f->count; i++)
        if (can_shrink(&f->sites[i]) && !f->sites[i].squares) known = false;
    choose_least(f);
    const double least = total_cost(f);
    if (least > bound) return least;
    if (known)
        choose_by_worth(f, bound);
    else
        choose_evenly(f, bound);
    return least;
}
