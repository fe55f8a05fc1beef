/* Before and after: see metric_change.h. */
#include "session/report/metric_change.h"

#include <math.h>

MetricChange metric_change(const MetricPoint *points, int count) {
    MetricChange found = {.before = NAN, .after = NAN, .change = NAN};
    int before = -1, after = -1;
    bool changed = false; /* behind `after` */
    for (int i = 0; i < count; i++) {
        changed |= points[i].changes;
        if (isnan(points[i].value)) continue;
        if (before < 0 && points[i].input_size) before = i;
        after = i;
        changed = false;
    }
    if (before == after && changed)
        after = -1;
    else if (before == after)
        before = -1;
    if (before >= 0) found.before = points[before].value;
    if (after >= 0) found.after = points[after].value;
    if (after >= 0 && changed) found.step = after + 1;
    if (before < 0 || after < 0) return found;
    found.other_samples = points[before].samples != points[after].samples;
    if (!found.other_samples) found.change = found.after - found.before;
    return found;
}
