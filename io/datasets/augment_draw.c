/* What augmentation draws: see io/datasets/augment_draw.h. */
#include "io/datasets/augment_draw.h"

#include "ir/random.h"

#include <math.h>

/* Boxes that are tried before the fallback. */
#define TRIES 10

static const double ERASE_AREA[] = {0.02, 0.33};
static const double ERASE_RATIO[] = {0.3, 3.3};

/* ---- options ---- */

static const Field FIELDS[] = {
    F_BOOL(Augment, flip, "mirror every other sample, at random"),
    F_INT(Augment, crop, 0, 16384,
          "pad with so many black pixels and cut a random part of the old size"),
    F_REALS(Augment, resized_crop, 1e-6, 1,
            "resize a random part of the image: least and largest share of its area"),
    F_REALS(Augment, resized_ratio, 1e-3, 1e3,
            "and the part's least and largest width / height"),
    F_CHOICE(Augment, resample, RESAMPLE_NAMES, "how such a part is resized"),
    F_REAL(Augment, erase, 0, 1, "probability that a random box is erased"),
    F_CHOICE(Augment, erase_fill, ERASE_FILLS,
             "what stands there then: 0, or normal noise"),
    F_REAL(Augment, mixup, 0, 1e3,
           "mixup: alpha of the beta distribution of weights; 0 = off"),
    F_REAL(Augment, cutmix, 0, 1e3, "CutMix: alpha of that of areas; 0 = off"),
    F_REAL(Augment, mix, 0, 1, "probability that a sample is mixed"),
    F_REAL(Augment, cutmix_share, 0, 1, "share of CutMix where mixup is on as well"),
    F_END};

static Status range_check(const RealList *list, const char *name, const Tree *spec,
                          Diag *diag) {
    const Tree *at = tree_get(spec, name);
    if (list->count == 0 || (list->count == 2 && list->items[0] <= list->items[1]))
        return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at ? at->loc : spec->loc, name,
                     "expected two numbers, the least and the largest, found %s",
                     list->count == 2 ? "the larger one first"
                                      : (list->count == 1 ? "one" : "more"));
}

/* A key that says how something is done comes with one that asks for it. */
static Status needs_check(const Tree *spec, const char *name, const char *one,
                          const char *other, Diag *diag) {
    const Tree *at = tree_get(spec, name);
    if (!at || tree_get(spec, one) || (other && tree_get(spec, other))) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at->loc, name, "expected %s%s%s with it", one,
                     other ? " or " : "", other ? other : "");
}

static Status all_needs_check(const Tree *spec, Diag *diag) {
    TRY(needs_check(spec, "resized_ratio", "resized_crop", NULL, diag));
    TRY(needs_check(spec, "resample", "resized_crop", NULL, diag));
    TRY(needs_check(spec, "erase_fill", "erase", NULL, diag));
    TRY(needs_check(spec, "mix", "mixup", "cutmix", diag));
    return needs_check(spec, "cutmix_share", "mixup", "cutmix", diag);
}

Status augment_bind(Augment *out, const Tree *spec, Arena *arena, Diag *diag) {
    static double ratio[] = {3.0 / 4, 4.0 / 3};
    *out = (Augment){.resized_ratio = {ratio, 2}, .mix = 1, .cutmix_share = 0.5};
    if (!spec) return STATUS_OK;
    TRY(fields_bind(FIELDS, spec, out, arena, STATUS_RECIPE, diag));
    TRY(range_check(&out->resized_crop, "resized_crop", spec, diag));
    TRY(range_check(&out->resized_ratio, "resized_ratio", spec, diag));
    TRY(all_needs_check(spec, diag));
    if (out->resized_ratio.count == 0) out->resized_ratio = (RealList){ratio, 2};
    out->on = out->flip || out->crop > 0 || out->resized_crop.count > 0 ||
              out->erase > 0 || augment_mixes(out);
    return STATUS_OK;
}

bool augment_mixes(const Augment *augment) {
    return augment->mix > 0 && (augment->mixup > 0 || augment->cutmix > 0);
}

/* ---- numbers ---- */

uint64_t draw_key(uint64_t key, int64_t sample) {
    return random_key(random_key_name(key, "image"), (uint64_t)sample);
}

static double between(uint64_t key, uint64_t index, double least, double most) {
    return least + (most - least) * random_uniform(key, index);
}

/* A whole number in [0, bound). */
static int64_t below(uint64_t key, uint64_t index, int64_t bound) {
    return (int64_t)((unsigned __int128)random_u64(key, index) * (uint64_t)bound >> 64);
}

/* Gamma(shape, 1), shape >= 1: Marsaglia and Tsang, A simple method for generating gamma
 * variables, 2000. */
static double draw_gamma(uint64_t key, double shape) {
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint64_t i = 0;; i += 2) {
        const double x = random_normal(key, i), v = pow(1 + c * x, 3);
        const double u = 1 - random_uniform(key, i + 1); /* in (0, 1] */
        if (v > 0 && log(u) < x * x / 2 + d - d * v + d * log(v)) return d * v;
    }
}

/* The logarithm of Gamma(shape, 1): below shape 1 the number itself may underflow. */
static double draw_log_gamma(uint64_t key, double shape) {
    const double u = 1 - random_uniform(random_key_name(key, "power"), 0);
    return log(draw_gamma(key, shape + 1)) + log(u) / shape;
}

double draw_beta(uint64_t key, double alpha) {
    const double x = draw_log_gamma(random_key(key, 0), alpha);
    const double y = draw_log_gamma(random_key(key, 1), alpha);
    return 1 / (1 + exp(y - x));
}

/* ---- one image ---- */

Shift draw_shift(const Augment *augment, uint64_t draws) {
    Shift shift = {0};
    if (augment->flip) shift.flip = random_u64(random_key_name(draws, "flip"), 0) & 1;
    if (augment->crop == 0) return shift;
    const uint64_t key = random_key_name(draws, "crop");
    shift.down = below(key, 0, 2 * augment->crop + 1) - augment->crop;
    shift.right = below(key, 1, 2 * augment->crop + 1) - augment->crop;
    return shift;
}

/* Tries boxes of a random share of the area, ratios with a uniform logarithm. */
static bool draw_box(uint64_t key, int64_t rows, int64_t cols, const double *area,
                     const double *ratio, Box *out) {
    for (uint64_t i = 0; i < 4 * TRIES; i += 4) {
        const double size =
            (double)rows * (double)cols * between(key, i, area[0], area[1]);
        const double shape = exp(between(key, i + 1, log(ratio[0]), log(ratio[1])));
        const double height = round(sqrt(size / shape)),
                     width = round(sqrt(size * shape));
        if (height < 1 || width < 1 || height > (double)rows || width > (double)cols)
            continue;
        *out = (Box){.rows = (int64_t)height, .cols = (int64_t)width};
        out->top = below(key, i + 2, rows - out->rows + 1);
        out->left = below(key, i + 3, cols - out->cols + 1);
        return true;
    }
    return false;
}

/* The largest box in the middle with a ratio in the range. */
static Box middle_box(int64_t rows, int64_t cols, const double *ratio) {
    const double shape = (double)cols / (double)rows;
    Box box = {0, 0, rows, cols};
    if (shape < ratio[0]) box.rows = (int64_t)round((double)cols / ratio[0]);
    if (shape > ratio[1]) box.cols = (int64_t)round((double)rows * ratio[1]);
    if (box.rows < 1) box.rows = 1;
    if (box.cols < 1) box.cols = 1;
    box.top = (rows - box.rows) / 2;
    box.left = (cols - box.cols) / 2;
    return box;
}

Box draw_resized_crop(const Augment *augment, uint64_t draws, int64_t rows,
                      int64_t cols) {
    const double *ratio = augment->resized_ratio.items;
    Box box;
    if (draw_box(random_key_name(draws, "resized"), rows, cols,
                 augment->resized_crop.items, ratio, &box))
        return box;
    return middle_box(rows, cols, ratio);
}

bool draw_erase(const Augment *augment, uint64_t draws, int64_t rows, int64_t cols,
                Box *out) {
    const uint64_t key = random_key_name(draws, "erase");
    if (!(random_uniform(key, 0) < augment->erase)) return false;
    return draw_box(random_key(key, 1), rows, cols, ERASE_AREA, ERASE_RATIO, out);
}

/* ---- two images ---- */

/* The ends [first, last) of a side of CutMix's box around a random centre, cut off at the
 * image's border. */
static void cut_side(uint64_t key, uint64_t index, int64_t side, double length,
                     int64_t *first, int64_t *last) {
    const int64_t center = below(key, index, side), half = (int64_t)(length / 2);
    *first = center - half < 0 ? 0 : center - half;
    *last = center + half > side ? side : center + half;
}

static void draw_cut(Mix *mix, uint64_t key, int64_t rows, int64_t cols) {
    const double root = sqrt(mix->share);
    int64_t top, bottom, left, right;
    cut_side(key, 0, rows, (double)rows * root, &top, &bottom);
    cut_side(key, 1, cols, (double)cols * root, &left, &right);
    mix->cut = true;
    mix->box = (Box){top, left, bottom - top, right - left};
    mix->share = (double)(mix->box.rows * mix->box.cols) / ((double)rows * (double)cols);
}

Mix augment_mix(const Augment *augment, uint64_t key, int64_t sample, int64_t count,
                int64_t rows, int64_t cols) {
    Mix mix = {.other = sample};
    if (!augment_mixes(augment)) return mix;
    key = random_key(random_key_name(key, "mix"), (uint64_t)sample);
    if (!(random_uniform(key, 0) < augment->mix)) return mix;
    const bool both = augment->mixup > 0 && augment->cutmix > 0;
    const bool cut =
        both ? random_uniform(key, 1) < augment->cutmix_share : augment->cutmix > 0;
    mix.other = below(key, 2, count);
    mix.share =
        draw_beta(random_key_name(key, "beta"), cut ? augment->cutmix : augment->mixup);
    if (cut) draw_cut(&mix, random_key_name(key, "box"), rows, cols);
    return mix;
}
