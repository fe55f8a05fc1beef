/* Span search: see span_search.h. */
#include "passes/evaluate/span_search.h"

bool span_search(Span *best, const float *logits, int64_t begin, int64_t end,
                 int64_t longest) {
    bool found = false;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = i; j < end && j < i + longest; j++) {
            const double score = (double)logits[2 * i] + (double)logits[2 * j + 1];
            if (!(score > best->score)) continue;
            *best = (Span){score, i, j};
            found = true;
        }
    return found;
}
