/* Classes that a data set names, against the model's head and its names. */
#include "session/session.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"

#include <stdlib.h>
#include <string.h>

/* A model of images with the given id2label. */
static Model *classifier(const char *id2label) {
    char yaml[600];
    snprintf(yaml, sizeof yaml,
             "{model_type: vit, hidden_size: 4, num_hidden_layers: 1,\n"
             " num_attention_heads: 1, intermediate_size: 4, image_size: 4,\n"
             " patch_size: 4, num_channels: 1, id2label: %s}\n",
             id2label);
    return configured_model(yaml, 1);
}

/* Checks names against a model of three labels with the given id2label; returns the
 * status and, in *message, what was said. */
static Status check(const char *id2label, const char *const *names, int count,
                    char **message) {
    Diag *diag = diag_create();
    Session session = {.arena = arena_create(), .input.path = "model"};
    Batches data = {.name = "set", .classes = count, .class_names = names};
    DataEntry entry = {.name = "train", .batches = &data};
    session.model = classifier(id2label);
    const Status status =
        session_check_data(&session, &entry, session.model, LOC_FILE("r"), diag);
    *message = diag_text(diag);
    diag_destroy(diag);
    model_destroy(session.model);
    arena_destroy(session.arena);
    return status;
}

static void expect(const char *id2label, const char *const *names, int count,
                   Status status, const char *part) {
    char *message;
    const Status found = check(id2label, names, count, &message);
    if (found != status || (*part ? !strstr(message, part) : *message))
        fail_msg("expected %d with '%s', got %d: %s", status, part, found, message);
    free(message);
}

#define ANIMALS "{'0': ant, '1': bee, '2': cat}"

static void test_classes(void **state) {
    (void)state;
    static const char *const ANT_BEE_CAT[] = {"ant", "bee", "cat", "dog"};
    static const char *const CAT_ANT_BEE[] = {"cat", "ant", "bee"};
    static const char *const COW_ELK_FOX[] = {"cow", "elk", "fox"};
    expect(ANIMALS, ANT_BEE_CAT, 3, STATUS_OK, "");
    expect(ANIMALS, NULL, 2, STATUS_OK, "");
    expect(ANIMALS, ANT_BEE_CAT, 2, STATUS_MODEL,
           "data set \"train\" has 2 classes, the model's head 3");
    expect(ANIMALS, ANT_BEE_CAT, 4, STATUS_MODEL, "has 4 classes, the model's head 3");
    expect(ANIMALS, CAT_ANT_BEE, 3, STATUS_MODEL,
           "class 0 is 'cat', in the model it is 'ant'");
    expect(ANIMALS, COW_ELK_FOX, 3, STATUS_OK, "their order is not checked");
    expect("{'0': LABEL_0, '1': LABEL_1, '2': LABEL_2}", CAT_ANT_BEE, 3, STATUS_OK, "");
}

/* Checks a teacher beside a student and a data set of these names (NULL = none). */
static void expect_teacher(const char *student, const char *teacher,
                           const char *const *names, bool predictions, Status status,
                           const char *part) {
    Diag *diag = diag_create();
    Session session = {.arena = arena_create()};
    Batches data = {.name = "set", .classes = 3, .class_names = names};
    const DataEntry entry = {.name = "train", .batches = &data};
    Model *own = classifier(student), *other = classifier(teacher);
    const TeacherUse use = {.data = "train",
                            .path = "T",
                            .model = own,
                            .teacher = other,
                            .predictions = predictions};
    const Status found =
        session_check_teacher(&session, &entry, &use, LOC_FILE("r"), diag);
    char *message = diag_text(diag);
    if (found != status || (*part ? !strstr(message, part) : *message))
        fail_msg("expected %d with '%s', got %d: %s", status, part, found, message);
    free(message);
    model_destroy(own);
    model_destroy(other);
    diag_destroy(diag);
    arena_destroy(session.arena);
}

static void test_teacher(void **state) {
    (void)state;
    static const char *const ANT_BEE_CAT[] = {"ant", "bee", "cat"};
    static const char GENERIC[] = "{'0': LABEL_0, '1': LABEL_1, '2': LABEL_2}";
    static const char TURNED[] = "{'0': cat, '1': bee, '2': ant}";
    static const char OTHERS[] = "{'0': cow, '1': elk, '2': fox}";
    expect_teacher(ANIMALS, ANIMALS, ANT_BEE_CAT, true, STATUS_OK, "");
    expect_teacher(ANIMALS, TURNED, NULL, true, STATUS_MODEL,
                   "the model: class 0 is 'ant', in the teacher, T, it is 'cat'");
    expect_teacher(
        GENERIC, TURNED, ANT_BEE_CAT, true, STATUS_MODEL,
        "data set \"train\": class 0 is 'ant', in the teacher, T, it is 'cat'");
    expect_teacher(ANIMALS, TURNED, ANT_BEE_CAT, false, STATUS_OK, "");
    expect_teacher(GENERIC, TURNED, NULL, true, STATUS_OK, "");
    expect_teacher(ANIMALS, GENERIC, ANT_BEE_CAT, true, STATUS_OK, "");
    expect_teacher(ANIMALS, "{'0': ant, '1': bee}", NULL, true, STATUS_OK, "");
    expect_teacher(ANIMALS, OTHERS, NULL, true, STATUS_OK,
                   "the model and the teacher, T, name their classes differently");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_teacher)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
