/* Decoding of PNG and JPEG: every kind, and files that are damaged or lie. */
#include "tests/io/image_fixture.h"

static const ImageOptions RGB = {IMAGE_RGB, IMAGE_WHITE, IMAGE_PIXELS_MAX};

/* Reads a file, checks its size and gives the image. */
static Image read_file(const char *name, const ImageOptions *options, int64_t rows,
                       int64_t cols) {
    Diag *diag = diag_create();
    Image image, header;
    assert_ok(image_read(&image, path_of(name), options, diag), diag);
    assert_ok(image_measure(&header, path_of(name), options, diag), diag);
    assert_int_equal(image.rows, rows);
    assert_int_equal(image.cols, cols);
    assert_int_equal(header.rows, rows);
    assert_int_equal(header.cols, cols);
    if (options->color != IMAGE_ANY) assert_int_equal(header.channels, image.channels);
    assert_null(header.pixels);
    diag_destroy(diag);
    return image;
}

static void expect_bytes(const char *name, const ImageOptions *options, int64_t rows,
                         int64_t cols, const uint8_t *want) {
    Image image = read_file(name, options, rows, cols);
    assert_memory_equal(image.pixels, want, (size_t)(rows * cols * image.channels));
    image_free(&image);
}

static void expect_refused(const char *name, const ImageOptions *options,
                           const char *part) {
    Bench bench = bench_open();
    Image image;
    const Status status = image_read(&image, path_of(name), options, bench.diag);
    const char *message = message_of(&bench);
    if (status != STATUS_FORMAT || !strstr(message, part) || !strstr(message, name))
        fail_msg("%s: expected '%s', got %d: %s", name, part, status, message);
    assert_int_equal(diag_errors(bench.diag), 1);
    bench_close(&bench);
}

/* ---- PNG ---- */

static void test_png_plain(void **state) {
    (void)state;
    Diag *diag = diag_create();
    for (int interlaced = 0; interlaced < 2; interlaced++)
        for (int channels = 1; channels <= 3; channels += 2) {
            Image image = pattern_image(13, 11, channels, diag);
            const PngSpec spec = {
                13, 11, channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, 8,
                interlaced};
            png_spill("a.png", &spec, image.pixels);
            const ImageOptions any = {IMAGE_ANY, IMAGE_WHITE, 13 * 11};
            expect_bytes("a.png", channels == 3 ? &RGB : &any, 13, 11, image.pixels);
            if (channels == 1) {
                Image rgb = read_file("a.png", &RGB, 13, 11);
                for (int i = 0; i < 3 * 13 * 11; i++)
                    assert_int_equal(rgb.pixels[i], image.pixels[i / 3]);
                image_free(&rgb);
            }
            image_free(&image);
        }
    diag_destroy(diag);
}

/* 16 bits are scaled to 8, one bit to 0 and 255. */
static void test_png_depths(void **state) {
    (void)state;
    static const uint8_t WIDE[] = {0,    0,    0xff, 0xff, 0x80, 0x80,
                                   0x01, 0x02, 0x7f, 0xff, 0x00, 0x81};
    const PngSpec wide = {1, 2, PNG_COLOR_TYPE_RGB, 16};
    png_spill("wide.png", &wide, WIDE);
    expect_bytes("wide.png", &RGB, 1, 2, (const uint8_t[]){0, 255, 128, 1, 127, 1});
    const PngSpec bits = {1, 3, PNG_COLOR_TYPE_GRAY, 1};
    png_spill("bits.png", &bits, (const uint8_t[]){0xa0});
    expect_bytes("bits.png", &RGB, 1, 3,
                 (const uint8_t[]){255, 255, 255, 0, 0, 0, 255, 255, 255});
}

static const png_color PALETTE[4] = {
    {10, 20, 30}, {40, 50, 60}, {200, 100, 0}, {7, 8, 9}};

static void test_png_palette(void **state) {
    (void)state;
    const uint8_t index = 0x1b; /* 0, 1, 2, 3 */
    const PngSpec plain = {1, 4, PNG_COLOR_TYPE_PALETTE, 2, .palette = PALETTE};
    png_spill("p.png", &plain, &index);
    expect_bytes("p.png", &RGB, 1, 4,
                 (const uint8_t[]){10, 20, 30, 40, 50, 60, 200, 100, 0, 7, 8, 9});
    PngSpec clear = plain;
    clear.alpha = (const png_byte[]){255, 0, 51, 255};
    png_spill("p.png", &clear, &index);
    expect_bytes("p.png", &RGB, 1, 4,
                 (const uint8_t[]){10, 20, 30, 255, 255, 255, 244, 224, 204, 7, 8, 9});
}

/* (a c + (255 - a) background) / 255, rounded. */
static void test_png_alpha(void **state) {
    (void)state;
    static const uint8_t RGBA[] = {10, 20, 30, 0, 10, 20, 30, 255, 100, 200, 50, 128};
    const ImageOptions black = {IMAGE_RGB, IMAGE_BLACK, IMAGE_PIXELS_MAX};
    const PngSpec spec = {1, 3, PNG_COLOR_TYPE_RGB_ALPHA, 8};
    png_spill("a.png", &spec, RGBA);
    expect_bytes("a.png", &RGB, 1, 3,
                 (const uint8_t[]){255, 255, 255, 10, 20, 30, 177, 227, 152});
    expect_bytes("a.png", &black, 1, 3,
                 (const uint8_t[]){0, 0, 0, 10, 20, 30, 50, 100, 25});
    const PngSpec gray = {1, 2, PNG_COLOR_TYPE_GRAY_ALPHA, 8};
    png_spill("g.png", &gray, (const uint8_t[]){100, 51, 9, 255});
    expect_bytes("g.png", &RGB, 1, 2, (const uint8_t[]){224, 224, 224, 9, 9, 9});
    const png_color_16 key = {.gray = 100};
    const PngSpec keyed = {1, 2, PNG_COLOR_TYPE_GRAY, 8, .clear = &key};
    png_spill("k.png", &keyed, (const uint8_t[]){100, 99});
    expect_bytes("k.png", &black, 1, 2, (const uint8_t[]){0, 0, 0, 99, 99, 99});
}

/* The grey of colours, as Pillow's convert("L") gives it: CRC of its bytes. */
static void test_gray(void **state) {
    (void)state;
    Diag *diag = diag_create();
    const ImageOptions gray = {IMAGE_GRAY, IMAGE_WHITE, IMAGE_PIXELS_MAX};
    Image image = pattern_image(5, 7, 3, diag);
    png_spill_image("a.png", &image);
    Image found = read_file("a.png", &gray, 5, 7);
    assert_int_equal(found.channels, 1);
    assert_int_equal(crc32(0, found.pixels, 35), 1650523886u);
    image_free(&found);
    image_free(&image);
    diag_destroy(diag);
}

/* ---- JPEG ---- */

/* A smooth image: quality 100 keeps it to a few units. */
static Image smooth_image(int64_t channels, Diag *diag) {
    Image image;
    assert_ok(image_create(&image, 24, 40, channels, diag), diag);
    for (int64_t i = 0; i < 24 * 40; i++)
        for (int64_t c = 0; c < channels; c++)
            image.pixels[i * channels + c] =
                (uint8_t)(20 + i / 40 * (c + 1) * 2 + i % 40 * 2);
    return image;
}

static void expect_near(const char *name, const Image *want, int most) {
    Image found = read_file(name, &RGB, want->rows, want->cols);
    for (int64_t i = 0; i < want->rows * want->cols * 3; i++)
        if (abs(found.pixels[i] - want->pixels[i]) > most)
            fail_msg("%s: value %d is %d, expected %d", name, (int)i, found.pixels[i],
                     want->pixels[i]);
    image_free(&found);
}

static void test_jpeg(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Image image = smooth_image(3, diag), gray = smooth_image(1, diag);
    for (int progressive = 0; progressive < 2; progressive++) {
        jpeg_spill("a.jpg", &image, false, progressive);
        expect_near("a.jpg", &image, 3);
        jpeg_spill("g.jpg", &gray, false, progressive);
        for (int64_t i = 0; i < 24 * 40 * 3; i++) image.pixels[i] = gray.pixels[i / 3];
        expect_near("g.jpg", &image, 2);
        image_free(&image);
        image = smooth_image(3, diag);
    }
    image_free(&image);
    image_free(&gray);
    diag_destroy(diag);
}

/* r = c k / 255 where inks are inverted (Adobe), else (255 - c) (255 - k) / 255. */
static void test_jpeg_cmyk(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Image ink = smooth_image(4, diag), want = smooth_image(3, diag);
    for (int adobe = 0; adobe < 2; adobe++) {
        jpeg_spill("cmyk.jpg", &ink, adobe, false);
        for (int64_t i = 0; i < 24 * 40; i++)
            for (int c = 0; c < 3; c++) {
                const double a = ink.pixels[4 * i + c], k = ink.pixels[4 * i + 3];
                want.pixels[3 * i + c] =
                    (uint8_t)((adobe ? a * k : (255 - a) * (255 - k)) / 255 + 0.5);
            }
        expect_near("cmyk.jpg", &want, 4);
    }
    image_free(&ink);
    image_free(&want);
    diag_destroy(diag);
}

/* ---- hostile files ---- */

/* Every beginning of a file is refused, and every changed byte survived. `check`: bytes
 * from there to the end less `tail` are covered by check sums. */
static void damage(const char *from, const char *to, size_t check, size_t tail) {
    size_t length;
    uint8_t *data = slurp(from, &length);
    Diag *diag = diag_create();
    Image image;
    for (size_t cut = 0; cut < length; cut++) {
        spill(to, data, cut);
        assert_int_equal(image_read(&image, path_of(to), &RGB, diag), STATUS_FORMAT);
    }
    for (size_t at = 0; at < length; at++) {
        data[at] ^= 0x55;
        spill(to, data, length);
        const Status status = image_read(&image, path_of(to), &RGB, diag);
        assert_true(status == STATUS_OK || status == STATUS_FORMAT);
        if (at >= check && at < length - tail) assert_int_equal(status, STATUS_FORMAT);
        if (status == STATUS_OK) image_free(&image);
        data[at] ^= 0x55;
    }
    diag_destroy(diag);
    free(data);
}

static void test_damage(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Image image = pattern_image(6, 5, 3, diag), gray = pattern_image(9, 9, 1, diag);
    png_spill_image("a.png", &image);
    damage("a.png", "bad.png", 0, 0);
    jpeg_spill("a.jpg", &image, false, false);
    damage("a.jpg", "bad.jpg", SIZE_MAX, 0);
    jpeg_spill("p.jpg", &gray, false, true);
    damage("p.jpg", "bad.jpg", SIZE_MAX, 0);
    image_free(&image);
    image_free(&gray);
    diag_destroy(diag);
}

static void test_png_lies(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Image image = pattern_image(6, 5, 3, diag);
    png_spill_image("a.png", &image);
    size_t length;
    uint8_t *data = slurp("a.png", &length);
    static const struct {
        uint32_t rows, cols;
        const char *message;
    } LIES[] = {
        {0, 5, "damaged PNG"},
        {6, 0, "damaged PNG"},
        {0x80000000u, 5, "damaged PNG"},
        {0x7fffffff, 0x7fffffff, "damaged PNG"},
        {1 << 14, 1 << 14, "expected an image of 1 to 67108864 pixels"},
        {8000, 8000, "cannot lie in"},
        {7, 5, "damaged PNG"},
    };
    for (size_t i = 0; i < sizeof LIES / sizeof *LIES; i++) {
        png_resize(data, LIES[i].rows, LIES[i].cols);
        spill("lie.png", data, length);
        expect_refused("lie.png", &RGB, LIES[i].message);
    }
    png_resize(data, 6, 5);
    spill("lie.png", data, length);
    expect_bytes("lie.png", &RGB, 6, 5, image.pixels);
    const ImageOptions few = {IMAGE_RGB, IMAGE_WHITE, 29};
    expect_refused("lie.png", &few, "1 to 29 pixels, found 5 x 6");
    data[length - 14] ^= 1; /* check sum of the pixels */
    spill("lie.png", data, length);
    expect_refused("lie.png", &RGB, "CRC error");
    free(data);
    image_free(&image);
    diag_destroy(diag);
}

static void test_jpeg_lies(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Image image = pattern_image(6, 5, 3, diag);
    jpeg_spill("a.jpg", &image, false, false);
    size_t length;
    uint8_t *data = slurp("a.jpg", &length);
    static const struct {
        uint32_t rows, cols;
        const char *message;
    } LIES[] = {
        {0, 5, "damaged JPEG"},         {6, 0, "damaged JPEG"},
        {65535, 65535, "damaged JPEG"}, {65000, 65000, "expected an image of 1 to"},
        {8000, 8000, "cannot lie in"},  {60, 50, "damaged JPEG"},
    };
    for (size_t i = 0; i < sizeof LIES / sizeof *LIES; i++) {
        jpeg_resize(data, length, LIES[i].rows, LIES[i].cols);
        spill("lie.jpg", data, length);
        expect_refused("lie.jpg", &RGB, LIES[i].message);
    }
    free(data);
    image_free(&image);
    diag_destroy(diag);
}

static void test_not_images(void **state) {
    (void)state;
    spill("empty.png", "", 0);
    expect_refused("empty.png", &RGB, "found an empty file");
    spill("text.png", "not an image", 12);
    expect_refused("text.png", &RGB, "expected a PNG or JPEG image");
    spill("short.jpg", "\xff\xd8\xff", 3);
    expect_refused("short.jpg", &RGB, "damaged JPEG");
    Diag *diag = diag_create();
    Image image;
    assert_int_equal(image_read(&image, path_of("absent.png"), &RGB, diag), STATUS_IO);
    assert_int_equal(image_read(&image, folder, &RGB, diag), STATUS_IO);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png_plain),   cmocka_unit_test(test_png_depths),
        cmocka_unit_test(test_png_palette), cmocka_unit_test(test_png_alpha),
        cmocka_unit_test(test_gray),        cmocka_unit_test(test_jpeg),
        cmocka_unit_test(test_jpeg_cmyk),   cmocka_unit_test(test_damage),
        cmocka_unit_test(test_png_lies),    cmocka_unit_test(test_jpeg_lies),
        cmocka_unit_test(test_not_images),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
