/* Pages: ticks of axes, text made safe, charts of many values, and what is made of
 * runs. */
#include "session/page/axis.h"
#include "session/page/chart.h"
#include "session/page/html.h"
#include "session/page/markup.h"
#include "session/page/palette.h"
#include "session/page/summary.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- axes ---- */

static void check_axis(double least, double most, AxisWish wish) {
    Axis axis;
    axis_make(&axis, least, most, wish);
    assert_true(isfinite(axis.low) && isfinite(axis.high) && axis.low < axis.high);
    assert_true(axis.ticks >= 1 && axis.ticks <= AXIS_TICKS);
    for (int i = 0; i < axis.ticks; i++) {
        const double place = axis_place(&axis, axis.tick[i]);
        assert_true(place > -1e-6 && place < 1 + 1e-6);
        if (i > 0) assert_true(axis.tick[i] > axis.tick[i - 1]);
        if (i > 0) assert_string_not_equal(axis.label[i], axis.label[i - 1]);
        if (wish.whole) assert_float_equal(axis.tick[i], rint(axis.tick[i]), 1e-9);
    }
    assert_true(axis_place(&axis, least) > -1e-6);
    assert_true(axis_place(&axis, most) < 1 + 1e-6);
}

/* Ranges of every size: ticks ascend within them, their labels differ, and the values
 * have places. */
static void test_axes(void **state) {
    (void)state;
    unsigned seed = 7;
    for (int i = 0; i < 20000; i++) {
        const double size = pow(10, (double)(rand_r(&seed) % 24) - 8);
        const double least = size * (rand_r(&seed) % 2000 - 1000) / 100;
        const double range = fabs(least) * pow(10, -(double)(rand_r(&seed) % 4)) +
                             size * (rand_r(&seed) % 3);
        const AxisWish wish = {.log = rand_r(&seed) % 2,
                               .tight = rand_r(&seed) % 2,
                               .zero = rand_r(&seed) % 2,
                               .ticks = 2 + rand_r(&seed) % 6};
        check_axis(least, least + range, wish);
        check_axis(rint(least), rint(least), (AxisWish){.whole = true, .ticks = 4});
    }
}

static void check_labels(double least, double most, AxisWish wish, const char *expected) {
    Axis axis;
    Text text = {0};
    axis_make(&axis, least, most, wish);
    for (int i = 0; i < axis.ticks; i++)
        text_add(&text, "%s%s", i ? " " : "", axis.label[i]);
    assert_string_equal(text.data, expected);
    text_free(&text);
}

static void test_labels(void **state) {
    (void)state;
    check_labels(0, 100, (AxisWish){.ticks = 4}, "0 20 40 60 80 100");
    check_labels(76.3, 90.2, (AxisWish){.ticks = 4}, "75 80 85 90 95");
    check_labels(0, 4.4e7, (AxisWish){.ticks = 5}, "0 10M 20M 30M 40M 50M");
    check_labels(1e-4, 3e-4, (AxisWish){.ticks = 4}, "1e-4 1.5e-4 2e-4 2.5e-4 3e-4");
    check_labels(1e-5, 1, (AxisWish){.log = true, .tight = true, .ticks = 5},
                 "1e-5 1e-4 0.001 0.01 0.1 1");
    check_labels(3, 3, (AxisWish){.whole = true, .ticks = 4}, "2 3 4");
    check_labels(-0.5, 0.5, (AxisWish){.ticks = 4}, "-0.6 -0.4 -0.2 0 0.2 0.4 0.6");
}

/* ---- text ---- */

static void test_markup(void **state) {
    (void)state;
    Text text = {0};
    markup_text(&text, "<a href='x'>\"&\x01\xff\xe2\x80\xae\xc2\x85\t\n\xc3\xa9");
    assert_string_equal(text.data,
                        "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\xef\xbf\xbd\xef\xbf\xbd"
                        "\xef\xbf\xbd\xef\xbf\xbd\t\n\xc3\xa9");
    text_free(&text);
    markup_clip(&text, "\xc3\xa9<<<<", 3);
    assert_string_equal(text.data, "\xc3\xa9&lt;\xe2\x80\xa6");
    text_free(&text);
    markup_code(&text, "a`b|c\nd", 100);
    assert_string_equal(text.data, "`a'b\\|c d`");
    text_free(&text);
    markup_field(&text, "=1+\"2\",");
    assert_string_equal(text.data, "\"'=1+\"\"2\"\",\"");
    text_free(&text);
    markup_quoted(&text, "a\\N\"\nb", 100);
    assert_string_equal(text.data, "\"a\\\\N\\\"\\nb\"");
    text_free(&text);
}

/* ---- charts ---- */

/* Number of points of the longest line in a picture. */
static int longest_line(const char *svg) {
    int most = 0;
    for (const char *at = strstr(svg, " d=\"M"); at; at = strstr(at + 1, " d=\"M")) {
        int points = 1;
        for (const char *c = at + 5; *c != '"'; c++) points += *c == 'L';
        if (points > most) most = points;
    }
    return most;
}

/* A line of a hundred thousand values is drawn with few, and the spike is among them. */
static void test_long_line(void **state) {
    enum { N = 100000 };
    (void)state;
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++) x[i] = i, y[i] = sin(i / 1e4);
    y[77777] = 10;
    const ChartSeries series = {"line", x, y, .count = N, .marks = CHART_LINE};
    const Chart chart = {"title", "x", "y", .series = &series, .count = 1};
    Text text = {0};
    chart_draw(&text, &chart);
    assert_true(longest_line(text.data) <= 400);
    /* the top of the plot is the axis's end, which is 10 */
    assert_non_null(strstr(text.data, " 24L"));
    text_free(&text);
    chart_describe(&text, &chart);
    assert_non_null(strstr(text.data, "largest 10."));
    text_free(&text);
    free(x);
    free(y);
}

/* Values without a place leave gaps, and none at all are no picture. */
static void test_gaps(void **state) {
    (void)state;
    const double x[] = {1, 2, 3, 4, 5}, y[] = {1, 2, NAN, 4, INFINITY};
    ChartSeries series = {"gap", x, y, .count = 5, .marks = CHART_LINE};
    const Chart chart = {"title", "x", "y", .series = &series, .count = 1};
    Text text = {0};
    chart_draw(&text, &chart);
    const char *line = strstr(text.data, "class=\"l ");
    assert_non_null(line);
    line = strstr(line, " d=\"M");
    const char *again = strchr(line + 5, 'M'), *end = strchr(line + 5, '"');
    assert_true(again && again < end); /* a second part */
    assert_null(strstr(text.data, "nan"));
    text_free(&text);
    series.count = 0;
    assert_false(chart_has_values(&chart));
}

/* ---- colours ---- */

static double channel(const char *hex) {
    char digits[3] = {hex[0], hex[1], 0};
    const double value = (double)strtol(digits, NULL, 16) / 255;
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

/* Relative luminance of "--name:#rrggbb" in declarations (WCAG 2.1). */
static double luminance(const char *declarations, const char *name) {
    const char *at = strstr(declarations, name);
    assert_non_null(at);
    at += strlen(name) + 2;     /* ":#" */
    if (at[3] == ';') return 1; /* #fff, the only short one */
    return 0.2126 * channel(at) + 0.7152 * channel(at + 2) + 0.0722 * channel(at + 4);
}

static double contrast(const char *declarations, const char *a, const char *b) {
    const double x = luminance(declarations, a), y = luminance(declarations, b);
    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

/* Lines and marks stand out from the paper by 3 to 1, text by 4.5 to 1. */
static void test_contrast(void **state) {
    static const char *const colors[] = {"--c0", "--c1", "--c2", "--c3", "--c4", "--c5"};
    const char *const modes[] = {palette_light, palette_dark};
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        for (int i = 0; i < PALETTE_COLORS; i++)
            assert_true(contrast(modes[mode], colors[i], "--paper") >= 3);
        assert_true(contrast(modes[mode], "--muted", "--paper") >= 4.5);
        assert_true(contrast(modes[mode], "--ink", "--paper") >= 7);
    }
}

/* What is nearly the same is told from what is. */
static void test_ratios(void **state) {
    (void)state;
    static const struct {
        double before, after;
        const char *text;
    } CASES[] = {{1000, 500, "2.00x smaller"},
                 {1000, 1100, "1.10x larger"},
                 {1000, 1000, "same"},
                 {1000, 998, "0.2 % smaller"},
                 {1000, 1003, "0.3 % larger"},
                 {1000, 999.99, "0.001 % smaller"},
                 {0, 1000, ""},
                 {NAN, 1000, ""}};
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_string_equal(summary_ratio(arena, CASES[i].before, CASES[i].after, "x"),
                            CASES[i].text);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes),     cmocka_unit_test(test_labels),
        cmocka_unit_test(test_markup),   cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_ratios),   cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_contrast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
